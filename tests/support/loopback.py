"""Real endpoints on loopback, on the event loop the relay uses."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from laps.config import QuicConfig
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from support.engines import Recorder, identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from laps.net.connection import Connection

# A test that hangs says so. The longest takes a tenth of it alone, and half of it where four groups
# of tests share two cores.
TEST_LIMIT_S = 60.0

TRUST = Trust(fingerprint=identity().fingerprint)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test under uvloop, with a limit."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(asyncio.wait_for(test(*args, **kwargs), TEST_LIMIT_S))

    return run


def limits(**changes: Any) -> QuicConfig:
    return msgspec.structs.replace(QuicConfig(), **changes)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds; the test's own limit ends a vain wait."""
    while not condition():  # noqa: ASYNC110 - what is waited for is no asyncio object's to tell
        await asyncio.sleep(0.001)


class Listener:
    """A listening endpoint, and what each of its connections saw."""

    def __init__(
        self,
        config: QuicConfig | None = None,
        alpn: Sequence[str] = ("laps",),
        host: str = "127.0.0.1",
        port: int = 0,
        reset_secret: bytes | None = None,
    ) -> None:
        self.seen: list[Recorder] = []
        self.connections: list[Connection] = []
        self.endpoint = Endpoint.listen(
            host, port, config or QuicConfig(), alpn, identity(), self._accept, reset_secret
        )

    def _accept(self, connection: Connection) -> Recorder:
        self.connections.append(connection)
        self.seen.append(Recorder())
        return self.seen[-1]

    @property
    def port(self) -> int:
        return self.endpoint.address[1]


@asynccontextmanager
async def listening(
    config: QuicConfig | None = None, alpn: Sequence[str] = ("laps",), host: str = "127.0.0.1"
) -> AsyncIterator[Listener]:
    listener = Listener(config, alpn, host)
    try:
        yield listener
    finally:
        await listener.endpoint.close(1, "test over")


@asynccontextmanager
async def dialling(
    config: QuicConfig | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint.dialler(host, config or QuicConfig())
    try:
        yield endpoint
    finally:
        await endpoint.close(1, "test over")


async def dial(
    endpoint: Endpoint, port: int, alpn: Sequence[str] = ("laps",), host: str = "127.0.0.1"
) -> tuple[Connection, Recorder]:
    saw = Recorder()
    connection = await endpoint.connect(host, port, alpn, TRUST, lambda _: saw)
    return connection, saw
