"""Which link leads to a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.infobase.nodes import SessionId

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes, PathCandidate
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.settings import RelayCounters
    from laps.routing.forwarding import Flow
    from laps.types import NodeId


class Routes:
    """Selection for a flow: the best path that carries data and does not turn back."""

    def __init__(
        self,
        nodes: Nodes,
        peers: dict[NodeId, Peer],
        peer_links: dict[SessionId, PeerLink],
        counters: RelayCounters,
    ) -> None:
        self._nodes = nodes
        self._peers = peers
        self._peer_links = peer_links
        self._counters = counters

    def find(self, flow: Flow, node_id: NodeId) -> SessionId | None:
        """The link that leads to a node, never back to where a flow comes from."""
        origin = self._origin(flow)
        for path in self._nodes.candidates(node_id):
            if not path.carries_data or (origin is not None and _leads_through(path, origin)):
                continue
            peer = self._peers.get(path.peer_id)
            link_id = None if peer is None else peer.data_link(flow.serial)
            if link_id is not None:
                return link_id
        self._counters.unreachable_targets += 1
        return None

    def _origin(self, flow: Flow) -> NodeId | None:
        """The peer a flow comes from: its key is (link, SNS id), or (client, track) for our own."""
        source = flow.key[0] if isinstance(flow.key, tuple) else None
        peer_link = self._peer_links.get(SessionId(source)) if isinstance(source, int) else None
        peer = None if peer_link is None else peer_link.peer
        return None if peer is None else peer.node_id


def _leads_through(path: PathCandidate, node_id: NodeId) -> bool:
    return path.peer_id == node_id or any(item.node_id == node_id for item in path.info.path)
