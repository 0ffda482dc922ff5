"""What a relay holds of objects that are not whole: for how long, and what it says of them."""

from __future__ import annotations

import pytest

from laps.tracks.reassembly import HOLD_S, TrackFragments
from laps.types import Location
from laps.wire.quicr.codes import QuicrViolation
from laps.wire.quicr.messages import Fragment, Terms

FIRST = Location(0, 0)


def piece(number: int, offset: int, data: bytes = b"x", *, last: bool = False) -> Fragment:
    return Fragment(0, number, offset, data, last)


def held(fragments: TrackFragments, now: float, begin: Location = FIRST) -> list[tuple[int, int]]:
    found = fragments.held(begin, now)
    return [(part.object_id, part.offset) for parts, _ in found for part in parts]


def test_an_object_is_whole_once() -> None:
    fragments = TrackFragments(10_000)
    terms = Terms(priority=1)
    new, payload, said = fragments.add(piece(0, 1, b"bc", last=True), terms, 10)
    assert [part.offset for part in new] == [1]
    assert payload is None
    assert held(fragments, 10) == [(0, 1)]
    new, payload, said = fragments.add(piece(0, 0, b"a"), Terms(priority=7), 11)
    assert payload == b"abc"
    assert said == terms  # as it was said first
    assert fragments.add(piece(0, 0, b"a"), terms, 12)[:2] == ([], None)
    assert fragments.size == 0
    assert held(fragments, 12) == []


def test_what_is_held_is_given_from_a_location_on() -> None:
    fragments = TrackFragments(10_000)
    for number in (3, 1, 2):
        fragments.add(piece(number, 0), Terms(), 10)
    assert held(fragments, 10) == [(1, 0), (2, 0), (3, 0)]
    assert held(fragments, 10, Location(0, 2)) == [(2, 0), (3, 0)]


def test_what_does_not_become_whole_is_given_up() -> None:
    fragments = TrackFragments(10_000)
    fragments.add(piece(0, 0), Terms(), 10)
    fragments.add(piece(1, 0), Terms(best_before_ms=2000), 10)
    fragments.add(piece(2, 0), Terms(best_before_ms=60_000), 11)
    assert fragments.expire(12) == 0
    assert fragments.expire(12.1) == 1
    assert held(fragments, 12.1) == [(0, 0), (2, 0)]
    assert fragments.expire(10 + HOLD_S + 0.1) == 1
    assert fragments.expire(11 + HOLD_S + 0.1) == 1
    assert fragments.size == 0


def test_what_is_of_no_use_is_neither_given_nor_completed() -> None:
    """Whether or not anybody has looked for what has expired."""
    fragments = TrackFragments(10_000)
    fragments.add(piece(0, 0), Terms(best_before_ms=1000), 10)
    assert held(fragments, 11.1) == []
    new, payload, _ = fragments.add(piece(0, 1, last=True), Terms(best_before_ms=1000), 11.1)
    assert (new, payload) == ([], None)
    assert fragments.size == 0


def test_the_time_it_was_here_is_taken_off() -> None:
    fragments = TrackFragments(10_000)
    assert fragments.add(piece(0, 0), Terms(best_before_ms=1000), 10)[2].best_before_ms == 1000
    assert [terms.best_before_ms for _, terms in fragments.held(FIRST, 10.4)] == [600]
    _, payload, said = fragments.add(piece(0, 1, last=True), Terms(best_before_ms=1000), 10.7)
    assert payload is not None
    assert said.best_before_ms == 300


@pytest.mark.parametrize("count", [5, 2000])
def test_the_oldest_make_room(count: int) -> None:
    fragments = TrackFragments(3000)
    for number in range(count):
        fragments.add(piece(number, 0, bytes(400)), Terms(), 10)
        assert fragments.size <= 3000
    left = [number for number, _ in held(fragments, 10)]
    assert left == list(range(count))[-3:]
    assert fragments.expire(100) == 3


def test_an_object_that_cannot_be_is_forgotten() -> None:
    fragments = TrackFragments(10_000)
    fragments.add(piece(0, 5), Terms(), 10)
    fragments.add(piece(1, 5), Terms(), 10)
    with pytest.raises(QuicrViolation):
        fragments.add(piece(0, 0, last=True), Terms(), 10)
    assert held(fragments, 10) == [(1, 5)]
    assert fragments.expire(100) == 1


def test_a_publisher_that_begins_anew_is_taken_anew() -> None:
    fragments = TrackFragments(10_000)
    fragments.add(piece(0, 0, last=True), Terms(), 10)
    fragments.add(piece(1, 0), Terms(), 10)
    fragments.clear()
    assert fragments.size == 0
    assert held(fragments, 10) == []
    assert fragments.add(piece(0, 0, last=True), Terms(), 10)[1] == b"x"
