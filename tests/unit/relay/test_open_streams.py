"""A stream that stays open: who leaves gets no more of it, and who comes late gets the rest."""

from __future__ import annotations

import pytest

from laps.relay.roles import Role
from laps.tracks.cache import CacheLimits
from laps.types import Location, track_alias
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.peering import SubscribeInfoAdv
from support.moqt_streams import InStream, Obj, body
from support.relays import App, Net, subscribe_info, track_hash

TRACK = "a/x"
HEAD = encode_subgroup_header(
    SubgroupHeader(track_alias(track_hash(TRACK).full_name_hash), 7), BETWEEN_RELAYS
)

# What the cache keeps of a stream: nothing, little, and all of it.
LIMITS = [
    CacheLimits(total_bytes=0, track_bytes=0),
    CacheLimits(total_bytes=1 << 20, track_bytes=3000),
    CacheLimits(),
]


class Tree:
    """An o-relay, a Via, and two Edges beyond it."""

    def __init__(self, cache: CacheLimits | None = None) -> None:
        self.net, self.pub, self.one, self.two = Net(), App(), App(), App()
        self.origin = self.net.relay("1:1", cache=cache or CacheLimits())
        via = self.net.relay("2:1", Role.VIA)
        self.first, self.second = self.net.relay("1:2"), self.net.relay("1:3")
        self.up = self.net.wire(self.origin, via)
        self.down = [self.net.wire(edge, via) for edge in (self.first, self.second)]
        self.net.announce(self.origin, self.pub, "a")
        self.net.settle()
        self.written = -1

    def begin(self) -> None:
        self.net.publish(self.origin, self.pub, TRACK, 0, HEAD, fin=False)

    def objects(self, count: int, size: int = 200) -> None:
        for _ in range(count):
            data = body([Obj(self.written + 1, bytes(size))], last=self.written)
            self.written += 1
            self.net.publish(self.origin, self.pub, TRACK, 0, data, fin=False)


def places(app: App) -> list[int]:
    """The objects that an app got, on all its streams."""
    found = []
    for stream in app.streams:
        seen = InStream(BETWEEN_RELAYS, (0, 0, 1, 0, 0, 0), 0, bytearray(stream.data))
        found += [item.object_id for item in seen.objects]
    return found


def test_who_left_gets_no_more_of_an_open_stream_and_others_do() -> None:
    tree = Tree()
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.net.subscribe(tree.second, tree.two, TRACK)
    tree.begin()
    tree.objects(3)
    tree.net.unsubscribe(tree.first, tree.one, TRACK)
    tree.net.run(10.0)
    assert tree.down[0].there.running == []
    before = sum(len(stream.data) for stream in tree.down[0].there.streams.values())
    tree.objects(3)
    assert sum(len(stream.data) for stream in tree.down[0].there.streams.values()) == before
    assert places(tree.two) == [0, 1, 2, 3, 4, 5]
    tree.net.unsubscribe(tree.second, tree.two, TRACK)
    tree.net.run(10.0)
    assert tree.up.here.running == []
    assert tree.up.here.sets == {}


def test_who_left_and_is_back_goes_on_where_it_stopped() -> None:
    tree = Tree()
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.begin()
    tree.objects(3)
    tree.net.unsubscribe(tree.first, tree.one, TRACK)
    tree.net.run(10.0)
    tree.objects(2)
    again = App()
    tree.net.subscribe(tree.first, again, TRACK)
    tree.net.run(2.0)
    tree.objects(2)
    assert {3, 4, 5, 6} <= set(places(again))
    assert len(places(again)) == len(set(places(again)))


def test_who_joined_late_and_left_gets_no_more() -> None:
    tree = Tree()
    tree.net.subscribe(tree.second, tree.two, TRACK)
    tree.begin()
    tree.objects(2)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.objects(2)
    assert places(tree.one) == [0, 1, 2, 3]
    tree.net.unsubscribe(tree.first, tree.one, TRACK)
    tree.net.run(10.0)
    assert tree.down[0].there.running == []
    tree.objects(2)
    assert places(tree.two) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("cache", LIMITS, ids=["nothing kept", "little kept", "all kept"])
def test_a_late_relay_gets_the_rest_of_a_long_stream(cache: CacheLimits) -> None:
    tree = Tree(cache)
    tree.net.subscribe(tree.second, tree.two, TRACK)
    tree.begin()
    tree.objects(40)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.objects(10)
    got = places(tree.one)
    assert got[-10:] == list(range(40, 50))
    assert got == list(range(got[0], 50))
    assert places(tree.two) == list(range(50))


