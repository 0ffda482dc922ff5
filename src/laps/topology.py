"""A network as an operator writes it, for whoever simulates it, runs it or plans for it.

    [[nodes]]
    id = "1:1"
    type = "edge"              # edge, via, stub, control
    region = "west"

    [[links]]
    a = "1:1"
    b = "1:2"
    mode = "both"              # control, data, both

    [[publishers]]
    node = "1:1"

    [[subscribers]]
    node = "1:2"

These keys mean the same to everybody and are declared here, with what makes a network of them. A
reader declares what it wants to know beside them, by extending the tables:

    class MyNode(topology.Node, frozen=True, kw_only=True):
        reflect: Switch = False

    class MyTopology(topology.Topology, frozen=True, kw_only=True):
        nodes: tuple[MyNode, ...] = ()

    read_topology(MyTopology, mapping, "network.toml")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from laps.files import read_rows, refuse, require_known
from laps.types import NodeId, PeerMode, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# --- what a value may be ---------------------------------------------------------------------


def parse_id(value: object) -> NodeId:
    """The value of a `NodeIdKey`."""
    return parse_node_id(msgspec.convert(value, str))


def _parse_mode(value: object) -> PeerMode:
    return _MODES[msgspec.convert(value, Literal["control", "data", "both"])]


_MODES: Final = {mode.name.lower(): mode for mode in PeerMode}

NodeIdKey = Annotated[
    NodeId, Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": parse_id})
]
_Role = Annotated[
    Literal["edge", "via", "stub", "control"],
    Meta(description='one of "edge", "via", "stub", "control"'),
]
_Mode = Annotated[
    PeerMode, Meta(description='one of "control", "data", "both"', extra={"parse": _parse_mode})
]
String = Annotated[str, Meta(description="a string")]
MaybeString = Annotated[str | None, Meta(description="a string")]
_Latitude = Annotated[float, Meta(ge=-90, le=90, description="a number from -90 to 90")]
_Longitude = Annotated[float, Meta(ge=-180, le=180, description="a number from -180 to 180")]


# --- the tables ------------------------------------------------------------------------------


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """[[nodes]]: one relay."""

    id: NodeIdKey
    type: _Role = "edge"
    # Where it stands, for people and for a picture: relays do not ask.
    region: String = ""
    latitude: _Latitude = 0.0
    longitude: _Longitude = 0.0


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """[[links]]: a peering between two nodes; written twice, they have two connections."""

    a: NodeIdKey
    b: NodeIdKey
    mode: _Mode = PeerMode.BOTH


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """[[publishers]] and [[subscribers]]: applications at a node, or at several."""

    @property
    def places(self) -> tuple[tuple[str, NodeId], ...]:
        """The nodes they are at, each with the key that names it."""
        raise NotImplementedError


class Client(Clients, frozen=True, kw_only=True):
    """An application at one node."""

    node: NodeIdKey

    @property
    def places(self) -> tuple[tuple[str, NodeId], ...]:
        """The node it is at."""
        return (("node", self.node),)


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A whole network."""

    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    publishers: tuple[Clients, ...] = ()
    subscribers: tuple[Clients, ...] = ()


TABLES: Final = Topology.__struct_fields__

T = TypeVar("T", bound=Topology)

# --- reading ---------------------------------------------------------------------------------


def read_topology(kind: type[T], mapping: Mapping[str, object], source: str) -> T:
    """Read the tables of a parsed file; `source` names it in a refusal."""
    require_known(mapping, TABLES, source)
    hints = get_type_hints(kind)
    rows = {
        name: tuple(read_rows(get_args(hints[name])[0], mapping, name, source)) for name in TABLES
    }
    topology = kind(**rows)
    check(topology, source)
    return topology


def check(topology: Topology, source: str) -> None:
    """Refuse what is right row by row and no network together."""
    nodes: dict[NodeId, Node] = {}
    for number, node in enumerate(topology.nodes, start=1):
        if node.id in nodes:
            where = f"{source}: nodes[{number}]"
            refuse(where, "id", format_node_id(node.id), "is taken: every node has its own")
        nodes[node.id] = node
    for number, link in enumerate(topology.links, start=1):
        where = f"{source}: links[{number}]"
        _require_node(nodes, link.a, where, "a")
        _require_node(nodes, link.b, where, "b")
        if link.a == link.b:
            refuse(where, "b", format_node_id(link.b), "is a itself: a link has two ends")
    clients: tuple[tuple[str, Sequence[Clients]], ...] = (
        ("publishers", topology.publishers),
        ("subscribers", topology.subscribers),
    )
    for table, rows in clients:
        for number, client in enumerate(rows, start=1):
            for key, node_id in client.places:
                require_client_node(nodes, node_id, f"{source}: {table}[{number}]", key)


def require_client_node(
    nodes: Mapping[NodeId, Node], node_id: NodeId, where: str, key: str
) -> None:
    """Refuse a client at a node that is not there, or takes none."""
    node = _require_node(nodes, node_id, where, key)
    if node.type not in ("edge", "stub"):
        problem = f"is a {node.type}: clients go to an edge or a stub"
        refuse(where, key, format_node_id(node_id), problem)


def _require_node(nodes: Mapping[NodeId, Node], node_id: NodeId, where: str, key: str) -> Node:
    if node_id not in nodes:
        refuse(where, key, format_node_id(node_id), "is no node: add it to [[nodes]]")
    return nodes[node_id]
