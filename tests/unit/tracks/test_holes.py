"""What of a track is missing for good after a repair."""

from __future__ import annotations

from collections import deque

import pytest

from laps.infobase.nodes import SessionId
from laps.routing.flows import FromPeer
from laps.tracks.cache import Cache, CachedTrack, CacheLimits
from laps.tracks.holes import Holes
from laps.types import Location, SnsId
from laps.wire.moqt.data import SubgroupHeader
from support.moqt_streams import body, objects_of

START = Location(0, 0)


class World:
    """A track's cache that groups come to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cached = CachedTrack(Cache(CacheLimits(), deque()))

    def came(self, group: int, *ids: int) -> None:
        header = SubgroupHeader(alias=1, group=group, subgroup=0, priority=128)
        stream = self.cached.open(header, FromPeer(SessionId(1), SnsId(1)), self.now)
        stream.append(body(objects_of(*ids)), self.now)
        stream.ended(fin=True)
        self.now += 0.1

    def lost(self, holes: Holes, counted: Location = START) -> int:
        return holes.count(self.cached, counted, self.now)


@pytest.fixture
def world() -> World:
    made = World()
    for group in range(3):
        made.came(group, 0, 1, 2)
    return made


def test_nothing_is_missing_of_groups_that_came_whole(world: World) -> None:
    holes = Holes(world.cached, world.now - 0.15)
    for group in (3, 4):
        world.came(group, 0, 1, 2)
    assert world.lost(holes) == 0


def test_numbers_that_are_left_out_within_a_group_are_missing(world: World) -> None:
    holes = Holes(world.cached, world.now)
    world.came(3, 2, 5, 6)
    assert world.lost(holes) == 4


def test_where_a_subscription_joins_a_group_nothing_before_it_is_missing() -> None:
    world = World()
    world.came(7, 5, 6)
    holes = Holes(world.cached, 0.0)
    world.came(8, 0)
    assert world.lost(holes) == 0


def test_a_group_that_did_not_come_is_one_object_at_least(world: World) -> None:
    holes = Holes(world.cached, world.now)
    world.came(5, 0, 1)
    assert world.lost(holes) == 2


def test_groups_that_leave_numbers_out_as_a_rule_are_not_missing() -> None:
    world = World()
    for group in (1000, 2000, 3000):
        world.came(group, 0)
    holes = Holes(world.cached, world.now)
    world.came(5000, 0)
    assert world.lost(holes) == 0


def test_a_stream_that_was_given_up_is_one_object_at_least(world: World) -> None:
    holes = Holes(world.cached, world.now)
    world.came(3, 0, 1)
    holes.give_up(3, 2)
    assert world.lost(holes) == 1


def test_an_object_that_came_after_its_stream_was_given_up_is_not_missing(world: World) -> None:
    holes = Holes(world.cached, world.now)
    world.came(3, 0, 1, 2)
    holes.give_up(3, 1)
    assert world.lost(holes) == 0


def test_what_an_earlier_repair_counted_is_not_counted_again(world: World) -> None:
    holes = Holes(world.cached, 0.0)
    world.came(5, 1, 3)
    assert world.lost(holes) == 4
    assert world.lost(holes, counted=Location(5, 4)) == 0
    world.came(7, 0)
    assert world.lost(holes, counted=Location(5, 4)) == 1


def test_a_publisher_that_begins_anew_has_lost_nothing(world: World) -> None:
    holes = Holes(world.cached, world.now)
    world.cached.clear()
    for group in (50, 51, 52):
        world.came(group, 0)
    assert world.lost(holes) == 0


def test_objects_that_were_dropped_for_room_are_not_missing() -> None:
    world = World()
    world.cached = CachedTrack(Cache(CacheLimits(track_bytes=100), deque()))
    holes = Holes(world.cached, 0.0)
    for group in range(20):
        world.came(group, *range(20))
    assert world.lost(holes) == 0
