"""The egress over a pipe that takes as much as it is told to."""

from __future__ import annotations

import random
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.buckets import Bucket
from laps.config import EgressConfig
from laps.errors import ConnectionClosed, SendBufferFull, StreamLimitReached
from laps.net.egress import Egress
from laps.net.turns import TURN_BYTES
from laps.wire.moqt.codes import ResetCode

if TYPE_CHECKING:
    from laps.net.engine import BytesLike

EXPIRED, FULL = 71, 72


class FakePipe:
    """A connection that sends nothing until `sends` is called."""

    def __init__(self) -> None:
        self.buffered_bytes = 0
        self.carried_per_s = inf
        self.streams_left = 1000
        self.openings = 0
        "How often a stream was asked for."
        self.datagram_room = 0
        self.written: list[tuple[int, bytes]] = []
        self.finished: list[int] = []
        self.resets: list[tuple[int, int]] = []
        self.datagrams: list[bytes] = []
        self.stopped: set[int] = set()
        self.closed = False
        self.wake_at = -1
        self._next = 0

    def open_stream(self, *, unidirectional: bool) -> int:
        assert unidirectional
        if self.closed:
            raise ConnectionClosed(1, "over", by_peer=True, application=True)
        self.openings += 1
        if not self.streams_left:
            raise StreamLimitReached("none left")
        self.streams_left -= 1
        self._next += 1
        return self._next

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        if self.closed:
            raise ConnectionClosed(1, "over", by_peer=True, application=True)
        if stream_id in self.stopped:
            return False
        self.written.append((stream_id, bytes(data)))
        self.buffered_bytes += len(data)
        if fin:
            self.finished.append(stream_id)
        return True

    def reset_stream(self, stream_id: int, code: int) -> None:
        if self.closed:
            raise ConnectionClosed(1, "over", by_peer=True, application=True)
        self.resets.append((stream_id, code))

    def send_datagram(self, data: bytes) -> bool:
        if not self.datagram_room:
            return False
        self.datagram_room -= 1
        self.datagrams.append(data)
        return True

    def wake_below(self, buffered_bytes: int) -> None:
        self.wake_at = max(self.wake_at, buffered_bytes)

    def text(self) -> str:
        return "".join(data.decode() for _, data in self.written)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """An egress with its pipe and its clock."""

    def __init__(self, queue_bytes: int = 1000, quic_queue_bytes: int = 100) -> None:
        self.pipe = FakePipe()
        self.clock = Clock()
        config = EgressConfig(
            queue_bytes=queue_bytes, quic_queue_bytes=quic_queue_bytes, datagram_queue_bytes=50
        )
        self.egress = Egress(
            self.pipe, config, expired_code=EXPIRED, full_code=FULL, clock=self.clock
        )

    def stall(self) -> None:
        """QUIC is full."""
        self.pipe.buffered_bytes = 1 << 30

    def drain(self) -> None:
        """QUIC sends all it has, again and again, and asks for more."""
        while self.egress.queued_bytes:
            before = len(self.pipe.written)
            self.pipe.buffered_bytes = 0
            self.egress.writable()
            if len(self.pipe.written) == before:
                return


def test_with_room_a_write_goes_straight_through() -> None:
    bench = Bench()
    stream = bench.egress.open(rank=5)
    assert stream.stream_id is None
    assert stream.write(b"now")
    assert bench.pipe.written == [(1, b"now")]
    assert bench.egress.queued_bytes == 0
    assert stream.finish(b"!")
    assert bench.pipe.finished == [1]
    assert stream.over
    assert not stream.write(b"too late")
    assert bench.egress.counters.streams == 1
    assert bench.egress.counters.stream_bytes == 4


