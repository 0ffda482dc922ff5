"""The headers of data objects, in datagrams and on unidirectional streams.

A relay forwards payload as it comes, so nothing here copies it or waits for the end of an object:
headers are read and written beside it. What is made per object or per chunk is not frozen.
"""

import struct
from enum import IntEnum
from functools import lru_cache

from msgspec import Struct

from laps.errors import (
    InvalidEncoding,
    InvalidStartOfStream,
    LocalProtocolError,
    RemoteProtocolError,
)
from laps.types import SnsId, TrackKey
from laps.wire.buffer import decode_varint, encode_varint

# header_length(1) | type(1) | ... | data_length(var-int) | data(data_length)
#
# header_length counts every byte before the data, itself and data_length included. We write
# sns_id in 8 bytes, as the document prints it, and read it in 4 as well where header_length says
# so. An SNS id has 32 bits and is never 0.


class ObjectType(IntEnum):
    """The second byte of every data object."""

    DATAGRAM = 0
    EXISTING_STREAM = 1
    NEW_STREAM = 2


# Plain numbers for the data path: comparing with an enum's member costs a look-up more.
_DATAGRAM_TYPE, _EXISTING_STREAM_TYPE, _NEW_STREAM_TYPE = map(int, ObjectType)

MAX_HEADER_LENGTH = 31
"""NEW_STREAM with the longest data_length."""


class DatagramHeader(Struct):
    """Ahead of the data of a datagram."""

    sns_id: SnsId
    full_name_hash: TrackKey
    data_length: int
    header_length: int
    """Where the data starts."""


class NewStreamHeader(Struct):
    """Ahead of the first object of a stream; it holds for all that follow."""

    sns_id: SnsId
    full_name_hash: TrackKey
    priority: int
    ttl_us: int
    """Each object of the stream lives this long from when it is received."""
    data_length: int
    header_length: int
    """Where the data starts."""


class ExistingStreamHeader(Struct):
    """Ahead of every later object of a stream."""

    data_length: int
    header_length: int
    """Where the data starts."""


ObjectHeader = DatagramHeader | NewStreamHeader | ExistingStreamHeader

# --- layouts ---------------------------------------------------------------------------------

# DATAGRAM
# header_length(1) | type(1)=0 | sns_id(8) | track_full_name_hash(8) | data_length(var-int)
_DATAGRAM = struct.Struct(">BBQQ")
_DATAGRAM_NARROW = struct.Struct(">BBIQ")

# EXISTING_STREAM
# header_length(1) | type(1)=1 | data_length(var-int)
_EXISTING_STREAM = struct.Struct(">BB")

# NEW_STREAM
# header_length(1) | type(1)=2 | sns_id(8) | track_full_name_hash(8) | priority(1) | ttl(4)
# | data_length(var-int)
_NEW_STREAM = struct.Struct(">BBQQBI")
_NEW_STREAM_NARROW = struct.Struct(">BBIQBI")

# (type, header_length) -> what may lie ahead of data_length. Only DATAGRAM with 22 and NEW_STREAM
# with 27 leave a choice: the wide one stands first.
_LAYOUTS: dict[tuple[int, int], list[struct.Struct]] = {}
for _type, _layout in (
    (ObjectType.DATAGRAM, _DATAGRAM),
    (ObjectType.DATAGRAM, _DATAGRAM_NARROW),
    (ObjectType.EXISTING_STREAM, _EXISTING_STREAM),
    (ObjectType.NEW_STREAM, _NEW_STREAM),
    (ObjectType.NEW_STREAM, _NEW_STREAM_NARROW),
):
    for _varint_size in (1, 2, 4, 8):
        _LAYOUTS.setdefault((_type, _layout.size + _varint_size), []).append(_layout)

# --- writing ---------------------------------------------------------------------------------


def encode_datagram_header(sns_id: SnsId, full_name_hash: TrackKey, data_length: int) -> bytes:
    """The bytes ahead of a datagram's data."""
    return _encode(_DATAGRAM, ObjectType.DATAGRAM, data_length, _checked(sns_id), full_name_hash)


