"""`/v1/trace`: a line for each object of a track as it begins to arrive, while somebody reads."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from laps.names import read_hash, read_track
from laps.net.admin.answers import encode
from laps.relay.tracing import TooManyTraces
from laps.relay.views.tracks import find_track
from laps.relay.views.words import (
    node_text,
)
from laps.types import hash_track

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.relay.tracing import Arrival, Trace

# An empty line says that the relay is still there, and finds out whether the reader is.
BEAT_S: Final = 5.0

TRIES: Final = 3

_TYPE: Final = "application/jsonl"
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def trace(request: Request) -> Response:
    """The objects of a track, which need not be known here yet."""
    runner: Runner = request.app.state.runner
    text = request.query_params.get("track", "")
    key = _key(runner.relay, text)
    if key is None:
        words = f'track="{text[:60]}" must be 16 hexadecimal digits, or NAMESPACE%20NAME'
        raise HTTPException(400, words)
    if request.method == "HEAD":
        return Response(None, 200, _HEADERS, _TYPE)
    news = asyncio.Event()
    try:
        begun = runner.relay.data.trace(key, news.set)
    except TooManyTraces as error:
        raise HTTPException(503, str(error)) from None
    return _Lines(runner.relay, begun, news, request.app.state.stopping)


def _key(relay: Relay, text: str) -> int | None:
    key = find_track(relay, text)
    if key is None:
        key = read_hash(text)
    if key is None:
        name = next(read_track(text), None)
        key = None if name is None else hash_track(name).full_name_hash
    return key


class _Lines(StreamingResponse):
    """Lines until the reader leaves, or the relay; then nothing is traced any more."""

    def __init__(
        self, relay: Relay, begun: Trace, news: asyncio.Event, stopping: asyncio.Event
    ) -> None:
        super().__init__(_lines(begun, news, stopping), 200, _HEADERS, _TYPE)
        self._relay = relay
        self._trace = begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._relay.data.tracing.stop(self._trace)


async def _lines(
    begun: Trace, news: asyncio.Event, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    yield b"\n"  # who reads knows by it that the trace has begun
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while not stop.done():
            some = asyncio.ensure_future(news.wait())
            await asyncio.wait({some, stop}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            some.cancel()
            news.clear()
            arrivals, missed = begun.take()
            ahead = _ahead()
            lines = [encode(_row(arrival, ahead)) for arrival in arrivals]
            if missed:
                lines.append(encode({"missed": missed}))
            yield b"\n".join((*lines, b"")) or b"\n"
    finally:
        stop.cancel()


def _ahead() -> float:
    """How far the time of day is ahead of the relay's clock.

    Whoever is made to wait between two looks at clocks would be wrong by as much as that: of a few
    tries the quickest counts.
    """
    tries = []
    for _ in range(TRIES):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        tries.append((after - before, wall - (before + after) / 2))
    return min(tries)[1]


def _row(arrival: Arrival, ahead: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "at": round(arrival.at + ahead, 6),
        "group": arrival.group,
        "subgroup": arrival.subgroup,
        "object": arrival.object_id,
        "from": None if arrival.source is None else node_text(arrival.source),
        "bytes": arrival.size,
    }
    if arrival.status:
        row["status"] = arrival.status
    return row
