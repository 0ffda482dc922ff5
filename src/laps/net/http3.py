"""HTTP/3 as bytes: frames, settings, header fields. RFC 9114, and of QPACK the static table only.

Nothing here knows a connection; `http3_connection.py` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from qh3._hazmat import (
    DecoderStreamError,
    DecompressionFailed,
    EncoderStreamError,
    HeaderTooLarge,
    QpackDecoder,
    QpackEncoder,
    StreamBlocked,
)

from laps.errors import LapsError
from laps.wire.buffer import Incomplete, decode_varint, encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A request has a dozen fields. Chromium's take 500 bytes; a token in the path may add a few
# thousand.
FIELD_SECTION_BYTES: Final = 16 * 1024

# All settings ever registered, each with the longest of values, take half of this.
CONTROL_FRAME_BYTES: Final = 4096

Field = tuple[bytes, bytes]


class ErrorCode(IntEnum):
    """Why a connection or a stream ends: RFC 9114, 9204 and 9297."""

    DATAGRAM_ERROR = 0x33
    NO_ERROR = 0x100
    GENERAL_PROTOCOL_ERROR = 0x101
    INTERNAL_ERROR = 0x102
    STREAM_CREATION_ERROR = 0x103
    CLOSED_CRITICAL_STREAM = 0x104
    FRAME_UNEXPECTED = 0x105
    FRAME_ERROR = 0x106
    EXCESSIVE_LOAD = 0x107
    ID_ERROR = 0x108
    SETTINGS_ERROR = 0x109
    MISSING_SETTINGS = 0x10A
    REQUEST_REJECTED = 0x10B
    REQUEST_CANCELLED = 0x10C
    REQUEST_INCOMPLETE = 0x10D
    MESSAGE_ERROR = 0x10E
    CONNECT_ERROR = 0x10F
    VERSION_FALLBACK = 0x110
    QPACK_DECOMPRESSION_FAILED = 0x200
    QPACK_ENCODER_STREAM_ERROR = 0x201
    QPACK_DECODER_STREAM_ERROR = 0x202


class FrameType(IntEnum):
    """The frames that mean something here; all others are skipped."""

    DATA = 0x0
    HEADERS = 0x1
    CANCEL_PUSH = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    GOAWAY = 0x7
    MAX_PUSH_ID = 0xD
    WEBTRANSPORT_STREAM = 0x41
    "No frame: it begins a bidirectional stream of a WebTransport session."


class StreamType(IntEnum):
    """What a unidirectional stream begins with; others than these are refused one by one."""

    CONTROL = 0x0
    PUSH = 0x1
    QPACK_ENCODER = 0x2
    QPACK_DECODER = 0x3
    WEBTRANSPORT = 0x54


class Setting(IntEnum):
    """What the two sides tell each other first."""

    QPACK_MAX_TABLE_CAPACITY = 0x1
    MAX_FIELD_SECTION_SIZE = 0x6
    QPACK_BLOCKED_STREAMS = 0x7
    ENABLE_CONNECT_PROTOCOL = 0x8
    H3_DATAGRAM = 0x33
    H3_DATAGRAM_DRAFT04 = 0xFFD277
    ENABLE_WEBTRANSPORT = 0x2B603742  # drafts 2 to 6: Chromium, aioquic
    WEBTRANSPORT_MAX_SESSIONS = 0xC671706A  # drafts 7 to 12
    WT_MAX_SESSIONS = 0x14E9CD29  # drafts 13 and 14
    WT_ENABLED = 0x2C7CF000  # draft 15 and later


# What HTTP/2 had and HTTP/3 has not: whoever sends it takes us for something else.
HTTP2_FRAMES: Final = frozenset((0x2, 0x6, 0x8, 0x9))
HTTP2_SETTINGS: Final = frozenset((0x0, 0x2, 0x3, 0x4, 0x5))
SWITCHES: Final = (
    Setting.ENABLE_CONNECT_PROTOCOL,
    Setting.H3_DATAGRAM,
    Setting.H3_DATAGRAM_DRAFT04,
)


class Http3Error(LapsError):
    """The peer broke HTTP/3: the connection is closed with `code`. It stays inside `net`."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class StreamError(Http3Error):
    """The peer broke HTTP/3 in a way that costs one stream."""


