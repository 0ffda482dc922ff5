"""A QUIC connection as its user sees it; `quic.py` has the endpoint it lives on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from laps.net.udp import Probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.errors import ConnectionClosed
    from laps.net.engine import BytesLike, Engine, Stats
    from laps.net.handshake import Address


class Meter(Protocol):
    """Measures the time that somebody takes by what it sends."""

    def spend(self, seconds: float, now: float) -> None:
        """So long it took."""

    def is_spent(self, now: float) -> bool:
        """Whether it has had as much as it may."""


class Connection:
    """One QUIC connection on an endpoint."""

    def __init__(
        self,
        engine: Engine,
        remote: Address,
        now: float,
        serve_soon: Callable[[Connection], None],
        serve_now: Callable[[Connection], None],
    ) -> None:
        self.opened_at = now
        self.last_heard = now
        self.remote = remote
        self.tick: Callable[[float], None] | None = None
        "Called about once a second, for who has something that expires."
        self.engine = engine
        "The endpoint pumps it; others use the methods below, which see to it that it is pumped."
        self.cids: set[bytes] = set()
        "The ids the endpoint routes to it, cut to their first eight bytes."
        self.reset_key = b""
        "What the endpoint knows a stateless reset of it by; empty if the peer gave no token."
        self.knocked_from = ""
        "The address that an endpoint's door counts it for, whatever path it has taken since."
        self.meter: Meter | None = None
        "What measures the time that its packets take; None: nobody does."
        self.handshake_s = 0.0
        "The time that its handshake has taken, as a server."
        self.certificate = ""
        "SHA-256 of the certificate that the server shows on it, in hexadecimal."
        self._serve_soon = serve_soon
        self._serve_now = serve_now
        self._over: asyncio.Future[ConnectionClosed] = asyncio.get_running_loop().create_future()

    @property
    def alpn(self) -> str:
        """The protocol both sides agreed on."""
        return self.engine.alpn

    @property
    def established(self) -> bool:
        """Whether the handshake is over and the connection not."""
        return self.engine.established

    @property
    def close_state(self) -> ConnectionClosed | None:
        """Why it ended, once it has."""
        return self.engine.close_state

    def peer_certificate(self) -> bytes | None:
        """The certificate the peer showed, as DER."""
        return self.engine.peer_certificate()

    @property
    def peer_window_bytes(self) -> int:
        """How much the peer let be sent ahead of what it reads when the connection began."""
        return self.engine.peer_window_bytes

    def stats(self) -> Stats:
        """What the transport knows about the path."""
        return self.engine.stats()

    def open_stream(self, *, unidirectional: bool) -> int:
        """A new stream's id. StreamLimitReached is followed by `writable` when there is one."""
        return self.engine.open_stream(unidirectional=unidirectional)

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        """Queue bytes on a stream; False if it is over. SendBufferFull precedes `writable`."""
        accepted = self.engine.write(stream_id, data, fin=fin)
        self._serve_soon(self)
        return accepted

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Give up sending on a stream; nothing happens if it is over already."""
        self.engine.reset_stream(stream_id, code)
        self._serve_soon(self)

    def stop_stream(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream; nothing happens if it has ended."""
        self.engine.stop_stream(stream_id, code)
        self._serve_soon(self)

    @property
    def datagram_limit_bytes(self) -> int:
        """The largest payload `send_datagram` takes on this path; 0 if the peer takes none."""
        return self.engine.datagram_limit_bytes

    def send_datagram(self, data: bytes) -> bool:
        """Queue a DATAGRAM frame; False if the congestion window has no room for it now."""
        if accepted := self.engine.send_datagram(data):
            self._serve_soon(self)
        return accepted

    @property
    def buffered_bytes(self) -> int:
        """Stream bytes handed to QUIC and not yet sent."""
        return self.engine.buffered_bytes

    @property
    def carried_per_s(self) -> float:
        """How many bytes go out in a second, about; without end where that is not known."""
        return self.engine.carried_per_s

    def wake_below(self, buffered_bytes: int) -> None:
        """Call the receiver's `writable`, once, when no more than this waits to be sent."""
        self.engine.wake_below(buffered_bytes)

    def pause_reading(self) -> None:
        """Leave what arrives unread: the peer's windows close and it has to wait."""
        self.engine.pause_reading()

    def resume_reading(self) -> None:
        """Read on, beginning with what was left unread."""
        if self.engine.reading_paused:
            self.engine.resume_reading()
            self._serve_soon(self)

    def ping(self) -> None:
        """Make the peer answer: `last_heard` moves on if it is there."""
        self.engine.ping()
        self._serve_soon(self)

    def probe(self) -> Probe:
        """What asks the machine that the peer is on."""
        return Probe(self.remote)

    def close(self, code: int, reason: str) -> None:
        """End the connection with an application's code, telling the peer why.

        What was written before goes out first, as far as the windows allow.
        """
        if self.established:
            self._serve_now(self)
        self.engine.close(code, reason)
        self._serve_soon(self)

    def abort(self, code: int, reason: str) -> None:
        """As `close`: there is nothing on it that could be closed instead."""
        self.close(code, reason)

    async def wait_closed(self) -> ConnectionClosed:
        """Wait for the end, and learn why."""
        return await asyncio.shield(self._over)

    def ended(self) -> None:
        """The endpoint found the engine closed."""
        if not self._over.done() and self.engine.close_state is not None:
            self._over.set_result(self.engine.close_state)
