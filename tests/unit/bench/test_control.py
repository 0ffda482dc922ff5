"""Control servers are measured: what the figures are made of."""

from __future__ import annotations

import pytest

from laps.bench.control import Asked, Compared, Result, Stretch, compare, mapping, share_of, table


def test_what_is_wanted_and_not_known_is_missed_whichever_process_has_it() -> None:
    wanted = [bytes([1, 0, 1, 0]), bytes([0, 1, 0, 0])]
    assert compare(wanted, [bytes([0, 1, 0, 0]), bytes([1, 0, 1, 0])]) == Compared(0, 0)
    assert compare(wanted, [bytes([0, 0, 0, 0]), bytes([1, 0, 1, 0])]) == Compared(1, 0, (1,))


def test_what_is_known_and_not_wanted_is_left_over() -> None:
    found = compare([bytes([1, 0, 0, 0])], [bytes([0, 0, 1, 1])])
    assert found == Compared(missed=1, left_over=2, examples=(0, 2, 3))


def test_no_more_than_some_examples_are_named() -> None:
    found = compare([bytes([1]) * 5000], [bytes(5000)])
    assert found.missed == 5000
    assert found.examples == tuple(range(10))


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_share_of_sorted_values_is_at_most_this(share: float, value: float) -> None:
    assert share_of([1.0, 2.0, 3.0, 4.0], share) == value
    assert share_of([], share) == 0.0


def test_delays_are_of_the_stretch_in_which_changes_were_made() -> None:
    result = Result(Asked(), samples=[(1.0, 0.001), (2.0, 0.002), (3.0, 0.5)])
    result.add_delays(Stretch("changes", 1.0, 3.0, 2))
    assert [it.figure for it in result.figures] == [2.0, 2.0, 2.0]


def test_a_machine_that_makes_fewer_changes_is_named() -> None:
    steady, killed = Stretch("changes", 0.0, 10.0, 960), Stretch("a server is killed", 10, 20, 800)
    for stretches, keeps_up in (([steady], True), ([steady, killed], False)):
        result = Result(Asked(rate=100.0), stretches=stretches)
        assert result.keeps_up is keeps_up
        assert ("did not keep up" in str(table(result).caption)) is not keeps_up


@pytest.mark.parametrize(("left_over", "holds"), [(0, True), (1, False)])
def test_one_subscribe_that_is_left_over_is_one_too_many(left_over: int, *, holds: bool) -> None:
    result = Result(Asked())
    result.add("compared", "missed", 0, most=0)
    result.add("compared", "left over", left_over, most=0)
    assert result.holds() is holds
    assert mapping(result)["holds"] is holds