def describe(code: int) -> str:
    """An error code in words."""
    try:
        return f"H3_{ErrorCode(code).name}".replace("H3_QPACK", "QPACK")
    except ValueError:
        return f"HTTP/3 error {code:#x}"


# -- error codes of streams of a session ---------------------------------------------------------
# An application's 32 bits lie in HTTP/3's space in blocks of 30: every 31st number is greased.

FIRST_APPLICATION_ERROR: Final = 0x52E4A40FA8DB
LAST_APPLICATION_ERROR: Final = 0x52E5AC983162
LARGEST_ERROR: Final = 0xFFFF_FFFF

# What is sent for a stream whose session is not there, by HTTP/3 itself.
BUFFERED_STREAM_REJECTED: Final = 0x3994BD84


def encode_error(code: int) -> int:
    """An application's error code for RESET_STREAM and STOP_SENDING; 32 bits is all it has."""
    code = min(code, LARGEST_ERROR)
    return FIRST_APPLICATION_ERROR + code + code // 0x1E


def decode_error(code: int) -> int | None:
    """The application's error code, or None where HTTP/3 itself speaks."""
    if not FIRST_APPLICATION_ERROR <= code <= LAST_APPLICATION_ERROR or (code - 0x21) % 0x1F == 0:
        return None
    shifted = code - FIRST_APPLICATION_ERROR
    return shifted - shifted // 0x1F


# -- frames ----------------------------------------------------------------------------------------
# type(varint) | length(varint) | payload


def encode_frame(kind: int, payload: bytes) -> bytes:
    """One whole frame."""
    return encode_varint(kind) + encode_varint(len(payload)) + payload


