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
from laps.edge.moqt_filters import absolute, beginning
from laps.edge.moqt_replay import Begun, Replay, fetched_of, written
from laps.routing.flows import FromPeer
from laps.tracks.sinks import Cut, Translated
from laps.tracks.subscription import ESTABLISHED, SubscriptionState
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
from laps.wire.moqt.objects import object_in
from laps.wire.moqt.translate import needs_translation, translate_datagram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.edge.client import EdgeClient, Rank, RankedStream
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.publication import Source
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Fetch, PublishOk, RequestUpdate
    from laps.wire.moqt.objects import Object

# Streams that are closed are looked for when there are this many, and twice as many as were left
# the last time: of those that wait to be sent there may be thousands, and a look at all for each
# that is opened would take longer than to send it.
MANY: Final = 16


class MoqtSubscription(EdgeSubscription):
    """One client's subscription to a track."""

    __slots__ = (
        "_asked",
        "_dropped_before",
        "_end_group",
        "_filter",
        "_groups",
        "_most_outs",
        "_outs",
        "dialect",
        "forward",
        "joining",
        "largest",
        "link",
        "order",
        "priority",
        "replay",
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
        self.joins_group = client.joins_groups and wanted.type is FilterType.LARGEST_OBJECT
        self.replay = Replay()
        "Streams with the first objects of the group that it began with."
        self._asked = wanted.type
        self._filter = wanted
        self._end_group = wanted.end_group
        self._groups: dict[Source, int] = {}
        "Where each source was when it began."
        self._outs: list[tuple[int, RankedStream]] = []
        self._most_outs = MANY
        "Those that may be open, with their groups."
        self._dropped_before = self.link.dropped_streams

    @classmethod
    def offered(
        cls, client: EdgeClient, dialect: Dialect, track: Track, request_id: int
    ) -> MoqtSubscription:
        """One that the client has not asked for: it was told of the track."""
        wanted, order = Filter(FilterType.LARGEST_OBJECT), track.properties.order
        state = SubscriptionState.OFFERED
        subscription = cls(
            client, dialect, track, request_id, wanted, DEFAULT_PRIORITY, order, None, state,
            forward=True,
        )  # fmt: skip
        subscription.largest = track.largest()
        return subscription

    @property
    def end_group(self) -> int | None:
        """As `Subscription.end_group`."""
        return self._end_group

    @property
    def filter(self) -> Filter:
        """What it asked for, or has changed it to."""
        return self._filter

    @property
    def can_be_joined(self) -> bool:
        """Whether it began with the largest object, whatever became of it."""
        return self._asked is FilterType.LARGEST_OBJECT

    @property
    def stream_count(self) -> int:
        """For PUBLISH_DONE: a stream that was dropped unsent cannot be counted on."""
        lost = self.link.dropped_streams != self._dropped_before
        self._forget_closed()
        return UNKNOWN_STREAM_COUNT if lost else self.streams

    # -- its beginning -----------------------------------------------------------------------------

    def begin(self, largest: Location | None, now: float) -> None:
        """It is established: settle where it begins, and send what follows that."""
        self.largest = largest
        begins = beginning(self._filter, largest, joins_group=self.joins_group)
        self.start = begins.start
        self._groups = self.track.positions.groups()
        self._catch_up(begins.since, now)

    def take_joining(self) -> list[Fetch]:
        """The FETCHes that waited for its answer."""
        joining, self.joining = self.joining, []
        return joining

    def accepted(self, answer: PublishOk) -> None:
        """The client takes the track that we offered, on its own terms."""
        self._asked, self._filter = answer.filter.type, answer.filter
        self._end_group = answer.filter.end_group
        self.priority, self.forward = answer.priority, answer.forward
        self.order = answer.order or self.order
        self.timeout_ms = answer.delivery_timeout_ms

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
            for _, out in self._outs:
                out.move((self.priority, *out.rank[1:]))
        streams = self.track.streams.values()
        before = [stream for stream in streams if self._passes(stream.header.group)]
        if wanted is not None:
            self._filter = wanted = absolute(wanted, self.track.largest())
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
                    self._join(stream.cached, now, _next_id(stream.cached))

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

    def _catch_up(self, since: Location, now: float) -> None:
        cached = self.track.cached
        for stream in list(self.track.streams.values()):
            if self.start.group <= stream.header.group < since.group and stream.cached is not None:
                self._join(stream.cached, now, _next_id(stream.cached))  # the rest of it comes late
        for group_id in sorted(g for g in cached.groups if g >= since.group):
            first = since.object if group_id == since.group else 0
            before = fetched_of(cached.groups[group_id]) if self.joins_group else {}
            for kept in list(cached.groups[group_id].streams):
                begin = min(first, _next_id(kept)) if kept.live else first
                self._join(kept, now, begin, before.pop(kept.subgroup, []))
            for subgroup, items in before.items():
                self._begin_with(group_id, subgroup, items, now)
            group = cached.groups[group_id]
            for object_id, data in group.in_datagrams(now):
                if object_id >= first:
                    item = decode_datagram(data, BETWEEN_RELAYS)
                    self.datagram(data, item, now, pieced=object_id in group.pieced)

    def _begin_with(self, group: int, subgroup: int, items: list[Object], now: float) -> None:
        """Send what was fetched of a subgroup; the rest may follow."""
        has_extensions = any(item.extensions for item in items)
        priority = items[0].priority
        header = SubgroupHeader(
            self.track.alias, group, subgroup, priority, has_extensions=has_extensions
        )
        out = self._open(header, subgroup, self.track_ttl_us)
        if out is not None:
            data = written(items, self.dialect, has_extensions=has_extensions)
            out.write(encode_subgroup_header(header, self.dialect) + data, now)
            begun = Begun(out, items[-1].object_id, has_extensions)
            self.replay.add(group, subgroup, begun)

    def _join(
        self,
        cached: CachedStream,
        now: float,
        first: int = 0,
        before: Sequence[Object] = (),
    ) -> None:
        """Send what passes of a stream that has begun, and go on with it if it is open.

        `before` is what was fetched of its subgroup: some of it may be missing on the stream.
        """
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
        out = self._open(cached.header, subgroup, cached.ttl_us)
        if out is None:
            return
        begin = cached.first_id
        missing = [item for item in before if begin is None or item.object_id < begin]
        cut = self._cut(out, cached.header, subgroup, first, missing, now)
        cut.write_kept(cached, now)
        if live is None:
            cut.finish(b"", now)
        else:
            live.add(cut)

    def _live(self, cached: CachedStream) -> IncomingStream | None:
        return next((it for it in self.track.streams.values() if it.cached is cached), None)

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
        begun = self.replay.take(header.group, stream.subgroup, header.has_extensions, now)
        if begun is not None:
            return self._go_on(begun, header, rest, fin, now)
        out = self._open(header, stream.subgroup, stream.ttl_us, late=self._is_behind(stream))
        if out is None:
            return None
        start, first = self.start, stream.first
        if header.group == start.group:
            first = max(first, start.object)
        if first:
            out = self._cut(out, header, stream.subgroup, first, (), now)
        elif self.dialect.is_carried:
            out.finish(whole, now) if fin else out.write(whole, now)
            return out
        else:
            out.write(encode_subgroup_header(header, self.dialect), now)
            out = self._translated(out, header)
        if fin or rest:
            out.finish(rest, now) if fin else out.write(rest, now)
        return out

    def _is_behind(self, stream: IncomingStream) -> bool:
        """Whether its source counts otherwise than the one that settled where to begin."""
        group = stream.header.group
        if group >= self.start.group or self._filter.type is not FilterType.LARGEST_OBJECT:
            return False
        if isinstance(stream.source, FromPeer) and stream.source not in self._groups:
            # A relay may send what was before, to whoever has just joined; the next stream tells.
            self._groups[stream.source] = group
        return group > self._groups.get(stream.source, -1)

    def _passes(self, group: int) -> bool:
        """Whether objects of a group may be sent."""
        end = self._end_group
        return self.forward and group >= self.start.group and (end is None or group <= end)

    def _open(
        self, header: SubgroupHeader, subgroup: int, ttl_us: int, *, late: bool = False
    ) -> OutStream | None:
        group = header.group
        if not (self.forward if late else self._passes(group)):
            return None
        self.streams += 1
        out = self.link.open_stream(self._rank(header.priority, group, subgroup), self._ttl(ttl_us))
        if len(self._outs) > self._most_outs:
            self._forget_closed()
        self._outs.append((group, out))
        return out

    def _go_on(
        self,
        begun: Begun,
        header: SubgroupHeader,
        rest: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> OutStream:
        """The rest of a subgroup whose first objects were sent, on the same stream."""
        last_id, has_extensions = begun.last_id, header.has_extensions
        body = self._translated(begun.out, header)
        cut = Cut(begun.out, b"", last_id + 1, has_extensions, body, last_id)
        if fin:
            cut.finish(rest, now)
        else:
            cut.write(rest, now)
        return cut

    def _cut(
        self,
        out: OutStream,
        header: SubgroupHeader,
        subgroup: int,
        first: int,
        missing: Sequence[Object],
        now: float,
    ) -> Cut:
        """A stream from an object on; objects that it lacks are sent first."""
        body, has_extensions = self._translated(out, header), header.has_extensions
        if has_extensions is False and any(item.extensions for item in missing):
            missing = ()  # they have no place on it
        if first or missing:  # what begins later cannot take its subgroup from the first object
            header = replace(header, subgroup=subgroup)
        if not missing:
            return Cut(
                out, encode_subgroup_header(header, self.dialect), first, has_extensions, body
            )
        data = written(missing, self.dialect, has_extensions=has_extensions)
        out.write(encode_subgroup_header(header, self.dialect) + data, now)
        last_id = missing[-1].object_id
        return Cut(out, b"", max(first, last_id + 1), has_extensions, body, last_id)

    def _translated(self, out: OutStream, header: SubgroupHeader) -> OutStream:
        if needs_translation(BETWEEN_RELAYS, self.dialect, header.has_extensions):
            return Translated(out, self.dialect, header.has_extensions)
        return out

    @property
    def is_in_order(self) -> bool:  # type: ignore[override]
        """As `Subscription.is_in_order`."""
        return (self.order or self.track.properties.order) is not GroupOrder.DESCENDING

    def _rank(self, priority: int | None, group: int, subgroup: int) -> Rank:
        place = group if self.is_in_order else -group
        publishers = DEFAULT_PRIORITY if priority is None else priority
        return self.priority, publishers, self.track.order, self.request_id, place, subgroup

    def reorder(self) -> None:
        """As `Subscription.reorder`."""
        for _, out in self._outs:
            out.reorder(self.track.order)

    @property
    def track_ttl_us(self) -> int:
        """How long the publisher wants objects to be tried."""
        return (self.track.properties.delivery_timeout_ms or 0) * 1000

    def _ttl(self, ttl_us: int) -> int:
        """The shorter of the publisher's and the subscriber's own; 0 is for ever."""
        mine = (self.timeout_ms or 0) * 1000
        return min(mine, ttl_us) if mine and ttl_us else mine or ttl_us

    # -- datagrams ---------------------------------------------------------------------------------

    def datagram(
        self, data: bytes, item: DatagramObject, now: float, *, pieced: bool = False
    ) -> None:
        """As `Subscription.datagram`."""
        if self._state is not ESTABLISHED and self.is_kept_for_later():
            return
        group, object_id = item.group, item.object_id
        if not self._passes(group) or Location(group, object_id) < self.start:
            return
        if len(data) > self.link.datagram_bytes:
            # What was sent in one datagram goes in one, or not at all.
            if pieced:
                self._send_large(item, now)
            else:
                self.track.shared.counters.large_datagrams += 1
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
        group, number, has_extensions = item.group, item.object_id, bool(item.extensions)
        header = SubgroupHeader(self.track.alias, group, number, item.priority, has_extensions)
        out = self._open(header, number, self.track_ttl_us)
        if out is not None:
            found = written([object_in(item)], self.dialect, has_extensions=has_extensions)
            out.finish(encode_subgroup_header(header, self.dialect) + found, now)

    # -- its end -----------------------------------------------------------------------------------

    def close(self, now: float, code: ResetCode = ResetCode.CANCELLED) -> None:
        """Give up every stream that is open."""
        outs, self._outs = self._outs, []
        for _, out in outs:
            if not out.over:
                out.reset(code, now)

    def _forget_closed(self) -> None:
        """Streams of which nothing more is sent; those that never began do not count."""
        kept: list[tuple[int, RankedStream]] = []
        for group, out in self._outs:
            if not out.over or out.waits:
                kept.append((group, out))
            elif not out.is_open:
                self.streams -= 1
        self._outs = kept
        self._most_outs = max(MANY, 2 * len(kept))

    def unsent(self) -> list[RankedStream]:
        """Streams of which something has yet to be sent."""
        return [out for _, out in self._outs if out.waits]

    def _cut_off(self, now: float) -> None:
        """Streams outside of a narrowed range are given up."""
        for group, out in self._outs:
            outside = self._end_group is not None and group > self._end_group
            if (outside or group < self.start.group) and not out.over:
                out.reset(ResetCode.CANCELLED, now)


def _next_id(cached: CachedStream) -> int:
    """The first object of a stream that has not begun to arrive."""
    last = cached.scan().last_object_id
    return 0 if last is None else last + 1
