"""The links of the network, as its relays tell of them, and the ways over them.

Selection knows one way by each peer: the one that the peer itself takes. Where policy forbids that
one, or it is not acceptable, another may lead by the same peer that nobody has advertised. So what
relays say in NODE_METRICS of the peers that they can send data to is laid together here.

A link counts if the node at its beginning tells of it. Our own links are known at first hand. All
ways from here within the same terms are found at once, and kept until something has changed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from laps.types import NodeType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from laps.infobase.metrics import Metrics
    from laps.routing.terms import Way
    from laps.types import NodeId, NodeInfo, NodeMetrics

# Each kind of terms has ways of its own, and there are about as many as rules of a policy.
MOST_TREES: Final = 256

# Further than any network of relays is wide.
MOST_HOPS: Final = 16


class Reach(NamedTuple):
    """A way to a node, found over the links of the network."""

    way: Way
    srtts_us: tuple[int, ...]
    """The round trip of each link on it."""
    loss: float
    """The share of packets that its links lose together."""

    @property
    def srtt_us(self) -> int:
        """The round trip of the whole way."""
        return sum(self.srtts_us)


class KnownNodes(Protocol):
    """What is known of nodes."""

    def info(self, node_id: NodeId) -> NodeInfo | None:
        """What a node says of itself."""


class OwnLinks(Protocol):
    """The links of this relay."""

    def data_peers(self) -> Iterable[tuple[NodeId, int]]:
        """The peers that data can be sent to, and the round trip to each."""


class Allows(Protocol):
    """What ways have to keep to."""

    def node(self, node_id: NodeId, *, transit: bool) -> bool:
        """Whether data may go to a node, and through it if it is in `transit`."""

    def link(self, a: NodeId, b: NodeId) -> bool:
        """Whether data may take a link."""


class Graph:
    """Who can send data to whom, as far as it is known here."""

    def __init__(self, self_id: NodeId, nodes: KnownNodes, metrics: Metrics, own: OwnLinks) -> None:
        self.version = 0
        "Goes up when links come or go, or their figures change."
        self._self_id = self_id
        self._nodes = nodes
        self._metrics = metrics
        self._own = own
        self._trees: dict[tuple[Hashable, bool, Way], dict[NodeId, Reach]] = {}
        self._made_at = 0
        self._links: dict[NodeId, tuple[NodeMetrics, Mapping[NodeId, tuple[int, float]]]] = {}
        "What was read from the metrics of each node."

    def changed(self) -> None:
        """Something that ways are found by is another."""
        self.version += 1

    def links_of(self, node_id: NodeId) -> Mapping[NodeId, tuple[int, float]]:
        """The nodes that a node can send data to: the round trip and the loss of each link."""
        metrics = self._metrics.get(node_id)
        if node_id == self._self_id:
            said = () if metrics is None else metrics.reachability
            lost = {it.node_id: it.loss for it in said}
            peers = self._own.data_peers()
            return {peer: (srtt_us, lost.get(peer, 0.0)) for peer, srtt_us in peers}
        if metrics is None:
            self._links.pop(node_id, None)
            return {}
        read = self._links.get(node_id)
        if read is None or read[0] is not metrics:
            links = {it.node_id: (it.srtt_us, it.loss) for it in metrics.reachability}
            read = self._links[node_id] = metrics, links
        return read[1]

    def leads(self, way: Way) -> bool:
        """Whether all links of a way are there, the first of them among our own."""
        here = self._self_id
        for node_id in way:
            if node_id not in self.links_of(here):
                return False
            here = node_id
        return True

    def reach(
        self,
        node_id: NodeId,
        key: Hashable,
        allows: Allows,
        *,
        fastest: bool = False,
        after: Way = (),
    ) -> Reach | None:
        """The best way to a node within what `allows`, which `key` stands for.

        It is the one of the fewest hops, and of these of the lowest round trip; or, if `fastest`,
        the one of the lowest round trip. `after` is how it begins.
        """
        if self._made_at != self.version or len(self._trees) >= MOST_TREES:
            self._trees.clear()
            self._made_at = self.version
        tree = self._trees.get((key, fastest, after))
        if tree is None:
            cost = _by_srtt if fastest else _by_hops
            tree = self._trees[key, fastest, after] = self._tree(allows, cost, after)
        return tree.get(node_id)

    def measured(self, way: Way) -> Reach | None:
        """What is known of a way; None where one of its links is not known."""
        here, srtts, kept = self._self_id, [], 1.0
        for node_id in way:
            link = self.links_of(here).get(node_id)
            if link is None:
                return None
            srtts.append(link[0])
            kept *= 1.0 - link[1]
            here = node_id
        return Reach(way, tuple(srtts), 1.0 - kept)

    def _tree(
        self, allows: Allows, cost: Callable[[int, int], tuple[int, int]], after: Way
    ) -> dict[NodeId, Reach]:
        """Dijkstra from the end of a way; of two that cost the same, the one by lower node ids."""
        found: dict[NodeId, Reach] = {}
        begun = self.measured(after)
        if begun is None:
            return found
        start = ((0, 0), after, begun.srtts_us, 1.0 - begun.loss)
        queue: list[tuple[tuple[int, int], Way, tuple[int, ...], float]] = [start]
        barred = {self._self_id, *after}
        while queue:
            _, way, srtts, kept = heappop(queue)
            here = way[-1] if way else self._self_id
            if here in found:
                continue
            if way:
                found[here] = Reach(way, srtts, 1.0 - kept)
                ends = len(way) >= MOST_HOPS or not self._passes_on(here)
                if ends or not allows.node(here, transit=True):
                    continue
            for other, (srtt_us, loss) in self.links_of(here).items():
                if other in barred or other in found:
                    continue
                if allows.node(other, transit=False) and allows.link(here, other):
                    longer = (*srtts, srtt_us)
                    price = cost(len(longer), sum(longer))
                    heappush(queue, (price, (*way, other), longer, kept * (1.0 - loss)))
        return found

    def _passes_on(self, node_id: NodeId) -> bool:
        info = self._nodes.info(node_id)
        return info is None or info.type is not NodeType.STUB


def _by_hops(hops: int, srtt_us: int) -> tuple[int, int]:
    return hops, srtt_us


def _by_srtt(hops: int, srtt_us: int) -> tuple[int, int]:
    return srtt_us, hops
