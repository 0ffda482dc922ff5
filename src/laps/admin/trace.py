"""`/v1/trace`: a line for each object of a track as it begins to arrive, while somebody reads."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from laps.admin.answers import HEADERS, encode
from laps.admin.rows.texts import node_text
from laps.admin.rows.tracks import find_track
from laps.admin.schema.tracks import Arrival, Missed
from laps.names import read_hash, read_track
from laps.relay.tracing import TooManyTraces
from laps.types import TrackKey, hash_track

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from laps.net.runner import Runner
    from laps.relay import tracing
    from laps.relay.relay import Relay
    from laps.relay.tracing import Trace

# An empty line says that the relay is still there, and finds out whether the reader is.
BEAT_S: Final = 5.0

TRIES: Final = 3

_TYPE: Final = "application/jsonl"


async def trace(request: Request) -> Response:
    """The objects of a track, which need not be known here yet."""
    runner: Runner = request.app.state.runner
    text = request.query_params.get("track", "")
    key = _key(runner.relay, text)
    if key is None:
        words = f'track="{text[:60]}" must be 16 hexadecimal digits, or NAMESPACE%20NAME'
        raise HTTPException(400, words)
    if request.method == "HEAD":
        return Response(None, 200, HEADERS, _TYPE)
    news = asyncio.Event()
    try:
        begun = runner.relay.data.trace(key, news.set)
    except TooManyTraces as error:
        raise HTTPException(503, str(error)) from None
    return _Lines(runner.relay, begun, news, request.app.state.stopping)


def _key(relay: Relay, text: str) -> TrackKey | None:
    if (known := find_track(relay, text)) is not None:
        return known
    if (key := read_hash(text)) is not None:
        return TrackKey(key)
    name = next(read_track(text), None)
    return None if name is None else hash_track(name).full_name_hash


class _Lines(StreamingResponse):
    """Lines until the reader leaves, or the relay; then nothing is traced any more."""

    def __init__(
        self, relay: Relay, begun: Trace, news: asyncio.Event, stopping: asyncio.Event
    ) -> None:
        super().__init__(_lines(begun, news, stopping), 200, HEADERS, _TYPE)
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
    yield b"\n"  # so that the reader knows that the trace has begun
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while not stop.done():
            some = asyncio.ensure_future(news.wait())
            try:
                await asyncio.wait(
                    {some, stop}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                some.cancel()  # a reader that leaves while it waits leaves nothing pending
            news.clear()
            arrivals, missed = begun.take()
            ahead = _ahead()
            lines = [encode(_row(arrival, ahead)) for arrival in arrivals]
            if missed:
                lines.append(encode(Missed(missed=missed)))
            yield b"\n".join((*lines, b"")) or b"\n"
    finally:
        stop.cancel()


def _ahead() -> float:
    """What the time of day is more than the relay's clock.

    A pause between the two readings of clocks would be an error of as much: of a few tries the
    quickest counts.
    """
    tries = []
    for _ in range(TRIES):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        tries.append((after - before, wall - (before + after) / 2))
    return min(tries)[1]


def _row(arrival: tracing.Arrival, ahead: float) -> Arrival:
    return Arrival(
        at=round(arrival.at + ahead, 6),
        group=arrival.group,
        subgroup=arrival.subgroup,
        object=arrival.object_id,
        source=None if arrival.source is None else node_text(arrival.source),
        bytes=arrival.size,
        status=arrival.status or UNSET,
    )
