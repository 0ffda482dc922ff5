"""One track, as the driver of a query follows it: which objects there are, and how far is settled.

    SUBSCRIBE from now on -> the objects that come, as numbers
    FETCH of what was before, from where the query is
    FETCH of what is missing, when it is overdue

So a subscription that loses objects, because the driver is slow or a datagram is, loses none here.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final

from laps.client import ObjectStatus, RequestCode, RequestRefused, SessionClosed
from laps.errors import RequestUnauthorized
from laps.ranges import after
from laps.spark.errors import data_lost, show
from laps.spark.source.frontier import Frontier
from laps.spark.source.offsets import BEGINNING, Position, fetch_end, track_key
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from laps.client import Object, Session, Subscription
    from laps.spark.source.options import ReadOptions
    from laps.types import TrackName

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"A relay that breaks off is not asked again at once."

_ENDS: Final = (ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK)

_ABSENT: Final = (RequestCode.DOES_NOT_EXIST, RequestCode.TIMEOUT)
"Answers that mean: nobody publishes it now."

_NOTHING: Final = (RequestCode.DOES_NOT_EXIST, RequestCode.INVALID_RANGE)
"Answers to FETCH that mean: there is nothing of that."

_UNKNOWN: Final = (*_NOTHING, RequestCode.UNKNOWN_STATUS_IN_RANGE)
"Draft 16 marks what is not known in a range; draft 14 refuses the range."


class Follower:
    """Follows one track."""

    def __init__(
        self,
        track: TrackName,
        position: Position | None,
        options: ReadOptions,
        session: Callable[[], Awaitable[Session]],
        changed: Callable[[], None],
        *,
        exact: bool,
        poll_s: float,
    ) -> None:
        """Begin at a position, or at the end of the track; `changed` is told of all that is new.

        With `exact` it is one that was read up to: what relays do not know behind it is lost.
        """
        self.track = track
        self.key = track_key(track)
        self.begun_at = position
        "Where it began; None while that is the end of the track, which is not known yet."
        self.frontier: Frontier | None = None
        self.present = asyncio.Event()
        "Somebody publishes it, or a relay has something of it."
        self.caught_up = asyncio.Event()
        "All that there was has been seen, or nobody publishes it."
        self.was_absent = False
        "Nobody published it when it was first asked for."
        self.skipped = 0
        "Ranges that relays no longer held, and that were passed over."
        self._options = options
        self._session = session
        self._changed = changed
        self._exact = exact
        self._poll_s = poll_s
        self._awake = asyncio.Event()
        self._held = True
        "What was before is on its way: nothing is settled meanwhile."
        self._repeats = (Location(0, 0), Location(0, 0))
        "A relay that knows less of the track than we do sends again what we have."
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        if position is not None:
            self._begin(position)

    def wake(self) -> None:
        """Somebody publishes it, perhaps again."""
        self._awake.set()

    def settled(self) -> Position | None:
        """How far it may be read; None if that is not known yet."""
        if self.frontier is None:
            return None
        return self.frontier.position if self._held else self.frontier.advance()

    def _begin(self, position: Position) -> Frontier:
        self.begun_at = position
        self.frontier = Frontier(position, self._options.settle_s)
        return self.frontier

    # -- from relay to relay -----------------------------------------------------------------------

    async def run(self) -> None:
        """Follow it for ever."""
        while True:
            session = await self._session()
            self._awake.clear()
            try:
                await self._follow(session)
            except SessionClosed as why:
                log.info("%s at %s: %s", self.key, session.url, why)
                await asyncio.sleep(RETRY_S)
                continue
            finally:
                self._stop_timer()
            self.caught_up.set()
            self._changed()
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._awake.wait()
            except TimeoutError:
                pass

    async def _follow(self, session: Session) -> None:
        """Until the track ends, or nobody publishes it."""
        self._held = True
        subscription = session.subscribe(
            self.track.namespace, self.track.name, ordered=False, wait=False, markers=True
        )
        async with subscription:
            try:
                info = await subscription.established()
            except RequestRefused as refused:
                if refused.code not in _ABSENT:
                    raise
                self.was_absent = self.was_absent or not self.caught_up.is_set()
                await self._leftovers(session)
                return
            self.present.set()
            largest = info.largest
            end = Location(0, 0) if largest is None else after(largest)
            frontier = self.frontier or self._begin(Position(end))
            self._repeats = end, frontier.position.at
            reading = asyncio.ensure_future(self._read(subscription, frontier))
            try:
                await self._catch_up(session, frontier, end)
                self.caught_up.set()
                await self._tend(session, frontier, reading)
            finally:
                reading.cancel()
                await asyncio.wait((reading,))

    async def _read(self, subscription: Subscription, frontier: Frontier) -> None:
        loop = asyncio.get_running_loop()
        while items := await subscription.some():
            self._add(items, frontier, loop.time())
            if not self._held:
                self._stir()

    def _add(self, items: list[Object], frontier: Frontier, now: float) -> None:
        normal, add = ObjectStatus.NORMAL, frontier.add
        for item in items:
            if item.status is normal:
                if not add(item.group, item.id, now):
                    self._late(item, frontier)
            elif item.status in _ENDS:
                frontier.end_group(item.group, item.id, now)

    def _late(self, item: Object, frontier: Frontier) -> None:
        first, end = self._repeats
        if first <= item.location < end:
            frontier.late -= 1
        elif frontier.late & (frontier.late - 1) == 0:  # the first, the second, the fourth, ...
            log.warning(
                "%s: object %s came when the query was at %s already, and is not in its rows; it "
                "is the %dth; a longer settle_ms waits for it",
                self.key,
                show(item.location),
                show(frontier.position.at),
                frontier.late,
            )

    # -- what is missing ---------------------------------------------------------------------------

    async def _catch_up(self, session: Session, frontier: Frontier, end: Location) -> None:
        """See what was there before the subscription began."""
        start = frontier.position.at
        if start < end:
            exact = self._exact and start > BEGINNING.at
            unknown = await self._fetch(session, frontier, start, end)
            if any(exact or last.group >= end.group for _, last in unknown):
                # It may be on its way to the relay.
                await asyncio.sleep(self._options.settle_s)
                unknown = await self._fetch(session, frontier, start, end)
            if unknown and exact:
                self._lost(session, frontier, start, end, unknown)
            frontier.settle(end)
        self._exact = True
        self._held = False
        self._stir()

    async def _leftovers(self, session: Session) -> None:
        """Nobody publishes it: see what the relay still has of it."""
        if self.frontier is None:
            self._begin(await self._end_of(session))
        frontier = self.frontier
        assert frontier is not None  # noqa: S101 - it was begun
        start = frontier.position.at
        fetch = session.fetch(self.track.namespace, self.track.name, start=start)
        now = asyncio.get_running_loop().time
        try:
            async with fetch:
                while items := await fetch.some():
                    self._add(items, frontier, now())
                    self.present.set()
        except RequestRefused as refused:
            if refused.code not in _UNKNOWN:
                raise
        end = frontier.largest
        if end is not None and end >= start:
            unknown = [(a, b) for a, b in fetch.unknown if a <= end]
            if unknown and self._exact and start > BEGINNING.at:
                self._lost(session, frontier, start, after(end), unknown)
            frontier.settle(after(end))
        self._held = False

    async def _end_of(self, session: Session) -> Position:
        """Behind what the relay has of it; if that is nothing, whatever comes is new."""
        try:
            info = await session.track_status(self.track.namespace, self.track.name)
        except RequestUnauthorized:
            raise
        except RequestRefused:
            return BEGINNING
        return BEGINNING if info.largest is None else Position(after(info.largest))

    async def _tend(
        self, session: Session, frontier: Frontier, reading: asyncio.Future[None]
    ) -> None:
        """Ask for what is overdue, until the subscription ends."""
        loop = asyncio.get_running_loop()
        while not reading.done():
            due = asyncio.ensure_future(self._due.wait())
            try:
                await asyncio.wait((reading, due), return_when=asyncio.FIRST_COMPLETED)
            finally:
                due.cancel()
            self._due.clear()
            await self._ask(session, frontier, loop.time())
            self._stir()
        try:
            reading.result()
        except RequestRefused as refused:
            # The subscription was ended, not the track: it goes on with another.
            raise SessionClosed(str(refused)) from None
        await self._ask(session, frontier, math.inf)
        frontier.finish()

    async def _ask(self, session: Session, frontier: Frontier, now: float) -> None:
        """Whatever a relay has of what is overdue; the rest is not there, or was not published."""
        frontier.advance()
        upto = frontier.overdue(now)
        if upto is not None:
            await self._fetch(session, frontier, frontier.position.at, upto)
            frontier.settle(upto)

    async def _fetch(
        self, session: Session, frontier: Frontier, start: Location, end: Location
    ) -> list[tuple[Location, Location]]:
        """See what a relay has of a range; the parts of it that the relay does not know."""
        last = fetch_end(end)
        if last is None or (last.object and last <= start):
            return []
        fetch = session.fetch(self.track.namespace, self.track.name, start=start, end=last)
        now = asyncio.get_running_loop().time
        try:
            async with fetch:
                while items := await fetch.some():
                    self._add(items, frontier, now())
        except RequestRefused as refused:
            if refused.code not in _UNKNOWN:
                raise
            return [(start, end)]
        return fetch.unknown

    def _lost(
        self,
        session: Session,
        frontier: Frontier,
        start: Location,
        end: Location,
        unknown: list[tuple[Location, Location]],
    ) -> None:
        spans = frontier.spans(start, end)
        count = sum(span.count for span in spans)
        held = f"{session.url} holds nothing of it"
        if spans:
            first = Location(spans[0].group, spans[0].first)
            held = f"{session.url} holds {count} objects of it, from {show(first)} on"
        missing = ", ".join(f"{show(a)} to {show(b)}" for a, b in unknown[:3])
        wanted = f"from {show(start)} up to {show(end)}"
        lost = data_lost(self.key, wanted, f"{held}, and does not know {missing}")
        if self._options.fail_on_data_loss:
            raise lost
        self.skipped += len(unknown)
        log.warning("%s", lost)

    # -- time --------------------------------------------------------------------------------------

    def _stir(self) -> None:
        """Something has changed: when is something overdue?"""
        self._changed()
        if self.frontier is None:
            return
        self.frontier.advance()
        deadline = self.frontier.deadline
        if deadline is None:
            self._stop_timer()
        elif self._timer is None or self._timer.when() > deadline or self._timer.cancelled():
            self._stop_timer()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(deadline, self._now_due)

    def _now_due(self) -> None:
        self._timer = None
        self._due.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
