"""Objects in pieces as their bytes come: together they are what a reader of whole ones reads."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import ObjectStatus, SubgroupHeader
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.object_fields import encode_object
from laps.wire.moqt.objects import ObjectReader
from laps.wire.moqt.pieces import Piece, PieceReader

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)

Item = tuple[int, bytes, bytes, int]
"""The id's delta, extensions, payload, status."""

payloads = st.one_of(
    st.binary(max_size=5),
    st.sampled_from((63, 64, 65, 300)).map(bytes),
    st.just(bytes(17_000)),
)
EXTENSIONS = (b"", b"\x02\x05", b"\x01\x40\x50" + bytes(80))


@st.composite
def items(draw: st.DrawFn) -> tuple[list[Item], bool]:
    has_extensions = draw(st.booleans())
    found: list[Item] = []
    for _ in range(draw(st.integers(0, 6))):
        delta = draw(st.sampled_from((0, 0, 1, 63, 64, 20_000)))
        extensions = draw(st.sampled_from(EXTENSIONS)) if has_extensions else b""
        payload = draw(payloads)
        status = 0
        if not payload and not extensions:
            status = draw(st.sampled_from((0, 0, ObjectStatus.END_OF_GROUP)))
        found.append((delta, extensions, payload, status))
    return found, has_extensions


def encode(found: list[Item], has_extensions: bool) -> bytes:
    return b"".join(encode_object(*item, has_extensions) for item in found)


def put_together(pieces: list[Piece]) -> list[tuple[int, bytes, int]]:
    """Whole objects; each piece has to follow the one before."""
    whole: list[tuple[int, bytes, int]] = []
    held, at = b"", None
    for piece in pieces:
        assert piece.data or piece.last
        if at is None:
            assert piece.offset == 0
        else:
            assert (piece.object_id, piece.offset) == (at, len(held))
        held, at = held + bytes(piece.data), piece.object_id
        if piece.last:
            whole.append((at, held, piece.status))
            held, at = b"", None
    return whole


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@settings(max_examples=200, deadline=None)
@given(items(), st.lists(st.integers(0, 1 << 20), max_size=12), st.sampled_from((DRAFT14, DRAFT16)))
def test_pieces_are_the_objects_in_any_chunks(
    drawn: tuple[list[Item], bool], cuts: list[int], dialect: Dialect
) -> None:
    found, has_extensions = drawn
    data = encode(found, has_extensions)
    reader = PieceReader(dialect, has_extensions)
    pieces = [piece for chunk in chunks_of(data, cuts) for piece in reader.feed(chunk)]
    header = SubgroupHeader(1, 0, 0, 1, has_extensions)
    objects = ObjectReader(header, dialect).feed(data)
    assert put_together(pieces) == [(o.object_id, o.payload, o.status) for o in objects]


@both
@pytest.mark.parametrize("extended", [False, True])
def test_pieces_are_the_objects_byte_by_byte(dialect: Dialect, extended: bool) -> None:
    extensions = EXTENSIONS[2] if extended else b""
    found: list[Item] = [
        (0, extensions, b"first", 0),
        (70, b"", b"", 0),
        (0, extensions, bytes(range(100)), 0),
        (0, b"", b"", ObjectStatus.END_OF_GROUP),
    ]
    reader = PieceReader(dialect, extended)
    pieces = []
    for number in encode(found, extended):
        more = reader.feed(bytes([number]))
        assert sum(len(piece.data) for piece in more) <= 1
        pieces += more
    assert put_together(pieces) == [
        (0, b"first", 0),
        (71, b"", 0),
        (72, bytes(range(100)), 0),
        (73, b"", ObjectStatus.END_OF_GROUP),
    ]


def test_what_has_come_of_a_payload_is_given_at_once_and_not_copied() -> None:
    data = encode([(0, b"", bytes(1000), 0)], has_extensions=False)
    reader = PieceReader(DRAFT16, has_extensions=False)
    (piece,) = reader.feed(data[:300])
    assert not piece.last
    assert isinstance(piece.data, memoryview)
    assert piece.data.obj == data[:300]
    assert reader.feed(b"") == []
    (piece,) = reader.feed(memoryview(data)[300:])
    assert piece.last
    assert piece.offset + len(piece.data) == 1000


@settings(max_examples=50, deadline=None)
@given(items(), st.integers(0, 5), st.lists(st.integers(0, 1 << 20), max_size=5))
def test_reading_goes_on_behind_an_object(
    drawn: tuple[list[Item], bool], count: int, cuts: list[int]
) -> None:
    """The beginning of a stream was dropped: the ids go on from the last one."""
    found, has_extensions = drawn
    count = min(count, len(found))
    whole = PieceReader(DRAFT16, has_extensions).feed(encode(found, has_extensions))
    ids = [piece.object_id for piece in whole]
    reader = PieceReader(DRAFT16, has_extensions)
    reader.resume(ids[count - 1] if count else -1)
    rest = encode(found[count:], has_extensions)
    pieces = [piece for chunk in chunks_of(rest, cuts) for piece in reader.feed(chunk)]
    assert put_together(pieces) == put_together(whole)[count:]


def test_what_cannot_be_read_is_a_violation() -> None:
    reader = PieceReader(DRAFT16, has_extensions=False)
    with pytest.raises(MoqtViolation):
        reader.feed(encode([(0, b"", b"", 0)], has_extensions=False)[:-1] + b"\x3f")
