"""A subscription of a QUICR client: a track in fragments, in order on a stream or as they come.

A track's streams are read object by object as their bytes come in, and its datagrams as they are;
what has come of an object is passed on before the rest is there. In stream mode a `MediaQueue` puts
it in order, and is emptied as the client has room. In datagram mode everything goes out at once, in
pieces that fit.

What a subscription wants of the time before it began is fetched as for a FETCH, from the cache or
from where it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from laps.edge.client import EdgeSubscription
from laps.edge.media_queue import MediaQueue
from laps.edge.quicr_history import QuicrHistory
from laps.edge.quicr_stream import QuicrStream
from laps.ranges import last_of
from laps.tracks.cached_stream import Resume
from laps.tracks.subscription import ESTABLISHED, SubscriptionState
from laps.types import Location
from laps.wire.moqt.data import ObjectStatus, decode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import Fetch, GroupOrder, StandaloneFetch
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
from laps.wire.quicr.names import NameRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.edge.client import ClientLink, EdgeClient, Rank, Serving
    from laps.edge.media_queue import MediaCounters
    from laps.sessions.quicr import ControlStream
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.wire.moqt.data import DatagramObject, SubgroupHeader
    from laps.wire.quicr.messages import Message
    from laps.wire.quicr.names import Pattern

# What waits for a reader of a stream: with more, old objects are dropped.
QUEUE_BYTES: Final = 8 * 1024 * 1024

_ENDS: Final = (ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK)


class Reader(Protocol):
    """The client whose subscription it is."""

    link: ClientLink
    serving: dict[int, Serving]

    def say(self, stream: ControlStream, message: Message) -> None:
        """Write to a control stream."""

    def finish(self, subscription: QuicrSubscription) -> None:
        """All of a track that has ended is sent."""

    def review_pressure(self, now: float) -> None:
        """More waits for it than before, or less."""

    def restarted(self, subscription: QuicrSubscription, now: float) -> None:
        """The publisher has begun anew, with smaller numbers, which no stream can say."""

    def fetch_history(
        self, history: QuicrHistory, message: Fetch, start: Location, end: Location, now: float
    ) -> None:
        """Have a range of a track answered."""

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Have something called at a time."""


