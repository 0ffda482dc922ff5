"""Paths made worse between real sockets: delay and drop per peer, changed at run time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from laps.config import Config, Impairment, override
from laps.net.impairment import ImpairedSocket
from laps.net.runner import Runner
from laps.types import Address
from support.loopback import dial, dialling, listening, on_loop, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.net.connection import Connection
    from laps.net.quic import Endpoint
    from support.loopback import Listener


def to(listener: Listener, **values: float) -> tuple[Impairment, ...]:
    return (Impairment(peer=Address("127.0.0.1", listener.port), **values),)


async def upload(connection: Connection, listener: Listener, data: bytes) -> None:
    """Send it on a stream, and wait until the far side has all of it."""
    stream = connection.open_stream(unidirectional=True)
    connection.write(stream, data, fin=True)
    await until(lambda: any(stream in saw.finished for saw in listener.seen))
    assert bytes(listener.seen[0].data[stream]) == data


async def round_trip(connection: Connection, holds: Callable[[int], bool]) -> None:
    """Ask the far side again and again, until an answer takes what is wanted."""
    while not holds(connection.stats().latest_rtt_us):
        connection.ping()
        await asyncio.sleep(0.02)


def lanes(endpoint: Endpoint) -> ImpairedSocket:
    sock = endpoint._udp
    assert isinstance(sock, ImpairedSocket)
    return sock


@on_loop
async def test_both_ends_see_twice_the_delay_and_batches_arrive_whole() -> None:
    async with listening() as listener, dialling() as endpoint:
        endpoint.impair(to(listener, delay_ms=40))
        connection, _ = await dial(endpoint, listener.port)
        await upload(connection, listener, bytes(range(256)) * 8_000)
        for end in (connection, listener.connections[0]):
            # The queue of a whole upload may come on top, never less than the path itself.
            assert 78_000 <= end.stats().srtt_us < 160_000
        assert connection.stats().lost_packets == 0
        assert sum(lane.overflowed for lane in lanes(endpoint).outbound.values()) == 0


@on_loop
async def test_a_share_of_datagrams_is_lost_both_ways_and_nothing_of_a_stream() -> None:
    async with listening() as listener, dialling() as endpoint:
        endpoint.impair(to(listener, delay_ms=2, drop=0.1))
        connection, _ = await dial(endpoint, listener.port)
        await upload(connection, listener, bytes(range(256)) * 8_000)
        for way in (lanes(endpoint).outbound, lanes(endpoint).inbound):
            (lane,) = way.values()
            assert lane.dropped > 0
        (lane,) = lanes(endpoint).outbound.values()
        assert 0.06 < lane.dropped / (lane.dropped + lane.passed) < 0.14


@on_loop
async def test_only_the_peer_that_is_named_is_impaired() -> None:
    async with listening() as far, listening() as near, dialling() as endpoint:
        endpoint.impair(to(far, delay_ms=60))
        slow, _ = await dial(endpoint, far.port)
        quick, _ = await dial(endpoint, near.port)
        assert slow.stats().srtt_us >= 118_000
        assert quick.stats().srtt_us < 60_000


@on_loop
async def test_an_impairment_comes_and_goes_while_connections_last() -> None:
    async with listening() as listener, dialling() as endpoint:
        connection, _ = await dial(endpoint, listener.port)
        assert not isinstance(endpoint._udp, ImpairedSocket)
        endpoint.impair(to(listener, delay_ms=50))
        await round_trip(connection, lambda rtt_us: rtt_us >= 99_000)
        impaired = lanes(endpoint)
        endpoint.impair(())
        await round_trip(connection, lambda rtt_us: rtt_us < 50_000)
        await until(lambda: not (impaired.outbound or impaired.inbound))
        endpoint.impair(())
        assert not isinstance(endpoint._udp, ImpairedSocket)
        await upload(connection, listener, b"as ever")


@on_loop
async def test_a_relay_takes_a_changed_impairment_when_it_reads_its_configuration_again() -> None:
    any_port = {"peering.listen": "127.0.0.1:0", "clients.listen": "127.0.0.1:0"}
    quiet = {"discovery.enabled": False, "relay.drain_s": 0.05, **any_port}
    near = Runner(override(Config(), {"node.id": "1:1", **quiet}, "test"))
    here = override(Config(), {"node.id": "1:2", **quiet}, "test")
    here = override(here, {"peering.peers": [str(near.peer_address)]}, "test")
    far = Runner(here)
    try:
        await until(lambda: any(link.connection.established for link in far._links.values()))
        (link,) = far._links.values()
        impaired = {str(near.peer_address): {"delay_ms": 30}}
        far.reload(override(here, {"impairment.peers": impaired}, "test"))
        await round_trip(link.connection, lambda rtt_us: rtt_us >= 59_000)
        far.reload(here)
        await round_trip(link.connection, lambda rtt_us: rtt_us < 30_000)
    finally:
        await far.close()
        await near.close()
