"""The SUBSCRIBE that travels inside subscribe information: a whole message of MoQT draft 16.

Relays between the s-relay and the o-relay pass it on unread. The o-relay reads the track's name
from it, since the hashes beside it do not tell the parts of the namespace apart.
"""

from __future__ import annotations

from laps.errors import InvalidEncoding
from laps.names import MAX_FULL_NAME_BYTES, MAX_NAMESPACE_FIELDS
from laps.types import TrackName
from laps.wire.buffer import Cursor, encode_varint

SUBSCRIBE = 0x3

# SUBSCRIBE
# type(i) = 3 | length(2) | request_id(i)
#   | fields(i) { length(i) field }* | name_length(i) name | parameters(i) …


def encode_subscribe(track: TrackName, request_id: int = 0) -> bytes:
    """A SUBSCRIBE for a track, without parameters."""
    body = encode_varint(request_id) + encode_varint(len(track.namespace))
    for part in (*track.namespace, track.name):
        body += encode_varint(len(part)) + part
    body += encode_varint(0)
    return encode_varint(SUBSCRIBE) + len(body).to_bytes(2, "big") + body


def decode_track_name(subscribe_data: bytes | memoryview) -> TrackName:
    """The track that a SUBSCRIBE asks for; what follows the name is not looked at."""
    cursor = Cursor(memoryview(subscribe_data), whole=True)
    if (message_type := cursor.varint("type")) != SUBSCRIBE:
        raise InvalidEncoding(f"subscribe data is a message of type {message_type}, not SUBSCRIBE")
    if (length := cursor.u16("length")) != cursor.remaining:
        raise InvalidEncoding(f"subscribe data says {length} bytes and has {cursor.remaining}")
    cursor.varint("request id")
    fields = cursor.varint("number of namespace fields")
    if fields > MAX_NAMESPACE_FIELDS:
        raise InvalidEncoding(
            f"a namespace of {fields} fields: {MAX_NAMESPACE_FIELDS} are the most"
        )
    namespace = tuple(_bytes(cursor, "namespace field") for _ in range(fields))
    track = TrackName(namespace, _bytes(cursor, "track name"))
    if sum(map(len, (*namespace, track.name))) > MAX_FULL_NAME_BYTES:
        raise InvalidEncoding(f"a full track name of more than {MAX_FULL_NAME_BYTES} bytes")
    return track


def _bytes(cursor: Cursor, field: str) -> bytes:
    return bytes(cursor.take(cursor.varint(f"length of {field}"), field))
