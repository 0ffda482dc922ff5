"""A stream of a subgroup that another source is sending already: held in readiness.

Two publishers of a track, or two ways to one, are two sources of the same objects. The first stream
of a subgroup counts. What the other has beyond it is held, and goes on where the first breaks off
or ends: as a stream of its own, from the first object that nobody has seen.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from laps.tracks.sinks import Cut
from laps.wire.buffer import VARINT_MAX

if TYPE_CHECKING:
    from laps.tracks.streams import IncomingStream

# Beyond this much, what the first stream has brought as well is let go.
HELD_BYTES: Final = 256 * 1024
# Who is so far ahead of the first is no second source of the same, and is given up.
MAX_BYTES: Final = 8 * 1024 * 1024


class _Feed:
    """An `OutStream` into a stream that arrives."""

    def __init__(self, stream: IncomingStream) -> None:
        self._stream = stream

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._stream.over

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        self._stream.write(data, now)
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        self._stream.finish(data, now)
        return True

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        if not self.over:
            self._stream.reset(code, now)


class Standby:
    """An `OutStream` that holds what it is given until it is needed."""

    def __init__(self, first: IncomingStream, head: bytes, rest: IncomingStream) -> None:
        """`first` is the stream that counts, `rest` what this one goes on as, if it has to."""
        self.over = False
        self._first = first
        self._rest = rest
        self._cut = Cut(_Feed(rest), head, VARINT_MAX, first.header.has_extensions)
        self._held: deque[bytes] = deque()
        self.size = 0
        self._fin = False
        self._needed = False

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self._needed:
            return self._cut.write(data, now)
        if data and not self.over:
            self._held.append(bytes(data))
            self.size += len(data)
            if self.size > HELD_BYTES:
                self._let_go(now)
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if data:
            self.write(data, now)
        self._fin = True
        if self._needed and self._cut.begun:
            return self._cut.finish(b"", now)
        return not self.over

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`: its own source has given it up."""
        self.over = True
        self._held.clear()
        if self._needed and self._cut.begun:
            self._cut.reset(code, now)

    def take_over(self, now: float) -> None:
        """The first stream brings nothing more: go on after its last whole object."""
        if self.over or self._needed:
            return
        self._needed = True
        self._cut.begin_at(self._seen_id() + 1)
        held, self._held = self._held, deque()
        for data in held:
            self._cut.write(data, now)
        if self._fin and self._cut.begun:
            self._cut.finish(b"", now)

    def _seen_id(self) -> int:
        cached = self._first.cached
        return -1 if cached is None else cached.scan().complete_id

    def _let_go(self, now: float) -> None:
        """What the first stream has brought as well need not be held."""
        seen = self._seen_id()
        while self._held and self._cut.last_after(self._held[0]) <= seen:
            data = self._held.popleft()
            self.size -= len(data)
            self._cut.write(data, now)
        if self.size > MAX_BYTES:
            self.over = True
            self._held.clear()