def test_how_long_something_waited_is_counted_and_what_goes_straight_through_is_not() -> None:
    bench = Bench()
    stream = bench.egress.open((0,))
    bench.clock.now += 5
    stream.write(b"at once")
    bench.clock.now += 5
    assert bench.egress.waited_s == 0
    bench.stall()
    stream.write(b"later")
    bench.clock.now += 3
    assert bench.egress.waited_s == 3
    bench.drain()
    bench.clock.now += 10
    assert bench.egress.waited_s == 3
    bench.stall()
    bench.egress.open((0,), ttl_us=2_000_000).write(b"too late")
    bench.clock.now += 2.5
    bench.egress.tick(bench.clock.now)
    bench.clock.now += 10
    assert bench.egress.waited_s == 5.5
    bench.egress.send_datagram(b"no room")
    bench.clock.now += 1
    assert bench.egress.waited_s == 6.5
    bench.pipe.datagram_room = 100
    bench.egress.writable()
    bench.clock.now += 1
    assert bench.egress.waited_s == 6.5


def test_what_waits_goes_by_rank_then_by_turns() -> None:
    bench = Bench(quic_queue_bytes=1)
    bench.stall()
    low, high, other = (bench.egress.open(rank) for rank in (9, 1, 9))
    for letter in "abc":
        assert low.write(letter.encode())
        assert other.write(letter.upper().encode())
        assert high.write(letter.upper().encode().hex().encode())
    assert bench.pipe.written == []
    assert bench.pipe.wake_at == 0
    bench.drain()
    assert bench.pipe.text() == "414243" + "aAbBcC"


