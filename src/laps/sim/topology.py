"""A network to simulate, as an operator writes it, or as a generator makes it.

    [[nodes]]
    id = "1:1"
    type = "edge"              # edge, via, stub, control

    [[links]]
    a = "1:1"
    b = "1:2"
    delay_ms = 12.5            # one way; a round trip takes twice that

    [[publishers]]
    node = "1:1"
    namespace = ["demo"]       # announces whatever has this namespace; with a name, one track

    [[subscribers]]
    node = "1:2"
    namespace = ["demo"]
    name = "clock"

Every key is a field below, with its default and the words that say what would have been right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from laps.files import read_rows, read_toml, refuse, require_known
from laps.types import NodeId, PeerMode, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# --- what a value may be ---------------------------------------------------------------------


def _parse_node_id(value: object) -> NodeId:
    return parse_node_id(msgspec.convert(value, str))


def _parse_mode(value: object) -> PeerMode:
    return _MODES[msgspec.convert(value, Literal["control", "data", "both"])]


def _parse_bandwidth(value: object) -> float:
    mbit: float = msgspec.convert(value, Annotated[float, Meta(gt=0, le=1_000_000)])
    return mbit


_MODES: Final = {mode.name.lower(): mode for mode in PeerMode}

_NodeId = Annotated[
    NodeId,
    Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": _parse_node_id}),
]
_Role = Annotated[
    Literal["edge", "via", "stub", "control"],
    Meta(description='one of "edge", "via", "stub", "control"'),
]
_Mode = Annotated[
    PeerMode,
    Meta(description='one of "control", "data", "both"', extra={"parse": _parse_mode}),
]
_Dial = Annotated[Literal["a", "b", "both"], Meta(description='one of "a", "b", "both"')]
_String = Annotated[str, Meta(description="a string")]
_Name = Annotated[str | None, Meta(description="a string")]
_Switch = Annotated[bool, Meta(description="true or false")]
_Latitude = Annotated[float, Meta(ge=-90, le=90, description="a number from -90 to 90")]
_Longitude = Annotated[float, Meta(ge=-180, le=180, description="a number from -180 to 180")]
_Milliseconds = Annotated[float, Meta(ge=0, le=10_000, description="a number from 0 to 10000")]
# Nine of ten lost is slow, and ends; at ten of ten nothing ever would.
_Loss = Annotated[float, Meta(ge=0, le=0.9, description="a number from 0 to 0.9")]
_Bandwidth = Annotated[
    float | None,
    Meta(
        description="a number greater than 0, at most 1000000",
        extra={"parse": _parse_bandwidth},
    ),
]
_Rate = Annotated[float, Meta(gt=0, le=1000, description="a number greater than 0, at most 1000")]
_Count = Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100000")]
_Bytes = Annotated[int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000")]
_Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
_Namespace = Annotated[
    list[Annotated[str, Meta(min_length=1)]],
    Meta(min_length=1, max_length=32, description='a list of 1 to 32 parts, like ["demo", "x"]'),
]


# --- the tables ------------------------------------------------------------------------------


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """[[nodes]]: one relay."""

    id: _NodeId
    type: _Role = "edge"
    # Where it stands, for people and for a picture: relays do not ask.
    region: _String = ""
    latitude: _Latitude = 0.0
    longitude: _Longitude = 0.0
    # A Via's: it keeps and passes on subscribes, where no control server does.
    reflect: _Switch = False


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """[[links]]: a peering between two nodes; written twice, they have two connections."""

    a: _NodeId
    b: _NodeId
    # One way, across a country.
    delay_ms: _Milliseconds = 10.0
    jitter_ms: _Milliseconds = 0.0
    loss: _Loss = 0.0
    # None: as wide as it is used.
    bandwidth_mbit: _Bandwidth = None
    mode: _Mode = PeerMode.BOTH
    # Who has the other among its peers. A stub takes no calls, so there it is always the stub.
    dial: _Dial = "a"


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    """[[publishers]]: an application that publishes while somebody asks for it."""

    node: _NodeId
    namespace: _Namespace
    # None: it announces the namespace, and publishes every track in it that is asked for.
    name: _Name = None
    objects_per_s: _Rate = 10.0
    # A group is a stream: a second of objects.
    objects_per_group: _Count = 10
    object_bytes: _Bytes = 200
    # How many of the objects go as datagrams instead.
    datagrams: _Share = 0.0


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """[[subscribers]]: an application that wants one track."""

    node: _NodeId
    namespace: _Namespace
    name: _String = "track"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A whole network."""

    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()


