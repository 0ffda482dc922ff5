"""How the driver of a query follows its tracks: live, so that relays keep them, without payloads.

    Following -> discovery    tracks below a prefix, as they come
              -> Follower     one track, each in a task of its own

A follower begins anew on the next relay when the one it reads at is lost, from where it was. What
goes wrong in any task is raised by the next call. All of it lives in the loop of `bridge`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from laps.client import RequestRefused, SessionClosed
from laps.errors import ConfigError, HandshakeFailed, LapsError, SessionUnauthorized
from laps.ranges import after
from laps.spark.source.admission import share_out
from laps.spark.source.connecting import Connection
from laps.spark.source.follower import Follower
from laps.spark.source.offsets import BEGINNING, track_key
from laps.types import Location, TrackName

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from laps.client import Session
    from laps.spark.source.offsets import Position, Positions
    from laps.spark.source.options import ReadOptions

log = logging.getLogger(__name__)

REDIAL_S: Final = 0.5
"How long to wait with the relays when none of them answers."

TRACKS_PER_SESSION: Final = 400
"A relay allows a session a thousand requests, and each track has up to two at a time."

POLL_ONE_S: Final = 1.0
"A track that nobody publishes is asked for so often, where nobody tells when it comes;"
POLL_MANY_S: Final = 30.0
"and so often where somebody does."


class Following:
    """The tracks of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self.followers: dict[TrackName, Follower] = {}
        self._options = options
        self._connections: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun = False
        self._initial: Positions | None = None
        self._answered = False
        "A relay has answered before: when none does, it is worth waiting."
        self._listed = asyncio.Event()
        "The tracks that were there at the beginning are known."
        self._error: Exception | None = None
        self._failed = asyncio.Event()
        self._targets: dict[TrackName, Location] | None = None
        "Where a query ends that reads no more than there was when it began."
        self._turn = 0
        self.stirred = True
        "Something has changed since somebody set it to False."

    # -- its beginning -----------------------------------------------------------------------------

    async def begin(self) -> Positions:
        """A new query: where it begins. Spark asks for it more than once."""
        if self._initial is None:
            self._initial = await self._begin()
        return self._initial

    async def _begin(self) -> Positions:
        starting = self._options.starting
        named = starting if isinstance(starting, dict) else {}
        for track in named:
            if not self._options.wanted.matches(track):
                raise ConfigError(
                    f'option startingOffsets names "{track_key(track)}", and what is read is '
                    f'"{self._options.wanted}"'
                )
        await self._start(named, None if starting == "latest" else BEGINNING, new=True)
        begun = {track: follower.begun_at for track, follower in self.followers.items()}
        return named | {
            track: position
            for track, position in begun.items()
            if position is not None and position != BEGINNING
        }

    async def resume(self, start: Positions) -> None:
        """A query that goes on from offsets that it had."""
        if not self._begun:
            self._initial = start
            await self._start(start, BEGINNING, new=False)

    async def _start(self, named: Positions, others: Position | None, *, new: bool) -> None:
        """Follow tracks from where they were named to be; the others from there, or their end."""
        self._begun = True
        await self._session(0)  # the time that it takes is not that of a track
        wanted = self._options.wanted
        if wanted.is_one and wanted.track is not None:
            track = TrackName(wanted.namespace, wanted.track)
            self._follow(track, named.get(track, others), exact=track in named)
            if new:
                await self._appearing(self.followers[track])
        else:
            for track, position in named.items():
                self._follow(track, position, exact=True)
            self._spawn(self._discover(others))
            await self._unless_failed(self._listed.wait())
        for follower in list(self.followers.values()):
            await self._unless_failed(follower.caught_up.wait())

    async def _appearing(self, follower: Follower) -> None:
        wait_s = self._options.wait_s
        try:
            async with asyncio.timeout(wait_s):
                await self._unless_failed(follower.present.wait())
        except TimeoutError:
            relays = " or ".join(self._options.relays)
            raise LapsError(
                f'track "{follower.key}" is not known: nobody has published it at {relays} for '
                f"{wait_s:g} s: look at the options namespace and track, or wait longer with wait_s"
            ) from None

    def _follow(self, track: TrackName, position: Position | None, *, exact: bool) -> None:
        follower = self.followers.get(track)
        if follower is not None:
            follower.wake()
            return
        index = len(self.followers) // TRACKS_PER_SESSION
        poll_s = POLL_ONE_S if self._options.wanted.is_one else POLL_MANY_S
        follower = self.followers[track] = Follower(
            track,
            position,
            self._options,
            lambda: self._session(index),
            self._stir,
            exact=exact,
            poll_s=poll_s,
        )
        self._spawn(follower.run())

    async def _discover(self, others: Position | None) -> None:
        """Follow tracks below the prefix as they come."""
        wanted = self._options.wanted
        while True:
            session = await self._session(0)
            with suppress(SessionClosed):
                async with session.tracks(wanted.prefix) as tracks:
                    await tracks.listed()
                    for track in tracks.known:
                        if wanted.matches(track):
                            self._follow(track, others, exact=False)
                    self._listed.set()
                    # Whatever comes from now on is new, and read from its beginning.
                    others = BEGINNING
                    async for event in tracks:
                        if event.added and wanted.matches(event.track):
                            self._follow(event.track, others, exact=False)

    async def _session(self, index: int) -> Session:
        """A session with the relay that is read at; HandshakeFailed when none answers."""
        options, loop = self._options, asyncio.get_running_loop()
        while index >= len(self._connections):
            self._connections.append(Connection(options.relays, options.trust))
        deadline = loop.time() + (options.wait_s if self._answered else 0.0)
        while True:
            try:
                session = await self._connections[index].session()
            except (HandshakeFailed, SessionUnauthorized) as problem:
                if loop.time() >= deadline:
                    raise
                log.warning("%s; dialling again", problem)
                await asyncio.sleep(REDIAL_S)
            else:
                self._answered = True
                return session

    # -- how far it is -----------------------------------------------------------------------------

    async def stand_still(self) -> None:
        """From now on behave as if nothing more was published."""
        # A session of its own: one cannot watch the same tracks twice.
        connection = Connection(self._options.relays, self._options.trust)
        try:
            self._targets = await self._ends(await connection.session())
        finally:
            await connection.close()

    async def _ends(self, session: Session) -> dict[TrackName, Location]:
        wanted = self._options.wanted
        if wanted.is_one and wanted.track is not None:
            names: tuple[TrackName, ...] = (TrackName(wanted.namespace, wanted.track),)
        else:
            async with session.tracks(wanted.prefix) as tracks:
                await tracks.listed()
                names = tuple(filter(wanted.matches, tracks.known))
        ends = {}
        for track in names:
            with suppress(RequestRefused):
                largest = (await session.track_status(track.namespace, track.name)).largest
                if largest is not None:
                    ends[track] = after(largest)
        return ends

    def latest(self, start: Positions, most: int | None) -> Positions:
        """How far the query may read from where it is."""
        self.check()
        ends = dict(start)
        for track, follower in self.followers.items():
            reached = self._reached(follower, begin := start.get(track, BEGINNING))
            if reached.at > begin.at:
                ends[track] = reached
        return ends if most is None else self._limited(start, ends, most)

    def _reached(self, follower: Follower, begin: Position) -> Position:
        reached = follower.settled()
        if reached is None or follower.frontier is None:
            return begin
        # Of what nobody published when the query began, nothing was published since.
        if self._targets is not None and not follower.was_absent:
            target = self._targets.get(follower.track, begin.at)
            if reached.at > target:
                return follower.frontier.at(begin, target)
        return reached

    def _limited(self, start: Positions, ends: Positions, most: int) -> Positions:
        tracks = [track for track in ends if ends[track] != start.get(track)]
        tracks.sort(key=track_key)
        begins = [start.get(track, BEGINNING) for track in tracks]
        counts = [
            ends[track].count - begin.count for track, begin in zip(tracks, begins, strict=True)
        ]
        if sum(counts) <= most:
            return ends
        limited = dict(start)
        self._turn += 1
        shares = share_out(counts, most, self._turn)
        for track, begin, count, share in zip(tracks, begins, counts, shares, strict=True):
            frontier = self.followers[track].frontier
            if share == count or frontier is None:
                limited[track] = ends[track]
            elif share:
                limited[track] = frontier.after(begin, share)
        return limited

    def forget(self, committed: Positions) -> None:
        """What lies ahead of these offsets is not read again."""
        for track, position in committed.items():
            follower = self.followers.get(track)
            if follower is not None and follower.frontier is not None:
                follower.frontier.forget(position.at)

    def counters(self) -> dict[str, int]:
        """What did not go as it should, for the progress of the query."""
        frontiers = [f.frontier for f in self.followers.values() if f.frontier is not None]
        return {
            "late": sum(frontier.late for frontier in frontiers),
            "skipped": sum(follower.skipped for follower in self.followers.values()),
        }

    # -- its end -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what went wrong, if something did."""
        if self._error is not None:
            raise self._error

    async def _unless_failed(self, waiting: Coroutine[Any, Any, Any]) -> None:
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        self.check()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _stir(self) -> None:
        self.stirred = True

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception) and self._error is None:
            self._error = error
        self._failed.set()
        self.stirred = True

    async def close(self) -> None:
        """End it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections:
            await connection.close()