def test_a_turn_of_large_chunks_ends_after_its_share() -> None:
    bench = Bench(queue_bytes=1 << 20, quic_queue_bytes=1 << 30)
    bench.stall()
    bench.pipe.buffered_bytes = 1 << 30
    one, two = bench.egress.open(1), bench.egress.open(1)
    for _ in range(4):
        one.write(b"1" * (TURN_BYTES // 2))
        two.write(b"2" * (TURN_BYTES // 2))
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert [data[:1] for _, data in bench.pipe.written] == [*(b"1", b"1", b"2", b"2") * 2]


def test_an_urgent_write_overtakes_what_waits() -> None:
    bench = Bench()
    bench.stall()
    slow = bench.egress.open(100)
    slow.write(b"slow" * 40)
    bench.pipe.buffered_bytes = 99  # room for one more chunk, whoever comes first
    urgent = bench.egress.open(0)
    urgent.write(b"urgent")
    assert bench.pipe.written[0][1] == b"urgent"


def test_expired_data_is_never_sent_and_its_stream_is_reset() -> None:
    bench = Bench()
    opened = bench.egress.open(1, ttl_us=100_000)
    opened.write(b"in time")
    bench.stall()
    unopened, lasting = bench.egress.open(2, ttl_us=100_000), bench.egress.open(3)
    opened.write(b"late")
    unopened.write(b"late as well")
    lasting.write(b"whenever")
    bench.clock.now += 0.11
    bench.drain()
    assert bench.pipe.text() == "in timewhenever"
    assert bench.pipe.resets == [(1, EXPIRED)]
    assert all(stream.over for stream in (opened, unopened))
    assert not opened.write(b"more")
    counters = bench.egress.counters
    assert (counters.expired_streams, counters.expired_bytes) == (2, 16)
    assert bench.egress.queued_bytes == 0


def test_a_tick_drops_what_expired_on_a_stalled_connection() -> None:
    bench = Bench()
    bench.stall()
    stream = bench.egress.open(1, ttl_us=1000)
    stream.write(b"x" * 10)
    bench.egress.tick(bench.clock.now)
    assert bench.egress.queued_bytes == 10
    bench.egress.tick(bench.clock.now + 0.002)
    assert stream.over
    assert bench.egress.queued_bytes == 0
    assert bench.egress.counters.expired_streams == 1


def test_the_bound_drops_the_oldest_of_the_least_urgent() -> None:
    bench = Bench(queue_bytes=100)
    first = bench.egress.open(9)
    first.write(b"-")
    bench.stall()
    first.write(b"f" * 40)
    second, urgent = bench.egress.open(9), bench.egress.open(1)
    second.write(b"s" * 40)
    assert urgent.write(b"u" * 40)
    assert first.over
    assert bench.pipe.resets == [(1, FULL)]
    assert not second.over
    assert bench.egress.queued_bytes == 80
    counters = bench.egress.counters
    assert (counters.overflowed_streams, counters.overflowed_bytes) == (1, 40)


def test_the_least_urgent_writer_makes_room_by_giving_way() -> None:
    bench = Bench(queue_bytes=100)
    bench.stall()
    urgent, lazy = bench.egress.open(1), bench.egress.open(9)
    urgent.write(b"u" * 90)
    assert not lazy.write(b"l" * 20)
    assert lazy.over
    assert not urgent.over
    assert bench.egress.counters.overflowed_bytes == 20


def test_a_chunk_larger_than_the_bound_is_dropped_with_its_stream() -> None:
    bench = Bench(queue_bytes=100)
    bench.stall()
    stream = bench.egress.open(1)
    assert not stream.write(b"x" * 101)
    assert stream.over
    assert bench.egress.queued_bytes == 0


def test_the_control_stream_is_never_dropped_but_it_is_bounded() -> None:
    bench = Bench(queue_bytes=100)
    bench.stall()
    control = bench.egress.adopt(0, rank=-1)
    control.write(b"c" * 60)
    media = bench.egress.open(9)
    media.write(b"m" * 30)
    assert control.write(b"c" * 30)
    assert media.over
    with pytest.raises(SendBufferFull, match="none can be dropped"):
        control.write(b"c" * 30)
    assert not control.over


def test_streams_that_cannot_open_yet_let_the_others_pass() -> None:
    bench = Bench(quic_queue_bytes=1000)
    going = bench.egress.open(5)
    going.write(b"a")
    bench.pipe.streams_left = 0
    blocked = bench.egress.open(1)
    blocked.write(b"B")
    going.write(b"b")
    assert bench.pipe.text() == "ab"
    assert bench.egress.queued_bytes == 1
    bench.pipe.streams_left = 1
    bench.egress.writable()
    assert bench.pipe.text() == "abB"


def test_a_stream_the_peer_stopped_is_over() -> None:
    bench = Bench()
    stream, other = bench.egress.open(1), bench.egress.open(1)
    stream.write(b"1")
    other.write(b"2")
    bench.stall()
    stream.write(b"queued")
    assert stream.stream_id is not None
    bench.egress.stopped(stream.stream_id)
    assert stream.over
    assert bench.egress.queued_bytes == 0
    bench.pipe.stopped.add(2)  # the pipe knows before it tells
    bench.pipe.buffered_bytes = 0
    assert not other.write(b"3")
    assert other.over


def test_streams_that_cannot_be_opened_cost_nothing_while_open_ones_go_on() -> None:
    bench = Bench(quic_queue_bytes=1000)
    going_on = bench.egress.open(0)
    going_on.write(b"a")
    bench.pipe.streams_left = 0
    for number in range(100):
        bench.egress.open(number).finish(b"b")
        going_on.write(b"a")
    assert bench.pipe.openings == 2
    assert bench.pipe.written == [(1, b"a")] * 101
    bench.pipe.streams_left = 100
    bench.egress.writable()
    assert bench.pipe.openings == 102
    assert len(bench.pipe.finished) == 100
    assert bench.egress.queued_bytes == 0


def test_streams_to_be_opened_and_open_ones_of_the_same_rank_take_turns() -> None:
    much = 10 * TURN_BYTES
    bench = Bench(queue_bytes=much, quic_queue_bytes=much)
    bench.pipe.buffered_bytes = much
    streams = [bench.egress.open(0) for _ in range(3)]
    for stream in streams:
        for _ in range(3):
            stream.write(bytes(TURN_BYTES))
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    order = [stream_id for stream_id, _ in bench.pipe.written]
    assert sorted(order) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert set(order[:5]) == {1, 2, 3}


def test_a_stream_of_a_connection_that_is_over_can_be_reset() -> None:
    bench = Bench()
    stream = bench.egress.open(0)
    stream.write(b"a")
    bench.pipe.closed = True
    stream.reset(7)
    assert stream.over


def test_a_finished_stream_that_still_waits_can_be_reset() -> None:
    bench = Bench()
    stream = bench.egress.open(1)
    stream.write(b"1")
    bench.stall()
    stream.finish(b"2")
    stream.reset(7)
    bench.drain()
    assert bench.pipe.resets == [(1, 7)]
    assert bench.pipe.text() == "1"
    assert bench.pipe.finished == []


def test_an_empty_finish_waits_behind_the_data() -> None:
    bench = Bench()
    bench.stall()
    stream = bench.egress.open(1)
    stream.write(b"data")
    assert stream.finish()
    assert bench.pipe.finished == []
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.finished == [1]
    assert bench.pipe.text() == "data"


def test_a_closed_connection_ends_its_streams() -> None:
    bench = Bench()
    stream = bench.egress.open(1)
    bench.pipe.closed = True
    assert not stream.write(b"x")
    assert stream.over


def test_what_waits_is_not_changed_by_whoever_wrote_it() -> None:
    bench = Bench()
    bench.stall()
    buffer = bytearray(b"before")
    stream = bench.egress.open(1)
    stream.write(memoryview(buffer))
    buffer[:] = b"after!"
    bench.drain()
    assert bench.pipe.text() == "before"


# -- datagrams -------------------------------------------------------------------------------------


def test_datagrams_wait_for_room_by_rank() -> None:
    bench = Bench()
    bench.pipe.datagram_room = 1
    for rank, data in ((5, b"at once"), (5, b"later"), (1, b"sooner")):
        bench.egress.send_datagram(data, rank)
    assert bench.pipe.datagrams == [b"at once"]
    assert bench.egress.queued_datagram_bytes == 11
    bench.pipe.datagram_room = 10
    bench.egress.writable()
    assert bench.pipe.datagrams == [b"at once", b"sooner", b"later"]
    assert bench.egress.queued_datagram_bytes == 0
    assert bench.egress.counters.datagrams == 3


def test_datagrams_expire_and_overflow() -> None:
    bench = Bench()
    bench.egress.send_datagram(b"a" * 20, 1, ttl_us=1000)
    bench.egress.send_datagram(b"b" * 20, 9)
    bench.egress.send_datagram(b"c" * 20, 9)  # the queue holds 50
    counters = bench.egress.counters
    assert counters.overflowed_datagrams == 1
    assert bench.egress.queued_datagram_bytes == 40
    bench.egress.send_datagram(b"d" * 10, 1)
    bench.clock.now += 1
    bench.egress.tick(bench.clock.now)
    assert counters.expired_datagrams == 1
    bench.egress.send_datagram(b"e" * 10, 1, ttl_us=1000)
    bench.clock.now += 1
    bench.pipe.datagram_room = 10
    bench.egress.writable()
    assert [d[:1] for d in bench.pipe.datagrams] == [b"d", b"c"]
    assert counters.expired_datagrams == 2
    assert bench.egress.queued_datagram_bytes == 0


# -- whatever happens ------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_bytes_arrive_in_order_whole_or_reset_and_the_bound_holds(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(queue_bytes=300, quic_queue_bytes=60)
    streams = [bench.egress.open(rng.randrange(3), rng.choice((0, 50_000))) for _ in range(8)]
    wrote: list[bytes] = [b""] * 8
    for _ in range(rng.randrange(100)):
        i = rng.randrange(8)
        match rng.randrange(8):
            case 0:
                bench.pipe.buffered_bytes = rng.randrange(120)
                bench.egress.writable()
            case 1:
                bench.clock.now += rng.random() * 0.1
                bench.egress.tick(bench.clock.now)
            case 2:
                bench.pipe.streams_left = rng.randrange(4)
            case 3 if rng.random() < 0.2:
                streams[i].finish(b".")
            case 4 if rng.random() < 0.1:
                streams[i].reset(3)
            case _:
                data = bytes([65 + i]) * rng.randrange(1, 60)
                if streams[i].write(data):
                    wrote[i] += data
        assert bench.egress.queued_bytes <= 300
        assert bench.egress.queued_bytes == sum(s.queued_bytes for s in streams)
    bench.pipe.streams_left = 100
    bench.drain()
    assert bench.egress.queued_bytes == 0
    for i, stream in enumerate(streams):
        got = b"".join(data for sid, data in bench.pipe.written if sid == stream.stream_id)
        assert wrote[i].startswith(got.rstrip(b"."))
        if not stream.over:
            assert got == wrote[i]


# -- flows of a class take turns -------------------------------------------------------------------


def fill(bench: Bench, rank: tuple[int, ...], chunks: int = 40) -> None:
    stream = bench.egress.open(rank=rank)
    for _ in range(chunks):
        stream.write(bytes([rank[3]]) * (TURN_BYTES // 4))


def shares(bench: Bench, turns: int) -> dict[int, int]:
    """How many bytes of each flow are sent, one turn after the other."""
    found: dict[int, int] = {}
    before = len(bench.pipe.written)
    for _ in range(turns):
        bench.pipe.buffered_bytes = 0
        bench.egress.writable()
    for _, data in bench.pipe.written[before:]:
        found[data[0]] = found.get(data[0], 0) + len(data)
    return found


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((7, 1_760_000_000), id="groups that count differently"),
        pytest.param((-5, 5), id="a descending and an ascending one"),
    ],
)
@pytest.mark.parametrize("opened", [True, False])
def test_subscriptions_share_a_connection_whatever_their_groups_are(
    places: tuple[int, int], opened: bool
) -> None:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=TURN_BYTES)
    if not opened:
        bench.stall()
    for flow, place in enumerate(places):
        fill(bench, (128, 128, 1, flow, place, 0))
    bench.stall()
    sent = shares(bench, 16)
    assert abs(sent[0] - sent[1]) <= 2 * TURN_BYTES


def test_many_small_streams_of_one_flow_do_not_starve_a_large_one() -> None:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=TURN_BYTES)
    bench.stall()
    for group in range(2000):
        bench.egress.open(rank=(128, 128, 1, 1, group, 0)).finish(b"\x01" * 1000)
    fill(bench, (128, 128, 1, 2, 0, 0))
    sent = shares(bench, 20)
    assert abs(sent[1] - sent[2]) <= 3 * TURN_BYTES


def test_within_a_flow_the_smallest_group_goes_first() -> None:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=TURN_BYTES)
    bench.stall()
    for group in (3, 1, 2):
        bench.egress.open(rank=(128, 128, 1, 1, group, 0)).finish(b"%d" % group)
    bench.drain()
    assert bench.pipe.text() == "123"


def test_a_more_urgent_class_goes_before_all_flows_of_another() -> None:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=TURN_BYTES)
    bench.stall()
    fill(bench, (128, 128, 1, 1, 0, 0))
    fill(bench, (128, 7, 1, 2, 99, 0), chunks=8)
    assert shares(bench, 2) == {2: 2 * TURN_BYTES}


