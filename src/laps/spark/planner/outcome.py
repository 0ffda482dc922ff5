"""What a large plan comes to: the sums of all tasks as figures, beside those of today."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laps.spark.planner.cells import COPIES, EGRESS, PAIRS, RATE
from laps.spark.planner.kernel import total_by
from laps.spark.planner.loads import resource_name
from laps.spark.planner.options import DIRECT, WEIGHT
from laps.spark.planner.prices import alone, by_row
from laps.spark.planner.summary import Figures, Load
from laps.spark.planner.tasks import MISSING, added_up

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from laps.spark.planner.cells import Cells
    from laps.spark.planner.kernel import Floats
    from laps.spark.planner.prices import Solution
    from laps.spark.planner.resources import Slots


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What all tasks of the second pass have added up."""

    by_row: Floats
    "[row, SUMS]"
    flow: Floats
    "[from, to]: bits per second to s-relays."
    delays: Floats
    "[microseconds]: how many deliveries take so long."
    least: float
    "What all pairs cost at the prices, each by its own cheapest option."
    dearest: float
    "The most that any of them costs for each bit that it delivers."
    missing: Floats
    "[what is missing]: pairs, and bits per second that are not delivered."

    def loads(self, slots: Slots) -> Floats:
        """[resource]: what the plan takes, exactly."""
        size = slots.options.network.size
        origin, _ = slots.ends(np.arange(len(slots.via)))
        relayed = slots.via >= 0
        via, sums = slots.via[relayed], self.by_row[relayed]
        flow = self.flow + total_by(origin[relayed] * size + via, sums[:, RATE], size * size)
        by_via = total_by(via, sums[:, EGRESS], size)
        return np.concatenate((by_via, slots.carried(flow)))


def add_results(paths: Iterable[Path]) -> Result:
    """Put together what tasks wrote, and remove it."""
    total: dict[str, Any] = {}
    least = dearest = 0.0
    for path in paths:
        found = added_up(path)
        asked = found.pop("asked")
        least, dearest = least + float(asked[0]), max(dearest, float(asked[1]))
        for name, array in found.items():
            total[name] = total[name] + array if name in total else array
    return Result(total["by_row"], total["flow"], total["delays"], least, dearest, total["missing"])


@dataclass(frozen=True, slots=True)
class Missing:
    """Pairs that are not served, for the same reason."""

    constraint: str
    pairs: int
    bps: int
    """Not delivered."""
    reason: str
    way_out: str


@dataclass(frozen=True, slots=True, eq=False)
class LargePlan:
    """A plan in figures; the assignments are on disk."""

    today: Figures
    planned: Figures
    cost: float
    "Weights x copies x Mbit/s."
    bound: float
    "What any plan that serves as much costs at least."
    missing: tuple[Missing, ...]
    priced: int
    "Vias and links whose capacity makes a difference."

    @property
    def gap(self) -> float:
        """How far above the bound it is at most, as a share of the cost."""
        return max(0.0, (self.cost - self.bound) / self.cost) if self.cost else 0.0

    def to_mapping(self) -> dict[str, Any]:
        """The summary for a program."""
        return {
            "today_is": "hub and spoke",
            "today": self.today.to_mapping(),
            "plan": self.planned.to_mapping(),
            "cost": round(self.cost, 6),
            "lower_bound": round(self.bound, 6),
            "gap": round(self.gap, 9),
            "proven": self.gap == 0,
            "infeasible": [
                {
                    "constraint": one.constraint,
                    "pairs": one.pairs,
                    "bps": one.bps,
                    "reason": one.reason,
                    "way_out": one.way_out,
                }
                for one in self.missing
            ],
        }


def cost_alone(slots: Slots, cells: Cells) -> float:
    """What it costs if each pair has its own best option."""
    rate, egress = by_row(slots, cells, alone(slots, cells))
    used = np.flatnonzero(egress)
    return float(rate[used] @ slots.fixed[used] + egress[used] @ slots.each[used])


