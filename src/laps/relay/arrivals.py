"""A link that opens, and whose two ends introduce themselves: its node becomes a peer.

proofs (is it who it says?) -> admission (may it?) -> introduction (which link has control?)
-> paths (where does it lead?)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from laps.errors import CloseCode
from laps.relay.peers import Peer, PeerArrived, PeerLink
from laps.relay.stub import StubClient
from laps.sessions.peer import PeerSession
from laps.types import PeerMode, format_node_id
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.peering import CODECS, Connect

if TYPE_CHECKING:
    from collections import deque

    from laps.infobase.nodes import SessionId
    from laps.relay.admission import Admission
    from laps.relay.classes import Classes
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.introduction import Introduction
    from laps.relay.journal import Journal
    from laps.relay.paths import Paths
    from laps.relay.peers import Links
    from laps.relay.ports import Link
    from laps.relay.proofs import PeerProofs
    from laps.relay.roles import Rules
    from laps.sessions.peer import Effect, Event, PeerConnected
    from laps.types import DataDirection, NodeInfo


class Arrivals:
    """Takes in whoever has said who it is."""

    def __init__(
        self,
        self_info: NodeInfo,
        rules: Rules,
        admission: Admission,
        proofs: PeerProofs,
        introduction: Introduction,
        paths: Paths,
        links: Links,
        classes: Classes,
        stubs: dict[SessionId, StubClient],
        events: deque[ExtensionEvent | PeerArrived],
        journal: Journal,
    ) -> None:
        self._self_info = self_info
        self._rules = rules
        self._admission = admission
        self._proofs = proofs
        self._introduction = introduction
        self._paths = paths
        self._links = links
        self._serving = self_info.id, links, classes.at
        self._stubs = stubs
        self._events = events
        self._journal = journal

    def opened(
        self, link: Link, mode: PeerMode, direction: DataDirection, now: float
    ) -> tuple[PeerLink, list[Effect | Event]]:
        """A link is there, and a session on it; `mode` and `direction` are for one we dialled."""
        codecs, proofs = EXTENDED_CODECS if link.extended else CODECS, self._proofs.of(link)
        effects: list[Effect | Event] = []
        if link.dialled:
            asked = mode if self._rules.carries_data else PeerMode.CONTROL
            connect = Connect(asked, direction, self._self_info)
            session, effects = PeerSession.dial(connect, link.open_control(), codecs, proofs, now)
        else:
            session = PeerSession(self._self_info, self._admission.admit, codecs, proofs)
        self._links.links[link.id] = link
        peer_link = self._links.peer_links[link.id] = PeerLink(link, session)
        return peer_link, effects

    def connected(self, peer_link: PeerLink, event: PeerConnected, now: float) -> None:
        """Both sides know each other."""
        link, info = peer_link.link, structs.replace(event.node_info, path=())
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
            self._stubs[link.id] = StubClient(peer, link, *self._serving)
        self._paths.linked(peer, self._introduction.elect(peer, now), now)
