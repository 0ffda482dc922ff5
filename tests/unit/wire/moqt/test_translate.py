"""Objects of one draft as the other writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.data import DatagramObject, decode_datagram, encode_datagram
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.object_fields import encode_object_header
from laps.wire.moqt.objects import Object, ObjectReader
from laps.wire.moqt.translate import (
    StreamTranslator,
    decode_extensions,
    needs_translation,
    translate_datagram,
    translate_extensions,
    translate_object,
)
from unit.wire.moqt.strategies import chunked, cuts, pairs, subgroups
from unit.wire.moqt.test_objects import header, write


def extensions_to_16(raw: bytes) -> bytes:
    return translate_extensions(raw, DRAFT14, DRAFT16)


def extensions_to_14(raw: bytes) -> bytes:
    return translate_extensions(raw, DRAFT16, DRAFT14)


EITHER_WAY = pytest.mark.parametrize(
    ("source", "target"), [(DRAFT14, DRAFT16), (DRAFT16, DRAFT14)], ids=repr
)


@pytest.mark.parametrize(
    ("source", "target", "has_extensions", "needed"),
    [
        (DRAFT14, DRAFT14, True, False),
        (DRAFT16, DRAFT16, True, False),
        (DRAFT16, DRAFT14, False, False),
        (DRAFT16, DRAFT14, True, True),
        (DRAFT14, DRAFT16, False, True),
        (DRAFT14, DRAFT16, True, True),
    ],
)
def test_when_objects_must_change(
    source: Dialect, target: Dialect, has_extensions: bool, needed: bool
) -> None:
    assert needs_translation(source, target, has_extensions) is needed


# --- extensions ------------------------------------------------------------------------------


def test_extensions_are_sorted_and_otherwise_kept() -> None:
    raw_14 = bytes.fromhex("3e020b053e024101003c010b00")
    raw_16 = bytes.fromhex("0b053e02410100000031010202")
    assert extensions_to_16(raw_14) == raw_16
    # Back again they stay in order; the bytes inside Immutable Extensions never change.
    assert extensions_to_14(raw_16) == bytes.fromhex("0b053e024101000b003c013e02")


def test_no_extensions_stay_none() -> None:
    assert extensions_to_16(b"") == extensions_to_14(b"") == b""


@given(st.lists(pairs, max_size=6))
def test_extensions_mean_the_same_in_both_drafts(said: list[tuple[int, int | bytes]]) -> None:
    raw = encode_pairs(said, delta=False)
    assert decode_extensions(raw, DRAFT14) == said
    ordered = sorted(said, key=lambda pair: pair[0])
    assert decode_extensions(extensions_to_16(raw), DRAFT16) == ordered
    assert decode_extensions(extensions_to_14(extensions_to_16(raw)), DRAFT14) == ordered


def test_a_type_that_draft_14_cannot_write_is_left_out() -> None:
    largest = bytes.fromhex("ffffffffffffffff00")
    assert extensions_to_14(bytes.fromhex("3c01") + largest) == bytes.fromhex("3c01")


@pytest.mark.parametrize("raw", ["3c", "0b05", "0b8001000000", "41"])
def test_extensions_that_do_not_read_are_refused(raw: str) -> None:
    for translate in (extensions_to_14, extensions_to_16):
        with pytest.raises(MoqtViolation) as caught:
            translate(bytes.fromhex(raw))
        assert caught.value.code == SessionCode.PROTOCOL_VIOLATION


# --- streams ---------------------------------------------------------------------------------


def translated(objects: list[Object], source: Dialect, target: Dialect) -> list[Object]:
    mapped = (translate_object(item, source, target) for item in objects)
    return [item for item in mapped if item is not None]


@EITHER_WAY
@pytest.mark.parametrize("has_extensions", [False, True])
@given(data=st.data())
def test_a_stream_is_translated_however_it_is_cut(
    source: Dialect, target: Dialect, has_extensions: bool, data: st.DataObject
) -> None:
    objects = data.draw(subgroups(source.draft, has_extensions))
    stream = write(objects, has_extensions)
    outputs = []
    for chunks in (
        [stream],
        chunked(stream, data.draw(cuts(len(stream)))),
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        translator = StreamTranslator(source, target, has_extensions)
        outputs.append(b"".join(translator.feed(chunk) for chunk in chunks))
        translator.finish()
    assert len(set(outputs)) == 1
    reader = ObjectReader(header(has_extensions), target)
    assert reader.feed(outputs[0]) == translated(objects, source, target)
    reader.finish()


def test_what_does_not_exist_is_left_out_and_ids_are_kept() -> None:
    objects = [
        Object(7, 0, 0, 5, payload=b"a"),
        Object(7, 0, 1, 5, status=1),
        Object(7, 0, 4, 5, payload=b"b"),
        Object(7, 0, 5, 5, status=3, extensions=b"\x3c\x01"),
    ]
    output = StreamTranslator(DRAFT14, DRAFT16, True).feed(write(objects, True))
    assert ObjectReader(header(True), DRAFT16).feed(output) == [
        Object(7, 0, 0, 5, payload=b"a"),
        Object(7, 0, 4, 5, payload=b"b"),
        Object(7, 0, 5, 5, status=3),
    ]


@EITHER_WAY
def test_payload_passes_as_it_comes(source: Dialect, target: Dialect) -> None:
    translator = StreamTranslator(source, target, False)
    head = encode_object_header(0, b"", 1000)
    assert translator.feed(head + b"first") == head + b"first"
    middle = bytes(900)
    assert translator.feed(middle) is middle
    with pytest.raises(MoqtViolation, match="inside an object"):
        translator.finish()
    assert translator.feed(bytes(95) + b"\0") == bytes(95)
    with pytest.raises(MoqtViolation, match="inside an object"):
        translator.finish()
    assert translator.feed(b"\1x") == b"\0\1x"
    translator.finish()


@EITHER_WAY
def test_long_extensions_are_waited_for(source: Dialect, target: Dialect) -> None:
    raw = b"\x0b" + (0x4000 | 5000).to_bytes(2) + bytes(5000)
    stream = write([Object(7, 0, 2, 5, 0, raw, b"payload")], True)
    translator = StreamTranslator(source, target, True)
    chunks = [stream[i : i + 100] for i in range(0, len(stream), 100)]
    assert b"".join(map(translator.feed, chunks)) == stream


@EITHER_WAY
@pytest.mark.parametrize("data", ["00000002", "00013c0161", "000000053c01", "00023c010005"])
def test_a_stream_that_breaks_its_draft_is_refused(
    source: Dialect, target: Dialect, data: str
) -> None:
    with pytest.raises(MoqtViolation):
        StreamTranslator(source, target, True).feed(bytes.fromhex(data))


# --- objects and datagrams -------------------------------------------------------------------


def test_an_object_that_does_not_exist_has_no_translation() -> None:
    assert translate_object(Object(1, 0, 2, 5, status=1), DRAFT14, DRAFT16) is None
    same = Object(1, 0, 2, 5, status=1)
    assert translate_object(same, DRAFT14, DRAFT14) == same


def test_a_datagram_is_translated() -> None:
    data = encode_datagram(
        DatagramObject(1, 2, 3, 4, b"\x3e\x01\x3c\x02", None, b"x", True), DRAFT14
    )
    there = translate_datagram(data, DRAFT14, DRAFT16, alias=900)
    assert there is not None
    expected = DatagramObject(900, 2, 3, 4, b"\x3c\x02\x02\x01", None, b"x", True)
    assert decode_datagram(there, DRAFT16) == expected
    default = encode_datagram(DatagramObject(1, 2, 3, payload=b"x"), DRAFT16)
    back = translate_datagram(default, DRAFT16, DRAFT14, alias=5, default_priority=44)
    assert back is not None
    assert decode_datagram(back, DRAFT14) == DatagramObject(5, 2, 3, 44, payload=b"x")
    assert translate_datagram(data, DRAFT14, DRAFT14, alias=1) == data


def test_a_datagram_with_a_status_is_translated() -> None:
    missing = encode_datagram(DatagramObject(1, 2, 3, 4, status=1), DRAFT14)
    assert translate_datagram(missing, DRAFT14, DRAFT16, alias=1) is None
    ended = encode_datagram(DatagramObject(1, 2, 3, 4, b"\x3c\x01", 3), DRAFT14)
    there = translate_datagram(ended, DRAFT14, DRAFT16, alias=1)
    assert there is not None
    assert decode_datagram(there, DRAFT16) == DatagramObject(1, 2, 3, 4, status=3)
