"""Requests to the server of an origin that come to nothing; the others have tests on sockets."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from laps.auth.origin_api import CallFailed
from laps.auth.origins import Origin, OriginApi
from laps.edge.asking import Call
from laps.net.origin_caller import OriginCaller

API = OriginApi("https://192.0.2.1/allow")


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadError("gone"),
        OSError("gone"),
        # What anyio raises on uvloop, where a connection is closed as soon as it is there.
        AttributeError("'NoneType' object has no attribute 'getpeername'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_breaks_is_an_answer_to_ask_again_for(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        raise error

    async def scene() -> bytes | CallFailed:
        caller = OriginCaller([Origin("demo", api=API)], lambda: None)
        return await caller._ask(Call(1, "demo", API, b"{}", 5.0))

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", fail)
    failed = asyncio.run(scene())
    assert isinstance(failed, CallFailed)
    assert failed.again
    assert "the connection broke" in failed.words
