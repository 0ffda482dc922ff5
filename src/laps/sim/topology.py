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

`laps.topology` has the keys that mean the same elsewhere. Every other key is a field below, with
its default and the words that say what would have been right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from laps import topology
from laps.files import read_toml, refuse
from laps.topology import MaybeString, String, read_topology
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laps.types import NodeId

# --- what a value may be ---------------------------------------------------------------------


def _parse_bandwidth(value: object) -> float:
    mbit: float = msgspec.convert(value, Annotated[float, Meta(gt=0, le=1_000_000)])
    return mbit


_Dial = Annotated[Literal["a", "b", "both"], Meta(description='one of "a", "b", "both"')]
_Switch = Annotated[bool, Meta(description="true or false")]
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


class Node(topology.Node, frozen=True, kw_only=True):
    """[[nodes]]: one relay."""

    # A Via's: it keeps and passes on subscribes, where no control server does.
    reflect: _Switch = False
    # It speaks the document's protocol alone, and no extensions.
    plain: _Switch = False


class Link(topology.Link, frozen=True, kw_only=True):
    """[[links]]: a peering between two nodes; written twice, they have two connections."""

    # One way, across a country.
    delay_ms: _Milliseconds = 10.0
    jitter_ms: _Milliseconds = 0.0
    loss: _Loss = 0.0
    # None: as wide as it is used.
    bandwidth_mbit: _Bandwidth = None
    # Who has the other among its peers. A stub takes no calls, so there it is always the stub.
    dial: _Dial = "a"


class Publisher(topology.Client, frozen=True, kw_only=True):
    """[[publishers]]: an application that publishes while somebody asks for it."""

    namespace: _Namespace
    # None: it announces the namespace, and publishes every track in it that is asked for.
    name: MaybeString = None
    objects_per_s: _Rate = 10.0
    # A group is a stream: a second of objects.
    objects_per_group: _Count = 10
    object_bytes: _Bytes = 200
    # How many of the objects go as datagrams instead.
    datagrams: _Share = 0.0


class Subscriber(topology.Client, frozen=True, kw_only=True):
    """[[subscribers]]: an application that wants one track."""

    namespace: _Namespace
    name: String = "track"


class Topology(topology.Topology, frozen=True, kw_only=True):
    """A whole network."""

    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()


# --- reading ---------------------------------------------------------------------------------


def load_topology(path: Path) -> Topology:
    """Read a TOML file, or say in one line what to mend in it."""
    return topology_from_mapping(read_toml(path), str(path))


def topology_from_mapping(mapping: Mapping[str, object], source: str) -> Topology:
    """Read the tables of a parsed TOML file; `source` names it in a refusal."""
    read = read_topology(Topology, mapping, source)
    _check_roles(read, source)
    return read


def check(made: Topology, source: str) -> None:
    """Refuse what is right row by row and wrong together."""
    topology.check(made, source)
    _check_roles(made, source)


def _check_roles(made: Topology, source: str) -> None:
    """Refuse what a relay of its role does not do."""
    nodes = {node.id: node for node in made.nodes}
    for number, node in enumerate(made.nodes, start=1):
        if node.reflect and node.type != "via":
            problem = f"is for a via, and the node is of type {node.type}"
            refuse(f"{source}: nodes[{number}]", "reflect", node.reflect, problem)
    control: set[frozenset[NodeId]] = set()
    for number, link in enumerate(made.links, start=1):
        where = f"{source}: links[{number}]"
        _check_link(link, {"a": nodes[link.a], "b": nodes[link.b]}, where)
        if link.mode is not PeerMode.DATA:
            pair = frozenset({link.a, link.b})
            if pair in control:
                problem = 'must be "data": another link between the two has the control'
                refuse(where, "mode", link.mode.name.lower(), problem)
            control.add(pair)


def _check_link(link: Link, ends: Mapping[str, Node], where: str) -> None:
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
