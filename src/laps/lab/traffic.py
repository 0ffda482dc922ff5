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

# How many pauses are known, and from which length on: longer than between two objects of a video.
PAUSES: Final = 1000
PAUSE_S: Final = 0.05

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


# Video: 2 Mbit/s, a group a second, whose first object is a whole picture. Audio: 64 kbit/s, little
# enough for a link that loses one packet in twenty.
SHAPES: Final[dict[Kind, Shape]] = {
    "clock": Shape(1, 1, 0, 0),
    "video": Shape(30, 30, 60_000, (250_000 - 60_000) // 29),
    "sensor": Shape(10, 10, 0, 0),
    "audio": Shape(25, 25, 320, 320),
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


@dataclass(frozen=True, slots=True)
class Twins:
    """What two publishers of one track agree on, so that both write the same bytes."""

    began: float = field(default_factory=time.time)
    first_group: int = field(default_factory=lambda: int(1000 * time.time()))

    def at(self, number: int, shape: Shape) -> float:
        """When an object is due, which is what it says of itself."""
        return self.began + number / shape.per_s


class Writer:
    """A publisher at its relay, which numbers its objects from 0."""

    def __init__(self, spec: Publisher, urls: list[str], twins: Twins | None = None) -> None:
        self.spec = spec
        self.urls = urls
        self.written = 0
        self.error = ""
        self._shape = SHAPES[spec.kind]
        self._twins = twins
        self._last: int | None = None
        self._stop = asyncio.Event()

    def stop(self, at: int | None = None) -> None:
        """Write no more than so many; the track is ended where the relay can still be told.

        Twins end it with the same object: some later, since one may be writing that one already.
        """
        self._last = self.written if at is None else at
        if self._twins is not None:
            self._last += self._shape.per_group
        self._stop.set()

    async def run(self) -> None:
        """Publish until it is stopped."""
        while not self._stop.is_set():
            try:
                async with client.connect(self.urls, reconnect_s=3600) as session:
                    self.error = ""
                    await self._publish(session)
            except LapsError as error:
                self.error = str(error)
                log.info("publisher of %s at %s: %s", self.spec.track, self.spec.node, error)
                if self._twins is not None:
                    return  # groups that it begins in the middle would not be those of the other
                await asyncio.sleep(AGAIN_S)

    async def _publish(self, session: client.Session) -> None:
        shape, twins = self._shape, self._twins
        first_group = None if twins is None else twins.first_group
        track = await session.publish(
            f"{NAMESPACE}/{self.spec.track}", NAME, first_group=first_group
        )
        begun = time.time() - self.written / shape.per_s if twins is None else twins.began
        while not await self._stopped(begun + self.written / shape.per_s):
            at = time.time() if twins is None else twins.at(self.written, shape)
            made = payload(self.spec.kind, self.written, at)
            await track.write(made, new_group=self.written % shape.per_group == 0)
            self.written += 1
        await track.end()

    async def _stopped(self, due: float) -> bool:
        """Wait until the next object is due; whether there is to be none."""
        wait = due - time.time()
        if wait > 0 and not self._stop.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self._stop.wait()
            except TimeoutError:
                return False
        return self._last is not None and self.written >= self._last


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

    def __init__(self, spec: Subscriber, urls: list[str], heard: Callable[[], None]) -> None:
        self.spec = spec
        self.urls = urls
        self.account = Account()
        self.error = ""
        self.over = False
        "The track has ended, and the relay has given all it has."
        self.latencies = array("d")
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._namespace = f"{NAMESPACE}/{spec.track}"
        self._heard = heard
        self._pauses: deque[tuple[float, float]] = deque(maxlen=PAUSES)
        "When each ended, and how long it was."
        self._last_at = time.monotonic()
        self._behind: Location | None = None
        self._fetching: list[asyncio.Task[None]] = []

    def pause_since(self, at: float) -> float:
        """The longest time without an object that lasted until a moment or began after it."""
        waits = 0.0 if self.over else time.monotonic() - self._last_at
        return max(waits, *(length for ended, length in self._pauses if ended >= at), 0.0)

    async def run(self) -> None:
        """Read until the track ends; where the connection is lost for good, begin again there."""
        while not self.over:
            try:
                async with client.connect(self.urls, reconnect_s=3600) as session:
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
            if at - self._last_at > PAUSE_S:
                self._pauses.append((at, at - self._last_at))
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
