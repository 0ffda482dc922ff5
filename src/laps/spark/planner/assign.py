"""The second time through the buckets: each pair gets its option, and the sums are exact.

What cells decided is looked up by cell. What they could only estimate - the load of links, the
delay of deliveries - is added up delivery by delivery. And the lower bound is: at the prices of the
solution every pair is asked what it would cost at least, with its own n and its own s-relays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from laps.spark.planner.cells import Sums
from laps.spark.planner.kernel import slice_of
from laps.spark.planner.options import DIRECT
from laps.spark.planner.paths import UNREACHABLE_US

if TYPE_CHECKING:
    from laps.spark.planner.cells import Shape
    from laps.spark.planner.kernel import Bucket, Floats, Pairs
    from laps.spark.planner.network import Flags, Ints, Longs

Codes = NDArray[np.uint8]

# What stands for a cell, beside the number of a slot.
MOVED: Final = 16
"Added to a slot that is not the one its pairs would choose by themselves."
SPLIT: Final = 254
"Look further, by the slice of the track."
NONE: Final = 255
"Not served."

MOST_US: Final = 1 << 20
"Delays from there on count as that: a second."


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What was decided for every cell."""

    code: Codes
    "[cell number]"
    split: Longs
    "The numbers of cells that are split, ascending."
    of_slice: Codes
    "[split cell, slice]"

    def of(self, bucket: Bucket, pairs: Pairs, cell: Longs) -> Codes:
        """[pair]: its slot, MOVED or not, or NONE."""
        code = self.code.take(cell)
        some = np.flatnonzero(code == SPLIT)
        if len(some):
            place = np.searchsorted(self.split, cell[some])
            track = bucket.track.take(pairs.track[some])
            code[some] = self.of_slice[place, slice_of(track, self.of_slice.shape[1])]
        return code


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What is looked up for pairs and deliveries; [row] is as in `laps.spark.planner.resources`."""

    via: Ints
    "[row]: the Via, or -1."
    srtt_us: Ints
    "[from, to]"
    fixed: Floats
    "[row]: what it costs at the prices, whatever n is."
    each: Floats
    "[row]: what it costs at the prices for each s-relay, but for links on the way to it."
    onward: Floats
    "[from, to]: the prices of all links of the path; empty where links have none."
    touched: Flags
    "[row]: whether there are such prices on the way to any s-relay."
    left_out: float
    "The price of each bit that is not delivered; infinite where all of them are."
    priced: bool
    "Whether there are prices at all; if not, the best by itself is the bound."


class Today:
    """Adds up what hub and spoke takes."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.flow = np.zeros(nodes * nodes)
        "[from, to]: bits per second from o-relays to s-relays."
        self.delays = np.zeros(MOST_US, np.int64)
        "[microseconds]: how many deliveries take so long."

    def add(self, bucket: Bucket, srtt_us: Ints) -> tuple[int, int] | None:
        """Add all deliveries of a bucket; returns the ends of one that has no path."""
        place = (bucket.origin.astype(np.int64) * self._nodes).take(bucket.row)
        place += bucket.relay
        np.add.at(self.flow, place, bucket.rate_bps.take(bucket.row))
        srtt = srtt_us.reshape(-1).take(place)
        if len(srtt) and srtt.max() >= UNREACHABLE_US:
            lost = int(place[srtt.argmax()])
            return divmod(lost, self._nodes)
        _count(self.delays, srtt)
        return None


def _count(delays: Longs, srtt: Ints) -> None:
    delay = srtt >> 1
    np.add.at(delays, np.minimum(delay, MOST_US - 1, out=delay), 1)


