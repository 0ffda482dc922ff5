"""A subscription of a MoQT client: which streams of a track it is given, in what order, and from
where on.

A subscription begins after the largest object that was known when it was made, or later if its
filter says so. What has arrived since then, while its publisher was being asked, is in the cache
and is sent first; streams that are still open are joined in the middle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeSubscription
from laps.tracks.sinks import Cut, Translated
from laps.tracks.subscription import ESTABLISHED
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation, ResetCode, SessionCode
from laps.wire.moqt.data import SubgroupHeader, decode_datagram, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    FIRST,
    UNKNOWN_STREAM_COUNT,
    Filter,
    FilterType,
    GroupOrder,
)
from laps.wire.moqt.object_fields import encode_object_header
from laps.wire.moqt.translate import needs_translation, translate_datagram

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient, Rank
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import IncomingStream
    from laps.tracks.subscription import SubscriptionState
    from laps.tracks.track import Track
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Fetch, PublishOk, RequestUpdate

# Streams that are closed are forgotten when this many may be.
MANY: Final = 16


class MoqtSubscription(EdgeSubscription):
    """One client's subscription to a track."""

    __slots__ = (
        "_dropped_before",
        "_end_group",
        "_filter",
        "_outs",
        "dialect",
        "forward",
        "joining",
        "largest",
        "link",
        "order",
        "priority",
        "start",
        "streams",
        "timeout_ms",
    )

    def __init__(
        self,
        client: EdgeClient,
        dialect: Dialect,
        track: Track,
        request_id: int,
        wanted: Filter,
        priority: int,
        order: GroupOrder,
        timeout_ms: int | None,
        state: SubscriptionState,
        *,
        forward: bool,
    ) -> None:
        super().__init__(client, track, request_id, state)
        self.link = client.link
        self.dialect = dialect
        self.priority = priority
        self.order = order
        self.forward = forward
        self.timeout_ms = timeout_ms
        self.largest: Location | None = None
        "What was known when it began: what a joining FETCH goes up to."
        self.joining: list[Fetch] = []
        "Joining FETCHes that wait until it is answered."
        self.start = FIRST
        self.streams = 0
        "How many have been opened for it."
        self._filter = wanted
        self._end_group = wanted.end_group
        self._outs: list[tuple[int, OutStream]] = []
        "Those that may be open, with their groups."
        self._dropped_before = self.link.dropped_streams

    @property
    def end_group(self) -> int | None:
        """As `Subscription.end_group`."""
        return self._end_group

    @property
    def filter(self) -> Filter:
        """What it asked for."""
        return self._filter

    @property
    def stream_count(self) -> int:
        """For PUBLISH_DONE: a stream that was dropped unsent cannot be counted on."""
        lost = self.link.dropped_streams != self._dropped_before
        return UNKNOWN_STREAM_COUNT if lost else self.streams

    # -- its beginning -----------------------------------------------------------------------------

    def begin(self, largest: Location | None, now: float) -> None:
        """It is established: settle where it begins, and send what follows that."""
        self.largest = largest
        self.start = self._start(largest)
        self._catch_up(now)

    def take_joining(self) -> list[Fetch]:
        """The FETCHes that waited for its answer."""
        joining, self.joining = self.joining, []
        return joining

    def accepted(self, answer: PublishOk) -> None:
        """The client takes the track that we offered, on its own terms."""
        self._filter = answer.filter
        self._end_group = answer.filter.end_group
        self.priority, self.forward = answer.priority, answer.forward
        self.order = answer.order or self.order
        self.timeout_ms = answer.delivery_timeout_ms

    def _start(self, largest: Location | None) -> Location:
        wanted = self._filter
        if largest is None:
            return wanted.start
        following = Location(largest.group, largest.object + 1)
        if wanted.type is FilterType.NEXT_GROUP:
            return Location(largest.group + 1, 0)
        if wanted.type is FilterType.LARGEST_OBJECT:
            return following
        return max(wanted.start, following)

    def is_past(self, largest: Location | None) -> bool:
        """Whether the whole range has been published already."""
        end = self._filter.end_group
        return end is not None and largest is not None and end < largest.group

    def update(self, message: RequestUpdate, now: float) -> None:
        """The subscriber has changed its mind."""
        wanted, forward = message.filter, message.forward
        if wanted is not None and not self.dialect.updates_may_widen:
            self._check_narrowed(wanted)
        if message.delivery_timeout_ms is not None:
            self.timeout_ms = message.delivery_timeout_ms
        if message.priority is not None:
            self.priority = message.priority
        streams = self.track.streams.values()
        before = [stream for stream in streams if self._passes(stream.header.group)]
        if wanted is not None:
            self._filter = wanted = _absolute(wanted, self.track.largest())
            self.start = wanted.start
            self._end_group = wanted.end_group
            self._cut_off(now)
        if forward is not None:
            if self.forward and not forward:
                self.close(now)
            self.forward = forward
        if self.is_established:
            for stream in streams:
                if stream not in before and stream.cached is not None:
                    last = stream.cached.scan().last_object_id
                    self._join(stream.cached, now, 0 if last is None else last + 1)

    def _check_narrowed(self, wanted: Filter) -> None:
        """Some drafts let a subscription become smaller only."""
        end = self._end_group
        wider = end is not None and (wanted.end_group is None or wanted.end_group > end)
        if wider or (wanted.start < self._filter.start):
            raise MoqtViolation(
                SessionCode.PROTOCOL_VIOLATION, "SUBSCRIBE_UPDATE widens the subscription"
            )

    def started_over(self) -> None:
        """As `Subscription.started_over`: the publisher counts anew, and so do we."""
        self.start = self._filter.start

    def _catch_up(self, now: float) -> None:
        cached = self.track.cached
        for group_id in sorted(g for g in cached.groups if g >= self.start.group):
            for stream in list(cached.groups[group_id].streams):
                self._join(stream, now)
            for _, data in cached.groups[group_id].in_datagrams(now):
                self.datagram(data, decode_datagram(data, BETWEEN_RELAYS), now)

    def _join(self, cached: CachedStream, now: float, first: int = 0) -> None:
        """Send what passes of a stream that has begun, and go on with it if it is open."""
        last = cached.scan().last_object_id
        if cached.malformed or (cached.base and not cached.live):
            return  # its beginning is gone, and it has ended
        live = self._live(cached)
        if live is None and not cached.fin:
            return
        if cached.header.group == self.start.group:
            first = max(first, self.start.object)
        if live is None and (last is None or last < first):
            return
        subgroup = cached.subgroup if live is None else live.subgroup
        ttl_us = self.track_ttl_us if live is None else live.ttl_us
        out = self._open(cached.header, subgroup, ttl_us)
        if out is None:
            return
        cut = self._cut(out, cached.header, subgroup, first)
        if cached.base:
            cut.resume(cached.scanner, cached.tail())
        else:
            for chunk in cached.chunks:
                cut.write(chunk, now)
        if live is None:
            cut.finish(b"", now)
        else:
            live.add(cut)

    def _live(self, cached: CachedStream) -> IncomingStream | None:
        for stream in self.track.streams.values():
            if stream.cached is cached:
                return stream
        return None

    # -- streams -----------------------------------------------------------------------------------

    def open(
        self,
        stream: IncomingStream,
        whole: bytes,
        rest: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> OutStream | None:
        """As `Subscription.open`."""
        if self._state is not ESTABLISHED and self.is_kept_for_later():
            return None
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
                out.finish(whole, now)
            else:
                out.write(whole, now)
            return out
        else:
            out.write(self._head(header), now)
            out = self._translated(out, header)
        if fin:
            out.finish(rest, now)
        elif rest:
            out.write(rest, now)
        return out

    def _passes(self, group: int) -> bool:
        """Whether objects of a group may be sent."""
        end = self._end_group
        return self.forward and group >= self.start.group and (end is None or group <= end)

    def _open(self, header: SubgroupHeader, subgroup: int, ttl_us: int) -> OutStream | None:
        group = header.group
        if not self._passes(group):
            return None
        self.streams += 1
        out = self.link.open_stream(self._rank(header.priority, group, subgroup), self._ttl(ttl_us))
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
        if needs_translation(BETWEEN_RELAYS, self.dialect, header.has_extensions):
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

    def datagram(self, data: bytes, item: DatagramObject, now: float) -> None:
        """As `Subscription.datagram`."""
        if self._state is not ESTABLISHED and self.is_kept_for_later():
            return
        group, object_id = item.group, item.object_id
        if not self._passes(group) or Location(group, object_id) < self.start:
            return
        if len(data) > self.link.datagram_bytes:
            self._send_large(item, now)
            return
        if not self.dialect.is_carried:
            translated = translate_datagram(data, BETWEEN_RELAYS, self.dialect, self.track.alias)
            if translated is None:
                return
            data = translated
        rank = self._rank(item.priority, group, object_id)
        self.link.send_datagram(data, rank, self._ttl(self.track_ttl_us))

    def _send_large(self, item: DatagramObject, now: float) -> None:
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
            out.write(self._head(header), now)
            body = self._translated(out, header)
            head = encode_object_header(
                item.object_id, extensions, len(item.payload), 0, header.has_extensions
            )
            body.write(head, now)
            body.finish(item.payload, now)

    # -- its end -----------------------------------------------------------------------------------

    def close(self, now: float, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Give up every stream that is open."""
        outs, self._outs = self._outs, []
        for _, out in outs:
            if not out.over:
                out.reset(code, now)

    def _cut_off(self, now: float) -> None:
        """Streams outside of a narrowed range are given up."""
        for group, out in self._outs:
            outside = self._end_group is not None and group > self._end_group
            if (outside or group < self.start.group) and not out.over:
                out.reset(ResetCode.CANCELLED, now)


def _absolute(wanted: Filter, largest: Location | None) -> Filter:
    """A filter of an update, with where it begins by now."""
    if wanted.type is FilterType.LARGEST_OBJECT and largest is not None:
        return Filter(FilterType.ABSOLUTE_START, Location(largest.group, largest.object + 1))
    if wanted.type in (FilterType.NEXT_GROUP, FilterType.LARGEST_OBJECT):
        group = 0 if largest is None else largest.group
        return Filter(FilterType.ABSOLUTE_START, Location(group + 1, 0))
    return wanted
