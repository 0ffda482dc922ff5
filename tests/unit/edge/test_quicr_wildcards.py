"""QUICR subscriptions with a mask: a stream of its own for each track that they find."""

from __future__ import annotations

import pytest

from laps.edge.settings import QuicrSettings
from laps.types import TrackName
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import Publish
from laps.wire.quicr.messages import Intent, Response
from support.moqt import MoqtNet
from support.moqt_streams import objects_of
from support.quicr import Media, QuicrApp, check_empty

near_and_far = pytest.mark.parametrize("relays", [1, 3])
modes = pytest.mark.parametrize("datagrams", [False, True], ids=["stream", "datagrams"])


def stage(relays: int = 1, *, datagrams: bool = False) -> tuple[MoqtNet, QuicrApp, QuicrApp]:
    net = MoqtNet()
    row = net.chain(relays)
    pub, sub = QuicrApp(net, row[0]), QuicrApp(net, row[-1])
    sub.takes_datagrams = datagrams
    return net, pub, sub


def names(app: QuicrApp) -> list[bytes]:
    return [media.name for media in app.offered]


def got(app: QuicrApp) -> dict[bytes, list[tuple[int, int, bytes]]]:
    return {media.name: media.objects for media in app.offered}


# -- which names -----------------------------------------------------------------------------------


@near_and_far
@pytest.mark.parametrize("prefix", ["demo/room", "demo/room/"])
def test_a_text_is_the_beginning_of_names(relays: int, prefix: str) -> None:
    net, pub, sub = stage(relays)
    wild = sub.subscribe(prefix, mask=1)
    for name in ("demo/room/a", "demo/roommate", "demo/room/b/c", "other/room/a", "demo/x/a"):
        pub.publish(name)
    net.run(1)
    assert sorted(names(sub)) == [b"demo/room/a", b"demo/room/b/c"]
    assert [reply.response for reply in wild.replies] == [Response.OK]
    assert wild.heard_of(object) == wild.replies  # type: ignore[type-var]
    check_empty(net)


@near_and_far
@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (1, [0, 1]),
        (8, [0, 1, 2, 0xFF]),
        (9, [0, 1, 2, 0xFF, 0x1FF]),
        (128, [0, 1, 2, 0xFF, 0x1FF, 1 << 127]),
    ],
)
def test_a_mask_counts_the_bits_that_may_be_anything(
    relays: int, mask: int, found: list[int]
) -> None:
    net, pub, sub = stage(relays)
    base = 0xA1 << 100
    sub.subscribe(base.to_bytes(16), mask=mask)
    for low in (0, 1, 2, 0xFF, 0x1FF, 1 << 127):
        pub.publish((base ^ low).to_bytes(16))
    pub.publish("quicr/text")
    net.run(1)
    assert sorted(names(sub)) == sorted((base ^ low).to_bytes(16) for low in found)
    check_empty(net)


@near_and_far
@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
def test_tracks_of_moqt_publishers_are_found(relays: int, dialect: object) -> None:
    net, _, sub = stage(relays)
    sub.subscribe("demo", mask=1)
    pub = net.app(net.relays["1:1"], dialect)  # type: ignore[arg-type]
    alias = pub.publish("demo/a")
    pub.request(Publish(0, TrackName((b"demo",), b"no/name"), 77))
    net.run(0.5)
    pub.stream(alias, 0, *objects_of(0, 1))
    net.run(0.5)
    assert got(sub) == {b"demo/a": [(0, 0, b"0"), (0, 1, b"1")]}
    check_empty(net)


# -- from where on ---------------------------------------------------------------------------------


@near_and_far
@modes
@pytest.mark.parametrize("intent", Intent, ids=lambda intent: intent.name.lower())
def test_tracks_that_are_there_begin_as_the_intent_says(
    relays: int, datagrams: bool, intent: Intent
) -> None:
    net, pub, sub = stage(relays, datagrams=datagrams)
    posts = {name: pub.publish(name) for name in ("demo/a", "demo/b")}
    for post in posts.values():
        post.object(0, 0, b"00")
    net.run(0.5)
    sub.subscribe("demo", intent, mask=1, datagrams=datagrams)
    net.run(0.5)
    for post in posts.values():
        post.object(0, 1, b"01")
        post.object(1, 0, b"10")
    net.run(0.5)
    objects = [(0, 0, b"00"), (0, 1, b"01"), (1, 0, b"10")]
    skipped = {Intent.CATCH_UP: 0, Intent.IMMEDIATE: 1, Intent.WAIT_UP: 2}[intent]
    assert got(sub) == {b"demo/a": objects[skipped:], b"demo/b": objects[skipped:]}
    assert not sub.strays
    check_empty(net)


