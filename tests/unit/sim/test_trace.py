"""The way of an object is known from what the links carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from laps.sim.clients import ObjectId
from laps.sim.invariants import lasting_loops
from laps.sim.trace import Trace
from laps.types import NodeId, SnsId, TrackKey
from laps.wire.buffer import encode_varint
from laps.wire.objects import encode_datagram_header, encode_new_stream_header

if TYPE_CHECKING:
    from laps.sim.links import LinkEnd

A, B, C = map(NodeId, (1, 2, 3))
TRACK = TrackKey(77)


class Traffic:
    copies = 0


class Lane:
    def __init__(self) -> None:
        self.traffic = Traffic()


class Host:
    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id


class End:
    """As much of a link's end as a trace looks at."""

    def __init__(self, sender: NodeId, *passed: NodeId) -> None:
        self.host = Host(sender)
        self.lane = Lane()
        self.passed = frozenset({sender, *passed})
        self.other = self


def link(sender: NodeId, *passed: NodeId) -> LinkEnd:
    return cast("LinkEnd", End(sender, *passed))


def stream(group: int, objects: int) -> bytes:
    body = b"".join(map(encode_varint, (0x14, TRACK, group, 5))) + b"\x80"
    for number in range(objects):
        payload = b"".join(n.to_bytes(4) for n in (5, group, number))
        body += encode_varint(0) + encode_varint(len(payload)) + payload
    return encode_new_stream_header(SnsId(1), TRACK, 0, 0, len(body)) + body


def test_objects_are_followed_byte_by_byte() -> None:
    trace = Trace()
    first, second = link(A), link(B, A)
    for byte in stream(group=4, objects=2):
        trace.data(first, B, 3, bytes([byte]), False, 1.0)
    trace.data(second, C, 3, stream(group=4, objects=2), True, 1.5)
    made = ObjectId(5, TRACK, 4, 0, False)
    assert trace.trails[made].hops == [(A, B), (B, C)]
    assert trace.trails[made].ends == [C]
    assert len(trace.trails) == 2
    assert first.lane.traffic.copies == 2
    assert trace.loops == []
    assert trace.repeats == []


def test_what_comes_back_is_a_loop_and_what_comes_by_another_way_is_not() -> None:
    trace = Trace()
    trace.data(link(A), B, 3, stream(1, 1), True, 2.0)
    trace.data(link(C, A), B, 3, stream(1, 1), True, 2.0)
    assert [to for _, to in trace.repeats] == [B]
    assert trace.loops == []
    trace.data(link(C, B, A), B, 7, stream(1, 1), True, 2.5)
    (loop,) = trace.loops
    assert str(loop).endswith("came back to 0:2 after 0.500 s by way of 0:1 0:2 0:3")


def test_what_stood_still_did_not_go_round() -> None:
    trace = Trace()
    trace.data(link(A), B, 3, stream(1, 1), True, 2.0)
    trace.data(link(A), C, 3, stream(1, 1), True, 5.0)
    trace.data(link(C, A), B, 3, stream(1, 1), True, 5.1)
    trace.data(link(B, C, A), A, 3, stream(1, 1), True, 5.2)
    assert [round(loop.lasted_s, 3) for loop in trace.loops] == [0.2]


def test_datagrams_are_followed_too() -> None:
    trace = Trace()
    payload = b"".join(n.to_bytes(4) for n in (5, 9, 0))
    inner = b"".join(map(encode_varint, (0, TRACK, 9, 0))) + b"\x80" + payload
    data = encode_datagram_header(SnsId(1), TRACK, len(inner)) + inner
    trace.datagram(link(A), B, data, 1.0)
    assert list(trace.trails) == [ObjectId(5, TRACK, 9, 0, True)]


def test_what_cannot_be_read_is_noticed_and_what_was_reset_is_forgotten() -> None:
    trace = Trace()
    at = link(A)
    trace.data(at, B, 3, b"\x05\x01", False, 1.0)
    trace.datagram(at, B, b"\x05\x01", 1.0)
    assert len(trace.violations) == 2
    whole = stream(1, 1)
    trace.data(at, B, 7, whole[:9], False, 1.0)
    trace.reset(at, 7)
    trace.data(at, B, 7, whole, True, 1.0)
    trace.closed(at)
    assert len(trace.violations) == 2
    assert len(trace.trails) == 1


def came_back(*times: float) -> Trace:
    """An object of a group each, which is back at B in 30 ms."""
    trace = Trace()
    for group, now in enumerate(times):
        trace.data(link(A), B, 3, stream(group, 1), True, now - 0.03)
        trace.data(link(C, B, A), B, 7, stream(group, 1), True, now)
    return trace


def test_a_loop_lasts_as_long_as_one_object_after_another_comes_back() -> None:
    short = came_back(1.0, 1.2, 1.4, 2.0, 2.4, 2.8)
    assert len(short.loops) == 6
    assert list(lasting_loops(short.loops)) == []
    (found,) = lasting_loops(came_back(*(1 + number / 10 for number in range(20))).loops)
    assert found.startswith("one object after another comes back for over 1 s, as ObjectId(")
