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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from laps.errors import ConfigError
from laps.files import read_mapping, read_rows, refuse, require_known
from laps.spark.planner.demand import whole_kbit
from laps.spark.planner.network import Link, Node
from laps.types import format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MBIT = 1_000_000


def _parse_node_id(value: object) -> str:
    return format_node_id(parse_node_id(msgspec.convert(value, str)))


def _parse_node_ids(value: object) -> tuple[str, ...]:
    return tuple(map(_parse_node_id, msgspec.convert(value, tuple[Any, ...])))


def _parse_namespace(value: object) -> tuple[str, ...]:
    parts = value.split("/") if isinstance(value, str) else value
    wanted = Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, max_length=32)
    ]
    found: tuple[str, ...] = msgspec.convert(parts, wanted)
    return found


def _number(meta: Meta) -> Any:
    return lambda value: msgspec.convert(value, Annotated[float, meta])


_NodeId = Annotated[
    str, Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": _parse_node_id})
]
_MaybeNodeId = Annotated[
    str | None,
    Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": _parse_node_id}),
]
_NodeIds = Annotated[
    tuple[str, ...],
    Meta(description='a list of node ids, like ["1:1", "1:2"]', extra={"parse": _parse_node_ids}),
]
_Role = Annotated[
    Literal["edge", "via", "stub", "control"],
    Meta(description='one of "edge", "via", "stub", "control"'),
]
_Mode = Annotated[
    Literal["control", "data", "both"], Meta(description='one of "control", "data", "both"')
]
_Anything = Annotated[Any, Meta(description="anything")]
_String = Annotated[str, Meta(description="a string")]
_MaybeString = Annotated[str | None, Meta(description="a string")]
_Latitude = Annotated[float, Meta(ge=-90, le=90, description="a number from -90 to 90")]
_Longitude = Annotated[float, Meta(ge=-180, le=180, description="a number from -180 to 180")]
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


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """[[nodes]]: one relay."""

    id: _NodeId
    type: _Role = "edge"
    region: _String = ""
    latitude: _Latitude = 0.0
    longitude: _Longitude = 0.0
    capacity_mbit: _Megabits = None
    reflect: _Anything = None


class LinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """[[links]]: a peering between two nodes."""

    a: _NodeId
    b: _NodeId
    delay_ms: _Milliseconds = None
    srtt_ms: _RoundTrip = None
    bandwidth_mbit: _Megabits = None
    transits: _Regions = ()
    mode: _Mode = "both"
    jitter_ms: _Anything = None
    loss: _Anything = None
    dial: _Anything = None


class PublisherRow(msgspec.Struct, frozen=True, kw_only=True):
    """[[publishers]]: an application that publishes a track, or all tracks of a namespace."""

    node: _NodeId
    namespace: _Namespace
    name: _MaybeString = None
    rate_mbit: _Megabits = None
    objects_per_s: _Rate = 10.0
    object_bytes: _Bytes = 200
    service: _MaybeString = msgspec.field(name="class", default=None)
    objects_per_group: _Anything = None
    datagrams: _Anything = None

    @property
    def rate_bps(self) -> int:
        """As it says, or as its objects make it."""
        if self.rate_mbit is not None:
            return whole_kbit(self.rate_mbit * _MBIT)
        return whole_kbit(self.objects_per_s * self.object_bytes * 8)


class SubscriberRow(msgspec.Struct, frozen=True, kw_only=True):
    """[[subscribers]]: applications that want one track, at one node or several."""

    node: _MaybeNodeId = None
    nodes: _NodeIds = ()
    namespace: _Namespace
    name: _String = "track"

    @property
    def at(self) -> tuple[str, ...]:
        """The nodes, however they are given."""
        return self.nodes if self.node is None else (self.node,)


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
    def numbers(self) -> dict[str, int]:
        """The number of each node by its id."""
        return {node.id: number for number, node in enumerate(self.nodes)}

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
    require_known(mapping, ("nodes", "links", "publishers", "subscribers"), source)
    rows = read_rows(NodeRow, mapping, "nodes", source)
    if not rows:
        raise ConfigError(f"{source}: nodes: there are none: describe each relay in [[nodes]]")
    numbers: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        if row.id in numbers:
            problem = "is taken: every node has its own"
            refuse(f"{source}: nodes[{number}]", "id", row.id, problem)
        numbers[row.id] = number - 1
    topology = Topology(
        source=source,
        nodes=tuple(
            Node(
                row.id, row.type, row.region, row.latitude, row.longitude, _bits(row.capacity_mbit)
            )
            for row in rows
        ),
        links=tuple(
            link
            for number, row in enumerate(read_rows(LinkRow, mapping, "links", source), start=1)
            if (link := _link(row, numbers, f"{source}: links[{number}]")) is not None
        ),
        publishers=tuple(read_rows(PublisherRow, mapping, "publishers", source)),
        subscribers=tuple(read_rows(SubscriberRow, mapping, "subscribers", source)),
    )
    _check_clients(topology)
    return topology


def _link(row: LinkRow, numbers: Mapping[str, int], where: str) -> Link | None:
    for key, node in (("a", row.a), ("b", row.b)):
        if node not in numbers:
            refuse(where, key, node, "is no node: add it to [[nodes]]")
    if row.a == row.b:
        refuse(where, "b", row.b, "is a itself: a link has two ends")
    if row.delay_ms is not None and row.srtt_ms is not None:
        problem = "delay_ms says it too: give the delay one way, or the round trip"
        refuse(where, "srtt_ms", row.srtt_ms, problem)
    if row.mode == "control":
        return None
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


def _check_clients(topology: Topology) -> None:
    numbers = topology.numbers

    def check(where: str, key: str, node: str) -> None:
        if node not in numbers:
            refuse(where, key, node, "is no node: add it to [[nodes]]")
        role = topology.nodes[numbers[node]].role
        if role not in ("edge", "stub"):
            refuse(where, key, node, f"is a {role}: clients go to an edge or a stub")

    for number, publisher in enumerate(topology.publishers, start=1):
        check(f"{topology.source}: publishers[{number}]", "node", publisher.node)
    for number, subscriber in enumerate(topology.subscribers, start=1):
        where = f"{topology.source}: subscribers[{number}]"
        if (subscriber.node is None) == (not subscriber.nodes):
            raise ConfigError(f'{where}: give node = "2:1", or nodes = ["2:1", "2:2"]: one of them')
        for node in subscriber.at:
            check(where, "nodes" if subscriber.nodes else "node", node)
