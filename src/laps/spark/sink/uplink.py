"""The way to one relay: the sessions that a sink publishes on, as long as that relay is there.

A relay allows a session so many open requests, and each track is one: for many tracks there are
several sessions. When one is lost, all are given up together.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from laps.errors import HandshakeFailed, LapsError, RequestRefused, SessionClosed
from laps.ranges import end_after
from laps.spark.source.connecting import connect_first
from laps.spark.source.offsets import parse_track_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from laps.client import Session, Track
    from laps.client.channel import Channel
    from laps.spark.source.options import Trust
    from laps.types import Location

log = logging.getLogger(__name__)

T = TypeVar("T")

TRACKS_PER_SESSION: Final = 400
"A track takes two requests, its own and its namespace's, and a relay allows a thousand."

SESSIONS: Final = 32
"Past these the one that was used least lately is closed: its tracks can be published again."

HISTORY_BYTES: Final = 64 * 1024 * 1024
"Of all tracks together, about; each begins with an equal part of it, and has no more than it may."

QUIET_S: Final = 8.0
"A relay that is sent something and says nothing for this long is not there: QUIC waits for 30 s."

ASK_S: Final = 12.0
"How long a relay may take to say what it has: it may ask a publisher that is gone, for 10 s."

STATUS_S: Final = 3.0
"How long it may take to say how far a track is: it may ask a relay that is gone."

UNDER_WAY_S: Final = 2.0
"How long an object may take to be whole that was cut off with the connection it came on."

YOUNG_S: Final = 2.0
"A relay that sends us away again within this time is about to stop: it is given time to."

ASKING: Final = 100
"So many tracks are asked about at a time."


@dataclass(slots=True, eq=False)
class _Line:
    """One session, and the tracks on it."""

    session: Session
    first: Channel
    tracks: dict[str, Track] = field(default_factory=dict)
    used: float = 0.0

    @property
    def channel(self) -> Channel:
        """The session's own, which is another one after its token was renewed."""
        return self.session.channel_in_use or self.first

    async def acknowledged(self) -> None:
        """Wait until the relay has all that was written; SessionClosed."""
        waited: Channel | None = None
        while waited is not self.channel:
            waited = self.channel
            await waited.acknowledged()

    @property
    def is_writing(self) -> bool:
        """Whether a group is open."""
        return any(track.open_subgroups for track in self.tracks.values())


