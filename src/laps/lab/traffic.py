"""Publishers and subscribers of a lab: real clients, whose objects say when they were made.

The payload of each object begins with a line of JSON, with its number in the track and the time:
who reads it knows how long it took, and what is missing. `laps sub` shows the same.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from laps import client
from laps.errors import LapsError
from laps.lab.network import NAME, NAMESPACE
from laps.ranges import after

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.lab.network import Kind, Publisher, Subscriber
    from laps.types import Location

log = logging.getLogger(__name__)

# A client that cannot reach its relay tries again this often.
AGAIN_S: Final = 0.5

# A group that is late holds up the next ones for so long: objects are to come in order.
PATIENCE_S: Final = 10.0

# What the live figures are of.
RECENT: Final = 300

# What the figures of a whole run are of, so that a lab that runs for days does not grow.
REMEMBERED: Final = 100_000

# The largest gap that is known by its numbers.
KNOWN_MISSING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kind of track is made."""

    per_s: float
    per_group: int
    first_bytes: int
    "Of the first object of a group, and of the others; 0: as long as what it says."
    bytes: int


# Video: 2 Mbit/s, a group a second, whose first object is a whole picture.
SHAPES: Final[dict[Kind, Shape]] = {
    "clock": Shape(1, 1, 0, 0),
    "video": Shape(30, 30, 60_000, (250_000 - 60_000) // 29),
    "sensor": Shape(10, 10, 0, 0),
}


class Stamp(msgspec.Struct):
    """What the first line of each payload says."""

    number: int
    at: float


_stamp: Final = msgspec.json.Decoder(Stamp)


def payload(kind: Kind, number: int, at: float) -> bytes:
    """An object of a track."""
    shape = SHAPES[kind]
    said: dict[str, Any] = {"number": number, "at": at}
    if kind == "clock":
        said["clock"] = time.strftime("%H:%M:%S", time.gmtime(at))
    elif kind == "sensor":
        said["celsius"] = round(21 + 3 * math.sin(number / 100), 2)
    made = json.dumps(said).encode()
    wanted = shape.bytes if number % shape.per_group else shape.first_bytes
    return made if not wanted else made + b"\n" + bytes(max(0, wanted - len(made) - 1))


class Writer:
    """A publisher at its relay, which numbers its objects from 0."""

    def __init__(self, spec: Publisher, url: str) -> None:
        self.spec = spec
        self.url = url
        self.written = 0
        self.error = ""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Write no more; the track is ended where the relay can still be told."""
        self._stop.set()

    async def run(self) -> None:
        """Publish until it is stopped."""
        shape = SHAPES[self.spec.kind]
        while not self._stop.is_set():
            try:
                async with client.connect(self.url, reconnect_s=3600) as session:
                    self.error = ""
                    track = await session.publish(f"{NAMESPACE}/{self.spec.track}", NAME)
                    begun = time.monotonic() - self.written / shape.per_s
                    while not await self._stopped(begun + self.written / shape.per_s):
                        made = payload(self.spec.kind, self.written, time.time())
                        new_group = self.written % shape.per_group == 0
                        await track.write(made, new_group=new_group)
                        self.written += 1
                    await track.end()
            except LapsError as error:
                self.error = str(error)
                log.info("publisher of %s at %s: %s", self.spec.track, self.spec.node, error)
                await asyncio.sleep(AGAIN_S)

    async def _stopped(self, due: float) -> bool:
        """Wait until the next object is due; whether there is to be none."""
        wait = due - time.monotonic()
        if wait > 0 and not self._stop.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self._stop.wait()
            except TimeoutError:
                return False
        return self._stop.is_set()


@dataclass(slots=True)
class Account:
    """What a subscriber has received of a track, by the objects' numbers."""

    first: int | None = None
    "Where its subscription began."
    following: int = 0
    "The number behind the largest."
    received: int = 0
    duplicates: int = 0
    late: int = 0
    "Came behind a later one."
    bytes: int = 0
    missing: set[int] = field(default_factory=set)
    fetched: int = 0
    "Of what is missing, had from relays that keep it, by FETCH."

    def take(self, number: int, size: int) -> None:
        """An object has come."""
        self.bytes += size
        if self.first is None:
            self.first = self.following = number
        if number >= self.following:
            self.received += 1
            gap = range(self.following, number)
            self.missing.update(gap[: max(0, KNOWN_MISSING - len(self.missing))])
            self.following = number + 1
        elif number in self.missing:
            self.missing.discard(number)
            self.received += 1
            self.late += 1
        else:
            self.duplicates += 1

    def lost(self, written: int) -> list[range]:
        """What has not come of a track with so many objects, as runs of numbers."""
        numbers = sorted(self.missing)
        if self.first is not None:
            numbers += range(self.following, written)
        runs: list[range] = []
        for number in numbers:
            if runs and runs[-1].stop == number:
                runs[-1] = range(runs[-1].start, number + 1)
            else:
                runs.append(range(number, number + 1))
        return runs


class Reader:
    """A subscriber at its relay."""

    def __init__(self, spec: Subscriber, url: str, heard: Callable[[], None]) -> None:
        self.spec = spec
        self.url = url
        self.account = Account()
        self.error = ""
        self.over = False
        "The track has ended, and the relay has given all it has."
        self.latencies = array("d")
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._namespace = f"{NAMESPACE}/{spec.track}"
        self._heard = heard
        self.pause_s = 0.0
        "The longest time between two objects, since somebody began to look."
        self._last_at = time.monotonic()
        self._behind: Location | None = None
        self._fetching: list[asyncio.Task[None]] = []

    def watch_pauses(self) -> None:
        """Find out the longest pause from now on."""
        self.pause_s = 0.0

    async def run(self) -> None:
        """Read until the track ends; where the connection is lost for good, begin again there."""
        while not self.over:
            try:
                async with client.connect(self.url, reconnect_s=3600) as session:
                    self.error = ""
                    await self._read(session)
                    self.over = True
            except LapsError as error:
                self.error = str(error)
                log.info("subscriber of %s: %s", self.spec, error)
                await asyncio.sleep(AGAIN_S)
        self._heard()

    async def _fetch(self, session: client.Session, behind: Location, until: Location) -> None:
        """See whether what was missed between two objects can still be had."""
        start = after(behind)
        # An object of 0 stands for the whole group.
        end = until if until.object else (until.group - 1, 0)
        try:
            async for obj in session.fetch(self._namespace, NAME, start=start, end=end):
                stamp = _stamp.decode(obj.payload.partition(b"\n")[0])
                self.account.fetched += stamp.number in self.account.missing
        except LapsError as error:
            log.info("subscriber of %s: what it missed cannot be fetched: %s", self.spec, error)

    async def _read(self, session: client.Session | client.QuicrSession) -> None:
        start: Any = "next"  # a whole group: where one begins in the middle of is no clear place
        if self._behind is not None:
            start = after(self._behind)
        objects = session.subscribe(self._namespace, NAME, start=start, patience_s=PATIENCE_S)
        async for obj in objects:
            now, at = time.time(), time.monotonic()
            self.pause_s = max(self.pause_s, at - self._last_at)
            self._last_at = at
            stamp = _stamp.decode(obj.payload.partition(b"\n")[0])
            gap = self.account.first is not None and stamp.number > self.account.following
            self.account.take(stamp.number, len(obj.payload))
            if gap and self._behind is not None and isinstance(session, client.Session):
                missed = self._fetch(session, self._behind, obj.location)
                self._fetching.append(asyncio.ensure_future(missed))
            self._behind = obj.location
            took = now - stamp.at
            self.recent.append(took)
            if len(self.latencies) < REMEMBERED:
                self.latencies.append(took)
            else:
                self.latencies[self.account.received % REMEMBERED] = took
            self._heard()


def percentile(values: array[float] | deque[float], share: float) -> float | None:
    """The value that a share of them does not exceed; None of nothing."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
