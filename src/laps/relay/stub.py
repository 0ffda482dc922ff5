"""A Stub, as its Edge sees it: a client, that speaks the peering protocol.

The Edge asks it for a track with subscribe information, of which the Edge is the source, and sends
it data under SNS ids of its own, one for each track, with the Stub as the only node in the set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.data import Direct, Wrapped
from laps.routing.forwarding import SnsIds
from laps.types import SubscribeInfo
from laps.wire.objects import encode_datagram_header, encode_new_stream_header
from laps.wire.peering import (
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.relay.peers import Peer
    from laps.relay.ports import Link
    from laps.tracks.ports import OutStream
    from laps.types import NodeId, SnsId, TrackHash
    from laps.wire.peering import Message


class StubClient:
    """The Stub behind a link."""

    echoes = False

    def __init__(
        self,
        peer: Peer,
        link: Link,
        self_id: NodeId,
        send: Callable[[Message], None],
        next_sequence: Callable[[int], int],
    ) -> None:
        self.peer = peer
        self._link = link
        self._self_id = self_id
        self._send = send
        self._next_sequence = next_sequence
        self._asked: dict[int, bytes] = {}
        self._said = 0
        "Sequence numbers used: a word to the Stub is newer than the one before."
        self._ids = SnsIds()
        self._sets: dict[int, SnsId] = {}

    @property
    def sets(self) -> Mapping[int, SnsId]:
        """The sets that it is sent tracks under, by the tracks' hashes."""
        return self._sets

    @property
    def answers(self) -> bool:
        """Whether it can be asked what a track is like, and for ranges of it."""
        return self._link.extended

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """Ask the Stub for a track that it announced."""
        self._asked[track.full_name_hash] = subscribe_data
        self._send(SubscribeInfoAdv(self._info(track, subscribe_data)))

    def unsubscribe(self, track: TrackHash) -> None:
        """Nobody wants the track any more."""
        data = self._asked.pop(track.full_name_hash, b"")
        self._send(SubscribeInfoWd(self._info(track, data)))

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """A stream of a track to the Stub."""
        sns_id = self._set_of(track)

        def start(size: int) -> bytes:
            return encode_new_stream_header(sns_id, track.full_name_hash, priority, ttl_us, size)

        return Wrapped(self._link.open_stream(priority, ttl_us), start)

    def open_direct(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """A stream that may be of a track it has not subscribed to, under a set of its own."""
        sns_id = self._ids.take()
        self._send(SubscribeNodeSetAdv(sns_id, (self.peer.node_id,)))

        def start(size: int) -> bytes:
            return encode_new_stream_header(sns_id, track.full_name_hash, priority, ttl_us, size)

        def ended() -> None:
            self._ids.give_back(sns_id)
            self._send(SubscribeNodeSetWd(sns_id))

        return Direct([Wrapped(self._link.open_stream(priority, ttl_us), start)], ended)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """A datagram of a track to the Stub."""
        header = encode_datagram_header(self._set_of(track), track.full_name_hash, len(data))
        self._link.send_datagram(header + data, priority)

    def forget(self, track: TrackHash) -> None:
        """The Stub no longer subscribes to a track."""
        sns_id = self._sets.pop(track.full_name_hash, None)
        if sns_id is not None:
            self._ids.give_back(sns_id)
            self._send(SubscribeNodeSetWd(sns_id))

    def _set_of(self, track: TrackHash) -> SnsId:
        sns_id = self._sets.get(track.full_name_hash)
        if sns_id is None:
            sns_id = self._sets[track.full_name_hash] = self._ids.take()
            self._send(SubscribeNodeSetAdv(sns_id, (self.peer.node_id,)))
        return sns_id

    def _info(self, track: TrackHash, subscribe_data: bytes) -> SubscribeInfo:
        self._said += 1
        sequence = (self._next_sequence(track.full_name_hash) + self._said) & 0xFFFF
        return SubscribeInfo(sequence, self._self_id, track, subscribe_data)
