"""Fields that both drafts write alike, checked both ways.

A decoder raises `MoqtViolation`, or `InvalidEncoding` from its cursor, which `Dialect.decode` turns
into one; an encoder raises `LocalProtocolError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LocalProtocolError
from laps.names import MAX_FULL_NAME_BYTES, MAX_NAMESPACE_FIELDS
from laps.types import Location, TrackName
from laps.wire.buffer import encode_varint
from laps.wire.moqt.codes import violation
from laps.wire.moqt.messages import (
    MAX_REASON_BYTES,
    MAX_URI_BYTES,
    Fetch,
    Filter,
    FilterType,
    Goaway,
    GroupOrder,
    JoiningFetch,
    StandaloneFetch,
)

if TYPE_CHECKING:
    from laps.names import Namespace
    from laps.wire.buffer import Cursor

# --- names -----------------------------------------------------------------------------------

# namespace
# count(var-int) | [ length(var-int) | field(length) ]
#
# track
# namespace | name length(var-int) | name


def decode_namespace(
    cursor: Cursor, field: str, *, least: int = 1, empty_fields: bool
) -> Namespace:
    """A namespace, a prefix or a suffix of one; only draft 14 lets a field be empty."""
    count = cursor.varint(f"the number of fields of {field}")
    if not least <= count <= MAX_NAMESPACE_FIELDS:
        raise violation(f"{field} has {count} fields, not {least} to {MAX_NAMESPACE_FIELDS}")
    namespace = []
    size = 0
    for number in range(1, count + 1):
        part = cursor.take(cursor.varint(f"a length in {field}"), field)
        if not part and not empty_fields:
            raise violation(f"field {number} of {field} is empty")
        size += len(part)
        namespace.append(bytes(part))
    if size > MAX_FULL_NAME_BYTES:
        raise violation(f"{field} has {size} bytes, more than {MAX_FULL_NAME_BYTES}")
    return tuple(namespace)


def encode_namespace(namespace: Namespace, *, least: int = 1, empty_fields: bool) -> bytes:
    """The namespace, or `LocalProtocolError` if nobody would read it."""
    count, size = len(namespace), sum(map(len, namespace))
    if not least <= count <= MAX_NAMESPACE_FIELDS:
        problem = f"has {count} fields, not {least} to {MAX_NAMESPACE_FIELDS}"
        raise LocalProtocolError(f"the namespace {problem}")
    if size > MAX_FULL_NAME_BYTES:
        raise LocalProtocolError(f"the namespace has {size} bytes, over {MAX_FULL_NAME_BYTES}")
    if not empty_fields and not all(namespace):
        raise LocalProtocolError("a field of the namespace is empty")
    parts = [encode_varint(count)]
    for part in namespace:
        parts += (encode_varint(len(part)), part)
    return b"".join(parts)


def decode_track(cursor: Cursor, *, empty_fields: bool) -> TrackName:
    """The full name of a track."""
    namespace = decode_namespace(cursor, "the track namespace", empty_fields=empty_fields)
    length = cursor.varint("the length of the track name")
    size = length + sum(map(len, namespace))
    if size > MAX_FULL_NAME_BYTES:
        raise violation(f"the full track name has {size} bytes, more than {MAX_FULL_NAME_BYTES}")
    return TrackName(namespace, bytes(cursor.take(length, "the track name")))


def encode_track(track: TrackName, *, empty_fields: bool) -> bytes:
    """The full name of a track."""
    size = len(track.name) + sum(map(len, track.namespace))
    if size > MAX_FULL_NAME_BYTES:
        raise LocalProtocolError(
            f"the full track name has {size} bytes, over {MAX_FULL_NAME_BYTES}"
        )
    namespace = encode_namespace(track.namespace, empty_fields=empty_fields)
    return b"".join((namespace, encode_varint(len(track.name)), track.name))


# --- places ----------------------------------------------------------------------------------

# location
# group(var-int) | object(var-int)


def decode_location(cursor: Cursor, field: str) -> Location:
    """A place in a track."""
    return Location(cursor.varint(f"the group of {field}"), cursor.varint(f"the object of {field}"))


def encode_location(location: Location) -> bytes:
    """A place in a track."""
    return encode_varint(location.group) + encode_varint(location.object)


# filter
# type(var-int) | start(location), if absolute | end group(var-int), of a range


def decode_filter(cursor: Cursor) -> Filter:
    """Which objects a subscription is for."""
    type_ = cursor.varint("the filter type")
    if type_ not in set(FilterType):
        raise violation(f"filter type {type_:#x} is unknown")
    filter_type = FilterType(type_)
    if filter_type < FilterType.ABSOLUTE_START:
        return Filter(filter_type)
    start = decode_location(cursor, "the start")
    if filter_type is FilterType.ABSOLUTE_START:
        return Filter(filter_type, start)
    end_group = cursor.varint("the end group")
    if end_group < start.group:
        raise violation(f"end group {end_group} lies before start group {start.group}")
    return Filter(filter_type, start, end_group)


def encode_filter(filter_: Filter) -> bytes:
    """Which objects a subscription is for."""
    parts = [encode_varint(filter_.type)]
    if filter_.type >= FilterType.ABSOLUTE_START:
        parts.append(encode_location(filter_.start))
    if filter_.type is FilterType.ABSOLUTE_RANGE:
        parts.append(encode_varint(checked_end_group(filter_)))
    return b"".join(parts)


def checked_end_group(filter_: Filter) -> int:
    """The end group of a range, or `LocalProtocolError`."""
    if filter_.end_group is None or filter_.end_group < filter_.start.group:
        problem = f"an end group from {filter_.start.group} on, not {filter_.end_group}"
        raise LocalProtocolError(f"the filter's range needs {problem}")
    return filter_.end_group


# range of a FETCH
# fetch type(var-int)=1 | track | start(location) | end(location)
# fetch type(var-int)=2 relative, 3 absolute | joining request id(var-int) | joining start(var-int)

_STANDALONE, _RELATIVE, _ABSOLUTE = 1, 2, 3


def decode_range(cursor: Cursor, *, empty_fields: bool) -> StandaloneFetch | JoiningFetch:
    """What a FETCH is for."""
    fetch_type = cursor.varint("the fetch type")
    if fetch_type == _STANDALONE:
        track = decode_track(cursor, empty_fields=empty_fields)
        start = decode_location(cursor, "the start")
        return StandaloneFetch(track, start, decode_location(cursor, "the end"))
    if fetch_type not in (_RELATIVE, _ABSOLUTE):
        raise violation(f"fetch type {fetch_type:#x} is unknown")
    joining_id = cursor.varint("the joining request id")
    return JoiningFetch(joining_id, cursor.varint("the joining start"), fetch_type == _RELATIVE)


def encode_range(message: Fetch, *, empty_fields: bool) -> bytes:
    """What a FETCH is for."""
    match message.range:
        case StandaloneFetch(track, start, end):
            name = encode_track(track, empty_fields=empty_fields)
            fields = (
                encode_varint(_STANDALONE),
                name,
                encode_location(start),
                encode_location(end),
            )
            return b"".join(fields)
        case JoiningFetch(joining_id, joining_start, relative):
            fetch_type = _RELATIVE if relative else _ABSOLUTE
            return b"".join(map(encode_varint, (fetch_type, joining_id, joining_start)))


# --- small things ----------------------------------------------------------------------------


def decode_flag(cursor: Cursor, field: str) -> bool:
    """A byte that is 0 or 1."""
    return checked_flag(cursor.u8(field), field)


def checked_flag(value: int, field: str) -> bool:
    """A number that is 0 or 1."""
    if value > 1:
        raise violation(f"{field} is {value}, not 0 or 1")
    return value == 1


def checked_order(value: int, *, least: int = 1) -> GroupOrder:
    """A group order; 0, as the publisher likes it, only where a subscriber may say so."""
    if not least <= value <= GroupOrder.DESCENDING:
        raise violation(f"group order {value} is not {least} to {GroupOrder.DESCENDING}")
    return GroupOrder(value)


def checked_priority(value: int) -> int:
    """A priority of ours that fits its byte."""
    if not 0 <= value <= 0xFF:
        raise LocalProtocolError(f"priority {value} is outside 0 to 255")
    return value


# reason
# length(var-int), at most 1024 | text


def decode_reason(cursor: Cursor) -> str:
    """Why, in words for a person: bytes that are no text are replaced."""
    length = cursor.varint("the length of the reason")
    if length > MAX_REASON_BYTES:
        raise violation(f"the reason has {length} bytes, more than {MAX_REASON_BYTES}")
    return str(cursor.take(length, "the reason"), "utf-8", "replace")


def encode_reason(reason: str) -> bytes:
    """Why, in words for a person: what is too long is cut between two characters."""
    data = reason.encode("utf-8", "replace")
    if len(data) > MAX_REASON_BYTES:
        data = data[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()
    return encode_varint(len(data)) + data


# GOAWAY
# uri length(var-int), at most 8192 | uri


def decode_goaway(cursor: Cursor) -> Goaway:
    """GOAWAY, the same in both drafts."""
    length = cursor.varint("the length of the new session URI")
    if length > MAX_URI_BYTES:
        raise violation(f"the new session URI has {length} bytes, more than {MAX_URI_BYTES}")
    return Goaway(bytes(cursor.take(length, "the new session URI")))


def encode_goaway(message: Goaway) -> bytes:
    """GOAWAY, the same in both drafts."""
    if len(message.uri) > MAX_URI_BYTES:
        raise LocalProtocolError(f"the URI has {len(message.uri)} bytes, over {MAX_URI_BYTES}")
    return encode_varint(len(message.uri)) + message.uri
