"""What a relay has of what it was sent."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laps.client.carrier import Carrier

# What was sent this long before the relay was last heard of has arrived: a few round trips.
SETTLED_S: Final = 1.0


class Arrivals:
    """Up to which object of a track all has arrived on one channel."""

    def __init__(self, channel: Carrier) -> None:
        self._channel = channel
        self._marks: list[tuple[float, int]] = []
        "When all up to an object had been sent."

    def mark(self, sequence: int) -> None:
        """Called from time to time: note what has been sent."""
        if not self._channel.egress.queued_bytes and not self._channel.transport.buffered_bytes:
            self._marks.append((monotonic(), sequence))
            del self._marks[:-4]

    @property
    def delivered(self) -> int:
        """Up to which object all has arrived: QUIC would have found out within `SETTLED_S`."""
        heard = self._channel.transport.last_heard - SETTLED_S
        return max((sequence for at, sequence in self._marks if at <= heard), default=0)
