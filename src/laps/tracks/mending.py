"""A stream that broke off, because a relay on its way is gone, goes on with what another brings.

    the stream    ...| object 6 | object 7 | half of object 8
    another                     | object 7 | object 8         | object 9 | ...
    what is added                                    the rest | object 9 | ...

Subscribers notice a pause and nothing else. A stream of theirs that were reset instead would take
with it what QUIC has not delivered yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.tracks.sinks import Cut
from laps.tracks.streams import SOURCE_LOST

if TYPE_CHECKING:
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import IncomingStream


def rest_of(broken: IncomingStream, by: IncomingStream) -> OutStream | None:
    """What takes the bytes of another stream after its header; None if the two do not fit."""
    rest = place_in(broken, by)
    if rest is None:
        return None
    last_id = rest.last_id
    return Cut(rest, b"", last_id + 1, broken.header.has_extensions, previous=last_id)


def place_in(broken: IncomingStream, by: IncomingStream) -> Rest | None:
    """What takes what another stream has after the last object that is whole.

    None if the two do not fit, or it is not known how far the first has come.
    """
    cached = broken.cached
    if cached is None or broken.header.has_extensions != by.header.has_extensions:
        return None
    scanner = cached.scan()
    if cached.malformed or not cached.is_kept:
        return None
    size = scanner.offset - scanner.next_object_offset
    return Rest(broken, scanner.complete_id, size, cached.tail())


class Rest:
    """An `OutStream` that adds to a stream that broke off."""

    def __init__(self, stream: IncomingStream, last_id: int, size: int, begun: bytes) -> None:
        """`size` bytes have come of the object under way, and are `begun` where they are kept."""
        self.last_id = last_id
        "The last object that is whole."
        self._stream = stream
        self._size = size
        self._begun = begun if len(begun) == size else None

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._stream.over

    def fits(self, data: bytes) -> bool:
        """Whether the object under way begins like this, as far as both go."""
        return self._begun is None or self._begun[: len(data)] == data[: self._size]

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self._size:
            passed = bytes(data[: self._size])
            if not self.fits(passed):
                # Two publishers that do not send the same after all.
                self._stream.close(SOURCE_LOST, now)
                return False
            self._size -= len(passed)
            if self._begun is not None:
                self._begun = self._begun[len(passed) :]
            data = data[len(passed) :]
        if data and not self.over:
            self._stream.write(data, now)
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`; it is given up where the object under way is not in it."""
        if self.write(data, now):
            if self._size:
                self._stream.close(SOURCE_LOST, now)
            else:
                self._stream.finish(b"", now)
        return not self.over

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`: it broke off once more, or was given up."""
        if not self.over:
            self._stream.reset(code, now)
