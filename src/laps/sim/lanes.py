"""One direction of a cable: how long things take, what is lost, and what went by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from laps.wire.peering import MessageType

if TYPE_CHECKING:
    from laps.sim.clock import Clock

# What a lost chunk costs: QUIC takes a packet for lost after 9/8 of a round trip, and sends again.
LOSS_RTTS: Final = 1.125
LOSS_LEAST_S: Final = 0.001


@dataclass(slots=True)
class Conditions:
    """What one direction of a cable does to what is sent."""

    delay_s: float = 0.01
    jitter_s: float = 0.0
    "Up to this much more, by chance."
    loss: float = 0.0
    bytes_per_s: float = inf
    split: float = 0.2
    "How many of the writes are cut in two or more."
    noise: float = 0.01
    "How far a measured round trip lies from the true one."


@dataclass(slots=True)
class Traffic:
    """What was sent in one direction of a cable."""

    control_messages: Counter[int] = field(default_factory=Counter)
    "By message type."
    control_bytes: int = 0
    bytes_by_type: Counter[int] = field(default_factory=Counter)
    "Those of control messages, by message type."
    streams: int = 0
    stream_bytes: int = 0
    datagrams: int = 0
    datagram_bytes: int = 0
    copies: int = 0
    "Objects carried, as far as they are traced."
    retransmissions: int = 0
    lost_datagrams: int = 0
    dropped_streams: int = 0
    last_control_at: float = 0.0
    last_control: int = 0
    "Its message type."
    control_until: float = 0.0
    "When all control messages, and ends of streams, that were sent so far have arrived."

    def arrives(self, at: float) -> None:
        """A control message, or the end of a stream, is under way until then."""
        self.control_until = max(self.control_until, at)


class Lane:
    """One direction of a cable."""

    def __init__(self, clock: Clock, conditions: Conditions) -> None:
        self.conditions = conditions
        self.traffic = Traffic()
        self._clock = clock
        self.busy_until = 0.0
        "When what was sent before has left."
        self._sending_s = 0.0
        "How long it takes, of a cable that is not endlessly wide, to send all that was sent."
        self._random = clock.rng.random

    @property
    def waiting_s(self) -> float:
        """How long data sent now waits for what was sent before."""
        return max(0.0, self.busy_until - self._clock.now)

    @property
    def busy_s(self) -> float:
        """How long it has been sending, in all; 0 of a cable that is endlessly wide."""
        return self._sending_s - self.waiting_s

    def arrival(self, size: int, urgent: bool = False, reliable: bool = False) -> float:
        """When bytes sent now are there.

        What is urgent does not wait for the rest. What is reliable is sent again as often as it is
        lost; whether anything else is lost, `loses` says.
        """
        conditions, now = self.conditions, self._clock.now
        flight_s = conditions.delay_s
        if conditions.jitter_s:
            flight_s += conditions.jitter_s * self._random()
        arrival = now + flight_s
        if conditions.bytes_per_s != inf:
            sending_s = size / conditions.bytes_per_s
            self._sending_s += sending_s
            free_at = self.busy_until if self.busy_until > now else now
            self.busy_until = free_at + sending_s
            arrival += sending_s if urgent else sending_s + (free_at - now)
        if reliable and conditions.loss:
            while self._random() < conditions.loss:
                self.traffic.retransmissions += 1
                arrival += LOSS_RTTS * 2 * conditions.delay_s + LOSS_LEAST_S
        return arrival

    def flight_s(self) -> float:
        """How long a packet is under way this time."""
        conditions = self.conditions
        if not conditions.jitter_s:
            return conditions.delay_s
        return conditions.delay_s + conditions.jitter_s * self._random()

    def loses(self) -> bool:
        """Whether a packet is lost this time."""
        loss = self.conditions.loss
        return loss > 0 and self._random() < loss


def message_name(number: int) -> str:
    """A message type, as people call it; an extension's has a number only."""
    try:
        return MessageType(number).name
    except ValueError:
        return f"type {number}"
