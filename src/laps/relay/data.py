"""The data plane: streams and datagrams in, streams and datagrams out, as they arrive.

A stream is looked at once, at its start: its header names the flow, the flow names the egresses,
and each egress is given a stream of its own whose header carries that link's SNS id. From then on
every chunk is one look-up and one write for each egress. What comes from a peer is framed as data
objects already and is passed on as it is; what comes from a publisher is wrapped, a slice an
object; what goes to a client is unwrapped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidStartOfStream, RemoteProtocolError
from laps.relay.egress import EgressSets
from laps.relay.held import Held, HeldData
from laps.relay.passing import DROPPED, DataCounters, OpenStreams, Passing, SentOn, write_all
from laps.relay.tracing import Tracing
from laps.routing.flows import FromClient, FromPeer
from laps.tracks.streams import SOURCE_LOST, IncomingStream
from laps.wire.moqt.data import FetchHeader, encode_fetch_header
from laps.wire.objects import (
    DataStreamDecoder,
    NewStreamHeader,
    decode_datagram,
    decode_object_header,
    encode_datagram_header,
    encode_new_stream_header,
)
from laps.wire.quicr.carried import datagram_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from laps.infobase.nodes import SessionId
    from laps.relay.peers import Links
    from laps.relay.ports import Link
    from laps.relay.sets import Sets
    from laps.relay.stub import StubClient
    from laps.relay.tracing import Trace
    from laps.routing.flows import Flow
    from laps.routing.forwarding import Fib
    from laps.tracks.meter import Meter
    from laps.tracks.ports import Client
    from laps.tracks.track import Track
    from laps.tracks.tracks import Tracks
    from laps.types import SnsId, TrackHash, TrackKey

    MaybeStub = StubClient | None

MOST_RESET: Final = 200  # 10 µs each

# What the answer to a FETCH begins with, in draft 16.
FETCH_BYTE: Final = encode_fetch_header(FetchHeader(0))[:1]


class DataPlane:
    """The streams and datagrams that pass through one relay."""

    def __init__(
        self, fib: Fib, sets: Sets, links: Links, tracks: Tracks, hold_s: float, hold_bytes: int
    ) -> None:
        """`tracks` has those of this relay's clients; data waits for its SNS for `hold_s`."""
        self.counters = DataCounters()
        self.tracing = Tracing(links)
        self._fib = fib
        self._sets = sets
        self._links = links
        self._tracks = tracks
        self._streams = OpenStreams()
        self.egress = EgressSets(fib, links, tracks, self._streams)
        "The streams to peers, under our sets."
        self._held = HeldData(hold_s, hold_bytes)
        self.holding = self._held.queues
        "What waits for its SNS, by link."
        self._sent_on = SentOn()
        self._left: deque[Hashable] = deque()
        "Links and publishers that have left, and of which streams are open."

    def __len__(self) -> int:
        return len(self._streams)

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
        now: float,
    ) -> None:
        """Bytes of a publisher's stream; the first with a new key opens it."""
        passing = self._streams.get(client, stream_key)
        if passing is None:
            passing = self._opened(client, track, priority, ttl_us, now)
            self._streams.add(client, stream_key, passing)
        passing.size += len(data)
        if passing.outs:
            write_all(passing.outs, data, fin, now)
        if passing.incoming is not None:
            if fin:
                passing.incoming.finish(data, now)
            elif data:
                passing.incoming.write(data, now)
        if fin:
            self._closed(client, stream_key, passing)

    def _opened(
        self, client: Client, track: TrackHash, priority: int, ttl_us: int, now: float
    ) -> Passing:
        key = track.full_name_hash
        found = self._tracks.track(track, now)
        passing = Passing(flow := self._flow_of(found, client))
        if flow is not None:
            self.egress.open(passing, key, priority, ttl_us, wrapped=True)
        passing.track = found
        passing.incoming = IncomingStream(found, client, priority, ttl_us)
        passing.meter = found.meter
        self._count_new(passing)
        if self.tracing.tracks:
            self.tracing.begin(passing, key, None, b"", now)
        return passing

    def publish_datagram(self, client: Client, track: TrackHash, data: bytes, now: float) -> bool:
        """A publisher's datagram; False if its object arrived before."""
        key = track.full_name_hash
        self.counters.datagrams += 1
        if self.tracing.tracks:
            self.tracing.datagram(key, None, data, now)
        found = self._tracks.track(track, now)
        copies = found.datagrams.receive(data, client, None, now)
        if copies is None:
            return False
        flow = self._flow_of(found, client)
        if flow is not None:
            copies += self._send_datagram(flow, key, data)
        self._count_datagram(found.meter, len(data), copies)
        return True

    def _flow_of(self, track: Track, client: Client) -> Flow | None:
        publication = track.publishers.get(client)
        return None if publication is None else self._sets.flow(publication.flow_key)

    # -- from a peer -------------------------------------------------------------------------------

    def receive(
        self, link: Link, stream_id: int, data: bytes, fin: bool, stub: MaybeStub, now: float
    ) -> None:
        """The first bytes of a peer's data stream, or more of them before it has a flow.

        A Stub stands for a publisher.
        """
        passing = self._streams.get(link.id, stream_id)
        if passing is None:
            passing = self._streams.add(link.id, stream_id, Passing())
        if not passing.refused:
            try:
                self._begin(link, stream_id, passing, data, fin, stub, now)
            except RemoteProtocolError as error:
                self._refuse(link, stream_id, passing, error, now)
        if fin and passing.waiting is None:
            self._closed(link.id, stream_id, passing)

    def receive_more(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> bool:
        """More of a peer's data stream; False if it has no flow yet."""
        passing = self._streams.by_number.get((link.id, stream_id))
        if passing is None or passing.flow is None:
            return False
        passing.size += len(data)
        if passing.outs:
            write_all(passing.outs, data, fin, now)
        if passing.decoder is not None:
            try:
                passing.unwrap(data, fin, now)
            except RemoteProtocolError as error:
                self._refuse(link, stream_id, passing, error, now)
        if fin:
            self._closed(link.id, stream_id, passing)
        return True

    def _refuse(
        self, link: Link, stream_id: int, passing: Passing, error: RemoteProtocolError, now: float
    ) -> None:
        """A stream error, as the document has it: the session and its other streams go on."""
        self.counters.refused_streams += 1
        self._abort(passing, error.code, now)
        passing.refused = True
        link.end_stream(stream_id, error.code)

    def reset(self, source: Hashable, stream_key: Hashable, code: int, now: float) -> None:
        """A peer or publisher gave a stream up: so do we, with its code."""
        passing = self._streams.get(source, stream_key)
        if passing is not None:
            self._abort(passing, code, now)
            self._closed(source, stream_key, passing)

    def receive_datagram(self, link: Link, data: bytes, stub: MaybeStub, now: float) -> None:
        """A data object in a datagram."""
        header, payload = decode_datagram(data)
        key = header.full_name_hash
        source = FromPeer(link.id, header.sns_id)
        flow = self._sets.flow(source if stub is None else FromClient(stub, key))
        if flow is None and stub is None:
            item = Held(now + self._held.limit_s, header.sns_id, None, data)
            self._hold(link.id, item, len(data))
            return
        if flow is None:  # a Stub's, as a stream of its own would be
            self.counters.unwanted += 1
            return
        self.counters.datagrams += 1
        if self.tracing.tracks:
            self.tracing.datagram(key, link.id, payload, now)
        track = self._tracks.get(key) if flow.local else None
        copies: int | None = 0
        if track is not None:
            copies = track.datagrams.receive(bytes(payload), stub or source, stub, now)
        # What arrived before may have been for this relay alone: others are sent it once as well.
        is_new = bool(track and flow.outs) and self._sent_on.add(flow.key, payload)
        if copies is None and not is_new:
            return
        copies = (copies or 0) + self._send_datagram(flow, key, payload)
        self._count_datagram(self._tracks.meter(key, flow, now), len(data), copies)

    def sns_known(self, link: Link, sns_id: SnsId, now: float) -> None:
        """An SNS has arrived: what waited for it goes on."""
        for item in self._held.take(link.id, sns_id):
            if item.stream_id is None:
                self.receive_datagram(link, item.data, None, now)
            elif (passing := self._streams.get(link.id, item.stream_id)) is not None:
                data, passing.head, passing.waiting = passing.head, b"", None
                self.receive(link, item.stream_id, data, item.fin, None, now)

    def close_link(self, link_id: SessionId, now: float) -> None:
        """A peer has left, in the middle of whatever it was sending."""
        self._held.close_link(link_id)
        self.close_source(link_id, now)

    def break_off(self, passing: Passing, now: float) -> None:
        """Clients are given the rest of a stream from elsewhere, if it can be had there."""
        incoming = passing.incoming
        if incoming is not None and incoming.can_be_mended:
            passing.incoming = passing.decoder = None
            incoming.reset(SOURCE_LOST, now)

    def close_source(self, source: Hashable, now: float) -> None:
        """A peer or publisher has left, in the middle of whatever it was sending."""
        self._left.append(source)
        self._reset_some(now)

    def _reset_some(self, now: float) -> None:
        """Reset streams of who has left, some at a time: nothing arrives on them any more."""
        left = MOST_RESET
        while self._left and left:
            source = self._left[0]
            numbers = self._streams.numbers(source, left)
            for number in numbers:
                self.reset(source, number, SOURCE_LOST, now)
            left -= len(numbers)
            if not self._streams.numbers(source, 1):
                self._left.popleft()

    def tick(self, now: float) -> None:
        """Drop what has waited for its SNS for too long, and what nobody wants any more."""
        self.egress.drop_abandoned(now)
        self._reset_some(now)
        for link_id, item in self._held.expired(now):
            self._drop_held(link_id, item)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._fib.abandoned or self._left:
            return 0.0
        return self._held.next_expiry() if self._held.queues else None

    # -- how a stream begins -----------------------------------------------------------------------

    def _begin(
        self,
        link: Link,
        stream_id: int,
        passing: Passing,
        data: bytes,
        fin: bool,
        source: MaybeStub,
        now: float,
    ) -> None:
        """Read the header, and find the flow."""
        passing.head += data
        if passing.waiting is not None:
            passing.waiting.fin = fin
            for item in self._held.grow(link.id, passing.waiting, len(data)):
                self._drop_held(link.id, item)
            return
        if len(passing.head) > 1 and passing.head[1] != 2:
            raise InvalidStartOfStream(f"a stream starts with type {passing.head[1]}")
        header = decode_object_header(passing.head)
        if not isinstance(header, NewStreamHeader):
            if fin:
                raise InvalidStartOfStream("the stream ended before its first header")
            return
        if source is not None:
            if len(passing.head) == header.header_length and not fin:
                return  # the next byte tells what it is
            if passing.head[header.header_length :].startswith(FETCH_BYTE):
                source = None  # an answer, for us alone, under a set of its own
        flow = self._sets.flow(
            FromPeer(link.id, header.sns_id)
            if source is None
            else FromClient(source, header.full_name_hash)
        )
        if flow is None and source is None:
            item = Held(now + self._held.limit_s, header.sns_id, stream_id, b"", fin)
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
        self._enter(link, passing, flow, header, head, fin, source, now)

    def _enter(
        self,
        link: Link,
        passing: Passing,
        flow: Flow,
        header: NewStreamHeader,
        head: bytes,
        fin: bool,
        source: MaybeStub,
        now: float,
    ) -> None:
        """Open the egresses, and give them what has arrived."""
        key, priority, ttl_us = header.full_name_hash, header.priority, header.ttl_us
        passing.size = len(head)
        if flow.track is None:
            flow.track = key
        if source is not None:
            source.comes(key, header.sns_id)
        passing.meter = self._tracks.meter(key, flow, now)
        self.egress.open(passing, key, priority, ttl_us, wrapped=False)
        self._count_new(passing)
        rest = head[header.header_length :]
        for out, (_, _, sns_id, _) in zip(passing.outs, passing.sets, strict=True):
            start = encode_new_stream_header(sns_id, key, priority, ttl_us, header.data_length)
            out.finish(start + rest, now) if fin else out.write(start + rest, now)
        if self.tracing.tracks:
            self.tracing.begin(passing, key, link.id, head, now)
        track = self._tracks.get(key) if flow.local else None
        if track is not None:
            # A Stub has its own streams already.
            origin = FromPeer(link.id, header.sns_id) if source is None else source
            passing.track = track
            passing.incoming = IncomingStream(track, origin, priority, ttl_us, exclude=source)
            passing.decoder = DataStreamDecoder()
            passing.unwrap(head, fin, now)

    def reorder(self, flow: Flow) -> None:
        """A flow is of another class of service: its streams have its place."""
        self._streams.reorder(flow)

    # -- what it carries ---------------------------------------------------------------------------

    def open_streams(self, link_id: SessionId | None = None) -> list[Passing]:
        """Those on their way, of one peer or of everybody."""
        streams = self._streams
        return streams.all() if link_id is None else streams.from_source(link_id)

    def trace(self, key: TrackKey, news: Callable[[], None]) -> Trace:
        """Tell when each object of a track arrives; `news` is called when some have."""
        return self.tracing.start(key, news, self._streams.all())

    def settle(self, streams: Iterable[Passing]) -> None:
        """Have the meters of their tracks show what has arrived of streams by now."""
        self.egress.settle(streams)

    def _count_new(self, passing: Passing) -> None:
        self.counters.streams += 1
        track = passing.track
        copies = len(passing.outs) + (0 if track is None else len(track.subscribers))
        self.counters.copies += copies
        self.counters.unwanted += not copies

    def _count_datagram(self, meter: Meter | None, size: int, copies: int) -> None:
        self.counters.copies += copies
        if meter is not None:
            meter.received += size
            meter.sent += size * copies
            if self._tracks.shared.moved is not None:
                self._tracks.shared.moved[meter] = None

    # -- how it ends -------------------------------------------------------------------------------

    def _abort(self, passing: Passing, code: int, now: float) -> None:
        self.egress.settle((passing,))
        for out in passing.outs:
            if not out.over:
                out.reset(code, now)
        passing.outs.clear()
        passing.taps = 0
        if passing.incoming is not None and not passing.incoming.over:
            passing.incoming.reset(code, now)
        passing.incoming = passing.decoder = None

    def _closed(self, source: Hashable, number: Hashable, passing: Passing) -> None:
        self._streams.remove(source, number)
        self.egress.settle((passing,))
        self.egress.leave(passing)

    def _send_datagram(self, flow: Flow, key: TrackKey, data: bytes | memoryview) -> int:
        """To the peers of a flow; to how many."""
        ways = flow.current()
        rank = datagram_rank(data) if ways else 0
        for link_id, sns_id in ways:
            if (link := self._links.links.get(link_id)) is not None:
                header = encode_datagram_header(sns_id, key, len(data))
                link.send_datagram(header + data, rank, flow.terms.order)
        return len(ways)

    # -- what arrived before its SNS ---------------------------------------------------------------

    def _hold(self, link_id: SessionId, item: Held, size: int) -> None:
        self.counters.held += 1
        for dropped in self._held.add(link_id, item, size):
            self._drop_held(link_id, dropped)

    def _drop_held(self, link_id: SessionId, item: Held) -> None:
        self.counters.held_dropped += 1
        if item.stream_id is None:
            return
        passing = self._streams.get(link_id, item.stream_id)
        if passing is None:
            return
        passing.head, passing.waiting, passing.refused = b"", None, True
        if item.fin:
            self._streams.remove(link_id, item.stream_id)
        elif (link := self._links.links.get(link_id)) is not None:
            link.end_stream(item.stream_id, DROPPED)
