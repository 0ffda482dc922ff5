"""QUIC stacks under one face, so that the same measurement can be made of each in turn.

    laps      our own endpoint, `laps.net.quic`
    qh3       the engine under it, driven by the shortest loop its own asyncio parts allow, with
              its batching transport on both sides
    aioquic   the pure Python stack, where it is installed

Each serves a port and counts what arrives, or dials one and sends as much as goes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import uvloop
from qh3._hazmat import pull_quic_header
from qh3.asyncio._transport import create_optimized_datagram_transport
from qh3.asyncio.protocol import QuicConnectionProtocol
from qh3.quic import events
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection

from laps.config import QuicConfig
from laps.net import udp
from laps.net.quic import Endpoint
from laps.net.tls import Trust, self_signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection

ALPN: Final = "laps"
HOST: Final = "127.0.0.1"
LIMITS: Final = QuicConfig()

# What a sender keeps ahead of the wire in all of them, so that none waits for its own loop.
AHEAD_BYTES: Final = 1 << 20
AHEAD_DATAGRAMS: Final = 64


class Contender(ABC):
    """A stack that can serve, dial and send."""

    def __init__(self) -> None:
        self.stream_bytes = 0
        self.datagrams = 0
        self.handshakes = 0
        self.on_writable: Callable[[], None] = lambda: None

    def counts(self) -> dict[str, float]:
        """What was counted so far, and by which clock."""
        return {
            "time": monotonic(),
            "stream_bytes": self.stream_bytes,
            "datagrams": self.datagrams,
            "handshakes": self.handshakes,
        }

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it does best on."""
        return uvloop.new_event_loop()

    @abstractmethod
    async def serve(self) -> int:
        """Listen on a free port of loopback, count what arrives, and return the port."""

    @abstractmethod
    async def dial(self, port: int) -> None:
        """Open the connection that the sending is done on."""

    @abstractmethod
    async def handshake(self, port: int) -> None:
        """Open a connection and close it again."""

    @abstractmethod
    def open_stream(self) -> int:
        """A unidirectional stream."""

    @abstractmethod
    def room(self) -> int:
        """How many bytes more are wanted ahead of the wire."""

    @abstractmethod
    def write(self, stream: int, data: bytes) -> None:
        """Queue bytes on a stream."""

    @abstractmethod
    def send_datagrams(self, data: bytes) -> None:
        """Queue the same datagram as often as the stack lets a sender do it at once."""

    @abstractmethod
    def flush(self) -> None:
        """Let out what is queued; `on_writable` is called when there is room again."""


