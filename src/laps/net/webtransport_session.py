"""One WebTransport session, as who speaks on it sees it; `webtransport.py` says how one begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from laps.errors import ConnectionClosed, DatagramTooLarge, SendBufferFull
from laps.net.engine import Receiver
from laps.net.http3 import (
    LARGEST_ERROR,
    ErrorCode,
    FrameReader,
    FrameType,
    Http3Error,
    Setting,
    StreamType,
    describe,
    encode_error,
    encode_frame,
)
from laps.wire.buffer import encode_varint

if TYPE_CHECKING:
    from laps.net.engine import BytesLike, Stats
    from laps.net.handshake import Address
    from laps.net.http3_connection import Http3Connection
    from laps.net.transport import Refusals, Transport

CLOSE_SESSION: Final = 0x2843
DRAIN_SESSION: Final = 0x78AE
_CAPSULES: Final = frozenset((CLOSE_SESSION, DRAIN_SESSION))

# What the drafts allow to tell in closing.
REASON_BYTES: Final = 1024

AcceptSession = Callable[["WebTransportSession"], Receiver]
"Names the receiver of a session that is agreed on."


class WebTransportSession:
    """One session; its methods are those of a `Connection`."""

    def __init__(
        self, http3: Http3Connection, connection: Transport, session_id: int, protocol: str
    ) -> None:
        self.id = session_id
        self.opened_at = connection.opened_at
        self.alpn = protocol
        "The protocol that both sides agreed on for this session; empty if they named none."
        self.close_state: ConnectionClosed | None = None
        self.tick: Callable[[float], None] | None = None
        self.on_drain: Callable[[], None] | None = None
        "Called when the peer asks to end the session soon, and perhaps to begin another elsewhere."
        self._http3 = http3
        self._connection = connection
        self._receiver: Receiver | None = None
        self._unannounced: set[int] = set()
        "Streams opened and not yet written to, which have to begin with a preamble."
        number = encode_varint(session_id)
        self._one_way = encode_varint(StreamType.WEBTRANSPORT) + number
        self._both_ways = encode_varint(FrameType.WEBTRANSPORT_STREAM) + number
        self._datagram_prefix = encode_varint(session_id // 4)
        self._capsules = FrameReader(_CAPSULES, 4 + REASON_BYTES)
        self._over: asyncio.Future[ConnectionClosed] | None = None
        settings = http3.peer_settings or {}
        self._datagrams = any(
            settings.get(key) for key in (Setting.H3_DATAGRAM, Setting.H3_DATAGRAM_DRAFT04)
        )

    # -- as a connection -------------------------------------------------------------------------

    @property
    def last_heard(self) -> float:
        """When the peer last sent a packet."""
        return self._connection.last_heard

    @property
    def remote(self) -> Address:
        """Where the peer is."""
        return self._connection.remote

    @property
    def established(self) -> bool:
        """Whether the session is not over."""
        return self.close_state is None and self._connection.established

    def peer_certificate(self) -> bytes | None:
        """The certificate the peer showed, as DER."""
        return self._connection.peer_certificate()

    @property
    def peer_window_bytes(self) -> int:
        """How much the peer let be sent ahead of what it reads when the connection began."""
        return self._connection.peer_window_bytes

    def stats(self) -> Stats:
        """What the transport knows about the path."""
        return self._connection.stats()

    def open_stream(self, *, unidirectional: bool) -> int:
        """A new stream's id. The peer hears of it with the first write."""
        self._check()
        stream_id = self._connection.open_stream(unidirectional=unidirectional)
        self._unannounced.add(stream_id)
        if not unidirectional:
            self._http3.opened(stream_id)
        return stream_id

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        """Queue bytes on a stream; False if it is over. SendBufferFull precedes `writable`."""
        if self.close_state is not None:
            raise self.close_state.again()
        if stream_id in self._unannounced:
            preamble = self._one_way if stream_id & 2 else self._both_ways
            self._connection.write(stream_id, preamble)
            self._unannounced.discard(stream_id)
        return self._connection.write(stream_id, data, fin=fin)

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Give up sending on a stream; nothing happens if it is over already."""
        self._check()
        self._unannounced.discard(stream_id)
        self._connection.reset_stream(stream_id, encode_error(code))

    def stop_stream(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream; nothing happens if it has ended."""
        self._check()
        self._connection.stop_stream(stream_id, encode_error(code))

    @property
    def datagram_limit_bytes(self) -> int:
        """The largest payload `send_datagram` takes on this path; 0 if the peer takes none."""
        self._check()
        limit = self._connection.datagram_limit_bytes - len(self._datagram_prefix)
        return max(0, limit) if self._datagrams else 0

    def send_datagram(self, data: bytes) -> bool:
        """Queue a datagram; False if the congestion window has no room for it now."""
        self._check()
        if not self._datagrams:
            raise DatagramTooLarge("the peer takes no datagrams over HTTP/3")
        return self._connection.send_datagram(self._datagram_prefix + data)

    @property
    def buffered_bytes(self) -> int:
        """Stream bytes handed to QUIC and not yet sent."""
        return self._connection.buffered_bytes

    @property
    def carried_per_s(self) -> float:
        """How many bytes go out in a second, about; without end where that is not known."""
        return self._connection.carried_per_s

    def wake_below(self, buffered_bytes: int) -> None:
        """Call the receiver's `writable`, once, when no more than this waits to be sent."""
        self._connection.wake_below(buffered_bytes)

    def pause_reading(self) -> None:
        """Leave what arrives unread: the peer's windows close and it has to wait."""
        if self.close_state is None:
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Read on, beginning with what was left unread."""
        self._connection.resume_reading()

    def ping(self) -> None:
        """Make the peer answer: `last_heard` moves on if it is there."""
        self._check()
        self._connection.ping()

    def probe(self) -> Refusals:
        """What asks the machine that the peer is on."""
        return self._connection.probe()

    def close(self, code: int, reason: str) -> None:
        """End the session, telling the peer why; the connection ends soon after it has heard."""
        if self.close_state is not None:
            return
        text = reason.encode()[:REASON_BYTES].decode(errors="ignore").encode()
        value = min(code, LARGEST_ERROR).to_bytes(4) + text
        try:
            told = self._send_capsule(CLOSE_SESSION, value, fin=True)
        except SendBufferFull:
            told = False
        self._end(ConnectionClosed(code, reason, by_peer=False, application=True))
        # Whoever does not read is not waited for, but what it does not read has its answer in it.
        self._connection.resume_reading()
        if not told:
            self._connection.close(ErrorCode.NO_ERROR, reason)

    def abort(self, code: int, reason: str) -> None:
        """End the connection under it: to the page it was lost, and not closed."""
        if self.close_state is None:
            self._end(ConnectionClosed(code, reason, by_peer=False, application=True))
            self._connection.close(ErrorCode.NO_ERROR, reason)

    async def wait_closed(self) -> ConnectionClosed:
        """Wait for the end, and learn why."""
        if self.close_state is not None:
            return self.close_state
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._over)

    def drain(self) -> None:
        """Ask the peer to end the session soon; a page learns it from `transport.draining`."""
        self._check()
        self._send_capsule(DRAIN_SESSION, b"", fin=False)

    def _check(self) -> None:
        if self.close_state is not None:
            raise self.close_state.again()

    def _send_capsule(self, kind: int, value: bytes, *, fin: bool) -> bool:
        # A capsule looks like a frame, and is sent in one.
        frame = encode_frame(FrameType.DATA, encode_frame(kind, value))
        return self._connection.write(self.id, frame, fin=fin)

    # -- what HTTP/3 tells -----------------------------------------------------------------------

    def begin(self, accept: AcceptSession) -> None:
        """Both sides have agreed."""
        receiver = accept(self)
        if self.close_state is not None:  # it was not wanted after all
            receiver.closed(self.close_state)
            return
        self._receiver = receiver
        self._http3.begin(self, receiver)

    def receive_capsules(self, data: bytes) -> None:
        """Bytes of the CONNECT stream."""
        for kind, value in self._capsules.feed(data):
            if kind == CLOSE_SESSION:
                if len(value) < 4:
                    raise Http3Error(ErrorCode.MESSAGE_ERROR, "a close without its code")
                self.peer_closed(int.from_bytes(value[:4]), value[4:].decode(errors="replace"))
                return
            if kind == DRAIN_SESSION:
                self.draining()

    def draining(self) -> None:
        """The peer wants to end it soon."""
        if self.close_state is None and self.on_drain is not None:
            self.on_drain()

    def peer_closed(self, code: int, reason: str) -> None:
        """The peer ended the session, or has heard that we did."""
        if self.close_state is None:
            self._end(ConnectionClosed(code, reason, by_peer=True, application=True))
            if self._connection.established:
                self._connection.write(self.id, b"", fin=True)
        self._http3.leave()

    def connection_closed(self, close: ConnectionClosed) -> None:
        """The connection ended under the session.

        A peer that closes it with a code which HTTP/3 does not have means its own.
        """
        code, reason, application = close.code, close.reason, close.application
        if application and code == ErrorCode.NO_ERROR:
            code = 0
        elif application and code in ErrorCode.__members__.values() and code >= ErrorCode.NO_ERROR:
            reason = f"{describe(code)}: {reason}" if reason else describe(code)
            application = False
        self._end(ConnectionClosed(code, reason, by_peer=close.by_peer, application=application))

    def _end(self, close: ConnectionClosed) -> None:
        if self.close_state is not None:
            return
        self.close_state = close
        self._unannounced.clear()
        self._http3.end()
        if self._over is not None and not self._over.done():
            self._over.set_result(close)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.closed(close)
