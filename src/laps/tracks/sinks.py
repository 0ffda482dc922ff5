"""What stands between a stream and a subscriber that cannot have it as it is.

`Cut` begins at a later object, `Translated` speaks another draft. Both are given what comes behind
the header, and write a header of their own. Once a Cut has begun it only passes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.buffer import encode_varint
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation, ResetCode
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.translate import StreamTranslator

if TYPE_CHECKING:
    from laps.tracks.ports import OutStream
    from laps.wire.moqt.dialect import Dialect


class Nowhere:
    """An `OutStream` that is over from the beginning."""

    over = True

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        return False

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        return False

    def reset(self, code: int) -> None:
        """As `OutStream`."""


class Outlet:
    """An `OutStream` before another."""

    __slots__ = ("_out",)

    def __init__(self, out: OutStream) -> None:
        self._out = out

    @property
    def over(self) -> bool:
        """As `OutStream`."""
        return self._out.over

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        return self._out.write(data)

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        return self._out.finish(data)

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        self._out.reset(code)


class Translated(Outlet):
    """The objects of a stream in another draft."""

    __slots__ = ("_translator",)

    def __init__(self, out: OutStream, dialect: Dialect, has_extensions: bool) -> None:
        super().__init__(out)
        self._translator = StreamTranslator(DRAFT16, dialect, has_extensions)

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        try:
            translated = self._translator.feed(data)
        except MoqtViolation:
            self._out.reset(ResetCode.MALFORMED_TRACK)
            return False
        return self._out.write(translated) if translated else not self._out.over

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if data and not self.write(data):
            return False
        return self._out.finish()


class Cut(Outlet):
    """A stream from one of its objects on.

    `head` is the header to begin with; `body` takes the objects, where they are translated.
    """

    __slots__ = ("_begun", "_body", "_first", "_head", "_kept", "_scanner")

    def __init__(
        self,
        out: OutStream,
        head: bytes,
        first: int,
        has_extensions: bool,
        body: OutStream | None = None,
    ) -> None:
        super().__init__(out)
        self._body = body or out
        self._head = head
        self._first = first
        self._scanner = BoundaryScanner(DRAFT16, has_extensions)
        self._kept: list[bytes | memoryview] = []
        "From the beginning of the object under way."
        self._begun = False

    def resume(self, scanner: BoundaryScanner, tail: bytes) -> None:
        """Go on from where a scanner stands; `tail` is what it has seen of the object under way."""
        self._scanner = scanner.copy()
        self._kept = [tail] if tail else []

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        if self._begun:
            return self._body.write(data)
        if self._out.over:
            return False
        try:
            rest = self._look(data)
        except MoqtViolation:
            self._out.reset(ResetCode.MALFORMED_TRACK)
            return False
        if rest is None:
            return True
        if self._body is self._out:
            return self._out.write(self._head + rest)
        return self._out.write(self._head) and self._body.write(rest)

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`: all objects that pass have been sent, were it none."""
        if data and not self.write(data):
            return False
        if not self._begun:
            self._begun = True
            return self._out.finish(self._head)
        return self._body.finish()

    def _look(self, data: bytes | memoryview) -> bytes | None:
        """The first bytes to write, once the object to begin with is there."""
        scanner = self._scanner
        kept_from = scanner.offset - sum(map(len, self._kept))
        self._kept.append(data)
        for object_id, _, behind_id, *_ in scanner.feed(data):
            if object_id >= self._first:
                self._begun = True
                whole = b"".join(self._kept)
                self._kept.clear()
                return encode_varint(object_id) + whole[behind_id - kept_from :]
        while self._kept and kept_from + len(self._kept[0]) <= scanner.next_object_offset:
            kept_from += len(self._kept.pop(0))
        return None
