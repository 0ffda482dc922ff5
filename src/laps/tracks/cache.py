"""What a relay keeps of the tracks that pass: the bytes of streams, as they came.

    Cache -> CachedTrack -> CachedGroup -> streams (chunks), datagrams, fetched objects

Nothing is parsed while data flows: a chunk is appended to a list. Objects are looked for when
somebody asks, for the largest one or for a range. Bounds are kept by dropping the oldest groups, of
the track that has too much or of all; what is still being written is cut at an object's beginning.
An object that is larger than the bounds passes, and is not kept.

Groups stand in a queue by the time that they may expire at, so that nobody looks at a million of
them to find one. A group that is then still written, or is the last of its track and kept for that,
stands there again when it is not so any more.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from laps.ranges import LAST_OBJECT, RangeSet
from laps.tracks.cached_stream import CachedStream
from laps.tracks.history import Elsewhere, History
from laps.types import Location
from laps.wire.moqt.data import ObjectStatus, decode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.objects import Object, object_in

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator

    from laps.tracks.cache_owner import CacheOwner
    from laps.tracks.publication import Source
    from laps.wire.moqt.data import SubgroupHeader

    Sized: TypeAlias = "Cache | CachedTrack | CacheOwner"


# 10 µs each, in one turn of the loop.
MOST_IN_A_TURN: Final = 200

# Objects that have a time of their own are dropped together, this often: whatever is too old is
# left out when somebody asks.
AGAIN_S: Final = 1.0


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
    shares_exceeded: int = 0
    "How often what one owner publishes took more than its share, and its oldest made room."
    trimmed_streams: int = 0
    large_objects: int = 0
    "Not kept: they alone are more than there is room for."


class CachedGroup:
    """A group, as far as it came."""

    __slots__ = (
        "at",
        "datagrams",
        "discardable",
        "due",
        "fetched",
        "gone",
        "id",
        "pieced",
        "size",
        "source",
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
        self.due = inf
        "When it is looked at, to see what of it has expired."
        self.streams: list[CachedStream] = []
        self.datagrams: dict[int, tuple[float, bytes]] = {}
        self.source: Source | None = None
        "Who sent the datagrams; None where there are none, or several did."
        self.pieced: set[int] = set()
        "Those of them that came in several datagrams: they may be larger than one can be."
        self.discardable: set[int] = set()
        "Those of them that are dropped first where there is too much."
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

    def objects(
        self, now: float, oldest: float = 0.0, first: int = 0, last: int | None = None
    ) -> dict[int, Object]:
        """What is there of it, or of a part of it, by object id; statuses too.

        What arrived before `oldest` is left out.
        """
        end = LAST_OBJECT if last is None else last
        found = {
            key: item
            for key, (at, item) in self.fetched.items()
            if at >= oldest and first <= key <= end
        }
        for stream in self.streams:
            for item in stream.objects(oldest, first, last):
                found[item.object_id] = item
        for object_id, data in self.in_datagrams(now, oldest):
            if object_id not in found and first <= object_id <= end:
                found[object_id] = _of_datagram(data)
        return found

    def ids(self, now: float, oldest: float = 0.0) -> list[tuple[int, int]]:
        """The ids of what is there of it, from and up to, in order and without overlap."""
        found = [(key, key + 1) for key, (at, _) in self.fetched.items() if at >= oldest]
        found += [(object_id, object_id + 1) for object_id, _ in self.in_datagrams(now, oldest)]
        for stream in self.streams:
            found += stream.ids(oldest)
        return list(RangeSet(sorted(found)))

    def end_of_track(self, now: float) -> int | None:
        """The id of what marks the end of the track, if that is here."""
        for stream in self.streams:
            scanner = stream.scan()
            if ObjectStatus.END_OF_TRACK in scanner.statuses:
                return scanner.last_object_id
        marks = ((item.object_id, item.status) for _, item in self.fetched.values())
        found = [object_id for object_id, status in marks if status == ObjectStatus.END_OF_TRACK]
        for object_id, data in self.in_datagrams(now):
            if decode_datagram(data, BETWEEN_RELAYS).status == ObjectStatus.END_OF_TRACK:
                found.append(object_id)
        return found[0] if found else None

    def in_datagrams(self, now: float, oldest: float = 0.0) -> Iterator[tuple[int, bytes]]:
        """The objects that came in datagrams and are still of use."""
        until = self.until
        for object_id, (at, data) in list(self.datagrams.items()):
            if at >= oldest and (not until or until.get(object_id, now) >= now):
                yield object_id, data

    def came(self, object_id: int) -> float:
        """When an object came in a datagram."""
        return self.datagrams[object_id][0]

    def trimmed(self, last_object: int | None) -> None:
        """Its beginning was let go, up to an object."""
        self.whole = False
        self.track.history.dropped(self.id, last_object)
        self.track.known = [s for s in self.track.known if not s[0] <= self.id <= s[1]]

    def largest(self) -> int | None:
        """The largest object id that has begun to come."""
        ids = [*self.datagrams, *self.fetched]
        for stream in self.streams:
            scanner = stream.scan()
            if scanner.last_object_id is not None:
                ids.append(scanner.last_object_id)
        return max(ids, default=None)

    def end(self) -> int | None:
        """The id after the last object, where the publisher has said which that is."""
        ends = (stream.end_id for stream in self.streams)
        return next((end for end in ends if end is not None), None)

    def add_datagram(
        self,
        object_id: int,
        data: bytes,
        now: float,
        until: float | None = None,
        *,
        discardable: bool = False,
        source: Source | None = None,
    ) -> None:
        """Keep an object that arrived in a datagram, or in several; at most until a time."""
        if object_id not in self.datagrams:
            if source != self.source:
                self.source = None if self.datagrams else source
            self.datagrams[object_id] = (now, data)
            if discardable:
                self.discardable.add(object_id)
            if until is not None:
                self.until[object_id] = until
                self.track.cache.look_at(self, until + AGAIN_S)
            self.grow(len(data))

    def expire(self, now: float) -> int:
        """Drop the objects that are of no use any more; how many."""
        past = [object_id for object_id, until in self.until.items() if until < now]
        for object_id in past:
            del self.until[object_id]
            self.discardable.discard(object_id)
            _, data = self.datagrams.pop(object_id)
            self.grow(-len(data))
        return len(past)

    def add_object(self, item: Object, now: float) -> None:
        """Keep an object that was fetched."""
        known = item.object_id in self.fetched
        self.fetched[item.object_id] = (now, item)
        if not known:
            self.grow(len(item.payload) + len(item.extensions))

    @property
    def events(self) -> deque[object]:
        """As `Holder.events`."""
        return self.track.cache.events

    def stream_ended(self) -> None:
        """As `Holder.stream_ended`: what grew old while it was written may go."""
        if not self.gone:
            self.track.cache.look_at(self, self.at + self.track.max_age_s)

    def grow(self, size: int) -> None:
        """As `Holder.grow`; what is too much makes room."""
        track = self.track
        cache = track.cache
        self.size += size
        track.size += size
        cache.size += size
        if (owner := track.owner) is not None:
            owner.size += size
            if size > 0 and owner.size > owner.limit:
                cache.shrink_owner(owner)
        if size <= 0:
            return
        if cache.size > cache.limits.total_bytes or track.size > cache.limits.track_bytes:
            cache.shrink(track)


class CachedTrack:
    """The groups of one track."""

    __slots__ = (
        "_keeps_last",
        "_top",
        "cache",
        "groups",
        "history",
        "known",
        "max_age_s",
        "owner",
        "seen",
        "size",
    )

    def __init__(self, cache: Cache, history: History | None = None) -> None:
        self.cache = cache
        self.history = history or History(cache.elsewhere)
        self.groups: dict[int, CachedGroup] = {}
        self._top = -1
        "The largest of them; -1 where there is none."
        self.size = 0
        self.owner: CacheOwner | None = None
        "Whose share of the cache it is in; None: nobody's in particular."
        self.seen: Location | None = None
        "The largest location known of, also of what is no longer here."
        self.max_age_s = cache.limits.age_s
        self._keeps_last = False
        self.known: list[tuple[int, int]] = []
        "Groups, from and to, that a publisher has been asked for: what is not here is not there."

    def group(self, group_id: int, now: float) -> CachedGroup:
        """The group, made if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = CachedGroup(self, group_id, now)
            if group_id > self._top:
                last, self._top = self.groups.get(self._top), group_id
                self._may_go(last)
            self.cache.order[group] = None
            if self.owner is not None:
                self.owner.order[group] = None
            self._may_go(group)
            self.history.saw(group_id)
        return group

    def belongs_to(self, owner: CacheOwner | None) -> None:
        """Somebody begins to publish the track; what is kept of another's stays the other's."""
        if not self.groups:
            self.owner = owner

    def open(self, header: SubgroupHeader, source: Source, now: float) -> CachedStream:
        """A stream has begun."""
        group = self.group(header.group, now)
        stream = CachedStream(group, header, source, now)
        group.streams.append(stream)
        return stream

    def largest(self) -> Location | None:
        """The largest location that has begun to come, or that a publisher has told of."""
        if self.groups:
            top = self.groups[self._top]
            if (object_id := top.largest()) is not None:
                self.saw(Location(top.id, object_id))
        return self.seen

    @property
    def touched(self) -> float:
        """When the last of the group that the track is in came, give or take."""
        group = self.groups.get(self._top)
        if group is None:
            return 0.0
        times = [stream.touched for stream in group.streams]
        return max([group.at, *times, *(at for at, _ in group.datagrams.values())])

    def limit_age(self, max_age_s: float) -> None:
        """What is older than this is of no use any more."""
        if max_age_s < self.max_age_s:
            self.max_age_s = max_age_s
            for group in self.groups.values():
                self._may_go(group)
        self.max_age_s = max_age_s

    @property
    def keeps_last(self) -> bool:
        """Whether the group that the track is in stays young: it is what there is of it now."""
        return self._keeps_last

    @keeps_last.setter
    def keeps_last(self, keeps: bool) -> None:
        self._keeps_last = keeps
        if not keeps:
            self._may_go(self.groups.get(self._top))

    def _may_go(self, group: CachedGroup | None) -> None:
        """A group is dropped when it is old enough, unless something else keeps it."""
        if group is not None:
            self.cache.look_at(group, group.at + self.max_age_s)

    def saw(self, location: Location | None) -> None:
        """Word of an object."""
        if location is not None and (self.seen is None or location > self.seen):
            self.seen = location

    def oldest(self, now: float, group_id: int) -> float:
        """What arrived of a group before this time has expired."""
        return 0.0 if self.is_kept(group_id) else now - self.max_age_s

    def is_kept(self, group_id: int) -> bool:
        """Whether a group is kept however old it is."""
        return self._keeps_last and group_id == self._top

    def drop(self, group: CachedGroup) -> None:
        """Forget a group."""
        if group.live or group.id == self._top:
            self.largest()
        # Its last object tells where what was let go ends, if that is not the next group's to tell.
        last = None if group.id + 1 in self.groups else group.largest()
        if group.size or last is not None:
            self.history.dropped(group.id, last)
        group.gone = True
        self.groups.pop(group.id, None)
        if group.id == self._top:
            self._top = max(self.groups, default=-1)
        self.cache.order.pop(group, None)
        if self.owner is not None:
            self.owner.order.pop(group, None)
            self.owner.size -= group.size
        self.size -= group.size
        self.cache.size -= group.size
        self.known = [span for span in self.known if not span[0] <= group.id <= span[1]]
        group.streams = []  # which refer to the group: see `net/clients.py`

    def clear(self) -> None:
        """Forget everything: the publisher has begun anew."""
        for group in list(self.groups.values()):
            for stream in group.streams:
                stream.clear()
            self.drop(group)
        self.seen = None
        self.known = []
        self.history.clear()


