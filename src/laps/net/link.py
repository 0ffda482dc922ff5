"""A connection to a peer relay, as the relay in the middle uses it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.errors import CloseCode, ConnectionClosed, DatagramTooLarge, SendBufferFull
from laps.net.egress import Egress
from laps.types import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.config import EgressConfig
    from laps.infobase.nodes import SessionId
    from laps.net.backlog import ByClass
    from laps.net.connection import Connection
    from laps.net.egress import EgressStream
    from laps.types import NodeId

PEERING_ALPN: Final = "laps"
EXTENDED_ALPN: Final = "laps-x1"

# An answer to a probe that takes longer than this, and four round trips, does not come any more.
PROBE_S: Final = 1.0

# Control goes ahead of all data, whose priorities are 0 to 255.
CONTROL_RANK: Final = (-1, 0, 0)

# So little of control waits beyond what QUIC has been given that data gets a share of each of its
# turns, also while a peer is told of a million subscribes.
CONTROL_BYTES: Final = 16 * 1024

# The document names no code for a stream that was dropped; 0 says no error of the peer's.
DROPPED: Final = 0


@dataclass(frozen=True, slots=True)
class LinkEvents:
    """What a link tells whoever runs the relay."""

    data: Callable[[QuicLink, int, bytes, bool], None]
    datagram: Callable[[QuicLink, bytes], None]
    reset: Callable[[QuicLink, int, int], None]
    closed: Callable[[QuicLink, ConnectionClosed], None]
    tick: Callable[[QuicLink], None]
    stopped: Callable[[QuicLink, int], None]
    writable: Callable[[QuicLink], None]
    "There is room for control messages again; also where there was some before."


class QuicLink:
    """A `relay.ports.Link` on a QUIC connection; it is the connection's receiver too."""

    def __init__(
        self,
        connection: Connection,
        number: SessionId,
        config: EgressConfig,
        events: LinkEvents,
        by_class: ByClass,
        *,
        dialled: bool,
        expected: NodeId | None = None,
    ) -> None:
        self.id = number
        self.connection = connection
        self.opened_at = connection.opened_at
        self.dialled = dialled
        self.extended = connection.alpn == EXTENDED_ALPN
        self.remote = connection.remote[0]
        self.certificate = connection.certificate
        self.expected = expected
        self.too_large_datagrams = 0
        self.egress = Egress(
            connection, config, expired_code=DROPPED, full_code=DROPPED, by_class=by_class
        )
        self._events = events
        self._control: EgressStream | None = None
        connection.tick = self._tick

    def __str__(self) -> str:
        host, port = self.connection.remote[:2]
        return str(Address(host, port))

    # -- what the relay calls ----------------------------------------------------------------------

    @property
    def srtt_us(self) -> int:
        """The smoothed round trip time of now."""
        return self.connection.stats().srtt_us

    @property
    def pressed(self) -> bool:
        """Whether more waits to be sent than is good."""
        return self.egress.pressed

    def pressed_for(self, order: int) -> bool:
        """Whether more waits than is good for a class of service."""
        return self.egress.pressed_for(order)

    def crowded_for(self, order: int) -> bool:
        """Whether something of a class of service may soon have to be dropped."""
        return self.egress.crowded_for(order)

    @property
    def sent_bytes(self) -> int:
        """How much has been sent on it so far."""
        return self.egress.counters.stream_bytes

    def open_control(self) -> int:
        """Open a bidirectional stream."""
        return self.connection.open_stream(unidirectional=False)

    @property
    def control_room(self) -> int:
        """How many bytes of control messages had best be written now."""
        return CONTROL_BYTES - (0 if self._control is None else self._control.queued_bytes)

    def send_control(self, stream_id: int, data: bytes) -> None:
        """Write a control message; a peer that reads none of them is given up."""
        if self._control is None or self._control.stream_id != stream_id:
            self._control = self.egress.adopt(stream_id, CONTROL_RANK)
        try:
            self._control.write(data)
        except SendBufferFull as full:
            self.close(CloseCode.GRACEFUL, f"control messages are not read: {full}")

    def open_stream(self, priority: int, ttl_us: int, order: int) -> EgressStream:
        """A new data stream of a class of service."""
        return self.egress.open((priority, 0, order), ttl_us)

    def when_sent(self, call: Callable[[], None]) -> None:
        """Call when all that was written before has been sent."""
        self.egress.when_flushed(call)

    def send_datagram(self, data: bytes, priority: int, order: int) -> None:
        """Send a datagram, or lose it."""
        try:
            self.egress.send_datagram(data, (priority, 0, order))
        except DatagramTooLarge:
            self.too_large_datagrams += 1
        except ConnectionClosed:
            pass

    def end_stream(self, stream_id: int, code: int) -> None:
        """Reset our half of a stream, and ask the peer to stop with its own."""
        if self.connection.established:
            self.connection.stop_stream(stream_id, code)
            self.connection.reset_stream(stream_id, code)

    def probe(self) -> None:
        """Ask for an answer; who gives none in time is gone."""
        if not self.connection.established:
            return
        asked = time.monotonic()
        self.connection.ping()

        def check() -> None:
            if self.connection.established and self.connection.last_heard < asked:
                self.close(CloseCode.GRACEFUL, "no answer to a probe")

        wait = PROBE_S + 4 * self.srtt_us / 1e6
        asyncio.get_running_loop().call_later(wait, check)

    def close(self, code: int, reason: str) -> None:
        """End the connection."""
        self.connection.close(code, reason)

    # -- what the connection tells -----------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""
        self._events.data(self, stream_id, data, fin)

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""
        self._events.datagram(self, data)

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self._events.reset(self, stream_id, code)

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.egress.stopped(stream_id)
        self._events.stopped(self, stream_id)

    def writable(self) -> None:
        """As `Receiver`."""
        self.egress.writable()
        self._events.writable(self)

    def closed(self, close: ConnectionClosed) -> None:
        """As `Receiver`."""
        self._events.closed(self, close)
        self.connection.tick = None  # which refers to this link: see `net/clients.py`
        self.egress.close()

    def _tick(self, now: float) -> None:
        self.egress.tick(now)
        self._events.tick(self)
