"""Messages that come in pieces, on one stream and on thousands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.sessions import quicr
from laps.sessions.control_streams import MAX_MESSAGE_BYTES, MAX_WAITING_BYTES, ControlStream
from laps.sessions.quicr import QuicrSession
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.draft import Dialect
from laps.wire.moqt.messages import Goaway, MaxRequestId, SubscribeNamespace
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import MessageReader, SubscribeCancel, encode
from support.talks import Talk, both

HALF = b"\x11\xff\xff"  # a SUBSCRIBE_NAMESPACE of 65,535 bytes begins


@given(st.lists(st.integers(1, 40), max_size=6), st.lists(st.integers(1, 50)))
def test_control_messages_come_in_any_pieces(lengths: list[int], cuts: list[int]) -> None:
    messages = [Goaway(b"x" * length) for length in lengths]
    data = b"".join(map(DRAFT16.encode, messages))
    stream, came, position = ControlStream(), [], 0
    for size in [*cuts, len(data)]:
        stream.add(data[position : position + size])
        position += size
        while (found := stream.next_message()) is not None:
            came.append(DRAFT16.decode(*found))
    assert came == messages
    assert stream.size == 0


def test_a_control_message_in_pieces_is_looked_at_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []
    measure = Dialect.measure

    def count(buffer: bytes, offset: int = 0) -> tuple[int, int, int]:
        measured.append(offset)
        return measure(buffer, offset)

    monkeypatch.setattr(Dialect, "measure", staticmethod(count))
    stream = ControlStream()
    for byte in b"\x10\x20\x00" + bytes(0x2000):
        assert stream.next_message() is None
        stream.add(bytes([byte]))
    assert stream.next_message() == (0x10, bytes(0x2000))
    assert len(measured) <= 5  # for each byte of the head, and when all of it was there


def test_half_control_messages_of_all_streams_are_bounded() -> None:
    talk = Talk(DRAFT16)
    room = MAX_MESSAGE_BYTES - 100
    for number in range(MAX_WAITING_BYTES // room):
        talk.hear_bytes(HALF + bytes(room - len(HALF)), 4 + 4 * number)
    with pytest.raises(MoqtViolation, match="on all streams") as caught:
        talk.hear_bytes(HALF + bytes(room - len(HALF)), 400)
    assert caught.value.code is SessionCode.INTERNAL_ERROR


def test_half_control_messages_before_the_setup_are_bounded() -> None:
    talk = Talk(DRAFT16, setup=False)
    for number in range(MAX_WAITING_BYTES // 60_000):
        talk.hear_bytes(HALF + bytes(60_000 - len(HALF)), 4 * number)
    with pytest.raises(MoqtViolation, match="on all streams"):
        talk.hear_bytes(HALF + bytes(60_000), 400)


def test_control_streams_that_end_make_room_for_others() -> None:
    talk = Talk(DRAFT16)
    for number in range(1, 100):
        talk.hear_bytes(HALF + bytes(60_000), 4 * number)
        list(talk.session.stream_ended(4 * number))
    assert talk.session._streams.waiting_bytes == 0


@both
def test_whole_control_messages_leave_nothing_waiting(dialect: Dialect) -> None:
    talk = Talk(dialect)
    for most in range(200, 1000):
        data = dialect.encode(MaxRequestId(most))
        talk.hear_bytes(data[:2])
        talk.hear_bytes(data[2:])
    assert talk.session._streams.waiting_bytes == 0


def test_namespace_streams_leave_nothing_waiting() -> None:
    talk = Talk(DRAFT16)
    data = DRAFT16.encode(SubscribeNamespace(0, (b"demo",)))
    talk.hear_bytes(data[:4], 4)
    assert talk.session._streams.waiting_bytes == 4
    talk.hear_bytes(data[4:], 4, fin=True)
    assert talk.session._streams.waiting_bytes == 0


# -- QUICR -----------------------------------------------------------------------------------------


class NoWire:
    def open_stream(self) -> int:
        return 1

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        pass

    def end_stream(self, stream_id: int, code: int) -> None:
        pass


def test_quicr_half_messages_of_all_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicr, "MAX_HELD_BYTES", 1_000_000)
    session = QuicrSession(NoWire())
    for number in range(1_000_000 // 50_002):
        session.receive(4 * number, b"\xff\xff" + bytes(50_000), fin=False)
    with pytest.raises(QuicrViolation, match="on all streams") as caught:
        session.receive(400, b"\xff\xff" + bytes(50_000), fin=False)
    assert caught.value.code is QuicrCode.TOO_LARGE


def test_quicr_streams_that_end_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicr, "MAX_HELD_BYTES", 1_000_000)
    session = QuicrSession(NoWire())
    for number in range(1, 100):
        session.receive(4 * number, b"\xff\xff" + bytes(50_000), fin=False)
        session.abandon(session.streams[4 * number], QuicrCode.CANCELLED)
        session.stream_ended(4 * number)
    assert session.held_bytes == 0


def test_quicr_messages_in_pieces_are_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    split = MessageReader._split

    def count(self: MessageReader, whole: bytes) -> object:
        looks.append(len(whole))
        return split(self, whole)

    monkeypatch.setattr(MessageReader, "_split", count)
    reader = MessageReader()
    message = SubscribeCancel(b"name", "x" * 300)
    data = encode(message)
    came = [item for at in range(len(data)) for item in reader.feed(data[at : at + 1])]
    assert came == [message]
    assert looks == [1, 2, len(data)]
