"""Tracks as they pass a relay with clients: each stream once into the cache, and once to each.

    DataPlane -> LiveStream -> the cache, and an outlet for each subscriber

A track knows, when a stream begins, whether another publisher has sent the same already, and
whether a publisher has begun anew. Datagrams it hands out itself.

Between relays a track's streams are those of draft 16, under the alias that every relay makes from
the track's name. Bytes that are not are passed on to plain clients as they are, and not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.tracks.cache import Cache, CachedTrack
from laps.tracks.meter import Meter
from laps.tracks.reassembly import TrackFragments
from laps.tracks.streams import SILENT_S
from laps.tracks.subscribers import PlainSubscriber
from laps.types import Location, track_alias
from laps.wire.moqt.codes import MoqtViolation, ResetCode
from laps.wire.moqt.data import decode_datagram, encode_datagram
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import TrackProperties
from laps.wire.quicr.carried import carried_of
from laps.wire.quicr.codes import QuicrViolation
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from laps.routing.forwarding import Flow
    from laps.tracks.cache import CachedGroup, CacheLimits
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.history import Past
    from laps.tracks.ports import Client
    from laps.tracks.streams import LiveStream
    from laps.tracks.subscribers import Subscriber
    from laps.types import NodeId, TrackHash, TrackName
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.quicr.messages import Fragment, Terms

# A track that is gone has some hundred bytes left.
MAX_PASTS: Final = 10_000

# The same stream may come by two ways of different length, this much apart.
RECENT_S: Final = 2.0


@dataclass(slots=True)
class LiveCounters:
    """What became of streams, for the operator."""

    duplicates: int = 0
    "Streams that another publisher had sent already."
    opaque: int = 0
    "Streams that are not MoQT's."
    started_over: int = 0
    malformed_fragments: int = 0
    "Fragments that cannot be of the object they name: past its end, or without end."
    lost_objects: int = 0
    "Objects of which fragments were missing for too long, or that made room for others."


class LiveTrack:
    """A track that is published or wanted here."""

    def __init__(self, live: Live, track: TrackHash, name: TrackName | None) -> None:
        self.live = live
        self.hash = track
        self.name = name
        self.alias = track_alias(track.full_name_hash)
        self.cached = CachedTrack(live.cache, live.pasts.pop(track.full_name_hash, None))
        key = track.full_name_hash
        self.meter = live.transit.pop(key) if key in live.transit else Meter(key, live.cache.now)
        self.subscribers: dict[Hashable, Subscriber] = {}
        self.streams: dict[tuple[int, int], LiveStream] = {}
        "Those that are open, by group and subgroup."
        self.properties = TrackProperties()
        self.sources: dict[Hashable, int] = {}
        "Who has sent streams, and the smallest group of each."
        self.left = False
        "Somebody who has is gone: whoever comes next may start over."
        self.pins = 0
        "Publishers that may send it, and ranges asked for: with any it is not forgotten."
        self.joining: dict[NodeId, float] = {}
        "Nodes that have joined a set others are in, and until when relays may not know of it."
        self.fragments: TrackFragments | None = None
        "What came in fragments and is not whole, if anything did."
        self.final: Location | None = None
        "Where it ended, as a publisher that is gone has said beside the objects."
        self.idle: list[Callable[[], None]] = []
        "To be called when no stream is open any more."

    def largest(self) -> Location | None:
        """The largest location seen."""
        return self.cached.largest()

    def describe(self, properties: TrackProperties) -> None:
        """What a publisher says of the track."""
        self.properties = properties
        limit = self.live.cache.limits.age_s
        if properties.max_cache_ms is not None:
            limit = min(limit, properties.max_cache_ms / 1000)
        self.cached.max_age_s = limit

    def ended_at(self) -> Location | None:
        """Where the track ends, if its publisher has said so."""
        if self.final is not None:
            return self.final
        top = max(self.cached.groups, default=None)
        if top is None:
            return None
        end = self.cached.groups[top].end_of_track()
        return None if end is None else Location(top, end)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call now, or when the last open stream has ended."""
        if self.streams:
            self.idle.append(call)
        else:
            call()

    def begin(self, stream: LiveStream) -> bool:
        """A stream has a header: False if it is one that came before."""
        key = stream.header.group, stream.subgroup
        if stream.source not in self.sources:
            self._new_source(stream)
        other = self.streams.get(key)
        if other is not None and other.source != stream.source:
            if not other.is_silent():
                return False
            # A publisher that is back sends it again; its old connection is not known to be dead.
            other.reset(ResetCode.SESSION_CLOSED)
        group = self.cached.groups.get(stream.header.group)
        if group is not None and any(self._is_again(stream, cached) for cached in group.streams):
            return False
        self.streams[key] = stream
        stream.first = self._broken_off(stream)
        if isinstance(stream.source, tuple):  # from another relay
            self.cached.past.partial = True
        return True

    def _is_again(self, stream: LiveStream, cached: CachedStream) -> bool:
        """Whether a stream is one that another source has sent to its end.

        A publisher that is gone may begin anew with the same numbers. A flow from another relay may
        be gone as soon as its stream has ended, and the same come by another way a little later.
        """
        if not cached.fin or cached.source == stream.source or cached.subgroup != stream.subgroup:
            return False
        if self.live.is_source(cached.source):
            return True
        recent = self.live.cache.now - cached.touched < RECENT_S
        return recent and isinstance(cached.source, tuple)

    def _broken_off(self, stream: LiveStream) -> int:
        """The object to go on with, where the same subgroup came before and broke off."""
        group = self.cached.groups.get(stream.header.group)
        first = 0
        for cached in () if group is None else group.streams:
            if cached.live or cached.fin or cached.subgroup != stream.subgroup:
                continue
            first = max(first, cached.scan().complete_id + 1)
        return first

    def ended(self, stream: LiveStream) -> None:
        """A stream is over."""
        key = stream.header.group, stream.subgroup
        if self.streams.get(key) is stream:
            del self.streams[key]
        if not self.streams and self.idle:
            calls, self.idle = self.idle, []
            for call in calls:
                call()

    def _new_source(self, stream: LiveStream) -> None:
        """Somebody begins to publish; perhaps anew, with groups that have been."""
        alive = self.live.is_source
        for source in [source for source in self.sources if not alive(source)]:
            del self.sources[source]
            self.left = True
        over = self.left and not self.sources
        self.left = False
        largest = self.largest()
        if over and largest is not None and stream.header.group < largest.group:
            self._start_over()
        self.sources[stream.source] = stream.header.group

    def _start_over(self) -> None:
        """What was here is of no use any more: its numbers mean something else."""
        self.live.counters.started_over += 1
        self.cached.clear()
        if self.fragments is not None:
            self.live.fragment_bytes -= self.fragments.size
            self.fragments.clear()
        for subscriber in list(self.subscribers.values()):
            subscriber.started_over()

    def datagram(self, data: bytes, exclude: Client | None) -> int | None:
        """An object in a datagram, for all; how many it went to, None if it came before."""
        try:
            item = decode_datagram(data, DRAFT16)
        except MoqtViolation:
            item = None
        if item is None or item.alias != self.alias:
            self.live.counters.opaque += 1
            plain = [s for s in self.subscribers.values() if isinstance(s, PlainSubscriber)]
            for receiver in plain:
                if receiver.client is not exclude:
                    receiver.client.send_datagram(self.hash, data, 0)
            return len(plain)
        group = self.cached.groups.get(item.group)
        carried = carried_of(item) if item.extensions else None
        if group is not None and item.object_id in group.datagrams:
            offset = 0 if carried is None else carried[0].offset
            if not self._begins_anew(group, item, offset):
                self.live.counters.duplicates += 1
                return None
            self._start_over()
        if carried is not None:
            return self._fragment(data, item, *carried, exclude)
        self.cached.saw(Location(item.group, item.object_id))
        for key, subscriber in list(self.subscribers.items()):
            if key is not exclude:
                subscriber.datagram(self, data, item)
        self.cached.group(item.group).add_datagram(item.object_id, data)
        return len(self.subscribers)

    def _begins_anew(self, group: CachedGroup, item: DatagramObject, offset: int) -> bool:
        """Whether a publisher has begun again with the same numbers, and something else in them.

        The first object of a group tells. What came just now is not looked at: of two who publish
        different things at once, neither is to take the place of the other in turns.
        """
        came, data = group.datagrams[item.object_id]
        if item.object_id or self.live.cache.now < came + SILENT_S:
            return False
        known = decode_datagram(data, DRAFT16).payload
        return bytes(known[offset : offset + len(item.payload)]) != bytes(item.payload)

    def _fragment(
        self,
        data: bytes,
        item: DatagramObject,
        fragment: Fragment,
        terms: Terms,
        exclude: Client | None,
    ) -> int | None:
        """A fragment of an object: it is passed on at once, and the object when it is whole."""
        live = self.live
        now = live.cache.now
        if self.fragments is None:
            self.fragments = TrackFragments(live.fragment_limit)
        given_up = self.fragments.reassembler.given_up
        before = self.fragments.size
        try:
            new, payload, terms = self.fragments.add(fragment, terms, now)
        except QuicrViolation:
            live.counters.malformed_fragments += 1
            return None
        finally:
            live.fragment_bytes += self.fragments.size - before
            live.counters.lost_objects += self.fragments.reassembler.given_up - given_up
        live.bound_fragments(self)
        if not new:
            live.counters.duplicates += 1
            return None
        self.cached.saw(Location(item.group, item.object_id))
        whole = None
        if payload is not None:
            item.payload, item.extensions = payload, b""
            whole = encode_datagram(item, DRAFT16)
        for key, subscriber in list(self.subscribers.items()):
            if key is exclude:
                continue
            if subscriber.takes_fragments:
                subscriber.fragments(self, new, terms, data)
            elif whole is not None:
                subscriber.datagram(self, whole, item)
        if whole is not None:
            until = now + terms.best_before_ms / 1000 if terms.best_before_ms else None
            self.cached.group(item.group).add_datagram(item.object_id, whole, until)
        return len(self.subscribers)


