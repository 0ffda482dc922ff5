"""Objects in the order of the media: whatever comes in whatever order, what goes out keeps it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.edge import media_queue
from laps.edge.media_queue import (
    GRACE_S,
    OBJECT_BYTES,
    PATIENCE_S,
    STREAM_PATIENCE_S,
    MediaCounters,
    MediaQueue,
)
from laps.types import Location
from laps.wire.quicr.fragments import MediaOrder, cut
from laps.wire.quicr.messages import MAX_FRAGMENT_BYTES, Fragment, StartPoint, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 1 << 20
PLAIN = Terms()

Obj = tuple[int, int, bytes]


class Reader:
    """Takes what a queue gives, by the rules."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.counters = MediaCounters()
        self.queue = MediaQueue(limit, self.counters)
        self.objects: list[Obj] = []
        self.starts: list[tuple[int, int]] = []
        self.now = 10.0
        self.order = MediaOrder()
        self._parts: list[bytes] = []

    def put(self, *fragments: Fragment, terms: Terms = PLAIN, until: float | None = None) -> Reader:
        for fragment in fragments:
            self.queue.put(fragment, terms, self.now, until)
        return self

    def whole(self, *places: tuple[int, int], terms: Terms = PLAIN) -> Reader:
        for place in places:
            self.put(*cut(*place, payload(*place), 100), terms=terms)
        return self

    def take(self, most: int | None = None) -> Reader:
        for number, item in enumerate(self.queue.take(self.now)):
            if isinstance(item, StartPoint):
                self.order.start(item.start)
                self.starts.append((item.start.group, item.start.object))
                self._parts.clear()
            else:
                self.order.check(item)
                self._parts.append(bytes(item.data))
                if item.last:
                    whole = b"".join(self._parts)
                    self.objects.append((item.group, item.object_id, whole))
                    self._parts.clear()
            if number + 1 == most:
                break
        return self

    def wait(self, seconds: float) -> Reader:
        self.now += seconds
        return self.take()

    def run(self) -> Reader:
        """As long as it says that there is something to do; it must not say so for ever."""
        self.take()
        for _ in range(10_000):
            if (deadline := self.queue.deadline) is None:
                return self
            self.now = max(self.now, deadline)
            before = deadline
            self.take()
            assert self.queue.deadline != before, "time passes, and nothing happens"
        raise AssertionError("it never comes to rest")

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(group, object_id) for group, object_id, _ in self.objects]

    def check_empty(self) -> None:
        assert not self.queue
        assert self.queue.size == 0
        assert self.queue.deadline is None


