"""What a QUICR client is answered: replies, renewals, and how its streams end."""

from __future__ import annotations

import pytest

from laps.edge.settings import QuicrSettings
from laps.types import Address, Location
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.messages import (
    Fin,
    Intent,
    PublishIntent,
    PublishIntentOk,
    Response,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
)
from support.moqt import MoqtNet
from support.moqt_streams import objects_of
from support.quicr import Media, Post, QuicrApp, check_empty

modes = pytest.mark.parametrize("datagrams", [False, True], ids=["stream", "datagrams"])


def stage(**settings: object) -> tuple[MoqtNet, QuicrApp, QuicrApp]:
    net = MoqtNet()
    relay = net.relay("1:1")
    net.edge(relay, quicr=QuicrSettings(**settings))  # type: ignore[arg-type]
    return net, QuicrApp(net, relay), QuicrApp(net, relay)


def responses(media: Media) -> list[Response]:
    return [reply.response for reply in media.replies]


def refusal(media: Media | Post) -> str:
    """Why a request was refused: it says nothing else, and its stream is closed."""
    (reply,) = media.heard
    assert isinstance(reply, SubscribeReply)
    assert reply.response is Response.FAIL
    assert media.closed is True
    assert media.app.closed is None
    assert media.stream.id not in media.app.client.session.streams
    return reply.reason


# -- ok, and not -----------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("intent", Intent)
@pytest.mark.parametrize("mask", [0, 1])
def test_a_name_that_nobody_publishes_is_answered_at_once(
    datagrams: bool, intent: Intent, mask: int
) -> None:
    net, _, sub = stage()
    media = sub.subscribe("demo/t", intent, mask=mask, datagrams=datagrams)
    assert media.heard == [SubscribeReply(Response.OK)]
    net.run(29)
    assert media.heard == [SubscribeReply(Response.OK)]
    assert media.closed is None
    check_empty(net)


BAD_NAMES = [
    (b"", "empty"),
    (b"demo", "slash"),
    (b"/demo", "empty"),
    (b"demo//t", "empty"),
    (b"demo/\xff", "UTF-8"),
    (b"demo/" + b"x" * 5000, "too long"),
    (b"a/" * 40 + b"a", "too long"),
]


@pytest.mark.parametrize(("name", "word"), BAD_NAMES, ids=lambda value: str(value)[:12])
def test_a_name_that_stands_for_nothing_is_refused(name: bytes, word: str) -> None:
    net, pub, sub = stage()
    assert word in refusal(sub.subscribe(name))
    assert word in refusal(pub.publish(name))
    assert sub.edge.quicr.refused == 2
    assert responses(sub.subscribe("demo/t")) == [Response.OK]
    check_empty(net)


@pytest.mark.parametrize("mask", [129, 200, 255])
def test_a_mask_has_no_more_bits_than_a_name(mask: int) -> None:
    net, _, sub = stage()
    assert str(mask) in refusal(sub.subscribe(bytes(range(16)), mask=mask))
    assert responses(sub.subscribe(bytes(range(16)), mask=128)) == [Response.OK]
    check_empty(net)


def test_a_datagram_stream_is_for_one_subscription() -> None:
    net, _, sub = stage()
    first = sub.subscribe("demo/a", datagrams=True, datagram_id=7)
    assert "7 is in use" in refusal(sub.subscribe("demo/b", datagrams=True, datagram_id=7))
    first.cancel()
    assert responses(sub.subscribe("demo/b", datagrams=True, datagram_id=7)) == [Response.OK]
    # Of the same name, the newer one takes it over.
    again = sub.subscribe("demo/b", datagrams=True, datagram_id=7)
    assert responses(again) == [Response.OK]
    check_empty(net)


def test_who_takes_no_datagrams_cannot_be_sent_any() -> None:
    net, _, sub = stage()
    sub.link.datagram_bytes = 0
    assert "stream mode" in refusal(sub.subscribe("demo/a", datagrams=True))
    assert responses(sub.subscribe("demo/a")) == [Response.OK]
    check_empty(net)