class QuicrSubscription(EdgeSubscription):
    """One client's subscription to a track."""

    takes_fragments = True
    patient = True
    "A name may be subscribed to before anybody publishes it."

    def __init__(
        self,
        client: EdgeClient,
        reader: Reader,
        stream: ControlStream,
        track: Track,
        intent: Intent,
        datagram_stream_id: int | None,
        counters: MediaCounters,
    ) -> None:
        """`reader` is the client itself, as its subscription uses it."""
        super().__init__(client, track, stream.id, SubscriptionState.WAITING)
        self.stream = stream
        self.intent = intent
        self.datagram_stream_id = datagram_stream_id
        self.is_found = False
        "By a subscription with a mask: nobody here was subscribed to it when it began."
        self.known = track.largest()
        "What was here then, of a publisher that has left."
        self.renewed_at = 0.0
        self.is_stopped = False
        "Nobody wants it any more: what is open of it is not read on."
        self.pressed = False
        "More waits for it than is good."
        self.queue = MediaQueue(QUEUE_BYTES, counters)
        self._reader = reader
        self._floor = Location(0, 0)
        "What lies before it is brought by the history, or not wanted."
        self._partial: set[Location] = set()
        "Objects before it that are not whole here: taken live, unless the history brings them."
        self._begun = False
        "It has been said where it begins."
        self._last: Location | None = None
        "The largest object that was sent in datagrams."
        self._ending = False
        self._history: QuicrHistory | None = None
        self._alarm: float | None = None
        "When it is looked at again, for what is waited for no longer."

    # -- its beginning -----------------------------------------------------------------------------

    def begin(self, largest: Location | None, now: float) -> None:
        """The track is there, and this far: settle where to begin, and do."""
        if largest is None and self._wants_all:
            largest = self.known
        self.reorder()
        start = self._start(largest)
        self._floor = self._live_from(start, largest)
        fragments = self.track.fragments
        if fragments is not None:
            held = fragments.reassembler.open
            self._partial = {place for place in held if start <= place < self._floor}
        self.queue.begin(start)
        if start < self._floor:
            self.queue.history_end = last_of(_end_at(self._floor))
            self._history = QuicrHistory(self, self._reader.serving)
        elif start > Location(0, 0):
            self._begin(start)
        self._join_all(now)
        if self._history is not None:
            end = _end_at(self._floor)
            wanted = StandaloneFetch(self.track.name, start, end)  # type: ignore[arg-type]
            request = Fetch(self.request_id, wanted, order=GroupOrder.ASCENDING)
            self._reader.fetch_history(self._history, request, start, end, now)
        self.pump(now)

    def _begin(self, place: Location) -> None:
        """Say where it begins, unless that is the beginning of all."""
        self._begun = True
        if place > Location(0, 0):
            self.queue.said(place)
            self._reader.say(self.stream, StartPoint(place))

    def _live_from(self, start: Location, largest: Location | None) -> Location:
        """Where the history ends: after what is known."""
        if largest is None or start > largest:
            return start
        if self.is_new and not (self.is_found or self._wants_all):
            return start  # whatever its publisher has sent since then is on its way here
        return _after(largest)

    def _start(self, largest: Location | None) -> Location:
        known = self.known if self.is_new else largest
        if known is None:
            return Location(0, 0)
        if self._wants_all:
            return _going_on(self.stream.since or Location(0, 0), known)
        if self.intent is Intent.WAIT_UP:
            return Location(known.group + 1, 0)
        return _after(known)

    @property
    def _wants_all(self) -> bool:
        return self.intent is Intent.CATCH_UP

    def _join_all(self, now: float) -> None:
        """Take what is here of the time since the track was asked about."""
        cached = self.track.cached
        for group_id in sorted(g for g in cached.groups if g >= self._floor.group):
            for stream in list(cached.groups[group_id].streams):
                self._join(stream, now)
            for _, data in cached.groups[group_id].in_datagrams(now):
                self.datagram(data, decode_datagram(data, BETWEEN_RELAYS), now)
        if self.track.fragments is not None:
            for parts, terms in self.track.fragments.held(self._floor, now):
                self.fragments(parts, terms, b"", now)

    def _join(self, cached: CachedStream, now: float) -> None:
        live = next((s for s in self.track.streams.values() if s.cached is cached), None)
        if cached.malformed or (live is None and not cached.fin):
            return
        outlet = self._outlet(cached.header.group, cached.header.priority, cached.header)
        if cached.dropped_id is not None:
            outlet.resume(cached.dropped_id)
        for chunk in cached.chunks:
            outlet.write(chunk, now)
        if live is None:
            outlet.finish(b"", now)
        else:
            live.add(outlet)

    def started_over(self) -> None:
        """As `Subscription.started_over`: the publisher counts anew, and so do we."""
        self._floor, self._last = Location(0, 0), None
        if self.datagram_stream_id is None:  # a stream cannot go back to smaller numbers
            self.is_stopped = True
            self.track.shared.events.append(Resume(self))

    def resume(self, now: float) -> None:
        """As `Waiter.resume`: the publisher has begun anew, and its stream ends."""
        self._reader.restarted(self, now)

    # -- what comes --------------------------------------------------------------------------------

    def open(
        self,
        stream: IncomingStream,
        whole: bytes,
        rest: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> OutStream | None:
        """As `Subscription.open`."""
        if self.is_stopped or (self._state is not ESTABLISHED and self.is_kept_for_later()):
            return None
        header = stream.header
        if header.group < self._floor.group:
            return None
        outlet = self._outlet(header.group, header.priority, header, stream.first)
        if fin:
            outlet.finish(rest, now)
        elif rest:
            outlet.write(rest, now)
        return outlet

    def _outlet(
        self, group: int, priority: int | None, header: SubgroupHeader, first: int = 0
    ) -> QuicrStream:
        self.queue.opened(group)
        terms = Terms(priority=quicr_priority(priority))
        return QuicrStream(self, header, terms, first)

    def datagram(
        self, data: bytes, item: DatagramObject, now: float, *, pieced: bool = False
    ) -> None:
        """As `Subscription.datagram`."""
        if self._state is not ESTABLISHED and self.is_kept_for_later():
            return
        if item.status is not None:
            self.status(item.group, item.object_id, item.status)
        else:
            group = self.track.cached.groups.get(item.group)
            until = None if group is None else group.until.get(item.object_id)
            discardable = group is not None and item.object_id in group.discardable
            fragment = Fragment(item.group, item.object_id, 0, item.payload, True)
            terms = Terms(priority=quicr_priority(item.priority), discardable=discardable)
            self.take(fragment, terms, until, now)
        self.pump(now)

    def fragments(self, fragments: list[Fragment], terms: Terms, data: bytes, now: float) -> None:
        """As `Subscription.fragments`."""
        if self._state is not ESTABLISHED and self.is_kept_for_later():
            return
        seconds = terms.best_before_ms / 1000
        until = now + seconds if seconds else None
        for fragment in fragments:
            self.take(fragment, terms, until, now)
        self.pump(now)

    def take(self, fragment: Fragment, terms: Terms, until: float | None, now: float) -> None:
        """What has arrived of an object, live."""
        place = Location(fragment.group, fragment.object_id)
        is_partial = place in self._partial and self._history is None
        if is_partial or place >= self._floor:
            self.pass_on(fragment, terms, until, now)

    def bring(self, fragment: Fragment, terms: Terms, now: float) -> None:
        """An object of the time before."""
        self._partial.discard(Location(fragment.group, fragment.object_id))
        if self.datagram_stream_id is not None and not self._begun:
            self._begin(Location(fragment.group, fragment.object_id))
        group = self.track.cached.groups.get(fragment.group)
        until = None if group is None else group.until.get(fragment.object_id)
        if group is not None and fragment.object_id in group.discardable:
            terms = replace(terms, discardable=True)
        self.pass_on(fragment, terms, until, now)

    def pass_on(self, fragment: Fragment, terms: Terms, until: float | None, now: float) -> None:
        """Send it at once, or put it where it waits for its turn."""
        if self.datagram_stream_id is None:
            self.queue.put(fragment, terms, now, until)
        else:
            self._send_datagram(fragment, terms, until, now)

    def status(self, group: int, object_id: int, status: int) -> None:
        """An object that says something of its group, and is none."""
        if status in _ENDS:
            self.queue.ended(group, object_id)

    def reorder(self) -> None:
        """As `Subscription.reorder`."""
        self._reader.link.reorder(self.stream.id, self.track.order)

    def repaired(self, now: float) -> None:
        """As `Subscription.repaired`: go on with what waited for it."""
        self.pump(now)

    # -- what goes out -----------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Send what may be sent, as far as there is room."""
        if self.is_stopped:
            return
        if self.datagram_stream_id is None:
            link, order = self._reader.link, self.track.order
            self.queue.is_mending = self.track.is_mending
            for item in self.queue.take(now) if link.has_room_for(order) else ():
                self._reader.say(self.stream, item)
                if not link.has_room_for(order):
                    break
            deadline = self.queue.deadline
            if deadline is not None and link.has_room_for(order):
                self._pump_at(deadline)
        self._review_pressure(now)
        if self._ending and not self.queue and self._history is None:
            self._ending = False
            self._reader.finish(self)

    def _pump_at(self, when: float) -> None:
        """One alarm is enough."""
        if self._alarm is not None and self._alarm <= when:
            return
        self._alarm = when

        def pump(now: float) -> None:
            if self._alarm == when:
                self._alarm = None
            self.pump(now)

        self._reader.at(when, pump)

    def _send_datagram(
        self, fragment: Fragment, terms: Terms, until: float | None, now: float
    ) -> None:
        link = self._reader.link
        size = min(CARRIED_BYTES, link.datagram_bytes - DATAGRAM_HEAD_BYTES)
        if size <= 0 or self.datagram_stream_id is None:
            return
        ttl_us = 0
        best_before_ms = 0
        if until is not None:
            left = until - now
            if left <= 0:
                return
            ttl_us, best_before_ms = round(left * 1e6), max(1, round(left * 1000))
        before = terms.objects_before
        if not fragment.object_id and not fragment.offset and not before:
            before = self._count(fragment.group - 1)
        said = Terms(best_before_ms, terms.priority, terms.discardable, before)
        rank: Rank = (int(terms.discardable), terms.priority, self.track.order, 0, 0, 0)
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
            return not self.queue.has_history and link.has_room_for(self.track.order)
        return link.has_datagram_room

    def _review_pressure(self, now: float) -> None:
        pressed = self.queue.size > QUEUE_BYTES // 4
        if self.datagram_stream_id is not None:
            pressed = not self._reader.link.has_datagram_room
        if pressed is not self.pressed:
            self.pressed = pressed
            self._reader.review_pressure(now)

    # -- its end -----------------------------------------------------------------------------------

    def end(self, now: float) -> None:
        """Nothing more comes: send what is left, and say so."""
        self._ending = self.queue.ending = True
        self.pump(now)

    @property
    def final(self) -> Fin:
        """The location after the last object that was sent in datagrams, or would have been."""
        return Fin(self.queue.at if self._last is None else _after(self._last))

    def history_closed(self, now: float) -> None:
        """What came before has been brought, as far as it could be."""
        self._history = None
        self.queue.history_end = None
        begin = min(self._partial, default=self._floor)
        self.queue.history_over(begin)
        if self.datagram_stream_id is not None and not self._begun:
            self._begin(begin)
        self._take_partial(now)
        self.pump(now)

    def _take_partial(self, now: float) -> None:
        """What is here of objects that the history did not bring, as they were not whole there."""
        for place in sorted(self._partial):
            group = self.track.cached.groups.get(place.group)
            entry = None if group is None else group.datagrams.get(place.object)
            if entry is not None:
                self.datagram(entry[1], decode_datagram(entry[1], BETWEEN_RELAYS), now)
        if self._partial and self.track.fragments is not None:
            for parts, terms in self.track.fragments.held(min(self._partial), now):
                if Location(parts[0].group, parts[0].object_id) in self._partial:
                    self.fragments(parts, terms, b"", now)

    def close(self, now: float) -> None:
        """Nobody wants it any more."""
        self.is_stopped = True
        if self._history is not None:
            self._history.cancel(now)


def _going_on(since: Location, known: Location) -> Location:
    """Where a subscriber that has all before a place is to be sent a track, known to be this far.

    A relay may be a group or so less far than the one that the subscriber has left. A publisher
    that is further behind has begun anew.
    """
    if since <= _after(known):
        return since
    if since.group <= known.group + 1:
        return Location(max(known.group - 1, 0), 0)
    return Location(0, 0)


def _end_at(place: Location) -> Location:
    """A place as the end of a range, where an object of 0 is all of a group."""
    return place if place.object else Location(place.group - 1, 0)


def _after(place: Location) -> Location:
    return Location(place.group, place.object + 1)


def check_datagrams(
    link: ClientLink,
    subscriptions: Iterable[QuicrSubscription],
    datagram_id: int | None,
    pattern: Pattern | None,
) -> None:
    """NameRefused for a datagram stream that cannot be, or is another subscription's."""
    if datagram_id is None:
        return
    if not link.datagram_bytes:
        raise NameRefused("this connection takes no datagrams: subscribe in stream mode")
    for subscription in subscriptions:
        same = pattern is not None and subscription.track.name == pattern.track()
        if subscription.datagram_stream_id == datagram_id and not same:
            raise NameRefused(f"datagram stream {datagram_id} is in use: choose another")
