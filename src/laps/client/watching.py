"""What is published below a prefix, as it comes and goes, from one channel to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from laps.client.channel import Channel
from laps.client.news import News
from laps.names import namespace_text
from laps.wire.moqt.messages import SubscribeNamespace

if TYPE_CHECKING:
    import asyncio

    from laps.client.session import Session
    from laps.names import Namespace
    from laps.wire.moqt.messages import (
        NamespaceOptions,
    )

# A new relay has this long to name again what the one before did.
SETTLE_S: Final = 2.0

K = TypeVar("K")
T = TypeVar("T")


class Watching(News[T, Channel], Generic[K, T]):
    """A SUBSCRIBE_NAMESPACE, and what has been told of it."""

    options: ClassVar[NamespaceOptions]
    things: ClassVar[str]
    "What is told of, in words."

    def __init__(self, session: Session, prefix: Namespace) -> None:
        self.prefix = prefix
        self._known: dict[K, None] = {}
        self._unconfirmed: set[K] = set()
        super().__init__(session)

    def _event(self, key: K, added: bool) -> T:
        """What an application is given."""
        raise NotImplementedError

    def _attach(self, channel: Channel) -> None:
        """Hear what the channel is told."""
        raise NotImplementedError

    def _detach(self, channel: Channel) -> None:
        """Hear no more."""
        raise NotImplementedError

    async def _accepted(self, channel: Channel) -> None:
        """The relay tells from now on."""

    def _changed(self, key: K, added: bool) -> None:
        self._unconfirmed.discard(key)
        if added == (key in self._known):
            return
        if added:
            self._known[key] = None
        else:
            del self._known[key]
        self._tell(self._event(key, added))

    def _forget_unconfirmed(self) -> None:
        for key in list(self._unconfirmed):
            self._changed(key, False)

    async def _follow(self, channel: Channel) -> None:
        self._unconfirmed = set(self._known)
        self._attach(channel)
        request_id: int | None = None
        settled: asyncio.TimerHandle | None = None
        try:
            what = f"a subscription to the {self.things} below {namespace_text(self.prefix)!r}"
            message = SubscribeNamespace(0, self.prefix, self.options, forward=False)
            answer = await channel.ask(message, what)
            request_id = answer.request_id
            settled = channel.loop.call_later(SETTLE_S, self._forget_unconfirmed)
            await self._accepted(channel)
            await channel.until(channel.over)
        finally:
            self._detach(channel)
            if settled is not None:
                settled.cancel()
            if request_id is not None and channel.alive:
                channel.session.unsubscribe_namespace(request_id)
