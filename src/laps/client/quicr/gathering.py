"""The objects of all tracks that a name with a mask stands for, as one sequence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laps.client.quicr.subscription import QuicrSubscription
    from laps.client.quicr.wildcard import QuicrSubscriptions
    from laps.client.values import Object
    from laps.types import TrackName

# So many objects are ahead of who takes them; each subscription holds its own beside it.
AHEAD: Final = 16


class Gathered:
    """Objects with their tracks, of each track in order; it goes on when one of them ends."""

    def __init__(self, tracks: QuicrSubscriptions) -> None:
        self._tracks = tracks
        self._ready: asyncio.Queue[tuple[TrackName, Object] | Exception | None]
        self._ready = asyncio.Queue(AHEAD)
        self._tasks = {asyncio.ensure_future(self._find())}
        self._closed = False

    def __aiter__(self) -> Gathered:
        return self

    async def __anext__(self) -> tuple[TrackName, Object]:
        item = None if self._closed else await self._ready.get()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        """Stop, and tell the relay; who waits is told too."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._tracks.close()
        while not self._ready.empty():
            self._ready.get_nowait()
        self._ready.put_nowait(None)

    async def _find(self) -> None:
        try:
            async for track in self._tracks:
                task = asyncio.ensure_future(self._read(track))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._ready.put(None)
        except Exception as error:
            await self._ready.put(error)

    async def _read(self, subscription: QuicrSubscription) -> None:
        try:
            async for item in subscription:
                await self._ready.put((subscription.track, item))
        except Exception as error:
            await self._ready.put(error)
