"""What it saves to move clients where their content is: the same viewers without and with it.

Regions of Edges that are all peers of each other, and viewers that come in at any Edge, as a load
balancer deals them out: each reads one track, a few read two. The relays are configured as they are
by default, and it is counted some minutes after everybody came; time is simulated.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from laps.config import MovingConfig
from laps.edge.settings import MovingSettings
from laps.relay.settings import ProbeSettings, RelaySettings
from laps.sim import generators
from laps.sim.clients import track_of
from laps.sim.copies import copies
from laps.sim.network import CACHE, Network
from laps.sim.viewers import Audience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How long everybody stays before it is counted, and how long it is counted.
STAY_S: Final = 300.0
COUNT_S: Final = 20.0
# What is published in the last seconds may be under way.
LAST_S: Final = 4.0
# From here on nobody may miss anything.
FIRST_S: Final = 10.0

VIEWERS_PER_NODE: Final = 3
TRACKS_PER_NODE: Final = 0.15
READ_TWO: Final = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run takes."""

    tracks: int
    viewers: int
    long_haul: float
    "Copies between regions that one object of each track takes, all tracks together."
    p50_ms: float
    p95_ms: float
    "From publisher's relay to viewer."
    moves: int
    most_moves: int
    "Of one viewer."
    lost: int
    twice: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The same viewers, without and with."""

    nodes: int
    regions: int
    seed: int
    before: Figures
    after: Figures
    least: int
    "Copies if all viewers of a track were at one Edge of their region."
    seconds: float
    "That it took."

    @property
    def holds(self) -> bool:
        """Whether copies were saved, and nothing was lost or came twice."""
        after = self.after
        return after.long_haul <= self.before.long_haul and not (after.lost or after.twice)

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"ratios": dict(self.ratios())}

    def ratios(self) -> Iterator[tuple[str, float]]:
        """After over before."""
        for name in ("long_haul", "p50_ms", "p95_ms"):
            before = getattr(self.before, name)
            yield name, round(getattr(self.after, name) / before, 3) if before else 1.0


def compare(
    nodes: int, regions: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Compared:
    """Simulate it twice; `tell` hears how far it is."""
    began = time.monotonic()
    config = MovingConfig()
    chosen = MovingSettings(config.per_minute, config.settled_s, config.near_ms)
    edges = max(1, nodes // regions)
    tell("without moving")
    before, least = _run(regions, edges, seed, MovingSettings(per_minute=0))
    tell("with moving")
    after, _ = _run(regions, edges, seed, chosen)
    seconds = round(time.monotonic() - began, 1)
    return Compared(regions * edges, regions, seed, before, after, least, seconds)


def table(found: Compared) -> Table:
    """For people."""
    before, after = found.before, found.after
    drawn = Table(
        title=f"{found.nodes} Edges in {found.regions} regions, {before.tracks} tracks, "
        f"{before.viewers} viewers, seed {found.seed}: {found.seconds:.0f} s",
        title_justify="left",
    )
    drawn.add_column("of one object of each track")
    for head in ("without", "with", "ratio"):
        drawn.add_column(head, justify="right")
    words = {
        "long_haul": f"copies between regions (least: {found.least})",
        "p50_ms": "delay to viewers, p50, ms",
        "p95_ms": "delay to viewers, p95, ms",
    }
    for name, ratio in found.ratios():
        figures = (f"{getattr(side, name):g}" for side in (before, after))
        drawn.add_row(words[name], *figures, f"{ratio:.2f}")
    drawn.add_row("viewers that were moved", str(before.moves), str(after.moves), "")
    drawn.add_row("times that one was, at most", str(before.most_moves), str(after.most_moves), "")
    drawn.add_row("objects lost, or twice", _wrong(before), _wrong(after), "")
    return drawn


def _wrong(figures: Figures) -> str:
    return f"{figures.lost}, {figures.twice}"


def _run(regions: int, edges: int, seed: int, moving: MovingSettings) -> tuple[Figures, int]:
    """The figures, and the copies that there have to be."""
    tracks = max(2, round(TRACKS_PER_NODE * regions * edges))
    topology = generators.regions_of_edges(regions, edges, tracks, seed)
    settings = RelaySettings(cache=CACHE, probing=ProbeSettings(enabled=False))
    network = Network(topology, seed, extended=1.0, settings=settings, load=lambda: 0.1)
    audience = Audience(network, moving)
    rng = Random(seed)  # noqa: S311 - no secret
    names = [track_of(it.namespace, it.name or "") for it in topology.publishers]
    for node in topology.nodes * VIEWERS_PER_NODE:
        audience.seat(node.id, rng.sample(names, 2 if rng.random() < READ_TWO else 1))
    where = {node.id: node.region for node in topology.nodes}
    homes = {name: where[it.node] for name, it in zip(names, topology.publishers, strict=True)}
    wanted = {(name, where[it.home.spec.id]) for it in audience.viewers for name in it.names}
    network.run(STAY_S)
    since = network.now
    network.run(COUNT_S)
    until = network.now - LAST_S
    seen = audience.seen(since, until)
    whole = audience.seen(FIRST_S, until)
    figures = Figures(
        tracks,
        len(audience.viewers),
        round(copies(network, since, until).long_haul, 1),
        round(1000 * seen.delay_s(0.5), 1),
        round(1000 * seen.delay_s(0.95), 1),
        audience.moves,
        max(len(it.moves) for it in audience.viewers),
        whole.lost,
        whole.twice,
    )
    return figures, sum(homes[name] != region for name, region in wanted)
