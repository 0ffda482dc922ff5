"""`laps trace`: the objects of a track at every relay at once, and the delay that each hop adds.

Each relay says when an object began to arrive and from whom, so an object's way needs no other
knowledge: the delay of a hop is the difference between its arrivals at the two ends. A relay that
joins the tree shows by itself, since all relays are asked from the beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[int, int, int]
"Group, subgroup and object; subgroup -1 for a datagram."
Link = tuple[str, ...]
"From a relay to the next; or to one behind it, where those between have not told of an object."
Above = dict[str, str]
"The relay that each has the track from, where that is one."

# What comes later than this is shown as missing where it was.
GRACE_S: Final = 0.5

# Objects that wait for the rest of their arrivals: half a second of a fast track.
MAX_OPEN: Final = 20_000

# The figures of a hop are of so many objects at most, the last ones.
MAX_SAMPLES: Final = 100_000

END_OF_TRACK: Final = 4


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
        """Each way it came between two relays that have said when."""
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
    """For programs; `through` are relays between the two that have not told of an object."""
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
        "From the publisher's relay to those behind the next."
        self.unseen: dict[Link, int] = {}
        "How many the near end of a link had, and the far end did not tell of."
        self.above: Above = {}
        self.ended = False
        "The publisher has said that the track is over."
        self._open: OrderedDict[Place, tuple[float, Traced]] = OrderedDict()
        self._done: OrderedDict[Place, None] = OrderedDict()

    def take(self, node: str, line: dict[str, Any], now: float) -> None:
        """A line of a relay's trace."""
        if "missed" in line:
            self.missed[node] = self.missed.get(node, 0) + int(line["missed"])
            return
        if "group" not in line:
            return
        subgroup = -1 if line.get("subgroup") is None else int(line["subgroup"])
        place = int(line["group"]), subgroup, int(line["object"])
        source = line.get("from")
        self.ended = self.ended or line.get("status") == END_OF_TRACK
        if place in self._done:
            return
        _, traced = self._open.setdefault(
            place, (now, Traced(place, int(line["bytes"]), int(line.get("status") or 0)))
        )
        if node in traced.arrivals:
            link = (str(source), node)
            traced.again.append(link)
            self.again[link] = self.again.get(link, 0) + 1
        else:
            traced.arrivals[node] = float(line["at"]), source

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
