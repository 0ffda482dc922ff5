"""A subscription of a QUICR client: a track in fragments, in order on a stream or as they come.

A track's streams are read object by object as their bytes come in, and its datagrams as they are;
what has come of an object is passed on before the rest is there. In stream mode a `MediaQueue` puts
it in order, and is emptied as the client has room. In datagram mode everything goes out at once, in
pieces that fit.

What a subscription wants of the time before it began is fetched as for a FETCH, from the cache or
from where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.edge.media_queue import MediaQueue
from laps.edge.quicr_history import History
from laps.ranges import last_of
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import ObjectStatus, decode_datagram
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import Fetch, GroupOrder, StandaloneFetch
from laps.wire.moqt.pieces import PieceReader
from laps.wire.quicr.carried import CARRIED_BYTES, quicr_priority
from laps.wire.quicr.fragments import recut
from laps.wire.quicr.messages import (
    DATAGRAM_HEAD_BYTES,
    Fin,
    Fragment,
    Intent,
    StartPoint,
    Terms,
    encode_datagram,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.client import ClientLink
    from laps.edge.fetching import FetchServing
    from laps.edge.media_queue import MediaCounters
    from laps.edge.moqt_subscription import Rank
    from laps.sessions.quicr import ControlStream
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import LiveStream
    from laps.tracks.track import LiveTrack
    from laps.wire.moqt.data import DatagramObject, SubgroupHeader
    from laps.wire.quicr.messages import Message

# What waits for a reader of a stream: with more, old objects are dropped.
QUEUE_BYTES: Final = 8 * 1024 * 1024

_ENDS: Final = (ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK)


class Reader(Protocol):
    """The client whose subscription it is."""

    link: ClientLink
    serving: dict[int, FetchServing]

    def say(self, stream: ControlStream, message: Message) -> None:
        """Write to a control stream."""

    def finish(self, delivery: QuicrDelivery) -> None:
        """All of a track that has ended is sent."""

    def review_pressure(self) -> None:
        """More waits for it than before, or less."""

    def restarted(self, delivery: QuicrDelivery) -> None:
        """The publisher has begun anew, with smaller numbers, which no stream can say."""

    def fetch(self, asker: History, message: Fetch, start: Location, end: Location) -> None:
        """Have a range of a track answered."""

    def pump_at(self, delivery: QuicrDelivery, when: float) -> None:
        """Call `QuicrDelivery.pump` at a time."""


class QuicrDelivery:
    """One client's subscription to a track."""

    takes_fragments = True
    patient = True
    "A name may be subscribed to before anybody publishes it."
    end_group: int | None = None

    def __init__(
        self,
        reader: Reader,
        stream: ControlStream,
        track: LiveTrack,
        intent: Intent,
        datagram_stream_id: int | None,
        counters: MediaCounters,
    ) -> None:
        self.stream = stream
        self.track = track
        self.request_id = stream.id
        self.intent = intent
        self.datagram_stream_id = datagram_stream_id
        self.established = False
        self.is_new = False
        "Nobody published the track when it was subscribed to: all that comes is new."
        self.is_found = False
        "By a subscription with a mask: nobody here was subscribed to it when it began."
        self.known = track.largest()
        "What was here then, of a publisher that has left."
        self.on_data: Callable[[], None] | None = None
        self.renewed_at = 0.0
        self.over = False
        "Nobody wants it any more: what is open of it is not read on."
        self.pressed = False
        "More waits for it than is good."
        self.queue = MediaQueue(QUEUE_BYTES, counters)
        self._reader = reader
        self._floor = Location(0, 0)
        "What lies ahead of it is brought by the history, or not wanted."
        self._begun = False
        "It has been said where it begins."
        self._last: Location | None = None
        "The largest object that was sent in datagrams."
        self._ending = False
        self._history: History | None = None

    # -- its beginning -----------------------------------------------------------------------------

    def establish(self, largest: Location | None) -> None:
        """The track is there, and has come so far: settle where to begin, and do."""
        self.established = True
        if largest is None and self._wants_all:
            largest = self.known
        start = self._start(largest)
        self._floor = self._live_from(start, largest)
        self.queue.begin(start)
        if start < self._floor:
            self.queue.history_end = last_of(_end_at(self._floor))
            self._history = History(self, self._reader.serving)
        elif start > Location(0, 0):
            self._begin(start)
        self._join_all()
        if self._history is not None:
            end = _end_at(self._floor)
            wanted = StandaloneFetch(self.track.name, start, end)  # type: ignore[arg-type]
            request = Fetch(self.request_id, wanted, order=GroupOrder.ASCENDING)
            self._reader.fetch(self._history, request, start, end)
        self.pump()

    def _begin(self, place: Location) -> None:
        """Say where it begins, unless that is the beginning of all."""
        self._begun = True
        if place > Location(0, 0):
            self.queue.said(place)
            self._reader.say(self.stream, StartPoint(place))

    def _live_from(self, start: Location, largest: Location | None) -> Location:
        """Where the history ends: behind what is known, and ahead of what is not whole yet."""
        if largest is None or start > largest:
            return start
        if self.is_new and not (self.is_found or self._wants_all):
            return start  # whatever its publisher has sent since then is on its way here
        fragments = self.track.fragments
        partial = () if fragments is None else fragments.reassembler.open
        return min((place for place in partial if place >= start), default=_behind(largest))

    def _start(self, largest: Location | None) -> Location:
        known = self.known if self.is_new else largest
        if self._wants_all or known is None:
            return Location(0, 0)
        if self.intent is Intent.WAIT_UP:
            return Location(known.group + 1, 0)
        return _behind(known)

    @property
    def _wants_all(self) -> bool:
        return self.intent is Intent.CATCH_UP

    def is_past(self, largest: Location | None) -> bool:
        """As `Subscription`: it has no end of its own."""
        return False

    def _join_all(self) -> None:
        """Take what is here of the time since the track was asked about."""
        cached = self.track.cached
        for group_id in sorted(g for g in cached.groups if g >= self._floor.group):
            for stream in list(cached.groups[group_id].streams):
                self._join(stream)
            for _, data in cached.groups[group_id].in_datagrams():
                self.datagram(self.track, data, decode_datagram(data, DRAFT16))
        if self.track.fragments is not None:
            for parts, terms in self.track.fragments.held(self._floor, self._now):
                self.fragments(self.track, parts, terms, b"")

    def _join(self, cached: CachedStream) -> None:
        live = next((s for s in self.track.streams.values() if s.cached is cached), None)
        if cached.malformed or (live is None and not cached.fin):
            return
        outlet = self._outlet(cached.header.group, cached.header.priority, cached.header)
        if cached.dropped_id is not None:
            outlet.resume(cached.dropped_id)
        for chunk in cached.chunks:
            outlet.write(chunk)
        if live is None:
            outlet.finish()
        else:
            live.add(outlet)

    def started_over(self) -> None:
        """As `Subscriber`: the publisher counts from the beginning, and so do we."""
        self._floor, self._last = Location(0, 0), None
        if self.datagram_stream_id is None:
            self._reader.restarted(self)

    # -- what comes --------------------------------------------------------------------------------

    def open(
        self, stream: LiveStream, whole: bytes, rest: bytes | memoryview, fin: bool
    ) -> OutStream | None:
        """As `Subscriber`."""
        if not self.established:
            if self.on_data is None:
                return None  # it is in the cache, and sent from there
            self.on_data()
        header = stream.header
        if header.group < self._floor.group:
            return None
        outlet = self._outlet(header.group, header.priority, header, stream.first)
        if fin:
            outlet.finish(rest)
        elif rest:
            outlet.write(rest)
        return outlet

    def _outlet(
        self, group: int, priority: int | None, header: SubgroupHeader, first: int = 0
    ) -> _Outlet:
        self.queue.opened(group)
        terms = Terms(priority=quicr_priority(priority))
        return _Outlet(self, header, terms, first)

    def datagram(self, track: LiveTrack, data: bytes, item: DatagramObject) -> None:
        """As `Subscriber`."""
        if not self.established:
            if self.on_data is None:
                return
            self.on_data()
        if item.status is not None:
            self.status(item.group, item.object_id, item.status)
        else:
            group = self.track.cached.groups.get(item.group)
            until = None if group is None else group.until.get(item.object_id)
            fragment = Fragment(item.group, item.object_id, 0, item.payload, True)
            self.take(fragment, Terms(priority=quicr_priority(item.priority)), until)
        self.pump()

    def fragments(
        self, track: LiveTrack, fragments: list[Fragment], terms: Terms, data: bytes
    ) -> None:
        """As `Subscriber`."""
        if not self.established:
            if self.on_data is None:
                return
            self.on_data()
        seconds = terms.best_before_ms / 1000
        until = self._now + seconds if seconds else None
        for fragment in fragments:
            self.take(fragment, terms, until)
        self.pump()

    @property
    def _now(self) -> float:
        return self.track.live.cache.now

    def take(self, fragment: Fragment, terms: Terms, until: float | None) -> None:
        """What has come of an object, live."""
        if Location(fragment.group, fragment.object_id) >= self._floor:
            self.pass_on(fragment, terms, until)

    def bring(self, fragment: Fragment, terms: Terms) -> None:
        """An object of the time before."""
        if self.datagram_stream_id is not None and not self._begun:
            self._begin(Location(fragment.group, fragment.object_id))
        group = self.track.cached.groups.get(fragment.group)
        until = None if group is None else group.until.get(fragment.object_id)
        self.pass_on(fragment, terms, until)

    def pass_on(self, fragment: Fragment, terms: Terms, until: float | None) -> None:
        """Send it at once, or put it where it waits for its turn."""
        if self.datagram_stream_id is None:
            self.queue.put(fragment, terms, self._now, until)
        else:
            self._send_datagram(fragment, terms, until)

    def status(self, group: int, object_id: int, status: int) -> None:
        """An object that says something of its group, and is none."""
        if status in _ENDS:
            self.queue.ended(group, object_id)

    # -- what goes out -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what may be sent, as far as there is room."""
        if self.over:
            return
        if self.datagram_stream_id is None:
            link = self._reader.link
            for item in self.queue.take(self._now) if link.has_room else ():
                self._reader.say(self.stream, item)
                if not link.has_room:
                    break
            deadline = self.queue.deadline
            if deadline is not None and link.has_room:
                self._reader.pump_at(self, deadline)
        self._review_pressure()
        if self._ending and not self.queue and self._history is None:
            self._ending = False
            self._reader.finish(self)

    def _send_datagram(self, fragment: Fragment, terms: Terms, until: float | None) -> None:
        link = self._reader.link
        size = min(CARRIED_BYTES, link.datagram_bytes - DATAGRAM_HEAD_BYTES)
        if size <= 0 or self.datagram_stream_id is None:
            return
        ttl_us = 0
        best_before_ms = 0
        if until is not None:
            left = until - self._now
            if left <= 0:
                return
            ttl_us, best_before_ms = round(left * 1e6), max(1, round(left * 1000))
        before = terms.objects_before
        if not fragment.object_id and not fragment.offset and not before:
            before = self._count(fragment.group - 1)
        said = Terms(best_before_ms, terms.priority, terms.discardable, before)
        rank: Rank = (int(terms.discardable), terms.priority, 0, 0)
        place = Location(fragment.group, fragment.object_id)
        if not self._begun and self._history is None:
            self._begin(place)
        for part in recut(fragment, size):
            link.send_datagram(encode_datagram(self.datagram_stream_id, part, said), rank, ttl_us)
        if self._last is None or place > self._last:
            self._last = place

    def _count(self, group_id: int) -> int:
        """How many objects a group has, where that is known; 0 where it is not."""
        group = self.track.cached.groups.get(group_id)
        if group is None:
            return 0
        end, largest = group.end(), group.largest()
        if end is None and largest is not None and not group.datagrams:
            followed = bool(group.streams) and all(stream.fin for stream in group.streams)
            end = largest + 1 if followed else None
        return end or 0

    @property
    def has_room(self) -> bool:
        """Whether little waits to be sent."""
        link = self._reader.link
        if self.datagram_stream_id is None:
            return not self.queue.has_history and link.has_room
        return link.has_datagram_room

    def _review_pressure(self) -> None:
        pressed = self.queue.size > QUEUE_BYTES // 4
        if self.datagram_stream_id is not None:
            pressed = not self._reader.link.has_datagram_room
        if pressed is not self.pressed:
            self.pressed = pressed
            self._reader.review_pressure()

    # -- its end -----------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing more comes: send what is left, and say so."""
        self._ending = self.queue.ending = True
        self.pump()

    @property
    def final(self) -> Fin:
        """The location behind the last object that was sent in datagrams, or would have been."""
        return Fin(self.queue.at if self._last is None else _behind(self._last))

    def history_over(self) -> None:
        """What came before has been brought, as far as it could be."""
        self._history = None
        self.queue.history_end = None
        self.queue.history_over(self._floor)
        if self.datagram_stream_id is not None and not self._begun:
            self._begin(self._floor)
        self.pump()

    def close(self) -> None:
        """Nobody wants it any more."""
        self.over = True
        if self._history is not None:
            self._history.cancel()