class Uplink:
    """All sessions with one relay."""

    def __init__(
        self, session: Session, channel: Channel, trust: Trust, history_bytes: int
    ) -> None:
        self.url = session.url
        self._trust = trust
        self._history_bytes = history_bytes
        self._since = monotonic()
        self._lines = [_Line(session, channel)]
        self._by_track: dict[str, _Line] = {}
        self._watch = asyncio.create_task(self._watch_relay())

    @classmethod
    async def open(cls, relays: Sequence[str], trust: Trust, history_bytes: int) -> Uplink:
        """To the first relay that answers; HandshakeFailed names each and why it did not."""
        session, channel = await _connect(relays, trust)
        return cls(session, channel, trust, history_bytes)

    # -- its life ----------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether all sessions stand."""
        return all(line.channel.alive for line in self._lines)

    @property
    def going_to(self) -> str | None:
        """Where the relay sends us, that is about to stop; empty: to anybody, None: it stays."""
        if monotonic() < self._since + YOUNG_S:
            return None
        for line in self._lines:
            leaving = line.channel.leaving
            if leaving.done() and not leaving.cancelled():
                return leaving.result()
        return None

    @property
    def last_heard(self) -> float:
        """When the relay was last heard of, by the monotonic clock."""
        return min(line.channel.transport.last_heard for line in self._lines)

    async def _watch_relay(self) -> None:
        while self.alive:
            await asyncio.sleep(QUIET_S / 8)
            for line in self._lines:
                silent_s = monotonic() - line.channel.transport.last_heard
                if not line.channel.quiet and silent_s > QUIET_S:
                    log.warning(
                        "%s has said nothing for %.0f s: it is given up", self.url, silent_s
                    )
                    line.channel.close(reason="no answer")

    async def close(self) -> None:
        """Leave, without a word about the tracks: for subscribers they go on."""
        self._watch.cancel()
        for line in self._lines:
            with suppress(LapsError):
                await line.session.close(end_tracks=False)

    # -- publishing --------------------------------------------------------------------------------

    async def publish(self, keys: Collection[str]) -> None:
        """Have these tracks published, and known to the relay.

        Streams that overtake the message which explains them are kept for a while only, so nothing
        is written before the relay has it.
        """
        needed = {self._by_track[key] for key in keys if key in self._by_track}
        new: dict[_Line, str] = {}
        for key in keys:
            if key not in self._by_track:
                line = self._by_track[key] = await self._room(needed)
                name = parse_track_key(key)
                line.tracks[key] = await line.session.publish(
                    name.namespace, name.name, history_bytes=self._history()
                )
                needed.add(line)
                new[line] = key
        for line, key in new.items():
            await self._known(line, key)
        now = monotonic()
        for line in needed:
            line.used = now

    def _history(self) -> int:
        """What is kept of a track, such that many do not take all memory."""
        return min(self._history_bytes, HISTORY_BYTES // len(self._by_track))

    async def _known(self, line: _Line, key: str) -> None:
        """Wait for an answer that comes behind all that was asked before it."""
        try:
            await self._status(line, key, ASK_S)
        except RequestRefused:
            pass
        except TimeoutError:
            line.channel.close(reason="no answer")
            raise SessionClosed(f"{self.url} does not answer within {ASK_S:g} s") from None

    async def _room(self, needed: set[_Line]) -> _Line:
        """A session that can take another track."""
        for line in self._lines:
            if len(line.tracks) < TRACKS_PER_SESSION:
                return line
        # One with an open group cannot be closed: subscribers might lose the end of it.
        idle = [line for line in self._lines if line not in needed and not line.is_writing]
        if len(self._lines) >= SESSIONS and idle:
            await self._drop(min(idle, key=lambda line: line.used))
        session, channel = await _connect((self.url,), self._trust)
        self._lines.append(_Line(session, channel, used=monotonic()))
        return self._lines[-1]

    async def _drop(self, line: _Line) -> None:
        await line.acknowledged()
        self._lines.remove(line)
        for key in line.tracks:
            del self._by_track[key]
        await line.session.close(end_tracks=False)

    def track(self, key: str) -> Track:
        """A track that has been published."""
        return self._by_track[key].tracks[key]

    async def acknowledged(self) -> None:
        """Wait until the relay has all that was written; SessionClosed."""
        await asyncio.gather(*(line.acknowledged() for line in self._lines))

    async def end(self, keys: Iterable[str]) -> None:
        """End tracks, for subscribers too."""
        for key in keys:
            line = self._by_track.pop(key, None)
            if line is not None:
                await line.tracks.pop(key).end()

    # -- what the relay has ------------------------------------------------------------------------

    async def largest(self, keys: Collection[str]) -> dict[str, Location]:
        """How far the relay knows each track to be; those it does not know are left out."""
        found = await _each(keys, lambda key: self._largest(self._lines[0], key))
        return {key: at for key, at in found.items() if at is not None}

    async def _largest(self, line: _Line, key: str) -> Location | None:
        try:
            return await self._status(line, key, STATUS_S)
        except (RequestRefused, TimeoutError):
            return None

    async def _status(self, line: _Line, key: str, limit_s: float) -> Location | None:
        name = parse_track_key(key)
        async with asyncio.timeout(limit_s):
            return (await line.session.track_status(name.namespace, name.name)).largest

    async def held(
        self, wanted: Mapping[str, tuple[Location, Location]]
    ) -> dict[str, set[tuple[int, int]]]:
        """The objects of each track that the relay has, from a location to the largest it has."""
        return await _each(wanted, lambda key: self._held(key, *wanted[key]))

    async def _held(self, key: str, start: Location, largest: Location) -> set[tuple[int, int]]:
        held: set[tuple[int, int]] = set()
        if start < largest:
            await self._fetch(key, start, largest, held, ASK_S)
        # The largest may be one that was cut off, for which a relay waits: it is asked for alone.
        await self._fetch(key, largest, end_after(largest), held, UNDER_WAY_S)
        return held

    async def _fetch(
        self, key: str, start: Location, end: Location, held: set[tuple[int, int]], limit_s: float
    ) -> None:
        name = parse_track_key(key)
        if end.object == 0:  # which would mean all of the group
            end = end._replace(group=end.group - 1)
            if end.group < start.group:
                return
        objects = self._lines[0].session.fetch(name.namespace, name.name, start=start, end=end)
        try:
            async with asyncio.timeout(limit_s):
                async for item in objects:
                    held.add((item.group, item.id))
        except (RequestRefused, TimeoutError):
            pass  # what has come is there, and of the rest nothing is known
        except SessionClosed:
            if not self.alive:
                raise
        finally:
            objects.close()


async def _connect(relays: Sequence[str], trust: Trust) -> tuple[Session, Channel]:
    session = await connect_first(relays, trust)
    try:
        return session, await session.channel()
    except SessionClosed as error:
        await session.close(end_tracks=False)
        raise HandshakeFailed(f"{session.url} answers, and is gone: {error}") from None


async def _each(keys: Collection[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Ask about many tracks, some at a time."""
    turns = asyncio.Semaphore(ASKING)

    async def in_turn(key: str) -> T:
        async with turns:
            return await ask(key)

    return dict(zip(keys, await asyncio.gather(*map(in_turn, keys)), strict=True))
