"""A plan: an assignment for every pair that has one, the others by name, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laps import units
from laps.spark.planner.exact import TIME_LIMIT_S, Solution, solve
from laps.spark.planner.options import WEIGHT
from laps.spark.planner.summary import Figures, figures_of, figures_of_today
from laps.spark.planner.verdicts import CAPACITY, Verdict, hinder, judge, setting

if TYPE_CHECKING:
    from laps.spark.planner.problem import Problem


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is decided for one pair."""

    pair: int
    track: int
    region: str
    via: str
    """The node id of the Via; empty: hub and spoke."""
    relays: int
    long_haul_copies: int
    origin_egress: int
    cost: float
    """Weights times copies times Mbit/s."""
    delay_us: int
    """To the s-relay that is farthest: half a sum of sRTT."""
    stretch: float
    reason: str


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A pair that nothing within the constraints serves."""

    pair: int
    track: int
    region: str
    relays: int
    constraint: str
    reason: str
    way_out: str


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The whole of it; make one with `make_plan`."""

    problem: Problem
    solution: Solution
    assignments: tuple[Assignment, ...]
    infeasible: tuple[Infeasible, ...]
    today: Figures
    planned: Figures

    @property
    def cost(self) -> float:
        """Of all assignments: weights times copies times Mbit/s."""
        return self.solution.cost / WEIGHT / 1e6

    @property
    def bound(self) -> float:
        """What any plan that serves as much costs at least."""
        return self.solution.bound / WEIGHT / 1e6

    def to_mapping(self) -> dict[str, Any]:
        """The summary for a program."""
        return {
            "format": "laps-plan-summary/1",
            "policy": self.problem.policy.digest,
            "nodes": self.problem.network.size,
            "tracks": len(self.problem.tracks),
            "today_is": "hub and spoke" if self.problem.today is None else "as relays report it",
            "today": self.today.to_mapping(),
            "plan": self.planned.to_mapping(),
            "cost": round(self.cost, 9),
            "lower_bound": round(self.bound, 9),
            "gap": round(self.solution.gap, 9),
            "proven": self.solution.proven,
            "infeasible": [
                {
                    "track": self.problem.tracks[one.track].label,
                    "region": one.region,
                    "relays": one.relays,
                    "constraint": one.constraint,
                    "reason": one.reason,
                    "way_out": one.way_out,
                }
                for one in self.infeasible
            ],
        }


def make_plan(problem: Problem, *, time_limit_s: float = TIME_LIMIT_S) -> Plan:
    """Solve it, and say for each pair what was decided and why."""
    solution = solve(problem.options, problem.pairs, time_limit_s=time_limit_s)
    court = setting(problem.options, problem.pairs, solution.loads)
    assignments, infeasible = [], []
    for pair in range(len(problem.pairs)):
        chosen = int(solution.choice[pair])
        verdicts = judge(court, pair, chosen)
        if chosen >= 0:
            assignments.append(_assignment(problem, pair, verdicts))
        else:
            infeasible.append(_infeasible(problem, pair, verdicts))
    return Plan(
        problem=problem,
        solution=solution,
        assignments=tuple(assignments),
        infeasible=tuple(infeasible),
        today=figures_of_today(problem),
        planned=figures_of(problem, solution.choice),
    )


def _assignment(problem: Problem, pair: int, verdicts: tuple[Verdict, ...]) -> Assignment:
    pairs = problem.pairs
    taken = next(verdict for verdict in verdicts if verdict.taken)
    return Assignment(
        pair=pair,
        track=int(pairs.track[pair]),
        region=problem.network.regions[pairs.region[pair]],
        via="" if taken.via < 0 else taken.label,
        relays=int(pairs.n[pair]),
        long_haul_copies=taken.long_haul_copies,
        origin_egress=taken.origin_egress,
        cost=taken.cost * int(pairs.rate_bps[pair]) / 1e6,
        delay_us=taken.delay_us // 2,
        stretch=taken.stretch,
        reason=_reason(taken, verdicts),
    )


def _reason(taken: Verdict, verdicts: tuple[Verdict, ...]) -> str:
    """What told it from the others, in a line."""
    place = verdicts.index(taken)
    reasons = [f"{_name(v)} comes first, but {v.why}" for v in verdicts[:place]]
    behind = next((v for v in verdicts[place + 1 :] if not v.constraint), None)
    if behind is not None:
        reasons.append(f"{_name(behind)} {behind.why}")
    return "; ".join(reasons) or "the only option"


def _name(verdict: Verdict) -> str:
    return "direct" if verdict.via < 0 else f"via {verdict.label}"


def _infeasible(problem: Problem, pair: int, verdicts: tuple[Verdict, ...]) -> Infeasible:
    pairs, options = problem.pairs, problem.options
    profile = options.profiles[int(pairs.profile[pair])]
    region = problem.network.regions[pairs.region[pair]]
    constraint, reason, way_out = hinder(profile, verdicts, int(pairs.n[pair]))
    if not pairs.mask[pair] and _ends_are_welcome(problem, pair):
        vias = int(np.count_nonzero(problem.network.is_via))
        looked_at = sum(verdict.via >= 0 for verdict in verdicts)
        if looked_at < vias and looked_at == options.candidates < 7:
            way_out += f"; or raise candidates: {looked_at} of {vias} Vias were looked at"
        elif not looked_at:
            way_out += f"; or add a Via in {region or 'the region'}"
    constraint = constraint or CAPACITY
    return Infeasible(
        pair=pair,
        track=int(pairs.track[pair]),
        region=region,
        relays=int(pairs.n[pair]),
        constraint=constraint,
        reason=reason,
        way_out=way_out,
    )


def _ends_are_welcome(problem: Problem, pair: int) -> bool:
    """Whether its rules let the track be at its o-relay and its s-relays: else no Via helps."""
    pairs = problem.pairs
    profile = problem.options.profiles[int(pairs.profile[pair])]
    ends = (pairs.origin[pair], *pairs.relays[pair])
    regions = {problem.network.nodes[node].region for node in ends}
    return (not profile.inside or regions <= {*profile.inside}) and not regions & {*profile.avoid}


def describe(plan: Plan, one: Infeasible) -> str:
    """An infeasible pair in a sentence."""
    relays = units.many(one.relays, "s-relay")
    label = plan.problem.tracks[one.track].label
    where = one.region or "no region"
    return (
        f"{label} in {where} ({relays}): {one.constraint}: {one.reason}. Would help: {one.way_out}"
    )
