"""What a reader of a track was not given, as far as the numbers of groups and objects tell.

A group is looked at when its turn is over: a later one has come, and none of its streams is open.
Then what its numbers leave out is missing, and so is all that follows on a stream that was given
up, to the end of the group. Numbers of groups that were left out are missing, too. What comes late
is taken off again.

Not every number that is left out is lost. A publisher can say that numbers are not in use; and
where a FETCH has answered for a range, what it did not bring does not exist, unless it says that it
does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.ranges import LAST_OBJECT, RangeSet, after
from laps.types import Location
from laps.wire.buffer import VARINT_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from laps.client.seen import Seen
    from laps.wire.moqt.messages import KeyValue

# Extension headers by which a publisher says that it has left numbers out: groups before the
# group of an object, and objects before it in its group.
PRIOR_GROUP_ID_GAP: Final = 0x3C
PRIOR_OBJECT_ID_GAP: Final = 0x3E

# Groups whose turn is over and that have a stream open are looked at later; so many of them.
PENDING_GROUPS: Final = 64

# So many ranges are told apart. A reader that misses more has lost count of them anyway.
MOST_GAPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Gap:
    """Objects that a reader was not given."""

    start: Location
    "The first that is missing."
    end: Location | None
    "The first that is not, or where it would be; None: all that came after."
    objects: int | None
    "How many they are; None where nobody knows."

    def __str__(self) -> str:
        first = f"group {self.start.group}, object {self.start.object}"
        if self.objects is not None:
            return f"{self.objects} {'object' if self.objects == 1 else 'objects'} from {first}"
        if self.end is None:
            return f"all from {first}"
        return f"from {first} to group {self.end.group}, object {self.end.object}"


class Gaps:
    """What is missing of the objects that a reader has been given."""

    def __init__(self, seen: Seen) -> None:
        self.group = -1
        "Of the last object; nothing has to be noted as long as it is the same."
        self._seen = seen
        self._lost: RangeSet[Location] = RangeSet()
        self._absent: RangeSet[Location] = RangeSet()
        "What is known not to be there."
        self._unknown: RangeSet[Location] = RangeSet()
        "Of what was fetched, what nobody could tell."
        self._pending: dict[int, None] = {}
        "Groups that were not looked at since something of them came."
        self._top = -1
        "The largest group that something came of."
        self._floor: Location | None = None
        "What comes before it is not missed."
        self._broken: dict[tuple[int, int | None], None] = {}
        "Streams that were given up, by group and subgroup."
        self._complete: dict[tuple[int, int | None], None] = {}
        "Those that have ended, the last ones: one that was sent again may be given up afterwards."
        self._ends: dict[int, int] = {}
        "Groups whose end is known: the id after their last object."
        self._tail = False
        "The track has ended, and streams that belong to it have not come."

    def start(self, at: Location | None) -> None:
        """Begin anew: nothing before a location is missed; None: before the first object."""
        self.__init__(self._seen)  # type: ignore[misc]
        self._floor = at

    # -- what comes --------------------------------------------------------------------------------

    def moved(self, place: Location, open_groups: Collection[int]) -> None:
        """An object of another group than the last one is given."""
        group = self.group = place.group
        if self._floor is None:
            self._floor = place
        if group > self._top:
            self._settle(open_groups, group)
            if 0 <= self._top < group - 1:
                self._leave_out(self._top + 1, group, open_groups)
            self._top = group
        elif group not in self._pending:
            self._lost.remove_range(Location(group, 0), Location(group + 1, 0))
        self._pending[group] = None

    def _leave_out(self, first: int, end: int, open_groups: Collection[int]) -> None:
        """Nothing came of these groups, up to another."""
        self._lose(Location(first, 0), Location(end, 0))
        for group in open_groups:
            if first <= group < end:
                self._lost.remove_range(Location(group, 0), Location(group + 1, 0))
                self._pending[group] = None

    def explained(self, place: Location, extensions: Sequence[KeyValue]) -> None:
        """An object may say that numbers before it are not in use."""
        for kind, value in extensions:
            if not isinstance(value, int):
                continue
            if kind == PRIOR_GROUP_ID_GAP:
                first = Location(max(0, place.group - value), 0)
                self._exclude(first, Location(place.group, 0))
            elif kind == PRIOR_OBJECT_ID_GAP:
                first = Location(place.group, max(0, place.object - value))
                self._exclude(first, place)

    def does_not_exist(self, place: Location) -> None:
        """It is said that there is no such object."""
        self._exclude(place, after(place))

    def ended(self, place: Location) -> None:
        """A group ends before a location."""
        self._ends[place.group] = place.object
        if place.group not in self._pending:
            self.moved(place, ())
        while len(self._ends) > 2 * PENDING_GROUPS:
            del self._ends[next(iter(self._ends))]

    def closed(self, group: int, subgroup: int | None, *, complete: bool) -> None:
        """A stream has ended, or was given up."""
        if complete:
            self._broken.pop((group, subgroup), None)
            self._complete[group, subgroup] = None
            if len(self._complete) > MOST_GAPS:
                del self._complete[next(iter(self._complete))]
        elif (group, subgroup) not in self._complete:
            self._broken[group, subgroup] = None
            while len(self._broken) > 2 * PENDING_GROUPS:
                del self._broken[next(iter(self._broken))]
            if group <= self._top:
                self._pending[group] = None

    def fetch(self, first: Location, last: Location) -> None:
        """All from a location to another is fetched: what does not come is not there."""
        self._exclude(first, after(last))

    def fetch_ended(self, end: Location) -> None:
        """The relay has answered for no more than what comes before a location."""
        self._absent.remove_range(end, Location(VARINT_MAX + 1, 0))

    def lost(self, first: Location, last: Location) -> None:
        """Nobody knows any more what lies between these."""
        self._absent.remove_range(first, after(last))
        self._unknown.add_range(first, after(last))
        _shorten(self._unknown)
        self._lose(first, after(last))

    def cut_off(self) -> None:
        """The track has ended, and streams that belong to it have not come."""
        self._tail = True

    def _lose(self, first: Location, end: Location) -> None:
        self._lost.add_range(first, end)
        _shorten(self._lost)
        for low, high in self._absent:
            self._lost.remove_range(low, high)

    def _exclude(self, first: Location, end: Location) -> None:
        if first < end:
            self._absent.add_range(first, end)
            self._unknown.remove_range(first, end)
            self._lost.remove_range(first, end)
            _shorten(self._absent)

    # -- what is missing ---------------------------------------------------------------------------

    def _settle(self, open_groups: Collection[int], below: int) -> None:
        """Look at the groups whose turn is over."""
        for group in [g for g in self._pending if g < below]:
            if group not in open_groups or len(self._pending) > PENDING_GROUPS:
                del self._pending[group]
                self._look_at(group)

    def _look_at(self, group: int) -> None:
        ids = self._seen.ids(group)
        if ids is None:
            return
        begin, following = Location(group, 0), Location(group + 1, 0)
        self._lost.remove_range(begin, following)
        for low, high in self._unknown:
            self._lost.add_range(max(low, begin), min(high, following))
        came = max((end for _, end in ids), default=0)
        end = self._ends.get(group, came)
        for first, upto in ids.gaps(0, max(came, end)):
            self._lose(Location(group, first), Location(group, upto))
        broken = any(key[0] == group for key in self._broken)
        if broken and group not in self._ends:
            self._lose(Location(group, came), following)
        for first, upto in ids:
            self._lost.remove_range(Location(group, first), Location(group, upto))

    def so_far(self, open_groups: Collection[int], *, ended: bool = False) -> list[Gap]:
        """What is missing; with `ended` nothing more comes."""
        self._settle(() if ended else open_groups, self._top + ended)
        top = self._top
        if any(key[0] == top for key in self._broken) and top not in open_groups:
            self._look_at(top)
        found: list[Gap] = []
        if (floor := self._floor) is not None:
            lost = [(max(start, floor), end) for start, end in self._lost if end > floor]
            found = [_gap(start, end) for start, end in lost]
        if self._tail:
            largest = self._seen.largest
            found.append(Gap(Location(0, 0) if largest is None else after(largest), None, None))
        return found[-MOST_GAPS:]

    def __bool__(self) -> bool:
        """Whether anything is missing of the groups whose turn is over."""
        floor = self._floor
        return self._tail or (floor is not None and any(end > floor for _, end in self._lost))


def _shorten(ranges: RangeSet[Location]) -> None:
    """Forget the first of too many ranges."""
    if len(ranges) > MOST_GAPS:
        ranges.remove_range(*next(iter(ranges)))


def _gap(start: Location, end: Location) -> Gap:
    if start.group == end.group and end.object <= LAST_OBJECT:
        return Gap(start, end, end.object - start.object)
    return Gap(start, end, None)
