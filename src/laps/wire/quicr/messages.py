"""The control messages of QUICR, and the header of its datagrams.

A message is a length and a value, on a bidirectional stream that is for one media stream:

    length(16) | message_type(i) | …

Numbers the text leaves out: SUBSCRIBE_REPLY is 4, SUBSCRIBE_CANCEL 9, RELAY_REDIRECT 10, the answer
`redirect` 3, and mask, intent and response take one byte each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NoReturn

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.types import Location
from laps.wire.buffer import VARINT_MAX, Cursor, Incomplete, decode_varint, encode_varint
from laps.wire.quicr.codes import QuicrCode, QuicrViolation

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE_BYTES: Final = 0xFFFF

# The most that the fields of a FRAGMENT take beside its data: a type and four var-ints.
FRAGMENT_HEAD_BYTES: Final = 1 + 8 + 8 + 8 + 4
MAX_FRAGMENT_BYTES: Final = MAX_MESSAGE_BYTES - FRAGMENT_HEAD_BYTES

# Reasons are for people to read.
MAX_REASON_BYTES: Final = 1024
MAX_ADDRESS_BYTES: Final = 1024


class Type(IntEnum):
    """The first field of a message."""

    SUBSCRIBE_STREAM = 1
    SUBSCRIBE_DATAGRAM = 2
    FIN = 3
    SUBSCRIBE_REPLY = 4
    FRAGMENT = 5
    PUBLISH_INTENT = 6
    PUBLISH_INTENT_OK = 7
    START_POINT = 8
    SUBSCRIBE_CANCEL = 9
    RELAY_REDIRECT = 10
    AUTHORIZATION = 11


class Intent(IntEnum):
    """Which objects a subscriber wants."""

    IMMEDIATE = 0
    "Those that come from now on."
    CATCH_UP = 1
    "Those that came before, too."
    WAIT_UP = 2
    "Those from the next group on: the first is one with the id 0."


class Holds(IntEnum):
    """What a token is for."""

    STREAM = 0
    "What is asked for on its control stream."
    CONNECTION = 1
    "All that the client asks for from now on."


class Response(IntEnum):
    """How a SUBSCRIBE is answered, or has ended."""

    OK = 0
    EXPIRED = 1
    FAIL = 2
    REDIRECT = 3


NOT_AUTHORIZED: Final = "not authorized: "
"How the reason of a SUBSCRIBE_REPLY begins where tokens are the reason: there is no code for it."


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE_STREAM, or SUBSCRIBE_DATAGRAM where it names a datagram stream; or a renewal."""

    name: bytes
    mask: int = 0
    intent: Intent = Intent.IMMEDIATE
    datagram_stream_id: int | None = None


@dataclass(frozen=True, slots=True)
class SubscribeReply:
    """What became of a SUBSCRIBE; a PUBLISH_INTENT is refused with it too."""

    response: Response
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PublishIntent:
    """Media of this name is about to be sent."""

    name: bytes
    datagram_capable: bool = False


@dataclass(frozen=True, slots=True)
class PublishIntentOk:
    """It may be: on the stream, or in datagrams where a datagram stream is named."""

    datagram_stream_id: int | None = None


@dataclass(frozen=True, slots=True)
class StartPoint:
    """The next fragment is of this object: the first of all, or behind a gap for good."""

    start: Location


@dataclass(slots=True)
class Fragment:
    """A piece of an object."""

    group: int
    object_id: int
    offset: int
    data: bytes | memoryview
    last: bool
    "It ends the object."

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Fin:
    """Nothing follows the objects that come before this location; in datagram mode only."""

    final: Location


@dataclass(frozen=True, slots=True)
class SubscribeCancel:
    """A name is no longer wanted."""

    name: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RelayRedirect:
    """Go to another relay: HOST:PORT."""

    address: str