def test_a_late_relay_begins_with_a_whole_object() -> None:
    tree = Tree(LIMITS[0])
    tree.net.subscribe(tree.second, tree.two, TRACK)
    tree.begin()
    tree.objects(5)
    data = body([Obj(5, bytes(100))], last=4)
    tree.net.publish(tree.origin, tree.pub, TRACK, 0, data[:50], fin=False)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.net.publish(tree.origin, tree.pub, TRACK, 0, data[50:], fin=False)
    tree.written = 5
    tree.objects(3)
    assert places(tree.one) == [6, 7, 8]
    assert places(tree.two) == list(range(9))


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 50, 1002])
@pytest.mark.parametrize(("cache", "first"), [(LIMITS[1], 29), (LIMITS[2], 0)])
def test_a_late_relay_gets_an_object_whole_that_is_half_there(
    cache: CacheLimits, first: int, cut: int
) -> None:
    tree = Tree(cache)
    tree.net.subscribe(tree.second, tree.two, TRACK)
    tree.begin()
    tree.objects(30)
    last = bytes(range(250)) * 4
    data = body([Obj(30, last)], last=29)
    tree.net.publish(tree.origin, tree.pub, TRACK, 0, data[:cut], fin=False)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.net.publish(tree.origin, tree.pub, TRACK, 0, data[cut:], fin=False)
    tree.written = 30
    tree.objects(2)
    assert places(tree.one)[-3:] == [30, 31, 32]
    assert places(tree.one)[0] <= first + 1
    (stream,) = tree.one.streams
    seen = InStream(BETWEEN_RELAYS, (0, 0, 1, 0, 0, 0), 0, bytearray(stream.data))
    assert seen.objects[-3].payload == last
    assert places(tree.two) == list(range(33))


@pytest.mark.parametrize("cache", LIMITS, ids=["nothing kept", "little kept", "all kept"])
def test_a_relay_whose_link_breaks_and_returns_goes_on(cache: CacheLimits) -> None:
    tree = Tree(cache)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    tree.begin()
    tree.objects(40)
    tree.down[0].cut()
    tree.net.run(3.0)
    via = tree.down[0].there.relay
    tree.net.wire(tree.first, via)
    tree.net.run(10.0)
    tree.objects(5)
    got = places(tree.one)
    assert got[-5:] == list(range(40, 45))
    assert len(got) == len(set(got))


@pytest.mark.parametrize("kind", ["open", "open, its beginning not kept", "ended"])
def test_a_late_relay_gets_a_stream_with_its_priority_and_its_time_to_live(kind: str) -> None:
    tree = Tree(LIMITS[0] if "not kept" in kind else None)
    tree.net.subscribe(tree.second, tree.two, TRACK)
    key = track_hash(TRACK).full_name_hash
    tree.origin.reach.told[tree.first.id, key] = Location(7, -1)
    for number in range(2):
        data = (b"" if number else HEAD) + body([Obj(number, b"x")], last=number - 1)
        fin = kind == "ended" and number == 1
        tree.net.publish(tree.origin, tree.pub, TRACK, 0, data, fin=fin, priority=9, ttl_us=250_000)
    tree.net.subscribe(tree.first, tree.one, TRACK)
    if kind != "ended":
        data = body([Obj(2, b"x")], last=1)
        tree.net.publish(tree.origin, tree.pub, TRACK, 0, data)
    assert places(tree.one)
    assert [(stream.priority, stream.ttl_us) for stream in tree.one.streams] == [(9, 250_000)]


def test_a_node_that_was_restarted_is_given_the_streams_that_are_open() -> None:
    """The subscribe of its last life is still held, so that it joins nothing."""
    net, pub = Net(), App()
    origin, node = net.relay("1:1"), net.puppet("2:1")
    net.wire(node, origin)
    net.announce(origin, pub, "a")
    node.say(SubscribeInfoAdv(subscribe_info("2:1", TRACK, 1)))
    net.publish(origin, pub, TRACK, 0, HEAD + body([Obj(0, b"first")]), fin=False)
    assert len(node.streams) == 1
    for sequence in (1, 2, 2):  # what is said twice is heard once
        node.say(SubscribeInfoAdv(subscribe_info("2:1", TRACK, sequence)))
    before, again = node.streams.values()
    net.publish(origin, pub, TRACK, 0, body([Obj(1, b"second")], last=0))
    assert b"first" in again.data
    assert b"second" in again.data
    assert again.finished
    assert before.finished
