"""What stands between a stream and a subscriber: later beginnings, and another draft."""

from __future__ import annotations

import pytest

from laps.tracks.sinks import Cut, Nowhere, Translated
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import SubgroupHeader
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.objects import ObjectReader
from support.moqt_streams import InStream, Obj, body

RAW = encode_pairs([(2, 3), (5, b"five")], delta=True)
ITEMS = [Obj(2, b"two"), Obj(3), Obj(9, bytes(70)), Obj(200, b"x" * 20)]
EXTENDED = [Obj(item.id, item.payload, RAW if item.payload else b"") for item in ITEMS]
HEAD = b"<head>"
NOW = 0.0


def out() -> InStream:
    return InStream(DRAFT16, (0, 0, 1, 0, 0, 0), 0)


def ids(stream: InStream, extended: bool = False, dialect: object = DRAFT16) -> list[int]:
    assert stream.data.startswith(HEAD)
    reader = ObjectReader(SubgroupHeader(0, 0, has_extensions=extended), dialect)  # type: ignore[arg-type]
    found = reader.feed(bytes(stream.data[len(HEAD) :]))
    reader.finish()
    return [item.object_id for item in found]


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("first", [0, 2, 3, 4, 9, 10, 200, 201])
@pytest.mark.parametrize("extended", [False, True])
def test_a_stream_begins_at_an_object(step: int, first: int, extended: bool) -> None:
    stream = out()
    cut = Cut(stream, HEAD, first, extended)
    data = body(EXTENDED if extended else ITEMS, extended)
    for at in range(0, len(data), step):
        assert cut.write(data[at : at + step], NOW)
    assert cut.finish(b"", NOW)
    assert ids(stream, extended) == [item.id for item in ITEMS if item.id >= first]
    assert cut.over


@pytest.mark.parametrize("extended", [False, True])
def test_a_stream_goes_on_from_where_a_scanner_stands(extended: bool) -> None:
    items = EXTENDED if extended else ITEMS
    data = body(items, extended)
    for at in range(1, len(data)):
        scanner = BoundaryScanner(DRAFT16, extended)
        scanner.feed(data[:at])
        began = scanner.last_object_id
        tail = data[scanner.next_object_offset : at]
        stream = out()
        cut = Cut(stream, HEAD, 0 if began is None else began + 1, extended)
        cut.resume(scanner, tail)
        cut.finish(data[at:], NOW)
        assert ids(stream, extended) == [i.id for i in items if began is None or i.id > began]


def test_what_the_scanner_has_seen_of_an_object_is_sent_too() -> None:
    data = body(ITEMS)
    scanner = BoundaryScanner(DRAFT16, False)
    scanner.feed(data[:30])
    stream = out()
    cut = Cut(stream, HEAD, 9, False)
    cut.resume(scanner, data[scanner.next_object_offset : 30])
    # Its header has been seen already: only the next one can be begun with.
    cut.finish(data[30:], NOW)
    assert ids(stream) == [200]


def test_what_is_over_takes_no_more() -> None:
    stream = out()
    cut = Cut(stream, HEAD, 3, False)
    stream.stopped = True
    assert cut.over
    assert not cut.write(body(ITEMS), NOW)
    assert not cut.finish(body(ITEMS), NOW)
    nowhere = Nowhere()
    assert nowhere.over
    assert not nowhere.write(b"x", NOW)
    assert not nowhere.finish(b"x", NOW)
    nowhere.reset(1, NOW)


def test_a_reset_goes_through() -> None:
    for made in (lambda s: Cut(s, HEAD, 3, False), lambda s: Translated(s, DRAFT14, True)):
        stream = out()
        made(stream).reset(7, NOW)
        assert stream.reset_code == 7


@pytest.mark.parametrize("kind", ["cut", "translated"])
def test_what_cannot_be_read_resets_the_stream(kind: str) -> None:
    stream = out()
    broken = b"\x00\x00\x00\x07"
    made = Cut(stream, HEAD, 3, True) if kind == "cut" else Translated(stream, DRAFT14, True)
    assert not made.write(broken, NOW)
    assert stream.reset_code == ResetCode.MALFORMED_TRACK
    assert not made.write(b"more", NOW)


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize("first", [0, 4])
def test_a_stream_begins_later_and_in_another_draft(step: int, first: int) -> None:
    stream = out()
    cut = Cut(stream, HEAD, first, True, Translated(stream, DRAFT14, True))
    data = body(EXTENDED, True)
    for at in range(0, len(data), step):
        cut.write(data[at : at + step], NOW)
    cut.finish(b"", NOW)
    assert ids(stream, True, DRAFT14) == [item.id for item in ITEMS if item.id >= first]
