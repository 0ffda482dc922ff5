"""Lists a page at a time, in slices."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from laps.admin import answers
from laps.admin.answers import in_slices, list_answer
from laps.admin.rows.table import Table
from laps.admin.schema.fields import ListPage, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response


class Thing(Row, frozen=True, kw_only=True):
    name: str
    key: int


class Things(ListPage, frozen=True, kw_only=True):
    path = "/v1/things"

    things: tuple[Thing, ...] = ()
    total: int = 0


def table(size: int, gone: int | None = None) -> Table[Thing]:
    return Table.of(
        range(size), lambda key: None if key == gone else Thing(name=f"t{key}", key=key)
    )


def ask(query: str, shown: Table[Thing]) -> Any:
    async def view(request: Request) -> Response:
        return list_answer(request, Things(node="1:1", at=5.0), shown)

    async def get() -> Any:
        transport = httpx.ASGITransport(Starlette(routes=[Route("/", view)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://relay") as client:
            return (await client.get(f"/{query}")).json()

    return asyncio.run(get())


@pytest.mark.parametrize(
    ("query", "keys", "total"),
    [
        ("", list(range(30)), 30),
        ("?limit=0", list(range(30)), 30),
        ("?limit=3", [0, 1, 2], 30),
        ("?limit=3&offset=28", [28, 29], 30),
        ("?offset=30", [], 30),
        ("?offset=29&limit=0", [29], 30),
        ("?q=t2", [2, *range(20, 30)], 11),
        ("?q=T2&limit=2&offset=1", [20, 21], 11),
        ("?q=nothing", [], 0),
        ("?q=t1&limit=0&offset=10", [19], 11),
    ],
)
def test_a_page_has_its_rows_and_the_total(query: str, keys: list[int], total: int) -> None:
    answer = ask(query, table(30))
    assert [row["key"] for row in answer["things"]] == keys
    assert answer["total"] == total
    assert (answer["node"], answer["at"]) == ("1:1", 5.0)


def test_more_than_the_usual_page_is_given_only_when_asked_for() -> None:
    size = answers.DEFAULT_LIMIT + 1
    assert len(ask("", table(size))["things"]) == size - 1
    assert len(ask("?limit=0", table(size))["things"]) == size


def test_rows_that_are_gone_are_left_out_and_the_rest_is_json() -> None:
    assert [row["key"] for row in ask("", table(3, gone=0))["things"]] == [1, 2]
    assert ask("", table(1, gone=0))["things"] == []


def test_others_have_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SLICE_S", 0.0)

    async def watch() -> tuple[int, Any]:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        wanted = answers.Wanted(0, 0, "")
        chunks = [chunk async for chunk in answers.rows_of(Things(at=1), table(50), wanted)]
        ticking.cancel()
        return turns, json.loads(b"".join(chunks))

    turns, answer = asyncio.run(watch())
    assert turns >= 50
    assert answer["total"] == len(answer["things"]) == 50


def test_work_in_steps_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SLICE_S", 0.0)
    order: list[str] = []

    def steps() -> Iterator[None]:
        for _ in range(3):
            order.append("step")
            yield

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(in_slices(steps()), other())

    asyncio.run(both())
    assert order == ["step", "other"] * 3
