"""A publisher that counts, and a subscriber that writes down what came when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import laps
from laps.client.urls import Place

Where = str | list[str] | list[Place]


async def publish_numbers(
    where: Where, track: str, written: list[bytes], stop: asyncio.Event, **options: Any
) -> None:
    """Publish a hundred numbers a second, forty to a group, until told to stop."""
    async with laps.connect(where) as session:
        publication = await session.publish("demo/counting", track, **options)
        while not stop.is_set():
            data = b"%d" % len(written)
            await publication.write(data, new_group=len(written) % 40 == 0)
            written.append(data)
            await asyncio.sleep(0.01)
        await publication.end()


async def read_numbers(
    where: Where,
    track: str,
    got: list[tuple[float, bytes]],
    used: list[str] | None = None,
) -> None:
    """Read until the track ends; `used` holds the URL of the relay of the last object."""
    async with laps.connect(where) as session:
        objects = session.subscribe("demo/counting", track, start="start")
        async for obj in objects:
            got.append((time.monotonic(), obj.payload))
            if used is not None:
                used[:] = [session.relay_url]
        assert objects.gaps == []
