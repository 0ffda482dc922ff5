"""WebTransport on real sockets: our client to our server, and a client of aioquic's."""

from __future__ import annotations

import asyncio
import random
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aioquic.asyncio.client import connect as aioquic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import (
    DatagramReceived,
    H3Event,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived

from laps.config import QuicConfig
from laps.errors import ConnectionClosed, HandshakeFailed, StreamLimitReached
from laps.net import quic
from laps.net.quic import Endpoint
from laps.net.webtransport import (
    Accepted,
    ConnectRequest,
    Refused,
    WebTransportServer,
    WebTransportSession,
    accept_http3,
    connect,
)
from support.engines import Recorder, identity
from support.loopback import TRUST, dialling, limits, listening, on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from laps.net.connection import Connection


class Server:
    """A listening endpoint that takes sessions everywhere but at /nowhere."""

    def __init__(self, config: QuicConfig | None = None) -> None:
        self.requests: list[ConnectRequest] = []
        self.http3: list[WebTransportServer] = []
        self.sessions: list[WebTransportSession] = []
        self.seen: list[Recorder] = []
        self.endpoint = Endpoint.listen(
            "127.0.0.1", 0, config or QuicConfig(), ["h3"], identity(), self._accept
        )

    @property
    def port(self) -> int:
        return self.endpoint.address[1]

    def _accept(self, connection: Connection) -> WebTransportServer:
        self.http3.append(accept_http3(connection, self._choose))
        return self.http3[-1]

    def _choose(self, request: ConnectRequest) -> Accepted | Refused:
        self.requests.append(request)
        if request.path == "/nowhere":
            return Refused(404, "nothing here")
        return Accepted(self._begin, request.protocols[-1] if request.protocols else "")

    def _begin(self, session: WebTransportSession) -> Recorder:
        self.sessions.append(session)
        self.seen.append(Recorder())
        return self.seen[-1]


@asynccontextmanager
async def serving(config: QuicConfig | None = None) -> AsyncIterator[Server]:
    server = Server(config)
    try:
        yield server
    finally:
        await server.endpoint.close(0x100, "test over")


async def dial(
    endpoint: Endpoint, port: int, path: str = "/moq", **more: Any
) -> tuple[WebTransportSession, Recorder]:
    saw = Recorder()
    session = await connect(endpoint, "127.0.0.1", port, path, TRUST, lambda _: saw, **more)
    return session, saw


@asynccontextmanager
async def joined(
    config: QuicConfig | None = None,
) -> AsyncIterator[tuple[Server, WebTransportSession, Recorder]]:
    async with serving(config) as there, dialling() as here:
        session, saw = await dial(here, there.port)
        await until(lambda: bool(there.sessions))
        yield there, session, saw


@on_loop
async def test_a_session_says_what_it_is() -> None:
    async with serving() as there, dialling() as here:
        session, saw = await dial(
            here,
            there.port,
            "/moq?token=1",
            protocols=("moqt-18", "moqt-16"),
            headers=(("Origin", "https://example.org"),),
        )
        (request,) = there.requests
        assert request.path == "/moq?token=1"
        assert request.authority == f"127.0.0.1:{there.port}"
        assert request.origin == "https://example.org"
        assert request.protocols == ("moqt-18", "moqt-16")
        assert session.alpn == there.sessions[0].alpn == "moqt-16"
        assert session.established
        assert session.remote[1] == there.port
        assert session.peer_certificate() is not None
        assert session.stats().udp_payload_bytes >= 1200
        assert session.opened_at <= session.last_heard
        assert there.http3[0].session is there.sessions[0]
        assert saw.closes == []


@on_loop
async def test_streams_of_all_four_kinds_carry_data() -> None:
    payload = random.Random(1).randbytes(2_000_000)
    async with joined() as (there, session, saw):
        other, other_saw = there.sessions[0], there.seen[0]
        for ours, theirs, they_saw, we_saw in (
            (session, other, other_saw, saw),
            (other, session, saw, other_saw),
        ):
            one_way = ours.open_stream(unidirectional=True)
            both_ways = ours.open_stream(unidirectional=False)
            ours.write(one_way, payload, fin=True)
            ours.write(both_ways, b"question", fin=True)
            await until(lambda: {one_way, both_ways} <= they_saw.finished)  # noqa: B023
            assert they_saw.data[one_way] == payload
            assert they_saw.data[both_ways] == b"question"
            theirs.write(both_ways, payload[::-1])
            theirs.write(both_ways, b"", fin=True)
            await until(lambda: both_ways in we_saw.finished)  # noqa: B023
            assert we_saw.data[both_ways] == payload[::-1]


@on_loop
async def test_a_thousand_streams_leave_nothing_behind() -> None:
    async with joined() as (there, session, saw):
        other, other_saw = there.sessions[0], there.seen[0]

        def answering(one: WebTransportSession, opened_by_peer: int) -> Callable[..., None]:
            def answer(stream_id: int, data: bytes, fin: bool) -> None:
                if stream_id & 3 == opened_by_peer:
                    one.write(stream_id, data, fin=fin)

            return answer

        other_saw.on_data = answering(other, 0)
        saw.on_data = answering(session, 1)
        sessions = (session, other)
        for number in range(250):
            for opener in sessions:
                both_ways = opener.open_stream(unidirectional=False)
                opener.write(both_ways, f"{number}".encode(), fin=True)
                opener.write(opener.open_stream(unidirectional=True), b"one", fin=True)
        await until(lambda: len(saw.finished) == len(other_saw.finished) == 750)
        # The peer's control stream, and on both sides the stream that is the session.
        assert [http3.open_streams for http3 in (there.http3[0], session._http3)] == [2, 2]
        for one in sessions:
            assert not one._unannounced


@on_loop
async def test_streams_that_are_given_up_leave_nothing_behind() -> None:
    async with joined() as (there, session, saw):
        other_saw = there.seen[0]
        streams = [session.open_stream(unidirectional=False) for _ in range(100)]
        for stream in streams:
            session.write(stream, b"begun")
        await until(lambda: len(other_saw.data) == 100)
        for number, stream in enumerate(streams):
            session.reset_stream(stream, number)
            session.stop_stream(stream, 2**32 - 1 - number)
        await until(lambda: len(other_saw.resets) == len(other_saw.stops) == 100)
        assert sorted(other_saw.resets) == [(s, n) for n, s in enumerate(streams)]
        assert sorted(other_saw.stops) == [(s, 2**32 - 1 - n) for n, s in enumerate(streams)]
        # Who is told to stop resets with the code it was given.
        await until(lambda: len(saw.resets) == 100)
        assert sorted(saw.resets) == sorted(other_saw.stops)
        assert [http3.open_streams for http3 in (there.http3[0], session._http3)] == [2, 2]


@on_loop
async def test_datagrams_of_the_largest_size_cross() -> None:
    async with joined() as (there, session, saw):
        other, other_saw = there.sessions[0], there.seen[0]
        assert session.datagram_limit_bytes == session._connection.datagram_limit_bytes - 1
        largest = bytes(range(256)) * 8
        ours = largest[: session.datagram_limit_bytes]
        theirs = largest[: other.datagram_limit_bytes]
        assert session.send_datagram(ours)
        assert other.send_datagram(theirs)
        await until(lambda: bool(saw.datagrams and other_saw.datagrams))
        assert other_saw.datagrams == [ours]
        assert saw.datagrams == [theirs]


@pytest.mark.parametrize("closer", ["client", "server"])
@on_loop
async def test_the_code_and_the_reason_of_an_end_arrive(closer: str) -> None:
    async with joined() as (there, session, saw):
        other, other_saw = there.sessions[0], there.seen[0]
        if closer == "server":
            session, other, saw, other_saw = other, session, other_saw, saw
        session.write(session.open_stream(unidirectional=True), b"last words", fin=True)
        session.close(0x1234, "that was it")
        assert not session.established
        with pytest.raises(ConnectionClosed):
            session.open_stream(unidirectional=True)
        close = await other.wait_closed()
        assert (close.code, close.reason) == (0x1234, "that was it")
        assert close.by_peer
        assert close.application
        assert list(other_saw.data.values()) == [b"last words"]
        assert other_saw.closes == [close]
        mine = await session.wait_closed()
        assert (mine.code, mine.reason, mine.by_peer) == (0x1234, "that was it", False)
        assert saw.closes == [mine]
        # The connection under it goes as soon as both have heard, and says that all is well.
        for connection in (session._connection, other._connection):
            end = await connection.wait_closed()
            assert (end.code, end.application) == (0x100, True)


@on_loop
async def test_a_peer_that_vanishes_ends_the_session_too() -> None:
    async with joined() as (there, session, saw):
        session._connection.close(0x10C, "")
        close = await there.sessions[0].wait_closed()
        assert (close.code, close.reason) == (0x10C, "H3_REQUEST_CANCELLED")
        assert (close.by_peer, close.application) == (True, False)
        assert len(saw.closes) == len(there.seen[0].closes) == 1


@on_loop
async def test_a_page_is_asked_to_leave_before_it_is_told_to() -> None:
    async with joined() as (there, session, _):
        asked = asyncio.Event()
        session.on_drain = asked.set
        there.sessions[0].drain()
        await asked.wait()
        assert session.established


@on_loop
async def test_a_path_that_is_refused_is_named() -> None:
    async with serving() as there, dialling() as here:
        with pytest.raises(HandshakeFailed, match=r"127\.0\.0\.1:\d+/nowhere: .* status 404"):
            await dial(here, there.port, "/nowhere")
        await until(lambda: not here.connections)


@on_loop
async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with listening(alpn=("h3",)) as there, dialling() as here:
        with pytest.raises(HandshakeFailed, match=r"no answer within 0\.05 s"):
            await dial(here, there.port, answer_s=0.05)
        await until(lambda: bool(there.seen[0].closes))


@on_loop
async def test_a_server_without_webtransport_is_named_as_such() -> None:
    async with listening(alpn=("h3",)) as there, dialling() as here:
        dialled = asyncio.ensure_future(dial(here, there.port))
        await until(lambda: bool(there.connections))
        stream = there.connections[0].open_stream(unidirectional=True)
        there.connections[0].write(stream, b"\x00\x04\x00")
        with pytest.raises(HandshakeFailed, match="HTTP/3 and not WebTransport"):
            await dialled


@on_loop
async def test_streams_past_the_limit_wait_their_turn() -> None:
    async with joined(limits(max_streams_uni=10)) as (there, session, saw):
        left = list(range(50))

        def send() -> None:
            while left:
                try:
                    stream = session.open_stream(unidirectional=True)
                except StreamLimitReached:
                    return
                session.write(stream, str(left.pop()).encode(), fin=True)

        saw.on_writable = send
        send()
        assert len(left) == 41  # one is the control stream
        await until(lambda: len(there.seen[0].finished) == 50)


@on_loop
async def test_a_paused_reader_pushes_back() -> None:
    async with joined(limits(connection_window_bytes=65536, stream_window_bytes=65536)) as (
        there,
        session,
        _,
    ):
        there.sessions[0].pause_reading()
        stream = session.open_stream(unidirectional=True)
        session.write(stream, bytes(1_000_000), fin=True)
        await until(lambda: session.stats().in_flight_bytes == 0)
        assert session.buffered_bytes > 900_000 - 65536
        assert stream not in there.seen[0].data
        there.sessions[0].resume_reading()
        await until(lambda: stream in there.seen[0].finished)
        assert len(there.seen[0].data[stream]) == 1_000_000


@on_loop
async def test_what_expires_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic, "TICK_S", 0.02)
    async with joined() as (there, _, _):
        ticks: list[float] = []
        there.sessions[0].tick = ticks.append
        await until(lambda: bool(ticks))


