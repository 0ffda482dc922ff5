"""What of a track is missing for good after a repair, as far as its numbers tell.

    group 7     0 1 2 3 4               it was being received when the relay died
    group 8     0 1 2 . . 5 6           two objects
    group 9                             at least one: nobody knows how many it had
    group 10    0 1 2 (given up)        at least one: its stream broke off, and nobody has the rest
    group 11    0 1

A publisher that leaves numbers of groups out as a rule, such as one that counts by the time of day,
loses none of them: only a track whose groups mostly follow each other is missing one that does not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from laps.ranges import RangeSet
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.tracks.cache import CachedGroup, CachedTrack


class Holes:
    """Counts what one repair did not bring."""

    __slots__ = ("_first_group", "_given_up")

    def __init__(self, cached: CachedTrack, since: float) -> None:
        """What came before `since` is not missing."""
        recent = [
            group.id
            for group in cached.groups.values()
            if group.at >= since or any(stream.touched >= since for stream in group.streams)
        ]
        last = cached.largest()
        self._first_group = min(recent, default=0 if last is None else last.group)
        self._given_up: set[Location] = set()

    def give_up(self, group: int, object_id: int) -> None:
        """A stream ends early: this object would have been next on it."""
        self._given_up.add(Location(group, object_id))

    def count(self, cached: CachedTrack, counted: Location, now: float) -> int:
        """How many objects are missing at least, leaving out those before `counted`."""
        ids = sorted(group for group in cached.groups if group >= self._first_group)
        missing: RangeSet[Location] = RangeSet()
        came: RangeSet[Location] = RangeSet()
        for group_id in ids:
            group = cached.groups[group_id]
            ranges = group.ids(now)
            for first, end in ranges:
                came.add_range(Location(group_id, first), Location(group_id, end))
            for first, end in _gaps(ranges, from_start=group_id > ids[0] and _is_whole(group)):
                missing.add_range(max(counted, Location(group_id, first)), Location(group_id, end))
        lost = sum(end.object - first.object for first, end in missing)
        open_ends = (it for it in self._given_up if it not in missing and it not in came)
        lost += sum(it >= counted for it in open_ends)
        if is_dense(sorted(cached.groups)):
            start = max(self._first_group, counted.group)
            begin = cached.history.begin
            known = [start] if begin is not None and begin <= start else []
            pairs = pairwise([*known, *(it for it in ids if it >= start)])
            lost += sum(max(0, later - earlier - 1) for earlier, later in pairs)
        return lost


def _gaps(ranges: Sequence[tuple[int, int]], *, from_start: bool) -> list[tuple[int, int]]:
    """What lies between ranges, and before the first of them."""
    begun = [(0, 0)] if from_start and ranges else []
    return [(end, first) for (_, end), (first, _) in pairwise([*begun, *ranges]) if end < first]


def _is_whole(group: CachedGroup) -> bool:
    """Whether nothing of it was dropped to make room."""
    return not group.until and all(stream.dropped_id is None for stream in group.streams)


def is_dense(groups: Sequence[int]) -> bool:
    """Whether groups mostly follow each other."""
    steps = [later - earlier for earlier, later in pairwise(groups)]
    return bool(steps) and 2 * steps.count(1) >= len(steps)
