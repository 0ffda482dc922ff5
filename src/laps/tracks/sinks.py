"""What stands between a stream and a subscriber that cannot take it as it is.

`Cut` begins at a later object, `Translated` speaks another draft. Both are given what follows the
header, and write a header of their own. Once a Cut has begun it only passes bytes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.buffer import encode_varint
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation, ResetCode
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.translate import StreamTranslator

if TYPE_CHECKING:
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.wire.moqt.dialect import Dialect


class Nowhere:
    """An `OutStream` that is closed from the beginning."""

    over = True

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        return False

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        return False

    def reset(self, code: int, now: float) -> None:
        """Nothing to give up."""


class Outlet:
    """An `OutStream` in front of another."""

    __slots__ = ("_out",)

    def __init__(self, out: OutStream) -> None:
        self._out = out

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._out.over

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        return self._out.write(data, now)

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        return self._out.finish(data, now)

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self._out.reset(code, now)


class Translated(Outlet):
    """The objects of a stream in another draft."""

    __slots__ = ("_translator",)

    def __init__(self, out: OutStream, dialect: Dialect, has_extensions: bool) -> None:
        super().__init__(out)
        self._translator = StreamTranslator(BETWEEN_RELAYS, dialect, has_extensions)

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        try:
            translated = self._translator.feed(data)
        except MoqtViolation:
            self._out.reset(ResetCode.MALFORMED_TRACK, now)
            return False
        return self._out.write(translated, now) if translated else not self._out.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if data and not self.write(data, now):
            return False
        return self._out.finish(b"", now)


class Cut(Outlet):
    """A stream from one of its objects on.

    `head` is the header to begin with; `body` takes the objects, where they are translated. Where
    objects were written before, `previous` is the last of them.
    """

    __slots__ = ("_body", "_first", "_head", "_kept", "_previous", "_scanner", "begun")

    def __init__(
        self,
        out: OutStream,
        head: bytes,
        first: int,
        has_extensions: bool,
        body: OutStream | None = None,
        previous: int = -1,
    ) -> None:
        super().__init__(out)
        self._body = body or out
        self._previous = previous
        self._head = head
        self._first = first
        self._scanner = BoundaryScanner(BETWEEN_RELAYS, has_extensions)
        self._kept: list[bytes | memoryview] = []
        "From the beginning of the object under way."
        self.begun = False
        "The object to begin with is there."

    def resume(self, scanner: BoundaryScanner, tail: bytes) -> None:
        """Go on from where a scanner stands; `tail` is what it has seen of the object under way."""
        self._scanner = scanner.copy()
        self._kept = [tail] if tail else []

    def write_kept(self, cached: CachedStream, now: float) -> None:
        """Begin with what is kept of a stream, an object that is under way too."""
        if cached.base:
            scanner = cached.scanner_at_base()
            if scanner is None:  # the object under way is not kept: go on with the next
                self.resume(cached.scan(), cached.tail())
                return
            self.resume(scanner, b"")
        for chunk in cached.chunks:
            self.write(chunk, now)

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self.begun:
            return self._body.write(data, now)
        if self._out.over:
            return False
        try:
            rest = self._look(data)
        except MoqtViolation:
            self._out.reset(ResetCode.MALFORMED_TRACK, now)
            return False
        if rest is None:
            return True
        if self._body is self._out:
            return self._out.write(self._head + rest, now)
        return self._out.write(self._head, now) and self._body.write(rest, now)

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """All objects that pass have been sent, even if there is none."""
        if data and not self.write(data, now):
            return False
        if not self.begun:
            self.begun = True
            return self._out.finish(self._head, now)
        return self._body.finish(b"", now)

    def _look(self, data: bytes | memoryview) -> bytes | None:
        """The first bytes to write, once the object to begin with is there."""
        scanner = self._scanner
        kept_from = scanner.offset - sum(map(len, self._kept))
        self._kept.append(data)
        for object_id, _, after_id, *_ in scanner.feed(data):
            if object_id >= self._first:
                self.begun = True
                whole = b"".join(self._kept)
                self._kept.clear()
                return encode_varint(object_id - self._previous - 1) + whole[after_id - kept_from :]
        if scanner.payload_end is not None:
            self._kept.clear()  # it is the payload of an object that does not pass
        while self._kept and kept_from + len(self._kept[0]) <= scanner.next_object_offset:
            kept_from += len(self._kept.pop(0))
        return None
