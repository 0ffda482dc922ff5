"""`laps trace`: the objects of a track at every relay at once, and the delay that each hop adds.

Each relay says when an object began to arrive and from whom, so an object's way needs no other
knowledge: the delay of a hop is the difference between its arrivals at the two ends. A relay that
joins the tree shows by itself, since all relays are asked from the beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from laps.admin.client import AdminError
from laps.admin.schema.tracks import Arrival, Missed, OneTrack
from laps.inspect.relays import find_more

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.inspect.names import Wanted
    from laps.inspect.relays import Relays, Where

Place = tuple[int, int, int]
"Group, subgroup and object; subgroup -1 for a datagram."
Link = tuple[str, ...]
"From a relay to the next, or to a later one where those between have not shown an object."
Above = dict[str, str]
"The relay that each has the track from, where that is one."

# What comes later than this is shown as missing where it was.
GRACE_S: Final = 0.5

# Objects that wait for the rest of their arrivals: half a second of a fast track.
MAX_OPEN: Final = 20_000

# The figures of a hop are of this many objects at most, the last ones.
MAX_SAMPLES: Final = 100_000

END_OF_TRACK: Final = 4

# How often it is seen whether relays have come, and whether anybody still publishes.
LOOK_S: Final = 1.0

# How often what is complete is shown.
TURN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Passage:
    """One object on its way over one link."""

    link: Link
    delay_us: float


@dataclass(slots=True)
class Traced:
    """An object, and when it began to arrive where."""

    place: Place
    size: int
    status: int = 0
    arrivals: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    "By relay: when, and from whom; None for a publisher there."
    again: list[Link] = field(default_factory=list)
    "Where it came a second time."

    def passages(self, above: Above) -> list[Passage]:
        """Each way it came between two relays that both saw it."""
        passed = []
        for node, (at, source) in sorted(self.arrivals.items(), key=lambda item: item[1][0]):
            link = [node]
            while source is not None and source not in link:
                link.append(source)
                if source in self.arrivals:
                    delay_us = (at - self.arrivals[source][0]) * 1e6
                    passed.append(Passage(tuple(reversed(link)), delay_us))
                    break
                source = above.get(source)
        return passed

    def totals(self) -> list[Passage]:
        """From the publisher's relay to each relay that is more than a hop away."""
        first = [node for node, (_, source) in self.arrivals.items() if source is None]
        if len(first) != 1:
            return []
        began = self.arrivals[first[0]][0]
        return [
            Passage((first[0], node), (at - began) * 1e6)
            for node, (at, source) in self.arrivals.items()
            if source not in (None, first[0])
        ]

    def to_mapping(self, above: Above) -> dict[str, Any]:
        """For programs."""
        group, subgroup, number = self.place
        return {
            "group": group,
            "subgroup": None if subgroup < 0 else subgroup,
            "object": number,
            "bytes": self.size,
            "arrivals": [
                {"node": node, "at": at, "from": source}
                for node, (at, source) in sorted(self.arrivals.items(), key=lambda i: i[1][0])
            ],
            "hops": [
                {**link_mapping(hop.link), "delay_us": round(hop.delay_us)}
                for hop in self.passages(above)
            ],
        }


def link_mapping(link: Link) -> dict[str, Any]:
    """For programs; `through` are relays between the two that did not show an object."""
    ends = {"from": link[0], "to": link[-1]}
    return ends if len(link) == 2 else {**ends, "through": list(link[1:-1])}


class Collector:
    """Puts together what relays say of each object."""

    def __init__(self) -> None:
        self.objects = 0
        "How many are complete, or were waited for long enough."
        self.missed: dict[str, int] = {}
        "How many each relay saw and could not tell of."
        self.again: dict[Link, int] = {}
        "How many came a second time."
        self.hops: dict[Link, list[float]] = {}
        self.ends: dict[Link, list[float]] = {}
        "From the publisher's relay to those after the next."
        self.unseen: dict[Link, int] = {}
        "How many the near end of a link had, and the far end did not tell of."
        self.above: Above = {}
        self.ended = False
        "The publisher has ended the track."
        self._open: OrderedDict[Place, tuple[float, Traced]] = OrderedDict()
        self._done: OrderedDict[Place, None] = OrderedDict()

    def take(self, node: str, line: Arrival | Missed, now: float) -> None:
        """A line of a relay's trace."""
        if isinstance(line, Missed):
            self.missed[node] = self.missed.get(node, 0) + line.missed
            return
        status = 0 if line.status is UNSET else line.status
        place = line.group, -1 if line.subgroup is None else line.subgroup, line.object
        self.ended = self.ended or status == END_OF_TRACK
        if place in self._done:
            return
        _, traced = self._open.setdefault(place, (now, Traced(place, line.bytes, status)))
        if node in traced.arrivals:
            link = (str(line.source), node)
            traced.again.append(link)
            self.again[link] = self.again.get(link, 0) + 1
        else:
            traced.arrivals[node] = line.at, line.source

    def ripe(self, now: float) -> Iterator[Traced]:
        """The objects that nothing more is to come of, in the order they came."""
        while self._open:
            since, traced = next(iter(self._open.values()))
            if now - since < GRACE_S and len(self._open) <= MAX_OPEN:
                break
            self._open.popitem(last=False)
            self._done[traced.place] = None
            if len(self._done) > MAX_OPEN:
                self._done.popitem(last=False)
            self._count(traced)
            yield traced

    def _count(self, traced: Traced) -> None:
        self.objects += 1
        for hop in traced.passages(self.above):
            _keep(self.hops.setdefault(hop.link, []), hop.delay_us)
        for hop in traced.totals():
            _keep(self.ends.setdefault(hop.link, []), hop.delay_us)
        for link in self.hops:
            if link[0] in traced.arrivals and link[-1] not in traced.arrivals:
                self.unseen[link] = self.unseen.get(link, 0) + 1

    def summary(self) -> dict[str, Any]:
        """Figures of each hop, for programs."""
        return {
            "objects": self.objects,
            "hops": [
                {
                    **link_mapping(link),
                    **_figures(delays),
                    "unseen": self.unseen.get(link, 0),
                    "again": self.again.get(link, 0),
                }
                for link, delays in self.hops.items()
            ],
            "ends": [
                {**link_mapping(link), **_figures(delays)} for link, delays in self.ends.items()
            ],
            "missed": self.missed,
        }


