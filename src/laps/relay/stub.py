"""A Stub, as its Edge sees it: a client, that speaks the peering protocol.

The Edge asks it for a track with subscribe information, of which the Edge is the source, and sends
it data under SNS ids of its own, one for each track, with the Stub as the only node in the set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from laps.relay.framing import DirectStream, Wrapped
from laps.relay.passing import DROPPED
from laps.routing.flows import FromClient, SnsUpdate
from laps.routing.forwarding import SnsIds
from laps.tracks.ports import Answers
from laps.types import SubscribeInfo, next_sequence
from laps.wire.extensions import SetPressed
from laps.wire.objects import encode_datagram_header
from laps.wire.peering import (
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.relay.peers import Links, Peer
    from laps.relay.ports import Link, LinkStream
    from laps.routing.flows import FlowKey
    from laps.tracks.ports import OutStream
    from laps.types import NodeId, SnsId, TrackHash, TrackKey
    from laps.wire.extensions import Urgency
    from laps.wire.peering import Message

# A Stub remembers for a minute what was withdrawn: more than is withdrawn from one within it.
MAX_WITHDRAWN: Final = 50_000


@dataclass(frozen=True, slots=True)
class StubTrack:
    """A track that a Stub sends."""

    stub: StubClient
    key: TrackKey

    def flows(self) -> tuple[FlowKey, ...]:
        """As `Sender.flows`."""
        return (FromClient(self.stub, self.key),)

    def wait(self, urgency: Urgency) -> None:
        """As `Sender.wait`: the Stub is told."""
        self.stub.say_pressed(self.key, urgency)


class StubClient:
    """The Stub at the other end of a link."""

    echoes = False

    def __init__(
        self,
        peer: Peer,
        link: Link,
        self_id: NodeId,
        links: Links,
        order_of: Callable[[TrackKey], int],
    ) -> None:
        self.peer = peer
        self._link = link
        self._self_id = self_id
        self._links = links
        self._order_of = order_of
        "The place of a track's class of service; its streams keep the one that they began with."
        self._asked: dict[TrackKey, tuple[TrackHash, bytes]] = {}
        self._sequences: dict[TrackKey, int] = {}
        "The last of each track that is asked for, or was; what was said last is at the end."
        self._sent = 0
        "How much was said: a track that was not spoken of for long begins here."
        self._ids = SnsIds()
        self._sets: dict[TrackKey, SnsId] = {}
        self._tracks: dict[SnsId, TrackKey] = {}
        "The same, the other way round."
        self._comes: dict[TrackKey, SnsId] = {}
        "The Stub's own sets, that its tracks come under."
        self.kept_aside: dict[TrackKey, SubscribeInfo] = {}
        "What it subscribes to and policy keeps from it."
        self._streams: dict[TrackKey, list[LinkStream]] = {}
        "The streams of the tracks that it subscribes to."

    @property
    def sink(self) -> Link:
        """As `Client.sink`."""
        return self._link

    def sender(self, key: TrackKey) -> StubTrack:
        """As `Client.sender`."""
        return StubTrack(self, key)

    def comes(self, key: TrackKey, sns_id: SnsId) -> None:
        """A track that it was asked for comes under a set of its own."""
        if key in self._asked:
            self._comes[key] = sns_id

    def say_pressed(self, key: TrackKey, urgency: Urgency) -> None:
        """Tell the Stub how it is with what it sends of a track."""
        if self._link.extended and (sns_id := self._comes.get(key)) is not None:
            self._send(SetPressed(sns_id, urgency))

    def track_under(self, sns_id: SnsId) -> TrackKey | None:
        """What it is sent under a set."""
        return self._tracks.get(sns_id)

    @property
    def srtt_us(self) -> int:
        """The round trip to it."""
        return self._link.srtt_us

    @property
    def since(self) -> float:
        """When it came."""
        return self._link.opened_at

    @property
    def sets(self) -> Mapping[TrackKey, SnsId]:
        """The sets that it is sent tracks under, by the tracks' hashes."""
        return self._sets

    @property
    def answers(self) -> Answers:
        """As `Client.answers`: with extensions it can be asked what a track is like."""
        return Answers.BY_RELAY_REQUEST if self._link.extended else Answers.NEVER

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """Ask the Stub for a track that it announced."""
        self._asked[track.full_name_hash] = track, subscribe_data
        self._send(SubscribeInfoAdv(self._info(track, subscribe_data)))

    def unsubscribe(self, track: TrackHash) -> None:
        """Nobody wants the track any more."""
        _, data = self._asked.pop(track.full_name_hash, (track, b""))
        self._comes.pop(track.full_name_hash, None)
        self._send(SubscribeInfoWd(self._info(track, data)))

    def repeat(self) -> None:
        """Say all again that it is asked for and sent: it may have been lost."""
        for sns_id in self._sets.values():
            self._send(SubscribeNodeSetAdv(sns_id, (self.peer.node_id,)))
        for track, data in list(self._asked.values()):
            self._send(SubscribeInfoAdv(self._info(track, data)))

    def keep_aside(self, info: SubscribeInfo) -> None:
        """Policy is against a track that it subscribes to: streams of it that are open end."""
        key = info.track_hash.full_name_hash
        # What waits must not be a view of all that it arrived with.
        self.kept_aside[key] = replace(info, subscribe_data=bytes(info.subscribe_data))
        for out in self._streams.pop(key, ()):
            if not out.over:
                out.abort(DROPPED)

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """A stream of a track to the Stub."""
        sns_id, key = self._set_of(track), track.full_name_hash
        out = self._open(key, priority, ttl_us)
        self._streams[key] = [*(it for it in self._streams.get(key, ()) if not it.over), out]
        return Wrapped(out, sns_id, key, priority, ttl_us)

    def open_direct(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """A stream that may be of a track it has not subscribed to, under a set of its own."""
        sns_id = self._ids.take()
        self._send(SubscribeNodeSetAdv(sns_id, (self.peer.node_id,)))
        key = track.full_name_hash
        out = Wrapped(self._open(key, priority, ttl_us), sns_id, key, priority, ttl_us)
        return _StubStream(self, sns_id, out)

    def _open(self, key: TrackKey, priority: int, ttl_us: int) -> LinkStream:
        return self._link.open_stream(priority, ttl_us, self._order_of(key))

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """A datagram of a track to the Stub."""
        header = encode_datagram_header(self._set_of(track), track.full_name_hash, len(data))
        self._link.send_datagram(header + data, priority, self._order_of(track.full_name_hash))

    def forget(self, track: TrackHash) -> None:
        """The Stub no longer subscribes to a track."""
        self._streams.pop(track.full_name_hash, None)
        sns_id = self._sets.pop(track.full_name_hash, None)
        if sns_id is not None:
            del self._tracks[sns_id]
            self.withdraw(sns_id)

    def withdraw(self, sns_id: SnsId) -> None:
        """A set is used no more."""
        self._ids.give_back(sns_id)
        self._links.send_sns([SnsUpdate(self._link.id, sns_id, ())])

    def _send(self, message: Message) -> None:
        self._links.send(self.peer, message)

    def _set_of(self, track: TrackHash) -> SnsId:
        sns_id = self._sets.get(track.full_name_hash)
        if sns_id is None:
            sns_id = self._sets[track.full_name_hash] = self._ids.take()
            self._tracks[sns_id] = track.full_name_hash
            self._send(SubscribeNodeSetAdv(sns_id, (self.peer.node_id,)))
        return sns_id

    def _info(self, track: TrackHash, subscribe_data: bytes) -> SubscribeInfo:
        """The next message about a track; only its own series tells the Stub which is newer."""
        self._sent += 1
        key = track.full_name_hash
        sequence = next_sequence(self._sequences.pop(key, None), self._sent)
        self._sequences[key] = sequence
        if len(self._sequences) > len(self._asked) + MAX_WITHDRAWN:
            self._forget_oldest()
        return SubscribeInfo(sequence, self._self_id, track, subscribe_data)

    def _forget_oldest(self) -> None:
        """Give up the sequences of half of the tracks that are no longer asked for."""
        left = [key for key in self._sequences if key not in self._asked]
        for key in left[: MAX_WITHDRAWN // 2]:
            del self._sequences[key]


class _StubStream(DirectStream):
    """A stream to the Stub alone."""

    def __init__(self, stub: StubClient, sns_id: SnsId, out: OutStream) -> None:
        super().__init__([out])
        self._stub = stub
        self._sns_id = sns_id

    def withdraw(self) -> None:
        """As `DirectStream.withdraw`."""
        self._stub.withdraw(self._sns_id)
