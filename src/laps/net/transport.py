"""What a session asks of what carries it: a QUIC connection, or a WebTransport session on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.net.engine import BytesLike, Stats
    from laps.net.handshake import Address
    from laps.net.webtransport_session import WebTransportSession


class Refusals(Protocol):
    """Finds out whether anybody listens where a peer is, such as `laps.net.udp.Probe`."""

    def send(self) -> None:
        """Ask once more."""

    def refused(self) -> bool:
        """Whether the machine there has refused the last question."""

    def close(self) -> None:
        """Ask no more."""


class Transport(Protocol):
    """Streams, datagrams and an end; `laps.net.connection.Connection` says what each method does.

    What arrives is told to a `laps.net.engine.Receiver`.
    """

    tick: Callable[[float], None] | None

    @property
    def opened_at(self) -> float:
        """When it began, by the endpoint's clock."""

    @property
    def last_heard(self) -> float:
        """When the peer last sent a packet, by the same clock."""

    @property
    def remote(self) -> Address:
        """Where the peer is."""

    @property
    def alpn(self) -> str:
        """The protocol both sides agreed on for what is said here; empty if they named none."""

    @property
    def established(self) -> bool:
        """Whether it can be used."""

    @property
    def close_state(self) -> ConnectionClosed | None:
        """Why it ended, once it has."""

    def peer_certificate(self) -> bytes | None:
        """The certificate the peer showed, as DER."""

    @property
    def peer_window_bytes(self) -> int:
        """How much the peer let be sent ahead of what it reads when the connection began."""

    def stats(self) -> Stats:
        """What QUIC knows about the path."""

    def open_stream(self, *, unidirectional: bool) -> int:
        """A new stream's id. StreamLimitReached is followed by `writable` when there is one."""

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        """Queue bytes on a stream; False if it is over. SendBufferFull precedes `writable`."""

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Give up sending on a stream."""

    def stop_stream(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream."""

    @property
    def datagram_limit_bytes(self) -> int:
        """The largest payload `send_datagram` takes on this path; 0 if the peer takes none."""

    def send_datagram(self, data: bytes) -> bool:
        """Queue a datagram; False if the congestion window has no room for it now."""

    @property
    def buffered_bytes(self) -> int:
        """Stream bytes handed to QUIC and not yet sent."""

    @property
    def carried_per_s(self) -> float:
        """How many bytes go out in a second, about; without end where that is not known."""

    def wake_below(self, buffered_bytes: int) -> None:
        """Call the receiver's `writable`, once, when no more than this waits to be sent."""

    def pause_reading(self) -> None:
        """Leave what arrives unread."""

    def resume_reading(self) -> None:
        """Read on."""

    def ping(self) -> None:
        """Make the peer answer: `last_heard` moves on if it is there."""

    def probe(self) -> Refusals:
        """What asks the machine that the peer is on."""

    def close(self, code: int, reason: str) -> None:
        """End it with an application's code, telling the peer why."""

    def abort(self, code: int, reason: str) -> None:
        """End it with the connection that it is on: who dials lost connections again does so."""

    async def wait_closed(self) -> ConnectionClosed:
        """Wait for the end, and learn why."""


if TYPE_CHECKING:

    def _both_are(connection: Connection, session: WebTransportSession) -> tuple[Transport, ...]:
        return connection, session
