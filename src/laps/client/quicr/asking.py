"""A SUBSCRIBE on one channel: how it was answered, that it is renewed, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.client.tokens import NO_TOKEN
from laps.wire.quicr.messages import Response, SubscribeReply

if TYPE_CHECKING:
    import asyncio

    from laps.client.quicr.channel import QuicrChannel
    from laps.sessions.quicr import ControlStream
    from laps.types import Location
    from laps.wire.quicr.messages import Message, Subscribe

# As the text recommends. Relays forget a subscription after 30 s: several can get lost.
RENEW_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The track is over, and all of it was read."""


@dataclass(frozen=True, slots=True)
class Again:
    """The relay has ended the subscription, not the track: it is worth another try."""

    reason: str = ""
    at_once: bool = False
    expired: bool = False
    "It was not renewed in time, or the publisher has begun anew."


@dataclass(frozen=True, slots=True)
class Refused:
    """The relay does not grant it."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is over."""


Outcome = Ended | Again | Refused | Lost


class Asking:
    """One SUBSCRIBE; a `StreamUser`."""

    def __init__(self, channel: QuicrChannel, message: Subscribe | None) -> None:
        """Without a message the relay has opened the stream, and there is nothing to ask."""
        self.channel = channel
        self.answered = message is None
        self.granted_at = channel.loop.time()
        "When the relay has said yes."
        self.outcome: asyncio.Future[Outcome] = channel.loop.create_future()
        self.stream: ControlStream | None = None
        self.since: Location | None = None
        "What lies before it has been given, and need not come."
        self.token = NO_TOKEN
        "Shown ahead of the question."
        self._message = message
        self._renewed_at: float | None = None
        if message is not None:
            channel.awaits(self, False)

    def begin(self) -> None:
        """Ask."""
        if self._message is not None:
            self.channel.open(self._message, self, self.since, self.token)

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.outcome.done()

    @property
    def has_ended(self) -> bool:
        """Whether it is over with the track."""
        outcome = self.outcome
        return outcome.done() and not outcome.cancelled() and isinstance(outcome.result(), Ended)

    # -- as `StreamUser` ---------------------------------------------------------------------------

    def opened(self, stream: ControlStream) -> None:
        """As `StreamUser`."""
        self.stream = stream

    def said(self, message: Message) -> None:
        """As `StreamUser`."""
        match message:
            case SubscribeReply(Response.OK):
                if not self.answered:
                    self.answered = True
                    self.granted_at = self.channel.loop.time()
                    self.channel.awaits(self, True)
                    self._granted()
            case SubscribeReply(Response.EXPIRED, reason):
                self.conclude(Again(reason, expired=True))
            case SubscribeReply(Response.FAIL, reason):
                self.conclude(Refused(reason))
            case _:
                pass  # a redirect: where to is said next

    def closed(self, well: bool) -> None:
        """As `StreamUser`."""
        self.conclude(Again("its stream was closed"))

    def lost(self) -> None:
        """As `StreamUser`."""
        self.conclude(Lost())

    def tick(self, now: float) -> None:
        """As `StreamUser`."""
        if self._renewed_at is None:
            self._renewed_at = now
        elif now >= self._renewed_at + RENEW_S:
            self._renewed_at = now
            if self._message is not None and self.stream is not None:
                self.channel.session.send(self.stream, self._message)

    def _granted(self) -> None:
        """The relay has said yes."""

    # -- its end -----------------------------------------------------------------------------------

    def conclude(self, outcome: Outcome) -> None:
        """Nothing more comes of it."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.close()

    def close(self) -> None:
        """Nothing more is wanted of it; the relay is told, if it does not know."""
        self.outcome.cancel()
        stream, self.stream = self.stream, None
        self.channel.release(self, stream)
        if stream is not None:
            self.channel.unsubscribe(stream, "not wanted any more")
