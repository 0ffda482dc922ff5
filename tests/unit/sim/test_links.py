"""A simulated wire does to bytes what QUIC over a bad path would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from laps.infobase.nodes import SessionId
from laps.sim.clock import Clock
from laps.sim.dialling import Dialler
from laps.sim.lanes import Conditions, message_name
from laps.sim.links import DEAD_S, IDLE_TIMEOUT_S, QUEUE_S, SILENT_S, SPREAD_S, Cable, LinkEnd
from laps.types import NodeId, PeerMode

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, TWO = NodeId(1), NodeId(2)


@dataclass(eq=False)
class Recorder:
    """A host that writes down what it is told."""

    clock: Clock
    node_id: NodeId = ONE
    contact: str = "one"
    passed: frozenset[NodeId] = frozenset()
    is_up: bool = True
    is_frozen: bool = False
    on_silence: Callable[[], None] = lambda: None
    waiting: list[Callable[[], None]] = field(default_factory=list)
    links: list[LinkEnd] = field(default_factory=list)
    data: dict[int, list[tuple[float, bytes, bool]]] = field(default_factory=dict)
    datagrams: list[tuple[float, bytes]] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)
    closes: list[tuple[float, str]] = field(default_factory=list)
    lost: list[bytes] = field(default_factory=list)
    writable: int = 0
    needed: bool = False
    silences: list[tuple[float, bool]] = field(default_factory=list)

    def link_needed(self, link: LinkEnd) -> bool:
        return self.needed

    def link_silent(self, link: LinkEnd, *, silent: bool) -> None:
        self.silences.append((self.clock.now, silent))
        self.on_silence()

    def next_link_id(self) -> SessionId:
        return SessionId(len(self.links) + 1)

    def link_opened(self, link: LinkEnd) -> None:
        self.links.append(link)

    def link_data(self, link: LinkEnd, stream_id: int, pieces: list[bytes], fin: bool) -> None:
        for number, piece in enumerate(pieces, start=1):
            is_last = number == len(pieces)
            self.data.setdefault(stream_id, []).append((self.clock.now, piece, fin and is_last))

    def link_datagram(self, link: LinkEnd, data: bytes) -> None:
        self.datagrams.append((self.clock.now, data))

    def link_reset(self, link: LinkEnd, stream_id: int, code: int) -> None:
        self.resets.append((stream_id, code))

    def wait(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def thaw(self) -> None:
        self.is_frozen = False
        for call in self.waiting:
            call()

    def link_lost(self, data: bytes) -> None:
        self.lost.append(data)

    def link_writable(self, link: LinkEnd) -> None:
        self.writable += 1

    def link_closed(self, link: LinkEnd, reason: str) -> None:
        self.closes.append((self.clock.now, reason))

    def bytes_of(self, stream_id: int) -> bytes:
        return b"".join(data for _, data, _ in self.data.get(stream_id, ()))


@dataclass
class Pair:
    """Two hosts, a cable and a connection that is up."""

    clock: Clock
    cable: Cable
    near: Recorder
    far: Recorder
    a: LinkEnd
    b: LinkEnd


def join(seed: int = 1, delay_s: float = 0.01, **more: float) -> Pair:
    clock = Clock(seed)
    there, back = (
        Conditions(delay_s=delay_s, **{"split": 0.0, "noise": 0.0, **more}) for _ in "ab"
    )
    cable = Cable(clock, there, back)
    near, far = Recorder(clock), Recorder(clock, TWO)
    cable.connect(0, (near, far), PeerMode.BOTH)
    clock.run(clock.now + delay_s + more.get("jitter_s", 0.0))
    (a,), (b,) = near.links, far.links
    return Pair(clock, cable, near, far, a, b)


def test_what_is_written_arrives_a_delay_later_with_the_ids_of_quic() -> None:
    pair = join()
    control, data = pair.a.open_control(), pair.a.open_stream(0, 0)
    pair.a.send_control(control, b"hello")
    assert data.write(b"one", pair.clock.now)
    assert data.finish(memoryview(b"two"), pair.clock.now)
    sent = pair.clock.now
    pair.clock.run(sent + 1)
    assert (control, data.stream_id) == (0, 2)
    assert pair.far.data[0] == [(sent + 0.01, b"hello", False)]
    assert pair.far.data[2] == [(sent + 0.01, b"onetwo", True)]
    assert pair.b.open_control() == 1
    assert pair.b.open_stream(0, 0).stream_id == 3
    assert data.over
    assert not data.write(b"more", pair.clock.now)


def test_the_far_side_opens_a_flight_later_and_hears_nothing_before() -> None:
    clock = Clock(1)
    cable = Cable(clock, Conditions(delay_s=0.5, jitter_s=0.5), Conditions())
    near, far = Recorder(clock), Recorder(clock)
    cable.connect(0, (near, far), PeerMode.BOTH)
    clock.run(0.0)
    near.links[0].send_control(near.links[0].open_control(), b"x")
    clock.run(2.0)
    assert far.data[0][0][0] >= far.links[0].opened_at >= 0.5


@pytest.mark.parametrize("seed", range(5))
def test_bytes_of_a_stream_stay_whole_and_in_order_whatever_happens_to_them(seed: int) -> None:
    pair = join(seed, jitter_s=0.05, loss=0.3, split=0.9)
    streams = [pair.a.open_stream(0, 0) for _ in range(4)]
    expected = [bytes(range(i, i + 100)) * 3 for i in range(4)]
    for start in range(0, 300, 30):
        for stream, data in zip(streams, expected, strict=True):
            stream.write(data[start : start + 30], pair.clock.now)
        pair.clock.run(pair.clock.now + 0.01)
    for stream in streams:
        stream.finish(b"", pair.clock.now)
    pair.clock.run(pair.clock.now + 10)
    for stream, data in zip(streams, expected, strict=True):
        assert pair.far.bytes_of(stream.stream_id) == data
        assert [fin for _, _, fin in pair.far.data[stream.stream_id]][-1]
    assert pair.a.lane.traffic.retransmissions > 0


def test_a_loss_holds_back_its_own_stream_only() -> None:
    pair = join(delay_s=0.1, loss=0.5)
    streams = [pair.a.open_stream(0, 0) for _ in range(20)]
    for number, stream in enumerate(streams):
        stream.write(bytes([number]), pair.clock.now)
    pair.clock.run(pair.clock.now + 10)
    times = [pair.far.data[stream.stream_id][0][0] for stream in streams]
    assert times != sorted(times)
    assert min(times) < max(times) - 0.1


def test_datagrams_are_lost_for_good_and_too_large_ones_never_leave() -> None:
    pair = join(loss=0.5)
    for number in range(100):
        pair.a.send_datagram(bytes([number]), 0)
    pair.a.send_datagram(bytes(2000), 0)
    pair.clock.run(pair.clock.now + 1)
    traffic = pair.a.lane.traffic
    assert 20 < len(pair.far.datagrams) < 80
    assert traffic.lost_datagrams + len(pair.far.datagrams) == traffic.datagrams == 101
    # What never left was not lost by the wire.
    assert len(pair.near.lost) == traffic.lost_datagrams - 1


def test_a_narrow_cable_takes_its_time_and_drops_what_waits_too_long() -> None:
    pair = join(bytes_per_s=1000)
    first, second = pair.a.open_stream(0, 0), pair.a.open_stream(0, 0)
    begin = pair.clock.now
    assert first.write(bytes(900), pair.clock.now)
    assert second.write(bytes(900), pair.clock.now)
    pair.a.send_control(pair.a.open_control(), bytes(10))
    late = pair.a.open_stream(0, 0)
    assert not late.write(b"x", pair.clock.now)
    pair.clock.run(begin + 5)
    arrivals = [pair.far.data[n][0][0] - begin for n in (0, first.stream_id, second.stream_id)]
    assert arrivals == pytest.approx([0.02, 0.91, 1.81])
    assert pair.far.resets == [(late.stream_id, 0)]
    assert pair.a.lane.traffic.dropped_streams == 1
    assert QUEUE_S == 1.0


def test_a_reset_overtakes_and_what_comes_after_it_is_lost() -> None:
    pair = join(jitter_s=0.05, seed=3)
    for code in range(30):
        stream = pair.a.open_stream(0, 0)
        stream.write(bytes(10), pair.clock.now)
        stream.reset(code, pair.clock.now)
    pair.clock.run(pair.clock.now + 1)
    assert sorted(code for _, code in pair.far.resets) == list(range(30))
    assert 0 < len(pair.far.data) < 30


def test_who_is_asked_to_stop_resets_and_cannot_write_any_more() -> None:
    pair = join()
    stream = pair.a.open_stream(0, 0)
    stream.write(b"x", pair.clock.now)
    pair.clock.run(pair.clock.now + 0.1)
    pair.b.end_stream(stream.stream_id, 36)
    pair.clock.run(pair.clock.now + 0.1)
    assert stream.over
    assert not stream.write(b"y", pair.clock.now)
    assert pair.far.resets == [(stream.stream_id, 36)]


def test_ending_a_control_stream_resets_both_halves() -> None:
    pair = join()
    control = pair.a.open_control()
    pair.a.send_control(control, b"x")
    pair.clock.run(pair.clock.now + 0.1)
    pair.b.send_control(control, b"y")
    pair.b.end_stream(control, 128)
    pair.clock.run(pair.clock.now + 0.1)
    assert pair.near.resets == [(control, 128)]
    assert pair.far.resets == [(control, 128)]


def test_a_close_is_told_on_both_sides_once() -> None:
    pair = join()
    pair.a.close(1, "bye")
    pair.a.close(2, "bye again")
    assert pair.near.closes == []
    begin = pair.clock.now
    pair.clock.run(begin + 20)
    assert pair.near.closes == [(begin, "we closed it with 1: bye")]
    assert pair.far.closes == [(begin + 0.01, "the peer closed it with 1: bye")]
    assert pair.cable.ends == []


def test_a_cut_is_silent_until_both_ends_give_up() -> None:
    pair = join()
    pair.cable.cut()
    pair.a.send_control(pair.a.open_control(), b"x")
    begin = pair.clock.now
    pair.clock.run(begin + IDLE_TIMEOUT_S)
    assert pair.far.data == {}
    assert pair.near.closes == pair.far.closes == []
    pair.clock.run(begin + IDLE_TIMEOUT_S + SILENT_S + SPREAD_S)
    assert len(pair.near.closes) == len(pair.far.closes) == 1
    assert pair.near.silences == []


def test_a_link_that_something_depends_on_is_silent_first_and_then_dead() -> None:
    pair = join()
    pair.near.needed = True
    begin = pair.clock.now
    pair.cable.cut()
    pair.clock.run(begin + DEAD_S + SPREAD_S)
    ((silent_at, silent),) = pair.near.silences
    assert silent
    assert SILENT_S <= silent_at - begin <= SILENT_S + SPREAD_S
    assert len(pair.near.closes) == 1
    assert pair.far.closes == []


def test_a_link_that_is_heard_again_is_not_silent() -> None:
    pair = join()
    pair.near.needed = True
    pair.cable.cut()
    pair.clock.run(pair.clock.now + SILENT_S + SPREAD_S)
    pair.cable.heal()
    pair.clock.run(pair.clock.now + 10)
    assert [silent for _, silent in pair.near.silences] == [True, False]
    assert pair.near.closes == []


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_sent_when_a_cable_heals_comes_after_what_waited(frozen: bool) -> None:
    pair = join()
    control = pair.a.open_control()
    pair.near.needed = True
    pair.near.on_silence = lambda: pair.a.send_control(control, b"second")
    pair.cable.cut()
    pair.a.send_control(control, b"first ")
    pair.clock.run(pair.clock.now + SILENT_S + SPREAD_S)
    pair.near.on_silence = lambda: pair.a.send_control(control, b" third")
    pair.near.is_frozen = frozen
    pair.cable.heal()
    if frozen:
        pair.near.waiting.insert(0, lambda: pair.a.send_control(control, b" read first"))
        pair.near.thaw()
    pair.clock.run(pair.clock.now + 1)
    expected = b"first second read first third" if frozen else b"first second third"
    assert pair.far.bytes_of(control) == expected


def test_a_cut_that_heals_in_time_loses_no_stream() -> None:
    pair = join()
    stream = pair.a.open_stream(0, 0)
    stream.write(b"before ", pair.clock.now)
    pair.cable.cut()
    stream.write(b"meanwhile ", pair.clock.now)
    pair.a.send_datagram(b"gone", 0)
    pair.clock.run(pair.clock.now + 3)
    pair.cable.heal()
    stream.finish(b"after", pair.clock.now)
    pair.clock.run(pair.clock.now + 10)
    assert pair.far.bytes_of(stream.stream_id) == b"before meanwhile after"
    assert pair.far.datagrams == []
    assert pair.near.closes == pair.far.closes == []


def test_who_gave_up_alone_is_missed_when_the_cable_heals() -> None:
    pair = join()
    pair.cable.cut()
    while not (pair.near.closes or pair.far.closes):
        pair.clock.run(pair.clock.now + 0.001)
    pair.cable.heal()
    pair.clock.run(pair.clock.now + 1)
    assert len(pair.near.closes) == len(pair.far.closes) == 1


@pytest.mark.parametrize("noticed", [True, False])
def test_a_crash_is_noticed_at_once_or_after_silence(noticed: bool) -> None:
    pair = join()
    begin = pair.clock.now
    pair.b.vanish(noticed=noticed)
    pair.clock.run(begin + 10)
    assert pair.far.closes == []
    ((time, _),) = pair.near.closes
    assert (time == begin + 0.01) == noticed
    assert noticed or time >= begin + IDLE_TIMEOUT_S


def test_round_trips_are_smoothed_towards_what_they_are() -> None:
    pair = join()
    assert pair.a.srtt_us == 20_000
    assert not pair.a.measure()
    for lane in pair.cable.lanes:
        lane.conditions.delay_s = 0.05
    assert pair.a.measure()
    assert pair.a.srtt_us == 30_000
    for _ in range(50):
        pair.a.measure()
    assert pair.a.srtt_us == pytest.approx(100_000, rel=0.01)


def test_control_messages_are_counted_by_type() -> None:
    pair = join()
    message = bytes([1, 0, 4, 0, 0, 0, 2]) + b"xy"
    pair.a.send_control(pair.a.open_control(), message + message)
    assert pair.a.lane.traffic.control_messages == {4: 2}
    assert pair.a.lane.traffic.control_bytes == 18
    assert [message_name(number) for number in (4, 99)] == ["NODE_INFO_ADV", "type 99"]


# --- dialling --------------------------------------------------------------------------------


def dial(clock: Clock, cable: Cable, near: Recorder, far: Recorder) -> Dialler:
    dialler = Dialler(cable, 0, (near, far), PeerMode.BOTH)
    dialler.start()
    return dialler


def test_a_handshake_takes_a_round_trip() -> None:
    clock = Clock(1)
    cable = Cable(clock, Conditions(delay_s=0.1), Conditions(delay_s=0.1))
    near, far = Recorder(clock), Recorder(clock)
    dialler = dial(clock, cable, near, far)
    assert dialler.is_due
    clock.run(1.0)
    assert near.links[0].opened_at == pytest.approx(0.2)
    assert near.links[0].dialled
    assert far.links[0].opened_at == pytest.approx(0.3)
    assert not far.links[0].dialled
    assert not dialler.is_due


def test_redialling_backs_off_while_nobody_answers_and_starts_over_when_somebody_did() -> None:
    clock = Clock(1)
    cable = Cable(clock, Conditions(), Conditions())
    near, far = Recorder(clock), Recorder(clock, is_up=False)
    dialler = dial(clock, cable, near, far)
    clock.run(100.0)
    assert near.links == []
    assert 15 < clock.events < 80
    far.is_up = True
    clock.run(120.0)
    near.links[0].close(1, "bye")
    clock.run(clock.now + 0.6)
    assert len(near.links) == 2
    dialler.stop()
    near.links[1].close(1, "bye")
    clock.run(clock.now + 60)
    assert len(near.links) == 2


def test_a_handshake_over_a_cut_cable_waits_for_it_to_heal_or_gives_up() -> None:
    clock = Clock(1)
    cable = Cable(clock, Conditions(), Conditions())
    near, far = Recorder(clock), Recorder(clock)
    cable.cut()
    dialler = dial(clock, cable, near, far)
    clock.run(2.0)
    cable.heal()
    clock.run(3.1)
    assert len(near.links) == 1
    dialler.stop()


def test_what_arrives_at_a_process_that_stands_still_waits_for_it() -> None:
    pair = join()
    stream = pair.a.open_stream(0, 0)
    assert stream.write(b"before", pair.clock.now)
    pair.clock.run(pair.clock.now + 1)
    pair.far.is_frozen = True
    assert stream.finish(b"after", pair.clock.now)
    pair.a.send_datagram(b"datagram", 0)
    pair.a.close(0, "enough")
    pair.clock.run(pair.clock.now + 1)
    assert pair.far.bytes_of(stream.stream_id) == b"before"
    assert pair.far.closes == []
    pair.far.thaw()
    assert pair.far.bytes_of(stream.stream_id) == b"beforeafter"
    assert [data for _, data in pair.far.datagrams] == [b"datagram"]
    assert len(pair.far.closes) == 1


def test_a_process_that_stands_still_answers_no_handshake_and_no_probe() -> None:
    pair = join()
    pair.far.is_frozen = True
    pair.a.probe()
    pair.clock.run(pair.clock.now + 2)
    assert [reason for _, reason in pair.near.closes] == ["no answer to a probe"]
