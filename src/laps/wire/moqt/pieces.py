"""The objects of a subgroup's stream in pieces, as they come: for whoever need not wait for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from laps.wire.moqt.boundaries import BoundaryScanner

if TYPE_CHECKING:
    from laps.wire.moqt.draft import Dialect


class Piece(NamedTuple):
    """A part of an object."""

    object_id: int
    offset: int
    data: memoryview
    last: bool
    status: int


class PieceReader:
    """Fed with what follows a stream's header; holds at most an unfinished header of an object."""

    __slots__ = ("_current", "_scanner")

    def __init__(self, dialect: Dialect, has_extensions: bool) -> None:
        self._scanner = BoundaryScanner(dialect, has_extensions)
        self._current: tuple[int, int, int] | None = None
        "The object under way: its id, and where in the stream its payload begins and ends."

    def resume(self, last_id: int) -> None:
        """Begin behind an object that was read elsewhere."""
        if last_id >= 0:
            self._scanner.last_object_id = last_id

    def feed(self, data: bytes | memoryview) -> list[Piece]:
        """What has come of objects; MoqtViolation if it cannot be read."""
        base = self._scanner.offset
        boundaries = self._scanner.feed(data)
        end = base + len(data)
        view = memoryview(data)
        pieces: list[Piece] = []
        if self._current is not None:
            object_id, begin, until = self._current
            upto = min(end, until)
            if upto > base:
                pieces.append(Piece(object_id, base - begin, view[: upto - base], upto == until, 0))
            if upto == until:
                self._current = None
        for object_id, _, _, begin, until, status in boundaries:
            upto = min(end, until)
            if upto > begin or begin == until:
                part = view[begin - base : upto - base]
                pieces.append(Piece(object_id, 0, part, upto == until, status))
            if upto < until:
                self._current = object_id, begin, until
        return pieces