_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "nodes": Node,
    "links": Link,
    "publishers": Publisher,
    "subscribers": Subscriber,
}

# --- reading ---------------------------------------------------------------------------------


def load_topology(path: Path) -> Topology:
    """Read a TOML file, or say in one line what to mend in it."""
    return topology_from_mapping(read_toml(path), str(path))


def topology_from_mapping(mapping: Mapping[str, object], source: str) -> Topology:
    """Read the tables of a parsed TOML file; `source` names it in a refusal."""
    require_known(mapping, tuple(_TABLES), source)
    tables: dict[str, Any] = {
        name: tuple(read_rows(table, mapping, name, source)) for name, table in _TABLES.items()
    }
    topology = Topology(**tables)
    check(topology, source)
    return topology


def check(topology: Topology, source: str) -> None:
    """Refuse what is right row by row and wrong together."""
    nodes: dict[NodeId, Node] = {}
    for number, node in enumerate(topology.nodes, start=1):
        where = f"{source}: nodes[{number}]"
        if node.id in nodes:
            refuse(where, "id", format_node_id(node.id), "is taken: every node has its own")
        if node.reflect and node.type != "via":
            problem = f"is for a via, and the node is of type {node.type}"
            refuse(where, "reflect", node.reflect, problem)
        nodes[node.id] = node
    control: set[frozenset[NodeId]] = set()
    for number, link in enumerate(topology.links, start=1):
        where = f"{source}: links[{number}]"
        _check_link(link, nodes, where)
        if link.mode is not PeerMode.DATA:
            pair = frozenset({link.a, link.b})
            if pair in control:
                problem = 'must be "data": another link between the two has the control'
                refuse(where, "mode", link.mode.name.lower(), problem)
            control.add(pair)
    clients: list[tuple[str, Sequence[Publisher | Subscriber]]] = [
        ("publishers", topology.publishers),
        ("subscribers", topology.subscribers),
    ]
    for table, rows in clients:
        for number, client in enumerate(rows, start=1):
            where = f"{source}: {table}[{number}]"
            node = _known(nodes, client.node, where, "node")
            if node.type not in ("edge", "stub"):
                problem = f"is a {node.type}: clients go to an edge or a stub"
                refuse(where, "node", format_node_id(node.id), problem)


def _check_link(link: Link, nodes: Mapping[NodeId, Node], where: str) -> None:
    ends = {"a": _known(nodes, link.a, where, "a"), "b": _known(nodes, link.b, where, "b")}
    if link.a == link.b:
        refuse(where, "b", format_node_id(link.b), "is a itself: a link has two ends")
    types = sorted(node.type for node in ends.values())
    for name, node in ends.items():
        if node.type == "control" and link.mode is not PeerMode.CONTROL:
            problem = f'must be "control": {name} is a control server and carries no data'
            refuse(where, "mode", link.mode.name.lower(), problem)
        if node.type != "stub":
            continue
        if types != ["edge", "stub"]:
            refuse(where, name, format_node_id(node.id), "is a stub: it peers with edges only")
        if link.mode is not PeerMode.BOTH:
            problem = f'must be "both": {name} is a stub, which has one connection for all'
            refuse(where, "mode", link.mode.name.lower(), problem)
        if link.dial != name:
            problem = f'must be "{name}": a stub dials and is never dialled'
            refuse(where, "dial", link.dial, problem)


def _known(nodes: Mapping[NodeId, Node], node_id: NodeId, where: str, key: str) -> Node:
    if node_id not in nodes:
        refuse(where, key, format_node_id(node_id), "is no node: add it to [[nodes]]")
    return nodes[node_id]
