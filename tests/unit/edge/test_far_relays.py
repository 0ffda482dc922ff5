"""A subscriber at another relay gets what one at the publisher's relay gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.edge.subscribing import NEXT_S
from laps.relay.roles import Role
from laps.types import Location
from laps.wire.moqt.messages import Publish, SubscribeOk
from support.moqt import MoqtNet
from support.moqt_streams import DRAFTS, NEXT_GROUP, Obj, objects_of
from support.quicr import QuicrApp
from support.relays import track_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Filter
    from support.moqt import App


# -- where a subscription begins -------------------------------------------------------------------


def _between_groups(pub: App, alias: int) -> Callable[[], None]:
    pub.stream(alias, 3, *objects_of(0, 1))
    pub.stream(alias, 4, *objects_of(0, 1, 2))
    return lambda: None


def _inside_a_group(pub: App, alias: int) -> Callable[[], None]:
    pub.stream(alias, 3, *objects_of(0, 1))
    stream = pub.open(alias, 4, *objects_of(0, 1))

    def more() -> None:
        stream.write(*objects_of(2, 3), fin=True)

    return more


def _inside_an_object(pub: App, alias: int) -> Callable[[], None]:
    stream = pub.open(alias, 4, *objects_of(0, 1))
    stream.write_bytes(b"\x00\x05ab")

    def more() -> None:
        stream.write_bytes(b"cde")
        stream._last = 2
        stream.write(*objects_of(3), fin=True)

    return more


def _inside_two_groups(pub: App, alias: int) -> Callable[[], None]:
    streams = [pub.open(alias, group, *objects_of(0, 1)) for group in (3, 4)]

    def more() -> None:
        for stream in streams:
            stream.write(*objects_of(2, 3), fin=True)

    return more


def _in_datagrams(pub: App, alias: int) -> Callable[[], None]:
    pub.datagram(alias, 4, 0, payload=b"0")
    pub.datagram(alias, 4, 1, payload=b"1")
    return lambda: pub.datagram(alias, 4, 2, payload=b"2")


@pytest.mark.parametrize("wanted", [None, NEXT_GROUP], ids=["latest", "next"])
@pytest.mark.parametrize("waits_s", [0.0, 2.0])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
@pytest.mark.parametrize(
    "history",
    [_between_groups, _inside_a_group, _inside_two_groups, _inside_an_object, _in_datagrams],
)
def test_a_subscription_from_the_latest_object_begins_where_a_near_one_does(
    history: Callable[[App, int], Callable[[], None]],
    dialect: Dialect,
    asked: bool,
    waits_s: float,
    wanted: Filter | None,
) -> None:
    net = MoqtNet()
    relays = net.chain(3)
    pub = net.app(relays[0], DRAFTS[1])
    alias = pub.publish("demo/t")
    if asked:  # somebody reads it already
        net.app(relays[1], dialect).subscribe("demo/t")
    net.run(0.2)
    more = history(pub, alias)
    net.run(waits_s)
    viewers = [net.app(relay, dialect) for relay in relays]
    for viewer in viewers:
        viewer.subscribe("demo/t", **({} if wanted is None else {"filter_": wanted}))
    net.run(0.2)
    more()
    net.run(0.2)
    pub.stream(alias, 5, *objects_of(0, 1))
    net.run(0.2)
    near, *far = viewers
    assert near.places[-2:] == [(5, 0), (5, 1)]
    for viewer in far:
        answers = [it.heard_of(SubscribeOk)[0].largest for it in (near, viewer)]
        assert answers[0] == answers[1]
        assert sorted(viewer.places) == sorted(near.places)
        assert [d.object_id for d in viewer.datagrams] == [d.object_id for d in near.datagrams]


# -- relays that are about to find each other ------------------------------------------------------


def _at_once(net: MoqtNet, *calls: Callable[[], object]) -> None:
    """Several things happen before anybody hears of the first."""
    run, net.run = net.run, lambda seconds=0.0: None  # type: ignore[method-assign]
    for call in calls:
        call()
    net.run = run  # type: ignore[method-assign]
    net.run()


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("where", ["at its edge", "beyond"])
@pytest.mark.parametrize("by", ["datagrams", "streams"])
def test_what_a_publisher_at_a_stub_sends_at_once_is_not_lost(
    by: str, where: str, extended: bool
) -> None:
    net = MoqtNet()
    edge, far = net.relay("1:1"), net.relay("1:2")
    stub = net.relay("8:1", Role.STUB)
    for relay in (edge, far, stub):
        net.edge(relay)
    net.wire(edge, far, extended=extended)
    net.wire(stub, edge, extended=extended)
    net.settle()
    sub = net.app(edge if where == "at its edge" else far)
    pub = net.app(stub)
    sub.subscribe("demo/t")
    net.run(0.3)
    alias = 7
    calls: list[Callable[[], object]] = [
        lambda: pub.session.request(Publish(0, track_name("demo/t"), alias))
    ]
    for number in range(3):
        if by == "datagrams":
            calls.append(lambda n=number: pub.datagram(alias, 0, n, payload=b"%d" % n))  # type: ignore[misc]
        else:
            calls.append(lambda n=number: pub.stream(alias, n, *objects_of(0)))  # type: ignore[misc]
    _at_once(net, *calls)
    net.run(0.5)
    pub.stream(alias, 5, *objects_of(0))
    net.run(0.5)
    if by == "datagrams":
        assert [(d.group, d.object_id) for d in sub.datagrams] == [(0, 0), (0, 1), (0, 2)]
    else:
        assert sorted(sub.places) == [(0, 0), (1, 0), (2, 0), (5, 0)]


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("at", [Role.STUB, Role.EDGE])
@pytest.mark.parametrize("quicr", [True, False])
def test_quicr_datagrams_of_before_relays_found_each_other_are_not_lost(
    quicr: bool, at: Role, extended: bool
) -> None:
    net = MoqtNet()
    here, there = net.relay("1:1"), net.relay("8:1", at)
    for relay in (here, there):
        net.edge(relay)
    if quicr:
        media = QuicrApp(net, here).subscribe("demo/t", datagrams=True)
    else:
        viewer = net.app(here)
        viewer.subscribe("demo/t")
    post = QuicrApp(net, there).publish("demo/t", datagrams=True)
    for number in range(3):
        discardable = number == 1
        payload = b"%d" % number * 2000
        post.datagrams(0, number, payload, best_before_ms=5000, discardable=discardable)
    net.run(0.3)
    net.wire(there, here, extended=extended)
    net.run(0.5)
    post.datagrams(0, 3, b"last")
    net.run(0.1)
    if not quicr:
        found = [(item.group, item.object_id) for item in viewer.datagrams]
        assert sorted(found + viewer.places) == [(0, number) for number in range(4)]
        return
    assert media.places == [(0, 0), (0, 1), (0, 2), (0, 3)]
    terms = {(d.fragment.object_id, d.terms.discardable) for d in media.datagrams}
    assert terms == {(0, False), (1, True), (2, False), (3, False)}
    assert all(0 <= d.terms.best_before_ms < 5000 for d in media.datagrams)


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("relays", [2, 3])
@pytest.mark.parametrize("link", ["the first", "the last", "all"])
@pytest.mark.parametrize("role", [Role.EDGE, Role.STUB])
def test_what_was_published_before_relays_found_each_other_is_not_lost(
    role: Role, link: str, relays: int, extended: bool
) -> None:
    net = MoqtNet()
    row = [net.relay(f"1:{number}", hold_s=20.0) for number in range(1, relays)]
    row.append(net.relay("8:1", role, hold_s=20.0))
    for relay in row:
        net.edge(relay, subscribe_wait_s=60.0)
    pairs = list(zip(row[1:], row, strict=False))  # a Stub dials
    late = {"the first": pairs[:1], "the last": pairs[-1:], "all": pairs}[link]
    for one, other in pairs:
        if (one, other) not in late:
            net.wire(one, other, extended=extended)
    net.settle()
    sub, pub = net.app(row[-1]), net.app(row[0])
    sub.subscribe("demo/t")
    net.run(0.2)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0, 1))
    pub.datagram(alias, 1, 0, payload=b"0")
    net.run(0.2)
    pub.stream(alias, 2, *objects_of(0, 1))
    pub.datagram(alias, 1, 1, payload=b"1")
    stream = pub.open(alias, 3, *objects_of(0, 1))
    for one, other in late:
        net.wire(one, other, extended=extended)
        net.run(0.1)
    net.settle()
    stream.write(*objects_of(2), fin=True)
    pub.datagram(alias, 1, 2, payload=b"2")
    net.run(0.5)
    expected = [(0, 0), (0, 1), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert sorted(sub.places) == expected
    assert sorted(d.object_id for d in sub.datagrams) == [0, 1, 2]


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("hold", ["for a short time", "little"])
def test_what_is_sent_again_to_a_relay_that_was_found_is_bounded(hold: str, extended: bool) -> None:
    net = MoqtNet()
    seconds, size = (1.0, 1 << 20) if hold == "for a short time" else (20.0, 1500)
    here, there = (net.relay(node, hold_s=seconds, hold_bytes=size) for node in ("1:1", "1:2"))
    for relay in (here, there):
        net.edge(relay, subscribe_wait_s=60.0)
    sub, pub = net.app(there), net.app(here)
    sub.subscribe("demo/t")
    alias = pub.publish("demo/t")
    for group in range(5):
        pub.stream(alias, group, Obj(0, bytes(500)))
        net.run(0.6)
    net.wire(here, there, extended=extended)
    net.settle()
    pub.stream(alias, 9, Obj(0, bytes(500)))
    net.run(0.5)
    last = [(4, 0)] if hold == "for a short time" else [(3, 0), (4, 0)]
    assert sub.places == [*last, (9, 0)]


@pytest.mark.parametrize("extended", [True, False])
def test_who_joins_a_track_that_is_under_way_gets_nothing_of_before(extended: bool) -> None:
    net = MoqtNet()
    here, there = net.relay("1:1"), net.relay("1:2")
    for relay in (here, there):
        net.edge(relay)
    net.wire(here, there, extended=extended)
    net.settle()
    sub, pub = net.app(there), net.app(here)
    alias = pub.publish("demo/t")
    for group in range(5):
        pub.stream(alias, group, *objects_of(0, 1))
        pub.datagram(alias, 100 + group, 0, payload=b"x")
        net.run(0.5)
    sub.subscribe("demo/t")
    net.run(2.5)
    pub.stream(alias, 9, *objects_of(0))
    net.run(0.5)
    assert [place for place in sub.places if place[0] < 9] == []
    assert not sub.datagrams


def test_datagrams_of_a_publisher_that_has_left_are_not_sent_again_in_the_name_of_another() -> None:
    """A relay that was found gets all of a time, or nothing of it."""
    net = MoqtNet()
    here, there = net.relay("1:1"), net.relay("1:2")
    for relay in (here, there):
        net.edge(relay)
    media = QuicrApp(net, there).subscribe("demo/t", datagrams=True)
    first = net.app(here)
    alias = first.publish("demo/t")
    first.datagram(alias, 0, 0, payload=b"0")
    first.stream(alias, 0, *objects_of(1, 2))
    first.leave()
    alias = (second := net.app(here)).publish("demo/t")
    second.stream(alias, 1, *objects_of(0))
    net.wire(here, there)
    net.settle()
    second.stream(alias, 2, *objects_of(0))
    net.run(0.5)
    assert [place for place in media.places if place[0] == 0] == []
    assert media.places[-1] == (2, 0)


# -- the relay that is asked is dead, and not known to be ------------------------------------------


def _dead_and_alive() -> tuple[MoqtNet, App, App, App]:
    """Three Edges: a subscriber's, and two of publishers, of which the first is silent."""
    net = MoqtNet()
    near, *others = (net.relay(f"1:{number}") for number in (1, 2, 3))
    for relay in (near, *others):
        net.edge(relay)
    wires = [net.wire(near, relay, extended=True) for relay in others]
    net.settle()
    first, second = map(net.app, others)
    first.publish("demo/t")
    net.run(0.5)
    wires[0].cut(noticed_by=())
    return net, first, second, net.app(near)


def test_another_relay_that_offers_the_track_is_asked_soon() -> None:
    net, _, alive, sub = _dead_and_alive()
    alias = alive.publish("demo/t")
    alive.stream(alias, 4, *objects_of(0))
    net.run(0.5)
    sub.subscribe("demo/t")
    net.run(NEXT_S + 0.1)
    assert sub.last(SubscribeOk).largest == Location(4, 0)


def test_a_relay_that_begins_to_offer_the_track_is_asked_at_once() -> None:
    net, _, alive, sub = _dead_and_alive()
    sub.subscribe("demo/t")
    net.run(NEXT_S)
    assert not sub.heard_of(SubscribeOk)
    alias = alive.publish("demo/t")
    net.run(0.1)
    assert sub.heard_of(SubscribeOk)
    alive.stream(alias, 4, *objects_of(0))
    net.run(2.0)
    assert sub.places == [(4, 0)]
