"""FETCH of what is not here: asked for once, given up, cancelled, and kept for a while."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from laps.edge import fetching
from laps.relay.roles import Role
from laps.sessions.moqt import MoqtLimits
from laps.tracks import upstream_fetch
from laps.tracks.sinks import Nowhere
from laps.tracks.streams import SOURCE_LOST
from laps.types import Location
from laps.wire.extensions import RelayResponse
from laps.wire.moqt.codes import RequestCode, ResetCode
from laps.wire.moqt.dialect import BETWEEN_RELAYS, DRAFT14, DRAFT16
from laps.wire.moqt.fetch import EndOfRange, FetchWriter
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    RequestError,
    StandaloneFetch,
    Subscribe,
    SubscribeOk,
    TrackProperties,
)
from laps.wire.moqt.objects import Object
from laps.wire.moqt.tolerance import Tolerance
from support.fetching import errands, fetched, fill, whole
from support.moqt import MoqtNet, stage
from support.moqt_streams import DRAFTS, LARGEST, PAIRS, Obj, objects_of
from support.relays import App as Plain
from support.relays import track_name

if TYPE_CHECKING:
    from laps.types import NodeId
    from laps.wire.extensions import Travelling
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
pairs = pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)
near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])


# -- from a publisher ------------------------------------------------------------------------------


@pairs
@near_and_far
def test_what_is_not_here_is_asked_for(
    publisher: Dialect, subscriber: Dialect, relays: int
) -> None:
    net, pub, sub = stage(publisher, subscriber, relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.fetch("demo/t", (3, 0), (5, 0))
    net.run(0.1)
    assert sub.heard_of(FetchOk) == []
    (asked,) = pub.heard_of(Fetch)
    assert errands(pub) == [(Location(3, 0), Location(5, 0))]
    net.run(1.5)  # the relays may forget what nobody wants, and this is wanted
    items = fetched((3, 0), (3, 1), (5, 0), subgroup=4)
    pub.answer_fetch(asked, (5, 0), *items)
    net.run(0.1)
    assert sub.last(FetchOk).end.group == 5
    assert sub.fetched.finished
    assert sub.fetched.places == [(3, 0), (3, 1), (5, 0)]
    assert [item.payload for item in sub.fetched.objects] == [b"3.0", b"3.1", b"5.0"]
    # It is known from now on, and so is what was not there.
    again = net.app(sub.edge.relay, subscriber)
    again.fetch("demo/t", (3, 0), (4, 0))
    assert again.fetched.places == [(3, 0), (3, 1)]
    assert len(pub.heard_of(Fetch)) == 1
    net.check_empty()


def test_a_publisher_is_asked_once_for_all_who_want_it() -> None:
    net, pub, sub = stage()
    others = [net.app(sub.edge.relay, dialect) for dialect in DRAFTS]
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (5, 0))
    others[0].fetch("demo/t", (0, 0), (5, 0))
    others[1].fetch("demo/t", (1, 0), (2, 1))
    (asked,) = pub.heard_of(Fetch)
    assert sub.edge.fetches.counters.shared == 2
    pub.answer_fetch(asked, (5, 0), *fetched(*whole(0, 5)))
    assert sub.fetched.places == others[0].fetched.places == whole(0, 5)
    assert others[1].fetched.places == [*whole(1, 1), (2, 0)]


@both
def test_only_what_is_missing_is_asked_for(dialect: Dialect) -> None:
    _, pub, sub = stage(DRAFT16, dialect)
    fill(pub, 0, 1, 4, 5)
    sub.fetch("demo/t", (0, 0), (5, 0))
    assert errands(pub) == [(Location(2, 0), Location(3, 0))]
    pub.answer_fetch(pub.last(Fetch), (3, 0), *fetched((2, 1)))
    assert sub.fetched.places == [*whole(0, 1), (2, 1), *whole(4, 5)]
    assert sub.last(FetchOk).end.group == 5


def test_the_beginning_of_a_group_that_was_joined_in_the_middle() -> None:
    _, pub, sub = stage()
    pub.publish_namespace("demo")
    request_id = sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe), (7, 3))
    pub.stream(alias, 7, *objects_of(4, 5), end_of_group=True)
    pub.stream(alias, 8, *objects_of(0), end_of_group=True)
    sub.join(request_id, 0)
    assert errands(pub) == [(Location(7, 0), Location(7, 4))]
    pub.answer_fetch(pub.last(Fetch), (7, 4), *fetched((7, 0), (7, 2), (7, 3)))
    assert sub.fetched.places == [(7, 0), (7, 2), (7, 3)]
    assert sub.fetched.items == sub.fetched.objects  # nothing is unknown


def test_an_object_that_is_missing_between_others_is_asked_for() -> None:
    """Its stream may have been lost on the way."""
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0, 1))
    pub.stream(alias, 0, *objects_of(2, 4), subgroup=1, end_of_group=True)
    pub.stream(alias, 1, *objects_of(0))
    sub.fetch("demo/t", (0, 0), (0, 0))
    assert errands(pub) == [(Location(0, 3), Location(0, 4))]


@pytest.mark.parametrize("whole_group", [False, True])
def test_what_a_whole_group_has_does_not_make_it_the_largest(whole_group: bool) -> None:
    """An answer may name the whole of a group, which says nothing of its last object."""
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (2, 0))
    end = (2, 0) if whole_group else (2, 2)
    pub.answer_fetch(pub.last(Fetch), end, *fetched((0, 0), (2, 0), (2, 1)))
    assert sub.last(FetchOk).end == Location(2, 2)
    later = net.app(sub.edge.relay)
    later.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe), (2, 1))
    assert later.last(SubscribeOk).largest == Location(2, 1)
    pub.stream(alias, 2, *objects_of(2))
    assert later.places == [(2, 2)]


def test_a_group_that_was_still_growing_is_asked_for_again() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (2, 0))
    pub.answer_fetch(pub.last(Fetch), (2, 1), *fetched((2, 0)))
    later = net.app(sub.edge.relay)
    later.fetch("demo/t", (0, 0), (2, 0))
    assert len(pub.heard_of(Fetch)) == 2
    pub.answer_fetch(pub.last(Fetch), (2, 0), *fetched((2, 1)))
    assert later.fetched.places == [(2, 0), (2, 1)]


def test_a_group_that_grew_unseen_is_asked_for_again() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (2, 0))
    pub.answer_fetch(pub.last(Fetch), (2, 1), *fetched((2, 0)))
    later = net.app(sub.edge.relay)
    request_id = later.subscribe("demo/t")
    pub.accept(pub.last(Subscribe), (2, 2))
    later.join(request_id, 0)
    assert errands(pub)[1:] == [(Location(2, 1), Location(2, 3))]
    pub.answer_fetch(pub.last(Fetch), (2, 3), *fetched((2, 1), (2, 2)))
    assert later.fetched.places == [(2, 0), (2, 1), (2, 2)]


@both
def test_what_the_publisher_does_not_know_is_not_known_here(dialect: Dialect) -> None:
    net, pub, _ = stage()
    pub.publish_namespace("demo")
    first, last = fetched((0, 0), (0, 6))
    for asked in (1, 2):
        sub = net.app(pub.edge.relay, dialect)
        sub.fetch("demo/t", (0, 0), (0, 7))
        assert len(pub.heard_of(Fetch)) == asked
        pub.answer_fetch(pub.last(Fetch), (0, 7), first, EndOfRange(0, 5, unknown=True), last)
        if dialect is DRAFT16:
            marks = [item for item in sub.fetched.items if isinstance(item, EndOfRange)]
            assert sub.fetched.places == [(0, 0), (0, 6)]
            assert marks == [EndOfRange(0, 5, unknown=True)]
        else:
            sub.last(RequestError)


# -- in vain ---------------------------------------------------------------------------------------


def fails(net: MoqtNet, pub: App, asked: Fetch, how: str) -> None:
    match how:
        case "refused":
            pub.refuse(asked.request_id, RequestCode.NOT_SUPPORTED)
        case "gone":
            pub.leave()
        case "gone in the middle":
            pub.answer_fetch(asked, (1, 0), *fetched((0, 0)), fin=False)
            pub.leave()
        case "reset":
            pub.answer_fetch(asked, (1, 0), *fetched((0, 0)), fin=False).reset(0)
        case "silent":
            net.run(11.0)


WAYS = ["refused", "gone", "gone in the middle", "reset", "silent"]


@both
@pytest.mark.parametrize("how", WAYS)
def test_a_publisher_that_fails_and_nothing_is_known(dialect: Dialect, how: str) -> None:
    net, pub, sub = stage(dialect)
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (1, 0))
    fails(net, pub, pub.last(Fetch), how)
    if how in ("gone in the middle", "reset"):
        # What came was sent on at once; of the rest nothing is known.
        assert sub.last(FetchOk).end == Location(1, 0)
        assert sub.fetched.places == [(0, 0)]
        assert is_unknown(sub.fetched.items[-1])
        assert sub.fetched.finished
    else:
        assert sub.error == RequestCode.DOES_NOT_EXIST
    if how in ("reset", "silent"):
        assert pub.closed is None
    net.check_empty()


@pytest.mark.parametrize("how", WAYS)
def test_what_nobody_knows_is_marked_in_draft_16(how: str) -> None:
    net, pub, sub = stage()
    alias = fill(pub, 1, 2, 4)
    pub.stream(alias, 5, *objects_of(0, 3), end_of_group=True)
    sub.fetch("demo/t", (0, 0), (9, 0))
    fails(net, pub, pub.last(Fetch), how)
    assert sub.last(FetchOk).end == Location(5, 4)
    known = [(0, 0)] if "middle" in how or how == "reset" else []
    marks = [(item.group, item.object_id) for item in sub.fetched.items if is_unknown(item)]
    assert sub.fetched.places == [*known, *whole(1, 2), *whole(4, 4), (5, 0), (5, 3)]
    assert [group for group, _ in marks] == [0, 3, 5]
    assert marks[2] == (5, 2)
    assert sub.fetched.finished


def is_unknown(item: Object | EndOfRange) -> bool:
    return isinstance(item, EndOfRange) and item.unknown


def test_an_unknown_end_is_marked_up_to_the_end() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe), (6, 4))
    pub.stream(alias, 2, *objects_of(0), end_of_group=True)
    sub.fetch("demo/t", (2, 0), (9, 0))
    fails(net, pub, pub.last(Fetch), "refused")
    ok = sub.last(FetchOk)
    assert ok.end == Location(6, 5)
    items = sub.fetched.items
    assert items[-1] == EndOfRange(6, 4, unknown=True)


@pytest.mark.parametrize("how", WAYS)
def test_draft_14_cannot_say_that_something_is_unknown_and_says_nothing_false(how: str) -> None:
    net, pub, sub = stage(DRAFT16, DRAFT14)
    fill(pub, 1, 2, 4)
    sub.fetch("demo/t", (0, 0), (9, 0))
    fails(net, pub, pub.last(Fetch), how)
    assert sub.closed is None
    if how in ("gone in the middle", "reset"):
        assert sub.fetched.reset_code is not None  # what came was sent on; that it is all, is not
    else:
        assert sub.heard_of(FetchOk) == []
        assert sub.error == RequestCode.UNKNOWN_STATUS_IN_RANGE
    assert not any(stream.finished for stream in sub.streams)
    net.check_empty()


@pytest.mark.parametrize("fin", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00 00 00 80 00 02 6869"),  # an object without the flags of draft 16
        bytes.fromhex("ff ff ff ff ff ff ff ff"),
    ],
)
def test_a_fetch_that_cannot_be_read_fails_alone(data: bytes, fin: bool) -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (1, 0))
    stream = pub.answer_fetch(pub.last(Fetch), (1, 0), fin=False)
    stream.write_bytes(data, fin=fin)
    assert pub.closed is None
    assert sub.error == RequestCode.DOES_NOT_EXIST
    (edge,) = net.edges.values()
    assert edge.counters.tolerated == {Tolerance.UNREADABLE_FETCH: 1}
    alias = pub.publish("demo/t")  # the publisher goes on as if nothing had been
    sub.subscribe("demo/t")
    pub.stream(alias, 1, Obj(0, b"live"))
    assert sub.objects == [(1, 0, b"live")]
    net.check_empty()


def test_a_fetch_that_brings_what_nobody_asked_for_says_nothing_of_it() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (1, 0))
    pub.answer_fetch(pub.last(Fetch), (1, 0), *fetched((0, 0), (1, 0), (7, 0)))
    assert sub.fetched.places == [(0, 0), (1, 0)]
    late = net.app(sub.edge.relay)
    late.fetch("demo/t", (5, 0), (9, 0))
    assert errands(pub)[-1] == (Location(5, 0), Location(9, 0))  # it is not known to exist
    pub.say(RequestError(pub.last(Fetch).request_id, RequestCode.INVALID_RANGE, "no"))
    net.check_empty()


def test_a_fetch_that_cannot_be_read_from_somewhere_on_is_not_all() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (1, 0))
    stream = pub.answer_fetch(pub.last(Fetch), (1, 0), *fetched((0, 0)), fin=False)
    stream.write_bytes(bytes.fromhex("ff ff ff ff ff ff ff ff"))
    assert pub.closed is None
    assert sub.fetched.places == [(0, 0)]
    assert is_unknown(sub.fetched.items[-1])
    net.check_empty()


def test_a_fetch_that_cannot_be_read_closes_the_publisher_of_a_strict_relay() -> None:
    net = MoqtNet()
    relay = net.relay("1:1")
    net.edge(relay, session=MoqtLimits(strict=True))
    pub, sub = net.app(relay), net.app(relay)
    pub.publish_namespace("demo")
    sub.fetch("demo/t", (0, 0), (1, 0))
    stream = pub.answer_fetch(pub.last(Fetch), (1, 0), fin=False)
    stream.write_bytes(b"\x00\x00")
    assert pub.closed is not None
    assert sub.error == RequestCode.DOES_NOT_EXIST
    net.check_empty()


def test_an_answer_that_nobody_asked_for_is_stopped() -> None:
    net, pub, _ = stage()
    asked = Fetch(77, StandaloneFetch(track_name("demo/t"), Location(0, 0), Location(1, 0)))
    stream = pub.answer_fetch(asked, (1, 0), *fetched((0, 0)), fin=False, ok=False)
    stream.write_bytes(b"\xff\xff")
    assert [stream_id for stream_id, _ in pub.link.stopped] == [stream.id]
    assert pub.closed is None
    stream.reset(0)
    net.check_empty()


# -- no longer wanted ------------------------------------------------------------------------------


@pytest.fixture
def _object_by_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are written one by one, so that little of them is a middle."""
    monkeypatch.setattr(fetching, "PORTION_BYTES", 1)


