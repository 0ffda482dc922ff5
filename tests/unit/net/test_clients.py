"""Connections of clients: what is chosen for a session, and what is counted of its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic

import pytest

from laps.config import ClientsConfig, EgressConfig
from laps.edge.addresses import TIME_BURST_S
from laps.edge.shares import ShareSettings
from laps.errors import ConnectionClosed
from laps.net.backlog import ByClass
from laps.net.clients import LEAST_WINDOW_BYTES, Clients
from laps.net.closes import Closes
from laps.net.http3 import decode_strings, decode_tokens
from laps.net.webtransport import Accepted, ConnectRequest
from laps.sessions.moqt import MoqtLimits
from laps.wire.moqt.codes import SessionCode
from laps.wire.moqt.tolerance import Tolerance
from support.moqt import MoqtNet
from support.transports import FakeConnection


def clients(*, strict: bool = False, time_share: float | None = None) -> Clients:
    net = MoqtNet()
    session, shares = MoqtLimits(strict=strict), ShareSettings(address_time_share=time_share)
    edge = net.edge(net.relay("1:1"), session=session, shares=shares)
    return Clients(edge, ClientsConfig(), EgressConfig(), 1.0, lambda: None, Closes(), ByClass())


def asks_for(offered: str) -> ConnectRequest:
    return ConnectRequest("/", "here", "", decode_strings(offered), decode_tokens(offered), ())


@pytest.mark.parametrize(
    ("offered", "strict", "chosen", "tolerated"),
    [
        ('"moqt-16"', False, "moqt-16", 0),
        ("moqt-16", False, "moqt-16", 1),
        ("other, moqt-16", False, "moqt-16", 1),
        ("moqt-16", True, "", 0),
        ("moqt-99", False, "", 0),
        ("", False, "", 0),
    ],
)
def test_a_protocol_named_without_quotes_is_understood(
    offered: str, strict: bool, chosen: str, tolerated: int
) -> None:
    them = clients(strict=strict)
    decision = them._choose(asks_for(offered))
    assert isinstance(decision, Accepted)
    assert decision.protocol == chosen
    assert them.edge.counters.tolerated[Tolerance.BARE_PROTOCOLS] == tolerated


@pytest.mark.parametrize(
    ("close", "violations"),
    [
        (ConnectionClosed(SessionCode.PROTOCOL_VIOLATION, "", by_peer=False, application=True), 1),
        (ConnectionClosed(SessionCode.PROTOCOL_VIOLATION, "", by_peer=True, application=True), 0),
        (ConnectionClosed(SessionCode.GOAWAY_TIMEOUT, "", by_peer=False, application=True), 0),
        # QUIC's own numbers mean something else: 1 is what an idle timeout comes with.
        (ConnectionClosed(1, "idle timeout", by_peer=False, application=False), 0),
        (ConnectionClosed(3, "", by_peer=False, application=False), 0),
    ],
)
def test_violations_are_of_the_application_and_of_clients(
    close: ConnectionClosed, violations: int
) -> None:
    async def run() -> None:
        them = clients()
        transport = FakeConnection(is_client=False)
        connection = them._moqt(transport, None, webtransport=False)
        connection.closed(close)
        assert them.edge.counters.violations == violations
        assert them.edge.counters.tolerated == Counter()

    asyncio.run(run())


def test_time_of_an_address_is_spent_by_work_for_its_clients() -> None:
    async def run() -> None:
        them = clients(time_share=0.1)
        transport = FakeConnection(is_client=False)
        them.edge.addresses.arrived(transport.remote[0], 0.0)
        connection = them._moqt(transport, None, webtransport=False)

        def work(_: float) -> bool:
            end = monotonic() + TIME_BURST_S
            while monotonic() < end:
                pass
            return True

        assert connection.in_its_time(work, 1.0)
        assert connection.in_its_time(work, 1.0) is None
        assert connection.in_its_time(work, 10.0)

    asyncio.run(run())


def test_time_is_not_spent_where_an_address_has_no_limit() -> None:
    async def run() -> None:
        them = clients()
        transport = FakeConnection(is_client=False)
        them.edge.addresses.arrived(transport.remote[0], 0.0)
        connection = them._moqt(transport, None, webtransport=False)
        assert all(connection.in_its_time(lambda _: True, 1.0) for _ in range(10))

    asyncio.run(run())


@pytest.mark.parametrize("narrow", [False, True])
def test_windows_that_are_tiny_make_nobody_wait(narrow: bool) -> None:
    async def run() -> None:
        transport = FakeConnection(is_client=False)
        transport.peer_window_bytes = LEAST_WINDOW_BYTES - narrow
        transport.buffered_bytes = EgressConfig().quic_queue_bytes
        connection = clients()._moqt(transport, None, webtransport=False)
        stream = connection.open_stream((0, 0, 1, 0, 0, 0), 0)
        for _ in range(EgressConfig().queue_bytes // 2 // 65_536 + 1):
            stream.write(bytes(65_536))
        assert connection.pressed_for(1)
        assert not connection.pressed_for(0)
        assert connection.crowded_for(1) is not narrow

    asyncio.run(run())
