"""Whoever reads the objects of a subgroup's stream finds what its grammar says."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.wire.buffer import decode_varint
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.data import SubgroupHeader
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.object_fields import decode_extensions_length, decode_length_and_status
from laps.wire.moqt.objects import Object, ObjectReader
from laps.wire.moqt.pieces import PieceReader
from laps.wire.moqt.translate import StreamTranslator

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

FORMS = {1: (">B", 0), 2: (">H", 0x4000), 4: (">I", 0x8000_0000), 8: (">Q", 0xC000 << 48)}


@st.composite
def varints(draw: st.DrawFn, value: int) -> bytes:
    """The value in any size that holds it, as the wire allows."""
    bits = {size: 8 * size - 2 for size in FORMS}
    size = draw(st.sampled_from([size for size in FORMS if value < 1 << bits[size]]))
    form, mark = FORMS[size]
    return struct.pack(form, value | mark)


@st.composite
def streams(draw: st.DrawFn, has_extensions: bool) -> bytes:
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        parts.append(draw(varints(draw(st.sampled_from([0, 1, 63, 64, 20_000])))))
        status = draw(st.sampled_from([0, 0, 0, 3, 4]))
        if has_extensions:
            extensions = b"" if status else b"\x3c\x01" * draw(st.sampled_from([0, 1, 40]))
            parts += (draw(varints(len(extensions))), extensions)
        length = 0 if status else draw(st.sampled_from([0, 1, 63, 64, 300]))
        parts += (draw(varints(length)), bytes(length) if length else draw(varints(status)))
    return b"".join(parts)


def by_the_grammar(data: bytes, has_extensions: bool, dialect: Dialect) -> list[Object]:
    found, position, object_id = [], 0, -1
    while position < len(data):
        delta, position = decode_varint(data, position)
        object_id += delta + 1
        extensions = b""
        if has_extensions:
            length, position = decode_extensions_length(data, position)
            extensions, position = data[position : position + length], position + length
        length, status, position = decode_length_and_status(
            data, position, bool(extensions), dialect
        )
        payload, position = data[position : position + length], position + length
        found.append(Object(1, 0, object_id, 5, status, extensions, payload))
    return found


@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
@pytest.mark.parametrize("has_extensions", [False, True])
@given(data=st.data())
def test_object_fields_all_readers_agree(
    dialect: Dialect, has_extensions: bool, data: st.DataObject
) -> None:
    stream = data.draw(streams(has_extensions))
    size = data.draw(st.integers(1, max(1, len(stream))))
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    expected = by_the_grammar(stream, has_extensions, dialect)

    header = SubgroupHeader(7, 1, 0, 5, has_extensions)
    reader = ObjectReader(header, dialect)
    assert [item for chunk in chunks for item in reader.feed(chunk)] == expected

    scanner = BoundaryScanner(dialect, has_extensions)
    found = [boundary for chunk in chunks for boundary in scanner.feed(chunk)]
    assert [(number, stream[begin:end], status) for number, _, _, begin, end, status in found] == [
        (item.object_id, item.payload, item.status) for item in expected
    ]
    assert scanner.at_boundary

    pieces = PieceReader(dialect, has_extensions)
    parts: dict[int, bytes] = {}
    for piece in (piece for chunk in chunks for piece in pieces.feed(chunk)):
        parts[piece.object_id] = parts.get(piece.object_id, b"") + bytes(piece.data)
    assert parts == {item.object_id: item.payload for item in expected}

    translator = StreamTranslator(dialect, dialect, has_extensions)
    written = b"".join(bytes(translator.feed(chunk)) for chunk in chunks)
    assert by_the_grammar(written, has_extensions, dialect) == expected
