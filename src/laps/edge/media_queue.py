"""Objects in the order of the media, out of pieces in any order: what a QUICR stream needs.

    pieces of objects, from streams and datagrams -> MediaQueue -> fragments and START_POINTs

The object in hand passes as it comes. When it is whole its successor follows: the next of the
group, or the first of the next group where it is known that the group is over. What is missing is
waited for, not for ever: then START_POINT says where it goes on. A reader that is too slow loses
objects here, those that may be discarded and the least urgent first, and the oldest of those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.quicr.messages import MAX_FRAGMENT_BYTES, Fragment, StartPoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.wire.quicr.messages import Terms

# What is missing is waited for as long as packets of datagrams are late.
PATIENCE_S: Final = 0.5

# Where a stream is open that may bring it, as long as lost packets take to be sent again, twice. A
# publisher whose relay died is at another one in less time, too.
STREAM_PATIENCE_S: Final = 2.0

# Where a relay has died, and what is missing is being asked for.
MENDING_S: Final = 5.0

# A group of which no stream is open may have another that was overtaken, and the first object that
# is seen of a track may have overtaken others.
GRACE_S: Final = 0.02

# What an object costs beside its bytes, roughly.
OBJECT_BYTES: Final = 200

# So many objects that were dropped, and ends of groups, are remembered one by one.
MANY: Final = 1024


@dataclass(slots=True)
class MediaCounters:
    """What a reader did not get."""

    skipped: int = 0
    "Gaps that were not filled in time."
    late: int = 0
    "Pieces that came when it was too late for them."
    dropped_objects: int = 0
    "Objects dropped because the reader is slow,"
    expired_objects: int = 0
    "and those that were of no use any more."


@dataclass(slots=True)
class _Object:
    """Pieces of an object whose turn has not come, or that is being sent."""

    terms: Terms
    until: float | None
    came: float
    "When the first of it came,"
    touched: float
    "and the last."
    pieces: dict[int, Fragment] = field(default_factory=dict)
    size: int = OBJECT_BYTES
    mixed: bool = False
    "It has come twice, and its pieces may overlap."

    def piece(self, offset: int) -> Fragment | None:
        """Take the piece that goes on at an offset, as much of it as a message has room for."""
        found = self._piece(offset)
        if found is None or len(found.data) <= MAX_FRAGMENT_BYTES:
            return found
        rest = _rest_from(found, offset + MAX_FRAGMENT_BYTES)
        assert rest is not None  # noqa: S101 - it has more bytes than that
        known = self.pieces.get(rest.offset)
        if known is None or known.end < rest.end:
            self.size -= 0 if known is None else len(known.data)
            self.pieces[rest.offset] = rest
        else:
            self.size -= len(rest.data)
        head = memoryview(found.data)[:MAX_FRAGMENT_BYTES]
        return Fragment(found.group, found.object_id, offset, head, last=False)

    def _piece(self, offset: int) -> Fragment | None:
        found = self.pieces.pop(offset, None)
        if found is None and self.mixed:
            for start, other in self.pieces.items():
                if start < offset and (rest := _rest_from(other, offset)) is not None:
                    del self.pieces[start]
                    self.size -= len(other.data) - len(rest.data)
                    return rest
        return found


def _rest_from(fragment: Fragment, offset: int) -> Fragment | None:
    """What is left of a fragment from an offset on; None if that says nothing."""
    end = fragment.end
    if end < offset or (end == offset and not fragment.last):
        return None
    data = memoryview(fragment.data)[offset - fragment.offset :]
    return Fragment(fragment.group, fragment.object_id, offset, data, fragment.last)


class MediaQueue:
    """The objects that one reader is to be given, in order."""

    def __init__(self, limit_bytes: int, counters: MediaCounters) -> None:
        self.size = 0
        "How much waits here."
        self.history_end: Location | None = None
        "What came before, up to here, is still being brought, in order."
        self.at = Location(0, 0)
        "The object in hand."
        self.is_mending = False
        "What is missing is being asked for."
        self.ending = False
        "Nothing more will come: nothing is waited for."
        self._limit = limit_bytes
        self._counters = counters
        self._offset = 0
        self._said: Location | None = None
        "Where the reader stands: the next object of the group in hand."
        self._first = True
        "Nothing has been sent since the last START_POINT: only what that named may follow."
        self._broken = False
        "The reader has a part of an object of which there is no more."
        self._objects: dict[Location, _Object] = {}
        self._order: list[Location] = []
        self._ends: dict[int, int] = {}
        "Groups of which it is known how many objects they have."
        self._open: dict[int, int] = {}
        "How many streams of a group are open."
        self._cut: set[int] = set()
        "Groups with a stream that broke off: whoever sends the rest may be on its way."
        self._gone: set[Location] = set()
        "Dropped here: nobody waits for them."
        self._lost = Location(0, -1)
        "Nobody waits for anything up to here: too much was dropped to remember it."
        self._streamed = False
        "Objects come on streams: what does not come was never made."
        self._sparse = False
        "So it was with the last gap, and is with the next, unless something comes late."
        self._due: float | None = None
        "What is missing is waited for until then."

    def __bool__(self) -> bool:
        return bool(self._objects) or (self.ending and self._broken)

    @property
    def has_history(self) -> bool:
        """Whether something of what came before waits here."""
        end = self.history_end
        return end is not None and any(place <= end for place in self._order[:1])

    # -- what comes --------------------------------------------------------------------------------

    def begin(self, place: Location) -> None:
        """Nothing before a location is wanted."""
        self._advance(place)

    def said(self, place: Location) -> None:
        """The reader has been told where it begins."""
        self._said, self._first = place, True

    def opened(self, group: int) -> None:
        """A stream of a group has begun."""
        self._streamed = True
        self._cut.discard(group)
        self._open[group] = self._open.get(group, 0) + 1

    def closed(self, group: int, *, cut: bool = False) -> None:
        """A stream of a group is closed; `cut`: its source was lost before it had sent all."""
        if cut and group >= self.at.group:
            self._cut.add(group)
        left = self._open.get(group, 0) - 1
        if left > 0:
            self._open[group] = left
        else:
            self._open.pop(group, None)

    def ended(self, group: int, count: int) -> None:
        """A group has so many objects, and no more."""
        if group >= self.at.group:
            self._ends[group] = count
            self._tidy()

    def put(self, fragment: Fragment, terms: Terms, now: float, until: float | None) -> None:
        """A piece of an object."""
        place = Location(fragment.group, fragment.object_id)
        found = self._objects.get(place)
        begun = place == self.at and self._offset > 0
        rest: Fragment | None = fragment
        if begun and fragment.offset < self._offset:
            rest = _rest_from(fragment, self._offset)
        dropped = place in self._gone or (place <= self._lost and found is None)
        if rest is None or place < self.at or dropped:
            self._counters.late += 1
            self._sparse = False
            return
        if found is None:
            found = self._objects[place] = _Object(terms, until, now, now)
            heappush(self._order, place)
            self.size += OBJECT_BYTES
        found.touched = now
        self._add(found, rest)
        found.mixed = found.mixed or rest is not fragment
        if terms.objects_before and not fragment.object_id and not fragment.offset:
            self.ended(fragment.group - 1, terms.objects_before)
        if self.size > self._limit:
            self._shed(now)

    def _add(self, found: _Object, fragment: Fragment) -> None:
        known = found.pieces.get(fragment.offset)
        size = len(fragment.data)
        if known is not None:
            found.mixed = True
            if (size, fragment.last) <= (len(known.data), known.last):
                return
            size -= len(known.data)
        found.pieces[fragment.offset] = fragment
        found.size += size
        self.size += size

    def history_over(self, place: Location) -> None:
        """What came before has been brought: go on with what is live."""
        if self.at < place:
            self._jump(place)

    # -- what goes ---------------------------------------------------------------------------------

    def take(self, now: float) -> Iterator[Fragment | StartPoint]:
        """What may be sent now; whoever has no more room stops asking."""
        while (place := self._next(now)) is not None:
            found = self._objects[place]
            if not self._offset and 0 in found.pieces and not self._follows(place):
                yield self._start(place)
            before = found.size
            fragment = found.piece(self._offset)
            self.size -= before - found.size
            if fragment is None:
                if not self._give_up(place, found, now):
                    return
                continue
            found.size -= len(fragment.data)
            self.size -= len(fragment.data)
            self._due = None
            if fragment.last:
                self._forget(place)
                self._advance(Location(place.group, place.object + 1))
                self._said, self._first = self.at, False
            else:
                self._offset = fragment.end
            yield fragment
        if self.ending and self._broken and not self._objects:
            yield self._start(self.at)

    def _start(self, place: Location) -> StartPoint:
        self._said, self._first, self._broken = place, True, False
        return StartPoint(place)

    def _follows(self, place: Location) -> bool:
        """Whether a reader takes an object without a START_POINT."""
        said = self._said
        if self._broken:
            return False
        if said is None:
            return place == Location(0, 0)
        if place == said:
            return True
        return not self._first and place == Location(said.group + 1, 0)

    def _next(self, now: float) -> Location | None:
        """The object that can be sent, or goes on; None if there is none, or it is waited for."""
        while self._order:
            place = self._order[0]
            found = self._objects.get(place)
            if found is None or place < self.at:
                heappop(self._order)
                self._forget(place)
                continue
            if found.until is not None and found.until < now:
                self._counters.expired_objects += 1
                self._drop(place)
                continue
            return place if place == self.at or self._may_follow(place, now) else None
        self._due = None
        return None

    def _may_follow(self, place: Location, now: float) -> bool:
        """Whether nothing between the object in hand and another is waited for any longer."""
        if self.history_end is not None:
            if place > self.history_end:
                self._due = None
                return False
            self._jump(place)
            return True
        self._pass_gaps(place)
        if place == self.at:
            return True
        if not self.ending and (self._said is not None or place.object):
            if self._waits(self._first_came(), self._patience(place), now):
                return False
            if self._said is not None and not self._may_be_next(place):
                self._counters.skipped += 1
                self._sparse = self._streamed
        self._jump(place)
        return True

    def _pass_gaps(self, place: Location) -> None:
        """Go on to where something may be: after what was dropped, and after ends of groups."""
        at = self.at
        while at < place:
            end = self._ends.get(at.group)
            if at <= self._lost:
                at = min(place, Location(self._lost.group, self._lost.object + 1))
            elif at in self._gone:
                at = Location(at.group, at.object + 1)
            elif end is not None and at.object >= end and place.group > at.group:
                at = Location(at.group + 1, 0)
            else:
                break
        self._advance(at)

    def _patience(self, place: Location) -> float:
        """How long to wait for what lies between the object in hand and another."""
        at = self.at
        if self._said is not None and at.group in self._cut:
            return STREAM_PATIENCE_S
        if self._said is None or self._sparse:
            return GRACE_S
        if at.group in self._open:
            return STREAM_PATIENCE_S
        return GRACE_S if self._may_be_next(place) else PATIENCE_S

    def _may_be_next(self, place: Location) -> bool:
        """Whether there may be nothing between the object in hand and another."""
        end = self._ends.get(self.at.group)
        return place == Location(self.at.group + 1, 0) and (end is None or self.at.object >= end)

    def _give_up(self, place: Location, found: _Object, now: float) -> bool:
        """The piece that comes next is not here: wait for it, or give the object up."""
        if not self.ending:
            if not found.pieces and len(self._objects) == 1:
                self._due = None  # it has not come yet, and nothing else has
                return False
            since, wait_s = found.touched, PATIENCE_S
            if not found.pieces:
                since = max(since, self._first_came(place))
                may_go_on = place.group in self._open or place.group in self._cut
                wait_s = STREAM_PATIENCE_S if may_go_on else PATIENCE_S
            if self._waits(since, wait_s, now):
                return False
        self._counters.skipped += 1
        self._jump(Location(place.group, place.object + 1))
        return True

    def _first_came(self, but: Location | None = None) -> float:
        """Since when it is known that something is missing: they stand in the order they came."""
        return next(found.came for place, found in self._objects.items() if place != but)

    def _waits(self, since: float, wait_s: float, now: float) -> bool:
        self._due = since + (max(wait_s, MENDING_S) if self.is_mending else wait_s)
        return now < self._due

    def _jump(self, place: Location) -> None:
        """Go on elsewhere, whatever is missing of the object in hand."""
        # A reader that has a part of it is told by a START_POINT that there is no more.
        self._broken = self._broken or self._offset > 0
        self._forget(self.at)
        self._advance(place)

    def _advance(self, place: Location) -> None:
        """Go on with another object."""
        if self.at != place:
            self.at, self._offset, self._due = place, 0, None
            if self._cut:
                self._cut = {group for group in self._cut if group >= place.group}
            self._tidy()

    @property
    def deadline(self) -> float | None:
        """When `take` is worth a call though nothing has come."""
        return self._due

    # -- what is dropped ---------------------------------------------------------------------------

    def _shed(self, now: float) -> None:
        """Make room: what may be discarded first, then the least urgent; the oldest of those.

        What is of no use any more goes first, and what has begun last.
        """
        goal = self._limit * 3 // 4
        for place in [place for place in self._objects if self._is_past(place, now)]:
            self._counters.expired_objects += 1
            self._drop(place)
        begun = self.at if self._offset else None
        places = sorted(place for place in self._objects if place != begun)
        places.sort(key=self._worth)
        for place in places:
            if self.size <= goal:
                break
            self._counters.dropped_objects += 1
            self._drop(place)
        if begun is not None and self.size > self._limit:
            self._counters.dropped_objects += 1
            self._drop(begun)

    def _is_past(self, place: Location, now: float) -> bool:
        until = self._objects[place].until
        return until is not None and until < now

    def _worth(self, place: Location) -> tuple[bool, int]:
        terms = self._objects[place].terms
        return not terms.discardable, -terms.priority

    def _drop(self, place: Location) -> None:
        if place == self.at:
            self._jump(Location(place.group, place.object + 1))
        else:
            self._gone.add(place)
            self._forget(place)
            self._tidy()

    def _forget(self, place: Location) -> None:
        found = self._objects.pop(place, None)
        if found is not None:
            self.size -= found.size

    def _tidy(self) -> None:
        """Remember no more of what was dropped, and of ends, than there is here."""
        if len(self._order) > MANY + 2 * len(self._objects):
            self._order = sorted(self._objects)
        if len(self._gone) + len(self._ends) <= MANY + 2 * len(self._objects):
            return
        self._gone = {place for place in self._gone if place >= self.at}
        if len(self._gone) > MANY // 2:
            self._lost = max(self._gone)
            self._gone.clear()
        here = {place.group for place in self._objects}
        here |= {self.at.group, max(self._ends, default=0)}
        self._ends = {group: end for group, end in self._ends.items() if group in here}