@near_and_far
@modes
@pytest.mark.parametrize("intent", Intent, ids=lambda intent: intent.name.lower())
@pytest.mark.parametrize("wait", [0, 0.5], ids=["at once", "a little later"])
def test_a_track_that_comes_later_is_sent_from_its_first_object_on(
    relays: int, datagrams: bool, intent: Intent, wait: float
) -> None:
    net, pub, sub = stage(relays, datagrams=datagrams)
    sub.subscribe("demo", intent, mask=1, datagrams=datagrams)
    net.run(0.5)
    # All that a publisher says comes in one breath.
    net.latency = 3
    post = pub.publish("demo/a")
    net.run(wait)
    post.object(0, 0, b"00")
    post.object(0, 1, b"01" * 1000, 500)
    post.object(1, 0, b"10")
    net.run(1)
    (media,) = sub.offered
    assert sorted(media.objects) == [(0, 0, b"00"), (0, 1, b"01" * 1000), (1, 0, b"10")]
    assert media.starts == []
    net.latency = 0
    check_empty(net)


@near_and_far
@modes
def test_a_track_ends_and_comes_back(relays: int, datagrams: bool) -> None:
    net, pub, sub = stage(relays, datagrams=datagrams)
    sub.subscribe("demo", mask=1, datagrams=datagrams)
    for group in range(3):
        post = pub.publish("demo/a")
        post.start(group, 0)
        post.object(group, 0, b"%d" % group)
        post.end()
        net.run(3)
    assert [media.objects for media in sub.offered] == [[(g, 0, b"%d" % g)] for g in range(3)]
    assert [media.closed for media in sub.offered] == [True] * 3
    assert sub.closed is None
    check_empty(net)


@modes
def test_a_publisher_that_only_left_goes_on_in_the_same_stream(datagrams: bool) -> None:
    net, pub, sub = stage(3, datagrams=datagrams)
    sub.subscribe("demo", mask=1, datagrams=datagrams)
    for group in range(3):
        post = pub.publish("demo/a")
        post.start(group, 0)
        post.object(group, 0, b"%d" % group)
        net.run(1)
        post.reset()
        net.run(3)
    (media,) = sub.offered
    assert media.objects == [(g, 0, b"%d" % g) for g in range(3)]
    assert media.closed is None
    check_empty(net)


@near_and_far
def test_a_track_that_begins_anew_is_offered_anew(relays: int) -> None:
    net, pub, sub = stage(relays)
    sub.subscribe("demo", mask=1)
    post = pub.publish("demo/a")
    net.run(0.5)
    for group in range(3):
        post.object(group, 0, b"old")
    net.run(0.5)
    pub.leave()
    net.run(3)
    again = QuicrApp(net, pub.edge.relay).publish("demo/a")
    net.run(0.5)
    again.object(0, 0, b"new")
    net.run(0.5)
    again.object(1, 0, b"new")
    net.run(0.5)
    old, new = sub.offered
    assert old.objects == [(group, 0, b"old") for group in range(3)]
    assert old.closed is True
    assert new.objects == [(group, 0, b"new") for group in range(2)]
    assert new.closed is None
    check_empty(net)


# -- what is not wanted ----------------------------------------------------------------------------


@near_and_far
def test_a_track_that_is_declined_is_not_sent(relays: int) -> None:
    net, pub, sub = stage(relays)
    sub.accepts = False
    sub.subscribe("demo", mask=1)
    post = pub.publish("demo/a")
    post.object(0, 0, b"nobody")
    net.run(1)
    assert sub.offered == []
    assert sub.closed is None
    assert len(sub.client.session.streams) == 1  # that of the subscription
    assert sub.client.subscriptions == {}
    # Nor offered again, while the subscription lasts.
    sub.accepts = True
    post.end()
    net.run(3)
    pub.publish("demo/a")
    net.run(1)
    assert sub.offered == []
    check_empty(net)


def test_a_name_that_is_subscribed_to_is_not_offered() -> None:
    net, pub, sub = stage()
    one = sub.subscribe("demo/a")
    sub.subscribe("demo", mask=1)
    for name in ("demo/a", "demo/b"):
        pub.publish(name).object(0, 0, name.encode())
    assert names(sub) == [b"demo/b"]
    assert one.objects == [(0, 0, b"demo/a")]
    check_empty(net)


def test_a_name_that_is_no_longer_subscribed_to_is_offered() -> None:
    net, pub, sub = stage()
    one = sub.subscribe("demo/a")
    sub.subscribe("demo", mask=1)
    post = pub.publish("demo/a")
    post.object(0, 0, b"0")
    one.cancel()
    post.object(0, 1, b"1")
    assert one.objects == [(0, 0, b"0")]
    assert got(sub) == {b"demo/a": [(0, 1, b"1")]}
    check_empty(net)


