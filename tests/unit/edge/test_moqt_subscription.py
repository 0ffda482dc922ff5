"""What a subscription is given: from where on, in which order, and in which draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt_objects import EARLY_DATAGRAMS
from laps.types import Location
from laps.wire.moqt.codes import RequestCode, ResetCode, SessionCode
from laps.wire.moqt.data import ObjectStatus, SubgroupHeader
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.messages import (
    GroupOrder,
    PublishDone,
    RequestOk,
    SubscribeOk,
    TrackProperties,
    Unsubscribe,
)
from laps.wire.moqt.translate import decode_extensions
from support.moqt import stage
from support.moqt_streams import (
    DRAFTS,
    LARGEST,
    NEXT_GROUP,
    PAIRS,
    InStream,
    Obj,
    body,
    groups,
    objects_of,
    start_at,
)

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Filter, KeyValue
    from support.moqt import App

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
pairs = pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)

EXTENSIONS: list[KeyValue] = [(4, 9), (7, b"seven"), (0x40, 1)]


def extensions(dialect: Dialect) -> bytes:
    return encode_pairs(EXTENSIONS, delta=dialect is DRAFT16)


# -- where it begins and ends ----------------------------------------------------------------------

AT_1_1 = [
    (LARGEST, [(1, 2), (1, 3), (2, 0), (2, 1), (3, 0)]),
    (NEXT_GROUP, [(2, 0), (2, 1), (3, 0)]),
    (start_at(0), [(1, 2), (1, 3), (2, 0), (2, 1), (3, 0)]),
    (start_at(1, 3), [(1, 3), (2, 0), (2, 1), (3, 0)]),
    (start_at(2, 1), [(2, 1), (3, 0)]),
    (start_at(9), []),
    (groups(0, 2), [(1, 2), (1, 3), (2, 0), (2, 1)]),
    (groups(1, 1), [(1, 2), (1, 3)]),
    (groups(2, 2), [(2, 0), (2, 1)]),
    (groups(3, 5), [(3, 0)]),
]


@pairs
@pytest.mark.parametrize(("wanted", "places"), AT_1_1, ids=str)
@pytest.mark.parametrize("extended", [False, True], ids=["plain", "extensions"])
def test_a_subscription_begins_and_ends_where_its_filter_says(
    publisher: Dialect,
    subscriber: Dialect,
    wanted: Filter,
    places: list[tuple[int, int]],
    extended: bool,
) -> None:
    """The track is at group 1, object 1, in the middle of a stream."""
    _, pub, sub = stage(publisher, subscriber)
    raw = extensions(publisher) if extended else b""

    def items(*ids: int) -> list[Obj]:
        return [Obj(number, b"payload of %d" % number, raw) for number in ids]

    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *items(0, 1, 2), extensions=extended)
    stream = pub.open(alias, 1, *items(0, 1), extensions=extended)
    sub.subscribe("demo/t", wanted)
    assert sub.last(SubscribeOk).largest == Location(1, 1)
    stream.write(*items(2, 3), fin=True)
    pub.stream(alias, 2, *items(0, 1), extensions=extended)
    pub.stream(alias, 3, *items(0), extensions=extended)
    assert sub.places == places
    for received in sub.subgroups:
        assert received.finished
        for item in received.objects:
            assert item.payload == b"payload of %d" % item.object_id
            found = decode_extensions(item.extensions, subscriber)
            assert found == (EXTENSIONS if extended else [])


@both
def test_a_range_that_is_over_is_refused(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.stream(alias, 5, *objects_of(0))
    sub.subscribe("demo/t", groups(2, 4))
    assert sub.error == RequestCode.INVALID_RANGE
    # The session may ask again.
    sub.subscribe("demo/t", groups(2, 5))
    sub.last(SubscribeOk)


@both
@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (LARGEST, [(0, 0), (1, 0), (2, 0)]),
        (NEXT_GROUP, [(0, 0), (1, 0), (2, 0)]),
        (start_at(1), [(1, 0), (2, 0)]),
        (groups(0, 1), [(0, 0), (1, 0)]),
    ],
    ids=str,
)
def test_where_there_is_nothing_yet_it_begins_with_the_first(
    dialect: Dialect, wanted: Filter, places: list[tuple[int, int]]
) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t", wanted)
    assert sub.last(SubscribeOk).largest is None
    for group in range(3):
        pub.stream(alias, group, *objects_of(0))
    assert sub.places == places


@pairs
@pytest.mark.parametrize("extended", [False, True], ids=["plain", "extensions"])
@pytest.mark.parametrize("mode", [0, 3, None], ids=["zero", "explicit", "first object"])
def test_a_stream_is_joined_at_any_byte(
    publisher: Dialect, subscriber: Dialect, extended: bool, mode: int | None
) -> None:
    """Wherever the relay is in an object, what comes is whole and what its answer promised."""
    raw = extensions(publisher) if extended else b""
    items = [Obj(4, b"four", raw), Obj(5), Obj(8, b"eight", raw), Obj(70, b"seventy", raw)]
    data = body(items, extended)
    ends = [len(body(items[:count], extended)) for count in range(1, 5)]
    net, pub, _ = stage(publisher)
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 7, subgroup=mode, extensions=extended, priority=9)
    subs = []
    for cut in range(len(data)):
        subs.append(net.app(pub.edge.relay, subscriber))
        subs[-1].subscribe("demo/t")
        stream.write_bytes(data[cut : cut + 1])
    stream.finish()
    for cut, sub in enumerate(subs):
        largest = sub.last(SubscribeOk).largest
        whole = [item.id for item, end in zip(items, ends, strict=True) if end <= cut]
        first = -1 if largest is None else largest.object
        assert first >= max(whole, default=-1)
        (received,) = sub.subgroups
        assert received.finished
        header = received.header
        assert isinstance(header, SubgroupHeader)
        assert (header.group, header.priority) == (7, 9)
        found = [(item.object_id, item.payload, item.subgroup) for item in received.objects]
        subgroup = 4 if mode is None else mode
        assert found == [(item.id, item.payload, subgroup) for item in items if item.id > first]
        for item in received.objects:
            if item.payload:
                assert decode_extensions(item.extensions, subscriber) == EXTENSIONS * extended


@both
def test_all_streams_of_a_group_that_are_open_are_joined(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    low = pub.open(alias, 1, *objects_of(0, 2), subgroup=0)
    high = pub.open(alias, 1, *objects_of(1), subgroup=1)
    over = pub.open(alias, 1, *objects_of(3), subgroup=2)
    over.finish()
    late = pub.open(alias, 0, *objects_of(0), subgroup=0)
    sub.subscribe("demo/t")
    assert sub.last(SubscribeOk).largest == Location(1, 3)
    low.write(*objects_of(4, 6), fin=True)
    high.write(*objects_of(5))
    late.write(*objects_of(1), fin=True)  # behind the largest, it does not pass
    got = {stream.objects[0].subgroup: stream.places for stream in sub.subgroups if stream.objects}
    assert got == {0: [(1, 4), (1, 6)], 1: [(1, 5)]}
    pub.open(alias, 1, *objects_of(2, 7), subgroup=3, fin=True)
    assert sub.subgroups[-1].places == [(1, 7)]


@both
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_stream_may_come_in_pieces_of_any_size(dialect: Dialect, step: int) -> None:
    for subscriber in DRAFTS:
        _, pub, sub = stage(dialect, subscriber)
        alias = pub.publish("demo/t", alias=1000)
        pub.stream(alias, 1, *objects_of(0))
        sub.subscribe("demo/t")
        pub.fragments = step
        pub.stream(alias, 1, *objects_of(0, 1, 2), subgroup=5)
        pub.stream(alias, 2, Obj(3, b"x", extensions(dialect)), extensions=True, subgroup=None)
        assert sub.objects == [(1, 1, b"1"), (1, 2, b"2"), (2, 3, b"x")]
        assert [item.subgroup for s in sub.subgroups for item in s.objects] == [5, 5, 3]


# -- in the other draft ----------------------------------------------------------------------------


@pairs
def test_what_a_header_says_is_kept(publisher: Dialect, subscriber: Dialect) -> None:
    _, pub, sub = stage(publisher, subscriber)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    pub.stream(alias, 1, *objects_of(0), subgroup=3, priority=5, end_of_group=True)
    track_alias = sub.last(SubscribeOk).alias
    assert sub.subgroups[0].header == SubgroupHeader(track_alias, 1, 3, 5, False, True)


def test_the_priority_of_a_track_is_that_of_streams_that_name_none() -> None:
    for dialect in DRAFTS:
        _, pub, sub = stage(DRAFT16, dialect)
        alias = pub.publish("demo/t", properties=TrackProperties(priority=7))
        sub.subscribe("demo/t")
        pub.stream(alias, 1, *objects_of(0), priority=None)
        (received,) = sub.subgroups
        header = received.header
        assert isinstance(header, SubgroupHeader)
        assert header.priority in (7, None if dialect is DRAFT16 else 7)
        assert received.rank[:2] == (128, 7)


@pairs
def test_statuses_cross_between_drafts(publisher: Dialect, subscriber: Dialect) -> None:
    _, pub, sub = stage(publisher, subscriber)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    items = [Obj(0, b"a"), Obj(1), Obj(3, status=ObjectStatus.END_OF_GROUP)]
    pub.stream(alias, 0, *items)
    pub.stream(alias, 1, Obj(0, status=ObjectStatus.END_OF_TRACK))
    found = [(item.object_id, item.status) for s in sub.subgroups for item in s.objects]
    assert found == [(0, 0), (1, 0), (3, 3), (0, 4)]


@both
@pytest.mark.parametrize("mode", [0, None])
def test_objects_that_do_not_exist_are_left_out(dialect: Dialect, mode: int | None) -> None:
    """Draft 14 says so, and draft 16 has no word for it."""
    _, pub, sub = stage(DRAFT14, dialect)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    missing = ObjectStatus.DOES_NOT_EXIST
    pub.stream(alias, 0, Obj(1, status=missing), *objects_of(2, 3), subgroup=mode)
    (received,) = sub.subgroups
    subgroup = 1 if mode is None else mode
    assert [(item.object_id, item.subgroup) for item in received.objects if not item.status] == [
        (2, subgroup),
        (3, subgroup),
    ]


# -- datagrams -------------------------------------------------------------------------------------


@pairs
@pytest.mark.parametrize("relays", [1, 2])
def test_datagrams_of_every_kind(publisher: Dialect, subscriber: Dialect, relays: int) -> None:
    _, pub, sub = stage(publisher, subscriber, relays)
    alias = pub.publish("demo/t", alias=77)
    sub.subscribe("demo/t")
    raw = extensions(publisher)
    pub.datagram(alias, 0, 0, priority=1, payload=b"first")
    pub.datagram(alias, 0, 1, priority=1, payload=b"second", extensions=raw)
    pub.datagram(alias, 0, 2, priority=1, payload=b"third", end_of_group=True)
    pub.datagram(alias, 1, 0, priority=1, payload=b"")
    pub.datagram(alias, 1, 1, priority=1, status=ObjectStatus.END_OF_TRACK)
    found = sub.datagrams
    assert {item.alias for item in found} == {sub.heard_of(SubscribeOk)[0].alias}
    got = [(i.group, i.object_id, bytes(i.payload), i.status, i.end_of_group) for i in found]
    assert got == [
        (0, 0, b"first", None, False),
        (0, 1, b"second", None, False),
        (0, 2, b"third", None, True),
        (1, 0, b"", None, False),
        (1, 1, b"", 4, False),
    ]
    assert decode_extensions(found[1].extensions, subscriber) == EXTENSIONS
    assert {item.priority for item in found} == {1}


@both
def test_a_datagram_has_the_priority_of_its_track_where_it_names_none(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t", properties=TrackProperties(priority=7, delivery_timeout_ms=5))
    sub.subscribe("demo/t", priority=3)
    pub.datagram(alias, 4, 2, payload=b"x")
    pub.datagram(alias, 4, 3, payload=b"x", priority=1)
    assert [item.priority for item in sub.datagrams] == [7, 1]
    assert [(rank, ttl_us) for _, rank, ttl_us in sub.link.datagrams] == [
        ((3, 7, 1, 0, 4, 2), 5000),
        ((3, 1, 1, 0, 4, 3), 5000),
    ]


@both
@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (LARGEST, [(1, 2), (2, 0)]),
        (NEXT_GROUP, [(2, 0)]),
        (start_at(1, 2), [(1, 2), (2, 0)]),
        (groups(1, 1), [(1, 0), (1, 2)]),  # it came late
    ],
    ids=str,
)
def test_datagrams_pass_the_filter_once(
    dialect: Dialect, wanted: Filter, places: list[tuple[int, int]]
) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    pub.datagram(alias, 1, 1, payload=b"x")
    sub.subscribe("demo/t", wanted)
    assert sub.last(SubscribeOk).largest == Location(1, 1)
    for _ in range(2):
        for group, object_id in ((1, 0), (1, 1), (1, 2), (2, 0)):
            pub.datagram(alias, group, object_id, payload=b"x")
    assert [(item.group, item.object_id) for item in sub.datagrams] == places


def test_datagrams_that_nobody_has_explained_are_dropped_and_counted() -> None:
    net, pub, _ = stage()
    for number in range(EARLY_DATAGRAMS + 2):
        pub.datagram(5, 0, number, payload=b"x")
    assert pub.edge.counters.unknown_datagrams == 2  # more than are held
    net.run(3.0)
    assert pub.edge.counters.unknown_datagrams == EARLY_DATAGRAMS + 2
    assert pub.closed is None
    early = net.app(pub.edge.relay, setup=False)
    early.datagram(5, 0, 0, payload=b"x")
    assert pub.edge.counters.unknown_datagrams == EARLY_DATAGRAMS + 3
    net.check_empty()


def test_datagrams_may_overtake_the_publish_that_explains_them() -> None:
    _, pub, sub = stage()
    sub.subscribe("demo/t")
    pub.datagram(7, 0, 0, payload=b"early")
    pub.datagram(8, 0, 0, payload=b"of another")
    pub.publish("demo/t", alias=7)
    assert [item.payload for item in sub.datagrams] == [b"early"]


# -- in which order --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("asked", "own", "place"),
    [
        (GroupOrder.PUBLISHERS, GroupOrder.ASCENDING, 6),
        (GroupOrder.PUBLISHERS, GroupOrder.DESCENDING, -6),
        (GroupOrder.ASCENDING, GroupOrder.DESCENDING, 6),
        (GroupOrder.DESCENDING, GroupOrder.ASCENDING, -6),
    ],
)
def test_a_rank_is_what_both_sides_want(
    dialect: Dialect, asked: GroupOrder, own: GroupOrder, place: int
) -> None:
    _, pub, sub = stage(dialect, dialect)
    alias = pub.publish("demo/t", properties=TrackProperties(order=own))
    sub.subscribe("demo/t", priority=3, order=asked)
    pub.stream(alias, 6, *objects_of(0), subgroup=9, priority=17)
    pub.stream(alias, 6, *objects_of(11), subgroup=None, priority=17)
    assert [stream.rank for stream in sub.streams] == [
        (3, 17, 1, 0, place, 9),
        (3, 17, 1, 0, place, 11),
    ]


@both
@pytest.mark.parametrize(
    ("mine", "own", "ttl_ms"), [(None, None, 0), (5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7)]
)
def test_the_shorter_timeout_counts(
    dialect: Dialect, mine: int | None, own: int | None, ttl_ms: int
) -> None:
    _, pub, sub = stage(dialect, dialect)
    alias = pub.publish("demo/t", properties=TrackProperties(delivery_timeout_ms=own))
    stream = pub.open(alias, 0, *objects_of(0))
    sub.subscribe("demo/t", delivery_timeout_ms=mine)
    stream.write(*objects_of(1))  # joined in the middle
    pub.stream(alias, 1, *objects_of(0))
    assert [s.ttl_us for s in sub.streams] == [ttl_ms * 1000] * 2


# -- updates ---------------------------------------------------------------------------------------


@both
def test_an_update_changes_the_priority_and_is_answered_in_draft_16(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t", start_at(0))
    pub.stream(alias, 0, *objects_of(0, 1))
    sub.heard.clear()
    sub.update(request_id, priority=9, delivery_timeout_ms=4)
    pub.stream(alias, 1, *objects_of(0))
    assert [stream.rank[0] for stream in sub.streams] == [9, 9]  # also what still waits
    assert [stream.ttl_us for stream in sub.streams] == [0, 4000]
    if dialect is DRAFT16:
        assert sub.last(RequestOk).largest == Location(0, 1)
    else:
        assert sub.heard == []


@both
@pytest.mark.parametrize("at_first", [False, True])
def test_forwarding_stops_and_goes_on(dialect: Dialect, at_first: bool) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t", forward=at_first)
    stream = pub.open(alias, 0, *objects_of(0))
    if at_first:
        sub.update(request_id, forward=False)
        # An object was left out: the stream cannot end as if it were whole.
        assert [s.reset_code for s in sub.streams] == [ResetCode.CANCELLED]
    sent = sub.places
    stream.write(*objects_of(1))
    pub.stream(alias, 1, *objects_of(0))
    pub.datagram(alias, 1, 7, payload=b"x")
    assert sub.places == sent
    assert sub.datagrams == []
    sub.update(request_id, forward=True)
    stream.write(*objects_of(2), fin=True)
    pub.stream(alias, 2, *objects_of(0))
    assert sub.places[len(sent) :] == [(0, 2), (2, 0)]


@both
def test_what_is_outside_of_a_narrower_range_is_given_up(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t", start_at(0))
    streams = [pub.open(alias, group, *objects_of(0)) for group in range(4)]
    sub.update(request_id, filter=groups(1, 2))
    for stream in streams:
        stream.write(*objects_of(1), fin=True)
    pub.stream(alias, 5, *objects_of(0))
    outcome = [(s.places, s.finished, s.reset_code) for s in sub.subgroups]
    assert outcome == [
        ([(0, 0)], False, ResetCode.CANCELLED),
        ([(1, 0), (1, 1)], True, None),
        ([(2, 0), (2, 1)], True, None),
        ([(3, 0)], False, ResetCode.CANCELLED),
    ]


@both
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (start_at(5), start_at(4)),
        (groups(5, 8), groups(5, 9)),
        (groups(5, 8), start_at(5)),
        (groups(5, 8), groups(3, 8)),
    ],
    ids=str,
)
def test_only_draft_16_widens_a_subscription(dialect: Dialect, first: Filter, then: Filter) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t", first)
    sub.update(request_id, filter=then)
    if dialect is DRAFT14:
        assert sub.closed is not None
        assert sub.closed[0] == SessionCode.PROTOCOL_VIOLATION
        return
    sub.last(RequestOk)
    for group in range(12):
        pub.stream(alias, group, *objects_of(0))
    last = 11 if then.end_group is None else then.end_group
    assert sub.places == [(group, 0) for group in range(then.start.group, last + 1)]


def test_an_update_may_be_relative_in_draft_16() -> None:
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t", groups(0, 0))
    pub.stream(alias, 4, *objects_of(0))
    sub.update(request_id, filter=NEXT_GROUP)
    pub.stream(alias, 4, *objects_of(1), subgroup=1)
    pub.stream(alias, 5, *objects_of(0))
    sub.update(request_id, filter=LARGEST)
    pub.stream(alias, 5, *objects_of(1), subgroup=1)
    assert [place for place in sub.places if place] == [(5, 0), (5, 1)]


# -- how it ends -----------------------------------------------------------------------------------


@both
def test_who_unsubscribes_gets_no_more(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    alias = pub.publish("demo/t")
    request_id = sub.subscribe("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    pub.stream(alias, 1, *objects_of(0))
    sub.say(Unsubscribe(request_id))
    stream.write(*objects_of(1))
    pub.stream(alias, 2, *objects_of(0))
    assert [s.reset_code for s in sub.subgroups] == [ResetCode.CANCELLED, None]
    assert sub.places == [(0, 0), (1, 0)]
    assert sub.heard_of(PublishDone) == []
    # It may come back, and goes on where the track is.
    sub.subscribe("demo/t")
    assert sub.last(SubscribeOk).largest == Location(2, 0)
    net.check_empty()


def test_a_stream_that_the_subscriber_stops_leaves_the_others_alone() -> None:
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    one, two = pub.open(alias, 0, *objects_of(0)), pub.open(alias, 1, *objects_of(0))
    sub.streams[0].stopped = True
    one.write(*objects_of(1), fin=True)
    two.write(*objects_of(1), fin=True)
    assert sub.streams[0].places == [(0, 0)]
    assert sub.streams[1].places == [(1, 0), (1, 1)]


@both
def test_a_reset_is_passed_on_with_its_code(dialect: Dialect) -> None:
    _, pub, sub = stage(dialect, DRAFT16)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    stream.reset(ResetCode.DELIVERY_TIMEOUT)
    assert [s.reset_code for s in sub.streams] == [ResetCode.DELIVERY_TIMEOUT]


def test_objects_that_break_the_protocol_reset_the_stream_where_they_are_looked_at() -> None:
    """The publisher's mistake is not one of the subscriber's session."""
    _, pub, sub = stage(DRAFT16, DRAFT14)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t", start_at(0, 1))
    stream = pub.open(alias, 0, extensions=True)
    stream.write_bytes(body([Obj(0, b"x")], True) + b"\x00\x00\x00\x07")
    assert [s.reset_code for s in sub.streams] == [ResetCode.MALFORMED_TRACK]
    assert sub.closed is None


def test_streams_are_counted_for_the_end_unless_some_were_dropped() -> None:
    for dropped in (0, 1):
        _, pub, sub = stage()
        alias = pub.publish("demo/t")
        sub.subscribe("demo/t")
        for group in range(3):
            pub.stream(alias, group, *objects_of(0))
        sub.link.dropped_streams += dropped
        pub.done(0, 2, 3)
        done = sub.last(PublishDone)
        assert (done.code, done.stream_count) == (2, (1 << 62) - 1 if dropped else 3)
        check_forgotten(sub)


def test_streams_that_wait_to_be_sent_are_not_looked_at_for_each_that_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one object on each stream a connection that is not read holds thousands of them."""
    looks = 0

    class Waits:
        def __get__(self, *_: object) -> bool:
            nonlocal looks
            looks += 1
            return True

        def __set__(self, *_: object) -> None: ...

    monkeypatch.setattr(InStream, "waits", Waits())
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    for group in range(1000):
        pub.stream(alias, group, *objects_of(0))
    assert len(sub.streams) == 1000
    assert looks <= 3 * len(sub.streams)


def check_forgotten(app: App) -> None:
    assert app.client.subscriptions == app.client._by_request == {}
    assert app.client.session.incoming == {}