@dataclass(frozen=True, slots=True)
class Authorization:
    """A token, for what follows on its control stream or for the connection."""

    token: bytes = field(repr=False)
    token_type: int = 0
    holds: Holds = Holds.STREAM


Message = (
    Subscribe
    | SubscribeReply
    | PublishIntent
    | PublishIntentOk
    | StartPoint
    | Fragment
    | Fin
    | SubscribeCancel
    | RelayRedirect
    | Authorization
)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """A message with its length."""
    value = b"".join(_fields(message))
    if len(value) > MAX_MESSAGE_BYTES:
        kind = type(message).__name__
        raise LocalProtocolError(f"{kind} of {len(value)} bytes: there can be {MAX_MESSAGE_BYTES}")
    return len(value).to_bytes(2) + value


def _fields(message: Message) -> tuple[bytes | memoryview, ...]:  # noqa: C901 - a flat table
    match message:
        case Fragment(group, object_id, offset, data, last):
            return (
                b"\x05",
                encode_varint(group),
                encode_varint(object_id),
                encode_varint(2 * offset + last),
                encode_varint(len(data)),
                data,
            )
        case Subscribe(name, mask, intent, datagram_stream_id):
            if not 0 <= mask <= 0xFF:
                raise LocalProtocolError(f"mask {mask} is outside 0 to 255")
            head = (*_sized(name), bytes((mask, intent)))
            if datagram_stream_id is None:
                return (b"\x01", *head)
            return (b"\x02", *head, encode_varint(datagram_stream_id))
        case SubscribeReply(response, reason):
            said = _sized(_short(reason)) if reason or response is not Response.OK else ()
            return (b"\x04", response.to_bytes(1), *said)
        case PublishIntent(name, datagram_capable):
            return (b"\x06", *_sized(name), encode_varint(datagram_capable))
        case PublishIntentOk(None):
            return (b"\x07\x00",)
        case PublishIntentOk(datagram_stream_id):
            return (b"\x07\x01", encode_varint(datagram_stream_id or 0))
        case StartPoint(place):
            return (b"\x08", encode_varint(place.group), encode_varint(place.object))
        case Fin(place):
            return (b"\x03", encode_varint(place.group), encode_varint(place.object))
        case SubscribeCancel(name, reason):
            return (b"\x09", *_sized(name), *_sized(_short(reason)))
        case RelayRedirect(address):
            text = address.encode()
            if len(text) > MAX_ADDRESS_BYTES:
                most = f"there can be {MAX_ADDRESS_BYTES}"
                raise LocalProtocolError(f"an address of {len(text)} bytes is too long: {most}")
            return (b"\x0a", *_sized(text))
        case Authorization(token, token_type, holds):
            return (b"\x0b", holds.to_bytes(1), encode_varint(token_type), *_sized(token))


def _sized(data: bytes) -> tuple[bytes, bytes]:
    return encode_varint(len(data)), data


def _short(reason: str) -> bytes:
    return reason.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore").encode()


# --- reading ---------------------------------------------------------------------------------


class MessageReader:
    """The messages of a control stream, out of bytes as they come."""

    __slots__ = ("_held", "_wanted")

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0
        "How many bytes make it worth a look."

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an unfinished message is held."""
        return not self._held

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished message is held."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Message]:
        """What is whole; what is not is held, at most one message of 65,537 bytes.

        A message in many pieces is put together once, not again for each piece.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return []
            data = bytes(self._held)
        return self._split(data)

    def _split(self, whole: bytes) -> list[Message]:
        view, size, position = memoryview(whole), len(whole), 0
        messages: list[Message] = []
        self._wanted = 2
        while size - position >= 2:
            end = position + 2 + (whole[position] << 8 | whole[position + 1])
            if end > size:
                self._wanted = end - position
                break
            messages.append(decode(view[position + 2 : end]))
            position = end
        self._held = bytearray(view[position:])
        return messages


