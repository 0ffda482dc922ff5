"""The objects of a FETCH, both ways, however their stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import LocalProtocolError
from laps.wire.buffer import encode_varint
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.data import FetchHeader, decode_stream_header
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from laps.wire.moqt.fetch import EndOfRange, FetchItem, FetchReader, FetchWriter
from laps.wire.moqt.object_fields import MAX_EXTENSIONS_BYTES
from laps.wire.moqt.objects import Object
from unit.wire.moqt.strategies import chunked, cuts, fetches
from unit.wire.moqt.vectors import Case, with_key

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
FETCHES = [
    case
    for case in [*with_key("stream"), *with_key("error")]
    if case.data[:1] == b"\x05" and case.meaning.get("reader", "stream") == "stream"
]


@BOTH
@given(data=st.data())
def test_objects_are_read_however_they_are_cut(dialect: Dialect, data: st.DataObject) -> None:
    items = data.draw(fetches(dialect.draft))
    writer = FetchWriter(dialect)
    stream = b"".join(map(writer.encode, items))
    for chunks in (
        [stream],
        chunked(stream, data.draw(cuts(len(stream)))),
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        reader = FetchReader(dialect)
        assert [item for chunk in chunks for item in reader.feed(chunk)] == items
        reader.finish()


@pytest.mark.parametrize("case", FETCHES, ids=lambda case: case.name)
def test_every_vector_ends_the_same_byte_by_byte(case: Case) -> None:
    header, length = decode_stream_header(case.data, case.dialect)
    assert isinstance(header, FetchHeader)

    def outcome(chunks: list[bytes]) -> tuple[list[FetchItem], int | None]:
        reader = FetchReader(case.dialect)
        items: list[FetchItem] = []
        try:
            for chunk in chunks:
                items += reader.feed(chunk)
            reader.finish()
        except MoqtViolation as error:
            return [], error.code
        return items, None

    single = [case.data[i : i + 1] for i in range(length, len(case.data))]
    assert outcome(single) == outcome([case.data[length:]])


def test_draft_14_names_a_datagram_after_itself() -> None:
    data = FetchWriter(DRAFT14).encode(Object(1, None, 6, 5, datagram=True))
    assert FetchReader(DRAFT14).feed(data) == [Object(1, 6, 6, 5)]


@BOTH
def test_the_priority_of_the_track_is_said(dialect: Dialect) -> None:
    data = FetchWriter(dialect, default_priority=44).encode(Object(1, 0, 6, None))
    assert FetchReader(dialect).feed(data) == [Object(1, 0, 6, 44)]


def test_draft_16_leaves_out_what_has_a_status() -> None:
    writer = FetchWriter(DRAFT16)
    data = b"".join(
        writer.encode(Object(1, 0, number, 5, status, b"", b"" if status else b"x"))
        for number, status in enumerate([0, 1, 3, 4, 0])
    )
    items = FetchReader(DRAFT16).feed(data)
    assert items == [Object(1, 0, 0, 5, payload=b"x"), Object(1, 0, 4, 5, payload=b"x")]


def test_draft_14_says_by_leaving_out_that_objects_do_not_exist() -> None:
    writer = FetchWriter(DRAFT14)
    assert writer.encode(EndOfRange(1, 2, unknown=False)) == b""
    with pytest.raises(LocalProtocolError, match="unknown"):
        writer.encode(EndOfRange(1, 2, unknown=True))


@BOTH
@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (Object(1, 0, 2, 256), "priority 256"),
        (Object(1, 0, 2, 5, 3, b"", b"x"), "has payload"),
        (Object(1 << 62, 0, 2, 5), "too large"),
    ],
)
def test_what_no_object_can_be_is_not_written(dialect: Dialect, item: Object, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        FetchWriter(dialect).encode(item)


def test_a_status_that_draft_14_lacks_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="status 0x2"):
        FetchWriter(DRAFT14).encode(Object(1, 0, 2, 5, 2))


@BOTH
def test_what_we_do_not_hold_is_refused(dialect: Dialect) -> None:
    too_many = encode_varint(MAX_EXTENSIONS_BYTES + 1)
    head = b"\1\0\2\5" if dialect is DRAFT14 else b"\x3c\1\2\5"
    with pytest.raises(MoqtViolation, match="extensions"):
        FetchReader(dialect).feed(head + too_many)
    reader = FetchReader(dialect, max_payload_bytes=4)
    with pytest.raises(MoqtViolation, match="5 bytes") as caught:
        reader.feed(head + b"\0\5")
    assert caught.value.code == SessionCode.INTERNAL_ERROR


@BOTH
def test_long_extensions_are_waited_for(dialect: Dialect) -> None:
    item = Object(1, 0, 2, 5, 0, bytes(5000), b"payload")
    stream = FetchWriter(dialect).encode(item)
    reader = FetchReader(dialect)
    chunks = [stream[i : i + 100] for i in range(0, len(stream), 100)]
    assert [found for chunk in chunks for found in reader.feed(chunk)] == [item]
