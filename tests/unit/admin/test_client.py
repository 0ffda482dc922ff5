"""What one who looks is told when a relay answers, refuses, or is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from laps.admin.client import LookError, NoAnswer, NotFound, RelayApi, admin_url
from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://127.0.0.1:33436"


def ask(
    answer: Callable[[httpx.Request], httpx.Response], view: str = "peers", token: str = ""
) -> Any:
    async def run() -> Any:
        async with RelayApi(URL, token, httpx.MockTransport(answer)) as api:
            return await api.get(view, limit=5)

    return asyncio.run(run())


def test_a_view_is_asked_for_with_its_parameters_and_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"node": "1:1"})

    assert ask(answer, token="secret") == {"node": "1:1"}
    assert str(seen[0].url) == f"{URL}/v1/peers?limit=5"
    assert seen[0].headers["authorization"] == "Bearer secret"


def test_without_a_token_none_is_shown() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"shown": "authorization" in request.headers})

    assert ask(answer) == {"shown": False}


def test_what_is_not_there_is_told_in_the_relays_words() -> None:
    words = "no node 9:9 is known to 1:1"
    with pytest.raises(NotFound, match=words):
        ask(lambda _: httpx.Response(404, json={"error": words}))


def test_a_missing_token_and_a_wrong_one_are_told_apart() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(401, json={"error": "no"})

    with pytest.raises(LookError, match="give it with --token"):
        ask(refuse)
    with pytest.raises(LookError, match="not the relay's"):
        ask(refuse, token="wrong")


def test_a_refused_connection_names_the_address() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    with pytest.raises(NoAnswer, match=f"{URL}: the connection is refused"):
        ask(fail)


def test_who_is_no_relay_is_told_so() -> None:
    with pytest.raises(NoAnswer, match="no relay's admin API"):
        ask(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(LookError, match="status 500"):
        ask(lambda _: httpx.Response(500, text="oops"))


def test_lines_are_read_one_by_one_and_empty_ones_left_out() -> None:
    async def run() -> list[Any]:
        def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, text='\n{"a":1}\n\n{"a":2}\n')

        async with RelayApi(URL, transport=httpx.MockTransport(answer)) as api:
            return [line async for line in api.lines("trace", track="x")]

    assert asyncio.run(run()) == [{"a": 1}, {"a": 2}]


def test_a_stream_that_is_refused_says_why() -> None:
    async def run() -> None:
        def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(503, json={"error": "32 traces run"})

        async with RelayApi(URL, transport=httpx.MockTransport(answer)) as api:
            async for _ in api.lines("trace", track="x"):
                pass

    with pytest.raises(LookError, match="32 traces run"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:33436", "http://127.0.0.1:33436"),
        ("https://relay.example/", "https://relay.example"),
        (" http://[::1]:80 ", "http://[::1]:80"),
    ],
)
def test_an_address_may_go_without_http(text: str, url: str) -> None:
    assert admin_url(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://a b", ""])
def test_what_is_no_address_is_a_mistake_of_the_person(text: str) -> None:
    with pytest.raises(ConfigError, match="admin address"):
        admin_url(text)
