"""The relay of a client dies or stands still: the client goes to another, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.config import Config, override
from laps.lab.processes import free_ports
from laps.net.discovery import Found
from laps.net.quic import Endpoint
from laps.net.runner import Runner
from laps.types import Address
from support.counting import publish_numbers, read_numbers
from support.loopback import on_loop, until
from support.programs import RelayProcess, relay_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from laps.client.urls import Place

# Some of each in `make test`, all of them each night.
nightly = pytest.mark.nightly

# Longer than it takes on any machine that these tests run on; what it takes is measured elsewhere.
LIMIT_S = 8.0

# A relay in the process of the test.
HERE = {
    "peering.listen": "127.0.0.1:0",
    "clients.listen": "127.0.0.1:0",
    "relay.node_advertise_s": 0.05,
    "discovery.enabled": False,
    "admin.enabled": False,
}


class Relays:
    """One that stays, and two that clients may go to; each a process of its own."""

    def __init__(self, stays: RelayProcess, first: RelayProcess, second: RelayProcess) -> None:
        self.stays, self.first, self.second = stays, first, second


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[Relays]:
    with ExitStack() as stack:

        def relay(name: str, *args: str) -> RelayProcess:
            log = tmp_path / f"{name}.log"
            return stack.enter_context(relay_process(log, "--node-id", name, *args))

        stays = relay("8:1")
        first = relay("8:2", "--peer", stays.peers)
        second = relay("8:3", "--peer", stays.peers)
        stack.callback(first.process.send_signal, signal.SIGCONT)
        stack.callback(first.process.poll)  # or else nobody knows that it was killed
        yield Relays(stays, first, second)


def urls(protocol: str, relays: Sequence[RelayProcess]) -> list[str]:
    return [f"{protocol}://{relay.clients}" for relay in relays]


def found(relays: Sequence[RelayProcess]) -> list[Place]:
    """The relays as mDNS would find them, each with the certificate that it made itself."""
    at = [Address.parse(relay.clients) for relay in relays]
    return [
        Found("", "edge", place.host, place.port, (), "", relay.sha256)
        for place, relay in zip(at, relays, strict=True)
    ]


@pytest.mark.parametrize(
    ("who", "how", "protocol"),
    [
        ("subscriber", signal.SIGKILL, "moqt"),
        pytest.param("subscriber", signal.SIGSTOP, "https", marks=nightly),
        pytest.param("subscriber", signal.SIGSTOP, "quicr", marks=nightly),
        ("publisher", signal.SIGKILL, "https"),
        pytest.param("publisher", signal.SIGSTOP, "moqt", marks=nightly),
        ("publisher", signal.SIGKILL, "quicr"),
    ],
)
@on_loop
async def test_every_object_comes_once_when_the_relay_of_a_client_dies(
    relays: Relays, who: str, how: signal.Signals, protocol: str
) -> None:
    written: list[bytes] = []
    got: list[tuple[float, bytes]] = []
    used: list[str] = []
    stop = asyncio.Event()
    one = urls(protocol, [relays.stays])
    several = urls(protocol, [relays.first, relays.second])
    reader = asyncio.ensure_future(
        read_numbers(several if who == "subscriber" else one, "track", got, used)
    )
    writer = asyncio.ensure_future(
        publish_numbers(several if who == "publisher" else one, "track", written, stop)
    )
    await until(lambda: len(got) >= 215)  # a group is open: some of it was read, and some was not
    relays.first.process.send_signal(how)
    died = time.monotonic()
    async with asyncio.timeout(LIMIT_S):
        await until(lambda: got[-1][0] > died + 0.5)
    stop.set()
    await writer
    await reader
    assert [data for _, data in got] == written
    if who == "subscriber":
        assert used == several[1:]


@on_loop
async def test_a_session_with_relays_that_were_found_goes_from_one_to_the_next(
    relays: Relays,
) -> None:
    written: list[bytes] = []
    got: list[tuple[float, bytes]] = []
    used: list[str] = []
    stop = asyncio.Event()
    several = found([relays.first, relays.second])
    reader = asyncio.ensure_future(read_numbers(several, "track", got, used))
    writer = asyncio.ensure_future(
        publish_numbers(urls("moqt", [relays.stays]), "track", written, stop)
    )
    await until(lambda: len(got) >= 50)
    relays.first.process.send_signal(signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        await until(lambda: used == [several[1].url])
    stop.set()
    await writer
    await reader
    assert [data for _, data in got] == written


@pytest.mark.parametrize("protocol", ["moqt", pytest.param("quicr", marks=nightly)])
@on_loop
async def test_every_object_comes_once_when_the_only_relay_of_a_subscriber_comes_back(
    tmp_path: Path, protocol: str
) -> None:
    written: list[bytes] = []
    got: list[tuple[float, bytes]] = []
    stop = asyncio.Event()
    with ExitStack() as stack:
        stays = stack.enter_context(relay_process(tmp_path / "stays.log"))
        where = ("--listen", f"127.0.0.1:{free_ports(1)[0]}", "--peer", stays.peers)
        first = stack.enter_context(relay_process(tmp_path / "first.log", *where))
        reader = asyncio.ensure_future(read_numbers(urls(protocol, [first]), "track", got))
        writer = asyncio.ensure_future(
            publish_numbers(urls(protocol, [stays]), "track", written, stop)
        )
        await until(lambda: len(got) >= 215)
        first.kill()
        died = time.monotonic()
        stack.enter_context(relay_process(tmp_path / "again.log", *where))
        async with asyncio.timeout(LIMIT_S):
            await until(lambda: got[-1][0] > died + 0.5)
        stop.set()
        await writer
        await reader
    assert [data for _, data in got] == written


@pytest.mark.parametrize("protocol", ["moqt", "https", "quicr"])
@on_loop
async def test_nothing_is_lost_with_a_relay_that_leaves_and_stops_before_it_has_read_all(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """It has said where to go, and is gone while objects are on their way to it."""
    stays = Runner(override(Config(), {**HERE, "node.id": "8:1"}, "test"))
    peer = {"node.id": "8:2", "peering.peers": [str(stays.peer_address)]}
    leaves = Runner(override(Config(), {**HERE, **peer}, "test"))
    read_socket = Endpoint._receive
    is_deaf = False

    def receive(self: Endpoint, *args: Any) -> None:
        if not (is_deaf and self is leaves.endpoints()[0]):
            read_socket(self, *args)

    monkeypatch.setattr(Endpoint, "_receive", receive)
    try:
        await until(lambda: bool(stays.relay.peers and leaves.relay.peers))
        session = laps.connect(f"{protocol}://{leaves.client_address}")
        reading = laps.connect(f"{protocol}://{stays.client_address}")
        async with session as writer, reading as reader:
            track = await writer.publish("demo/moving", "t")
            got: list[bytes] = []
            written: list[bytes] = []

            async def write(*, new_group: bool = False) -> None:
                written.append(b"%d" % len(written))
                await track.write(written[-1], new_group=new_group)

            async def read() -> None:
                async for item in reader.subscribe("demo/moving", "t", start="start"):
                    got.append(item.payload)  # noqa: PERF401 - as they come

            task = asyncio.ensure_future(read())
            for number in range(5):
                await write(new_group=number == 3)
                await until(lambda: got == written)
            is_deaf = True
            await write()
            await write(new_group=True)
            await write()
            leaves.edge.drain(time.monotonic(), stays.client_address)
            await until(lambda: len(stays.edge.clients) == 2)
            await write()
            for client in list(leaves.edge.clients):
                client.link.abort(0, "gone")
            await until(lambda: not leaves.edge.clients)
            await write()
            await write(new_group=True)
            await until(lambda: len(got) == len(written))
            await track.end()
            await task
            assert got == written
    finally:
        await leaves.close()
        await stays.close()


@pytest.mark.parametrize("protocol", [pytest.param("moqt", marks=nightly), "quicr"])
@on_loop
async def test_objects_come_in_order_when_their_publisher_moves_to_the_relay_of_the_reader(
    protocol: str,
) -> None:
    """What it sent to the other is still on its way when the next object is here."""
    near = Runner(override(Config(), {**HERE, "node.id": "8:1"}, "test"))
    dials = {"node.id": "8:2", "peering.peers": [str(near.peer_address)]}
    way = {"impairment.peers": {str(near.peer_address): {"delay_ms": 200}}}
    far = Runner(override(Config(), {**HERE, **dials, **way}, "test"))
    try:
        await until(lambda: bool(near.relay.peers and far.relay.peers))
        written: list[bytes] = []
        got: list[tuple[float, bytes]] = []
        stop = asyncio.Event()
        where = f"{protocol}://{far.client_address}"
        writer = asyncio.ensure_future(publish_numbers(where, "track", written, stop))
        reader = asyncio.ensure_future(read_numbers(f"moqt://{near.client_address}", "track", got))
        await until(lambda: len(got) > 50)
        far.edge.drain(time.monotonic(), near.client_address)
        await until(lambda: len(near.edge.clients) == 2)
        moved = len(written)
        await until(lambda: len(got) > moved + 50)
        stop.set()
        await writer
        await reader
        assert [data for _, data in got] == written
    finally:
        await far.close()
        await near.close()
