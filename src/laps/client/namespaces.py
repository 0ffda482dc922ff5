"""Namespaces that come and go, as an application hears of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from laps.client.names import show_namespace
from laps.client.values import NamespaceEvent
from laps.errors import SessionClosed
from laps.wire.moqt.messages import NamespaceOptions, SubscribeNamespace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client.channel import Channel
    from laps.client.session import Session
    from laps.wire.moqt.messages import Namespace

# A new relay has this long to name again what the one before did.
SETTLE_S: Final = 2.0


class Namespaces:
    """What `Session.namespaces` returns: an asynchronous iterator of events."""

    def __init__(self, session: Session, prefix: Namespace) -> None:
        self.prefix = prefix
        self._session = session
        self._known: dict[Namespace, None] = {}
        self._unconfirmed: set[Namespace] = set()
        self._events: deque[NamespaceEvent] = deque()
        self._error: Exception | None = None
        self._over = False
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(self._drive())

    async def __aiter__(self) -> AsyncIterator[NamespaceEvent]:
        try:
            while (event := await self._next()) is not None:
                yield event
        finally:
            self.close()

    async def __anext__(self) -> NamespaceEvent:
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _next(self) -> NamespaceEvent | None:
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    def close(self) -> None:
        """Stop, and tell the relay."""
        self._task.cancel()
        self._over = True
        self._news.set()
        self._session.dropped(self)

    # -- what the relay tells ----------------------------------------------------------------------

    def _told(self, namespace: Namespace, added: bool) -> None:
        if namespace[: len(self.prefix)] != self.prefix:
            return
        self._unconfirmed.discard(namespace)
        if added == (namespace in self._known):
            return
        if added:
            self._known[namespace] = None
        else:
            del self._known[namespace]
        self._events.append(NamespaceEvent(namespace, added))
        self._news.set()

    def _forget_unconfirmed(self) -> None:
        for namespace in list(self._unconfirmed):
            self._told(namespace, False)

    async def _drive(self) -> None:
        try:
            while True:
                channel = await self._session.channel()
                try:
                    await self._follow(channel)
                except SessionClosed:
                    if not self._session.may_return:
                        raise
        except Exception as error:
            self._error = error
            self._news.set()

    async def _follow(self, channel: Channel) -> None:
        """Hear from one channel until it is over, or there is another."""
        self._unconfirmed = set(self._known)
        channel.watches.append(self._told)
        request_id: int | None = None
        settled: asyncio.TimerHandle | None = None
        try:
            what = f"a subscription to the namespaces below {show_namespace(self.prefix)!r}"
            message = SubscribeNamespace(0, self.prefix, NamespaceOptions.NAMESPACE)
            answer = await channel.ask(message, what)
            request_id = answer.request_id
            settled = channel.loop.call_later(SETTLE_S, self._forget_unconfirmed)
            superseded = asyncio.ensure_future(channel.superseded.wait())
            try:
                waiting = (channel.over, superseded)
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                superseded.cancel()
        finally:
            channel.watches.remove(self._told)
            if settled is not None:
                settled.cancel()
            if request_id is not None and channel.alive:
                channel.session.unsubscribe_namespace(request_id)
