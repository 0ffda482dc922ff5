"""A stream of a track on its way in: once into the cache, and once to each subscriber.

A stream is looked at when it begins. Its header tells the group, and with it which subscribers it
is for. Every chunk after that is one append and one write for each subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.tracks.subscribers import PlainSubscriber
from laps.wire.buffer import Incomplete, decode_varint
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import FetchHeader, SubgroupHeader, decode_stream_header
from laps.wire.moqt.dialect import DRAFT16

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack

# A stream of which nothing came for this long gives way to another of the same subgroup.
SILENT_S: Final = 1.0


class LiveStream:
    """A stream on its way in: an `OutStream` to whoever brings it."""

    __slots__ = (
        "_head",
        "cached",
        "exclude",
        "first",
        "head",
        "header",
        "outs",
        "over",
        "priority",
        "source",
        "subgroup",
        "track",
        "ttl_us",
    )

    def __init__(
        self,
        track: LiveTrack,
        source: Hashable,
        priority: int,
        ttl_us: int,
        exclude: Hashable = None,
    ) -> None:
        self.track = track
        self.source = source
        self.priority = priority
        self.ttl_us = ttl_us
        self.exclude = exclude
        "A subscriber that has the stream already, being where it comes from."
        self.header = SubgroupHeader(0, 0)
        self.head = b""
        "The bytes of the header."
        self.subgroup = 0
        self.first = 0
        "The first object that subscribers are given: they have those before it."
        self.outs: list[OutStream] = []
        self.cached: CachedStream | None = None
        self.over = False
        self._head: bytes | None = b""
        "What has come of the header, until it is whole."

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        if self._head is not None:
            self._begin(data, fin=False)
            return True
        if self.over:
            return False
        if self.cached is not None:
            self.cached.append(data)
        dead = False
        for out in self.outs:
            if not out.write(data):
                dead = True
        if dead:
            self.outs = [out for out in self.outs if not out.over]
        return True

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if self._head is not None:
            self._begin(data, fin=True)
        else:
            if self.cached is not None and data:
                self.cached.append(data)
            for out in self.outs:
                out.finish(data)
        self._ended(fin=True)
        return True

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        for out in self.outs:
            if not out.over:
                out.reset(code)
        self._ended(fin=False)

    def is_silent(self) -> bool:
        """Whether nothing has come of it for a while."""
        now = self.track.live.cache.now
        return self.cached is not None and now - self.cached.touched > SILENT_S

    def add(self, out: OutStream) -> None:
        """Somebody joins; what came before is its own affair."""
        self.outs.append(out)

    def _begin(self, data: bytes | memoryview, *, fin: bool) -> None:
        head = self._head + bytes(data) if self._head else bytes(data)
        try:
            header, length = decode_stream_header(head, DRAFT16)
            if isinstance(header, FetchHeader):
                self._head = None
                self._fetch(header, head[length:], fin)
                return
            if header.alias != self.track.alias:
                self._pass(head, fin)
                return
            subgroup = header.subgroup
            if subgroup is None:
                subgroup, _ = decode_varint(head, length)
        except Incomplete:
            if fin:
                self._pass(head, fin)
            else:
                self._head = head
            return
        except MoqtViolation:
            self._pass(head, fin)
            return
        self._head = None
        self.header, self.head, self.subgroup = header, head[:length], subgroup
        self._hand_out(head, length, fin)

    def _hand_out(self, head: bytes, length: int, fin: bool) -> None:
        """Give each subscriber a stream of its own, and the cache its part."""
        header, track = self.header, self.track
        if not track.begin(self):
            track.live.counters.duplicates += 1
            return
        rest = memoryview(head)[length:]
        for key, subscriber in list(track.subscribers.items()):
            if key is self.exclude:
                continue
            out = subscriber.open(self, head, rest, fin)
            if out is not None:
                self.outs.append(out)
        self.cached = track.cached.open(header, self.source)
        if rest:
            self.cached.append(rest)
        if track.joining and track.live.began is not None:
            track.live.began(self, fin)

    def _pass(self, data: bytes, fin: bool) -> None:
        """Not a stream of MoQT's: for plain clients, and nobody else."""
        self._head = None
        track = self.track
        track.live.counters.opaque += 1
        for key, subscriber in list(track.subscribers.items()):
            if isinstance(subscriber, PlainSubscriber) and key is not self.exclude:
                out = subscriber.open(self, data, data, fin)
                if out is not None:
                    self.outs.append(out)

    def _fetch(self, header: FetchHeader, data: bytes, fin: bool) -> None:
        """Another relay's answer to a FETCH of ours."""
        take = self.track.live.fetched
        if take is None:
            return
        out = _FetchedStream(take, header.request_id)
        self.outs.append(out)
        if fin:
            out.finish(data)
        else:
            out.write(data)

    def _ended(self, *, fin: bool) -> None:
        self.over = True
        if self.cached is not None:
            self.cached.ended(fin=fin)
        self.track.ended(self)


class _FetchedStream:
    """What another relay sends in answer to a FETCH: nothing to subscribers."""

    def __init__(self, take: Callable[[int, bytes, bool], bool], request_id: int) -> None:
        self.over = False
        self._take = take
        self._request_id = request_id

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        self.over = self.over or not self._take(self._request_id, bytes(data), False)
        return not self.over

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if not self.over:
            self._take(self._request_id, bytes(data), True)
        self.over = True
        return True

    def reset(self, code: int) -> None:
        """As `OutStream`: whoever waits gives up after a while."""
        self.over = True
