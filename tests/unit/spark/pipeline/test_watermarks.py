from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.spark.pipeline.watermarks import (
    AHEAD,
    DELAY,
    IDLE,
    MINUTE,
    Mark,
    Seen,
    advance,
    late,
    minute_of,
)

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def seen(*minutes: float, node: str = "a") -> list[Seen]:
    return [Seen(node, minute_of(at(m)), 1, at(m)) for m in minutes]


def test_a_minute_is_closed_when_the_relay_is_the_delay_past_its_end() -> None:
    marks = advance({}, seen(0, 0.5))
    assert (marks["a"].closed, marks["a"].closes) == (at(0), False)
    marks = advance(marks, seen(2.99))
    assert not marks["a"].closes
    marks = advance(marks, seen(3))
    assert (marks["a"].first, marks["a"].closed, marks["a"].closes) == (at(0), at(1), True)
    # Minutes without records in between close with the rest, and the next batch closes the next.
    marks = advance(marks, seen(9))
    assert (marks["a"].first, marks["a"].closed, marks["a"].closed_before) == (at(1), at(7), at(1))


def test_a_record_of_a_closed_minute_is_late_and_others_are_not() -> None:
    marks = advance({}, seen(0, 5))
    batch = [*seen(2.9, 3), *seen(0, node="b")]
    after = advance(marks, batch)
    assert late(after, batch) == seen(2.9)
    assert after["a"].first == at(3)  # a late one opens nothing


def test_what_closes_in_the_same_batch_is_not_late() -> None:
    batch = seen(0, 1, 2, 30)
    marks = advance({}, batch)
    assert late(marks, batch) == []
    assert (marks["a"].first, marks["a"].closed) == (at(0), at(28))


def test_a_relay_that_was_cut_off_is_not_late() -> None:
    marks = advance({}, [*seen(0), *seen(0, node="b")])
    marks = advance(marks, seen(60))
    assert marks["b"].closed == at(1)  # it has fallen silent, and its last minute is closed
    caught_up = seen(*range(1, 61), node="b")
    after = advance(marks, caught_up)
    assert late(after, caught_up) == []
    assert (after["b"].first, after["b"].closed) == (at(1), at(58))


def test_a_silent_relay_is_closed_once() -> None:
    marks = advance({}, [*seen(0), *seen(0, node="b")])
    marks = advance(marks, seen(IDLE / MINUTE))
    assert not marks["b"].closes  # not yet
    marks = advance(marks, seen(IDLE / MINUTE + 0.1))
    assert (marks["b"].closes, marks["b"].closed) == (True, at(1))
    marks = advance(marks, seen(IDLE / MINUTE + 0.2))
    assert (marks["b"].closes, marks["b"].first, marks["b"].closed_before) == (False, None, at(1))


def test_a_clock_that_is_far_ahead_for_a_moment_makes_nothing_late() -> None:
    wrong = Seen("a", minute_of(at(50_000)), 1, at(1) + AHEAD)  # as it was received at minute 1
    marks = advance({}, [*seen(0, 1), wrong])
    batch = seen(1.1, 5)
    after = advance(marks, batch)
    assert late(after, batch) == []
    assert after["a"].closed == at(3)
    # Even if it falls silent then: its wrong minute stays open, the others are closed.
    silent = advance(after, seen(30, node="b"))
    assert silent["a"].closed == at(6)
    again = seen(31)
    assert late(advance(silent, again), again) == []


def test_a_clock_that_was_put_back_is_late_until_it_is_where_it_was() -> None:
    marks = advance({}, seen(0, 10))
    batch = seen(1, 7.9, 8)
    after = advance(marks, batch)
    assert late(after, batch) == seen(1, 7.9)
    assert after["a"].closed == at(8)


def test_a_batch_of_nothing_closes_nothing_again() -> None:
    marks = advance({}, seen(0, 10))
    assert marks["a"].closes
    assert not advance(marks, [])["a"].closes
    assert advance({}, []) == {}


MINUTES_OF_DAY = st.integers(0, 40)
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), MINUTES_OF_DAY), max_size=8), max_size=12
)


@given(BATCHES)
def test_every_record_is_written_once_late_or_still_open(
    batches: list[list[tuple[str, int]]],
) -> None:
    marks: dict[str, Mark] = {}
    raw: list[tuple[str, datetime]] = []
    written: list[tuple[str, datetime]] = []
    too_late: list[Seen] = []
    for batch in batches:
        some = [Seen(node, at(minute), 1, at(minute)) for node, minute in batch]
        raw += [(one.node, one.minute) for one in some]
        marks = advance(marks, some)
        too_late += late(marks, some)
        closing = [mark for mark in marks.values() if mark.closes]
        written += rows_of(closing, raw)
    assert len(written) == len(set(written))  # a minute of a relay is never written again
    open_rows = [row for row in raw if row[1] >= marks[row[0]].closed]
    late_rows = [(one.node, one.minute) for one in too_late]
    for row in raw:
        assert row in written or row in open_rows or row in late_rows
        assert not (row in written and row in open_rows)
    for mark in marks.values():
        assert mark.closed <= max(minute_of(mark.newest - DELAY), minute_of(mark.newest) + MINUTE)


def rows_of(closing: Iterable[Mark], raw: list[tuple[str, datetime]]) -> list[tuple[str, datetime]]:
    """As the minute table gets them: those of the raw rows that are there, each minute once."""
    return sorted(
        {
            (node, minute)
            for mark in closing
            for node, minute in raw
            if node == mark.node and mark.first is not None and mark.first <= minute < mark.closed
        }
    )


@pytest.mark.parametrize("second", [0, 59])
def test_a_time_is_in_the_minute_that_began_last(second: int) -> None:
    assert minute_of(NOON.replace(second=second, microsecond=999)) == NOON
