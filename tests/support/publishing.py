"""A publisher for tests that know no asyncio: its session lives in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import laps

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from laps.client import Session, Track

T = TypeVar("T")


class Publisher:
    """A session with a relay, and the tracks that it publishes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.session: Session
        self.written: set[tuple[str, int, int, bytes]] = set()
        "All that was published, as track, group, object and payload."

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def publish(self, namespace: str, name: str, **options: Any) -> Track:
        return self.run(self.session.publish(namespace, name, **options))

    def write(self, track: Track, *payloads: bytes, every: int = 10) -> None:
        """Objects, so many to a group; the first begins one."""
        self.run(self._write(track, payloads, every))

    async def _write(self, track: Track, payloads: tuple[bytes, ...], every: int) -> None:
        name = track.full_name.name.decode()
        for number, payload in enumerate(payloads):
            place = await track.write(payload, new_group=number % every == 0)
            self.written.add((name, *place, payload))

    def wait_received(self, track: Track, url: str) -> None:
        """Until a relay has all that was written: streams of groups are sent side by side."""
        self.run(self._wait_received(track, url))

    async def _wait_received(self, track: Track, url: str) -> None:
        name = track.full_name
        last = max((group, number) for _, group, number, _ in self.written)
        async with laps.connect(url) as session:
            while (await session.track_status(name.namespace, name.name)).largest != last:  # noqa: ASYNC110 - polls
                await asyncio.sleep(0.01)

    def end(self, track: Track) -> None:
        self.run(track.end())


@contextmanager
def publisher(url: str, **options: Any) -> Iterator[Publisher]:
    """A publisher at a relay."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made = Publisher(loop)
    connecting = laps.connect(url, **options)
    try:
        made.session = made.run(connecting.__aenter__())
        try:
            yield made
        finally:
            made.run(made.session.close(end_tracks=False))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
