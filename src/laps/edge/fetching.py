"""FETCH: from the cache where it can be, and from a publisher where it must.

    serve      a client, or another relay, asks for a range; what is here is sent as it has room
    errands    what is not here is asked of a publisher, or of the relay that has one, once for all
               who want it at the time; what comes goes into the cache, and those who wait go on

An object that is not in the cache may not exist, or may not be known here. A group of which every
object from the first to the last is there is known; so is one that a publisher has been asked for.
Everything else is asked for before it is answered. When nobody can be asked, what is here is sent,
and the gaps are marked as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from laps.edge.upstream_fetch import Errands
from laps.ranges import LAST_OBJECT, end_after, last_of, without
from laps.tracks.known import Known
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation, RequestCode, ResetCode, SessionCode
from laps.wire.moqt.data import FetchHeader, encode_fetch_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.fetch import EndOfRange, FetchWriter
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    FilterType,
    GroupOrder,
    JoiningFetch,
    StandaloneFetch,
)
from laps.wire.moqt.translate import translate_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.edge import Edge
    from laps.edge.moqt import MoqtClient
    from laps.edge.moqt_subscription import Rank
    from laps.edge.upstream_fetch import Errand
    from laps.ranges import Range
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message
    from laps.wire.moqt.objects import Object


# So many objects are taken out of a group at once,
SOME: Final = 1000
# and so much is written at once: a call for each object takes longer than all the rest.
PORTION_BYTES: Final = 16 * 1024


class Asker(Protocol):
    """Who asks for a range: a client, or another relay for its own."""

    serving: dict[int, FetchServing]

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""

    @property
    def has_room(self) -> bool:
        """Whether little waits to be sent to it."""

    def answer(self, message: Message) -> None:
        """Answer its request."""

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """Answer its request with an error."""

    def open_fetch(self, track: LiveTrack, rank: Rank) -> OutStream:
        """A stream for what it asked for."""


@dataclass(slots=True)
class FetchCounters:
    """How fetches went, for the operator."""

    served: int = 0
    from_cache: int = 0
    "Without asking anybody."
    errands: int = 0
    "Ranges asked of a publisher or another relay."
    shared: int = 0
    "Who waited for a range that somebody else had asked for."
    failed: int = 0


class FetchServing:
    """An answer to a FETCH, on its way."""

    def __init__(
        self,
        fetches: Fetches,
        asker: Asker,
        track: LiveTrack,
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
        self._items: Iterator[Object | EndOfRange] | None = None
        self._tried = False
        self._alone = False
        "There is nobody to ask."
        self._over = False
        self._brought: dict[int, dict[int, Object]] = {}
        self._answered: list[Range] = []
        "What has been asked for and is known: of this, what did not come is not there."
        self._upto: Location | None = None
        "The largest there was when it was asked for."

    def resume(self, errand: Errand, now: float, *, well: bool) -> None:
        """What was missing has come, or will not."""
        if well:
            self._answered = errand.answered()
        self._brought = errand.objects
        self.begin(now)

    def begin(self, now: float) -> None:
        """Answer, or find out what is needed for that."""
        if self._over:
            return
        self._asker.serving[self._request_id] = self
        cached = self.track.cached
        largest = self.track.largest()
        self._upto = self._upto or largest
        if self._waits():
            return
        if not self._tried and (span := self._missing(largest)) is not None:
            self._tried = True
            if self._fetches.errands.send(self, *span, now):
                return
            self._alone = True
        elif not self._tried:
            self._fetches.counters.from_cache += 1
        largest = cached.largest()
        if largest is None:
            self.fail(RequestCode.DOES_NOT_EXIST, "no object of this track is known")
        elif self.start > largest:
            reason = f"the track has come to group {largest.group}, object {largest.object}"
            self.fail(RequestCode.INVALID_RANGE, reason)
        elif not self._asker.dialect.marks_unknown_ranges and self._gaps(
            self.start, self._last(largest)
        ):
            # What its draft leaves out does not exist, and that is more than is known.
            reason = "part of the range is not known here, and its publisher does not say"
            self.fail(RequestCode.INTERNAL_ERROR, reason)
        else:
            self._answer(largest, now)

    def _waits(self) -> bool:
        """Whether an object of the range is still coming, as the largest one may be."""
        if self._upto is None:
            return False
        cached, last = self.track.cached, self._last(self._upto)
        for group_id, group in cached.groups.items():
            for stream in group.streams if self.start.group <= group_id <= last.group else ():
                under_way = stream.under_way()
                if under_way is not None and self.start <= Location(group_id, under_way) <= last:
                    stream.waiting.append(lambda: self.begin(cached.cache.now))
                    return True
        return False

    def _last(self, largest: Location) -> Location:
        return min(last_of(self.end), largest)

    def _gaps(self, start: Location, last: Location) -> list[Range]:
        gaps = self._unanswered(Known(self.track).gaps(start, last))
        for group_id, objects in self._brought.items() if gaps else ():
            for object_id in objects:
                place = Location(group_id, object_id)
                gaps = without(gaps, (place, place))
        return gaps

    def _unanswered(self, gaps: list[Range]) -> list[Range]:
        past = self.track.cached.past
        if self._alone:
            return past.unknown(gaps, self.track.cached.groups)
        # Who was asked may have come after what was here, and know nothing of it.
        lost = past.lost(gaps, self._brought) if self._answered else []
        for known in self._answered:
            gaps = without(gaps, known)
        for gap in gaps:
            lost = without(lost, gap)
        return sorted(gaps + lost)

    def _missing(self, largest: Location | None) -> tuple[Location, Location] | None:
        """The part of the range that has to be asked for; None if all of it is known."""
        live = self._fetches.follows(self.track)
        if largest is None or (not live and last_of(self.end) > largest):
            return self.start, self.end
        spans = self._gaps(self.start, self._last(largest))
        if not spans:
            return None
        return spans[0][0], end_after(spans[-1][1])

    def _answer(self, largest: Location, now: float) -> None:
        last = last_of(self.end)
        end = self.end
        ended = self.track.ended_at()
        if last > largest:
            end = Location(largest.group, largest.object + 1)
        at_end = ended is not None and last >= largest
        self._fetches.counters.served += 1
        properties = self.track.properties
        self._asker.answer(FetchOk(self._request_id, end, at_end, self._order, properties))
        self._out = self._asker.open_fetch(self.track, (self._priority, 0, 0, 0))
        self._out.write(encode_fetch_header(FetchHeader(self._request_id)))
        self._items = self._collect(self.start, min(last, largest))
        self.pump(now)

    def pump(self, now: float) -> None:
        """Send on, as long as there is room."""
        out, asker = self._out, self._asker
        if out is None or self._items is None or self._over:
            return
        while not out.over and asker.has_room:
            data, is_all = self._portion(self._items)
            if data:
                out.write(data)
            if is_all is not None:
                self._end()
                if is_all:
                    out.finish()
                else:
                    out.reset(ResetCode.INTERNAL_ERROR)
                return
        if out.over:
            self._end()

    def _portion(self, items: Iterator[Object | EndOfRange]) -> tuple[bytes, bool | None]:
        """What is written next; whether that is all, if it is the last: or else nothing follows."""
        dialect, encode = self._asker.dialect, self._writer.encode
        written: list[bytes] = []
        size = 0
        for item in items:
            if not isinstance(item, EndOfRange):
                translated = translate_object(item, BETWEEN_RELAYS, dialect)
                data = b"" if translated is None else encode(translated)
            elif dialect.marks_unknown_ranges:
                data = encode(item)
            else:
                # It cannot say what is not known; what came before is all that it can have.
                return b"".join(written), False
            written.append(data)
            size += len(data)
            if size >= PORTION_BYTES:
                return b"".join(written), None
        return b"".join(written), True

    def fail(self, code: RequestCode, reason: str) -> None:
        """There is nothing to send."""
        self._fetches.counters.failed += 1
        self._asker.refuse(self._request_id, code, reason)
        self._end()

    def cancel(self) -> None:
        """It is no longer wanted."""
        self._end()
        if self._out is not None and not self._out.over:
            self._out.reset(ResetCode.CANCELLED)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self._over

    def _end(self) -> None:
        self._over = True
        self._asker.serving.pop(self._request_id, None)
        self._fetches.served(self._asker, self._request_id)

    def _collect(self, start: Location, last: Location) -> Iterator[Object | EndOfRange]:
        """The objects of a range, group by group; gaps that nobody knows about are marked."""
        cached = self.track.cached
        oldest = cached.oldest()
        for first, upto in self._parts(start, last):
            # Looked at group by group: what was there may be gone when a slow reader comes to it.
            gaps = [] if self._descending else self._gaps(first, upto)
            begin = first.object if first.group == upto.group else 0
            for item in self._objects(upto.group, begin, upto.object, oldest):
                while gaps and gaps[0][1] < (item.group, item.object_id):
                    _, unknown = gaps.pop(0)
                    yield EndOfRange(*unknown, unknown=True)
                yield item
            for _, unknown in gaps:
                yield EndOfRange(*unknown, unknown=True)

    def _objects(
        self, group_id: int, first: int, last: int, oldest: float
    ) -> Iterator[Object | EndOfRange]:
        """The objects of a group that are here, or were brought."""
        group, brought = self.track.cached.groups.get(group_id), self._brought.get(group_id)
        if group is None or brought:
            here = {} if group is None else group.objects(oldest, first, last)
            objects = {**brought, **here} if brought else here
            for object_id in sorted(objects):
                if first <= object_id <= last:
                    yield objects[object_id]
            return
        # Some at a time: a group may be long, and a reader slow.
        for low, high in group.ids(oldest):
            for begin in range(max(low, first), min(high, last + 1), SOME):
                end = min(begin + SOME, high, last + 1)
                objects = group.objects(oldest, begin, end - 1)
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

    def __init__(self, edge: Edge) -> None:
        self.counters = FetchCounters()
        self.errands = Errands(edge, self.counters)
        self._edge = edge

    # -- asked of us -------------------------------------------------------------------------------

    def serve(self, client: MoqtClient, message: Fetch, now: float) -> None:
        """A client asks for a range."""
        wanted, request_id = message.range, message.request_id
        if isinstance(wanted, StandaloneFetch):
            track = self._edge.track(wanted.track)
            self.begin(client, track, message, wanted.start, wanted.end, now)
            return
        delivery = client.by_request.get(wanted.joining_id)
        if delivery is None:
            reason = f"request {wanted.joining_id} is no subscription of this session"
            client.refuse(request_id, RequestCode.INVALID_JOINING_REQUEST_ID, reason)
            return
        if delivery.filter.type is not FilterType.LARGEST_OBJECT:
            raise MoqtViolation(
                SessionCode.PROTOCOL_VIOLATION,
                "a joining FETCH goes with a subscription from the largest object on",
            )

        def join(now: float) -> None:
            if request_id not in client.session.incoming:
                return  # it has been cancelled
            largest = delivery.largest
            if not delivery.established or largest is None:
                reason = "nothing of the track came before the subscription"
                client.refuse(request_id, RequestCode.INVALID_RANGE, reason)
                return
            assert isinstance(wanted, JoiningFetch)  # noqa: S101 - the other kind is done above
            group = max(0, largest.group - wanted.start) if wanted.relative else wanted.start
            end = Location(largest.group, largest.object + 1)
            self.begin(client, delivery.track, message, Location(group, 0), end, now)

        delivery.when_established(join, now)

    def begin(
        self,
        asker: Asker,
        track: LiveTrack,
        message: Fetch,
        start: Location,
        end: Location,
        now: float,
    ) -> None:
        """Answer with a range of a track."""
        if last_of(end) < start:
            reason = f"the range ends at {end.group}, {end.object}, ahead of its beginning"
            asker.refuse(message.request_id, RequestCode.INVALID_RANGE, reason)
            return
        FetchServing(
            self, asker, track, message.request_id, start, end, message.order, message.priority
        ).begin(now)

    def served(self, asker: Asker, request_id: int) -> None:
        """A FETCH is over."""
        session = getattr(asker, "session", None)
        if session is not None:
            session.finish(request_id)

    def follows(self, track: LiveTrack) -> bool:
        """Whether we hear of every new object of a track."""
        sources = self._edge.sources(track)
        if any(source.established for source in sources.values()):
            return True
        return any(subscriber.established for subscriber in track.subscribers.values())
