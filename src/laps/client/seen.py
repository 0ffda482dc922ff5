"""Which objects of a track an application has been given, so that none is given twice.

A publisher, or a relay, may send again what it cannot know to have arrived. A publisher that begins
anew, with numbers it has used before, sends something else under them: then all begins anew here.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final

from laps.ranges import Numbers
from laps.types import Location

# Groups are remembered one by one as long as parallel ones are likely to be; older ones together.
GROUPS: Final = 256

# This many objects are remembered by what was in them.
MARKS: Final = 4096
MARK_BYTES: Final = 64


class Verdict(Enum):
    """What an object is to one who has been given others."""

    NEW = "new"
    AGAIN = "again"
    ANOTHER = "another"
    "Something else than was given under its number."


class Seen:
    """The objects of a track that were given."""

    def __init__(self) -> None:
        self.begin = Location(0, 0)
        "What comes before it is not wanted."
        self.largest: Location | None = None
        self._groups: dict[int, Numbers] = {}
        self._below = 0
        "Groups below this one are forgotten, and count as given."
        self._marks: OrderedDict[Location, int] = OrderedDict()
        self._markers: OrderedDict[Location, None] = OrderedDict()

    def start(self, at: Location) -> None:
        """Nothing before a location is wanted; what was given before does not count."""
        self.begin = at
        self.largest = None
        self._groups.clear()
        self._marks.clear()
        self._markers.clear()
        self._below = at.group
        if at.object:
            self._groups[at.group] = Numbers([(0, at.object)])

    def add(self, group: int, object_id: int, payload: bytes) -> Verdict:
        """An object is about to be given."""
        place = Location(group, object_id)
        mark = hash((len(payload), payload[:MARK_BYTES]))
        ids = self._groups.get(group)
        if ids is None:
            if group < self._below:
                return Verdict.AGAIN
            ids = self._groups[group] = Numbers()
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

    def ids(self, group: int) -> Numbers | None:
        """The objects of a group that were given; None if they are forgotten."""
        if group < self._below:
            return None
        return self._groups.get(group) or Numbers()

    def unfinished(self) -> int | None:
        """The last group, if there is more to come of it: the one before it had more objects."""
        if self.largest is None:
            return None
        last, before = (self._groups.get(self.largest.group - back) for back in (0, 1))
        if last is None or before is None:
            return None
        return self.largest.group if last.first_missing() < before.first_missing() else None

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
