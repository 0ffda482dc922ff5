"""A link whose two ends have introduced themselves: its node becomes a peer, or has one link more.

admission (may it?) -> introduction (which link has control?) -> paths (where does it lead?)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.errors import CloseCode
from laps.relay.peers import Peer, PeerArrived
from laps.relay.stub import StubClient
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections import deque

    from laps.infobase.nodes import SessionId
    from laps.relay.admission import Admission
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.introduction import Introduction
    from laps.relay.journal import Journal
    from laps.relay.paths import Paths
    from laps.relay.peers import Links, PeerLink
    from laps.sessions.peer import PeerConnected
    from laps.types import NodeId


class Arrivals:
    """Takes in whoever has said who it is."""

    def __init__(
        self,
        self_id: NodeId,
        admission: Admission,
        introduction: Introduction,
        paths: Paths,
        links: Links,
        stubs: dict[SessionId, StubClient],
        events: deque[ExtensionEvent | PeerArrived],
        journal: Journal,
    ) -> None:
        self._self_id = self_id
        self._admission = admission
        self._introduction = introduction
        self._paths = paths
        self._links = links
        self._stubs = stubs
        self._events = events
        self._journal = journal

    def connected(self, peer_link: PeerLink, event: PeerConnected, now: float) -> None:
        """Both sides know each other."""
        link, info = peer_link.link, replace(event.node_info, path=())
        node = f"node {format_node_id(info.id)}"
        if not self._admission.is_welcome(info) or self._admission.is_double(info):
            link.close(CloseCode.GRACEFUL, f"{node} cannot be a peer: another has its id, or type")
            return
        peer = self._links.peers.get(info.id) or Peer(info, srtt_us=link.srtt_us)
        peer_link.mode, peer_link.direction = event.peer_mode, event.data_direction
        if self._introduction.is_second(peer, peer_link):
            link.close(CloseCode.GRACEFUL, f"{node} has a control link already")
            return
        self._links.peers[info.id] = peer
        if not peer.links:
            kind, mode = info.type.name.lower(), event.peer_mode.name.lower()
            self._journal.note(now, "peer_up", format_node_id(info.id), f"{kind} for {mode}")
        peer.links[link.id] = peer_link
        peer_link.peer, peer_link.established_at = peer, now
        self._events.append(PeerArrived(link.id, info, event.peer_mode))
        if peer.is_stub:
            self._stubs[link.id] = StubClient(peer, link, self._self_id, self._links)
        self._paths.linked(peer, self._introduction.elect(peer, now), now)
