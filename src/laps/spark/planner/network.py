"""The network that is planned for: nodes and links, as values and as arrays.

Nodes are numbered in the order they are given, regions in the order of their names. A link is one
number in the direction from `a` to `b`, and that number plus the count of links in the other: a
capacity holds for each direction by itself, as links are full duplex.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.policy import Policy

Numbers = NDArray[Any]
"Numbers of nodes, pairs, ..., whatever their width."
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# What carries a track from peer to peer: a stub is a client to the rest of the network, and a
# control server carries no data.
CARRIERS: Final = ("edge", "via")


@dataclass(frozen=True, slots=True)
class Node:
    """A relay."""

    id: str
    role: str = "edge"
    region: str = ""
    latitude: float = 0.0
    longitude: float = 0.0
    capacity_bps: int = 0
    """What it can send; 0: no limit known."""
    passes_on: bool = True
    """Whether it may pass data on for others, as far as policy goes."""


@dataclass(frozen=True, slots=True)
class Link:
    """A peering of two nodes, by their numbers."""

    a: int
    b: int
    srtt_us: int
    capacity_bps: int = 0
    """What it can carry in each direction; 0: no limit known."""
    transits: tuple[str, ...] = ()
    """The regions that packets pass on their way between the two."""
    is_closed: bool = False
    """Whether policy lets no data take it."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Nodes and links as arrays; make one with `network`."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    """At most one between two nodes, and none that touches a stub or a control server."""
    regions: tuple[str, ...]
    "Where nodes are, in the order of their names."
    region: Ints
    "[node]: the number of its region."
    rank: Ints
    "[node]: its place among all in the order of node ids."
    is_via: Flags
    "[node]: whether it is a Via, and may pass data on."
    is_edge: Flags
    passes_on: Flags
    "[node]"
    capacity_bps: Longs
    "[node]"
    link_a: Ints
    link_b: Ints
    link_srtt_us: Longs
    link_capacity_bps: Longs
    link_closed: Flags
    _keys: Longs = field(repr=False)
    _numbers: Ints = field(repr=False)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    def link_between(self, a: Numbers, b: Numbers) -> Ints:
        """The numbers of the directed links from each of `a` to each of `b`, which have one."""
        keys = np.asarray(a, np.int64) * self.size + b
        found: Ints = self._numbers[np.searchsorted(self._keys, keys)]
        return found

    def link_ends(self, number: int) -> tuple[int, int]:
        """The nodes that a directed link leads from and to."""
        count = len(self.links)
        link = self.links[number % count]
        return (link.a, link.b) if number < count else (link.b, link.a)


def network(nodes: Iterable[Node], links: Iterable[Link]) -> Network:
    """Number what there is. Links between the same two nodes count as one.

    Relays spread data over all of them, so it has the capacity of all and transits what any does;
    its sRTT is the least, which is what relays go by.
    """
    nodes = tuple(nodes)
    carries = [node.role in CARRIERS for node in nodes]
    merged = _merge(link for link in links if carries[link.a] and carries[link.b])
    regions = tuple(sorted({node.region for node in nodes}))
    number = {name: index for index, name in enumerate(regions)}
    rank = np.empty(len(nodes), np.int32)
    rank[sorted(range(len(nodes)), key=lambda n: parse_node_id(nodes[n].id))] = np.arange(
        len(nodes), dtype=np.int32
    )
    a = np.array([link.a for link in merged], np.int32)
    b = np.array([link.b for link in merged], np.int32)
    start, end = np.r_[a, b].astype(np.int64), np.r_[b, a].astype(np.int64)
    keys = start * len(nodes) + end
    numbers = np.argsort(keys, kind="stable").astype(np.int32)
    return Network(
        nodes=nodes,
        links=merged,
        regions=regions,
        region=np.array([number[node.region] for node in nodes], np.int32),
        rank=rank,
        is_via=np.array([node.role == "via" and node.passes_on for node in nodes], np.bool_),
        is_edge=np.array([node.role == "edge" for node in nodes], np.bool_),
        passes_on=np.array([node.passes_on for node in nodes], np.bool_),
        capacity_bps=np.array([node.capacity_bps for node in nodes], np.int64),
        link_a=a,
        link_b=b,
        link_srtt_us=np.array([link.srtt_us for link in merged], np.int64),
        link_capacity_bps=np.array([link.capacity_bps for link in merged], np.int64),
        link_closed=np.array([link.is_closed for link in merged], np.bool_),
        _keys=keys[numbers],
        _numbers=numbers,
    )


def _merge(links: Iterable[Link]) -> tuple[Link, ...]:
    between: dict[tuple[int, int], Link] = {}
    for link in links:
        ends = (min(link.a, link.b), max(link.a, link.b))
        other = between.get(ends)
        between[ends] = link if other is None else _together(other, link)
    return tuple(between.values())


def _together(one: Link, other: Link) -> Link:
    known = one.capacity_bps and other.capacity_bps
    return Link(
        one.a,
        one.b,
        min(one.srtt_us, other.srtt_us),
        one.capacity_bps + other.capacity_bps if known else 0,
        tuple(sorted({*one.transits, *other.transits})),
        one.is_closed or other.is_closed,
    )


def under(policy: Policy, known: Network, source: str) -> Network:
    """A network as a policy has it: where nodes are, what links transit, and what is closed.

    ConfigError for a rule with a region that nobody has heard of; `source` is the policy's.
    """
    transits = {name for link in known.links for name in link.transits}
    policy.require_regions({*known.regions, *transits}, source)
    if not (policy.nodes or policy.links or policy.limits):
        return known
    ids = [parse_node_id(node.id) for node in known.nodes]
    said = dict(zip(ids, (node.region for node in known.nodes), strict=True))
    regions = {it: policy.region_of(it) or region for it, region in said.items()}

    def between(link: Link) -> Link:
        ends = ids[link.a], ids[link.b]
        may_peer = policy.may_peer(*ends, regions.__getitem__)
        return replace(
            link,
            transits=tuple(sorted({*link.transits, *policy.transits(*ends, regions.__getitem__)})),
            is_closed=not may_peer or policy.is_closed(*ends, regions.__getitem__),
        )

    nodes = [
        replace(node, region=regions[it], passes_on=policy.may_be_via(it, regions.__getitem__))
        for it, node in zip(ids, known.nodes, strict=True)
    ]
    return network(nodes, map(between, known.links))


def permitted(network: Network, inside: Sequence[str], avoid: Sequence[str]) -> Flags:
    """[a, b]: whether a copy may go over the link from a to b, or, for a = b, be at that node.

    The node at the far end counts, and what the link transits; where there is no link it says
    nothing. No `inside` means anywhere.
    """
    welcome = [
        (not inside or node.region in inside) and node.region not in avoid for node in network.nodes
    ]
    clear = [
        all((not inside or name in inside) and name not in avoid for name in link.transits)
        for link in network.links
    ]
    step = np.broadcast_to(np.array(welcome, np.bool_), (network.size, network.size)).copy()
    blocked = ~np.array(clear, np.bool_)
    a, b = network.link_a[blocked], network.link_b[blocked]
    step[a, b] = False
    step[b, a] = False
    return step
