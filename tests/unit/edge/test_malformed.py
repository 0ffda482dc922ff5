"""What is not valid goes to nobody, and subscribers hear of it.

A publisher whose objects cannot be read is closed. One whose track contradicts itself is asked for
no more of it, and its session goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.wire.moqt.codes import DoneCode, RequestCode, ResetCode, SessionCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.messages import FetchOk, PublishDone, Subscribe, Unsubscribe
from laps.wire.quicr.carried import FRAGMENT_EXTENSION
from support.moqt import stage
from support.moqt_streams import DRAFTS, PAIRS, Obj, objects_of
from support.relays import track_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import KeyValue
    from support.moqt import App, OutStream

END = ObjectStatus.END_OF_GROUP

# What follows two valid objects, and whether the stream ends with it.
INVALID = {
    "a status that there is not": (b"\x00\x00\x00\x05", False),
    "a status that was there once": (b"\x00\x00\x00\x02", False),
    "the end of a group, with extensions": (b"\x00\x02\x02\x05\x00\x03", False),
    "extensions that end too soon": (b"\x00\x02\x03\x09\x01x", False),
    "an id above all": (b"\xff" * 8 + b"\x00\x01x", False),
    "its end inside an object": (b"\x00\x00\x05x", True),
    "its end inside a header": (b"\x00\x00", True),
}


VALID_IN_14 = ("a status that was there once", "the end of a group, with extensions")


@pytest.mark.parametrize("relays", [1, 2])
@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize(
    ("publisher", "subscriber", "kind"),
    [
        (publisher, subscriber, kind)
        for publisher, subscriber in PAIRS
        for kind in INVALID
        if publisher.draft == 16 or kind not in VALID_IN_14
    ],
)
def test_what_is_not_valid_goes_to_nobody(
    publisher: Dialect, subscriber: Dialect, kind: str, piece: int, relays: int
) -> None:
    data, fin = INVALID[kind]
    net, pub, sub = stage(publisher, subscriber, relays)
    alias, other = pub.publish("demo/t"), net.app(pub.edge.relay).publish("demo/other")
    pub.fragments = piece
    sub.subscribe("demo/t")
    sub.subscribe("demo/other")
    net.run(0.1)
    stream = pub.open(alias, 3, *objects_of(0, 1), extensions=True)
    net.run(0.1)
    stream.write_bytes(data, fin=fin)
    net.run(2.0)
    assert pub.closed is not None
    assert pub.closed[0] == SessionCode.PROTOCOL_VIOLATION
    assert sub.closed is None
    assert sub.places == [(3, 0), (3, 1)]
    (copy,) = sub.subgroups
    assert copy.reset_code == ResetCode.MALFORMED_TRACK
    assert sub.last(PublishDone).code == DoneCode.MALFORMED_TRACK
    assert sub.last(PublishDone).reason
    assert pub.edge.counters.malformed_streams == 1
    del other


def test_with_another_publisher_the_track_goes_on() -> None:
    net, pub, sub = stage()
    other = net.app(pub.edge.relay)
    alias, theirs = pub.publish("demo/t"), other.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.open(alias, 3, *objects_of(0)).write_bytes(b"\x00\x00\x05")
    net.run(1.0)
    other.stream(theirs, 4, *objects_of(0))
    net.run(1.0)
    assert not sub.heard_of(PublishDone)
    assert sub.places == [(3, 0), (4, 0)]


@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS, ids=repr)
def test_an_extension_of_the_relays_own_is_taken_off_a_datagram(
    publisher: Dialect, subscriber: Dialect
) -> None:
    net, pub, sub = stage(publisher, subscriber)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pairs: list[KeyValue] = [(2, 5), (FRAGMENT_EXTENSION, b"\x04\x00\x00\x00")]
    extensions = encode_pairs(pairs, delta=publisher.extension_deltas)
    pub.datagram(alias, 1, 0, extensions=extensions, payload=b"whole")
    net.run(0.1)
    (item,) = sub.datagrams
    assert item.payload == b"whole"
    assert item.extensions == encode_pairs([(2, 5)], delta=subscriber.extension_deltas)


# -- tracks that contradict themselves -------------------------------------------------------------

IMMUTABLE, GROUP_GAP, OBJECT_GAP = 0x0B, 0x3C, 0x3E
TRACK_END = ObjectStatus.END_OF_TRACK


class Writer:
    """A publisher that sends objects with extensions."""

    def __init__(self, app: App, alias: int) -> None:
        self.app, self.alias = app, alias

    def obj(self, number: int, *pairs: KeyValue, status: int = 0, payload: bytes = b"x") -> Obj:
        extensions = encode_pairs(pairs, delta=self.app.dialect.extension_deltas)
        return Obj(number, b"" if status else payload, extensions, status)

    def inner(self, *pairs: KeyValue) -> KeyValue:
        return IMMUTABLE, encode_pairs(pairs, delta=self.app.dialect.extension_deltas)

    def send(self, group: int, *items: Obj, subgroup: int = 0, **fields: Any) -> OutStream:
        fields = {"fin": True, "extensions": True} | fields
        return self.app.open(self.alias, group, *items, subgroup=subgroup, **fields)


def _after_an_end(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, status=END))
    it.send(5, it.obj(7), subgroup=1)


def _after_an_end_in_its_stream(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, status=END), it.obj(2))


def _after_an_end_that_its_header_tells(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1), end_of_group=True)
    it.send(5, it.obj(2), subgroup=1)


def _an_end_before_what_came(it: Writer) -> None:
    it.send(5, it.obj(9), subgroup=1)
    it.send(5, it.obj(0), it.obj(1, status=END))


def _after_an_end_in_an_open_stream(it: Writer) -> None:
    stream = it.send(5, it.obj(0), subgroup=1, fin=False)
    it.send(5, it.obj(2, status=END))
    stream.write(it.obj(3))


def _after_the_end_of_the_track(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, status=TRACK_END))
    it.send(6, it.obj(0))


def _the_end_of_the_track_before_what_came(it: Writer) -> None:
    it.send(7, it.obj(0))
    it.send(5, it.obj(0), it.obj(1, status=TRACK_END))


def _instead_of_an_end(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, status=END))
    it.send(5, it.obj(1), subgroup=1)


def _another_payload(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, payload=b"one"), fin=False)
    it.send(5, it.obj(0), it.obj(1, payload=b"two"))


def _another_length(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, payload=b"one"), fin=False)
    it.send(5, it.obj(1, payload=b"three"))


def _another_priority(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1))
    it.send(5, it.obj(0), it.obj(1), priority=7)


def _an_object_gap_beyond_its_id(it: Writer) -> None:
    it.send(5, it.obj(3, (OBJECT_GAP, 4)))


def _an_object_gap_over_what_came(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1), fin=False).write(it.obj(4, (OBJECT_GAP, 3)))


def _an_object_gap_over_what_came_elsewhere(it: Writer) -> None:
    it.send(5, it.obj(2), subgroup=1)
    it.send(5, it.obj(0), it.obj(4, (OBJECT_GAP, 3)))


def _an_object_in_a_gap(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(4, it.inner((OBJECT_GAP, 3))))
    it.send(5, it.obj(2), subgroup=1)


def _two_gaps(it: Writer) -> None:
    it.send(5, it.obj(4, (OBJECT_GAP, 3), it.inner((OBJECT_GAP, 3))))


def _a_group_gap_beyond_its_id(it: Writer) -> None:
    it.send(5, it.obj(0, (GROUP_GAP, 6)))


def _group_gaps_that_differ(it: Writer) -> None:
    it.send(5, it.obj(0, (GROUP_GAP, 2)), it.obj(1, (GROUP_GAP, 3)))


def _a_group_gap_over_what_came(it: Writer) -> None:
    it.send(4, it.obj(0))
    it.send(5, it.obj(0, (GROUP_GAP, 2)))


def _a_group_in_a_gap(it: Writer) -> None:
    it.send(5, it.obj(0, (GROUP_GAP, 2)))
    it.send(4, it.obj(0))


def _immutable_inside_itself(it: Writer) -> None:
    it.send(5, it.obj(0, it.inner(it.inner((2, 3)))))


def _immutable_that_cannot_be_read(it: Writer) -> None:
    it.send(5, it.obj(0, (IMMUTABLE, b"\x01\x05x")))


def _datagram(it: Writer, group: int, number: int, *pairs: KeyValue, **fields: Any) -> None:
    extensions = encode_pairs(pairs, delta=it.app.dialect.extension_deltas)
    fields = {"priority": 128, "extensions": extensions} | fields
    it.app.datagram(it.alias, group, number, **fields)


def _a_datagram_after_an_end(it: Writer) -> None:
    _datagram(it, 5, 1, status=END)
    _datagram(it, 5, 2, payload=b"x")


def _a_datagram_after_the_end_of_the_track(it: Writer) -> None:
    _datagram(it, 5, 1, status=TRACK_END)
    _datagram(it, 6, 0, payload=b"x")


def _a_datagram_with_another_payload(it: Writer) -> None:
    _datagram(it, 5, 1, payload=b"one")
    _datagram(it, 5, 1, payload=b"two")


def _a_datagram_in_a_gap(it: Writer) -> None:
    _datagram(it, 5, 4, (OBJECT_GAP, 3), payload=b"x")
    _datagram(it, 5, 2, payload=b"x")


def _a_datagram_with_a_gap_beyond_its_id(it: Writer) -> None:
    _datagram(it, 5, 1, (OBJECT_GAP, 2), payload=b"x")


MALFORMED: list[Callable[[Writer], None]] = [
    _after_an_end,
    _after_an_end_in_its_stream,
    _after_an_end_that_its_header_tells,
    _an_end_before_what_came,
    _after_an_end_in_an_open_stream,
    _after_the_end_of_the_track,
    _the_end_of_the_track_before_what_came,
    _instead_of_an_end,
    _another_payload,
    _another_length,
    _another_priority,
    _an_object_gap_beyond_its_id,
    _an_object_gap_over_what_came,
    _an_object_gap_over_what_came_elsewhere,
    _an_object_in_a_gap,
    _two_gaps,
    _a_group_gap_beyond_its_id,
    _group_gaps_that_differ,
    _a_group_gap_over_what_came,
    _a_group_in_a_gap,
    _immutable_inside_itself,
    _immutable_that_cannot_be_read,
    _a_datagram_after_an_end,
    _a_datagram_after_the_end_of_the_track,
    _a_datagram_with_another_payload,
    _a_datagram_in_a_gap,
    _a_datagram_with_a_gap_beyond_its_id,
]


@pytest.mark.parametrize("relays", [1, 2])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize("kind", MALFORMED, ids=lambda kind: kind.__name__.strip("_"))
def test_a_track_that_contradicts_itself_ends_and_its_publisher_goes_on(
    kind: Callable[[Writer], None], piece: int, dialect: Dialect, asked: bool, relays: int
) -> None:
    net, pub, sub = stage(dialect, DRAFTS[1], relays)
    aliases = []
    if asked:
        pub.answers[Subscribe] = lambda message: aliases.append(pub.accept(message))
        pub.publish_namespace("demo")
    else:
        aliases.append(pub.publish("demo/t"))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.fragments = piece
    kind(Writer(pub, aliases[0]))
    pub.fragments = 0
    net.run(0.1)
    assert pub.closed is None
    assert len(pub.heard_of(Unsubscribe)) == 1
    net.run(1.0)
    assert sub.closed is None
    assert sub.last(PublishDone).code == DoneCode.MALFORMED_TRACK
    assert sub.last(PublishDone).reason
    assert all(stream.over for stream in sub.subgroups)
    assert pub.edge.counters.malformed_streams == 1
    # It may be forgotten by now.
    assert not any(it.streams for it in pub.edge.relay.tracks if it.name == track_name("demo/t"))
    # Another track of the same session goes on.
    other = pub.publish("demo/other")
    sub.subscribe("demo/other")
    net.run(0.1)
    pub.stream(other, 9, *objects_of(0, 1))
    net.run(0.1)
    assert sub.places[-2:] == [(9, 0), (9, 1)]


@pytest.mark.parametrize("answered", [False, True])
def test_a_fetch_of_a_track_that_contradicts_itself_is_given_up(answered: bool) -> None:
    net, pub, sub = stage()
    it = Writer(pub, pub.publish("demo/t"))
    net.run(0.1)
    it.send(5, *(it.obj(number, payload=bytes(5000)) for number in range(50)), fin=False)
    if not answered:  # it waits for an object that is on its way
        it.send(6, it.obj(0), fin=False).write_bytes(b"\x00\x00\x05x")
    sub.link.room = 10_000
    sub.fetch("demo/t", (5, 0), (6, 2))
    net.run(0.1)
    assert bool(sub.heard_of(FetchOk)) is answered
    it.send(5, it.obj(0))
    net.run(0.1)
    if answered:
        assert sub.fetched.reset_code == ResetCode.MALFORMED_TRACK
    else:
        assert sub.error == RequestCode.MALFORMED_TRACK
    assert not sub.client.serving


def _all_of_one_group(it: Writer) -> None:
    """Several streams may say that a group ends, and where gaps are."""
    it.send(5, it.obj(0), it.obj(4, (OBJECT_GAP, 1), (GROUP_GAP, 2)), it.obj(6, status=END))
    it.send(5, it.obj(1), it.obj(5, (GROUP_GAP, 2)), it.obj(6, status=END), subgroup=1)
    it.send(5, it.obj(2), subgroup=2)
    it.send(5, it.obj(7, status=END), subgroup=3)
    it.send(6, it.obj(0, it.inner((2, 5), (GROUP_GAP, 0))), end_of_group=True)
    it.send(6, it.obj(1, status=END), subgroup=1)
    it.send(7, it.obj(0, status=TRACK_END))
    it.send(2, it.obj(0))


def _a_stream_once_more(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1), fin=False).reset(1)
    it.send(5, it.obj(0), it.obj(1), it.obj(2), fin=False)
    it.send(5, it.obj(1), it.obj(2), it.obj(3))


def _published_again_with_the_same_numbers(it: Writer) -> None:
    it.send(5, it.obj(0), it.obj(1, status=TRACK_END))
    request_id = max(it.app.session.outgoing)
    it.app.done(request_id, DoneCode.TRACK_ENDED, 1)
    it.app.net.run(1.0)
    it.alias = it.app.publish("demo/t")
    it.send(5, it.obj(0, payload=b"y"), it.obj(1, payload=b"y"))
    it.send(6, it.obj(0))


def _a_datagram_twice(it: Writer) -> None:
    for _ in range(2):
        _datagram(it, 5, 1, payload=b"x")
    _datagram(it, 6, 3, (OBJECT_GAP, 2), (GROUP_GAP, 0), payload=b"x")
    _datagram(it, 6, 0, payload=b"x")
    _datagram(it, 6, 4, status=END)


@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize(
    "kind",
    [
        _all_of_one_group,
        _a_stream_once_more,
        _published_again_with_the_same_numbers,
        _a_datagram_twice,
    ],
    ids=lambda kind: kind.__name__.strip("_"),
)
def test_a_track_that_repeats_itself_goes_on(
    kind: Callable[[Writer], None], piece: int, dialect: Dialect
) -> None:
    net, pub, sub = stage(dialect, DRAFTS[1])
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.fragments = piece
    kind(Writer(pub, alias))
    net.run(1.0)
    assert pub.closed is None
    assert not pub.heard_of(Unsubscribe)
    assert pub.edge.counters.malformed_streams == 0


def test_another_publisher_that_says_something_else_does_not_make_a_track_malformed() -> None:
    """It may be the same one, whose old connection is not known to be dead."""
    net, pub, sub = stage()
    other = net.app(pub.edge.relay)
    writers = [Writer(app, app.publish("demo/t")) for app in (pub, other)]
    sub.subscribe("demo/t")
    net.run(0.1)
    for number, it in enumerate(writers):
        it.send(5, it.obj(0, payload=b"%d" % number), it.obj(1 + number, status=END))
        it.send(6 + number, it.obj(0, (GROUP_GAP, number)))
    net.run(0.1)
    assert not pub.heard_of(Unsubscribe)
    assert not other.heard_of(Unsubscribe)
    assert not sub.heard_of(PublishDone)
