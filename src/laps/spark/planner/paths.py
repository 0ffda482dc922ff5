"""The path between any two nodes: the one that relays select.

Fewest hops, then the lowest sum of sRTT, then at each hop the peer with the lowest node id. One
Dijkstra finds the first two, with a weight for a hop that no sum of sRTT reaches; what is left of
the ties is broken by looking at each link once. Everything goes by blocks of nodes, so that besides
the result little memory is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.spark.planner.network import Flags, Ints, Network, Numbers

# 19 hours of sRTT weigh less than a hop, and 65,000 hops still are exact in a double.
_HOP: Final = 1 << 36

# Between nodes with no path; sums of two stay below 2^31. It is 18 minutes.
UNREACHABLE_US: Final = (1 << 30) - 1

_BLOCK: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """All pairs of nodes; make one with `all_paths`."""

    srtt_us: Ints
    "[from, to]: the sum of sRTT; UNREACHABLE_US where there is no path."
    next_hop: Numbers
    "[from, to]: the next node; the node itself where there is none to go to."

    def walk(self, source: Numbers, target: Numbers) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """Go along many paths at once: which of them, from where, to where, a hop at a time."""
        which = np.flatnonzero(np.asarray(source) != target)
        here, goal = np.asarray(source)[which], np.asarray(target)[which]
        while len(which):
            there = self.next_hop[here, goal]
            on = there != here
            which, here, there, goal = which[on], here[on], there[on], goal[on]
            yield which, here, there
            on = there != goal
            which, here, goal = which[on], there[on], goal[on]

    def nodes_between(self, source: int, target: int) -> tuple[int, ...]:
        """The nodes of one path, both ends included."""
        nodes = [source]
        while nodes[-1] != target:
            following = int(self.next_hop[nodes[-1], target])
            if following == nodes[-1]:
                return ()
            nodes.append(following)
        return tuple(nodes)


def all_paths(network: Network) -> Paths:
    """The best paths between all nodes."""
    size = network.size
    is_open = ~network.link_closed
    a, b = network.link_a[is_open], network.link_b[is_open]
    weight = (network.link_srtt_us[is_open] + _HOP).astype(np.float64)
    ends, weights = (np.r_[a, b], np.r_[b, a]), np.r_[weight, weight]
    graph = _graph(network, ends, weights)
    srtt = np.full((size, size), UNREACHABLE_US, np.int32)
    next_hop = np.empty((size, size), np.uint16 if size < 1 << 16 else np.int32)
    # Peers in the order of their ids: the first that leads on by the shortest way is taken.
    by_rank = np.argsort(network.rank[ends[1]], kind="stable")[::-1] if len(a) else ends[0]
    here, there, cost = ends[0][by_rank], ends[1][by_rank], weights[by_rank]
    for start in range(0, size, _BLOCK):
        goals = np.arange(start, min(start + _BLOCK, size))
        # Links are alike in both directions, so what is far from a goal is as far to it.
        distance = dijkstra(graph, directed=True, indices=graph.shape[0] - size + goals)[:, :size]
        distance[np.arange(len(goals)), goals] = 0.0
        # What is not reached equals nothing, itself included.
        distance[np.isinf(distance)] = np.nan
        total = np.minimum(distance % _HOP, UNREACHABLE_US)
        srtt[:, goals] = np.nan_to_num(total, nan=UNREACHABLE_US).T
        next_hop[:, goals] = np.arange(size)[:, None]
        for row, goal in enumerate(goals):
            far = distance[row]
            leads = far[here] == far[there] + cost
            leads &= network.passes_on[there] | (there == goal)
            # Of several for one node the last written stays: the peer with the lowest id.
            next_hop[here[leads], goal] = there[leads]
    return Paths(srtt, next_hop)


def _graph(network: Network, ends: tuple[Ints, Ints], weights: Numbers) -> csr_array:
    """The links, from where paths are looked for: the node that they lead to.

    Where some nodes pass nothing on each node is there twice. As the end of a path it is joined to
    all its peers, and on the way to another one only if it passes data on.
    """
    size = network.size
    if network.passes_on.all():
        return csr_array((weights, ends), shape=(size, size))
    passing = network.passes_on[ends[0]]
    start = np.r_[ends[0][passing], ends[0] + size]
    end = np.r_[ends[1][passing], ends[1]]
    return csr_array((np.r_[weights[passing], weights], (start, end)), shape=(2 * size, 2 * size))


def keeping(paths: Paths, step: Flags) -> Flags:
    """[from, to]: whether every node and link of the path is permitted, both ends included."""
    size = len(step)
    kept = np.empty((size, size), np.bool_)
    everywhere = np.arange(size)
    for start in range(0, size, _BLOCK):
        sources = np.arange(start, min(start + _BLOCK, size))
        fine = np.repeat(step[sources, sources], size)
        source, target = np.repeat(sources, size), np.tile(everywhere, len(sources))
        for which, here, there in paths.walk(source, target):
            fine[which] &= step[here, there]
        kept[sources] = fine.reshape(len(sources), size)
    return kept