def payload(group: int, object_id: int, size: int = 0) -> bytes:
    text = b"%d.%d " % (group, object_id)
    return text * (size // len(text) + 1) if size else text


def piece(
    group: int, object_id: int, offset: int, data: bytes = b"x", *, last: bool = False
) -> Fragment:
    return Fragment(group, object_id, offset, data, last)


# -- any order -------------------------------------------------------------------------------------

groups_of = st.dictionaries(st.integers(0, 6), st.integers(1, 4), min_size=1, max_size=5)
sizes = st.integers(0, 12)


@st.composite
def scenes(draw: st.DrawFn, twice: int = 4) -> tuple[list[Obj], list[Fragment], dict[int, int]]:
    """Objects, their pieces in any order and some twice, and which ends of groups are known."""
    counts = draw(groups_of)
    objects = [
        (group, number, bytes([group, number]) * draw(sizes))
        for group, count in sorted(counts.items())
        for number in range(count)
    ]
    pieces: list[Fragment] = []
    for group, number, data in objects:
        pieces += cut(group, number, data, draw(st.integers(1, 9)))
        if draw(st.integers(1, 5)) > twice:  # a second time, cut elsewhere
            pieces += cut(group, number, data, draw(st.integers(1, 9)))
    known = {group: count for group, count in counts.items() if draw(st.booleans())}
    return objects, draw(st.permutations(pieces)), known


@settings(max_examples=300, deadline=None)
@given(scenes(), st.lists(st.integers(1, 9), max_size=8), st.integers(0, 3))
def test_everything_that_is_here_goes_out_once_and_in_order(
    scene: tuple[list[Obj], list[Fragment], dict[int, int]], pumps: list[int], ends_first: int
) -> None:
    """It is all put before anybody waits for it too long."""
    objects, pieces, known = scene
    reader = Reader()
    for group, count in known.items() if ends_first % 2 else ():
        reader.queue.ended(group, count)
    # The first that is seen of a track is where it begins, unless somebody says so.
    reader.queue.begin(Location(*objects[0][:2]))
    reader.queue.said(Location(*objects[0][:2]))
    reader.order.start(Location(*objects[0][:2]))
    for number, fragment in enumerate(pieces):
        reader.put(fragment)
        if pumps and number % pumps[number % len(pumps)] == 0:
            reader.take(1 if number % 2 else None)
    for group, count in known.items():
        reader.queue.ended(group, count)
    reader.run()
    assert reader.objects == objects
    reader.check_empty()
    # START_POINT is said where a group is left out, and nowhere else.
    groups = sorted({group for group, _, _ in objects})
    assert reader.starts == [(b, 0) for a, b in pairwise(groups) if b != a + 1]


@settings(max_examples=300, deadline=None)
@given(scenes(twice=5), st.data())
def test_what_is_lost_is_left_out_and_nothing_else(
    scene: tuple[list[Obj], list[Fragment], dict[int, int]], data: st.DataObject
) -> None:
    objects, pieces, known = scene
    reader = Reader()
    lost = set(data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=4)))
    kept = [fragment for number, fragment in enumerate(pieces) if number not in lost]
    reader.put(*kept)
    for group, count in known.items():
        reader.queue.ended(group, count)
    reader.run()
    reader.queue.ending = True
    reader.run()
    for item in reader.objects:
        assert item in objects
    assert reader.places == sorted(set(reader.places))
    whole = [item for item in objects if _is_whole(item, kept)]
    assert reader.objects == whole
    reader.check_empty()
    assert not reader.order.inside


def _is_whole(item: Obj, fragments: Iterable[Fragment]) -> bool:
    group, number, data = item
    mine = [f for f in fragments if (f.group, f.object_id) == (group, number)]
    bytes_here = {at for f in mine for at in range(f.offset, f.end)}
    return len(bytes_here) == len(data) and any(f.last for f in mine)


@settings(max_examples=200, deadline=None)
@given(scenes(), st.lists(st.integers(0, 3), min_size=60, max_size=60), st.integers(300, 3000))
def test_whatever_happens_the_rules_and_the_bound_hold(
    scene: tuple[list[Obj], list[Fragment], dict[int, int]], steps: list[int], limit: int
) -> None:
    objects, pieces, known = scene
    reader = Reader(limit)
    known_ends = list(known.items())
    for step, fragment in zip(steps, pieces, strict=False):
        until = reader.now + 1 if step == 3 else None
        terms = Terms(priority=fragment.object_id % 8, discardable=fragment.group % 2 == 0)
        reader.put(fragment, terms=terms, until=until)
        assert reader.queue.size <= limit
        if step == 1:
            reader.take(1)
        elif step == 2:
            reader.wait(0.3)
            if known_ends:
                reader.queue.ended(*known_ends.pop())
    reader.queue.ending = True
    reader.run()
    assert reader.places == sorted(set(reader.places))
    assert set(reader.objects) <= set(objects)
    reader.check_empty()
    assert not reader.order.inside


# -- the beginning ---------------------------------------------------------------------------------


def test_the_first_object_of_all_needs_no_start_point() -> None:
    reader = Reader().whole((0, 0), (0, 1)).take()
    assert reader.places == [(0, 0), (0, 1)]
    assert reader.starts == []


@pytest.mark.parametrize("place", [(0, 3), (4, 0), (4, 2)])
def test_a_track_begins_where_its_first_object_is(place: tuple[int, int]) -> None:
    reader = Reader().whole(place).run()
    assert reader.places == [place]
    assert reader.starts == [place]
    assert reader.counters.skipped == 0
    assert reader.now <= 10 + GRACE_S


def test_the_first_object_may_have_been_overtaken() -> None:
    reader = Reader().whole((4, 2)).take()
    assert reader.places == []
    reader.whole((4, 1)).wait(GRACE_S)
    assert reader.places == [(4, 1), (4, 2)]
    assert reader.starts == [(4, 1)]


