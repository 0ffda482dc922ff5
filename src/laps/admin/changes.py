"""What can be done to a relay over its admin API. The doorkeeper has seen the write token."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException

from laps.admin.answers import json_answer
from laps.admin.rows.texts import node_text
from laps.admin.schema.relay import Done
from laps.config import override
from laps.errors import LapsError
from laps.wire.moqt.codes import SessionCode

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from laps.admin.server import Controls
    from laps.net.runner import Runner

log = logging.getLogger(__name__)

# A table of impaired peers has some 100 bytes for each.
MAX_BODY_BYTES = 65_536


async def reload(request: Request) -> Response:
    """Read the configuration again."""
    if problem := _controls(request).reload():
        raise HTTPException(409, f"the configuration stays as it is: {problem}")
    return _done(request, "the configuration was read again")


async def drain(request: Request) -> Response:
    """Send clients elsewhere, and end."""
    _controls(request).stop()
    return _done(request, "the relay sends its clients elsewhere and stops")


async def close_client(request: Request) -> Response:
    """Close the session of one client."""
    text = request.path_params["client"]
    runner: Runner = request.app.state.runner
    for connection in runner.clients.connections:
        if str(connection.number) == text:
            connection.close(SessionCode.NO_ERROR, "closed by the operator")
            return _done(request, f"client {text} is closed")
    raise HTTPException(404, f"no client {text[:60]} is connected to {node_text(runner.relay.id)}")


async def impair(request: Request) -> Response:
    """Make the paths to peers worse, as [impairment] does; an empty table mends them."""
    runner: Runner = request.app.state.runner
    try:
        table: Any = msgspec.json.decode(await _body(request))
        runner.impair(override(runner.config, {"impairment.peers": table}, "impair"))
    except (msgspec.MsgspecError, LapsError) as error:
        raise HTTPException(400, str(error)) from None
    return _done(request, f"{len(runner.config.impairment.peers)} peers are impaired")


async def _body(request: Request) -> bytes:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the table has more than {MAX_BODY_BYTES} bytes")
    return data


def _controls(request: Request) -> Controls:
    controls: Controls | None = request.app.state.controls
    if controls is None:
        raise HTTPException(409, "this relay is part of another program, which runs it")
    return controls


def _done(request: Request, what: str) -> Response:
    runner: Runner = request.app.state.runner
    log.warning("over the admin API: %s", what)
    return json_answer(Done(node=node_text(runner.relay.id), at=time.time(), done=what))
