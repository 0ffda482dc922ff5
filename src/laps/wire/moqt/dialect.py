"""A draft of MoQT as a pair of tables: how each control message is written and read.

A session holds the dialect it agreed on and speaks the vocabulary of `messages`. What a draft has
no words for is left out where it is advice (when a subscription expires, when to ask again), and
refused as `LocalProtocolError` where the message would mean something else without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.wire.buffer import Cursor, Incomplete, decode_varint, encode_varint
from laps.wire.moqt import draft14, draft16
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.messages import RequestError, RequestOk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum

    from laps.wire.moqt.codec import Codec
    from laps.wire.moqt.messages import Message

MAX_PAYLOAD_BYTES: Final = 0xFFFF

# control message
# type(var-int) | length(2) | payload(length)


class Dialect:
    """How one draft writes and reads control messages."""

    __slots__ = ("_decoders", "_encoders", "_types", "draft", "version")

    def __init__(self, draft: int, types: type[IntEnum], codecs: Iterable[Codec]) -> None:
        self.draft = draft
        self.version = 0xFF00_0000 + draft
        "As the setup of draft 14 names it."
        self._types = types
        self._decoders = {codec.message_type: codec for codec in codecs}
        self._encoders = {(codec.message, codec.kind): codec for codec in codecs}

    def __repr__(self) -> str:
        return f"DRAFT{self.draft}"

    def encode(self, message: Message) -> bytes:
        """The whole message, or `LocalProtocolError`."""
        cls = type(message)
        kind = message.kind if isinstance(message, RequestOk | RequestError) else None
        codec = self._encoders.get((cls, kind)) or self._encoders.get((cls, None))
        if codec is None:
            answer = "" if kind is None else f" to {kind.value}"
            raise LocalProtocolError(f"draft {self.draft} has no {cls.__name__}{answer}")
        name = self._types(codec.message_type).name
        try:
            payload = codec.encode(message)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"{name}: {error}") from None
        if len(payload) > MAX_PAYLOAD_BYTES:
            problem = f"{len(payload)} bytes are more than the {MAX_PAYLOAD_BYTES} a message holds"
            raise LocalProtocolError(f"{name}: {problem}")
        return b"".join((encode_varint(codec.message_type), len(payload).to_bytes(2), payload))

    def decode(self, message_type: int, payload: bytes | memoryview) -> Message:
        """The message that the payload holds, or `MoqtViolation`."""
        codec = self._decoders.get(message_type)
        if codec is None:
            raise violation(f"message type {message_type:#x} is unknown")
        name = self._types(message_type).name
        cursor = Cursor(memoryview(payload), whole=True)
        try:
            message = codec.decode(cursor)
        except InvalidEncoding as error:
            raise violation(f"{name}: {error}") from None
        except MoqtViolation as error:
            raise MoqtViolation(SessionCode(error.code), f"{name}: {error.problem}") from None
        if cursor.remaining:
            raise violation(f"{name}: {cursor.remaining} bytes are left over")
        return message

    @staticmethod
    def split(
        buffer: bytes | bytearray | memoryview, offset: int = 0
    ) -> tuple[int, memoryview, int]:
        """The type and the payload of the message at `offset`, and the offset behind it.

        `Incomplete` until all of it is there; what must be held until then is at most 65,545 bytes.
        """
        view = memoryview(buffer)
        message_type, start = decode_varint(view, offset)
        if len(view) < start + 2:
            raise Incomplete
        end = start + 2 + (view[start] << 8 | view[start + 1])
        if len(view) < end:
            raise Incomplete
        return message_type, view[start + 2 : end], end


DRAFT14: Final = Dialect(14, draft14.MessageType, draft14.CODECS)
DRAFT16: Final = Dialect(16, draft16.MessageType, draft16.CODECS)
