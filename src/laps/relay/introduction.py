"""How relays become peers: who is admitted, and which of the links to a peer has control.

CONNECT is answered by `Admission`. Once both sides have introduced themselves, `Introduction`
elects the link that information bases are exchanged on, lays down the paths that each link leads
to, and begins the exchange whenever a control link is new or has moved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.relay.roles import Role
from laps.types import DataDirection, NodeType, PeerMode
from laps.wire.peering import ResponseCode

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.roles import Rules
    from laps.relay.settings import RelayCounters
    from laps.relay.subscribes import SubscribeExchange
    from laps.types import NodeId, NodeInfo
    from laps.wire.peering import Connect

# A Stub has one connection for everything, since a NAT or a firewall keeps others from dialling it.
STUB_PEERING: Final = (PeerMode.BOTH, DataDirection.BIDIRECTIONAL)


class Admission:
    """Decides how CONNECT is answered."""

    def __init__(
        self, self_id: NodeId, rules: Rules, links: Links, counters: RelayCounters
    ) -> None:
        self._self_id = self_id
        self._rules = rules
        self._links = links
        self._counters = counters

    def admit(self, connect: Connect) -> ResponseCode:
        """The response to a CONNECT."""
        info = connect.node_info
        asked = (connect.peer_mode, connect.data_direction)
        if not self._rules.accepts_peers or not self.is_welcome(info):
            code = ResponseCode.CONNECTION_ERROR
        elif (not self._rules.carries_data and connect.peer_mode is not PeerMode.CONTROL) or (
            info.type is NodeType.STUB and asked != STUB_PEERING
        ):
            code = ResponseCode.PEERING_MODE_NOT_ALLOWED
        else:
            return ResponseCode.OK
        self._counters.refused_peers += 1
        return code

    def is_welcome(self, info: NodeInfo) -> bool:
        """Whether a node may be a peer: of a type we peer with, under an id of its own."""
        known = self._links.peers.get(info.id)
        same = known is None or replace(known.info, path=()) == replace(info, path=())
        return info.type in self._rules.peers_with and info.id != self._self_id and same


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
        subscribes: SubscribeExchange,
    ) -> None:
        self._self_id = self_id
        self._role = role
        self._links = links
        self._nodes = nodes
        self._extensions = extensions
        self._exchange = exchange
        self._subscribes = subscribes

    def replaced(self, peer: Peer, peer_link: PeerLink) -> list[PeerLink]:
        """The links that a new one takes the place of.

        A side that dials control again has lost the link it had dialled before. One that had been
        dialled itself may have lost that too, if it was restarted: those links are probed.
        """
        lost: list[PeerLink] = []
        for other in peer.links.values():
            if not (peer_link.has_control and other.has_control):
                continue
            if other.link.dialled == peer_link.link.dialled:
                lost.append(other)
            else:
                other.link.probe()
        return lost

    def elect(self, peer: Peer, now: float) -> set[NodeId]:
        """After a link came or went: which has control, which lead to data; the nodes touched."""
        touched: set[NodeId] = set()
        elected = peer.elect(self._self_id)
        if elected is not peer.control:
            peer.control = elected
            peer.told.clear()
        if not peer.is_stub:
            for peer_link in peer.links.values():
                touched |= self._lay_down(peer_link)
        if elected is not None and elected is not peer.synced:
            self._begin_control(peer, now)
        peer.synced = elected
        return touched

    def adopt_parent(self, now: float) -> None:
        """A Stub chooses the Edge that it speaks with."""
        parent = self._subscribes.adopt_parent(self._links.peers.values())
        if parent is not None:
            self._extensions.begin(parent, now)

    def _lay_down(self, peer_link: PeerLink) -> set[NodeId]:
        """Lay a link's paths down anew, if it is new or can now do something else."""
        peer, link = peer_link.peer, peer_link.link
        if peer is None or peer_link.laid_down is (able := peer.sends_data):
            return set()
        peer_link.laid_down = able
        touched = {change.node_id for change in self._nodes.close_session(link.id)}
        self._nodes.open_session(
            link.id, peer.node_id, peer_link.srtt_us, peer_link.established_at, able
        )
        for info in (peer.info, *peer_link.heard.values()):
            if (change := self._nodes.add(link.id, info)) is not None:
                touched.add(change.node_id)
        return touched

    def _begin_control(self, peer: Peer, now: float) -> None:
        """A control link is up, or has moved: tell everything, and hear it."""
        if self._role is Role.STUB:
            if self._subscribes.parent is None or self._subscribes.parent is peer:
                self.adopt_parent(now)
            return
        if peer.is_stub:
            self._extensions.begin_stub(peer, now)
            return
        self._extensions.begin(peer, now)
        self._exchange.sync(peer)
        self._subscribes.begin_confirming(peer, now)
