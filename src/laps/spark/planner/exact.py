"""The best choice for all pairs together, proven: for as many as one machine can take.

Where no limit is reached, each pair has its own best option and that is the answer. Otherwise it is
an integer program: of all that keeps every limit, what serves the most - rate times s-relays - and
of that what costs the least. Only the pairs that may touch a limit that may be reached are in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from laps.errors import LapsError
from laps.spark.planner.loads import capacities, find_usage
from laps.spark.planner.options import cheapest
from laps.spark.planner.program import Program

if TYPE_CHECKING:
    from laps.spark.planner.demand import Pairs
    from laps.spark.planner.loads import Usage
    from laps.spark.planner.network import Flags, Ints, Longs, Numbers
    from laps.spark.planner.options import Options
    from laps.spark.planner.program import Found

# How many times as dear as any bit that is sent one is that is missed.
_DEAR: Final = 4

TIME_LIMIT_S: Final = 60.0
"Of each of the programs that are solved; past it the best that was found is taken."


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What was chosen."""

    choice: Ints
    "[pair]: the option, or -1."
    cost: int
    "In thousandths of weights times bits per second."
    bound: float
    "What any choice that serves as much costs at least: the program without whole numbers."
    loads: Longs
    "[resource]: bits per second."
    proven: bool
    "Whether it is known to be the best there is; else it is close, see `gap`."

    @property
    def gap(self) -> float:
        """How far above the bound it is at most, as a share of the cost."""
        return max(0.0, (self.cost - self.bound) / self.cost) if self.cost else 0.0


def solve(options: Options, pairs: Pairs, *, time_limit_s: float = TIME_LIMIT_S) -> Solution:
    """Choose for every pair that has an option at all."""
    usage = find_usage(options, pairs)
    limits = capacities(options.network)
    costs = _costs(options, pairs, usage)
    alone = cheapest(options, pairs.origin, pairs.region, pairs.n, pairs.mask)
    loads = usage.loads(alone)
    if not _exceeded(loads, limits).any():
        cost = _total(costs, usage, alone)
        return Solution(alone, cost, float(cost), loads, proven=True)
    tight = np.flatnonzero((limits > 0) & (_most(usage, len(pairs)) > limits))
    touching = np.unique(usage.pair[usage.bits[tight].tocoo().col])
    together, bound, proven = _together(pairs, usage, costs, tight, touching, limits, time_limit_s)
    apart = alone.copy()
    apart[touching] = -1
    choice = alone.copy()
    choice[touching] = together
    choice = _preferred(options, pairs, usage, costs, limits, choice)
    cost = _total(costs, usage, choice)
    least = _total(costs, usage, apart) + bound
    return Solution(
        choice=choice,
        cost=cost,
        bound=least,
        loads=usage.loads(choice),
        # What reaches its bound is the best, whoever found it.
        proven=proven or cost <= least * (1 + 1e-9),
    )


