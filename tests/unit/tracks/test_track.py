"""Tracks as they pass a relay with clients: once into the cache, and once to each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from laps.tracks.subscribers import PlainSubscriber

from laps.tracks.cache import CacheLimits
from laps.tracks.streams import LiveStream
from laps.tracks.track import Live
from laps.types import Location
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import (
    DatagramObject,
    FetchHeader,
    SubgroupHeader,
    encode_datagram,
    encode_fetch_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT16
from support.moqt_streams import body, objects_of
from support.relays import App, track_hash, track_name

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.tracks.track import LiveTrack


class World:
    """One track with a plain subscriber, and sources that come and go."""

    def __init__(self) -> None:
        self.sources: set[Hashable] = {"one", "two"}
        self.live = Live(CacheLimits(), lambda source: source in self.sources)
        self.track: LiveTrack = self.live.track(track_hash("demo/t"), track_name("demo/t"))
        self.app = App()
        self.track.subscribers[self.app] = PlainSubscriber(self.app, self.track.hash)

    def head(self, group: int, subgroup: int | None = 0) -> bytes:
        header = SubgroupHeader(self.track.alias, group, subgroup, 128)
        return encode_subgroup_header(header, DRAFT16)

    def open(self, group: int, *ids: int, source: str = "one", subgroup: int = 0) -> LiveStream:
        stream = LiveStream(self.track, source, 5, 0)
        stream.write(self.head(group, subgroup) + body(objects_of(*ids)))
        return stream

    def stream(self, group: int, *ids: int, source: str = "one", subgroup: int = 0) -> LiveStream:
        stream = self.open(group, *ids, source=source, subgroup=subgroup)
        stream.finish()
        return stream


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("subgroup", [0, 3, None])
def test_a_stream_is_passed_on_as_it_is_and_kept(world: World, subgroup: int | None) -> None:
    data = world.head(1, subgroup) + body(objects_of(64, 65))
    for cut in range(len(data) + 1):
        stream = LiveStream(world.track, "one", 5, 77)
        stream.write(data[:cut])
        stream.finish(data[cut:])
    assert world.app.got == [data] * (len(data) + 1)
    assert {(s.priority, s.ttl_us) for s in world.app.streams} == {(5, 77)}
    assert world.track.streams == {}
    (group,) = world.track.cached.groups.values()
    assert {stream.subgroup for stream in group.streams} == {64 if subgroup is None else subgroup}
    assert world.track.largest() == Location(1, 65)


def test_what_is_not_moqt_is_for_plain_clients_and_not_kept(world: World) -> None:
    other = encode_subgroup_header(SubgroupHeader(world.track.alias + 1, 0), DRAFT16)
    for data in (b"\xff\xff", b"", other + b"\x00\x01x", world.head(0)[:3]):
        stream = LiveStream(world.track, "one", 5, 0)
        stream.finish(data)
    assert world.app.got == [b"\xff\xff", b"", other + b"\x00\x01x", world.head(0)[:3]]
    assert world.track.cached.groups == {}
    assert world.live.counters.opaque == 4
    for datagram in (b"\xff", b"", encode_datagram(DatagramObject(7, 0, 0), DRAFT16)):
        world.track.datagram(datagram, None)
    assert len(world.app.datagrams) == 3
    assert world.track.cached.groups == {}


def test_where_it_comes_from_it_does_not_go_back(world: World) -> None:
    stream = LiveStream(world.track, "one", 5, 0, exclude=world.app)
    stream.finish(world.head(0) + body(objects_of(0)))
    world.track.datagram(b"\xff", world.app)
    datagram = encode_datagram(DatagramObject(world.track.alias, 0, 7), DRAFT16)
    world.track.datagram(datagram, world.app)
    assert world.app.got == world.app.datagrams == []


def test_a_reset_goes_to_all_and_leaves_what_came(world: World) -> None:
    world.open(0, 0, 1).reset(ResetCode.DELIVERY_TIMEOUT)
    assert [s.reset_code for s in world.app.streams] == [ResetCode.DELIVERY_TIMEOUT]
    (stream,) = world.track.cached.groups[0].streams
    assert (stream.live, stream.fin) == (False, False)
    assert world.track.largest() == Location(0, 1)


def test_the_same_of_two_sources_comes_once(world: World) -> None:
    one = world.open(0, 0)
    two = world.open(0, 0, source="two")
    two.write(body(objects_of(1), last=0))
    two.finish()
    one.finish(body(objects_of(1), last=0))
    world.stream(0, 0, 1, source="two")
    world.stream(0, 2, source="two", subgroup=1)
    assert len(world.app.got) == 2
    assert world.live.counters.duplicates == 2


def test_a_stream_that_is_silent_gives_way_and_one_that_has_just_begun_does_not(
    world: World,
) -> None:
    """A publisher that is back may be ahead of the end of its old connection."""
    world.live.cache.now = 1000.0
    begun = world.open(0)
    world.open(0, 0, source="two")
    begun.write(body(objects_of(0)))
    world.live.cache.now += 2.0
    world.open(0, 0, 1, source="two")
    assert [s.reset_code for s in world.app.streams] == [ResetCode.SESSION_CLOSED, None]
    assert world.app.got[1] == world.head(0) + body(objects_of(1))
    assert not begun.write(body(objects_of(1), last=0))


def test_a_source_may_send_a_subgroup_in_several_streams(world: World) -> None:
    world.stream(0, 0)
    world.stream(0, 1)
    assert len(world.app.got) == 2


def test_what_broke_off_goes_on_by_another_source(world: World) -> None:
    world.open(0, 0, 1).reset(0)
    world.stream(0, 0, 1, 2, source="two")
    assert world.app.got[1] == world.head(0) + body(objects_of(2))


def test_a_new_source_may_start_over(world: World) -> None:
    world.stream(7, 0)
    world.sources.clear()
    world.sources.add("three")
    world.stream(2, 0, source="three")
    assert world.live.counters.started_over == 1
    assert list(world.track.cached.groups) == [2]
    assert world.track.largest() == Location(2, 0)


def test_one_of_several_sources_that_is_behind_has_not_started_over(world: World) -> None:
    world.stream(7, 0)
    world.stream(2, 0, source="two")
    world.sources.remove("one")
    world.sources.add("three")
    world.stream(1, 0, source="three")
    assert world.live.counters.started_over == 0
    assert sorted(world.track.cached.groups) == [1, 2, 7]


def test_a_first_source_has_not_started_over_whatever_is_said_of_the_track(world: World) -> None:
    world.track.cached.saw(Location(7, 0))
    world.stream(2, 0)
    assert world.live.counters.started_over == 0


def test_what_waits_for_the_last_stream_waits_for_all(world: World) -> None:
    called: list[int] = []
    world.track.when_idle(lambda: called.append(0))
    one, two = world.open(0, 0), world.open(1, 0)
    world.track.when_idle(lambda: called.append(1))
    one.finish()
    assert called == [0]
    two.reset(0)
    assert called == [0, 1]
    # The same subgroup again, while its first stream is open.
    one, two = world.open(2, 0), world.open(2, 1)
    world.track.when_idle(lambda: called.append(2))
    one.finish()
    assert called == [0, 1]
    two.finish()
    assert called == [0, 1, 2]


def test_a_stream_of_a_fetch_goes_to_who_asked(world: World) -> None:
    taken: list[tuple[int, bytes, bool]] = []

    def take(request_id: int, data: bytes, fin: bool) -> bool:
        taken.append((request_id, data, fin))
        return len(taken) < 2

    world.live.fetched = take
    head = encode_fetch_header(FetchHeader(700))
    stream = LiveStream(world.track, "one", 5, 0)
    for byte in head:
        stream.write(bytes((byte,)))
    for data in (b"one", b"not wanted"):
        stream.write(data)
    stream.finish(b"end")
    LiveStream(world.track, "one", 5, 0).finish(head + b"all")
    assert taken[-1] == (700, b"all", True)
    assert all(request_id == 700 for request_id, _, _ in taken)
    assert world.app.got == []
    assert world.track.cached.groups == {}


def test_tracks_are_forgotten_when_nothing_is_left_of_them(world: World) -> None:
    world.stream(0, 0)
    world.live.expire(1.0)
    assert world.live.get(world.track.hash.full_name_hash) is world.track
    world.track.subscribers.clear()
    world.live.expire(2.0)
    assert world.live.tracks  # it is in the cache
    world.track.pins += 1
    world.live.expire(100.0)
    assert world.live.tracks
    world.track.pins -= 1
    world.live.expire(101.0)
    assert world.live.tracks == {}


def test_datagrams_come_once(world: World) -> None:
    data = encode_datagram(DatagramObject(world.track.alias, 3, 4, payload=b"x"), DRAFT16)
    assert world.track.datagram(data, None) == 1
    assert world.track.datagram(data, None) is None
    assert world.app.datagrams == [data]
    assert world.live.counters.duplicates == 1
    assert world.track.largest() == Location(3, 4)