class Live:
    """The tracks that pass a relay with clients."""

    def __init__(self, limits: CacheLimits, is_source: Callable[[Hashable], bool]) -> None:
        """`is_source` tells whether a source may still send."""
        self.cache = Cache(limits)
        self.counters = LiveCounters()
        self.is_source = is_source
        self.began: Callable[[LiveStream, bool], None] | None = None
        "Told of each stream that begins while nodes are joining its track; and whether it ended."
        self.fetched: Callable[[int, bytes, bool], bool] | None = None
        "Takes other relays' answers to FETCH: a request id, bytes, whether they are the last."
        self.tracks: dict[int, LiveTrack] = {}
        self.pasts: OrderedDict[int, Past] = OrderedDict()
        "What was let go of tracks that are forgotten, by their hashes."
        self.transit: dict[int, Meter] = {}
        "Tracks that pass between peers and nobody here has to do with, by their hashes."
        self.moved: dict[Meter, None] | None = None
        "Those that have carried something since it was last looked at; None: nobody looks."
        self.fragment_limit = max(limits.total_bytes // 8, 2 * MAX_OBJECT_BYTES)
        self.fragment_bytes = 0
        "What is held of objects that are not whole, of all tracks."

    def track(self, track: TrackHash, name: TrackName | None = None) -> LiveTrack:
        """The track, made if it is not there."""
        found = self.tracks.get(track.full_name_hash)
        if found is None:
            found = self.tracks[track.full_name_hash] = LiveTrack(self, track, name)
        elif found.name is None:
            found.name = name
        return found

    def get(self, full_name_hash: int) -> LiveTrack | None:
        """The track, if it is there."""
        return self.tracks.get(full_name_hash)

    def changed(self, track: LiveTrack) -> None:
        """Somebody came or left: there is something to tell of a track."""
        if self.moved is not None:
            self.moved[track.meter] = None

    def meter(self, full_name_hash: int, flow: Flow) -> Meter | None:
        """What counts a track that comes from a peer by a flow; None if nobody looks."""
        if self.moved is None:
            return None
        track = self.tracks.get(full_name_hash)
        meter = self.transit.get(full_name_hash) if track is None else track.meter
        if meter is None:
            meter = self.transit[full_name_hash] = Meter(full_name_hash, self.cache.now)
        meter.flows[flow] = None
        return meter

    def expire(self, now: float) -> None:
        """Forget what is too old, and tracks that nothing is left of."""
        self.cache.expire(now)
        for key, track in list(self.tracks.items()):
            if track.fragments is not None:
                before = track.fragments.size
                self.counters.lost_objects += track.fragments.expire(now)
                self.fragment_bytes += track.fragments.size - before
                if track.fragments.size:
                    continue
            if not (track.subscribers or track.streams or track.pins or track.cached.groups):
                del self.tracks[key]
                if track.cached.past.begin is not None:
                    self.pasts[key] = track.cached.past
        while len(self.pasts) > MAX_PASTS:
            self.pasts.popitem(last=False)

    def others_offer(self, full_name_hash: int | None) -> None:
        """Another relay has publishers of a track, or of many: some of it may not come here."""
        keys = list(self.tracks) if full_name_hash is None else [full_name_hash]
        for key in keys:
            if (track := self.tracks.get(key)) is not None:
                track.cached.past.partial = True
        for key in self.pasts if full_name_hash is None else keys:
            if key in self.pasts:
                self.pasts[key].partial = True

    def bound_fragments(self, track: LiveTrack) -> None:
        """Where all tracks together hold too much, who brings more gives up its oldest."""
        fragments = track.fragments
        while fragments is not None and self.fragment_bytes > self.fragment_limit:
            reassembler = fragments.reassembler
            if not reassembler.open:
                return
            before = reassembler.size
            reassembler.forget(next(iter(reassembler.open)))
            self.fragment_bytes += reassembler.size - before
            self.counters.lost_objects += 1