def test_a_stream_that_waits_can_become_more_urgent() -> None:
    bench = Bench()
    bench.stall()
    late, early = (
        bench.egress.open(rank=(9, 0, 1, 1, 0, 0)),
        bench.egress.open(rank=(5, 0, 1, 2, 0, 0)),
    )
    late.finish(b"a")
    early.finish(b"b")
    late.move((1, 0, 1, 1, 0, 0))
    bench.drain()
    assert bench.pipe.text() == "ab"


# -- when something has been sent ------------------------------------------------------------------


def test_who_waits_for_its_own_streams_does_not_wait_for_a_busy_connection() -> None:
    bench = Bench(queue_bytes=1 << 20)
    bench.stall()
    mine, busy = bench.egress.open(rank=5), bench.egress.open(rank=5)
    mine.finish(b"m" * 50)
    busy.write(b"b" * 50)
    called: list[str] = []
    bench.egress.when_flushed(lambda: called.append("mine"), [mine])
    bench.egress.when_flushed(lambda: called.append("all"))
    for _ in range(10):  # there is always something to send, and QUIC is never idle
        busy.write(b"b" * 80)
        bench.pipe.buffered_bytes = 40
        bench.egress.writable()
    assert called == ["mine", "all"]
    assert bench.egress.queued_bytes
    bench.egress.when_flushed(lambda: called.append("nothing waits"), [mine])
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert called[-1] == "nothing waits"


