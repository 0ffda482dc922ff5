"""Many objects out of fragments: each comes out once, and what is held has its bounds."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.types import Location
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import DONE, MAX_OBJECT_BYTES, PIECE_BYTES, Reassembler, cut
from laps.wire.quicr.messages import Fragment, Terms, decode_datagram, encode_datagram
from unit.wire.quicr.pieces import PLACE, Heard, conflicting, piece
from unit.wire.quicr.strategies import payloads, pieces


@settings(max_examples=150)
@given(st.lists(payloads, min_size=1, max_size=4), st.data())
def test_objects_come_out_once_each(wanted: list[bytes], data: st.DataObject) -> None:
    fragments = data.draw(
        st.permutations(
            [
                replace(item, object_id=number)
                for number, payload in enumerate(wanted)
                for item in data.draw(pieces(payload))
            ]
        )
    )
    objects = Reassembler()
    heard = [Heard() for _ in wanted]
    whole: dict[int, bytes] = {}
    for item in fragments:
        new, came = objects.add(item)
        assert all(part.object_id == item.object_id for part in new)
        heard[item.object_id].add(new)
        if came is not None:
            assert item.object_id not in whole
            whole[item.object_id] = came
        assert Location(3, item.object_id) not in objects.open or item.object_id not in whole
        assert objects.size == held(objects)
    assert whole == dict(enumerate(wanted))
    assert [one.payload() for one in heard] == wanted
    assert (objects.size, objects.given_up, objects.open) == (0, 0, {})


def held(objects: Reassembler) -> int:
    """What is held, counted again."""
    return sum(
        len(part.data) + PIECE_BYTES
        for assembly in objects.open.values()
        for part in assembly.fragments(0, 0)
        if part.data
    )


small = st.integers(0, 6)
anything = st.builds(
    Fragment, st.just(0), st.integers(0, 5), small, st.binary(max_size=6), st.booleans()
)


@settings(max_examples=200)
@given(
    st.lists(anything, max_size=40),
    st.integers(0, 3 * (PIECE_BYTES + 6)),
    st.integers(0, 3),
    st.integers(1, 10),
)
def test_bounds_hold_whatever_comes(
    fragments: list[Fragment], limit_bytes: int, limit_objects: int, object_bytes: int
) -> None:
    objects = Reassembler(limit_bytes, limit_objects, object_bytes)
    for item in fragments:
        given_up = objects.given_up
        opened = len(objects.open)
        try:
            new, payload = objects.add(item)
        except QuicrViolation:
            assert Location(0, item.object_id) not in objects.open
        else:
            assert payload is None or len(payload) <= object_bytes
            assert all(item.offset <= part.offset <= part.end <= item.end for part in new)
        assert len(objects.open) <= limit_objects
        assert objects.size <= limit_bytes
        assert objects.size == held(objects)
        assert given_up <= objects.given_up <= given_up + opened + 1
    for place in list(objects.open):
        objects.forget(place)
    assert objects.size == 0


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(("here", "comes", "code"), conflicting())
def test_the_object_of_a_fragment_that_cannot_be_is_given_up(
    here: list[Fragment], comes: Fragment, code: QuicrCode
) -> None:
    objects = Reassembler(object_bytes=20)
    other = Location(3, 6)
    objects.add(piece(0, 4, place=other))
    for item in here:
        objects.add(item)
    with pytest.raises(QuicrViolation) as caught:
        objects.add(comes)
    assert caught.value.code is code
    assert list(objects.open) == [other]
    assert objects.size == 4 + PIECE_BYTES
    # Nothing more is taken of it, be it right or wrong.
    for item in (*here, comes, piece(0, 1)):
        assert objects.add(item) == ([], None)
    assert objects.given_up == 0
    assert objects.add(piece(4, 5, True, other)) == ([piece(4, 5, True, other)], bytes(range(5)))
    assert objects.size == 0


def test_an_object_without_end_is_given_up() -> None:
    objects = Reassembler(object_bytes=1000)
    for offset in range(0, 1000, 10):
        objects.add(Fragment(*PLACE, offset, bytes(10), False))
        assert objects.size == offset + 10 + PIECE_BYTES * (offset // 10 + 1)
    with pytest.raises(QuicrViolation) as caught:
        objects.add(Fragment(*PLACE, 1000, bytes(10), False))
    assert caught.value.code is QuicrCode.TOO_LARGE
    assert (objects.size, objects.open) == (0, {})


def test_the_largest_object_passes() -> None:
    objects = Reassembler()
    came = [objects.add(item)[1] for item in cut(*PLACE, bytes(MAX_OBJECT_BYTES), 1 << 20)]
    assert came == [None] * 15 + [bytes(MAX_OBJECT_BYTES)]
    with pytest.raises(QuicrViolation) as caught:
        objects.add(Fragment(9, 9, MAX_OBJECT_BYTES, b"x", True))
    assert caught.value.code is QuicrCode.TOO_LARGE


# -- room ------------------------------------------------------------------------------------------


def test_the_oldest_objects_make_room() -> None:
    objects = Reassembler(limit_objects=2)
    places = [Location(0, number) for number in range(4)]
    objects.add(piece(0, 2, place=places[0]))
    objects.add(piece(0, 2, place=places[1]))
    objects.add(piece(2, 3, place=places[0]))  # it is as old as its first fragment
    assert objects.add(piece(0, 2, place=places[2])) == ([piece(0, 2, place=places[2])], None)
    assert list(objects.open) == places[1:3]
    assert objects.given_up == 1
    assert objects.size == 2 * (2 + PIECE_BYTES)
    # What was given up does not come back.
    assert objects.add(piece(3, 4, True, places[0])) == ([], None)
    assert list(objects.open) == places[1:3]
    objects.add(piece(0, 2, place=places[3]))
    assert list(objects.open) == places[2:]
    assert objects.given_up == 2


def test_objects_that_are_whole_at_once_need_no_room() -> None:
    objects = Reassembler(0, 0)
    for number in range(5):
        place = Location(0, number)
        assert objects.add(piece(0, 5, True, place)) == (
            [piece(0, 5, True, place)],
            bytes(range(5)),
        )
        assert objects.size == objects.given_up == 0


def test_bytes_make_room_too_and_holding_them_costs() -> None:
    objects = Reassembler(3 * (10 + PIECE_BYTES))
    for number in range(3):
        objects.add(piece(0, 10, place=Location(0, number)))
    assert objects.size == 3 * (10 + PIECE_BYTES)
    objects.add(piece(20, 21, place=Location(0, 2)))
    assert list(objects.open) == [(0, 1), (0, 2)]
    assert objects.given_up == 1
    # An object that has no room at all is given up itself.
    tiny = Reassembler(PIECE_BYTES)
    assert tiny.add(piece(0, 1)) == ([piece(0, 1)], None)
    assert (tiny.open, tiny.size, tiny.given_up) == ({}, 0, 1)
    assert tiny.add(piece(1, 2, True)) == ([], None)


def test_what_is_not_wanted_is_forgotten() -> None:
    objects = Reassembler()
    objects.add(piece(0, 2))
    objects.forget(PLACE)
    assert (objects.open, objects.size, objects.given_up) == ({}, 0, 0)
    assert objects.add(piece(0, 5, True)) == ([], None)
    objects.forget(PLACE)
    objects.forget(Location(9, 9))  # nothing has come of it yet
    assert objects.add(piece(0, 5, True, Location(9, 9))) == ([], None)


def test_a_publisher_that_begins_anew_is_not_held_to_what_was() -> None:
    objects = Reassembler()
    objects.add(piece(0, 5, True, Location(0, 0)))
    objects.add(piece(0, 5, place=Location(0, 1)))
    objects.clear()
    assert (objects.open, objects.size) == ({}, 0)
    for number in range(2):
        place = Location(0, number)
        assert objects.add(piece(0, 3, True, place))[1] == bytes(range(3))
    assert objects.size == 0


def test_only_so_many_objects_are_remembered() -> None:
    objects = Reassembler()
    for number in range(DONE):
        assert objects.add(Fragment(0, number, 0, b"", True))[1] == b""
    assert objects.add(Fragment(0, 0, 0, b"", True)) == ([], None)
    assert len(objects._done) == DONE
    objects.add(Fragment(1, 0, 0, b"", True))
    assert len(objects._done) == DONE
    assert objects.add(Fragment(0, 0, 0, b"", True))[1] == b""  # it was forgotten
    assert objects.add(Fragment(0, 2, 0, b"", True)) == ([], None)
    assert len(objects._done) == DONE


def test_what_holding_a_piece_costs_is_about_what_is_counted() -> None:
    objects = Reassembler()
    count = 200
    tracemalloc.start()
    try:
        for number in range(count):
            said = encode_datagram(1, Fragment(*PLACE, 2 * number, b"x", False), Terms())
            objects.add(decode_datagram(said).fragment)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert objects.size == count * (1 + PIECE_BYTES)
    assert held_bytes < 1.5 * objects.size


def test_a_piece_does_not_hold_the_rest_of_what_it_came_in() -> None:
    # Each is one byte further on: all the rest has come before.
    objects = Reassembler()
    count, size = 100, 1000
    tracemalloc.start()
    try:
        for number in range(count):
            said = encode_datagram(1, Fragment(*PLACE, number, bytes(size), False), Terms())
            objects.add(decode_datagram(said).fragment)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert objects.size == size + count - 1 + PIECE_BYTES * count
    assert held_bytes < 1.5 * objects.size


def test_thousands_of_pieces_in_any_order_are_put_together() -> None:
    random = Random(7)
    payload = random.randbytes(3000)
    fragments = list(cut(*PLACE, payload, 1)) + list(cut(*PLACE, payload, 7))
    random.shuffle(fragments)
    objects = Reassembler()
    came = [whole for item in fragments if (whole := objects.add(item)[1]) is not None]
    assert came == [payload]
    assert objects.size == 0
