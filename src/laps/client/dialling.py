"""From a URL to a session: addresses, certificates, and the draft that both sides speak."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from laps.client.channel import Channel
from laps.client.urls import trust_for
from laps.errors import ConfigError, HandshakeFailed, LapsError
from laps.net import webtransport
from laps.net.quic import Endpoint
from laps.wire.moqt.dialect import DRAFT16

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.client.urls import Target
    from laps.config import QuicConfig
    from laps.net.connection import Connection
    from laps.net.transport import Transport
    from laps.net.webtransport import WebTransportSession

# The ALPN of each draft; draft 14 names its version again in the setup.
ALPNS: Final = {14: "moq-00", 16: "moqt-16"}

# How long a relay may take to answer the setup: as long as for a handshake.
SETUP_S: Final = 10.0

# The second address of a host is tried when the first has not answered within this time.
HEAD_START_S: Final = 0.25

_ANYWHERE: Final = {
    int(socket.AF_INET): "0.0.0.0",  # noqa: S104 - to dial from
    int(socket.AF_INET6): "::",
}


class Dialler:
    """Dials relays; it has a socket for each kind of address."""

    def __init__(
        self, drafts: Sequence[int], *, insecure: bool, fingerprint: str | None, quic: QuicConfig
    ) -> None:
        unknown = [draft for draft in drafts if draft not in ALPNS]
        if unknown or not drafts:
            known = " and ".join(map(str, sorted(ALPNS)))
            raise ConfigError(f"drafts {list(drafts)}: those spoken are {known}")
        self._drafts = tuple(drafts)
        self._insecure = insecure
        self._fingerprint = fingerprint
        self._quic = quic
        self._endpoints: dict[int, Endpoint] = {}

    async def dial(self, target: Target) -> Channel:
        """A session that is set up."""
        channel = await self._first(target, await self._families(target))
        path = target.path.encode() or None
        if target.webtransport:
            channel.session.start()
        else:
            channel.session.start(path, target.authority.encode())
        try:
            async with asyncio.timeout(SETUP_S):
                await asyncio.shield(channel.ready)
        except TimeoutError:
            channel.close(reason="no answer to the setup")
            raise HandshakeFailed(
                f"{target.url} took the connection and does not answer CLIENT_SETUP within "
                f"{SETUP_S:g} s: does it speak MoQT draft {_either(self._drafts)}?"
            ) from None
        except LapsError as error:
            raise HandshakeFailed(f"no session with {target.url}: {error}") from None
        return channel

    async def _families(self, target: Target) -> list[int]:
        """The kinds of addresses that a host has, in the order the system prefers."""
        try:
            return [
                socket.AF_INET6
                if ipaddress.ip_address(target.host).version == 6
                else socket.AF_INET
            ]
        except ValueError:
            pass
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        except socket.gaierror as error:
            problem = f'URL "{target.url}": host "{target.host}" is not known: {error.strerror}'
            raise ConfigError(problem) from None
        return list(dict.fromkeys(int(info[0]) for info in found if info[0] in _ANYWHERE))

    async def _first(self, target: Target, families: list[int]) -> Channel:
        """The first to answer, the others a little later."""
        tasks: list[asyncio.Task[Channel]] = []
        try:
            for family in families:
                tasks.append(asyncio.ensure_future(self._connect(target, family)))
                await asyncio.wait(tasks, timeout=HEAD_START_S, return_when=asyncio.FIRST_COMPLETED)
                if (channel := _made(tasks)) is not None:
                    return channel
            while any(not task.done() for task in tasks):
                waiting = [task for task in tasks if not task.done()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if (channel := _made(tasks)) is not None:
                    return channel
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()

    async def _connect(self, target: Target, family: int) -> Channel:
        endpoint = self._endpoints.get(family)
        if endpoint is None:
            endpoint = self._endpoints[family] = Endpoint.dialler(_ANYWHERE[family], self._quic)
        trust = trust_for(target, insecure=self._insecure, fingerprint=self._fingerprint)
        made: list[Channel] = []
        if target.webtransport:
            protocols = [ALPNS[draft] for draft in self._drafts if draft != 14]

            def accept_session(session: WebTransportSession) -> Channel:
                made.append(self._channel(session, webtransport=True))
                return made[0]

            path = target.path or "/"
            await webtransport.connect(
                endpoint, target.host, target.port, path, trust, accept_session, protocols
            )
            self._check_draft(target, made[0])
        else:
            alpns = [ALPNS[draft] for draft in self._drafts]

            def accept(connection: Connection) -> Channel:
                made.append(self._channel(connection, webtransport=False))
                return made[0]

            await endpoint.connect(target.host, target.port, alpns, trust, accept)
        return made[0]

    def _channel(self, transport: Transport, *, webtransport: bool) -> Channel:
        dialect = DRAFT16 if transport.alpn == ALPNS[16] else None
        return Channel(transport, dialect, webtransport=webtransport)

    def _check_draft(self, target: Target, channel: Channel) -> None:
        """Over WebTransport a relay that names no draft speaks 14."""
        if channel.transport.alpn != ALPNS[16] and 14 not in self._drafts:
            channel.close(reason="no common draft")
            raise HandshakeFailed(f"{target.url} does not speak MoQT draft 16")

    async def close(self) -> None:
        """End all sessions, and free the ports."""
        for endpoint in self._endpoints.values():
            await endpoint.close(0, "")


def _made(tasks: list[asyncio.Task[Channel]]) -> Channel | None:
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
    return None


def _either(drafts: Sequence[int]) -> str:
    return " or ".join(map(str, drafts))
