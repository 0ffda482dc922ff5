"""A client that does one thing after another at a relay, with a connection for each, as a program.

It is a process of its own, so that its objects are not among the relay's:
`python visitor.py moqt://127.0.0.1:33435 live fetch`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Literal

import laps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from laps.client.session import Session

NAMESPACE, NAME = "visited", "track"


async def _read(session: Session, start: Literal["latest", "start"]) -> None:
    seen = 0
    async for _ in session.subscribe(NAMESPACE, NAME, start=start):
        seen += 1
        if seen == 3:
            return


async def live(session: Session) -> None:
    await _read(session, "latest")


async def from_the_start(session: Session) -> None:
    await _read(session, "start")


async def fetch(session: Session) -> None:
    async for _ in session.fetch(NAMESPACE, NAME, start=(0, 0), end=(0, 1)):
        pass


async def publish(session: Session) -> None:
    track = await session.publish(NAMESPACE, "another")
    for number in range(4):
        await track.write(bytes(5_000), new_group=number % 2 == 0)


async def watch(session: Session) -> None:
    async for _ in session.tracks(NAMESPACE):
        return


async def wait_in_vain(session: Session) -> None:
    async def read() -> None:
        async for _ in session.subscribe(NAMESPACE, "that nobody publishes"):
            pass

    waiting = asyncio.ensure_future(read())
    await asyncio.sleep(0.1)
    waiting.cancel()


VISITS: dict[str, Callable[[Session], Awaitable[None]]] = {
    it.__name__: it for it in (live, from_the_start, fetch, publish, watch, wait_in_vain)
}


async def visit(url: str, *kinds: str) -> None:
    for kind in kinds:
        async with laps.connect(url, insecure=True) as session:
            await VISITS[kind](session)


if __name__ == "__main__":
    asyncio.run(visit(*sys.argv[1:]))
