"""Tracks as they pass a relay with clients: once into the cache, and once to each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.infobase.nodes import SessionId
from laps.infobase.subscribes import Subscribes
from laps.routing.flows import FromPeer
from laps.routing.forwarding import Fib
from laps.tracks.cache import CacheLimits
from laps.tracks.repeated import RECENT_S
from laps.tracks.streams import IncomingStream
from laps.tracks.subscription import PlainSubscriber
from laps.tracks.track import StreamsClosed
from laps.tracks.tracks import Tracks
from laps.tracks.upstream_fetch import UpstreamFetch
from laps.types import AnnounceInfo, Location, NodeId, SnsId
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
from support.moqt_streams import Obj, body, objects_of
from support.relays import App, track_hash, track_name
from support.routes import NoRoutes

if TYPE_CHECKING:
    from laps.tracks.publication import Source

SELF = NodeId(1)
ANNOUNCE = AnnounceInfo(SELF, (7,), 0)
ONE_WAY, OTHER_WAY = (FromPeer(SessionId(number), SnsId(1)) for number in (1, 2))
THIRD_WAY = FromPeer(SessionId(2), SnsId(2))


class World:
    """One track with a plain subscriber, and sources that come and go."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fib = Fib(NoRoutes())
        self.tracks = Tracks(SELF, Subscribes(), self.fib, CacheLimits())
        self.track = self.tracks.track(track_hash("demo/t"), self.now, track_name("demo/t"))
        self.one, self.two, self.three = map(App, ("one", "two", "three"))
        self.come(self.one)
        self.come(self.two)
        self.app = App()
        self.track.add_subscriber(self.app, PlainSubscriber(self.app, self.track.hash))

    def come(self, source: App) -> None:
        """A publisher is here from now on."""
        self.tracks.announces.add(source, ANNOUNCE)

    def leave(self, source: App) -> None:
        """A publisher is here no more."""
        self.tracks.announces.drop_origin(source)

    def incoming(self, source: Source | None = None, ttl_us: int = 0) -> IncomingStream:
        """A stream of which nothing has arrived, of the first source unless another is given."""
        return IncomingStream(self.track, self.one if source is None else source, 5, ttl_us)

    def head(self, group: int, subgroup: int | None = 0) -> bytes:
        header = SubgroupHeader(self.track.alias, group, subgroup, 128)
        return encode_subgroup_header(header, DRAFT16)

    def open(
        self, group: int, *ids: int, source: Source | None = None, subgroup: int = 0
    ) -> IncomingStream:
        stream = self.incoming(source)
        stream.write(self.head(group, subgroup) + body(objects_of(*ids)), self.now)
        return stream

    def stream(
        self, group: int, *ids: int, source: Source | None = None, subgroup: int = 0
    ) -> IncomingStream:
        stream = self.open(group, *ids, source=source, subgroup=subgroup)
        stream.finish(b"", self.now)
        return stream


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("subgroup", [0, 3, None])
def test_a_stream_is_passed_on_as_it_is_and_kept(world: World, subgroup: int | None) -> None:
    data = world.head(1, subgroup) + body(objects_of(64, 65))
    for cut in range(len(data) + 1):
        stream = world.incoming(ttl_us=77)
        stream.write(data[:cut], world.now)
        stream.finish(data[cut:], world.now)
    assert world.app.got == [data] * (len(data) + 1)
    assert {(s.priority, s.ttl_us) for s in world.app.streams} == {(5, 77)}
    assert world.track.streams == {}
    (group,) = world.track.cached.groups.values()
    assert {stream.subgroup for stream in group.streams} == {64 if subgroup is None else subgroup}
    assert world.track.largest() == Location(1, 65)


def test_what_is_not_moqt_is_for_plain_clients_and_not_kept(world: World) -> None:
    other = encode_subgroup_header(SubgroupHeader(world.track.alias + 1, 0), DRAFT16)
    for data in (b"\xff\xff", b"", other + b"\x00\x01x", world.head(0)[:3]):
        world.incoming().finish(data, world.now)
    assert world.app.got == [b"\xff\xff", b"", other + b"\x00\x01x", world.head(0)[:3]]
    assert world.track.cached.groups == {}
    assert world.tracks.counters.opaque == 4
    for datagram in (b"\xff", b"", encode_datagram(DatagramObject(7, 0, 0), DRAFT16)):
        world.track.datagrams.receive(datagram, world.one, None, world.now)
    assert len(world.app.datagrams) == 3
    assert world.track.cached.groups == {}


