"""What a plan says of a track and a node."""

from __future__ import annotations

from laps.routing.plan import DIRECT, NO_PLAN, Plan
from laps.types import parse_node_id

VIA, FIRST, SECOND, STRANGER = (parse_node_id(text) for text in ("2:1", "3:1", "4:1", "5:1"))

PLAN = Plan(
    sequence=1,
    expires_at=100.0,
    regions={FIRST: "eu", SECOND: "us"},
    vias={7: {"eu": VIA, "us": DIRECT}, 8: {"us": VIA}},
)


def test_a_track_goes_by_the_via_of_the_region() -> None:
    assert PLAN.peer_for(7, FIRST) == VIA


def test_direct_is_the_s_relay_itself() -> None:
    assert PLAN.peer_for(7, SECOND) == SECOND


def test_nothing_is_said_of_other_tracks_regions_and_nodes() -> None:
    assert PLAN.peer_for(9, FIRST) is None
    assert PLAN.peer_for(8, FIRST) is None
    assert PLAN.peer_for(7, STRANGER) is None
    assert NO_PLAN.peer_for(7, FIRST) is None
