"""How many objects of each track a micro-batch takes, and how they are cut into tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.spark.source.admission import share_out
from laps.spark.source.batch_reader import cut
from laps.spark.source.partitions import FEW, MANY, parts_of
from laps.spark.source.reading import Range
from laps.types import Location, TrackName

TRACK = TrackName((b"plant",), b"t")
OTHER = TrackName((b"plant",), b"u")


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 5000), st.integers(0, 50))
def test_all_that_may_be_taken_is_shared_out_fairly(
    waiting: list[int], most: int, turn: int
) -> None:
    shares = share_out(waiting, most, turn)
    assert sum(shares) == min(most, sum(waiting))
    assert all(share <= wants for share, wants in zip(shares, waiting, strict=True))
    left_out = [share for share, wants in zip(shares, waiting, strict=True) if share < wants]
    # Who does not have all has about as much as anybody else.
    assert not left_out or max(left_out) - min(left_out) <= max(1, most // len(waiting))
    assert not left_out or max(shares) - min(left_out) <= most


def test_everybody_has_a_turn_where_there_is_too_little() -> None:
    taken = [0] * 5
    for turn in range(5):
        for index, share in enumerate(share_out([9] * 5, 2, turn)):
            taken[index] += share
    assert taken == [2] * 5


def group(number: int, count: int = 10, track: TrackName = TRACK) -> Range:
    return Range(track, Location(number, 0), Location(number, count), count)


def test_a_group_is_a_task() -> None:
    ranges = [group(number) for number in range(FEW)]
    assert [part.ranges for part in parts_of(ranges)] == [(wanted,) for wanted in ranges]
    assert parts_of([]) == []


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), min_size=FEW + 1, max_size=300))
def test_many_small_groups_share_tasks(groups: list[tuple[int, bool]]) -> None:
    ranges, number = [], 0
    for count, follows in groups:
        number += 1 if follows else 3
        ranges.append(group(number, count))
    parts = parts_of(ranges)
    assert len(parts) <= MANY
    total = sum(count for count, _ in groups)
    assert sum(part.count for part in parts) == total
    assert max(part.count for part in parts) <= total / FEW + 5000
    # What is read is what was to be read, in order, and nothing between.
    read = [wanted for part in parts for wanted in part.ranges]
    assert [w.start for w in read] == sorted({w.start for w in read})
    numbers = [n for w in read for n in range(w.start.group, w.end.group + 1)]
    assert numbers == [wanted.start.group for wanted in ranges]


def test_tracks_are_not_read_as_one() -> None:
    ranges = [group(n) for n in range(40)] + [group(n, track=OTHER) for n in range(40, 80)]
    for part in parts_of(ranges):
        for wanted in part.ranges:
            assert wanted.end.group < 40 or wanted.start.group >= 40


@pytest.mark.parametrize(
    ("start", "end"),
    [((0, 0), (0, 1)), ((3, 2), (3, 9)), ((3, 2), (6, 0)), ((3, 2), (6, 1)), ((0, 0), (999, 5))],
)
def test_a_range_is_cut_into_groups(start: tuple[int, int], end: tuple[int, int]) -> None:
    pieces = list(cut(Location(*start), Location(*end)))
    assert (pieces[0][0], pieces[-1][1]) == (start, end)
    assert all(a[1] == b[0] for a, b in pairwise(pieces))
    assert all(low < high for low, high in pieces)
    assert len(pieces) <= FEW
    if end[0] < FEW:
        assert all(
            low.group == (high.group if high.object else high.group - 1) for low, high in pieces
        )
