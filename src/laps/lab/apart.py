"""How far relays of a lab are from each other that have no link.

They may dial and probe each other all the same, and that takes as long as the earth is wide. Where
a network says where its relays are, that is the delay of a cable; where it does not, it is that of
the fastest way over its links, so that nobody is nearer to anybody than a link makes him.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from laps.lab.cities import City, delay_ms

if TYPE_CHECKING:
    from laps.lab.network import Network
    from laps.sim.topology import Node
    from laps.types import NodeId

# Two relays in one city.
LEAST_MS: Final = 0.5


class Apart:
    """The delays between the relays of one network."""

    def __init__(self, network: Network) -> None:
        self._nodes = {node.id: node for node in network.nodes}
        self._links: dict[NodeId, dict[NodeId, float]] = {}
        for link in network.links:
            for a, b in ((link.a, link.b), (link.b, link.a)):
                self._links.setdefault(a, {})[b] = link.delay_ms
        self._ways: dict[NodeId, dict[NodeId, float]] = {}

    def ms(self, a: NodeId, b: NodeId) -> float:
        """One way; between neighbours that of their link. 0 where nothing is known."""
        if (link := self._links.get(a, {}).get(b)) is not None:
            return link
        one, other = _place(self._nodes[a]), _place(self._nodes[b])
        if one is not None and other is not None:
            return max(LEAST_MS, delay_ms(one, other))
        if a not in self._ways:
            self._ways[a] = self._over_links(a)
        return round(self._ways[a].get(b, 0.0), 1)

    def _over_links(self, source: NodeId) -> dict[NodeId, float]:
        """The fastest ways from a node."""
        found: dict[NodeId, float] = {}
        nearest = [(0.0, source)]
        while nearest:
            far, node_id = heappop(nearest)
            if node_id in found:
                continue
            found[node_id] = far
            for other, more in self._links.get(node_id, {}).items():
                heappush(nearest, (far + more, other))
        return found


def _place(node: Node) -> City | None:
    if not (node.latitude or node.longitude):
        return None
    return City(node.region, node.latitude, node.longitude)
