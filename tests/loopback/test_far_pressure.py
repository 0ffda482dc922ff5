"""A publisher that is faster than the way to its subscriber: it waits, and nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import laps
from support.loopback import on_loop, until
from support.programs import relay_process

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import RelayProcess

# More than all connections on the way hold: 16 MiB at each, and a window of 15 MiB before them.
OBJECTS, SIZE, PER_GROUP = 5_000, 10_000, 20


def row_of_three(stack: ExitStack, tmp_path: Path) -> list[RelayProcess]:
    """An Edge, a Via, and an Edge whose link takes 80 Mbit/s."""
    first = stack.enter_context(relay_process(tmp_path / "1.log", "--node-id", "8:1"))
    via = ("--node-id", "8:2", "--type", "via", "--reflect", "--peer", first.peers)
    second = stack.enter_context(relay_process(tmp_path / "2.log", *via))
    config = tmp_path / "narrow.toml"
    config.write_text(
        f'[impairment.peers]\n"{second.peers}" = {{bandwidth_mbit = 80, delay_ms = 10}}\n'
    )
    last = ("--node-id", "8:3", "--peer", second.peers, "--config", str(config))
    return [first, second, stack.enter_context(relay_process(tmp_path / "3.log", *last))]


@pytest.mark.parametrize("protocol", ["moqt", pytest.param("quicr", marks=pytest.mark.nightly)])
@on_loop
async def test_nothing_is_lost_where_the_last_link_is_the_narrow_one(
    tmp_path: Path, protocol: str
) -> None:
    got: list[int] = []
    with ExitStack() as stack:
        first, _, last = row_of_three(stack, tmp_path)
        async with (
            laps.connect(f"{protocol}://{last.clients}") as reader,
            laps.connect(f"{protocol}://{first.clients}") as writer,
            asyncio.timeout(60),
        ):
            track = await writer.publish("demo/narrow", "track")
            objects = reader.subscribe("demo/narrow", "track", start="start")

            async def write() -> None:
                await track.write((0).to_bytes(4), new_group=True)
                await until(lambda: bool(got))
                for number in range(1, OBJECTS):
                    data = number.to_bytes(4) + bytes(SIZE)
                    await track.write(data, new_group=number % PER_GROUP == 0)
                await track.end()

            writing = asyncio.ensure_future(write())
            async for obj in objects:
                got.append(int.from_bytes(obj.payload[:4]))  # noqa: PERF401 - `write` looks on
            await writing
    assert got == list(range(OBJECTS))
    assert objects.gaps == []
