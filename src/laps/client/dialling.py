"""From a URL to a MoQT session: the transport, and the draft that both sides speak."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from laps.client.channel import Channel
from laps.client.sockets import Sockets
from laps.client.tokens import TokenSource
from laps.errors import ConfigError, HandshakeFailed, LapsError, SessionUnauthorized
from laps.net import webtransport
from laps.wire.moqt.dialect import BY_ALPN, DIALECTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.client.urls import Target
    from laps.config import QuicConfig
    from laps.net.connection import Connection
    from laps.net.quic import Endpoint
    from laps.net.tls import Trust
    from laps.net.transport import Transport
    from laps.net.webtransport import WebTransportSession
    from laps.wire.moqt.dialect import Dialect

# How long a relay may take to answer the setup: as long as for a handshake.
SETUP_S: Final = 10.0


class Dialler:
    """Dials relays that speak MoQT."""

    def __init__(
        self,
        drafts: Sequence[int],
        *,
        insecure: bool,
        fingerprint: str | None,
        quic: QuicConfig,
        token: TokenSource | None = None,
    ) -> None:
        """`token` is shown in the setup."""
        unknown = [draft for draft in drafts if draft not in DIALECTS]
        if unknown or not drafts:
            known = " and ".join(map(str, sorted(DIALECTS)))
            raise ConfigError(f"drafts {list(drafts)}: those spoken are {known}")
        self._dialects = [DIALECTS[draft] for draft in drafts]
        self._token = token or TokenSource()
        self._sockets = Sockets(insecure=insecure, fingerprint=fingerprint, quic=quic)

    async def dial(self, target: Target) -> Channel:
        """A session that is set up; SessionUnauthorized if the relay wants another token."""
        shown = await self._token.for_connection(target.url)
        tokens = () if shown is None else (shown.in_moqt(),)
        channel = await self._sockets.first(
            target, lambda endpoint, trust: self._connect(target, endpoint, trust)
        )
        path = target.path.encode() or None
        if target.webtransport:
            channel.session.start(tokens=tokens)
        else:
            channel.session.start(path, target.authority.encode(), tokens)
        try:
            async with asyncio.timeout(SETUP_S):
                await asyncio.shield(channel.ready)
        except TimeoutError:
            channel.close(reason="no answer to the setup")
            raise HandshakeFailed(
                f"{target.url} took the connection and does not answer CLIENT_SETUP within "
                f"{SETUP_S:g} s: does it speak MoQT draft {_either(self._dialects)}?"
            ) from None
        except SessionUnauthorized as error:
            refusal = SessionUnauthorized(
                f"a session with {target.url}", error.reason, error.expired
            )
            self._token.refused(target.url, refusal)
            raise refusal from None
        except LapsError as error:
            hint = ""
            if not (channel.transport.alpn or channel.dialect.version_in_setup):
                hint = f" (it has named no draft: does it speak {_either(self._dialects)}?)"
            raise HandshakeFailed(f"no session with {target.url}{hint}: {error}") from None
        except asyncio.CancelledError:
            channel.close(reason="another relay was sooner")
            raise
        return channel

    async def _connect(self, target: Target, endpoint: Endpoint, trust: Trust) -> Channel:
        made: list[Channel] = []
        if target.webtransport:
            protocols = [item.alpn for item in self._dialects if not item.version_in_setup]

            def accept_session(session: WebTransportSession) -> Channel:
                made.append(self._channel(session, webtransport=True))
                return made[0]

            path = target.path or "/"
            await webtransport.connect(
                endpoint, target.host, target.port, path, trust, accept_session, protocols
            )
            self._check_draft(target, made[0])
        else:
            alpns = [item.alpn for item in self._dialects]

            def accept(connection: Connection) -> Channel:
                made.append(self._channel(connection, webtransport=False))
                return made[0]

            await endpoint.connect(target.host, target.port, alpns, trust, accept)
        return made[0]

    def _channel(self, transport: Transport, *, webtransport: bool) -> Channel:
        return Channel(transport, self._dialect_of(transport), webtransport=webtransport)

    def _dialect_of(self, transport: Transport) -> Dialect | None:
        """The draft that the relay has named; or else draft 14, which names itself in the setup.

        Over WebTransport some relays name none whatever they speak. Who asks for one draft alone
        means that.
        """
        named = next((dialect for dialect in BY_ALPN if dialect.alpn == transport.alpn), None)
        if named is None and len(self._dialects) == 1 and not self._dialects[0].version_in_setup:
            return self._dialects[0]
        return named

    def _check_draft(self, target: Target, channel: Channel) -> None:
        """Over WebTransport a relay may name no draft, and speaks one that we did not ask for."""
        if channel.dialect not in self._dialects:
            channel.close(reason="no common draft")
            wanted = _either(self._dialects)
            raise HandshakeFailed(f"{target.url} does not speak MoQT draft {wanted}")

    async def close(self) -> None:
        """End all sessions, and free the ports."""
        await self._sockets.close()


def _either(dialects: Sequence[Dialect]) -> str:
    return " or ".join(str(dialect.draft) for dialect in dialects)
