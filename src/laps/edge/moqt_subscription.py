"""A subscription of a MoQT client: which streams of a track it is given, in what order, and from
where on.

A subscription begins behind the largest object that was known when it was made, or later if its
filter says so. What has come since then, while its publisher was being asked, is in the cache and
is sent first; streams that are still open are joined in the middle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from laps.tracks.sinks import Cut, Translated
from laps.types import Location
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import SubgroupHeader, decode_datagram, encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    FIRST,
    UNKNOWN_STREAM_COUNT,
    FilterType,
    GroupOrder,
)
from laps.wire.moqt.object_fields import encode_object_header
from laps.wire.moqt.translate import needs_translation, translate_datagram

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import LiveStream
    from laps.tracks.track import LiveTrack
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Filter, PublishOk
    from laps.wire.quicr.messages import Fragment, Terms

# Streams that are over are forgotten when this many may be.
MANY: Final = 16

Rank = tuple[int, int, int, int]
"Subscriber's priority, publisher's priority, group in the order wanted, subgroup: smallest first."


class Sink(Protocol):
    """The connection of a subscriber."""

    @property
    def dropped_streams(self) -> int:
        """How many streams never began, for want of room."""

    def open_stream(self, rank: Rank, ttl_us: int) -> OutStream:
        """A new stream."""

    @property
    def datagram_bytes(self) -> int:
        """The largest datagram that the path takes; 0 if it takes none."""

    def send_datagram(self, data: bytes, rank: Rank, ttl_us: int) -> None:
        """Send a datagram, or lose it."""


class Delivery:
    """One client's subscription to a track."""

    takes_fragments = False
    patient = False
    "Who asks for what nobody publishes is told so."

    __slots__ = (
        "_dropped_before",
        "_filter",
        "_outs",
        "_when_established",
        "dialect",
        "end_group",
        "established",
        "forward",
        "largest",
        "on_data",
        "order",
        "priority",
        "request_id",
        "sink",
        "start",
        "streams",
        "timeout_ms",
        "track",
    )

    def __init__(
        self,
        sink: Sink,
        dialect: Dialect,
        track: LiveTrack,
        request_id: int,
        wanted: Filter,
        priority: int,
        order: GroupOrder,
        timeout_ms: int | None,
        *,
        forward: bool,
    ) -> None:
        self.sink = sink
        self.dialect = dialect
        self.track = track
        self.request_id = request_id
        self.priority = priority
        self.order = order
        self.forward = forward
        self.timeout_ms = timeout_ms
        self.largest: Location | None = None
        "What was known when it began: what a joining FETCH goes up to."
        self.start = FIRST
        self.end_group = wanted.end_group
        self.established = False
        self.on_data: Callable[[], None] | None = None
        "Called with the first stream that comes, while it is not established."
        self._when_established: list[Callable[[float], None]] = []
        self.streams = 0
        "How many have been opened for it."
        self._filter = wanted
        self._outs: list[tuple[int, OutStream]] = []
        "Those that may be open, with their groups."
        self._dropped_before = sink.dropped_streams

    @property
    def filter(self) -> Filter:
        """What it asked for."""
        return self._filter

    @property
    def stream_count(self) -> int:
        """For PUBLISH_DONE: a stream that was dropped unsent cannot be counted on."""
        lost = self.sink.dropped_streams != self._dropped_before
        return UNKNOWN_STREAM_COUNT if lost else self.streams

    # -- its beginning -----------------------------------------------------------------------------

    def establish(self, largest: Location | None) -> None:
        """The track is there: settle where the subscription begins, and send what follows that."""
        self.established = True
        self.largest = largest
        self.start = self._start(largest)
        self._catch_up()
        calls, self._when_established = self._when_established, []
        for call in calls:
            call(self.track.live.cache.now)

    def when_established(self, call: Callable[[float], None], now: float) -> None:
        """Call now, or when it is answered, for better or worse."""
        if self.established:
            call(now)
        else:
            self._when_established.append(call)

    def given_up(self, now: float) -> None:
        """It will not be established."""
        calls, self._when_established = self._when_established, []
        for call in calls:
            call(now)

    def accepted(self, answer: PublishOk) -> None:
        """The client takes the track that we offered, on its own terms."""
        self._filter = answer.filter
        self.end_group = answer.filter.end_group
        self.priority, self.forward = answer.priority, answer.forward
        self.order = answer.order or self.order
        self.timeout_ms = answer.delivery_timeout_ms

    def _start(self, largest: Location | None) -> Location:
        wanted = self._filter
        if largest is None:
            return wanted.start
        behind = Location(largest.group, largest.object + 1)
        if wanted.type is FilterType.NEXT_GROUP:
            return Location(largest.group + 1, 0)
        if wanted.type is FilterType.LARGEST_OBJECT:
            return behind
        return max(wanted.start, behind)

    def is_past(self, largest: Location | None) -> bool:
        """Whether the whole range has been published already."""
        end = self._filter.end_group
        return end is not None and largest is not None and end < largest.group

    def update(self, wanted: Filter | None, priority: int | None, forward: bool | None) -> None:
        """The subscriber has changed its mind."""
        if priority is not None:
            self.priority = priority
        streams = self.track.streams.values()
        before = [stream for stream in streams if self._passes(stream.header.group)]
        if wanted is not None:
            self._filter = wanted
            self.start = wanted.start
            self.end_group = wanted.end_group
            self._cut_off()
        if forward is not None:
            if self.forward and not forward:
                self.close()
            self.forward = forward
        if self.established:
            for stream in streams:
                if stream not in before and stream.cached is not None:
                    last = stream.cached.scan().last_object_id
                    self._join(stream.cached, 0 if last is None else last + 1)

    def started_over(self) -> None:
        """As `Subscriber`: the publisher counts from the beginning, and so do we."""
        self.start = self._filter.start

    def _catch_up(self) -> None:
        cached = self.track.cached
        for group_id in sorted(g for g in cached.groups if g >= self.start.group):
            for stream in list(cached.groups[group_id].streams):
                self._join(stream)
            for _, data in cached.groups[group_id].in_datagrams():
                self.datagram(self.track, data, decode_datagram(data, DRAFT16))

    def _join(self, cached: CachedStream, first: int = 0) -> None:
        """Send what passes of a stream that has begun, and go on with it if it is open."""
        last = cached.scan().last_object_id
        if cached.malformed or (cached.base and not cached.live):
            return  # its beginning is gone, and its end is behind us
        live = self._live(cached)
        if live is None and not cached.fin:
            return
        if cached.header.group == self.start.group:
            first = max(first, self.start.object)
        if live is None and (last is None or last < first):
            return
        subgroup = cached.subgroup if live is None else live.subgroup
        out = self._open(cached.header, subgroup, self.track_ttl_us)
        if out is None:
            return
        cut = self._cut(out, cached.header, subgroup, first)
        if cached.base:
            cut.resume(cached.scanner, cached.tail())
        else:
            for chunk in cached.chunks:
                cut.write(chunk)
        if live is None:
            cut.finish()
        else:
            live.add(cut)

    def _live(self, cached: CachedStream) -> LiveStream | None:
        for stream in self.track.streams.values():
            if stream.cached is cached:
                return stream
        return None

    # -- streams -----------------------------------------------------------------------------------

    def open(
        self, stream: LiveStream, whole: bytes, rest: bytes | memoryview, fin: bool
    ) -> OutStream | None:
        """As `Subscriber`."""
        if not self.established:
            if self.on_data is None:
                return None  # it is in the cache, and sent from there
            self.on_data()
        header = stream.header
        out = self._open(header, stream.subgroup, stream.ttl_us)
        if out is None:
            return None
        start = self.start
        first = stream.first
        if header.group == start.group:
            first = max(first, start.object)
        if first:
            out = self._cut(out, header, stream.subgroup, first)
        elif self.dialect.is_carried:
            if fin:
                out.finish(whole)
            else:
                out.write(whole)
            return out
        else:
            out.write(self._head(header))
            out = self._translated(out, header)
        if fin:
            out.finish(rest)
        elif rest:
            out.write(rest)
        return out

    def _passes(self, group: int) -> bool:
        """Whether objects of a group may be sent."""
        end = self.end_group
        return self.forward and group >= self.start.group and (end is None or group <= end)

    def _open(self, header: SubgroupHeader, subgroup: int, ttl_us: int) -> OutStream | None:
        group = header.group
        if not self._passes(group):
            return None
        self.streams += 1
        out = self.sink.open_stream(self._rank(header.priority, group, subgroup), self._ttl(ttl_us))
        if len(self._outs) > MANY:
            self._outs = [item for item in self._outs if not item[1].over]
        self._outs.append((group, out))
        return out

    def _cut(self, out: OutStream, header: SubgroupHeader, subgroup: int, first: int) -> Cut:
        body = self._translated(out, header)
        if first:  # what begins later cannot take its subgroup from the first object
            header = replace(header, subgroup=subgroup)
        return Cut(out, self._head(header), first, header.has_extensions, body)

    def _translated(self, out: OutStream, header: SubgroupHeader) -> OutStream:
        if needs_translation(DRAFT16, self.dialect, header.has_extensions):
            return Translated(out, self.dialect, header.has_extensions)
        return out

    def _head(self, header: SubgroupHeader) -> bytes:
        return encode_subgroup_header(header, self.dialect)

    def _rank(self, priority: int | None, group: int, subgroup: int) -> Rank:
        order = self.order or self.track.properties.order
        place = -group if order is GroupOrder.DESCENDING else group
        return self.priority, DEFAULT_PRIORITY if priority is None else priority, place, subgroup

    @property
    def track_ttl_us(self) -> int:
        """How long the publisher wants objects to be tried."""
        return (self.track.properties.delivery_timeout_ms or 0) * 1000

    def _ttl(self, ttl_us: int) -> int:
        """The shorter of the publisher's and the subscriber's own; 0 is for ever."""
        mine = (self.timeout_ms or 0) * 1000
        return min(mine, ttl_us) if mine and ttl_us else mine or ttl_us

    # -- datagrams ---------------------------------------------------------------------------------

    def datagram(self, track: LiveTrack, data: bytes, item: DatagramObject) -> None:
        """As `Subscriber`."""
        if not self.established:
            if self.on_data is None:
                return
            self.on_data()
        group, object_id = item.group, item.object_id
        if not self._passes(group) or Location(group, object_id) < self.start:
            return
        if len(data) > self.sink.datagram_bytes:
            self._send_large(item)
            return
        if not self.dialect.is_carried:
            translated = translate_datagram(data, DRAFT16, self.dialect, track.alias)
            if translated is None:
                return
            data = translated
        rank = self._rank(item.priority, group, object_id)
        self.sink.send_datagram(data, rank, self._ttl(self.track_ttl_us))

    def _send_large(self, item: DatagramObject) -> None:
        """An object that came in several datagrams, on a stream of its own: MoQT has no pieces."""
        extensions = item.extensions
        header = SubgroupHeader(
            self.track.alias,
            item.group,
            item.object_id,
            item.priority,
            has_extensions=bool(extensions),
        )
        out = self._open(header, item.object_id, self.track_ttl_us)
        if out is not None:
            out.write(self._head(header))
            body = self._translated(out, header)
            head = encode_object_header(
                item.object_id, extensions, len(item.payload), 0, header.has_extensions
            )
            body.write(head)
            body.finish(item.payload)

    def fragments(
        self, track: LiveTrack, fragments: list[Fragment], terms: Terms, data: bytes
    ) -> None:
        """As `Subscriber`: it is given whole objects."""

    # -- its end -----------------------------------------------------------------------------------

    def close(self, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Give up every stream that is open."""
        outs, self._outs = self._outs, []
        for _, out in outs:
            if not out.over:
                out.reset(code)

    def _cut_off(self) -> None:
        """Streams outside of a narrowed range are given up."""
        for group, out in self._outs:
            outside = self.end_group is not None and group > self.end_group
            if (outside or group < self.start.group) and not out.over:
                out.reset(ResetCode.CANCELLED)