class _Outlet:
    """A stream of a track, on its way into a delivery: an `OutStream`."""

    def __init__(
        self, delivery: QuicrDelivery, header: SubgroupHeader, terms: Terms, first: int
    ) -> None:
        self._delivery = delivery
        self._header = header
        self._terms = terms
        self._first = first
        self._reader = PieceReader(DRAFT16, header.has_extensions)
        self._next_id = 0
        self._closed = False

    @property
    def over(self) -> bool:
        """As `OutStream`."""
        return self._closed or self._delivery.over

    def resume(self, last_id: int) -> None:
        """The stream begins behind an object."""
        self._reader.resume(last_id)

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        if self.over:
            return False
        delivery, group = self._delivery, self._header.group
        try:
            pieces = self._reader.feed(data)
        except MoqtViolation:
            self.reset(0)
            return False
        for object_id, offset, part, last, status in pieces:
            if object_id < self._first:
                continue
            if status:
                delivery.status(group, object_id, status)
            else:
                delivery.take(Fragment(group, object_id, offset, part, last), self._terms, None)
            self._next_id = object_id + 1
        delivery.pump()
        return True

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if self.over or (data and not self.write(data)):
            return False
        if self._header.end_of_group and self._next_id:
            self._delivery.queue.ended(self._header.group, self._next_id)
        self._close()
        return True

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        self._close()

    def _close(self) -> None:
        if not self.over:
            self._closed = True
            self._delivery.queue.closed(self._header.group)
            self._delivery.pump()


def _end_at(place: Location) -> Location:
    """A place as the end of a range, where an object of 0 is all of a group."""
    return place if place.object else Location(place.group - 1, 0)


def _behind(place: Location) -> Location:
    return Location(place.group, place.object + 1)
