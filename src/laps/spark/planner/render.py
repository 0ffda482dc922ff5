"""Plans and explanations for people, and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from laps import units
from laps.spark.planner.plan import describe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laps.spark.planner.explain import Explanation, Region
    from laps.spark.planner.plan import Plan
    from laps.spark.planner.summary import Figures

# More assignments than that are looked up in the table, or asked for with `explain`.
SHOWN: Final = 20


def as_mapping(plan: Plan) -> dict[str, Any]:
    """The summary and every assignment, for a program."""
    assignments = [
        {
            "track": plan.problem.tracks[one.track].label,
            "region": one.region,
            "via": one.via or None,
            "relays": one.relays,
            "long_haul_copies": one.long_haul_copies,
            "origin_egress": one.origin_egress,
            "cost": one.cost,
            "delay_us": one.delay_us,
            "stretch": round(one.stretch, 3),
            "reason": one.reason,
        }
        for one in plan.assignments
    ]
    return plan.to_mapping() | {"assignments": assignments}


def render_plan(plan: Plan) -> list[RenderableType]:
    """What was decided, what it is worth, and what is not served."""
    shown: list[RenderableType] = []
    if 0 < len(plan.assignments) <= SHOWN:
        shown.append(_assignments(plan))
    shown.append(summary(plan.today, plan.planned))
    gap = plan.solution.gap
    solved = "the best there is" if plan.solution.proven else f"at most {gap:.4%} above the best"
    shown.append(
        Text(
            f"cost {plan.cost:.6g} (weights x copies x Mbit/s), {solved}; "
            f"lower bound {plan.bound:.6g}, gap {gap:.2%}"
        )
    )
    shown += (Text(f"infeasible: {describe(plan, one)}") for one in plan.infeasible)
    return shown


def _assignments(plan: Plan) -> Table:
    shown = _table("track", "region", "goes", "s-relays", "delay", "stretch", left=3)
    for one in plan.assignments:
        shown.add_row(
            Text(plan.problem.tracks[one.track].label),
            Text(one.region or "-"),
            f"via {one.via}" if one.via else "direct",
            str(one.relays),
            f"{one.delay_us / 1000:.4g} ms",
            f"{one.stretch:.2f}",
        )
    return shown


def summary(today: Figures, planned: Figures) -> Table:
    """The figures of a plan beside those of today."""
    shown = _table("", "today", "plan", "change")

    def row(name: str, before: float, after: float, form: Any) -> None:
        change = f"{after / before - 1:+.0%}" if before and after != before else "-"
        shown.add_row(name, form(before), form(after), change)

    def count(number: float) -> str:
        return f"{number:,}"

    def milliseconds(us: float) -> str:
        return f"{us / 1000:.4g} ms"

    for name, field, form in (
        ("tracks x regions served", "pairs", count),
        ("long-haul copies", "long_haul_copies", count),
        ("long-haul rate", "long_haul_bps", units.bits),
        ("origin egress, copies", "origin_egress_copies", count),
        ("origin egress, rate", "origin_egress_bps", units.bits),
        ("p95 delay", "p95_delay_us", milliseconds),
    ):
        row(name, getattr(today, field), getattr(planned, field), form)
    row("overloaded links and Vias", len(today.overloaded), len(planned.overloaded), count)
    return shown


def render_explanation(found: Explanation) -> list[RenderableType]:
    """Every option of every region."""
    shown: list[RenderableType] = [Text(_headline(found))]
    for region in found.regions:
        relays = units.many(len(region.relays), "s-relay")
        shown.append(Text(f"\n{region.name or 'no region'}: {relays}: {', '.join(region.relays)}"))
        shown.append(_options(region))
        if region.infeasible:
            shown.append(Text(f"infeasible: {region.infeasible}. Would help: {region.way_out}"))
    return shown


def _headline(found: Explanation) -> str:
    profile = found.profile
    limit = f"{profile.stretch:g} times the direct delay and {profile.slack_us / 1000:g} ms at most"
    rules = [f"inside {', '.join(profile.inside)}"] if profile.inside else []
    rules += [f"avoid {', '.join(profile.avoid)}"] if profile.avoid else []
    return (
        f"{found.track.label}: {units.bits(found.track.rate_bps)} from {found.origin.id} in "
        f"{found.origin.region or 'no region'}; class {profile.service}: {limit}; "
        f"{'; '.join([f'fan-out {profile.fan_out}', *rules])}"
    )


def _options(region: Region) -> Table:
    shown = _table("option", "cost", "long-haul", "egress", "delay", "stretch", "why")
    for verdict in region.verdicts:
        why = f"{verdict.constraint}: {verdict.why}" if verdict.constraint else verdict.why
        shown.add_row(
            "direct" if verdict.via < 0 else f"via {verdict.label}",
            f"{verdict.cost:g}",
            str(verdict.long_haul_copies),
            str(verdict.origin_egress),
            f"{verdict.delay_us / 2000:.4g} ms",
            f"{verdict.stretch:.2f}",
            Text(why),
            style="bold" if verdict.taken else None,
        )
    return shown


def _table(*names: str, left: int = 1) -> Table:
    """The first columns are for words, and the last one if it says why; the others for numbers."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(names):
        is_words = number < left or name == "why"
        shown.add_column(name, justify="left" if is_words else "right", no_wrap=name != "why")
    return shown
