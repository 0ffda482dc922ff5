"""Where the admin API listens: a socket, and a web server for it once somebody connects.

The web server takes 7 MB and a tenth of a second to load. A relay that nobody looks into does
without it. The first request waits that long, and the data path does not, since it is loaded in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from laps import places
from laps.admin.tokens import Tokens
from laps.errors import LapsError, ListenError
from laps.net.udp import explain_bind
from laps.types import Address, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.admin.web import Web
    from laps.config import AdminConfig
    from laps.net.runner import Runner

log = logging.getLogger(__name__)

# The default address: the next port after the clients'.
DEFAULT: Final = Address("127.0.0.1", 33436)

# This many connections may wait to be accepted.
BACKLOG: Final = 100

WORDS: Final = "relays"


@dataclass(frozen=True, slots=True)
class Controls:
    """What the program does that runs the relay."""

    reload: Callable[[], str]
    "Reads the configuration again, as SIGHUP does; why it stays as it is, or nothing."
    stop: Callable[[], None]
    "Has the relay drain and end, as SIGTERM does."


class Admin:
    """The admin API of a running relay."""

    def __init__(
        self, runner: Runner, config: AdminConfig, controls: Controls | None = None
    ) -> None:
        """ListenError if the port cannot be had, ConfigError if a token cannot be read.

        `controls` reload and stop the relay; None where that is another program's business.
        """
        self._runner = runner
        self._controls = controls
        self._tokens = Tokens(config)
        self._socket = _bind(config.listen)
        self.address = Address(*self._socket.getsockname()[:2])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._knocked)
        self._loading: asyncio.Task[Web | None] | None = None
        self._leave_word()

    def _leave_word(self) -> None:
        """Programs on this machine find us by it; without it they need the address."""
        relay = self._runner.relay
        word = {"node": format_node_id(relay.id), "role": relay.role.value}
        try:
            places.leave_word(WORDS, word | {"admin": str(self.address)})
        except LapsError as error:
            log.warning("nobody finds this relay without its address: %s", error)

    def _knocked(self) -> None:
        """Somebody connects for the first time."""
        self._loop.remove_reader(self._socket)
        self._loading = asyncio.ensure_future(self._load())

    async def _load(self) -> Web | None:
        try:
            with ThreadPoolExecutor(1, "loads the admin API") as thread:
                module = "laps.admin.web"
                web = await self._loop.run_in_executor(thread, import_module, module)
            serving: Web = web.Web(self._runner, self._tokens, self._socket, self._controls)
        except Exception:
            # An installation that is not whole: the relay itself goes on.
            log.exception("the admin API cannot be loaded, and nobody is answered")
            return None
        return serving

    async def close(self) -> None:
        """Answer no more."""
        places.take_back(WORDS)
        if self._loading is None:
            self._loop.remove_reader(self._socket)
        else:
            with suppress(asyncio.CancelledError):
                if (web := await self._loading) is not None:
                    await web.close()
        self._socket.close()


def _bind(listen: Address | None) -> socket.socket:
    """The socket: at the address that is configured, or at the default or any free port."""
    if listen is not None:
        return _socket(listen)
    try:
        return _socket(DEFAULT)
    except ListenError:
        return _socket(Address(DEFAULT.host, 0))


def _socket(address: Address) -> socket.socket:
    host, port = address.host, address.port
    sock: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        # A relay that is started again does not wait for the connections of the one before.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise ListenError(f"admin: {explain_bind(host, port, error)}") from None
    return sock
