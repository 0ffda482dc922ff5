"""How tracks end, and what comes ahead of its explanation, is asked for anew, or leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.types import Location
from laps.wire.moqt.codes import DoneCode, RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    UNKNOWN_STREAM_COUNT,
    Goaway,
    PublishDone,
    PublishNamespaceDone,
    RequestOk,
    RequestUpdate,
    Subscribe,
    SubscribeOk,
    TrackProperties,
    TrackStatus,
    Unsubscribe,
)
from support.moqt import MoqtNet, stage
from support.moqt_streams import DRAFTS, PAIRS, namespace, objects_of
from support.relays import track_name

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
pairs = pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])

# -- how a track ends ------------------------------------------------------------------------------


@pairs
@near_and_far
def test_the_end_of_a_track_reaches_its_subscribers(
    publisher: Dialect, subscriber: Dialect, relays: int
) -> None:
    net, pub, sub = stage(publisher, subscriber, relays)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    for group in range(3):
        pub.stream(alias, group, *objects_of(0))
    pub.done(0, DoneCode.TRACK_ENDED, 3, "that was it")
    net.run(2.0)
    done = sub.last(PublishDone)
    assert (done.code, done.stream_count, done.reason) == (DoneCode.TRACK_ENDED, 3, "that was it")
    net.check_empty()


@both
@pytest.mark.parametrize("count", [0, 2, UNKNOWN_STREAM_COUNT])
@pytest.mark.parametrize("late", [False, True])
def test_an_end_waits_for_the_last_streams(dialect: Dialect, count: int, late: bool) -> None:
    net, pub, sub = stage(dialect)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    if not late:
        pub.stream(alias, 1, *objects_of(0))
    pub.done(0, DoneCode.TRACK_ENDED, count)
    if late:
        net.run(0.2)
        pub.stream(alias, 1, *objects_of(0))
    assert sub.heard_of(PublishDone) == []
    stream.write(*objects_of(1), fin=True)
    if count == 2:
        assert sub.heard_of(PublishDone)
    else:
        assert sub.heard_of(PublishDone) == []
        net.run(0.6)
    assert sub.last(PublishDone).stream_count == 2
    assert sorted(sub.places) == [(0, 0), (0, 1), (1, 0)]
    net.check_empty()


def test_the_end_is_said_when_all_is_sent() -> None:
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    pub.stream(alias, 0, *objects_of(0))
    sub.link.holds = True
    pub.done(0, DoneCode.TRACK_ENDED, 1)
    assert sub.heard_of(PublishDone) == []
    sub.link.sent()
    sub.net.run()
    sub.last(PublishDone)


def test_a_track_ends_with_its_last_publisher() -> None:
    net, pub, sub = stage()
    other = net.app(sub.edge.relay)
    for app in (pub, other):
        app.publish("demo/t")
    sub.subscribe("demo/t")
    pub.done(0, DoneCode.TRACK_ENDED, 0)
    net.run(1.0)
    assert sub.heard_of(PublishDone) == []
    other.done(0, DoneCode.GOING_AWAY, 0)
    net.run(1.0)
    assert sub.last(PublishDone).code == DoneCode.GOING_AWAY


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("at", ["1:1", "1:3"])
def test_a_track_ends_whose_other_publisher_was_at_a_relay_that_has_died(
    dies: bool, at: str
) -> None:
    net = MoqtNet()
    ends, dead, far = (net.relay(f"1:{number}") for number in (1, 2, 3))
    net.edge(far)
    ways = [net.wire(here, dead, extended=True) for here in (ends, far)]
    net.wire(ends, far, extended=True)
    net.settle()
    pub, other = net.app(ends), net.app(dead)
    sub = net.app(ends if at == "1:1" else far)
    sub.subscribe("demo/t")
    for app in (pub, other):
        app.publish("demo/t")
    net.run(0.1)
    pub.done(0, DoneCode.TRACK_ENDED, 0)
    net.run(1.2)
    assert sub.heard_of(PublishDone) == []
    if dies:
        for way in ways:
            way.cut()
    net.run(10.0)
    assert len(sub.heard_of(PublishDone)) == dies


@both
def test_a_subscription_that_was_asked_for_ends_too(dialect: Dialect) -> None:
    _, pub, sub = stage(dialect)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    asked = pub.last(Subscribe)
    alias = pub.accept(asked)
    pub.stream(alias, 0, *objects_of(0))
    pub.done(asked.request_id, DoneCode.TRACK_ENDED, 1)
    assert sub.last(PublishDone).stream_count == 1
    # Who asks again has the publisher asked again.
    sub.subscribe("demo/t")
    assert len(pub.heard_of(Subscribe)) == 2
    assert pub.heard_of(Unsubscribe) == []


def test_who_comes_while_a_track_ends_waits_for_another() -> None:
    net, pub, sub = stage()
    pub.publish("demo/t")
    pub.done(0, DoneCode.TRACK_ENDED, 5)
    sub.subscribe("demo/t")
    assert sub.heard_of(SubscribeOk) == []
    assert pub.closed is None
    assert sub.closed is None
    net.run(3.0)
    assert sub.error == RequestCode.DOES_NOT_EXIST


@both
def test_a_namespace_that_is_done_stops_new_subscriptions_only(dialect: Dialect) -> None:
    net, pub, sub = stage(dialect)
    request_id = pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe))
    pub.say(PublishNamespaceDone(request_id, namespace("demo")))
    assert pub.heard_of(Unsubscribe) == []
    pub.stream(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]
    sub.subscribe("demo/u")
    assert len(pub.heard_of(Subscribe)) == 1
    pub.done(pub.heard_of(Subscribe)[0].request_id, DoneCode.TRACK_ENDED, 1)
    assert len(sub.heard_of(PublishDone)) == 1
    net.check_empty()


# -- streams ahead of their explanation ------------------------------------------------------------


def test_streams_wait_for_their_alias_and_not_for_ever() -> None:
    net, pub, sub = stage()
    sub.subscribe("demo/t")
    stream = pub.open(9, 0, *objects_of(0))
    pub.stream(9, 1, *objects_of(0))
    other = pub.open(10, 0, *objects_of(0))
    pub.publish("demo/t", 9)
    stream.write(*objects_of(1), fin=True)
    assert sub.places == [(0, 0), (0, 1), (1, 0)]
    net.run(3.0)
    assert pub.edge.counters.unknown_streams == 1
    assert [stream_id for stream_id, _ in pub.link.stopped] == [other.id]
    # What is still on its way belongs to nothing any more.
    other.write_bytes(b"\xff" * 20)
    other.write_bytes(b"\xff" * 20, fin=True)
    assert pub.closed is None
    net.check_empty()


def test_streams_without_an_alias_take_so_much_room() -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    net.edge(relay, hold_bytes=1000)
    pub, sub = net.app(relay), net.app(relay)
    sub.subscribe("demo/t")
    small = pub.open(9, 0, *objects_of(0))
    large = pub.open(9, 1)
    large.write_bytes(b"\x00\x44\x00" + bytes(990))
    assert [stream_id for stream_id, _ in pub.link.stopped] == [large.id]
    large.write_bytes(bytes(400))
    large.reset(0)
    pub.publish("demo/t", 9)
    small.finish()
    assert sub.places == [(0, 0)]
    assert pub.edge.counters.unknown_streams == 1
    assert pub.closed is None
    net.check_empty()


def test_streams_may_come_ahead_of_the_setup() -> None:
    net, _, sub = stage()
    sub.subscribe("demo/t")
    pub = net.app(sub.edge.relay, setup=False)
    pub.stream(1, 0, *objects_of(0))
    pub.start()
    pub.publish("demo/t", 1)
    assert sub.places == [(0, 0)]


def test_a_stream_of_an_unknown_kind_closes_the_session() -> None:
    _, pub, _ = stage()
    pub.post_data(2, b"\x3f\x01\x01", False)
    pub.net.run()
    assert pub.closed is not None
    assert pub.closed[0] == SessionCode.PROTOCOL_VIOLATION


# -- new groups ------------------------------------------------------------------------------------


def test_a_new_group_is_asked_for_with_the_subscription() -> None:
    net, pub, sub = stage()
    sub.subscribe("demo/t", new_group=0)
    pub.publish_namespace("demo")
    assert pub.last(Subscribe).new_group == 0
    other = net.app(sub.edge.relay)
    other.publish_namespace("demo")
    assert other.last(Subscribe).new_group == 0


def test_a_new_group_is_asked_for_once() -> None:
    _, pub, sub = stage()
    alias = pub.publish("demo/t", properties=TrackProperties(dynamic_groups=True))
    pub.stream(alias, 5, *objects_of(0))
    request_id = sub.subscribe("demo/t")

    def asked() -> list[int | None]:
        return [message.new_group for message in pub.heard_of(RequestUpdate)]

    sub.update(request_id, new_group=5)  # there has been such a group
    assert asked() == []
    sub.update(request_id, new_group=6)
    sub.update(request_id, new_group=6)
    assert asked() == [6]
    pub.stream(alias, 6, *objects_of(0))
    sub.update(request_id, new_group=0)
    sub.update(request_id, new_group=0)
    assert asked() == [6, 0]


def test_new_groups_are_for_publishers_that_make_them() -> None:
    for dialect in DRAFTS:  # draft 14 has no words for it
        _, pub, sub = stage(dialect)
        pub.publish("demo/t")
        request_id = sub.subscribe("demo/t", new_group=0)
        sub.update(request_id, new_group=0)
        assert pub.heard_of(RequestUpdate) == []
        assert sub.closed is None


# -- how far a track is ----------------------------------------------------------------------------


@both
@near_and_far
@pytest.mark.parametrize("by_namespace", [False, True])
def test_the_status_of_a_track(dialect: Dialect, relays: int, by_namespace: bool) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    if by_namespace:
        pub.publish_namespace("demo")
        pub.answers[Subscribe] = lambda message: pub.accept(message, (3, 1))
    else:
        alias = pub.publish("demo/t")
        pub.stream(alias, 3, *objects_of(0, 1))
    net.run(0.1)
    sub.request(TrackStatus(0, track_name("demo/t")))
    net.run(0.5)
    assert sub.last(RequestOk).largest == Location(3, 1)
    net.check_empty()


@both
@near_and_far
def test_the_status_of_no_track(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    sub.request(TrackStatus(0, track_name("demo/t")))
    assert sub.error == RequestCode.DOES_NOT_EXIST
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.request(TrackStatus(0, track_name("demo/t")))
    net.run(2.0)
    assert sub.error == RequestCode.TIMEOUT
    net.check_empty()


# -- leaving ---------------------------------------------------------------------------------------


def test_clients_are_asked_to_leave() -> None:
    net, pub, sub = stage()
    assert pub.edge.drain(net.now) > net.now
    net.run()
    late = net.app(sub.edge.relay)
    for app in (pub, sub, late):
        assert app.heard_of(Goaway) == [Goaway()]
    pub.edge.close()
    net.run()
    codes = [app.closed and app.closed[0] for app in (pub, sub, late)]
    assert codes == [SessionCode.GOAWAY_TIMEOUT] * 3
    assert pub.edge.drain(net.now) == net.now


def test_a_client_with_little_credit_is_asked_when_it_allows_it() -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    pub = net.app(relay, limits=MoqtLimits(requests=0))
    sub = net.app(relay)
    pub.publish_namespace("demo")
    request_id = sub.subscribe("demo/t")
    assert pub.heard_of(Subscribe) == []
    sub.say(Unsubscribe(request_id))
    assert pub.closed is None
    net.check_empty()


# -- a publisher of a namespace is asked again -----------------------------------------------------


@near_and_far
def test_who_refused_a_track_is_asked_again_by_the_next_who_wants_it(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.refuse(pub.last(Subscribe).request_id, RequestCode.DOES_NOT_EXIST)
    net.run(1.5)  # the subscriber is refused; where it is elsewhere its relay's subscribe stands
    sub.subscribe("demo/t")
    net.run(0.1)
    assert len(pub.heard_of(Subscribe)) == 2
    alias = pub.accept(pub.last(Subscribe))
    pub.stream(alias, 3, *objects_of(0))
    net.run(0.1)
    assert sub.places == [(3, 0)]


@near_and_far
@pytest.mark.parametrize("code", [DoneCode.TRACK_ENDED, DoneCode.INTERNAL_ERROR])
def test_who_ended_a_track_is_asked_again_by_the_next_who_wants_it(
    relays: int, code: DoneCode
) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    net.run(0.1)
    alias = pub.accept(pub.last(Subscribe))
    pub.stream(alias, 3, *objects_of(0))
    net.run(0.1)
    pub.done(pub.last(Subscribe).request_id, code, 1)
    net.run(2.0)
    assert sub.last(PublishDone).code == code
    sub.subscribe("demo/t")
    net.run(0.1)
    alias = pub.accept(pub.last(Subscribe))
    pub.stream(alias, 4, *objects_of(0))
    net.run(1.1)
    assert sub.places == [(3, 0), (4, 0)]


@pytest.mark.parametrize("relays", [2, 3])
def test_who_refused_is_asked_again_while_somebody_waits(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.refuse(pub.last(Subscribe).request_id, RequestCode.DOES_NOT_EXIST)
    waiting = net.app(sub.edge.relay)
    for _ in range(10):
        waiting.subscribe("demo/t")
        net.run(1.1)
        for request in pub.heard_of(Subscribe)[1:]:
            if request.request_id in pub.session.incoming:
                pub.refuse(request.request_id, RequestCode.DOES_NOT_EXIST)
    # Every question of theirs is not one of ours: it is asked ever more seldom.
    assert 3 <= len(pub.heard_of(Subscribe)) <= 8


@near_and_far
def test_a_subscription_of_ours_that_has_expired_is_renewed_without_a_word(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.1)
    for group in range(3):
        alias = pub.accept(pub.last(Subscribe))
        net.run(0.1)
        pub.stream(alias, group, *objects_of(0))
        pub.done(pub.last(Subscribe).request_id, DoneCode.EXPIRED, 1)
        net.run(0.1)
    assert len(pub.heard_of(Subscribe)) == 4
    assert not sub.heard_of(PublishDone)
    assert sub.places == [(0, 0), (1, 0), (2, 0)]
