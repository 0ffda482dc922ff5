"""Clients are moved on real sockets, and every object comes once; who stays is served on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from laps.admin.rows.clients import client as client_row
from laps.admin.rows.relay import Wall
from laps.client.channel import Channel
from laps.config import Config, override
from laps.edge.moving import Standing
from laps.net.gauge import Gauge
from laps.net.runner import Runner
from support.counting import publish_numbers, read_numbers
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import Callable

# Regions say who is near: on loopback everybody is, by the round trip.
RELAY = {
    "peering.listen": "127.0.0.1:0",
    "clients.listen": "127.0.0.1:0",
    "clients.drain_s": 0.3,
    "relay.node_advertise_s": 0.05,
    "relay.drain_s": 0.05,
    "relay.unsubscribe_s": 0.1,
    "discovery.enabled": False,
    "admin.enabled": False,
    "moving.settled_s": 1.5,
    "moving.near_ms": 0,
}
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def _sooner_and_one_process_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """All relays and clients are in this one, and none of them is as full as it is."""
    monkeypatch.setattr("laps.edge.moving.BOTH_S", 0.5)
    read = Gauge.read
    monkeypatch.setattr(Gauge, "read", lambda *args: replace(read(*args), load=0.1))


class Coast:
    """A relay in the west, and two in the east."""

    def __init__(self) -> None:
        self.west = self._relay("9:1", "west")
        self.first = self._relay("1:1", "east", self.west)
        self.second = self._relay("1:2", "east", self.west, self.first)
        self.relays = (self.second, self.first, self.west)

    def _relay(self, node: str, region: str, *peers: Runner) -> Runner:
        own: dict[str, Any] = {"node.id": node, "node.region": region}
        own["peering.peers"] = [str(peer.peer_address) for peer in peers]
        return Runner(override(Config(), RELAY | own, "a test"))

    async def begin(self) -> None:
        await until(lambda: all(len(it.relay.peers) == 2 for it in self.relays))

    def moved(self) -> list[tuple[str, str]]:
        """Where clients of the second were sent, and why."""
        noted = self.second.relay.journal.recent()
        return [
            (it.event.subject, it.event.reason) for it in noted if it.event.name == "client_moved"
        ]


async def end(coast: Coast) -> None:
    for relay in coast.relays:
        await relay.close()


def url(protocol: str, relay: Runner) -> str:
    return f"{protocol}://{relay.client_address}"


async def happens(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(LIMIT_S):
        await until(holds)


@on_loop
async def test_moving_a_moqt_and_a_quicr_client_under_traffic_and_every_object_comes_once() -> None:
    coast = Coast()
    try:
        await coast.begin()
        stop = asyncio.Event()
        written: dict[str, list[bytes]] = {"moqt": [], "quicr": []}
        got: dict[str, list[tuple[float, bytes]]] = {"moqt": [], "quicr": [], "there": []}
        used: dict[str, list[str]] = {"moqt": [], "quicr": []}
        tasks = []
        for protocol, numbers in written.items():
            # A track for each, that one more reads at the first relay.
            publishing = publish_numbers(url("moqt", coast.west), protocol, numbers, stop)
            tasks.append(asyncio.ensure_future(publishing))
            there = read_numbers(url("moqt", coast.first), protocol, got["there"])
            tasks.append(asyncio.ensure_future(there))
            here = read_numbers(
                url(protocol, coast.second), protocol, got[protocol], used[protocol]
            )
            tasks.append(asyncio.ensure_future(here))
        await happens(lambda: all(at == [url(it, coast.first)] for it, at in used.items()))
        at = time.monotonic()
        await happens(lambda: not coast.second.edge.clients)
        await happens(lambda: all(got[it][-1][0] > at + 1.0 for it in used))
        stop.set()
        await asyncio.gather(*tasks)
        for protocol, numbers in written.items():
            assert [data for _, data in got[protocol]] == numbers
        why = "alone here on demo/counting {}; 1:1 has subscribers for it"
        assert sorted(coast.moved()) == [("1:1", why.format(it)) for it in ("moqt", "quicr")]
        counters = coast.second.edge.moving.counters
        assert (counters.asked_for_content, counters.followed, counters.stayed) == (2, 2, 0)
        assert coast.first.edge.moving.counters.asked_for_content == 0
    finally:
        await end(coast)


@on_loop
async def test_moving_leaves_a_client_that_ignores_goaway_and_a_drain_says_no_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laps.edge.moving.FOLLOW_S", 1.0)
    goaways: list[tuple[Channel, bytes]] = []
    take = Channel._take

    def ignore(self: Channel, message: Any) -> None:
        if type(message).__name__ == "Goaway":
            goaways.append((self, message.uri))
        else:
            take(self, message)

    monkeypatch.setattr(Channel, "_take", ignore)
    coast = Coast()
    try:
        await coast.begin()
        stop = asyncio.Event()
        written: list[bytes] = []
        got: list[tuple[float, bytes]] = []
        writer = asyncio.ensure_future(
            publish_numbers(url("moqt", coast.west), "track", written, stop)
        )
        readers = [
            asyncio.ensure_future(read_numbers(url("moqt", coast.first), "track", [])),
            asyncio.ensure_future(read_numbers(url("moqt", coast.second), "track", got)),
        ]
        edge = coast.second.edge
        await happens(lambda: edge.moving.counters.stayed)
        ((channel, uri),) = goaways
        assert uri == url("moqt", coast.first).encode()
        (client,) = edge.clients
        case = edge.moving.case(client)
        assert case is not None
        assert case.standing is Standing.STAYS
        (row,) = (client_row(it, Wall()) for it in coast.second.clients.connections)
        assert (row.sent_to, row.sent_why, row.stays) == ("1:1", case.why, True)
        count = len(got)
        await happens(lambda: len(got) > count + 50)
        assert [data for _, data in got] == written[: len(got)]
        off = override(coast.second.config, {"moving.per_minute": 0}, "a test")
        coast.second.reload(off)
        assert edge.moving.deadline() is None
        await coast.second.close()
        assert [it for it, _ in goaways].count(channel) == 1
        assert channel.over.done()
        stop.set()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(writer, *readers, return_exceptions=True)
    finally:
        await end(coast)
