"""Groups and objects in their order, as far as that can be had without waiting for ever."""

from __future__ import annotations

import pytest

from laps.client.gaps import PRIOR_GROUP_ID_GAP, PRIOR_OBJECT_ID_GAP
from laps.client.sequencer import Sequencer
from laps.client.values import Object
from laps.wire.moqt.data import ObjectStatus


class Lane:
    """A sequencer, and the streams that have not come."""

    def __init__(self, *, ordered: bool = True) -> None:
        self.missing: set[int] = set()
        self.sequencer = Sequencer(
            lambda stream: all(number >= stream for number in self.missing),
            lambda stream: self.missing.clear(),
            ordered=ordered,
            patience_s=1.0,
        )
        self.sequencer.held = False
        self.read: list[tuple[int, int]] = []
        self.now = 0.0
        self._streams = 0

    def opened(self, group: int) -> None:
        self._streams += 1
        self.sequencer.opened(group, self._streams)

    def add(
        self,
        group: int,
        number: int,
        subgroup: int | None = 0,
        status: ObjectStatus = ObjectStatus.NORMAL,
        extensions: tuple[tuple[int, int], ...] = (),
    ) -> None:
        item = Object(group, number, b"", subgroup, extensions, status)
        if not self.sequencer.add(item):
            self.read.append((group, number))
        self.advance()

    def group(self, group: int, *, marked: bool = False) -> None:
        """A group of three objects, whole."""
        self.opened(group)
        for number in range(3):
            self.add(group, number)
        if marked:
            self.add(group, 3, 0, ObjectStatus.END_OF_GROUP)
        self.closed(group)

    def advance(self) -> None:
        self.read += [(item.group, item.id) for item in self.sequencer.advance(self.now)]

    def closed(
        self, group: int, subgroup: int = 0, *, complete: bool = True, goes_on: bool = False
    ) -> None:
        self.sequencer.closed(group, subgroup, complete=complete and not goes_on, goes_on=goes_on)
        self.advance()


def test_a_later_group_waits_for_the_streams_of_the_one_in_hand() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(1)
    lane.add(1, 0)
    lane.add(0, 1)
    assert lane.read == [(0, 0), (0, 1)]
    assert lane.sequencer.unfinished == 0
    lane.closed(0)
    assert lane.read == [(0, 0), (0, 1), (1, 0)]
    lane.add(1, 1)
    assert lane.read[-1] == (1, 1)


def test_but_not_for_ever() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(5)
    lane.add(5, 0)
    assert lane.sequencer.deadline == 1.0
    lane.now = 1.0
    lane.advance()
    assert lane.read == [(0, 0), (5, 0)]
    lane.add(0, 1)  # late, and given all the same
    assert lane.read[-1] == (0, 1)
    lane.opened(6)
    lane.closed(5)
    lane.add(6, 0)  # the old one is in nobody's way any more
    assert lane.read[-1] == (6, 0)


def test_a_stream_that_broke_off_is_waited_for_until_it_goes_on() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(1)
    lane.add(1, 0)
    lane.closed(0, goes_on=True)
    assert lane.read == [(0, 0)]
    lane.opened(0)
    lane.add(0, 1)
    lane.closed(0)
    assert lane.read == [(0, 0), (0, 1), (1, 0)]
    assert lane.sequencer.deadline is None


def test_a_stream_that_broke_off_is_not_waited_for_where_its_rest_came_before() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(0)
    lane.add(0, 1)
    lane.closed(0)
    lane.closed(0, goes_on=True)
    lane.opened(1)
    lane.add(1, 0)
    assert lane.read == [(0, 0), (0, 1), (1, 0)]


def test_a_stream_that_broke_off_for_good_is_waited_for_as_long_as_others() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.closed(0, goes_on=True)
    lane.opened(1)
    lane.add(1, 0)
    assert lane.read == [(0, 0)]
    lane.now = 1.0
    lane.advance()
    assert lane.read == [(0, 0), (1, 0)]


def test_groups_that_are_left_out_are_not_waited_for() -> None:
    lane = Lane()
    for group in (1000, 2000, 3000):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    assert lane.read == [(1000, 0), (2000, 0), (3000, 0)]
    assert lane.sequencer.deadline is None


def test_a_group_that_is_left_out_of_a_sequence_is_waited_for() -> None:
    """A relay that lost its way to the publisher asks for it, and has it after later ones."""
    lane = Lane()
    for group in (7, 8, 10, 11, 9):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    assert lane.read == [(7, 0), (8, 0), (9, 0), (10, 0), (11, 0)]
    assert lane.sequencer.deadline is None


