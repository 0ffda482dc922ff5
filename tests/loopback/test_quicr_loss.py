"""QUICR and MoQT clients at three real relays, over paths that lose and reorder packets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.config import Config, override
from laps.net.runner import Runner
from support.loopback import on_loop, until
from support.lossy import LossyPath

if TYPE_CHECKING:
    from laps.types import Address

SIZES = (0, 1, 1000, 1081, 5000, 70_000)
OBJECTS = 60
LOSS, LATE = 0.02, 0.1


def payload(number: int) -> bytes:
    return Random(number).randbytes(SIZES[number % len(SIZES)])


class Row:
    """Three relays in a row, and clients at both ends, all over bad paths."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.paths: list[LossyPath] = []
        self.relays: list[Runner] = []

    def path(self, target: Address | None) -> str:
        assert target is not None
        path = LossyPath(target, len(self.paths), loss=LOSS, late=LATE)
        self.paths.append(path)
        self._stack.callback(path.close)
        return str(path)

    async def start(self) -> None:
        for number in range(3):
            peers = [self.path(self.relays[-1].peer_address)] if self.relays else []
            values: dict[str, Any] = {
                "node.id": f"4:{number + 1}",
                "peering.listen": "127.0.0.1:0",
                "clients.listen": "127.0.0.1:0",
                "peering.peers": peers,
                "relay.node_advertise_s": 0.05,
                "relay.drain_s": 0.01,
                "clients.drain_s": 0.1,
                "discovery.enabled": False,
            }
            self.relays.append(Runner(override(Config(), values, "test")))
            self._stack.push_async_callback(self.relays[-1].close)
        for relay in self.relays:
            nodes = relay.relay.nodes
            others = {other.relay.id for other in self.relays} - {relay.relay.id}
            await until(lambda nodes=nodes, others=others: others <= set(nodes))  # type: ignore[misc]

    async def session(self, scheme: str, number: int) -> Any:
        url = f"{scheme}://{self.path(self.relays[number].client_address)}"
        return await self._stack.enter_async_context(laps.connect(url))


async def read(subscription: Any) -> list[tuple[tuple[int, int], bytes]]:
    return [((item.group, item.id), item.payload) async for item in subscription]


@pytest.mark.parametrize("publisher", ["moqt", "quicr"])
@on_loop
async def test_streams_lose_nothing_over_paths_that_do(publisher: str) -> None:
    async with AsyncExitStack() as stack:
        row = Row(stack)
        await row.start()
        readers = [
            asyncio.ensure_future(read(subscriber.subscribe("demo/loss", "t", start="start")))
            for number in (0, 2)
            for subscriber in [await row.session(s, number) for s in ("moqt", "quicr")]
        ]
        track = await (await row.session(publisher, 0)).publish("demo/loss", "t", first_group=7)
        for number in range(OBJECTS):
            await track.write(payload(number), new_group=number % 10 == 0)
            await asyncio.sleep(0.002)
        await track.end()
        expected = [((7 + n // 10, n % 10), payload(n)) for n in range(OBJECTS)]
        for reader in readers:
            assert await reader == expected
        assert sum(path.lost for path in row.paths) > 10
        assert sum(path.reordered for path in row.paths) > 10


@on_loop
async def test_datagrams_that_come_make_whole_objects_once() -> None:
    async with AsyncExitStack() as stack:
        row = Row(stack)
        await row.start()
        readers = []
        for scheme, options in (
            ("moqt", {}),
            ("quicr", {}),
            ("quicr", {"datagrams": True}),
        ):
            subscriber = await row.session(scheme, 2)
            subscription = subscriber.subscribe("demo/loss", "d", start="start", **options)
            readers.append(asyncio.ensure_future(read(subscription)))
        track = await (await row.session("quicr", 0)).publish(
            "demo/loss", "d", first_group=7, datagrams=True
        )
        for number in range(OBJECTS):
            await track.datagram(payload(number), new_group=number % 10 == 0)
            await asyncio.sleep(0.005)
        await track.end()
        expected = {(7 + n // 10, n % 10): payload(n) for n in range(OBJECTS)}
        for reader in readers:
            found = await reader
            places = [place for place, _ in found]
            assert len(set(places)) == len(places)
            assert all(expected[place] == data for place, data in found)
            # Objects of one fragment are lost with each of four packets, one in fifty.
            assert len([place for place in places if len(expected[place]) <= 1000]) > OBJECTS // 4
        assert sum(path.lost for path in row.paths) > 10
