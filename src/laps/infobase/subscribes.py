"""The subscribe information base: who, on which node, wants which track.

A subscribe is known by its source node and the hash of its track. The source counts what it says
of it, and only what is newer than the last word is taken: so a word that arrives by two ways
counts once, and an old one that arrives late does not undo a new one. That holds for a while
after a withdraw too, and ends when the source itself is gone and starts anew.

    source -> track -> record         what is not the same in all of a namespace (`records`)
    track -> sources                  most tracks have one
    namespace -> tracks               what an announce has to be compared with

Every relay holds all subscribes of the network, so what one costs decides how large a network
can be. A million from 1,000 nodes, with 80 bytes of data each, take, by how they are kept:

    SubscribeInfo in a dict of pairs, two sets for the indexes     861 MB    3.7 s
    SubscribeInfo in a dict for each source                        759 MB    2.7 s
    slotted entries, a set only for tracks of several sources      420 MB    1.8 s
    a bytes object with all the data, in a dict for each source    279 MB    1.5 s

These are the tables alone. With all that `add` does, `laps bench infobase` measures, of which every
subscribe is of a track of its own, or all nodes want the same tracks:

                                                  own tracks          shared tracks
    bytes objects in `Table`s      1 million      306 MB    4.8 s     264 MB    2.6 s
    records in `Packed`, as above  1 million       82 MB   11.1 s      48 MB    6.5 s
    the same                      20 million    1,576 MB    262 s     930 MB    159 s

That is at most 82 bytes for a subscribe, and 48. Half of it is what differs: the hash of the
track, twice, the source, the request id, and the name. Where each subscribe has a namespace of its
own, or a token of its own in the message, that is kept for it alone, and it takes 250 to 280 bytes.
A node that wants anything takes 550 bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from laps.infobase.records import Records, sequence_of
from laps.infobase.sequences import SequenceCounters, Sequences
from laps.packed import Packed
from laps.packed_sets import PackedSets
from laps.types import NodeId, TrackKey, sequence_newer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.types import SubscribeInfo, TrackHash

# A word is on its way no longer than a peer may be silent, 30 s, before its session is given up
# and with it what was under way. Twice that, for one that was held up at two relays.
RETENTION_S: Final = 60.0

# 250 bytes each: what is withdrawn by the whole network within the minute, and no more than this.
MAX_WITHDRAWN: Final = 500_000

# A Via only has to stop what goes round in circles: the retention is the time a flood takes to
# end, seconds, and not that of a relay that keeps subscribes and would resurrect one.
SEEN_RETENTION_S: Final = 30.0
MAX_SEEN: Final = 200_000


@dataclass(frozen=True, slots=True)
class SubscribeChange:
    """A word about a subscribe that is news, and has to be passed on."""

    info: SubscribeInfo
    added: bool
    """False: withdrawn."""
    first: bool
    """No other source had the track before it was added, or has it after it was withdrawn."""


class Subscribes:
    """Every subscribe of the network, by source and by track."""

    def __init__(self) -> None:
        self.counters = SequenceCounters()
        self._made = Records()
        self._records: dict[NodeId, Packed] = {}
        self._latest: tuple[NodeId, TrackKey, bytes | None] | None = None
        "What was looked up last: several look up what one message is about, one after another."
        self._sources = PackedSets()
        "By track, those that are being purged too."
        self._namespaces = PackedSets()
        "The tracks of each."
        self._withdrawn: Sequences[TrackKey] = Sequences(RETENTION_S, MAX_WITHDRAWN, self.counters)
        self._count = 0
        self._purging: deque[tuple[NodeId, Packed]] = deque()
        "What nodes wanted that are gone, as far as the indexes still have it."

    # -- what is said ----------------------------------------------------------------------------

    def add(self, info: SubscribeInfo, now: float) -> SubscribeChange | None:
        """A subscribe, or a newer form of one; None if it is no news."""
        source, hashes = info.source_node_id, info.track_hash
        track = hashes.full_name_hash
        self._withdrawn.expire(now)
        record = self._record(source, track)
        held = sequence_of(record) if record else self._withdrawn.get(source, track)
        # A node that is restarted within a second begins with the number it took leave with: of
        # the two words the advertisement is the later one.
        again = record is None and info.sequence == held
        if held is not None and not again and not sequence_newer(info.sequence, held):
            self.counters.duplicates += 1
            return None
        made = self._made.pack(info)
        self._latest = source, track, made
        if record is not None:
            self._records[source].replace(track, made)
            self._made.release(record)
            return SubscribeChange(info, added=True, first=False)
        if (records := self._records.get(source)) is None:
            records = self._records[source] = Packed()
        records.insert(track, made)
        if held is not None:
            self._withdrawn.forget(source, track)
        self._count += 1
        first = self._index(source, track, hashes.namespace_hash)
        return SubscribeChange(info, added=True, first=first)

    def withdraw(self, info: SubscribeInfo, now: float) -> SubscribeChange | None:
        """A subscribe is over; None if that is no news.

        It is news, to be passed on, also where the subscribe itself never arrived.
        """
        source, track = info.source_node_id, info.track_hash.full_name_hash
        self._withdrawn.expire(now)
        record = self._record(source, track)
        held = sequence_of(record) if record else self._withdrawn.get(source, track)
        if held is not None and not sequence_newer(info.sequence, held):
            self.counters.duplicates += 1
            return None
        self._withdrawn.keep(source, track, info.sequence, now)
        return SubscribeChange(info, added=False, first=self.forget(source, track))

    def forget(self, source: NodeId, track: TrackKey) -> bool:
        """Hold one no longer, though it may go on; whether no other source has the track now."""
        record = self._record(source, track)
        if record is None:
            return False
        self._latest = None
        self._count -= 1
        records = self._records[source]
        records.pop(track)
        if not records:
            del self._records[source]
        first = self._unindex(source, track, record)
        if self._purging and not first:
            first = not self._is_held(track)
        self._made.release(record)
        return first

    def purge_source(self, node_id: NodeId) -> None:
        """A node is gone, and all its subscribes; whatever it says when it is back is taken.

        It may have wanted a million tracks: `purged` tells which they are, some at a time.
        """
        self._withdrawn.forget_source(node_id)
        self._latest = None
        if records := self._records.pop(node_id, None):
            self._count -= len(records)
            self._purging.append((node_id, records))

    def purged(self, most: int) -> list[tuple[NodeId, TrackHash]]:
        """Some of what nodes that are gone had wanted, and have not come back for."""
        found: list[tuple[NodeId, TrackHash]] = []
        while self._purging and len(found) < most:
            source, records = self._purging[0]
            if not records:
                self._purging.popleft()
                continue
            key, record = records.popitem()
            track = TrackKey(key)
            if not self.holds(source, track):
                self._unindex(source, track, record)
                found.append((source, self._made.hashes(track, record)))
            self._made.release(record)
        while self._purging and not self._purging[0][1]:
            self._purging.popleft()
        return found

    @property
    def is_purging(self) -> bool:
        """Whether `purged` has more to tell."""
        return bool(self._purging)

    def expire(self, now: float) -> None:
        """Forget what was withdrawn long enough ago."""
        self._withdrawn.expire(now)

    @property
    def next_expiry(self) -> float | None:
        """When `expire` has something to do, or None."""
        return self._withdrawn.next_expiry

    # -- what is known ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SubscribeInfo]:
        """Every subscribe, those of one source after another."""
        for source in tuple(self._records):
            yield from self.of_source(source)

    def keys(self) -> Iterator[tuple[NodeId, TrackKey]]:
        """The source and the track of every subscribe; the table may change meanwhile."""
        for source in tuple(self._records):
            for track in self._records.get(source, ()):
                yield source, TrackKey(track)

    def get(self, source: NodeId, full_name_hash: TrackKey) -> SubscribeInfo | None:
        """The subscribe of a source to a track."""
        record = self._record(source, full_name_hash)
        return None if record is None else self._made.unpack(source, full_name_hash, record)

    def holds(self, source: NodeId, full_name_hash: TrackKey) -> bool:
        """Whether a source wants a track."""
        return self._record(source, full_name_hash) is not None

    def track_hash(self, full_name_hash: TrackKey) -> TrackHash | None:
        """The hashes of a track that is wanted."""
        for source in self._sources.get(full_name_hash):
            record = self._record(NodeId(source), full_name_hash)
            if record is not None:
                return self._made.hashes(full_name_hash, record)
        return None

    def sequence(self, source: NodeId, full_name_hash: TrackKey) -> int | None:
        """The last sequence seen, also of what was withdrawn lately."""
        record = self._record(source, full_name_hash)
        if record is None:
            return self._withdrawn.get(source, full_name_hash)
        return sequence_of(record)

    def sources(self, full_name_hash: TrackKey) -> frozenset[NodeId]:
        """The nodes that want a track."""
        sources = cast("frozenset[NodeId]", self._sources.whole(full_name_hash))
        if self._purging:
            sources = frozenset(it for it in sources if self.holds(it, full_name_hash))
        return sources

    def wants(self, namespace_hash: int) -> bool:
        """Whether any track of a namespace is wanted."""
        return namespace_hash in self._namespaces

    def in_namespace(self, namespace_hash: int) -> Iterator[TrackKey]:
        """The tracks of a namespace that are wanted; the table may change meanwhile."""
        return map(TrackKey, self._namespaces.get(namespace_hash))

    def count(self, source: NodeId) -> int:
        """How many tracks a node wants."""
        return len(self._records.get(source, ()))

    def of(self, source: NodeId) -> Iterator[TrackKey]:
        """The full name hashes of the tracks that a node wants; the table may change meanwhile."""
        return map(TrackKey, self._records.get(source, ()))

    def of_source(self, node_id: NodeId) -> Iterator[SubscribeInfo]:
        """What a node wants; the table may change meanwhile."""
        records = self._records.get(node_id)
        for track, record in () if records is None else records.items():
            yield self._made.unpack(node_id, TrackKey(track), record)

    def tracks(self) -> Iterator[TrackKey]:
        """The full name hash of every track that is wanted now."""
        purging = self.is_purging
        for track in map(TrackKey, self._sources):
            if not purging or self._is_held(track):
                yield track

    # -- how it works ----------------------------------------------------------------------------

    def _record(self, source: NodeId, track: TrackKey) -> bytes | None:
        latest = self._latest
        if latest is not None and latest[1] == track and latest[0] == source:
            return latest[2]
        records = self._records.get(source)
        record = None if records is None else records.get(track)
        self._latest = source, track, record
        return record

    def _index(self, source: NodeId, track: TrackKey, namespace_hash: int) -> bool:
        """Whether the track had no source before."""
        is_new = self._sources.add(track, source)
        if is_new:
            self._namespaces.add(namespace_hash, track)
        return is_new or (bool(self._purging) and not self._is_held(track, besides=source))

    def _unindex(self, source: NodeId, track: TrackKey, record: bytes) -> bool:
        """Whether the track has no source any more, nor any that is being purged."""
        is_last = self._sources.discard(track, source)
        if is_last:
            self._namespaces.discard(self._made.namespace_hash(record), track)
        return is_last

    def _is_held(self, track: TrackKey, besides: NodeId | None = None) -> bool:
        """Whether a source wants a track that is not being purged, or has come back for it."""
        sources = map(NodeId, self._sources.get(track))
        return any(it != besides and self.holds(it, track) for it in sources)


class SeenSubscribes:
    """The subscribes that went by a relay that keeps none of them, so that none goes by twice."""

    def __init__(self) -> None:
        self.counters = SequenceCounters()
        self._seen: Sequences[TrackKey] = Sequences(SEEN_RETENTION_S, MAX_SEEN, self.counters)

    def sequence(self, source: NodeId, full_name_hash: TrackKey) -> int | None:
        """The last sequence seen, not long ago."""
        return self._seen.get(source, full_name_hash)

    def seen(self, info: SubscribeInfo, now: float) -> bool:
        """Whether a word, advertisement or withdraw, is old news; if not, it is from now on."""
        self._seen.expire(now)
        source, track = info.source_node_id, info.track_hash.full_name_hash
        held = self._seen.get(source, track)
        if held is not None and not sequence_newer(info.sequence, held):
            self.counters.duplicates += 1
            return True
        self._seen.keep(source, track, info.sequence, now)
        return False

    def purge_source(self, node_id: NodeId) -> None:
        """A node is gone; whatever it says when it is back is news."""
        self._seen.forget_source(node_id)
