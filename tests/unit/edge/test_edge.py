"""Who waits for which publisher: subscriptions before, with and after those who publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    FilterType,
    Publish,
    PublishDone,
    PublishOk,
    RequestError,
    RequestUpdate,
    Subscribe,
    SubscribeOk,
    TrackProperties,
    Unsubscribe,
)
from support.moqt import MoqtNet, stage
from support.moqt_streams import DRAFTS, LARGEST, PAIRS, objects_of, start_at
from support.relays import track_name

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
pairs = pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])

FIRST = [(0, 0), (0, 1), (1, 0)]


def send_first(pub: App, alias: int) -> None:
    pub.stream(alias, 0, *objects_of(0, 1))
    pub.stream(alias, 1, *objects_of(0))


# -- a subscriber before its publisher -------------------------------------------------------------


@pairs
@near_and_far
def test_a_subscriber_waits_for_a_publish(
    publisher: Dialect, subscriber: Dialect, relays: int
) -> None:
    net, pub, sub = stage(publisher, subscriber, relays)
    sub.subscribe("demo/t")
    assert sub.heard_of(SubscribeOk) == []
    net.run(0.5)
    alias = pub.publish("demo/t", properties=TrackProperties(delivery_timeout_ms=70))
    send_first(pub, alias)
    assert sub.heard_of(SubscribeOk)[0].properties.delivery_timeout_ms == 70
    assert sub.places == FIRST
    net.check_empty()


@pairs
@near_and_far
def test_a_subscriber_waits_for_a_namespace_whose_publisher_is_asked(
    publisher: Dialect, subscriber: Dialect, relays: int
) -> None:
    net, pub, sub = stage(publisher, subscriber, relays)
    sub.subscribe("demo/room/t", start_at(0))
    net.run(0.5)
    pub.publish_namespace("demo")
    asked = pub.last(Subscribe)
    assert asked.track == track_name("demo/room/t")
    assert asked.filter.type is FilterType.LARGEST_OBJECT
    assert asked.forward
    assert sub.heard_of(SubscribeOk) == []
    alias = pub.accept(asked)
    net.run(0.1)
    send_first(pub, alias)
    assert len(sub.heard_of(SubscribeOk)) == 1
    assert sub.places == FIRST
    net.check_empty()


@pairs
@near_and_far
def test_streams_may_overtake_the_answer_of_their_publisher(
    publisher: Dialect, subscriber: Dialect, relays: int
) -> None:
    net, pub, sub = stage(publisher, subscriber, relays)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    asked = pub.last(Subscribe)
    send_first(pub, 1)
    pub.datagram(1, 5, 0, payload=b"lost, as datagrams may be", priority=1)
    assert sub.streams == []
    assert pub.accept(asked) == 1
    net.run(0.1)
    assert sub.heard_of(SubscribeOk)[0].largest is None
    assert sub.places == FIRST


@both
@near_and_far
def test_a_track_that_is_under_way_is_joined_where_it_is(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    pub.publish_namespace("demo")
    properties = TrackProperties(delivery_timeout_ms=70, priority=9)
    sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe), (7, 3), properties=properties)
    net.run(0.1)
    accepted = sub.heard_of(SubscribeOk)[0]
    assert accepted.largest == Location(7, 3)
    assert accepted.properties.delivery_timeout_ms == 70
    if dialect is DRAFT16:
        assert accepted.properties.priority == 9
    pub.stream(alias, 7, *objects_of(3, 4))
    assert sub.places == [(7, 4)]


@near_and_far
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_open_streams_of_several_groups_are_joined_behind_the_largest(
    relays: int, order: tuple[int, int]
) -> None:
    """Whatever group's stream is seen first, the track has not started over."""
    net, pub, sub = stage(relays=relays)
    alias = pub.publish("demo/t")
    streams = {group: pub.open(alias, group, *objects_of(0, 1)) for group in order}
    sub.subscribe("demo/t")
    net.run(0.1)
    assert sub.last(SubscribeOk).largest == Location(1, 1)
    for group in order:
        streams[group].write(*objects_of(2), fin=True)
    assert sub.places == [(1, 2)]


