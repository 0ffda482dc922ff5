"""Answers: JSON, made a few rows at a time, so that what passes the relay never waits for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from laps.admin.rows.table import contains
from laps.admin.schema.relay import Error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from starlette.requests import Request

    from laps.admin.rows.table import Table
    from laps.admin.schema.fields import ListPage, Row

# After this long whatever has come meanwhile has its turn.
SLICE_S: Final = 0.002

DEFAULT_LIMIT: Final = 1000

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_JSON: Final = "application/json"

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a list are wanted."""

    limit: int
    "0: all."
    offset: int
    text: str
    "In lower case; empty: whatever they contain."

    @classmethod
    def of(cls, request: Request) -> Self:
        """As the parameters say; 400 if one does not read as what it is."""
        limit = number(request, "limit", DEFAULT_LIMIT)
        offset = number(request, "offset", 0)
        return cls(limit, offset, request.query_params.get("q", "").lower())


def number(request: Request, name: str, default: int) -> int:
    """A parameter that is a whole number."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HTTPException(400, f'{name}="{text[:60]}" must be a whole number, at least 0')
    return int(text)


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """A value as JSON."""
    return Response(encode(value), status, {**HEADERS, **headers}, _JSON)


def refusal(words: str, status: int, headers: Mapping[str, str] = {}) -> Response:
    """What is wrong, in the form that every refusal has."""
    return json_answer(Error(error=words), status, headers)


def list_answer(request: Request, page: ListPage, table: Table[Row]) -> Response:
    """A list: what `page` has before its rows, then those rows of the table that are asked for."""
    wanted = Wanted.of(request)
    if request.method == "HEAD":
        return StreamingResponse(_nothing(), 200, HEADERS, _JSON)
    return StreamingResponse(rows_of(page, table, wanted), 200, HEADERS, _JSON)


# What an empty list ends in: its rows and their total are its last two fields.
_END: Final = b'],"total":0}'


async def rows_of(page: ListPage, table: Table[Row], wanted: Wanted) -> AsyncIterator[bytes]:
    """The bytes of a list, in slices."""
    total = 0
    made = _matching(table, wanted) if wanted.text else _paged(table, wanted)
    chunk = [encode(page).removesuffix(_END)]
    first, began = True, time.monotonic()
    for count, row in made:
        total = count
        if row is not None:
            chunk.append(encode(row) if first else b"," + encode(row))
            first = False
        if time.monotonic() - began >= SLICE_S:
            yield b"".join(chunk)
            chunk.clear()
            await asyncio.sleep(0)
            began = time.monotonic()
    chunk.append(b'],"total":%d}' % total)
    yield b"".join(chunk)


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def _paged(table: Table[Row], wanted: Wanted) -> Iterator[tuple[int, Row | None]]:
    end = wanted.offset + wanted.limit if wanted.limit else table.size
    yield table.size, None
    for number_of, key in enumerate(islice(table.keys, end)):
        yield table.size, table.row(key) if number_of >= wanted.offset else None


def _matching(table: Table[Row], wanted: Wanted) -> Iterator[tuple[int, Row | None]]:
    """How many have matched so far, and the row if it is one of the page."""
    found = 0
    for key in table.keys:
        row = table.row(key)
        if row is None or not contains(row, wanted.text):
            yield found, None
            continue
        found += 1
        shown = wanted.offset < found and (
            not wanted.limit or found <= wanted.offset + wanted.limit
        )
        yield found, row if shown else None


async def in_slices(work: Iterable[None]) -> None:
    """Do all of something that is done a little at a time."""
    began = time.monotonic()
    for _ in work:
        if time.monotonic() - began >= SLICE_S:
            await asyncio.sleep(0)
            began = time.monotonic()