def test_a_stream_that_is_dropped_is_not_waited_for() -> None:
    bench = Bench()
    bench.stall()
    stream = bench.egress.open(rank=5)
    stream.write(b"x" * 50)
    called: list[str] = []
    bench.egress.when_flushed(lambda: called.append("done"), [stream])
    stream.reset(1)
    assert not called
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert called == ["done"]


def test_a_queue_is_crowded_before_something_is_dropped() -> None:
    bench = Bench()
    egress, changes = bench.egress, []
    egress.on_pressure = lambda: changes.append(egress.crowded)
    stream = egress.open(0)
    stream.write(b"x" * 100)  # QUIC has it
    for _ in range(6):
        assert stream.write(b"x" * 100)
    assert changes == [True]
    assert not egress.counters.overflowed_streams
    while egress.queued_bytes > 250:
        assert egress.crowded
        bench.pipe.buffered_bytes = 0
        egress.writable()
    assert changes == [True, False]


def test_of_a_source_that_is_lost_all_that_came_is_sent_before_the_reset() -> None:
    """It may be nowhere else, and whoever sends the same next goes on after it."""
    bench = Bench()
    lost, given_up = bench.egress.open(5), bench.egress.open(5)
    for stream in (lost, given_up):
        stream.write(b"sent")
    bench.stall()
    for stream in (lost, given_up):
        stream.write(b"waits")
    lost.reset(ResetCode.SESSION_CLOSED)
    given_up.reset(ResetCode.CANCELLED)
    assert bench.pipe.resets == [(2, ResetCode.CANCELLED)]
    assert not lost.write(b"too late")
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.written[-1] == (1, b"waits")
    assert bench.pipe.resets == [(2, ResetCode.CANCELLED)]  # QUIC has it, and has not sent it
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.resets[1:] == [(1, ResetCode.SESSION_CLOSED)]