def test_streams_are_counted() -> None:
    net, _, app = stage(streams=3)
    media = [app.subscribe(f"demo/{number}") for number in range(2)]
    post = app.publish("demo/p")
    assert "3 streams are open" in refusal(app.subscribe("demo/x"))
    assert "3 streams are open" in refusal(app.publish("demo/x"))
    media[0].renew()
    assert responses(media[0]) == [Response.OK, Response.OK]
    media[0].cancel()
    assert responses(app.subscribe("demo/x")) == [Response.OK]
    post.end()
    assert app.publish("demo/q").heard == [PublishIntentOk(None)]
    check_empty(net)


def test_the_same_name_is_published_once_in_a_session() -> None:
    net, pub, other = stage()
    post = pub.publish("demo/t")
    assert "already" in refusal(pub.publish("demo/t"))
    assert other.publish("demo/t").heard == [PublishIntentOk(None)]
    post.object(0, 0, b"goes on")
    post.end()
    net.run(1)
    assert pub.publish("demo/t").heard == [PublishIntentOk(None)]
    check_empty(net)


@pytest.mark.parametrize("capable", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_datagrams_are_used_where_both_sides_want_them(capable: bool, wanted: bool) -> None:
    net, pub, _ = stage(datagrams=wanted)
    posts = [pub.publish(f"demo/{name}", datagrams=capable) for name in "abc"]
    numbers = [post.datagram_id for post in posts]
    if capable and wanted:
        assert len(set(numbers)) == 3
        assert None not in numbers
    else:
        assert numbers == [None] * 3
    check_empty(net)


@pytest.mark.parametrize(
    "messages",
    [
        [Subscribe(b"demo"), Subscribe(b"demo")],
        [PublishIntent(b"demo"), StartPoint(Location(3, 0)), Fin(Location(3, 0))],
    ],
    ids=["subscribe", "publish"],
)
def test_a_refused_stream_asks_for_nothing_more(messages: list) -> None:  # type: ignore[type-arg]
    net, _, app = stage()
    stream = app.session.open(messages[0])
    for message in messages[1:]:
        app.session.send(stream, message)
    app.session.close(stream)
    net.run()
    assert app.closed is None
    assert app.edge.quicr.refused == 1
    assert app.client.session.streams == {}
    assert not app.client.subscriptions
    check_empty(net)


# -- renewal ---------------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("mask", [0, 1])
def test_a_subscription_that_is_not_renewed_expires(datagrams: bool, mask: int) -> None:
    net, _, sub = stage()
    media = sub.subscribe("demo/t", mask=mask, datagrams=datagrams)
    net.run(29.9)
    assert responses(media) == [Response.OK]
    net.run(0.2)
    assert responses(media) == [Response.OK, Response.EXPIRED]
    assert "30 s" in media.replies[-1].reason
    assert media.closed is True
    assert sub.client.session.streams == {}
    assert sub.edge.quicr.expired == 1
    check_empty(net)


@modes
@pytest.mark.parametrize("mask", [0, 1])
def test_a_subscription_that_is_renewed_goes_on(datagrams: bool, mask: int) -> None:
    net, pub, sub = stage()
    media = sub.subscribe("demo/t", mask=mask, datagrams=datagrams)
    for _ in range(30):
        net.run(5)
        media.renew()
    assert responses(media) == [Response.OK] * 31
    assert not media.is_closed()
    if not mask:
        pub.publish("demo/t").object(0, 0, b"0")
        assert media.objects == [(0, 0, b"0")]
    net.run(31)
    assert media.closed is True
    check_empty(net)


def test_an_operator_may_let_subscriptions_stand() -> None:
    net, _, sub = stage(subscription_s=0)
    media = sub.subscribe("demo/t")
    net.run(1000)
    assert media.closed is None
    check_empty(net)


def test_a_renewal_changes_nothing_but_the_time() -> None:
    net, pub, sub = stage()
    post = pub.publish("demo/t")
    post.object(0, 0, b"0")
    media = sub.subscribe("demo/t")
    sub.session.send(media.stream, Subscribe(b"demo/t", 5, Intent.CATCH_UP, 77))
    net.run()
    post.object(0, 1, b"1")
    assert media.objects == [(0, 1, b"1")]
    assert responses(media) == [Response.OK] * 2
    assert sub.strays == []
    check_empty(net)


def test_a_name_subscribed_to_on_another_stream_ends_the_older_one() -> None:
    net, pub, sub = stage()
    post = pub.publish("demo/t")
    older = sub.subscribe("demo/t")
    post.object(0, 0, b"0")
    newer = sub.subscribe("demo/t", datagrams=True)
    post.object(0, 1, b"1")
    assert older.objects == [(0, 0, b"0")]
    assert newer.objects == [(0, 1, b"1")]
    assert responses(older) == [Response.OK, Response.EXPIRED]
    assert older.closed is True
    net.run(20)
    newer.renew()
    net.run(20)
    assert newer.closed is None
    check_empty(net)


# -- how streams end -------------------------------------------------------------------------------


@modes
def test_a_subscription_is_cancelled(datagrams: bool) -> None:
    net, pub, sub = stage()
    media = sub.subscribe("demo/t", datagrams=datagrams)
    post = pub.publish("demo/t")
    post.object(0, 0, b"0")
    media.cancel()
    assert media.closed is True
    assert sub.client.session.streams == {}
    post.object(0, 1, b"1")
    assert media.objects == [(0, 0, b"0")]
    assert sub.strays == []
    check_empty(net)


@modes
@pytest.mark.parametrize("published", [False, True])
def test_a_subscriber_closes_its_half_first(datagrams: bool, published: bool) -> None:
    net, pub, sub = stage()
    media = sub.subscribe("demo/t", datagrams=datagrams)
    if published:
        pub.publish("demo/t").object(0, 0, b"0")
    media.close()
    assert media.closed is True
    assert sub.session.streams == {}
    assert sub.client.session.streams == {}
    assert not sub.client.subscriptions
    check_empty(net)


@pytest.mark.parametrize("full", [False, True], ids=["idle", "full"])
def test_a_subscriber_resets_its_stream(full: bool) -> None:
    net, pub, sub = stage()
    media = sub.subscribe("demo/t")
    if full:
        sub.link.make_room(1)
    post = pub.publish("demo/t")
    for number in range(5):
        post.object(0, number, b"x" * 1000)
    sub.session.abandon(media.stream, 0)
    net.run()
    assert sub.client.session.streams == {}
    assert not sub.client.subscriptions
    check_empty(net)


@modes
def test_a_publisher_closes_its_half_first(datagrams: bool) -> None:
    net, pub, _ = stage()
    post = pub.publish("demo/t", datagrams=datagrams)
    post.end()
    net.run(1)
    assert post.closed is True
    assert pub.session.streams == {}
    assert pub.client.session.streams == {}
    assert not pub.client.publications
    check_empty(net)


@modes
def test_a_name_can_be_published_again_at_once(datagrams: bool) -> None:
    net, pub, _ = stage()
    pub.publish("demo/t", datagrams=datagrams).end()
    net.run(0.1)
    again = pub.publish("demo/t", datagrams=datagrams)
    net.run(0.1)
    assert again.closed is not True
    assert [it.key for it in pub.client.publications.values()] != []
    net.run(2.0)  # nor does the end of the first end the second
    assert len(pub.client.publications) == 1
    again.end()
    net.run(2.0)
    check_empty(net)


def test_a_stream_that_says_nothing_is_nothing() -> None:
    net, _, sub = stage()
    sub.say_bytes(b"", fin=True)
    sub.say_bytes(b"\x00", stream_id=404)
    sub.client.stream_reset(404, 0, net.now)
    assert sub.closed is None
    assert sub.client.session.streams == {}
    check_empty(net)


# -- what breaks the protocol ----------------------------------------------------------------------

BROKEN = [
    [StartPoint(Location(0, 0)), StartPoint(Location(0, 1))],
    [StartPoint(Location(0, 0)), PublishIntent(b"demo/t")],
    [StartPoint(Location(0, 0)), Fin(Location(0, 1))],
    [SubscribeCancel(b"demo/t")],
    [PublishIntentOk()],
    [Subscribe(b"demo/t"), Fin(Location(0, 0))],
    [Subscribe(b"demo/t"), PublishIntent(b"demo/t")],
    [Subscribe(b"demo/t"), Subscribe(b"demo/u")],
    [PublishIntent(b"demo/t"), PublishIntent(b"demo/t")],
    [PublishIntent(b"demo/t"), Subscribe(b"demo/t")],
    [PublishIntent(b"demo/t"), Fin(Location(0, 0)), StartPoint(Location(1, 0))],
]


@pytest.mark.parametrize("messages", BROKEN, ids=lambda m: "-".join(type(x).__name__ for x in m))
def test_what_has_no_place_ends_the_session(messages: list) -> None:  # type: ignore[type-arg]
    net, bad, good = stage()
    media = good.subscribe("demo/x")
    bad.say_messages(*messages)
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.PROTOCOL_VIOLATION
    assert bad.closed[1]
    good.publish("demo/x").object(0, 0, b"0")
    assert media.objects == [(0, 0, b"0")]
    check_empty(net)


@pytest.mark.parametrize(
    "data", [b"\x00\x00", b"\x00\x01\x0b", b"\x00\x02\x01\x05", b"\x00\x01\x07"]
)
def test_what_cannot_be_read_ends_the_session(data: bytes) -> None:
    net, bad, _ = stage()
    bad.say_bytes(data)
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.INVALID_ENCODING
    check_empty(net)


def test_a_unidirectional_stream_has_no_place() -> None:
    net, bad, _ = stage()
    bad.say_bytes(b"anything", stream_id=2)
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.PROTOCOL_VIOLATION
    check_empty(net)


# -- going away ------------------------------------------------------------------------------------


def test_every_stream_is_redirected() -> None:
    net, pub, sub = stage()
    post = pub.publish("demo/a")
    one = sub.subscribe("demo/a")
    wild = sub.subscribe("demo", mask=1)
    other = pub.publish("demo/b")
    (found,) = sub.offered
    edge = sub.edge
    edge.drain(net.now, Address("relay.example", 4433))
    net.run()
    for media in (one, wild):
        assert responses(media) == [Response.OK, Response.REDIRECT]
        assert media.redirects == ["relay.example:4433"]
        assert media.closed is None
    assert found.redirects == []
    assert post.redirects == other.redirects == ["relay.example:4433"]
    assert edge.quicr.redirected == 2
    # Media goes on, and what is asked for now is answered, and redirected at once.
    post.object(0, 0, b"0")
    assert one.objects == [(0, 0, b"0")]
    other.object(0, 0, b"1")
    assert found.objects == [(0, 0, b"1")]
    late = QuicrApp(net, edge.relay)
    media = late.subscribe("demo/a", Intent.CATCH_UP)
    assert responses(media) == [Response.OK, Response.REDIRECT]
    assert media.redirects == ["relay.example:4433"]
    assert media.objects == [(0, 0, b"0")]
    assert late.publish("demo/c").redirects == ["relay.example:4433"]
    assert "slash" in refusal(late.subscribe("demo"))
    # Those who have moved leave; the others are sent away.
    one.cancel()
    assert one.closed is True
    edge.close()
    net.run()
    for app in (pub, sub, late):
        assert app.closed is not None
        assert app.closed[0] == QuicrCode.GOING_AWAY
    check_empty(net)


def test_who_is_not_told_where_to_go_hears_nothing() -> None:
    net, pub, sub = stage()
    post, media = pub.publish("demo/a"), sub.subscribe("demo/a")
    sub.edge.drain(net.now)
    net.run()
    assert post.redirects == media.redirects == []
    assert responses(media) == [Response.OK]
    post.object(0, 0, b"0")
    assert media.objects == [(0, 0, b"0")]
    check_empty(net)


def test_moqt_clients_at_the_same_relay_go_their_own_way() -> None:
    net, pub, sub = stage()
    app = net.app(sub.edge.relay, DRAFT16)
    alias = app.publish("demo/t")
    media = sub.subscribe("demo/t")
    pub.say_messages(StartPoint(Location(0, 0)))
    app.stream(alias, 0, *objects_of(0, 1))
    net.run(0.1)
    assert media.places == [(0, 0), (0, 1)]
    check_empty(net)