class Outcome:
    """Adds up what becomes of pairs."""

    def __init__(self, shape: Shape, tables: Tables) -> None:
        self._shape = shape
        self._tables = tables
        self._slots = shape.candidates + 1
        self.by_row = Sums(len(tables.via))
        self.flow = np.zeros(shape.nodes * shape.nodes)
        "[from, to]: bits per second to s-relays, from the o-relay or the Via."
        self.delays = np.zeros(MOST_US, np.int64)
        "[microseconds]: how many deliveries take so long."
        self.least = 0.0
        "What all pairs cost at the prices, each by its own cheapest option."
        self.dearest = 0.0
        "The most that any of them costs for each bit that it delivers."

    def add(self, bucket: Bucket, pairs: Pairs, code: Codes) -> tuple[Longs, Longs, Ints]:
        """Add pairs; returns [served pair]: which it is, its row, and the worst sum of sRTT."""
        if self._tables.priced:
            self._ask(bucket, pairs)
        served = np.flatnonzero(code != NONE)
        track = pairs.track[served]
        origin, rate, n = bucket.origin[track], bucket.rate_bps[track], pairs.n[served]
        row = (origin.astype(np.int64) * self._shape.regions + pairs.region[served]) * self._slots
        row += code[served] % MOVED
        self.by_row.add(row, n, rate)
        via = self._tables.via.take(row)
        sender = np.where(via < 0, origin, via)
        size = self._shape.nodes
        to_via = self._tables.srtt_us[origin, sender]
        relay = bucket.relay
        if len(served) < len(code):
            relay = relay[np.repeat(code != NONE, pairs.n)]
        place = np.repeat(sender.astype(np.int64) * size, n)
        place += relay
        np.add.at(self.flow, place, np.repeat(rate, n))
        srtt = self._tables.srtt_us.reshape(-1).take(place)
        srtt += np.repeat(to_via, n)
        _count(self.delays, srtt)
        first = np.cumsum(n) - n
        worst = np.maximum.reduceat(srtt, first) if len(first) else srtt
        return served, row, worst

    def _ask(self, bucket: Bucket, pairs: Pairs) -> None:
        """What would each pair cost at least, at the prices?"""
        tables = self._tables
        origin = bucket.origin.take(pairs.track)
        row = (origin.astype(np.int64) * self._shape.regions + pairs.region) * self._slots
        least = np.full(len(pairs), np.inf)
        last = self._slots - 1
        for slot in range(self._slots):
            cost = tables.fixed.take(row) + pairs.n * tables.each.take(row)
            some = np.flatnonzero(tables.touched.take(row)) if len(tables.onward) else row[:0]
            if len(some):
                sender = tables.via.take(row[some])
                sender = np.where(sender < 0, origin[some], sender)
                cost[some] += self._onward(bucket, pairs, some, sender)
            bit = np.uint8(1 << (slot if slot < last else DIRECT))
            np.minimum(least, cost, out=least, where=pairs.mask & bit > 0)
            row += 1
        np.minimum(least, tables.left_out * pairs.n, out=least, where=pairs.mask > 0)
        least[pairs.mask == 0] = 0.0
        self.least += float(least @ bucket.rate_bps.take(pairs.track))
        self.dearest = max(self.dearest, float(np.max(least / pairs.n, initial=0.0)))

    def _onward(self, bucket: Bucket, pairs: Pairs, some: Longs, sender: Ints) -> Floats:
        """[some pair]: the prices of links to all of its s-relays."""
        n = pairs.n[some]
        first = np.cumsum(n) - n
        row = np.arange(int(n.sum())) + np.repeat(pairs.first[some] - first, n)
        place = np.repeat(sender.astype(np.int64) * self._shape.nodes, n)
        place += bucket.relay.take(row)
        prices: Floats = np.add.reduceat(self._tables.onward.reshape(-1).take(place), first)
        return prices


class Slices:
    """Adds up the slices of cells that are to be split."""

    def __init__(self, split: Longs, slices: int) -> None:
        self._split = split
        self._slices = slices
        self.sums = Sums(len(split) * slices)

    def add(self, bucket: Bucket, pairs: Pairs, cell: Longs) -> None:
        """Add the pairs of these cells."""
        place = np.searchsorted(self._split, cell)
        place[place == len(self._split)] = 0
        some = np.flatnonzero(self._split[place] == cell)
        track = pairs.track[some]
        number = place[some] * self._slices + slice_of(bucket.track.take(track), self._slices)
        self.sums.add(number, pairs.n[some], bucket.rate_bps.take(track))
