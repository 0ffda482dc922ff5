"""Objects that are not valid go to nobody: their publisher is closed, subscribers hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.wire.moqt.codes import DoneCode, ResetCode, SessionCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.messages import PublishDone
from laps.wire.moqt.object_fields import encode_object
from laps.wire.quicr.carried import FRAGMENT_EXTENSION
from support.moqt import stage
from support.moqt_streams import PAIRS, objects_of

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import KeyValue

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
    "an object after the end of its group": (
        encode_object(0, b"", b"", END, has_extensions=True) + b"\x00\x00\x01x",
        False,
    ),
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
    assert sub.places[:2] == [(3, 0), (3, 1)]
    assert all(place == (3, 2) and "after the end" in kind for place in sub.places[2:])
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
