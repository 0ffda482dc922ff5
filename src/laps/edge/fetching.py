"""FETCH: from the cache where it can be, and from a publisher where it must.

    FetchServing       a client, or another relay, asks for a range; what is here is sent as it has
                       room
    UpstreamFetches    what is not here is fetched from a publisher, or from the relay that has one,
                       once for all who want it at the time (`upstream_fetch`); what arrives goes
                       into the cache, and those who wait go on

An object that is not in the cache may not exist, or may not be known here. A group of which every
object from the first to the last is there is known; so is one that a publisher has been asked for.
Everything else is asked for before it is answered. When nobody can be asked, what is here is sent,
and the gaps are marked as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.edge.client import RankedStream
from laps.edge.upstream_fetch import FETCH_S
from laps.ranges import LAST_OBJECT, after, before, end_after, last_of, without
from laps.tracks.known import Known
from laps.tracks.subscription import SubscriptionState
from laps.types import Location
from laps.wire.moqt.codes import RequestCode, ResetCode
from laps.wire.moqt.data import FetchHeader, encode_fetch_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.fetch import EndOfRange, FetchWriter
from laps.wire.moqt.messages import DEFAULT_PRIORITY, FetchOk, GroupOrder
from laps.wire.moqt.objects import Object
from laps.wire.moqt.translate import translate_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.client import Rank, Serving
    from laps.edge.upstream_fetch import UpstreamFetches
    from laps.ranges import Range
    from laps.tracks.ports import OutStream
    from laps.tracks.track import Track
    from laps.tracks.upstream_fetch import UpstreamFetch
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Fetch, Message, RequestError


# What is missing of an object in fragments after this long was lost on its way from the publisher.
FRAGMENTS_S: Final = 1.0
# Objects that are taken out of a group at once.
SOME: Final = 1000
# What is written at once: a call for each object takes longer than all the rest.
PORTION_BYTES: Final = 16 * 1024


class Asker(Protocol):
    """Whoever asks for a range: a client, or another relay for its own."""

    serving: dict[int, Serving]

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""

    def has_room_for(self, order: int) -> bool:
        """Whether little waits to be sent to it ahead of a class of service."""

    def answer(self, message: Message, now: float) -> None:
        """Answer its request."""

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """Answer its request with an error."""

    def open_fetch(self, track: Track, rank: Rank) -> OutStream:
        """A stream for what it asked for."""

    def fetch_served(self, request_id: int) -> None:
        """Its request has come to an end."""


class FetchServing:
    """An answer to a FETCH, on its way."""

    def __init__(
        self,
        fetches: Fetches,
        asker: Asker,
        track: Track,
        request_id: int,
        start: Location,
        end: Location,
        order: GroupOrder,
        priority: int,
    ) -> None:
        self.track = track
        self.start = start
        self.end = end
        "One past the last; an object of 0 is all of the group."
        self._fetches = fetches
        self._asker = asker
        self._request_id = request_id
        self._order = order or track.properties.order or GroupOrder.ASCENDING
        self._descending = self._order is GroupOrder.DESCENDING
        self._priority = priority
        self._out: OutStream | None = None
        self._writer = FetchWriter(asker.dialect)
        self._items: Iterator[Object | EndOfRange | None] | None = None
        self._tried = False
        self._alone = False
        "There is nobody to ask."
        self._over = False
        self._brought: dict[int, dict[int, Object]] = {}
        self._answered: list[Range] = []
        "What has been asked for and is known: of this, what did not come is not there."
        self._upto: Location | None = None
        "The largest there was when it was asked for."
        self.position = start
        "What comes before this place has been sent."
        self._fetch: UpstreamFetch | None = None
        "What is on its way here."
        self._refusal: RequestError | None = None
        "Why the relay that has it will not send it."

    def progressed(self, fetch: UpstreamFetch, now: float) -> None:
        """As `FetchWaiter.progressed`: what has arrived is sent on at once."""
        if self._over or self._descending or fetch.answer is None:
            return
        if fetch.answer.order is GroupOrder.DESCENDING:
            return
        self._fetch = fetch
        if self._out is not None:
            self.pump(now)
            return
        known, end = self.track.furthest(), last_of(fetch.answered_end)
        largest = end if known is None else max(known, end)
        # Until then it can still be refused.
        if fetch.next > fetch.start and self.start <= largest:
            self._answer(largest, now)

    def fetched(self, fetch: UpstreamFetch, now: float, *, ok: bool) -> None:
        """As `FetchWaiter.fetched`."""
        if self._over:
            return
        self._fetch = None
        self._answered = fetch.answered() if ok else fetch.settled()
        self._brought = fetch.objects
        self._refusal = None if ok else fetch.refusal
        if self._out is not None:
            self.pump(now)
        else:
            self.begin(now)

    def resume(self, now: float) -> None:
        """As `Waiter.resume`: what it waited for has arrived, or may have stalled."""
        if self._out is None and not self._tried:
            self.begin(now)

    def begin(self, now: float) -> None:
        """Answer, or find out what is needed for that."""
        if self._over:
            return
        self._asker.serving[self._request_id] = self
        largest = self.track.furthest()
        self._upto = self._upto or largest
        if self._waits(now):
            return
        if not self._tried and (span := self._missing(largest, now)) is not None:
            self._tried = True
            if self._fetches.upstream.send(self, self.track, *span, now):
                return
            self._alone = True
        elif not self._tried:
            self._fetches.counters.from_cache += 1
        largest = self.track.furthest()
        if self._refusal is not None and (largest is None or self.start > largest):
            self.fail(self._refusal.code, self._refusal.reason, now)
        elif largest is None:
            self.fail(RequestCode.DOES_NOT_EXIST, "no object of this track is known", now)
        elif self.start > largest:
            reason = f"the track has come to group {largest.group}, object {largest.object}"
            self.fail(RequestCode.INVALID_RANGE, reason, now)
        elif not self._asker.dialect.marks_unknown_ranges and self._gaps(
            self.start, self._last(largest), now
        ):
            # What its draft leaves out does not exist, and that is more than is known.
            reason = "part of the range is not known here, and its publisher does not say"
            code = int(RequestCode.UNKNOWN_STATUS_IN_RANGE)
            if self._refusal is not None:
                code, reason = self._refusal.code, self._refusal.reason
            self.fail(code, reason, now)
        else:
            self._answer(largest, now)

    def _waits(self, now: float) -> bool:
        """Whether an object of the range is still coming, as the largest one may be.

        One that has stalled is not waited for.
        """
        if self._upto is None:
            return False
        cached, last = self.track.cached, self._last(self._upto)
        for group_id, group in cached.groups.items():
            for stream in group.streams if self.start.group <= group_id <= last.group else ():
                under_way = stream.under_way()
                if under_way is None or stream.touched + FETCH_S <= now:
                    continue
                if self.start <= Location(group_id, under_way) <= last:
                    if self not in stream.waiting:
                        stream.waiting.append(self)
                    self._fetches.upstream.at(stream.touched + FETCH_S, self.resume)
                    return True
        return self._waits_for_fragments(last, now)

    def _waits_for_fragments(self, last: Location, now: float) -> bool:
        """Whether a publisher here is sending an object of the range in fragments.

        Those that it sent before the relay that asks was known to want them are had only here.
        """
        fragments = self.track.fragments
        if fragments is None or not self.track.answering:
            return False
        began = fragments.youngest((self.start, last))
        if began is None or began + FRAGMENTS_S <= now:
            return False
        if self not in fragments.waiting:
            fragments.waiting.append(self)
        self._fetches.upstream.at(began + FRAGMENTS_S, self.resume)
        return True

    def _last(self, largest: Location) -> Location:
        return min(last_of(self.end), largest)

    def _gaps(self, start: Location, last: Location, now: float) -> list[Range]:
        gaps = self._unanswered(Known(self.track.cached).gaps(start, last, now))
        for group_id, objects in self._brought.items() if gaps else ():
            for object_id in objects:
                place = Location(group_id, object_id)
                gaps = without(gaps, (place, place))
        return gaps

    def _unanswered(self, gaps: list[Range]) -> list[Range]:
        history = self.track.cached.history
        if self._alone:
            return history.unknown(gaps, self.track.cached.groups)
        # Who was asked may have come after what was here, and know nothing of it.
        lost = history.lost(gaps, self._brought) if self._answered else []
        for known in self._answered:
            gaps = without(gaps, known)
        for gap in gaps:
            lost = without(lost, gap)
        return sorted(gaps + lost)

    def _missing(self, largest: Location | None, now: float) -> tuple[Location, Location] | None:
        """The part of the range that has to be asked for; None if all of it is known."""
        live = _follows(self.track)
        if largest is None or (not live and last_of(self.end) > largest):
            return self.start, self.end
        spans = self._gaps(self.start, self._last(largest), now)
        if not spans:
            return None
        return spans[0][0], end_after(spans[-1][1])

    def _answer(self, largest: Location, now: float) -> None:
        last = last_of(self.end)
        end = self.end
        ended = self.track.ended_at(now) is not None
        if self._fetch is not None and self._fetch.answer is not None:
            ended = ended or self._fetch.answer.end_of_track
        if last > largest:
            end = end_after(largest)
        at_end = ended and last >= largest
        self._fetches.counters.served += 1
        properties = self.track.properties
        self._asker.answer(FetchOk(self._request_id, end, at_end, self._order, properties), now)
        # As urgent as the track itself, with which it takes turns.
        publishers = DEFAULT_PRIORITY if properties.priority is None else properties.priority
        rank = (self._priority, publishers, self.track.order, self._request_id, 0, 0)
        self._out = self._asker.open_fetch(self.track, rank)
        self._out.write(encode_fetch_header(FetchHeader(self._request_id)), now)
        self._items = self._arriving(self.start, min(last, largest), now)
        self.pump(now)

    def _arriving(
        self, start: Location, last: Location, now: float
    ) -> Iterator[Object | EndOfRange | None]:
        """The objects of a range as they become known; None where the next has yet to arrive."""
        while start <= last:
            upto, fetch = last, self._fetch
            if fetch is not None:
                self._answered, self._brought = fetch.settled(), fetch.objects
                upto = min(last, before(fetch.next))
            if upto < start:
                yield None
                continue
            yield from self._collect(start, upto, now)
            self.position = start = after(upto)

    def pump(self, now: float) -> None:
        """Send on, as long as there is room."""
        out, asker = self._out, self._asker
        if out is None or self._items is None or self._over:
            return
        while not out.over and asker.has_room_for(self.track.order):
            data, is_all = self._portion(self._items, now)
            if data:
                out.write(data, now)
            elif is_all is None:
                return  # more has to arrive first
            if is_all is not None:
                self._end(now)
                if is_all:
                    out.finish(b"", now)
                else:
                    out.reset(ResetCode.UNKNOWN_OBJECT_STATUS, now)
                return
        if out.over:
            self._end(now)

    def _portion(
        self, items: Iterator[Object | EndOfRange | None], now: float
    ) -> tuple[bytes, bool | None]:
        """What is written next; whether that is all, if it is the last: or else nothing follows."""
        dialect, encode = self._asker.dialect, self._writer.encode
        written: list[bytes] = []
        size = 0
        for item in items:
            if item is None:
                return b"".join(written), None
            expired = isinstance(item, Object) and item.datagram and self._is_expired(item, now)
            if isinstance(item, Object) and not expired:
                translated = translate_object(item, BETWEEN_RELAYS, dialect)
                data = b"" if translated is None else encode(translated)
            elif dialect.marks_unknown_ranges and not self._descending:
                # Whether there was an object that is of no use any more is not said.
                data = encode(EndOfRange(item.group, item.object_id, unknown=True))
            else:
                # It cannot say what is not known; what came before is all that it can have.
                return b"".join(written), False
            written.append(data)
            size += len(data)
            if size >= PORTION_BYTES:
                return b"".join(written), None
        return b"".join(written), True

    def _is_expired(self, item: Object, now: float) -> bool:
        group = self.track.cached.groups.get(item.group)
        until = None if group is None else group.until.get(item.object_id)
        return until is not None and until < now

    def fail(self, code: int, reason: str, now: float) -> None:
        """There is nothing to send."""
        self._fetches.counters.failed += 1
        self._asker.refuse(self._request_id, code, reason, now)
        self._end(now)

    def prioritize(self, priority: int) -> None:
        """As `Serving.prioritize`."""
        self._priority = priority
        if isinstance(self._out, RankedStream):
            self._out.move((priority, *self._out.rank[1:]))

    def cancel(self, now: float) -> None:
        """As `Serving.cancel`."""
        self._end(now)
        if self._out is not None and not self._out.over:
            self._out.reset(ResetCode.CANCELLED, now)

    def malformed(self, track: Track, reason: str, now: float) -> None:
        """As `Serving.malformed`."""
        if track is not self.track:
            return
        if self._out is None:
            self.fail(RequestCode.MALFORMED_TRACK, reason, now)
            return
        self._end(now)
        if not self._out.over:
            self._out.reset(ResetCode.MALFORMED_TRACK, now)

    def _end(self, now: float) -> None:
        self._over = True
        self._fetches.upstream.leave(self, now)
        self._asker.serving.pop(self._request_id, None)
        self._asker.fetch_served(self._request_id)

    def _collect(
        self, start: Location, last: Location, now: float
    ) -> Iterator[Object | EndOfRange]:
        """The objects of a range, group by group; gaps that nobody knows about are marked."""
        for first, upto in self._parts(start, last):
            # Looked at group by group: what was there may be gone when a slow reader comes to it.
            gaps = self._gaps(first, upto, now)
            if gaps and self._descending:
                yield EndOfRange(*gaps[0][1], unknown=True)
                return
            begin = first.object if first.group == upto.group else 0
            oldest = self.track.cached.oldest(now, upto.group)
            for item in self._objects(upto.group, begin, upto.object, oldest, now):
                while gaps and gaps[0][1] < (item.group, item.object_id):
                    _, unknown = gaps.pop(0)
                    yield EndOfRange(*unknown, unknown=True)
                yield item
            for _, unknown in gaps:
                yield EndOfRange(*unknown, unknown=True)

    def _objects(
        self, group_id: int, first: int, last: int, oldest: float, now: float
    ) -> Iterator[Object | EndOfRange]:
        """The objects of a group that are here, or were brought."""
        group, brought = self.track.cached.groups.get(group_id), self._brought.get(group_id)
        if group is None or brought:
            here = {} if group is None else group.objects(now, oldest, first, last)
            objects = {**brought, **here} if brought else here
            for object_id in sorted(objects):
                if first <= object_id <= last:
                    yield objects[object_id]
            return
        # Some at a time: a group may be long, and a reader slow.
        for low, high in group.ids(now, oldest):
            for begin in range(max(low, first), min(high, last + 1), SOME):
                end = min(begin + SOME, high, last + 1)
                objects = group.objects(now, oldest, begin, end - 1)
                for object_id in range(begin, end):
                    # What has been let go meanwhile is not said not to be there.
                    yield objects.get(object_id) or EndOfRange(group_id, object_id, unknown=True)

    def _parts(self, start: Location, last: Location) -> Iterator[Range]:
        """A range in parts, each with a group that is here at its end; in the order asked for.

        Descending, the draft has no way to mark what is not known.
        """
        groups = self.track.cached.groups.keys() | self._brought.keys()
        ids = sorted(g for g in groups if start.group <= g <= last.group)
        if not self._descending and last.group not in ids:
            ids.append(last.group)
        firsts = [start, *(Location(group_id + 1, 0) for group_id in ids)]
        parts = [
            (first, min(last, Location(group_id, LAST_OBJECT)))
            for first, group_id in zip(firsts, ids, strict=False)
        ]
        yield from reversed(parts) if self._descending else parts


class Fetches:
    """The FETCHes that a relay is asked to answer."""

    def __init__(self, upstream: UpstreamFetches) -> None:
        self.counters = upstream.counters
        self.upstream = upstream

    def begin(
        self,
        asker: Asker,
        track: Track,
        message: Fetch,
        start: Location,
        end: Location,
        now: float,
    ) -> None:
        """Answer with a range of a track."""
        if last_of(end) < start:
            reason = f"the range ends at {end.group}, {end.object}, before its beginning"
            asker.refuse(message.request_id, RequestCode.INVALID_RANGE, reason, now)
            return
        FetchServing(
            self, asker, track, message.request_id, start, end, message.order, message.priority
        ).begin(now)


def _follows(track: Track) -> bool:
    """Whether we hear of every new object of a track."""
    if any(publication.is_established for publication in track.answering):
        return True
    established = SubscriptionState.ESTABLISHED
    return any(subscriber.state is established for subscriber in track.subscribers.values())
