"""What a relay asks of the world around it: `net` answers with QUIC, `sim` with a simulated wire.

A relay is told what happens by calls on it, each with the time, and answers by calls on these.
None of them calls back into the relay before it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from laps.tracks.ports import OutStream, Pressed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from laps.infobase.nodes import SessionId
    from laps.types import NodeId


class LinkStream(OutStream, Protocol):
    """A data stream to a peer."""

    def reorder(self, order: int) -> None:
        """Its track is of another class of service from now on."""

    def abort(self, code: int) -> None:
        """Give it up: nothing of what waits is sent any more, whatever `reset` would do."""


class Link(Pressed, Protocol):
    """A QUIC connection to a peer relay."""

    id: SessionId
    "Unique in this relay, and larger for a younger link."
    opened_at: float
    dialled: bool
    "We dialled it, so we open the control stream and say CONNECT."
    extended: bool
    "The ALPN is `laps-x1`: extension messages may be sent."
    remote: str
    "The IP address of the other end."
    certificate: str
    "SHA-256 of the certificate that the side that was dialled shows, in hexadecimal."
    expected: NodeId | None
    "The node that has to be at the other end, where the operator says so and we dialled."

    @property
    def srtt_us(self) -> int:
        """The smoothed round trip time of now."""

    def open_control(self) -> int:
        """Open a bidirectional stream."""

    @property
    def control_room(self) -> float:
        """How many bytes of control messages had best be written now.

        When none were left and there are some again, `Relay.link_writable` is called. What is
        written beyond it is sent all the same: what cannot wait does not.
        """

    def send_control(self, stream_id: int, data: bytes) -> None:
        """Write control messages, each of them whole."""

    def open_stream(self, priority: int, ttl_us: int, order: int) -> LinkStream:
        """A new data stream; 0 is the most urgent priority, and a TTL of 0 means none.

        Of those of one priority the classes of service go in their `order`.
        """

    def when_sent(self, call: Callable[[], None]) -> None:
        """Call when all that was written before has been sent; at once, or when nothing is left."""

    def send_datagram(self, data: bytes, priority: int, order: int) -> None:
        """Send a datagram, or lose it."""

    def end_stream(self, stream_id: int, code: int) -> None:
        """Reset our half of a stream, and ask the peer to stop with its own."""

    def probe(self) -> None:
        """Find out soon whether the other end is still there; if it is not, the link closes."""

    def close(self, code: int, reason: str) -> None:
        """End the connection, after what was written before.

        The relay is told by `Relay.link_closed` all the same, later.
        """


@dataclass(frozen=True, slots=True)
class LinkReading:
    """How the connections to a peer did since they were last read."""

    peer: NodeId
    srtt_us: int
    "Of now, as is the next."
    queue_bytes: int
    sent_bytes: int
    received_bytes: int
    loss: float
    "The share of packets lost, 0 to 1."
    dropped: int
    "Groups that were dropped because the peer does not keep up."


@dataclass(frozen=True, slots=True)
class NodeReading:
    """How the process did since it was last read."""

    load: float
    "The share of a core that it worked, 0 to 1."
    memory_bytes: int
    "Of now."
    sent_bytes: int
    "To peers and clients, as the next."
    received_bytes: int
    dropped: int
    "Groups that were dropped because clients do not keep up."


class Senses(Protocol):
    """What only the world around a relay can tell it of itself."""

    @property
    def links(self) -> Sequence[LinkReading]:
        """What was read of each peer."""

    @property
    def node(self) -> NodeReading:
        """What was read of the process."""

    def read(self) -> Iterator[None]:
        """Read anew, a little at a time."""
