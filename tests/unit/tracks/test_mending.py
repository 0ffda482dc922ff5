"""A stream whose way has died goes on with what another brings: subscribers notice nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.tracks.streams import SOURCE_LOST
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import DatagramObject, encode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from support.moqt_streams import body, objects_of
from unit.tracks.test_track import ONE_WAY, OTHER_WAY, THIRD_WAY, World

if TYPE_CHECKING:
    from laps.tracks.streams import IncomingStream


@pytest.fixture
def world() -> World:
    return World()


def arriving(world: World, data: bytes) -> IncomingStream:
    stream = world.incoming(ONE_WAY)
    stream.write(data, world.now)
    return stream


def broken(world: World) -> list[bool]:
    return [stream.is_broken for stream in world.track.streams.values()]


WHOLE = body(objects_of(0, 1, 3, 4, 9))


@pytest.mark.parametrize("cut", range(1, len(WHOLE) + 1))
def test_wherever_it_broke_off_the_rest_is_added_on_the_same_stream(world: World, cut: int) -> None:
    data = world.head(7) + WHOLE
    first = arriving(world, data[: len(world.head(7)) + cut])
    first.reset(SOURCE_LOST, world.now)
    assert first.is_broken
    assert [out.reset_code for out in world.app.streams] == [None]
    assert list(world.tracks.shared.broken) == [world.track.key]

    second = world.incoming(OTHER_WAY)
    for at in range(len(data)):  # in pieces as small as can be
        second.write(data[at : at + 1], world.now)
    second.finish(b"", world.now)
    assert world.app.got == [data]
    assert not world.track.streams
    (kept,) = world.track.cached.groups[7].streams
    assert kept.fin
    assert b"".join(kept.chunks) == WHOLE


@pytest.mark.parametrize("first", [0, 1, 3, 4])
def test_what_brings_the_rest_may_begin_later(world: World, first: int) -> None:
    ids = [0, 1, 3, 4, 9]
    whole = world.head(7) + WHOLE
    broke = arriving(world, world.head(7) + body(objects_of(0, 1, 3, 4)))
    broke.reset(SOURCE_LOST, world.now)
    rest = world.incoming(OTHER_WAY)
    rest.finish(world.head(7) + body(objects_of(*(it for it in ids if it >= first))), world.now)
    assert world.app.got == [whole]


def test_it_may_break_off_again_and_again(world: World) -> None:
    data = world.head(7) + WHOLE
    third = len(data) // 3
    arriving(world, data[:third]).reset(SOURCE_LOST, world.now)
    second = world.incoming(OTHER_WAY)
    second.write(data[: 2 * third], world.now)
    assert broken(world) == [False]
    second.reset(SOURCE_LOST, world.now)
    assert broken(world) == [True]
    world.incoming(THIRD_WAY).finish(data, world.now)
    assert world.app.got == [data]


def test_another_source_that_is_there_already_takes_over_at_once(world: World) -> None:
    data = world.head(7) + WHOLE
    first = arriving(world, data[:-3])
    second = world.incoming(OTHER_WAY)
    second.write(data, world.now)
    first.reset(SOURCE_LOST, world.now)
    assert not world.tracks.shared.broken
    second.finish(b"", world.now)
    assert world.app.got == [data]


def test_another_source_that_is_not_as_far_takes_over_when_it_is(world: World) -> None:
    data = world.head(7) + WHOLE
    first = arriving(world, data[:-3])
    second = world.incoming(OTHER_WAY)
    second.write(data[:-9], world.now)
    first.reset(SOURCE_LOST, world.now)
    assert list(world.tracks.shared.broken) == [world.track.key]
    second.finish(data[-9:], world.now)
    assert world.app.got == [data]


def test_a_rest_without_the_object_under_way_is_no_rest(world: World) -> None:
    first = arriving(world, (world.head(7) + body(objects_of(0, 1)))[:-1])
    first.reset(SOURCE_LOST, world.now)
    world.incoming(OTHER_WAY).finish(world.head(7) + body(objects_of(0)), world.now)
    assert world.app.streams[0].reset_code == ResetCode.SESSION_CLOSED


def test_who_gives_a_stream_up_says_so_to_all(world: World) -> None:
    first = arriving(world, world.head(7) + body(objects_of(0, 1)))
    first.reset(ResetCode.DELIVERY_TIMEOUT, world.now)
    assert [out.reset_code for out in world.app.streams] == [ResetCode.DELIVERY_TIMEOUT]
    assert not world.tracks.shared.broken


def test_a_publisher_here_that_is_lost_has_no_other_way(world: World) -> None:
    world.open(7, 0, 1).reset(SOURCE_LOST, world.now)
    assert [out.reset_code for out in world.app.streams] == [ResetCode.SESSION_CLOSED]


def test_while_something_is_missing_older_groups_are_no_new_life(world: World) -> None:
    arriving(world, world.head(7) + WHOLE).reset(SOURCE_LOST, world.now)
    world.track.is_mending = True
    world.stream(6, 0, 1, source=OTHER_WAY)
    assert world.tracks.counters.started_over == 0
    assert sorted(world.track.cached.groups) == [6, 7]


def test_the_end_of_a_stream_that_has_been_whole_for_long_is_nothing_new(world: World) -> None:
    world.stream(7, 0, 1, 2, source=ONE_WAY)
    world.now += 60.0
    world.stream(7, 1, 2, source=OTHER_WAY)
    assert len(world.app.got) == 1


# What is asked for, whether a relay has died, and whether another source goes on with the track.
TOO_LATE = [(False, False, True), (True, False, False), (True, False, True), (True, True, False)]


def let_go(world: World, group: int, *, repaired: bool, mending: bool, goes_on: bool) -> None:
    """A group that was here is here no more; something of the track is missing, or not."""
    world.track.cached.history.dropped(group, None)
    del world.track.cached.groups[group]
    world.track.is_repaired, world.track.is_mending = repaired, mending
    if goes_on:
        world.fib.install(ONE_WAY, (), local=True)


@pytest.mark.parametrize(("repaired", "mending", "goes_on"), TOO_LATE)
def test_a_repair_that_brings_what_was_let_go_meanwhile_is_too_late(
    world: World, repaired: bool, mending: bool, goes_on: bool
) -> None:
    data = world.head(7) + WHOLE
    arriving(world, data).finish(b"", world.now)
    let_go(world, 7, repaired=repaired, mending=mending, goes_on=goes_on)
    world.incoming(OTHER_WAY).finish(data, world.now)
    assert world.app.got == [data] * (1 if repaired and (mending or goes_on) else 2)


@pytest.mark.parametrize(("repaired", "mending", "goes_on"), TOO_LATE)
def test_a_datagram_that_was_let_go_meanwhile_comes_too_late_with_a_repair(
    world: World, repaired: bool, mending: bool, goes_on: bool
) -> None:
    data = encode_datagram(DatagramObject(world.track.alias, 7, 0), BETWEEN_RELAYS)
    world.track.datagrams.receive(data, ONE_WAY, None, world.now)
    let_go(world, 7, repaired=repaired, mending=mending, goes_on=goes_on)
    world.track.datagrams.receive(data, OTHER_WAY, None, world.now)
    assert len(world.app.datagrams) == (1 if repaired and (mending or goes_on) else 2)