def test_nothing_ahead_of_the_beginning_is_taken() -> None:
    reader = Reader()
    reader.queue.begin(Location(2, 1))
    reader.whole((1, 0), (2, 0), (2, 1)).take()
    assert reader.places == [(2, 1)]
    assert reader.counters.late == 2
    reader.check_empty()


def test_a_beginning_that_has_been_said_is_not_said_again() -> None:
    reader = Reader()
    reader.queue.begin(Location(2, 1))
    reader.queue.said(Location(2, 1))
    reader.order.start(Location(2, 1))
    reader.whole((2, 1), (3, 0)).run()
    assert reader.places == [(2, 1), (3, 0)]
    assert reader.starts == []


def test_behind_a_start_point_only_what_it_named_may_follow() -> None:
    """The next group is no successor of an object that never came."""
    reader = Reader()
    reader.queue.begin(Location(2, 1))
    reader.queue.said(Location(2, 1))
    reader.order.start(Location(2, 1))
    reader.whole((3, 0)).run()
    assert reader.places == [(3, 0)]
    assert reader.starts == [(3, 0)]


# -- holes -----------------------------------------------------------------------------------------


def test_an_object_goes_out_as_it_comes() -> None:
    reader = Reader().put(piece(0, 0, 0, b"ab")).take()
    assert reader.order.inside
    reader.put(piece(0, 0, 2, b"cd")).take()
    # However long the rest takes, while nothing else is there.
    reader.wait(60)
    assert reader.queue.deadline is None
    reader.put(piece(0, 0, 4, b"e", last=True)).take()
    assert reader.objects == [(0, 0, b"abcde")]
    reader.check_empty()


@pytest.mark.parametrize("hole", [(0, 1), (0, 2), (1, 0), (1, 1)])
def test_a_hole_is_waited_for_and_then_left_out(hole: tuple[int, int]) -> None:
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    reader = Reader()
    reader.queue.ended(0, 3)
    reader.whole(*(place for place in places if place != hole)).take()
    assert reader.places == places[: places.index(hole)]
    reader.wait(PATIENCE_S - 0.01)
    assert reader.places == places[: places.index(hole)]
    reader.wait(0.01)
    assert reader.places == [place for place in places if place != hole]
    # The first object of a group may follow any of the group before.
    assert reader.starts == ([] if hole == (0, 2) else [places[places.index(hole) + 1]])
    assert reader.counters.skipped == 1
    reader.whole(hole).take()
    assert reader.counters.late == 1
    reader.check_empty()


@pytest.mark.parametrize("hole", [(0, 1), (0, 2), (1, 0), (1, 1)])
def test_a_hole_that_is_filled_in_time_is_none(hole: tuple[int, int]) -> None:
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    reader = Reader()
    reader.queue.ended(0, 3)
    reader.whole(*(place for place in places if place != hole)).wait(PATIENCE_S - 0.01)
    reader.whole(hole).take()
    assert reader.places == places
    assert reader.starts == []


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_hole_inside_an_object(missing: int) -> None:
    parts = [piece(0, 1, 0), piece(0, 1, 1), piece(0, 1, 2, last=True)]
    held = [part for number, part in enumerate(parts) if number != missing]
    reader = Reader().whole((0, 0)).put(*held).whole((0, 2)).wait(0)
    reader.wait(PATIENCE_S - 0.01)
    assert reader.places == [(0, 0)]
    reader.put(parts[missing]).take()
    assert reader.places == [(0, 0), (0, 1), (0, 2)]
    other = Reader().whole((0, 0)).put(*held).whole((0, 2)).wait(0).wait(PATIENCE_S)
    assert other.places == [(0, 0), (0, 2)]
    assert other.starts == [(0, 2)]
    assert other.put(parts[missing]).counters.late == 1
    other.check_empty()


def test_a_stream_that_is_open_is_waited_for_longer() -> None:
    reader = Reader()
    reader.queue.opened(0)
    reader.whole((0, 0), (1, 0)).wait(0).wait(STREAM_PATIENCE_S - 0.01)
    assert reader.places == [(0, 0)]
    reader.whole((0, 1)).take()
    reader.queue.closed(0)
    reader.wait(0).wait(GRACE_S)
    assert reader.places == [(0, 0), (0, 1), (1, 0)]
    assert reader.starts == []


