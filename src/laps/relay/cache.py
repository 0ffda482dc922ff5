"""What a relay keeps of the tracks that pass: the bytes of streams, as they came.

    Cache -> CachedTrack -> CachedGroup -> streams (chunks), datagrams, fetched objects

Nothing is parsed while data flows: a chunk is appended to a list. Objects are looked for when
somebody asks, for the largest one or for a range. Bounds are kept by dropping the oldest groups, of
the track that has too much or of all; what is still being written is cut at an object's beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import ObjectStatus, decode_datagram
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.objects import Object, ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from laps.wire.moqt.data import SubgroupHeader

# The times of chunks are remembered this finely.
MARK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How much is kept, and for how long."""

    total_bytes: int = 256 * 1024 * 1024
    track_bytes: int = 32 * 1024 * 1024
    age_s: float = 60.0


@dataclass(slots=True)
class CacheCounters:
    """What became of it, for the operator."""

    evicted_groups: int = 0
    expired_groups: int = 0
    expired_objects: int = 0
    "By what their publishers said of how long they are of use."
    trimmed_streams: int = 0


class CachedStream:
    """The objects of one stream, behind its header; the header is kept decoded."""

    __slots__ = (
        "_group",
        "_marks",
        "_scanned",
        "base",
        "chunks",
        "dropped_id",
        "fin",
        "header",
        "live",
        "malformed",
        "scanner",
        "size",
        "source",
        "waiting",
    )

    def __init__(self, group: CachedGroup, header: SubgroupHeader, source: Hashable) -> None:
        self.header = header
        self.source = source
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self.base = 0
        "Bytes that were here and were dropped; an object begins behind them."
        self.dropped_id: int | None = None
        "The id of the last object that was dropped."
        self.live = True
        self.fin = False
        self.malformed = False
        "Its objects cannot be told apart from somewhere on."
        self.scanner = BoundaryScanner(DRAFT16, header.has_extensions)
        self.waiting: list[Callable[[], None]] = []
        "To be called when more of it has come, or its end."
        self._scanned = 0
        self._group = group
        self._marks = [(0, group.track.cache.now)]

    @property
    def subgroup(self) -> int:
        """Its subgroup, as the header or the first object has it."""
        subgroup = self.header.subgroup
        return (self.scan().first_object_id or 0) if subgroup is None else subgroup

    @property
    def touched(self) -> float:
        """When the last of it came, give or take a tenth of a second."""
        return self._marks[-1][1]

    def append(self, data: bytes | memoryview) -> None:
        """Keep bytes that came."""
        size, group = len(data), self._group
        if group.gone:
            return
        cache = group.track.cache
        if cache.now - self._marks[-1][1] > MARK_S:
            self._marks.append((self.base + self.size, cache.now))
        self.chunks.append(data)
        self.size += size
        group.size += size
        group.track.size += size
        cache.size += size
        if cache.size > cache.limits.total_bytes or group.track.size > cache.limits.track_bytes:
            cache.shrink(group.track)
        if self.waiting:
            self._notify()

    def ended(self, *, fin: bool) -> None:
        """Nothing more comes; with a FIN it was all."""
        self.live, self.fin = False, fin
        self._notify()

    def _notify(self) -> None:
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()

    def under_way(self) -> int | None:
        """The id of an object that has begun to come, and goes on."""
        scanner = self.scan()
        last = scanner.last_object_id
        whole = not self.live or self.malformed or last == scanner.complete_id
        return None if whole else last

    def scan(self) -> BoundaryScanner:
        """Look at what came since the last time."""
        try:
            for chunk in () if self.malformed else self.chunks[self._scanned :]:
                self.scanner.feed(chunk)
        except MoqtViolation:
            self.malformed = True
        self._scanned = len(self.chunks)
        return self.scanner

    def tail(self) -> bytes:
        """What has come of the object under way, as of the last scan."""
        skip = self.scanner.next_object_offset - self.base
        whole = b"".join(self.chunks[: self._scanned])
        return whole[skip:]

    def objects(self, oldest: float) -> Iterator[Object]:
        """The objects that are whole, leaving out those that came before a time."""
        reader = ObjectReader(self.header, DRAFT16)
        if self.dropped_id is not None:
            reader.resume(self.dropped_id, self.subgroup)
        offset = self.base
        ids: dict[int, float] = {}
        found: list[Object] = []
        try:
            for chunk in self.chunks:
                at = self._time_of(offset)
                offset += len(chunk)
                for item in reader.feed(chunk):
                    found.append(item)
                    ids[item.object_id] = at
        except MoqtViolation:
            pass  # what came before it is whole
        for item in found:
            if ids[item.object_id] >= oldest:
                yield item

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
        self.base += cut
        self.dropped_id = scanner.complete_id
        self._marks = self._marks[max(0, bisect_right(self._marks, (self.base, 1e18)) - 1) :]
        self._shrink(cut)
        return cut

    def clear(self) -> int:
        """Drop everything; bytes freed."""
        freed = self.size
        self.base += freed
        self.chunks = []
        self._scanned = 0
        self._shrink(freed)
        self._notify()
        return freed

    def _shrink(self, size: int) -> None:
        group = self._group
        self.size -= size
        group.size -= size
        group.track.size -= size
        group.track.cache.size -= size

    def _time_of(self, offset: int) -> float:
        index = bisect_right(self._marks, (offset, 1e18)) - 1
        return self._marks[max(0, index)][1]