@pytest.mark.usefixtures("_object_by_object")
@both
def test_a_fetch_is_cancelled_in_the_middle(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    fill(pub, *range(20))
    sub.link.room = 10
    request_id = sub.fetch("demo/t", (0, 0), (19, 0))
    assert not sub.fetched.finished
    sub.say(FetchCancel(request_id))
    assert sub.fetched.reset_code == ResetCode.CANCELLED
    sub.link.make_room(None)
    assert len(sub.streams) == 1
    net.check_empty()


@both
@pytest.mark.parametrize("leaves", [False, True])
def test_a_fetch_is_cancelled_while_its_publisher_is_asked(dialect: Dialect, leaves: bool) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    other = net.app(sub.edge.relay)
    pub.publish_namespace("demo")
    request_id = sub.fetch("demo/t", (0, 0), (1, 0))
    other.fetch("demo/t", (0, 0), (1, 0))
    if leaves:
        sub.leave()
    else:
        sub.say(FetchCancel(request_id))
    pub.answer_fetch(pub.last(Fetch), (1, 0), *fetched((0, 0)))
    assert sub.heard_of(FetchOk) == []
    assert sub.streams == []
    assert other.fetched.places == [(0, 0)]
    assert sub.client.serving == {}
    net.check_empty()


# -- room ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_object_by_object")
@both
def test_a_slow_reader_is_given_it_in_portions(dialect: Dialect) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    fill(pub, *range(30))
    sub.link.room = 10
    sub.fetch("demo/t", (0, 0), (29, 0))
    sizes = [len(sub.fetched.data)]
    while not sub.fetched.finished:
        sub.link.make_room(50)
        sizes.append(len(sub.fetched.data))
    assert len(sizes) > 4
    assert max(after - before for before, after in pairwise(sizes)) < 70
    assert sub.fetched.places == whole(0, 29)
    net.check_empty()


@pytest.mark.usefixtures("_object_by_object")
@both
def test_what_is_dropped_while_a_slow_reader_waits_is_not_said_not_to_exist(
    dialect: Dialect,
) -> None:
    net, pub, sub = stage(DRAFT16, dialect)
    alias = fill(pub, *range(10))
    sub.link.room = 10
    sub.fetch("demo/t", (0, 0), (9, 0))
    assert not sub.fetched.finished
    net.run(70.0)  # the cache has forgotten them
    pub.stream(alias, 10, *objects_of(0))
    sub.link.make_room(None)
    received = sub.fetched
    if dialect is DRAFT16:
        assert received.reset_code is not None or any(map(is_unknown, received.items))
    else:
        assert received.reset_code is not None
    net.check_empty()


# -- how long it is known --------------------------------------------------------------------------


def test_what_has_expired_is_asked_for_again() -> None:
    net, pub, sub = stage()
    properties = TrackProperties(max_cache_ms=5000)
    alias = pub.publish("demo/t", properties=properties)
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(4.0)
    stream.write(*objects_of(1))
    net.run(2.0)
    sub.fetch("demo/t", (0, 0), (0, 2))
    assert errands(pub) == [(Location(0, 0), Location(0, 1))]
    pub.answer_fetch(pub.last(Fetch), (0, 1), *fetched((0, 0)))
    assert sub.fetched.places == [(0, 0), (0, 1)]
    assert not any(map(is_unknown, sub.fetched.items))


def test_what_was_fetched_of_a_long_group_is_as_young_as_its_fetch() -> None:
    net, pub, sub = stage()
    pub.publish_namespace("demo")
    sub.subscribe("demo/t")
    alias = pub.accept(pub.last(Subscribe), (0, 1))
    stream = pub.open(alias, 0, Obj(2, b"2"))
    net.run(100.0)
    stream.write(Obj(3, b"3"))
    for _ in range(2):
        app = net.app(sub.edge.relay)
        app.fetch("demo/t", (0, 0), (0, 4))
        if len(pub.heard_of(Fetch)) == 1 and not app.heard_of(FetchOk):
            pub.answer_fetch(pub.last(Fetch), (0, 3), *fetched((0, 0), (0, 1), (0, 2)))
        assert app.fetched.places == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert len(pub.heard_of(Fetch)) == 1
    pub.stream(alias, 1, *objects_of(0))  # the group that a track is in does not grow old
    net.run(61.0)
    later = net.app(sub.edge.relay)
    later.fetch("demo/t", (0, 0), (0, 4))
    assert len(pub.heard_of(Fetch)) == 2


def test_a_subscriber_without_moqt_does_not_stand_in_the_way() -> None:
    net, pub, sub = stage()
    plain = Plain()
    net.subscribe(sub.edge.relay, plain, "demo/t")
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0), end_of_group=True)
    sub.fetch("demo/t", (0, 0), (0, 0))
    assert sub.fetched.places == [(0, 0)]
    pub.leave()
    sub.fetch("demo/t", (0, 0), (0, 1))
    assert sub.closed is None


