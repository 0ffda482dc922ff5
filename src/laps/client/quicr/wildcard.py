"""All tracks that a name with a mask stands for, each as a subscription of its own.

The relay opens a stream for each of them, with PUBLISH_INTENT, and the media comes there. On the
next channel each of those that were found goes on by itself, with a SUBSCRIBE; the one with the
mask is said again for those that nobody here knows yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from laps.client.news import News
from laps.client.quicr.asking import Again, Asking, Refused
from laps.client.quicr.channel import QuicrChannel
from laps.client.quicr.showing import refused
from laps.client.quicr.subscription import (
    INTENTS,
    RETRY_FIRST_S,
    RETRY_MOST_S,
    QuicrSubscription,
)
from laps.client.tokens import NO_TOKEN
from laps.wire.quicr.messages import Intent, Response, Subscribe
from laps.wire.quicr.names import NameRefused, decode_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.quicr.session import QuicrSession
    from laps.client.quicr.subscription import Offer, Start
    from laps.client.seen import Seen
    from laps.client.tokens import TokenSource
    from laps.sessions.quicr import ControlStream
    from laps.types import TrackName
    from laps.wire.quicr.messages import PublishIntent
    from laps.wire.quicr.names import Pattern

    Make = Callable[[TrackName, Offer, bool, Seen | None], QuicrSubscription]

log = logging.getLogger(__name__)

# More tracks that nobody has taken from the iterator are refused.
WAITING: Final = 1000

# So many tracks that are over are remembered, so as not to give the same objects again.
REMEMBERED: Final = 1000

# Those that were found have so many turns of the event loop to ask for themselves.
TURNS: Final = 100


class QuicrSubscriptions(News[QuicrSubscription, QuicrChannel]):
    """What `subscribe_all` returns: an asynchronous iterator of subscriptions.

    Leaving the loop, or `close`, ends all of them.
    """

    def __init__(
        self,
        session: QuicrSession,
        pattern: Pattern,
        start: Start,
        datagrams: bool,
        make: Make,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        self.pattern = pattern
        self.token = token
        self._intent = INTENTS[str(start)]
        self._datagrams = datagrams
        self._make = make
        self._found: OrderedDict[TrackName, QuicrSubscription] = OrderedDict()
        self._asked: list[Asking] = []
        self._retry = RETRY_FIRST_S
        self._established: asyncio.Future[None] = session.loop.create_future()
        super().__init__(session)

    async def established(self) -> None:
        """Wait until the relay has accepted it."""
        await asyncio.shield(self._established)

    def close(self) -> None:
        """Stop, and tell the relay."""
        super().close()
        self._established.cancel()
        for subscription in self._found.values():
            subscription.close()
        for asking in self._asked:
            asking.close()

    async def _follow(self, channel: QuicrChannel) -> None:
        for _ in range(TURNS):
            if all(sub.is_on(channel) for sub in self._found.values() if sub.live):
                break
            await asyncio.sleep(0)
        datagram_id = channel.next_datagram_id() if self._datagrams else None
        pattern = self.pattern
        message = Subscribe(pattern.name, pattern.mask, self._intent, datagram_id)
        asking = _Wild(channel, message, self._granted)
        take = partial(self._offered, channel)
        self._asked = [one for one in self._asked if not one.over] + [asking]
        channel.takers.append(take)
        try:
            await self.token.current()
            asking.token = self.token
            asking.begin()
            await channel.until(asking.outcome)
        finally:
            channel.takers.remove(take)
        # What has been missed meanwhile is wanted from its beginning.
        self._intent = Intent.CATCH_UP
        if not asking.over:
            return  # the old relay ends what it has offered when it is left
        match asking.outcome.result():
            case Refused(reason):
                what = f"a subscription to all below {pattern.name.decode('utf-8', 'replace')!r}"
                raise refused(what, Response.FAIL, reason)
            case Again(reason):
                log.info("%s; subscribing again", reason)
                await asyncio.sleep(self._retry)
                self._retry = min(2 * self._retry, RETRY_MOST_S)

    def _granted(self) -> None:
        self._retry = RETRY_FIRST_S
        if not self._established.done():
            self._established.set_result(None)

    def _offered(
        self, channel: QuicrChannel, stream: ControlStream, message: PublishIntent
    ) -> bool:
        """The relay has a track; whether it is one of these."""
        try:
            track = decode_name(message.name)
        except NameRefused:
            return False
        if not self.pattern.matches(track) or len(self._waiting) >= WAITING:
            return False
        known = self._found.pop(track, None)
        seen: Seen | None = None
        if known is not None:
            if not known.has_ended:
                self._found[track] = known  # it goes on by itself, or nobody wants it
                return False
            seen = known.seen
        datagrams = self._datagrams and message.datagram_capable
        made = self._found[track] = self._make(track, (channel, stream), datagrams, seen)
        self._forget()
        self._tell(made)
        return True

    def _forget(self) -> None:
        if len(self._found) > REMEMBERED:
            over = [track for track, sub in self._found.items() if not sub.live]
            for track in over[: len(self._found) - REMEMBERED]:
                del self._found[track]


class _Wild(Asking):
    """The SUBSCRIBE with the mask, on one channel."""

    def __init__(
        self, channel: QuicrChannel, message: Subscribe, granted: Callable[[], None]
    ) -> None:
        super().__init__(channel, message)
        self._on_grant = granted

    def _granted(self) -> None:
        self._on_grant()