def test_of_a_stream_that_may_go_on_no_more_nothing_that_waits_is_sent() -> None:
    bench = Bench()
    stream = bench.egress.open(5)
    stream.write(b"sent")
    bench.stall()
    stream.write(b"waits")
    stream.abort(ResetCode.SESSION_CLOSED)
    assert bench.pipe.resets == [(1, ResetCode.SESSION_CLOSED)]
    assert not stream.write(b"too late")
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.written == [(1, b"sent")]
    assert bench.egress.queued_bytes == 0


def test_what_is_too_old_is_not_sent_for_a_source_that_is_lost_either() -> None:
    bench = Bench()
    bench.stall()
    stream = bench.egress.open(5, ttl_us=1_000_000)
    stream.write(b"waits")
    stream.reset(ResetCode.SESSION_CLOSED)
    bench.clock.now += 2.0
    bench.egress.tick(bench.clock.now)
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.written == []
    assert bench.egress.queued_bytes == 0


# -- classes of service ----------------------------------------------------------------------------

GOLD, SILVER, BRONZE = (5, 0, 0), (5, 0, 1), (5, 0, 2)


def test_of_one_priority_the_better_class_goes_first_and_no_class_goes_before_a_priority() -> None:
    bench = Bench()
    bench.stall()
    for rank, data in (
        (BRONZE, b"bronze "),
        (SILVER, b"silver "),
        ((9, 0, 0), b"gold, not urgent"),
        (GOLD, b"gold "),
        ((1, 0, 2), b"urgent bronze "),
    ):
        bench.egress.open(rank).finish(data)
    bench.drain()
    assert bench.pipe.text() == "urgent bronze gold silver bronze gold, not urgent"


def test_flows_of_one_class_take_turns_and_those_of_another_wait() -> None:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=TURN_BYTES)
    bench.stall()
    fill(bench, (5, 5, 2, 9, 0, 0), chunks=8)
    for flow in (1, 2):
        fill(bench, (5, 5, 0, flow, 0, 0), chunks=8)
    assert shares(bench, 4) == {1: 2 * TURN_BYTES, 2: 2 * TURN_BYTES}
    assert shares(bench, 2) == {9: 2 * TURN_BYTES}


