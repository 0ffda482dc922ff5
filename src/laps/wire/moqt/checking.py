"""Whether the objects of a subgroup's stream are valid, for a relay that passes their bytes on.

A relay must not propagate what is not. Payloads are stepped over; extensions, where a stream has
them, are read, so that what is held between chunks is the header of one object.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import violation
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.object_fields import decode_extensions_length
from laps.wire.moqt.translate import decode_extensions

if TYPE_CHECKING:
    from laps.wire.moqt.boundaries import Boundary
    from laps.wire.moqt.draft import Dialect

_LAST: Final = frozenset((ObjectStatus.END_OF_GROUP, ObjectStatus.END_OF_TRACK))


class StreamChecker:
    """Fed with what follows a stream's header; MoqtViolation where that is not valid."""

    __slots__ = ("_dialect", "_has_extensions", "_head", "_scanner")

    def __init__(self, dialect: Dialect, has_extensions: bool) -> None:
        self._dialect = dialect
        self._has_extensions = has_extensions
        self._scanner = BoundaryScanner(dialect, has_extensions)
        self._head = b""
        "What has come of an object whose header is not all there."

    def feed(self, data: bytes | memoryview) -> None:
        """Look at the next bytes of the stream."""
        scanner = self._scanner
        base = scanner.offset
        ended = bool(scanner.statuses) and not _LAST.isdisjoint(scanner.statuses)
        boundaries = scanner.feed(data)
        if boundaries:
            if ended:
                raise violation(f"object {boundaries[0][0]} comes after the end of its group")
            if scanner.statuses:
                _check_last(boundaries)
        if self._has_extensions:
            self._check_extensions(boundaries, bytes(data), base)

    def finish(self) -> None:
        """The stream has ended."""
        self._scanner.finish()

    def _check_extensions(self, boundaries: list[Boundary], data: bytes, base: int) -> None:
        whole = self._head + data if self._head else data
        base -= len(self._head)
        for _, _, begin, end, *_ in boundaries:
            head = whole[begin - base : end - base]
            length, position = decode_extensions_length(head, 0)
            if length:
                decode_extensions(head[position : position + length], self._dialect)
        scanner = self._scanner
        self._head = whole[scanner.next_object_offset - base :] if scanner.in_header else b""


def _check_last(boundaries: list[Boundary]) -> None:
    """Nothing follows the object that says that a group, or the track, has ended."""
    for before, after in pairwise(boundaries):
        if before[5] in _LAST:
            raise violation(f"object {after[0]} comes after the end of its group")
