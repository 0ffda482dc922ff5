"""What a draft of MoQT is: how its control messages are written and read, and what it can do.

A session holds the dialect it agreed on and speaks the vocabulary of `messages`. What a draft
cannot say is left out where it is advice (when a subscription expires, when to ask again), and
refused as `LocalProtocolError` where the message would mean something else without it.

Where drafts differ otherwise, code asks for what it needs (`dialect.marks_unknown_ranges`), never
which draft it has. `draft14` and `draft16` answer, each in one table at its end; `dialect` lists
the drafts there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.wire.buffer import Incomplete, decode_varint, encode_varint
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.messages import RequestError, RequestOk
from laps.wire.moqt.tolerance import MessageCursor

if TYPE_CHECKING:
    from enum import IntEnum

    from laps.wire.moqt.codec import Codec
    from laps.wire.moqt.messages import Message, RequestKind
    from laps.wire.moqt.tolerance import Tolerance

MAX_PAYLOAD_BYTES: Final = 0xFFFF

# control message
# type(var-int) | length(2) | payload(length)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dialect:
    """One draft."""

    draft: int
    alpn: str
    types: type[IntEnum]
    "The numbers of its control messages, with their names."
    codecs: tuple[Codec, ...]

    # Sessions
    version_in_setup: bool
    "The setup names the version; later drafts are named by the ALPN alone."
    namespaces_on_streams: bool
    "SUBSCRIBE_NAMESPACE has a stream of its own, so that request ids may overtake each other."
    answers_updates: bool
    "An update of a request is answered."
    updates_may_widen: bool
    "An update may ask for more than the subscription had."
    asks_for_new_groups: bool
    "A subscriber can ask the publisher to begin a new group."

    # Objects
    is_carried: bool
    "Relays carry objects, and ask each other, as this draft writes it; of one draft it is true."
    subgroup_types: frozenset[int]
    "The types of a subgroup's stream."
    datagram_types: frozenset[int]
    "The types of an object's datagram."
    may_omit_priority: bool
    "A stream or a datagram may leave its priority to the track."
    statuses: frozenset[int]
    "The statuses of objects."
    bare_statuses: frozenset[int]
    "The statuses whose objects have no extensions."
    extension_deltas: bool
    "Extensions are in ascending order, and each has what its type adds to the one before."
    fetch_flags: bool
    "Objects of a FETCH begin with flags, and leave out what follows from the object before."
    marks_unknown_ranges: bool
    "A FETCH can say of which objects nobody knows whether they exist."

    _decoders: dict[int, Codec] = field(init=False)
    _encoders: dict[tuple[type[Message], RequestKind | None], Codec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoders", {item.message_type: item for item in self.codecs})
        encoders = {(item.message, item.kind): item for item in self.codecs}
        object.__setattr__(self, "_encoders", encoders)

    @property
    def version(self) -> int:
        """As a setup names it."""
        return 0xFF00_0000 + self.draft

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
        name = self.types(codec.message_type).name
        try:
            payload = codec.encode(message)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"{name}: {error}") from None
        if len(payload) > MAX_PAYLOAD_BYTES:
            problem = f"{len(payload)} bytes are more than the {MAX_PAYLOAD_BYTES} a message holds"
            raise LocalProtocolError(f"{name}: {problem}")
        return b"".join((encode_varint(codec.message_type), len(payload).to_bytes(2), payload))

    def decode(
        self,
        message_type: int,
        payload: bytes | memoryview,
        tolerated: list[Tolerance] | None = None,
    ) -> Message:
        """The message that the payload holds, or `MoqtViolation`.

        What was tolerated is added to the list; where there is none, nothing is.
        """
        codec = self._decoders.get(message_type)
        if codec is None:
            raise violation(f"message type {message_type:#x} is unknown")
        name = self.types(message_type).name
        cursor = MessageCursor(memoryview(payload), tolerated)
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
        """The type and the payload of the message at `offset`, and the offset after it.

        `Incomplete` until all of it is there; what must be held until then is at most 65,545 bytes.
        """
        view = memoryview(buffer)
        message_type, start, end = Dialect.measure(view, offset)
        if len(view) < end:
            raise Incomplete
        return message_type, view[start:end], end

    @staticmethod
    def measure(buffer: bytes | bytearray | memoryview, offset: int = 0) -> tuple[int, int, int]:
        """The type of the message at `offset`, and where its payload begins and will end.

        `Incomplete` until its length is there.
        """
        message_type, start = decode_varint(buffer, offset)
        if len(buffer) < start + 2:
            raise Incomplete
        size = buffer[start] << 8 | buffer[start + 1]
        return message_type, start + 2, start + 2 + size
