"""A link of real sockets that is narrow: what it carries is learned where data waits for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from laps.config import EgressConfig, Impairment, NodeConfig
from laps.infobase.nodes import SessionId
from laps.net.backlog import ByClass
from laps.net.gauge import Gauge
from laps.net.link import LinkEvents, QuicLink
from laps.types import Address, FullLink, NodeId
from support.loopback import TRUST, dialling, listening, on_loop

if TYPE_CHECKING:
    from laps.net.connection import Connection

MBIT = 8
CARRIED = MBIT * 125_000
READ_S = 0.5
PEER = NodeId(2)


def nothing(*_: object) -> None:
    """Nobody is told."""


def link_on(connection: Connection) -> QuicLink:
    events = LinkEvents(*[nothing] * 7)
    return QuicLink(connection, SessionId(1), EgressConfig(), events, ByClass(), dialled=True)


async def send(link: QuicLink, bytes_per_s: float, seconds: float) -> None:
    """Write groups that are dropped when they have waited for a while, as relays do."""
    each_s = 0.02
    for _ in range(round(seconds / each_s)):
        link.open_stream(128, 500_000, 1).finish(bytes(round(bytes_per_s * each_s)))
        await asyncio.sleep(each_s)


@on_loop
async def test_a_narrow_link_is_known_to_be_full_while_data_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laps.relay.link_capacity.MEAN_S", 3 * READ_S)
    peers = {PEER: SimpleNamespace(is_stub=False)}
    links = SimpleNamespace(node_of=lambda _: PEER, sends_data=lambda _: True)
    relay: Any = SimpleNamespace(id=NodeId(1), links=links, peers=peers)
    async with listening() as listener, dialling() as endpoint:
        address = Address("127.0.0.1", listener.port)
        endpoint.impair((Impairment(peer=address, bandwidth_mbit=MBIT, delay_ms=5),))
        made: list[QuicLink] = []

        def accept(connection: Connection) -> QuicLink:
            made.append(link_on(connection))
            return made[0]

        await endpoint.connect(address.host, address.port, ("laps",), TRUST, accept)
        (link,) = made
        gauge = Gauge(NodeConfig(), None)

        async def told(bytes_per_s: float, seconds: float) -> list[FullLink]:
            sending = asyncio.ensure_future(send(link, bytes_per_s, seconds))
            seen: list[FullLink] = []
            while not sending.done():
                await asyncio.sleep(READ_S)
                seen += gauge.read(relay, [link]).full_links
            return seen

        assert await told(0.5 * CARRIED, 0.5) == []
        assert FullLink(PEER, 1.0) in await told(2.0 * CARRIED, 4.0)
        most = gauge._capacities[PEER].most(0.0)
        assert most == pytest.approx(CARRIED, rel=0.2)
