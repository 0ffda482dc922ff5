"""What a publisher has sent of a track since it began, as far as the cache has it."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING

from laps.wire.moqt.data import decode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.tracks.cache import CachedTrack
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.publication import Source
    from laps.wire.moqt.objects import Object


class SentBefore:
    """What the cache has of one publisher."""

    __slots__ = ("_cached", "_since", "_source")

    def __init__(self, cached: CachedTrack, source: Source, since: float) -> None:
        self._cached = cached
        self._source = source
        self._since = since

    def objects(self, group: int, subgroup: int) -> Iterator[Object]:
        """The objects of a subgroup, in ascending order."""
        streams = [it for it in self._streams(group) if it.subgroup == subgroup]
        return merge(*(it.objects(0.0) for it in streams), key=_id)

    def has_any(self, group: int, first: int, end: int) -> bool:
        """Whether any object came on a stream of a group, of those from one up to another."""
        return any(it.has_any(first, end) for it in self._streams(group))

    def datagram(self, group: int, object_id: int) -> bytes | None:
        """The payload of an object that came in a datagram, in a group that only it has sent."""
        kept = self._cached.groups.get(group)
        at, data = (0.0, b"") if kept is None else kept.datagrams.get(object_id, (0.0, b""))
        if kept is None or not data or at < self._since or kept.source is not self._source:
            return None
        return bytes(decode_datagram(data, BETWEEN_RELAYS).payload)

    def _streams(self, group: int) -> list[CachedStream]:
        kept = self._cached.groups.get(group)
        streams = [] if kept is None else kept.streams
        return [it for it in streams if it.source is self._source and it.since >= self._since]


def _id(item: Object) -> int:
    return item.object_id
