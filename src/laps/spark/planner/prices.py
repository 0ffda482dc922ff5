"""Capacity, solved on cells: who takes which option, and the prices that prove how good that is.

Cells that cost the same and load the same Vias and links are a block: there are some ten thousand
of them, whatever the demand. A linear program (HiGHS) shares each block out between its options. At
first only blocks that load what is short are in it. Its prices tell which others would do better by
another option, to make room; they join, until there is none. Then each cell goes one way.

The prices are good for more: at any prices, the cheapest options of all pairs together, less what
all capacity would earn, cost no more than any plan that keeps within capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import (  # type: ignore[import-untyped]
    Bounds,
    LinearConstraint,
    linprog,
    milp,
)
from scipy.sparse import csr_array, diags_array, vstack  # type: ignore[import-untyped]

from laps.errors import LapsError
from laps.spark.planner.cells import EGRESS, RATE
from laps.spark.planner.kernel import total_by
from laps.spark.planner.program import silence
from laps.spark.planner.resources import mixed

if TYPE_CHECKING:
    from laps.spark.planner.cells import Cells
    from laps.spark.planner.kernel import Floats
    from laps.spark.planner.network import Flags, Ints, Longs
    from laps.spark.planner.resources import Marks, Slots

# Of equal costs that of less delay is taken: a second of delay weighs a thousandth of a copy.
_DELAY_WEIGHT: Final = 1e-6

# To leave out a bit costs as much as the dearest way for so many: only what cannot be is left out.
_LEFT_OUT: Final = 100.0

# The part of a limit that is kept free for rounding.
_MARGIN: Final = 1e-3

# More than that of a limit is too much to be rounded.
_COARSE: Final = 0.02

# Of a block that is shared out, what is less than that of it is nothing.
_NOTHING: Final = 1e-7

# So few blocks are all looked at from the start.
_FEW: Final = 2000

# How long it may take to place pairs that are large beside the limits.
_WHOLE_S: Final = 10.0

_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What each cell takes, and what that is worth."""

    slot: Ints
    "[cell]: -1: left out, or there is no option."
    prices: Floats
    "[resource]: for each bit per second."
    left_out_price: float
    "For each bit per second that is not delivered; infinite where all of them are."

    @property
    def priced(self) -> bool:
        """Whether capacity makes a difference: if not, all have their own best option."""
        return bool(np.any(self.prices)) or bool(np.isfinite(self.left_out_price))


def short(slots: Slots, cells: Cells, limits: Floats) -> Flags:
    """[resource]: whether it is past its limit if every pair takes its own best option."""
    loads = slots.expected_loads(*by_row(slots, cells, alone(slots, cells)))
    return (limits > 0) & (loads > limits)


def coarse(slots: Slots, cells: Cells, resources: Flags, limits: Floats) -> Flags:
    """[cell]: whether an option of it takes a large part of one of these resources."""
    which = np.flatnonzero(resources)
    most = [
        (use @ csr_array(diags_array(1 / limits[which]))).max(axis=1).toarray().ravel()
        for use in slots.usage(which)
    ]
    rows = slots.row(cells.origin, cells.region)[:, None] + np.arange(slots.count)
    part = cells.sums[RATE][:, None] * most[0][rows] + cells.sums[EGRESS][:, None] * most[1][rows]
    found: Flags = np.where(_able(slots, cells), part, 0.0).max(axis=1, initial=0.0) > _COARSE
    return found


def solve(slots: Slots, cells: Cells, limits: Floats) -> Solution:
    """Keep within the limits of all resources, as far as cells and estimates can tell."""
    slot = alone(slots, cells)
    limited = np.flatnonzero(limits > 0)
    prices = np.zeros(len(limits))
    past = short(slots, cells, limits)
    if not past.any():
        return Solution(slot, prices, np.inf)
    served = np.flatnonzero(slot >= 0)
    market = _Market(slots, cells, served, limited, coarse(slots, cells, past, limits)[served])
    within = limits[limited] * (1 - _MARGIN)
    for _ in range(_ROUNDS):
        by_block, prices[limited] = market.clear(within)
        slot[served] = market.shared_out(by_block, prices[limited])
        # Whole cells are not quite what their blocks are on average.
        excess = market.loads(slot[served]) / limits[limited] - 1.0
        if not np.any(excess > 0):
            break
        within[excess > 0] *= np.maximum(0.5, 1.0 - 2 * excess[excess > 0] - _MARGIN)
    else:
        slot[served] = market.shed(slot[served], limits[limited])
    left_out = float(cells.sums[EGRESS, served][slot[served] < 0].sum())
    if not left_out:
        return Solution(slot, prices, np.inf)
    # What was paid to leave out no more than need be says little about the rest.
    prices[limited], price = market.prices_with(limits[limited], left_out)
    return Solution(slot, prices, price)


