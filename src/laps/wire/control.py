"""The control stream: the common header around every message, and a decoder that is fed chunks.

What breaks the document is refused both ways: from the peer as `InvalidMessageType` or
`InvalidEncoding`, on our own side as `LocalProtocolError` before a byte leaves.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NoReturn, Self

from laps.errors import InvalidEncoding, InvalidMessageType, LocalProtocolError, RemoteProtocolError
from laps.wire.buffer import Cursor
from laps.wire.peering import CODECS, Codec, Message

PROTOCOL_VERSION = 1

# The longest message is the subscriber node set: 100,000 nodes take 800 kB. A peer makes us hold
# this much of an unfinished message and no more.
MAX_MESSAGE_LENGTH = 1 << 20

# What comes again in the same bytes, as what is flooded does from each neighbour, is read once. So
# many messages are remembered, of up to this length: a few megabytes.
MOST_REMEMBERED: Final = 4096
MAX_REMEMBERED_LENGTH: Final = 256

# common header
# protocol_version(1) | message_type(2) | message_length(4)
_HEADER = struct.Struct(">BHI")


def encode(message: Message, *, codecs: Mapping[int, Codec] = CODECS) -> bytes:
    """The message with its common header, or `LocalProtocolError`.

    What `codecs` lacks is not written: the peer would close the session over it.
    """
    kind = message.message_type
    codec = codecs.get(kind)
    if codec is None:
        raise LocalProtocolError(f"{kind.name}: not a message that this peer knows")
    try:
        body = codec.encode(message)
    except (InvalidEncoding, struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"{kind.name}: {error}") from error
    if len(body) > MAX_MESSAGE_LENGTH:
        problem = f"{len(body)} bytes are more than the {MAX_MESSAGE_LENGTH} a peer takes"
        raise LocalProtocolError(f"{kind.name}: {problem}")
    return _HEADER.pack(PROTOCOL_VERSION, kind, len(body)) + body


def _decode_header(
    view: memoryview, offset: int, codecs: Mapping[int, Codec], max_message_length: int
) -> tuple[Codec, int, int] | None:
    """Read the header as soon as it is there, so that nothing waits for a body nobody wants.

    How the body is read, where it begins, and where it ends.
    """
    if len(view) - offset < _HEADER.size:
        return None
    version, message_type, length = _HEADER.unpack_from(view, offset)
    if version != PROTOCOL_VERSION:
        raise InvalidEncoding(f"protocol version {version} is not {PROTOCOL_VERSION}")
    codec = codecs.get(message_type)
    if codec is None:
        raise InvalidMessageType(f"message type {message_type} has no place on a control stream")
    if length > max_message_length:
        problem = f"message_length {length} is more than {max_message_length}"
        raise InvalidEncoding(f"{codec.message.message_type.name}: {problem}")
    start = offset + _HEADER.size
    return codec, start, start + length


def _decode_body(view: memoryview, codec: Codec, start: int, end: int) -> Message:
    if codec.recurs and end - start <= MAX_REMEMBERED_LENGTH:
        return _decode_recurring(codec, bytes(view[start:end]))
    return _decode_fields(codec, view[start:end])


@lru_cache(maxsize=MOST_REMEMBERED)
def _decode_recurring(codec: Codec, body: bytes) -> Message:
    return _decode_fields(codec, memoryview(body))


def _decode_fields(codec: Codec, body: memoryview) -> Message:
    cursor = Cursor(body, whole=True)
    try:
        message = codec.decode(cursor)
        if cursor.remaining:
            raise InvalidEncoding(f"{cursor.remaining} bytes follow the last field")
    except InvalidEncoding as error:
        raise InvalidEncoding(f"{codec.message.message_type.name}: {error}") from None
    return message


def decode(
    view: bytes | memoryview,
    offset: int = 0,
    *,
    codecs: Mapping[int, Codec] = CODECS,
    max_message_length: int = MAX_MESSAGE_LENGTH,
) -> tuple[Message, int] | None:
    """The message at `offset` and the offset behind it, or None when more bytes are needed."""
    view = memoryview(view)
    header = _decode_header(view, offset, codecs, max_message_length)
    if header is None or header[2] > len(view):
        return None
    return _decode_body(view, *header), header[2]


class ControlDecoder:
    """Messages out of a control stream, however its bytes are cut.

        decoder.feed(data)
        for message in decoder:
            ...

    Every message of a chunk is read before the next chunk is fed, so what is held is one chunk or
    one unfinished message. After an error the stream is lost: the same error is raised again.
    """

    __slots__ = (
        "_codecs",
        "_failure",
        "_max_message_length",
        "_needed",
        "_offset",
        "_unfinished",
        "_view",
    )

    def __init__(
        self,
        *,
        codecs: Mapping[int, Codec] = CODECS,
        max_message_length: int = MAX_MESSAGE_LENGTH,
    ) -> None:
        self._codecs = codecs
        self._max_message_length = max_message_length
        self._view = memoryview(b"")
        self._offset = 0
        self._unfinished = bytearray()
        self._needed = _HEADER.size
        self._failure: RemoteProtocolError | None = None

    @property
    def unfinished_bytes(self) -> int:
        """How much of an unfinished message is held."""
        return len(self._unfinished)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream. Views into them may live on in the messages."""
        if self._failure is not None:
            self._raise_failure(self._failure)
        if self._offset < len(self._view):
            raise LocalProtocolError("a chunk was fed before the messages of the last were read")
        if self._unfinished:
            self._unfinished += data
            if len(self._unfinished) < self._needed:
                return
            # Copied once more, so that messages view bytes that nobody changes.
            data = bytes(self._unfinished)
            self._unfinished.clear()
        self._view = memoryview(data)
        self._offset = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        if self._failure is not None:
            self._raise_failure(self._failure)
        if not self._view:
            raise StopIteration
        view, needed = self._view, _HEADER.size
        try:
            header = _decode_header(view, self._offset, self._codecs, self._max_message_length)
            if header is not None:
                codec, start, end = header
                if end <= len(view):
                    message = _decode_body(view, codec, start, end)
                    self._offset = end
                    if end == len(view):
                        self._view = memoryview(b"")
                        self._offset = 0
                    return message
                needed = end - self._offset
        except RemoteProtocolError as error:
            self._failure = error
            self._view = memoryview(b"")
            raise
        self._needed = needed
        self._unfinished += view[self._offset :]
        self._view = memoryview(b"")
        self._offset = 0
        raise StopIteration

    @staticmethod
    def _raise_failure(failure: RemoteProtocolError) -> NoReturn:
        # Without its traceback, which would grow each time.
        raise failure.with_traceback(None)
