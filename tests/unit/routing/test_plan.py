"""What a plan says of a track and a node."""

from __future__ import annotations

from laps.routing.plan import DIRECT, NO_PLAN, Plan
from laps.types import TrackKey, parse_node_id

VIA, FIRST, SECOND, STRANGER = (parse_node_id(text) for text in ("2:1", "3:1", "4:1", "5:1"))
SEVEN, EIGHT, NINE = map(TrackKey, (7, 8, 9))

PLAN = Plan(
    sequence=1,
    expires_at=100.0,
    regions={FIRST: "eu", SECOND: "us"},
    vias={SEVEN: {"eu": VIA, "us": DIRECT}, EIGHT: {"us": VIA}},
)


def test_a_track_goes_by_the_via_of_the_region() -> None:
    assert PLAN.peer_for(SEVEN, FIRST) == VIA


def test_direct_is_the_s_relay_itself() -> None:
    assert PLAN.peer_for(SEVEN, SECOND) == SECOND


def test_nothing_is_said_of_other_tracks_regions_and_nodes() -> None:
    assert PLAN.peer_for(NINE, FIRST) is None
    assert PLAN.peer_for(EIGHT, FIRST) is None
    assert PLAN.peer_for(SEVEN, STRANGER) is None
    assert NO_PLAN.peer_for(SEVEN, FIRST) is None