def test_where_it_comes_from_it_does_not_go_back(world: World) -> None:
    stream = IncomingStream(world.track, world.one, 5, 0, exclude=world.app)
    stream.finish(world.head(0) + body(objects_of(0)), world.now)
    world.track.datagrams.receive(b"\xff", world.one, world.app, world.now)
    datagram = encode_datagram(DatagramObject(world.track.alias, 0, 7), DRAFT16)
    world.track.datagrams.receive(datagram, world.one, world.app, world.now)
    assert world.app.got == world.app.datagrams == []


def test_a_reset_goes_to_all_and_leaves_what_came(world: World) -> None:
    world.open(0, 0, 1).reset(ResetCode.DELIVERY_TIMEOUT, world.now)
    assert [s.reset_code for s in world.app.streams] == [ResetCode.DELIVERY_TIMEOUT]
    (stream,) = world.track.cached.groups[0].streams
    assert (stream.live, stream.fin) == (False, False)
    assert world.track.largest() == Location(0, 1)


def test_the_same_of_two_sources_comes_once(world: World) -> None:
    one = world.open(0, 0)
    two = world.open(0, 0, source=world.two)
    two.write(body(objects_of(1), last=0), world.now)
    two.finish(b"", world.now)
    one.finish(body(objects_of(1), last=0), world.now)
    world.stream(0, 0, 1, source=world.two)
    world.stream(0, 2, source=world.two, subgroup=1)
    assert len(world.app.got) == 2
    assert world.tracks.counters.duplicates == 2


def test_a_stream_that_is_silent_gives_way_and_one_that_has_just_begun_does_not(
    world: World,
) -> None:
    """A publisher that is back may be ahead of the end of its old connection."""
    world.now = 1000.0
    begun = world.open(0)
    world.open(0, 0, source=world.two)
    begun.write(body(objects_of(0)), world.now)
    world.now += 2.0
    world.open(0, 0, 1, source=world.two)
    assert [s.reset_code for s in world.app.streams] == [ResetCode.SESSION_CLOSED, None]
    assert world.app.got[1] == world.head(0) + body(objects_of(1))
    assert begun.over
    begun.write(body(objects_of(1), last=0), world.now)
    assert world.app.got[0] == world.head(0) + body(objects_of(0))
    old, new = world.track.cached.groups[0].streams
    assert [item.object_id for item in old.objects(0.0)] == [0]
    assert [item.object_id for item in new.objects(0.0)] == [0, 1]


def test_where_one_that_stood_by_goes_on_a_third_stands_by(world: World) -> None:
    world.now = 1000.0
    world.open(0, 0)
    world.open(0, 0, 1, source=world.two)
    world.now += 2.0
    world.stream(0, 0, 1, 2, source=world.three)
    objects = [world.head(0) + body(objects_of(number)) for number in (0, 1)]
    assert world.app.got[:2] == objects
    assert b"".join(world.app.got).count(body(objects_of(1))) == 1


def test_a_source_may_send_a_subgroup_in_several_streams(world: World) -> None:
    world.stream(0, 0)
    world.stream(0, 1)
    assert len(world.app.got) == 2


def test_what_broke_off_goes_on_by_another_source(world: World) -> None:
    world.open(0, 0, 1).reset(0, world.now)
    world.stream(0, 0, 1, 2, source=world.two)
    assert world.app.got[1] == world.head(0) + body(objects_of(2))


def test_a_new_source_may_start_over(world: World) -> None:
    world.stream(7, 0)
    world.leave(world.one)
    world.leave(world.two)
    world.come(world.three)
    world.stream(2, 0, source=world.three)
    assert world.tracks.counters.started_over == 1
    assert list(world.track.cached.groups) == [2]
    assert world.track.largest() == Location(2, 0)


def test_one_of_several_sources_that_is_behind_has_not_started_over(world: World) -> None:
    world.stream(7, 0)
    world.stream(2, 0, source=world.two)
    world.leave(world.one)
    world.come(world.three)
    world.stream(1, 0, source=world.three)
    assert world.tracks.counters.started_over == 0
    assert sorted(world.track.cached.groups) == [1, 2, 7]