def test_what_comes_while_a_subscriber_is_unanswered_is_sent_first() -> None:
    """A second publisher does not answer, and the first sends all the while."""
    net, pub, sub = stage()
    early = net.app(sub.edge.relay)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe))
    send_first(pub, alias)
    pub.datagram(alias, 2, 0, payload=b"x")
    assert sub.places == FIRST
    # Somebody else has been offered the track, and takes his time.
    early.watch("demo")
    other = net.app(sub.edge.relay)
    other.publish("demo/u")
    stream = other.open(1, 0, *objects_of(0))
    other.datagram(1, 0, 7, payload=b"seven")
    stream.write(*objects_of(1), fin=True)
    offered = next(m for m in early.heard_of(Publish) if m.track == track_name("demo/u"))
    early.say(PublishOk(offered.request_id, filter=LARGEST))
    assert early.places == [(0, 0), (0, 1)]
    assert [(item.group, item.object_id) for item in early.datagrams] == [(0, 7)]


@both
@near_and_far
def test_nobody_comes(dialect: Dialect, relays: int) -> None:
    net, _, sub = stage(DRAFT16, dialect, relays)
    sub.subscribe("demo/t")
    net.run(1.9)
    assert sub.heard_of(RequestError) == []
    net.run(0.2)
    assert sub.error == RequestCode.DOES_NOT_EXIST
    net.check_empty()


def test_relays_that_do_not_tell_may_have_the_track_all_the_same() -> None:
    net = MoqtNet()
    near, far = net.relay("1:1"), net.relay("1:2")
    net.wire(near, far)
    net.settle()
    pub, sub = net.app(far), net.app(near)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    pub.stream(alias, 3, *objects_of(0))
    assert sub.heard_of(SubscribeOk)[0].largest is None
    assert sub.places == [(3, 0)]
    late = net.app(near)
    late.subscribe("demo/other")
    net.run(3.0)
    assert late.heard_of(SubscribeOk)


@pairs
@pytest.mark.parametrize("code", [RequestCode.DOES_NOT_EXIST, RequestCode.UNAUTHORIZED, 0x77])
def test_a_publishers_refusal_is_passed_on(
    publisher: Dialect, subscriber: Dialect, code: int
) -> None:
    net, pub, sub = stage(publisher, subscriber)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    pub.refuse(pub.last(Subscribe).request_id, code, "because")
    assert (sub.error, sub.last(RequestError).reason) == (code, "because")
    # What was refused is not taken back.
    assert pub.heard_of(Unsubscribe) == []
    sub.subscribe("demo/t")
    assert len(pub.heard_of(Subscribe)) == 2
    net.check_empty()


@pytest.mark.parametrize("relays", [2, 3])
def test_a_refusal_elsewhere_is_one_here(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    pub.answers[Subscribe] = lambda message: pub.refuse(message.request_id, 0x1, "because")
    sub.subscribe("demo/t")
    net.run(0.1)
    assert sub.heard_of(SubscribeOk) == []
    assert (sub.error, sub.last(RequestError).reason) == (RequestCode.UNAUTHORIZED, "because")
    # The publisher has said so, and is not asked while that is known.
    other = net.app(sub.edge.relay)
    other.subscribe("demo/t")
    net.run(0.1)
    assert other.error == RequestCode.UNAUTHORIZED


def test_a_refusal_at_one_relay_leaves_the_others() -> None:
    net = MoqtNet()
    row = net.chain(3)
    pubs = [net.app(relay) for relay in row[:2]]
    sub = net.app(row[2])
    for pub in pubs:
        pub.publish_namespace("demo")
    net.run(0.1)
    pubs[0].answers[Subscribe] = lambda message: pubs[0].refuse(message.request_id, 0x1)
    pubs[1].answers[Subscribe] = lambda message: pubs[1].accept(message, (3, 0))
    sub.subscribe("demo/t")
    net.run(0.1)
    assert sub.last(SubscribeOk).largest == Location(3, 0)


def test_who_comes_back_soon_finds_the_streams_that_are_open() -> None:
    """The network goes on sending for a while to a relay where nobody wants a track."""
    net, pub, sub = stage(relays=2)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t")
    net.run(0.1)
    sub.say(Unsubscribe(request_id))
    net.run(2.0)
    stream = pub.open(alias, 0, *objects_of(0))
    sub.subscribe("demo/t")
    net.run(0.1)
    assert sub.last(SubscribeOk).largest == Location(0, 0)
    stream.write(*objects_of(1), fin=True)
    assert sub.places == [(0, 1)]
    net.check_empty()


def test_one_publisher_that_accepts_is_enough() -> None:
    net, pub, sub = stage()
    other = net.app(sub.edge.relay)
    for app in (pub, other):
        app.publish_namespace("demo")
    sub.subscribe("demo/t")
    pub.refuse(pub.last(Subscribe).request_id, RequestCode.DOES_NOT_EXIST)
    assert sub.heard_of(RequestError) == []
    alias = other.accept(other.last(Subscribe))
    other.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]


