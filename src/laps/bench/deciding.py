"""What a network saves that decides by itself: the same demand with and without it, simulated.

Regions with Edges and a few Vias each, joined by spokes of Edges and by no Via: so a publisher's
relay sends a copy to every relay with subscribers that it reaches. Then relays may dial each other
(`demand`), and the same is counted again: copies that cross between regions, copies that leave
publishers' relays, and delays. Both are the same relays in one process, under one seed, and time is
simulated: the figures are the same on any machine.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs
from rich.table import Table

from laps.policy import policy_from_mapping
from laps.relay.settings import DemandSettings, ProbeSettings, RelaySettings
from laps.sim import generators
from laps.sim.copies import copies
from laps.sim.network import CACHE, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.sim.copies import Copies
    from laps.sim.topology import Topology

# How long relays find each other, and what would help; and how long it is counted after that.
RISE_S: Final = 15.0
SETTLE_S: Final = 40.0
COUNT_S: Final = 10.0
# What is published in the last seconds may be under way.
LAST_S: Final = 3.0

SESSIONS: Final = 8
SPOKES: Final = 0.05
MOST_A_REGION: Final = 4
EDGES_PER_VIA: Final = 8
TRACKS_PER_NODE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run takes."""

    tracks: int
    long_haul: float
    "Copies between regions that one object of each track takes, all tracks together."
    origin_egress: float
    "Copies that leave publishers' relays."
    p50_ms: float
    p95_ms: float
    sessions: int
    "On demand, at the end."

    @classmethod
    def of(cls, found: Copies, sessions: int) -> Figures:
        """Rounded to what can be told apart."""
        return cls(
            found.tracks,
            round(found.long_haul, 1),
            round(found.origin_egress, 1),
            round(1000 * found.delay_s(0.5), 1),
            round(1000 * found.delay_s(0.95), 1),
            sessions,
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """The same demand, without and with."""

    nodes: int
    links: int
    seed: int
    before: Figures
    after: Figures
    seconds: float
    "That it took."

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"ratios": dict(self.ratios())}

    def ratios(self) -> Iterator[tuple[str, float]]:
        """After over before."""
        for name in ("long_haul", "origin_egress", "p50_ms", "p95_ms"):
            before = getattr(self.before, name)
            yield name, round(getattr(self.after, name) / before, 3) if before else 1.0


def compare(
    nodes: int, regions: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Compared:
    """Simulate it twice; `tell` hears how far it is."""
    began = time.monotonic()
    topology = a_network(nodes, regions, seed)
    tell("without peers on demand")
    before = _run(topology, seed, 0, tell)
    tell("with peers on demand")
    after = _run(topology, seed, SESSIONS, tell)
    seconds = round(time.monotonic() - began, 1)
    return Compared(len(topology.nodes), len(topology.links), seed, before, after, seconds)


def a_network(nodes: int, regions: int, seed: int) -> Topology:
    """So many nodes, an eighth of them Vias, and tracks that are wanted in several regions."""
    vias = max(regions, nodes // EDGES_PER_VIA)
    edges = max(1, (nodes - vias) // regions)
    made = generators.regions(regions, edges, vias, control=0, seed=seed)
    where = {node.id: node.region for node in made.nodes}
    near = tuple(link for link in made.links if where[link.a] == where[link.b])
    made = generators.with_spokes(structs.replace(made, links=near), SPOKES, seed)
    tracks = max(2, round(TRACKS_PER_NODE * nodes))
    made = generators.with_audiences(made, tracks, MOST_A_REGION, seed)
    slow = tuple(
        structs.replace(it, objects_per_s=1.0, objects_per_group=2) for it in made.publishers
    )
    return structs.replace(made, publishers=slow)


def table(found: Compared) -> Table:
    """For people."""
    drawn = Table(
        title=f"{found.nodes} relays, {found.before.tracks} tracks, seed {found.seed}: "
        f"{found.seconds:.0f} s",
        title_justify="left",
    )
    drawn.add_column("of one object of each track")
    for head in ("without", "with", "ratio"):
        drawn.add_column(head, justify="right")
    words = {
        "long_haul": "copies between regions",
        "origin_egress": "copies that publishers' relays send",
        "p50_ms": "delay, p50, ms",
        "p95_ms": "delay, p95, ms",
    }
    for name, ratio in found.ratios():
        figures = (f"{getattr(side, name):g}" for side in (found.before, found.after))
        drawn.add_row(words[name], *figures, f"{ratio:.2f}")
    drawn.add_row("sessions on demand", str(found.before.sessions), str(found.after.sessions), "")
    return drawn


def _run(topology: Topology, seed: int, sessions: int, tell: Callable[[str], None]) -> Figures:
    settings = RelaySettings(
        cache=CACHE,
        demand=DemandSettings(sessions=sessions, idle_s=5.0),
        probing=ProbeSettings(enabled=False),
    )
    network = Network(topology, seed, extended=1.0, settings=settings, load=lambda: 0.1)
    network.run(RISE_S)
    tell("all relays are up")
    # One copy into each region is what the planner finds cheapest, too.
    network.follow_policy(policy_from_mapping({"plan": {"fan_out_per_region": 1}}, "the bench"))
    network.run(SETTLE_S)
    since = network.now
    network.run(COUNT_S)
    relays = [it.relay for it in network.nodes.values() if it.relay is not None]
    on_demand = sum(len(relay.demand.sessions.link_ids) for relay in relays)
    return Figures.of(copies(network, since, network.now - LAST_S), on_demand)
