"""Whether the objects of a subgroup's stream are valid, for a relay that passes their bytes on.

A relay must not propagate what is not. Payloads are stepped over; extensions, where a stream has
them, are read, so that what is held between chunks is the header of one object.

What a stream says is compared with what the same publisher has said of the track before
(`track_checking`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MalformedTrack
from laps.wire.moqt.object_fields import decode_extensions_length
from laps.wire.moqt.track_checking import ENDS, TELLING
from laps.wire.moqt.translate import decode_extensions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.wire.moqt.boundaries import Boundary
    from laps.wire.moqt.data import SubgroupHeader
    from laps.wire.moqt.draft import Dialect
    from laps.wire.moqt.objects import Object
    from laps.wire.moqt.track_checking import TrackChecker


class StreamChecker:
    """Fed with what follows a stream's header; MoqtViolation where that is not valid.

    `MalformedTrack` where it is valid by itself, and contradicts what came before.
    """

    __slots__ = (
        "_dialect",
        "_group",
        "_has_extensions",
        "_head",
        "_header",
        "_last",
        "_repeats",
        "_scanner",
        "_track",
    )

    def __init__(self, track: TrackChecker, header: SubgroupHeader, dialect: Dialect) -> None:
        self._track = track
        self._header = header
        self._has_extensions = header.has_extensions
        self._dialect = dialect
        self._group = track.group(header.group)
        self._scanner = BoundaryScanner(dialect, header.has_extensions)
        self._head = b""
        "What has come of an object whose header is not all there."
        self._last = -1
        "The last object whose extensions were read."
        self._repeats: Repeats | None = None
        "Compares with what came before, where the subgroup has been sent before."
        subgroup = header.subgroup or 0
        if self._group.begin(subgroup):
            self._repeats = Repeats(track.earlier(header.group, subgroup), header.priority)

    def feed(self, data: bytes | memoryview) -> None:
        """Look at the next bytes of the stream."""
        scanner, group = self._scanner, self._group
        base = scanner.offset
        boundaries = scanner.feed(data)
        if boundaries:
            last = boundaries[-1][0]
            if scanner.statuses or last > group.sure:
                self._take_each(boundaries)
            elif last > group.largest:
                group.largest = last
        if self._has_extensions:
            self._check_extensions(boundaries, bytes(data), base)
        if self._repeats is not None:
            self._repeats.feed(boundaries, data, base)

    def finish(self) -> None:
        """The stream has ended."""
        self._scanner.finish()
        if self._header.end_of_group and self._scanner.last_object_id is not None:
            self._track.ended(self._header.group, self._scanner.last_object_id)

    def _take_each(self, boundaries: list[Boundary]) -> None:
        for object_id, *_, status in boundaries:
            if status in ENDS:
                self._track.ended_by(status, self._header.group, object_id)
            elif not status:
                self._group.take(object_id)

    def _check_extensions(self, boundaries: list[Boundary], data: bytes, base: int) -> None:
        whole = self._head + data if self._head else data
        base -= len(self._head)
        for object_id, _, begin, end, *_ in boundaries:
            head = whole[begin - base : end - base]
            length, position = decode_extensions_length(head, 0)
            if length:
                pairs = decode_extensions(head[position : position + length], self._dialect)
                for type_, _ in pairs:
                    if type_ in TELLING:
                        place = self._header.group, object_id
                        self._track.check_extensions(*place, self._last, pairs, self._dialect)
                        break
            self._last = object_id
        scanner = self._scanner
        self._head = whole[scanner.next_object_offset - base :] if scanner.in_header else b""


class Repeats:
    """The objects of a stream beside those that the publisher has sent of its subgroup before."""

    __slots__ = ("_earlier", "_known", "_left", "_next", "_priority")

    def __init__(self, earlier: Iterator[Object], priority: int | None) -> None:
        """`earlier` has the objects of before in ascending order, as far as they are known."""
        self._earlier = earlier
        self._priority = priority
        self._next: Object | None = next(earlier, None)
        self._known: memoryview | None = None
        "What has to follow of the payload under way, where it was sent before."
        self._left = 0
        "How much follows of the payload under way."

    def feed(self, boundaries: list[Boundary], data: bytes | memoryview, base: int) -> None:
        """The next bytes of the stream, which begin at `base`, and the objects in them."""
        view = memoryview(data)
        self._compare(view[: self._left])
        for object_id, _, _, begin, end, status in boundaries:
            known = self._find(object_id)
            if known is not None and (
                len(known.payload) != end - begin
                or known.status != status
                or known.priority != self._priority
            ):
                raise _differs(object_id)
            self._known = None if known is None else memoryview(known.payload)
            self._left = end - begin
            # The header of an object may have begun before these bytes, its payload cannot.
            self._compare(view[begin - base : end - base])

    def _find(self, object_id: int) -> Object | None:
        while self._next is not None and self._next.object_id < object_id:
            self._next = next(self._earlier, None)
        found = self._next
        return found if found is not None and found.object_id == object_id else None

    def _compare(self, part: memoryview) -> None:
        self._left -= len(part)
        if self._known is not None:
            if part != self._known[: len(part)]:
                raise _differs(None if self._next is None else self._next.object_id)
            self._known = self._known[len(part) :]


def _differs(object_id: int | None) -> MalformedTrack:
    return MalformedTrack(f"object {object_id} is sent again, and is another")
