"""The fields of an object in a subgroup's stream: the one place that knows their order and bounds.

Whole objects (`objects`), boundaries (`boundaries`), pieces, translation and the objects of a FETCH
are read with these. The loops over every object of a stream read the shortest forms themselves, a
byte or two each, and leave all others to the functions here; `Incomplete` means that more bytes
have to come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.wire.buffer import VARINT_MAX, decode_varint, encode_varint
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.data import check_status

if TYPE_CHECKING:
    from laps.wire.moqt.draft import Dialect

MAX_EXTENSIONS_BYTES: Final = 1 << 17
"""What the extensions of an object may take; the drafts set no bound. Twice the longest value."""

# object of a subgroup
# object id delta(var-int): minus the id before, minus 1
# | extensions length(var-int) | extensions(length), if the stream's header says so
# | payload length(var-int) | status(var-int), if the length is 0 | payload(length)
#
# The drafts differ in which statuses there are, and in how extensions are written.


def decode_extensions_length(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """How long the extensions at `position` are, and where they begin."""
    length, position = decode_varint(data, position)
    if length > MAX_EXTENSIONS_BYTES:
        problem = f"{length} bytes of extensions are more than {MAX_EXTENSIONS_BYTES}"
        raise MoqtViolation(SessionCode.INTERNAL_ERROR, problem)
    return length, position


def decode_status(
    data: bytes | memoryview, position: int, has_extensions: bool, dialect: Dialect
) -> tuple[int, int]:
    """The status of an object without payload, and where the object ends."""
    status, position = decode_varint(data, position)
    if status:
        check_status(status, has_extensions, dialect)
    return status, position


def decode_length_and_status(
    data: bytes | memoryview, position: int, has_extensions: bool, dialect: Dialect
) -> tuple[int, int, int]:
    """The payload's length, the status, and where the payload begins."""
    length, position = decode_varint(data, position)
    if length:
        return length, 0, position
    status, position = decode_status(data, position, has_extensions, dialect)
    return 0, status, position


def checked_id(number: int) -> int:
    """An id that a var-int can hold, as those that follow from others might not."""
    if number > VARINT_MAX:
        raise violation(f"id {number} is above 2^62-1")
    return number


def encode_object_header(
    object_id_delta: int,
    extensions: bytes,
    payload_length: int,
    status: int = 0,
    has_extensions: bool = False,
) -> bytes:
    """What precedes an object's payload; `has_extensions` is the stream header's."""
    plain = not (has_extensions or extensions or status)
    if plain and 0 < payload_length < 0x40 and 0 <= object_id_delta < 0x40:
        return bytes((object_id_delta, payload_length))
    parts = [encode_varint(object_id_delta)]
    if has_extensions:
        parts += (encode_varint(len(extensions)), extensions)
    elif extensions:
        raise LocalProtocolError("extensions on a stream whose header says there are none")
    parts.append(encode_varint(payload_length))
    if payload_length == 0:
        parts.append(encode_varint(status))
    elif status:
        raise LocalProtocolError(f"an object of status {status:#x} has payload")
    return b"".join(parts)


def encode_object(
    object_id_delta: int,
    extensions: bytes,
    payload: bytes,
    status: int = 0,
    has_extensions: bool = False,
) -> bytes:
    """A whole object. With a large payload, `encode_object_header` saves a copy of it."""
    size = len(payload)
    head = encode_object_header(object_id_delta, extensions, size, status, has_extensions)
    return head + payload
