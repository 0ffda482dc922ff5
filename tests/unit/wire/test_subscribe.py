"""The SUBSCRIBE inside subscribe information: written, read, and refused where it is none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laps.errors import InvalidEncoding
from laps.names import MAX_FULL_NAME_BYTES, MAX_NAMESPACE_FIELDS
from laps.types import TrackName
from laps.wire.buffer import encode_varint
from laps.wire.subscribe import (
    decode_track_name,
    encode_subscribe,
)

names = st.builds(
    TrackName,
    st.lists(st.binary(max_size=80), max_size=MAX_NAMESPACE_FIELDS).map(tuple),
    st.binary(max_size=80),
)


def frame(body: bytes, kind: int = 3) -> bytes:
    """A message of MoQT draft 16 around a body."""
    return encode_varint(kind) + len(body).to_bytes(2) + body


def field(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


@given(names, st.integers(0, 2**62 - 1))
@example(TrackName((), b""), 0)
@example(TrackName((b"x" * 64,) * MAX_NAMESPACE_FIELDS, b"y" * 2048), 0)
def test_a_name_survives_the_way(name: TrackName, request_id: int) -> None:
    data = encode_subscribe(name, request_id)
    assert decode_track_name(data) == name
    assert decode_track_name(memoryview(data)) == name


def test_the_bytes_are_the_draft_s() -> None:
    data = encode_subscribe(TrackName((b"ab", b"c"), b"xyz"), request_id=64)
    assert data == (
        b"\x03"  # SUBSCRIBE
        b"\x00\x0d"  # 13 bytes follow
        b"\x40\x40"  # request id 64
        b"\x02\x02ab\x01c"  # two namespace fields
        b"\x03xyz"
        b"\x00"  # no parameters
    )


def test_parameters_are_not_looked_at() -> None:
    body = encode_varint(0) + encode_varint(1) + field(b"ns") + field(b"t")
    assert decode_track_name(frame(body + b"\x01\x21\xff\xff")) == TrackName((b"ns",), b"t")


@given(names, st.data())
def test_whatever_is_cut_off_is_refused(name: TrackName, data: st.DataObject) -> None:
    whole = encode_subscribe(name)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(InvalidEncoding):
        decode_track_name(cut)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_is_a_name(data: bytes) -> None:
    try:
        name = decode_track_name(data)
    except InvalidEncoding:
        return
    assert len(name.namespace) <= MAX_NAMESPACE_FIELDS


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "type"),
        (frame(b"\x00\x00\x00\x00", kind=4), "type 4"),
        (b"\x03\x00", "length"),
        (b"\x03\x00\x05\x00\x00\x00\x00", "says 5 bytes and has 4"),
        (b"\x03\x00\x03\x00\x00\x00\x00", "says 3 bytes and has 4"),
        (frame(b""), "request id"),
        (frame(b"\x00"), "number of namespace fields"),
        (frame(b"\x00\x21" + b"\x00" * 40), "33 fields"),
        (frame(b"\x00\xff" + b"\xff" * 7), "fields"),
        (frame(b"\x00\x01\x05abc"), "namespace field"),
        (frame(b"\x00\x01\x01a"), "track name"),
        (frame(b"\x00\x01\x01a\x09b"), "track name"),
        (
            frame(b"\x00\x01" + field(b"n" * MAX_FULL_NAME_BYTES) + field(b"t") + b"\x00"),
            "4096 bytes",
        ),
    ],
)
def test_what_is_no_subscribe_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidEncoding, match=words) as raised:
        decode_track_name(data)
    assert raised.value.code == 35
