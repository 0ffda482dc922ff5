"""Requests that cross each other, come late, or do not belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.moqt.codes import DoneCode, RequestCode, ResetCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    Goaway,
    GroupOrder,
    PublishDone,
    RequestError,
    Subscribe,
    SubscribeOk,
)
from support.fetching import fill
from support.moqt import MoqtNet, stage
from support.moqt_streams import DRAFTS, LARGEST, objects_of, start_at

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)


@pytest.mark.parametrize("relays", [1, 2])
def test_a_refusal_that_may_change_says_that_it_may_be_asked_again(relays: int) -> None:
    net, _, sub = stage(relays=relays)
    sub.subscribe("demo/t")
    net.run(3.0)
    assert sub.error == RequestCode.DOES_NOT_EXIST
    assert sub.last(RequestError).retry_ms == 0
    sub.fetch("demo/t", (5, 0), (4, 0))
    net.run(0.1)
    assert sub.error == RequestCode.INVALID_RANGE
    assert sub.last(RequestError).retry_ms is None


@both
def test_a_subscription_that_was_changed_can_still_be_joined(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0, 1)
    request_id = sub.subscribe("demo/t", LARGEST)
    net.run(0.1)
    sub.update(request_id, priority=9, filter=start_at(1, 9))
    sub.join(request_id, 1)
    net.run(0.1)
    assert sub.closed is None
    assert sub.heard_of(FetchOk)
    assert sub.fetched.places[0] == (0, 0)


def test_an_update_that_does_not_belong_to_its_request_closes_the_session() -> None:
    net, _, sub = stage()
    watch = sub.watch("demo")
    sub.update(watch, priority=3)
    net.run(0.1)
    before = sub.closed
    assert before is None
    sub.update(watch, filter=start_at(1))
    net.run(0.1)
    assert sub.closed is not None
    assert sub.closed[0] == SessionCode.PROTOCOL_VIOLATION


@both
def test_a_descending_fetch_does_not_say_that_what_is_unknown_is_not_there(
    dialect: Dialect,
) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    for group in (1, 3, 4):
        pub.stream(alias, group, *objects_of(0, 1), end_of_group=True)
    app = net.app(sub.edge.relay)
    app.subscribe("demo/t", start_at(0))
    track = next(it for it in sub.edge.relay.tracks if it.cached.groups)
    track.cached.history.partial = True
    sub.fetch("demo/t", (1, 0), (4, 0), order=GroupOrder.DESCENDING)
    net.run(0.1)
    for request in pub.heard_of(Fetch):
        pub.refuse(request.request_id, RequestCode.INTERNAL_ERROR)
    net.run(0.1)
    if dialect is DRAFT14:
        assert isinstance(sub.heard[-1], RequestError)
        return
    assert sub.fetched.reset_code == ResetCode.UNKNOWN_OBJECT_STATUS
    assert all(place[0] > 2 for place in sub.fetched.places)


def test_a_relay_is_asked_beside_a_publisher_here_that_does_not_answer() -> None:
    net, pub, sub = stage(relays=2)
    alias = pub.publish("demo/t")
    pub.stream(alias, 4, *objects_of(0))
    silent = net.app(sub.edge.relay)
    silent.publish_namespace("demo")
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.5)
    assert silent.heard_of(Subscribe)
    assert sub.last(SubscribeOk).largest == Location(4, 0)


def test_a_relay_that_refuses_late_leaves_no_subscription_without_an_answer() -> None:
    net, pub, sub = stage(relays=2)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.9)
    pub.refuse(pub.last(Subscribe).request_id, RequestCode.DOES_NOT_EXIST)
    net.run(5.0)
    answers = (RequestError, SubscribeOk)
    assert any(isinstance(message, answers) for message in sub.heard)


@both
@pytest.mark.parametrize("open_before", [True, False])
def test_what_comes_late_passes_a_subscription_that_is_not_from_the_largest_object_on(
    dialect: Dialect, open_before: bool
) -> None:
    """A layer of group 4 is still being sent when group 5 has begun."""
    net, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    layer = pub.open(alias, 4, *objects_of(1), subgroup=1) if open_before else None
    pub.stream(alias, 5, *objects_of(0, 1))
    net.run(0.1)
    sub.subscribe("demo/t", start_at(0))
    live = net.app(sub.edge.relay, dialect)
    live.subscribe("demo/t")
    net.run(0.1)
    assert sub.last(SubscribeOk).largest == Location(5, 1)
    layer = layer or pub.open(alias, 4, *objects_of(1), subgroup=1)
    layer.write(*objects_of(3, 5), fin=True)
    pub.stream(alias, 5, *objects_of(2), subgroup=2)
    net.run(0.1)
    late = [(4, 3), (4, 5)] if open_before else [(4, 1), (4, 3), (4, 5)]
    assert sorted(sub.places) == [*late, (5, 2)]
    assert live.places == [(5, 2)]


def test_a_stream_that_never_began_is_not_counted() -> None:
    """It was joined in the middle, and ended before another object came."""
    net, pub, sub = stage()
    alias = pub.publish("demo/t")
    begun = pub.open(alias, 0, *objects_of(0))
    request_id = sub.subscribe("demo/t")
    net.run(0.1)
    begun.reset(1)
    pub.stream(alias, 1, *objects_of(0))
    pub.done(0, DoneCode.TRACK_ENDED, 2)
    net.run(1.0)
    assert sub.last(PublishDone).request_id == request_id
    assert sub.last(PublishDone).stream_count == 1


@pytest.mark.parametrize("relays", [1, 2])
def test_who_has_said_goaway_is_asked_for_nothing_new(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    pub.say(Goaway(b""))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(3.0)
    assert not pub.heard_of(Subscribe)
    assert sub.error == RequestCode.DOES_NOT_EXIST


@both
def test_a_datagram_that_does_not_fit_a_path_is_dropped_and_counted(dialect: Dialect) -> None:
    """How an object was sent is how it is sent on: a stream would make another object of it."""
    net, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    sub.link.datagram_bytes = 600
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.datagram(alias, 1, 0, payload=bytes(900))
    pub.datagram(alias, 1, 1, payload=bytes(100))
    net.run(0.1)
    assert [item.object_id for item in sub.datagrams] == [1]
    assert sub.subgroups == []
    assert sub.edge.relay.tracks.counters.large_datagrams == 1


@both
def test_a_relay_takes_so_many_tracks_and_no_more(dialect: Dialect) -> None:
    net = MoqtNet()
    (relay,) = net.chain(1, most_tracks=3)
    pub, sub = net.app(relay, dialect), net.app(relay, dialect)
    for number in range(3):
        pub.publish(f"demo/{number}")
    pub.publish("demo/3")
    assert pub.last(RequestError).code == RequestCode.INTERNAL_ERROR
    assert "most_tracks" in pub.last(RequestError).reason
    sub.subscribe("demo/4")
    assert "most_tracks" in sub.last(RequestError).reason
    sub.subscribe("demo/1")
    net.run(0.1)
    assert sub.last(SubscribeOk)
