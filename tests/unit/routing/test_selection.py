"""One key, and a reason in an operator's words."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.nodes import PathCandidate, SessionId
from laps.routing.selection import select
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType, parse_node_id


def path(
    session: int,
    *,
    peer: str = "1:2",
    hops: int = 0,
    srtt_ms: float = 10,
    opened_at: float = 0.0,
    carries_data: bool = True,
) -> PathCandidate:
    way = tuple(NodePathItem(NodeId(number), 0) for number in range(hops))
    info = NodeInfo(parse_node_id("9:9"), NodeType.EDGE, path=way)
    srtt_us = round(srtt_ms * 1000)
    return PathCandidate(
        SessionId(session), parse_node_id(peer), info, srtt_us, opened_at, carries_data
    )


candidates = st.lists(
    st.builds(
        path,
        st.integers(0, 5),
        peer=st.sampled_from(["1:2", "1:3"]),
        hops=st.integers(0, 2),
        srtt_ms=st.sampled_from([10, 20]),
        opened_at=st.sampled_from([0.0, 1.0]),
        carries_data=st.booleans(),
    ),
    min_size=1,
    unique_by=lambda candidate: candidate.session,
)


@pytest.mark.parametrize(
    ("best", "other", "reason"),
    [
        (
            path(1, hops=5),
            path(2, peer="1:3", carries_data=False),
            "carries data, the path via 1:3 does not",
        ),
        (path(1, hops=1), path(2, peer="1:3", hops=2), "fewest hops: 1 against 2 via 1:3"),
        (
            path(1, srtt_ms=75),
            path(2, peer="1:5", srtt_ms=150),
            "lowest sRTT: 75 ms against 150 ms via 1:5",
        ),
        (
            path(1, srtt_ms=1000),
            path(2, srtt_ms=1000.001),
            "lowest sRTT: 1000 ms against 1000.001 ms via 1:2",
        ),
        (path(2, peer="1:2"), path(1, peer="1:3"), "lowest peer id: 1:2 against 1:3"),
        (path(2, opened_at=1.0), path(1, opened_at=2.0), "oldest session with 1:2"),
        (path(1), path(2), "lowest session number: 1 against 2"),
    ],
    ids=["data", "hops", "srtt", "microseconds", "peer", "age", "session"],
)
def test_the_first_criterion_that_differs_decides(
    best: PathCandidate, other: PathCandidate, reason: str
) -> None:
    for order in ([best, other], [other, best]):
        choice = select(order)
        assert choice is not None
        assert choice.path is best
        assert choice.reason == reason


def test_one_hop_beats_three_however_slow() -> None:
    choice = select([path(1, hops=3, srtt_ms=100), path(2, hops=1, srtt_ms=200)])
    assert choice is not None
    assert choice.path.session == 2


def test_one_path_is_the_only_one() -> None:
    choice = select([path(1)])
    assert choice is not None
    assert choice.reason == "only path"


def test_the_reason_is_against_the_second_best() -> None:
    choice = select([path(1, hops=3), path(2, srtt_ms=20, peer="1:4"), path(3, srtt_ms=10)])
    assert choice is not None
    assert choice.reason == "lowest sRTT: 10 ms against 20 ms via 1:4"


def test_nothing_is_selected_of_nothing() -> None:
    assert select([]) is None


def test_what_is_not_admitted_is_not_selected() -> None:
    paths = [path(1), path(2, hops=1), path(3, hops=2)]
    choice = select(paths, admit=lambda candidate: candidate.session == 3)
    assert choice is not None
    assert choice.path.session == 3
    assert choice.reason == "only path; 2 not admitted"
    assert select(paths, admit=lambda _: False) is None


@given(candidates, st.randoms(use_true_random=False))
def test_the_order_of_arrival_decides_nothing(paths: list[PathCandidate], random: Random) -> None:
    shuffled = random.sample(paths, len(paths))
    assert select(shuffled) == select(paths)


@given(candidates)
def test_no_other_path_is_better(paths: list[PathCandidate]) -> None:
    choice = select(paths)
    assert choice is not None
    for other in paths:
        pair = select([choice.path, other]) if other is not choice.path else choice
        assert pair is not None
        assert pair.path is choice.path