def test_a_first_source_has_not_started_over_whatever_is_said_of_the_track(world: World) -> None:
    world.track.cached.saw(Location(7, 0))
    world.stream(2, 0)
    assert world.tracks.counters.started_over == 0


def test_what_waits_for_the_last_stream_waits_for_all(world: World) -> None:
    events, closed = world.tracks.events, StreamsClosed(world.track)
    world.stream(0, 0)
    assert not events  # nobody waits
    one, two = world.open(0, 1), world.open(1, 0)
    world.track.ending = (0, "it has ended", frozenset())
    one.finish(b"", world.now)
    assert not events
    two.reset(0, world.now)
    assert list(events) == [closed]
    # The same subgroup again, while its first stream is open.
    events.clear()
    one, two = world.open(2, 0), world.open(2, 1)
    one.finish(b"", world.now)
    assert not events
    two.finish(b"", world.now)
    assert list(events) == [closed]


class Asked(UpstreamFetch):
    """Writes down what it is given, and wants no more after the second time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.taken: list[tuple[bytes, bool]] = []

    def receive(self, data: bytes, *, fin: bool) -> bool:
        self.taken.append((data, fin))
        return len(self.taken) < 2


def test_a_stream_of_a_fetch_goes_to_who_asked(world: World) -> None:
    fetches = {
        number: Asked(world.track.cached, Location(0, 0), Location(9, 0), DRAFT16, number)
        for number in (700, 701)
    }
    world.tracks.shared.upstream_fetches.update(fetches)
    head = encode_fetch_header(FetchHeader(700))
    stream = world.incoming()
    for byte in head:
        stream.write(bytes((byte,)), world.now)
    for data in (b"one", b"not wanted"):
        stream.write(data, world.now)
    stream.finish(b"end", world.now)
    assert fetches[700].taken == [(b"", False), (b"one", False)]
    world.incoming().finish(head + b"all", world.now)
    assert fetches[700].taken[-1] == (b"all", True)
    nobody = encode_fetch_header(FetchHeader(702))
    world.incoming().finish(nobody + b"all", world.now)
    assert fetches[701].taken == []
    assert world.app.got == []
    assert world.track.cached.groups == {}


def test_tracks_are_forgotten_when_nothing_is_left_of_them(world: World) -> None:
    track, tracks = world.track, world.tracks
    world.stream(0, 0)
    tracks.expire(1.0)
    assert tracks.get(track.key) is track
    track.remove_subscriber(world.app)
    tracks.expire(2.0)
    assert list(tracks) == [track]  # it is in the cache
    publication = track.ask(world.one, world.now)
    assert publication is not None
    fetch = UpstreamFetch(track.cached, Location(0, 0), Location(9, 0), DRAFT16)
    tracks.expire(100.0)
    assert list(tracks) == [track]  # somebody may send it
    track.release(publication)
    track.fetches[fetch] = None
    tracks.expire(101.0)
    assert list(tracks) == [track]  # it is being fetched
    del track.fetches[fetch]
    track.leaving_at = 103.0
    tracks.expire(102.0)
    assert list(tracks) == [track]  # the network has not been told that nobody wants it
    track.leaving_at = None
    tracks.expire(103.0)
    assert (len(tracks), list(tracks)) == (0, [])


def test_datagrams_come_once(world: World) -> None:
    data = encode_datagram(DatagramObject(world.track.alias, 3, 4, payload=b"x"), DRAFT16)
    assert world.track.datagrams.receive(data, world.one, None, world.now) == 1
    assert world.track.datagrams.receive(data, world.one, None, world.now) is None
    assert world.app.datagrams == [data]
    assert world.tracks.counters.duplicates == 1
    assert world.track.largest() == Location(3, 4)


# -- from another relay ----------------------------------------------------------------------------


@pytest.mark.parametrize("later_s", [0.1, RECENT_S, 50.0])
def test_the_same_by_two_ways_comes_once_and_something_else_is_new(
    world: World, later_s: float
) -> None:
    """The flow may be gone as soon as its stream has ended."""
    world.stream(0, 0, 1, source=ONE_WAY)
    world.now += later_s
    world.stream(0, 0, 1, source=OTHER_WAY)
    assert len(world.app.got) == world.tracks.counters.duplicates == 1
    stream = world.incoming(OTHER_WAY)
    stream.finish(world.head(0) + body([Obj(0, b"another life")]), world.now)
    assert len(world.app.got) == 2


def test_by_two_ways_a_header_alone_is_the_same_for_a_while(world: World) -> None:
    world.stream(0, 0, source=ONE_WAY)
    world.now += RECENT_S - 0.1
    world.incoming(OTHER_WAY).write(world.head(0), world.now)
    assert world.tracks.counters.duplicates == 1
    world.now += 0.2
    world.incoming(OTHER_WAY).write(world.head(0), world.now)
    assert world.tracks.counters.duplicates == 1


def test_while_a_flow_is_there_what_it_brought_does_not_come_again(world: World) -> None:
    world.fib.install(ONE_WAY, [], local=True)
    world.stream(0, 0, source=ONE_WAY)
    world.now += 50.0
    stream = world.incoming(OTHER_WAY)
    stream.finish(world.head(0) + body([Obj(0, b"whatever it is")]), world.now)
    assert len(world.app.got) == world.tracks.counters.duplicates == 1


@pytest.mark.parametrize("other", [ONE_WAY, None])
def test_who_comes_back_and_repeats_its_tail_costs_neither_the_cache_nor_a_duplicate(
    world: World, other: Source | None
) -> None:
    """Groups 0 to 5, and after a while 4, 5 and 6 of another source that has the same."""
    source = world.one if other is None else ONE_WAY
    back = world.two if other is None else OTHER_WAY
    world.fib.install(ONE_WAY, [], local=True)
    for group in range(6):
        world.stream(group, 0, 1, source=source)
    world.fib.remove(ONE_WAY)
    world.leave(world.one)
    world.now += 20.0
    for group in (4, 5, 6):
        world.stream(group, 0, 1, source=back)
    assert len(world.app.got) == 7
    assert sorted(world.track.cached.groups) == list(range(7))
    assert world.tracks.counters.started_over == 0
    assert world.tracks.counters.duplicates == 2


def test_who_comes_back_with_something_else_begins_anew(world: World) -> None:
    world.open(0, 0, 1)  # it never ended
    world.leave(world.one)
    world.now += 20.0
    stream = world.incoming(world.two)
    stream.finish(world.head(0) + body([Obj(0, b"another life"), Obj(1, b"of it")]), world.now)
    assert world.tracks.counters.started_over == 1
    assert len(world.app.got) == 2


def test_what_comes_from_another_relay_may_not_be_all_there_is(world: World) -> None:
    history = world.track.cached.history
    history.published_here(all_of_it=True)
    world.stream(0, 0)
    assert not history.partial
    world.stream(1, 0, source=ONE_WAY)
    assert history.partial


def test_streams_that_begin_while_a_node_joins_are_written_down(world: World) -> None:
    began = world.tracks.shared.began
    world.stream(0, 0)
    assert began == []
    world.track.joining[NodeId(9)] = 1.0
    opened = world.open(1, 0)
    again = world.open(1, 0, source=world.two)
    whole = world.incoming()
    whole.finish(world.head(2) + body(objects_of(0)), world.now)
    assert began == [(world.track.key, opened, False), (world.track.key, whole, True)]
    assert again.cached is None


def test_a_stream_that_datagrams_have_overtaken_is_of_this_life(world: World) -> None:
    """A way that is gone, and another: by it came a datagram, and then what was before that."""
    world.fib.install(ONE_WAY, [], local=True)
    world.stream(5, 0, 1, source=ONE_WAY)
    world.fib.remove(ONE_WAY)
    world.fib.install(OTHER_WAY, [], local=True)
    data = encode_datagram(DatagramObject(world.track.alias, 7, 0, payload=b"x"), DRAFT16)
    world.track.datagrams.receive(data, OTHER_WAY, None, world.now)
    world.stream(6, 0, 1, source=THIRD_WAY)
    assert world.tracks.counters.started_over == 0
    assert sorted(world.track.cached.groups) == [5, 6, 7]


# -- what it takes ---------------------------------------------------------------------------------


def test_a_track_keeps_its_attributes_in_little_room() -> None:
    assert not hasattr(World().track, "__dict__")
