"""What comes one by one for as long as a session lasts, to iterate over."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from laps.client.carrier import C
from laps.client.tokens import NO_TOKEN
from laps.errors import SessionClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client.lasting import LastingSession
    from laps.client.tokens import TokenSource

T = TypeVar("T")


class News(Generic[T, C]):
    """An asynchronous iterator: leaving the loop, or the block, ends what brings it."""

    token: TokenSource = NO_TOKEN
    "Its own, beside that of the session."

    def __init__(self, session: LastingSession[C]) -> None:
        self._session = session
        self._waiting: deque[T] = deque()
        self._error: Exception | None = None
        self._over = False
        self._arrived = asyncio.Event()
        self._task = asyncio.ensure_future(self._drive())

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            while (item := await self._next()) is not None:
                yield item
        finally:
            self.close()

    async def __anext__(self) -> T:
        item = await self._next()
        if item is None:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _next(self) -> T | None:
        """The next; None at the end."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()

    def _tell(self, item: T) -> None:
        self._waiting.append(item)
        self._arrived.set()

    def close(self) -> None:
        """Stop, and tell the relay."""
        self._task.cancel()
        self._over = True
        self._arrived.set()
        self._session.dropped(self)

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
            self._arrived.set()

    async def _follow(self, channel: C) -> None:
        """Hear from one channel until it is over, or there is another."""
        raise NotImplementedError
