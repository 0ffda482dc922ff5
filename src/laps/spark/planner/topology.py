"""A network and what flows through it, as an operator writes it.

    [[nodes]]
    id = "1:1"
    type = "edge"              # edge, via, stub, control
    region = "us"
    capacity_mbit = 2000       # what a via can send; left out: no limit known

    [[links]]
    a = "1:1"
    b = "1:2"
    delay_ms = 12.5            # one way; or srtt_ms, there and back
    bandwidth_mbit = 1000      # in each direction; left out: no limit known
    transits = ["ca"]          # regions that packets pass on their way

    [[publishers]]
    node = "1:1"
    namespace = ["demo"]       # publishes whatever has this namespace; with a name, one track
    rate_mbit = 4
    class = "gold"             # of service, where the policy does not say another

    [[subscribers]]
    nodes = ["2:1", "2:2"]     # or node = "2:1"
    namespace = ["demo"]
    name = "clock"

JSON with the same tables reads as well, and so does a network that `laps sim` simulates; what says
nothing to a planner is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from laps import topology
from laps.errors import ConfigError
from laps.files import read_mapping, refuse, require_known
from laps.spark.planner.demand import whole_kbit
from laps.spark.planner.network import Link, Node
from laps.topology import MaybeString, String, parse_id, read_topology
from laps.types import NodeId, PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MBIT = 1_000_000


def _parse_node_ids(value: object) -> tuple[NodeId, ...]:
    return tuple(map(parse_id, msgspec.convert(value, tuple[Any, ...])))


def _parse_namespace(value: object) -> tuple[str, ...]:
    parts = value.split("/") if isinstance(value, str) else value
    wanted = Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, max_length=32)
    ]
    found: tuple[str, ...] = msgspec.convert(parts, wanted)
    return found


def _number(meta: Meta) -> Any:
    return lambda value: msgspec.convert(value, Annotated[float, meta])


_MaybeNodeId = Annotated[
    NodeId | None,
    Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": parse_id}),
]
_NodeIds = Annotated[
    tuple[NodeId, ...],
    Meta(description='a list of node ids, like ["1:1", "1:2"]', extra={"parse": _parse_node_ids}),
]
_Anything = Annotated[Any, Meta(description="anything")]
_Milliseconds = Annotated[
    float | None,
    Meta(description="a number from 0 to 10000", extra={"parse": _number(Meta(ge=0, le=10_000))}),
]
_RoundTrip = Annotated[
    float | None,
    Meta(description="a number from 0 to 20000", extra={"parse": _number(Meta(ge=0, le=20_000))}),
]
# A petabit in a second is more than any machine or fibre has.
_Megabits = Annotated[
    float | None,
    Meta(
        description="a number greater than 0, at most 1000000000",
        extra={"parse": _number(Meta(gt=0, le=1e9))},
    ),
]
_Rate = Annotated[float, Meta(ge=0, le=1_000_000, description="a number from 0 to 1000000")]
_Bytes = Annotated[int, Meta(ge=0, le=1 << 30, description="a whole number, at least 0")]
_Regions = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...],
    Meta(description='a list of regions, like ["ca", "us"]'),
]
_Namespace = Annotated[
    tuple[str, ...],
    Meta(
        description='a list of 1 to 32 parts, like ["demo", "x"]',
        extra={"parse": _parse_namespace},
    ),
]


class NodeRow(topology.Node, frozen=True, kw_only=True):
    """[[nodes]]: one relay."""

    capacity_mbit: _Megabits = None
    reflect: _Anything = None


class LinkRow(topology.Link, frozen=True, kw_only=True):
    """[[links]]: a peering between two nodes."""

    delay_ms: _Milliseconds = None
    srtt_ms: _RoundTrip = None
    bandwidth_mbit: _Megabits = None
    transits: _Regions = ()
    jitter_ms: _Anything = None
    loss: _Anything = None
    dial: _Anything = None


class PublisherRow(topology.Client, frozen=True, kw_only=True):
    """[[publishers]]: an application that publishes a track, or all tracks of a namespace."""

    namespace: _Namespace
    name: MaybeString = None
    rate_mbit: _Megabits = None
    objects_per_s: _Rate = 10.0
    object_bytes: _Bytes = 200
    service: MaybeString = msgspec.field(name="class", default=None)
    objects_per_group: _Anything = None
    datagrams: _Anything = None

    @property
    def rate_bps(self) -> int:
        """As it says, or as its objects make it."""
        if self.rate_mbit is not None:
            return whole_kbit(self.rate_mbit * _MBIT)
        return whole_kbit(self.objects_per_s * self.object_bytes * 8)


class SubscriberRow(topology.Clients, frozen=True, kw_only=True):
    """[[subscribers]]: applications that want one track, at one node or several."""

    node: _MaybeNodeId = None
    nodes: _NodeIds = ()
    namespace: _Namespace
    name: String = "track"

    @property
    def places(self) -> tuple[tuple[str, NodeId], ...]:
        """The nodes, however they are given."""
        if self.node is not None:
            return (("node", self.node),)
        return tuple(("nodes", node) for node in self.nodes)


class _Tables(topology.Topology, frozen=True, kw_only=True):
    """What a file holds, row by row."""

    nodes: tuple[NodeRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
    publishers: tuple[PublisherRow, ...] = ()
    subscribers: tuple[SubscriberRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """What a file holds, checked."""

    source: str
    """Its name, for refusals."""
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    """Those that carry data."""
    publishers: tuple[PublisherRow, ...]
    subscribers: tuple[SubscriberRow, ...]

    @property
    def regions(self) -> frozenset[str]:
        """Every region that a node is in or a link transits."""
        transits = (name for link in self.links for name in link.transits)
        return frozenset({*(node.region for node in self.nodes), *transits})


def load_topology(path: Path) -> Topology:
    """Read a file, or say in one line what to mend in it."""
    return topology_from_mapping(read_mapping(path), str(path))


def topology_from_mapping(mapping: Mapping[str, object], source: str) -> Topology:
    """Read the tables of a parsed file; `source` names it in a refusal."""
    require_known(mapping, topology.TABLES, source)
    if mapping.get("nodes", []) == []:
        raise ConfigError(f"{source}: nodes: there are none: describe each relay in [[nodes]]")
    read = read_topology(_Tables, mapping, source)
    for number, subscriber in enumerate(read.subscribers, start=1):
        if (subscriber.node is None) == (not subscriber.nodes):
            where = f"{source}: subscribers[{number}]"
            raise ConfigError(f'{where}: give node = "2:1", or nodes = ["2:1", "2:2"]: one of them')
    numbers = {row.id: number for number, row in enumerate(read.nodes)}
    return Topology(
        source=source,
        nodes=tuple(map(_node, read.nodes)),
        links=tuple(
            _link(row, numbers)
            for number, row in enumerate(read.links, start=1)
            if _is_for_data(row, f"{source}: links[{number}]")
        ),
        publishers=read.publishers,
        subscribers=read.subscribers,
    )


def _node(row: NodeRow) -> Node:
    capacity_bps = _bits(row.capacity_mbit)
    name = format_node_id(row.id)
    return Node(name, row.type, row.region, row.latitude, row.longitude, capacity_bps)


def _is_for_data(row: LinkRow, where: str) -> bool:
    if row.delay_ms is not None and row.srtt_ms is not None:
        problem = "delay_ms says it too: give the delay one way, or the round trip"
        refuse(where, "srtt_ms", row.srtt_ms, problem)
    return row.mode is not PeerMode.CONTROL


def _link(row: LinkRow, numbers: Mapping[NodeId, int]) -> Link:
    # As in a simulation, 10 ms one way where nothing is said: across a country.
    delay_ms = 10.0 if row.delay_ms is None else row.delay_ms
    srtt_ms = 2 * delay_ms if row.srtt_ms is None else row.srtt_ms
    return Link(
        numbers[row.a],
        numbers[row.b],
        round(srtt_ms * 1000),
        _bits(row.bandwidth_mbit),
        tuple(sorted(set(row.transits))),
    )


def _bits(mbit: float | None) -> int:
    # 0 is for what nobody knows, so a limit is never rounded down to it.
    return 0 if mbit is None else max(1, round(mbit * _MBIT))
