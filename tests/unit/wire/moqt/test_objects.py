"""The objects of subgroups: written, read whole, and measured, however their stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import LocalProtocolError
from laps.wire.buffer import Incomplete, encode_varint
from laps.wire.moqt.boundaries import Boundary, BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.data import (
    DatagramObject,
    FetchHeader,
    SubgroupHeader,
    decode_datagram,
    decode_stream_header,
    encode_datagram,
    encode_fetch_header,
    encode_subgroup_header,
    realias_datagram,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from laps.wire.moqt.object_fields import MAX_EXTENSIONS_BYTES, encode_object, encode_object_header
from laps.wire.moqt.objects import Object, ObjectReader
from unit.wire.moqt.strategies import chunked, cuts, subgroups
from unit.wire.moqt.vectors import Case, with_key

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
EXTENDED = pytest.mark.parametrize("has_extensions", [False, True])
SUBGROUPS = [case for case in with_key("stream") if case.meaning["stream"] == "subgroup"]


def header(has_extensions: bool = False) -> SubgroupHeader:
    return SubgroupHeader(1, 7, 0, 5, has_extensions)


def write(objects: list[Object], has_extensions: bool) -> bytes:
    data, last_id = b"", -1
    for item in objects:
        delta = item.object_id - last_id - 1
        data += encode_object(delta, item.extensions, item.payload, item.status, has_extensions)
        last_id = item.object_id
    return data


def measured(objects: list[Object], has_extensions: bool, offset: int) -> list[Boundary]:
    boundaries, last_id = [], -1
    for item in objects:
        delta = item.object_id - last_id - 1
        size = len(item.payload)
        head = encode_object_header(delta, item.extensions, size, item.status, has_extensions)
        payload = offset + len(head)
        behind_id = offset + len(encode_varint(delta))
        row = (item.object_id, offset, behind_id, payload, payload + size, item.status)
        boundaries.append(row)
        offset, last_id = payload + size, item.object_id
    return boundaries


# --- whole objects ---------------------------------------------------------------------------


@BOTH
@EXTENDED
@given(data=st.data())
def test_objects_are_read_however_they_are_cut(
    dialect: Dialect, has_extensions: bool, data: st.DataObject
) -> None:
    objects = data.draw(subgroups(dialect.draft, has_extensions))
    stream = write(objects, has_extensions)
    for chunks in (
        [stream],
        chunked(stream, data.draw(cuts(len(stream)))),
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        reader = ObjectReader(header(has_extensions), dialect)
        assert [item for chunk in chunks for item in reader.feed(chunk)] == objects
        reader.finish()


@pytest.mark.parametrize("case", SUBGROUPS, ids=lambda case: case.name)
def test_every_vector_is_read_byte_by_byte(case: Case) -> None:
    whole, length = decode_stream_header(case.data, case.dialect)
    assert isinstance(whole, SubgroupHeader)
    for size in range(length):
        with pytest.raises(Incomplete):
            decode_stream_header(case.data[:size], case.dialect)
    objects = ObjectReader(whole, case.dialect).feed(case.data[length:])
    reader = ObjectReader(whole, case.dialect)
    view = memoryview(case.data)[length:]
    assert [item for i in range(len(view)) for item in reader.feed(view[i : i + 1])] == objects


def test_a_large_payload_comes_once_it_is_whole() -> None:
    payload = bytes(range(256)) * 400
    stream = encode_object(0, b"", payload) + encode_object(0, b"", b"next")
    reader = ObjectReader(header(), DRAFT16)
    chunks = [stream[i : i + 1000] for i in range(0, len(stream), 1000)]
    arrived = [reader.feed(chunk) for chunk in chunks]
    assert not any(arrived[:-1])
    assert [item.payload for item in arrived[-1]] == [payload, b"next"]


def test_a_payload_that_is_one_chunk_is_not_copied() -> None:
    payload = bytes(1000)
    reader = ObjectReader(header(), DRAFT16)
    assert reader.feed(encode_object_header(0, b"", 1000)) == []
    assert reader.feed(payload)[0].payload == payload


@BOTH
def test_more_than_we_put_together_is_refused(dialect: Dialect) -> None:
    reader = ObjectReader(header(), dialect, max_payload_bytes=10)
    assert reader.feed(encode_object_header(0, b"", 10)) == []
    reader.feed(bytes(10))
    with pytest.raises(MoqtViolation, match="11 bytes") as caught:
        reader.feed(encode_object_header(0, b"", 11))
    assert caught.value.code == SessionCode.INTERNAL_ERROR


@BOTH
def test_more_extensions_than_we_hold_are_refused(dialect: Dialect) -> None:
    head = b"\0" + encode_varint(MAX_EXTENSIONS_BYTES + 1)
    with pytest.raises(MoqtViolation, match="extensions"):
        ObjectReader(header(True), dialect).feed(head)
    with pytest.raises(MoqtViolation, match="extensions"):
        BoundaryScanner(dialect, True).feed(head)


def test_what_no_object_can_be_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="has payload"):
        encode_object(0, b"", b"x", status=3)
    with pytest.raises(LocalProtocolError, match="says there are none"):
        encode_object(0, b"\x3c\x01", b"x")
    with pytest.raises(LocalProtocolError, match="negative"):
        encode_object(-1, b"", b"x")


# --- boundaries ------------------------------------------------------------------------------


@BOTH
@EXTENDED
@given(data=st.data())
def test_boundaries_are_found_however_the_stream_is_cut(
    dialect: Dialect, has_extensions: bool, data: st.DataObject
) -> None:
    objects = data.draw(subgroups(dialect.draft, has_extensions))
    stream = write(objects, has_extensions)
    expected = measured(objects, has_extensions, 5)
    for chunks in (
        [stream],
        chunked(stream, data.draw(cuts(len(stream)))),
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        scanner = BoundaryScanner(dialect, has_extensions, offset=5)
        found: list[Boundary] = []
        seen = 5
        for chunk in chunks:
            found += scanner.feed(chunk)
            seen += len(chunk)
            complete = [row for row in expected if row[4] <= seen]
            # An object is complete when its header was read and its payload is there.
            assert scanner.offset == seen
            assert scanner.complete_objects == len(complete)
            assert scanner.next_object_offset == (complete[-1][4] if complete else 5)
            assert scanner.complete_id == (complete[-1][0] if complete else -1)
            scanner = scanner.copy()
            assert scanner.at_boundary == (scanner.next_object_offset == seen)
            assert len(scanner._held) < 20
        assert found == expected
        scanner.finish()
        assert scanner.first_object_id == (objects[0].object_id if objects else None)
        assert scanner.last_object_id == (objects[-1].object_id if objects else None)
        assert scanner.statuses == {item.status for item in objects} - {0}


@BOTH
@EXTENDED
def test_a_stream_can_be_begun_at_any_boundary(dialect: Dialect, has_extensions: bool) -> None:
    raw = b"\x3c\x01" if has_extensions else b""
    objects = [Object(7, 0, n * 3, 5, 0, raw, b"x" * n) for n in range(1, 5)]
    stream = write(objects, has_extensions)
    boundaries = BoundaryScanner(dialect, has_extensions).feed(stream)
    for skipped, (object_id, _, behind_id, *_) in enumerate(boundaries):
        late = encode_varint(object_id) + stream[behind_id:]
        assert ObjectReader(header(has_extensions), dialect).feed(late) == objects[skipped:]


def test_a_copy_goes_on_by_itself() -> None:
    scanner = BoundaryScanner(DRAFT16, False)
    scanner.feed(b"\0\5ab")
    other = scanner.copy()
    assert other.feed(b"cde\0\0\3") == [(1, 7, 8, 10, 10, 3)]
    assert (other.complete_objects, other.statuses) == (2, {3})
    assert (scanner.complete_objects, scanner.statuses, scanner.offset) == (0, set(), 4)


@BOTH
@EXTENDED
def test_a_reader_goes_on_where_a_scanner_stands(dialect: Dialect, has_extensions: bool) -> None:
    objects = [Object(7, 2, 2 + n * 3, 5, 0, b"", b"x" * n) for n in range(1, 5)]
    stream = write(objects, has_extensions)
    named = SubgroupHeader(1, 7, None, 5, has_extensions)
    for cut in range(len(stream)):
        scanner = BoundaryScanner(dialect, has_extensions)
        scanner.feed(stream[:cut])
        reader = ObjectReader(named, dialect)
        reader.resume(scanner.complete_id, subgroup=5)
        rest = reader.feed(stream[scanner.next_object_offset :])
        assert [item.object_id for item in rest] == [
            item.object_id for item in objects[scanner.complete_objects :]
        ]
        assert {item.subgroup for item in rest} <= {5}


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7])
def test_a_stream_may_not_end_inside_an_object(dialect: Dialect, size: int) -> None:
    stream = b"\0\2\x3c\1\3abc"[:size]
    scanner = BoundaryScanner(dialect, True)
    scanner.feed(stream)
    assert not scanner.at_boundary
    with pytest.raises(MoqtViolation, match=f"{size} bytes into an object"):
        scanner.finish()


def feed_all(consumer: ObjectReader | BoundaryScanner, data: bytes) -> None:
    for i in range(len(data)):
        consumer.feed(data[i : i + 1])
    consumer.finish()


@pytest.mark.parametrize(
    "case",
    [case for case in with_key("error") if case.meaning["reader"] == "stream"],
    ids=lambda case: case.name,
)
def test_what_is_wrong_is_refused_byte_by_byte_and_while_measuring(case: Case) -> None:
    try:
        whole, length = decode_stream_header(case.data, case.dialect)
    except MoqtViolation:
        return
    if isinstance(whole, FetchHeader):
        return
    reader = ObjectReader(whole, case.dialect)
    scanner = BoundaryScanner(case.dialect, whole.has_extensions)
    for consumer in (reader, scanner):
        with pytest.raises(MoqtViolation) as caught:
            feed_all(consumer, case.data[length:])
        assert caught.value.code == SessionCode.PROTOCOL_VIOLATION


# --- headers ---------------------------------------------------------------------------------

ids = st.integers(0, (1 << 62) - 1)
headers = st.builds(
    SubgroupHeader,
    ids,
    ids,
    st.none() | st.just(0) | ids,
    st.none() | st.integers(0, 255),
    st.booleans(),
    st.booleans(),
)


@given(headers)
def test_a_stream_header_goes_both_ways(said: SubgroupHeader) -> None:
    data = encode_subgroup_header(said, DRAFT16)
    assert decode_stream_header(data + b"more", DRAFT16) == (said, len(data))
    data = encode_subgroup_header(said, DRAFT14, default_priority=9)
    if said.priority is None:
        said.priority = 9
    assert decode_stream_header(data, DRAFT14) == (said, len(data))


@BOTH
@given(request_id=ids)
def test_a_fetch_header_goes_both_ways(dialect: Dialect, request_id: int) -> None:
    data = encode_fetch_header(FetchHeader(request_id))
    assert decode_stream_header(data, dialect) == (FetchHeader(request_id), len(data))


@BOTH
def test_every_stream_type_is_known_or_refused(dialect: Dialect) -> None:
    known = {0x05, *range(0x10, 0x16), *range(0x18, 0x1E)}
    if dialect is DRAFT16:
        known |= {*range(0x30, 0x36), *range(0x38, 0x3E)}
    for type_ in range(0x100):
        data = encode_varint(type_)
        expected = Incomplete if type_ in known else MoqtViolation
        with pytest.raises(expected):
            decode_stream_header(data, dialect)


@BOTH
def test_a_priority_fits_a_byte(dialect: Dialect) -> None:
    with pytest.raises(LocalProtocolError, match="priority 256"):
        encode_subgroup_header(SubgroupHeader(0, 0, 0, 256), dialect)


# --- datagrams -------------------------------------------------------------------------------


@st.composite
def datagrams(draw: st.DrawFn, draft: int) -> DatagramObject:
    statuses = [0, 1, 3, 4] if draft == 14 else [0, 3, 4]
    status = draw(st.none() | st.sampled_from(statuses))
    bare = status == 1 if draft == 14 else bool(status)
    return DatagramObject(
        draw(ids),
        draw(ids),
        draw(st.just(0) | ids),
        draw(st.integers(0, 255) if draft == 14 else st.none() | st.integers(0, 255)),
        b"" if bare else draw(st.binary(max_size=20)),
        status,
        b"" if status is not None else draw(st.binary(max_size=100)),
        status is None and draw(st.booleans()),
    )


@BOTH
@given(data=st.data())
def test_a_datagram_goes_both_ways(dialect: Dialect, data: st.DataObject) -> None:
    said = data.draw(datagrams(dialect.draft))
    written = encode_datagram(said, dialect)
    assert decode_datagram(written, dialect) == said
    assert decode_datagram(memoryview(written), dialect) == said
    said.alias = data.draw(ids)
    assert realias_datagram(written, said.alias) == encode_datagram(said, dialect)
    assert realias_datagram(memoryview(written), said.alias) == encode_datagram(said, dialect)


@BOTH
def test_every_datagram_type_is_known_or_refused(dialect: Dialect) -> None:
    known = {*range(0x08), 0x20, 0x21}
    if dialect is DRAFT16:
        known = {*range(0x10)} | {type_ for type_ in range(0x20, 0x30) if not type_ & 2}
    for type_ in range(0x100):
        with pytest.raises(MoqtViolation) as caught:
            decode_datagram(encode_varint(type_), dialect)
        assert ("ends inside" in str(caught.value)) is (type_ in known)


def test_draft_14_says_the_priority_of_the_track() -> None:
    said = DatagramObject(1, 2, 3, None, payload=b"x")
    assert decode_datagram(encode_datagram(said, DRAFT14, 44), DRAFT14).priority == 44


def test_a_datagram_without_its_alias_is_refused() -> None:
    with pytest.raises(MoqtViolation, match="2 bytes"):
        realias_datagram(b"\0\x40", 1)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (DatagramObject(1, 2, 3, 4, status=3, payload=b"x"), "no payload"),
        (DatagramObject(1, 2, 3, 4, status=3, end_of_group=True), "ends no group"),
        (DatagramObject(1, 2, 3, 4, status=1), "no object status 0x1"),
        (DatagramObject(1, 2, 3, 4, b"\x3c\x01", 3), "no extensions"),
        (DatagramObject(1, 2, 3, 300), "priority 300"),
    ],
)
def test_what_no_datagram_can_be_is_not_written(said: DatagramObject, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        encode_datagram(said, DRAFT16)