def alone(slots: Slots, cells: Cells) -> Ints:
    """[cell]: the slot that is best by itself, -1 where there is none."""
    return slots.slot_of(cells.best)


def by_row(slots: Slots, cells: Cells, slot: Ints) -> tuple[Floats, Floats]:
    """[row]: rate and egress, if cells take these slots."""
    some = np.flatnonzero(slot >= 0)
    row = slots.row(cells.origin[some], cells.region[some]) + slot[some]
    rate, egress = (
        total_by(row, cells.sums[which, some], len(slots.via)) for which in (RATE, EGRESS)
    )
    return rate, egress


def _able(slots: Slots, cells: Cells) -> Flags:
    """[cell, slot]"""
    able: Flags = (cells.mask[:, None] >> slots.option_of.astype(np.uint8)) & 1 == 1
    return able


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A linear program; its columns are shares of blocks, and rows of `use` are parts of limits."""

    columns: Longs
    cost: Floats
    use: csr_array
    room: Floats
    served: csr_array
    resources: Longs
    scale: Floats
    unit: float


class _Market:
    """Blocks of cells, and the resources that have limits."""

    def __init__(
        self, slots: Slots, cells: Cells, served: Longs, limited: Longs, whole: Flags
    ) -> None:
        self._resources = len(limited)
        self._inside: Flags = np.zeros(0, np.bool_)
        row = slots.row(cells.origin[served], cells.region[served])
        best = slots.slot_of(cells.best[served])
        able = _able(slots, cells)[served]
        self._cell_row = row
        self._cell_delay = slots.delay_us[row[:, None] + np.arange(slots.count)]
        self._cell_rate, self._cell_egress = cells.sums[RATE, served], cells.sums[EGRESS, served]
        self._fixed_use, self._each_use = slots.usage(limited)
        block, first = _blocks(slots.marks(), row, able, best, whole)
        self._block = block
        self._able: Flags = able[first]
        self._best: Longs = best[first].astype(np.int64)
        self._whole: Flags = whole[first]
        count = len(first)
        self._rate = total_by(block, cells.sums[RATE, served], count)
        self._egress = total_by(block, self._cell_egress, count)
        # All that follows goes by columns: an able slot of a block.
        self._of, self._slot = np.nonzero(self._able)
        rows = row[first][self._of] + self._slot
        delay = (
            np.bincount(
                block.repeat(slots.count) * slots.count
                + np.tile(np.arange(slots.count), len(block)),
                (self._cell_delay * self._cell_egress[:, None]).ravel(),
                minlength=count * slots.count,
            ).reshape(count, slots.count)[self._of, self._slot]
            / self._egress[self._of]
        )
        copies = self._rate[self._of] / self._egress[self._of]
        self._cost = slots.fixed[rows] * copies + slots.each[rows] + delay * _DELAY_WEIGHT
        self.left_out = _LEFT_OUT * float(self._cost.max(initial=1.0))
        fixed, each = self._fixed_use, self._each_use
        # [column, resource]: for each bit that is delivered.
        self._use = csr_array(fixed[rows].multiply(copies[:, None]) + each[rows])

    def clear(self, limits: Floats) -> tuple[Floats, Floats]:
        """[block, slot] shares within limits, and [resource] prices."""
        share = np.zeros(self._able.shape)
        share[np.arange(len(share)), self._best] = 1.0
        past = self._loads(share) > limits
        inside = self._users(past, share) | (len(share) <= _FEW)
        for _ in range(_ROUNDS):
            share, prices = self._program(inside, limits)
            cost = self._cost + self._use @ prices
            of_block = np.full(self._able.shape, np.inf)
            of_block[self._of, self._slot] = cost
            now = of_block[np.arange(len(of_block)), self._best]
            better = of_block.min(axis=1) < now - 1e-6 * np.maximum(1.0, np.abs(now))
            more = better & ~inside
            if not more.any():
                break
            inside |= more
        self._inside = inside
        if np.any((share > _NOTHING) & (share < 1 - _NOTHING) & self._whole[:, None]):
            share = self._whole_program(inside, limits, share)
        return share, prices

    def _users(self, resources: Flags, share: Floats) -> Flags:
        """The blocks that load any of them."""
        loads = (self._use @ resources.astype(np.float64)) * share[self._of, self._slot]
        return np.bincount(self._of, loads, minlength=len(self._able)) > 0

    def _loads(self, share: Floats) -> Floats:
        loads: Floats = (share[self._of, self._slot] * self._egress[self._of]) @ self._use
        return loads

    def _program(self, inside: Flags, limits: Floats) -> tuple[Floats, Floats]:
        """The best shares of the blocks inside, while the others keep theirs; and prices."""
        program = self._pose(inside, limits)
        found = linprog(
            program.cost,
            A_ub=program.use,
            b_ub=program.room,
            A_eq=program.served,
            b_eq=np.ones(program.served.shape[0]),
            method="highs",
        )
        if found.status != 0:
            raise LapsError(f"the capacity question was not solved: {found.message}")
        prices = np.zeros(self._resources)
        # A row of the program is in parts of its limit, and costs are in typical blocks.
        marginals = -found.ineqlin.marginals * program.unit / program.scale
        prices[program.resources] = np.maximum(0.0, marginals)
        return self._shares(inside, program, found.x), prices

    def prices_with(self, limits: Floats, left_out: float) -> tuple[Floats, float]:
        """Prices, if so much may be left out for nothing; and the price of that."""
        program = self._pose(self._inside, limits)
        real, count = len(program.columns), len(program.cost)
        extra = np.where(np.arange(count) < real, 0.0, program.cost / self.left_out)
        found = linprog(
            np.where(extra > 0, 0.0, program.cost),
            A_ub=vstack((program.use, csr_array(extra[None]))),
            b_ub=np.append(program.room, left_out / program.unit),
            A_eq=program.served,
            b_eq=np.ones(program.served.shape[0]),
            method="highs",
        )
        prices = np.zeros(self._resources)
        if found.status != 0:
            return prices, 0.0
        marginals = -found.ineqlin.marginals
        of_resources = marginals[:-1] * program.unit / program.scale
        prices[program.resources] = np.maximum(0.0, of_resources)
        return prices, max(0.0, float(marginals[-1]))

    def _whole_program(self, inside: Flags, limits: Floats, share: Floats) -> Floats:
        """The same, while cells of a few large pairs go one way or the other; if it is found."""
        program = self._pose(inside, limits)
        whole = np.concatenate((self._whole[self._of[program.columns]], self._whole[inside]))
        with silence():
            found = milp(
                program.cost,
                constraints=[
                    LinearConstraint(program.use, ub=program.room),
                    LinearConstraint(program.served, 1.0, 1.0),
                ],
                integrality=whole.astype(np.int8),
                bounds=Bounds(0.0, 1.0),
                options={"time_limit": _WHOLE_S, "mip_rel_gap": 1e-4},
            )
        return share if found.x is None else self._shares(inside, program, found.x)

    def _shares(self, inside: Flags, program: _Program, found: Floats) -> Floats:
        share = np.zeros(self._able.shape)
        share[np.arange(len(share)), self._best] = 1.0
        share[inside] = 0.0
        columns = program.columns
        share[self._of[columns], self._slot[columns]] = found[: len(columns)]
        return share

    def _pose(self, inside: Flags, limits: Floats) -> _Program:
        """The program of the blocks inside: a column for each option, and one to leave it out."""
        share = np.zeros(self._able.shape)
        share[np.arange(len(share)), self._best] = 1.0
        share[inside] = 0.0
        room = np.maximum(0.0, limits - self._loads(share))
        columns, blocks = np.flatnonzero(inside[self._of]), np.flatnonzero(inside)
        place = np.searchsorted(blocks, self._of[columns])
        real, extra = len(columns), len(blocks)
        unit = float(self._egress[blocks].mean())
        egress = np.concatenate((self._egress[self._of[columns]], self._egress[blocks])) / unit
        served = csr_array(
            (np.ones(real + extra), (np.r_[place, np.arange(extra)], np.arange(real + extra))),
            shape=(extra, real + extra),
        )
        use = csr_array(self._use[columns].T)
        touched = np.flatnonzero(np.diff(use.indptr))
        use = csr_array(use[touched])
        use.resize((len(touched), real + extra))
        scale = np.maximum(limits[touched], 1.0)
        use = csr_array(diags_array(unit / scale) @ use @ diags_array(egress))
        cost = np.concatenate((self._cost[columns], np.full(extra, self.left_out))) * egress
        return _Program(columns, cost, use, room[touched] / scale, served, touched, scale, unit)

    def loads(self, slot: Ints) -> Floats:
        """[resource]: if cells take these slots; of links it is an estimate."""
        some = np.flatnonzero(slot >= 0)
        row, count = self._cell_row[some] + slot[some], self._fixed_use.shape[0]
        found: Floats = total_by(row, self._cell_rate[some], count) @ self._fixed_use
        found += total_by(row, self._cell_egress[some], count) @ self._each_use
        return found

    def shared_out(self, by_block: Floats, prices: Floats) -> Ints:
        """[cell]: the shares of blocks in whole cells; -1 for what is left out."""
        by_block = np.where(by_block < _NOTHING, 0.0, by_block)
        price = np.zeros(by_block.shape)
        price[self._of, self._slot] = self._use @ prices
        slot: Ints = by_block.argmax(axis=1).astype(np.int32)[self._block]
        order = np.argsort(self._block, kind="stable")
        first = np.searchsorted(self._block[order], np.arange(len(by_block) + 1))
        for block in np.flatnonzero(by_block.max(axis=1) < 1 - _NOTHING):
            cells = order[first[block] : first[block + 1]]
            slot[cells] = self._fill(cells, by_block[block], price[block])
        return slot

    def _fill(self, cells: Longs, wanted: Floats, price: Floats) -> Ints:
        """[cell]: what is dear is filled first, and not past its share; the rest is left out."""
        slot = np.full(len(cells), -1, np.int32)
        egress, delay = self._cell_egress[cells], self._cell_delay[cells]
        slots = sorted(np.flatnonzero(wanted), key=lambda one: -price[one])
        all_served = wanted.sum() > 1 - len(wanted) * _NOTHING
        for one in slots:
            free = np.flatnonzero(slot < 0)
            # Those first whose delay would grow most elsewhere.
            free = free[np.argsort(delay[free, one] - delay[free, slots[-1]], kind="stable")]
            taken = np.cumsum(egress[free]) <= wanted[one] * egress.sum() * (1 + _NOTHING)
            # What rounding has left over goes to the one that is least dear.
            slot[free[taken | (all_served and one == slots[-1])]] = one
        return slot

    def shed(self, slot: Ints, limits: Floats) -> Ints:
        """Leave out cells until all limits are kept: where large pairs meet small limits."""
        slot = slot.copy()
        fixed, each = self._fixed_use.tocsc(), self._each_use.tocsc()
        for resource in range(self._resources):
            rows = self._cell_row + np.maximum(slot, 0)
            taken = self._cell_rate * fixed[:, [resource]].toarray().ravel()[rows]
            taken += self._cell_egress * each[:, [resource]].toarray().ravel()[rows]
            taken[slot < 0] = 0.0
            excess = taken.sum() - limits[resource]
            while excess > 0 and taken.any():
                # One that is enough, and as small as can be; else the largest.
                enough = np.where(taken >= excess, taken, np.inf)
                cell = int(enough.argmin() if np.isfinite(enough).any() else taken.argmax())
                excess -= taken[cell]
                taken[cell], slot[cell] = 0.0, -1
        return slot


def _blocks(marks: Marks, row: Longs, able: Flags, best: Ints, own: Flags) -> tuple[Longs, Longs]:
    """[cell]: its block; and [block]: one cell of it. Some have a block of their own."""
    slots = able.shape[1]
    mark = best.astype(np.uint64)
    mark[own] += mixed(np.flatnonzero(own).astype(np.uint64) + np.uint64(slots))
    for slot in range(slots):
        of_slot = mixed(marks[row + slot] + np.uint64(slot))
        mark += np.where(able[:, slot], of_slot, np.uint64(0))
    _, first, block = np.unique(mark, return_index=True, return_inverse=True)
    return block, first