def decode(value: memoryview) -> Message:
    """The message in a value; the data of a fragment is a slice of it."""
    try:
        cursor = Cursor(value, whole=True)
        type_ = cursor.varint("message_type")
        if type_ == Type.FRAGMENT:
            message: Message = _fragment(cursor)
        elif (read := _READERS.get(type_)) is not None:
            message = read(cursor)
        else:
            _refuse(f"message type {type_} is unknown")
        if cursor.remaining:
            _refuse(f"{cursor.remaining} bytes follow a {type(message).__name__}")
    except InvalidEncoding as error:
        _refuse(str(error))
    return message


def _refuse(problem: str) -> NoReturn:
    raise QuicrViolation(QuicrCode.INVALID_ENCODING, problem)


def _fragment(cursor: Cursor) -> Fragment:
    group, object_id = cursor.varint("group_id"), cursor.varint("object_id")
    place = cursor.varint("offset_and_fin")
    data = cursor.take(cursor.varint("length"), "data")
    return Fragment(group, object_id, place >> 1, data, bool(place & 1))


def _subscribe_stream(cursor: Cursor) -> Subscribe:
    name = _name(cursor)
    return Subscribe(name, cursor.u8("mask"), _intent(cursor))


def _subscribe_datagram(cursor: Cursor) -> Subscribe:
    name = _name(cursor)
    mask, intent = cursor.u8("mask"), _intent(cursor)
    return Subscribe(name, mask, intent, cursor.varint("datagram_stream_id"))


def _subscribe_reply(cursor: Cursor) -> SubscribeReply:
    number = cursor.u8("response")
    try:
        response = Response(number)
    except ValueError:
        _refuse(f"response {number} is unknown")
    return SubscribeReply(response, _reason(cursor) if cursor.remaining else "")


def _publish_intent(cursor: Cursor) -> PublishIntent:
    name = _name(cursor)
    return PublishIntent(name, _flag(cursor, "datagram_capable"))


def _publish_intent_ok(cursor: Cursor) -> PublishIntentOk:
    if _flag(cursor, "use_datagram"):
        return PublishIntentOk(cursor.varint("datagram_stream_id"))
    return PublishIntentOk()


def _start_point(cursor: Cursor) -> StartPoint:
    return StartPoint(_location(cursor))


def _fin(cursor: Cursor) -> Fin:
    return Fin(_location(cursor))


def _subscribe_cancel(cursor: Cursor) -> SubscribeCancel:
    name = _name(cursor)
    return SubscribeCancel(name, _reason(cursor))


def _relay_redirect(cursor: Cursor) -> RelayRedirect:
    return RelayRedirect(_text(cursor, "relay_address", MAX_ADDRESS_BYTES))


def _authorization(cursor: Cursor) -> Authorization:
    number = cursor.u8("holds")
    try:
        holds = Holds(number)
    except ValueError:
        _refuse(f"a token that holds for {number} is unknown")
    token_type = cursor.varint("token_type")
    token = bytes(cursor.take(cursor.varint("token_length"), "token"))
    return Authorization(token, token_type, holds)


_READERS: Final[dict[int, Callable[[Cursor], Message]]] = {
    Type.SUBSCRIBE_STREAM: _subscribe_stream,
    Type.SUBSCRIBE_DATAGRAM: _subscribe_datagram,
    Type.FIN: _fin,
    Type.SUBSCRIBE_REPLY: _subscribe_reply,
    Type.PUBLISH_INTENT: _publish_intent,
    Type.PUBLISH_INTENT_OK: _publish_intent_ok,
    Type.START_POINT: _start_point,
    Type.SUBSCRIBE_CANCEL: _subscribe_cancel,
    Type.RELAY_REDIRECT: _relay_redirect,
    Type.AUTHORIZATION: _authorization,
}


def _name(cursor: Cursor) -> bytes:
    return bytes(cursor.take(cursor.varint("name_length"), "name"))


