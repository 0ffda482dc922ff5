"""What part of a track is settled: an offset may move past that, and past nothing else.

Objects of a group come on several streams, or in datagrams, side by side, and groups overtake one
another. So a location is behind us only when all ahead of it have been seen, or will not come:

    0 1 2 . 4 5     the frontier is at 3: 4 and 5 were quicker, or 3 does not exist

A publisher that says where a group ends settles it with its last object. Otherwise what is missing
is overdue when something later has been there for `settle_s`. Then a relay is asked for it, and
`settle` is called with how far its answer goes. What comes after that is late, and counted.

The time is an argument, and nothing is remembered but numbers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from laps.ranges import after
from laps.spark.source.offsets import Position
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Span:
    """Objects of one group, from one id up to another, and how many there are."""

    group: int
    first: int
    end: int
    count: int


class _Next(NamedTuple):
    """What follows a place where nothing has been seen."""

    at: Location
    ripe: float
    "When what is missing ahead of it is overdue."
    is_free: bool
    "It is known that nothing is missing."


@dataclass(slots=True)
class _Run:
    """Ids that follow each other, all seen."""

    first: int
    end: int
    since: float
    "When the first of them was seen."


@dataclass(slots=True)
class _Group:
    since: float
    touched: float
    "When something of it was seen last."
    end: int | None = None
    "The id behind its last object, if that was said."
    runs: list[_Run] = field(default_factory=list)

    def index(self, object_id: int) -> int:
        """The run that an id is in, or behind; -1 if it is ahead of all."""
        return bisect_right(self.runs, object_id, key=_first_of) - 1

    def add(self, object_id: int, now: float) -> bool:
        """False if it was there."""
        runs = self.runs
        self.touched = now
        if runs and runs[-1].end == object_id:  # nearly always
            runs[-1].end += 1
            return True
        at = self.index(object_id)
        if at >= 0 and object_id < runs[at].end:
            return False
        follows = at >= 0 and runs[at].end == object_id
        leads = at + 1 < len(runs) and runs[at + 1].first == object_id + 1
        if follows and leads:
            runs[at].end = runs.pop(at + 1).end
        elif follows:
            runs[at].end += 1
        elif leads:
            runs[at + 1].first = object_id
        else:
            runs.insert(at + 1, _Run(object_id, object_id + 1, now))
        return True

    def between(self, first: int, end: int | None) -> Iterator[tuple[int, int]]:
        """Ids that were seen, as ranges, from one on and up to another."""
        for run in self.runs[max(0, self.index(first)) :]:
            low = max(run.first, first)
            high = run.end if end is None else min(run.end, end)
            if low < high:
                yield low, high
            elif end is not None and run.first >= end:
                return


def _first_of(run: _Run) -> int:
    return run.first


class Frontier:
    """The objects of one track that have been seen, and how far they are settled."""

    def __init__(self, position: Position, settle_s: float) -> None:
        self.position = position
        "Where the settled part ends: the next location, and the objects ahead of it."
        self.begin = position.at
        "From here on it is known which objects there are."
        self.late = 0
        "Objects that came behind the frontier."
        self.largest: Location | None = None
        self._settle_s = settle_s
        self._groups: dict[int, _Group] = {}
        self._order: list[int] = []

    # -- what is seen ------------------------------------------------------------------------------

    def add(self, group: int, object_id: int, now: float) -> bool:
        """An object was seen; False if it is late: what it belongs to has been settled."""
        at = Location(group, object_id)
        if at < self.position.at:
            known = self._groups.get(group)
            if known is None or not known.runs or not _has(known, object_id):
                self.late += 1
                return False
            return True
        self._group(group, now).add(object_id, now)
        if self.largest is None or at > self.largest:
            self.largest = at
        return True

    def end_group(self, group: int, end: int, now: float) -> None:
        """It was said that a group has no object from this id on."""
        if Location(group, end) >= self.position.at:
            known = self._group(group, now)
            known.end = end if known.end is None else min(known.end, end)

    def _group(self, group: int, now: float) -> _Group:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group(now, now)
            insort(self._order, group)
        return known

    # -- what is settled ---------------------------------------------------------------------------

    def advance(self) -> Position:
        """Move over all that has been seen without a gap."""
        at, count = self.position.at, self.position.count
        while True:
            at, count = self._along(at, count)
            following = self._next(at)
            if following is None or not following.is_free:
                break
            at = following.at
        if at != self.position.at:
            self.position = Position(at, count)
        return self.position

    def overdue(self, now: float) -> Location | None:
        """Up to where a relay is to be asked, from the frontier on: what is missing is overdue."""
        upto = None
        at = self.position.at
        while (following := self._next(at)) is not None:
            if not following.is_free:
                if following.ripe > now:
                    break
                upto = following.at
            at, _ = self._along(following.at, 0)
        return upto

    @property
    def deadline(self) -> float | None:
        """When `overdue` has something to say, as far as is known now."""
        following = self._next(self.position.at)
        return None if following is None or following.is_free else following.ripe

    def settle(self, upto: Location) -> Position:
        """All that there is ahead of a location has been seen."""
        at, count = self.position.at, self.position.count
        if upto > at:
            count += sum(span.count for span in self.spans(at, upto))
            self.position = Position(upto, count)
        return self.advance()

    def finish(self) -> Position:
        """The track has ended, and all of it was read."""
        if self.largest is not None:
            self.settle(after(self.largest))
        return self.position

    def _along(self, at: Location, count: int) -> tuple[Location, int]:
        """To the end of the run that a place is in."""
        group = self._groups.get(at.group)
        if group is None:
            return at, count
        index = group.index(at.object)
        if index < 0 or group.runs[index].end <= at.object:
            return at, count
        end = group.runs[index].end
        return Location(at.group, end), count + end - at.object

    def _next(self, at: Location) -> _Next | None:
        """What was seen next behind a place that was not; None if nothing was."""
        group = self._groups.get(at.group)
        if group is not None:
            index = group.index(at.object) + 1
            if index < len(group.runs):
                run = group.runs[index]
                return _Next(Location(at.group, run.first), run.since + self._settle_s, False)
        index = bisect_right(self._order, at.group)
        if index == len(self._order):
            return None
        number = self._order[index]
        later = self._groups[number]
        is_over = group is not None and group.end is not None and group.end <= at.object
        if is_over and number == at.group + 1:
            return _Next(Location(number, 0), 0.0, True)
        first = later.runs[0].first if later.runs else 0
        # A group is as good as over when others have begun and nothing more comes of it.
        since = later.since if group is None or is_over else max(later.since, group.touched)
        return _Next(Location(number, first), since + self._settle_s, False)

    # -- what is read ------------------------------------------------------------------------------

    def covers(self, at: Location) -> bool:
        """Whether it is known which objects there are from a location on."""
        return self.begin <= at

    def spans(self, start: Location, end: Location) -> list[Span]:
        """The objects that were seen from one location up to another, group by group."""
        found = []
        low = bisect_right(self._order, start.group - 1)
        high = bisect_right(self._order, end.group)
        for number in self._order[low:high]:
            first = start.object if number == start.group else 0
            last = end.object if number == end.group else None
            ranges = list(self._groups[number].between(first, last))
            if ranges:
                count = sum(high - low for low, high in ranges)
                found.append(Span(number, ranges[0][0], ranges[-1][1], count))
        return found

    def at(self, start: Position, end: Location) -> Position:
        """A location as a position, counted from another."""
        if end <= start.at:
            return start
        return Position(end, start.count + sum(span.count for span in self.spans(start.at, end)))

    def after(self, start: Position, most: int) -> Position:
        """Where so many settled objects behind a position end."""
        left = most
        for span in self.spans(start.at, self.position.at):
            if span.count < left:
                left -= span.count
                continue
            for low, high in self._groups[span.group].between(span.first, span.end):
                if high - low >= left:
                    return Position(Location(span.group, low + left), start.count + most)
                left -= high - low
        return self.position

    def forget(self, before: Location) -> None:
        """What lies ahead of a location is not asked for again."""
        before = min(before, self.position.at)
        if before <= self.begin:
            return
        self.begin = before
        keep = bisect_right(self._order, before.group - 1)
        for number in self._order[:keep]:
            del self._groups[number]
        del self._order[:keep]
        if (group := self._groups.get(before.group)) is not None:
            group.runs = [run for run in group.runs if run.end > before.object]


def _has(group: _Group, object_id: int) -> bool:
    index = group.index(object_id)
    return index >= 0 and object_id < group.runs[index].end