class CachedGroup:
    """A group, as far as it came."""

    __slots__ = (
        "at",
        "datagrams",
        "fetched",
        "gone",
        "id",
        "size",
        "streams",
        "track",
        "until",
        "whole",
    )

    def __init__(self, track: CachedTrack, group_id: int, at: float) -> None:
        self.track = track
        self.id = group_id
        self.at = at
        self.size = 0
        self.streams: list[CachedStream] = []
        self.datagrams: dict[int, tuple[float, bytes]] = {}
        self.until: dict[int, float] = {}
        "When objects that came in datagrams are of no use any more, where somebody said so."
        self.fetched: dict[int, tuple[float, Object]] = {}
        self.gone = False
        "It has been dropped: what still comes of it is not kept."
        self.whole = False
        "A publisher has been asked for all of it."

    @property
    def live(self) -> bool:
        """Whether a stream of it is still open."""
        return any(stream.live for stream in self.streams)

    def objects(self, oldest: float = 0.0) -> dict[int, Object]:
        """What is there of it, by object id; statuses too."""
        found = {key: item for key, (at, item) in self.fetched.items() if at >= oldest}
        for stream in self.streams:
            for item in stream.objects(oldest):
                found[item.object_id] = item
        for object_id, data in self.in_datagrams(oldest):
            if object_id not in found:
                found[object_id] = _of_datagram(data)
        return found

    def in_datagrams(self, oldest: float = 0.0) -> Iterator[tuple[int, bytes]]:
        """The objects that came in datagrams and are still of use."""
        now, until = self.track.cache.now, self.until
        for object_id, (at, data) in list(self.datagrams.items()):
            if at >= oldest and (not until or until.get(object_id, now) >= now):
                yield object_id, data

    def largest(self) -> int | None:
        """The largest object id that has begun to come."""
        ids = [*self.datagrams, *self.fetched]
        for stream in self.streams:
            scanner = stream.scan()
            if scanner.last_object_id is not None:
                ids.append(scanner.last_object_id)
        return max(ids, default=None)

    def end(self) -> int | None:
        """The id behind the last object, where the publisher has said which that is."""
        for stream in self.streams:
            scanner = stream.scan()
            if scanner.last_object_id is None:
                continue
            ended = {ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK} & scanner.statuses
            if ended or (stream.header.end_of_group and stream.fin):
                return scanner.last_object_id + (0 if ended else 1)
        return None

    def add_datagram(self, object_id: int, data: bytes, until: float | None = None) -> None:
        """Keep an object that came in a datagram, or in several; at most until a time."""
        if object_id not in self.datagrams:
            cache = self.track.cache
            self.datagrams[object_id] = (cache.now, data)
            if until is not None:
                self.until[object_id] = until
            self._grow(len(data))

    def expire(self, now: float) -> int:
        """Drop the objects that are of no use any more; how many."""
        past = [object_id for object_id, until in self.until.items() if until < now]
        for object_id in past:
            del self.until[object_id]
            _, data = self.datagrams.pop(object_id)
            self._grow(-len(data))
        return len(past)

    def add_object(self, item: Object) -> None:
        """Keep an object that was fetched."""
        known = item.object_id in self.fetched
        self.fetched[item.object_id] = (self.track.cache.now, item)
        if not known:
            self._grow(len(item.payload) + len(item.extensions))

    def _grow(self, size: int) -> None:
        cache = self.track.cache
        self.size += size
        self.track.size += size
        cache.size += size
        if cache.size > cache.limits.total_bytes or self.track.size > cache.limits.track_bytes:
            cache.shrink(self.track)


