"""Records as Arrow: columns of Python values into the bytes of an IPC stream.

A stream is a head that is the same for all records of a kind, and a tail: one batch, and the end.
"""

from __future__ import annotations

import struct
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from laps.telemetry.ipc import END_OF_STREAM, batch_message, schema_message
from laps.telemetry.records import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.telemetry.records import Kind

    Buffers = list[bytes]
    Encoded = tuple[list[int], Buffers]
    "The lengths of a column and of what its lists hold, and the buffers of both."


class Encoder:
    """Writes the records of one kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.head = schema_message(kind)
        "What every stream of the kind begins with."
        self._columns = [_COLUMNS[column.type] for column in kind.columns]

    def tail(self, columns: Sequence[Sequence[Any]]) -> bytes:
        """The batch of a stream, and its end; a list of values for each column."""
        lengths: list[int] = []
        buffers: Buffers = []
        for encode, values in zip(self._columns, columns, strict=True):
            more_lengths, more_buffers = encode(values)
            lengths += more_lengths
            buffers += more_buffers
        return batch_message(len(columns[0]), lengths, buffers) + END_OF_STREAM

    def encode(self, columns: Sequence[Sequence[Any]]) -> bytes:
        """A whole stream."""
        return self.head + self.tail(columns)


def _fixed(form: str) -> Callable[[Sequence[Any]], Encoded]:
    def encode(values: Sequence[Any]) -> Encoded:
        size = len(values)
        return [size], [b"", struct.pack(f"<{size}{form}", *values)]

    return encode


def _booleans(values: Sequence[bool]) -> Encoded:
    """A bit each, the first the lowest."""
    size = len(values)
    digits = "".join(["1" if value else "0" for value in reversed(values)])
    return [size], [b"", int(digits or "0", 2).to_bytes((size + 7) // 8, "little")]


def _strings(values: Sequence[str]) -> Encoded:
    """Where each begins, and all of them behind each other; what is no text becomes `?`."""
    text = "".join(values)
    data = text.encode(errors="replace")
    sizes = map(len, values)
    if len(data) != len(text):  # some take more bytes than they have characters
        sizes = map(len, [value.encode(errors="replace") for value in values])
    return [len(values)], [b"", _offsets(sizes, len(values)), data]


def _lists(values: Sequence[Sequence[str]]) -> Encoded:
    lengths, buffers = _strings(list(chain.from_iterable(values)))
    offsets = _offsets(map(len, values), len(values))
    return [len(values), *lengths], [b"", offsets, *buffers]


def _offsets(sizes: map[int], count: int) -> bytes:
    return struct.pack(f"<{count + 1}i", *accumulate(sizes, initial=0))


_COLUMNS: dict[Type, Callable[[Sequence[Any]], Encoded]] = {
    Type.TIMESTAMP: _fixed("q"),
    Type.STRING: _strings,
    Type.STRINGS: _lists,
    Type.BOOLEAN: _booleans,
    Type.INT: _fixed("i"),
    Type.LONG: _fixed("q"),
    Type.DOUBLE: _fixed("d"),
}
