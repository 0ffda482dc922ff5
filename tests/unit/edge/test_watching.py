"""SUBSCRIBE_NAMESPACE: who hears of which namespaces and tracks, in both drafts' ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.types import Location
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    NamespaceAdded,
    NamespaceDone,
    NamespaceOptions,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    Unsubscribe,
)
from support.moqt import MoqtNet, stage
from support.moqt_streams import (
    DRAFTS,
    LARGEST,
    groups,
    namespace,
    objects_of,
    start_at,
)
from support.relays import track_name

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])


def told(app: App) -> list[str]:
    """The namespaces that it was told of, each draft's way; gone ones with a minus."""
    found = []
    for message in app.heard:
        match message:
            case NamespaceAdded(name) | PublishNamespace(_, name):
                found.append(b"/".join(name).decode())
            case NamespaceDone(name):
                found.append("-" + b"/".join(name).decode())
            case PublishNamespaceDone(_, name) if name is not None:
                found.append("-" + b"/".join(name).decode())
    return found


def offered(app: App) -> list[tuple[bytes, ...]]:
    return [(*message.track.namespace, message.track.name) for message in app.heard_of(Publish)]


@both
@near_and_far
def test_namespaces_are_told_now_and_later(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    pub.publish_namespace("demo/a")
    pub.publish_namespace("else/a")
    net.run(0.1)
    sub.watch("demo")
    assert told(sub) == ["demo/a"]
    later = pub.publish_namespace("demo/b")
    pub.publish_namespace("demo")
    net.run(0.1)
    assert told(sub) == ["demo/a", "demo/b", "demo"]
    pub.say(PublishNamespaceDone(later, namespace("demo/b")))
    net.run(0.1)
    assert told(sub)[3:] == ["-demo/b"]
    pub.leave()
    net.run(0.1)
    assert sorted(told(sub)[4:]) == ["-demo", "-demo/a"]
    net.check_empty()


@both
def test_the_drafts_have_messages_of_their_own(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    pub.publish_namespace("demo/a")
    sub.watch("demo")
    kinds = [type(message) for message in sub.heard[1:]]
    assert kinds == [RequestOk, PublishNamespace if dialect is DRAFT14 else NamespaceAdded]


@both
def test_a_namespace_is_told_once_however_many_offer_it(dialect: Dialect) -> None:
    net = MoqtNet()
    row = net.chain(2)
    pubs = [net.app(relay) for relay in (*row, *row)]
    sub = net.app(row[1], dialect)
    sub.watch("demo")
    for pub in pubs:
        pub.publish_namespace("demo/a")
    net.run(0.1)
    assert told(sub) == ["demo/a"]
    for pub in pubs[:-1]:
        pub.leave()
    net.run(0.1)
    assert told(sub) == ["demo/a"]
    pubs[-1].leave()
    net.run(0.1)
    assert told(sub) == ["demo/a", "-demo/a"]


@both
def test_a_client_hears_of_its_own(dialect: Dialect) -> None:
    net, app, _ = stage(dialect)
    app.watch("demo")
    app.publish_namespace("demo/a")
    alias = app.publish("demo/t")
    assert told(app) == ["demo/a", "demo"]
    (offer,) = app.heard_of(Publish)
    app.say(PublishOk(offer.request_id))
    app.stream(alias, 0, *objects_of(0))
    assert app.places == [(0, 0)]
    net.check_empty()


@pytest.mark.parametrize(
    ("options", "namespaces", "tracks"),
    [
        (NamespaceOptions.PUBLISH, False, True),
        (NamespaceOptions.NAMESPACE, True, False),
        (NamespaceOptions.BOTH, True, True),
    ],
)
def test_draft_16_chooses_what_it_hears_of(
    options: NamespaceOptions, namespaces: bool, tracks: bool
) -> None:
    _, pub, sub = stage()
    pub.publish_namespace("demo/a")
    pub.publish("demo/t")
    sub.watch("demo", options=options)
    pub.publish_namespace("demo/b")
    pub.publish("demo/u")
    assert told(sub) == ["demo/a", "demo", "demo/b"] * namespaces
    assert offered(sub) == [(b"demo", b"t"), (b"demo", b"u")] * tracks


@both
def test_namespaces_of_tracks_that_are_published_one_by_one_are_told(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    pub.publish("demo/a/t")
    sub.watch("demo")
    pub.publish("demo/a/u")
    pub.publish("demo/b/t")
    assert told(sub) == ["demo/a", "demo/b"]
    pub.done(0, DoneCode.TRACK_ENDED, 0)
    net.run(2.0)
    assert told(sub) == ["demo/a", "demo/b"]  # there is another track
    pub.done(2, DoneCode.TRACK_ENDED, 0)
    net.run(2.0)
    assert told(sub) == ["demo/a", "demo/b", "-demo/a"]
    pub.publish_namespace("demo/b")
    pub.leave()
    net.run(2.0)
    assert told(sub) == ["demo/a", "demo/b", "-demo/a", "-demo/b"]
    net.check_empty()


def test_the_empty_prefix_is_everything() -> None:
    _, pub, sub = stage()
    pub.publish_namespace("demo/a")
    sub.watch("")
    assert told(sub) == ["demo/a"]


# -- tracks ----------------------------------------------------------------------------------------


@both
@near_and_far
def test_a_track_is_offered_and_taken(dialect: Dialect, relays: int) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    sub.watch("demo")
    alias = pub.publish("demo/room/t")
    net.run(0.1)
    (offer,) = sub.heard_of(Publish)
    assert offer.track == track_name("demo/room/t")
    assert offer.forward
    sub.say(PublishOk(offer.request_id))
    net.run(0.1)
    pub.stream(alias, 0, *objects_of(0, 1))
    assert sub.places == [(0, 0), (0, 1)]
    pub.done(0, DoneCode.TRACK_ENDED, 1)
    net.run(2.0)
    done = sub.last(PublishDone)
    assert (done.request_id, done.code, done.stream_count) == (offer.request_id, 2, 1)
    # It may be published again, and is offered again.
    pub.publish("demo/room/t")
    net.run(0.1)
    assert len(sub.heard_of(Publish)) == 2
    net.check_empty()


@both
def test_what_came_between_an_offer_and_its_acceptance_is_sent(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0))
    sub.watch("demo")
    (offer,) = sub.heard_of(Publish)
    assert offer.largest == Location(0, 0)
    stream = pub.open(alias, 1, *objects_of(0))
    assert sub.streams == []
    sub.say(PublishOk(offer.request_id, filter=LARGEST, priority=3))
    stream.write(*objects_of(1), fin=True)
    assert sub.places == [(1, 0), (1, 1)]
    assert sub.streams[0].rank[0] == 3


@both
@pytest.mark.parametrize(
    ("wanted", "places"),
    [(LARGEST, [(1, 0), (2, 0)]), (groups(0, 1), [(1, 0)]), (start_at(2), [(2, 0)])],
    ids=str,
)
def test_an_offer_is_taken_on_the_subscribers_terms(
    dialect: Dialect, wanted: object, places: list[tuple[int, int]]
) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0))
    sub.watch("demo")
    sub.say(PublishOk(sub.last(Publish).request_id, filter=wanted))  # type: ignore[arg-type]
    for group in (1, 2):
        pub.stream(alias, group, *objects_of(0))
    assert sub.places == places


