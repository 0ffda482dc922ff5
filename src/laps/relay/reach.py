"""Beyond the neighbours: messages to any node, and streams to one node alone.

A request or an answer goes from hop to hop towards its target, by the peers that lead there and
take extensions. A stream to one node runs under a subscriber node set of its own, so that relays
on the way need not know what it is for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.relay.data import DIRECT_PRIORITY
from laps.types import Location
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from laps.infobase.nodes import Nodes, SessionId
    from laps.relay.data import DataPlane
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.stub import StubClient
    from laps.routing.forwarding import SnsUpdate
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.streams import LiveStream
    from laps.tracks.track import Live
    from laps.types import NodeId, TrackHash
    from laps.wire.extensions import RelayRequest, RelayResponse
    from laps.wire.peering import Message


# As long as data may be ahead of its set.
JOINING_S: Final = 1.0


class Reach:
    """How one relay reaches nodes that need not be its peers."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        peers: Mapping[NodeId, Peer],
        stubs: Mapping[SessionId, StubClient],
        live: Live,
        data: DataPlane,
        send: Callable[[PeerLink, Message], None],
        tell_sns: Callable[[Iterable[SnsUpdate]], None],
    ) -> None:
        self.take: Callable[[RelayRequest | RelayResponse, float], None] | None = None
        "Takes requests and answers that are for this relay."
        self.told: dict[tuple[NodeId, int], Location] = {}
        "How far a track was, as nodes that are about to subscribe were told, by node and track."
        self.undelivered = 0
        "Requests and answers that no way led to."
        self._self_id = self_id
        self._nodes = nodes
        self._peers = peers
        self._stubs = stubs
        self._live = live
        self._data = data
        self._send = send
        self._tell_sns = tell_sns
        live.began = self.began

    def receive(self, message: RelayRequest | RelayResponse, now: float) -> None:
        """A request or an answer: for us, or on its way."""
        if message.target_node_id == self._self_id:
            if self.take is not None:
                self.take(message, now)
        elif message.hops > 0:
            self.send(message.target_node_id, replace(message, hops=message.hops - 1))

    def send(self, node_id: NodeId, message: RelayRequest | RelayResponse) -> bool:
        """Send to the peer that leads to a node; False if none does that takes extensions."""
        for peer_id in (node_id, *(path.peer_id for path in self._nodes.candidates(node_id))):
            peer = self._peers.get(peer_id)
            control = None if peer is None else peer.control
            if control is not None and control.link.extended:
                self._send(control, message)
                return True
        self.undelivered += 1
        return False

    def has_room(self, node_id: NodeId) -> bool:
        """Whether little waits on the way to a node."""
        for peer_id in (node_id, *(path.peer_id for path in self._nodes.candidates(node_id))):
            if (peer := self._peers.get(peer_id)) is not None:
                return not any(peer_link.link.pressed for peer_link in peer.links.values())
        return True

    def open_stream(
        self, node_id: NodeId, full_name_hash: int, priority: int = DIRECT_PRIORITY, ttl_us: int = 0
    ) -> OutStream:
        """A data stream to one node alone; a Stub has its own way."""
        live = self._live.get(full_name_hash)
        for stub in self._stubs.values():
            if stub.peer.node_id == node_id and live is not None:
                return stub.open_direct(live.hash, priority, ttl_us)
        return self._data.open_direct(node_id, full_name_hash, priority, ttl_us, self._tell_sns)

    def catch_up(self, client: Client, full_name_hash: int, node_id: NodeId) -> None:
        """A node joins a track: give it the streams that are open, from their beginning.

        Where it has asked how far the track is, its subscribe may be behind by whole groups: it is
        given those too.
        """
        live = self._live.get(full_name_hash)
        if live is None:
            return
        for stream in list(live.streams.values()):
            if stream.source is client:
                self._join(stream, node_id, fin=False)
        if self._data.shares_set(client, full_name_hash, node_id):
            live.joining[node_id] = self._live.cache.now + JOINING_S
        told = self.told.pop((node_id, full_name_hash), None)
        if told is None:
            return
        for group_id in sorted(group for group in live.cached.groups if group >= told.group):
            for cached in live.cached.groups[group_id].streams:
                if cached.source is client and cached.fin and not cached.base:
                    self._send_again(node_id, full_name_hash, cached, told)

    def join_stub(self, stub: StubClient, track: TrackHash) -> None:
        """A Stub joins a track: give it the streams that are open, but its own."""
        live = self._live.get(track.full_name_hash)
        for stream in () if live is None else list(live.streams.values()):
            if stub not in (stream.source, stream.exclude):
                self._join(stream, stub.peer.node_id, fin=False)

    def began(self, stream: LiveStream, fin: bool) -> None:
        """A stream begins while nodes are joining.

        They were added to a set under its old id, as the document has it. A relay that hears of the
        stream ahead of the set sends it where the set was before; so they are given it apart as
        well, and keep what comes first.
        """
        joining, now = stream.track.joining, self._live.cache.now
        for node_id, until in list(joining.items()):
            if until < now:
                del joining[node_id]
            elif not isinstance(stream.source, tuple):  # a publisher's, here or at a Stub
                self._join(stream, node_id, fin=fin)

    def _join(self, stream: LiveStream, node_id: NodeId, *, fin: bool) -> None:
        cached = stream.cached
        if cached is None or cached.base:
            return
        key = stream.track.hash.full_name_hash
        out = self.open_stream(node_id, key, stream.priority, stream.ttl_us)
        whole = b"".join((stream.head, *cached.chunks))
        if fin:
            out.finish(whole)
        elif out.write(whole):
            stream.add(out)

    def _send_again(
        self, node_id: NodeId, full_name_hash: int, cached: CachedStream, told: Location
    ) -> None:
        """A stream that has ended, if some of it came after what a node was told."""
        header, last = cached.header, cached.scan().complete_id
        if Location(header.group, last) > told:
            priority = DIRECT_PRIORITY if header.priority is None else header.priority
            out = self.open_stream(node_id, full_name_hash, priority)
            out.finish(b"".join((encode_subgroup_header(header, DRAFT16), *cached.chunks)))
