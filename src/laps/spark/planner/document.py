"""The plan that relays follow: made of a plan, signed, and published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.client.plans import DIRECT, PlanDocument, PlannedTrack
from laps.errors import ConfigError
from laps.names import hash_text

if TYPE_CHECKING:
    from pathlib import Path

    from laps.spark.planner.plan import Plan

FILE: Final = "plan.signed"
"What it is called in the plan's folder."


def document_of(plan: Plan, *, now: float, valid_s: float) -> PlanDocument:
    """What relays have to know: by which Via each track goes to each region.

    A pair without an assignment is left out, and relays select for it by themselves.
    """
    network, tracks = plan.problem.network, plan.problem.tracks
    regions: dict[str, list[str]] = {}
    for node in network.nodes:
        if node.role == "edge":
            regions.setdefault(node.region, []).append(node.id)
    by_region: dict[int, dict[str, str]] = {}
    for one in plan.assignments:
        by_region.setdefault(one.track, {})[one.region] = one.via or DIRECT
    return PlanDocument(
        sequence=int(now * 1000),
        issued_at=now,
        expires_at=now + valid_s,
        policy=plan.problem.policy.digest,
        regions=regions,
        tracks=[
            PlannedTrack(hash_text(tracks[track].hash), tracks[track].label, decided)
            for track, decided in by_region.items()
        ],
    )


def read_bytes(path: Path) -> bytes:
    """A signed plan as it is published."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give the file that --key signed") from None
