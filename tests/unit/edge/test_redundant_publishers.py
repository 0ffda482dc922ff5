"""Two publishers of one track, at one relay or at two: two sources of the same objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.moqt.data import ObjectStatus
from support.moqt import MoqtNet
from support.moqt_streams import DRAFTS, Obj, objects_of, start_at

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

# Where the publishers and the subscriber are, in a row of relays.
PLACES = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 2, 2)]


class Stage:
    """Two publishers and a subscriber."""

    def __init__(self, places: tuple[int, int, int], dialect: Dialect) -> None:
        self.net = MoqtNet()
        row = self.net.chain(max(places) + 1)
        self.one, self.two, self.sub = (self.net.app(row[place], dialect) for place in places)
        self.aliases = {app: app.publish("demo/t") for app in (self.one, self.two)}
        self.net.run(0.1)
        self.sub.subscribe("demo/t")
        self.net.run(0.2)

    def got(self) -> list[tuple[int, int]]:
        self.net.run(0.2)
        return sorted(self.sub.places)


@pytest.fixture(params=PLACES, ids=str)
def scene(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param, DRAFTS[0])


@pytest.mark.parametrize("dies", ["the first", "the second"])
@pytest.mark.parametrize("how", ["leaves", "resets", "in an object"])
def test_when_one_dies_inside_a_group_the_other_s_objects_are_there(
    scene: Stage, dies: str, how: str
) -> None:
    first = scene.one.open(scene.aliases[scene.one], 5, *objects_of(0, 1))
    scene.net.run(0.05)
    second = scene.two.open(scene.aliases[scene.two], 5, *objects_of(0, 1, 2, 3))
    scene.net.run(0.05)
    app, stream = (scene.one, first) if dies == "the first" else (scene.two, second)
    stays = second if dies == "the first" else first
    if how == "in an object":
        stream.write_bytes(b"\x00\x05ab")
        scene.net.run(0.05)
    if how == "resets":
        stream.reset(1)
    else:
        app.leave()
    scene.net.run(0.05)
    if stays is first:
        stays.write(*objects_of(2, 3))
    stays.write(Obj(4, b"4"), fin=True)
    assert scene.got() == [(5, number) for number in range(5)]


@pytest.mark.parametrize("sooner", ["it dies", "the other ends"])
@pytest.mark.parametrize("places", [(0, 2, 1), (0, 2, 2)], ids=str)
def test_when_one_dies_with_all_but_the_end_of_a_group_the_other_ends_it(
    places: tuple[int, int, int], sooner: str
) -> None:
    """Or the subscriber would wait for a rest that nobody has."""
    scene = Stage(places, DRAFTS[0])
    scene.one.open(scene.aliases[scene.one], 5, *objects_of(0, 1))
    scene.net.run(0.05)
    second = scene.two.open(scene.aliases[scene.two], 5, *objects_of(0, 1))
    scene.net.run(0.05)
    if sooner == "it dies":
        scene.one.leave()
        scene.net.run(0.05)
        second.finish()
    else:
        second.finish()
        scene.net.run(0.05)
        scene.one.leave()
    assert scene.got() == [(5, 0), (5, 1)]
    (stream,) = scene.sub.streams
    assert stream.finished


def test_both_live_on_and_every_object_comes_once(scene: Stage) -> None:
    streams = [app.open(scene.aliases[app], 5, *objects_of(0)) for app in (scene.one, scene.two)]
    for number in range(1, 50):
        for stream in streams if number % 2 else reversed(streams):
            stream.write(Obj(number, b"x" * 1000))
    for stream in streams:
        stream.finish()
    assert scene.got() == [(5, number) for number in range(50)]


def test_what_only_the_second_has_after_the_end_of_the_first_is_delivered(scene: Stage) -> None:
    scene.one.open(scene.aliases[scene.one], 5, *objects_of(0, 1))
    scene.net.run(0.05)
    other = scene.two.open(scene.aliases[scene.two], 5, *objects_of(0, 1, 2))
    scene.net.run(0.05)
    scene.one.leave()
    scene.net.run(0.05)
    other.write(Obj(3, b"3"), fin=True)
    assert scene.got() == [(5, number) for number in range(4)]


def test_a_long_group_of_two_is_not_held_twice() -> None:
    """What both have brought is let go, and still the second can take over."""
    scene = Stage((0, 0, 0), DRAFTS[0])
    one = scene.one.open(scene.aliases[scene.one], 5, Obj(0, b"0"))
    two = scene.two.open(scene.aliases[scene.two], 5, Obj(0, b"0"))
    for number in range(1, 400):
        one.write(Obj(number, bytes(2000)))
        two.write(Obj(number, bytes(2000)))
    track = next(iter(scene.sub.edge.relay.tracks))
    held = sum(standby.size for all_ in track._standbys.values() for standby in all_)
    assert 0 < held < 300_000
    scene.one.leave()
    two.write(Obj(400, b"last"), fin=True)
    assert scene.got() == [(5, number) for number in range(401)]


# -- objects that only one of them has -------------------------------------------------------------


@pytest.mark.parametrize("ends", ["both live on", "the first ends", "the first leaves", "both end"])
def test_what_only_the_second_has_in_the_middle_is_delivered(scene: Stage, ends: str) -> None:
    """Late, if need be, and every object once."""
    first = scene.one.open(scene.aliases[scene.one], 5, *objects_of(0, 1))
    scene.net.run(0.05)
    second = scene.two.open(scene.aliases[scene.two], 5, *objects_of(0, 1, 2))
    scene.net.run(0.05)
    first.write(*objects_of(4, 7))
    scene.net.run(0.05)
    second.write(*objects_of(3, 4, 5, 6))
    scene.net.run(0.05)
    if ends == "the first leaves":
        scene.one.leave()
    elif ends != "both live on":
        first.finish()
    scene.net.run(1.0)
    second.write(*objects_of(7, 8), fin=ends == "both end")
    scene.net.run(1.0)
    if ends == "both live on":
        first.write(*objects_of(8, 9))
        scene.net.run(0.05)
    expected = [(5, number) for number in range(10 if ends == "both live on" else 9)]
    assert scene.got() == expected
    late = scene.net.app(scene.sub.edge.relay)
    late.fetch("demo/t", (5, 0), (5, 8))
    scene.net.run(0.5)
    assert late.fetched.places == expected[:8]


@pytest.mark.parametrize("ids", [(0, 1, 2, 3, 4), (2, 3, 5), (0, 1, 4), (0, 1, 2, 3, 4, 5, 6)])
def test_what_only_the_second_has_of_a_stream_that_has_ended_is_delivered(
    scene: Stage, ids: tuple[int, ...]
) -> None:
    scene.one.stream(scene.aliases[scene.one], 5, *objects_of(0, 1, 4))
    scene.net.run(0.05)
    second = scene.two.open(scene.aliases[scene.two], 5, *objects_of(*ids[:2]))
    scene.net.run(0.05)
    second.write(*objects_of(*ids[2:]), fin=True)
    assert scene.got() == [(5, number) for number in sorted({0, 1, 4, *ids})]


def test_of_one_that_sends_something_else_under_the_same_ids_nothing_is_delivered(
    scene: Stage,
) -> None:
    """It may have begun anew while its old connection is not known to be dead."""
    scene.one.stream(scene.aliases[scene.one], 5, *objects_of(0, 1, 4))
    scene.net.run(0.05)
    other = [Obj(number, b"other") for number in range(6)]
    scene.two.stream(scene.aliases[scene.two], 5, *other)
    assert scene.got() == [(5, 0), (5, 1), (5, 4)]


def test_a_third_publisher_brings_nothing_twice(scene: Stage) -> None:
    third = scene.net.app(scene.two.edge.relay)
    alias = third.publish("demo/t")
    scene.net.run(0.2)
    apps = [(scene.one, scene.aliases[scene.one]), (scene.two, scene.aliases[scene.two])]
    streams = [app.open(name, 5, *objects_of(0)) for app, name in [*apps, (third, alias)]]
    scene.net.run(0.05)
    for stream, ids in zip(streams, [(3, 6), (1, 3, 4, 6), (1, 2, 3, 4, 5, 6)], strict=True):
        stream.write(*objects_of(*ids))
        scene.net.run(0.6)
    for stream in streams:
        stream.write(*objects_of(7))
        scene.net.run(0.6)
    scene.one.leave()
    scene.net.run(0.1)
    for stream in streams[1:]:
        stream.write(*objects_of(8), fin=True)
    assert scene.got() == [(5, number) for number in range(9)]


@pytest.mark.parametrize("how", ["leaves", "resets"])
def test_what_takes_over_is_given_to_relays_that_join_at_once(how: str) -> None:
    net = MoqtNet()
    relays = net.chain(3)
    one, two = net.app(relays[0]), net.app(relays[0])
    aliases = [app.publish("demo/t") for app in (one, two)]
    net.app(relays[1]).subscribe("demo/t")
    net.run(0.2)
    first = one.open(aliases[0], 5, *objects_of(0, 1))
    two.open(aliases[1], 5, *objects_of(0, 1, 2))
    late = net.app(relays[2])
    late.subscribe("demo/t", start_at(0))
    net.run(0.01)
    if how == "leaves":
        one.leave()
    else:
        first.reset(1)
    assert not relays[0].tracks.shared.began
    net.run(0.2)
    assert sorted(late.places)[-1] == (5, 2)
    assert len(late.places) == len(set(late.places))


def test_nothing_is_delivered_after_the_end_of_a_group(scene: Stage) -> None:
    """One of them is mistaken; subscribers are not to think the track malformed."""
    end = Obj(2, status=ObjectStatus.END_OF_GROUP)
    scene.one.stream(scene.aliases[scene.one], 5, Obj(0, b"0"), end)
    scene.net.run(0.05)
    scene.two.stream(scene.aliases[scene.two], 5, *objects_of(0, 1, 2, 3))
    got = scene.got()
    assert (5, 1) in got
    assert (5, 3) not in got
    assert len(got) == len(set(got))


def test_a_long_group_with_gaps_is_filled_while_both_live() -> None:
    scene = Stage((0, 0, 0), DRAFTS[0])
    one = scene.one.open(scene.aliases[scene.one], 5, Obj(0, b"0"))
    two = scene.two.open(scene.aliases[scene.two], 5, Obj(0, b"0"))
    for number in range(1, 400):
        if number % 10:
            one.write(Obj(number, bytes(2000)))
        two.write(Obj(number, bytes(2000)))
        scene.net.run(0.01)
    got = scene.got()
    assert len(got) == len(set(got))
    assert {number for _, number in got} >= set(range(300))
    track = next(iter(scene.sub.edge.relay.tracks))
    held = sum(standby.size for all_ in track._standbys.values() for standby in all_)
    assert held < 300_000


# -- one that counts otherwise, or lies ------------------------------------------------------------

FAR = 2**60


@pytest.mark.parametrize("by", ["streams", "datagrams", "its word"])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("silent_s", [0.0, 30.0])
def test_one_object_in_a_far_group_silences_nobody(
    scene: Stage, by: str, stays: bool, silent_s: float
) -> None:
    scene.one.stream(scene.aliases[scene.one], 5, *objects_of(0))
    scene.net.run(silent_s)
    if by == "streams":
        scene.two.stream(scene.aliases[scene.two], FAR, *objects_of(0))
    elif by == "datagrams":
        scene.two.datagram(scene.aliases[scene.two], FAR, 0, payload=b"x")
    else:
        liar = scene.net.app(scene.two.edge.relay)
        liar.publish("demo/t", largest=Location(FAR, 0))
        scene.net.run(0.1)
        if not stays:
            liar.leave()
    scene.net.run(0.1)
    if not stays:
        scene.two.leave()
        scene.net.run(0.1)
    late = scene.net.app(scene.sub.edge.relay)
    late.subscribe("demo/t")
    scene.net.run(1.5)
    for group in (6, 7):
        scene.one.stream(scene.aliases[scene.one], group, *objects_of(0))
        scene.net.run(0.1)
    assert [place for place in late.places if place[0] < FAR] == [(6, 0), (7, 0)]
