"""What a plan says of a track and a node."""

from __future__ import annotations

from laps.routing.plan import DIRECT, NO_PLAN, Plan, PlannedWay
from laps.types import TrackKey, parse_node_id

VIA, FIRST, SECOND, STRANGER = (parse_node_id(text) for text in ("2:1", "3:1", "4:1", "5:1"))
SEVEN, EIGHT, NINE = map(TrackKey, (7, 8, 9))

PLAN = Plan(
    sequence=1,
    expires_at=100.0,
    regions={FIRST: "eu", SECOND: "us"},
    vias={SEVEN: {"eu": (VIA,), "us": DIRECT}, EIGHT: {"us": (VIA,)}},
)


def test_a_track_goes_by_the_via_of_the_region() -> None:
    assert PLAN.way_for(SEVEN, FIRST) == (VIA,)


def test_direct_is_the_s_relay_itself() -> None:
    assert PLAN.way_for(SEVEN, SECOND) == DIRECT


def test_nothing_is_said_of_other_tracks_regions_and_nodes() -> None:
    assert PLAN.way_for(NINE, FIRST) is None
    assert PLAN.way_for(EIGHT, FIRST) is None
    assert PLAN.way_for(SEVEN, STRANGER) is None
    assert NO_PLAN.way_for(SEVEN, FIRST) is None


def test_what_is_said_of_patterns_and_classes_counts_where_nothing_is_said_of_the_track() -> None:
    ways = (
        PlannedWay("clinic/*", "", {"eu": (VIA, SECOND)}),
        PlannedWay("", "gold", {"eu": DIRECT, "": (STRANGER,)}),
    )
    plan = Plan(1, 100.0, PLAN.regions, PLAN.vias, ways)
    assert plan.way_for(SEVEN, FIRST, "clinic/a") == (VIA,)
    assert plan.way_for(NINE, FIRST, "clinic/a", "gold") == (VIA, SECOND)
    assert plan.way_for(NINE, SECOND, "clinic/a", "gold") == (STRANGER,)
    assert plan.way_for(NINE, FIRST, "demo/a", "gold") == DIRECT
    assert plan.way_for(NINE, FIRST, None, "gold") == DIRECT
    assert plan.way_for(NINE, FIRST, "demo/a", "silver") is None
    assert plan.way_for(NINE, STRANGER, None, "gold") == (STRANGER,)
