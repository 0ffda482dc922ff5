"""Clients that load a relay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from laps.bench.relay_sessions import Load, Publisher
from support.transports import FakeConnection

if TYPE_CHECKING:
    from laps.net.connection import Connection


def test_publisher_with_a_rate_goes_on_when_quic_takes_more() -> None:
    async def run() -> None:
        publisher, connection = Publisher(Load(0, 0, 1.0, rate=1000.0)), full()
        publisher.connection = cast("Connection", connection)
        publisher.start()
        assert publisher.sent == 0
        connection.full = False
        publisher.writable()
        assert publisher.sent > 0
        publisher.stop()

    asyncio.run(run())


def full() -> FakeConnection:
    """A connection that takes nothing for now."""
    connection = FakeConnection(is_client=True)
    connection.full = True
    return connection
