"""Reading and writing the integers of the wire.

There are two ways to fail to read: `Incomplete`, when more bytes may still come, and
`InvalidEncoding`, when they cannot.
"""

import struct
from typing import NoReturn

from laps.errors import InvalidEncoding, LocalProtocolError

VARINT_MAX = (1 << 62) - 1

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")


class Incomplete(Exception):  # noqa: N818 - a signal to wait, not an error
    """The bytes end before the value does, and the rest may still come."""


# varint: RFC 9000 section 16
# 2 bits of the first byte: log2 of the size | 6, 14, 30 or 62 bits, big endian


def encode_varint(value: int) -> bytes:
    """The value in the fewest bytes that hold it."""
    if value < 0:
        raise LocalProtocolError(f"{value} is negative: a varint holds 0 to 2^62-1")
    if value < 1 << 6:
        return value.to_bytes(1)
    if value < 1 << 14:
        return _U16.pack(value | 0x4000)
    if value < 1 << 30:
        return _U32.pack(value | 0x8000_0000)
    if value < 1 << 62:
        return _U64.pack(value | 0xC000_0000_0000_0000)
    raise LocalProtocolError(f"{value} is too large: a varint holds 0 to 2^62-1")


def decode_varint(view: bytes | bytearray | memoryview, offset: int = 0) -> tuple[int, int]:
    """The value and the offset behind it, or `Incomplete`."""
    # Nothing is called as often: it is not asked first whether the bytes are there.
    try:
        first = view[offset]
        if first < 0x40:
            return first, offset + 1
        if first < 0x80:
            return (first & 0x3F) << 8 | view[offset + 1], offset + 2
        if first < 0xC0:
            return _U32.unpack_from(view, offset)[0] & 0x3FFF_FFFF, offset + 4
        return _U64.unpack_from(view, offset)[0] & VARINT_MAX, offset + 8
    except (IndexError, struct.error):
        raise Incomplete from None


class Cursor:
    """Reads one field after the other.

    Over a whole message, running out of bytes is the peer's mistake and named after the field;
    over the start of one it is `Incomplete`.
    """

    __slots__ = ("offset", "view", "whole")

    def __init__(self, view: memoryview, offset: int = 0, *, whole: bool) -> None:
        self.view = view
        self.offset = offset
        self.whole = whole

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.view) - self.offset

    def take(self, size: int, field: str) -> memoryview:
        """The next bytes, not copied."""
        start = self.offset
        if size > len(self.view) - start:
            self._run_out(field)
        self.offset = start + size
        return self.view[start : self.offset]

    def u8(self, field: str) -> int:
        """An 8-bit integer."""
        return self.take(1, field)[0]

    def u16(self, field: str) -> int:
        """A 16-bit integer."""
        return int.from_bytes(self.take(2, field))

    def u32(self, field: str) -> int:
        """A 32-bit integer."""
        return int.from_bytes(self.take(4, field))

    def u64(self, field: str) -> int:
        """A 64-bit integer."""
        return int.from_bytes(self.take(8, field))

    def varint(self, field: str) -> int:
        """A QUIC varint."""
        try:
            value, self.offset = decode_varint(self.view, self.offset)
        except Incomplete:
            self._run_out(field)
        return value

    def u64s(self, field: str) -> tuple[int, ...]:
        """64-bit integers up to the end of the message."""
        count, odd = divmod(self.remaining, 8)
        if odd:
            raise InvalidEncoding(f"{field} is not a multiple of 8 bytes: {odd} left over")
        return struct.unpack(f">{count}Q", self.rest())

    def rest(self) -> memoryview:
        """Everything up to the end of the message, not copied."""
        return self.take(self.remaining, "the rest")

    def _run_out(self, field: str) -> NoReturn:
        if self.whole:
            raise InvalidEncoding(f"the message ends inside {field}")
        raise Incomplete