# -- aioquic ---------------------------------------------------------------------------------------


class Foreigner(QuicConnectionProtocol):
    """A client as they are built on aioquic."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.events: list[H3Event] = []
        self.answers: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        # aioquic takes the answer on a session's stream for HTTP/3: its users read it themselves.
        if isinstance(event, StreamDataReceived) and event.stream_id in self.answers:
            self.answers[event.stream_id] += event.data
        else:
            self.events += self.http.handle_event(event)

    def request(self, *headers: tuple[bytes, bytes], end_stream: bool = False) -> int:
        stream_id = self._quic.get_next_available_stream_id()
        self.http.send_headers(stream_id, list(headers), end_stream=end_stream)
        self.transmit()
        return stream_id

    def status(self, stream_id: int) -> bytes | None:
        for event in self.events:
            if isinstance(event, HeadersReceived) and event.stream_id == stream_id:
                return dict(event.headers)[b":status"]
        return None

    def received(self, stream_id: int) -> bytes:
        return b"".join(
            event.data
            for event in self.events
            if isinstance(event, WebTransportStreamDataReceived) and event.stream_id == stream_id
        )


CONNECT = (
    (b":method", b"CONNECT"),
    (b":protocol", b"webtransport"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/moq"),
)


@asynccontextmanager
async def abroad(port: int) -> AsyncIterator[Foreigner]:
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=["h3"],
        verify_mode=ssl.CERT_NONE,
        max_datagram_frame_size=65536,
    )
    async with aioquic_connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Foreigner
    ) as client:
        assert isinstance(client, Foreigner)
        yield client


@on_loop
async def test_a_client_on_aioquic_has_a_session() -> None:
    async with serving() as there, abroad(there.port) as client:
        session_id = client.request(*CONNECT)
        await until(lambda: client.status(session_id) == b"200")
        session, saw = there.sessions[0], there.seen[0]
        both_ways = client.http.create_webtransport_stream(session_id)
        client._quic.send_stream_data(both_ways, b"question", end_stream=True)
        one_way = client.http.create_webtransport_stream(session_id, is_unidirectional=True)
        client._quic.send_stream_data(one_way, b"statement", end_stream=True)
        client.http.send_datagram(session_id, b"datagram")
        client.transmit()
        await until(lambda: {both_ways, one_way} <= saw.finished and bool(saw.datagrams))
        assert saw.data[both_ways] == b"question"
        assert saw.data[one_way] == b"statement"
        assert saw.datagrams == [b"datagram"]

        client.answers[both_ways] = b""
        session.write(both_ways, b"answer", fin=True)
        await until(lambda: client.answers[both_ways] == b"answer")
        theirs = session.open_stream(unidirectional=True)
        session.write(theirs, b"from the server", fin=True)
        assert session.send_datagram(b"back")
        await until(lambda: client.received(theirs) == b"from the server")
        await until(lambda: any(isinstance(e, DatagramReceived) for e in client.events))
        client._quic.close(3, reason_phrase="its own code")
        client.transmit()
        close = await session.wait_closed()
        assert (close.code, close.reason, close.application) == (3, "its own code", True)


@on_loop
async def test_whoever_asks_for_a_page_learns_what_this_is() -> None:
    async with serving() as there, abroad(there.port) as client:
        get = (
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"x"),
            (b":path", b"/"),
        )
        stream_id = client.request(*get, end_stream=True)
        await until(lambda: client.status(stream_id) == b"404")
        second = client.request((b":method", b"POST"), *get[1:])
        await until(lambda: client.status(second) == b"405")
        session_id = client.request(*CONNECT)
        await until(lambda: client.status(session_id) == b"200")
        another = client.request(*CONNECT)
        await until(lambda: client.status(another) == b"429")
        assert there.sessions[0].established
        await until(lambda: there.http3[0].open_streams <= 5)
