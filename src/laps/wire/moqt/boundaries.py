"""Where the objects of a subgroup's stream begin and end, for a relay that passes bytes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.buffer import VARINT_MAX, Incomplete, decode_varint
from laps.wire.moqt.codes import violation
from laps.wire.moqt.object_fields import (
    checked_id,
    decode_extensions_length,
    decode_status,
)

if TYPE_CHECKING:
    from laps.wire.moqt.draft import Dialect

Boundary = tuple[int, int, int, int, int, int]
"""Where an object lies in its stream: its id, where it begins, where its id ends, where its payload
begins, where that ends, and its status. With the second offset a relay can begin a stream here: it
writes a header, the id as the first delta, and goes on with what follows the id."""


class BoundaryScanner:
    """Where objects begin and end, without holding them.

    Fed with what follows the stream's header; `offset` is where that is in the stream. Payloads and
    extensions are stepped over, so that what is held between chunks is a few bytes.
    """

    __slots__ = (
        "_between",
        "_dialect",
        "_extended",
        "_has_extensions",
        "_held",
        "_id_end",
        "_in_payload",
        "_skip",
        "_start",
        "complete_id",
        "complete_objects",
        "first_object_id",
        "last_object_id",
        "next_object_offset",
        "offset",
        "statuses",
    )

    def __init__(self, dialect: Dialect, has_extensions: bool, offset: int = 0) -> None:
        self.offset = offset
        """How much of the stream was seen."""
        self.last_object_id: int | None = None
        """Of the last object whose id was read, perhaps not complete."""
        self.first_object_id: int | None = None
        self.complete_id = -1
        """Of the last object that is complete; -1 if none is."""
        self.complete_objects = 0
        self.next_object_offset = offset
        """Where the last complete object ends and the next one begins."""
        self.statuses: set[int] = set()
        """Every status but NORMAL that was seen: the end of the group, of the track."""
        self._dialect = dialect
        self._has_extensions = has_extensions
        self._held = b""
        self._skip = 0
        self._in_payload = False
        # An object whose id was read, and whose payload's length was not.
        self._between = False
        self._start = self._id_end = 0
        self._extended = False

    @property
    def at_boundary(self) -> bool:
        """Nothing of an unfinished object was seen."""
        return self.next_object_offset == self.offset

    @property
    def in_header(self) -> bool:
        """An object has begun whose payload has not."""
        return not (self._in_payload or self.at_boundary)

    @property
    def payload_end(self) -> int | None:
        """Where the payload under way ends; None if none is."""
        return self.offset + self._skip if self._in_payload else None

    def copy(self) -> BoundaryScanner:
        """Another one that goes on from here."""
        other = BoundaryScanner.__new__(BoundaryScanner)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.statuses = set(self.statuses)
        return other

    def finish(self) -> None:
        """The stream ended: a violation if that was inside an object."""
        if not self.at_boundary:
            begun = self.offset - self.next_object_offset
            raise violation(f"the stream ended {begun} bytes into an object")

    def feed(self, data: bytes | memoryview) -> list[Boundary]:  # noqa: C901 - a flat loop
        """The objects whose header ends in the next bytes of the stream, in order."""
        boundaries: list[Boundary] = []
        base = self.offset - len(self._held)
        self.offset += len(data)
        position, size = self._skip, len(data)
        if position > size:
            self._skip = position - size
            return boundaries
        self._skip = 0
        if self._in_payload:
            self._in_payload = False
            self.complete_objects += 1
            self.complete_id = -1 if self.last_object_id is None else self.last_object_id
            self.next_object_offset = base + position
        if self._held:
            data = self._held + data
            self._held = b""
            size = len(data)
        has_extensions, between = self._has_extensions, self._between
        last_id = -1 if self.last_object_id is None else self.last_object_id
        start, id_end, extended = self._start, self._id_end, self._extended
        resume = position
        try:
            while position < size:
                resume = position
                if not between:
                    start = base + position
                    if (delta := data[position]) < 0x40:
                        position += 1
                    else:
                        delta, position = decode_varint(data, position)
                    id_end = base + position
                    if has_extensions:
                        if (length := data[position]) < 0x40:
                            position += 1
                        else:
                            length, position = decode_extensions_length(data, position)
                        extended = length > 0
                        position += length
                        between = True
                        last_id += delta + 1
                        resume = position
                        if position > size:
                            self._skip = position - size
                            break
                if (length := data[position]) < 0x40:
                    position += 1
                elif length < 0x80:
                    length = (length & 0x3F) << 8 | data[position + 1]
                    position += 2
                else:
                    length, position = decode_varint(data, position)
                status = 0
                if not length:
                    status, position = decode_status(data, position, extended, self._dialect)
                    if status:
                        self.statuses.add(status)
                if not has_extensions:
                    last_id += delta + 1
                if last_id > VARINT_MAX:
                    checked_id(last_id)
                between = False
                payload = base + position
                boundaries.append((last_id, start, id_end, payload, payload + length, status))
                position += length
                resume = position
                if position > size:
                    self._skip = position - size
                    self._in_payload = True
                    break
                self.complete_objects += 1
                self.complete_id = last_id
                self.next_object_offset = payload + length
        except (IndexError, Incomplete):
            pass  # what begins at `resume` is not all there
        if resume < size:
            self._held = bytes(data[resume:])
        self._between, self._start, self._id_end, self._extended = between, start, id_end, extended
        if last_id >= 0:
            self.last_object_id = last_id
            if self.first_object_id is None:
                self.first_object_id = boundaries[0][0] if boundaries else last_id
        return boundaries
