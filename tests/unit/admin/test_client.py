"""What the client says when a relay answers, refuses, or is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import httpx
import pytest

from laps.admin import client
from laps.admin.client import (
    AdminClient,
    AdminError,
    NoAnswer,
    NotFound,
    Pool,
    Refused,
    TimedOut,
    Unreadable,
    admin_url,
)
from laps.admin.schema.network import OneNode, Peer, Peers
from laps.admin.schema.tracks import Arrival, Missed, OneTrack
from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
URL = "http://127.0.0.1:33436"


def run(
    answer: Callable[[httpx.Request], httpx.Response],
    work: Callable[[AdminClient], Awaitable[T]],
    token: str = "",
) -> T:
    async def scene() -> T:
        pool = Pool(httpx.MockTransport(answer))
        try:
            return await work(AdminClient(URL, token, pool))
        finally:
            await pool.close()

    return asyncio.run(scene())


def ask(answer: Callable[[httpx.Request], httpx.Response], token: str = "") -> Peers:
    return run(answer, lambda api: api.get(Peers, limit=5), token)


def test_a_view_is_asked_for_with_its_parameters_and_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"node": "1:1", "peers": [{"node": "1:2", "new": 1}]})

    assert ask(answer, token="secret") == Peers(node="1:1", peers=[Peer(node="1:2")])
    assert str(seen[0].url) == f"{URL}/v1/peers?limit=5"
    assert seen[0].headers["authorization"] == "Bearer secret"


def test_without_a_token_none_is_shown() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    assert ask(answer) == Peers()
    assert "authorization" not in seen[0].headers


def test_one_thing_is_asked_for_by_its_name() -> None:
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(404, json={"error": "no"})

    assert run(answer, lambda api: api.find(OneNode, "1:2")) is None
    assert run(answer, lambda api: api.find(OneTrack, "demo/a b?#")) is None
    assert paths == ["/v1/nodes/1:2", "/v1/tracks/demo/a%20b%3F%23"]


def test_a_page_is_passed_on_as_the_relay_wrote_it() -> None:
    page = {"node": "1:1", "peers": [{"of_tomorrow": True}]}
    assert run(lambda _: httpx.Response(200, json=page), lambda api: api.get_plain(Peers)) == page


def test_what_is_not_there_is_told_in_the_relays_words() -> None:
    words = "no node 9:9 is known to 1:1"
    with pytest.raises(NotFound, match=words):
        ask(lambda _: httpx.Response(404, json={"error": words}))


def test_a_missing_token_and_a_wrong_one_are_told_apart() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(401, json={"error": "no"})

    with pytest.raises(AdminError, match="give it with --token"):
        ask(refuse)
    with pytest.raises(AdminError, match="not the relay's"):
        ask(refuse, token="wrong")


def test_a_refused_connection_names_the_address() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    with pytest.raises(NoAnswer, match=f"{URL}: the connection is refused"):
        ask(fail)


def test_a_connection_that_is_closed_as_soon_as_it_is_there_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What anyio raises on uvloop, where a relay is killed at that moment."""

    async def fail(_: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    async def scene() -> None:
        pool = Pool()
        try:
            await AdminClient(URL, "", pool).get(Peers)
        finally:
            await pool.close()

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", fail)
    with pytest.raises(NoAnswer, match=f"no relay answers at {URL}"):
        asyncio.run(scene())


def test_who_is_no_relay_is_told_so() -> None:
    with pytest.raises(NoAnswer, match="no relay's admin API"):
        ask(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(AdminError, match="status 500"):
        ask(lambda _: httpx.Response(500, text="oops"))


def test_numbers_that_cannot_be_true_are_refused() -> None:
    for row in ({"node": "1:2", "sent_bytes": -1}, {"node": "1:2", "since": 1e300}, {"role": ""}):
        with pytest.raises(Unreadable, match=r"/v1/peers: .* at `\$\.peers\[0\]"):
            ask(lambda _, row=row: httpx.Response(200, json={"peers": [row]}))  # type: ignore[misc]


def test_an_answer_that_is_too_large_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(Unreadable, match="larger than 10 bytes"):
        ask(lambda _: httpx.Response(200, json={"node": "1:1", "peers": []}))


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_said() -> None:
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(TimedOut) as failed:
        run(hang, lambda api: api.get(Peers, timeout_s=0.01))  # type: ignore[arg-type]
    assert failed.value.seconds == 0.01


def traced(answer: httpx.Response) -> list[Arrival | Missed]:
    async def read(api: AdminClient) -> list[Arrival | Missed]:
        return [line async for line in api.trace("x")]

    return run(lambda _: answer, read)


def test_lines_are_read_one_by_one_and_empty_ones_left_out() -> None:
    first, last = '{"at":1,"group":2,"object":3,"from":"1:2"}', '{"at":2,"group":2,"object":4}'
    lines = f'\n{first}\n\n{{"missed":5}}\n{{"of":"tomorrow"}}\n{last}'
    assert traced(httpx.Response(200, text=lines)) == [
        Arrival(at=1, group=2, object=3, source="1:2"),
        Missed(missed=5),
        Arrival(at=2, group=2, object=4),
    ]


def test_a_line_without_an_end_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 10)
    with pytest.raises(Unreadable, match="a line is longer than 10 bytes"):
        traced(httpx.Response(200, text="x" * 11))


def test_a_stream_that_is_refused_says_why() -> None:
    with pytest.raises(Refused, match="32 traces run") as failed:
        traced(httpx.Response(503, json={"error": "32 traces run"}))
    assert (failed.value.status, failed.value.why) == (503, "32 traces run")


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
