"""What part of a track is settled, whatever order its objects come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.spark.source.frontier import Frontier, Span
from laps.spark.source.offsets import BEGINNING, Position
from laps.types import Location

SETTLE_S = 1.0


def frontier(group: int = 0, object_id: int = 0, count: int = 0) -> Frontier:
    return Frontier(Position(Location(group, object_id), count), SETTLE_S)


def see(made: Frontier, *places: tuple[int, int], now: float = 0.0) -> list[bool]:
    return [made.add(group, object_id, now) for group, object_id in places]


def at(made: Frontier) -> tuple[int, int, int]:
    position = made.advance()
    return (*position.at, position.count)


def test_objects_that_follow_each_other_are_settled() -> None:
    made = frontier()
    see(made, (0, 0), (0, 1), (0, 2))
    assert at(made) == (0, 3, 3)
    assert made.deadline is None


def test_what_overtakes_waits_for_what_is_missing() -> None:
    made = frontier()
    see(made, (0, 0), (0, 2), (0, 3))
    assert at(made) == (0, 1, 1)
    see(made, (0, 1))
    assert at(made) == (0, 4, 4)
    assert made.late == 0


def test_a_gap_is_overdue_when_something_later_was_there_for_long() -> None:
    made = frontier()
    see(made, (0, 0))
    see(made, (0, 2), now=5.0)
    made.advance()
    assert made.deadline == 6.0
    assert made.overdue(5.9) is None
    assert made.overdue(6.0) == (0, 2)
    assert made.settle(Location(0, 2)) == Position(Location(0, 3), 2)


def test_gaps_that_are_overdue_are_asked_for_together() -> None:
    made = frontier()
    see(made, (0, 0), (0, 2), (0, 4), now=0.0)
    see(made, (0, 6), now=0.5)
    made.advance()
    assert made.overdue(1.0) == (0, 4)
    assert made.overdue(1.5) == (0, 6)


def test_a_group_that_was_said_to_end_makes_way_for_the_next() -> None:
    made = frontier()
    see(made, (0, 0), (0, 1), (1, 0))
    assert at(made) == (0, 2, 2)
    made.end_group(0, 2, 0.0)
    assert at(made) == (1, 1, 3)


def test_the_end_of_a_group_settles_nothing_that_is_missing_in_it() -> None:
    made = frontier()
    see(made, (0, 0), (0, 2), (1, 0))
    made.end_group(0, 3, 0.0)
    assert at(made) == (0, 1, 1)
    see(made, (0, 1))
    assert at(made) == (1, 1, 4)


def test_a_group_without_a_word_of_its_end_is_waited_for_while_it_grows() -> None:
    made = frontier()
    see(made, (0, 0), (1, 0), now=0.0)
    see(made, (0, 1), now=0.8)
    made.advance()
    assert made.overdue(1.5) is None
    assert made.overdue(1.8) == (1, 0)


def test_a_group_that_overtakes_another_waits() -> None:
    made = frontier()
    see(made, (0, 0))
    made.end_group(0, 1, 0.0)
    see(made, (2, 0), now=3.0)
    assert at(made) == (0, 1, 1)
    assert made.overdue(3.5) is None
    see(made, (1, 0), now=3.6)
    made.end_group(1, 1, 3.6)
    assert at(made) == (2, 1, 3)


def test_groups_that_are_never_published_are_passed_over_in_time() -> None:
    made = frontier()
    see(made, (0, 0))
    made.end_group(0, 1, 0.0)
    see(made, (1794769221974, 0), now=3.0)
    made.advance()
    assert made.overdue(4.0) == (1794769221974, 0)
    made.settle(Location(1794769221974, 0))
    assert at(made) == (1794769221974, 1, 2)


def test_a_group_that_ends_before_its_first_object_is_empty() -> None:
    made = frontier()
    made.end_group(0, 0, 0.0)
    see(made, (1, 0))
    assert at(made) == (1, 1, 1)


def test_the_end_of_a_track_settles_all_of_it() -> None:
    made = frontier()
    see(made, (0, 0), (0, 5), (3, 0), (3, 2))
    assert made.finish() == Position(Location(3, 3), 4)


def test_nothing_is_settled_by_the_end_of_a_track_without_objects() -> None:
    assert frontier().finish() == BEGINNING


def test_what_comes_behind_the_frontier_is_late_and_counted() -> None:
    made = frontier()
    see(made, (0, 0), (0, 2))
    made.settle(Location(0, 2))
    assert see(made, (0, 1), (0, 1)) == [False, False]
    assert made.late == 2
    assert at(made) == (0, 3, 2)


def test_what_comes_again_is_not_late() -> None:
    made = frontier()
    see(made, (0, 0), (0, 1))
    made.advance()
    assert see(made, (0, 0), (0, 1)) == [True, True]
    assert made.late == 0
    assert at(made) == (0, 2, 2)


def test_it_goes_on_from_where_a_query_was() -> None:
    made = frontier(7, 3, count=100)
    see(made, (7, 3), (7, 4))
    assert at(made) == (7, 5, 102)
    assert made.covers(Location(7, 3))
    assert not made.covers(Location(7, 2))


def test_spans_are_the_objects_of_each_group() -> None:
    made = frontier()
    see(made, (0, 0), (0, 1), (0, 3), (2, 5), (2, 6))
    everything = made.spans(Location(0, 0), Location(9, 0))
    assert everything == [Span(0, 0, 4, 3), Span(2, 5, 7, 2)]
    assert made.spans(Location(0, 1), Location(2, 6)) == [Span(0, 1, 4, 2), Span(2, 5, 6, 1)]
    assert made.spans(Location(0, 2), Location(0, 3)) == []
    assert made.spans(Location(1, 0), Location(2, 0)) == []


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, (0, 1, 1)), (2, (0, 2, 2)), (3, (0, 4, 3)), (4, (2, 6, 4)), (5, (2, 7, 5))],
)
def test_so_many_objects_end_at(most: int, expected: tuple[int, int, int]) -> None:
    made = frontier()
    see(made, (0, 0), (0, 1), (0, 3), (2, 5), (2, 6))
    made.finish()
    position = made.after(BEGINNING, most)
    assert (*position.at, position.count) == expected


def test_what_was_committed_is_forgotten() -> None:
    made = frontier()
    see(made, (0, 0), (1, 0), (1, 1), (1, 4), (2, 0))
    made.finish()
    made.forget(Location(1, 3))
    assert made.covers(Location(1, 3))
    assert not made.covers(Location(1, 2))
    assert made.spans(Location(0, 0), Location(9, 0)) == [Span(1, 4, 5, 1), Span(2, 0, 1, 1)]


def test_nothing_is_forgotten_ahead_of_the_frontier() -> None:
    made = frontier()
    see(made, (0, 0), (0, 1), (1, 0))
    made.advance()
    made.forget(Location(5, 0))
    see(made, (0, 2))
    assert at(made) == (0, 3, 3)


# -- whatever order they come in -------------------------------------------------------------------

tracks = st.dictionaries(
    st.integers(0, 6), st.sets(st.integers(0, 8), min_size=1), min_size=1, max_size=5
)


@given(tracks, st.randoms(use_true_random=False), st.integers(1, 7))
def test_the_same_is_settled_in_any_order(
    track: dict[int, set[int]], random: object, most: int
) -> None:
    places = [(group, object_id) for group, ids in track.items() for object_id in ids]
    ordered = sorted(places)
    shuffle(places, random)
    made = frontier()
    now, late = 0.0, 0
    for place in places:
        now += 0.25
        late += not made.add(*place, now)
        # Only ever what is contiguous from the beginning on.
        position = made.advance()
        before = [p for p in ordered if p < position.at]
        assert position.count == len(before)
        assert all(p in places[: places.index(place) + 1] for p in before)
    assert late == 0
    assert made.finish() == Position(Location(ordered[-1][0], ordered[-1][1] + 1), len(ordered))
    # Taken some at a time, each object is in one batch.
    start, taken = BEGINNING, []
    while start != made.position:
        end = made.after(start, most)
        assert 0 < end.count - start.count <= most
        for span in made.spans(start.at, end.at):
            batch = [p for p in ordered if p[0] == span.group and span.first <= p[1] < span.end]
            assert len(batch) == span.count
            taken += batch
        start = end
    assert taken == ordered


@given(tracks, st.randoms(use_true_random=False))
def test_what_is_overdue_is_asked_for_and_then_all_is_settled(
    track: dict[int, set[int]], random: object
) -> None:
    """However long things take, an object is settled once, or late: never neither, never both."""
    places = [(group, object_id) for group, ids in track.items() for object_id in ids]
    shuffle(places, random)
    made = frontier()
    now, settled = 0.0, set()
    for place in places:
        now += 0.7
        made.add(*place, now)
        before = made.position
        made.advance()
        if (upto := made.overdue(now)) is not None:
            made.settle(upto)
        settled |= seen(made, before.at, made.position.at)
    settled |= seen(made, made.position.at, made.finish().at)
    assert len(settled) + made.late == len(places)
    assert made.position.count == len(settled)


def seen(made: Frontier, start: Location, end: Location) -> set[tuple[int, int]]:
    return {
        (span.group, object_id)
        for span in made.spans(start, end)
        for low, high in made._groups[span.group].between(span.first, span.end)
        for object_id in range(low, high)
    }


def shuffle(places: list[tuple[int, int]], random: object) -> None:
    random.shuffle(places)  # type: ignore[attr-defined]