def test_a_name_that_is_subscribed_to_later_takes_the_track_over() -> None:
    net, pub, sub = stage()
    sub.subscribe("demo", mask=1)
    post = pub.publish("demo/a")
    post.object(0, 0, b"0")
    one = sub.subscribe("demo/a")
    post.object(0, 1, b"1")
    (media,) = sub.offered
    assert media.objects == [(0, 0, b"0")]
    assert media.closed is True
    assert one.objects == [(0, 1, b"1")]
    assert len(sub.offered) == 1
    check_empty(net)


@near_and_far
@modes
def test_when_a_subscription_with_a_mask_is_cancelled_its_streams_end(
    relays: int, datagrams: bool
) -> None:
    net, pub, sub = stage(relays, datagrams=datagrams)
    wild = sub.subscribe("demo", mask=1, datagrams=datagrams)
    other = sub.subscribe("demo/a")
    posts = [pub.publish(f"demo/{name}") for name in "abc"]
    net.run(0.5)
    for post in posts:
        post.object(0, 0, b"0")
    net.run(0.5)
    assert sorted(names(sub)) == [b"demo/b", b"demo/c"]
    wild.cancel()
    for post in posts:
        post.object(0, 1, b"1")
    net.run(0.5)
    assert wild.closed is True
    for media in sub.offered:
        assert media.objects == [(0, 0, b"0")]
        assert media.closed is False
    assert other.objects == [(0, 0, b"0"), (0, 1, b"1")]
    assert len(sub.client.subscriptions) == 1
    assert len(sub.client.session.streams) == 1
    check_empty(net)


def test_two_masks_that_overlap_find_a_track_once() -> None:
    net, pub, sub = stage()
    narrow = sub.subscribe("demo/room", mask=1)
    sub.subscribe("demo", mask=1)
    post = pub.publish("demo/room/a")
    post.object(0, 0, b"0")
    assert names(sub) == [b"demo/room/a"]
    narrow.cancel()
    post.object(0, 1, b"1")
    first, second = sub.offered
    assert (first.objects, first.closed) == ([(0, 0, b"0")], False)
    assert (second.objects, second.closed) == ([(0, 1, b"1")], None)
    check_empty(net)


def test_one_stream_of_a_mask_may_be_closed() -> None:
    net, pub, sub = stage()
    sub.subscribe("demo", mask=1)
    posts = [pub.publish(f"demo/{name}") for name in "ab"]
    first, second = sub.offered
    first.close()
    for post in posts:
        post.object(0, 0, b"0")
    assert first.objects == []
    assert second.objects == [(0, 0, b"0")]
    assert len(sub.client.subscriptions) == 1
    check_empty(net)


def test_a_client_finds_its_own_tracks() -> None:
    net, pub, _ = stage()
    pub.subscribe("demo", mask=1)
    pub.publish("demo/a").object(0, 0, b"mine")
    assert got(pub) == {b"demo/a": [(0, 0, b"mine")]}
    check_empty(net)


def test_no_more_streams_are_opened_than_a_client_may_have() -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    net.edge(relay, quicr=QuicrSettings(streams=5))
    apps = [QuicrApp(net, relay) for _ in range(4)]
    sub = QuicrApp(net, relay)
    sub.subscribe("demo", mask=1)
    for number in range(12):
        apps[number % 4].publish(f"demo/{number}")
    assert len(sub.offered) == 4
    assert sub.edge.quicr.not_offered == 8
    check_empty(net)


def test_an_answer_that_names_a_datagram_stream_in_use_ends_the_session() -> None:
    net, pub, sub = stage()
    sub.subscribe("demo/x", datagrams=True, datagram_id=100)
    sub.subscribe("demo", mask=1, datagrams=True, datagram_id=200)
    sub.takes_datagrams = True  # its next number is 100
    pub.publish("demo/a")
    assert sub.closed is not None
    assert "datagram stream 100 is in use" in sub.closed[1]
    check_empty(net)


def test_media_of_a_mask_is_renewed_with_it() -> None:
    net, pub, sub = stage()
    wild = sub.subscribe("demo", mask=1)
    post = pub.publish("demo/a")
    for second in range(20):
        net.run(4)
        wild.renew()
        post.object(0, second, b"%d" % second)
    (media,) = sub.offered
    assert len(media.objects) == 20
    net.run(31)
    assert wild.replies[-1].response is Response.EXPIRED
    assert media.closed is False
    assert isinstance(media, Media)
    assert not sub.client.subscriptions
    check_empty(net)
