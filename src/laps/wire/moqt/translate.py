"""Objects of one draft as the other writes them.

The streams of both drafts have one layout. What differs is how extensions are written, and that
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
    ObjectStatus,
    check_status,
    decode_datagram,
    encode_datagram,
    realias_datagram,
)
from laps.wire.moqt.keyvalues import decode_pairs, encode_pairs
from laps.wire.moqt.messages import DEFAULT_PRIORITY
from laps.wire.moqt.objects import checked_extensions, checked_id, encode_object_header

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import KeyValue
    from laps.wire.moqt.objects import Object

_DOES_NOT_EXIST = int(ObjectStatus.DOES_NOT_EXIST)


def needs_translation(from_dialect: Dialect, to_dialect: Dialect, has_extensions: bool) -> bool:
    """Whether the objects of a subgroup's stream may have to change between two drafts.

    From 14 they always may: one that does not exist has to go.
    """
    if from_dialect.draft == to_dialect.draft:
        return False
    return has_extensions or from_dialect.draft == 14


# --- extensions ------------------------------------------------------------------------------


def decode_extensions(raw: bytes | memoryview, dialect: Dialect) -> list[KeyValue]:
    """The extensions of an object. What is inside Immutable Extensions stays bytes."""
    return _decode_extensions(raw, dialect.draft)


def _decode_extensions(raw: bytes | memoryview, draft: int) -> list[KeyValue]:
    try:
        return decode_pairs(Cursor(memoryview(raw), whole=True), delta=draft != 14)
    except InvalidEncoding as error:
        raise violation(f"extensions of an object: {error}") from None


def extensions_to_16(raw: bytes | memoryview) -> bytes:
    """Draft 14's extensions as draft 16 has them: in ascending order, those of a type as they were.

    The value of Immutable Extensions is left as its publisher wrote it.
    """
    return encode_pairs(_decode_extensions(raw, 14), delta=True)


def extensions_to_14(raw: bytes | memoryview) -> bytes:
    """Draft 16's extensions as draft 14 has them; a type above 2^62-1 cannot be said there."""
    pairs = _decode_extensions(raw, 16)
    return encode_pairs((pair for pair in pairs if pair[0] <= VARINT_MAX), delta=False)


def _translate(raw: bytes, status: int, from_draft: int, to_draft: int) -> bytes:
    if not raw or from_draft == to_draft:
        return raw
    if to_draft == 14:
        return extensions_to_14(raw)
    return b"" if status else extensions_to_16(raw)


# --- objects ---------------------------------------------------------------------------------


def translate_object(item: Object, from_dialect: Dialect, to_dialect: Dialect) -> Object | None:
    """The object for the other draft, or None if that leaves it out."""
    if to_dialect.draft != 14 and item.status == _DOES_NOT_EXIST:
        return None
    drafts = from_dialect.draft, to_dialect.draft
    return replace(item, extensions=_translate(item.extensions, item.status, *drafts))


def translate_datagram(
    data: bytes | memoryview,
    from_dialect: Dialect,
    to_dialect: Dialect,
    alias: int,
    default_priority: int = DEFAULT_PRIORITY,
) -> bytes | None:
    """The datagram for another session, or None if its draft leaves the object out."""
    if from_dialect.draft == to_dialect.draft:
        return realias_datagram(data, alias)
    datagram = decode_datagram(data, from_dialect)
    status = datagram.status or 0
    if to_dialect.draft != 14 and status == _DOES_NOT_EXIST:
        return None
    drafts = from_dialect.draft, to_dialect.draft
    datagram.alias = alias
    datagram.extensions = _translate(datagram.extensions, status, *drafts)
    return encode_datagram(datagram, to_dialect, default_priority)


class StreamTranslator:
    """The objects of a subgroup's stream, behind its header, from one draft to the other.

    Payload goes out as it comes in; what is held is at most an unfinished header. The stream's own
    header is `encode_subgroup_header`'s. Where that takes the subgroup from the first object, and
    draft 16 leaves this object out, it has to name the subgroup.
    """

    __slots__ = (
        "_from_draft",
        "_has_extensions",
        "_held",
        "_last_id",
        "_last_written_id",
        "_missing",
        "_to_draft",
        "_wanted",
    )

    def __init__(self, from_dialect: Dialect, to_dialect: Dialect, has_extensions: bool) -> None:
        self._from_draft = from_dialect.draft
        self._to_draft = to_dialect.draft
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
            length, position = decode_varint(data, position)
            end = position + checked_extensions(length)
            if end >= len(data):
                self._wanted = end - start + 1
                raise Incomplete
            extensions = bytes(data[position:end])
            position = end
        length, position = decode_varint(data, position)
        status = 0
        if not length:
            status, position = decode_varint(data, position)
            check_status(status, bool(extensions), self._from_draft)
        self._last_id = object_id = checked_id(self._last_id + delta + 1)
        if self._to_draft != 14 and status == _DOES_NOT_EXIST:
            return b"", position, position
        extensions = _translate(extensions, status, self._from_draft, self._to_draft)
        delta = object_id - self._last_written_id - 1
        self._last_written_id = object_id
        head = encode_object_header(delta, extensions, length, status, self._has_extensions)
        return head, position, position + length