@pytest.mark.parametrize("sparse", [False, True])
def test_a_group_whose_stream_broke_off_is_waited_for_until_another_brings_the_rest(
    sparse: bool,
) -> None:
    """The publisher's relay died: the next group is here before the rest of this one."""
    reader = Reader()
    if sparse:  # a gap that nobody filled: the next one is waited for all the same
        reader.queue.opened(0)
        reader.whole((0, 0), (0, 2)).run()
        reader.queue.closed(0)
    reader.queue.opened(1)
    reader.whole((1, 0), (1, 1)).run()
    reader.queue.closed(1, cut=True)
    reader.queue.opened(2)
    reader.whole((2, 0)).take().wait(STREAM_PATIENCE_S - 0.01)
    assert reader.places[-1] == (1, 1)
    reader.queue.opened(1)
    reader.whole((1, 2), (1, 3)).take()
    reader.queue.closed(1)
    assert reader.wait(GRACE_S).places[-3:] == [(1, 2), (1, 3), (2, 0)]


def test_a_group_whose_stream_broke_off_for_good_is_left_out_after_a_while() -> None:
    reader = Reader()
    reader.queue.opened(1)
    reader.whole((1, 0)).run()
    reader.queue.closed(1, cut=True)
    reader.queue.opened(2)
    reader.whole((2, 0)).run()
    assert reader.places == [(1, 0), (2, 0)]
    reader.queue.closed(2)
    reader.whole((3, 0)).take()
    assert reader.wait(GRACE_S).places[-1] == (3, 0)


def test_a_group_that_has_ended_is_followed_at_once() -> None:
    reader = Reader().whole((0, 0), (1, 0)).take()
    assert reader.places == [(0, 0)]
    reader.queue.ended(0, 1)
    assert reader.take().places == [(0, 0), (1, 0)]
    reader.put(*cut(2, 0, b"first", 100), terms=Terms(objects_before=1)).take()
    assert reader.places[-1] == (2, 0)
    assert reader.now == 10


def test_a_group_whose_end_says_that_something_is_missing_is_waited_for() -> None:
    reader = Reader().whole((0, 0)).take()
    reader.queue.ended(0, 2)
    reader.whole((1, 0)).wait(0).wait(PATIENCE_S - 0.01)
    assert reader.places == [(0, 0)]
    reader.wait(0.01)
    assert reader.places == [(0, 0), (1, 0)]


def test_an_object_behind_the_end_of_its_group_is_passed_all_the_same() -> None:
    reader = Reader()
    reader.queue.ended(0, 1)
    reader.whole((0, 0), (0, 2), (1, 0)).run()
    assert reader.places == [(0, 0), (0, 2), (1, 0)]
    assert reader.starts == [(0, 2)]


def test_empty_groups_are_passed_with_a_start_point() -> None:
    reader = Reader()
    for group in range(3):
        reader.queue.ended(group, 0 if group else 1)
    reader.whole((0, 0), (3, 0)).take()
    assert reader.places == [(0, 0), (3, 0)]
    assert reader.starts == [(3, 0)]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_object_that_comes_again_in_other_pieces_goes_on(size: int) -> None:
    """Its stream broke off, and another brings it from its beginning."""
    reader = Reader().put(piece(0, 0, 0, b"abc")).take()
    reader.put(*cut(0, 0, b"abcdefgh", size)).take()
    assert reader.objects == [(0, 0, b"abcdefgh")]
    reader.check_empty()
    other = Reader().put(piece(0, 1, 0, b"abc")).put(*cut(0, 1, b"abcdefgh", size))
    other.whole((0, 0)).take()
    assert other.objects[1] == (0, 1, b"abcdefgh")
    other.check_empty()


def test_objects_that_were_never_made_do_not_add_up() -> None:
    """Of each pair one is missing: each object is late by the same time at most."""
    reader = Reader()
    late = 0.0
    for number in range(0, 200, 2):
        reader.whole((0, number)).wait(0.1)
        late = max(late, (number - (reader.places[-1][1] if reader.places else 0)) / 2 * 0.1)
    assert late <= PATIENCE_S + 0.1
    assert len(reader.starts) > 90


