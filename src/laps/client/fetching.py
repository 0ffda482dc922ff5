"""FETCH: a range of what has been published."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from laps.client.inflows import FetchInflow
from laps.client.intake import Intake, Reading
from laps.client.slots import Need
from laps.client.tokens import refused
from laps.client.values import object_from
from laps.errors import SessionClosed
from laps.names import track_text
from laps.ranges import after
from laps.types import Location
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.fetch import EndOfRange
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    Fetch,
    FetchOk,
    GroupOrder,
    RequestError,
    StandaloneFetch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.channel import Channel
    from laps.client.session import Session
    from laps.client.tokens import TokenSource
    from laps.client.values import Object
    from laps.types import TrackName
    from laps.wire.moqt.fetch import FetchItem

Range = tuple[Location, Location]
"From and to, both included."

# A range whose stream breaks off is asked for again, from there on, so many times.
ATTEMPTS = 3


class FetchRun:
    """One FETCH on one channel; `take` is given the objects as they come."""

    def __init__(
        self,
        channel: Channel,
        message: Fetch,
        take: Callable[[list[Object]], None],
        max_object_bytes: int,
        missed: Callable[[Location, Location], None] | None = None,
    ) -> None:
        """`missed` is called with what the relay does not know, between the objects around it."""
        self.channel = channel
        self._missed = missed
        self.unknown: list[Range] = []
        "Ranges of which the relay knows neither objects nor that there are none."
        self.result: asyncio.Future[FetchOk | RequestError | None] = channel.loop.create_future()
        "The relay's answer when all is there; None if the stream broke off."
        self._take = take
        self._answer: FetchOk | None = None
        self._complete = False
        wanted = message.range
        self._next = wanted.start if isinstance(wanted, StandaloneFetch) else Location(0, 0)
        self._flow = FetchInflow(channel, self, message, max_object_bytes)

    def answered(self, answer: FetchOk | RequestError) -> None:
        """As `FetchSink`."""
        if isinstance(answer, RequestError):
            self._conclude(answer)
        else:
            self._answer = answer
            if self._complete:
                self._conclude(answer)

    def items(self, items: list[FetchItem]) -> None:
        """As `FetchSink`."""
        dialect = self.channel.dialect
        objects: list[Object] = []
        last: FetchItem | None = None
        for item in items:
            if isinstance(item, EndOfRange):
                if item.unknown:
                    start = self._next if last is None else _after(last)
                    end = Location(item.group, item.object_id)
                    self.unknown.append((start, end))
                    if self._missed is not None:
                        self._take(objects)
                        objects = []
                        self._missed(start, end)
            else:
                objects.append(object_from(item, dialect))
            last = item
        if last is not None:
            self._next = _after(last)
        self._take(objects)

    def ended(self, complete: bool) -> None:
        """As `FetchSink`."""
        self._complete = complete
        if not complete:
            self._conclude(None)
        elif self._answer is not None:
            self._conclude(self._answer)

    def failed(self, error: Exception) -> None:
        """As `FetchSink`."""
        if not self.result.done():
            self.result.set_exception(error)
        self._flow.close()

    def _conclude(self, result: FetchOk | RequestError | None) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self._flow.close()
        self.result.cancel()


def _after(item: FetchItem) -> Location:
    return after(Location(item.group, item.object_id))


class Fetching(Reading):
    """The objects of a range, as `Session.fetch` returns them: an asynchronous iterator."""

    def __init__(
        self,
        session: Session,
        track: TrackName,
        start: Location,
        end: Location,
        *,
        descending: bool,
        buffer_bytes: int,
        max_object_bytes: int,
        token: TokenSource,
    ) -> None:
        self.track = track
        self._token = token
        self._max_object_bytes = max_object_bytes
        self.end_of_track = False
        "Whether the relay said that the last object of the range is the last of the track."
        self.end: Location | None = None
        "Where the range ends, as far as there is anything: one past the last object."
        self.unknown: list[Range] = []
        """First and last locations between which the relay does not know what there is.

        It has let go what was there, or nobody could be asked. Draft 14 has no word for it."""
        self._session = session
        self._range = StandaloneFetch(track, start, end)
        self._order = GroupOrder.DESCENDING if descending else GroupOrder.ASCENDING
        self._intake = Intake(buffer_bytes, finite=True)
        self._last: Location | None = None
        self._task = asyncio.ensure_future(self._drive())

    def close(self) -> None:
        """Stop, and tell the relay."""
        self._task.cancel()
        self._intake.finish()
        self._intake.clear()
        self._intake.buffer.attach()

    def _take(self, items: list[Object]) -> None:
        if items:
            self._last = items[-1].location
        wanted = [item for item in items if item.status is ObjectStatus.NORMAL]
        self._intake.push(wanted)
        self._intake.buffer.put(sum(item.cost for item in wanted))

    async def _drive(self) -> None:
        try:
            for _ in range(ATTEMPTS):
                if await self._attempt():
                    self._intake.finish()
                    return
            what = f"a fetch of {track_text(self.track)}"
            raise SessionClosed(f"{what} broke off {ATTEMPTS} times: its stream was reset")
        except Exception as error:
            self._intake.finish(error)

    async def _attempt(self) -> bool:
        await self._token.current()
        channel = await self._session.channel()
        if not await channel.slots.take(Need.PASSING):
            return False
        self._intake.buffer.attach(channel.inbound.pool)
        wanted = self._range
        if self._last is not None and self._order is GroupOrder.ASCENDING:
            wanted = replace(wanted, start=after(self._last))
        message = Fetch(0, wanted, DEFAULT_PRIORITY, self._order, self._token.in_moqt)
        run = FetchRun(channel, message, self._take, self._max_object_bytes)
        try:
            result = await run.result
        finally:
            self.unknown += run.unknown
            run.close()
        if isinstance(result, RequestError):
            if self._last is not None and result.code == RequestCode.INVALID_RANGE:
                return True  # it broke off behind the last object there is
            what = f"a fetch of {track_text(self.track)}"
            raise refused(what, result.code, result.reason)
        if result is None:
            if self._order is GroupOrder.DESCENDING and self._last is not None:
                what = f"a fetch of {track_text(self.track)} in descending order"
                raise SessionClosed(f"{what} broke off: its stream was reset")
            return False
        self.end_of_track, self.end = result.end_of_track, result.end
        return True
