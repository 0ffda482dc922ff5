"""The data plane: streams and datagrams in, streams and datagrams out, as they come.

A stream is looked at once, at its start: its header names the flow, the flow names the egresses,
and each egress is given a stream of its own whose header carries that link's SNS id. From then on
every chunk is one look-up and one write for each egress. What comes from a peer is framed as data
objects already and is passed on as it is; what comes from a publisher is wrapped, a slice an
object; what goes to a client is unwrapped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidStartOfStream, RemoteProtocolError
from laps.relay.tracing import Tracing
from laps.tracks.streams import LiveStream
from laps.wire.moqt.data import FetchHeader, encode_fetch_header
from laps.wire.objects import (
    DataStreamDecoder,
    ExistingStreamHeader,
    NewStreamHeader,
    decode_datagram,
    decode_object_header,
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)
from laps.wire.quicr.carried import datagram_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from laps.infobase.nodes import SessionId
    from laps.relay.ports import Link
    from laps.relay.tracing import Trace
    from laps.routing.forwarding import Fib, Flow, SnsUpdate
    from laps.tracks.meter import Meter
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.track import Live
    from laps.types import NodeId, SnsId, TrackHash

# The document has no code for data that was dropped; 0 says that the peer did nothing wrong.
DROPPED: Final = 0

# What the answer to a FETCH begins with, in draft 16.
FETCH_BYTE: Final = encode_fetch_header(FetchHeader(0))[:1]

# What somebody waits for, and what is live all the same: in the middle.
DIRECT_PRIORITY: Final = 128


@dataclass(slots=True)
class DataCounters:
    """What became of the data, for the operator."""

    streams: int = 0
    datagrams: int = 0
    copies: int = 0
    "Streams and datagrams sent on, to peers and clients."
    unwanted: int = 0
    "Streams and datagrams nobody is subscribed to."
    refused_streams: int = 0
    held: int = 0
    "Came ahead of their SNS, and waited for it."
    held_dropped: int = 0
    "Waited in vain, or for too much."


class Wrapped:
    """A publisher's bytes to a peer: each slice is a data object."""

    __slots__ = ("_out", "_start")

    def __init__(self, out: OutStream, start: Callable[[int], bytes]) -> None:
        self._out = out
        self._start: Callable[[int], bytes] | None = start
        "Makes the first header, from the length of the first slice."

    @property
    def over(self) -> bool:
        """As `OutStream`."""
        return self._out.over

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        return self._out.write(self._header(len(data))) and self._out.write(data)

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if data or self._start is not None:
            return self._out.write(self._header(len(data))) and self._out.finish(data)
        return self._out.finish()

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        self._out.reset(code)

    def _header(self, size: int) -> bytes:
        start, self._start = self._start, None
        return encode_existing_stream_header(size) if start is None else start(size)


class Direct:
    """A stream to one node, which leads to it by one link or none."""

    def __init__(self, outs: list[OutStream], ended: Callable[[], None]) -> None:
        self._outs = outs
        self._ended = ended
        self.over = False
        if not outs:
            self._end()

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        if not self.over and not all(out.write(data) for out in self._outs):
            self._end()
        return not self.over

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        well = not self.over and all(out.finish(data) for out in self._outs)
        self._end()
        return well

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        for out in self._outs:
            out.reset(code)
        self._end()

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._ended()


@dataclass(slots=True, eq=False)
class Passing:
    """A stream on its way through."""

    flow: Flow | None = None
    outs: list[OutStream] = field(default_factory=list)
    "To peers: bytes as they come, or wrapped."
    live: LiveStream | None = None
    "To clients and the cache: the publisher's own bytes."
    links: list[tuple[Flow, SessionId, SnsId]] = field(default_factory=list)
    "The sets that `outs` run under."
    decoder: DataStreamDecoder | None = None
    "Finds the publisher's bytes in a peer's stream, where clients want them."
    head: bytes = b""
    "What has come of a header that is not complete, or of a stream that waits for its SNS."
    waiting: _Held | None = None
    "Its place among what waits for an SNS."
    refused: bool = False
    meter: Meter | None = None
    "What counts its track."
    size: int = 0
    "Bytes that came,"
    metered: int = 0
    "and how many of them the meter shows."
    taps: int = 0
    "How many of the outs are traces, which are no copies."


