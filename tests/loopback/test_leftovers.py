"""What a closed connection leaves in a relay: nothing that only Python's collector could free.

The collector looks at every object there is to find a few that refer to each other. In a relay with
a million tracks that takes seconds, in which nothing moves. So it must not be needed.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import laps
from support import visitor
from support.loopback import until
from support.runners import lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.net.runner import Runner


@pytest.fixture
def collector() -> Iterator[None]:
    """Only when it is called, and what it finds is kept."""
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def publish(url: str) -> None:
    async with laps.connect(url) as session:
        track = await session.publish(visitor.NAMESPACE, visitor.NAME)
        for number in range(10_000):
            await track.write(bytes(5_000), new_group=number % 5 == 0)
            await asyncio.sleep(0.02)


async def visited(runner: Runner, url: str, kinds: tuple[str, ...]) -> None:
    """Somebody came, and nothing is left of the connections but the publisher's."""
    process = await asyncio.create_subprocess_exec(sys.executable, visitor.__file__, url, *kinds)
    assert await process.wait() == 0
    clients = runner.endpoints()[0]
    await until(lambda: len(clients._connections) == 1)
    await asyncio.sleep(runner.config.quic.handshake_timeout_s)  # timers of its beginning


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("scheme", "kinds"),
    [
        ("moqt", tuple(visitor.VISITS)),
        ("https", tuple(visitor.VISITS)),
        ("quicr", ("live", "publish")),
    ],
)
def test_a_connection_that_is_closed_leaves_nothing_for_the_collector(
    scheme: str, kinds: tuple[str, ...]
) -> None:
    async def main() -> Counter[str]:
        async with lab() as relays:
            runner = await relays.relay("edge", quic__handshake_timeout_s=1.0)
            publisher = scheme if scheme == "quicr" else "moqt"
            publishing = asyncio.ensure_future(publish(f"{publisher}://{runner.client_address}"))
            url = f"{scheme}://{runner.client_address}"
            await visited(runner, url, kinds)
            gc.collect()
            gc.set_debug(gc.DEBUG_SAVEALL)
            await visited(runner, url, kinds)
            gc.collect()
            publishing.cancel()
            return Counter(
                type(it).__qualname__
                for it in gc.garbage
                if type(it).__module__.startswith(("laps.", "qh3."))
            )

    assert asyncio.run(main()) == Counter()
