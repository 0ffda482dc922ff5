"""From a host's name to a connection: its addresses, and a socket for each kind of them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, TypeVar

from laps.client.urls import trust_for
from laps.errors import ConfigError
from laps.net.quic import Endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from laps.client.urls import Target
    from laps.config import QuicConfig
    from laps.net.tls import Trust

# The second address of a host is tried when the first has not answered within this time.
HEAD_START_S: Final = 0.25

_ANYWHERE: Final = {
    int(socket.AF_INET): "0.0.0.0",  # noqa: S104 - to dial from
    int(socket.AF_INET6): "::",
}

T = TypeVar("T")


class Sockets:
    """Where relays are dialled from, and whom of them is trusted."""

    def __init__(self, *, insecure: bool, fingerprint: str | None, quic: QuicConfig) -> None:
        self._insecure = insecure
        self._fingerprint = fingerprint
        self._quic = quic
        self._endpoints: dict[int, Endpoint] = {}

    async def first(self, target: Target, connect: Callable[[Endpoint, Trust], Awaitable[T]]) -> T:
        """What `connect` makes with the first address to answer, the others a little later."""
        families = await self._families(target)
        tasks: list[asyncio.Future[T]] = []
        try:
            for family in families:
                tasks.append(asyncio.ensure_future(self._connect(target, family, connect)))
                await asyncio.wait(tasks, timeout=HEAD_START_S, return_when=asyncio.FIRST_COMPLETED)
                if (made := _made(tasks)) is not None:
                    return made.result()
            while any(not task.done() for task in tasks):
                waiting = [task for task in tasks if not task.done()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if (made := _made(tasks)) is not None:
                    return made.result()
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()

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

    async def _connect(
        self, target: Target, family: int, connect: Callable[[Endpoint, Trust], Awaitable[T]]
    ) -> T:
        endpoint = self._endpoints.get(family)
        if endpoint is None:
            endpoint = self._endpoints[family] = Endpoint.dialler(_ANYWHERE[family], self._quic)
        trust = trust_for(target, insecure=self._insecure, fingerprint=self._fingerprint)
        return await connect(endpoint, trust)

    async def close(self) -> None:
        """End all connections, and free the ports."""
        for endpoint in self._endpoints.values():
            await endpoint.close(0, "")


def _made(tasks: list[asyncio.Future[T]]) -> asyncio.Future[T] | None:
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is None:
            return task
    return None
