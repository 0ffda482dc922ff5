"""The bidirectional streams of a MoQT session while they are read: bytes in, whole messages out.

A message comes in as many pieces as QUIC likes. What is there of it waits, is looked at again only
when all of it can be there, and is copied once. What waits on all streams of a session is bounded:
each of thousands of streams may begin a message and leave it at that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.wire.buffer import Incomplete
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.draft import Dialect

if TYPE_CHECKING:
    from laps.sessions.half_messages import HalfMessages

# The most a control message can be: a type of up to 8 bytes, a 16-bit length, and what it counts.
MAX_MESSAGE_BYTES: Final = 8 + 2 + 65535

# Messages that are whole do not wait: this is sixteen of the longest, each still under way.
MAX_WAITING_BYTES: Final = 16 * MAX_MESSAGE_BYTES


@dataclass(slots=True, eq=False)
class ControlStream:
    """A bidirectional stream that is being read."""

    request_id: int | None = None
    "Whose SUBSCRIBE_NAMESPACE it is for."
    incoming: bool = True
    ended: bool = False
    told: set[tuple[bytes, ...]] = field(default_factory=set)
    "The namespaces that are there, of those that it tells of."
    counted: int = 0
    "How much of it `ControlStreams.waiting_bytes` counts."
    _head: bytearray = field(default_factory=bytearray)
    _start: int = 0
    "Where the next message begins in it."
    _wanted: int = 1
    "How many bytes from there on make it worth a look."

    @property
    def size(self) -> int:
        """How much waits to be read."""
        return len(self._head) - self._start

    @property
    def first_byte(self) -> int:
        """The first byte of what waits."""
        return self._head[self._start]

    def add(self, data: bytes) -> None:
        """Bytes came."""
        self._head += data

    def next_message(self) -> tuple[int, bytes] | None:
        """The type and the payload of a message that is whole."""
        if self.size < self._wanted:
            return None
        try:
            kind, payload_at, end = Dialect.measure(self._head, self._start)
        except Incomplete:
            self._wanted = self.size + 1
            return None
        if end > len(self._head):
            self._wanted = end - self._start
            return None
        payload = bytes(self._head[payload_at:end])
        self._start, self._wanted = end, 1
        if self._start == len(self._head) or self._start > MAX_MESSAGE_BYTES:
            del self._head[: self._start]
            self._start = 0
        return kind, payload


class ControlStreams(dict[int, ControlStream]):
    """Those of a session, by their ids."""

    def __init__(self, half_messages: HalfMessages) -> None:
        super().__init__()
        self.waiting_bytes = 0
        self._half_messages = half_messages

    def check(self, stream: ControlStream) -> None:
        """Count what waits on a stream that has been read as far as it goes."""
        more = stream.size - stream.counted
        self.waiting_bytes += more
        self._half_messages.size += more
        stream.counted = stream.size
        if stream.size > MAX_MESSAGE_BYTES:
            raise violation("too much before the setup")
        if self.waiting_bytes > MAX_WAITING_BYTES:
            raise MoqtViolation(
                SessionCode.INTERNAL_ERROR,
                f"messages that are not whole have {self.waiting_bytes} bytes on all streams",
            )

    def drop(self, stream_id: int) -> ControlStream | None:
        """A stream is read no more."""
        stream = self.pop(stream_id, None)
        if stream is not None:
            self.waiting_bytes -= stream.counted
            self._half_messages.size -= stream.counted
        return stream

    def let_go(self) -> None:
        """Nothing more is read."""
        for stream_id in list(self):
            self.drop(stream_id)
