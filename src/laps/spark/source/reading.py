"""How a task reads a range of a track: by FETCH, from the first relay that has all of it.

It is known how many objects there are, from who has seen them before: a relay that gives fewer has
let some go, and then the others are asked for what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.client import RequestCode, RequestRefused, SessionClosed
from laps.errors import HandshakeFailed, SessionUnauthorized
from laps.spark.errors import data_lost, show
from laps.spark.source.connecting import Connection
from laps.spark.source.offsets import fetch_end, track_key
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Object, Session
    from laps.spark.source.options import ReadOptions
    from laps.types import TrackName

log = logging.getLogger(__name__)

BATCH_OBJECTS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"A record batch holds about so much at most: a large group is never in memory as a whole."

REDIAL_S: Final = 0.5
"How long to wait with the relays when none of them answers."

_NOTHING: Final = (
    RequestCode.DOES_NOT_EXIST,
    RequestCode.INVALID_RANGE,
    # Draft 16 marks what is not known in a range; draft 14 refuses the range.
    RequestCode.UNKNOWN_STATUS_IN_RANGE,
)
"Answers that mean: this relay does not have it."


@dataclass(frozen=True, slots=True)
class Range:
    """Objects of a track from one location up to another."""

    track: TrackName
    start: Location
    end: Location
    count: int | None = None
    "How many there are; None if nobody has seen them yet."
    exact: bool = False
    "Where nobody has: all of it was there once, so that what relays do not know is lost."

    def __str__(self) -> str:
        return f"from {show(self.start)} up to {show(self.end)}"


@dataclass(slots=True)
class RangeReader:
    """Reads one range."""

    options: ReadOptions
    wanted: Range
    connection: Connection
    "The one of this process, with the relay that is asked first."
    relay: str = ""
    "Where the last objects came from."
    _taken: list[tuple[int, int, int]] = field(default_factory=list)
    "The objects that were given, as groups and ids from and up to,"
    _given: set[tuple[int, int]] | None = None
    "and one by one, when somebody else is asked for the same."
    _count: int = 0
    _unknown: list[tuple[Location, Location]] = field(default_factory=list)
    _problems: dict[str, str] = field(default_factory=dict)

    async def objects(self) -> AsyncIterator[list[Object]]:
        """The objects, some at a time; DataLost if relays do not have all of them."""
        if fetch_end(self.wanted.end) is None or self.wanted.start >= self.wanted.end:
            return
        async for items in self._from(self.connection, self.options.wait_s):
            yield items
        if not self._is_short():
            return
        self._given = {(g, number) for g, low, high in self._taken for number in range(low, high)}
        relays = self.options.relays
        others = [url for url in relays if url != self.relay]
        for pause_s, asked in ((0.0, others), (self.options.settle_s, relays)):
            await asyncio.sleep(pause_s)  # what is short everywhere may be on its way
            for url in asked:
                async for items in self._from_other(url):
                    yield items
                if not self._is_short():
                    return
        self._lost()

    def _is_short(self) -> bool:
        if self.wanted.count is not None:
            return self._count < self.wanted.count
        return bool(self._problems) or (self.wanted.exact and bool(self._unknown))

    async def _from_other(self, url: str) -> AsyncIterator[list[Object]]:
        connection = Connection((url,), self.options.trust)
        try:
            async for items in self._from(connection, 0.0):
                yield items
        except (HandshakeFailed, SessionClosed) as problem:
            self._problems[url] = str(problem)
        finally:
            await connection.close()

    async def _from(self, connection: Connection, wait_s: float) -> AsyncIterator[list[Object]]:
        """All that a relay has, from the next one on if it is lost."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        at = self.wanted.start
        while True:
            try:
                session = await connection.session()
                self.relay = session.url
                async for items in self._fetch(session, at):
                    at = Location(items[-1].group, items[-1].id + 1)
                    if fresh := self._fresh(items):
                        yield fresh
            except (HandshakeFailed, SessionClosed) as problem:
                if loop.time() >= deadline:
                    raise
                log.warning("%s; asking again", problem)
                if isinstance(problem, HandshakeFailed | SessionUnauthorized):
                    await asyncio.sleep(REDIAL_S)
            else:
                return

    async def _fetch(self, session: Session, at: Location) -> AsyncIterator[list[Object]]:
        track, end = self.wanted.track, fetch_end(self.wanted.end)
        if end is None or (end.object and end <= at):
            return
        fetch = session.fetch(track.namespace, track.name, start=at, end=end)
        try:
            async with fetch:
                while items := await fetch.some(BATCH_OBJECTS, BATCH_BYTES):
                    yield items
            self._unknown = fetch.unknown
            self._problems.clear()
        except RequestRefused as refused:
            if refused.code not in _NOTHING:
                raise
            self._unknown = [(at, end)]
            self._problems[session.url] = refused.reason

    def _fresh(self, items: list[Object]) -> list[Object]:
        if self._given is None:  # each comes once from one relay, and most follow each other
            first, last = items[0], items[-1]
            self._count += len(items)
            if first.group == last.group and last.id - first.id + 1 == len(items):
                self._taken.append((first.group, first.id, last.id + 1))
            else:
                self._taken += [(item.group, item.id, item.id + 1) for item in items]
            return items
        fresh = [item for item in items if (item.group, item.id) not in self._given]
        self._given.update((item.group, item.id) for item in fresh)
        self._count += len(fresh)
        return fresh

    def _lost(self) -> None:
        wanted = self.wanted
        held = f"relays hold {self._count} objects of it"
        if wanted.count is not None:
            held += f", and there were {wanted.count}"
        if self._unknown:
            ranges = ", ".join(f"{show(a)} to {show(b)}" for a, b in self._unknown[:3])
            held += f"; {self.relay} does not know {ranges}"
        for url, problem in self._problems.items():
            held += f"; {url}: {problem}"
        lost = data_lost(track_key(wanted.track), str(wanted), held)
        if self.options.fail_on_data_loss:
            raise lost
        log.warning("%s", lost)
