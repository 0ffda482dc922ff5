"""The objects that an application is about to take, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from laps.client.buffers import Buffer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from laps.client.values import Object


class Intake:
    """A queue with an end; the buffer counts what is in it, and what is on its way to it."""

    def __init__(self, limit_bytes: int, *, finite: bool) -> None:
        self.buffer = Buffer(limit_bytes, finite=finite)
        self.ended = False
        self._ready: deque[Object] = deque()
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def push(self, items: Iterable[Object]) -> None:
        """Objects whose cost has been, or is about to be, put to the buffer."""
        self._ready.extend(items)
        self._wake()

    def finish(self, error: Exception | None = None) -> None:
        """Nothing follows; `error` is raised behind the last object."""
        if not self.ended:
            self.ended = True
            self._error = error
            self._wake()

    def clear(self) -> None:
        """Nobody takes anything any more."""
        self._ready.clear()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Object | None:
        """The next object; None, or the error, at the end."""
        if not await self._wait():
            return None
        item = self._ready.popleft()
        self.buffer.take(item.cost)
        return item

    async def some(self, most: int, most_bytes: int) -> list[Object]:
        """The objects that have come, at least one; none, or the error, at the end."""
        items: list[Object] = []
        size = 0
        if await self._wait():
            ready = self._ready
            while ready and len(items) < most and size < most_bytes:
                item = ready.popleft()
                items.append(item)
                size += item.cost
            self.buffer.take(size)
        return items

    async def _wait(self) -> bool:
        """Until there is something to take; False at the end."""
        while not self._ready:
            if self.ended:
                if self._error is not None:
                    raise self._error
                return False
            if self._waiter is not None:
                raise RuntimeError("two tasks read one subscription: give each its own")
            self._waiter = asyncio.get_running_loop().create_future()
            self.buffer.wait(True)
            try:
                await self._waiter
            finally:
                self._waiter = None
                self.buffer.wait(False)
        return True


class Reading:
    """Objects to iterate over: leaving the loop, or the block, ends what brings them."""

    _intake: Intake

    async def __aiter__(self) -> AsyncIterator[Object]:
        try:
            while (item := await self._intake.next()) is not None:
                yield item
        finally:
            self.close()

    async def __anext__(self) -> Object:
        item = await self._intake.next()
        if item is None:
            raise StopAsyncIteration
        return item

    async def some(self, most: int = 10_000, most_bytes: int = 4 * 1024 * 1024) -> list[Object]:
        """The objects that have come, at least one; none at the end.

        It takes less time than one by one; as many as there are, up to about these bounds.
        """
        return await self._intake.some(most, most_bytes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and tell the relay."""
        raise NotImplementedError
