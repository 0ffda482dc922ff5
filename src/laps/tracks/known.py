"""Ranges of a track, and which parts of one are known here: there, or known not to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.types import Location

if TYPE_CHECKING:
    from laps.tracks.cache import CachedTrack

LAST_OBJECT: Final = (1 << 62) - 1

Range = tuple[Location, Location]
"From and to, both included."


class Known:
    """What of a track is known: there, or known not to be."""

    def __init__(self, cached: CachedTrack) -> None:
        self._cached = cached

    def gaps(self, start: Location, last: Location, now: float) -> list[Range]:
        """The parts of a range, both ends included, that nobody here knows about."""
        gaps: list[Range] = []
        at = start
        groups = sorted(g for g in self._cached.groups if start.group <= g <= last.group)
        for group_id in groups:
            if at.group < group_id:
                self._between(at, group_id, gaps)
                at = Location(group_id, 0)
            # All of the last group is as little as the group has.
            partly = group_id == last.group and last.object != LAST_OBJECT
            upto = last.object if partly else None
            self._inside(at, upto, gaps, now)
            at = Location(group_id + 1, 0)
        if at <= last:
            self._between(at, last.group, gaps)
            if not self._asked(last.group) and last.group not in self._cached.groups:
                gaps.append((max(at, Location(last.group, 0)), last))
        return _joined(gaps)

    def _between(self, at: Location, group_id: int, gaps: list[Range]) -> None:
        """Whole groups that are not here."""
        first = at.group
        for known_from, known_to in sorted(self._cached.known):
            if known_from <= first <= known_to:
                first = known_to + 1
        if first < group_id:
            begin = max(at, Location(first, 0))
            gaps.append((begin, Location(group_id - 1, LAST_OBJECT)))

    def _inside(self, at: Location, upto: int | None, gaps: list[Range], now: float) -> None:
        group = self._cached.groups[at.group]
        if group.whole or self._asked(at.group):
            return
        runs = group.ids(now, self._cached.oldest(now))
        end = group.end()
        if upto is None and end is None and self._is_over(at.group):
            end = runs[-1][1] if runs else None
        stops = [place for place in (upto, None if end is None else end - 1) if place is not None]
        stop = min(stops, default=None)
        expected = at.object
        for first, behind_last in runs:
            if behind_last <= expected:
                continue
            if stop is not None and first > stop:
                break
            if first > expected:
                gaps.append((Location(at.group, expected), Location(at.group, first - 1)))
            expected = behind_last
        if stop is None:
            gaps.append((Location(at.group, expected), Location(at.group, LAST_OBJECT)))
        elif expected <= stop:
            gaps.append((Location(at.group, expected), Location(at.group, stop)))

    def _is_over(self, group_id: int) -> bool:
        """Whether the group was followed to its end: its streams ended well, and others began."""
        group = self._cached.groups[group_id]
        streams = group.streams
        later = any(other > group_id for other in self._cached.groups)
        return bool(streams) and later and all(s.fin and not s.base for s in streams)

    def _asked(self, group_id: int) -> bool:
        return any(first <= group_id <= last for first, last in self._cached.known)


def without(gaps: list[Range], known: Range) -> list[Range]:
    """What is left of gaps where a range is known."""
    first, last = known
    left: list[Range] = []
    for gap in gaps:
        if gap[1] < first or gap[0] > last:
            left.append(gap)
            continue
        if gap[0] < first:
            left.append((gap[0], _before(first)))
        if gap[1] > last:
            left.append((after(last), gap[1]))
    return left


def _before(place: Location) -> Location:
    if place.object:
        return Location(place.group, place.object - 1)
    return Location(place.group - 1, LAST_OBJECT)


def after(place: Location) -> Location:
    """The next place."""
    if place.object == LAST_OBJECT:
        return Location(place.group + 1, 0)
    return Location(place.group, place.object + 1)


def beyond(end: Location) -> Location:
    """The end of a range, so that it compares: the whole of a group is all it can have."""
    return end if end.object else Location(end.group, LAST_OBJECT + 1)


def last_of(end: Location) -> Location:
    """The last place before the end of a range."""
    return Location(end.group, (end.object or LAST_OBJECT + 1) - 1)


def behind(last: Location) -> Location:
    """The end of a range, from its last place."""
    return Location(last.group, 0 if last.object == LAST_OBJECT else last.object + 1)


def _joined(gaps: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, last in gaps:
        if (
            joined
            and joined[-1][1].object == LAST_OBJECT
            and first == Location(joined[-1][1].group + 1, 0)
        ):
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
