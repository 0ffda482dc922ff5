"""How much one link may make this relay hold; a peer that tells of more is closed.

Nodes, announces and sets are counted where they are held. Subscribes and namespaces are of nodes
that several links may lead to: what arrives is counted, and when that is too much, what is held of
the nodes that the link leads to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LimitExceeded
from laps.types import format_node_id
from laps.wire.extensions import NamespaceInfoAdv
from laps.wire.node_lists import NodeListAdv
from laps.wire.peering import AnnounceInfoAdv, NodeInfoAdv, SubscribeInfoAdv, SubscribeNodeSetAdv

if TYPE_CHECKING:
    from laps.infobase.namespaces import Namespaces
    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.ingress import IngressSets
    from laps.relay.interest import Interest
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.settings import PeerLimits, RelayCounters
    from laps.relay.stub import StubClient
    from laps.tracks.tracks import Tracks
    from laps.wire.peering import Message


class Limits:
    """Looks at each message before it is taken."""

    def __init__(
        self,
        limits: PeerLimits,
        counters: RelayCounters,
        nodes: Nodes,
        subscribes: Subscribes,
        namespaces: Namespaces,
        tracks: Tracks,
        ingress: IngressSets,
        interest: Interest,
    ) -> None:
        self._limits = limits
        self._counters = counters
        self._nodes = nodes
        self._subscribes = subscribes
        self._namespaces = namespaces
        self._tracks = tracks
        self._ingress = ingress
        self._interest = interest

    def check(
        self, peer_link: PeerLink, peer: Peer, message: Message, stub: StubClient | None
    ) -> None:
        """Raise what closes a link whose peer tells of too much."""
        limits = self._limits
        match message:
            case SubscribeInfoAdv():
                peer_link.subscribes_told += 1
                if peer_link.subscribes_told > limits.subscribes:
                    peer_link.subscribes_told = 1 + self._count_subscribes(peer_link, stub)
                    self._require(peer, peer_link.subscribes_told, limits.subscribes, "subscribes")
            case NamespaceInfoAdv():
                peer_link.namespaces_told += 1
                if peer_link.namespaces_told > limits.namespaces:
                    peer_link.namespaces_told = 1 + self._count_namespaces(peer_link)
                    self._require(peer, peer_link.namespaces_told, limits.namespaces, "namespaces")
            case NodeInfoAdv(info) if info.id not in peer_link.heard:
                count = len(peer_link.heard) + len(peer_link.late) + 1
                self._require(peer, count, limits.nodes, "nodes")
            case NodeListAdv(infos):
                count = len({info.id for info in infos} - peer_link.heard.keys())
                count += len(peer_link.heard) + len(peer_link.late)
                self._require(peer, count, limits.nodes, "nodes")
            case SubscribeNodeSetAdv():
                count = self._ingress.count(peer_link.link.id) + 1
                self._require(peer, count, limits.sets, "sets")
            case AnnounceInfoAdv() if stub is not None:
                count = self._tracks.announces.count(stub) + 1
                self._require(peer, count, limits.announces, "announces")
            case AnnounceInfoAdv():
                count = self._interest.concern.offers.count(peer.node_id) + 1
                self._require(peer, count, limits.namespaces, "namespaces")

    def _count_subscribes(self, peer_link: PeerLink, stub: StubClient | None) -> int:
        if stub is not None:
            return self._tracks.count_subscribed(stub) + len(stub.kept_aside)
        return sum(map(self._subscribes.count, self._nodes.via(peer_link.link.id)))

    def _count_namespaces(self, peer_link: PeerLink) -> int:
        if peer_link.peer is not None and peer_link.peer.is_stub:
            return len(peer_link.offered)
        return sum(map(self._namespaces.count, self._nodes.via(peer_link.link.id)))

    def _require(self, peer: Peer, count: int, most: int, what: str) -> None:
        if count > most:
            self._counters.peers_over_limit += 1
            bound = f"more than {most} {what}: peering.most_{what}"
            raise LimitExceeded(f"node {format_node_id(peer.node_id)} tells of {bound}")
