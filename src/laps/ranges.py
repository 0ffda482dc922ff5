"""Sets of numbers and of locations as the ranges they make, and the arithmetic of locations.

There are two ways to write a part of a track, and both are here:

- a `Range` has its first and its last location, both included;
- the end of a FETCH is one past the last location, and with object 0 it is the whole of its group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAST_OBJECT: Final = (1 << 62) - 1
"""The largest id that an object can have, as the wire writes it."""

Range = tuple[Location, Location]
"From and to, both included."

# --- locations -------------------------------------------------------------------------------


def after(place: Location) -> Location:
    """The next location."""
    if place.object == LAST_OBJECT:
        return Location(place.group + 1, 0)
    return Location(place.group, place.object + 1)


def before(place: Location) -> Location:
    """The location before."""
    if place.object:
        return Location(place.group, place.object - 1)
    return Location(place.group - 1, LAST_OBJECT)


def end_after(last: Location) -> Location:
    """The end of a range, from its last location."""
    return Location(last.group, 0 if last.object == LAST_OBJECT else last.object + 1)


def last_of(end: Location) -> Location:
    """The last location before the end of a range."""
    return Location(end.group, (end.object or LAST_OBJECT + 1) - 1)


def beyond(end: Location) -> Location:
    """The end of a range, so that it compares: the whole of a group is all it can have."""
    return end if end.object else Location(end.group, LAST_OBJECT + 1)


# --- ranges ----------------------------------------------------------------------------------


def without(ranges: list[Range], known: Range) -> list[Range]:
    """What is left of ranges without one."""
    first, last = known
    left: list[Range] = []
    for item in ranges:
        if item[1] < first or item[0] > last:
            left.append(item)
            continue
        if item[0] < first:
            left.append((item[0], before(first)))
        if item[1] > last:
            left.append((after(last), item[1]))
    return left


Point = TypeVar("Point", int, Location)


class RangeSet(Generic[Point]):
    """A set of numbers or of locations: ranges in order, each from a point up to another.

    The end of a range is not in it: of locations, it is `after` the last one.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[Point, Point]] = ()) -> None:
        self._starts: list[Point] = []
        self._ends: list[Point] = []
        for first, end in ranges:
            self.add_range(first, end)

    def __contains__(self, point: Point) -> bool:
        at = bisect_right(self._starts, point) - 1
        return at >= 0 and point < self._ends[at]

    def __iter__(self) -> Iterator[tuple[Point, Point]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)

    def add_range(self, first: Point, end: Point) -> None:
        """Add all from one point up to another; ranges that touch become one."""
        if not first < end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [first], [end]

    def remove_range(self, first: Point, end: Point) -> None:
        """Remove all from one point up to another."""
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        if low >= high or not first < end:
            return
        left, right = self._starts[low], self._ends[high - 1]
        kept = [(left, first)] * (left < first) + [(end, right)] * (end < right)
        self._starts[low:high] = [item[0] for item in kept]
        self._ends[low:high] = [item[1] for item in kept]

    def gaps(self, first: Point, end: Point) -> list[tuple[Point, Point]]:
        """What is not there, from one point up to another."""
        found: list[tuple[Point, Point]] = []
        low, high = bisect_right(self._ends, first), bisect_left(self._starts, end)
        for index in range(low, high):
            if first < self._starts[index]:
                found.append((first, self._starts[index]))
            first = self._ends[index]
        if first < end:
            found.append((first, end))
        return found


class Numbers(RangeSet[int]):
    """Numbers from 0, most of which come one after the other."""

    __slots__ = ()

    def add(self, number: int) -> bool:
        """False if it was there."""
        ends = self._ends
        if ends and ends[-1] == number:  # nearly always
            ends[-1] = number + 1
            return True
        if number in self:
            return False
        self.add_range(number, number + 1)
        return True

    def first_missing(self) -> int:
        """The smallest number that is not there."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0
