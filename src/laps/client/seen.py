"""Which objects of a track an application has been given, so that none is given twice.

A publisher, or a relay, may send again what it cannot know to have arrived. A publisher that begins
anew, with numbers it has used before, sends something else under them: then all begins anew here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from enum import Enum
from typing import Final

from laps.types import Location

# Groups are remembered one by one as long as parallel ones are likely to be; older ones together.
GROUPS: Final = 256

# So many objects are remembered by what was in them.
MARKS: Final = 4096
MARK_BYTES: Final = 64


class Verdict(Enum):
    """What an object is to one who has been given others."""

    NEW = "new"
    AGAIN = "again"
    ANOTHER = "another"
    "Something else than was given under its number."


class Ids:
    """Numbers, as the ranges they make."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, below: int = 0) -> None:
        """Begin with all numbers below one."""
        self._starts = [0] if below else []
        self._ends = [below] if below else []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def add(self, number: int) -> bool:
        """False if it was there."""
        starts, ends = self._starts, self._ends
        if ends and ends[-1] == number:  # nearly always
            ends[-1] = number + 1
            return True
        at = bisect_right(starts, number) - 1
        if at >= 0 and number < ends[at]:
            return False
        joins_before = at >= 0 and ends[at] == number
        joins_after = at + 1 < len(starts) and starts[at + 1] == number + 1
        if joins_before and joins_after:
            ends[at] = ends.pop(at + 1)
            del starts[at + 1]
        elif joins_before:
            ends[at] = number + 1
        elif joins_after:
            starts[at + 1] = number
        else:
            starts.insert(at + 1, number)
            ends.insert(at + 1, number + 1)
        return True

    def first_missing(self) -> int:
        """The smallest number that is not there."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0


class Seen:
    """The objects of a track that were given."""

    def __init__(self) -> None:
        self.begin = Location(0, 0)
        "What comes ahead of it is not wanted."
        self.largest: Location | None = None
        self._groups: dict[int, Ids] = {}
        self._below = 0
        "Groups below this one are forgotten, and count as given."
        self._marks: OrderedDict[Location, int] = OrderedDict()
        self._markers: OrderedDict[Location, None] = OrderedDict()

    def start(self, at: Location) -> None:
        """Nothing ahead of a location is wanted; what was given before does not count."""
        self.begin = at
        self.largest = None
        self._groups.clear()
        self._marks.clear()
        self._markers.clear()
        self._below = at.group
        if at.object:
            self._groups[at.group] = Ids(at.object)

    def add(self, group: int, object_id: int, payload: bytes) -> Verdict:
        """An object is about to be given."""
        place = Location(group, object_id)
        mark = hash((len(payload), payload[:MARK_BYTES]))
        ids = self._groups.get(group)
        if ids is None:
            if group < self._below:
                return Verdict.AGAIN
            ids = self._groups[group] = Ids()
            if len(self._groups) > GROUPS:
                oldest = min(self._groups)
                del self._groups[oldest]
                self._below = max(self._below, oldest + 1)
        if not ids.add(object_id):
            same = self._marks.get(place, mark) == mark
            return Verdict.AGAIN if same else Verdict.ANOTHER
        self._marks[place] = mark
        if len(self._marks) > MARKS:
            self._marks.popitem(last=False)
        if self.largest is None or place > self.largest:
            self.largest = place
        return Verdict.NEW

    def mark(self, place: Location) -> bool:
        """A marker is about to be given: whether it is new. An object may have its number, too."""
        if place in self._markers or place.group < self._below:
            return False
        self._markers[place] = None
        if len(self._markers) > GROUPS:
            self._markers.popitem(last=False)
        return True

    def is_forgotten(self, largest: Location) -> bool:
        """Whether a track that has come to `largest` must have begun anew."""
        return self.largest is not None and largest.group < self._below

    def resume_at(self, group: int | None) -> Location:
        """Where to go on: the first object not given of a group that may be unfinished."""
        if group is None or group < self._below:
            group = self._below if self.largest is None else self.largest.group
        ids = self._groups.get(group)
        return max(self.begin, Location(group, ids.first_missing() if ids else 0))
