"""Which parts of a track are known here: there, or known not to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.ranges import LAST_OBJECT
from laps.types import Location

if TYPE_CHECKING:
    from laps.ranges import Range
    from laps.tracks.cache import CachedTrack


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
        for known_from, known_to in sorted(self._cached.known):
            if known_to < at.group or known_from >= group_id:
                continue
            if at.group < known_from:
                gaps.append((at, Location(known_from - 1, LAST_OBJECT)))
            at = Location(known_to + 1, 0)
        if at.group < group_id:
            gaps.append((at, Location(group_id - 1, LAST_OBJECT)))

    def _inside(self, at: Location, upto: int | None, gaps: list[Range], now: float) -> None:
        group = self._cached.groups[at.group]
        if group.whole or self._asked(at.group):
            return
        runs = group.ids(now, self._cached.oldest(now, at.group))
        end = group.end()
        if upto is None and end is None and self._is_over(at.group):
            end = runs[-1][1] if runs else None
        stops = [place for place in (upto, None if end is None else end - 1) if place is not None]
        stop = min(stops, default=None)
        expected = at.object
        for first, after_last in runs:
            if after_last <= expected:
                continue
            if stop is not None and first > stop:
                break
            if first > expected:
                gaps.append((Location(at.group, expected), Location(at.group, first - 1)))
            expected = after_last
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
