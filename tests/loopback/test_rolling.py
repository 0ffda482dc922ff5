"""All relays of a network are restarted, one after the other, while clients publish and subscribe.

Each relay sends its clients to another one before it stops. Clients go there first and leave then,
so that every subscriber gets every object once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.config import Config, override
from laps.net import runner as runner_module
from laps.net.runner import Runner
from laps.relay.settings import ExtensionSettings
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from laps.types import Address

RELAYS = 3
OBJECT_S = 0.01


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays find each other again, and say how they are, without being waited for."""
    monkeypatch.setattr(runner_module, "MEASURE_S", 0.05)
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.05)

    def settings(grace_s: float) -> ExtensionSettings:
        return ExtensionSettings(metrics_s=0.05, grace_s=grace_s)

    monkeypatch.setattr(runner_module, "ExtensionSettings", settings)


class Mesh:
    """Relays that all peer with each other, on ports that they keep."""

    def __init__(self) -> None:
        self.relays: list[Runner] = []
        self.ports: list[tuple[Address, Address]] = []

    def start(self, number: int) -> Runner:
        """Start one, or start it again where it was."""
        peers = [str(peer) for peer, _ in self.ports[:number]]
        listen = [str(a) for a in self.ports[number]] if number < len(self.ports) else []
        peering, clients = listen or ("127.0.0.1:0", "127.0.0.1:0")
        values: dict[str, Any] = {
            "node.id": f"6:{number + 1}",
            "peering.listen": peering,
            "clients.listen": clients,
            "peering.peers": peers,
            "relay.node_advertise_s": 0.05,
            "relay.drain_s": 0.1,
            "clients.drain_s": 3.0,
            "discovery.enabled": False,
        }
        runner = Runner(override(Config(), values, "test"))
        assert runner.peer_address is not None
        assert runner.client_address is not None
        if not listen:
            self.ports.append((runner.peer_address, runner.client_address))
            self.relays.append(runner)
        self.relays[number] = runner
        return runner

    async def restart(self, number: int) -> None:
        await self.relays[number].close()
        self.start(number)
        await self.settled()

    async def settled(self) -> None:
        """Every relay has a link to every other, and knows where its clients connect."""
        ids = {relay.relay.id for relay in self.relays}
        for relay in self.relays:
            others = ids - {relay.relay.id}
            await until(lambda relay=relay, others=others: others == set(relay.relay.peers))  # type: ignore[misc]
            metrics = relay.relay.extensions.metrics
            await until(
                lambda metrics=metrics, others=others: all(  # type: ignore[misc]
                    (said := metrics.get(node)) is not None and said.client_address
                    for node in others
                )
            )

    async def close(self) -> None:
        for relay in self.relays:
            await relay.close()


class Reader:
    """A subscriber that writes down what it gets."""

    def __init__(self, subscription: Any) -> None:
        self.got: list[bytes] = []
        self._subscription = subscription
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for item in self._subscription:
            self.got.append(item.payload)


@pytest.mark.parametrize("publisher", ["moqt", "https", "quicr"])
@on_loop
async def test_nothing_is_lost_while_every_relay_is_restarted(publisher: str) -> None:
    mesh = Mesh()
    async with AsyncExitStack() as stack:
        for number in range(RELAYS):
            mesh.start(number)
        stack.push_async_callback(mesh.close)
        await mesh.settled()

        async def session(scheme: str, number: int) -> Any:
            url = f"{scheme}://{mesh.ports[number][1]}"
            return await stack.enter_async_context(laps.connect(url))

        readers: list[Reader] = []
        for number in range(RELAYS):
            for scheme in ("moqt", "https", "quicr"):
                reader = await session(scheme, number)
                readers.append(Reader(reader.subscribe("demo/rolling", "t", start="start")))
        track = await (await session(publisher, 0)).publish("demo/rolling", "t")
        sent: list[bytes] = []
        stop = asyncio.Event()

        async def publish() -> None:
            while not stop.is_set():
                sent.append(b"%d" % len(sent))
                await track.write(sent[-1], new_group=len(sent) % 20 == 1)
                await asyncio.sleep(OBJECT_S)
            await track.end()

        publishing = asyncio.ensure_future(publish())
        await until(lambda: all(len(reader.got) > 10 for reader in readers))
        for number in (*range(RELAYS), 0):
            await mesh.restart(number)
        count = len(sent)
        await until(lambda: all(len(reader.got) > count for reader in readers))
        stop.set()
        await publishing
        async with asyncio.timeout(20):
            await asyncio.gather(*(reader.task for reader in readers))
        for reader in readers:
            assert reader.got == sent
