"""Objects of any size from QUICR and MoQT publishers to subscribers of both, far and near."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.quicr.fragments import cut
from laps.wire.quicr.messages import Terms
from support.moqt import App, MoqtNet
from support.moqt_streams import Obj, start_at
from support.quicr import Media, Post, QuicrApp, check_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.wire.quicr.messages import Fragment

SIZES = [0, 1, 1080, 1081, 65_000, 65_536, 300_000]
OBJECTS = [
    (group, number, bytes([group, number, 7]) * (size // 3) + b"end"[: size % 3])
    for group in range(2)
    for number, size in enumerate(SIZES)
]

Got = list[tuple[int, int, bytes]]


def moqt_objects(app: App) -> Got:
    """All that came, on streams and in datagrams, but for what only says that a group is over."""
    streamed = [o for s in app.subgroups for o in s.objects]
    found = [(o.group, o.object_id, o.payload) for o in streamed if not o.status]
    found += [(d.group, d.object_id, bytes(d.payload)) for d in app.datagrams if d.status is None]
    return sorted(found)


class Audience:
    """At each relay of a row: two QUICR and two MoQT subscribers."""

    def __init__(self, net: MoqtNet) -> None:
        self.streams: list[Media] = []
        self.datagrams: list[Media] = []
        self.moqt: list[App] = []
        for relay in list(net.edges):
            self.streams.append(QuicrApp(net, relay).subscribe("demo/t"))
            self.datagrams.append(QuicrApp(net, relay).subscribe("demo/t", datagrams=True))
            for dialect in (DRAFT14, DRAFT16):
                self.moqt.append(net.app(relay, dialect))
                self.moqt[-1].subscribe("demo/t", start_at(0))

    def check(self, objects: Got, *, starts: int = 0) -> None:
        for media in self.streams:
            assert media.app.closed is None
            assert media.objects == objects
            assert len(media.starts) <= starts
        for media in self.datagrams:
            assert media.app.closed is None
            assert sorted(media.objects) == objects
        for app in self.moqt:
            assert moqt_objects(app) == objects


def stream_in_quicr(net: MoqtNet, size: int) -> None:
    post = QuicrApp(net, next(iter(net.edges))).publish("demo/t")
    for group, number, data in OBJECTS:
        post.object(group, number, data, size)


def datagrams_in_quicr(net: MoqtNet, mix: Callable[[list[Fragment]], Iterable[Fragment]]) -> Post:
    post = QuicrApp(net, next(iter(net.edges))).publish("demo/t", datagrams=True)
    fragments = [f for group, number, data in OBJECTS for f in cut(group, number, data, 1000)]
    for fragment in mix(fragments):
        before = len(SIZES) if fragment.group and not fragment.object_id else 0
        post.datagram(fragment, Terms(objects_before=before))
    return post


def stage() -> tuple[MoqtNet, Audience]:
    net = MoqtNet()
    net.chain(3)
    return net, Audience(net)


@pytest.mark.parametrize("size", [60_000, 1000, 65_500])
def test_a_quicr_stream_reaches_everybody(size: int) -> None:
    net, audience = stage()
    stream_in_quicr(net, size)
    net.run(0.5)
    audience.check(OBJECTS)
    check_empty(net)


def shuffled(fragments: list[Fragment]) -> list[Fragment]:
    return Random(1).sample(fragments, len(fragments))


def doubled(fragments: list[Fragment]) -> list[Fragment]:
    return shuffled(fragments + fragments)


@pytest.mark.parametrize("mix", [list, doubled], ids=["in order", "shuffled and doubled"])
def test_datagrams_reach_everybody(mix: Callable[[list[Fragment]], list[Fragment]]) -> None:
    net, audience = stage()
    # What is sent first is where a track begins for who reads it in order.
    datagrams_in_quicr(net, lambda fragments: [fragments[0], *mix(fragments[1:])])
    net.run(2)
    audience.check(OBJECTS)
    check_empty(net)


@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
@pytest.mark.parametrize("step", [0, 1000])
def test_a_moqt_stream_reaches_everybody(dialect: object, step: int) -> None:
    net, audience = stage()
    pub = net.app(next(iter(net.edges)), dialect)  # type: ignore[arg-type]
    pub.fragments = step
    alias = pub.publish("demo/t")
    for group in range(2):
        items = [Obj(number, data) for g, number, data in OBJECTS if g == group]
        pub.stream(alias, group, *items)
    net.run(0.5)
    audience.check(OBJECTS)
    check_empty(net)


@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
def test_moqt_datagrams_reach_everybody(dialect: object) -> None:
    net, audience = stage()
    pub = net.app(next(iter(net.edges)), dialect)  # type: ignore[arg-type]
    alias = pub.publish("demo/t")
    objects = [
        (group, number, bytes(size)) for group in range(3) for number, size in [(0, 0), (1, 900)]
    ]
    for group, number, data in objects:
        pub.datagram(alias, group, number, payload=data, priority=9)
    net.run(2)
    audience.check(objects)
    for media in audience.datagrams:
        assert all(datagram.terms.priority == 0 for datagram in media.datagrams)
    check_empty(net)


def test_subgroups_that_interleave_are_put_in_order() -> None:
    net, audience = stage()
    pub = net.app(next(iter(net.edges)), DRAFT16)
    alias = pub.publish("demo/t")
    payload = [b"%d" % number * 3000 for number in range(8)]
    even = pub.open(alias, 0, subgroup=0)
    odd = pub.open(alias, 0, subgroup=1)
    for number in (1, 3):
        odd.write(Obj(number, payload[number]))
    for number in (0, 2, 4):
        even.write(Obj(number, payload[number]))
    even.write(Obj(6, payload[6]), fin=True)
    odd.write(Obj(5, payload[5]), Obj(7, payload[7]), fin=True)
    net.run(0.5)
    audience.check([(0, number, data) for number, data in enumerate(payload)])
    check_empty(net)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_lost_on_the_way_is_missing_and_nothing_else_is(seed: int) -> None:
    net, audience = stage()
    rng = Random(seed)
    lost = {(0, 1), (1, 3)}

    def mix(fragments: list[Fragment]) -> list[Fragment]:
        left = []
        for index, fragment in enumerate(fragments):
            place = fragment.group, fragment.object_id
            if place in lost and (fragment.offset == 0 or rng.random() < 0.3):
                continue
            left.append((index + rng.randint(0, 20), index, fragment))
        return [fragment for _, _, fragment in sorted(left, key=lambda item: item[:2])]

    datagrams_in_quicr(net, lambda fragments: [fragments[0], *mix(fragments[1:])])
    net.run(3)
    audience.check([item for item in OBJECTS if item[:2] not in lost], starts=2)
    check_empty(net)


@pytest.mark.parametrize("seed", range(4))
def test_datagrams_to_a_client_in_any_order_are_put_together(seed: int) -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    media = QuicrApp(net, relay).subscribe("demo/t", datagrams=True)
    rng = Random(seed)
    media.app.link.mix = lambda data: rng.sample(data * 2, 2 * len(data))
    stream_in_quicr(net, 60_000)
    media.app.link.deliver()
    assert sorted(media.objects) == OBJECTS
    assert all(len(data) <= 1200 for data, _, _ in media.app.link.datagrams)


def test_a_group_says_how_many_objects_the_one_before_had() -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    media = QuicrApp(net, relay).subscribe("demo/t", datagrams=True)
    stream_in_quicr(net, 60_000)
    (first,) = (
        d
        for d in media.datagrams
        if (d.fragment.group, d.fragment.object_id, d.fragment.offset) == (1, 0, 0)
    )
    assert first.terms.objects_before == len(SIZES)


def test_a_publisher_may_begin_on_its_stream_and_go_on_in_datagrams() -> None:
    net, audience = stage()
    post = QuicrApp(net, next(iter(net.edges))).publish("demo/t", datagrams=True)
    for group, number, data in OBJECTS[:3]:
        post.object(group, number, data)
    for group, number, data in OBJECTS[3:]:
        post.datagrams(group, number, data)
    net.run(1)
    audience.check(OBJECTS)
    check_empty(net)


@pytest.mark.parametrize("datagrams", [False, True], ids=["stream", "datagrams"])
def test_one_copy_crosses_a_link_however_many_subscribe(datagrams: bool) -> None:
    net = MoqtNet()
    first, middle, last = net.chain(3)
    readers = [QuicrApp(net, last).subscribe("demo/t", datagrams=n % 2 == 1) for n in range(4)]
    others = [net.app(last, dialect) for dialect in (DRAFT14, DRAFT16)]
    post = QuicrApp(net, first).publish("demo/t", datagrams=datagrams)
    for other in others:
        other.subscribe("demo/t")
    net.run(1)
    before = [relay.data.counters.copies for relay in (first, middle)]
    for number in range(3):
        if datagrams:
            post.datagrams(0, number, bytes(2500), size=1000)
        else:
            post.object(0, number, bytes(2500))
    net.run(1)
    assert all(reader.places == [(0, 0), (0, 1), (0, 2)] for reader in readers)
    assert all(
        len({*o.places, *((d.group, d.object_id) for d in o.datagrams)}) == 3 for o in others
    )
    copies = 9 if datagrams else 1  # fragments, or the stream of the group
    after = [relay.data.counters.copies for relay in (first, middle)]
    assert [a - b for a, b in zip(after, before, strict=True)] == [copies, copies]
