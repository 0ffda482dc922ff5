"""WebTransport on connections that exist in memory only."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from laps.errors import (
    ConnectionClosed,
    DatagramTooLarge,
    InvalidEncoding,
    SendBufferFull,
)
from laps.net.early import EARLY_BYTES, EARLY_DATAGRAMS, EARLY_STREAMS
from laps.net.http3 import (
    BUFFERED_STREAM_REJECTED,
    FIELD_SECTION_BYTES,
    ErrorCode,
    Fields,
    FrameReader,
    FrameType,
    Setting,
    encode_error,
    encode_frame,
    encode_settings,
)
from laps.net.http3_connection import LINGER_TICKS, REQUESTS, SETTINGS
from laps.net.webtransport import (
    Accepted,
    ConnectRequest,
    Refused,
    WebTransportClient,
    WebTransportServer,
    WebTransportSession,
)
from laps.net.webtransport_session import CLOSE_SESSION, DRAIN_SESSION
from laps.wire.buffer import encode_varint
from support.engines import Recorder
from support.transports import FakeConnection


def carry(source: FakeConnection, target: FakeConnection, size: int) -> bool:
    """Hand over what one side said, stream bytes in pieces of this size."""
    moved = bool(source.sent)
    while source.sent:
        call, *args = source.sent.popleft()
        if target.close_state is not None or target.receiver is None:
            continue
        if call == "closed":
            target.ended(args[0])
        elif call == "stream_data":
            stream_id, data, fin = args
            pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""] * fin
            for number, piece in enumerate(pieces, 1):
                target.receiver.stream_data(stream_id, piece, fin and number == len(pieces))
        else:
            getattr(target.receiver, call)(*args)
    return moved


class Both:
    """A client and a server, with a session between them once `run` has been called."""

    def __init__(self, size: int = 1 << 30, protocols: tuple[str, ...] = ()) -> None:
        self.size = size
        self.here = FakeConnection(is_client=True)
        self.there = FakeConnection(is_client=False)
        self.saw, self.they_saw = Recorder(), Recorder()
        self.answers: list[WebTransportSession | str] = []
        self.requests: list[ConnectRequest] = []
        self.decision: Accepted | Refused = Accepted(lambda _: self.they_saw)
        self.server = WebTransportServer(self.there, self._choose)
        self.there.receiver = self.server
        fields = [(b":scheme", b"https"), (b":authority", b"relay:443"), (b":path", b"/moq")]
        self.client = WebTransportClient(
            self.here, fields, protocols, lambda _: self.saw, self.answers.append
        )
        self.here.receiver = self.client

    def _choose(self, request: ConnectRequest) -> Accepted | Refused:
        self.requests.append(request)
        return self.decision

    def run(self) -> None:
        while carry(self.here, self.there, self.size) | carry(self.there, self.here, self.size):
            pass

    def begin(self) -> tuple[WebTransportSession, WebTransportSession]:
        self.run()
        assert self.client.session is not None
        assert self.server.session is not None
        assert self.answers == [self.client.session]
        return self.client.session, self.server.session


# -- a session from end to end ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 30, 1, 3])
def test_streams_datagrams_and_the_end_arrive_however_they_are_cut(size: int) -> None:
    both = Both(size)
    ours, theirs = both.begin()
    for speaker, listener, heard, answered in (
        (ours, theirs, both.they_saw, both.saw),
        (theirs, ours, both.saw, both.they_saw),
    ):
        one_way = speaker.open_stream(unidirectional=True)
        both_ways = speaker.open_stream(unidirectional=False)
        speaker.write(one_way, memoryview(b"statement"))
        speaker.write(one_way, bytearray(b" and more"), fin=True)
        speaker.write(both_ways, b"question", fin=True)
        both.run()
        assert heard.data == {one_way: b"statement and more", both_ways: b"question"}
        assert heard.finished == {one_way, both_ways}
        listener.write(both_ways, b"answer", fin=True)
        assert listener.send_datagram(b"datagram")
        both.run()
        assert answered.data.pop(both_ways) == b"answer"
        assert answered.datagrams == [b"datagram"]
        for recorder in (heard, answered):
            recorder.data.clear()
            recorder.finished.clear()
    assert (both.server.open_streams, both.client.open_streams) == (2, 2)
    ours.close(7, "enough of it")
    both.run()
    assert [(c.code, c.reason, c.by_peer, c.application) for c in both.they_saw.closes] == [
        (7, "enough of it", True, True)
    ]
    assert [(c.code, c.reason, c.by_peer, c.application) for c in both.saw.closes] == [
        (7, "enough of it", False, True)
    ]
    for connection in (both.here, both.there):
        assert connection.close_state is not None
        assert connection.close_state.code == ErrorCode.NO_ERROR


def test_the_bytes_on_the_wire() -> None:
    both = Both()
    ours, _ = both.begin()
    one_way, both_ways = (ours.open_stream(unidirectional=u) for u in (True, False))
    assert both.here.sent == deque()  # nobody hears of a stream before its first bytes
    ours.write(one_way, b"a")
    ours.write(both_ways, b"b")
    ours.write(both_ways, b"c")
    ours.send_datagram(b"d")
    ours.reset_stream(one_way, 5)
    ours.stop_stream(both_ways, 6)
    assert both.here.written(one_way) == b"\x40\x54\x00a"
    assert both.here.written(both_ways) == b"\x40\x41\x00bc"
    ours.close(258, "why")
    assert list(both.here.sent)[-4:] == [
        ("datagram", b"\x00d"),
        ("stream_reset", one_way, encode_error(5)),
        ("stop_sending", both_ways, encode_error(6)),
        ("stream_data", 0, b"\x00\x0a\x68\x43\x07\x00\x00\x01\x02why", True),
    ]


def test_codes_of_streams_cross() -> None:
    both = Both()
    ours, theirs = both.begin()
    stream = ours.open_stream(unidirectional=False)
    ours.write(stream, b"x")
    both.run()
    ours.reset_stream(stream, 0xFFFF_FFFF)
    ours.stop_stream(stream, 31)
    theirs.reset_stream(stream, 31)
    both.run()
    assert both.they_saw.resets == [(stream, 0xFFFF_FFFF)]
    assert both.they_saw.stops == [(stream, 31)]
    assert both.saw.resets == [(stream, 31)]
    # HTTP/3's own codes, and those of who does not know better, say nothing to an application.
    other = ours.open_stream(unidirectional=True)
    ours.write(other, b"x")
    both.run()
    both.server.stream_reset(other, 0x10C)
    assert both.they_saw.resets[-1] == (other, 0)
    assert both.server.open_streams == 2


def test_a_stream_reset_before_it_was_known_is_none() -> None:
    both = Both()
    both.begin()
    both.server.stream_reset(6, 5)
    both.server.stream_data(10, b"\x40", False)
    both.server.stream_reset(10, 5)
    assert both.they_saw.resets == []
    assert both.server.open_streams == 2


def test_a_preamble_alone_tells_nothing_yet() -> None:
    both = Both()
    ours, _ = both.begin()
    ours.write(ours.open_stream(unidirectional=True), b"")
    both.run()
    assert both.they_saw.data == {}
    ours.write(2 + 4, b"now", fin=True)
    both.run()
    assert both.they_saw.data == {6: b"now"}


def test_a_session_is_used_like_a_connection() -> None:
    both = Both()
    session, _ = both.begin()
    assert session.established
    assert (session.opened_at, session.last_heard) == (1.0, 2.0)
    assert session.remote == ("192.0.2.1", 1000)
    assert session.peer_certificate() == b"certificate"
    assert session.stats().srtt_us == 1
    both.here.buffered_bytes = 99
    assert session.buffered_bytes == 99
    assert session.datagram_limit_bytes == 999
    session.wake_below(5)
    assert both.here.woken_below == 5
    session.pause_reading()
    session.resume_reading()
    assert both.here.pauses == [True, False]
    session.ping()
    assert both.here.pings == 1
    both.client.writable()
    assert both.saw.wakes == 1
    ticks: list[float] = []
    session.tick = ticks.append
    assert both.here.tick is not None
    both.here.tick(3.0)
    assert ticks == [3.0]
    with pytest.raises(DatagramTooLarge):
        session.send_datagram(bytes(1000))


def test_a_refused_write_is_repeated_without_a_second_preamble() -> None:
    both = Both()
    session, _ = both.begin()
    stream = session.open_stream(unidirectional=True)
    both.here.full = True
    for _ in range(2):
        with pytest.raises(SendBufferFull):
            session.write(stream, b"data")
    both.here.full = False
    session.write(stream, b"data")
    session.write(stream, b"", fin=True)
    assert both.here.written(stream) == b"\x40\x54\x00data"


def test_the_protocol_is_the_one_chosen() -> None:
    both = Both(protocols=("moqt-18", "moqt-16"))
    both.client._request = [
        *both.client._request,
        (b"wt-available-protocols", b'"moqt-18", "moqt-16"'),
        (b"origin", b"https://example.org"),
    ]
    both.decision = Accepted(lambda _: both.they_saw, "moqt-16")
    ours, theirs = both.begin()
    assert ours.alpn == theirs.alpn == "moqt-16"
    [request] = both.requests
    assert request.protocols == ("moqt-18", "moqt-16")
    assert request.origin == "https://example.org"
    assert (request.authority, request.path) == ("relay:443", "/moq")


def test_a_protocol_nobody_offered_is_not_taken() -> None:
    both = Both()
    both.decision = Accepted(lambda _: both.they_saw, "surprise")
    ours, _ = both.begin()
    assert ours.alpn == ""


# -- the end ---------------------------------------------------------------------------------------


def ended(both: Both) -> list[tuple[int, str, bool, bool]]:
    return [(c.code, c.reason, c.by_peer, c.application) for c in both.they_saw.closes]


def test_a_session_ends_with_its_stream() -> None:
    both = Both()
    both.begin()
    both.server.stream_data(0, b"", True)
    assert ended(both) == [(0, "", True, True)]
    # The server leaves the end of the connection to the client.
    assert list(both.there.sent) == [("stream_data", 0, b"", True)]
    both.server.stream_data(0, b"", True)
    assert both.there.close_state is None
    both.server.closed(ConnectionClosed(1, "", True, True))
    assert len(both.they_saw.closes) == 1


@pytest.mark.parametrize("call", ["stream_reset", "stop_sending"])
def test_a_session_ends_when_its_stream_is_given_up(call: str) -> None:
    both = Both()
    both.begin()
    getattr(both.server, call)(0, 0x10C)
    [(code, reason, by_peer, application)] = ended(both)
    assert (code, by_peer, application) == (0, True, True)
    assert "H3_REQUEST_CANCELLED" in reason


def test_whoever_needs_no_more_of_a_request_does_not_end_the_session() -> None:
    both = Both()
    both.begin()
    both.server.stop_sending(0, ErrorCode.NO_ERROR)
    assert ended(both) == []


@pytest.mark.parametrize(
    ("close", "told"),
    [
        (ConnectionClosed(0x100, "", True, True), (0, "", True, True)),
        (ConnectionClosed(5, "its own", True, True), (5, "its own", True, True)),
        (ConnectionClosed(0x105, "x", True, True), (0x105, "H3_FRAME_UNEXPECTED: x", True, False)),
        (ConnectionClosed(0x10C, "", True, True), (0x10C, "H3_REQUEST_CANCELLED", True, False)),
        (ConnectionClosed(0, "idle", False, False), (0, "idle", False, False)),
    ],
)
def test_a_session_ends_with_its_connection(
    close: ConnectionClosed, told: tuple[int, str, bool, bool]
) -> None:
    both = Both()
    _, theirs = both.begin()
    both.there.ended(close)
    assert ended(both) == [told]
    assert not theirs.established


def test_after_the_end_nothing_is_sent_or_told() -> None:
    both = Both()
    ours, theirs = both.begin()
    stream = ours.open_stream(unidirectional=False)
    unwritten = ours.open_stream(unidirectional=True)
    ours.write(stream, b"begun")
    both.run()
    theirs.close(1, "over")
    both.there.sent.clear()
    for use in (
        lambda: theirs.write(stream, b"x"),
        lambda: theirs.open_stream(unidirectional=True),
        lambda: theirs.reset_stream(stream, 1),
        lambda: theirs.stop_stream(stream, 1),
        lambda: theirs.send_datagram(b"x"),
        lambda: theirs.datagram_limit_bytes,
        theirs.ping,
        theirs.drain,
    ):
        with pytest.raises(ConnectionClosed):
            use()
    theirs.close(2, "again")
    ours.write(stream, b"more", fin=True)
    ours.write(unwritten, b"new", fin=True)
    ours.send_datagram(b"x")
    carry(both.here, both.there, 100)
    both.server.writable()
    assert list(both.there.sent) == []
    assert both.they_saw.data == {stream: b"begun"}
    assert both.they_saw.wakes == 0
    assert ended(both) == [(1, "over", False, True)]
    assert both.server.open_streams <= 2


def test_who_does_not_leave_is_not_waited_for_long() -> None:
    both = Both()
    _, theirs = both.begin()
    theirs.close(1, "over")
    both.server.stream_data(0, b"", True)  # it was heard, and then nothing follows
    assert both.there.tick is not None
    for _ in range(LINGER_TICKS):
        assert both.there.close_state is None
        both.there.tick(0.0)
    assert both.there.close_state is not None
    assert both.there.close_state.code == ErrorCode.NO_ERROR


def test_who_reads_nothing_is_not_waited_for_at_all() -> None:
    both = Both()
    _, theirs = both.begin()
    both.there.full = True
    theirs.close(1, "over")
    assert ended(both) == [(1, "over", False, True)]
    assert both.there.close_state is not None


def test_a_reason_is_cut_where_a_letter_ends() -> None:
    both = Both()
    _, theirs = both.begin()
    theirs.close(2**40, "é" * 600 + "x")
    both.run()
    [close] = both.saw.closes
    assert close.reason == "é" * 512
    assert close.code == 0xFFFF_FFFF


def test_an_error_of_the_application_ends_the_session_with_its_code() -> None:
    def refuse(*_: object) -> None:
        raise InvalidEncoding("no such thing")

    for call in ("data", "fresh", "reset", "stop", "datagram"):
        both = Both()
        ours, _ = both.begin()
        stream = ours.open_stream(unidirectional=False)
        ours.write(stream, b"begun")
        both.run()
        for name in ("stream_data", "stream_reset", "stop_sending", "datagram"):
            setattr(both.they_saw, name, refuse)
        match call:
            case "data":
                ours.write(stream, b"more")
            case "fresh":
                ours.write(ours.open_stream(unidirectional=True), b"new")
            case "reset":
                ours.reset_stream(stream, 1)
            case "stop":
                ours.stop_stream(stream, 1)
            case "datagram":
                ours.send_datagram(b"x")
        both.run()
        [close] = both.saw.closes
        assert (close.code, close.reason) == (InvalidEncoding.code, "no such thing")
        assert close.by_peer


def test_a_session_may_be_ended_as_it_begins() -> None:
    both = Both()

    def accept(session: WebTransportSession) -> Recorder:
        session.close(9, "not today")
        return both.they_saw

    both.decision = Accepted(accept)
    both.run()
    assert ended(both) == [(9, "not today", False, True)]
    assert [(c.code, c.reason) for c in both.saw.closes] == [(9, "not today")]


@pytest.mark.parametrize("size", [1, 100])
def test_capsules_nobody_knows_are_skipped(size: int) -> None:
    both = Both()
    ours, _ = both.begin()
    asked: list[bool] = []
    ours.on_drain = lambda: asked.append(True)
    capsules = (
        encode_frame(0x1234, b"unknown")
        + encode_frame(0x0, b"a datagram, as a capsule")
        + encode_frame(DRAIN_SESSION, b"")
        + encode_frame(CLOSE_SESSION, b"\x00\x00\x00\x05bye")
        + encode_frame(0x1234, b"unknown")
    )
    stream = encode_frame(0x21, b"greased") + b"".join(
        encode_frame(FrameType.DATA, capsules[at : at + size])
        for at in range(0, len(capsules), size)
    )
    both.client.stream_data(0, stream, True)
    assert asked == [True]
    assert [(c.code, c.reason) for c in both.saw.closes] == [(5, "bye")]


def test_goaway_asks_to_leave_too() -> None:
    both = Both()
    ours, theirs = both.begin()
    asked: list[str] = []
    ours.on_drain = lambda: asked.append("client")
    theirs.on_drain = lambda: asked.append("server")
    for side, stream_id in ((both.client, 3), (both.server, 2)):
        side.stream_data(stream_id, encode_frame(FrameType.GOAWAY, b"\x00"), False)
    assert asked == ["client", "server"]
    theirs.drain()
    both.run()
    assert asked == ["client", "server", "client"]


# -- what comes too early --------------------------------------------------------------------------

CONTROL = b"\x00" + encode_frame(FrameType.SETTINGS, encode_settings(SETTINGS))
CONNECT = [
    (b":method", b"CONNECT"),
    (b":protocol", b"webtransport"),
    (b":scheme", b"https"),
    (b":authority", b"relay:443"),
    (b":path", b"/moq"),
]
GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"x"), (b":path", b"/")]


class Alone:
    """A server whose client is the test."""

    def __init__(self, *, settings: bool = True) -> None:
        self.saw = Recorder()
        self.connection = FakeConnection(is_client=False)
        self.decision: Accepted | Refused = Accepted(lambda _: self.saw)
        self.server = WebTransportServer(self.connection, lambda _: self.decision)
        self.connection.receiver = self.server
        if settings:
            self.server.stream_data(2, CONTROL, False)
        self.connection.sent.clear()

    def ask(
        self,
        stream_id: int = 0,
        fields: list[tuple[bytes, bytes]] = CONNECT,
        fin: bool = False,
    ) -> None:
        self.server.stream_data(stream_id, Fields().encode(stream_id, fields), fin)

    def status(self, stream_id: int) -> bytes | None:
        reader = FrameReader(frozenset((FrameType.HEADERS,)), 10_000)
        for kind, payload in reader.feed(self.connection.written(stream_id)):
            if kind == FrameType.HEADERS:
                return dict(Fields().decode(stream_id, payload))[b":status"]
        return None

    @property
    def code(self) -> int | None:
        close = self.connection.close_state
        return None if close is None else close.code


def test_streams_that_overtake_their_session_are_held_for_it() -> None:
    alone = Alone()
    for byte in b"\x40\x54\x00early":
        alone.server.stream_data(6, bytes([byte]), False)
    alone.server.stream_data(4, b"\x40\x41\x00bidi", True)
    alone.server.stream_data(10, b"\x40\x54\x00reset", False)
    alone.server.stream_reset(10, 1)
    alone.server.datagram(b"\x00datagram")
    alone.server.datagram(b"\x05of nobody")
    assert alone.saw.data == {}
    assert alone.server.counters.early_streams == 3
    alone.ask()
    assert alone.saw.data == {6: b"early", 4: b"bidi"}
    assert alone.saw.finished == {4}
    assert alone.saw.datagrams == [b"datagram"]
    assert alone.server.counters.dropped_datagrams == 1
    alone.server.stream_data(6, b" and late", True)
    assert alone.saw.data[6] == b"early and late"
    assert alone.server.open_streams == 2


def test_a_request_that_overtakes_the_settings_waits_for_them() -> None:
    alone = Alone(settings=False)
    alone.ask()
    assert alone.connection.written(0) == b""
    alone.server.stream_data(2, CONTROL, False)
    assert alone.server.session is not None
    assert alone.status(0) == b"200"


def test_a_request_given_up_before_the_settings_is_forgotten() -> None:
    for give_up in (
        lambda alone: alone.server.stream_reset(0, 0x10C),
        lambda alone: alone.server.stream_data(0, b"", True),
    ):
        alone = Alone(settings=False)
        alone.ask()
        give_up(alone)  # type: ignore[no-untyped-call]
        alone.server.stream_data(2, CONTROL, False)
        assert alone.server.session is None
        alone.ask(4)
        assert alone.server.session is not None


def test_more_than_is_held_is_refused_stream_by_stream() -> None:
    alone = Alone()
    alone.server.stream_data(6, b"\x40\x54\x00" + bytes(EARLY_BYTES), False)
    alone.server.stream_data(4, b"\x40\x41\x00" + bytes(EARLY_BYTES), False)
    alone.server.stream_data(10, b"\x40\x54\x00one byte too many", False)
    alone.server.stream_data(6, b"more", False)
    refused = [("stop_sending", s, BUFFERED_STREAM_REJECTED) for s in (4, 10, 6)]
    refused.insert(1, ("stream_reset", 4, BUFFERED_STREAM_REJECTED))
    assert list(alone.connection.sent) == refused
    assert alone.server.counters.rejected_streams == 3
    assert alone.server._early.held_bytes == 0
    # What still comes on them is for nobody, and they are forgotten when they end.
    for stream_id in (6, 4, 10):
        alone.server.stream_data(stream_id, b"more", False)
        alone.server.stream_data(stream_id, b"", True)
    assert alone.server.open_streams == 1
    alone.ask()
    assert alone.saw.data == {}
    assert alone.code is None


def test_the_number_of_streams_and_datagrams_held_is_bounded() -> None:
    alone = Alone()
    for number in range(EARLY_STREAMS + 5):
        alone.server.stream_data(6 + 4 * number, b"\x40\x54\x00x", True)
    for _ in range(EARLY_DATAGRAMS + 5):
        alone.server.datagram(b"\x00x")
    assert alone.server.counters.rejected_streams == 5
    assert alone.server.counters.dropped_datagrams == 5
    alone.ask()
    assert len(alone.saw.finished) == EARLY_STREAMS
    assert len(alone.saw.datagrams) == EARLY_DATAGRAMS
    assert alone.server.open_streams == 2


def test_streams_and_datagrams_of_another_session_are_refused() -> None:
    alone = Alone()
    alone.server.stream_data(6, b"\x40\x54\x04early", True)
    alone.ask()
    alone.server.stream_data(10, b"\x40\x54\x08late", False)
    alone.server.datagram(b"\x02x")
    assert alone.saw.data == {}
    assert alone.server.counters.rejected_streams == 2
    assert alone.server.counters.dropped_datagrams == 1
    assert alone.server.open_streams == 3


def test_a_datagram_may_say_its_number_at_length() -> None:
    alone = Alone()
    alone.ask()
    alone.server.datagram(b"\x40\x00long")
    assert alone.saw.datagrams == [b"long"]


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (GET, b"404"),
        ([(b":method", b"HEAD"), *GET[1:]], b"405"),
        ([(b":method", b"POST"), *GET[1:]], b"405"),
        ([(b":method", b"CONNECT"), (b":authority", b"x:1")], b"405"),
        ([CONNECT[0], (b":protocol", b"websocket"), *CONNECT[2:]], b"501"),
        ([CONNECT[0], (b":protocol", b"webtransport-h3"), *CONNECT[2:]], b"200"),
        (CONNECT, b"200"),
    ],
)
def test_requests_are_answered(fields: list[tuple[bytes, bytes]], status: bytes) -> None:
    alone = Alone()
    alone.ask(0, fields)
    assert alone.status(0) == status
    alone.server.stream_data(0, encode_frame(FrameType.DATA, b""), False)
    assert alone.code is None
    if status == b"404":
        assert b"LAPS relay" in alone.connection.written(0)
    if status != b"200":
        alone.server.stream_data(0, b"whatever", True)
        assert alone.server.open_streams == 1
        assert alone.server.counters.refused_requests == 1


def test_there_is_one_session_on_a_connection() -> None:
    alone = Alone()
    alone.ask(0)
    alone.ask(4)
    assert (alone.status(0), alone.status(4)) == (b"200", b"429")
    assert alone.server.session is not None
    assert alone.server.session.established


def test_who_was_refused_may_ask_again() -> None:
    alone = Alone()
    alone.decision = Refused(403, "not you")
    alone.ask(0)
    assert alone.status(0) == b"403"
    assert b"not you" in alone.connection.written(0)
    alone.decision = Accepted(lambda _: alone.saw)
    alone.ask(4)
    assert alone.status(4) == b"200"
    assert alone.server.session is not None
    assert alone.server.session.id == 4
    alone.server.stream_data(6, b"\x40\x54\x04now", False)
    alone.server.datagram(b"\x01too")
    assert alone.saw.data == {6: b"now"}
    assert alone.saw.datagrams == [b"too"]


def test_a_malformed_request_costs_its_stream_only() -> None:
    alone = Alone()
    alone.ask(0, [*GET, (b"Upper", b"x")])
    assert list(alone.connection.sent) == [
        ("stop_sending", 0, ErrorCode.MESSAGE_ERROR),
        ("stream_reset", 0, ErrorCode.MESSAGE_ERROR),
    ]
    alone.server.stream_data(4, b"\x01\x05", True)
    alone.server.stream_data(8, b"", True)
    assert [s[1:] for s in alone.connection.sent if s[0] == "stream_reset"][1:] == [
        (4, ErrorCode.REQUEST_INCOMPLETE),
        (8, ErrorCode.REQUEST_INCOMPLETE),
    ]
    assert alone.code is None
    alone.ask(12)
    assert alone.server.session is not None


def test_requests_that_are_being_read_are_bounded() -> None:
    alone = Alone()
    for number in range(REQUESTS + 1):
        alone.server.stream_data(4 * number, b"\x01\x40\x64half", False)
    assert list(alone.connection.sent) == [
        ("stop_sending", 4 * REQUESTS, ErrorCode.REQUEST_REJECTED),
        ("stream_reset", 4 * REQUESTS, ErrorCode.REQUEST_REJECTED),
    ]
    alone.server.stream_reset(0, 0x10C)
    alone.ask(4 * REQUESTS + 4)
    assert alone.server.session is not None


def test_who_asks_and_does_not_read_is_closed() -> None:
    alone = Alone()
    alone.connection.full = True
    alone.ask(0, GET)
    assert alone.code == ErrorCode.EXCESSIVE_LOAD


def test_a_connection_without_a_stream_for_control_is_closed() -> None:
    connection = FakeConnection(is_client=False)
    connection.streams_left = 0
    WebTransportServer(connection, lambda _: Refused(404))
    assert connection.close_state is not None
    assert connection.close_state.code == ErrorCode.STREAM_CREATION_ERROR


def test_a_client_without_datagrams_gets_none() -> None:
    alone = Alone(settings=False)
    alone.server.stream_data(2, b"\x00\x04\x00", False)
    alone.ask()
    session = alone.server.session
    assert session is not None
    assert session.datagram_limit_bytes == 0
    with pytest.raises(DatagramTooLarge):
        session.send_datagram(b"x")


# -- violations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        # control
        ([("stream_data", 6, CONTROL, False)], ErrorCode.STREAM_CREATION_ERROR),
        ([("stream_data", 2, b"", True)], ErrorCode.CLOSED_CRITICAL_STREAM),
        ([("stream_reset", 2, 0)], ErrorCode.CLOSED_CRITICAL_STREAM),
        ([("stop_sending", 3, 0)], ErrorCode.CLOSED_CRITICAL_STREAM),
        ([("stream_data", 2, CONTROL[1:], False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 2, b"\x00\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 2, b"\x01\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 2, b"\x05\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 2, b"\x02\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 2, b"\x07\x00", False)], ErrorCode.FRAME_ERROR),
        ([("stream_data", 2, b"\x0d\x02\x01\x01", False)], ErrorCode.FRAME_ERROR),
        ([("stream_data", 2, b"\x03\x01\x00", False)], ErrorCode.ID_ERROR),
        ([("stream_data", 2, b"\x07\x80\x01\x00\x00", False)], ErrorCode.EXCESSIVE_LOAD),
        # other streams
        ([("stream_data", 6, b"\x01\x00", False)], ErrorCode.STREAM_CREATION_ERROR),
        ([("stream_data", 6, b, False) for b in (b"\x02", b"\x20")], None),
        ([("stream_data", s, b"\x02", False) for s in (6, 10)], ErrorCode.STREAM_CREATION_ERROR),
        ([("stream_data", 6, b"\x02", True)], ErrorCode.CLOSED_CRITICAL_STREAM),
        ([("stream_data", 6, b"\x02\x3f\xff\x10", False)], ErrorCode.QPACK_ENCODER_STREAM_ERROR),
        ([("stream_data", 6, b"\x03\x80", False)], ErrorCode.QPACK_DECODER_STREAM_ERROR),
        ([("stream_data", 6, b"\x40\x54\x01", False)], ErrorCode.ID_ERROR),
        ([("stream_data", 4, b"\x40\x41\x02", False)], ErrorCode.ID_ERROR),
        # messages
        ([("stream_data", 0, b"\x00\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 0, b"\x04\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 0, b"\x05\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 0, b"\x06\x00", False)], ErrorCode.FRAME_UNEXPECTED),
        ([("stream_data", 0, b"\x21\x00\x40\x41\x00", False)], ErrorCode.FRAME_ERROR),
        ([("stream_data", 0, b"\x01\x00", False)], ErrorCode.QPACK_DECOMPRESSION_FAILED),
        (
            [("stream_data", 0, b"\x01" + encode_varint(FIELD_SECTION_BYTES + 1), False)],
            ErrorCode.EXCESSIVE_LOAD,
        ),
        # datagrams
        ([("datagram", b"")], ErrorCode.DATAGRAM_ERROR),
        ([("datagram", b"\xd0" + bytes(7))], ErrorCode.DATAGRAM_ERROR),
    ],
)
def test_a_client_that_breaks_http3_is_told_how(
    calls: list[tuple[Any, ...]], code: ErrorCode | None
) -> None:
    alone = Alone()
    for call, *args in calls:
        getattr(alone.server, call)(*args)
    assert alone.code == code


@pytest.mark.parametrize(
    ("data", "fin", "code"),
    [
        (Fields().encode(0, [(b"a", b"b")]), False, ErrorCode.FRAME_UNEXPECTED),
        (b"\x00\x05ab", True, ErrorCode.FRAME_ERROR),
        (encode_frame(0, encode_frame(CLOSE_SESSION, b"\x00")), False, ErrorCode.MESSAGE_ERROR),
        (encode_frame(0, b"\x68\x43\x44\x05"), False, ErrorCode.EXCESSIVE_LOAD),
    ],
)
def test_a_session_s_stream_that_makes_no_sense_ends_the_connection(
    data: bytes, fin: bool, code: ErrorCode
) -> None:
    alone = Alone()
    alone.ask()
    alone.server.stream_data(0, data, fin)
    assert alone.code == code
    [close] = alone.saw.closes
    assert (close.code, close.application, close.by_peer) == (code, False, False)


@pytest.mark.parametrize("frame", [b"\x21\x00", b"\x07\x01\x00", b"\x0d\x01\x00"])
def test_control_begins_with_settings(frame: bytes) -> None:
    alone = Alone(settings=False)
    alone.server.stream_data(2, b"\x00" + frame, False)
    assert alone.code == ErrorCode.MISSING_SETTINGS


def test_what_nobody_knows_is_ignored() -> None:
    alone = Alone()
    alone.server.stream_data(2, b"\x21\x03abc\x0d\x01\x05\x80\x0f\x07\x00\x02ab", False)
    alone.server.stream_data(6, b"\x40\x21greased", False)
    alone.server.stream_data(6, b"more", False)
    alone.server.stream_data(10, b"\x40", True)
    alone.ask(0)
    alone.server.stream_data(0, b"\x21\x03abc", False)
    assert alone.code is None
    assert ("stop_sending", 6, ErrorCode.STREAM_CREATION_ERROR) in alone.connection.sent
    assert alone.server.counters.unknown_streams == 1
    alone.server.stream_data(6, b"", True)
    assert alone.server.open_streams == 2


# -- the client ------------------------------------------------------------------------------------


class Dialling:
    """A client whose server is the test."""

    def __init__(self, settings: dict[int, int] | None = None) -> None:
        self.saw = Recorder()
        self.answers: list[WebTransportSession | str] = []
        self.connection = FakeConnection(is_client=True)
        self.client = WebTransportClient(
            self.connection, CONNECT[2:], (), lambda _: self.saw, self.answers.append
        )
        self.connection.receiver = self.client
        payload = encode_settings(SETTINGS if settings is None else settings)
        self.client.stream_data(3, b"\x00" + encode_frame(FrameType.SETTINGS, payload), False)

    def answer(self, *fields: tuple[bytes, bytes], fin: bool = False) -> None:
        self.client.stream_data(0, Fields().encode(0, fields), fin)

    @property
    def code(self) -> int | None:
        close = self.connection.close_state
        return None if close is None else close.code

    def asked_for(self) -> bytes:
        reader = FrameReader(frozenset((FrameType.HEADERS,)), 10_000)
        [(_, block)] = reader.feed(self.connection.written(0))
        return dict(Fields().decode(0, block))[b":protocol"]


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        ({Setting.ENABLE_WEBTRANSPORT: 1}, b"webtransport"),
        ({Setting.WEBTRANSPORT_MAX_SESSIONS: 4}, b"webtransport"),
        ({Setting.WT_MAX_SESSIONS: 1}, b"webtransport"),
        ({Setting.WT_ENABLED: 1}, b"webtransport-h3"),
    ],
)
def test_a_server_of_any_draft_is_asked(settings: dict[int, int], protocol: bytes) -> None:
    assert Dialling(settings).asked_for() == protocol


@pytest.mark.parametrize("settings", [{}, {Setting.ENABLE_WEBTRANSPORT: 0}])
def test_a_server_that_has_no_sessions_is_not_asked(settings: dict[int, int]) -> None:
    dialling = Dialling(settings)
    assert dialling.answers == ["speaks HTTP/3 and not WebTransport"]
    assert dialling.connection.written(0) == b""


def test_hints_come_before_an_answer() -> None:
    dialling = Dialling()
    dialling.answer((b":status", b"103"))
    assert dialling.answers == []
    dialling.answer((b":status", b"200"))
    assert dialling.answers == [dialling.client.session]


def test_an_answer_that_is_a_refusal() -> None:
    dialling = Dialling()
    dialling.answer((b":status", b"404"))
    dialling.client.stream_data(0, encode_frame(FrameType.DATA, b"no such path"), True)
    assert dialling.answers == ["answered with status 404"]
    assert dialling.client.session is None


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([("stream_data", 0, b"", True)], "makes no sense: H3_REQUEST_INCOMPLETE"),
        ([("stream_reset", 0, 0x10B)], "was reset: H3_REQUEST_REJECTED"),
        ([("stream_data", 0, Fields().encode(0, [(b"a", b"b")]), False)], "H3_MESSAGE_ERROR"),
        ([("closed", ConnectionClosed(0x100, "bye", True, True))], "ended the connection"),
    ],
)
def test_what_comes_instead_of_an_answer(calls: list[tuple[Any, ...]], words: str) -> None:
    dialling = Dialling()
    for call, *args in calls:
        getattr(dialling.client, call)(*args)
    [answer] = dialling.answers
    assert isinstance(answer, str)
    assert words in answer


def test_a_server_without_a_stream_for_a_request() -> None:
    connection = FakeConnection(is_client=True)
    connection.streams_left = 1
    answers: list[WebTransportSession | str] = []
    client = WebTransportClient(connection, CONNECT[2:], (), lambda _: Recorder(), answers.append)
    client.stream_data(3, CONTROL, False)
    assert answers == ["takes no requests"]


def test_a_server_s_streams_may_overtake_its_answer() -> None:
    dialling = Dialling()
    dialling.client.stream_data(7, b"\x40\x54\x00one way", True)
    dialling.client.stream_data(1, b"\x40\x41\x00both", False)
    dialling.client.datagram(b"\x00datagram")
    dialling.answer((b":status", b"200"))
    assert dialling.saw.data == {7: b"one way", 1: b"both"}
    assert dialling.saw.datagrams == [b"datagram"]
    assert dialling.client.open_streams == 3


@pytest.mark.parametrize(
    ("stream_id", "data", "code"),
    [
        (1, b"\x01\x00", ErrorCode.STREAM_CREATION_ERROR),
        (7, b"\x01\x00", ErrorCode.ID_ERROR),
        (0, b"\x05\x00", ErrorCode.ID_ERROR),
        (3, b"\x0d\x01\x00", ErrorCode.FRAME_UNEXPECTED),
        (7, b"\x40\x54\x02", ErrorCode.ID_ERROR),
    ],
)
def test_a_server_that_breaks_http3_is_told_how(
    stream_id: int, data: bytes, code: ErrorCode
) -> None:
    dialling = Dialling()
    dialling.client.stream_data(stream_id, data, False)
    assert dialling.code == code
    [answer] = dialling.answers
    assert isinstance(answer, str)
    assert answer.startswith("ended the connection")