def test_a_publisher_that_does_not_answer_is_a_timeout() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    net.run(2.1)
    assert sub.error == RequestCode.TIMEOUT
    # The answer crosses the end of what it answers, and is nobody's fault.
    pub.accept(pub.heard_of(Subscribe)[0])
    assert pub.closed is None


def test_a_publisher_that_leaves_without_an_answer_is_waited_for() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    pub.leave()
    again = net.app(sub.edge.relay)
    alias = again.publish("demo/t")
    again.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]


# -- one subscription for many ---------------------------------------------------------------------


@near_and_far
def test_a_publisher_is_asked_once(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    subs = [sub, net.app(sub.edge.relay, DRAFT14), net.app(pub.edge.relay)]
    pub.publish_namespace("demo")
    ids = [app.subscribe("demo/t") for app in subs]
    (asked,) = pub.heard_of(Subscribe)
    alias = pub.accept(asked)
    net.run(0.1)
    pub.stream(alias, 0, *objects_of(0))
    assert [app.places for app in subs] == [[(0, 0)]] * 3
    for app, request_id in list(zip(subs, ids, strict=True))[:-1]:
        app.say(Unsubscribe(request_id))
    net.run(10.0)
    assert pub.heard_of(Unsubscribe) == []
    subs[-1].say(Unsubscribe(ids[-1]))
    net.run(10.0)
    assert pub.heard_of(Unsubscribe) == [Unsubscribe(asked.request_id)]
    net.check_empty()


@both
def test_an_end_may_cross_the_publishers_answer(dialect: Dialect) -> None:
    net, pub, sub = stage(dialect)
    pub.publish_namespace("demo")
    request_id = sub.subscribe("demo/t")
    sub.say(Unsubscribe(request_id))
    asked = pub.heard_of(Subscribe)[0]
    assert pub.heard_of(Unsubscribe) == [Unsubscribe(asked.request_id)]
    pub.say_bytes(dialect.encode(SubscribeOk(asked.request_id, 9)))
    assert pub.closed is None
    net.check_empty()


@both
def test_a_track_is_subscribed_to_once(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    sub.subscribe("demo/t")
    if dialect is DRAFT16:
        assert sub.error == RequestCode.DUPLICATE_SUBSCRIPTION
    else:
        sub.last(RequestError)
    pub.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]


@both
@pytest.mark.parametrize("by_namespace", [False, True])
def test_a_client_hears_itself(dialect: Dialect, by_namespace: bool) -> None:
    net, _, app = stage(DRAFT16, dialect)
    if by_namespace:
        app.publish_namespace("demo")
        app.subscribe("demo/t")
        alias = app.accept(app.last(Subscribe))
    else:
        alias = app.publish("demo/t")
        app.subscribe("demo/t")
    app.stream(alias, 0, *objects_of(0))
    assert app.places == [(0, 0)]
    net.check_empty()


# -- those who publish -----------------------------------------------------------------------------


@both
def test_a_publish_is_accepted_once(dialect: Dialect) -> None:
    _, pub, sub = stage(dialect)
    alias = pub.publish("demo/t")
    assert pub.last(PublishOk).forward
    sub.subscribe("demo/t")
    for again in (alias, alias + 7):
        pub.publish("demo/t", again)
        pub.last(RequestError)
    pub.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]


@both
def test_a_publish_takes_the_place_of_a_subscribe(dialect: Dialect) -> None:
    """Both sides have begun the same subscription, and one is enough."""
    net, pub, sub = stage(dialect)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    asked = pub.last(Subscribe)
    alias = pub.accept(asked)
    pub.stream(alias, 0, *objects_of(0))
    pub.publish("demo/t", alias)
    assert pub.heard_of(Unsubscribe) == [Unsubscribe(asked.request_id)]
    pub.stream(alias, 1, *objects_of(0))
    assert sub.places == [(0, 0), (1, 0)]
    net.check_empty()


