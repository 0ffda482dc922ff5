"""The objects of a subgroup's stream, after its header, read whole.

Objects are many and small, or few and large: the loops here keep to local names and read the
shortest var-ints themselves, and payload is copied once, when the object that holds it is whole.
After a violation a reader is of no more use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from laps.wire.buffer import VARINT_MAX, Incomplete, decode_varint
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.object_fields import (
    checked_id,
    decode_extensions_length,
    decode_status,
)

if TYPE_CHECKING:
    from laps.wire.moqt.data import DatagramObject, SubgroupHeader
    from laps.wire.moqt.draft import Dialect

MAX_PAYLOAD_BYTES: Final = 1 << 26
"""The largest object that is put together in memory, unless the reader is told otherwise."""


class PayloadTooLarge(MoqtViolation):
    """An object is larger than its reader puts together; nothing is wrong with it."""


@dataclass(slots=True)
class Object:
    """An object of a track, whole."""

    group: int
    subgroup: int | None
    "None of an object that was sent as a datagram."
    object_id: int
    priority: int | None
    "None: the track's own."
    status: int = 0
    "An `ObjectStatus`; anything but NORMAL comes without payload."
    extensions: bytes = b""
    "As the draft writes them."
    payload: bytes = b""
    datagram: bool = False
    "How it was first sent; only FETCH in draft 16 tells."


def object_in(item: DatagramObject) -> Object:
    """The object that a datagram holds."""
    return Object(
        item.group,
        None,
        item.object_id,
        item.priority,
        item.status or 0,
        item.extensions,
        bytes(item.payload),
        datagram=True,
    )


Item = TypeVar("Item")


class Assembler(Generic[Item]):
    """Puts objects together over the borders of chunks.

    `_read` reads as many objects as a chunk holds. What it cannot finish it leaves: an unfinished
    header is held, an unfinished payload is gathered.
    """

    __slots__ = ("_held", "_max_payload_bytes", "_missing", "_parts", "_unfinished", "_wanted")

    def __init__(self, max_payload_bytes: int) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._held = bytearray()
        self._wanted = 0
        """How many bytes must be held before it makes sense to read them again."""
        self._unfinished: Object | None = None
        self._parts: list[bytes | memoryview] = []
        self._missing = 0

    def feed(self, data: bytes | memoryview) -> list[Item]:
        """What becomes whole with the next bytes of the stream, in order."""
        items: list[Item] = []
        chunk = data if isinstance(data, bytes) else bytes(data)
        position = self._missing
        if self._unfinished is not None:
            if len(chunk) < position:
                self._parts.append(chunk)
                self._missing -= len(chunk)
                return items
            self._parts.append(memoryview(chunk)[:position])
            self._unfinished.payload = b"".join(self._parts)
            items.append(self._unfinished)  # type: ignore[arg-type]  # objects are items everywhere
            self._unfinished, self._parts, self._missing = None, [], 0
        if self._held:
            self._held += chunk
            if len(self._held) < self._wanted:
                return items
            chunk = bytes(self._held)
            self._held.clear()
        self._wanted = 0
        position = self._read(chunk, position, items)
        if position < len(chunk):
            self._held += memoryview(chunk)[position:]
        return items

    def finish(self) -> None:
        """The stream ended: a violation if that was inside an object."""
        if self._missing:
            raise violation(f"the stream ended {self._missing} bytes ahead of its object")
        if self._held:
            raise violation("the stream ended inside the header of an object")

    def _read(self, data: bytes, position: int, items: list[Item]) -> int:
        """Read what there is; where the first header that is not all there begins."""
        raise NotImplementedError

    def _gather(self, item: Object, data: bytes, position: int, end: int) -> None:
        """Wait for the payload that ends at `end`, after the chunk."""
        if end - position > self._max_payload_bytes:
            problem = (
                f"an object of {end - position} bytes, more than the "
                f"{self._max_payload_bytes} that are put together"
            )
            raise PayloadTooLarge(SessionCode.INTERNAL_ERROR, problem)
        self._unfinished = item
        self._parts = [memoryview(data)[position:]]
        self._missing = end - len(data)


class ObjectReader(Assembler[Object]):
    """Whole objects out of a subgroup's stream, fed with what follows its header."""

    __slots__ = ("_dialect", "_group", "_has_extensions", "_last_id", "_priority", "_subgroup")

    def __init__(
        self,
        header: SubgroupHeader,
        dialect: Dialect,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        super().__init__(max_payload_bytes)
        self._dialect = dialect
        self._group = header.group
        self._subgroup = header.subgroup
        self._priority = header.priority
        self._has_extensions = header.has_extensions
        self._last_id = -1

    @property
    def subgroup(self) -> int | None:
        """Of the stream; None where its first object, which has not come, decides."""
        return self._subgroup

    @property
    def next_id(self) -> int:
        """The id after the last object that began."""
        return self._last_id + 1

    def resume(self, last_id: int, subgroup: int) -> None:
        """Go on after an object that was read elsewhere."""
        self._last_id = last_id
        self._subgroup = subgroup

    def _read(self, data: bytes, position: int, items: list[Object]) -> int:  # noqa: C901 - flat
        size = len(data)
        last_id = self._last_id
        group, subgroup, priority = self._group, self._subgroup, self._priority
        has_extensions, extensions, dialect = self._has_extensions, b"", self._dialect
        start = position
        try:
            while position < size:
                start = position
                if (delta := data[position]) < 0x40:
                    position += 1
                else:
                    delta, position = decode_varint(data, position)
                if has_extensions:
                    if (length := data[position]) < 0x40:
                        position += 1
                    else:
                        length, position = decode_extensions_length(data, position)
                    end = position + length
                    if end >= size:  # the payload's length, at least, is not here
                        self._wanted = end - start + 1
                        break
                    extensions = data[position:end]
                    position = end
                if (length := data[position]) < 0x40:
                    position += 1
                elif length < 0x80:
                    length = (length & 0x3F) << 8 | data[position + 1]
                    position += 2
                else:
                    length, position = decode_varint(data, position)
                status = 0
                if not length:
                    status, position = decode_status(data, position, bool(extensions), dialect)
                last_id += delta + 1
                if last_id > VARINT_MAX:
                    checked_id(last_id)
                if subgroup is None:
                    self._subgroup = subgroup = last_id
                end = position + length
                if end > size:
                    item = Object(group, subgroup, last_id, priority, 0, extensions)
                    self._gather(item, data, position, end)
                    start = size
                    break
                payload = data[position:end]
                items.append(
                    Object(group, subgroup, last_id, priority, status, extensions, payload)
                )
                position = start = end
        except (IndexError, Incomplete):
            pass  # the header from `start` on is not all there
        self._last_id = last_id
        return start
