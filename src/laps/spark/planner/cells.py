"""Sums over cells: all that the capacity question has to know about any number of pairs.

A cell is an o-relay, a region, a profile, a mask and a class of n. Its pairs have the same options,
and by themselves they choose the same one; what an option costs and loads is linear in their sums.

    n classes    costs are lines over n; where two cross, the cheapest option changes, and a new
                 class begins. With the usual weights that is at n = 1 alone: 1, and 2 or more
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Final

import numpy as np

from laps.errors import ConfigError
from laps.spark.planner.options import DIRECT, OPTIONS, cheapest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from laps.spark.planner.kernel import Bucket, Floats, Pairs
    from laps.spark.planner.network import Ints, Longs
    from laps.spark.planner.options import Masks, Options

MOST: Final = 1 << 26
"Cells that a task can sum: 32 bytes each."

SUMS: Final = 4
"Of a cell: pairs, copies (n), rate, and rate times n."
PAIRS, COPIES, RATE, EGRESS = range(SUMS)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How cells are numbered."""

    nodes: int
    regions: int
    profiles: int
    candidates: int
    class_of: NDArray[np.int64]
    "[n]: the class; the last is for all from there on."

    @property
    def masks(self) -> int:
        """How many masks there are: a bit for each candidate, and one for hub and spoke."""
        return 2 << self.candidates

    @property
    def classes(self) -> int:
        """How many classes of n there are."""
        return int(self.class_of[-1]) + 1

    @property
    def count(self) -> int:
        """How many cells there could be."""
        return self.nodes * self.regions * self.profiles * self.masks * self.classes

    def numbers(self, bucket: Bucket, pairs: Pairs) -> NDArray[np.int64]:
        """[pair]: its cell."""
        low = np.uint8((1 << self.candidates) - 1)
        mask = (pairs.mask & low) | (pairs.mask >> DIRECT << self.candidates)
        number = bucket.origin.take(pairs.track).astype(np.int64)
        for size, part in (
            (self.regions, pairs.region),
            (self.profiles, bucket.profile.take(pairs.track)),
            (self.masks, mask),
            (self.classes, self.class_of.take(pairs.n, mode="clip")),
        ):
            number *= size
            number += part
        return number


def shape_of(options: Options) -> Shape:
    """The cells of a network and its policy."""
    size, regions, candidates = options.vias.shape
    fan_out = max(profile.fan_out for profile in options.profiles)
    shape = Shape(size, regions, len(options.profiles), candidates, _classes(options, fan_out))
    if shape.count > MOST:
        raise ConfigError(
            f"{size:,} nodes, {regions:,} regions, {shape.profiles} profiles and {candidates} "
            f"candidates make {shape.count:,} cells: there can be {MOST:,}; take fewer candidates, "
            "or fewer rules"
        )
    return shape


def _classes(options: Options, fan_out: int) -> NDArray[np.int64]:
    """[n]: its class. Past the fan-out hub and spoke is no option, and its line crosses nothing."""
    begins = {1}
    relayed = _lines(options, slice(0, options.candidates))
    for one, other in combinations(relayed, 2):
        begins |= _crossing(one, other)
    for one, other in product(_lines(options, slice(DIRECT, OPTIONS)), relayed):
        begins |= {n for n in _crossing(one, other) if n <= fan_out}
    starts = sorted(n for n in begins if n <= options.network.size)
    return np.searchsorted(starts, np.arange(starts[-1] + 1), side="right").clip(1) - 1


def _lines(options: Options, which: slice) -> list[tuple[int, int]]:
    """The different costs over n there are: for any n, and for each."""
    both = np.stack((options.fixed[:, :, which], options.each[:, :, which]), axis=-1)
    return [(fixed, each) for fixed, each in np.unique(both.reshape(-1, 2), axis=0).tolist()]


def _crossing(one: tuple[int, int], other: tuple[int, int]) -> set[int]:
    """The n from 2 on at which another of two options becomes the cheaper one."""
    over, under = other[0] - one[0], one[1] - other[1]
    if under == 0:
        return set()
    n, rest = divmod(over, under)
    # Where both cost the same the preferred one is taken, which may be neither before nor after.
    return {n for n in ((n + 1,) if rest else (n, n + 1)) if n > 1}


class Sums:
    """Adds up pairs, dense: whatever the order they come in.

    The four sums of a place lie beside each other and are added in twos, as complex numbers: it is
    the memory that takes the time, and so each place is fetched once.
    """

    def __init__(self, count: int) -> None:
        self._sums = np.zeros((count, SUMS // 2), np.complex128)
        self._seen = np.zeros(count, np.bool_)

    def add(self, place: Longs, n: Longs, rate: Floats) -> None:
        """Add pairs, each to its place."""
        self._seen[place] = True
        place = place * 2
        two = np.ones(len(place), np.complex128)
        two.imag = n
        np.add.at(self._sums.reshape(-1), place, two)
        two.real = rate
        two.imag *= rate
        place += 1
        np.add.at(self._sums.reshape(-1), place, two)

    def all(self) -> Floats:
        """[place, SUMS]"""
        return self._sums.view(np.float64)

    def taken(self) -> tuple[Longs, Floats]:
        """The places that have pairs, and their sums, [SUMS, place]; they are zero again."""
        sums, place = self.all(), np.flatnonzero(self._seen)
        found = np.ascontiguousarray(sums[place].T)
        sums[place], self._seen[place] = 0.0, False
        return place, found


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells that have pairs, by number; arrays over cells."""

    number: Longs
    part: Ints
    "Its slice, where it is one; -1: all of the cell."
    origin: Ints
    region: Ints
    profile: Ints
    mask: Masks
    best: Ints
    "The option that each of its pairs would choose by itself; -1: there is none."
    sums: Floats
    "[SUMS, cell]"

    def __len__(self) -> int:
        return len(self.number)


def cells_of(options: Options, shape: Shape, number: Longs, sums: Floats) -> Cells:
    """Read the numbers of cells again."""
    rest, kind = np.divmod(number, shape.classes)
    rest, low = np.divmod(rest, shape.masks)
    rest, profile = np.divmod(rest, shape.profiles)
    origin, region = np.divmod(rest, shape.regions)
    mask = (low & (1 << shape.candidates) - 1) | (low >> shape.candidates << DIRECT)
    # Any n of the class does, as all of them choose the same.
    some_n = np.searchsorted(shape.class_of, np.arange(shape.classes)).clip(1)
    origin, region = origin.astype(np.int32), region.astype(np.int32)
    masks: Masks = mask.astype(np.uint8)
    best = cheapest(options, origin, region, some_n[kind].astype(np.int32), masks)
    whole = np.full(len(number), -1, np.int32)
    return Cells(number, whole, origin, region, profile.astype(np.int32), masks, best, sums)


def together(parts: list[tuple[Longs, Floats]]) -> tuple[Longs, Floats]:
    """The sums of several tasks as one."""
    number = np.concatenate([part[0] for part in parts])
    unique, place = np.unique(number, return_inverse=True)
    sums = np.zeros((SUMS, len(unique)))
    begin = 0
    for numbers, values in parts:
        # The cells of one task are all different, so plain indexing adds each of them.
        sums[:, place[begin : begin + len(numbers)]] += values
        begin += len(numbers)
    return unique, sums