def test_groups_that_did_not_come_teach_not_to_wait_for_the_next() -> None:
    lane = Lane()
    for group in (7, 8, 10):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    assert lane.read == [(7, 0), (8, 0)]
    lane.now = 1.0
    lane.advance()
    for group in (11, 13, 14, 16):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    assert [group for group, _ in lane.read] == [7, 8, 10, 11, 13, 14, 16]
    lane.add(15, 0)  # late, and given all the same; the next is waited for
    lane.opened(18)
    lane.add(18, 0)
    assert lane.read[-1] == (15, 0)


def test_a_group_is_not_waited_for_where_the_next_says_that_there_is_none() -> None:
    lane = Lane()
    for group in (7, 8):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    lane.opened(10)
    assert lane.sequencer.add(Object(10, 0, b"", extensions=((PRIOR_GROUP_ID_GAP, 1),)))
    lane.advance()
    assert lane.read == [(7, 0), (8, 0), (10, 0)]


def test_a_stream_that_was_overtaken_is_waited_for() -> None:
    lane = Lane()
    lane.missing = {1}
    lane._streams = 1
    lane.opened(1)
    lane.add(1, 0)
    lane.closed(1)
    assert lane.read == []
    lane.missing.clear()
    lane.sequencer.opened(0, 1)
    lane.add(0, 0)
    lane.closed(0)
    assert lane.read == [(0, 0), (1, 0)]


@pytest.mark.parametrize("ordered", [True, False])
def test_objects_of_a_group_that_waited_are_put_in_order(ordered: bool) -> None:
    """A relay that joins a track in the middle sends the first of a group after what is live."""
    lane = Lane(ordered=ordered)
    lane.sequencer.held = True
    for number in (3, 4, 1, 2):
        assert lane.sequencer.add(Object(7, number, b""))
    lane.sequencer.held = False
    places = [item.id for item in lane.sequencer.advance(lane.now)]
    assert places == ([1, 2, 3, 4] if ordered else [3, 4, 1, 2])


def test_what_is_held_passes_in_order_when_it_may() -> None:
    lane = Lane()
    lane.sequencer.held = True
    for group in (3, 1, 2):
        lane.opened(group)
        lane.add(group, 0)
        lane.closed(group)
    assert lane.read == []
    lane.sequencer.held = False
    lane.advance()
    assert lane.read == [(1, 0), (2, 0), (3, 0)]


def test_without_order_everything_passes() -> None:
    lane = Lane(ordered=False)
    lane.opened(1)
    lane.opened(0)
    lane.add(1, 0)
    lane.add(0, 0)
    assert lane.read == [(1, 0), (0, 0)]


def test_at_the_end_nothing_is_left() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(1)
    lane.add(1, 0)
    assert [item.group for item in lane.sequencer.flush()] == [1]


# -- a publisher that moves ------------------------------------------------------------------------
#
# It goes on at another relay with a stream of its own, named after its first object, as publishers
# of QUICR do. What it sent before may come by a longer way.


def test_a_stream_that_has_overtaken_another_of_its_group_waits_for_it() -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(7)
    lane.add(7, 3, 3)
    lane.add(7, 4, 3)
    assert lane.read == [(7, 0)]
    lane.add(7, 1)
    lane.add(7, 2)
    assert lane.read == [(7, number) for number in range(5)]
    assert lane.sequencer.deadline is None
    lane.add(7, 5, 3)
    assert lane.read[-1] == (7, 5)


def test_several_streams_that_have_overtaken_one_are_given_in_their_order() -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    for number in (3, 2):
        lane.opened(7)
        lane.add(7, number, number)
        lane.closed(7, number)
    assert lane.read == [(7, 0)]
    lane.add(7, 1)
    assert lane.read == [(7, number) for number in range(4)]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_stream_waits_no_longer_than_others_may_bring_what_lies_before_it(goes_on: bool) -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(7)
    lane.add(7, 3, 3)
    lane.closed(7, goes_on=goes_on)
    assert lane.read == ([(7, 0)] if goes_on else [(7, 0), (7, 3)])
    assert lane.sequencer.deadline == (1.0 if goes_on else None)
    lane.now = 1.0
    lane.advance()
    assert lane.read == [(7, 0), (7, 3)]
    lane.opened(8)
    lane.add(7, 1)  # late, and given all the same
    assert lane.read[-1] == (7, 1)


def test_a_stream_that_waits_is_given_before_the_next_group() -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(7)
    lane.add(7, 3, 3)
    lane.opened(8)
    lane.add(8, 0)
    assert lane.read == [(7, 0)]
    lane.now = 1.0
    lane.advance()
    assert lane.read == [(7, 0), (7, 3), (8, 0)]


def test_a_stream_after_numbers_that_are_not_in_use_does_not_wait() -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(7)
    lane.add(7, 3, 3, extensions=((PRIOR_OBJECT_ID_GAP, 2),))
    assert lane.read == [(7, 0), (7, 3)]


