"""A path in use is kept until another is worth the change, for long enough, or it has to go."""

import pytest

from laps.infobase.nodes import Gain, Nodes, PathCandidate, SessionId
from laps.routing.avoided import Avoided
from laps.routing.steady import Steadiness, Steady
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType

SELF, TARGET, NEAR, FAR = NodeId(7), NodeId(9), NodeId(1), NodeId(2)
BY_NEAR, BY_FAR = SessionId(1), SessionId(2)
WAY = {BY_NEAR: NEAR, BY_FAR: FAR}


def path(
    session: SessionId, srtt_us: int, hops: int = 1, *, carries_data: bool = True
) -> PathCandidate:
    way = tuple(NodePathItem(NodeId(100 + number), 0) for number in range(hops))
    info = NodeInfo(TARGET, NodeType.EDGE, path=way)
    return PathCandidate(session, WAY[session], info, srtt_us, 0.0, carries_data)


@pytest.mark.parametrize(
    ("held_us", "best_us", "gain"),
    [
        (26_140, 26_000, Gain.LITTLE),
        (100_000, 95_000, Gain.LITTLE),  # 5 ms, and 5 %
        (4_000, 2_500, Gain.LITTLE),  # 37 %, and 1.5 ms
        (20_000, 18_000, Gain.WORTH),
        (100_000, 90_000, Gain.WORTH),
    ],
)
def test_a_shorter_round_trip_has_to_be_shorter_by_a_share_and_a_time(
    held_us: int, best_us: int, gain: Gain
) -> None:
    steady = Steady(Steadiness(), Avoided())
    assert steady.gain(path(BY_FAR, held_us), path(BY_NEAR, best_us)) is gain


def test_what_has_to_be_is_done_at_once() -> None:
    avoided = Avoided()
    steady = Steady(Steadiness(), avoided)
    held = path(BY_FAR, 10_000)
    assert steady.gain(path(BY_FAR, 1_000, 2), path(BY_NEAR, 90_000, 1)) is Gain.MUST
    assert steady.gain(path(BY_FAR, 1_000, carries_data=False), held) is Gain.MUST
    avoided.suspect.add(BY_FAR)
    assert steady.gain(held, path(BY_NEAR, 90_000)) is Gain.MUST


class World:
    """Nodes with two ways to a target."""

    def __init__(self) -> None:
        self.avoided = Avoided()
        steady = Steady(Steadiness(), self.avoided)
        self.nodes = Nodes(SELF, self.avoided.select, steady.gain)
        for session, peer_id in WAY.items():
            self.nodes.open_session(session, peer_id, 20_000, 0.0, True)
            way = (NodePathItem(peer_id, 0),)
            self.nodes.add(session, NodeInfo(TARGET, NodeType.EDGE, path=way))

    @property
    def chosen(self) -> SessionId | None:
        choice = self.nodes.best(TARGET)
        return None if choice is None else choice.path.session


def test_little_gain_changes_nothing_and_is_explained() -> None:
    world = World()
    assert world.chosen == BY_NEAR
    assert world.nodes.set_srtt(BY_FAR, 19_900) == []
    assert world.chosen == BY_NEAR
    choice = world.nodes.best(TARGET)
    assert choice is not None
    assert choice.reason == "in use, and 20 ms against 19.9 gains too little"
    assert not world.nodes.challenged


def test_a_gain_is_taken_when_it_has_lasted_and_not_if_it_has_gone() -> None:
    world = World()
    world.nodes.set_srtt(BY_FAR, 10_000)
    assert world.chosen == BY_NEAR
    first = world.nodes.challenged[TARGET]
    world.nodes.set_srtt(BY_FAR, 19_000)
    assert not world.nodes.challenged
    assert world.nodes.change(TARGET) is None
    world.nodes.set_srtt(BY_FAR, 10_000)
    assert world.nodes.challenged[TARGET] > first
    change = world.nodes.change(TARGET)
    assert change is not None
    assert change.new is not None
    assert change.new.path.session == world.chosen == BY_FAR
    assert not world.nodes.challenged


def test_the_path_in_use_is_left_at_once_when_its_session_closes_or_falls_silent() -> None:
    world = World()
    world.avoided.suspect.add(BY_NEAR)
    (change,) = world.nodes.reselect(BY_NEAR)
    assert change.new is not None
    assert world.chosen == BY_FAR
    # Heard again, it gains nothing: the other is in use now.
    world.avoided.suspect.discard(BY_NEAR)
    assert world.nodes.reselect(BY_NEAR) == []
    assert world.chosen == BY_FAR
    world.nodes.close_session(BY_FAR)
    assert world.chosen == BY_NEAR
