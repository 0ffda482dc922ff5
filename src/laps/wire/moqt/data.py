"""What data streams begin with, and objects in datagrams, as every draft writes them.

The drafts differ in which types exist and in nothing else: a type says by its bits which fields
follow. What is made per stream or per datagram is not frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.wire.buffer import Incomplete, decode_varint, encode_varint
from laps.wire.moqt.codes import violation
from laps.wire.moqt.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from laps.wire.moqt.draft import Dialect


class ObjectStatus(IntEnum):
    """What an object without payload says."""

    NORMAL = 0x0
    DOES_NOT_EXIST = 0x1
    "Draft 14 only."
    END_OF_GROUP = 0x3
    END_OF_TRACK = 0x4


def check_status(status: int, has_extensions: bool, dialect: Dialect) -> None:
    """Refuse a status that the draft does not have, or not beside extensions."""
    if status not in dialect.statuses:
        raise violation(f"object status {status:#x} is unknown")
    if has_extensions and status in dialect.bare_statuses:
        raise violation(f"an object of status {status:#x} has extensions")


# --- streams ---------------------------------------------------------------------------------

# SUBGROUP_HEADER
# type(var-int) | track alias(var-int) | group(var-int) | subgroup(var-int), mode 2 only
# | priority(1), unless DEFAULT_PRIORITY
#
#   0 0 D 1 E M M X     D: DEFAULT_PRIORITY, draft 16 only; E: END_OF_GROUP; X: EXTENSIONS
#                       MM: 0 subgroup 0, 1 the id of the first object, 2 it is there
#
# FETCH_HEADER
# type(var-int)=5 | request id(var-int)

_FETCH_TYPE = 0x05
_SUBGROUP = 0x10
_EXTENSIONS = 0x01
_MODE_FIRST_OBJECT = 0x02
_MODE_EXPLICIT = 0x04
_MODE_MASK = 0x06
_END_OF_GROUP = 0x08
DEFAULT_PRIORITY_BIT: Final = 0x20

SUBGROUP_TYPES: Final = frozenset(
    type_ for type_ in range(_SUBGROUP, 0x20) if type_ & _MODE_MASK != _MODE_MASK
)
"Those that name their priority, as every draft has them."


@dataclass(slots=True)
class SubgroupHeader:
    """What precedes the objects of a subgroup."""

    alias: int
    group: int
    subgroup: int | None = 0
    "None: the id of the stream's first object."
    priority: int | None = None
    "None: the track's own."
    has_extensions: bool = False
    "Each object says how long its extensions are, were it 0."
    end_of_group: bool = False
    "The last object before the FIN is the last of the group."


@dataclass(slots=True)
class FetchHeader:
    """What precedes the objects that answer a FETCH."""

    request_id: int


def decode_stream_header(
    view: bytes | memoryview, dialect: Dialect
) -> tuple[SubgroupHeader | FetchHeader, int]:
    """What a unidirectional stream begins with, and its length; `Incomplete` until it is there."""
    type_, offset = decode_varint(view)
    if type_ == _FETCH_TYPE:
        request_id, offset = decode_varint(view, offset)
        return FetchHeader(request_id), offset
    if type_ not in dialect.subgroup_types:
        raise violation(f"stream type {type_:#x} is unknown")
    alias, offset = decode_varint(view, offset)
    group, offset = decode_varint(view, offset)
    subgroup: int | None = 0
    if type_ & _MODE_EXPLICIT:
        subgroup, offset = decode_varint(view, offset)
    elif type_ & _MODE_FIRST_OBJECT:
        subgroup = None
    priority = None
    if not type_ & DEFAULT_PRIORITY_BIT:
        if offset >= len(view):
            raise Incomplete
        priority = view[offset]
        offset += 1
    extensions, end_of_group = bool(type_ & _EXTENSIONS), bool(type_ & _END_OF_GROUP)
    return SubgroupHeader(alias, group, subgroup, priority, extensions, end_of_group), offset


def encode_subgroup_header(
    header: SubgroupHeader, dialect: Dialect, default_priority: int = DEFAULT_PRIORITY
) -> bytes:
    """The bytes a subgroup's stream begins with.

    `default_priority` is the track's: draft 14 has to say it.
    """
    type_ = _SUBGROUP
    if header.has_extensions:
        type_ |= _EXTENSIONS
    if header.end_of_group:
        type_ |= _END_OF_GROUP
    if header.subgroup is None:
        type_ |= _MODE_FIRST_OBJECT
    elif header.subgroup:
        type_ |= _MODE_EXPLICIT
    priority = _encode_priority(header.priority, dialect, default_priority)
    if not priority:
        type_ |= DEFAULT_PRIORITY_BIT
    subgroup = encode_varint(header.subgroup) if header.subgroup else b""
    alias, group = encode_varint(header.alias), encode_varint(header.group)
    return b"".join((encode_varint(type_), alias, group, subgroup, priority))


def encode_fetch_header(header: FetchHeader) -> bytes:
    """The bytes that the stream of a FETCH begins with."""
    return encode_varint(_FETCH_TYPE) + encode_varint(header.request_id)


def _encode_priority(priority: int | None, dialect: Dialect, default_priority: int) -> bytes:
    if priority is None:
        if dialect.may_omit_priority:
            return b""
        priority = default_priority
    if not 0 <= priority <= 0xFF:
        raise LocalProtocolError(f"priority {priority} is outside 0 to 255")
    return priority.to_bytes(1)


# --- datagrams -------------------------------------------------------------------------------

# OBJECT_DATAGRAM
# type(var-int) | track alias(var-int) | group(var-int) | object(var-int), unless ZERO_OBJECT_ID
# | priority(1), unless DEFAULT_PRIORITY | extensions length(var-int) | extensions, if EXTENSIONS
# | status(var-int), if STATUS, or else the payload up to the end
#
#   0 0 S 0 D Z E X     S: STATUS; D: DEFAULT_PRIORITY, draft 16 only; Z: ZERO_OBJECT_ID
#                       E: END_OF_GROUP, never with STATUS; X: EXTENSIONS

_DATAGRAM_END_OF_GROUP = 0x02
_ZERO_OBJECT_ID = 0x04
_DATAGRAM_DEFAULT_PRIORITY = 0x08
_STATUS = 0x20


@dataclass(slots=True)
class DatagramObject:
    """An object that came in a datagram, or is to be sent in one."""

    alias: int
    group: int
    object_id: int
    priority: int | None = None
    "None: the track's own."
    extensions: bytes = b""
    "As the draft writes them."
    status: int | None = None
    "None where there is payload, perhaps of no bytes."
    payload: bytes | memoryview = b""
    end_of_group: bool = False


def decode_datagram(data: bytes | memoryview, dialect: Dialect) -> DatagramObject:
    """The object in a datagram. Its payload is a slice of `data`."""
    try:
        return _decode_datagram(data, dialect)
    except Incomplete:
        raise violation(f"a datagram of {len(data)} bytes ends inside its header") from None


def _decode_datagram(data: bytes | memoryview, dialect: Dialect) -> DatagramObject:
    if data and (type_ := data[0]) < 0x40:  # every type there is, as nearly all write it
        offset = 1
    else:
        type_, offset = decode_varint(data)
    if type_ not in dialect.datagram_types:
        raise violation(f"datagram type {type_:#x} is unknown")
    alias, offset = decode_varint(data, offset)
    group, offset = decode_varint(data, offset)
    object_id, extensions, priority, status = 0, b"", None, None
    if not type_ & _ZERO_OBJECT_ID:
        object_id, offset = decode_varint(data, offset)
    if not type_ & _DATAGRAM_DEFAULT_PRIORITY:
        if offset >= len(data):
            raise Incomplete
        priority = data[offset]
        offset += 1
    if type_ & _EXTENSIONS:
        length, start = decode_varint(data, offset)
        offset = start + length
        if length == 0:
            raise violation("a datagram that should have extensions has none")
        if offset > len(data):
            raise Incomplete
        extensions = bytes(data[start:offset])
    if type_ & _STATUS:
        status, offset = decode_varint(data, offset)
        check_status(status, bool(extensions), dialect)
        if offset != len(data):
            raise violation(f"a datagram has {len(data) - offset} bytes behind its status")
    end_of_group = bool(type_ & _DATAGRAM_END_OF_GROUP)
    return DatagramObject(
        alias, group, object_id, priority, extensions, status, data[offset:], end_of_group
    )


def encode_datagram(
    datagram: DatagramObject, dialect: Dialect, default_priority: int = DEFAULT_PRIORITY
) -> bytes:
    """The whole datagram; `default_priority` is the track's, which draft 14 has to say."""
    type_ = 0
    fields = [encode_varint(datagram.alias), encode_varint(datagram.group)]
    status = datagram.status
    # Draft 14 has no type for a status of object 0 that leaves the id out.
    must_say_id = status is not None and _STATUS | _ZERO_OBJECT_ID not in dialect.datagram_types
    if datagram.object_id or must_say_id:
        fields.append(encode_varint(datagram.object_id))
    else:
        type_ |= _ZERO_OBJECT_ID
    if priority := _encode_priority(datagram.priority, dialect, default_priority):
        fields.append(priority)
    else:
        type_ |= _DATAGRAM_DEFAULT_PRIORITY
    if datagram.extensions:
        type_ |= _EXTENSIONS
        fields += (encode_varint(len(datagram.extensions)), datagram.extensions)
    if datagram.end_of_group:
        type_ |= _DATAGRAM_END_OF_GROUP
    if status is None:
        fields.append(datagram.payload)  # type: ignore[arg-type]  # join takes views too
    else:
        if datagram.payload or datagram.end_of_group:
            raise LocalProtocolError("a datagram with a status has no payload and ends no group")
        if status not in dialect.statuses:
            raise LocalProtocolError(f"draft {dialect.draft} has no object status {status:#x}")
        if datagram.extensions and status in dialect.bare_statuses:
            raise LocalProtocolError(f"an object of status {status:#x} has no extensions")
        type_ |= _STATUS
        fields.append(encode_varint(status))
    return b"".join((encode_varint(type_), *fields))


def realias_datagram(data: bytes | memoryview, alias: int) -> bytes:
    """The same datagram under another track alias, for a session of the same draft."""
    try:
        start = 1 if data and data[0] < 0x40 else decode_varint(data)[1]
        _, end = decode_varint(data, start)
    except Incomplete:
        raise violation(f"a datagram of {len(data)} bytes ends inside its header") from None
    return b"".join((data[:start], encode_varint(alias), data[end:]))