class FrameReader:
    """Cuts the bytes of one stream into frames, however they arrive.

    Frames of the types in `whole` come in one piece; DATA comes piece by piece, a first empty one
    included; of any other there is only an empty piece when it begins.
    """

    __slots__ = ("_body", "_head", "_kind", "_left", "_limit", "_whole")

    def __init__(self, whole: frozenset[int], limit: int) -> None:
        self._whole = whole
        self._limit = limit
        self._head = b""
        self._kind: int | None = None
        self._left = 0
        self._body = bytearray()

    @property
    def between_frames(self) -> bool:
        """Whether the stream may end here."""
        return self._kind is None and not self._head

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames, or pieces of them, that these bytes bring."""
        data, self._head, offset = self._head + data, b"", 0
        while True:
            if self._kind is None:
                if offset == len(data):
                    return
                try:
                    kind, start = decode_varint(data, offset)
                    size, start = decode_varint(data, start)
                except Incomplete:
                    self._head = data[offset:]
                    return
                offset, self._kind, self._left = start, kind, size
                if kind not in self._whole:
                    yield kind, b""
                elif size > self._limit:
                    raise Http3Error(
                        ErrorCode.EXCESSIVE_LOAD,
                        f"a frame of {size} bytes: the limit is {self._limit}",
                    )
            kind = self._kind
            piece = data[offset : offset + self._left]
            offset += len(piece)
            self._left -= len(piece)
            if not self._left:
                self._kind = None
            if kind in self._whole:
                self._body += piece
                if not self._left:
                    body, self._body = bytes(self._body), bytearray()
                    yield kind, body
            elif kind == FrameType.DATA and piece:
                yield kind, piece
            if self._left:
                return


def decode_number(payload: bytes, what: str) -> int:
    """The payload of a frame that is one varint."""
    try:
        value, end = decode_varint(payload)
    except Incomplete:
        end = -1
    if end != len(payload):
        raise Http3Error(ErrorCode.FRAME_ERROR, f"{what} is not one number")
    return value


# -- settings --------------------------------------------------------------------------------------
# ( identifier(varint) | value(varint) ) ...


def encode_settings(settings: dict[int, int]) -> bytes:
    """The payload of a SETTINGS frame."""
    return b"".join(encode_varint(key) + encode_varint(value) for key, value in settings.items())


def decode_settings(payload: bytes) -> dict[int, int]:
    """What a peer said; those we do not know are kept too."""
    settings: dict[int, int] = {}
    offset = 0
    while offset < len(payload):
        try:
            key, offset = decode_varint(payload, offset)
            value, offset = decode_varint(payload, offset)
        except Incomplete:
            raise Http3Error(ErrorCode.FRAME_ERROR, "SETTINGS end inside of a setting") from None
        if key in HTTP2_SETTINGS or key in settings:
            why = "is of HTTP/2" if key in HTTP2_SETTINGS else "comes twice"
            raise Http3Error(ErrorCode.SETTINGS_ERROR, f"setting {key:#x} {why}")
        settings[key] = value
    for switch in SWITCHES:
        if settings.get(switch, 0) > 1:
            raise Http3Error(
                ErrorCode.SETTINGS_ERROR,
                f"setting {switch.name} is {settings[switch]}: it is 0 or 1",
            )
    return settings


# -- header fields ---------------------------------------------------------------------------------


class Fields:
    """Header fields of one connection to bytes and back.

    Our encoder is told of no dynamic table and our decoder has none, so that no field section ever
    waits for another stream.
    """

    def __init__(self) -> None:
        self._encoder = QpackEncoder()
        self._decoder = QpackDecoder(0, 0, max_field_section_size=FIELD_SECTION_BYTES)

    def encode(self, stream_id: int, fields: Iterable[Field]) -> bytes:
        """A HEADERS frame."""
        _, block = self._encoder.encode(stream_id, list(fields))
        return encode_frame(FrameType.HEADERS, block)

    def decode(self, stream_id: int, block: bytes) -> list[Field]:
        """The fields in the payload of a HEADERS frame."""
        try:
            _, fields = self._decoder.feed_header(stream_id, block)
        except HeaderTooLarge:
            raise Http3Error(
                ErrorCode.EXCESSIVE_LOAD, f"header fields of more than {FIELD_SECTION_BYTES} bytes"
            ) from None
        except (DecoderStreamError, DecompressionFailed, StreamBlocked) as error:
            raise Http3Error(ErrorCode.QPACK_DECOMPRESSION_FAILED, str(error)) from None
        return fields

    def feed_encoder_stream(self, data: bytes) -> None:
        """What the peer's encoder says; with no table to fill that is next to nothing."""
        try:
            self._decoder.feed_encoder(data)
        except EncoderStreamError as error:
            raise Http3Error(ErrorCode.QPACK_ENCODER_STREAM_ERROR, str(error)) from None

    def feed_decoder_stream(self, data: bytes) -> None:
        """What the peer's decoder acknowledges; nothing we send asks for it."""
        try:
            self._encoder.feed_decoder(data)
        except DecoderStreamError as error:
            raise Http3Error(ErrorCode.QPACK_DECODER_STREAM_ERROR, str(error)) from None


_NAME: Final = re.compile(rb":?[!#$%&'*+.^_`|~0-9a-z-]+")
_HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
)
_OF_A_REQUEST: Final = frozenset((":method", ":scheme", ":authority", ":path", ":protocol"))


@dataclass(frozen=True, slots=True)
class Request:
    """The header of a request."""

    method: str
    protocol: str
    "What an extended CONNECT asks for; otherwise empty."
    authority: str
    path: str
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str:
        """All values of a field, as one."""
        return join_values(self.headers, name)


