"""Who is let in: how CONNECT is answered.

Node ids differ, and of two relays with the same one the oldest works. But a relay that was
restarted has the same id too, while we may not know yet that its old link is dead. So a CONNECT
for an id that has a peer waits: the links of that peer are probed, and when they are gone the
newcomer is let in. If they answer, it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from laps.types import DataDirection, NodeType, PeerMode, format_node_id
from laps.wire.peering import ResponseCode

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes, SessionId
    from laps.relay.journal import Journal
    from laps.relay.peers import Links, PeerLink
    from laps.relay.roles import Rules
    from laps.relay.settings import RelayCounters
    from laps.sessions.peer import Effect, Event
    from laps.types import NodeId, NodeInfo
    from laps.wire.peering import Connect

# A Stub has one connection for everything, since a NAT or a firewall keeps others from dialling it.
STUB_PEERING: Final = (PeerMode.BOTH, DataDirection.BIDIRECTIONAL)


class Admission:
    """Decides how CONNECT is answered."""

    def __init__(
        self,
        self_id: NodeId,
        rules: Rules,
        links: Links,
        nodes: Nodes,
        journal: Journal,
        counters: RelayCounters,
    ) -> None:
        self._self_id = self_id
        self._rules = rules
        self._links = links
        self._nodes = nodes
        self._journal = journal
        self._counters = counters
        self._held: dict[NodeId, list[tuple[PeerLink, Connect]]] = {}
        "Those that wait until it is known whether the peer of their id is still there."

    def admit(self, connect: Connect) -> ResponseCode | None:
        """The response to a CONNECT; None: it has to wait for one."""
        info = connect.node_info
        asked = (connect.peer_mode, connect.data_direction)
        if not self._rules.accepts_peers or not self.is_welcome(info):
            code = ResponseCode.CONNECTION_ERROR
        elif (not self._rules.carries_data and connect.peer_mode is not PeerMode.CONTROL) or (
            info.type is NodeType.STUB and asked != STUB_PEERING
        ):
            code = ResponseCode.PEERING_MODE_NOT_ALLOWED
        elif self._contested(connect):
            return None
        else:
            return ResponseCode.OK
        self._counters.refused_peers += 1
        return code

    def is_welcome(self, info: NodeInfo) -> bool:
        """Whether a node may be a peer at all: of a type we peer with, and not under our id."""
        return info.type in self._rules.peers_with and info.id != self._self_id

    def is_double(self, info: NodeInfo) -> bool:
        """Whether a node with this id is known, and is another one."""
        peer = self._links.peers.get(info.id)
        known = self._nodes.info(info.id) if peer is None else peer.info
        return known is not None and structs.replace(known, path=()) != structs.replace(
            info, path=()
        )

    def hold(self, peer_link: PeerLink, connect: Connect) -> None:
        """Let a newcomer wait, and find out whether the peer with its id is still there."""
        node_id = connect.node_info.id
        self._held.setdefault(node_id, []).append((peer_link, connect))
        peer = self._links.peers.get(node_id)
        for other in list(peer.links.values()) if peer is not None else ():
            other.link.probe()

    def released(self, node_id: NodeId) -> list[PeerLink]:
        """After a link to a node closed: the newcomer that is let in, if any."""
        held = self._held.get(node_id, [])
        free = [item for item in held if not self._contested(item[1])][:1]
        for item in free:
            held.remove(item)
        if not held:
            self._held.pop(node_id, None)
        return [peer_link for peer_link, _ in free]

    def give_up(self, peer_link: PeerLink, now: float) -> list[Effect | Event]:
        """After the time that a probe takes: a newcomer that still waits is refused."""
        if (node_id := self.forget(peer_link.link.id)) is None:
            return []
        self._counters.refused_peers += 1
        self.note_double(node_id, "a newcomer was refused", now)
        return peer_link.session.decide(ResponseCode.CONNECTION_ERROR, now)

    def forget(self, link_id: SessionId) -> NodeId | None:
        """A link waits no more; the node id that it waited for, if it did."""
        for node_id, held in self._held.items():
            kept = [item for item in held if item[0].link.id != link_id]
            if len(kept) == len(held):
                continue
            if kept:
                self._held[node_id] = kept
            else:
                del self._held[node_id]
            return node_id
        return None

    def note_double(self, node_id: NodeId, where: str, now: float) -> None:
        """Two relays have the same id: tell the operator, who alone can mend it."""
        self._counters.double_node_ids += 1
        reason = "two relays have this node id, and the oldest works: give one another, node.id"
        self._journal.note(now, "node_id_conflict", format_node_id(node_id), where, reason)

    def _contested(self, connect: Connect) -> bool:
        """Whether another that may be alive has the id, or has the control link of it."""
        info = connect.node_info
        if self.is_double(info):
            return True
        peer = self._links.peers.get(info.id)
        if peer is None or connect.peer_mode is PeerMode.DATA:
            return False
        return any(link.has_control and not link.link.dialled for link in peer.links.values())
