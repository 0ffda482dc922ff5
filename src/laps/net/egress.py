"""What is written to one connection: ordered by priority, dropped when too old, bounded in bytes.

QUIC sends what it has been given round robin and never gives it back. So it is given little at a
time, and what waits here instead can still be overtaken by something more urgent, expire, or be
dropped. `turns` knows by their ranks which stream is next.

Bytes of a stream cannot be left out, so a stream that loses a chunk is reset. Datagrams go ahead
of streams, as the congestion window allows, and are lost one by one.

A write finds one of three cases: nothing waits and QUIC has room, and it goes straight through;
or it queues; or the bound is reached, and the oldest streams of the least urgent class are dropped
for it: of streams with equal priorities the oldest go, whichever would be sent first.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from laps.errors import ConnectionClosed, SendBufferFull, StreamLimitReached
from laps.net.backlog import Backlog, ByClass, Stopwatch
from laps.net.turns import TURN_BYTES, Ranked, Turns, class_of, order_of, reordered
from laps.routing.terms import ORDERS
from laps.wire.moqt.codes import ResetCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.buckets import Bucket
    from laps.config import EgressConfig
    from laps.net.engine import BytesLike
    from laps.net.turns import Rank

# What QUIC is given it sends, whatever is more urgent by then: so it is given what it sends within
# this time, some packets at least. How much that is, is looked at this often.
AHEAD_S: Final = 0.01
LEAST_AHEAD_BYTES: Final = 16 * 1024
LOOK_S: Final = 0.1

# With so many streams waiting, room is made for more than one write at a time.
MANY_STREAMS: Final = 64


class Pipe(Protocol):
    """What an egress asks of a connection."""

    @property
    def buffered_bytes(self) -> int:
        """Stream bytes handed over and not yet sent."""

    @property
    def carried_per_s(self) -> float:
        """How many bytes it sends in a second, about; without end where that is not known."""

    def open_stream(self, *, unidirectional: bool) -> int:
        """A new stream, or StreamLimitReached and later `Egress.writable`."""

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        """Hand bytes over; False if the stream is over."""

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Give up a stream."""

    def send_datagram(self, data: bytes) -> bool:
        """Hand a datagram over; False, and later `Egress.writable`, if there is no room now."""

    def wake_below(self, buffered_bytes: int) -> None:
        """Call `Egress.writable` when no more than this waits."""


@dataclass(slots=True)
class Counters:
    """What became of the writes, for the operator."""

    streams: int = 0
    stream_bytes: int = 0
    datagrams: int = 0
    expired_streams: int = 0
    expired_bytes: int = 0
    overflowed_streams: int = 0
    overflowed_bytes: int = 0
    unopened_streams: int = 0
    "Dropped before they had begun."
    expired_datagrams: int = 0
    overflowed_datagrams: int = 0

    @property
    def dropped_groups(self) -> int:
        """Streams that were given up because the other side does not keep up."""
        return self.overflowed_streams + self.expired_streams


@dataclass(slots=True, eq=False)
class _Flush:
    """Somebody waits until what was written has been sent."""

    call: Callable[[], None]
    streams: dict[EgressStream, int]
    "How much of each has to be handed to QUIC."
    upto: int | None = None
    "How much QUIC has to have sent, once it has been given all of that."


class EgressStream:
    """One outgoing stream; it opens on the connection when its first bytes have their turn."""

    __slots__ = (
        "_egress",
        "chunks",
        "essential",
        "fin",
        "handed_bytes",
        "number",
        "order",
        "over",
        "queued_bytes",
        "rank",
        "stream_id",
        "ttl_s",
    )

    def __init__(self, egress: Egress, rank: Rank, ttl_s: float, stream_id: int | None) -> None:
        self.rank = rank
        self.order = order_of(rank)
        "The place of its class of service."
        self.number = egress.next_number()
        "Its place among the streams, by age."
        self.ttl_s = ttl_s
        self.stream_id = stream_id
        self.essential = stream_id is not None
        "Never dropped to make room: a connection whose control stream is full has to end."
        self.over = False
        "Finished, reset, dropped or stopped by the peer: nothing more can be written."
        self.queued_bytes = 0
        self.handed_bytes = 0
        "What QUIC has been given."
        self.chunks: deque[tuple[float, bytes]] = deque()
        "What waits, each with the time it expires at."
        self.fin = False
        self._egress = egress

    @property
    def waits(self) -> bool:
        """Whether something of it has yet to be sent."""
        return bool(self.chunks)

    @property
    def is_open(self) -> bool:
        """Whether the other side has seen, or will see, anything of it."""
        return self.stream_id is not None or bool(self.chunks) or not self.over

    def write(self, data: BytesLike, now: float | None = None) -> bool:
        """Send bytes after those before; False if the stream is closed.

        The TTL counts from `now`, or from the time of the clock.
        """
        return not self.over and self._egress.write(self, data, now, fin=False)

    def finish(self, data: BytesLike = b"", now: float | None = None) -> bool:
        """Send the last bytes; False if the stream is closed."""
        return not self.over and self._egress.write(self, data, now, fin=True)

    def move(self, rank: Rank) -> None:
        """What waits, and what follows, has another rank from now on."""
        self._egress.move(self, rank)

    def reorder(self, order: int) -> None:
        """It is of another class of service from now on."""
        if order != self.order:
            self._egress.move(self, reordered(self.rank, order))

    def reset(self, code: int, now: float | None = None) -> None:
        """Give the stream up, with what still waits."""
        self._egress.reset(self, code)

    def abort(self, code: int) -> None:
        """Give the stream up now: what still waits is not sent, whatever the code."""
        self._egress.give_up(self, code)


