"""What a relay remembers of a track beyond what it keeps: where something was, and is no more.

An object that is not in the cache was let go, or never was. Whoever reads on after it has to be
told which. A publisher can be asked, but one that was started anew knows nothing of earlier times.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from laps.ranges import LAST_OBJECT, after, without
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from laps.ranges import Range

# Groups that follow each other are one span, so that this many are few to a track whose numbers
# jump. Past it, those that are nearest to each other are joined, with what lies between them.
MAX_SPANS: Final = 64


class Elsewhere:
    """How often other relays have begun to offer whole namespaces: what they publish may pass by.

    A history notes the number, so that no such offer looks at all of them.
    """

    __slots__ = ("offers",)

    def __init__(self) -> None:
        self.offers = 0


class History:
    """What was let go of a track, and how far back anything is known."""

    __slots__ = ("_elsewhere", "_firsts", "_lasts", "_whole_at", "begin")

    def __init__(self, elsewhere: Elsewhere | None = None) -> None:
        self.begin: int | None = None
        "The first group that was ever here."
        self._elsewhere = elsewhere or Elsewhere()
        self._whole_at: int | None = None
        "The number of such offers when all of it came here; None where that is not so."
        self._firsts: list[int] = []
        self._lasts: list[Location] = []

    @property
    def partial(self) -> bool:
        """Whether some of it may have been published and not come here."""
        return self._whole_at != self._elsewhere.offers

    @partial.setter
    def partial(self, partial: bool) -> None:
        self._whole_at = None if partial else self._elsewhere.offers

    def published_here(self, *, all_of_it: bool) -> None:
        """A publisher of this relay's begins to send the track, all of it or what is wanted."""
        if not all_of_it:
            self.partial = True
        elif self.begin is None:
            self.partial = False

    def saw(self, group: int) -> None:
        """A group is here."""
        if self.begin is None or group < self.begin:
            self.begin = group

    def dropped(self, group: int, last_object: int | None) -> None:
        """Objects of a group were let go, up to this one; None if it is not known which."""
        last = Location(group, LAST_OBJECT if last_object is None else last_object)
        firsts, lasts = self._firsts, self._lasts
        at = bisect_left(lasts, Location(group, 0))
        if at < len(firsts) and firsts[at] <= group:  # something of it was before
            lasts[at] = max(lasts[at], last)
        else:
            firsts.insert(at, group)
            lasts.insert(at, last)
        if at and lasts[at - 1].group >= group - 1:
            self._join(at - 1)
            at -= 1
        if at + 1 < len(firsts) and firsts[at + 1] <= lasts[at].group + 1:
            self._join(at)
        if len(firsts) > MAX_SPANS:
            gaps = [first - last.group for first, last in zip(firsts[1:], lasts, strict=False)]
            self._join(gaps.index(min(gaps)))

    def _join(self, at: int) -> None:
        """With the span after it."""
        self._firsts.pop(at + 1)
        self._lasts[at] = max(self._lasts[at], self._lasts.pop(at + 1))

    def has_let_go(self, group: int) -> bool:
        """Whether something of a group was let go."""
        at = bisect_left(self._lasts, Location(group, 0))
        return at < len(self._firsts) and self._firsts[at] <= group

    @property
    def last_let_go(self) -> int | None:
        """The largest group that something was let go of."""
        return self._lasts[-1].group if self._lasts else None

    def lost(self, gaps: list[Range], brought: Iterable[int] = ()) -> list[Range]:
        """The parts of gaps in which something was, leaving out groups that were brought again."""
        for group in brought if self._firsts else ():
            gaps = without(gaps, (Location(group, 0), Location(group, LAST_OBJECT)))
        found: list[Range] = []
        for start, last in gaps:
            for first, end in zip(self._firsts, self._lasts, strict=True):
                low, high = max(start, Location(first, 0)), min(last, end)
                if low <= high:
                    found.append((low, high))
        return found

    def unknown(self, gaps: list[Range], groups: Collection[int]) -> list[Range]:
        """The parts of gaps of which nothing is known, where nobody can be asked.

        A group that was published here and has not been let go is here, one of `groups`; what is
        missing in one of these was lost on its way, or grew too old.
        """
        if self.partial or self.begin is None:
            return gaps
        found: list[Range] = []
        begin = Location(self.begin, 0)
        for start, last in gaps:
            at = start
            if at < begin:
                at = min(begin, after(last))
                found.append((start, min(last, Location(self.begin - 1, LAST_OBJECT))))
            if at.group in groups and at <= last:
                within = min(last, Location(at.group, LAST_OBJECT))
                found.append((at, within))
                at = after(within)
            found += self.lost([(at, last)])
        return found

    def clear(self) -> None:
        """The publisher has begun anew: its numbers mean something else."""
        self.begin = None
        self._firsts.clear()
        self._lasts.clear()
