"""A track that an application publishes, whatever protocol it is sent by."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Final, Generic

from laps.client.carrier import C
from laps.client.history import History
from laps.client.tokens import NO_TOKEN
from laps.errors import LapsError, SessionClosed
from laps.names import track_text

if TYPE_CHECKING:
    from laps.client.lasting import LastingSession
    from laps.client.tokens import TokenSource
    from laps.types import TrackName

# A publisher that never has to wait lets others have their turn after so many objects.
OBJECTS_PER_TURN: Final = 64

# At the end of a track its relay is given this long to say whether it wants it at all.
ANSWER_S: Final = 5.0


def group_of_now() -> int:
    """A first group: milliseconds since 1970, so that it is larger in every later run.

    A run that makes fewer than a thousand groups a second ends below where the next one begins.
    """
    return int(time() * 1000)


class Publication(Generic[C]):
    """What the tracks of all protocols share."""

    def __init__(
        self,
        session: LastingSession[C],
        name: TrackName,
        history_bytes: int,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        self.full_name = name
        self.token = token
        "Its own, beside that of the session."
        self.history = History(history_bytes)
        self.ended = False
        self._session = session
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._written = 0

    # -- writing -----------------------------------------------------------------------------------

    async def room(self) -> None:
        """Wait until another object may be written."""
        self._check()
        self._written += 1
        if self._written % OBJECTS_PER_TURN == 0:
            await asyncio.sleep(0)
            self._check()
        if not self._session.connected:
            await self._session.channel()
        await self._flows_have_room()

    async def _flows_have_room(self) -> None:
        """Wait for the relays that it is sent to."""
        raise NotImplementedError

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.ended:
            raise LapsError(f"{track_text(self.full_name)} has ended: nothing can be written to it")

    @property
    def failed(self) -> bool:
        """Whether the relay has refused it, or is gone for good: every call says why."""
        return self._failure is not None

    def fail(self, error: Exception) -> None:
        """The relay does not want the track: the next write says why."""
        self._failure = self._failure or error
        self._changed.set()

    # -- who wants it ------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether a relay wants objects now."""
        raise NotImplementedError

    async def wait_wanted(self) -> None:
        """Wait until a relay wants objects: with `forward=False`, for the first subscriber."""
        while not self.wanted:
            self._check()
            await self._session.channel()
            self._changed.clear()
            if not self.wanted:
                await self._changed.wait()

    def changed(self) -> None:
        """A relay has changed its mind."""
        self._changed.set()

    def attach(self, channel: C) -> None:
        """Publish on a channel; what no relay may have of it is sent again."""
        raise NotImplementedError

    # -- the end -----------------------------------------------------------------------------------

    async def end(self) -> None:
        """End the track, and wait until the relay has all of it."""
        if self.ended:
            return
        self._check()
        await self.room()
        self._mark_end()
        self.ended = True
        try:
            while True:
                channel = await self._session.channel()
                try:
                    await self._end_on(channel)
                    return
                except SessionClosed:
                    if not self._session.may_return:
                        raise
        finally:
            self._session.dropped(self)
            self.history.clear()

    def _mark_end(self) -> None:
        """Say in the track itself that it ends."""

    async def _end_on(self, channel: C) -> None:
        """Tell a relay that nothing more comes, and wait until it has all; SessionClosed."""
        raise NotImplementedError
