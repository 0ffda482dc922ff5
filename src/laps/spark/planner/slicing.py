"""Cells that are large beside a limit, in slices: each track is in one, by its hash, every time.

How large each slice is has been added up, so it is planned like a cell: as a whole, and known to
the bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from laps.spark.planner.assign import MOVED, NONE, SPLIT, Choice
from laps.spark.planner.cells import PAIRS

if TYPE_CHECKING:
    from laps.spark.planner.cells import Cells, Shape
    from laps.spark.planner.kernel import Floats
    from laps.spark.planner.network import Flags
    from laps.spark.planner.prices import Solution
    from laps.spark.planner.resources import Slots

SLICES: Final = 256
"Of a cell."

MOST: Final = 1024
"Cells that are sliced at most."


def sliced(cells: Cells, which: Flags, sums: Floats) -> Cells:
    """The same with slices in place of some cells; `sums` has theirs: [cell, slice, SUMS]."""
    cell, number = np.nonzero(sums[:, :, PAIRS])
    place = np.concatenate((np.flatnonzero(~which), np.flatnonzero(which)[cell]))
    return replace(
        cells,
        number=cells.number[place],
        part=np.concatenate((cells.part[~which], number.astype(np.int32))),
        origin=cells.origin[place],
        region=cells.region[place],
        profile=cells.profile[place],
        mask=cells.mask[place],
        best=cells.best[place],
        sums=np.concatenate((cells.sums[:, ~which], sums[cell, number].T), axis=1),
    )


def choice_of(shape: Shape, slots: Slots, cells: Cells, solution: Solution) -> Choice:
    """What each cell, or each slice of it, takes, for pairs to look it up."""
    moved = np.where(solution.slot == slots.slot_of(cells.best), 0, MOVED)
    code = np.where(solution.slot < 0, NONE, solution.slot + moved).astype(np.uint8)
    dense = np.full(shape.count, NONE, np.uint8)
    whole = cells.part < 0
    dense[cells.number[whole]] = code[whole]
    split = np.unique(cells.number[~whole])
    dense[split] = SPLIT
    of_slice = np.full((len(split), SLICES), NONE, np.uint8)
    of_slice[np.searchsorted(split, cells.number[~whole]), cells.part[~whole]] = code[~whole]
    return Choice(dense, split, of_slice)
