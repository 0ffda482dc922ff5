"""What a relay tells its control peers of metrics and namespaces, its own and others'.

They go where their node is advertised, right after the advertisement, and as the link has room for
them (`outbox`).

Metrics come again and again, of every node. So each relay hears them by its own way to the node
alone: a peer that has told us of the node, with others on the way, goes by another relay than us,
which passes them on. When it takes that back it goes by us, and is sent what holds by then. A peer
of the node itself may have data alone from it. As relays that know no metrics may be on the way of
others, they are sent one in a few all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.extensions import NamespaceInfoAdv, NamespaceInfoWd, NodeMetricsAdv

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from laps.infobase.metrics import Metrics
    from laps.infobase.namespaces import Namespaces
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.types import NodeId, NodeMetrics
    from laps.wire.peering import Message

# One in this many metrics of a node goes to a peer that has another way to it, as do the first of
# one in this many nodes: two neighbours of a peer choose others.
SPARED: Final = 16


class Telling:
    """The metrics and namespaces that go out."""

    def __init__(
        self, self_id: NodeId, links: Links, metrics: Metrics, namespaces: Namespaces
    ) -> None:
        self._self_id = self_id
        self._links = links
        self._metrics = metrics
        self._namespaces = namespaces
        self._begun: dict[NodeId, PeerLink] = {}
        "The control link on which each peer has been told what is our own."

    def begin(self, peer: Peer, control: PeerLink) -> None:
        """A control link is up: what is our own waits for it."""
        self._begun[peer.node_id] = control
        control.outbox.keep_page(_page(self._self_id), self._all_of(peer, self._self_id))

    def purge(self, node_id: NodeId) -> None:
        """No way leads to a node any more."""
        self._begun.pop(node_id, None)

    def advertised(self, peer: Peer, node_id: NodeId) -> None:
        """A peer has just been told of a node that it did not know of by us."""
        has_said = self._metrics.get(node_id) or self._namespaces.count(node_id)
        if has_said and self._hears(peer) and peer.control is not None:
            peer.control.outbox.keep_page(_page(node_id), self._all_of(peer, node_id))

    def _hears(self, peer: Peer) -> bool:
        """Whether a peer has begun to hear metrics and namespaces from us."""
        return peer.control is not None and self._begun.get(peer.node_id) is peer.control

    def tell_all_of(self, peer: Peer, node_id: NodeId) -> None:
        """Tell a peer all that is known of a node."""
        if peer.control is not None:
            self._links.page(peer.control, _page(node_id), self._all_of(peer, node_id))

    def _all_of(self, peer: Peer, node_id: NodeId) -> Iterator[Message]:
        if not self._may_speak_of(node_id):
            return
        metrics = self._metrics.get(node_id)
        if metrics is not None and not self._is_spared(peer, metrics):
            yield NodeMetricsAdv(metrics)
        for names in self._namespaces.of(node_id):
            # While this waited for room, either may have gone.
            if node_id != self._self_id and not peer.knows(node_id):
                return
            if (info := self._namespaces.get(node_id, names)) is not None:
                yield NamespaceInfoAdv(info)

    def _may_speak_of(self, source: NodeId) -> bool:
        return source == self._self_id or self._links.may_carry(source)

    def flood(self, message: Message, source: NodeId, heard_from: Peer | None) -> None:
        """Pass it to every control peer that is to have it, and to its source, to be corrected."""
        for peer in self._links.peers.values():
            if peer is heard_from or not self._hears(peer):
                continue
            if source in (self._self_id, peer.node_id):
                is_for = True
            elif isinstance(message, NodeMetricsAdv):
                spared = self._is_spared(peer, message.node_metrics)
                is_for = source in peer.told and not spared
            else:
                # A peer that knows the node by itself may know it by a way that is gone.
                is_for = peer.knows(source)
            if is_for:
                self.say(peer, source, message)

    def way_lost(self, peer: Peer, node_id: NodeId) -> None:
        """A peer has no way of its own to a node any more."""
        metrics = self._metrics.get(node_id) if node_id in peer.told else None
        if metrics is not None and self._hears(peer):
            self.say(peer, node_id, NodeMetricsAdv(metrics))

    def _is_spared(self, peer: Peer, metrics: NodeMetrics) -> bool:
        """Whether a peer hears metrics by another way than us."""
        source = metrics.source_node_id
        if not (metrics.sequence + source + self._self_id + peer.node_id) % SPARED:
            return False
        ways = (link.heard.get(source) for link in peer.links.values())
        return any(way is not None and len(way.path) > 1 for way in ways)

    def say(self, peer: Peer, source: NodeId, message: Message) -> None:
        """Send the latest of metrics or of a namespace, as soon as there is room."""
        if (control := peer.control) is None or not self._may_speak_of(source):
            return
        match message:
            case NamespaceInfoAdv(info) | NamespaceInfoWd(info):
                key: Hashable = (source, info.namespace, info.name)
            case _:
                key = ("metrics", source)
        page = _page(source) if isinstance(message, NamespaceInfoAdv) else None
        if not self._links.say(control, key, message, page):
            self.tell_all_of(peer, source)


def _page(source: NodeId) -> Hashable:
    return "namespaces", source
