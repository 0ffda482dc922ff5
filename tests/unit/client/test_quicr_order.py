"""The parts that put a track in order: datagrams of one feed, and feeds of one subscription."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laps.client.quicr.merging import Merge
from laps.client.quicr.ordering import BEGIN_S, GRACE_S, DatagramOrder, Missing
from laps.client.values import Object
from laps.types import Location

PATIENCE_S = 1.0


def item(place: Location) -> Object:
    return Object(*place, b"")


def order(floor: Location | None = None, *, catching_up: bool = False) -> DatagramOrder:
    return DatagramOrder(floor, Missing(), patience_s=PATIENCE_S, catching_up=catching_up)


def put(into: DatagramOrder, *places: tuple[int, int], now: float = 0.0) -> list[Location]:
    passed: list[Location] = []
    for place in places:
        at = Location(*place)
        if not into.add(at, item(at), now):
            passed.append(at)
        passed += [found.location for found in into.advance(now)]
    return passed


# Groups with their sizes.
tracks = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def places_of(sizes: list[int]) -> list[Location]:
    return [Location(group, n) for group, size in enumerate(sizes) for n in range(size)]


@given(tracks, st.randoms(use_true_random=False))
def test_what_comes_in_time_passes_in_order_whatever_the_order_it_comes_in(
    sizes: list[int], random: object
) -> None:
    places = places_of(sizes)
    shuffled = [*places, *places]  # each of them twice
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    made = order()
    missing = made._missing
    made.start_at(Location(0, 0))
    for group, size in enumerate(sizes):
        made.sized(group, size)
    seen: list[Location] = []
    for place in shuffled:
        fresh = place not in made._held and (made.position is None or place >= made.position)
        held = made.add(place, item(place), 0.0)
        assert held is fresh
        seen += [found.location for found in made.advance(0.0)]
    assert seen == places
    assert missing.count == 0


@given(tracks, st.data())
def test_what_is_lost_is_given_up_and_counted(sizes: list[int], data: st.DataObject) -> None:
    places = places_of(sizes)
    lost = set(data.draw(st.lists(st.sampled_from(places), max_size=len(places))))
    missing = Missing()
    made = DatagramOrder(None, missing, patience_s=PATIENCE_S)
    made.start_at(Location(0, 0))
    seen: list[Location] = []
    for now, place in enumerate(p for p in places if p not in lost):
        if not place.object and place.group:
            made.sized(place.group - 1, sizes[place.group - 1])
        assert made.add(place, item(place), float(now))
        seen += [found.location for found in made.advance(float(now))]
    end = Location(len(sizes) - 1, sizes[-1])
    made.finish(end, 100.0)
    assert made.is_complete(100.0 + PATIENCE_S)
    seen += [found.location for found in made.flush()]
    assert seen == [place for place in places if place not in lost]
    # Of a group whose end nobody told only what lies ahead of an object is known to be lost.
    assert missing.count <= len(lost)
    told = [g for g in range(1, len(sizes)) if Location(g, 0) not in lost]
    if len(told) == len(sizes) - 1:
        assert missing.count == len(lost)


def test_the_object_that_is_due_waits_for_no_start_point() -> None:
    made = order(Location(4, 2), catching_up=True)
    assert put(made, (4, 2), (4, 3)) == [Location(4, 2), Location(4, 3)]
    earlier = order(Location(4, 2), catching_up=True)
    assert put(earlier, (3, 0)) == [Location(3, 0)]


def test_a_start_point_is_waited_for_longer_where_relays_have_to_fetch() -> None:
    live, fetched = order(), order(catching_up=True)
    for made in (live, fetched):
        assert put(made, (4, 2)) == []
    later = BEGIN_S + 0.01
    assert [found.location for found in live.advance(later)] == [Location(4, 2)]
    assert list(fetched.advance(later)) == []
    fetched.start_at(Location(4, 1))
    assert put(fetched, (4, 1), now=later) == [Location(4, 1), Location(4, 2)]


def test_numbers_that_are_not_true_cost_nothing() -> None:
    made = order()
    made.start_at(Location(0, 0))
    made.sized(0, 1 << 61)
    assert put(made, (0, 0), (1, 0)) == [Location(0, 0)]
    late = PATIENCE_S + 0.1
    assert [found.location for found in made.advance(late)] == [Location(1, 0)]
    assert len(made._missing._places) == 0
    for group in range(5000):
        made.sized(group + 10, 1)
    assert len(made._sizes) <= 1024


# -- feeds -----------------------------------------------------------------------------------------


@given(st.integers(1, 10), st.integers(0, 10), st.lists(st.booleans(), max_size=20))
def test_two_feeds_make_one_track(count: int, join: int, turns: list[bool]) -> None:
    """The new one begins anywhere: what the old one brings up to there comes first."""
    places = [Location(0, number) for number in range(count)]
    join = min(join, count - 1)
    merge = Merge()
    old, new = merge.open(), merge.open()
    left, right = list(places), places[join:]
    passed: list[Location] = []
    while left or right:
        new_first = bool(turns) and turns.pop() and merge.covered is not None
        branch, source = (new, right) if right and (new_first or not left) else (old, left)
        place = source.pop(0)
        start = places[0] if branch is old else places[join]
        position = Location(0, place.object + 1)
        passed += [i.location for i in merge.add(branch, start, position, [item(place)])]
    assert list(dict.fromkeys(passed)) == places
    assert merge.covered == Location(0, count)


def test_what_nobody_fills_is_jumped_over() -> None:
    merge = Merge()
    old, new = merge.open(), merge.open()
    merge.add(old, Location(0, 0), Location(0, 1), [item(Location(0, 0))])
    assert merge.add(new, Location(0, 5), Location(0, 6), [item(Location(0, 5))]) == []
    merge.drop(old)
    assert [found.location for found in merge.jump()] == [Location(0, 5)]
    assert merge.covered == Location(0, 6)
    assert merge.branches == [new]


def test_a_group_that_does_not_say_how_long_the_one_before_was_waits_a_moment_only() -> None:
    made = order()
    made.start_at(Location(7, 0))
    assert put(made, (7, 0), (7, 1)) == [(7, 0), (7, 1)]
    assert put(made, (8, 0), now=1.0) == []
    assert made.deadline == 1.0 + GRACE_S
    assert put(made, (7, 2), now=1.01) == [(7, 2)]
    assert [item.location for item in made.advance(1.0 + GRACE_S)] == [(8, 0)]


def test_a_group_that_says_so_is_waited_for_as_long_as_was_said() -> None:
    made = order()
    made.start_at(Location(7, 0))
    assert put(made, (7, 0)) == [(7, 0)]
    made.sized(7, 2)
    assert put(made, (8, 0), now=1.0) == []
    assert list(made.advance(1.0 + PATIENCE_S / 2)) == []
    assert [item.location for item in made.advance(1.0 + PATIENCE_S)] == [(8, 0)]
