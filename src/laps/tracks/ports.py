"""What a track asks of the world around it: streams to write, and clients to ask and to serve."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from laps.routing.terms import ORDINARY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.routing.flows import FlowKey
    from laps.types import TrackHash, TrackKey, TrackName
    from laps.wire.extensions import Urgency


class OutStream(Protocol):
    """One unidirectional stream that the relay writes."""

    @property
    def over(self) -> bool:
        """Finished, reset, dropped or stopped by the other side: nothing more can be written."""

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """Send bytes after those before; False if the stream is closed."""

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """Send the last bytes; False if the stream is closed."""

    def reset(self, code: int, now: float) -> None:
        """Give the stream up."""


class Pressed(Protocol):
    """A connection that data goes out by."""

    @property
    def pressed(self) -> bool:
        """Whether more waits to be sent than is good."""

    def pressed_for(self, order: int) -> bool:
        """Whether more waits than is good for a class of service, given its place."""

    def crowded_for(self, order: int) -> bool:
        """Whether so much waits that something of a class may soon have to be dropped."""

    @property
    def sent_bytes(self) -> int:
        """How much has been sent on it so far."""


class Classes(Protocol):
    """The classes of service that tracks are of."""

    def of(self, key: TrackKey, name: TrackName | None) -> int:
        """The place of a track's class among the others; its name may not be known."""


class OneClass:
    """As `Classes`, where nobody says anything of any."""

    def of(self, key: TrackKey, name: TrackName | None) -> int:
        """As `Classes.of`."""
        return ORDINARY


class Sender(Protocol):
    """Whoever sends data here, and can be made to wait."""

    def __hash__(self) -> int: ...

    def flows(self) -> Iterable[FlowKey]:
        """What it sends."""

    def wait(self, urgency: Urgency) -> None:
        """It has to wait, or may go on."""


class Answers(Enum):
    """How a publisher says what a track is like."""

    ITSELF = auto()
    "It answers the request for the track: a MoQT or QUICR client."
    BY_RELAY_REQUEST = auto()
    "It is asked as another relay is: a Stub that speaks extensions."
    NEVER = auto()
    "It says nothing, and begins to send."


class Client(Protocol):
    """An application at this relay: a MoQT or QUICR session, a Stub, or one in a simulation."""

    echoes: bool
    "Whether it is asked for a track that nobody but itself wants."

    @property
    def answers(self) -> Answers:
        """How it says what a track is like that it publishes."""

    def __hash__(self) -> int: ...

    @property
    def sink(self) -> Pressed | None:
        """What its subscriptions go out by; None where nothing ever waits."""

    def sender(self, key: TrackKey) -> Sender | None:
        """Who waits where a track of its has to; None where nobody can."""

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """Ask a publisher for a track."""

    def unsubscribe(self, track: TrackHash) -> None:
        """Tell a publisher that nobody wants the track any more."""

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """A new stream to a subscriber, for bytes as the publisher wrote them."""

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """A datagram to a subscriber."""


class Unhurried:
    """A `Client` that nobody waits for, and that waits for nobody."""

    sink: Pressed | None = None

    def sender(self, key: TrackKey) -> Sender | None:
        """As `Client.sender`."""
        return None
