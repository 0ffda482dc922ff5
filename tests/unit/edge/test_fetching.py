"""FETCH: from the cache where it can be, and from a publisher where it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.types import Location
from laps.wire.moqt.codes import RequestCode, SessionCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    GroupOrder,
    RequestError,
    Subscribe,
    SubscribeOk,
    TrackProperties,
    Unsubscribe,
)
from laps.wire.moqt.tolerance import Tolerance
from laps.wire.moqt.translate import decode_extensions
from support.fetching import errands, fetched, fill, whole
from support.moqt import MoqtNet, stage
from support.moqt_streams import (
    DRAFTS,
    NEXT_GROUP,
    PAIRS,
    Obj,
    groups,
    objects_of,
    start_at,
)

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
pairs = pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])


# -- from the cache --------------------------------------------------------------------------------


@pairs
@pytest.mark.parametrize(
    ("start", "end", "places", "said"),
    [
        ((0, 0), (2, 0), whole(0, 2), (2, 0)),
        ((1, 0), (1, 0), whole(1, 1), (1, 0)),
        ((0, 1), (1, 2), [(0, 1), (0, 2), (1, 0), (1, 1)], (1, 2)),
        ((1, 2), (2, 1), [(1, 2), (2, 0)], (2, 1)),
        ((1, 1), (1, 2), [(1, 1)], (1, 2)),
        ((2, 0), (9, 0), whole(2, 3), (3, 3)),
        ((3, 2), (3, 3), [(3, 2)], (3, 3)),
    ],
)
def test_a_range_from_the_cache(
    publisher: Dialect,
    subscriber: Dialect,
    start: tuple[int, int],
    end: tuple[int, int],
    places: list[tuple[int, int]],
    said: tuple[int, int],
) -> None:
    net, pub, sub = stage(publisher, subscriber)
    fill(pub, 0, 1, 2, 3)
    sub.fetch("demo/t", start, end, priority=9)
    ok = sub.last(FetchOk)
    assert ok.end == Location(*said)
    assert not ok.end_of_track
    received = sub.fetched
    assert received.finished
    assert received.places == places
    assert [item.payload for item in received.objects] == [b"%d" % number for _, number in places]
    assert received.rank[0] == 9
    assert pub.heard_of(Fetch) == []
    assert sub.edge.fetches.counters.from_cache == 1
    net.check_empty()


@both
@pytest.mark.parametrize("order", list(GroupOrder)[1:])
def test_groups_come_in_the_order_asked_for(dialect: Dialect, order: GroupOrder) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0, 1, 2)
    sub.fetch("demo/t", (0, 1), (2, 2), order=order)
    parts = [[(0, 1), (0, 2)], whole(1, 1), [(2, 0), (2, 1)]]
    if order is GroupOrder.DESCENDING:
        parts.reverse()
    assert sub.fetched.places == [place for part in parts for place in part]


def test_draft_14_may_leave_the_order_to_the_publisher() -> None:
    _, pub, sub = stage(DRAFT14, DRAFT14)
    alias = pub.publish("demo/t", properties=TrackProperties(order=GroupOrder.DESCENDING))
    for group in (0, 1):
        pub.stream(alias, group, *objects_of(0), end_of_group=True)
    sub.fetch("demo/t", (0, 0), (1, 0), order=GroupOrder.PUBLISHERS)
    assert sub.last(FetchOk).order is GroupOrder.DESCENDING
    assert sub.fetched.places == [(1, 0), (0, 0)]


@pairs
def test_objects_are_as_they_were_published(publisher: Dialect, subscriber: Dialect) -> None:
    _, pub, sub = stage(publisher, subscriber)
    pairs_: list[Any] = [(4, 9), (7, b"seven")]
    raw = encode_pairs(pairs_, delta=publisher is DRAFT16)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, Obj(0, b"a", raw), Obj(2), extensions=True, subgroup=5, priority=3)
    pub.datagram(alias, 0, 1, payload=b"b", priority=4)
    end = [Obj(3, status=ObjectStatus.END_OF_GROUP)]
    pub.stream(alias, 0, *end, subgroup=6, priority=3)
    sub.fetch("demo/t", (0, 0), (0, 0))
    found = sub.fetched.objects
    if subscriber is DRAFT14:
        assert (found[3].object_id, found[3].status) == (3, 3)
    # Draft 14 has no word for datagrams here: each has a subgroup of its own.
    as_datagram = 1 if subscriber is DRAFT14 else None
    assert [(i.object_id, i.subgroup, i.priority, i.payload) for i in found[:3]] == [
        (0, 5, 3, b"a"),
        (1, as_datagram, 4, b"b"),
        (2, 5, 3, b""),
    ]
    assert decode_extensions(found[0].extensions, subscriber) == pairs_


@both
def test_the_end_of_a_track_is_told(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0), Obj(1, status=ObjectStatus.END_OF_TRACK))
    sub.fetch("demo/t", (0, 0), (5, 0))
    assert sub.last(FetchOk).end_of_track


@both
@pytest.mark.parametrize(
    ("start", "end"), [((4, 0), (5, 0)), ((3, 3), (9, 0)), ((2, 0), (1, 0)), ((2, 2), (2, 1))]
)
def test_ranges_that_cannot_be(
    dialect: Dialect, start: tuple[int, int], end: tuple[int, int]
) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0, 1, 2, 3)
    sub.fetch("demo/t", start, end)
    assert sub.error == RequestCode.INVALID_RANGE
    assert sub.streams == []
    net.check_empty()


@both
@near_and_far
def test_a_track_that_nobody_knows(dialect: Dialect, relays: int) -> None:
    net, _, sub = stage(DRAFT16, dialect, relays)
    sub.fetch("demo/t", (0, 0), (1, 0))
    assert sub.error == RequestCode.DOES_NOT_EXIST
    net.check_empty()


def test_an_object_that_is_under_way_is_waited_for() -> None:
    """It is part of the largest location, and so of no subscription from there on."""
    for subscriber in DRAFTS:
        _, pub, sub = stage(DRAFT16, subscriber)
        alias = pub.publish("demo/t")
        stream = pub.open(alias, 0, *objects_of(0))
        stream.write_bytes(b"\x00\x05ab")
        request_id = sub.subscribe("demo/t")
        assert sub.last(SubscribeOk).largest == Location(0, 1)
        sub.join(request_id, 0)
        stream.write_bytes(b"cde")
        stream.write_bytes(b"\x00\x01x", fin=True)
        assert [(item.object_id, item.payload) for item in sub.fetched.objects] == [
            (0, b"0"),
            (1, b"abcde"),
        ]
        assert sub.fetched.finished
        assert sub.objects == [(0, 2, b"x")]


# -- joining ---------------------------------------------------------------------------------------


@pairs
@near_and_far
@pytest.mark.parametrize(
    ("back", "relative", "places"),
    [
        (0, True, [(3, 0), (3, 1)]),
        (1, True, [*whole(2, 2), (3, 0), (3, 1)]),
        (9, True, [*whole(0, 2), (3, 0), (3, 1)]),
        (1, False, [*whole(1, 2), (3, 0), (3, 1)]),
        (3, False, [(3, 0), (3, 1)]),
    ],
)
def test_a_fetch_joins_a_subscription(
    publisher: Dialect,
    subscriber: Dialect,
    relays: int,
    back: int,
    relative: bool,
    places: list[tuple[int, int]],
) -> None:
    """What came before and what comes is all there is, and each object once."""
    net, pub, sub = stage(publisher, subscriber, relays)
    alias = fill(pub, 0, 1, 2)
    stream = pub.open(alias, 3, *objects_of(0, 1))
    net.run(0.1)
    request_id = sub.subscribe("demo/t")
    net.run(0.1)
    stream.write(*objects_of(2))
    sub.join(request_id, back, relative=relative)
    stream.finish()
    net.run(0.1)
    assert sub.heard_of(FetchOk)[0].end == Location(3, 2)
    assert sub.fetched.places == places
    assert sub.fetched.finished
    assert sub.places == [(3, 2)]
    net.check_empty()


@both
def test_a_fetch_waits_for_the_subscription_that_it_joins(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    pub.publish_namespace("demo")
    request_id = sub.subscribe("demo/t")
    sub.join(request_id, 0)
    assert sub.heard_of(FetchOk) == []
    pub.accept(pub.last(Subscribe), (4, 1))
    (asked,) = pub.heard_of(Fetch)
    assert errands(pub) == [(Location(4, 0), Location(4, 2))]
    pub.answer_fetch(asked, (4, 2), *fetched((4, 0), (4, 1)))
    assert sub.heard_of(FetchOk)[0].end == Location(4, 2)
    assert sub.fetched.places == [(4, 0), (4, 1)]


@both
@pytest.mark.parametrize("how", ["refused", "unsubscribed", "empty", "cancelled"])
def test_a_subscription_that_is_joined_in_vain(dialect: Dialect, how: str) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    pub.publish_namespace("demo")
    request_id = sub.subscribe("demo/t")
    joining = sub.join(request_id, 0)
    asked = pub.last(Subscribe)
    match how:
        case "refused":
            pub.refuse(asked.request_id, RequestCode.UNAUTHORIZED)
        case "unsubscribed":
            sub.say(Unsubscribe(request_id))
        case "empty":
            pub.accept(asked)
        case "cancelled":
            sub.say(FetchCancel(joining))
            pub.accept(asked, (4, 1))
    errors = [m for m in sub.heard_of(RequestError) if m.request_id == joining]
    codes = [error.code for error in errors]
    assert codes == ([] if how == "cancelled" else [RequestCode.INVALID_RANGE])
    assert sub.heard_of(FetchOk) == []
    assert sub.streams == []
    assert sub.closed is None
    net.check_empty()


@both
def test_a_fetch_joins_nothing_that_is_no_subscription(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0)
    sub.join(100, 0)
    assert sub.error == RequestCode.INVALID_JOINING_REQUEST_ID
    request_id = sub.subscribe("demo/t")
    sub.say(Unsubscribe(request_id))
    sub.join(request_id, 0)
    assert sub.error == RequestCode.INVALID_JOINING_REQUEST_ID


@both
@pytest.mark.parametrize("wanted", [NEXT_GROUP, start_at(0), groups(0, 9)], ids=str)
def test_a_fetch_joins_subscriptions_from_the_largest_object_only(
    dialect: Dialect, wanted: Any
) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0)
    sub.join(sub.subscribe("demo/t", wanted), 0)
    assert sub.error == RequestCode.INVALID_JOINING_REQUEST_ID
    assert sub.closed is None
    (edge,) = net.edges.values()
    assert edge.counters.tolerated == {Tolerance.MISPLACED_JOIN: 1}


@both
def test_a_fetch_that_joins_another_subscription_is_closed_by_a_strict_relay(
    dialect: Dialect,
) -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    edge = net.edge(relay, session=MoqtLimits(strict=True))
    pub, sub = net.app(relay), net.app(relay, dialect)
    pub.publish("demo/t")
    sub.join(sub.subscribe("demo/t", start_at(0)), 0)
    assert sub.closed is not None
    assert sub.closed[0] == SessionCode.PROTOCOL_VIOLATION
    assert edge.counters.tolerated == {}


def test_an_absolute_start_is_not_past_the_largest() -> None:
    _, pub, sub = stage()
    fill(pub, 0)
    sub.join(sub.subscribe("demo/t"), 1, relative=False)
    assert sub.error == RequestCode.INVALID_RANGE


def test_a_fetch_is_as_urgent_as_the_track_and_its_priority_can_be_changed() -> None:
    net, pub, sub = stage()
    alias = pub.publish("demo/t", properties=TrackProperties(priority=7))
    pub.stream(alias, 0, *objects_of(0, 1))
    sub.link.room = 1
    request_id = sub.fetch("demo/t", (0, 0), (0, 2), priority=9)
    assert sub.fetched.rank == (9, 7, 1, request_id, 0, 0)
    sub.update(request_id, priority=3)
    net.run(0.1)
    assert sub.fetched.rank == (3, 7, 1, request_id, 0, 0)