def test_objects_that_all_miss_a_piece_do_not_add_up() -> None:
    reader = Reader()
    for number in range(100):
        reader.put(piece(0, number, 0), piece(0, number, 2, last=True)).wait(0.1)
    assert reader.queue.size <= 8 * (OBJECT_BYTES + 2)
    reader.whole((0, 100)).run()
    assert reader.places == [(0, 100)]


@pytest.mark.parametrize("step", [(0, 2), (3, 0)], ids=["objects", "groups"])
def test_on_streams_what_did_not_come_once_is_not_waited_for_again(step: tuple[int, int]) -> None:
    """Numbers that leave out others, as times do, cost their wait once."""
    reader = Reader()
    reader.queue.opened(0)
    reader.queue.closed(0)
    for number in range(20):
        reader.whole((number * step[0], number * step[1])).wait(0).wait(0.5)
    assert len(reader.places) == 20
    reader.whole((20 * step[0], 20 * step[1])).wait(0).wait(GRACE_S)
    assert len(reader.places) == 21
    # Something that comes late says that it is worth while to wait.
    reader.whole((20 * step[0], 20 * step[1] - 1) if step[1] else (20 * step[0] - 1, 0)).take()
    reader.whole((21 * step[0], 21 * step[1])).wait(0).wait(GRACE_S)
    assert len(reader.places) == 21
    reader.wait(PATIENCE_S)
    assert len(reader.places) == 22


# -- time ------------------------------------------------------------------------------------------


def test_what_is_of_no_use_any_more_is_not_sent() -> None:
    reader = Reader().whole((0, 0)).take()
    reader.put(piece(0, 1, 0, last=True), until=reader.now + 1)
    reader.put(piece(0, 2, 0, last=True), until=reader.now + 2)
    reader.now += 1.5
    reader.take()
    assert reader.places == [(0, 0), (0, 2)]
    assert reader.starts == [(0, 2)]
    assert reader.counters.expired_objects == 1
    reader.check_empty()


def test_an_object_that_has_begun_is_given_up_when_it_is_of_no_use() -> None:
    reader = Reader().put(piece(0, 0, 0), until=11).take()
    reader.put(piece(0, 0, 1, last=True)).whole((0, 1))
    reader.now = 11.5
    reader.take()
    assert reader.places == [(0, 1)]
    assert reader.starts == [(0, 1)]
    reader.check_empty()


# -- a slow reader ---------------------------------------------------------------------------------


def test_what_may_be_discarded_goes_first_then_the_least_urgent_and_the_oldest() -> None:
    size = 1000
    count = 12
    reader = Reader(count * (size + OBJECT_BYTES))
    kinds = [
        Terms(priority=1),
        Terms(priority=6),
        Terms(priority=0, discardable=True),
        Terms(priority=7, discardable=True),
    ]
    for number in range(count):
        reader.put(piece(0, number, 0, bytes(size), last=True), terms=kinds[number % 4])
    assert reader.counters.dropped_objects == 0
    reader.put(piece(0, count, 0, b"", last=True))  # one too many
    assert reader.counters.dropped_objects == 4  # a quarter makes room
    reader.run()
    left = [number for _, number in reader.places]
    assert left == [n for n in range(count + 1) if n not in (3, 7, 11, 2)]
    assert reader.starts == [(0, 4), (0, 8), (0, 12)]
    assert reader.counters.skipped == 0
    reader.check_empty()


def test_what_was_dropped_is_not_taken_again_in_part() -> None:
    reader = Reader(3000)
    reader.put(piece(0, 0, 0, bytes(900), last=True), piece(0, 1, 0, bytes(900)))
    reader.put(piece(0, 2, 0, bytes(900), last=True))
    assert reader.counters.dropped_objects == 1
    reader.put(piece(0, 0, 0, bytes(900), last=True))
    assert reader.counters.late == 1


@pytest.mark.parametrize("begun", [False, True])
def test_one_object_alone_may_be_too_much(begun: bool) -> None:
    reader = Reader(10_000).put(piece(0, 0, 0, bytes(100)))
    if begun:
        reader.take()
    for offset in range(100, 50_000, 100):
        reader.put(piece(0, 0, offset, bytes(100)))
        assert reader.queue.size <= 10_000
    reader.whole((0, 1)).run()
    assert reader.places == [(0, 1)]
    assert reader.starts == [(0, 1)]
    assert reader.counters.dropped_objects == 1
    reader.check_empty()