@both
def test_an_offer_that_is_refused_or_given_up_is_over(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    sub.watch("demo")
    alias = pub.publish("demo/t")
    sub.refuse(sub.last(Publish).request_id, RequestCode.UNINTERESTED)
    pub.stream(alias, 0, *objects_of(0))
    assert sub.streams == []
    # By its own request it may be had all the same.
    request_id = sub.subscribe("demo/t")
    pub.stream(alias, 1, *objects_of(0))
    sub.say(Unsubscribe(request_id))
    other = pub.publish("demo/u")
    offer = sub.last(Publish)
    sub.say(PublishOk(offer.request_id))
    pub.stream(other, 0, *objects_of(0))
    sub.say(Unsubscribe(offer.request_id))
    pub.stream(other, 1, *objects_of(0))
    assert sub.places == [(1, 0), (0, 0)]
    net.check_empty()


@both
def test_a_subscription_waits_for_the_answer_to_the_offer(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    sub.watch("demo")
    pub.publish("demo/t")
    sub.subscribe("demo/t")
    sub.last(RequestError)
    if dialect is DRAFT16:
        assert sub.error == RequestCode.DUPLICATE_SUBSCRIPTION


@both
def test_what_is_subscribed_to_is_not_offered(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    sub.subscribe("demo/t")
    sub.watch("demo")
    pub.publish("demo/t")
    assert sub.heard_of(Publish) == []


def test_an_offer_need_not_be_forwarded() -> None:
    _, pub, sub = stage()
    sub.watch("demo", forward=False)
    alias = pub.publish("demo/t")
    offer = sub.last(Publish)
    assert not offer.forward
    sub.say(PublishOk(offer.request_id, forward=False))
    stream = pub.open(alias, 0, *objects_of(0))
    assert sub.streams == []
    sub.update(offer.request_id, forward=True)
    stream.write(*objects_of(1), fin=True)
    assert sub.places == [(0, 1)]


def test_a_track_that_ends_before_its_offer_is_answered() -> None:
    net, pub, sub = stage()
    sub.watch("demo")
    pub.publish("demo/t")
    offer = sub.last(Publish)
    pub.done(0, DoneCode.TRACK_ENDED, 0)
    net.run(2.0)
    assert sub.last(PublishDone).request_id == offer.request_id
    sub.say(PublishOk(offer.request_id))
    assert sub.closed is None
    assert sub.client.subscriptions == sub.client._by_request == {}
    net.check_empty()


# -- no more ---------------------------------------------------------------------------------------


@both
def test_who_no_longer_watches_hears_no_more(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    request_id = sub.watch("demo")
    pub.publish_namespace("demo/a")
    sub.session.unsubscribe_namespace(request_id)
    net.run()
    pub.publish_namespace("demo/b")
    pub.publish("demo/t")
    pub.leave()
    assert told(sub) == ["demo/a"]
    assert offered(sub) == []
    # Again from the beginning.
    other = net.app(sub.edge.relay)
    other.publish_namespace("demo/c")
    sub.watch("demo")
    assert told(sub) == ["demo/a", "demo/c"]
    assert sub.closed is None
    net.check_empty()


def test_a_reset_stream_is_no_longer_watched() -> None:
    net, pub, sub = stage()
    sub.watch("demo")
    (stream_id,) = [s for s in sub.session._streams if s]
    sub.post(lambda: sub.client.stream_reset(stream_id, 1, net.now))
    pub.publish_namespace("demo/a")
    assert told(sub) == []
    sub.watch("demo")
    assert told(sub) == ["demo/a"]


def test_draft_14_sees_nothing_again_and_again() -> None:
    """What was told by requests is forgotten with the subscription that it was told for."""
    net, pub, sub = stage(DRAFT16, DRAFT14)
    pub.publish_namespace("demo/a")
    sub.answers[PublishNamespace] = lambda message: sub.say(RequestOk(message.request_id))
    for _ in range(5):
        sub.session.unsubscribe_namespace(sub.watch("demo"))
        net.run()
    assert told(sub) == ["demo/a"] * 5
    assert sub.closed is None
    assert sub.client.session.outgoing == {}


def test_draft_14_may_cancel_what_it_was_told() -> None:
    _, pub, sub = stage(DRAFT16, DRAFT14)
    request_id = pub.publish_namespace("demo/a")
    sub.watch("demo")
    said = sub.last(PublishNamespace)
    sub.say(RequestOk(said.request_id))
    sub.say_bytes(DRAFT14.encode(PublishNamespaceCancel(0, "no", None, said.namespace)))
    pub.say(PublishNamespaceDone(request_id, namespace("demo/a")))
    assert told(sub) == ["demo/a"]
    assert sub.closed is None
    assert sub.client.session.outgoing == {}


def test_a_client_that_allows_no_requests_is_told_when_it_does() -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    net.edge(relay, session=MoqtLimits(waiting=3))
    sub, pub = net.app(relay, DRAFT14, limits=MoqtLimits(requests=0)), net.app(relay)
    sub.watch("demo")
    for number in range(8):
        pub.publish_namespace(f"demo/{number}")
    assert told(sub) == []
    assert len(sub.client.session.requests.waiting) == 3
    pub.leave()
    assert sub.closed is None


@both
def test_overlapping_prefixes_are_refused(dialect: Dialect) -> None:
    _, _, sub = stage(DRAFT16, dialect)
    sub.watch("demo/room")
    sub.watch("demo")
    assert sub.error == RequestCode.PREFIX_OVERLAP
    sub.watch("demo/other")
    sub.last(RequestOk)
