"""The extensions of one relay with peers that only write down what they are told."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from laps.infobase.metrics import Metrics
from laps.infobase.nodes import Nodes, SessionId
from laps.relay.corrections import Corrections
from laps.relay.extensions import Extensions
from laps.relay.journal import Journal
from laps.relay.peers import Links, Peer, PeerLink
from laps.relay.roles import Role
from laps.relay.settings import ExtensionSettings, RelayCounters
from laps.routing.avoided import Avoided
from laps.sessions.peer import PeerSession
from laps.types import (
    NamespaceInfo,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    PeerMode,
)

if TYPE_CHECKING:
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.ports import Link
    from laps.wire.peering import Message

SELF, NORTH, SOUTH, FAR, STUB = map(NodeId, (1, 2, 3, 4, 5))
ROOM = (b"conference", b"room")
EPOCH = 100


class FakeLink:
    """A link that only has an ALPN."""

    control_room = 1 << 20

    def __init__(self, number: int, extended: bool) -> None:
        self.id = SessionId(number)
        self.extended = extended


class _Links(Links):
    """Links that only write down what is sent."""

    def __init__(self, sent: list[tuple[NodeId, Message]]) -> None:
        super().__init__(RelayCounters(), Avoided())
        self._sent = sent

    def send_on(self, peer_link: PeerLink, message: Message) -> None:
        assert peer_link.link.extended
        assert peer_link.peer is not None
        self._sent.append((peer_link.peer.node_id, message))

    def pump(self, peer_link: PeerLink) -> None:
        while (message := peer_link.outbox.take()) is not None:
            self.send_on(peer_link, message)


class World:
    """One relay's extensions, and what they say to whom."""

    def __init__(self, role: Role = Role.EDGE) -> None:
        self.now = 0.0
        self.avoided = Avoided()
        self.nodes = Nodes(SELF, self.avoided.select)
        self.sent: list[tuple[NodeId, Message]] = []
        self.links = _Links(self.sent)
        self.peers = self.links.peers
        self._events: deque[ExtensionEvent] = deque()
        self._numbers = count(1)
        self.extensions = Extensions(
            SELF,
            role,
            self.nodes,
            self.avoided,
            self.links,
            self._events,
            ExtensionSettings(),
            Corrections(SELF, Journal(), RelayCounters()),
            Metrics(),
            EPOCH,
        )

    @property
    def events(self) -> list[ExtensionEvent]:
        return list(self._events)

    def forget_events(self) -> None:
        self._events.clear()

    def link(
        self,
        node_id: NodeId,
        *,
        extended: bool = True,
        mode: PeerMode = PeerMode.BOTH,
        node_type: NodeType = NodeType.EDGE,
    ) -> PeerLink:
        """One more link to a peer, that may be new."""
        info = NodeInfo(node_id, node_type)
        peer = self.peers.setdefault(node_id, Peer(info))
        link: Link = FakeLink(next(self._numbers), extended)  # type: ignore[assignment]
        made = PeerLink(link, PeerSession(info), peer, mode)
        peer.links[link.id] = made
        if made.has_control:
            peer.control = made
        if not peer.is_stub:
            self.nodes.open_session(link.id, node_id, 10, 0.0, made.has_data)
            self.nodes.add(link.id, info)
        return made

    def peer(self, node_id: NodeId, *, extended: bool = True) -> Peer:
        """A peer whose control link has just come up."""
        self.link(node_id, extended=extended)
        peer = self.peers[node_id]
        self.begin(peer)
        return peer

    def begin(self, peer: Peer) -> None:
        """The control link of a peer is up."""
        self.extensions.begin(peer, self.now)
        assert peer.control is not None
        self.links.pump(peer.control)

    def stub(self) -> Peer:
        """A Stub whose control link has just come up."""
        self.link(STUB, node_type=NodeType.STUB)
        self.extensions.begin_stub(self.peers[STUB], self.now)
        return self.peers[STUB]

    def reach(self, node_id: NodeId, peer: Peer, hops: int = 1) -> None:
        """A peer tells of a node beyond it."""
        assert peer.control is not None
        others = [NodePathItem(NodeId(90 + number), 10) for number in range(hops - 1)]
        path = (*others, NodePathItem(peer.node_id, 10))
        self.nodes.add(peer.control.link.id, NodeInfo(node_id, NodeType.EDGE, path=path))

    def advertise(self, node_id: NodeId, *peers: Peer) -> None:
        """These peers are told of a node."""
        for peer in peers:
            peer.told[node_id] = NodeInfo(node_id, NodeType.EDGE)
            self.extensions.telling.advertised(peer, node_id)
            assert peer.control is not None
            self.links.pump(peer.control)

    def said(self) -> list[tuple[NodeId, Message]]:
        """What was sent since the last time."""
        sent, self.sent[:] = list(self.sent), []
        return sent

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.extensions.deadline()) is not None and at <= end:
            self.now = at
            self.extensions.tick(at)
        self.now = end

    def measure(self, **fields: object) -> None:
        values = {"load": 0.5, "capacity_bps": 10**9, "egress_bps": 10**8} | fields
        own = NodeMetrics(0, SELF, **values)  # type: ignore[arg-type]
        self.extensions.measured(own, self.now)


def offer(
    sequence: int, source: NodeId = FAR, namespace: tuple[bytes, ...] = ROOM
) -> NamespaceInfo:
    return NamespaceInfo(sequence, source, namespace)


def metrics(sequence: int, source: NodeId = FAR, load: float = 0.5) -> NodeMetrics:
    return NodeMetrics(sequence, source, load, 10**9, 10**8)
