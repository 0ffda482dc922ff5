"""Objects that come in datagrams, in the order of the media: what is missing, and for how long.

Datagrams overtake each other and get lost. What is ahead of its turn waits, an object no longer
than `patience_s` after it came: then what lies before it is given up. Three things tell without
waiting that nothing is missing: START_POINT, the number of objects that a group had, which its
successor names, and FIN. Where a successor names none, as of a MoQT publisher's, a moment has to
do. What comes when it was given up passes at once, late.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from laps.ranges import after
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.client.values import Object

# START_POINT travels on a stream, and may be overtaken by the first datagrams, not by much. Where
# relays fetch what came before, they say it with that, and what is new may be a good deal sooner.
BEGIN_S: Final = 0.1

# A group that does not say how long the one before was may have overtaken the end of it.
GRACE_S: Final = 0.05

# So many objects that were given up are remembered, to know one that comes all the same.
REMEMBERED: Final = 4096
# More of them in a row are an outage, or a number that is not true.
REMEMBERED_AT_ONCE: Final = 256

# So many groups are remembered by how many objects they had.
GROUPS: Final = 1024


class Missing:
    """The objects that did not come, as far as it is known that they were sent."""

    def __init__(self) -> None:
        self.count = 0
        self._places: OrderedDict[Location, None] = OrderedDict()

    def add(self, group: int, start: int, end: int) -> None:
        """Objects of a group, from `start` to one before `end`."""
        if end <= start:
            return
        self.count += end - start
        if end - start <= REMEMBERED_AT_ONCE:
            self._places.update((Location(group, number), None) for number in range(start, end))
        while len(self._places) > REMEMBERED:
            self._places.popitem(last=False)

    @property
    def first(self) -> Location | None:
        """The first of them that is remembered."""
        return min(self._places, default=None)

    def came(self, place: Location) -> None:
        """An object is there."""
        if self._places and place in self._places:
            del self._places[place]
            self.count -= 1


class DatagramOrder:
    """Puts the objects of one feed in order."""

    def __init__(
        self,
        floor: Location | None,
        missing: Missing,
        *,
        patience_s: float,
        catching_up: bool = False,
    ) -> None:
        """What lies ahead of `floor` has been given, or given up: it is not waited for."""
        self.start: Location | None = None
        "Where the feed begins; None until that is known."
        self.position: Location | None = None
        "All that lies before it has passed, or is given up."
        self.final: Location | None = None
        self._floor = floor
        self._missing = missing
        self._patience = patience_s
        self._begin_s = patience_s if catching_up else min(patience_s, BEGIN_S)
        "How long START_POINT is waited for."
        self._held: dict[Location, Object | None] = {}
        self._times: dict[Location, float] = {}
        "And when each came."
        self._order: list[Location] = []
        self._came: deque[tuple[float, Location]] = deque()
        "Those that wait, as they came."
        self._sizes: dict[int, int] = {}
        self._jump: Location | None = None
        self._hurry: Location | None = None
        "Up to here nothing is waited for any longer."
        self._ended_at = 0.0

    # -- what is known -----------------------------------------------------------------------------

    def start_at(self, place: Location) -> None:
        """START_POINT."""
        if self.position is None:
            self._begin(place)
        elif place > self.position:
            self._jump = place

    def _begin(self, place: Location) -> None:
        self.start = place
        self.position = place if self._floor is None else max(place, self._floor)

    def sized(self, group: int, objects: int) -> None:
        """A group had so many objects."""
        at = -1 if self.position is None else self.position.group
        if group >= at and objects and len(self._sizes) < GROUPS:
            self._sizes[group] = objects

    def finish(self, final: Location, now: float) -> None:
        """FIN: nothing follows the objects before a location."""
        if self.final is None:
            self.final, self._ended_at = final, now

    # -- objects -----------------------------------------------------------------------------------

    def add(self, place: Location, item: Object | None, now: float) -> bool:
        """An object; False if it may pass at once. Without the object its place alone counts."""
        if self.position is None and self._floor is not None and place <= self._floor:
            self._begin(place)  # whatever lies before it was given
        if place in self._held or (self.position is not None and place < self.position):
            return False
        self._held[place] = item
        self._times[place] = now
        heappush(self._order, place)
        self._came.append((now, place))
        return True

    def advance(self, now: float) -> Iterator[Object]:
        """The objects whose turn has come."""
        self._give_up(now)
        while self._order and (self.position is not None or self._may_begin(now)):
            place, at = self._order[0], self.position
            if at is None or (place != at and not self._may_follow(at, place, now)):
                return
            heappop(self._order)
            del self._times[place]
            self.position = after(place)
            item = self._held.pop(place)
            if item is not None:
                yield item

    def _may_begin(self, now: float) -> bool:
        first = self._order[0]
        waited = self._hurry is not None or now >= self._came[0][0] + self._begin_s
        if not waited and first != Location(0, 0):
            return False
        self._begin(first)
        return True

    def _may_follow(self, at: Location, place: Location, now: float) -> bool:
        """Whether nothing is waited for between what passed last and an object."""
        if self._jump is not None and at < self._jump <= place:
            at = self._jump
            self._jump = None
        size = self._sizes.get(at.group)
        if size is not None and at.object >= size:
            at = Location(at.group + 1, 0)
        if at >= place or (self._may_be_next(at, place) and now >= self._times[place] + GRACE_S):
            return True
        self._advance_to(at)
        if self._hurry is None or place > self._hurry:
            return False
        self._count(at, place)
        return True

    def _may_be_next(self, at: Location, place: Location) -> bool:
        """Whether a group begins, and nobody says that the one before had more objects."""
        begins = place == Location(at.group + 1, 0)
        return begins and at.object > 0 and at.group not in self._sizes

    def _advance_to(self, at: Location) -> None:
        if self.position is not None and at.group != self.position.group:
            self._sizes = {g: size for g, size in self._sizes.items() if g >= at.group}
        self.position = at

    def _count(self, at: Location, place: Location) -> None:
        """Note what is given up between two places: what is known to have been sent."""
        if place.group == at.group:
            self._missing.add(at.group, at.object, place.object)
            return
        for group, size in self._sizes.items():
            if at.group <= group < place.group:
                self._missing.add(group, at.object if group == at.group else 0, size)
        self._missing.add(place.group, 0, place.object)

    # -- time --------------------------------------------------------------------------------------

    def _give_up(self, now: float) -> None:
        """Wait no longer for what lies before an object that has waited long enough."""
        while self._came:
            came_at, place = self._came[0]
            if place in self._held:
                if now < came_at + self._patience:
                    break
                self._hurry = place if self._hurry is None else max(self._hurry, place)
            self._came.popleft()

    def force(self, now: float) -> Iterator[Object]:
        """Wait no longer for what is in the way now."""
        if self._order:
            self._hurry = self._order[0]
        return self.advance(now)

    @property
    def waiting(self) -> bool:
        """Whether objects wait for their turn."""
        return bool(self._order)

    @property
    def deadline(self) -> float | None:
        """When `advance`, or `is_complete`, is worth a call though nothing has come."""
        due = []
        if self._order and self._came:
            wait = self._begin_s if self.position is None else self._patience
            due.append(self._came[0][0] + wait)
            first = self._order[0]
            if self.position is not None and self._may_be_next(self.position, first):
                due.append(self._times[first] + GRACE_S)
        if self.final is not None:
            due.append(self._ended_at + self._patience)
        return min(due, default=None)

    # -- the end -----------------------------------------------------------------------------------

    def is_complete(self, now: float) -> bool:
        """Whether nothing more is waited for."""
        if self.final is None:
            return False
        at = self.position if self.position is not None else self._floor or Location(0, 0)
        return at >= self.final or now >= self._ended_at + self._patience

    def flush(self) -> Iterable[Object]:
        """All that is left, in order: nothing more will come."""
        if self._order:
            self._hurry = max(self._order)
        yield from self.advance(self._ended_at)
        if self.final is not None and self.position is not None and self.position < self.final:
            self._count(self.position, self.final)
            self.position = self.final
