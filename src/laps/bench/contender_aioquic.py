"""aioquic as a contender; importing this takes aioquic to be installed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import DatagramFrameReceived, QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from laps.bench.contenders import AHEAD_BYTES, AHEAD_DATAGRAMS, ALPN, HOST, LIMITS, Contender
from laps.net.tls import self_signed
from laps.net.udp import grow_buffer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


class _Protocol(QuicConnectionProtocol):
    """aioquic's asyncio protocol, which counts instead of making readers and writers."""

    def __init__(self, contender: Aioquic, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.contender = contender

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.contender.stream_bytes += len(event.data)
        elif isinstance(event, DatagramFrameReceived):
            self.contender.datagrams += 1

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        super().datagram_received(data, addr)
        self.contender.on_writable()


class Aioquic(Contender):
    """aioquic, by its own asyncio face."""

    def __init__(self) -> None:
        super().__init__()
        self._quic: Any  # it has no public way to ask how much waits to be sent
        self._transmit: Any
        self._context: AbstractAsyncContextManager[QuicConnectionProtocol]

    def event_loop(self) -> asyncio.AbstractEventLoop:
        # With the clock of uvloop, which counts milliseconds, every third run is five times slower.
        return asyncio.new_event_loop()

    def _configuration(self, *, is_client: bool) -> QuicConfiguration:
        return QuicConfiguration(
            alpn_protocols=[ALPN],
            is_client=is_client,
            max_data=LIMITS.connection_window_bytes,
            max_stream_data=LIMITS.stream_window_bytes,
            max_datagram_frame_size=LIMITS.datagram_frame_bytes,
            verify_mode=ssl.CERT_NONE if is_client else None,
        )

    async def serve(self) -> int:
        identity = self_signed([HOST])
        configuration = self._configuration(is_client=False)
        configuration.certificate = x509.load_pem_x509_certificate(identity.certificate)
        configuration.private_key = load_pem_private_key(identity.key, None)
        server = await serve(
            HOST, 0, configuration=configuration, create_protocol=partial(_Protocol, self)
        )
        transport: Any = server._transport  # noqa: SLF001 - it does not tell its port otherwise
        _grow_buffers(transport)
        port: int = transport.get_extra_info("sockname")[1]
        return port

    def _connect(self, port: int) -> AbstractAsyncContextManager[QuicConnectionProtocol]:
        return connect(
            HOST,
            port,
            configuration=self._configuration(is_client=True),
            create_protocol=partial(_Protocol, self),
        )

    async def dial(self, port: int) -> None:
        self._context = self._connect(port)
        protocol = await self._context.__aenter__()
        self._quic, self._transmit = protocol._quic, protocol.transmit  # noqa: SLF001
        _grow_buffers(protocol._transport)  # noqa: SLF001

    async def handshake(self, port: int) -> None:
        # Leaving the context would wait until the connection has drained.
        protocol = await self._connect(port).__aenter__()
        protocol.close()

    def open_stream(self) -> int:
        stream: int = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream, b"")
        return stream

    def room(self) -> int:
        waiting = sum(len(s.sender._buffer) for s in self._quic._streams.values())  # noqa: SLF001
        return AHEAD_BYTES // 8 - waiting  # more would cost it time: it moves what waits

    def write(self, stream: int, data: bytes) -> None:
        self._quic.send_stream_data(stream, data)

    def send_datagrams(self, data: bytes) -> None:
        while len(self._quic._datagrams_pending) < AHEAD_DATAGRAMS:  # noqa: SLF001
            self._quic.send_datagram_frame(data)

    def flush(self) -> None:
        self._transmit()


def _grow_buffers(transport: Any) -> None:
    """As large as the others': at the default size it loses packets, and most of its speed."""
    sock = transport.get_extra_info("socket")
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        grow_buffer(sock, option, LIMITS.socket_buffer_bytes)
