"""Real relays tell each other where clients connect; one that stops knows where to send its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.net import runner as runner_module
from laps.net.gauge import Gauge
from laps.relay import failover
from laps.relay.settings import ExtensionSettings
from support.loopback import on_loop, until
from support.runners import start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from laps.net.link import QuicLink
    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.types import Address, NodeId, NodeMetrics


class SetGauge(Gauge):
    """Relays in one process share its load: here each has the one that a test gives it."""

    loads: dict[NodeId, float]

    def read(self, relay: Relay, links: Iterable[QuicLink]) -> NodeMetrics:
        return replace(super().read(relay, links), load=self.loads.get(relay.id, 0.0))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays measure, and say what they measured, before anybody has waited for it."""
    monkeypatch.setattr(SetGauge, "loads", {}, raising=False)
    monkeypatch.setattr(runner_module, "Gauge", SetGauge)
    monkeypatch.setattr(runner_module, "MEASURE_S", 0.02)
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)

    def settings(grace_s: float) -> ExtensionSettings:
        return ExtensionSettings(metrics_s=0.02, grace_s=grace_s)

    monkeypatch.setattr(runner_module, "ExtensionSettings", settings)


class Lab:
    """Relays and clients that are gone at the end, whatever happens."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._relays = 0

    def relay(self, *peers: Runner, **settings: Any) -> Runner:
        self._relays += 1
        settings = {"clients__drain_s": 0.2, **settings}
        return start(self._stack, f"7:{self._relays}", *peers, **settings)

    async def row(self, **settings: Any) -> tuple[Runner, Runner, Runner]:
        """Three relays, far beyond near, that know of each other; the settings are the first's."""
        far = self.relay()
        near = self.relay(far)
        going = self.relay(near, **settings)
        relays = (going, near, far)
        for relay in relays:
            for of in relays:
                await until(lambda relay=relay, of=of: bool(address_at(relay, of)))  # type: ignore[misc]
        return relays

    async def client(self, relay: Runner) -> None:
        """Somebody whom a relay has to send somewhere."""
        url = f"moqt://{relay.client_address}"
        await self._stack.enter_async_context(laps.connect(url, reconnect=False))
        await until(lambda: bool(relay.edge.clients))


@asynccontextmanager
async def lab() -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab(stack)


def address_at(relay: Runner, of: Runner) -> str | None:
    """Where clients of a relay connect, as another has heard."""
    held = relay.relay.extensions.metrics.get(of.relay.id)
    return None if held is None else held.client_address


def target(relay: Runner) -> Address | None:
    found = failover.target(relay.relay, relay.config.node.region, local=True)
    return None if found is None else found.address


def listen_in(relay: Runner, monkeypatch: pytest.MonkeyPatch) -> list[Address | None]:
    """Where the clients of a relay are sent once it stops; they themselves hear nothing of it."""
    places: list[Address | None] = []

    def drain(now: float, to: Address | None) -> float:
        places.append(to)
        return now

    monkeypatch.setattr(relay.edge, "drain", drain)
    return places


@on_loop
async def test_every_relay_learns_where_the_clients_of_the_others_connect() -> None:
    async with lab() as net:
        relays = await net.row(clients__advertise="front.example:443")
        going, near, far = relays
        for relay in (near, far):
            assert address_at(relay, going) == "front.example:443"
        for relay in (going, far):
            assert near.client_address is not None
            assert near.client_address.port != 0
            assert address_at(relay, near) == str(near.client_address)
        # Not a peer: it is heard of by the one in between.
        assert far.relay.id not in going.relay.peers
        assert address_at(going, far) == str(far.client_address)


@on_loop
async def test_the_near_one_with_room_is_chosen() -> None:
    async with lab() as net:
        going, near, far = await net.row()
        assert target(going) == near.client_address
        SetGauge.loads[near.relay.id] = 0.9
        await until(lambda: target(going) == far.client_address)
        SetGauge.loads[far.relay.id] = 1.0
        await until(lambda: target(going) == near.client_address)


@on_loop
async def test_a_relay_that_stops_sends_its_clients_there_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with lab() as net:
        going, near, _ = await net.row()
        await net.client(going)
        places = listen_in(going, monkeypatch)
        await going.close()
        assert places == [near.client_address]
        assert f"clients are sent to {near.client_address}, node 7:2: lowest sRTT" in caplog.text


@on_loop
async def test_what_the_operator_names_is_taken_whatever_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with lab() as net:
        going, _, _ = await net.row(clients__redirect="other.example:443")
        await net.client(going)
        places = listen_in(going, monkeypatch)
        await going.close()
        assert [str(place) for place in places] == ["other.example:443"]
        assert "clients are sent to other.example:443: clients.redirect names it" in caplog.text


@on_loop
async def test_a_relay_that_knows_of_nobody_sends_its_clients_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with lab() as net:
        alone = net.relay()
        await net.client(alone)
        places = listen_in(alone, monkeypatch)
        await alone.close()
        assert places == [None]
        assert "clients are sent nowhere: no other node is known that takes them" in caplog.text


@on_loop
async def test_of_relays_that_stop_at_once_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lab() as net:
        going, near, far = await net.row()
        await net.client(near)
        listen_in(near, monkeypatch)
        assert target(going) == near.client_address
        closing = asyncio.ensure_future(near.close())
        # It still has its clients, and has said no GOAWAY to its peers.
        await until(lambda: target(going) == far.client_address)
        await until(lambda: target(far) == going.client_address)
        assert near.edge.clients
        assert going.relay.extensions.counters.goaways_received == 0
        await closing
        await until(lambda: address_at(going, near) is None)
        assert target(going) is None