@both
def test_a_publisher_that_waits_is_told_when_somebody_wants_it(dialect: Dialect) -> None:
    net, pub, sub = stage(dialect)
    pub.publish("demo/t", forward=False)
    assert not pub.last(PublishOk).forward
    request_id = sub.subscribe("demo/t")
    assert pub.last(RequestUpdate).forward
    sub.say(Unsubscribe(request_id))
    net.run(10.0)
    assert pub.last(RequestUpdate).forward is False
    assert pub.closed is None


@both
@pytest.mark.parametrize("distinct", [False, True])
def test_what_two_publish_comes_once(dialect: Dialect, distinct: bool) -> None:
    net, pub, sub = stage(dialect)
    other = net.app(sub.edge.relay)
    aliases = [app.publish("demo/t") for app in (pub, other)]
    sub.subscribe("demo/t")
    for group in range(4):
        for number, app in enumerate((pub, other)):
            if not distinct or group % 2 == number:
                app.stream(aliases[number], group, *objects_of(0, 1))
    assert sub.places == [(group, number) for group in range(4) for number in (0, 1)]
    assert sub.edge.relay.tracks.counters.duplicates == (0 if distinct else 4)


def test_two_publishers_at_different_relays_are_one_track() -> None:
    net = MoqtNet()
    row = net.chain(3)
    pubs = [net.app(relay) for relay in row]
    sub = net.app(row[1])
    sub.subscribe("demo/t")
    aliases = [pub.publish("demo/t") for pub in pubs]
    net.run(0.1)
    for group in range(3):
        for pub, alias in zip(pubs, aliases, strict=True):
            pub.stream(alias, group, *objects_of(0))
    assert sub.places == [(0, 0), (1, 0), (2, 0)]


def test_while_one_sends_a_subgroup_the_others_are_not_needed() -> None:
    net, pub, sub = stage()
    other = net.app(sub.edge.relay)
    aliases = [app.publish("demo/t") for app in (pub, other)]
    sub.subscribe("demo/t")
    one = pub.open(aliases[0], 0, *objects_of(0))
    two = other.open(aliases[1], 0, *objects_of(0))
    one.write(*objects_of(1))
    two.write(*objects_of(1))
    other.stream(aliases[1], 0, *objects_of(7), subgroup=1)
    assert sub.places == [(0, 0), (0, 1), (0, 7)]


def test_a_subgroup_that_broke_off_goes_on_where_it_was() -> None:
    net, pub, sub = stage()
    other = net.app(sub.edge.relay, DRAFT14)
    aliases = [app.publish("demo/t") for app in (pub, other)]
    sub.subscribe("demo/t")
    pub.open(aliases[0], 0, *objects_of(0, 1), subgroup=None)
    pub.leave()
    other.stream(aliases[1], 0, *objects_of(0, 1, 2), subgroup=None)
    assert sub.places == [(0, 0), (0, 1), (0, 2)]
    assert [item.subgroup for stream in sub.subgroups for item in stream.objects] == [0, 0, 0]


@both
@pytest.mark.parametrize("over", [False, True])
@near_and_far
def test_a_publisher_comes_back(dialect: Dialect, over: bool, relays: int) -> None:
    """With groups that go on, or that start over."""
    net, pub, sub = stage(DRAFT16, dialect, relays)
    alias = pub.publish("demo/t")
    for group in (5, 6):
        pub.stream(alias, group, *objects_of(0))
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.stream(alias, 7, *objects_of(0))
    pub.leave()
    net.run(3.0)
    again = net.app(pub.edge.relay)
    alias = again.publish("demo/t")
    first = 0 if over else 8
    for group in range(first, first + 3):
        again.stream(alias, group, *objects_of(0))
    assert sub.places == [(7, 0), *((group, 0) for group in range(first, first + 3))]
    assert sub.heard_of(PublishDone) == []


@both
def test_a_track_that_has_ended_may_start_over_in_the_same_session(dialect: Dialect) -> None:
    net, pub, sub = stage(dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 9, *objects_of(0))
    pub.done(0, DoneCode.TRACK_ENDED, 1)
    sub.subscribe("demo/t")
    pub.publish("demo/t", alias)
    pub.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]
    net.check_empty()