def today(slots: Slots, cells: Cells, flow: Floats, delays: Floats) -> Figures:
    """Hub and spoke for all."""
    network = slots.options.network
    far = slots.options.haul_each[cells.origin, cells.region, DIRECT].astype(np.float64)
    copies, egress = cells.sums[COPIES], cells.sums[EGRESS]
    loads = np.concatenate((np.zeros(network.size), slots.carried(flow)))
    return _figures(
        slots,
        loads,
        delays,
        pairs=float(cells.sums[PAIRS].sum()),
        hauls=(float(copies @ far), float(egress @ far)),
        egress=(float(copies.sum()), float(egress.sum())),
    )


def planned(
    slots: Slots, solution: Solution, result: Result, before: Figures, least: float
) -> LargePlan:
    """The figures of a plan; `least` is the cost if each pair had its own best option."""
    options, sums = slots.options, result.by_row
    shape = (*options.vias.shape[:2], slots.count)
    fixed, each = (
        haul[:, :, slots.option_of].reshape(-1).astype(np.float64)
        for haul in (options.haul_fixed, options.haul_each)
    )
    relayed = np.broadcast_to(slots.option_of != DIRECT, shape).ravel()
    used = np.flatnonzero(sums[:, PAIRS])
    figures = _figures(
        slots,
        result.loads(slots),
        result.delays,
        pairs=float(sums[:, PAIRS].sum()),
        hauls=(
            float(sums[:, PAIRS] @ fixed + sums[:, COPIES] @ each),
            float(sums[:, RATE] @ fixed + sums[:, EGRESS] @ each),
        ),
        egress=(
            float(np.where(relayed, sums[:, PAIRS], sums[:, COPIES]).sum()),
            float(np.where(relayed, sums[:, RATE], sums[:, EGRESS]).sum()),
        ),
    )
    cost = float(sums[used, RATE] @ slots.fixed[used] + sums[used, EGRESS] @ slots.each[used])
    left_out = float(result.missing[_CAPACITY, 1])
    bound = _bound(slots, solution, result, left_out) if solution.priced else cost
    if not left_out:
        # What it would cost without any limits is a bound as well.
        bound = max(bound, least)
    return LargePlan(
        today=before,
        planned=figures,
        cost=cost / WEIGHT / 1e6,
        bound=bound / WEIGHT / 1e6,
        missing=tuple(
            Missing(constraint, int(pairs), int(bps), reason, way_out)
            for (constraint, reason, way_out), (pairs, bps) in zip(
                MISSING, result.missing, strict=True
            )
            if pairs
        ),
        priced=int(np.count_nonzero(solution.prices)),
    )


_CAPACITY = len(MISSING) - 1


def _bound(slots: Slots, solution: Solution, result: Result, left_out: float) -> float:
    """What any plan costs that serves as much, by the prices."""
    bound = result.least - float(solution.prices @ slots.limits)
    # To leave out a bit saves no more than its price, or than the dearest pair costs at the prices.
    return max(0.0, bound - left_out * min(solution.left_out_price, result.dearest))


def _figures(
    slots: Slots,
    loads: Floats,
    delays: Floats,
    *,
    pairs: float,
    hauls: tuple[float, float],
    egress: tuple[float, float],
) -> Figures:
    network, limits = slots.options.network, slots.limits
    over = np.flatnonzero((limits > 0) & (loads > limits))
    over = over[np.argsort(-loads[over] / limits[over], kind="stable")]
    links = np.flatnonzero(loads[network.size :]) + network.size
    links = links[np.argsort(-loads[links], kind="stable")][:10]

    def named(resources: Any) -> tuple[Load, ...]:
        return tuple(
            Load(resource_name(network, int(r)), int(loads[r]), int(limits[r])) for r in resources
        )

    return Figures(
        pairs=int(pairs),
        deliveries=int(delays.sum()),
        long_haul_copies=int(hauls[0]),
        long_haul_bps=int(hauls[1]),
        origin_egress_copies=int(egress[0]),
        origin_egress_bps=int(egress[1]),
        p95_delay_us=_p95(delays),
        overloaded=named(over),
        busiest=named(links),
        loads=np.rint(loads).astype(np.int64),
    )


def _p95(delays: Floats) -> int:
    """The least that 95 of 100 do not exceed."""
    total = int(delays.sum())
    rank = math.ceil(0.95 * total)
    return int(np.searchsorted(np.cumsum(delays), rank)) if total else 0
