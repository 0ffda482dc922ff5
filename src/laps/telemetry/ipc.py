"""Arrow's IPC stream, as much of it as records need: a schema, a batch, the end.

    message   0xffffffff | size(4) of the metadata, little endian | metadata, padded to 8 | body
    stream    message: the schema | message: a batch, its body the buffers | 0xffffffff | 0(4)

The metadata is a flatbuffer: tables whose fields may be left out, each behind a list of where its
fields are. They are written here front to back, every table ahead of what it refers to. A package
that writes all of Arrow would take 2.3 MB more in every relay, and eight times as long for a row.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from laps.telemetry.records import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.telemetry.records import Kind

    Part = Callable[[bytearray], int]
    "Writes itself behind what is there, and returns where it begins."
    Field = tuple[str, int | Part] | None
    "A field of a table: its format in `struct`, or `o` for what stands elsewhere; None: left out."

ALIGNMENT: Final = 8
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"

# The numbers of Arrow's own: of the format, of headers, of types.
_VERSION_5: Final = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_INT, _FLOATING_POINT, _UTF8, _BOOL, _TIMESTAMP, _LIST = 2, 3, 5, 6, 10, 12
_DOUBLE_PRECISION: Final = 2
_MICROSECONDS: Final = 2


def schema_message(kind: Kind) -> bytes:
    """What a stream of these records begins with."""
    fields = [_field(column.name, column.type) for column in kind.columns]
    return _message(_SCHEMA, _table(None, ("o", _vector(fields))), 0)


def batch_message(length: int, node_lengths: Sequence[int], buffers: Sequence[bytes]) -> bytes:
    """A batch of so many records: a length for each column and list item, and their buffers."""
    offset = 0
    places: list[int] = []
    parts: list[bytes] = []
    for buffer in buffers:
        size = len(buffer)
        places += (offset, size)
        padding = -size % ALIGNMENT
        parts.append(buffer)
        if padding:
            parts.append(bytes(padding))
        offset += size + padding
    nodes = [number for node in node_lengths for number in (node, 0)]  # nothing is ever null
    header = _table(("q", length), ("o", _pairs(nodes)), ("o", _pairs(places)))
    return b"".join((_message(_RECORD_BATCH, header, offset), *parts))


def _message(kind: int, header: Part, body_size: int) -> bytes:
    fields: list[Field] = [("h", _VERSION_5), ("B", kind), ("o", header)]
    if body_size:
        fields.append(("q", body_size))
    # A flatbuffer begins with where its root is.
    out = bytearray(4)
    struct.pack_into("<I", out, 0, _table(*fields)(out))
    _pad(out, ALIGNMENT)
    return b"\xff\xff\xff\xff" + struct.pack("<i", len(out)) + out


def _field(name: str, column: Type) -> Part:
    """A field of a schema: name, nullable, type and what it is, dictionary, children."""
    number, details = _TYPES[column]
    children = [_field("item", Type.STRING)] if column is Type.STRINGS else []
    return _table(
        ("o", _text(name)), None, ("B", number), ("o", details), None, ("o", _vector(children))
    )


# -- flatbuffers -----------------------------------------------------------------------------------


def _table(*fields: Field) -> Part:
    """A table: where its fields are, and the fields, the widest first, each on its own width."""

    def write(out: bytearray) -> int:
        there = [(slot, *field) for slot, field in enumerate(fields) if field is not None]
        there.sort(key=lambda item: -_WIDTHS[item[1]])
        places = [0] * len(fields)
        size = 4
        for slot, form, _ in there:
            size += -size % _WIDTHS[form]
            places[slot] = size
            size += _WIDTHS[form]
        sizes = struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), size, *places)
        out += bytes(-(len(out) + len(sizes)) % ALIGNMENT)
        out += sizes
        begin = len(out)
        out += struct.pack("<i", len(sizes)) + bytes(size - 4)
        for slot, form, value in there:
            if callable(value):
                _refer(out, begin + places[slot], value)
            else:
                struct.pack_into(f"<{form}", out, begin + places[slot], value)
        return begin

    return write


def _vector(items: Sequence[Part]) -> Part:
    def write(out: bytearray) -> int:
        _pad(out, 4)
        begin = len(out)
        out += struct.pack("<I", len(items)) + bytes(4 * len(items))
        for number, item in enumerate(items, 1):
            _refer(out, begin + 4 * number, item)
        return begin

    return write


def _pairs(numbers: Sequence[int]) -> Part:
    """A vector of structures of two numbers of 8 bytes."""

    def write(out: bytearray) -> int:
        out += bytes(-(len(out) + 4) % ALIGNMENT)
        begin = len(out)
        out += struct.pack(f"<I{len(numbers)}q", len(numbers) // 2, *numbers)
        return begin

    return write


def _text(value: str) -> Part:
    def write(out: bytearray) -> int:
        _pad(out, 4)
        begin = len(out)
        data = value.encode()
        out += struct.pack("<I", len(data)) + data + b"\0"
        return begin

    return write


def _refer(out: bytearray, place: int, part: Part) -> None:
    struct.pack_into("<I", out, place, part(out) - place)


def _pad(out: bytearray, alignment: int) -> None:
    out += bytes(-len(out) % alignment)


_WIDTHS: Final = {"q": 8, "o": 4, "i": 4, "h": 2, "B": 1}

_STRING: Final = (_UTF8, _table())

_TYPES: Final[dict[Type, tuple[int, Part]]] = {
    Type.TIMESTAMP: (_TIMESTAMP, _table(("h", _MICROSECONDS), ("o", _text("UTC")))),
    Type.STRING: _STRING,
    Type.STRINGS: (_LIST, _table()),
    Type.BOOLEAN: (_BOOL, _table()),
    Type.INT: (_INT, _table(("i", 32), ("B", 1))),
    Type.LONG: (_INT, _table(("i", 64), ("B", 1))),
    Type.DOUBLE: (_FLOATING_POINT, _table(("h", _DOUBLE_PRECISION))),
}
