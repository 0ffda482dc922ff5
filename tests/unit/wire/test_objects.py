"""Data object headers there and back, and data streams cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import (
    InvalidEncoding,
    InvalidStartOfStream,
    LocalProtocolError,
    RemoteProtocolError,
)
from laps.types import SnsId, TrackKey
from laps.wire.buffer import VARINT_MAX
from laps.wire.objects import (
    MAX_HEADER_LENGTH,
    DatagramHeader,
    DataStreamDecoder,
    ExistingStreamHeader,
    NewStreamHeader,
    StreamEvent,
    decode_datagram,
    decode_object_header,
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)

# No test times a wall clock, Hypothesis included.
quick = settings(deadline=None, max_examples=50)

KEY = TrackKey(2)

track_keys = st.integers(0, 2**64 - 1).map(TrackKey)
sns_ids = st.integers(1, 2**32 - 1).map(SnsId)
# Every size of varint as often as the others.
lengths = st.one_of(
    st.integers(0, 63),
    st.integers(64, 2**14 - 1),
    st.integers(2**14, 2**30 - 1),
    st.integers(2**30, VARINT_MAX),
)
data_lengths_at_the_bounds = st.sampled_from([0, 63, 64, 2**14 - 1, 2**14, 2**30 - 1, 2**30])

START = encode_new_stream_header(SnsId(1), KEY, 3, 4, data_length=5)


def varint(value: int, size: int) -> bytes:
    return (value | {1: 0, 2: 1, 4: 2, 8: 3}[size] << 8 * size - 2).to_bytes(size, "big")


@quick
@given(sns_ids, track_keys, lengths | data_lengths_at_the_bounds, st.binary(max_size=3))
def test_a_datagram_header_survives_the_wire(
    sns_id: SnsId, full_name_hash: TrackKey, data_length: int, before: bytes
) -> None:
    data = encode_datagram_header(sns_id, full_name_hash, data_length)
    header = DatagramHeader(sns_id, full_name_hash, data_length, len(data))
    assert decode_object_header(before + data, len(before)) == header
    assert all(decode_object_header(data[:cut]) is None for cut in range(len(data)))


@quick
@given(
    sns_ids,
    track_keys,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    lengths | data_lengths_at_the_bounds,
    st.binary(max_size=3),
)
def test_a_new_stream_header_survives_the_wire(
    sns_id: SnsId,
    full_name_hash: TrackKey,
    priority: int,
    ttl_us: int,
    data_length: int,
    before: bytes,
) -> None:
    data = encode_new_stream_header(sns_id, full_name_hash, priority, ttl_us, data_length)
    header = NewStreamHeader(sns_id, full_name_hash, priority, ttl_us, data_length, len(data))
    assert len(data) <= MAX_HEADER_LENGTH
    assert decode_object_header(before + data, len(before)) == header
    assert all(decode_object_header(data[:cut]) is None for cut in range(len(data)))


@quick
@given(lengths | data_lengths_at_the_bounds, st.binary(max_size=3))
def test_an_existing_stream_header_survives_the_wire(data_length: int, before: bytes) -> None:
    data = encode_existing_stream_header(data_length)
    header = ExistingStreamHeader(data_length, len(data))
    assert decode_object_header(before + data, len(before)) == header
    assert all(decode_object_header(data[:cut]) is None for cut in range(len(data)))


@quick
@given(
    sns_ids, track_keys, st.sampled_from([4, 8]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 63)
)
def test_an_sns_id_is_read_in_4_and_in_8_bytes(
    sns_id: SnsId, full_name_hash: TrackKey, sns_size: int, varint_size: int, data_length: int
) -> None:
    rest = full_name_hash.to_bytes(8, "big") + b"\7\0\0\0\11" + varint(data_length, varint_size)
    header_length = 2 + sns_size + len(rest)
    data = bytes([header_length, 2]) + sns_id.to_bytes(sns_size, "big") + rest
    header = NewStreamHeader(sns_id, full_name_hash, 7, 9, data_length, header_length)
    assert decode_object_header(data) == header
    # The same without priority and ttl is a datagram.
    data = bytes([header_length - 5, 0]) + data[2 : 10 + sns_size] + data[15 + sns_size :]
    datagram = DatagramHeader(sns_id, full_name_hash, data_length, header_length - 5)
    assert decode_object_header(data) == datagram


@pytest.mark.parametrize("sns_id", [0, -1, 2**32])
def test_an_sns_id_outside_its_bounds_is_never_written(sns_id: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"SNS id {sns_id} is outside"):
        encode_datagram_header(SnsId(sns_id), KEY, 1)
    with pytest.raises(LocalProtocolError, match=f"SNS id {sns_id} is outside"):
        encode_new_stream_header(SnsId(sns_id), KEY, 1, 1, 1)


def test_fields_past_their_bits_are_never_written() -> None:
    with pytest.raises(LocalProtocolError, match="DATAGRAM: "):
        encode_datagram_header(SnsId(1), TrackKey(2**64), 1)
    with pytest.raises(LocalProtocolError, match="NEW_STREAM: "):
        encode_new_stream_header(SnsId(1), KEY, 256, 1, 1)
    with pytest.raises(LocalProtocolError, match="NEW_STREAM: "):
        encode_new_stream_header(SnsId(1), KEY, 1, 2**32, 1)
    with pytest.raises(LocalProtocolError, match="a varint holds"):
        encode_existing_stream_header(VARINT_MAX + 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("0303", "data object type 3 is unknown"),
        ("0501", "EXISTING_STREAM: no header is 5 bytes long"),
        ("030140", "EXISTING_STREAM: data_length does not end at header_length 3"),
        ("0a0101" + "00" * 7, "EXISTING_STREAM: data_length does not end at header_length 10"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: str, words: str) -> None:
    with pytest.raises(InvalidEncoding, match=words):
        decode_object_header(bytes.fromhex(data))


def test_a_datagram_comes_apart_without_a_copy() -> None:
    data = encode_datagram_header(SnsId(1), KEY, 3) + b"abc"
    header, payload = decode_datagram(data)
    assert header == DatagramHeader(SnsId(1), KEY, 3, 19)
    assert bytes(payload) == b"abc"
    assert payload.obj is data


# --- streams ---------------------------------------------------------------------------------


def joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """The events with the payload of each object in one piece."""
    out: list[StreamEvent] = []
    for event in events:
        if isinstance(event, (bytes, memoryview)):
            assert len(event) > 0
            if out and isinstance(out[-1], bytes):
                out[-1] += bytes(event)
            else:
                out.append(bytes(event))
        else:
            out.append(event)
    return out


@quick
@given(st.lists(st.binary(max_size=70), min_size=1, max_size=4), st.data())
def test_any_cut_of_a_stream_gives_the_same_objects(
    objects: list[bytes], draw: st.DataObject
) -> None:
    first, *later = objects
    stream = encode_new_stream_header(SnsId(1), KEY, 3, 4, len(first)) + first
    expected: list[StreamEvent] = [
        NewStreamHeader(SnsId(1), KEY, 3, 4, len(first), len(stream) - len(first))
    ]
    expected += [first] if first else []
    for payload in later:
        head = encode_existing_stream_header(len(payload))
        stream += head + payload
        expected.append(ExistingStreamHeader(len(payload), len(head)))
        expected += [payload] if payload else []
    cuts = draw.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    decoder = DataStreamDecoder()
    events: list[StreamEvent] = []
    for start, end in pairwise([0, *cuts, len(stream)]):
        events += decoder.feed(stream[start:end])
    decoder.finish()
    assert joined(events) == expected


def test_a_stream_may_come_byte_by_byte() -> None:
    decoder = DataStreamDecoder()
    stream = START + b"hello" + encode_existing_stream_header(2) + b"yo"
    events = [event for byte in stream for event in decoder.feed(bytes([byte]))]
    assert joined(events) == [
        NewStreamHeader(SnsId(1), KEY, 3, 4, 5, 24),
        b"hello",
        ExistingStreamHeader(2, 3),
        b"yo",
    ]
    # Payload is handed on as it comes, not when its object is whole.
    assert len(events) == 2 + 5 + 2


def test_a_chunk_inside_one_object_is_handed_back_itself() -> None:
    decoder = DataStreamDecoder()
    decoder.feed(encode_new_stream_header(SnsId(1), KEY, 3, 4, 2400))
    first, second = bytes(1200), bytes(1200)
    for chunk in (first, second):
        (event,) = decoder.feed(chunk)
        assert event is chunk
    decoder.finish()


def test_payload_beside_headers_is_a_view() -> None:
    chunk = START + b"hello" + encode_existing_stream_header(9)
    header, payload, boundary = DataStreamDecoder().feed(chunk)
    assert isinstance(header, NewStreamHeader)
    assert isinstance(payload, memoryview)
    assert payload.obj is chunk
    assert boundary == ExistingStreamHeader(9, 3)


@pytest.mark.parametrize("size", [40, 100, 20_000])
def test_a_later_object_that_comes_alone_is_read_at_once(size: int) -> None:
    later = encode_existing_stream_header(size) + bytes(size)
    decoder = DataStreamDecoder()
    assert decoder.inside(later) is None  # the stream has not begun
    decoder.feed(encode_new_stream_header(SnsId(1), TrackKey(2), 3, 4, 2) + b"a")
    assert decoder.inside(later) is None  # an object is under way, and this is more
    assert decoder.inside(b"b") == b"b"
    for data in (later, later[:35], later[35:], later[:-1], later[-1:]):
        payload = decoder.inside(data)
        assert payload is not None
        assert not any(payload)
    for other in (later + b"x", later + later, b"\x03\x07" + later[2:], later[:31]):
        assert decoder.inside(other) is None
    decoder.feed(later[:1])
    assert decoder.inside(later) is None  # a header is under way
    decoder.feed(later[1:])
    decoder.finish()


def test_an_empty_chunk_is_nothing() -> None:
    decoder = DataStreamDecoder()
    assert decoder.feed(b"") == []
    decoder.feed(START)
    assert decoder.feed(b"") == []
    assert decoder.feed(b"hello") == [b"hello"]
    assert decoder.feed(b"") == []


@pytest.mark.parametrize("object_type", [0, 1, 3, 255])
def test_a_stream_that_starts_wrong_is_refused_at_its_second_byte(object_type: int) -> None:
    decoder = DataStreamDecoder()
    assert decoder.feed(b"\x18") == []
    with pytest.raises(InvalidStartOfStream, match=f"starts with type {object_type}"):
        decoder.feed(bytes([object_type]))


@pytest.mark.parametrize("object_type", [0, 2, 3, 255])
def test_a_stream_that_goes_on_wrong_is_refused_at_the_second_byte(object_type: int) -> None:
    decoder = DataStreamDecoder()
    decoder.feed(START + b"hello\x03")
    with pytest.raises(InvalidEncoding, match=f"goes on with type {object_type}"):
        decoder.feed(bytes([object_type]))


def test_a_lost_stream_stays_lost_with_the_same_error() -> None:
    decoder = DataStreamDecoder()
    with pytest.raises(RemoteProtocolError) as first:
        decoder.feed(b"\x03\x01")
    for again in (lambda: decoder.feed(START), lambda: decoder.feed(b""), decoder.finish):
        with pytest.raises(InvalidStartOfStream) as later:
            again()
        assert later.value is first.value


@pytest.mark.parametrize(
    ("stream", "error", "words"),
    [
        (b"", InvalidStartOfStream, "ended ahead of its first header"),
        (START[:-1], InvalidStartOfStream, "ended ahead of its first header"),
        (START, InvalidEncoding, "ended 5 bytes ahead"),
        (START + b"hell", InvalidEncoding, "ended 1 bytes ahead"),
        (START + b"hello\x03", InvalidEncoding, "ended inside a header"),
    ],
)
def test_a_stream_that_ends_too_soon_is_refused(
    stream: bytes, error: type[RemoteProtocolError], words: str
) -> None:
    decoder = DataStreamDecoder()
    decoder.feed(stream)
    with pytest.raises(error, match=words):
        decoder.finish()


def test_what_is_held_is_less_than_a_header() -> None:
    decoder = DataStreamDecoder()
    longest = encode_new_stream_header(SnsId(1), KEY, 3, 4, VARINT_MAX)
    for byte in longest[:-1]:
        assert decoder.feed(bytes([byte])) == []
        assert len(decoder._unfinished) < MAX_HEADER_LENGTH == len(longest)
    assert decoder.feed(longest[-1:] + bytes(100_000))[1:] == [bytes(100_000)]
    assert decoder._unfinished == b""
