"""How relays become peers: which of the links to a peer has control, and what begins with it.

Once both sides have introduced themselves (`admission`), the link is elected that information bases
are exchanged on, the paths are laid down that each link leads to, and the exchange begins whenever
a control link is new or has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.roles import Role

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.relay.digests import Digests
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.interest import Interest
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.subscribes import SubscribeExchange
    from laps.types import NodeId


class Introduction:
    """Which link to a peer has control, and what begins when it does."""

    def __init__(
        self,
        self_id: NodeId,
        role: Role,
        links: Links,
        nodes: Nodes,
        extensions: Extensions,
        exchange: Exchange,
        interest: Interest,
        digests: Digests,
        subscribes: SubscribeExchange,
    ) -> None:
        self._self_id = self_id
        self._role = role
        self._links = links
        self._nodes = nodes
        self._extensions = extensions
        self._exchange = exchange
        self._interest = interest
        self._digests = digests
        self._subscribes = subscribes

    def is_second(self, peer: Peer, peer_link: PeerLink) -> bool:
        """Whether a link is one more for control, of those that the same side dialled.

        One that the other side dialled stays beside it. That may be dead, if the peer was
        restarted: it is probed.
        """
        others = [link for link in peer.links.values() if link.has_control]
        if not peer_link.has_control:
            return False
        for other in others:
            other.link.probe()
        return any(other.link.dialled == peer_link.link.dialled for other in others)

    def elect(self, peer: Peer, now: float) -> set[NodeId]:
        """After a link came or went: which has control, which lead to data; the nodes touched."""
        touched: set[NodeId] = set()
        elected = peer.elect(self._self_id)
        if elected is not peer.control:
            if peer.control is not None:
                peer.control.outbox.clear()
            peer.control = elected
            peer.told.clear()
            peer.unadvertised.clear()
        if not peer.is_stub:
            for peer_link in peer.links.values():
                touched |= self._lay_down(peer_link)
        if elected is not None and elected is not peer.synced:
            self.begin_control(peer, now)
        elif elected is None and peer.synced is not None:
            self._interest.left(peer, now)
        peer.synced = elected
        return touched

    def adopt_parent(self, now: float) -> None:
        """A Stub chooses the Edge that it speaks with.

        What the one before was told stays until the link to it is closed: see `nearest_edge`.
        """
        if (parent := self._subscribes.parent.adopt(self._links.peers.values(), now)) is not None:
            self._begin_with_parent(parent, now)

    def _begin_with_parent(self, parent: Peer, now: float) -> None:
        if parent.control is not None:
            self._subscribes.parent.tell_all(parent.control)
            self._extensions.begin(parent, now)
            self._links.pump(parent.control)

    def _lay_down(self, peer_link: PeerLink) -> set[NodeId]:
        """Lay a link's paths down anew, if it is new or can now do something else."""
        peer, link = peer_link.peer, peer_link.link
        if peer is None or peer_link.laid_down is (able := peer.sends_data):
            return set()
        peer_link.laid_down = able
        touched = {change.node_id for change in self._nodes.close_session(link.id)}
        self._nodes.open_session(
            link.id, peer.node_id, peer.srtt_us, peer_link.established_at, able
        )
        for info in (peer.info, *peer_link.heard.values()):
            if (change := self._nodes.add(link.id, info)) is not None:
                touched.add(change.node_id)
        return touched

    def begin_control(self, peer: Peer, now: float) -> None:
        """A control link is up, or its stream or itself has moved: tell everything, and hear it."""
        if peer.control is not None:
            peer.control.outbox.clear()
        if self._role is Role.STUB:
            if self._subscribes.parent.peer is None:
                self.adopt_parent(now)
            elif self._subscribes.parent.peer is peer:
                self._begin_with_parent(peer, now)
            return
        if peer.is_stub:
            self._extensions.begin_stub(peer, now)
            return
        self._digests.begin(peer)
        self._interest.begin(peer, now)
        self._extensions.begin(peer, now)
        self._exchange.sync(peer)
        self._subscribes.begin_confirming(peer, now)
