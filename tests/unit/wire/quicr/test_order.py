"""The order of fragments on a stream: three rules, and START_POINT."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.types import Location
from laps.wire.buffer import VARINT_MAX
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import MediaOrder
from laps.wire.quicr.messages import Fragment
from unit.wire.quicr.strategies import EDGES

Step = tuple[int, int, int, int, bool]
"Group, object, offset, size, whether it is the last."


def fragment(group: int, object_id: int, offset: int, size: int, last: bool) -> Fragment:
    return Fragment(group, object_id, offset, bytes(size), last)


def order(*steps: Step, start: Location | None = None) -> MediaOrder:
    """An order that these fragments have come in."""
    found = MediaOrder()
    if start is not None:
        found.start(start)
    for step in steps:
        found.check(fragment(*step))
    return found


def refuses(found: MediaOrder, *step: int, last: bool = True, size: int = 1) -> str:
    before = found.next, found.inside
    with pytest.raises(QuicrViolation) as caught:
        found.check(fragment(step[0], step[1], step[2], size, last))
    assert caught.value.code is QuicrCode.PROTOCOL_VIOLATION
    assert (found.next, found.inside) == before
    return caught.value.problem


def refuses_start(found: MediaOrder, *place: int) -> str:
    before = found.next, found.inside
    with pytest.raises(QuicrViolation) as caught:
        found.start(Location(*place))
    assert caught.value.code is QuicrCode.PROTOCOL_VIOLATION
    assert (found.next, found.inside) == before
    return caught.value.problem


# -- the beginning ---------------------------------------------------------------------------------


def test_a_stream_begins_with_group_0_object_0() -> None:
    assert MediaOrder().next == (0, 0)
    assert not MediaOrder().inside
    assert order((0, 0, 0, 3, False)).inside
    assert not order((0, 0, 0, 3, True)).inside
    assert not order((0, 0, 0, 0, True)).inside


@pytest.mark.parametrize("step", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0), (VARINT_MAX, 0, 0)])
def test_a_stream_begins_nowhere_else_unless_it_says_so(step: tuple[int, int, int]) -> None:
    problem = refuses(MediaOrder(), *step)
    assert f"object {step[0]}, {step[1]} at {step[2]} " in problem
    assert "object 0, 0 at 0" in problem
    order((*step[:2], 0, 1, True), start=Location(*step[:2]))


def test_a_start_point_is_the_place_and_no_other() -> None:
    places = list(product(range(4, 8), range(3), range(2)))
    for place in places:
        found = order(start=Location(5, 1))
        if place == (5, 1, 0):
            found.check(fragment(*place, 1, True))
        else:
            refuses(found, *place)


def test_a_start_point_may_say_what_goes_without_saying() -> None:
    assert order((0, 0, 0, 1, True), start=Location(0, 0)).next == (0, 1)


# -- the three rules -------------------------------------------------------------------------------


def follows(before: Fragment, after: Fragment) -> bool:
    """The three rules, as the text has them."""
    return (
        (
            (after.group, after.object_id) == (before.group, before.object_id)
            and not before.last
            and after.offset == before.offset + len(before.data)
        )
        or (
            after.group == before.group
            and after.object_id == before.object_id + 1
            and after.offset == 0
            and before.last
        )
        or (
            after.group == before.group + 1
            and after.object_id == 0
            and after.offset == 0
            and before.last
        )
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("at", [(5, 0), (5, 2), (6, 0)])
def test_a_fragment_follows_by_one_of_three_rules_or_not_at_all(
    at: tuple[int, int], last: bool
) -> None:
    taken = set()
    for place in product(range(4, 9), range(5), range(7)):
        found = order((*at, 0, 3, False), (*at, 3, 2, last), start=Location(*at))
        after = fragment(*place, 1, True)
        if follows(fragment(*at, 3, 2, last), after):
            found.check(after)
            taken.add(place)
        else:
            refuses(found, *place)
    group, object_id = at
    if last:
        assert taken == {(group, object_id + 1, 0), (group + 1, 0, 0)}
    else:
        assert taken == {(group, object_id, 5)}


@pytest.mark.parametrize(
    ("steps", "then"),
    [
        pytest.param([(0, 0, 0, 3, False)], (0, 0, 2), id="goes back"),
        pytest.param([(0, 0, 0, 3, False)], (0, 0, 0), id="begins again"),
        pytest.param([(0, 0, 0, 3, False)], (0, 0, 4), id="leaves bytes out"),
        pytest.param([(0, 0, 0, 3, False)], (0, 1, 0), id="an object has not ended"),
        pytest.param([(0, 0, 0, 3, False)], (0, 1, 3), id="goes on in another object"),
        pytest.param([(0, 0, 0, 3, False)], (1, 0, 0), id="a group ends inside an object"),
        pytest.param([(0, 0, 0, 3, False)], (1, 0, 3), id="goes on in another group"),
        pytest.param([(0, 0, 0, 3, True)], (0, 0, 3), id="goes on behind its end"),
        pytest.param([(0, 0, 0, 3, True)], (0, 0, 0), id="comes again"),
        pytest.param([(0, 0, 0, 3, True)], (0, 1, 1), id="the next object has no beginning"),
        pytest.param([(0, 0, 0, 3, True)], (0, 2, 0), id="leaves an object out"),
        pytest.param([(0, 0, 0, 3, True)], (1, 1, 0), id="leaves the first of a group out"),
        pytest.param([(0, 0, 0, 3, True)], (1, 0, 1), id="the next group has no beginning"),
        pytest.param([(0, 0, 0, 3, True)], (2, 0, 0), id="leaves a group out"),
        pytest.param([(0, 0, 0, 1, True), (1, 0, 0, 1, True)], (0, 1, 0), id="a group goes on"),
        pytest.param([(0, 0, 0, 0, True)], (0, 0, 0), id="an empty object comes again"),
    ],
)
def test_each_rule_can_be_broken(steps: list[Step], then: tuple[int, int, int]) -> None:
    for last in (False, True):
        refuses(order(*steps), *then, last=last)


def test_objects_and_groups_follow_each_other() -> None:
    found = order(
        (0, 0, 0, 3, False),
        (0, 0, 3, 1, False),
        (0, 0, 4, 0, True),  # it ends where it went on
        (0, 1, 0, 0, True),  # it is empty
        (0, 2, 0, 9, True),
        (1, 0, 0, 1, True),
        (2, 0, 0, 1, False),
        (2, 0, 1, 1, True),
        (2, 1, 0, 1, True),
        (3, 0, 0, 1, False),
    )
    assert found.next == (3, 0)
    assert found.inside


def test_a_fragment_of_nothing_that_ends_nothing_is_refused() -> None:
    for found in (order(), order((0, 0, 0, 0, True)), order((0, 0, 0, 2, False))):
        offset = 2 if found.inside else 0
        problem = refuses(found, *found.next, offset, last=False, size=0)
        assert "empty" in problem
        found.check(fragment(*found.next, offset, 1, True))


# -- START_POINT -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(4, 2), (4, 3), (5, 0), (9, 9)])
def test_a_start_point_gives_up_the_object_that_has_begun(place: tuple[int, int]) -> None:
    found = order((4, 1, 0, 2, False), start=Location(4, 1))
    found.start(Location(*place))
    assert found.next == place
    assert not found.inside
    refuses(found, 4, 1, 2)
    refuses(found, *place, 2)
    found.check(fragment(*place, 0, 1, True))


@pytest.mark.parametrize("place", [(0, 0), (4, 0), (4, 1)])
def test_an_object_that_has_begun_does_not_begin_again(place: tuple[int, int]) -> None:
    found = order((4, 1, 0, 2, False), start=Location(4, 1))
    assert "behind what came" in refuses_start(found, *place)
    found.check(fragment(4, 1, 2, 1, True))


@pytest.mark.parametrize("place", [(0, 0), (3, 0), (4, 0), (4, 1), (3, VARINT_MAX)])
def test_no_start_point_goes_back(place: tuple[int, int]) -> None:
    found = order((4, 1, 0, 1, True), start=Location(4, 1))
    assert found.next == (4, 2)
    assert "behind what came" in refuses_start(found, *place)
    found.check(fragment(4, 2, 0, 1, True))


@pytest.mark.parametrize("place", [(4, 2), (4, 3), (4, VARINT_MAX), (5, 0), (9, 9)])
def test_a_start_point_says_where_the_media_goes_on(place: tuple[int, int]) -> None:
    found = order((4, 1, 0, 1, True), start=Location(4, 1))
    found.start(Location(*place))
    assert found.next == place
    assert not found.inside
    # It is there that it goes on, not in the group behind that.
    refuses(found, place[0] + 1, 0, 0)
    found.check(fragment(*place, 0, 1, False))
    found.check(fragment(*place, 1, 1, True))
    found.check(fragment(place[0] + 1, 0, 0, 1, True))


def test_start_points_may_follow_each_other_forwards() -> None:
    found = MediaOrder()
    for place in ((0, 0), (0, 0), (0, 7), (3, 0), (3, 0)):
        found.start(Location(*place))
    refuses_start(found, 2, 9)
    found.check(fragment(3, 0, 0, 1, True))


# -- numbers near the largest ----------------------------------------------------------------------


def test_the_last_object_there_is_can_be_followed_by_a_group() -> None:
    found = order((5, VARINT_MAX, 0, 1, True), start=Location(5, VARINT_MAX))
    refuses(found, 5, VARINT_MAX, 0)
    refuses(found, 5, 0, 0)
    found.check(fragment(6, 0, 0, 1, True))
    assert found.next == (6, 1)


def test_the_last_object_of_the_last_group_is_followed_by_nothing() -> None:
    found = order((VARINT_MAX, VARINT_MAX, 0, 1, True), start=Location(VARINT_MAX, VARINT_MAX))
    for place in product((0, VARINT_MAX), (0, VARINT_MAX), (0, 1)):
        refuses(found, *place)
        refuses_start(found, *place[:2])


@pytest.mark.parametrize("edge", EDGES)
def test_rules_hold_for_numbers_of_any_size(edge: int) -> None:
    found = order((edge, edge, 0, 1, False), start=Location(edge, edge))
    refuses(found, edge, edge + 1, 0)
    refuses(found, edge + 1, 0, 0)
    refuses(found, edge, edge, edge + 2)
    found.check(fragment(edge, edge, 1, 1, True))
    assert found.next == (edge, edge + 1)


# -- all of it -------------------------------------------------------------------------------------

small = st.integers(0, 2)
steps = st.tuples(small, small, small, small, st.booleans())


@settings(max_examples=200)
@given(st.lists(st.one_of(steps, st.tuples(small, small)), max_size=8))
def test_any_sequence_is_judged_by_the_text(said: list[Step | tuple[int, int]]) -> None:
    found = MediaOrder()
    before: Fragment | None = None  # None: nothing, or a START_POINT, said where to begin
    begin = Location(0, 0)
    for step in said:
        if len(step) == 2:
            behind = begin if before is None else Location(before.group, before.object_id + 1)
            if Location(*step) >= behind:
                found.start(Location(*step))
                before, begin = None, Location(*step)
            else:
                refuses_start(found, *step)
            continue
        after = fragment(*step)
        if before is None:
            fits = (after.group, after.object_id, after.offset) == (*begin, 0)
        else:
            fits = follows(before, after)
        if fits and (after.data or after.last):
            found.check(after)
            before = after
        else:
            refuses(found, *step[:3], size=step[3], last=step[4])
        assert found.inside is (before is not None and not before.last)