def test_what_is_too_much_is_dropped_of_the_last_class_first() -> None:
    bench = Bench()
    bench.stall()
    gold, bronze, silver = (bench.egress.open(rank) for rank in (GOLD, BRONZE, SILVER))
    for stream in (gold, bronze, silver):
        assert stream.write(b"x" * 300)
    for _ in range(2):
        assert gold.write(b"x" * 300)
    assert [stream.over for stream in (gold, silver, bronze)] == [False, True, True]
    assert bench.egress.by_class.dropped == [0, 1, 1, 0]
    late = bench.egress.open(BRONZE)
    assert not late.write(b"x" * 300), "nothing of gold is dropped for it"
    assert bench.egress.queued_bytes == 900


def test_datagrams_of_the_last_class_are_lost_first() -> None:
    bench = Bench()
    for rank, data in ((BRONZE, b"b" * 20), (GOLD, b"g" * 20), (SILVER, b"s" * 20)):
        bench.egress.send_datagram(data, rank)
    assert bench.egress.by_class.dropped == [0, 0, 1, 0]
    bench.pipe.datagram_room = 9
    bench.egress.writable()
    assert bench.pipe.datagrams == [b"g" * 20, b"s" * 20]
    assert bench.egress.by_class.sent_bytes == [20, 20, 0, 0]


def test_bronze_that_waits_presses_on_bronze_alone() -> None:
    bench = Bench()
    bench.egress = Egress(
        bench.pipe,
        EgressConfig(queue_bytes=1000, pressure_bytes=100, quic_queue_bytes=100),
        expired_code=EXPIRED,
        full_code=FULL,
        clock=bench.clock,
    )
    egress, changes = bench.egress, []
    egress.on_pressure = lambda: changes.append(egress.backlog.pressed_from)
    bench.stall()
    bronze, gold = egress.open(BRONZE), egress.open(GOLD)
    bronze.write(b"x" * 600)
    assert [egress.pressed_for(order) for order in range(4)] == [False, False, True, True]
    assert [egress.crowded_for(order) for order in range(4)] == [False, False, True, True]
    gold.write(b"x" * 101)
    assert egress.pressed_for(0)
    assert not egress.crowded_for(0)
    assert changes == [2, 0]
    bench.drain()
    assert changes[-1] == 4


@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_can_become_of_another_class(waits: bool) -> None:
    bench = Bench()
    bench.stall()
    one, other = bench.egress.open((5, 0, 2, 7, 3)), bench.egress.open(SILVER)
    if waits:
        one.write(b"first ")
    one.reorder(0)
    assert (one.rank, one.order) == ((5, 0, 0, 7, 3), 0)
    other.finish(b"second")
    one.finish(b"" if waits else b"first ")
    assert bench.egress.backlog.by_order == [6, 6, 0, 0]
    bench.drain()
    assert bench.pipe.text() == "first second"
    assert bench.egress.backlog.by_order == [0, 0, 0, 0]


# -- how much QUIC is given ------------------------------------------------------------------------


def narrow(carried_per_s: float) -> Bench:
    bench = Bench(queue_bytes=1 << 30, quic_queue_bytes=128 * 1024)
    bench.pipe.carried_per_s = carried_per_s
    bench.stall()
    for rank in (SILVER, GOLD):
        bench.egress.open(rank).write(bytes([rank[2]]) * 200_000)
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    return bench


@pytest.mark.parametrize(
    ("carried_per_s", "least", "most"),
    [
        pytest.param(6e5, 16 * 1024, 17_000, id="5 Mbit/s: some packets"),
        pytest.param(5e6, 50_000, 50_000, id="40 Mbit/s: what goes out in 10 ms"),
        pytest.param(1e9, 128 * 1024, 250_000, id="8 Gbit/s: as much as it may have"),
        pytest.param(inf, 128 * 1024, 250_000, id="nothing is known"),
    ],
)
def test_quic_is_given_what_it_soon_sends(carried_per_s: float, least: int, most: int) -> None:
    bench = narrow(carried_per_s)
    assert least <= bench.pipe.buffered_bytes <= most
    bench.drain()
    assert bench.egress.queued_bytes == 0
    sent = b"".join(data for _, data in bench.pipe.written)
    assert sent == b"\0" * 200_000 + b"\1" * 200_000


def test_a_path_that_is_wide_again_is_given_more() -> None:
    bench = narrow(6e5)
    bench.pipe.carried_per_s = inf
    bench.clock.now += 1.0
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert bench.pipe.buffered_bytes >= 128 * 1024


