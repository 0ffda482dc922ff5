"""Varints and the cursor: a value, not enough bytes yet, or invalid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.wire.buffer import VARINT_MAX, Cursor, Incomplete, decode_varint, encode_varint

# No test times a wall clock, Hypothesis included.
quick = settings(deadline=None, max_examples=50)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        # The examples of RFC 9000, appendix A.1.
        (151_288_809_941_952_652, "c2197c5eff14e88c"),
        (494_878_333, "9d7f3e7d"),
        (15_293, "7bbd"),
        (37, "25"),
        # Where one size ends and the next begins.
        (0, "00"),
        (63, "3f"),
        (64, "4040"),
        (16_383, "7fff"),
        (16_384, "80004000"),
        (2**30 - 1, "bfffffff"),
        (2**30, "c000000040000000"),
        (VARINT_MAX, "ffffffffffffffff"),
    ],
)
def test_varints_are_rfc_9000s(value: int, data: str) -> None:
    assert encode_varint(value).hex() == data
    assert decode_varint(bytes.fromhex(data)) == (value, len(data) // 2)


@pytest.mark.parametrize("data", ["4025", "80000025", "c000000000000025"])
def test_a_varint_longer_than_it_need_be_is_read(data: str) -> None:
    assert decode_varint(bytes.fromhex(data))[0] == 37


@pytest.mark.parametrize("value", [-1, VARINT_MAX + 1])
def test_what_no_varint_holds_is_our_own_fault(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="a varint holds 0 to 2\\^62-1"):
        encode_varint(value)


@quick
@given(st.integers(0, VARINT_MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_anywhere(value: int, before: bytes, after: bytes) -> None:
    data = before + encode_varint(value) + after
    assert decode_varint(data, len(before)) == (value, len(data) - len(after))
    assert decode_varint(memoryview(data), len(before)) == (value, len(data) - len(after))


@quick
@given(st.integers(0, VARINT_MAX), st.data())
def test_a_varint_cut_short_waits(value: int, draw: st.DataObject) -> None:
    data = encode_varint(value)
    cut = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(Incomplete):
        decode_varint(data[:cut])


FIELDS = bytes.fromhex("01 0203 04050607 08090a0b0c0d0e0f 7bbd aabb")


def test_a_cursor_reads_field_after_field() -> None:
    cursor = Cursor(memoryview(FIELDS), whole=True)
    assert cursor.u8("a") == 1
    assert cursor.u16("b") == 0x0203
    assert cursor.u32("c") == 0x04050607
    assert cursor.u64("d") == 0x08090A0B0C0D0E0F
    assert cursor.varint("f") == 15_293
    assert cursor.remaining == 2
    assert bytes(cursor.take(1, "g")) == b"\xaa"
    assert bytes(cursor.rest()) == b"\xbb"
    assert cursor.remaining == 0
    assert bytes(cursor.rest()) == b""


def test_a_cursor_copies_nothing() -> None:
    assert Cursor(memoryview(FIELDS), whole=True).take(4, "x").obj is FIELDS


@pytest.mark.parametrize(
    ("method", "size"),
    [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8), ("varint", 8)],
)
def test_running_out_is_invalid_in_a_whole_message_and_else_waits(method: str, size: int) -> None:
    for available in range(size):
        data = memoryview(b"\xff" * available)
        with pytest.raises(InvalidEncoding, match="the message ends inside this field"):
            getattr(Cursor(data, whole=True), method)("this field")
        with pytest.raises(Incomplete):
            getattr(Cursor(data, whole=False), method)("this field")


def test_a_failed_read_does_not_move_the_cursor() -> None:
    cursor = Cursor(memoryview(b"\xff\xff\xff"), whole=False)
    for read in (cursor.u32, cursor.u64, cursor.varint):
        with pytest.raises(Incomplete):
            read("x")
    assert cursor.u16("x") == 0xFFFF


def test_integers_up_to_the_end() -> None:
    cursor = Cursor(memoryview(bytes(7) + b"\1" + bytes(7) + b"\2"), whole=True)
    assert cursor.u64s("ids") == (1, 2)
    assert cursor.u64s("ids") == ()


def test_integers_that_do_not_fill_the_message_are_invalid() -> None:
    with pytest.raises(InvalidEncoding, match="ids is not a multiple of 8 bytes: 1 left over"):
        Cursor(memoryview(bytes(9)), whole=True).u64s("ids")
