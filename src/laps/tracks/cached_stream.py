"""The bytes of one stream, as they came, and where its objects are in them.

Nothing is looked at while data flows. When somebody asks for objects, what came since the last time
is looked through, and every now and then the place where an object begins is written down. So a few
objects out of a long stream are read from the nearest such place, and not from its beginning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from laps.ranges import Numbers
from laps.wire.buffer import VARINT_MAX, Incomplete, decode_varint
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.objects import Object, ObjectReader
from laps.wire.moqt.track_checking import ENDS

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator

    from laps.tracks.publication import Source
    from laps.wire.moqt.boundaries import Boundary
    from laps.wire.moqt.data import SubgroupHeader

# The times of chunks are remembered this finely,
MARK_S: Final = 0.1
# and the places where objects begin: to read so much takes less than a millisecond.
CHECK_BYTES: Final = 32 * 1024


class Waiter(Protocol):
    """Waits for something to happen, such as more of a stream that is being received."""

    def resume(self, now: float) -> None:
        """It has happened."""


@dataclass(frozen=True, slots=True)
class Resume:
    """An event: somebody who waited goes on."""

    waiter: Waiter


class Holder(Protocol):
    """The group that a stream is kept in, which answers for the bounds of the cache."""

    gone: bool
    "It was dropped: what still arrives of it is not kept."

    @property
    def events(self) -> deque[object]:
        """Where it is written down that more arrived."""

    def grow(self, size: int) -> None:
        """So many bytes more are kept, or fewer where it is negative."""

    def stream_ended(self) -> None:
        """Nothing more comes of a stream of it."""


class _Check(NamedTuple):
    """A place where an object begins."""

    complete_id: int
    "Of the object that ends there."
    offset: int
    chunk: int
    "The chunk that the place is in, or at the end of,"
    chunk_offset: int
    "and where that begins."


def _complete_id(check: _Check) -> int:
    return check.complete_id


def _offset(check: _Check) -> int:
    return check.offset


class CachedStream:
    """The objects of one stream, after its header; the header is kept decoded."""

    __slots__ = (
        "_begun",
        "_checks",
        "_gone_until",
        "_group",
        "_marks",
        "_scanned",
        "base",
        "chunks",
        "dropped_id",
        "fin",
        "header",
        "is_part",
        "live",
        "malformed",
        "priority",
        "scanner",
        "size",
        "source",
        "ttl_us",
        "waiting",
    )

    def __init__(self, group: Holder, header: SubgroupHeader, source: Source, now: float) -> None:
        self.header = header
        self.source = source
        self.priority: int | None = None
        "How urgent it is, as its sender has it; None where that is not known."
        self.ttl_us = 0
        "How long its objects are tried; 0 is for ever."
        self.is_part = False
        "It has some objects that other streams of its subgroup have left out, and no others."
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self.base = 0
        "Bytes that were here and were dropped; an object begins after them."
        self.dropped_id: int | None = None
        "The id of the last object that was dropped."
        self.live = True
        self.fin = False
        self.malformed = False
        "Its objects cannot be told apart from somewhere on."
        self.scanner = BoundaryScanner(BETWEEN_RELAYS, header.has_extensions)
        self.waiting: list[Waiter] = []
        "Those that go on when more of it has arrived, or its end."
        self._scanned = 0
        self._group = group
        self._marks = [(0, now)]
        self._checks: list[_Check] = []
        self._begun: Numbers | None = None
        "The ids of objects that have begun, and are still here; none before somebody looks."
        self._gone_until: int | None = None
        "The object under way is too large to be kept: where it ends."

    @property
    def subgroup(self) -> int:
        """Its subgroup, as the header or the first object has it."""
        subgroup = self.header.subgroup
        return (self.scan().first_object_id or 0) if subgroup is None else subgroup

    @property
    def first_id(self) -> int | None:
        """The first object that is here, if any has begun."""
        if self.dropped_id is not None:
            return self.dropped_id + 1
        return self.scan().first_object_id

    @property
    def end_id(self) -> int | None:
        """The id after the last object of the group, where this stream has said which that is."""
        scanner = self.scan()
        last = scanner.last_object_id
        if last is None:
            return None
        if not ENDS.isdisjoint(scanner.statuses):
            return last
        return last + 1 if self.header.end_of_group and self.fin else None

    @property
    def is_kept(self) -> bool:
        """Whether what comes of it is kept, or at least looked at."""
        return not self._group.gone

    @property
    def since(self) -> float:
        """When the first of what is here came."""
        return self._marks[0][1]

    @property
    def touched(self) -> float:
        """When the last of it came, give or take a tenth of a second."""
        return self._marks[-1][1]

    def append(self, data: bytes | memoryview, now: float) -> None:
        """Keep bytes that arrived."""
        size, group = len(data), self._group
        if group.gone:
            return
        if now - self._marks[-1][1] > MARK_S:
            self._marks.append((self.base + self.size, now))
        if self._gone_until is not None:
            data = self._pass_by(data, self._gone_until)
            size = len(data)
        if size:
            self.chunks.append(data)
            self.size += size
            group.grow(size)
        if self.waiting:
            self._notify()

    def _pass_by(self, data: bytes | memoryview, end: int) -> bytes | memoryview:
        """More of an object that is not kept has come; what follows it."""
        passed = data[: end - self.base]
        self.scanner.feed(passed)
        self.base += len(passed)
        if self.base == end:
            self._gone_until = None
        return data[len(passed) :]

    def begins_with(self, data: memoryview) -> bool:
        """Whether its first bytes are these, as far as both go; also if they are no longer here."""
        at = 0
        for chunk in () if self.base else self.chunks:
            part = data[at : at + len(chunk)]
            if part != chunk[: len(part)]:
                return False
            at += len(part)
        return True

    def contradicts(self, header: SubgroupHeader, data: memoryview) -> bool:
        """Whether what follows another stream's header begins with an object of it that differs."""
        try:
            object_id, _ = decode_varint(data)
            if object_id == self.scan().first_object_id:
                return not self.begins_with(data)
            items = ObjectReader(header, BETWEEN_RELAYS, VARINT_MAX).feed(data)
        except (Incomplete, MoqtViolation):
            return False
        known = next(self.objects(0.0, object_id, object_id), None) if items else None
        return known is not None and known.payload != items[0].payload

    def repeats(self, header: SubgroupHeader, data: memoryview) -> bool:
        """Whether what follows another stream's header begins with an object that is here."""
        try:
            object_id, _ = decode_varint(data)
        except Incomplete:
            return False
        return self.has(object_id) and not self.contradicts(header, data)

    def ended(self, *, fin: bool) -> None:
        """Nothing more comes; with a FIN it was all."""
        self.live, self.fin = False, fin
        self._group.stream_ended()
        if self.waiting:
            self._notify()

    def _notify(self) -> None:
        waiting, self.waiting = self.waiting, []
        self._group.events.extend(map(Resume, waiting))

    def under_way(self) -> int | None:
        """The id of an object that has begun to come, and goes on."""
        scanner = self.scan()
        last = scanner.last_object_id
        if not self.live or self.malformed or last == scanner.complete_id:
            return None
        return last if self._gone_until is None else None

    def scan(self) -> BoundaryScanner:
        """Look at what came since the last time."""
        scanner = self.scanner
        try:
            for index in range(self._scanned, 0 if self.malformed else len(self.chunks)):
                offset = scanner.offset
                boundaries = scanner.feed(self.chunks[index])
                if boundaries:
                    self._note(boundaries)
                # Where the next object begins is known, so that it can be read from there.
                last = self._checks[-1].offset if self._checks else self.base
                if scanner.next_object_offset >= max(offset, last + CHECK_BYTES):
                    check = _Check(scanner.complete_id, scanner.next_object_offset, index, offset)
                    self._checks.append(check)
        except MoqtViolation:
            self.malformed = True
        self._scanned = len(self.chunks)
        return scanner

    def _note(self, boundaries: list[Boundary]) -> None:
        """Objects have begun."""
        begun = self._begun = self._begun or Numbers()
        first, last = boundaries[0][0], boundaries[-1][0]
        if last - first + 1 == len(boundaries):  # nearly always
            begun.add_range(first, last + 1)
            return
        for boundary in boundaries:
            begun.add(boundary[0])

    def ids(self, oldest: float) -> Iterator[tuple[int, int]]:
        """The ids of objects that are whole, from and up to, without those of before a time."""
        end = self.scan().complete_id + 1
        begin = self._first_since(oldest)
        for first, upto in self._begun or ():
            if first < end and upto > begin:
                yield max(first, begin), min(upto, end)

    def has(self, object_id: int) -> bool:
        """Whether an object has come whole, or was let go with others."""
        if self.dropped_id is not None and object_id <= self.dropped_id:
            return True
        return object_id <= self.scan().complete_id and object_id in (self._begun or ())

    def has_any(self, first: int, end: int) -> bool:
        """Whether an object has begun, of those from one up to another, and is still here."""
        self.scan()
        begun = self._begun
        return begun is not None and begun.gaps(first, end) != [(first, end)]

    def _first_since(self, oldest: float) -> int:
        """The smallest id that an object of after a time can have."""
        marks = self._marks
        if marks[0][1] >= oldest:
            return 0
        young = next((offset for offset, at in marks if at >= oldest), None)
        if young is None:
            return self.scanner.complete_id + 1
        # What becomes whole with the last chunk of before is old.
        at = bisect_right(self._checks, young, key=_offset) - 1
        last = -1 if self.dropped_id is None else self.dropped_id
        if at >= 0:
            last = self._checks[at].complete_id
        for item, offset in self._read(young):
            if offset >= young:
                break
            last = item.object_id
        return last + 1

    def scanner_at_base(self) -> BoundaryScanner | None:
        """A scanner that stands where what is here begins; None where that is inside an object."""
        if self._gone_until is not None or self.malformed:
            return None
        scanner = BoundaryScanner(BETWEEN_RELAYS, self.header.has_extensions, self.base)
        scanner.last_object_id = self.dropped_id
        return scanner

    def tail(self) -> bytes:
        """What has come of the object under way, as of the last scan."""
        skip = self.scanner.next_object_offset - self.base
        whole = b"".join(self.chunks[: self._scanned])
        return whole[skip:]

    def objects(self, oldest: float, first: int = 0, last: int | None = None) -> Iterator[Object]:
        """The objects that are whole, leaving out those that came before a time."""
        self.scan()
        at = bisect_left(self._checks, first, key=_complete_id) - 1
        for item, offset in self._read(self._checks[at].offset if at >= 0 else self.base):
            if last is not None and item.object_id > last:
                return
            if item.object_id >= first and self._time_of(offset) >= oldest:
                yield item

    def _read(self, offset: int) -> Iterator[tuple[Object, int]]:
        """The objects from an offset on, or from some way before it, and where their chunk is."""
        # What is here is within the bounds of the cache: it is put together, however much it is.
        reader = ObjectReader(self.header, BETWEEN_RELAYS, VARINT_MAX)
        at = bisect_right(self._checks, offset, key=_offset) - 1
        if at >= 0:
            check = self._checks[at]
            reader.resume(check.complete_id, self.subgroup)
            index, start, skip = check.chunk, check.chunk_offset, check.offset - check.chunk_offset
        else:
            if self.dropped_id is not None:
                reader.resume(self.dropped_id, self.subgroup)
            index, start, skip = 0, self.base, 0
        try:
            for chunk in self.chunks[index:]:
                for item in reader.feed(chunk[skip:] if skip else chunk):
                    yield item, start
                start += len(chunk)
                skip = 0
        except MoqtViolation:
            pass  # what came before it is whole

    def trim(self) -> int:
        """Drop what is whole, keeping what follows the last object that began; bytes freed."""
        scanner = self.scan()
        if self.malformed:
            return self.clear()
        cut = scanner.next_object_offset - self.base
        if cut <= 0:
            return 0
        kept: list[bytes | memoryview] = []
        left = cut
        for chunk in self.chunks:
            if left >= len(chunk):
                left -= len(chunk)
            else:
                kept.append(chunk[left:])
                left = 0
        self.chunks = kept
        self._scanned = len(kept)
        self._checks.clear()
        if self._begun is not None:
            self._begun.remove_range(0, scanner.complete_id + 1)
        self.base += cut
        self.dropped_id = scanner.complete_id
        self._marks = self._marks[max(0, bisect_right(self._marks, (self.base, 1e18)) - 1) :]
        self._shrink(cut)
        return cut

    def behead(self) -> int:
        """Drop what has come of the object under way, and keep nothing more of it; bytes freed.

        It stands alone by then: `trim` has dropped what came before.
        """
        scanner = self.scan()
        if self._gone_until is not None or self.malformed or scanner.payload_end is None:
            return 0
        self.dropped_id = scanner.last_object_id
        self._gone_until = scanner.payload_end
        return self.clear()

    def clear(self) -> int:
        """Drop everything; bytes freed."""
        freed = self.size
        self.base += freed
        self.chunks = []
        self._scanned = 0
        self._checks.clear()
        self._begun = None
        self._shrink(freed)
        self._notify()
        return freed

    def _shrink(self, size: int) -> None:
        self.size -= size
        self._group.grow(-size)

    def _time_of(self, offset: int) -> float:
        index = bisect_right(self._marks, (offset, 1e18)) - 1
        return self._marks[max(0, index)][1]
