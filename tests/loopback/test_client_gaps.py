"""What a reader is told that it has missed, with a relay that had to drop it."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvloop

import laps
from laps.client import ObjectsMissing
from laps.config import ClientsConfig, Config, EgressConfig, PeeringConfig
from laps.net.runner import Runner
from laps.types import Address
from support.loopback import limits, on_loop
from support.programs import LAPS, relay_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from laps.client import Subscription
    from support.programs import RelayProcess

ANY = Address("127.0.0.1", 0)
GROUPS, OBJECTS = 60, 10


@asynccontextmanager
async def relaying() -> AsyncIterator[Runner]:
    runner = Runner(
        Config(
            peering=PeeringConfig(listen=ANY),
            clients=ClientsConfig(listen=ANY),
            egress=EgressConfig(queue_bytes=400_000, pressure_bytes=200_000),
        )
    )
    try:
        yield runner
    finally:
        await runner.close()


@pytest.mark.parametrize("strict", [False, True])
@on_loop
async def test_gaps_of_a_reader_that_is_too_slow(strict: bool) -> None:
    window = limits(connection_window_bytes=300_000, stream_window_bytes=100_000)
    async with relaying() as relay, AsyncExitStack() as stack:
        url = f"moqt://{relay.client_address}"
        here = await stack.enter_async_context(laps.connect(url))
        there = await stack.enter_async_context(laps.connect(url))
        slow = await stack.enter_async_context(laps.connect(url, quic=window))
        track = await here.publish("demo", "t", first_group=0)
        fast = there.subscribe("demo", "t", start="start", strict=True)
        objects = slow.subscribe("demo", "t", start="start", buffer_bytes=20_000, strict=strict)
        for reader in (fast, objects):
            await reader.established()
        for number in range(GROUPS * OBJECTS):
            await track.write(bytes(10_000), new_group=number % OBJECTS == 0)
            await anext(fast)
        ending = track.end()
        if strict:
            with pytest.raises(ObjectsMissing, match="demo t has a gap"):
                _ = [item async for item in objects]
            await ending
            return
        await ending
        given = {(item.group, item.id) async for item in objects}
        assert len(given) < GROUPS * OBJECTS
        gaps = objects.gaps
        for place in ((g, o) for g in range(GROUPS) for o in range(OBJECTS)):
            told = any(gap.start <= place and (gap.end is None or place < gap.end) for gap in gaps)
            assert told == (place not in given), (place, gaps)
        assert fast.gaps == []


@on_loop
async def test_gaps_are_none_where_everybody_reads() -> None:
    """Some read more slowly than others: the publisher is pushed back before they lose anything."""
    window = limits(connection_window_bytes=300_000, stream_window_bytes=100_000)
    objects = 1000

    async def read(objects: Subscription, every: int) -> int:
        count = 0
        async for _ in objects:
            count += 1
            if count % every == 0:
                await asyncio.sleep(0.002)
        return count

    async with relaying() as relay, AsyncExitStack() as stack:
        url = f"moqt://{relay.client_address}"
        here, *others = [
            await stack.enter_async_context(laps.connect(url, quic=window)) for _ in range(5)
        ]
        track = await here.publish("demo", "t", first_group=0)
        readers = [
            session.subscribe("demo", "t", buffer_bytes=20_000, strict=True) for session in others
        ]
        for reader in readers:
            await reader.established()
        counts = [
            asyncio.ensure_future(read(reader, every))
            for reader, every in zip(readers, (objects, 5, 10, 20), strict=True)
        ]
        for number in range(objects):
            await track.write(bytes(10_000), new_group=number % OBJECTS == 0)
        await track.end()
        assert await asyncio.gather(*counts) == [objects] * 4


# -- laps sub --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with relay_process(tmp_path_factory.mktemp("relay") / "relay.log") as running:
        yield running


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_gaps_are_told_in_a_terminal(relay: RelayProcess, options: tuple[str, ...]) -> None:
    name = "strict" if options else "gaps"

    async def publish() -> None:
        async with laps.connect(f"moqt://{relay.clients}") as session:
            track = await session.publish("demo", name, first_group=1, forward=False)
            await track.wait_wanted()
            for group in (1, 2, 5):
                writer = track.group(group)
                await writer.write(b"group %d" % group)
                writer.end()

    command = [LAPS, "sub", f"moqt://{relay.clients}", "demo", name, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            uvloop.run(publish())
            output, errors = reader.communicate(timeout=60)
        finally:
            reader.kill()
    gap = b"from group 3, object 0 to group 5, object 0"
    if options:
        assert (reader.returncode, output) == (1, b"group 1\ngroup 2\n")
        assert errors == b"laps: demo strict has a gap: " + gap + b"\n"
    else:
        assert (reader.returncode, output) == (0, b"group 1\ngroup 2\ngroup 5\n")
        assert errors == b"laps: missing: " + gap + b"\n"
