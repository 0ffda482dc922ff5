"""Traces: when each object of a track begins to arrive at this relay, while somebody looks.

    DataPlane -> Tap, one more out of a stream -> the traces of its track

A tap is one more place that a stream's bytes are written to, beside the links and clients that they
go to. So streams that nobody traces are not asked about it again after they began. At an Edge a tap
is put to the streams that are open when a trace begins, too: where their objects lie is known from
the cache. Where a track only passes, nobody knows that of an open stream, and its objects show from
the next one on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.errors import LapsError, RemoteProtocolError
from laps.routing.flows import FromPeer
from laps.types import track_alias
from laps.wire.buffer import Incomplete
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import SubgroupHeader, decode_datagram, decode_stream_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.objects import DataStreamDecoder, ExistingStreamHeader, NewStreamHeader
from laps.wire.quicr.carried import carried_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.infobase.nodes import SessionId
    from laps.relay.passing import Passing
    from laps.relay.peers import Links
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.types import NodeId, TrackKey

# What one trace holds for who reads it: a second of a track of a thousand objects a second.
MAX_WAITING: Final = 1_000

# Each takes time of the data path from everybody else.
MAX_TRACES: Final = 32


class TooManyTraces(LapsError):  # noqa: N818 - a name says what happened
    """Nobody may trace any more."""


@dataclass(slots=True)
class Arrival:
    """An object has begun to arrive."""

    at: float
    "By the relay's clock, which counts from anywhere."
    group: int
    subgroup: int | None
    "None for one in a datagram."
    object_id: int
    source: NodeId | None
    "The peer that it comes from; None for a client of this relay."
    size: int
    "Of its payload; of a fragment's, where it comes in fragments."
    status: int
    "As MoQT says it: 3 where the group ends, 4 where the track does."


class Trace:
    """One who looks at one track."""

    def __init__(self, key: TrackKey, news: Callable[[], None]) -> None:
        self.key = key
        self.missed = 0
        "How many there were that did not fit, after those that wait."
        self._news = news
        "Called when something waits that did not before."
        self._waiting: deque[Arrival] = deque()

    def take(self) -> tuple[list[Arrival], int]:
        """What has come since, and how many more there were that are lost."""
        taken, missed = list(self._waiting), self.missed
        self._waiting.clear()
        self.missed = 0
        return taken, missed

    def add(self, arrival: Arrival) -> None:
        """Something came."""
        if len(self._waiting) >= MAX_WAITING:
            self.missed += 1
            return
        self._waiting.append(arrival)
        if len(self._waiting) == 1:
            self._news()


class Tracing:
    """The traces of a relay."""

    def __init__(self, links: Links) -> None:
        self.tracks: dict[TrackKey, list[Trace]] = {}
        "By the hash of the track: empty, as long as nobody looks."
        self._links = links

    def start(
        self,
        key: TrackKey,
        news: Callable[[], None],
        streams: Iterable[Passing],
    ) -> Trace:
        """Trace a track from now on; `streams` are those that are open."""
        if sum(map(len, self.tracks.values())) >= MAX_TRACES:
            raise TooManyTraces(
                f"{MAX_TRACES} traces run at this relay, and no more are taken: end one of them"
            )
        trace = Trace(key, news)
        others = self.tracks.setdefault(key, [])
        others.append(trace)
        if len(others) == 1:
            for passing in streams:
                self._pick_up(passing, key)
        return trace

    def stop(self, trace: Trace) -> None:
        """Nobody looks any more."""
        traces = self.tracks.get(trace.key, [])
        if trace in traces:
            traces.remove(trace)
            if not traces:
                del self.tracks[trace.key]

    # -- streams -----------------------------------------------------------------------------------

    def begin(
        self,
        passing: Passing,
        key: TrackKey,
        link_id: SessionId | None,
        head: bytes,
        now: float,
    ) -> None:
        """A stream begins: if its track is traced, put a tap to it.

        `link_id` is the link it comes from, framed as between peers; None for a publisher's own.
        `head` is what was written of it to its outs already.
        """
        if key not in self.tracks:
            return
        tap = Tap(self, key, None if link_id is None else self._links.node_of(link_id))
        if link_id is not None:
            tap.decoder = DataStreamDecoder()
        passing.outs.append(tap)
        passing.taps += 1
        tap.write(head, now)

    def _pick_up(self, passing: Passing, key: TrackKey) -> None:
        """A stream is open: go on from where its objects are known to be."""
        incoming, track = passing.incoming, passing.track
        if incoming is None or track is None or track.key != key:
            return
        if any(isinstance(out, Tap) and not out.lost for out in (*passing.outs, *incoming.outs)):
            return  # from an earlier trace, and as good
        scanner = _scanner(track, incoming)
        if scanner is None:
            return
        origin = incoming.source
        peer = self._links.node_of(origin.link) if isinstance(origin, FromPeer) else None
        tap = Tap(self, key, peer)
        tap.scanner, tap.group, tap.subgroup = scanner, incoming.header.group, incoming.subgroup
        incoming.outs.append(tap)
        passing.taps += 1

    # -- datagrams ---------------------------------------------------------------------------------

    def datagram(
        self, key: TrackKey, link_id: SessionId | None, data: bytes | memoryview, now: float
    ) -> None:
        """A datagram came, without what peers put around it."""
        if key not in self.tracks:
            return
        try:
            item = decode_datagram(data, BETWEEN_RELAYS)
            carried = carried_of(item)
        except MoqtViolation:
            return
        if item.alias != track_alias(key) or (carried is not None and carried[0].offset):
            return  # not the first of an object's fragments
        source = None if link_id is None else self._links.node_of(link_id)
        size, status = len(item.payload), item.status or 0
        arrival = Arrival(now, item.group, None, item.object_id, source, size, status)
        self.note(key, arrival)

    def note(self, key: TrackKey, arrival: Arrival) -> None:
        """An object begins to arrive."""
        for trace in self.tracks.get(key, ()):
            trace.add(arrival)


class Tap:
    """Finds the objects of one stream: an `OutStream` to whoever brings its bytes.

    It is never over of itself, so that it costs nothing to know how many copies a stream has.
    """

    __slots__ = (
        "_head",
        "_key",
        "_source",
        "_tracing",
        "decoder",
        "group",
        "lost",
        "over",
        "scanner",
        "subgroup",
    )

    def __init__(self, tracing: Tracing, key: TrackKey, source: NodeId | None) -> None:
        self._tracing = tracing
        self._key = key
        self._source = source
        self._head = b""
        self.decoder: DataStreamDecoder | None = None
        "Finds the publisher's bytes where peers have put theirs around them."
        self.scanner: BoundaryScanner | None = None
        "Finds objects, once the stream's header was there."
        self.group = 0
        self.subgroup: int | None = None
        self.lost = False
        "It is no stream of the track's objects, or cannot be read on."
        self.over = False

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self.lost:
            return True
        if self._key not in self._tracing.tracks:
            self.lost = True  # a trace that begins later would find a gap here
            return True
        try:
            if self.decoder is None:
                self._read(data, now)
                return True
            for event in self.decoder.feed(bytes(data)) if data else ():
                if not isinstance(event, NewStreamHeader | ExistingStreamHeader):
                    self._read(event, now)
        except (MoqtViolation, RemoteProtocolError):
            self.lost = True
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if data:
            self.write(data, now)
        self.over = True
        return True

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self.over = True

    def _read(self, data: bytes | memoryview, now: float) -> None:
        if self.scanner is None:
            head = self._head + bytes(data)
            try:
                header, length = decode_stream_header(head, BETWEEN_RELAYS)
            except Incomplete:
                self._head = head
                return
            self._head = b""
            if not isinstance(header, SubgroupHeader) or header.alias != track_alias(self._key):
                self.lost = True  # an answer to a FETCH, or nothing of MoQT's
                return
            self.group, self.subgroup = header.group, header.subgroup
            self.scanner = BoundaryScanner(BETWEEN_RELAYS, header.has_extensions)
            data = head[length:]
        for object_id, _, _, begin, end, status in self.scanner.feed(data):
            if self.subgroup is None:
                self.subgroup = object_id
            size, source = end - begin, self._source
            arrival = Arrival(now, self.group, self.subgroup, object_id, source, size, status)
            self._tracing.note(self._key, arrival)


def _scanner(track: Track, incoming: IncomingStream) -> BoundaryScanner | None:
    """What knows where the objects of an open stream are; None if nobody does."""
    cached = incoming.cached
    if cached is None or not cached.live or cached.malformed:
        return None
    scanner = cached.scan()
    if cached.malformed or scanner.offset != cached.base + cached.size:
        return None
    group = track.cached.groups.get(incoming.header.group)
    if group is None or cached not in group.streams:
        return None  # it is no longer kept, so what has come since is not known
    return scanner.copy()
