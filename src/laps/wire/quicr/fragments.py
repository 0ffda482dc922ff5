"""Objects in fragments: cutting, checking their order, and putting them together again."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.quicr.codes import QuicrCode, QuicrViolation, violation
from laps.wire.quicr.messages import Fragment

if TYPE_CHECKING:
    from collections.abc import Iterator

# The largest object that is put together, unless somebody says otherwise.
MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024

# What each piece that is held costs beside its bytes: a view of a datagram, the datagram's header,
# and a place in two lists.
PIECE_BYTES: Final = 400

# So many objects that are whole are remembered, to know a fragment that comes again.
DONE: Final = 4096


def cut(
    group: int, object_id: int, payload: bytes | memoryview, size: int, offset: int = 0
) -> Iterator[Fragment]:
    """A whole object, or its end from `offset` on, in fragments; an empty one is one too."""
    view = memoryview(payload)
    for start in range(0, max(len(view), 1), size):
        part = view[start : start + size]
        last = start + size >= len(view)
        yield Fragment(group, object_id, offset + start, part, last)


def recut(fragment: Fragment, size: int) -> Iterator[Fragment]:
    """A fragment in fragments that are no larger."""
    if len(fragment.data) <= size:
        yield fragment
        return
    for part in cut(fragment.group, fragment.object_id, fragment.data, size, fragment.offset):
        part.last = part.last and fragment.last
        yield part


class MediaOrder:
    """The order of fragments on a stream: three ways to follow the one before, and no other.

        the same object, where the one before ended without being the last
        the next object of the group, from its beginning
        the first object of the next group, from its beginning

    START_POINT says where to begin, and where to go on behind what will not come: an object that
    has begun, too, is not completed then.
    """

    __slots__ = ("_begun", "_offset", "next")

    def __init__(self) -> None:
        self.next = Location(0, 0)
        "The object that comes next, or goes on."
        self._begun = False
        "Something has been said of where we are: the first object of the next group may follow."
        self._offset = 0

    @property
    def inside(self) -> bool:
        """Whether an object has begun and not ended."""
        return self._offset > 0

    def start(self, place: Location) -> None:
        """START_POINT."""
        if place < self.next or (self.inside and place == self.next):
            problem = f"START_POINT {place.group}, {place.object} lies behind what came"
            raise violation(problem)
        self.next, self._begun, self._offset = place, False, 0

    def check(self, fragment: Fragment) -> None:
        """Take the next fragment, or refuse it."""
        at, offset = self.next, self._offset
        follows = (
            fragment.group == at.group
            and fragment.object_id == at.object
            and fragment.offset == offset
        )
        if not follows and not offset and self._begun:
            follows = (
                fragment.group == at.group + 1 and not fragment.object_id and not fragment.offset
            )
        if not follows:
            raise violation(
                f"a fragment of object {fragment.group}, {fragment.object_id} at {fragment.offset} "
                f"where object {at.group}, {at.object} at {offset} was to come"
            )
        if fragment.last:
            self.next, self._offset = Location(fragment.group, fragment.object_id + 1), 0
            self._begun = True
        elif not fragment.data:
            raise violation("an empty fragment that does not end its object")
        else:
            self.next, self._offset = Location(fragment.group, fragment.object_id), fragment.end


class Assembly:
    """One object out of fragments in any order; what overlaps is taken once, as it came first."""

    __slots__ = ("_limit", "_offsets", "_parts", "size", "total")

    def __init__(self, limit: int = MAX_OBJECT_BYTES) -> None:
        self.size = 0
        "How many bytes are here."
        self.total: int | None = None
        "How many there are in all, once that is known."
        self._limit = limit
        self._offsets: list[int] = []
        self._parts: list[bytes | memoryview] = []

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.size == self.total

    @property
    def pieces(self) -> int:
        """How many pieces are held."""
        return len(self._parts)

    def payload(self) -> bytes:
        """The object, if it is whole."""
        return b"".join(self._parts)

    def fragments(self, group: int, object_id: int) -> Iterator[Fragment]:
        """What is here of it, in order."""
        end = 0
        for offset, part in zip(self._offsets, self._parts, strict=True):
            end = offset + len(part)
            yield Fragment(group, object_id, offset, part, end == self.total)
        if self.total is not None and (end < self.total or not self.total):
            yield Fragment(group, object_id, self.total, b"", True)

    def add(self, fragment: Fragment) -> list[Fragment]:
        """The parts of a fragment that are new; QuicrViolation if it cannot be one of this.

        Where only the end is new, a part of no bytes says it.
        """
        end = fragment.end
        if end > self._limit:
            raise QuicrViolation(
                QuicrCode.TOO_LARGE, f"an object of more than {self._limit} bytes is not taken"
            )
        if self.total is not None and (end > self.total or (fragment.last and end < self.total)):
            raise violation(f"a fragment ends at {end}, and its object at {self.total}")
        offsets, parts = self._offsets, self._parts
        ends = fragment.last and self.total is None
        if ends:
            if offsets and offsets[-1] + len(parts[-1]) > end:
                raise violation(f"an object ends at {end}, ahead of what has come of it")
            self.total = end
        if not offsets or offsets[-1] + len(parts[-1]) <= fragment.offset:
            new = [fragment] if fragment.data else []
        else:
            new = list(self._missing(fragment))
        for part in new:
            at = bisect_right(offsets, part.offset)
            offsets.insert(at, part.offset)
            parts.insert(at, part.data)
            self.size += len(part.data)
        if ends and not (new and new[-1].last):
            new.append(Fragment(fragment.group, fragment.object_id, end, b"", True))
        return new

    def _missing(self, fragment: Fragment) -> Iterator[Fragment]:
        """The parts of a fragment that are not here, copied: a view would hold all of it."""
        offsets, parts = self._offsets, self._parts
        at, end = fragment.offset, fragment.end
        view = memoryview(fragment.data)
        index = max(0, bisect_right(offsets, at) - 1)
        while at < end:
            if index < len(offsets) and offsets[index] <= at:
                at = max(at, offsets[index] + len(parts[index]))
                index += 1
                continue
            upto = min(end, offsets[index]) if index < len(offsets) else end
            data = bytes(view[at - fragment.offset : upto - fragment.offset])
            last = fragment.last and upto == end
            yield Fragment(fragment.group, fragment.object_id, at, data, last)
            at = upto


class Reassembler:
    """The objects of a track out of fragments in any order; the oldest give way beyond a bound."""

    def __init__(
        self,
        limit_bytes: int = 2 * MAX_OBJECT_BYTES,
        limit_objects: int = 1024,
        object_bytes: int = MAX_OBJECT_BYTES,
    ) -> None:
        self.size = 0
        "What is held, in bytes, with what holding costs."
        self.given_up = 0
        "Objects that made room for others."
        self.open: OrderedDict[Location, Assembly] = OrderedDict()
        "Those that are not whole, the oldest first."
        self._limit = limit_bytes
        self._limit_objects = limit_objects
        self._object_bytes = object_bytes
        self._done: OrderedDict[Location, None] = OrderedDict()

    def add(self, fragment: Fragment) -> tuple[list[Fragment], bytes | None]:
        """The parts that are new, and the object if it is whole now.

        QuicrViolation if the fragment cannot be: then the object is given up, and what else comes
        of it is not taken.
        """
        place = Location(fragment.group, fragment.object_id)
        if place in self._done:
            return [], None
        assembly = self.open.get(place)
        if assembly is None:
            assembly = self.open[place] = Assembly(self._object_bytes)
        before = assembly.size + PIECE_BYTES * assembly.pieces
        try:
            new = assembly.add(fragment)
        except QuicrViolation:
            self.forget(place)
            raise
        self.size += assembly.size + PIECE_BYTES * assembly.pieces - before
        payload = None
        if assembly.is_whole:
            payload = assembly.payload()
            self.forget(place)
        while len(self.open) > self._limit_objects or self.size > self._limit:
            self.given_up += 1
            self.forget(next(iter(self.open)))
        return new, payload

    def forget(self, place: Location) -> None:
        """Nothing more is wanted of an object."""
        assembly = self.open.pop(place, None)
        if assembly is not None:
            self.size -= assembly.size + PIECE_BYTES * assembly.pieces
        self._done[place] = None
        if len(self._done) > DONE:
            self._done.popitem(last=False)

    def clear(self) -> None:
        """The publisher begins anew: its numbers mean something else."""
        self.open.clear()
        self._done.clear()
        self.size = 0