def parse_request(fields: list[Field]) -> Request:
    """A request, if it is one: RFC 9114 sections 4.2 and 4.3, RFC 9220."""
    pseudo, headers = _split(fields, _OF_A_REQUEST)
    method, protocol = pseudo.get(":method", ""), pseudo.get(":protocol", "")
    if method == "CONNECT" and not protocol:
        needed = {":authority"}
        if pseudo.keys() & {":scheme", ":path"}:
            raise StreamError(ErrorCode.MESSAGE_ERROR, "CONNECT with :scheme or :path")
    else:
        needed = {":method", ":scheme", ":path"}
        if protocol:
            needed.add(":authority")
            if method != "CONNECT":
                raise StreamError(ErrorCode.MESSAGE_ERROR, f":protocol with {method}")
    if missing := sorted(name for name in needed if not pseudo.get(name)):
        raise StreamError(ErrorCode.MESSAGE_ERROR, f"a request without {', '.join(missing)}")
    authority, path = pseudo.get(":authority", ""), pseudo.get(":path", "")
    return Request(method, protocol, authority, path, headers)


def parse_response(fields: list[Field]) -> tuple[int, tuple[tuple[str, str], ...]]:
    """The status and the other fields of a response."""
    pseudo, headers = _split(fields, frozenset((":status",)))
    status = pseudo.get(":status", "")
    if re.fullmatch("[1-9][0-9]{2}", status) is None:
        raise StreamError(ErrorCode.MESSAGE_ERROR, f'a response with status "{status}"')
    return int(status), headers


def _split(
    fields: list[Field], allowed: frozenset[str]
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    pseudo: dict[str, str] = {}
    headers: list[tuple[str, str]] = []
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if _NAME.fullmatch(raw_name) is None or set(value) & {"\r", "\n", "\0"}:
            problem = "is no field of HTTP/3"
        elif name.startswith(":"):
            if name in allowed and name not in pseudo and not headers:
                pseudo[name] = value
                continue
            problem = "is out of place"
        elif name in _HOP_BY_HOP or (name == "te" and value != "trailers"):
            problem = "is of HTTP/1"
        else:
            headers.append((name, value))
            continue
        raise StreamError(ErrorCode.MESSAGE_ERROR, f"header field {raw_name!r} {problem}")
    return pseudo, tuple(headers)


def join_values(headers: tuple[tuple[str, str], ...], name: str) -> str:
    """All values of a field, as one."""
    return ", ".join(value for key, value in headers if key == name)


# -- lists of strings and tokens (RFC 8941), as WebTransport names protocols -----------------------

_STRING: Final = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
_PARAMETER: Final = r' *; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[^"\\]|\\.)*"|[^ ,;"]+))?'
_BARE: Final = r"([A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)"
_STRING_ITEM: Final = re.compile(rf"[ \t]*{_STRING}(?:{_PARAMETER})*[ \t]*(?:,|$)")
_TOKEN_ITEM: Final = re.compile(rf"[ \t]*{_BARE}(?:{_PARAMETER})*[ \t]*(?:,|$)")


def encode_strings(strings: Iterable[str]) -> bytes:
    """A list of strings; a list of one is also that string by itself."""
    escaped = (re.sub(r'(["\\])', r"\\\1", string) for string in strings)
    return ", ".join(f'"{string}"' for string in escaped).encode("ascii")


def decode_strings(text: str) -> tuple[str, ...]:
    """The strings of a list, without their parameters; none if it is no list of strings."""
    return tuple(re.sub(r"\\(.)", r"\1", item) for item in _items(_STRING_ITEM, text))


def decode_tokens(text: str) -> tuple[str, ...]:
    """The tokens of a list, without their parameters; none if it is no list of tokens."""
    return tuple(_items(_TOKEN_ITEM, text))


def _items(pattern: re.Pattern[str], text: str) -> list[str]:
    items: list[str] = []
    offset = 0
    while offset < len(text):
        if (item := pattern.match(text, offset)) is None:
            return []
        items.append(item[1])
        offset = item.end()
    return items