def encode_new_stream_header(
    sns_id: SnsId, full_name_hash: TrackKey, priority: int, ttl_us: int, data_length: int
) -> bytes:
    """The bytes ahead of the data of a stream's first object."""
    fields = (_checked(sns_id), full_name_hash, priority, ttl_us)
    return _encode(_NEW_STREAM, ObjectType.NEW_STREAM, data_length, *fields)


@lru_cache(maxsize=1024)  # the objects of a track are of few sizes, and each goes to many
def encode_existing_stream_header(data_length: int) -> bytes:
    """The bytes ahead of the data of a stream's later objects."""
    return _encode(_EXISTING_STREAM, ObjectType.EXISTING_STREAM, data_length)


def _encode(layout: struct.Struct, kind: ObjectType, data_length: int, *fields: int) -> bytes:
    length = encode_varint(data_length)
    try:
        return layout.pack(layout.size + len(length), kind, *fields) + length
    except struct.error as error:
        raise LocalProtocolError(f"{kind.name}: {error}") from error


def _checked(sns_id: SnsId) -> SnsId:
    if not 0 < sns_id < 1 << 32:
        raise LocalProtocolError(f"SNS id {sns_id} is outside 1 to 2^32-1")
    return sns_id


# --- reading ---------------------------------------------------------------------------------


def decode_object_header(view: bytes | memoryview, offset: int = 0) -> ObjectHeader | None:
    """The header at `offset`, or None when more bytes are needed."""
    available = len(view) - offset
    if available < 2:
        return None
    header_length, object_type = view[offset], view[offset + 1]
    layouts = _LAYOUTS.get((object_type, header_length))
    if layouts is None:
        raise InvalidEncoding(_explain_unknown_layout(object_type, header_length))
    if available < header_length:
        return None
    if object_type == _EXISTING_STREAM_TYPE:  # as nearly all are
        if 1 << (view[offset + 2] >> 6) != header_length - 2:
            raise InvalidEncoding(_explain_data_length(object_type, header_length))
        data_length, _ = decode_varint(view, offset + 2)
        return ExistingStreamHeader(data_length, header_length)
    layout = layouts[0]
    # The high half of a wide SNS id is all zero; a narrow one begins with a bit that is not.
    if len(layouts) > 1 and any(view[offset + 2 : offset + 6]):
        layout = layouts[1]
    data_length_at = offset + layout.size
    if 1 << (view[data_length_at] >> 6) != header_length - layout.size:
        raise InvalidEncoding(_explain_data_length(object_type, header_length))
    data_length, _ = decode_varint(view, data_length_at)
    fields = layout.unpack_from(view, offset)
    if not 0 < (sns_id := fields[2]) < 1 << 32:
        name = ObjectType(object_type).name
        raise InvalidEncoding(f"{name}: SNS id {sns_id} is outside 1 to 2^32-1")
    if object_type == _DATAGRAM_TYPE:
        return DatagramHeader(sns_id, fields[3], data_length, header_length)
    return NewStreamHeader(sns_id, fields[3], fields[4], fields[5], data_length, header_length)


def _explain_unknown_layout(object_type: int, header_length: int) -> str:
    if object_type not in set(ObjectType):
        return f"data object type {object_type} is unknown"
    return f"{ObjectType(object_type).name}: no header is {header_length} bytes long"


def _explain_data_length(object_type: int, header_length: int) -> str:
    name = ObjectType(object_type).name
    return f"{name}: data_length does not end at header_length {header_length}"


def decode_datagram(data: bytes | memoryview) -> tuple[DatagramHeader, memoryview]:
    """The header of a datagram and its payload, not copied."""
    header = decode_object_header(data)
    if header is None:
        raise InvalidEncoding(f"a datagram of {len(data)} bytes ends inside its header")
    if not isinstance(header, DatagramHeader):
        raise InvalidEncoding(f"data object type {data[1]} has no place in a datagram")
    payload = memoryview(data)[header.header_length :]
    if len(payload) != header.data_length:
        problem = f"data_length {header.data_length} is not the {len(payload)} bytes there are"
        raise InvalidEncoding(f"DATAGRAM: {problem}")
    return header, payload