def _together(
    pairs: Pairs,
    usage: Usage,
    costs: list[int],
    tight: Numbers,
    touching: Numbers,
    limits: Longs,
    time_limit_s: float,
) -> tuple[Ints, float, bool]:
    """The options of the pairs that touch limits, a bound of their cost, and if it is proven."""
    place = np.full(len(pairs), -1, np.int32)
    place[touching] = np.arange(len(touching))
    columns = np.flatnonzero(place[usage.pair] >= 0)
    # Behind the columns of options there is one for each pair, to leave it out; it takes nothing.
    real, extra = len(columns), len(touching)
    taken = usage.bits[tight][:, columns].tocsr()
    taken = csr_array((taken.data, taken.indices, taken.indptr), shape=(len(tight), real + extra))
    group = np.r_[place[usage.pair[columns]], np.arange(extra)].astype(np.int32)
    program = Program(group, taken, limits[tight], time_limit_s)
    cost = [costs[column] for column in columns] + [0] * extra
    value = [int(pairs.rate_bps[pair]) * int(pairs.n[pair]) for pair in touching]
    missed = [0] * real + value
    able: Flags = np.arange(real + extra) < real
    found = program.least(cost, able)
    if found is None:
        able = np.ones(real + extra, np.bool_)
        dear = _DEAR * max(-(-c // value[place]) for c, place in zip(cost, group, strict=True))
        found = _most_first(program, cost, missed, dear)
        program = program.within(missed, sum(missed[column] for column in found.columns))
    bound = program.bound(cost, able)
    options = np.full(extra, -1, np.int32)
    chosen = found.columns[found.columns < real]
    options[group[chosen]] = usage.option[columns[chosen]]
    return options, bound, found.proven


def _most_first(program: Program, cost: list[int], missed: list[int], dear: int) -> Found:
    """What misses the least, and of that what costs the least.

    Where that takes too long, what misses little and costs little; `dear` is what a bit is worth
    that is missed.
    """
    able = np.ones(len(cost), np.bool_)
    if program.is_small:
        # Which of many alike to miss can take for ever to tell.
        most = program.least(missed, able, share=0.25)
        if most is not None and most.proven:
            least = sum(missed[column] for column in most.columns)
            if (found := program.within(missed, least).least(cost, able)) is not None:
                return found
    both = [c + dear * m for c, m in zip(cost, missed, strict=True)]
    found = program.least(both, able, close=1e-3)
    if found is None:
        raise LapsError(
            f"no plan was found in time for {program.groups} pairs at the limits of what carries "
            "them: raise the capacity that is short, or plan fewer tracks"
        )
    return replace(found, proven=False)


def _costs(options: Options, pairs: Pairs, usage: Usage) -> list[int]:
    """[column]: what an option of a pair costs; Python's numbers, as a sum may exceed 64 bits."""
    pair, option = usage.pair, usage.option
    place = (pairs.origin[pair], pairs.region[pair], option)
    weight = options.fixed[place] + pairs.n[pair] * options.each[place]
    return [int(w) * int(rate) for w, rate in zip(weight, pairs.rate_bps[pair], strict=True)]


def _total(costs: list[int], usage: Usage, choice: Ints) -> int:
    chosen = np.flatnonzero(choice >= 0)
    return sum(costs[column] for column in usage.column[chosen, choice[chosen]])


def _most(usage: Usage, pairs: int) -> Longs:
    """[resource]: what it would carry if every pair chose the option that takes most of it."""
    bits = usage.bits.tocoo()
    key = bits.row.astype(np.int64) * pairs + usage.pair[bits.col]
    order = np.lexsort((-bits.data, key))
    _, first = np.unique(key[order], return_index=True)
    largest = order[first]
    most = np.zeros(usage.bits.shape[0], np.int64)
    np.add.at(most, bits.row[largest], bits.data[largest])
    return most


def _exceeded(loads: Longs, limits: Longs) -> Flags:
    exceeded: Flags = (limits > 0) & (loads > limits)
    return exceeded


def _preferred(
    options: Options,
    pairs: Pairs,
    usage: Usage,
    costs: list[int],
    limits: Longs,
    choice: Ints,
) -> Ints:
    """The same at the same cost, with the preferred option wherever there is room for it."""
    choice = choice.copy()
    loads = usage.loads(choice)
    for pair in np.flatnonzero(choice >= 0):
        preference = options.preference[pairs.origin[pair], pairs.region[pair]]
        now = usage.column[pair, choice[pair]]
        for option in np.argsort(preference, kind="stable"):
            if option == choice[pair]:
                break
            other = usage.column[pair, option]
            if other < 0 or costs[other] != costs[now]:
                continue
            moved = loads.copy()
            for column, sign in ((now, -1), (other, 1)):
                resources, bits = usage.of(column)
                moved[resources] += sign * bits
            if not _exceeded(moved, limits).any():
                choice[pair], loads = option, moved
                break
    return choice