class Egress:
    """The writes to one connection; `expired_code` and `full_code` tell why a stream was reset.

    A stream that is reset with SESSION_CLOSED is sent as far as it was written: who sent it to us
    is gone, and whoever sends the same next goes on after that.
    """

    def __init__(
        self,
        pipe: Pipe,
        config: EgressConfig,
        *,
        expired_code: int,
        full_code: int,
        by_class: ByClass | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`by_class` counts what several do."""
        self.counters = Counters()
        self.by_class = by_class or ByClass()
        self._sent_bytes = self.by_class.sent_bytes
        self.backlog = Backlog(config, self.by_class)
        self.queued_datagram_bytes = 0
        self._waited = Stopwatch()
        self._pipe = pipe
        self._config = config
        self._expired_code = expired_code
        self._full_code = full_code
        self._clock = clock
        self._waiting: Turns[EgressStream] = Turns()
        "Streams with something to send."
        self._ahead_bytes = config.quic_queue_bytes
        "What QUIC may hold that it has not sent."
        self._most_at_once = inf
        "What is handed over in one piece."
        self._looked_at = -inf
        "When that was looked at last."
        self._limited = False
        "The peer allows no more streams, as far as we know."
        self._datagrams: Ranked[tuple[float, bytes]] = Ranked()
        self._open: dict[int, EgressStream] = {}
        self._numbers = 0
        self._flushed: list[_Flush] = []
        self.on_pressure: Callable[[], None] | None = None
        "Called when another class is pressed or crowded, or no longer."
        self._pace: tuple[Bucket, ...] = ()
        "How much may be sent in a second."
        self.paced_until = 0.0
        "It has sent as much as it may, and goes on at this time."
        self.on_paced: Callable[[float], None] | None = None
        "Called with the time to wait: `writable` is wanted after it."

    def pace(self, buckets: Iterable[Bucket]) -> None:
        """Send no more than these have; what is more waits, as for a slow reader."""
        self._pace = tuple(buckets)
        self.paced_until = 0.0

    @property
    def queued_bytes(self) -> int:
        """What waits of streams."""
        return self.backlog.total

    @property
    def pressed(self) -> bool:
        """Whether more waits than is good, of some class."""
        return self.backlog.pressed_from < ORDERS

    @property
    def crowded(self) -> bool:
        """Whether half of what may wait does."""
        return self.backlog.crowded_from < ORDERS

    def pressed_for(self, order: int) -> bool:
        """Whether more waits than is good for a class."""
        return self.backlog.pressed_from <= order

    def crowded_for(self, order: int) -> bool:
        """Whether something of a class may soon have to be dropped."""
        return self.backlog.crowded_from <= order

    def waiting_for(self, order: int) -> int:
        """What waits of a class, and of those that go ahead of it."""
        return sum(self.backlog.by_order[: order + 1])

    @property
    def waited_s(self) -> float:
        """How long something has waited here, in all."""
        return self._waited.total_s(self._clock())

    @property
    def is_paced(self) -> bool:
        """Whether it waits because it has sent as much as it may."""
        return self.paced_until > self._clock()

    def next_number(self) -> int:
        """The place of a new stream among the others."""
        self._numbers += 1
        return self._numbers

    # -- what a session calls --------------------------------------------------------------------

    def open(self, rank: Rank, ttl_us: int = 0) -> EgressStream:
        """A new unidirectional stream; bytes that waited for longer than the TTL are not sent."""
        return EgressStream(self, rank, ttl_us / 1e6 if ttl_us else inf, None)

    def adopt(self, stream_id: int, rank: Rank) -> EgressStream:
        """A stream that is open already, such as the control stream: SendBufferFull ends it."""
        stream = EgressStream(self, rank, inf, stream_id)
        self._open[stream_id] = stream
        return stream

    def write(self, stream: EgressStream, data: BytesLike, now: float | None, *, fin: bool) -> bool:
        """As `EgressStream.write` and `finish`."""
        in_pace = not self._pace or self._is_in_pace()
        at_once = in_pace and not self._waiting and len(data) <= self._most_at_once
        if at_once and self._hand_over(stream, data, fin=fin):
            return fin or not stream.over
        size = memoryview(data).nbytes
        if not self._make_room(stream, size):
            return False
        if not stream.chunks:
            self._waiting.add(stream)
        # Whoever wrote may use its buffer again; what waits must not change.
        chunk = data if isinstance(data, bytes) else bytes(data)
        since = self._clock() if now is None else now
        stream.chunks.append((since + stream.ttl_s, chunk))
        stream.queued_bytes += size
        stream.fin = stream.over = fin
        self.backlog.add(stream.order, size)
        self._pump()
        self._note_waiting()
        if self.backlog.may_press(stream.order):
            self._review()
        return True

    def when_flushed(
        self, call: Callable[[], None], streams: Iterable[EgressStream] | None = None
    ) -> None:
        """Call when all that was written before, or to these streams, has been sent.

        What is written later is not waited for: on a busy connection there is always something.
        """
        waiting = self._waiting if streams is None else streams
        wanted = {it: it.handed_bytes + it.queued_bytes for it in waiting if it.chunks}
        self._flushed.append(_Flush(call, wanted))
        self._check_flushed()

    def reset(self, stream: EgressStream, code: int) -> None:
        """As `EgressStream.reset`."""
        if code == ResetCode.SESSION_CLOSED and not stream.over:
            stream.over = True
            self.when_flushed(lambda: self.give_up(stream, code), (stream,))
        else:
            self.give_up(stream, code)

    def give_up(self, stream: EgressStream, code: int) -> None:
        """As `EgressStream.abort`."""
        self._discard(stream)
        self._note_waiting()
        if stream.stream_id is not None:
            with suppress(ConnectionClosed):
                self._pipe.reset_stream(stream.stream_id, code)

    def move(self, stream: EgressStream, rank: Rank) -> None:
        """As `EgressStream.move`."""
        waits = bool(stream.chunks)
        if waits:
            self._waiting.remove(stream)
            self.backlog.add(stream.order, -stream.queued_bytes)
        stream.rank, stream.order = rank, order_of(rank)
        if waits:
            self._waiting.add(stream)
            self.backlog.add(stream.order, stream.queued_bytes)
            self._review()

    def send_datagram(self, data: bytes, rank: Rank = 0, ttl_us: int = 0) -> None:
        """Send a datagram when the congestion window allows, if it is not too old by then."""
        in_pace = not self._pace or self._is_in_pace()
        if in_pace and not self._datagrams and self._pipe.send_datagram(data):
            self._datagram_sent(rank, len(data))
            if self._pace:
                self._spend(len(data))
            return
        # One after the other where they are equally urgent: what comes later is no better.
        self._datagrams.lane(class_of(rank)).append((self._clock() + (ttl_us / 1e6 or inf), data))
        self.queued_datagram_bytes += len(data)
        while self.queued_datagram_bytes > self._config.datagram_queue_bytes:
            last = self._datagrams.ranks[-1]
            self._pop_datagram(last)
            self.counters.overflowed_datagrams += 1
            self.by_class.dropped[order_of(last)] += 1
        self._note_waiting()

    def stopped(self, stream_id: int) -> None:
        """The peer asked us to stop sending on a stream."""
        if (stream := self._open.get(stream_id)) is not None:
            self._discard(stream)

    # -- what a connection calls -----------------------------------------------------------------

    def writable(self) -> None:
        """QUIC has room again, or streams to open."""
        self._limited = False
        if self._waiting:
            self._look_ahead()
        self._pump_datagrams()
        self._pump()
        self._note_waiting()
        if self.pressed or self.crowded:
            self._review()
        if self._flushed:
            self._check_flushed()

    def tick(self, now: float) -> None:
        """Drop what has expired, also where nothing moves."""
        for stream in [s for s in self._waiting if s.chunks[0][0] <= now]:
            self._drop_expired(stream)
        for rank in list(self._datagrams.ranks):
            lane = self._datagrams.lanes[rank]
            kept = deque(item for item in lane if item[0] > now)
            self.counters.expired_datagrams += len(lane) - len(kept)
            self.by_class.dropped[order_of(rank)] += len(lane) - len(kept)
            self.queued_datagram_bytes -= sum(len(i[1]) for i in lane) - sum(
                len(i[1]) for i in kept
            )
            self._datagrams.lanes[rank] = kept
            self._datagrams.tidy(rank)
        self._note_waiting()

    def close(self) -> None:
        """The connection is closed: nothing waits any more, and nobody is told of anything."""
        self.on_pressure = self.on_paced = None
        self._flushed.clear()
        for stream in [*self._waiting, *self._open.values()]:
            self._discard(stream)

    def _look_ahead(self) -> None:
        """On a narrow path QUIC is given less: what is urgent waits for that."""
        now = self._clock()
        if now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        wanted = max(self._pipe.carried_per_s * AHEAD_S, LEAST_AHEAD_BYTES)
        self._ahead_bytes = int(min(wanted, self._config.quic_queue_bytes))
        is_narrow = wanted < self._config.quic_queue_bytes
        self._most_at_once = self._ahead_bytes if is_narrow else inf

    # -- how it works ----------------------------------------------------------------------------

    def _check_flushed(self) -> None:
        """Call those whose bytes have been sent."""
        flushed, self._flushed = self._flushed, []
        for flush in flushed:
            if self._is_sent(flush):
                flush.call()
            else:
                self._flushed.append(flush)

    def _is_sent(self, flush: _Flush) -> bool:
        flush.streams = {
            it: upto for it, upto in flush.streams.items() if it.chunks and it.handed_bytes < upto
        }
        if flush.streams:
            return False
        handed, buffered = self.counters.stream_bytes, self._pipe.buffered_bytes
        if flush.upto is None:
            flush.upto = handed
        if not buffered or handed - buffered >= flush.upto:
            return True
        self._pipe.wake_below(handed - flush.upto)
        return False

    def _note_waiting(self) -> None:
        """See whether anything waits: after each change but those to what goes straight through."""
        self._waited.note(self._clock(), waits=bool(self._waiting or self._datagrams))

    def _review(self) -> None:
        """Much waits, or no longer."""
        if self.backlog.review(is_paced=bool(self._pace)) and self.on_pressure is not None:
            self.on_pressure()

    def _hand_over(self, stream: EgressStream, data: BytesLike, *, fin: bool) -> bool:
        """Give bytes to QUIC; False if it has no room for them now."""
        pipe = self._pipe
        if pipe.buffered_bytes >= self._ahead_bytes:
            return False
        try:
            stream_id = stream.stream_id
            if stream_id is None:
                stream_id = self._open_on_connection(stream)
            alive = pipe.write(stream_id, data, fin=fin)
        except StreamLimitReached:
            self._limited = True
            return False
        except SendBufferFull:
            return False
        except ConnectionClosed:
            alive = False
        if alive:
            size = len(data)
            self.counters.stream_bytes += size
            self._sent_bytes[stream.order] += size
            stream.handed_bytes += size
            if self._pace:
                self._spend(size)
        if fin or not alive:
            self._discard(stream)
        return True

    def _open_on_connection(self, stream: EgressStream) -> int:
        stream_id = self._pipe.open_stream(unidirectional=True)
        if stream.chunks:
            self._waiting.remove(stream)
        stream.stream_id = stream_id
        if stream.chunks:
            self._waiting.add(stream)
        self._open[stream_id] = stream
        self.counters.streams += 1
        return stream_id

    def _pump(self) -> None:
        """Give QUIC what is most urgent until it has enough."""
        now = self._clock()
        while self._pipe.buffered_bytes < self._ahead_bytes:
            if self._pace and self._waiting and not self._is_in_pace():
                return
            stream = self._waiting.next(opened_only=self._limited)
            if stream is None:
                break
            was_open = stream.stream_id is not None
            if stream.chunks[0][0] <= now:
                self._drop_expired(stream)
            elif (sent := self._take_turn(stream)) is not None:
                self._waiting.sent(stream, sent)
            elif was_open:
                break
        if self._waiting:
            self._pipe.wake_below(self._ahead_bytes // 2)

    def _take_turn(self, stream: EgressStream) -> int | None:
        """Hand over up to a turn's bytes of a stream: how many; None if it could not even begin."""
        left = TURN_BYTES
        while left > 0 and stream.chunks:
            if len(stream.chunks[0][1]) > self._most_at_once:
                self._cut_first(stream)
            data = stream.chunks[0][1]
            last = stream.fin and len(stream.chunks) == 1
            if not self._hand_over(stream, data, fin=last):
                return TURN_BYTES - left if left < TURN_BYTES else None
            left -= len(data) or 1
            if stream.chunks:  # it has not ended with these bytes
                stream.chunks.popleft()
                stream.queued_bytes -= len(data)
                self.backlog.add(stream.order, -len(data))
                if not stream.chunks:
                    self._waiting.remove(stream)
        return TURN_BYTES - left

    def _cut_first(self, stream: EgressStream) -> None:
        """What waits of a stream first is too much for one piece."""
        (until, data), size = stream.chunks.popleft(), self._ahead_bytes
        stream.chunks.extendleft([(until, data[size:]), (until, data[:size])])

    def _pump_datagrams(self) -> None:
        now = self._clock()
        while self._datagrams and (not self._pace or self._is_in_pace()):
            rank = self._datagrams.ranks[0]
            deadline, data = self._datagrams.lanes[rank][0]
            if deadline <= now:
                self.counters.expired_datagrams += 1
                self.by_class.dropped[order_of(rank)] += 1
            elif self._pipe.send_datagram(data):
                self._datagram_sent(rank, len(data))
                if self._pace:
                    self._spend(len(data))
            else:
                return
            self._pop_datagram(rank)

    def _datagram_sent(self, rank: Rank, size: int) -> None:
        self.counters.datagrams += 1
        self.by_class.sent_bytes[order_of(rank)] += size

    def _pop_datagram(self, rank: Rank) -> None:
        _, data = self._datagrams.lanes[rank].popleft()
        self._datagrams.tidy(rank)
        self.queued_datagram_bytes -= len(data)

    def _is_in_pace(self) -> bool:
        """Whether more may be sent now; if not, `on_paced` is told when."""
        now = self._clock()
        if self.paced_until > now:
            return False
        wait_s = max(bucket.wait_s(now) for bucket in self._pace)
        if not wait_s:
            return True
        self.paced_until = now + wait_s
        if self.on_paced is not None:
            self.on_paced(wait_s)
        return False

    def _spend(self, size: int) -> None:
        now = self._clock()
        for bucket in self._pace:
            bucket.spend(size, now)

    def _make_room(self, writer: EgressStream, size: int) -> bool:
        """Keep the bound by dropping the least urgent; False if that is the writer itself."""
        bound = self._config.queue_bytes
        if self.queued_bytes + size <= bound:
            return True
        self.tick(self._clock())
        waiting = [stream for stream in self._waiting if not stream.essential]
        if len(waiting) > MANY_STREAMS:
            bound = bound * 3 // 4
        if not writer.essential and not writer.chunks:
            waiting.append(writer)
        waiting.sort(key=lambda stream: stream.number)
        waiting.sort(key=lambda stream: class_of(stream.rank), reverse=True)
        for victim in waiting:
            if self.queued_bytes + size <= bound or writer.over:
                break
            self.counters.overflowed_streams += 1
            self.counters.overflowed_bytes += victim.queued_bytes + (victim is writer) * size
            self.by_class.dropped[victim.order] += 1
            self.counters.unopened_streams += victim.stream_id is None
            self.reset(victim, self._full_code)
        if writer.essential and self.queued_bytes + size > self._config.queue_bytes:
            raise SendBufferFull(f"{self.queued_bytes} bytes wait and none can be dropped")
        return not writer.over

    def _drop_expired(self, stream: EgressStream) -> None:
        self.counters.expired_streams += 1
        self.counters.expired_bytes += stream.queued_bytes
        self.by_class.dropped[stream.order] += 1
        self.counters.unopened_streams += stream.stream_id is None
        self.reset(stream, self._expired_code)

    def _discard(self, stream: EgressStream) -> None:
        """Forget a stream, whatever of it still waits."""
        stream.over = True
        if stream.stream_id is not None:
            self._open.pop(stream.stream_id, None)
        if stream.chunks:
            self._waiting.remove(stream)
            self.backlog.add(stream.order, -stream.queued_bytes)
            stream.queued_bytes = 0
            stream.chunks.clear()