class DataPlane:
    """The streams and datagrams that pass through one relay."""

    def __init__(
        self,
        fib: Fib,
        links: dict[SessionId, Link],
        live: Live,
        tell: Callable[[SnsUpdate], None],
        hold_s: float,
        hold_bytes: int,
        node_of: Callable[[SessionId], NodeId | None],
    ) -> None:
        """`live` has the tracks of this relay's clients; `tell` sends an SNS update.

        `node_of` tells who is at the other end of a link.
        """
        self.counters = DataCounters()
        self.tracing = Tracing(live.cache, node_of)
        self._fib = fib
        self._links = links
        self._live = live
        self._tell = tell
        self._hold_s = hold_s
        self._hold_bytes = hold_bytes
        self._streams: dict[tuple[Hashable, Hashable], Passing] = {}
        self._held: dict[SessionId, _Queue] = {}
        self._direct = 0

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def holding(self) -> bool:
        """Whether anything waits for its SNS."""
        return any(queue.items for queue in self._held.values())

    # -- from a publisher --------------------------------------------------------------------------

    def publish(
        self,
        client: Client,
        track: TrackHash,
        stream_key: Hashable,
        data: bytes | memoryview,
        fin: bool,
        priority: int,
        ttl_us: int,
    ) -> None:
        """Bytes of a publisher's stream; the first with a new key opens it."""
        key = (client, stream_key)
        passing = self._streams.get(key)
        if passing is None:
            flow = self._fib.get((client, track.full_name_hash))
            passing = self._streams[key] = Passing(flow)
            if flow is not None:
                self._open(passing, track.full_name_hash, priority, ttl_us, wrapped=True)
            live = self._live.track(track)
            passing.live = LiveStream(live, client, priority, ttl_us)
            passing.meter = live.meter
            self._count_new(passing)
            if self.tracing.tracks:
                self.tracing.begin(passing, track.full_name_hash, None)
        passing.size += len(data)
        if passing.outs:
            _write(passing.outs, data, fin)
        if passing.live is not None:
            if fin:
                passing.live.finish(data)
            elif data:
                passing.live.write(data)
        if fin:
            self._ended(key, passing)

    def publish_datagram(self, client: Client, track: TrackHash, data: bytes) -> None:
        """A publisher's datagram."""
        self.counters.datagrams += 1
        if self.tracing.tracks:
            self.tracing.datagram(track.full_name_hash, None, data)
        live = self._live.track(track)
        copies = live.datagram(data, None)
        if copies is None:
            return  # it came before
        flow = self._fib.get((client, track.full_name_hash))
        if flow is not None:
            copies += self._send_datagram(flow, track.full_name_hash, data)
        self._count_datagram(live.meter, len(data), copies)

    # -- from a peer -------------------------------------------------------------------------------

    def receive(
        self, link: Link, stream_id: int, data: bytes, fin: bool, source: Client | None, now: float
    ) -> None:
        """Bytes of a peer's data stream. `source` is set for a Stub, who stands for a publisher."""
        key = (link.id, stream_id)
        passing = self._streams.get(key)
        if passing is None:
            passing = self._streams[key] = Passing()
        try:
            if passing.flow is None and not passing.refused:
                self._begin(link, stream_id, passing, data, fin, source, now)
            else:
                passing.size += len(data)
                _write(passing.outs, data, fin)
                if passing.decoder is not None:
                    self._unwrap(passing, data, fin)
        except RemoteProtocolError as error:
            # A stream error, as the document has it: the session and its other streams go on.
            self.counters.refused_streams += 1
            self._abort(passing, error.code)
            passing.refused = True
            link.end_stream(stream_id, error.code)
        if fin and passing.waiting is None:
            self._ended(key, passing)

    def reset(self, source: Hashable, stream_key: Hashable, code: int) -> None:
        """A peer or publisher gave a stream up: so do we, with its code."""
        passing = self._streams.get((source, stream_key))
        if passing is not None:
            self._abort(passing, code)
            self._ended((source, stream_key), passing)

    def receive_datagram(self, link: Link, data: bytes, source: Client | None, now: float) -> None:
        """A data object in a datagram."""
        header, payload = decode_datagram(data)
        key = (link.id, header.sns_id) if source is None else (source, header.full_name_hash)
        flow = self._fib.get(key)
        if flow is None and source is None:
            self._hold(link.id, _Held(now + self._hold_s, header.sns_id, None, data), len(data))
            return
        if flow is None:  # a Stub's, as a stream of its own would be
            self.counters.unwanted += 1
            return
        self.counters.datagrams += 1
        if self.tracing.tracks:
            self.tracing.datagram(header.full_name_hash, link.id, payload)
        live = self._live.get(header.full_name_hash) if flow.local else None
        copies = 0 if live is None else live.datagram(bytes(payload), source)
        if copies is None:
            return  # it came before, by this way or another
        copies += self._send_datagram(flow, header.full_name_hash, payload)
        meter = self._live.meter(header.full_name_hash, flow)
        self._count_datagram(meter, len(data), copies)

    def sns_known(self, link: Link, sns_id: SnsId, now: float) -> None:
        """An SNS has come: what waited for it goes on."""
        queue = self._held.get(link.id)
        if queue is None:
            return
        for item in queue.take(sns_id):
            if item.stream_id is None:
                self.receive_datagram(link, item.data, None, now)
            elif (passing := self._streams.get((link.id, item.stream_id))) is not None:
                data, passing.head, passing.waiting = passing.head, b"", None
                self.receive(link, item.stream_id, data, item.fin, None, now)

    def close_source(self, source: Hashable) -> None:
        """A peer or publisher is gone, in the middle of whatever it was sending."""
        if source in self._held:
            del self._held[source]  # type: ignore[arg-type]
        for key in [key for key in self._streams if key[0] == source]:
            passing = self._streams[key]
            self._abort(passing, DROPPED)
            self._ended(key, passing)

    def expire(self, now: float) -> None:
        """Drop what has waited for its SNS for too long."""
        for link_id, queue in self._held.items():
            while queue.items and queue.items[0].deadline <= now:
                self._drop_held(link_id, queue.pop())

    def next_expiry(self) -> float | None:
        """When `expire` is needed."""
        heads = (queue.items[0] for queue in self._held.values() if queue.items)
        return min((item.deadline for item in heads), default=None)

    # -- how a stream begins -----------------------------------------------------------------------

    def _begin(
        self,
        link: Link,
        stream_id: int,
        passing: Passing,
        data: bytes,
        fin: bool,
        source: Client | None,
        now: float,
    ) -> None:
        """Read the header, and find the flow."""
        passing.head += data
        if passing.waiting is not None:
            passing.waiting.fin = fin
            self._grow_held(link.id, passing.waiting, len(data))
            return
        if len(passing.head) > 1 and passing.head[1] != 2:
            raise InvalidStartOfStream(f"a stream starts with type {passing.head[1]}")
        header = decode_object_header(passing.head)
        if not isinstance(header, NewStreamHeader):
            if fin:
                raise InvalidStartOfStream("the stream ended ahead of its first header")
            return
        if source is not None:
            if len(passing.head) == header.header_length and not fin:
                return  # the next byte tells what it is
            if passing.head[header.header_length :].startswith(FETCH_BYTE):
                source = None  # an answer, for us alone, under a set of its own
        key = (link.id, header.sns_id) if source is None else (source, header.full_name_hash)
        flow = self._fib.get(key)
        if flow is None and source is None:
            item = _Held(now + self._hold_s, header.sns_id, stream_id, b"", fin)
            passing.waiting = item
            self._hold(link.id, item, len(passing.head))
            return
        passing.flow = flow
        if flow is None:  # a Stub's stream that nobody asked for, or nobody any more
            passing.refused = True
            self.counters.unwanted += 1
            link.end_stream(stream_id, DROPPED)
            return
        head, passing.head = passing.head, b""
        self._enter(link, passing, flow, header, head, fin, source)

    def _enter(
        self,
        link: Link,
        passing: Passing,
        flow: Flow,
        header: NewStreamHeader,
        head: bytes,
        fin: bool,
        source: Client | None,
    ) -> None:
        """Open the egresses, and give them what has come."""
        passing.size = len(head)
        passing.meter = self._live.meter(header.full_name_hash, flow)
        self._open(passing, header.full_name_hash, header.priority, header.ttl_us, wrapped=False)
        self._count_new(passing)
        rest = head[header.header_length :]
        for out, (_, _, sns_id) in zip(passing.outs, passing.links, strict=True):
            start = encode_new_stream_header(
                sns_id, header.full_name_hash, header.priority, header.ttl_us, header.data_length
            )
            out.finish(start + rest) if fin else out.write(start + rest)
        if self.tracing.tracks:
            self.tracing.begin(passing, header.full_name_hash, link.id, head)
        live = self._live.get(header.full_name_hash) if flow.local else None
        if live is not None:
            # A Stub has its own streams already.
            origin = flow.key if source is None else source
            passing.live = LiveStream(live, origin, header.priority, header.ttl_us, exclude=source)
            passing.decoder = DataStreamDecoder()
            self._unwrap(passing, head, fin)

    def _open(
        self, passing: Passing, full_name_hash: int, priority: int, ttl_us: int, *, wrapped: bool
    ) -> None:
        flow = passing.flow
        if flow is None:
            return
        for link_id, sns_id in flow.current():
            link = self._links.get(link_id)
            if link is None:
                continue
            out: OutStream = link.open_stream(priority, ttl_us)
            if wrapped:
                out = Wrapped(out, _starter(sns_id, full_name_hash, priority, ttl_us))
            passing.outs.append(out)
            passing.links.append((flow, link_id, sns_id))
            self._fib.stream_opened(flow, link_id)

    def _count_new(self, passing: Passing) -> None:
        self.counters.streams += 1
        copies = len(passing.outs)
        if passing.live is not None:
            copies += len(passing.live.track.subscribers)
        self.counters.copies += copies
        self.counters.unwanted += not copies

    def _unwrap(self, passing: Passing, data: bytes, fin: bool) -> None:
        decoder, live = passing.decoder, passing.live
        if decoder is None or live is None:
            return
        for event in decoder.feed(data) if data else ():
            if not isinstance(event, NewStreamHeader | ExistingStreamHeader):
                live.write(event)
        if fin:
            decoder.finish()
            live.finish()

    # -- what it carries ---------------------------------------------------------------------------

    def open_streams(self) -> list[Passing]:
        """Those on their way."""
        return list(self._streams.values())

    def trace(self, full_name_hash: int, news: Callable[[], None]) -> Trace:
        """Say when each object of a track arrives, from now on; `news` is called when some have."""
        return self.tracing.start(full_name_hash, news, self._streams.items())

    def settle(self, streams: Iterable[Passing]) -> None:
        """Have the meters of their tracks show what has come of streams by now."""
        moved = self._live.moved
        for passing in streams:
            size, meter = passing.size - passing.metered, passing.meter
            if size and meter is not None:
                passing.metered = passing.size
                live = passing.live
                copies = len(passing.outs) + (0 if live is None else len(live.outs)) - passing.taps
                meter.received += size
                meter.sent += size * copies
                if moved is not None:
                    moved[meter] = None

    def _count_datagram(self, meter: Meter | None, size: int, copies: int) -> None:
        self.counters.copies += copies
        if meter is not None:
            meter.received += size
            meter.sent += size * copies
            if self._live.moved is not None:
                self._live.moved[meter] = None

    # -- how it ends -------------------------------------------------------------------------------

    def _abort(self, passing: Passing, code: int) -> None:
        self.settle((passing,))
        for out in passing.outs:
            if not out.over:
                out.reset(code)
        passing.outs.clear()
        passing.taps = 0
        if passing.live is not None and not passing.live.over:
            passing.live.reset(code)
        passing.live = passing.decoder = None

    def _ended(self, key: tuple[Hashable, Hashable], passing: Passing) -> None:
        self._streams.pop(key, None)
        self.settle((passing,))
        for flow, link_id, sns_id in passing.links:
            update = self._fib.stream_closed(flow, link_id, sns_id)
            if update is not None:
                self._tell(update)
        passing.links = []

    def shares_set(self, client: Client, full_name_hash: int, node_id: NodeId) -> bool:
        """Whether a publisher's track goes to a node by a set that has others in it."""
        flow = self._fib.get((client, full_name_hash))
        sets = [] if flow is None else [out.nodes for out in flow.outs.values()]
        return any(node_id in nodes and len(nodes) > 1 for nodes in sets)

    # -- to one node -------------------------------------------------------------------------------

    def open_direct(
        self,
        node_id: NodeId,
        full_name_hash: int,
        priority: int,
        ttl_us: int,
        tell: Callable[[list[SnsUpdate]], None],
    ) -> OutStream:
        """A stream for one node alone, under a set of its own for as long as it is open."""
        self._direct += 1
        key = ("direct", self._direct)
        tell(self._fib.install(key, [node_id], local=False))
        flow = self._fib.get(key)
        outs: list[OutStream] = []
        for link_id, sns_id in [] if flow is None else flow.current():
            if (link := self._links.get(link_id)) is not None:
                out = link.open_stream(priority, ttl_us)
                outs.append(Wrapped(out, _starter(sns_id, full_name_hash, priority, ttl_us)))
        return Direct(outs, lambda: tell(self._fib.remove(key)))

    # -- datagrams ---------------------------------------------------------------------------------

    def _send_datagram(self, flow: Flow, full_name_hash: int, data: bytes | memoryview) -> int:
        """To the peers of a flow; to how many."""
        ways = flow.current()
        rank = datagram_rank(data) if ways else 0
        for link_id, sns_id in ways:
            if (link := self._links.get(link_id)) is not None:
                header = encode_datagram_header(sns_id, full_name_hash, len(data))
                link.send_datagram(header + data, rank)
        return len(ways)

    # -- what came ahead of its SNS ----------------------------------------------------------------

    def _hold(self, link_id: SessionId, item: _Held, size: int) -> None:
        self.counters.held += 1
        self._held.setdefault(link_id, _Queue()).items.append(item)
        self._grow_held(link_id, item, size)

    def _grow_held(self, link_id: SessionId, item: _Held, size: int) -> None:
        queue = self._held[link_id]
        item.size += size
        queue.size += size
        while queue.size > self._hold_bytes:
            self._drop_held(link_id, queue.pop())

    def _drop_held(self, link_id: SessionId, item: _Held) -> None:
        self.counters.held_dropped += 1
        if item.stream_id is None:
            return
        passing = self._streams.get((link_id, item.stream_id))
        if passing is None:
            return
        passing.head, passing.waiting, passing.refused = b"", None, True
        if item.fin:
            del self._streams[link_id, item.stream_id]
        elif (link := self._links.get(link_id)) is not None:
            link.end_stream(item.stream_id, DROPPED)


