"""The objects of a FETCH, after the header of their stream, in both layouts.

Draft 14 writes every field of every object. Draft 16 begins with flags that say which fields are
there, which follow from the object before, and has marks for objects that are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.wire.buffer import VARINT_MAX, Cursor, Incomplete, encode_varint
from laps.wire.moqt.codes import violation
from laps.wire.moqt.messages import DEFAULT_PRIORITY
from laps.wire.moqt.object_fields import (
    checked_id,
    decode_extensions_length,
    decode_length_and_status,
)
from laps.wire.moqt.objects import MAX_PAYLOAD_BYTES, Assembler, Object

if TYPE_CHECKING:
    from laps.wire.moqt.draft import Dialect


@dataclass(slots=True)
class EndOfRange:
    """Of the objects left out since the last one, up to this one with it, nothing will come."""

    group: int
    object_id: int
    unknown: bool
    "Nobody knows whether they exist; otherwise they do not."


FetchItem = Object | EndOfRange

# object of a FETCH, draft 14
# group(var-int) | subgroup(var-int) | object(var-int) | priority(1)
# | extensions length(var-int) | extensions | payload length(var-int)
# | status(var-int), if the length is 0 | payload
#
# object of a FETCH, draft 16
# flags(var-int) | group(var-int) | subgroup(var-int) | object(var-int) | priority(1)
# | extensions length(var-int) | extensions | payload length(var-int) | payload
#
#   0 D X P G O S S     D: sent as a datagram, S does not count; X: extensions are there
#                       P, G, O: priority, group, object are there, or else those of the last one
#                       (its id plus 1); SS: subgroup 0, the last one's, that plus 1, it is there
#
# end of range, draft 16
# flags(var-int)=0x8c or 0x10c | group(var-int) | object(var-int)

_SUBGROUP_MASK = 0x03
_SUBGROUP_LAST = 0x01
_SUBGROUP_NEXT = 0x02
_SUBGROUP_THERE = 0x03
_OBJECT_ID = 0x04
_GROUP = 0x08
_PRIORITY = 0x10
_EXTENSIONS = 0x20
_DATAGRAM = 0x40
_MAX_FLAGS = 0x7F
_NON_EXISTENT: Final = 0x8C
_UNKNOWN: Final = 0x10C


class FetchReader(Assembler[FetchItem]):
    """Whole objects out of the stream of a FETCH, fed with what follows its header."""

    __slots__ = ("_dialect", "_group", "_object_id", "_priority", "_subgroup")

    def __init__(self, dialect: Dialect, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        super().__init__(max_payload_bytes)
        self._dialect = dialect
        # Of the object before. A mark sets the first two, and leaves the others as they were: this
        # draft does not say, its successor does.
        self._group: int | None = None
        self._object_id: int | None = None
        self._subgroup: int | None = None
        self._priority: int | None = None

    def _read(self, data: bytes, position: int, items: list[FetchItem]) -> int:
        cursor = Cursor(memoryview(data), position, whole=False)
        flags = self._dialect.fetch_flags
        read_object = self._read_flagged if flags else self._read_full
        start = position
        while cursor.remaining:
            if flags and not data[cursor.offset] and self._priority is not None:
                cursor.offset = start = self._read_plain(data, cursor.offset, items)
                if not cursor.remaining:
                    break
            start = cursor.offset
            try:
                item, length = read_object(cursor, start)
            except Incomplete:
                return start
            start = cursor.offset
            if isinstance(item, Object) and length:
                end = start + length
                if end > len(data):
                    self._gather(item, data, start, end)
                    return len(data)
                item.payload = data[start:end]
                cursor.offset = start = end
            items.append(item)
        return start

    def _read_plain(self, data: bytes, position: int, items: list[FetchItem]) -> int:
        """Objects that have nothing of their own but a payload: most have not, and come in rows.

        What is not whole, or large, is left to the others.
        """
        size = len(data)
        object_id, group, priority = self._object_id, self._group, self._priority
        if object_id is None or group is None:
            return position
        last = object_id
        while position + 2 < size and not data[position]:
            length = data[position + 1]
            begin = position + 2
            if length >= 0x80 or (length >= 0x40 and begin >= size):
                break
            if length >= 0x40:
                length = (length & 0x3F) << 8 | data[begin]
                begin += 1
            end = begin + length
            if end > size or last >= VARINT_MAX:
                break
            last += 1
            items.append(Object(group, 0, last, priority, 0, b"", data[begin:end]))
            position = end
        if last != object_id:
            self._object_id, self._subgroup = last, 0
        return position

    def _read_full(self, cursor: Cursor, start: int) -> tuple[FetchItem, int]:
        group, subgroup = cursor.varint("group"), cursor.varint("subgroup")
        object_id, priority = cursor.varint("object"), cursor.u8("priority")
        extensions = self._read_extensions(cursor, start)
        length, status, cursor.offset = decode_length_and_status(
            cursor.view, cursor.offset, bool(extensions), self._dialect
        )
        return Object(group, subgroup, object_id, priority, status, extensions), length

    def _read_flagged(self, cursor: Cursor, start: int) -> tuple[FetchItem, int]:
        flags = cursor.varint("flags")
        if flags > _MAX_FLAGS:
            if flags not in (_NON_EXISTENT, _UNKNOWN):
                raise violation(f"serialization flags {flags:#x} are unknown")
            mark = EndOfRange(cursor.varint("group"), cursor.varint("object"), flags == _UNKNOWN)
            self._group, self._object_id = mark.group, mark.object_id
            return mark, 0
        group = cursor.varint("group") if flags & _GROUP else _of_last(self._group, "group")
        subgroup = self._read_subgroup(cursor, flags)
        if flags & _OBJECT_ID:
            object_id = cursor.varint("object")
        else:
            object_id = checked_id(_of_last(self._object_id, "object id") + 1)
        if flags & _PRIORITY:
            priority = cursor.u8("priority")
        else:
            priority = _of_last(self._priority, "priority")
        extensions = self._read_extensions(cursor, start) if flags & _EXTENSIONS else b""
        length = cursor.varint("payload length")
        self._group, self._object_id, self._priority = group, object_id, priority
        if subgroup is not None:
            self._subgroup = subgroup
        item = Object(group, subgroup, object_id, priority, 0, extensions)
        item.datagram = subgroup is None
        return item, length

    def _read_subgroup(self, cursor: Cursor, flags: int) -> int | None:
        if flags & _DATAGRAM:
            return None
        mode = flags & _SUBGROUP_MASK
        if mode == _SUBGROUP_THERE:
            return cursor.varint("subgroup")
        if mode == 0:
            return 0
        last = _of_last(self._subgroup, "subgroup")
        return last if mode == _SUBGROUP_LAST else checked_id(last + 1)

    def _read_extensions(self, cursor: Cursor, start: int) -> bytes:
        length, cursor.offset = decode_extensions_length(cursor.view, cursor.offset)
        if length >= cursor.remaining:
            self._wanted = cursor.offset - start + length + 1
        return bytes(cursor.take(length, "extensions"))


def _of_last(value: int | None, field: str) -> int:
    if value is None:
        raise violation(f"an object takes its {field} from the one before, and there is none")
    return value


class FetchWriter:
    """Writes the objects of a FETCH behind `encode_fetch_header`, each with as few fields as go."""

    __slots__ = ("_default_priority", "_dialect", "_last")

    def __init__(self, dialect: Dialect, default_priority: int = DEFAULT_PRIORITY) -> None:
        self._dialect = dialect
        self._default_priority = default_priority
        """The track's: here each object has to name its own."""
        self._last: Object | None = None

    def encode(self, item: FetchItem) -> bytes:
        """The object or mark; nothing where the draft says it by leaving it out.

        That is a status in draft 16, and objects that do not exist in draft 14.
        """
        if isinstance(item, EndOfRange):
            return self._encode_end(item)
        priority = self._default_priority if item.priority is None else item.priority
        if not 0 <= priority <= 0xFF:
            raise LocalProtocolError(f"priority {priority} is outside 0 to 255")
        if item.status and item.payload:
            raise LocalProtocolError(f"an object of status {item.status:#x} has payload")
        if not self._dialect.fetch_flags:
            return self._encode_full(item, priority)
        return b"" if item.status else self._encode_flagged(item, priority)

    def _encode_end(self, end: EndOfRange) -> bytes:
        if not self._dialect.marks_unknown_ranges:
            if end.unknown:
                draft = self._dialect.draft
                raise LocalProtocolError(f"draft {draft} cannot say that objects are unknown")
            return b""
        # What follows names every field: readers differ over what a mark does to the last object.
        self._last = None
        flags = _UNKNOWN if end.unknown else _NON_EXISTENT
        return b"".join(map(encode_varint, (flags, end.group, end.object_id)))

    def _encode_full(self, item: Object, priority: int) -> bytes:
        if item.status not in self._dialect.statuses:
            draft = self._dialect.draft
            raise LocalProtocolError(f"draft {draft} has no object status {item.status:#x}")
        subgroup = item.object_id if item.subgroup is None else item.subgroup
        parts = [*map(encode_varint, (item.group, subgroup, item.object_id)), priority.to_bytes(1)]
        parts += (encode_varint(len(item.extensions)), item.extensions)
        parts.append(encode_varint(len(item.payload)))
        parts.append(item.payload or encode_varint(item.status))
        return b"".join(parts)

    def _encode_flagged(self, item: Object, priority: int) -> bytes:
        last = self._last
        if (
            last is not None
            and item.subgroup == 0
            and item.object_id == last.object_id + 1
            and item.group == last.group
            and priority == last.priority
            and not item.extensions
            and not item.datagram
        ):  # nearly always
            last.object_id, last.subgroup = item.object_id, 0
            return b"\0" + encode_varint(len(item.payload)) + item.payload
        flags, parts = 0, []
        if last is None or item.group != last.group:
            flags |= _GROUP
            parts.append(encode_varint(item.group))
        if item.datagram or item.subgroup is None:
            flags |= _DATAGRAM
        elif item.subgroup:
            mode = _SUBGROUP_THERE
            if last is not None and last.subgroup is not None and not last.datagram:
                mode = {0: _SUBGROUP_LAST, 1: _SUBGROUP_NEXT}.get(
                    item.subgroup - last.subgroup, mode
                )
            flags |= mode
            if mode == _SUBGROUP_THERE:
                parts.append(encode_varint(item.subgroup))
        if last is None or item.object_id != last.object_id + 1:
            flags |= _OBJECT_ID
            parts.append(encode_varint(item.object_id))
        if last is None or priority != last.priority:
            flags |= _PRIORITY
            parts.append(priority.to_bytes(1))
        if item.extensions:
            flags |= _EXTENSIONS
            parts += (encode_varint(len(item.extensions)), item.extensions)
        parts += (encode_varint(len(item.payload)), item.payload)
        subgroup = None if flags & _DATAGRAM else item.subgroup
        self._last = Object(item.group, subgroup, item.object_id, priority)
        return b"".join((encode_varint(flags), *parts))