def test_layers_of_a_group_pass_as_they_come() -> None:
    """Each layer is a subgroup; of three, the one in the middle is not sent here."""
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(7)
    lane.add(7, 2, 2)  # something of 1 may be on its way
    lane.add(7, 3)  # it is not: the lowest layer goes on
    lane.add(7, 5, 2)
    lane.add(7, 6)
    assert lane.read == [(7, number) for number in (0, 3, 2, 5, 6)]


def test_a_group_waits_for_its_first_object_where_those_before_had_one() -> None:
    lane = Lane()
    lane.group(7)
    lane.opened(8)
    lane.add(8, 1, 1)
    lane.closed(8, 1)
    assert lane.read[-1] == (7, 2)
    lane.opened(8)
    lane.add(8, 0)
    assert lane.read[-2:] == [(8, 0), (8, 1)]


def test_a_group_may_have_its_first_objects_on_another_stream_of_the_same_subgroup() -> None:
    """A relay that had lost its way has them sent again, after what is live."""
    lane = Lane()
    lane.group(7)
    lane.opened(8)
    lane.add(8, 3)
    lane.add(8, 4)
    lane.opened(8)
    for number in range(3):
        lane.add(8, number)
    assert lane.read[3:] == [(8, number) for number in range(5)]


def test_a_group_without_its_first_object_teaches_not_to_wait_for_the_next() -> None:
    lane = Lane()
    lane.group(7)
    lane.opened(8)
    lane.add(8, 1, 1)
    lane.closed(8, 1)
    lane.now = 1.0
    lane.advance()
    assert lane.read[-1] == (8, 1)
    lane.group(9)
    lane.opened(10)
    lane.add(10, 1, 1)
    assert lane.read[-1] == (10, 1)


def test_a_stream_that_waited_with_its_group_waits_for_another_of_it() -> None:
    lane = Lane()
    lane.opened(7)
    lane.add(7, 0)
    lane.opened(8)
    lane.opened(8)
    lane.add(8, 0)
    lane.add(8, 2, 2)
    lane.closed(8, 2)
    lane.closed(7)
    assert lane.read == [(7, 0), (8, 0)]
    lane.add(8, 1)
    assert lane.read[-2:] == [(8, 1), (8, 2)]


def test_a_group_whose_stream_ended_without_its_end_may_go_on() -> None:
    """Its publisher has left the relay; the rest is on its way from another."""
    lane = Lane()
    lane.group(7, marked=True)
    lane.opened(8)
    lane.add(8, 0)
    lane.closed(8)
    lane.opened(9)
    lane.add(9, 0)
    assert lane.read[-1] == (8, 0)
    lane.opened(8)
    lane.add(8, 1, 1)
    lane.add(8, 2, 1, ObjectStatus.END_OF_GROUP)
    lane.closed(8, 1)
    assert lane.read[-3:] == [(8, 1), (8, 2), (9, 0)]
    assert lane.sequencer.deadline is None


def test_the_end_of_a_group_is_not_waited_for_where_it_has_as_many_objects_as_others() -> None:
    """Its publisher has moved between two groups: nobody says that the first has ended."""
    lane = Lane()
    lane.group(7, marked=True)
    lane.group(8)
    lane.group(9, marked=True)
    assert lane.read[-1] == (9, 3)


def test_the_end_of_a_group_is_not_waited_for_where_others_have_none() -> None:
    lane = Lane()
    lane.group(7)
    lane.opened(8)
    lane.add(8, 0)
    lane.closed(8)
    lane.group(9)
    assert lane.read[-1] == (9, 2)


@pytest.mark.parametrize("complete", [True, False])
def test_an_end_that_does_not_come_teaches_not_to_wait_for_the_next(complete: bool) -> None:
    """What a relay gives up for a slow subscriber has no end, and is not waited for."""
    lane = Lane()
    lane.group(7, marked=True)
    lane.opened(8)
    lane.add(8, 0)
    lane.closed(8, complete=complete)
    lane.group(9, marked=True)
    assert lane.read[-1] == ((8, 0) if complete else (9, 3))
    lane.now = 1.0
    lane.advance()
    assert lane.read[-1] == (9, 3)
    lane.opened(10)
    lane.add(10, 0)
    lane.closed(10)
    lane.group(11)
    assert (lane.read[-1] == (11, 2)) is complete


def test_at_the_end_a_stream_that_waits_is_given_first() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(0)
    lane.add(0, 2, 2)
    lane.opened(1)
    lane.add(1, 0)
    assert [(it.group, it.id) for it in lane.sequencer.flush()] == [(0, 2), (1, 0)]
    assert not lane.sequencer.waiting


def test_who_cannot_hold_more_waits_no_longer() -> None:
    lane = Lane()
    lane.opened(0)
    lane.add(0, 0)
    lane.opened(0)
    lane.add(0, 2, 2)
    assert [it.id for it in lane.sequencer.force(0.1)] == [2]
