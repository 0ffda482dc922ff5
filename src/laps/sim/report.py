"""A simulation from beginning to end, and what an operator wants to know of it.

    report = run(load_topology(Path("examples/sim/two-regions.toml")), seed=7, faults="random:5")
    Console().print(report.render())

The network starts and comes to rest; then the faults happen, and time passes for as long as asked,
and longer until it is at rest again. Objects count from the first rest on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from laps.sim.faults import parse_faults
from laps.sim.invariants import (
    check_always,
    check_delivery,
    check_paths,
    check_subscribes,
    matches,
)
from laps.sim.lanes import message_name
from laps.sim.network import Network
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.sim.topology import Topology

# After the last rest, data runs for this long, and has this long to arrive, before it is counted.
DELIVER_S: Final = 2.0
ARRIVE_S: Final = 2.0

# A link beyond these many, by its load, is left to the JSON.
MOST_LINKS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Converged:
    """What happened, and how long the network took to be at rest again."""

    at_s: float
    what: str
    convergence_s: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one direction of a link carried."""

    source: str
    destination: str
    control_messages: int
    control_bytes: int
    streams: int
    datagrams: int
    copies: int
    "Objects, each counted once for every time it passed here."
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a simulation."""

    seed: int
    nodes: int
    links: int
    virtual_s: float
    events: int
    converged: tuple[Converged, ...]
    control_messages: dict[str, int]
    "By the name of the message."
    control_bytes: int
    loads: tuple[LinkLoad, ...]
    published: int
    wanted: int
    "Objects times the subscribers they were for."
    delivered: int
    lost: int
    duplicates: int
    looped: int
    "Objects that came back to a node, each time they did."
    violations: tuple[str, ...]
    "What ought to hold and does not."

    def to_mapping(self) -> dict[str, object]:
        """Everything, for JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    def render(self) -> Group:
        """Tables for a terminal."""
        messages = sum(self.control_messages.values())
        size = f"{self.nodes} nodes, {self.links} links, seed {self.seed}"
        fate = f"{self.delivered} delivered and {self.lost} lost"
        odd = f"{self.duplicates} twice, {self.looped} in a loop"
        lines = [
            f"{size}: {self.virtual_s:.1f} s in {self.events} events",
            f"{messages} control messages, {self.control_bytes} bytes",
            f"{self.published} objects published; of {self.wanted} wanted {fate}; {odd}",
        ]
        found = ("what does not hold:", *self.violations) if self.violations else ()
        return Group(
            Text("\n".join(lines)),
            self._render_convergence(),
            self._render_loads(),
            Text("\n".join(found), style="red"),
        )

    def _render_convergence(self) -> Table:
        table = Table("at", "what", "converged in", title="Convergence")
        for one in self.converged:
            table.add_row(f"{one.at_s:.3f} s", one.what, f"{one.convergence_s:.3f} s")
        return table

    def _render_loads(self) -> Table:
        busiest = sorted(self.loads, key=lambda load: (load.copies, load.control_bytes))[::-1]
        shown = busiest[:MOST_LINKS_SHOWN]
        title = "Links" if len(shown) == len(busiest) else f"The {len(shown)} busiest links"
        table = Table("from", "to", "control messages", "copies", "data bytes", title=title)
        for load in shown:
            table.add_row(
                load.source,
                load.destination,
                str(load.control_messages),
                str(load.copies),
                str(load.data_bytes),
            )
        return table


def run(topology: Topology, seed: int, faults: str = "", seconds: float = 10.0) -> Report:
    """Simulate a network; `faults` are written as `laps.sim.faults` says."""
    planned = parse_faults(faults, topology, Random(seed))  # noqa: S311 - no secret
    network = Network(topology, seed)
    network.settle()
    start = network.now
    for fault in planned:
        network.run(max(0.0, start + fault.at_s - network.now))
        fault.strike(network)
    network.run(max(0.0, start + seconds - network.now))
    network.settle()
    rest = network.now
    network.run(DELIVER_S)
    until = network.now
    network.run(ARRIVE_S)
    violations = [
        *check_always(network),
        *check_paths(network),
        *check_subscribes(network),
        *check_delivery(network, rest, until),
    ]
    return _summarize(network, seed, start, until, violations)


def _summarize(
    network: Network, seed: int, start: float, until: float, violations: Iterable[str]
) -> Report:
    messages: Counter[int] = Counter()
    for _, _, traffic in network.traffic():
        messages += traffic.control_messages
    published = wanted = delivered = 0
    for publisher in network.publishers:
        made = [one for one, began in publisher.published.items() if start <= began <= until]
        published += len(made)
        for subscriber in network.subscribers:
            if matches(publisher, subscriber):
                track = subscriber.track_hash.full_name_hash
                of_track = [one for one in made if one.track == track]
                wanted += len(of_track)
                delivered += sum(one in subscriber.got for one in of_track)
    return Report(
        seed=seed,
        nodes=len(network.nodes),
        links=len(network.cables),
        virtual_s=network.now,
        events=network.clock.events,
        converged=tuple(
            Converged(one.time, one.what, one.convergence_s) for one in network.disturbances
        ),
        control_messages={message_name(kind): n for kind, n in sorted(messages.items())},
        control_bytes=sum(traffic.control_bytes for _, _, traffic in network.traffic()),
        loads=tuple(
            LinkLoad(
                source=format_node_id(a),
                destination=format_node_id(b),
                control_messages=traffic.control_messages.total(),
                control_bytes=traffic.control_bytes,
                streams=traffic.streams,
                datagrams=traffic.datagrams,
                copies=traffic.copies,
                data_bytes=traffic.stream_bytes + traffic.datagram_bytes,
            )
            for a, b, traffic in network.traffic()
        ),
        published=published,
        wanted=wanted,
        delivered=delivered,
        lost=wanted - delivered,
        duplicates=sum(len(subscriber.duplicates) for subscriber in network.subscribers),
        looped=len(network.trace.loops),
        violations=tuple(violations),
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Converged | LinkLoad):
        return {name: getattr(value, name) for name in value.__slots__}
    return value