def test_on_a_narrow_path_a_large_write_does_not_go_ahead_in_one_piece() -> None:
    bench = narrow(6e5)
    bench.drain()
    bench.pipe.buffered_bytes = 0
    bench.egress.open(BRONZE).finish(b"b" * 60_000)
    bench.egress.open(GOLD).finish(b"g" * 100)
    bench.drain()
    data = b"".join(data for _, data in bench.pipe.written)[400_000:]
    assert data.index(b"g") <= 16 * 1024
    assert data.count(b"b") == 60_000
    assert bench.pipe.finished[-2:] in ([3, 4], [4, 3])


# -- pace ------------------------------------------------------------------------------------------


def paced(rate: float, burst: float) -> tuple[Bench, list[float]]:
    bench = Bench(queue_bytes=10 * TURN_BYTES)
    waits: list[float] = []
    bench.egress.pace((Bucket(rate, burst),))
    bench.egress.on_paced = waits.append
    return bench, waits


def test_pace_lets_a_burst_through_and_then_so_much_a_second() -> None:
    bench, waits = paced(rate=4 * TURN_BYTES, burst=2 * TURN_BYTES)
    stream = bench.egress.open(rank=1)
    for _ in range(6):
        bench.pipe.buffered_bytes = 0
        assert stream.write(bytes(TURN_BYTES))
    assert len(bench.pipe.written) == 2
    assert bench.egress.queued_bytes == 4 * TURN_BYTES
    assert bench.egress.is_paced
    while bench.egress.queued_bytes:
        bench.clock.now += waits.pop() if waits else 0.0
        bench.pipe.buffered_bytes = 0
        bench.egress.writable()
    assert len(bench.pipe.written) == 6, "nothing is lost"
    assert 0.7 <= bench.clock.now - 50.0 <= 1.1, "four turns, the last in debt, at four a second"


def test_pace_asks_for_one_call_and_none_of_the_connection() -> None:
    bench, waits = paced(rate=100, burst=10)
    stream = bench.egress.open(rank=1)
    for _ in range(5):
        stream.write(bytes(20))
    assert len(waits) == 1
    assert bench.pipe.wake_at == FakePipe().wake_at


def test_pace_is_shared_by_connections_and_counts_datagrams() -> None:
    shared = Bucket(100, 50)
    one, two = Bench(), Bench()
    one.pipe.datagram_room = two.pipe.datagram_room = 9
    for bench in (one, two):
        bench.egress.pace((shared,))
    one.egress.send_datagram(bytes(60))
    two.egress.send_datagram(bytes(10))
    assert two.egress.queued_datagram_bytes == 10
    assert two.pipe.datagrams == []
    two.clock.now += 1.0
    two.egress.writable()
    assert two.pipe.datagrams == [bytes(10)]


def test_pace_keeps_priorities_and_times_to_live() -> None:
    bench, _ = paced(rate=10, burst=10)
    bench.egress.open(rank=5).write(bytes(100))  # in debt for ten seconds
    late = bench.egress.open(rank=5, ttl_us=1_000_000)
    low, high = bench.egress.open(rank=9), bench.egress.open(rank=1)
    for stream, letter in ((late, b"t"), (low, b"l"), (high, b"h")):
        stream.write(letter)
    bench.clock.now += 11.0
    bench.pipe.buffered_bytes = 0
    bench.egress.writable()
    assert [data for _, data in bench.pipe.written[1:]] == [b"h", b"l"]
    assert bench.egress.counters.expired_streams == 1


def test_pace_makes_nobody_wait_for_a_connection_that_is_held_to_its_share() -> None:
    slow, (held, _) = Bench(queue_bytes=10 * TURN_BYTES), paced(rate=1, burst=1)
    slow.stall()
    for bench in (slow, held):
        stream = bench.egress.open(rank=1)
        for _ in range(9):
            stream.write(bytes(TURN_BYTES))
    assert slow.egress.crowded
    assert held.egress.queued_bytes > 5 * TURN_BYTES, "half of what may wait does"
    assert not held.egress.crowded