def _keep(samples: list[float], value: float) -> None:
    samples.append(value)
    if len(samples) > MAX_SAMPLES:
        del samples[: MAX_SAMPLES // 10]


def _figures(delays: list[float]) -> dict[str, Any]:
    ordered = sorted(delays)
    return {
        "objects": len(ordered),
        "p50_us": round(quantile(ordered, 0.5)),
        "p99_us": round(quantile(ordered, 0.99)),
        "most_us": round(ordered[-1]),
        "negative": sum(delay < 0 for delay in ordered),
    }


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that this share of all is not above."""
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(len(ordered) - 1, max(0, rank - 1))]


# -- all relays at once ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Until:
    """When to end."""

    seconds: float | None = None
    objects: int | None = None
    idle_s: float = 10.0


class Tracer:
    """One trace of one track at all relays."""

    def __init__(
        self,
        relays: Relays,
        where: Where,
        wanted: Wanted,
        show: Callable[[Traced], None],
        tell: Callable[[str], None],
    ) -> None:
        """`show` is called for each object, `tell` with words about what happens."""
        self.collector = Collector()
        self._relays = relays
        self._where = where
        self._wanted = wanted
        self._show = show
        self._tell = tell
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._last = time.monotonic()
        self._origins: list[str] = []
        self._published = False
        self._stopped = False

    def stop(self) -> None:
        """End it soon."""
        self._stopped = True

    async def run(self, until: Until) -> str:
        """Follow until something ends it; what that was."""
        await self._look()
        looking = asyncio.ensure_future(self._keep_looking())
        try:
            return await self._run(until)
        finally:
            tasks = [looking, *self._streams.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, until: Until) -> str:
        began = self._last = time.monotonic()
        while True:
            now = time.monotonic()
            for traced in self.collector.ripe(now):
                self._show(traced)
                if until.objects is not None and self.collector.objects >= until.objects:
                    count = until.objects
                    return "1 object was seen" if count == 1 else f"{count} objects were seen"
            if (why := self._over(until, began)) is not None:
                # What is on its way is waited for; what comes meanwhile is no longer wanted.
                await asyncio.sleep(GRACE_S)
                for traced in self.collector.ripe(now + GRACE_S):
                    self._show(traced)
                return why
            await asyncio.sleep(TURN_S)

    def _over(self, until: Until, began: float) -> str | None:
        now = time.monotonic()
        if until.seconds is not None and now - began >= until.seconds:
            return f"{until.seconds:g} s are over"
        quiet = now - self._last
        if self.collector.ended and quiet >= LOOK_S:
            return "the track has ended: its publisher says so"
        if quiet >= LOOK_S and self._published and not self._origins:
            return "the track has ended: nobody publishes it any more"
        if quiet >= until.idle_s:
            return f"nothing came for {until.idle_s:g} s (--idle)"
        if self._stopped:
            return "it was stopped"
        return None if self._relays.apis else "no relay answers any more"

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        """Begin at relays that have come, and see where it is published."""
        await find_more(self._relays, self._where)
        for node, task in list(self._streams.items()):
            if task.done():
                del self._streams[node]
        for node in self._relays.apis:
            if node not in self._streams:
                self._streams[node] = asyncio.ensure_future(self._follow(node))
        rows = await self._relays.ask(lambda api: api.find(OneTrack, self._wanted.hash))
        self._origins = [node for node, row in rows.items() if row.origin]
        self._published = self._published or bool(self._origins)
        self.collector.above = {
            node: row.ingress[0] for node, row in rows.items() if len(row.ingress) == 1
        }

    async def _follow(self, node: str) -> None:
        """What one relay says, until it has left."""
        api = self._relays.apis[node]
        try:
            async for line in api.trace(self._wanted.hash):
                now = time.monotonic()
                if isinstance(line, Arrival):
                    self._last = now
                self.collector.take(node, line, now)
        except AdminError as error:
            self._tell(f"{node} tells no more: {error}")
            self._relays.apis.pop(node, None)
