"""Tokens in QUICR: the one of the connection, and how a refusal for want of one is told.

AUTHORIZATION has a control stream of its own, and is answered before anything else is asked for:
streams overtake one another, and what is asked for without a token would be refused.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from laps.client.tokens import NO_TOKEN
from laps.errors import RequestRefused, RequestUnauthorized, SessionUnauthorized
from laps.wire.quicr.messages import NOT_AUTHORIZED, Holds, Response, SubscribeReply

if TYPE_CHECKING:
    import asyncio

    from laps.client.quicr.channel import QuicrChannel
    from laps.client.tokens import Shown
    from laps.sessions.quicr import ControlStream
    from laps.wire.quicr.messages import Message


class Showing:
    """A token that is shown for a connection; a `StreamUser`."""

    def __init__(self, channel: QuicrChannel, shown: Shown) -> None:
        self.token = NO_TOKEN
        self.answer: asyncio.Future[str | None] = channel.loop.create_future()
        "None: it is taken; text: why it is not."
        self._channel = channel
        channel.open(shown.in_quicr(Holds.CONNECTION), self)

    def opened(self, stream: ControlStream) -> None:
        """As `StreamUser`."""
        self._channel.session.close(stream)

    def said(self, message: Message) -> None:
        """As `StreamUser`."""
        if isinstance(message, SubscribeReply):
            is_taken = message.response is Response.OK
            self._conclude(None if is_taken else message.reason.removeprefix(NOT_AUTHORIZED))

    def closed(self, well: bool) -> None:
        """As `StreamUser`."""
        self._conclude("the relay gives no answer to it")

    def lost(self) -> None:
        """As `StreamUser`."""
        if not self.answer.done():
            self.answer.set_exception(self._channel.why_closed())
            self.answer.exception()  # it may be that nobody waits for it

    def tick(self, now: float) -> None:
        """As `StreamUser`."""

    def _conclude(self, refusal: str | None) -> None:
        if not self.answer.done():
            self.answer.set_result(refusal)


def unauthorized(url: str, reason: str, shown: Shown) -> SessionUnauthorized:
    """The error for a connection whose token is refused; QUICR does not say that it has ended."""
    expired = shown.expires is not None and shown.expires <= time()
    return SessionUnauthorized(f"a session with {url}", reason, expired)


def refused(what: str, code: int, reason: str) -> RequestRefused:
    """The error for what QUICR refuses, or ends."""
    if not reason.startswith(NOT_AUTHORIZED):
        return RequestRefused(what, code, reason)
    words = reason.removeprefix(NOT_AUTHORIZED)
    return RequestUnauthorized(what, code, words, expired=code == Response.EXPIRED)
