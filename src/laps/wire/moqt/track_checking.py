"""Whether what a publisher sends of a track contradicts what it has sent before.

The drafts call such a track malformed. One publisher's word is compared with its own alone, from
the time that it was asked, or began to publish: another publisher may have been started anew under
the same name, and count again from the beginning.

What is looked for costs the same for every stream, and nothing for an object: an object after the
end of its group or of the track, an object in a gap that was said to be one, extensions that
contradict others, an object of a subgroup that is sent again and is another. Not looked for is the
same object in two subgroups, for which every id would have to be remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.errors import InvalidEncoding
from laps.ranges import RangeSet
from laps.wire.buffer import VARINT_MAX, Cursor
from laps.wire.moqt.codes import MalformedTrack, MoqtViolation
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.keyvalues import decode_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.wire.moqt.data import DatagramObject
    from laps.wire.moqt.draft import Dialect
    from laps.wire.moqt.messages import KeyValue
    from laps.wire.moqt.objects import Object

IMMUTABLE: Final = 0x0B
PRIOR_GROUP_GAP: Final = 0x3C
PRIOR_OBJECT_GAP: Final = 0x3E
TELLING: Final = frozenset((IMMUTABLE, PRIOR_GROUP_GAP, PRIOR_OBJECT_GAP))
"The extensions that say something of other objects, or hold others that do."

ENDS: Final = frozenset((ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK))
"Statuses that say of an object, and of all after it in its group, that there is none."

# What came before the last of these groups is forgotten, and so are the first of too many gaps.
MOST_GROUPS: Final = 100
MOST_GAPS: Final = 1000
# Of more subgroups than these in a group nobody knows whether they are sent again.
MOST_SUBGROUPS: Final = 10_000


class SentBefore(Protocol):
    """What is kept of what the publisher has sent."""

    def objects(self, group: int, subgroup: int) -> Iterator[Object]:
        """The objects of a subgroup, in ascending order."""

    def has_any(self, group: int, first: int, end: int) -> bool:
        """Whether any object came on a stream of a group, of those from one up to another."""

    def datagram(self, group: int, object_id: int) -> bytes | None:
        """The payload of an object that came in a datagram."""


class Group:
    """What a publisher has said of a group."""

    __slots__ = ("_last", "_missing", "_subgroups", "_why", "group_gap", "id", "largest", "sure")

    def __init__(self, group_id: int) -> None:
        self.id = group_id
        self.largest = -1
        "The largest object that came."
        self.sure = VARINT_MAX
        "No object up to this one need be checked."
        self._last = VARINT_MAX
        "No object may be larger than this,"
        self._why = ""
        "because of this."
        self._missing: RangeSet[int] = RangeSet()
        "Objects that do not exist."
        self.group_gap: int | None = None
        "How many groups before it do not exist, if it is said."
        self._subgroups: set[int] = set()
        "Those that a stream has begun of."

    def begin(self, subgroup: int) -> bool:
        """A stream of a subgroup begins: whether it is not the first."""
        if subgroup in self._subgroups:
            return True
        if len(self._subgroups) < MOST_SUBGROUPS:
            self._subgroups.add(subgroup)
        return False

    def end(self, last: int, why: str) -> None:
        """Nothing comes after an object."""
        if last < self._last:
            self._last, self._why = last, why
            self.sure = min(self.sure, last)

    def add_gap(self, first: int, end: int) -> None:
        """Objects from one up to another do not exist."""
        _add(self._missing, first, end)
        self.sure = min(self.sure, first - 1)

    def take(self, object_id: int) -> None:
        """An object has come; MalformedTrack if it cannot be."""
        if object_id > self._last:
            raise MalformedTrack(f"object {object_id} of group {self.id} {self._why}")
        if object_id in self._missing:
            raise MalformedTrack(f"object {object_id} of group {self.id} was said not to exist")
        self.largest = max(self.largest, object_id)


class TrackChecker:
    """What one publisher has said of a track, in one go; MalformedTrack where that cannot be."""

    def __init__(self, sent: SentBefore) -> None:
        self.says_something = False
        "Whether ends or gaps are known that a datagram could contradict."
        self._sent = sent
        self._groups: dict[int, Group] = {}
        self._end: int | None = None
        "The group that the track ends in."
        self._gaps: RangeSet[int] = RangeSet()
        "Groups that do not exist."

    def datagram(self, item: DatagramObject, pairs: list[KeyValue], dialect: Dialect) -> None:
        """An object came in a datagram."""
        group = self.group(item.group)
        if not item.status:
            group.take(item.object_id)
        elif item.status in ENDS:
            self.ended_by(item.status, item.group, item.object_id)
        if item.end_of_group:
            self.ended(item.group, item.object_id)
        if any(type_ in TELLING for type_, _ in pairs):
            self.check_extensions(item.group, item.object_id, -1, pairs, dialect)

    def repeated(self, item: DatagramObject) -> None:
        """An object came in a datagram that has come before."""
        known = self._sent.datagram(item.group, item.object_id)
        if known is not None and known != bytes(item.payload):
            raise MalformedTrack(f"object {item.object_id} is sent again, and is another")

    def earlier(self, group: int, subgroup: int) -> Iterator[Object]:
        """The objects of a subgroup that came before."""
        return self._sent.objects(group, subgroup)

    def group(self, group_id: int) -> Group:
        """What is said of a group, of which something comes."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
            if self._end is not None and group_id > self._end:
                group.end(-1, "comes after the end of the track")
            elif group_id in self._gaps:
                group.end(-1, "is in a group that was said not to exist")
            if len(self._groups) > MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
        return group

    def ended(self, group_id: int, last: int) -> None:
        """A group ends with an object; -1 if it has none."""
        self.says_something = True
        group = self.group(group_id)
        if last < group.largest:
            problem = f"group {group_id} ends after {last}, and object {group.largest} came"
            raise MalformedTrack(problem)
        group.end(last, "comes after the end of its group")

    def ended_by(self, status: int, group_id: int, object_id: int) -> None:
        """A group ends before an object, and the track perhaps too."""
        self.ended(group_id, object_id - 1)
        if status != ObjectStatus.END_OF_TRACK:
            return
        self._end = group_id
        for other_id, other in self._groups.items():
            if other_id > group_id:
                if other.largest >= 0:
                    problem = f"the track ends in group {group_id}, and group {other_id} came"
                    raise MalformedTrack(problem)
                other.end(-1, "comes after the end of the track")

    # -- extensions --------------------------------------------------------------------------------

    def check_extensions(
        self, group_id: int, object_id: int, before: int, pairs: list[KeyValue], dialect: Dialect
    ) -> None:
        """The extensions of an object; `before` is the one before it on its stream, or -1."""
        gaps: dict[int, int] = {}
        for type_, value in _flat(pairs, dialect):
            if type_ in (PRIOR_GROUP_GAP, PRIOR_OBJECT_GAP) and isinstance(value, int):
                if type_ in gaps:
                    raise MalformedTrack(f"object {object_id} has extension {type_:#x} twice")
                gaps[type_] = value
        if PRIOR_GROUP_GAP in gaps:
            self._group_gap(group_id, gaps[PRIOR_GROUP_GAP])
        if gaps.get(PRIOR_OBJECT_GAP):
            self._object_gap(group_id, object_id, before, gaps[PRIOR_OBJECT_GAP])

    def _group_gap(self, group_id: int, gap: int) -> None:
        group = self.group(group_id)
        if gap == group.group_gap:
            return
        if group.group_gap is not None:
            problem = f"group {group_id} tells of gaps of {group.group_gap} and {gap} groups"
            raise MalformedTrack(problem)
        first = group_id - gap
        if first < 0:
            raise MalformedTrack(f"group {group_id} tells of a gap of {gap} groups before it")
        group.group_gap = gap
        for other_id, other in self._groups.items():
            if first <= other_id < group_id:
                if other.largest >= 0:
                    raise MalformedTrack(f"group {other_id} came, and is said not to exist")
                other.end(-1, "is in a group that was said not to exist")
        if gap:
            self.says_something = True
            _add(self._gaps, first, group_id)

    def _object_gap(self, group_id: int, object_id: int, before: int, gap: int) -> None:
        first = object_id - gap
        if first < 0:
            raise MalformedTrack(f"object {object_id} tells of a gap of {gap} objects before it")
        if before >= first or self._sent.has_any(group_id, first, object_id):
            problem = (
                f"objects {first} to {object_id - 1} of group {group_id} are said not to exist"
            )
            raise MalformedTrack(f"{problem}, and one of them came")
        self.says_something = True
        self.group(group_id).add_gap(first, object_id)


def _add(ranges: RangeSet[int], first: int, end: int) -> None:
    ranges.add_range(first, end)
    if len(ranges) > MOST_GAPS:
        oldest = next(iter(ranges))
        ranges.remove_range(*oldest)


def _flat(pairs: list[KeyValue], dialect: Dialect) -> list[KeyValue]:
    """Extensions, with those that Immutable Extensions hold beside the others."""
    found: list[KeyValue] = []
    for type_, value in pairs:
        if type_ != IMMUTABLE or not isinstance(value, bytes):
            found.append((type_, value))
            continue
        try:
            cursor = Cursor(memoryview(value), whole=True)
            inner = decode_pairs(cursor, delta=dialect.extension_deltas)
        except (InvalidEncoding, MoqtViolation) as error:
            raise MalformedTrack(f"Immutable Extensions: {error}") from None
        if any(held == IMMUTABLE for held, _ in inner):
            raise MalformedTrack("Immutable Extensions hold Immutable Extensions")
        found += inner
    return found
