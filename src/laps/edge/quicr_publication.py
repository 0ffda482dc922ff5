"""What a QUICR client publishes: fragments become streams and datagrams as relays carry them.

    QuicrPublishing      the intents of one client, by control stream and by datagram stream
    QuicrPublication     one track, on one control stream

In stream mode a group is a stream of MoQT's draft 16, its subgroup named after the first object in
it, so that a group that two relays carry parts of, because its publisher moved from one to the
other, is two subgroups. MoQT says how long an object is before it, and a fragment does not: an
object in several fragments goes on when it is whole. In datagram mode each fragment is a datagram,
at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.auth.grants import Action
from laps.edge.quicr_access import response_of, words_of
from laps.telemetry.records import is_telemetry
from laps.types import Location
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.data import ObjectStatus, SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import PublishDone
from laps.wire.moqt.object_fields import encode_object
from laps.wire.quicr.carried import CARRIED_BYTES, encode_carried, moqt_priority
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES, recut
from laps.wire.quicr.messages import (
    DEFAULT_PRIORITY,
    Fin,
    Fragment,
    PublishIntentOk,
    StartPoint,
    SubscribeReply,
)
from laps.wire.quicr.names import NameRefused, decode_name

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.edge import Edge
    from laps.edge.quicr_access import QuicrAccess
    from laps.relay.relay import Relay
    from laps.sessions.quicr import ControlStream, QuicrSession
    from laps.tracks.ports import Client
    from laps.tracks.publication import Publication
    from laps.tracks.track import Track
    from laps.wire.quicr.messages import Datagram, Message, PublishIntent, Terms

# A stream says nothing of priorities.
PRIORITY: Final = moqt_priority(DEFAULT_PRIORITY)


# What one client may have begun on all its streams: two of the largest objects.
MAX_PARTS_BYTES: Final = 2 * MAX_OBJECT_BYTES


@dataclass(slots=True)
class PartialObjects:
    """What a client has begun on its streams, and has not finished."""

    size: int = 0


class QuicrPublication:
    """A track that a client publishes, on one control stream."""

    def __init__(
        self,
        relay: Relay,
        client: Client,
        stream: ControlStream,
        track: Track,
        publication: Publication,
        partial: PartialObjects,
    ) -> None:
        """`partial` is of all that the client publishes."""
        self.stream = stream
        self.publication = publication
        self.datagram_stream_id: int | None = None
        self._relay = relay
        self._client = client
        self._track = track
        self._partial = partial
        self._parts: list[bytes] = []
        self._size = 0
        self._group: int | None = None
        "The group whose stream is open."
        self._last_id = -1
        "The last object on it."
        self._streams = 0
        self._said = False
        "It has said where it begins, or has begun."
        self._before = track.largest()
        "What was here of the track: a publisher that is back may send some of it again."
        self._seen: tuple[int, dict[int, bytes]] | None = None
        "What was here of a group."

    # -- on the stream -----------------------------------------------------------------------------

    def start(self) -> None:
        """START_POINT: what had begun does not go on."""
        self._said = True
        self._drop_parts()

    def fragment(self, fragment: Fragment, now: float) -> None:
        """The next fragment, in order."""
        payload = bytes(fragment.data)
        if self._size + len(payload) > MAX_OBJECT_BYTES:
            problem = f"an object of more than {MAX_OBJECT_BYTES} bytes is not taken"
            raise QuicrViolation(QuicrCode.TOO_LARGE, problem)
        if not fragment.last:
            self._hold(payload)
            return
        if self._parts:
            payload = b"".join((*self._parts, payload))
            self._drop_parts()
        place = Location(fragment.group, fragment.object_id)
        if not self._said and self._before is not None and self._before.group:
            self._before = None  # it begins anew, as who goes on would have said where
        self._said = True
        if not self._is_known(place, 0, payload, now, last=True):
            self._publish(place, payload, now)

    def _hold(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._partial.size += len(part)
        if self._partial.size > MAX_PARTS_BYTES:
            problem = f"more than {MAX_PARTS_BYTES} bytes of objects that are not whole"
            raise QuicrViolation(QuicrCode.TOO_LARGE, problem)

    def _drop_parts(self) -> None:
        self._partial.size -= self._size
        self._parts.clear()
        self._size = 0

    def _is_known(
        self, place: Location, offset: int, data: bytes | memoryview, now: float, *, last: bool
    ) -> bool:
        """Whether an object was here before this publisher was; or another one in its place."""
        if self._before is None or place > self._before:
            return False
        if self._seen is None or self._seen[0] != place.group:
            group = self._track.cached.groups.get(place.group)
            # Where a stream of it broke off, or is about to, others may have less than we have.
            is_whole = group is not None and all(stream.fin for stream in group.streams)
            objects = group.objects(now) if group is not None and is_whole else {}
            self._seen = place.group, {key: item.payload for key, item in objects.items()}
        before = self._seen[1].get(place.object)
        if before is None:
            return False
        end = offset + len(data)
        if before[offset:end] != data or last != (end == len(before)):
            self._before = None  # it does not go on: it has begun anew, with the same numbers
            return False
        self._relay.tracks.counters.duplicates += 1
        return True

    def _publish(self, place: Location, payload: bytes, now: float) -> None:
        group, object_id = place
        if self._group is not None and group != self._group:
            follows = group == self._group + 1 and not object_id
            self.end_group(now, ObjectStatus.END_OF_GROUP if follows else None)
        head = b""
        if self._group is None:
            self._streams += 1
            self._group, self._last_id = group, -1
            header = SubgroupHeader(self._track.alias, group, object_id, PRIORITY)
            head = encode_subgroup_header(header, BETWEEN_RELAYS)
        delta = object_id - self._last_id - 1
        self._last_id = object_id
        self._write(head + encode_object(delta, b"", payload), fin=False, now=now)

    def close(self, now: float, status: ObjectStatus | None) -> None:
        """Nothing more comes: an object that is not whole is none."""
        self._drop_parts()
        self.end_group(now, status)

    def end_group(self, now: float, status: ObjectStatus | None) -> None:
        """End the stream of the group, with what is known of the end."""
        if self._group is None:
            return
        data = b"" if status is None else encode_object(0, b"", b"", status)
        self._write(data, fin=True, now=now)
        self._group = None

    def _write(self, data: bytes, *, fin: bool, now: float) -> None:
        key = (self.stream.id, self._streams)
        track, ttl_us = self._track.hash, self.publication.ttl_us
        self._relay.publish(self._client, track, key, data, fin, PRIORITY, ttl_us, now)

    # -- in datagrams ------------------------------------------------------------------------------

    def datagram(self, fragment: Fragment, terms: Terms, now: float) -> None:
        """A fragment in a datagram, in any order."""
        place = Location(fragment.group, fragment.object_id)
        if self._group is not None and place > Location(self._group, self._last_id):
            self.end_group(now, None)  # it began on its stream, and goes on in datagrams
        if self._is_known(place, fragment.offset, fragment.data, now, last=fragment.last):
            return
        track = self._track
        for part in recut(fragment, CARRIED_BYTES):
            data = encode_carried(track.alias, part, terms)
            self._relay.publish_datagram(self._client, track.hash, data, now)


class QuicrPublishing:
    """The tracks that one client publishes."""

    def __init__(self, edge: Edge, client: EdgeClient, session: QuicrSession) -> None:
        self._edge = edge
        self._client = client
        self._session = session
        self._partial = PartialObjects()
        self._by_stream: dict[int, QuicrPublication] = {}
        self._by_datagram: dict[int, QuicrPublication] = {}
        self._lingering: dict[QuicrPublication, None] = {}
        "Those that have ended, and of which datagrams may still arrive."
        self._datagram_ids = 0
        self._is_closed = False

    def begin(self, stream: ControlStream, message: PublishIntent, now: float) -> None:
        """PUBLISH_INTENT; NameRefused if it cannot be."""
        name = decode_name(message.name)
        if is_telemetry(name.namespace):
            raise NameRefused("what is below laps/telemetry is published by relays alone")
        client, edge, session = self._client, self._edge, self._session
        if (reason := edge.context.no_room_for(name)) is not None:
            raise NameRefused(reason)
        track = edge.context.track(name, now)
        for published in [it for it in self._lingering if it.publication.key == track.key]:
            self._end(published, now, ok=True)  # it is published again: nothing more comes of that
        if client in track.publishers:
            raise NameRefused("this session publishes the name already")
        if len(session.streams) > edge.settings.quicr.streams:
            raise NameRefused(f"{len(session.streams) - 1} streams are open: close some")
        track.cached.belongs_to(client.share.cache_owner)
        publication = track.publish(client, stream.id)
        client.publications[stream.id] = publication
        published = self._by_stream[stream.id] = QuicrPublication(
            edge.relay, client, stream, track, publication, self._partial
        )
        if message.datagram_capable and edge.settings.quicr.datagrams:
            self._datagram_ids += 1
            published.datagram_stream_id = self._datagram_ids
            self._by_datagram[self._datagram_ids] = published
        session.send(stream, PublishIntentOk(published.datagram_stream_id))
        edge.context.announce(client, name.namespace, name.name, now)
        edge.subscribing.settle(track, now)

    def __contains__(self, stream: ControlStream) -> bool:
        return stream.id in self._by_stream

    def receive(self, stream: ControlStream, message: Message, now: float) -> None:
        """Media on a control stream."""
        published = self._by_stream[stream.id]
        match message:
            case Fragment():
                published.fragment(message, now)
            case StartPoint():
                published.start()
            case Fin():
                pass  # its stream says the same by its end
            case _:
                raise AssertionError(message)  # the session lets nothing else pass

    def datagram(self, datagram: Datagram, now: float) -> bool:
        """Media in a datagram; False if it is for no datagram stream that is known."""
        published = self._by_datagram.get(datagram.stream_id)
        if published is not None:
            published.datagram(datagram.fragment, datagram.terms, now)
        return published is not None

    def stream_closed(self, stream: ControlStream, now: float, *, ok: bool) -> None:
        """A publisher has ended its track, or has given it up: then others may go on with it."""
        published = self._by_stream.pop(stream.id)
        published.close(now, ObjectStatus.END_OF_TRACK if ok else None)
        if ok and published.datagram_stream_id is not None:
            # The last datagrams may arrive after that.
            self._lingering[published] = None
            at = now + self._edge.settings.linger_s
            self._edge.context.at(at, lambda now: self._end(published, now, ok=True))
        else:
            self._end(published, now, ok=ok)

    def review(self, access: QuicrAccess, now: float) -> None:
        """End what the client may not publish any more; its subscribers hear that it has ended."""
        for stream_id, published in list(self._by_stream.items()):
            track = self._edge.relay.tracks.get(published.publication.key)
            name = None if track is None else track.name
            if track is None or name is None:
                continue
            error = access.still(stream_id, Action.PUBLISH, name.namespace, name.name, now)
            if error is not None:
                del self._by_stream[stream_id]
                published.close(now, None)
                reply = SubscribeReply(response_of(error), words_of(error))
                self._session.send(published.stream, reply)
                self._end(published, now, ok=False)
                done = PublishDone(0, DoneCode.UNAUTHORIZED, reason=str(error))
                self._edge.endings.publisher_ended(track, done, now)

    def close(self, now: float) -> None:
        """The session is closed: what arrived of its tracks is whole."""
        for published in list(self._lingering):
            self._end(published, now, ok=True)
        self._is_closed = True
        for published in self._by_stream.values():
            published.close(now, None)
        self._by_stream.clear()
        self._by_datagram.clear()

    def _end(self, published: QuicrPublication, now: float, *, ok: bool) -> None:
        self._lingering.pop(published, None)
        if published.datagram_stream_id is not None:
            self._by_datagram.pop(published.datagram_stream_id, None)
        client, edge, publication = self._client, self._edge, published.publication
        track = edge.relay.tracks.get(publication.key)
        if self._is_closed or track is None or publication.request_id not in client.publications:
            return
        del client.publications[publication.request_id]
        track.end_publication(publication)
        if track.name is not None:
            edge.context.unannounce(client, track.name.namespace, track.name.name, now)
        if ok:
            if published.stream.final is not None:
                track.final = published.stream.final.final
            done = PublishDone(0, DoneCode.TRACK_ENDED)
            edge.endings.publisher_ended(track, done, now)
        edge.subscribing.settle(track, now)
        self._session.close(published.stream)