def test_objects_that_break_the_protocol_are_not_the_readers_fault() -> None:
    _, pub, sub = stage()
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    stream.write_bytes(b"\x00\x00\x07")
    sub.subscribe("demo/t", LARGEST)
    sub.fetch("demo/t", (0, 0), (0, 1))
    assert sub.closed is None
    assert sub.fetched.places == [(0, 0)]


# -- as it comes -----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("relays", [1, 2, 3])
def test_objects_are_sent_on_as_they_come_however_long_it_takes(
    relays: int, dialect: Dialect
) -> None:
    net, pub, sub = stage(DRAFT16, dialect, relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.fetch("demo/t", (0, 0), (14, 0))
    net.run(0.1)
    first, *others = fetched(*((group, 0) for group in range(15)))
    writer = FetchWriter(DRAFT16)
    writer.encode(first)
    stream = pub.answer_fetch(pub.last(Fetch), (14, 0), first, fin=False)
    net.run(0.1)
    for number, item in enumerate(others, 1):
        assert sub.last(FetchOk).end == Location(14, 0)
        assert len(sub.fetched.places) == number
        net.run(5.0)
        stream.write_bytes(writer.encode(item), fin=item is others[-1])
        net.run(0.1)
    assert sub.fetched.places == [(group, 0) for group in range(15)]
    assert sub.fetched.finished
    assert not any(map(is_unknown, sub.fetched.items))


@pytest.mark.parametrize("relays", [1, 2, 3])
def test_one_that_nobody_waits_for_any_more_is_cancelled_at_its_publisher(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    other = net.app(sub.edge.relay)
    requests = {app: app.fetch("demo/t", (0, 0), (1, 0)) for app in (sub, other)}
    net.run(0.1)
    pub.answer_fetch(pub.last(Fetch), (1, 0), *fetched((0, 0)), fin=False)
    net.run(0.1)
    sub.say(FetchCancel(requests[sub]))
    net.run(0.1)
    assert not pub.heard_of(FetchCancel)
    assert other.fetched.places == [(0, 0)]
    other.say(FetchCancel(requests[other]))
    net.run(0.1)
    assert [it.request_id for it in pub.heard_of(FetchCancel)] == [
        it.request_id for it in pub.heard_of(Fetch)
    ]
    net.check_empty()


@pytest.mark.parametrize("relays", [1, 2])
def test_more_than_is_held_passes_through_to_who_reads_it(
    relays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_fetch, "MAX_FETCH_BYTES", 40_000)
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.fetch("demo/t", (0, 0), (0, 200))
    net.run(0.1)
    items = [Object(0, 0, number, 128, payload=bytes(1000)) for number in range(200)]
    writer = FetchWriter(DRAFT16)
    writer.encode(items[0])
    stream = pub.answer_fetch(pub.last(Fetch), (0, 200), items[0], fin=False)
    for item in items[1:]:
        stream.write_bytes(writer.encode(item), fin=item is items[-1])
        net.run(0.01)
    assert len(sub.fetched.places) == 200
    assert sub.fetched.finished
    assert not any(map(is_unknown, sub.fetched.items))
    net.check_empty()


def test_an_object_that_has_stalled_is_not_waited_for_for_ever() -> None:
    net, pub, sub = stage()
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    stream.write_bytes(b"\x00\x05ab")
    sub.fetch("demo/t", (0, 0), (0, 2))
    net.run(5.0)
    stream.write_bytes(b"c")
    net.run(8.0)
    assert not sub.heard_of(FetchOk)
    net.run(3.0)
    if pub.heard_of(Fetch):  # its publisher is asked instead, and may not know either
        pub.refuse(pub.last(Fetch).request_id, RequestCode.INTERNAL_ERROR)
    net.run(0.1)
    assert sub.fetched.places == [(0, 0)]
    assert is_unknown(sub.fetched.items[-1])


class Ways:
    """A publisher and a reader at two Edges, with two Vias between them."""

    def __init__(self) -> None:
        self.net = MoqtNet()
        origin, edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.wires = []
        for number in (1, 2):
            via = self.net.relay(f"3:{number}", Role.VIA, reflect=True)
            pairs_ = ((origin, via), (via, edge))
            self.wires.append([self.net.wire(*it, 10 * number, extended=True) for it in pairs_])
        for relay in (origin, edge):
            self.net.edge(relay)
        self.net.settle()
        self.pub, self.sub = self.net.app(origin), self.net.app(edge)
        alias = self.pub.publish("demo/t")
        self.pub.stream(alias, 0, *objects_of(0, 1, 2))
        self.net.run(0.5)

    def lose(self) -> None:
        """Nothing goes by the first way any more, and nobody knows."""
        for wire in self.wires[0]:
            wire.cut(noticed_by=())

    def notice(self) -> None:
        for wire in self.wires[0]:
            for end in wire:
                end.relay.link_closed(end, self.net.now)
        self.net.run(0.0)


def test_a_relay_is_asked_again_where_the_way_to_it_has_died() -> None:
    ways = Ways()
    ways.lose()
    ways.sub.fetch("demo/t", (0, 0), (0, 3))
    ways.net.run(0.3)
    assert not ways.sub.heard_of(FetchOk)
    ways.notice()
    ways.net.run(1.5)
    assert ways.sub.fetched.places == [(0, 0), (0, 1), (0, 2)]
    assert ways.sub.fetched.finished
    ways.net.run(15.0)
    ways.net.check_empty()


def test_a_relay_is_asked_again_where_its_answer_was_lost_by_another_way() -> None:
    """The way to it looks the same: what came back was lost with a relay that is there again."""
    ways = Ways()
    reach = ways.pub.edge.relay.reach
    send, open_stream = reach.send, reach.open_stream
    lost: list[RelayResponse] = []

    def lose_first(
        node_id: NodeId, message: Travelling, turn: int = 0, not_to: NodeId | None = None
    ) -> bool:
        if isinstance(message, RelayResponse) and not lost:
            lost.append(message)
            return True
        return send(node_id, message, turn, not_to)

    reach.send = lose_first  # type: ignore[method-assign]
    reach.open_stream = lambda *_: Nowhere()  # type: ignore[method-assign]
    ways.sub.fetch("demo/t", (0, 0), (0, 3))
    ways.net.run(1.0)
    assert lost
    reach.open_stream = open_stream  # type: ignore[method-assign]
    ways.net.run(2.5)
    assert ways.sub.fetched.places == [(0, 0), (0, 1), (0, 2)]
    assert ways.sub.fetched.finished
    ways.net.run(15.0)
    ways.net.check_empty()


def test_what_breaks_off_is_asked_for_from_there_on() -> None:
    net, pub, sub = stage(relays=2)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.fetch("demo/t", (0, 0), (0, 3))
    net.run(0.1)
    (fetch,) = sub.edge.relay.tracks.shared.upstream_fetches.values()
    broken = upstream_fetch.FetchedStream(fetch)
    writer = FetchWriter(BETWEEN_RELAYS)
    broken.write(writer.encode(Object(0, 0, 0, 128, payload=b"0")), net.now)
    broken.reset(SOURCE_LOST, net.now)
    sub.edge.perform(net.now)
    net.run(0.1)
    assert errands(pub) == [(Location(0, 0), Location(0, 3)), (Location(0, 1), Location(0, 3))]
    assert not broken.write(b"late", net.now)
    pub.answer_fetch(pub.last(Fetch), (0, 3), *fetched((0, 1), (0, 2)))
    net.run(0.1)
    assert sub.fetched.places == [(0, 0), (0, 1), (0, 2)]
    assert sub.fetched.finished
    net.check_empty()
