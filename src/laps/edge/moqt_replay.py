"""The group that a track is in, for a subscription that begins with it.

What arrived here on a stream is joined as any other. What had to be fetched is written to a stream
first, which then waits for the rest of its subgroup: the rest may come on a stream that begins in
the middle, or never, if that was all. It is finished when a later group begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.object_fields import encode_object
from laps.wire.moqt.translate import translate_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.tracks.cache import CachedGroup
    from laps.tracks.ports import OutStream
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.objects import Object


class Begun(NamedTuple):
    """A stream with the first objects of a subgroup."""

    out: OutStream
    last_id: int
    "The last object that was written to it."
    has_extensions: bool
    "Whether objects on it have extensions, as its header says."


class Replay:
    """The streams of one subscription that wait for the rest of their subgroup."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], Begun] = {}

    def add(self, group: int, subgroup: int, begun: Begun) -> None:
        """A stream has the first objects of a subgroup."""
        self._waiting[group, subgroup] = begun

    def take(self, group: int, subgroup: int, has_extensions: bool, now: float) -> Begun | None:
        """A stream of a subgroup has begun: what it goes on with; groups before it are closed."""
        for place in [place for place in self._waiting if place[0] < group]:
            self._waiting.pop(place).out.finish(b"", now)
        begun = self._waiting.pop((group, subgroup), None)
        if begun is None or begun.out.over:
            return None
        if begun.has_extensions != has_extensions:
            begun.out.finish(b"", now)
            return None
        return begun

    def finish(self, now: float) -> None:
        """Nothing more comes."""
        for begun in self._waiting.values():
            if not begun.out.over:
                begun.out.finish(b"", now)
        self._waiting.clear()


def fetched_of(group: CachedGroup) -> dict[int, list[Object]]:
    """The objects of a group that were fetched, by subgroup, in order."""
    found: dict[int, list[Object]] = {}
    for object_id in sorted(group.fetched):
        item = group.fetched[object_id][1]
        if item.subgroup is not None:
            found.setdefault(item.subgroup, []).append(item)
    return found


def written(items: Iterable[Object], dialect: Dialect, *, has_extensions: bool) -> bytes:
    """Objects as they are written to a stream, the first with its id."""
    parts: list[bytes] = []
    previous = -1
    for item in items:
        found = translate_object(item, BETWEEN_RELAYS, dialect)
        if found is None:
            continue
        delta = found.object_id - previous - 1
        previous = found.object_id
        parts.append(
            encode_object(delta, found.extensions, found.payload, found.status, has_extensions)
        )
    return b"".join(parts)
