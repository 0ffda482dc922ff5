"""Running the server: a socket, signals, and one line that says where it is."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from laps.dashboard.server import dashboard_app, is_loopback
from laps.errors import ConfigError, ListenError
from laps.types import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.dashboard.network import Network


def listen(host: str, port: int, viewer_token: str) -> tuple[socket.socket, bool]:
    """A socket that listens, and whether it is on another port because this one is taken."""
    if not is_loopback(host) and not viewer_token:
        raise ConfigError(
            f"--host {host} lets others look: give them a token with --viewer-token, or leave it "
            "at 127.0.0.1"
        )
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (OSError, UnicodeError) as error:
        raise ListenError(f"--host {host} is no address of this machine: {error}") from None
    try:
        return _listen(host, port, family), False
    except OSError as error:
        try:
            return _listen(host, 0, family), True
        except OSError:
            raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}") from None


def _listen(host: str, port: int, family: int) -> socket.socket:
    return socket.create_server((host, port), family=family, backlog=128)


def url_of(sock: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = sock.getsockname()[:2]
    return f"http://{Address(host, port)}/"


class _Server(uvicorn.Server):
    """One that leaves signals to us: it would raise them again, and the status would not be 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    network: Network, sock: socket.socket, viewer_token: str, ready: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        dashboard_app(network, viewer_token),
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)
    loop.call_soon(ready)  # it listens already: a browser waits for the first answer
    await server.serve(sockets=[sock])