def _intent(cursor: Cursor) -> Intent:
    number = cursor.u8("intent")
    try:
        return Intent(number)
    except ValueError:
        _refuse(f"intent {number} is unknown")


def _flag(cursor: Cursor, field: str) -> bool:
    value = cursor.varint(field)
    if value > 1:
        _refuse(f"{field} is {value}, neither 0 nor 1")
    return bool(value)


def _location(cursor: Cursor) -> Location:
    return Location(cursor.varint("group_id"), cursor.varint("object_id"))


def _reason(cursor: Cursor) -> str:
    return _text(cursor, "reason phrase", MAX_REASON_BYTES)


def _text(cursor: Cursor, field: str, most: int) -> str:
    data = cursor.take(cursor.varint(field), field)
    if len(data) > most:
        _refuse(f"a {field} of {len(data)} bytes is too long: there can be {most}")
    return bytes(data).decode("utf-8", "replace")


# --- datagrams -------------------------------------------------------------------------------

# datagram_stream_id(i) | group_id(i) | object_id(i) | offset_and_fin(i) | best_before(i)
# | flags(8) | nb_objects_previous_group(i), where object_id and offset are 0 | data
#
#   0 0 0 0 D P P P     D: discardable; PPP: priority, 0 is the most urgent

_DISCARDABLE = 0x08
_PRIORITY_MASK = 0x07

# The most that the header takes: five var-ints and the flags. Where a number of objects follows,
# object id and offset take a byte each.
DATAGRAM_HEAD_BYTES: Final = 5 * 8 + 1

DEFAULT_PRIORITY: Final = 4


@dataclass(slots=True)
class Terms:
    """On what terms an object travels: what a datagram says beside the fragment in it."""

    best_before_ms: int = 0
    "For how long the object is of use, from now on; 0: nobody said."
    priority: int = DEFAULT_PRIORITY
    discardable: bool = False
    objects_before: int = 0
    "How many objects the group before had; said with the first fragment of a group."


@dataclass(slots=True)
class Datagram:
    """A fragment in a datagram."""

    stream_id: int
    fragment: Fragment
    terms: Terms


def encode_datagram(stream_id: int, fragment: Fragment, terms: Terms) -> bytes:
    """A datagram with a fragment."""
    flags = terms.priority & _PRIORITY_MASK | (terms.discardable and _DISCARDABLE)
    fields: list[bytes | memoryview] = [
        encode_varint(stream_id),
        encode_varint(fragment.group),
        encode_varint(fragment.object_id),
        encode_varint(2 * fragment.offset + fragment.last),
        encode_varint(terms.best_before_ms),
        flags.to_bytes(1),
    ]
    if fragment.object_id == 0 and fragment.offset == 0:
        fields.append(encode_varint(terms.objects_before))
    fields.append(fragment.data)
    return b"".join(fields)


def decode_datagram(data: bytes) -> Datagram:
    """The fragment in a datagram, whose data is a slice of it; QuicrViolation if there is none."""
    try:
        stream_id, at = decode_varint(data)
        group, at = decode_varint(data, at)
        object_id, at = decode_varint(data, at)
        place, at = decode_varint(data, at)
        best_before_ms, at = decode_varint(data, at)
        if at >= len(data):
            raise Incomplete
        flags = data[at]
        at += 1
        objects_before = 0
        if object_id == 0 and place < 2:
            objects_before, at = decode_varint(data, at)
    except Incomplete:
        _refuse(f"a datagram of {len(data)} bytes ends inside its header")
    fragment = Fragment(group, object_id, place >> 1, memoryview(data)[at:], bool(place & 1))
    if fragment.end > VARINT_MAX >> 1:
        _refuse("a fragment lies behind the largest offset there is")
    discardable = bool(flags & _DISCARDABLE)
    terms = Terms(best_before_ms, flags & _PRIORITY_MASK, discardable, objects_before)
    return Datagram(stream_id, fragment, terms)
