"""Lines of a trace: what has arrived, what did not fit, and an end when the relay stops."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from laps.admin import trace as admin_trace
from laps.relay import tracing
from laps.relay.tracing import Arrival, Trace
from laps.types import TrackKey, parse_node_id

if TYPE_CHECKING:
    import pytest


def arrival(number: int, *, status: int = 0) -> Arrival:
    return Arrival(time.monotonic(), 4, 0, number, parse_node_id("1:2"), 10, status)


def told(*arrivals: Arrival) -> list[Any]:
    """What a reader is told of these, up to the end of the relay."""

    async def run() -> bytes:
        news, stopping = asyncio.Event(), asyncio.Event()
        trace = Trace(TrackKey(1), news.set)
        lines = admin_trace._lines(trace, news, stopping)
        data = await anext(lines)
        for item in arrivals:
            trace.add(item)
        data += await anext(lines)
        stopping.set()
        async for more in lines:
            data += more
        return data

    data = asyncio.run(run())
    assert data.startswith(b"\n")
    return [json.loads(line) for line in data.splitlines() if line]


def test_a_line_has_what_the_contract_says() -> None:
    before = time.time()
    [line] = told(arrival(7))
    assert before - 1 < line.pop("at") < time.time() + 1
    assert line == {"group": 4, "subgroup": 0, "object": 7, "from": "1:2", "bytes": 10}


def test_a_status_is_told_where_there_is_one() -> None:
    assert [line.get("status") for line in told(arrival(0), arrival(1, status=4))] == [None, 4]


def test_what_did_not_fit_is_counted_behind_what_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_WAITING", 2)
    *rows, last = told(*(arrival(number) for number in range(5)))
    assert [row["object"] for row in rows] == [0, 1]
    assert last == {"missed": 3}


def test_an_empty_line_says_that_the_relay_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_trace, "BEAT_S", 0.001)
    assert told() == []


def test_a_trace_whose_reader_leaves_while_it_waits_leaves_no_task() -> None:
    """A task that is dropped before it is done is an error in the log, and a leak until then."""

    async def run() -> None:
        news, stopping = asyncio.Event(), asyncio.Event()
        lines = admin_trace._lines(Trace(TrackKey(1), news.set), news, stopping)
        assert await anext(lines) == b"\n"
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
