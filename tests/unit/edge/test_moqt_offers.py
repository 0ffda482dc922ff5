"""Tracks that a client is told of, and of which it wants no objects for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    NamespaceOptions,
    Publish,
    PublishDone,
    PublishOk,
    RequestUpdate,
    SubscribeOk,
    Unsubscribe,
)
from support.moqt import stage
from support.moqt_streams import DRAFTS, LARGEST, objects_of, start_at
from support.relays import track_name

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 3])


def told(sub: App) -> Publish:
    """The one track that it was told of, and answered that it wants none of it."""
    (offer,) = sub.heard_of(Publish)
    sub.say(PublishOk(offer.request_id, forward=False))
    return offer


def watching(sub: App) -> None:
    """Draft 14 cannot say that it wants to hear of tracks alone."""
    if sub.dialect is DRAFT16:
        sub.watch("demo", options=NamespaceOptions.PUBLISH, forward=False)
    else:
        sub.watch("demo")


@both
@near_and_far
def test_who_is_told_of_a_track_has_no_objects_of_it(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    watching(sub)
    alias = pub.publish("demo/t", forward=False)
    net.run(0.1)
    offer = told(sub)
    assert offer.track == track_name("demo/t")
    assert offer.forward is (dialect is DRAFT14)
    net.run(0.1)
    # Nobody has asked the publisher to send, here or elsewhere.
    assert not pub.heard_of(RequestUpdate)
    pub.stream(alias, 0, *objects_of(0))
    net.run(0.1)
    assert sub.streams == []


@both
@near_and_far
def test_who_was_told_of_a_track_hears_of_its_end(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    watching(sub)
    pub.publish("demo/t")
    net.run(0.1)
    offer = told(sub)
    pub.leave()
    net.run(0.1)
    (done,) = sub.heard_of(PublishDone)
    assert (done.request_id, done.code, done.stream_count) == (
        offer.request_id,
        DoneCode.TRACK_ENDED,
        0,
    )
    net.check_empty()


@both
def test_a_track_that_comes_again_is_told_again(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    watching(sub)
    pub.publish("demo/t")
    told(sub)
    pub.done(0, DoneCode.TRACK_ENDED, 1)
    net.run(2.0)
    assert len(sub.heard_of(PublishDone)) == 1
    pub.publish("demo/t")
    assert len(sub.heard_of(Publish)) == 2


@both
@near_and_far
def test_it_can_be_subscribed_to_beside_the_offer(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    watching(sub)
    alias = pub.publish("demo/t")
    net.run(0.1)
    offer = told(sub)
    sub.subscribe("demo/t", LARGEST)
    net.run(0.1)
    assert isinstance(sub.heard[-1], SubscribeOk)
    pub.stream(alias, 0, *objects_of(0, 1))
    net.run(0.1)
    assert sub.places == [(0, 0), (0, 1)]
    pub.leave()
    net.run(0.1)
    done = sub.heard_of(PublishDone)
    assert offer.request_id in [message.request_id for message in done]


def test_who_subscribes_already_is_told_all_the_same() -> None:
    _, pub, sub = stage()
    pub.publish("demo/t")
    sub.subscribe("demo/t", LARGEST)
    watching(sub)
    assert len(sub.heard_of(Publish)) == 1


@both
def test_an_offer_can_be_taken_up_later(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0))
    watching(sub)
    offer = told(sub)
    assert offer.largest == Location(0, 0)
    sub.update(offer.request_id, forward=True, filter=start_at(1))
    net.run(0.1)
    pub.stream(alias, 1, *objects_of(0))
    net.run(0.1)
    assert sub.places == [(1, 0)]


def test_an_offer_can_be_taken_up_at_once() -> None:
    net, pub, sub = stage()
    watching(sub)
    alias = pub.publish("demo/t")
    (offer,) = sub.heard_of(Publish)
    sub.say(PublishOk(offer.request_id, forward=True))
    pub.stream(alias, 0, *objects_of(0))
    net.run(0.1)
    assert sub.places == [(0, 0)]


@both
def test_who_no_longer_wants_to_hear_of_a_track_does_not(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    watching(sub)
    pub.publish("demo/t")
    offer = told(sub)
    sub.say(Unsubscribe(offer.request_id))
    pub.leave()
    net.run(0.1)
    assert not sub.heard_of(PublishDone)
    net.check_empty()


def test_who_leaves_takes_its_offers_along() -> None:
    net, pub, sub = stage()
    watching(sub)
    pub.publish("demo/t")
    told(sub)
    sub.leave()
    pub.leave()
    net.check_empty()


def test_an_offer_is_taken_up_long_after_it_was_made_also_far_away() -> None:
    net, pub, sub = stage(DRAFT16, DRAFT16, 2)
    watching(sub)
    alias = pub.publish("demo/t")
    net.run(0.1)
    offer = told(sub)
    net.run(100.0)  # nobody here has had anything to do with the track for long
    sub.update(offer.request_id, forward=True)
    net.run(0.1)
    pub.stream(alias, 0, *objects_of(0, 1))
    net.run(0.1)
    assert sub.places == [(0, 0), (0, 1)]
