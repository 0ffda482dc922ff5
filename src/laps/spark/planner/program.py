"""One column out of each group, within limits and at the least cost: an integer program (HiGHS).

A solver computes with tolerances and an operator does not. So each answer is checked in whole
numbers: a set of columns that is past a limit by a hair is cut off, and it is solved again.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from laps.spark.planner.network import Flags, Ints, Longs

# Beyond that a coefficient and the solver's tolerance no longer go together.
_LARGEST: Final = 1e8

# Up to so many groups the best choice is found, of more, one that is close to it: the last
# millionths of a large program take longer than all before.
_EXACT_GROUPS: Final = 300

# By SciPy's numbers: HiGHS is done, not out of time.
_DONE: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The columns that were chosen, in ascending order."""

    columns: Ints
    proven: bool
    "Nothing costs less."


class Program:
    """Groups of columns, and limits on what the chosen ones take together."""

    def __init__(self, group: Ints, taken: csr_array, limits: Longs, time_limit_s: float) -> None:
        self._group = group
        self._taken = taken
        self._limits = limits
        self._time_limit_s = time_limit_s
        self._cuts: list[tuple[NDArray[np.intp], int]] = []
        one = (np.ones(len(group)), (group, np.arange(len(group))))
        self._one_of = csr_array(one, shape=(int(group.max()) + 1, len(group)))

    @property
    def groups(self) -> int:
        """How many there are."""
        return int(self._one_of.shape[0])

    @property
    def is_small(self) -> bool:
        """Whether the best choice is found, not only one that is close."""
        return self.groups <= _EXACT_GROUPS

    def within(self, taken: Sequence[int], limit: int) -> Program:
        """The same with one limit more."""
        rows = _stack(self._taken, csr_array(np.array([taken], np.int64)))
        limits = np.append(self._limits, limit)
        made = Program(self._group, rows, limits, self._time_limit_s)
        made._cuts = list(self._cuts)
        return made

    def least(
        self, costs: Sequence[int], able: Flags, *, close: float = 1e-4, share: float = 1.0
    ) -> Found | None:
        """The best choice of columns that are able, or None where there is none.

        In a large program, one that is so `close` to it. `share` is how much of the time it has.
        """
        able = able & self._alone()
        deadline = time.monotonic() + self._time_limit_s * share
        gap = 0.0 if self.is_small else close
        while True:
            left_s = max(0.1, deadline - time.monotonic())
            result = self._run(costs, able, {"time_limit": left_s, "mip_rel_gap": gap}, whole=True)
            if result.x is None:
                return None
            chosen = np.flatnonzero(result.x > 0.5)
            if not self._cut(chosen):
                return Found(chosen.astype(np.int32), self.is_small and result.status == _DONE)
            if time.monotonic() > deadline:
                return None

    def bound(self, costs: Sequence[int], able: Flags) -> float:
        """What any choice costs at least: the same without whole numbers."""
        result = self._run(costs, able & self._alone(), {}, whole=False)
        if result.x is None:
            raise LapsError(f"the solver gave no bound: {result.message}")
        return float(result.fun) * _unit(costs)

    def _whole_rows(self, able: Flags) -> tuple[csr_array, NDArray[np.float64]]:
        """The limits as a solver likes them: small whole numbers, and none for what is not able."""
        taken = self._taken.multiply(able).tocsr()
        taken.eliminate_zeros()
        rows = np.split(taken.data, taken.indptr[1:-1])
        unit = np.array([np.gcd.reduce(row) if len(row) else 1 for row in rows], np.int64)
        limits = self._limits // unit
        spread = np.maximum(limits / _LARGEST, 1.0)
        data = taken.data / np.repeat(unit * spread, np.diff(taken.indptr))
        shape = csr_array((data, taken.indices, taken.indptr), shape=taken.shape)
        return shape, limits / spread

    def _alone(self) -> Flags:
        """[column]: whether it exceeds no limit by itself."""
        rows = np.repeat(np.arange(len(self._limits)), np.diff(self._taken.indptr))
        alone = np.ones(len(self._group), np.bool_)
        alone[self._taken.indices[self._taken.data > self._limits[rows]]] = False
        return alone

    def _cut(self, chosen: NDArray[np.intp]) -> bool:
        """Whether a limit is exceeded by what is chosen, which then is never chosen again."""
        x = np.zeros(len(self._group), np.int64)
        x[chosen] = 1
        exceeded = np.flatnonzero(self._taken @ x > self._limits)
        for row in exceeded:
            self._cuts.append(self._cover(int(row), chosen))
        return bool(len(exceeded))

    def _cover(self, row: int, chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], int]:
        """Columns, and one more of them than the limit of a row bears.

        The largest of what is chosen, until it is too much, and whatever else takes as much in the
        place of one of them.
        """
        start, end = self._taken.indptr[row : row + 2]
        bits = np.zeros(len(self._group), np.int64)
        bits[self._taken.indices[start:end]] = self._taken.data[start:end]
        largest = chosen[np.argsort(-bits[chosen], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(bits[largest]), self._limits[row], "right")) + 1
        needed = np.full(int(self._group.max()) + 1, np.iinfo(np.int64).max)
        needed[self._group[largest[:enough]]] = bits[largest[:enough]]
        return np.flatnonzero(bits >= needed[self._group]), enough

    def _run(
        self, costs: Sequence[int], able: Flags, options: dict[str, float], *, whole: bool
    ) -> Any:
        unit = _unit(costs)
        taken, limits = self._whole_rows(able)
        constraints = [
            LinearConstraint(self._one_of, 1, 1),
            LinearConstraint(taken, -np.inf, limits),
        ]
        for columns, enough in self._cuts:
            places = (np.ones(len(columns)), (np.zeros(len(columns), np.int64), columns))
            row = csr_array(places, shape=(1, len(self._group)))
            constraints.append(LinearConstraint(row, -np.inf, enough - 1))
        with silence():
            return milp(
                np.array([cost / unit for cost in costs]),
                integrality=np.full(len(self._group), int(whole)),
                bounds=Bounds(0, able.astype(np.float64)),
                constraints=constraints,
                options=options,
            )


def _unit(costs: Sequence[int]) -> float:
    """What costs are divided by, so that they are small whole numbers as far as can be."""
    return max(math.gcd(*costs) or 1, max(costs) / _LARGEST)


@contextmanager
def silence() -> Iterator[None]:
    """Nothing on standard output: HiGHS leaves lines there for its own authors, from C."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        # What C has not written yet goes to the same place.
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _stack(upper: csr_array, lower: csr_array) -> csr_array:
    return csr_array(
        (
            np.r_[upper.data, lower.data],
            np.r_[upper.indices, lower.indices],
            np.r_[upper.indptr, upper.indptr[-1] + lower.indptr[1:]],
        ),
        shape=(upper.shape[0] + lower.shape[0], upper.shape[1]),
    )