StreamEvent = NewStreamHeader | ExistingStreamHeader | bytes | memoryview
"""A header, where an object begins, or a slice of the payload of the object under way."""


class DataStreamDecoder:
    """Headers and payload out of one unidirectional stream, however its bytes are cut.

    Payload comes out as it goes in: a chunk that lies inside one object is handed back itself,
    others as views. What is held between chunks is at most an unfinished header. After an error
    the stream is lost: the same error is raised again.
    """

    __slots__ = ("_expected_type", "_failure", "_remaining", "_unfinished")

    def __init__(self) -> None:
        self._expected_type = _NEW_STREAM_TYPE
        self._remaining = 0
        self._unfinished = b""
        self._failure: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        """What the next bytes of the stream hold, in order."""
        size = len(data)
        if 0 < size <= self._remaining:
            self._remaining -= size
            return [data]
        if self._failure is not None:
            # Without its traceback, which would grow each time.
            raise self._failure.with_traceback(None)
        try:
            return self._feed_across(memoryview(data))
        except RemoteProtocolError as error:
            self._failure = error
            self._remaining = 0
            raise

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end with an object, so that a later one may follow."""
        if self._remaining or self._unfinished or self._failure is not None:
            return False
        return self._expected_type == _EXISTING_STREAM_TYPE

    def inside(self, data: bytes) -> bytes | memoryview | None:
        """The payload of the next bytes, if all that they hold of it is of one object.

        They may begin with its header, if that is a later object's; nearly all are like that. Of
        others nothing is read: they are for `feed`.
        """
        size = len(data)
        if self._remaining:
            if size > self._remaining or not size:
                return None
            self._remaining -= size
            return data
        if self._unfinished or size <= MAX_HEADER_LENGTH:
            return None
        if not self._expected_type == data[1] == _EXISTING_STREAM_TYPE:
            return None
        length, start = decode_varint(data, _EXISTING_STREAM.size)
        if start != data[0] or start + length < size or self._failure is not None:
            return None
        self._remaining = start + length - size
        return memoryview(data)[start:]

    def finish(self) -> None:
        """The stream ended: refuse an end inside a header or an object."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._expected_type == _NEW_STREAM_TYPE:
            raise InvalidStartOfStream("the stream ended ahead of its first header")
        if self._unfinished:
            raise InvalidEncoding("the stream ended inside a header")
        if self._remaining:
            raise InvalidEncoding(f"the stream ended {self._remaining} bytes ahead of its object")

    def _feed_across(self, view: memoryview) -> list[StreamEvent]:
        """Read a chunk that does not lie inside one object."""
        events: list[StreamEvent] = []
        offset, size = 0, len(view)
        while offset < size:
            if self._remaining:
                end = min(size, offset + self._remaining)
                events.append(view[offset:end])
                self._remaining -= end - offset
                offset = end
                continue
            held = len(self._unfinished)
            head = self._unfinished + view[offset : offset + MAX_HEADER_LENGTH] if held else view
            start = 0 if held else offset
            if len(head) - start > 1 and (object_type := head[start + 1]) != self._expected_type:
                raise self._explain_unexpected(object_type)
            header: NewStreamHeader | ExistingStreamHeader | None
            header = decode_object_header(head, start)  # type: ignore[assignment] # checked above
            if header is None:
                self._unfinished = bytes(head[start:])
                break
            offset += header.header_length - held
            self._unfinished = b""
            self._expected_type = _EXISTING_STREAM_TYPE
            self._remaining = header.data_length
            events.append(header)
        return events

    def _explain_unexpected(self, object_type: int) -> RemoteProtocolError:
        if self._expected_type == _NEW_STREAM_TYPE:
            return InvalidStartOfStream(f"a stream starts with type {object_type}, not NEW_STREAM")
        return InvalidEncoding(f"a stream goes on with type {object_type}, not EXISTING_STREAM")