@pytest.mark.parametrize("begun", [False, True])
def test_a_reader_that_has_stopped_costs_no_more_than_its_bound(begun: bool) -> None:
    reader = Reader(100_000)
    if begun:
        reader.put(piece(0, 0, 0)).take()
    for group in range(1, 3000):
        reader.whole((group, 0), (group, 1), terms=Terms(objects_before=2))
        reader.queue.ended(group, 2)
    queue = reader.queue
    assert queue.size <= 100_000
    objects = queue.size // OBJECT_BYTES
    for name, value in vars(queue).items():
        if isinstance(value, dict | list | set):
            assert len(value) <= 3 * (objects + media_queue.MANY), name
    reader.run()
    assert reader.places[-1] == (2999, 1)
    assert len(reader.starts) == 1
    reader.check_empty()
    # What has begun is waited for, what was dropped is not.
    assert reader.now == 10 + (PATIENCE_S if begun else 0)


def test_nothing_is_remembered_of_a_track_that_goes_on_for_ever() -> None:
    reader = Reader()
    for group in range(3000):
        reader.whole((group, 0), (group, 1)).take()
        reader.queue.ended(group, 2)
    reader.take()
    assert len(reader.objects) == 6000
    for name, value in vars(reader.queue).items():
        if isinstance(value, dict | list | set):
            assert len(value) <= media_queue.MANY, name


def test_a_large_piece_goes_out_in_messages() -> None:
    whole = bytes(range(256)) * 1000
    reader = Reader().put(piece(0, 0, 0, whole, last=True)).take(1)
    assert reader.order.inside
    assert reader.queue.size == OBJECT_BYTES + len(whole) - MAX_FRAGMENT_BYTES
    reader.take()
    assert reader.objects == [(0, 0, whole)]
    reader.check_empty()


# -- what came before ------------------------------------------------------------------------------


def test_what_is_live_waits_for_what_came_before() -> None:
    reader = Reader()
    reader.queue.begin(Location(0, 0))
    reader.queue.history_end = Location(1, 1)
    reader.whole((1, 2), (2, 0)).wait(5)
    assert reader.places == []
    assert reader.queue.deadline is None
    has_history = [reader.queue.has_history]
    has_history.append(reader.whole((0, 3)).queue.has_history)
    has_history.append(reader.take().queue.has_history)
    assert has_history == [False, True, False]
    reader.whole((1, 0)).take()
    assert reader.places == [(0, 3), (1, 0)]
    reader.queue.history_end = None
    reader.queue.history_over(Location(1, 2))
    reader.run()
    assert reader.places == [(0, 3), (1, 0), (1, 2), (2, 0)]
    assert reader.starts == [(0, 3), (1, 2)]
    reader.check_empty()


# -- the end ---------------------------------------------------------------------------------------


def test_at_the_end_nothing_is_waited_for() -> None:
    reader = Reader().whole((0, 0), (0, 2), (3, 1))
    reader.put(piece(3, 2, 1)).take()
    reader.queue.ending = True
    reader.take()
    assert reader.places == [(0, 0), (0, 2), (3, 1)]
    assert reader.starts == [(0, 2), (3, 1)]
    reader.check_empty()


def test_an_object_that_is_not_whole_at_the_end_is_given_up() -> None:
    reader = Reader().put(piece(0, 0, 0)).take()
    reader.queue.ending = True
    reader.take()
    assert reader.starts == [(0, 1)]
    assert not reader.order.inside
    reader.check_empty()
    assert reader.take().starts == [(0, 1)]


def test_what_is_being_asked_for_is_waited_for_longer() -> None:
    reader = Reader().whole((1, 0)).take()
    reader.queue.is_mending = True
    reader.whole((1, 2)).take()
    reader.now += 2 * STREAM_PATIENCE_S
    reader.take()
    assert [it[:2] for it in reader.objects] == [(1, 0)]
    reader.whole((1, 1)).take()
    assert [it[:2] for it in reader.objects] == [(1, 0), (1, 1), (1, 2)]
    reader.whole((1, 4)).take()
    reader.queue.is_mending = False
    reader.now += PATIENCE_S
    reader.take()
    assert [it[:2] for it in reader.objects][-1] == (1, 4)
