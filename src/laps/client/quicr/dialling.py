"""From a URL to a QUICR session: there is no setup, so a connection is one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from laps.client.quicr.channel import QuicrChannel
from laps.client.quicr.showing import Showing, unauthorized
from laps.client.sockets import Sockets
from laps.client.tokens import TokenSource
from laps.errors import HandshakeFailed
from laps.wire.quicr.codes import ALPN

if TYPE_CHECKING:
    from laps.client.tokens import Shown
    from laps.client.urls import Target
    from laps.config import QuicConfig
    from laps.net.connection import Connection
    from laps.net.quic import Endpoint
    from laps.net.tls import Trust


# How long a relay may take to answer a token: as long as for a handshake.
ANSWER_S: Final = 10.0


class QuicrDialler:
    """Dials relays that speak QUICR."""

    def __init__(
        self,
        *,
        insecure: bool,
        fingerprint: str | None,
        quic: QuicConfig,
        token: TokenSource | None = None,
    ) -> None:
        """`token` is shown for the connection."""
        self._token = token or TokenSource()
        self._sockets = Sockets(insecure=insecure, fingerprint=fingerprint, quic=quic)

    async def dial(self, target: Target) -> QuicrChannel:
        """A session that can be used; SessionUnauthorized if the relay wants another token."""
        shown = await self._token.for_connection(target.url)

        async def connect(endpoint: Endpoint, trust: Trust) -> QuicrChannel:
            made: list[QuicrChannel] = []

            def accept(connection: Connection) -> QuicrChannel:
                made.append(QuicrChannel(connection))
                return made[0]

            await endpoint.connect(target.host, target.port, [ALPN], trust, accept)
            return made[0]

        channel = await self._sockets.first(target, connect)
        if shown is not None:
            await self._show(target, channel, shown)
        return channel

    async def _show(self, target: Target, channel: QuicrChannel, shown: Shown) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                refusal = await Showing(channel, shown).answer
        except TimeoutError:
            channel.close(reason="no answer to the token")
            raise HandshakeFailed(
                f"{target.url} took the connection and does not answer AUTHORIZATION within "
                f"{ANSWER_S:g} s: does it know tokens?"
            ) from None
        except BaseException:
            channel.close()
            raise
        if refusal is not None:
            channel.close()
            error = unauthorized(target.url, refusal, shown)
            self._token.refused(target.url, error)
            raise error

    async def close(self) -> None:
        """End all sessions, and free the ports."""
        await self._sockets.close()
