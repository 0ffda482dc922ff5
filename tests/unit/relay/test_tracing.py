"""Traces: when each object of a track arrives at each relay, and what nobody looks at is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay import tracing
from laps.relay.roles import Role
from laps.relay.tracing import Tap, TooManyTraces
from laps.types import TrackKey, format_node_id, track_alias
from laps.wire.quicr.carried import encode_carried
from laps.wire.quicr.messages import Fragment, Terms
from support.moqt_streams import Obj, body
from support.relays import track_hash
from support.telemetry import TelemetryNet

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.relay.tracing import Arrival, Trace
    from support.moqt import App

TRACK = "demo/t"
KEY = track_hash(TRACK).full_name_hash


@pytest.fixture
def net() -> TelemetryNet:
    return TelemetryNet()


class Line:
    """An Edge, a Via and an Edge; a publisher at one end, a subscriber at the other."""

    def __init__(self, net: TelemetryNet) -> None:
        self.net = net
        self.near, self.far = net.relay("1:1"), net.relay("1:3")
        self.via = net.relay("1:2", Role.VIA, reflect=True)
        net.wire(self.near, self.via, extended=True)
        net.wire(self.far, self.via, extended=True)
        net.settle()
        self.pub, self.sub = net.app(self.near), net.app(self.far)
        self.alias = self.pub.publish(TRACK)
        self.sub.subscribe(TRACK)
        net.settle()

    @property
    def relays(self) -> tuple[Relay, Relay, Relay]:
        return self.near, self.via, self.far


@pytest.fixture
def line(net: TelemetryNet) -> Line:
    return Line(net)


def trace_of(relay: Relay, key: TrackKey = KEY) -> Trace:
    return relay.data.trace(key, lambda: None)


def seen(trace: Trace) -> list[tuple[int, int | None, int, int]]:
    """Group, subgroup, object and size of what has come since the last look."""
    return [(item.group, item.subgroup, item.object_id, item.size) for item in arrivals(trace)]


def arrivals(trace: Trace) -> list[Arrival]:
    taken, missed = trace.take()
    assert missed == 0
    return taken


def sources(trace: Trace) -> set[str | None]:
    return {
        None if item.source is None else format_node_id(item.source) for item in arrivals(trace)
    }


def taps(relay: Relay) -> int:
    return sum(
        isinstance(out, Tap)
        for passing in relay.data.open_streams()
        for out in (*passing.outs, *(passing.incoming.outs if passing.incoming else ()))
    )


# -- streams ---------------------------------------------------------------------------------------


def test_an_object_is_seen_at_every_relay_that_it_passes(line: Line) -> None:
    traces = [trace_of(relay) for relay in line.relays]
    line.pub.stream(line.alias, 4, Obj(0, b"x" * 100), Obj(2, b"y" * 7), subgroup=1)
    line.net.run()
    assert [seen(trace) for trace in traces] == [[(4, 1, 0, 100), (4, 1, 2, 7)]] * 3


def test_an_arrival_names_the_peer_it_comes_from_and_no_client(line: Line) -> None:
    traces = [trace_of(relay) for relay in line.relays]
    line.pub.stream(line.alias, 0, Obj(0, b"x"))
    line.net.run()
    assert [sources(trace) for trace in traces] == [{None}, {"1:1"}, {"1:2"}]


def test_an_object_is_seen_as_it_begins_and_not_when_it_is_whole(line: Line) -> None:
    trace = trace_of(line.via)
    whole = Obj(0, b"x" * 1000)
    stream = line.pub.open(line.alias, 0)
    began = line.net.now
    data = body([whole])
    stream.write_bytes(data[:200])
    line.net.run(5)
    stream.write_bytes(data[200:])
    line.net.run(5)
    [arrival] = arrivals(trace)
    assert arrival.at == began
    assert arrival.size == 1000


def test_a_subgroup_named_after_its_first_object_has_that_number(line: Line) -> None:
    trace = trace_of(line.via)
    line.pub.stream(line.alias, 3, Obj(5, b"x"), Obj(6, b"y"), subgroup=None)
    line.net.run()
    assert [(a.group, a.subgroup, a.object_id) for a in arrivals(trace)] == [(3, 5, 5), (3, 5, 6)]


def test_the_end_of_a_track_is_told(line: Line) -> None:
    trace = trace_of(line.far)
    line.pub.stream(line.alias, 3, Obj(0, b"x"), Obj(1, status=4))
    line.net.run()
    assert [item.status for item in arrivals(trace)] == [0, 4]


def test_another_track_is_not_seen(line: Line) -> None:
    traces = [trace_of(relay, TrackKey(KEY + 1)) for relay in line.relays]
    line.pub.stream(line.alias, 0, Obj(0, b"x"))
    line.net.run()
    assert [seen(trace) for trace in traces] == [[], [], []]
    assert [taps(relay) for relay in line.relays] == [0, 0, 0]


def test_without_a_trace_no_stream_has_a_tap(line: Line) -> None:
    line.pub.open(line.alias, 0, Obj(0, b"x"))
    line.net.run()
    assert [taps(relay) for relay in line.relays] == [0, 0, 0]


def test_a_stream_that_is_open_already_is_picked_up_where_it_is_kept(line: Line) -> None:
    stream = line.pub.open(line.alias, 0, Obj(0, b"before"))
    line.net.run()
    traces = [trace_of(relay) for relay in line.relays]
    stream.write(Obj(1, b"after"))
    line.net.run()
    near, via, far = (seen(trace) for trace in traces)
    assert near == far == [(0, 0, 1, 5)]
    assert via == []  # a Via keeps nothing that would tell where an object begins


def test_a_stream_picked_up_in_the_middle_of_an_object_shows_the_next_one(line: Line) -> None:
    data = body([Obj(0, b"x" * 50), Obj(1, b"y" * 60)])
    stream = line.pub.open(line.alias, 0)
    stream.write_bytes(data[:20])
    line.net.run()
    trace = trace_of(line.far)
    stream.write_bytes(data[20:])
    line.net.run()
    assert seen(trace) == [(0, 0, 1, 60)]


def test_a_stream_of_a_stub_that_is_picked_up_comes_from_the_stub(net: TelemetryNet) -> None:
    edge, stub = net.relay("1:1"), net.relay("1:9", Role.STUB)
    net.wire(stub, edge)
    net.settle()
    pub, sub = net.app(stub), net.app(edge)
    alias = pub.publish(TRACK)
    sub.subscribe(TRACK)
    net.settle()
    stream = pub.open(alias, 0, Obj(0, b"a"))
    net.run()
    trace = trace_of(edge)
    stream.write(Obj(1, b"b"))
    net.run()
    pub.stream(alias, 1, Obj(0, b"c"))
    net.run()
    taken = arrivals(trace)
    assert [(item.group, item.object_id) for item in taken] == [(0, 1), (1, 0)]
    assert {format_node_id(item.source) for item in taken if item.source} == {"1:9"}


def test_a_trace_that_follows_another_picks_a_stream_up_again(line: Line) -> None:
    stream = line.pub.open(line.alias, 0, Obj(0, b"a"))
    line.net.run()
    first = trace_of(line.far)
    stream.write(Obj(1, b"b"))
    line.net.run()
    line.far.data.tracing.stop(first)
    stream.write(Obj(2, b"c"))
    line.net.run()
    second = trace_of(line.far)
    stream.write(Obj(3, b"d"))
    line.net.run()
    assert seen(first) == [(0, 0, 1, 1)]
    assert seen(second) == [(0, 0, 3, 1)]


def test_a_stream_that_cannot_be_read_is_passed_on_and_not_traced(line: Line) -> None:
    trace = trace_of(line.via)
    stream = line.pub.open(line.alias, 0)
    stream.write_bytes(b"\0\0\x3f")  # a status that there is not
    line.net.run()
    stream.write_bytes(b"\xff" * 10)
    line.net.run()
    assert seen(trace) == []
    assert line.via.data.counters.refused_streams == 0


# -- datagrams -------------------------------------------------------------------------------------


def test_objects_in_datagrams_are_seen_without_a_subgroup(line: Line) -> None:
    traces = [trace_of(relay) for relay in line.relays]
    line.pub.datagram(line.alias, 2, 9, payload=b"12345")
    line.net.run()
    assert [seen(trace) for trace in traces] == [[(2, None, 9, 5)]] * 3


def test_of_an_object_in_fragments_the_first_one_is_seen(line: Line) -> None:
    traces = [trace_of(relay) for relay in line.relays]
    alias = track_alias(KEY)
    for offset, last in ((0, False), (3, True)):
        data = encode_carried(alias, Fragment(1, 2, offset, b"abc", last), Terms())
        track = line.near.tracks.get(KEY)
        assert track is not None
        client = next(iter(track.publishers))
        line.near.publish_datagram(client, track_hash(TRACK), data, line.net.now)
        line.net.run()
    assert [seen(trace) for trace in traces] == [[(1, None, 2, 3)]] * 3


# -- bounds ----------------------------------------------------------------------------------------


def test_what_nobody_reads_is_counted_beyond_the_bound(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MAX_WAITING", 3)
    trace = trace_of(line.via)
    line.pub.stream(line.alias, 0, *(Obj(number, b"x") for number in range(5)))
    line.net.run()
    taken, missed = trace.take()
    assert [item.object_id for item in taken] == [0, 1, 2]
    assert missed == 2
    line.pub.stream(line.alias, 1, Obj(0, b"x"))
    line.net.run()
    assert seen(trace) == [(1, 0, 0, 1)]


def test_who_reads_is_woken_once_for_what_waits(line: Line) -> None:
    woken: list[int] = []
    trace = line.via.data.trace(KEY, lambda: woken.append(1))
    line.pub.stream(line.alias, 0, Obj(0, b"x"), Obj(1, b"y"))
    line.net.run()
    assert len(woken) == 1
    trace.take()
    line.pub.stream(line.alias, 1, Obj(0, b"x"))
    line.net.run()
    assert len(woken) == 2


def test_two_traces_of_a_track_see_the_same_and_end_apart(line: Line) -> None:
    one, two = trace_of(line.via), trace_of(line.via)
    line.pub.stream(line.alias, 0, Obj(0, b"x"))
    line.net.run()
    assert seen(one) == seen(two) == [(0, 0, 0, 1)]
    line.via.data.tracing.stop(one)
    line.pub.stream(line.alias, 1, Obj(0, b"x"))
    line.net.run()
    assert seen(one) == []
    assert seen(two) == [(1, 0, 0, 1)]
    line.via.data.tracing.stop(two)
    line.via.data.tracing.stop(two)
    assert not line.via.data.tracing.tracks


def test_there_are_so_many_traces_and_no_more(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_TRACES", 2)
    first = trace_of(line.via)
    trace_of(line.via, TrackKey(KEY + 1))
    with pytest.raises(TooManyTraces, match="2 traces run"):
        trace_of(line.via)
    line.via.data.tracing.stop(first)
    trace_of(line.via)


# -- what it must not change -----------------------------------------------------------------------


def objects_read(app: App) -> list[tuple[int, int, bytes]]:
    return list(app.objects)


def test_a_trace_is_no_copy_and_changes_nothing_that_is_delivered(net: TelemetryNet) -> None:
    line = Line(net)
    for relay in line.relays:
        net.report(relay)
    open_before = line.pub.open(line.alias, 0, Obj(0, b"x" * 10))
    net.run(1)
    for relay in line.relays:
        trace_of(relay)
    open_before.write(Obj(1, b"y" * 10), fin=True)
    line.pub.stream(line.alias, 1, Obj(0, b"z" * 100))
    broken = line.pub.open(line.alias, 2, Obj(0, b"z" * 100))
    net.run(1)
    broken.reset(7)
    net.run(2)
    assert [place[:2] for place in objects_read(line.sub)] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    for relay in line.relays:
        track = relay.tracks.get(KEY)
        meter = relay.tracks.transit[KEY] if track is None else track.meter
        assert meter.received > 200
        # One copy each: to the Via, to the far Edge, to the subscriber.
        assert meter.sent == meter.received


def test_what_a_relay_says_of_itself_can_be_traced_too(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = net.report(relay)
    net.run(3)
    key = track_hash("/".join(("laps/telemetry/1:1", "node"))).full_name_hash
    trace = trace_of(relay, key)
    net.run(2)
    assert len(arrivals(trace)) == 2
    assert said.name("node") == "laps/telemetry/1:1/node"


def test_a_traced_stream_that_is_given_up_is_counted_no_less(net: TelemetryNet) -> None:
    line = Line(net)
    net.report(line.far)
    trace_of(line.far)
    line.pub.open(line.alias, 0, Obj(0, b"x" * 100))
    net.run(1)
    track = line.far.tracks.get(KEY)
    assert track is not None
    [there] = [wire.there for wire in net.wires if wire.here.relay is line.far]
    [stream] = there.running
    before = track.meter.sent
    there.deliver_data(stream.stream_id, b"\xff" * 50, False)  # where a header has to be
    there.deliver_data(stream.stream_id, b"\xff" * 500, True)
    net.run(1)
    assert line.far.data.counters.refused_streams == 1
    assert track.meter.sent >= before > 100
