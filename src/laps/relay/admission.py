"""Who may be a peer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.types import DataDirection, NodeType, PeerMode
from laps.wire.peering import ResponseCode

if TYPE_CHECKING:
    from laps.relay.peers import Peer
    from laps.relay.roles import Rules
    from laps.relay.settings import RelayCounters
    from laps.types import NodeId, NodeInfo
    from laps.wire.peering import Connect

# A Stub has one connection for everything, since it is behind a NAT or a firewall.
STUB_PEERING: Final = (PeerMode.BOTH, DataDirection.BIDIRECTIONAL)


class Admission:
    """Decides how CONNECT is answered."""

    def __init__(
        self,
        self_id: NodeId,
        rules: Rules,
        peers: dict[NodeId, Peer],
        counters: RelayCounters,
    ) -> None:
        self._self_id = self_id
        self._rules = rules
        self._peers = peers
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
        known = self._peers.get(info.id)
        same = known is None or replace(known.info, path=()) == replace(info, path=())
        return info.type in self._rules.peers_with and info.id != self._self_id and same
