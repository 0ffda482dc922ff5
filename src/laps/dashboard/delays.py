"""How much later the objects of a track begin to arrive at each relay, while somebody looks at it.

A trace takes time of a relay's data path: only tracks that are chosen on a page are traced,
for as long as they are.
"""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.dashboard.watching import Watch

# What delays are taken of: a few seconds of video.
KEPT_OBJECTS = 128

# Pages that look at more tracks than these at once see the delays of the latest.
MAX_TRACED = 4

# A page asks each second; after this long without, nobody looks any more.
LEAVE_S = 5.0

Place = tuple[int | None, ...]


class Arrivals:
    """When the latest objects of a track came to which relay, by the relays' own clocks."""

    def __init__(self) -> None:
        self._objects: dict[Place, dict[str, float]] = {}

    def note(self, node: str, place: Place, at: float) -> None:
        """One has begun to arrive; what comes again counts once."""
        self._objects.setdefault(place, {}).setdefault(node, at)
        if len(self._objects) > KEPT_OBJECTS:
            del self._objects[next(iter(self._objects))]

    def added_us(self) -> dict[str, int]:
        """By node, at the median, how long after the relay that had it first."""
        later: dict[str, list[float]] = {}
        for times in self._objects.values():
            first = min(times.values())
            for node, at in times.items() if len(times) > 1 else ():
                later.setdefault(node, []).append(at - first)
        return {node: round(1e6 * median(delays)) for node, delays in later.items()}


class TracedTrack:
    """One track, traced at every relay that carries it."""

    def __init__(self, track: str) -> None:
        self.track = track
        self.wanted = 0.0
        "When a page asked last."
        self.arrivals = Arrivals()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def keep(self, watches: Iterable[Watch]) -> None:
        """Trace it at relays that carry it and are not traced yet, or no more."""
        for watch in watches:
            task = self._tasks.get(watch.relay.url)
            if self.track in watch.relay.tracks and (task is None or task.done()):
                self._tasks[watch.relay.url] = asyncio.create_task(self._read(watch))

    async def _read(self, watch: Watch) -> None:
        async for row in watch.trace(self.track):
            place = (row.group, row.subgroup, row.object)
            self.arrivals.note(watch.relay.id, place, row.at)

    async def close(self) -> None:
        """Nobody looks any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class TrackDelays:
    """The tracks that are traced now."""

    def __init__(self) -> None:
        self._tracks: dict[str, TracedTrack] = {}

    def want(self, track: str, now: float) -> TracedTrack:
        """A page looks at it."""
        traced = self._tracks.setdefault(track, TracedTrack(track))
        traced.wanted = now
        return traced

    async def keep(self, watches: Iterable[Watch], now: float) -> None:
        """Go on with those that pages look at, and leave the others."""
        latest = sorted(self._tracks.values(), key=lambda traced: -traced.wanted)
        for index, traced in enumerate(latest):
            if index < MAX_TRACED and now - traced.wanted < LEAVE_S:
                traced.keep(watches)
            else:
                del self._tracks[traced.track]
                await traced.close()

    def added_us(self) -> Mapping[str, Mapping[str, int]]:
        """By track and node."""
        return {track: traced.arrivals.added_us() for track, traced in self._tracks.items()}

    async def close(self) -> None:
        """Leave them all."""
        for traced in self._tracks.values():
            await traced.close()
        self._tracks.clear()