class Cache:
    """All that a relay keeps."""

    def __init__(self, limits: CacheLimits, events: deque[object]) -> None:
        """`events` receives that more arrived of a stream that somebody waits for."""
        self.limits = limits
        self.events = events
        self.counters = CacheCounters()
        self.elsewhere = Elsewhere()
        self.size = 0
        self.order: dict[CachedGroup, None] = {}
        "Every group, the oldest first."
        self._queue: list[tuple[float, int, CachedGroup]] = []
        "Groups by when they are looked at; an entry counts while the group has the same time."
        self._numbers = count()

    def shrink(self, track: CachedTrack) -> None:
        """Drop the oldest until the bounds hold, the track's own first."""
        limits = self.limits
        if track.size > limits.track_bytes:
            groups = [track.groups[key] for key in sorted(track.groups)]
            self._shrink(groups, track, limits.track_bytes * 3 // 4, limits.track_bytes)
        if self.size > (most := limits.total_bytes):
            self._shrink(self._oldest(self, most), self, most * 7 // 8, most)

    def shrink_owner(self, owner: CacheOwner) -> None:
        """Drop the oldest of what one owner publishes, and of nobody else."""
        self.counters.shares_exceeded += 1
        self._shrink(self._oldest(owner, owner.limit), owner, owner.limit * 3 // 4, owner.limit)

    def _oldest(self, whole: Cache | CacheOwner, limit: int) -> list[CachedGroup]:
        """As many of the oldest groups as bring the size below a limit, and some more."""
        found: list[CachedGroup] = []
        size = whole.size
        for group in whole.order:
            if size <= limit and len(found) >= MOST_IN_A_TURN:
                break
            found.append(group)
            size -= 0 if group.live else group.size
        return found

    def _shrink(self, groups: list[CachedGroup], whole: Sized, goal: int, limit: int) -> None:
        """Drop groups in this order down to the goal; the last, as long as it fits, is kept."""
        for group in groups:
            if whole.size <= (limit if group is groups[-1] else goal):
                return
            if group.live:
                for stream in group.streams:
                    if stream.trim() > 0:
                        self.counters.trimmed_streams += 1
                        group.trimmed(stream.dropped_id)
                    if whole.size > limit and stream.behead() > 0:
                        self.counters.large_objects += 1
                        group.trimmed(stream.dropped_id)
            else:
                self.counters.evicted_groups += 1
                group.track.drop(group)

    def look_at(self, group: CachedGroup, at: float) -> None:
        """Something of a group expires at a time."""
        if at < group.due:
            group.due = at
            heapq.heappush(self._queue, (at, next(self._numbers), group))

    def expire(self, now: float) -> bool:
        """Drop what is too old, and has come to its end; False if there is more to be done."""
        for _ in range(MOST_IN_A_TURN):
            if not self._queue or self._queue[0][0] >= now:
                return True
            due, _, group = heapq.heappop(self._queue)
            if group.due == due and not group.gone:
                group.due = inf
                self._expire(group, now)
        return False

    def _expire(self, group: CachedGroup, now: float) -> None:
        if group.until:
            self.counters.expired_objects += group.expire(now)
        track = group.track
        expires_at = group.at + track.max_age_s
        if expires_at >= now:
            self.look_at(group, expires_at)
        elif not group.live and not track.is_kept(group.id):
            self.counters.expired_groups += 1
            track.drop(group)
        if group.until and not group.gone:
            self.look_at(group, max(min(group.until.values()), now) + AGAIN_S)


def _of_datagram(data: bytes) -> Object:
    return object_in(decode_datagram(data, BETWEEN_RELAYS))