class Laps(Contender):
    """Our endpoint; it is its own receiver."""

    def __init__(self) -> None:
        super().__init__()
        self._connection: Connection
        self._endpoint: Endpoint | None = None

    async def serve(self) -> int:
        identity = self_signed([HOST])
        self._endpoint = Endpoint.listen(HOST, 0, LIMITS, [ALPN], identity, lambda _: self)
        return self._endpoint.address[1]

    async def dial(self, port: int) -> None:
        if self._endpoint is None:
            self._endpoint = Endpoint.dialler(HOST, LIMITS)
        self._connection = await self._endpoint.connect(
            HOST, port, [ALPN], Trust(anyone=True), lambda _: self
        )

    async def handshake(self, port: int) -> None:
        if self._endpoint is None:
            self._endpoint = Endpoint.dialler(HOST, LIMITS)
        connection = await self._endpoint.connect(
            HOST, port, [ALPN], Trust(anyone=True), lambda _: self
        )
        connection.close(0, "")

    def open_stream(self) -> int:
        return self._connection.open_stream(unidirectional=True)

    def room(self) -> int:
        return AHEAD_BYTES - self._connection.buffered_bytes

    def write(self, stream: int, data: bytes) -> None:
        self._connection.write(stream, data)

    def send_datagrams(self, data: bytes) -> None:
        for _ in range(AHEAD_DATAGRAMS):
            if not self._connection.send_datagram(data):
                return

    def flush(self) -> None:
        self._connection.wake_below(AHEAD_BYTES // 2)

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        self.stream_bytes += len(data)

    def datagram(self, data: bytes) -> None:
        self.datagrams += 1

    def writable(self) -> None:
        self.on_writable()

    def stream_reset(self, stream_id: int, code: int) -> None: ...
    def stop_sending(self, stream_id: int, code: int) -> None: ...
    def closed(self, close: ConnectionClosed) -> None: ...


class _Qh3Protocol(QuicConnectionProtocol):
    """qh3's asyncio protocol, which counts instead of making readers and writers."""

    def __init__(self, quic: QuicConnection, contender: Qh3) -> None:
        super().__init__(quic)
        self.contender = contender

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            self.contender.stream_bytes += len(event.data)
        elif isinstance(event, events.DatagramFrameReceived):
            self.contender.datagrams += 1

    def transmit(self) -> None:
        super().transmit()
        if self._quic.get_send_buffer_size() < AHEAD_BYTES // 2:
            self.contender.on_writable()


class _Qh3Server(asyncio.DatagramProtocol):
    """As little as it takes to serve: batches go whole to the connection of their address."""

    def __init__(self, contender: Qh3, configuration: QuicConfiguration) -> None:
        self._contender = contender
        self._configuration = configuration
        self._connections: dict[bytes, _Qh3Protocol] = {}
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagrams_received(self, datagrams: list[bytes], addr: Any) -> None:
        # Everything one address sends in a burst belongs to one connection here: clients with
        # several connections on a socket send long headers, which come one by one.
        if datagrams[0][0] & 0x80:
            for data in datagrams:
                self._one(data, addr)
        elif protocol := self._connections.get(datagrams[0][1:9]):
            protocol.datagrams_received(datagrams, addr)

    def _one(self, data: bytes, addr: Any) -> None:
        cid = pull_quic_header(data, 0, 8)[3]
        protocol = self._connections.get(cid)
        if protocol is None:
            if not data[0] & 0x80:
                return
            quic = QuicConnection(
                configuration=self._configuration, original_destination_connection_id=cid
            )
            protocol = _Qh3Protocol(quic, self._contender)
            protocol.connection_made(self._transport)
            self._connections[cid] = self._connections[quic.host_cid] = protocol
        protocol.datagram_received(data, addr)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._one(data, addr)


class Qh3(Contender):
    """The engine alone."""

    def __init__(self) -> None:
        super().__init__()
        self._protocol: _Qh3Protocol

    def _configuration(self, *, is_client: bool) -> QuicConfiguration:
        configuration = QuicConfiguration(
            alpn_protocols=[ALPN],
            is_client=is_client,
            max_data=LIMITS.connection_window_bytes,
            max_stream_data=LIMITS.stream_window_bytes,
            max_datagram_frame_size=LIMITS.datagram_frame_bytes,
        )
        if is_client:
            configuration.verify_mode = ssl.CERT_NONE
            configuration.server_name = HOST
        return configuration

    async def serve(self) -> int:
        identity = self_signed([HOST])
        configuration = self._configuration(is_client=False)
        configuration.load_cert_chain(identity.certificate, identity.key)
        sock = udp.bind(HOST, 0, LIMITS.socket_buffer_bytes)
        port: int = sock.getsockname()[1]
        await create_optimized_datagram_transport(
            asyncio.get_running_loop(), lambda: _Qh3Server(self, configuration), sock=sock
        )
        return port

    async def _connect(self, port: int) -> _Qh3Protocol:
        quic = QuicConnection(configuration=self._configuration(is_client=True))
        _, protocol = await create_optimized_datagram_transport(
            asyncio.get_running_loop(),
            lambda: _Qh3Protocol(quic, self),
            sock=udp.bind(HOST, 0, LIMITS.socket_buffer_bytes),
        )
        assert isinstance(protocol, _Qh3Protocol)  # noqa: S101 - what the line above makes
        protocol.connect((HOST, port))
        await protocol.wait_connected()
        return protocol

    async def dial(self, port: int) -> None:
        self._protocol = await self._connect(port)

    async def handshake(self, port: int) -> None:
        protocol = await self._connect(port)
        protocol.close()
        transport = protocol._transport  # noqa: SLF001 - the protocol has no other way to say
        if transport is not None:
            transport.close()

    def open_stream(self) -> int:
        stream = self._protocol._quic.get_next_available_stream_id(is_unidirectional=True)  # noqa: SLF001
        self._protocol._quic.send_stream_data(stream, b"")  # noqa: SLF001
        return stream

    def room(self) -> int:
        return AHEAD_BYTES - self._protocol._quic.get_send_buffer_size()  # noqa: SLF001

    def write(self, stream: int, data: bytes) -> None:
        self._protocol._quic.send_stream_data(stream, data)  # noqa: SLF001

    def send_datagrams(self, data: bytes) -> None:
        for _ in range(AHEAD_DATAGRAMS):
            self._protocol._quic.send_datagram_frame(data)  # noqa: SLF001

    def flush(self) -> None:
        self._protocol._transmit_soon()  # noqa: SLF001


def contenders() -> dict[str, type[Contender]]:
    """Those that can be measured on this machine, ours first."""
    found: dict[str, type[Contender]] = {"laps": Laps, "qh3": Qh3}
    if importlib.util.find_spec("aioquic") is not None:
        from laps.bench.contender_aioquic import Aioquic

        found["aioquic"] = Aioquic
    return found