@dataclass(slots=True)
class _Held:
    """A datagram, or a stream's beginning, that waits for its SNS."""

    deadline: float
    sns_id: SnsId
    stream_id: int | None
    data: bytes
    fin: bool = False
    size: int = 0


@dataclass(slots=True)
class _Queue:
    """What waits on one link, the oldest first."""

    items: deque[_Held] = field(default_factory=deque)
    size: int = 0

    def pop(self) -> _Held:
        item = self.items.popleft()
        self.size -= item.size
        return item

    def take(self, sns_id: SnsId) -> list[_Held]:
        """Those that waited for an SNS."""
        taken = [item for item in self.items if item.sns_id == sns_id]
        self.items = deque(item for item in self.items if item.sns_id != sns_id)
        self.size -= sum(item.size for item in taken)
        return taken


def _starter(
    sns_id: SnsId, full_name_hash: int, priority: int, ttl_us: int
) -> Callable[[int], bytes]:
    return lambda size: encode_new_stream_header(sns_id, full_name_hash, priority, ttl_us, size)


def _write(outs: list[OutStream], data: bytes | memoryview, fin: bool) -> None:
    """One write for each; those that are over are left out from then on."""
    if not data and not fin:
        return
    dead = None
    for out in outs:
        if not (out.finish(data) if fin else out.write(data)):
            dead = out
    if dead is not None:
        outs[:] = [out for out in outs if not out.over]