class CachedTrack:
    """The groups of one track."""

    __slots__ = ("cache", "groups", "known", "max_age_s", "seen", "size")

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.groups: dict[int, CachedGroup] = {}
        self.size = 0
        self.seen: Location | None = None
        "The largest location known of, also of what is no longer here."
        self.max_age_s = cache.limits.age_s
        self.known: list[tuple[int, int]] = []
        "Groups, from and to, that a publisher has been asked for: what is not here is not there."

    def group(self, group_id: int) -> CachedGroup:
        """The group, made if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = CachedGroup(self, group_id, self.cache.now)
            self.cache.order[group] = None
        return group

    def open(self, header: SubgroupHeader, source: Hashable) -> CachedStream:
        """A stream has begun."""
        group = self.group(header.group)
        stream = CachedStream(group, header, source)
        group.streams.append(stream)
        return stream

    def largest(self) -> Location | None:
        """The largest location that has begun to come, or that a publisher has told of."""
        if self.groups:
            top = self.groups[max(self.groups)]
            if (object_id := top.largest()) is not None:
                self.saw(Location(top.id, object_id))
        return self.seen

    def saw(self, location: Location | None) -> None:
        """Word of an object."""
        if location is not None and (self.seen is None or location > self.seen):
            self.seen = location

    def oldest(self) -> float:
        """What came before this time has expired."""
        return self.cache.now - self.max_age_s

    def drop(self, group: CachedGroup) -> None:
        """Forget a group."""
        if group.live or group.id == max(self.groups):
            self.largest()
        group.gone = True
        self.groups.pop(group.id, None)
        self.cache.order.pop(group, None)
        self.size -= group.size
        self.cache.size -= group.size
        self.known = [span for span in self.known if not span[0] <= group.id <= span[1]]

    def clear(self) -> None:
        """Forget everything: the publisher has begun anew."""
        for group in list(self.groups.values()):
            for stream in group.streams:
                stream.clear()
            self.drop(group)
        self.seen = None
        self.known = []


class Cache:
    """All that a relay keeps."""

    def __init__(self, limits: CacheLimits) -> None:
        self.limits = limits
        self.counters = CacheCounters()
        self.now = 0.0
        "The time, as the relay last heard it."
        self.size = 0
        self.order: dict[CachedGroup, None] = {}
        "Every group, the oldest first."

    def shrink(self, track: CachedTrack) -> None:
        """Drop the oldest until the bounds hold, the track's own first."""
        goal = self.limits.track_bytes * 3 // 4
        if track.size > self.limits.track_bytes:
            self._shrink([track.groups[key] for key in sorted(track.groups)], track, goal)
        if self.size > self.limits.total_bytes:
            self._shrink(list(self.order), self, self.limits.total_bytes * 7 // 8)

    def _shrink(self, groups: list[CachedGroup], whole: Cache | CachedTrack, goal: int) -> None:
        for group in groups:
            if whole.size <= goal:
                return
            if group.live:
                for stream in group.streams:
                    self.counters.trimmed_streams += stream.trim() > 0
            else:
                self.counters.evicted_groups += 1
                group.track.drop(group)

    def expire(self, now: float) -> None:
        """Drop what is too old, and has come to its end."""
        self.now = now
        for group in list(self.order):
            if group.until:
                self.counters.expired_objects += group.expire(now)
            age = now - group.at
            if age > group.track.max_age_s and not group.live:
                self.counters.expired_groups += 1
                group.track.drop(group)


def _of_datagram(data: bytes) -> Object:
    item = decode_datagram(data, DRAFT16)
    return Object(
        item.group,
        None,
        item.object_id,
        item.priority,
        item.status or 0,
        item.extensions,
        bytes(item.payload),
        datagram=True,
    )
