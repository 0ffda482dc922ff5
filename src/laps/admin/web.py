"""Starlette and uvicorn in the relay's loop, as quiet as can be.

There is no thread, no signal handler, no access log and no timer of its own: between two requests
a relay is not woken by it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from laps.admin.answers import refusal
from laps.admin.auth import Doorkeeper
from laps.admin.routes import ROUTES

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from laps.admin.server import Controls
    from laps.admin.tokens import Tokens
    from laps.net.runner import Runner

# A program that asks needs a few connections; more than this is a mistake, or worse.
MAX_CONNECTIONS: Final = 200

# An answer under way has this long when the relay stops; a stream that lasts is ended.
GOODBYE_S: Final = 1


class Web:
    """The server, until it is closed."""

    def __init__(
        self, runner: Runner, tokens: Tokens, sock: socket.socket, controls: Controls | None
    ) -> None:
        self._app = application(runner, controls)
        self._server = _Server(
            uvicorn.Config(
                Doorkeeper(self._app, tokens),
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=GOODBYE_S,
            )
        )
        self._task = asyncio.ensure_future(self._server.serve(sockets=[sock]))

    async def close(self) -> None:
        """Answer no more: end what lasts, and give what is under way a moment."""
        self._app.state.stopping.set()
        self._server.leave.set()
        await asyncio.gather(self._task, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn's server, which neither takes signals nor looks at a clock."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.leave = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the relay's."""
        yield

    async def main_loop(self) -> None:
        """Until `leave` is set; uvicorn's own loop wakes up ten times a second to see."""
        await self.leave.wait()


def application(runner: Runner, controls: Controls | None = None) -> Starlette:
    """The pages, for requests that were let in."""
    app = Starlette(routes=ROUTES, exception_handlers={HTTPException: _refused, Exception: _failed})
    app.router.redirect_slashes = False
    app.state.runner = runner
    app.state.controls = controls
    app.state.metrics = None  # until the first scrape
    app.state.stopping = asyncio.Event()
    return app


async def _refused(request: Request, error: Any) -> Response:
    words = error.detail
    if error.status_code == 404 and words == "Not Found":
        words = f"there is no {request.url.path} here: /openapi.json says what there is"
    elif error.status_code == 405:
        words = f"{request.method} is not for {request.url.path}: /openapi.json says what is"
    return refusal(words, error.status_code, error.headers or {})


async def _failed(request: Request, error: Exception) -> Response:
    return refusal("the relay failed to answer: its log says how", 500)
