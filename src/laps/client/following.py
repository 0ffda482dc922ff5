"""The objects of a track as an application reads them, from one channel after the other."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from laps.client.gaps import Gaps
from laps.client.intake import Intake, Reading
from laps.client.seen import Seen, Verdict
from laps.client.tokens import NO_TOKEN
from laps.errors import ObjectsMissing
from laps.names import track_text
from laps.wire.moqt.data import ObjectStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from laps.client.buffers import Buffer
    from laps.client.gaps import Gap
    from laps.client.lasting import LastingSession
    from laps.client.tokens import TokenSource
    from laps.client.values import Object, TrackInfo
    from laps.types import Location, TrackName

log = logging.getLogger(__name__)


class Following(Reading):
    """What the subscriptions of all protocols share: each object is given once, until the end."""

    def __init__(
        self,
        session: LastingSession[Any],
        track: TrackName,
        minimum: Location,
        *,
        buffer_bytes: int,
        markers: bool,
        strict: bool = False,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        """Objects ahead of `minimum` are not wanted."""
        self.track = track
        self.token = token
        "Its own, beside that of the session."
        self._session = session
        self._minimum = minimum
        self._markers = markers
        self._intake = Intake(buffer_bytes, finite=False)
        self._intake.buffer.on_stuck = self._stuck
        self._strict = strict
        self._broke_off: ObjectsMissing | None = None
        "Something is missing, and the reader wants all or nothing."
        self._seen = Seen()
        self._gaps = Gaps(self._seen)
        self._established: asyncio.Future[TrackInfo] = session.loop.create_future()
        self._task = asyncio.ensure_future(self._drive())

    # -- what an application calls -----------------------------------------------------------------

    @property
    def gaps(self) -> list[Gap]:
        """What is missing so far of the groups whose turn is over, in order.

        What comes late is taken off again.
        """
        return self._gaps.so_far(self._open_groups(), ended=self._intake.ended)

    async def established(self) -> TrackInfo:
        """Wait until the relay has accepted it; what the relay says of the track."""
        return await asyncio.shield(self._established)

    def close(self) -> None:
        """Stop, and tell the relay."""
        self._task.cancel()
        self._end(None)
        self._intake.clear()

    def _end(self, error: Exception | None) -> None:
        if error is None and self._strict and (gaps := self._gaps.so_far((), ended=True)):
            error = _missing(self.track, gaps)
        self._leave()
        self._intake.finish(error)
        self._intake.buffer.attach()
        if not self._established.done():
            if error is None:
                self._established.cancel()
            else:
                self._established.set_exception(error)
                self._established.exception()  # it may be that nobody waits for it
        self._session.dropped(self)

    def _leave(self) -> None:
        """Nothing more is wanted from any channel."""
        raise NotImplementedError

    def _open_groups(self) -> Collection[int]:
        """The groups of which more may come on a stream that is open."""
        return ()

    # -- objects -----------------------------------------------------------------------------------

    @property
    def buffer(self) -> Buffer:
        """Where all that waits for the application is counted."""
        return self._intake.buffer

    def deliver(self, items: Iterable[Object]) -> None:
        """Those that are new go to the application; their cost is counted already."""
        fresh: list[Object] = []
        dropped = 0
        for item in items:
            if self._is_wanted(item):
                fresh.append(item)
            else:
                dropped += item.cost
        if dropped:
            self._intake.buffer.take(dropped)
        if fresh:
            self._intake.push(fresh)
        self._break_off()

    def _is_wanted(self, item: Object) -> bool:
        if item.location < self._minimum or self._broke_off is not None:
            return False
        if item.status is not ObjectStatus.NORMAL:
            if item.status is ObjectStatus.DOES_NOT_EXIST:
                self._gaps.does_not_exist(item.location)
            else:
                self._gaps.ended(item.location)
            return self._markers and self._seen.mark(item.location)
        verdict = self._seen.add(item.group, item.id, item.payload)
        if verdict is Verdict.ANOTHER:
            log.info("%s begins anew at group %d", track_text(self.track), item.group)
            self._seen.start(item.location)
            self._gaps.start(item.location)
            verdict = self._seen.add(item.group, item.id, item.payload)
        if verdict is not Verdict.NEW:
            return False
        if item.extensions:
            self._gaps.explained(item.location, item.extensions)
        if item.group != self._gaps.group:
            self._gaps.moved(item.location, self._open_groups())
            if self._is_missing():
                return False
        return True

    def _is_missing(self) -> bool:
        """Whether there is a gap, and the reader is not to be given what follows it."""
        if not (self._strict and self._gaps):
            return False
        self._broke_off = _missing(self.track, self._gaps.so_far(self._open_groups()))
        return True

    def _break_off(self) -> None:
        if self._broke_off is not None and not self._intake.ended:
            self._task.cancel()
            self._end(self._broke_off)

    def _stuck(self) -> None:
        """The application waits, and what there is has to wait for something else."""
        raise NotImplementedError

    # -- from channel to channel -------------------------------------------------------------------

    async def _drive(self) -> None:
        try:
            while not await self._follow():
                pass
            self._end(None)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._end(error)

    async def _follow(self) -> bool:
        """Live on the session's channel until that is over; True if the track is."""
        raise NotImplementedError


def _missing(track: TrackName, gaps: list[Gap]) -> ObjectsMissing:
    more = f", and {len(gaps) - 1} more" if len(gaps) > 1 else ""
    return ObjectsMissing(f"{track_text(track)} has a gap: {gaps[0]}{more}")
