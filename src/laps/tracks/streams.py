"""A stream of a track on its way in: once into the cache, and once to each subscriber.

A stream is looked at when it begins. Its header tells the group, and with it which subscribers it
is for. Every chunk after that is one append and one write for each subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.routing.flows import FromPeer
from laps.wire.buffer import Incomplete, decode_varint
from laps.wire.moqt.codes import MoqtViolation, ResetCode
from laps.wire.moqt.data import FetchHeader, SubgroupHeader, decode_stream_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS

if TYPE_CHECKING:
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.publication import Source

# A stream of which nothing arrived for this long gives way to another of the same subgroup.
SILENT_S: Final = 1.0

# Who sent it has left. What it sent until then may be nowhere else, so it is delivered before the
# reset: `net/egress.py` sees to that.
SOURCE_LOST: Final = int(ResetCode.SESSION_CLOSED)


class StreamOwner(Protocol):
    """The track that a stream is of: it knows who is given the stream."""

    alias: int

    def hand_out(
        self, stream: IncomingStream, whole: bytes, rest: memoryview, fin: bool, now: float
    ) -> None:
        """The header has arrived: `whole` begins with it, `rest` follows it."""

    def pass_opaque(self, stream: IncomingStream, data: bytes, fin: bool, now: float) -> None:
        """It is no stream of MoQT's, or of another track."""

    def fetched(
        self, stream: IncomingStream, header: FetchHeader, data: bytes, fin: bool, now: float
    ) -> None:
        """It is another relay's answer to a FETCH of ours."""

    def stream_closed(self, stream: IncomingStream, now: float) -> None:
        """Nothing more comes of it."""

    def stream_broke(self, stream: IncomingStream, now: float) -> None:
        """Nothing more comes of it from where it came; another source may have the rest."""


class IncomingStream:
    """A stream of a track, as its bytes arrive."""

    __slots__ = (
        "_head",
        "_owner",
        "cached",
        "exclude",
        "first",
        "head",
        "header",
        "is_broken",
        "is_part",
        "is_rest",
        "mends",
        "outs",
        "over",
        "priority",
        "source",
        "subgroup",
        "ttl_us",
    )

    def __init__(
        self,
        owner: StreamOwner,
        source: Source,
        priority: int,
        ttl_us: int,
        exclude: Client | None = None,
    ) -> None:
        self.source = source
        self.priority = priority
        self.ttl_us = ttl_us
        self.exclude = exclude
        "A subscriber that has the stream already, because it comes from there."
        self.header = SubgroupHeader(0, 0)
        self.head = b""
        "The bytes of the header."
        self.subgroup = 0
        self.first = 0
        "The first object that subscribers are given: they have those before it."
        self.is_rest = False
        "It goes on where another of its subgroup has broken off or ended."
        self.is_broken = False
        "A relay on its way is gone; it waits for somebody to bring the rest."
        self.is_part = False
        "It has some objects that others of its subgroup have left out, and no others."
        self.mends = False
        "It brings the rest of another, and nothing else."
        self.outs: list[OutStream] = []
        self.cached: CachedStream | None = None
        self.over = False
        self._owner = owner
        self._head: bytes | None = b""
        "What has arrived of the header, until it is whole."

    def write(self, data: bytes | memoryview, now: float) -> None:
        """More of it has arrived."""
        if self._head is not None:
            self._begin(data, fin=False, now=now)
            return
        if self.over:
            return
        if self.cached is not None:
            self.cached.append(data, now)
        closed = False
        for out in self.outs:
            if not out.write(data, now):
                closed = True
        if closed:
            self.outs = [out for out in self.outs if not out.over]

    def finish(self, data: bytes | memoryview, now: float) -> None:
        """The last of it has arrived."""
        if self._head is not None:
            self._begin(data, fin=True, now=now)
        else:
            if self.cached is not None and data:
                self.cached.append(data, now)
            for out in self.outs:
                out.finish(data, now)
        self._closed(now, fin=True)

    def reset(self, code: int, now: float) -> None:
        """Whoever sends it has given it up; or is gone, and then there may be others."""
        if code != SOURCE_LOST or self.cached is None or not isinstance(self.source, FromPeer):
            self.close(code, now)
        elif not (self.over or self.is_broken):
            self.is_broken = True
            self._owner.stream_broke(self, now)

    @property
    def can_be_mended(self) -> bool:
        """Whether it is from another relay, and subscribers are given it."""
        return isinstance(self.source, FromPeer) and (self.cached is not None or self.mends)

    def mend(self, rest: OutStream) -> None:
        """What comes of it is the rest of another."""
        self.mends = True
        self.outs.append(rest)

    def go_on_from(self, source: Source) -> None:
        """Another source brings the rest."""
        self.is_broken = False
        self.source = source
        if self.cached is not None:
            self.cached.source = source

    def close(self, code: int, now: float) -> None:
        """Nobody brings the rest of it."""
        for out in self.outs:
            if not out.over:
                out.reset(code, now)
        self._closed(now, fin=False)

    def keep_in(self, cached: CachedStream) -> None:
        """What arrives of it is kept, and what it is like."""
        self.cached = cached
        cached.priority, cached.ttl_us, cached.is_part = self.priority, self.ttl_us, self.is_part

    def is_silent(self, now: float) -> bool:
        """Whether nothing has arrived of it for a while."""
        return self.cached is not None and now - self.cached.touched > SILENT_S

    def add(self, out: OutStream) -> None:
        """A late joiner takes it from here on, and has what came before from elsewhere."""
        self.outs.append(out)

    def _begin(self, data: bytes | memoryview, *, fin: bool, now: float) -> None:
        head = self._head + bytes(data) if self._head else bytes(data)
        try:
            header, length = decode_stream_header(head, BETWEEN_RELAYS)
            if isinstance(header, FetchHeader):
                self._head = None
                self._owner.fetched(self, header, head[length:], fin, now)
                return
            if header.alias != self._owner.alias:
                self._pass(head, fin, now)
                return
            subgroup = header.subgroup
            if subgroup is None:
                subgroup, _ = decode_varint(head, length)
        except Incomplete:
            if fin:
                self._pass(head, fin, now)
            else:
                self._head = head
            return
        except MoqtViolation:
            self._pass(head, fin, now)
            return
        self._head = None
        self.header, self.head, self.subgroup = header, head[:length], subgroup
        self._owner.hand_out(self, head, memoryview(head)[length:], fin, now)

    def _pass(self, head: bytes, fin: bool, now: float) -> None:
        self._head = None
        self._owner.pass_opaque(self, head, fin, now)

    def _closed(self, now: float, *, fin: bool) -> None:
        self.over = True
        if self.cached is not None:
            self.cached.ended(fin=fin)
        self._owner.stream_closed(self, now)
