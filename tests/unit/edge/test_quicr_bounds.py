"""What QUICR clients cannot do to a relay: fill it, keep it busy, or harm each other."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING
from weakref import ref

import pytest

from laps.edge.quicr_subscription import QUEUE_BYTES
from laps.tracks.cache import CacheLimits
from laps.types import Location
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import RequestError
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES, cut
from laps.wire.quicr.messages import (
    Fragment,
    Intent,
    PublishIntent,
    StartPoint,
    Terms,
    encode_datagram,
)
from support.moqt import MoqtNet
from support.moqt_streams import Obj, start_at
from support.quicr import QuicrApp, check_empty

if TYPE_CHECKING:
    from laps.wire.quicr.messages import Message

MB = 1 << 20


def stage(relays: int = 1) -> tuple[MoqtNet, QuicrApp, QuicrApp]:
    net = MoqtNet()
    row = net.chain(relays)
    return net, QuicrApp(net, row[0]), QuicrApp(net, row[-1])


# -- out of rule -----------------------------------------------------------------------------------

OPEN = PublishIntent(b"demo/t")
OUT_OF_RULE: dict[str, list[Message]] = {
    "not the beginning": [Fragment(0, 1, 0, b"x", True)],
    "a gap": [Fragment(0, 0, 0, b"x", True), Fragment(0, 2, 0, b"x", True)],
    "an offset": [Fragment(0, 0, 0, b"x", False), Fragment(0, 0, 2, b"x", True)],
    "overlapping": [Fragment(0, 0, 0, b"xx", False), Fragment(0, 0, 1, b"x", True)],
    "again": [Fragment(0, 0, 0, b"x", True), Fragment(0, 0, 0, b"x", True)],
    "a group": [Fragment(0, 0, 0, b"x", True), Fragment(2, 0, 0, b"x", True)],
    "not ended": [Fragment(0, 0, 0, b"x", False), Fragment(0, 1, 0, b"x", True)],
    "nothing": [Fragment(0, 0, 0, b"", False)],
    "back": [StartPoint(Location(5, 0)), StartPoint(Location(4, 0))],
}


@pytest.mark.parametrize("messages", OUT_OF_RULE.values(), ids=OUT_OF_RULE.keys())
def test_fragments_out_of_order_on_a_stream_end_the_session(messages: list[Message]) -> None:
    net, bad, sub = stage()
    media = sub.subscribe("demo/t")
    bad.say_messages(OPEN, *messages)
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.PROTOCOL_VIOLATION
    # Others may go on with what it left.
    good = QuicrApp(net, sub.edge.relay).publish("demo/t")
    good.start(7, 0)
    good.object(7, 0, b"good")
    assert media.objects[-1] == (7, 0, b"good")
    assert sub.closed is None
    check_empty(net)


def test_a_start_point_inside_an_object_throws_its_part_away() -> None:
    net, pub, sub = stage()
    media = sub.subscribe("demo/t")
    post = pub.publish("demo/t")
    post.say(Fragment(0, 0, 0, b"lost", False))
    post.start(0, 1)
    post.object(0, 1, b"found")
    post.say(Fragment(0, 2, 0, b"lost", False))
    post.start(1, 0)
    post.object(1, 0, b"found too")
    net.run(1)
    assert pub.closed is None
    assert media.objects == [(0, 1, b"found"), (1, 0, b"found too")]
    check_empty(net)


def test_an_object_without_end_on_a_stream_ends_the_session() -> None:
    net, bad, sub = stage()
    media = sub.subscribe("demo/t")
    post = bad.publish("demo/t")
    piece = bytes(60_000)
    for offset in range(0, MAX_OBJECT_BYTES + 60_000, 60_000):
        bad.session.send(post.stream, Fragment(0, 0, offset, piece, False))
    net.run()
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.TOO_LARGE
    assert media.objects == []
    assert media.app.closed is None
    assert sub.edge.relay.tracks.cache.size == 0
    check_empty(net)


def test_many_objects_that_are_not_whole_end_the_session() -> None:
    net, bad, sub = stage()
    media = sub.subscribe("demo/0")
    posts = [bad.publish(f"demo/{number}") for number in range(20)]
    partial = bad.client._publishing._partial
    piece = bytes(60_000)
    for at in range(40):
        for post in posts:
            bad.session.send(post.stream, Fragment(0, 0, 60_000 * at, piece, False))
    net.run()
    assert bad.closed is not None
    assert bad.closed[0] == QuicrCode.TOO_LARGE
    assert partial.size == 0
    assert media.closed is None
    check_empty(net)


def test_objects_that_become_whole_cost_nothing() -> None:
    net, pub, _ = stage()
    posts = [pub.publish(f"demo/{number}") for number in range(3)]
    for number in range(60):
        for post in posts:
            post.object(0, number, bytes(300_000), 50_000)
    assert pub.client._publishing._partial.size == 0
    posts[0].say(Fragment(0, 60, 0, bytes(1000), False))
    assert pub.client._publishing._partial.size == 1000
    posts[0].start(0, 61)
    assert pub.client._publishing._partial.size == 0
    posts[0].say(Fragment(0, 61, 0, bytes(1000), False))
    posts[0].reset()
    assert pub.client._publishing._partial.size == 0
    assert pub.closed is None
    check_empty(net)


BROKEN_DATAGRAMS = {
    "past the end": [
        Fragment(0, 0, 0, b"abc", True),
        Fragment(0, 1, 4, b"x", True),
        Fragment(0, 1, 9, b"x", False),
    ],
    "two ends": [
        Fragment(0, 1, 0, b"abc", False),
        Fragment(0, 1, 5, b"x", True),
        Fragment(0, 1, 6, b"x", True),
    ],
    "without end": [Fragment(0, 1, MAX_OBJECT_BYTES, b"x", False)],
    "an early end": [Fragment(0, 1, 5, b"x", False), Fragment(0, 1, 0, b"x", True)],
}


@pytest.mark.parametrize("relays", [1, 3])
@pytest.mark.parametrize("fragments", BROKEN_DATAGRAMS.values(), ids=BROKEN_DATAGRAMS.keys())
def test_datagrams_that_cannot_be_are_dropped_and_counted(
    fragments: list[Fragment], relays: int
) -> None:
    net, pub, sub = stage(relays)
    media = [
        sub.subscribe("demo/t"),
        QuicrApp(net, sub.edge.relay).subscribe("demo/t", datagrams=True),
    ]
    moqt = net.app(sub.edge.relay, DRAFT16)
    moqt.subscribe("demo/t", start_at(0))
    post = pub.publish("demo/t", datagrams=True)
    post.datagrams(0, 0, b"abc")
    net.run(0.1)
    for fragment in fragments:
        post.datagram(fragment)
    post.datagrams(0, 2, b"good")
    net.run(1)
    tracks = pub.edge.relay.tracks
    assert tracks.counters.malformed_fragments == 1
    assert tracks.shared.fragment_bytes == 0
    assert pub.closed is None
    for found in media:
        assert found.app.closed is None
        assert found.objects == [(0, 0, b"abc"), (0, 2, b"good")]
    got = [(d.group, d.object_id, bytes(d.payload)) for d in moqt.datagrams]
    assert got == [(0, 0, b"abc"), (0, 2, b"good")]
    check_empty(net)


def test_datagrams_that_overlap_are_taken_once() -> None:
    net, pub, sub = stage()
    media = [
        sub.subscribe("demo/t"),
        QuicrApp(net, sub.edge.relay).subscribe("demo/t", datagrams=True),
    ]
    post = pub.publish("demo/t", datagrams=True)
    whole = bytes(range(200)) * 10
    for offset in range(0, 2000, 300):
        for size in (100, 400, 500):
            part = whole[offset : offset + size]
            post.datagram(Fragment(0, 0, offset, part, offset + len(part) == 2000))
    for found in media:
        assert found.objects == [(0, 0, whole)]
    (datagrams,) = (found.datagrams for found in media if found.datagram_id is not None)
    assert sum(len(d.fragment.data) for d in datagrams) == 2000
    check_empty(net)


@pytest.mark.parametrize("data", [b"", b"\x40", b"\x01\x00\x00\x00", b"\x01" + b"\xff" * 24])
def test_broken_datagrams_are_counted(data: bytes) -> None:
    net, pub, _ = stage()
    pub.publish("demo/t", datagrams=True)
    pub.post(lambda: pub.client.receive_datagram(data, net.now))
    net.run()
    assert pub.edge.quicr.malformed_datagrams == 1
    assert pub.closed is None
    check_empty(net)


def test_datagrams_for_nobody_are_counted() -> None:
    net, pub, _ = stage()
    post = pub.publish("demo/t", datagrams=True)
    assert post.datagram_id is not None
    post.datagram(Fragment(0, 0, 0, b"x", True), stream_id=post.datagram_id + 1)
    assert pub.edge.quicr.unknown_datagrams == 1
    check_empty(net)


def flooded(limits: CacheLimits) -> tuple[MoqtNet, QuicrApp, QuicrApp]:
    net = MoqtNet()
    relay = net.relay("1:1", cache=limits)
    net.edge(relay)
    return net, QuicrApp(net, relay), QuicrApp(net, relay)


def test_objects_that_never_end_are_held_within_a_bound() -> None:
    """Each object begins and none ends, of a thousand groups and more."""
    net, bad, sub = flooded(CacheLimits(8 * MB, 2 * MB))
    media = sub.subscribe("demo/good")
    posts = [bad.publish(f"demo/{name}", datagrams=True) for name in "ab"]
    tracks = bad.edge.relay.tracks
    number = 0
    for group in range(2000):
        for post in posts:
            number += 1
            post.datagram(Fragment(group, group % 3, 5 * (group % 2), bytes(1000), False))
            assert tracks.shared.fragment_bytes <= tracks.shared.fragment_limit
    assert tracks.cache.size == 0
    assert len(tracks.cache.order) == 0
    assert tracks.counters.lost_objects > 0
    good = QuicrApp(net, sub.edge.relay).publish("demo/good", datagrams=True)
    good.datagrams(0, 0, b"good" * 1000)
    assert media.objects == [(0, 0, b"good" * 1000)]
    net.run(12)
    assert tracks.shared.fragment_bytes == 0
    check_empty(net)


def test_one_object_that_never_ends_is_held_within_a_bound() -> None:
    net, bad, sub = flooded(CacheLimits(8 * MB, 2 * MB))
    media = sub.subscribe("demo/t")
    post = bad.publish("demo/t", datagrams=True)
    tracks = bad.edge.relay.tracks
    for at in range(1, 40_000):
        data = bytes(1000)
        bad.client.receive_datagram(
            _datagram(post.datagram_id, Fragment(0, 0, 1000 * at, data, False)), net.now
        )
        assert tracks.shared.fragment_bytes <= tracks.shared.fragment_limit
    (delivery,) = sub.client.subscriptions.values()
    assert delivery.queue.size <= QUEUE_BYTES
    net.run(1)
    post.datagrams(0, 1, b"good")
    net.run(1)
    assert media.objects == [(0, 1, b"good")]
    check_empty(net)


def _datagram(stream_id: int | None, fragment: Fragment) -> bytes:
    assert stream_id is not None
    return encode_datagram(stream_id, fragment, Terms())


def test_what_is_whole_is_kept_within_the_bounds_of_the_cache() -> None:
    net, pub, _ = flooded(CacheLimits(2 * MB, MB))
    stream = pub.publish("demo/s")
    datagrams = pub.publish("demo/d", datagrams=True)
    tracks = pub.edge.relay.tracks
    for group in range(60):
        stream.object(group, 0, bytes(50_000))
        datagrams.datagrams(group, 0, bytes(50_000))
        assert tracks.cache.size <= 2 * MB + 200_000
    assert tracks.cache.counters.evicted_groups > 0
    check_empty(net)


# -- best_before -----------------------------------------------------------------------------------


@pytest.mark.parametrize("relays", [1, 3])
def test_nothing_is_served_past_its_time(relays: int) -> None:
    net, pub, early = stage(relays)
    relay = early.edge.relay
    media = [early.subscribe("demo/t"), QuicrApp(net, relay).subscribe("demo/t", datagrams=True)]
    post = pub.publish("demo/t", datagrams=True)
    net.run(0.1)
    post.datagrams(0, 0, b"short" * 500, best_before_ms=2000)
    post.datagrams(0, 1, b"long" * 500, best_before_ms=8000)
    post.datagrams(0, 2, b"ever" * 500)
    net.run(1)
    for found in media:
        assert found.places == [(0, 0), (0, 1), (0, 2)]
    for seconds, places in ((0, [0, 1, 2]), (2, [1, 2]), (6, [2])):
        net.run(seconds)
        for datagrams in (False, True):
            late = QuicrApp(net, relay).subscribe("demo/t", Intent.CATCH_UP, datagrams=datagrams)
            net.run(0.1)
            assert late.places == [(0, number) for number in places]
            late.app.leave()
        fetcher = net.app(relay, DRAFT16)
        fetcher.fetch("demo/t", (0, 0), (0, 3))
        net.run(0.1)
        assert fetcher.fetched.places == [(0, number) for number in places]
        fetcher.leave()
        net.run(0.9)
    for other in net.relays.values():
        for track in other.tracks:
            for group in track.cached.groups.values():
                assert set(group.objects(net.now)) == {2}
                assert set(group.until) == set()
            assert track.properties.delivery_timeout_ms is None
            assert track.properties.max_cache_ms is None
    check_empty(net)


def test_what_is_left_of_it_shrinks_on_the_way() -> None:
    net, pub, sub = stage()
    post = pub.publish("demo/t", datagrams=True)
    first, *rest = cut(0, 0, bytes(3000), 1000)
    post.datagram(first, Terms(best_before_ms=5000))
    net.run(2)
    late = sub.subscribe("demo/t", Intent.CATCH_UP, datagrams=True)
    net.run(1)
    for fragment in rest:
        post.datagram(fragment, Terms(best_before_ms=5000))
    assert late.places == [(0, 0)]
    left = [datagram.terms.best_before_ms for datagram in late.datagrams]
    assert left == [3000, 2000, 2000]
    net.run(0.5)
    later = QuicrApp(net, sub.edge.relay).subscribe("demo/t", Intent.CATCH_UP, datagrams=True)
    assert {datagram.terms.best_before_ms for datagram in later.datagrams} == {1500}
    assert later.places == [(0, 0)]
    check_empty(net)


@pytest.mark.parametrize("relays", [1, 3])
def test_terms_of_what_is_kept_are_those_of_before(relays: int) -> None:
    net, pub, sub = stage(relays)
    early = QuicrApp(net, sub.edge.relay).subscribe("demo/t", datagrams=True)
    post = pub.publish("demo/t", datagrams=True)
    net.run(0.1)
    post.datagrams(0, 0, b"x" * 2500, best_before_ms=7000, priority=2, discardable=True)
    post.datagrams(0, 1, b"y" * 2500, best_before_ms=7000, priority=2)
    assert early.places == [(0, 0), (0, 1)]
    net.run(1)
    late = sub.subscribe("demo/t", Intent.CATCH_UP, datagrams=True)
    net.run(0.1)
    assert late.places == [(0, 0), (0, 1)]
    terms = {(d.fragment.object_id, d.terms.discardable, d.terms.priority) for d in late.datagrams}
    assert terms == {(0, True, 2), (1, False, 2)}
    assert all(5000 < datagram.terms.best_before_ms <= 6000 for datagram in late.datagrams)


def test_terms_are_passed_on() -> None:
    net, pub, sub = stage(3)
    media = sub.subscribe("demo/t", datagrams=True)
    post = pub.publish("demo/t", datagrams=True)
    net.run(0.1)
    post.datagrams(0, 0, b"x" * 2500, best_before_ms=700, priority=2, discardable=True)
    post.datagrams(1, 0, b"y", objects_before=1)
    assert [d.terms for d in media.datagrams[:3]] == [Terms(700, 2, True, 0)] * 3
    assert media.datagrams[3].terms == Terms(0, 4, False, 1)
    ranks = [rank for _, rank, _ in media.app.link.datagrams]
    assert ranks[0] > ranks[3]  # what may be discarded waits behind the rest
    ttls = [ttl_us for _, _, ttl_us in media.app.link.datagrams]
    assert ttls == [700_000] * 3 + [0]
    check_empty(net)


# -- slow readers ----------------------------------------------------------------------------------


def test_a_slow_reader_harms_nobody_and_goes_on_behind_what_it_missed() -> None:
    net, pub, slow = stage()
    fast = QuicrApp(net, slow.edge.relay).subscribe("demo/t")
    moqt = net.app(slow.edge.relay, DRAFT16)
    moqt.subscribe("demo/t", start_at(0))
    media = slow.subscribe("demo/t")
    slow.link.make_room(100_000)
    post = pub.publish("demo/t")
    (delivery,) = slow.client.subscriptions.values()
    size = 200_000
    for group in range(100):
        post.object(group, 0, bytes(size))
        post.object(group, 1, b"%d" % group)
        assert delivery.queue.size <= QUEUE_BYTES
        assert slow.link.written <= 100_000 + 70_000
    assert len(fast.objects) == 200
    assert len(moqt.places) == 200 + 99  # and the ends of groups
    written = slow.link.written
    net.run(10)
    assert slow.link.written == written
    slow.link.make_room(None)
    net.run(1)
    places = media.places
    assert places == sorted(set(places))
    assert places[-1] == (99, 1)
    assert 30 < len(places) < 150
    assert len(media.starts) == 1
    assert delivery.queue.size == 0
    assert slow.edge.quicr.media.dropped_objects == 200 - len(places)
    post.object(100, 0, b"again")
    assert media.objects[-1] == (100, 0, b"again")
    assert media.starts == media.starts[:1]
    check_empty(net)


def test_a_publisher_is_slowed_where_all_its_readers_are_slow() -> None:
    net, pub, slow = stage()
    media = slow.subscribe("demo/t")
    slow.link.make_room(1000)
    post = pub.publish("demo/t")
    for number in range(30):
        post.object(0, number, bytes(100_000))
    assert pub.link.is_paused()
    assert slow.edge.relay.pressure.waiting
    slow.link.make_room(None)
    assert not pub.link.is_paused()
    assert len(media.objects) == 30
    # With one that keeps up it goes on.
    slow.link.make_room(1000)
    QuicrApp(net, slow.edge.relay).subscribe("demo/t")
    for number in range(30, 60):
        post.object(0, number, bytes(100_000))
    assert not pub.link.is_paused()
    check_empty(net)


def test_a_publisher_does_not_wait_for_ever() -> None:
    net, pub, slow = stage()
    slow.subscribe("demo/t")
    slow.link.make_room(1000)
    post = pub.publish("demo/t")
    for number in range(30):
        post.object(0, number, bytes(100_000))
    assert pub.link.is_paused()
    net.run(1)
    assert not pub.link.is_paused()
    check_empty(net)


def test_a_slow_reader_of_what_came_before_is_given_it_as_it_reads() -> None:
    net, pub, slow = stage()
    post = pub.publish("demo/t")
    for group in range(20):
        post.object(group, 0, bytes(50_000))
    slow.link.make_room(1000)
    media = slow.subscribe("demo/t", Intent.CATCH_UP)
    (delivery,) = slow.client.subscriptions.values()
    for group in range(20, 40):
        post.object(group, 0, bytes(50_000))
        slow.link.make_room(60_000)
        assert delivery.queue.size < 30 * 51_000
    for _ in range(60):
        slow.link.make_room(60_000)
    net.run(1)
    assert media.places == [(group, 0) for group in range(40)]
    assert media.starts == []
    check_empty(net)


def test_datagrams_to_a_slow_reader_are_the_links_to_drop() -> None:
    net, pub, slow = stage()
    media = slow.subscribe("demo/t", datagrams=True)
    slow.link.datagram_room = 10
    post = pub.publish("demo/t")
    for number in range(30):
        post.object(0, number, bytes(1000))
    assert len(media.objects) == 30  # the link drops what waits too long, and this one does not
    assert pub.link.is_paused()
    slow.link.datagram_room = None
    slow.client.writable(net.now)
    assert not pub.link.is_paused()
    check_empty(net)


def test_a_moqt_publisher_of_large_objects_cannot_fill_a_queue() -> None:
    net, _, slow = stage()
    media = slow.subscribe("demo/t")
    slow.link.make_room(1000)
    pub = net.app(slow.edge.relay, DRAFT16)
    pub.fragments = 50_000
    alias = pub.publish("demo/t")
    (delivery,) = slow.client.subscriptions.values()
    pub.stream(alias, 0, Obj(0, bytes(QUEUE_BYTES + MB)), Obj(1, b"small"))
    assert delivery.queue.size <= QUEUE_BYTES
    slow.link.make_room(None)
    net.run(3)
    assert media.objects == [(0, 1, b"small")]
    assert media.starts == [Location(0, 1)]
    assert not pub.heard_of(RequestError)
    check_empty(net)


# -- what is left of a client ----------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_a_client_that_has_left_is_freed_without_the_collector(broken: bool) -> None:
    net, app, _ = stage()
    app.subscribe("demo/t")
    app.publish("demo/u").object(0, 0, b"x")
    net.run()
    if broken:
        app.say_messages(OPEN, *OUT_OF_RULE["a gap"])
    else:
        app.leave()
    net.run(400.0)  # timers of its subscription
    gc.collect()
    gc.disable()
    try:
        client = ref(app.client)
        del app.client
        assert client() is None
    finally:
        gc.enable()
