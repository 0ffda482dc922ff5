"""From a URL to a QUICR session: there is no setup, so a connection is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.client.quicr.channel import QuicrChannel
from laps.client.sockets import Sockets
from laps.wire.quicr.codes import ALPN

if TYPE_CHECKING:
    from laps.client.urls import Target
    from laps.config import QuicConfig
    from laps.net.connection import Connection
    from laps.net.quic import Endpoint
    from laps.net.tls import Trust


class QuicrDialler:
    """Dials relays that speak QUICR."""

    def __init__(self, *, insecure: bool, fingerprint: str | None, quic: QuicConfig) -> None:
        self._sockets = Sockets(insecure=insecure, fingerprint=fingerprint, quic=quic)

    async def dial(self, target: Target) -> QuicrChannel:
        """A session that can be used."""

        async def connect(endpoint: Endpoint, trust: Trust) -> QuicrChannel:
            made: list[QuicrChannel] = []

            def accept(connection: Connection) -> QuicrChannel:
                made.append(QuicrChannel(connection))
                return made[0]

            await endpoint.connect(target.host, target.port, [ALPN], trust, accept)
            return made[0]

        return await self._sockets.first(target, connect)

    async def close(self) -> None:
        """End all sessions, and free the ports."""
        await self._sockets.close()
