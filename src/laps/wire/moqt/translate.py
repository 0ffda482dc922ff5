"""Objects of one draft as the other writes them.

The streams of all drafts have one layout. What differs is how extensions are written, and that
draft 14 has a status for an object that does not exist: draft 16 has none, and leaves such objects
out, as it leaves out the extensions of every object that is not a normal one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.errors import InvalidEncoding
from laps.wire.buffer import VARINT_MAX, Cursor, Incomplete, decode_varint
from laps.wire.moqt.codes import violation
from laps.wire.moqt.data import (
    decode_datagram,
    encode_datagram,
    realias_datagram,
)
from laps.wire.moqt.keyvalues import decode_pairs, encode_pairs
from laps.wire.moqt.messages import DEFAULT_PRIORITY
from laps.wire.moqt.object_fields import (
    checked_id,
    decode_extensions_length,
    decode_length_and_status,
    encode_object_header,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.wire.moqt.data import DatagramObject
    from laps.wire.moqt.draft import Dialect
    from laps.wire.moqt.messages import KeyValue
    from laps.wire.moqt.objects import Object


def needs_translation(from_dialect: Dialect, to_dialect: Dialect, has_extensions: bool) -> bool:
    """Whether the objects of a subgroup's stream may have to change between two drafts.

    Where one has a status that the other has not, an object may have to go.
    """
    if from_dialect is to_dialect:
        return False
    return has_extensions or not from_dialect.statuses <= to_dialect.statuses


# --- extensions ------------------------------------------------------------------------------


def decode_extensions(raw: bytes | memoryview, dialect: Dialect) -> list[KeyValue]:
    """The extensions of an object. What is inside Immutable Extensions stays bytes."""
    try:
        return decode_pairs(Cursor(memoryview(raw), whole=True), delta=dialect.extension_deltas)
    except InvalidEncoding as error:
        raise violation(f"extensions of an object: {error}") from None


def encode_extensions(pairs: Sequence[KeyValue], dialect: Dialect) -> bytes:
    """Extensions as a draft writes them."""
    return encode_pairs(pairs, delta=dialect.extension_deltas) if pairs else b""


def translate_extensions(
    raw: bytes | memoryview, from_dialect: Dialect, to_dialect: Dialect
) -> bytes:
    """Extensions of one draft as another writes them.

    Where they have to be in ascending order, those of a type stay as they were. The value of
    Immutable Extensions is left as its publisher wrote it. Without deltas there is no way to write
    a type above 2^62-1, and it is left out.
    """
    pairs = decode_extensions(raw, from_dialect)
    if not to_dialect.extension_deltas:
        pairs = [pair for pair in pairs if pair[0] <= VARINT_MAX]
    return encode_extensions(pairs, to_dialect)


def _translate(raw: bytes, status: int, from_dialect: Dialect, to_dialect: Dialect) -> bytes:
    if not raw or from_dialect is to_dialect:
        return raw
    if status in to_dialect.bare_statuses:
        return b""
    return translate_extensions(raw, from_dialect, to_dialect)


# --- objects ---------------------------------------------------------------------------------


def translate_object(item: Object, from_dialect: Dialect, to_dialect: Dialect) -> Object | None:
    """The object for the other draft, or None if that leaves it out."""
    if from_dialect is to_dialect:
        return item
    if item.status not in to_dialect.statuses:
        return None
    extensions = _translate(item.extensions, item.status, from_dialect, to_dialect)
    return replace(item, extensions=extensions)


def translate_datagram(
    data: bytes | memoryview,
    from_dialect: Dialect,
    to_dialect: Dialect,
    alias: int,
    default_priority: int = DEFAULT_PRIORITY,
) -> bytes | None:
    """The datagram for another session, or None if its draft leaves the object out."""
    if from_dialect is to_dialect:
        return realias_datagram(data, alias)
    item = decode_datagram(data, from_dialect)
    return encode_translated(item, from_dialect, to_dialect, alias, default_priority)


def encode_translated(
    item: DatagramObject,
    from_dialect: Dialect,
    to_dialect: Dialect,
    alias: int,
    default_priority: int = DEFAULT_PRIORITY,
) -> bytes | None:
    """The datagram of an object that was read; `item` changes."""
    status = item.status or 0
    if status not in to_dialect.statuses:
        return None
    item.alias = alias
    item.extensions = _translate(item.extensions, status, from_dialect, to_dialect)
    return encode_datagram(item, to_dialect, default_priority)


class StreamTranslator:
    """The objects of a subgroup's stream, after its header, from one draft to the other.

    Payload goes out as it comes in; what is held is at most an unfinished header. The stream's own
    header is `encode_subgroup_header`'s. Where that takes the subgroup from the first object, and
    draft 16 leaves this object out, it has to name the subgroup.
    """

    __slots__ = (
        "_from",
        "_has_extensions",
        "_held",
        "_last_id",
        "_last_written_id",
        "_missing",
        "_to",
        "_wanted",
    )

    def __init__(self, from_dialect: Dialect, to_dialect: Dialect, has_extensions: bool) -> None:
        self._from = from_dialect
        self._to = to_dialect
        self._has_extensions = has_extensions
        self._held = bytearray()
        self._wanted = 0
        self._missing = 0
        self._last_id = -1
        self._last_written_id = -1

    def feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """What the next bytes are in the other draft; `data` itself if it is all payload."""
        if len(data) <= self._missing:
            self._missing -= len(data)
            return data
        parts: list[bytes | memoryview] = []
        position = self._missing
        self._missing = 0
        if position:
            parts.append(data[:position])
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return b""
            data = bytes(self._held)
            self._held.clear()
        self._wanted = 0
        size = len(data)
        while position < size:
            try:
                head, position, end = self._translate_header(data, position)
            except Incomplete:
                self._held += data[position:]
                break
            parts.append(head)
            if position < end:
                parts.append(data[position:end])
                if end > size:
                    self._missing = end - size
                position = end
        return b"".join(parts)

    def finish(self) -> None:
        """The stream ended: a violation if that was inside an object."""
        if self._held or self._missing:
            raise violation("the stream ended inside an object")

    def _translate_header(self, data: bytes | memoryview, start: int) -> tuple[bytes, int, int]:
        """The object's new header, and where its payload begins and ends."""
        delta, position = decode_varint(data, start)
        extensions = b""
        if self._has_extensions:
            length, position = decode_extensions_length(data, position)
            end = position + length
            if end >= len(data):
                self._wanted = end - start + 1
                raise Incomplete
            extensions = bytes(data[position:end])
            position = end
        length, status, position = decode_length_and_status(
            data, position, bool(extensions), self._from
        )
        self._last_id = object_id = checked_id(self._last_id + delta + 1)
        if status not in self._to.statuses:
            return b"", position, position
        if extensions:
            extensions = _translate(extensions, status, self._from, self._to)
        delta = object_id - self._last_written_id - 1
        self._last_written_id = object_id
        head = encode_object_header(delta, extensions, length, status, self._has_extensions)
        return head, position, position + length
