from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from laps.ranges import (
    LAST_OBJECT,
    Numbers,
    Range,
    RangeSet,
    after,
    before,
    beyond,
    end_after,
    last_of,
    without,
)
from laps.types import Location

SPANS = st.tuples(st.integers(0, 20), st.integers(0, 20))


def numbers_in(ranges: RangeSet[int]) -> set[int]:
    return {number for first, end in ranges for number in range(first, end)}


@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=12), SPANS)
def test_ranges_are_a_set_of_numbers(
    steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    ranges: RangeSet[int] = RangeSet()
    known: set[int] = set()
    for adds, (first, end) in steps:
        if adds:
            ranges.add_range(first, end)
            known |= set(range(first, end))
        else:
            ranges.remove_range(first, end)
            known -= set(range(first, end))
        assert numbers_in(ranges) == known
        spans = list(ranges)
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        assert len(ranges) == len(spans)
    assert all((number in ranges) is (number in known) for number in range(21))
    gaps = RangeSet(ranges.gaps(*asked))
    assert numbers_in(gaps) == set(range(*asked)) - known


def test_ranges_of_locations_meet_over_the_end_of_a_group() -> None:
    first, last = Location(1, 4), Location(1, LAST_OBJECT)
    ranges = RangeSet([(first, after(last)), (Location(2, 0), Location(2, 7))])
    assert list(ranges) == [(first, Location(2, 7))]
    assert Location(1, 3) not in ranges
    assert last in ranges


@given(st.lists(st.integers(0, 30)))
def test_ranges_numbers_say_whether_they_are_new(numbers: list[int]) -> None:
    ids, known = Numbers(), set[int]()
    for number in numbers:
        assert ids.add(number) is (number not in known)
        known.add(number)
        assert all((n in ids) is (n in known) for n in range(31))
        assert ids.first_missing() == min(set(range(32)) - known)


def test_ranges_of_a_track_are_left_without_what_is_known() -> None:
    whole: Range = (Location(1, 0), Location(3, LAST_OBJECT))
    left = without([whole], (Location(2, 0), Location(2, 5)))
    assert left == [
        (Location(1, 0), Location(1, LAST_OBJECT)),
        (Location(2, 6), Location(3, LAST_OBJECT)),
    ]
    assert without(left, whole) == []
    assert without(left, (Location(8, 0), Location(9, 0))) == left


def test_locations_follow_each_other() -> None:
    last = Location(4, LAST_OBJECT)
    assert after(last) == Location(5, 0)
    assert before(Location(5, 0)) == last
    assert after(Location(4, 6)) == Location(4, 7)
    assert before(Location(4, 7)) == Location(4, 6)


def test_locations_at_the_end_of_a_range_stand_for_a_group_with_object_0() -> None:
    assert end_after(Location(4, 6)) == Location(4, 7)
    assert end_after(Location(4, LAST_OBJECT)) == Location(4, 0)
    assert last_of(Location(4, 7)) == Location(4, 6)
    assert last_of(Location(4, 0)) == Location(4, LAST_OBJECT)
    assert beyond(Location(4, 0)) > Location(4, LAST_OBJECT)
    assert beyond(Location(4, 7)) == Location(4, 7)
