"""A range of a track that is fetched from a publisher, or from the relay that has one.

What arrives is held until all who wait for it have it, whether or not the cache has room, and is
remembered if it has. Those who wait go on with what has arrived so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.ranges import LAST_OBJECT, after, before, beyond, last_of, without
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.fetch import EndOfRange, FetchReader
from laps.wire.moqt.translate import translate_object

if TYPE_CHECKING:
    from laps.ranges import Range
    from laps.tracks.cache import CachedTrack
    from laps.tracks.ports import Client
    from laps.types import NodeId
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import FetchOk, RequestError
    from laps.wire.moqt.objects import Object

# What a fetch may bring at a time: it is held until it has been sent on.
MAX_FETCH_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """An event: more of what is fetched has arrived."""

    fetch: UpstreamFetch


@dataclass(frozen=True, slots=True)
class FetchFinished:
    """An event: all that was fetched has arrived, or more than is held."""

    fetch: UpstreamFetch


@dataclass(slots=True, eq=False)
class UpstreamFetch:
    """A range that is being fetched from elsewhere."""

    cached: CachedTrack
    "Where the track is kept."
    start: Location
    end: Location
    dialect: Dialect
    "What the objects are written in."
    request_id: int = -1
    publisher: Client | None = None
    "Who was asked; None if it is another relay."
    node_id: NodeId | None = None
    "The relay that was asked; None if it is a publisher here."
    attempt: int = 1
    "The relay that is asked may die: then it is asked again, or another is."
    is_broken: bool = False
    "What brought it broke off."
    answer: FetchOk | None = None
    refusal: RequestError | None = None
    "Why another relay will not send it."
    is_finished: bool = False
    "All of it has arrived."
    is_too_large: bool = False
    "More arrived than is held."
    problem: MoqtViolation | None = None
    "Why what arrived cannot be read."
    objects: dict[int, dict[int, Object]] = field(default_factory=dict)
    "What has arrived, by group and id: the cache may not have room for it."
    unknown: list[Range] = field(default_factory=list)
    "What the publisher or relay does not know of."
    next: Location = field(init=False)
    "Where what has not arrived yet begins."
    is_noted: bool = False
    "It is written down that more of it has arrived."
    is_thinned: bool = False
    "Objects that all who waited have were let go."
    _reader: FetchReader = field(init=False)
    _size: int = 0

    def __post_init__(self) -> None:
        self._reader = FetchReader(self.dialect)
        self.next = self.start

    def broke_off(self) -> None:
        """What brings it is gone."""
        if not (self.is_finished or self.is_failed):
            self.is_broken = True
            self.cached.cache.events.append(FetchProgress(self))

    def asked_again(self, node_id: NodeId) -> None:
        """What has not arrived is asked for again, and comes on another stream."""
        self.attempt += 1
        self.node_id = node_id
        self.is_broken = False
        self._reader = FetchReader(self.dialect)

    def receive(self, data: bytes, *, fin: bool) -> bool:
        """Bytes of the answer; False if no more of them are taken.

        Bytes that are no objects fail this fetch, and are nothing to whoever brings them: they may
        have been written by a publisher at another relay.
        """
        if self.is_failed:
            return False
        try:
            self._read(data, fin=fin)
        except MoqtViolation as problem:
            self.problem = problem
            self.objects.clear()  # what came before was read by the same mistake
        if self.is_failed or self.is_finished:
            self.cached.cache.events.append(FetchFinished(self))
        elif not self.is_noted:
            self.is_noted = True
            self.cached.cache.events.append(FetchProgress(self))
        return not self.is_failed

    @property
    def is_failed(self) -> bool:
        """Nothing more is taken, and what came is not all."""
        return self.is_too_large or self.problem is not None

    def _read(self, data: bytes, *, fin: bool) -> None:
        for item in self._reader.feed(data):
            place = Location(item.group, item.object_id)
            begin, self.next = self.next, after(place)
            if isinstance(item, EndOfRange):
                if item.unknown:
                    self.unknown.append((begin, place))
                continue
            if not self.start <= place <= last_of(self.end):
                continue  # nobody asked for it, and it would be believed how far the track is
            found = translate_object(item, self.dialect, BETWEEN_RELAYS)
            if found is not None:
                self._size += len(found.payload)
                self.objects.setdefault(found.group, {})[found.object_id] = found
                self.cached.saw(place)
        if self._size > MAX_FETCH_BYTES:
            self.is_too_large = True
        elif fin:
            self._reader.finish()
            self.is_finished = True

    @property
    def answered_end(self) -> Location:
        """Where what was asked for ends, as far as there was anything."""
        return self.end if self.answer is None else min(self.end, self.answer.end, key=beyond)

    @property
    def is_large(self) -> bool:
        """So much is held that what is not needed any more should go."""
        return self._size > MAX_FETCH_BYTES // 8

    def thin(self, upto: Location) -> None:
        """Let objects go that come before a place."""
        for group_id in [group_id for group_id in self.objects if group_id <= upto.group]:
            objects = self.objects[group_id]
            for object_id in list(objects):
                if Location(group_id, object_id) < upto:
                    self._size -= len(objects.pop(object_id).payload)
                    self.is_thinned = True
            if not objects:
                del self.objects[group_id]

    def settled(self) -> list[Range]:
        """What is known by what has arrived so far."""
        if self.next <= self.start:
            return []
        known = [(self.start, before(self.next))]
        for span in self.unknown:
            known = without(known, span)
        return known

    def answered(self) -> list[Range]:
        """What is known by the answer: objects, and that there are no others."""
        known = [(self.start, last_of(self.answered_end))]
        for span in self.unknown:
            known = without(known, span)
        return known

    def covers(self, start: Location, end: Location) -> bool:
        """Whether a range is part of it."""
        return self.start <= start and beyond(end) <= beyond(self.end)

    def remember(self, now: float) -> None:
        """What a publisher was asked for is known: what it did not send does not exist."""
        cached = self.cached
        if self.is_thinned:
            return
        if any(item.datagram for items in self.objects.values() for item in items.values()):
            return  # how long these are of use is known only where their publisher is
        for group_id, objects in self.objects.items():
            for item in objects.values():
                cached.group(group_id, now).add_object(item, now)
        if any(group_id not in cached.groups for group_id in self.objects):
            return  # there is no room for it
        first = self.start.group + (self.start.object > 0)
        end = self.answered_end
        last = end.group if end.object == 0 else end.group - 1
        if first <= last:
            known = [(Location(first, 0), Location(last, LAST_OBJECT))]
            # A publisher that came after what was here knows nothing of it.
            for lost in cached.history.lost(known, self.objects):
                known = without(known, lost)
            for low, high in known:
                whole = low.group + (low.object > 0), high.group - (high.object < LAST_OBJECT)
                if whole[0] <= whole[1]:
                    cached.known.append(whole)
        for group_id in (self.start.group, end.group):
            group = cached.groups.get(group_id)
            if group is not None and self.start.object == 0 and end.object == 0:
                group.whole = True


class FetchedStream:
    """The stream by which another relay answers a FETCH: an `OutStream` to whoever brings it."""

    def __init__(self, fetch: UpstreamFetch) -> None:
        self.over = False
        self._fetch = fetch
        self._attempt = fetch.attempt

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        self.over = self.over or self._is_late or not self._fetch.receive(bytes(data), fin=False)
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if not (self.over or self._is_late):
            self._fetch.receive(bytes(data), fin=True)
        self.over = True
        return True

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`; what has not come is asked for again."""
        if not (self.over or self._is_late):
            self._fetch.broke_off()
        self.over = True

    @property
    def _is_late(self) -> bool:
        """Whether what it brings has been asked for again."""
        return self._attempt != self._fetch.attempt
