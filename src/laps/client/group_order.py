"""The objects of one group in their order, where a stream has overtaken the one before it.

    stream A    0 1 2 3 . .     at the relay that the publisher has left, by a long way
    stream B          4 5 6     at the relay that it has moved to, by a short one

The objects of a stream pass as they arrive. A stream that begins after a gap waits until the gap is
closed. It waits only while another stream of the group is open, or may go on, and so may bring what
is missing. Where the groups before began with number 0, the first stream of a group waits for that
number too.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from laps.client.gaps import PRIOR_OBJECT_ID_GAP
from laps.wire.moqt.track_checking import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.client.values import Object

# After one that was waited for and did not come, this many groups in sequence have to be as
# expected before the next is waited for: on a link that is too slow relays drop one after another.
TRUSTED_AGAIN: Final = 30

_ID: Final = attrgetter("id")


class GroupOrder:
    """The group in hand: what was given of it, and the streams of it that wait."""

    __slots__ = (
        "_closed",
        "_count_before",
        "_from_0",
        "_given",
        "_has_first",
        "_next_id",
        "_trusted_from",
        "_waiting",
        "since",
    )

    def __init__(self) -> None:
        self.since: float | None = None
        "Since when something waits."
        self._next_id: int | None = None
        "The number after the largest that was given; None: the group may begin with any."
        self._count_before = 0
        "How many numbers the group before had, if that is known."
        self._has_first = False
        "Whether number 0 was given."
        self._given: set[int | None] = set()
        "The subgroups of which something was given."
        self._waiting: dict[int | None, list[Object]] = {}
        "The objects that wait, by subgroup."
        self._closed: set[int | None] = set()
        "The subgroups that had a stream which is closed."
        self._from_0 = 0
        "How many groups in sequence began with number 0,"
        self._trusted_from = 1
        "and after how many the first object of the next is waited for."

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, closed: set[int | None], *, follows: bool) -> None:
        """Another group is in hand, some of whose streams are closed.

        `follows`: its number is the next one.
        """
        self._count_before = (self._next_id or 0) if follows else 0
        self._from_0 = self._from_0 + 1 if follows and self._has_first else 0
        self._next_id = 0 if self._from_0 >= self._trusted_from else None
        self._has_first = False
        self._given.clear()
        self._closed = closed

    def add(self, item: Object, streams: int) -> bool:
        """Take an object; False if it may be given at once.

        `streams` of the group are open or may go on.
        """
        if self._waiting and item.subgroup in self._waiting:
            if item.id != self._next_id:
                insort(self._waiting[item.subgroup], item, key=_ID)
                return True
            # Another stream of the subgroup brings what this one waits for.
        elif item.subgroup not in self._given:
            others = self._others(streams) - (item.subgroup not in self._closed)
            if self._is_early(item, others):
                self._waiting[item.subgroup] = [item]
                return True
        self._note(item)
        return False

    @property
    def is_short(self) -> bool:
        """Whether less was given of the group than of the one before."""
        return (self._next_id or 0) < self._count_before

    def closed(self, subgroup: int | None) -> None:
        """A stream of the group is closed."""
        self._closed.add(subgroup)

    def _others(self, streams: int) -> int:
        """How many of the streams do not wait here."""
        return streams - sum(it not in self._closed for it in self._waiting)

    def _is_early(self, item: Object, others: int) -> bool:
        if self._next_id is None or item.id <= self._next_id or item.subgroup is None:
            return False
        if any(kind == PRIOR_OBJECT_ID_GAP for kind, _ in item.extensions):
            return False
        return others > 0 or self._next_id == 0

    def _note(self, item: Object) -> None:
        self._given.add(item.subgroup)
        if item.status in ENDS:
            return  # it has the number after the last
        if self._next_id is None or item.id >= self._next_id:
            self._next_id = item.id + 1
        if item.id == 0:
            self._has_first = True

    def release(self, streams: int, now: float, patience_s: float) -> Iterator[Object]:
        """What need not wait any more."""
        while self._waiting:
            subgroup = min(self._waiting, key=self._first_id)
            if self._is_early(self._waiting[subgroup][0], self._others(streams)):
                if self.since is None:
                    self.since = now
                if now < self.since + patience_s:
                    return
                if self._next_id == 0:
                    self._from_0, self._trusted_from = 0, TRUSTED_AGAIN
            for item in self._waiting.pop(subgroup):
                self._note(item)
                yield item
        self.since = None

    def _first_id(self, subgroup: int | None) -> int:
        return self._waiting[subgroup][0].id

    def flush(self) -> Iterator[Object]:
        """All that waits, in order: nothing more will come."""
        waiting = [item for items in self._waiting.values() for item in items]
        self._waiting.clear()
        self.since = None
        return iter(sorted(waiting, key=_ID))

    def hurry(self, since: float) -> None:
        """Wait as if since another time."""
        if self.since is not None:
            self.since = since

    def was_late(self) -> None:
        """Something came after its group: what is missing is worth waiting for."""
        self._trusted_from = 1
