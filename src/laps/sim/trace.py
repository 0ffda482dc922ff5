"""Follows every object from node to node, by reading what the links carry.

A relay is not asked: what arrives at a node is read beside it, and what a relay sends while it
deals with something has passed the same nodes. So the way of an object is known even where a relay
is wrong about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from laps.errors import RemoteProtocolError
from laps.sim.clients import ObjectId, SubgroupReader, read_datagram
from laps.types import format_node_id
from laps.wire.buffer import Incomplete, decode_varint
from laps.wire.objects import (
    DataStreamDecoder,
    ExistingStreamHeader,
    NewStreamHeader,
    ObjectType,
    decode_datagram,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.sim.links import LinkEnd
    from laps.types import NodeId


# What nobody saw for so long did not go round: it was in a wire that was cut, in a relay that stood
# still, or in the cache of one that sends it again.
STOOD_STILL_S: Final = 0.5

# What an object in a stream begins with, its two headers, fits into this; larger ones are rare.
HEADERS_BYTES: Final = 8

# A plain number, as it is compared with a byte.
EXISTING_STREAM: Final = int(ObjectType.EXISTING_STREAM)


class _Stream(Struct):
    decoder: DataStreamDecoder = field(default_factory=DataStreamDecoder)
    reader: SubgroupReader = field(default_factory=SubgroupReader)
    track: int = 0
    known: dict[bytes, ObjectId] = field(default_factory=dict)
    "The objects of its track, by their bytes: each comes to many nodes."
    is_between: bool = False
    "An object has ended, and the next has not begun."
    unread: bytes = b""
    "The beginning of an object that follows another and is not whole."
    wanted: int = 0
    "How long that has to be before it is looked at again."


@dataclass(frozen=True, slots=True)
class Loop:
    """An object that came back to a node."""

    made: ObjectId
    node_id: NodeId
    passed: frozenset[NodeId]
    lasted_s: float
    "Since it was seen there first, or anywhere if it began there; and since it last stood still."
    at: float
    "When it came back."

    def __str__(self) -> str:
        way = " ".join(format_node_id(node_id) for node_id in sorted(self.passed))
        node = format_node_id(self.node_id)
        return f"{self.made} came back to {node} after {self.lasted_s:.3f} s by way of {way}"


class Trail(Struct):
    """The way of one object."""

    began: float
    "When it first arrived anywhere, since it last stood still."
    moved: float
    "When it last arrived anywhere."
    reached: dict[NodeId, float] = field(default_factory=dict)
    hops: list[tuple[NodeId, NodeId]] = field(default_factory=list)
    "From and to, in the order of arrival."

    @property
    def ends(self) -> list[NodeId]:
        """The nodes that sent it no further."""
        senders = {sender for sender, _ in self.hops}
        return [to for _, to in self.hops if to not in senders]


class Trace:
    """The ways of all objects."""

    def __init__(self) -> None:
        self.trails: dict[ObjectId, Trail] = {}
        self.loops: list[Loop] = []
        self.repeats: list[tuple[ObjectId, NodeId]] = []
        "Objects that came to a node by two ways."
        self.lost: set[ObjectId] = set()
        "Objects in datagrams of which a wire has lost a copy by itself."
        self.violations: list[str] = []
        self.watch: Callable[[ObjectId, NodeId, NodeId, float], None] | None = None
        "Told of every hop of every object: from, to, when."
        self._streams: dict[LinkEnd, dict[int, _Stream]] = {}
        self._hops: dict[tuple[NodeId, NodeId], tuple[NodeId, NodeId]] = {}
        "Each pair once: there are many objects, and few links."
        self._known: dict[int, dict[bytes, ObjectId]] = {}
        "By track, what its streams have as `known`."

    def data(
        self, link: LinkEnd, to: NodeId, stream_id: int, data: bytes, fin: bool, now: float
    ) -> None:
        """Bytes of a data stream arrive."""
        try:
            stream = self._streams[link][stream_id]
        except KeyError:
            stream = self._streams.setdefault(link, {})[stream_id] = _Stream()
        if stream.unread:
            data = stream.unread + data
        if len(data) < stream.wanted:
            stream.unread = data
        else:
            made = stream.known.get(data) if stream.is_between else None
            try:
                if made is not None and stream.reader.passes(made.group, made.number):
                    stream.unread, stream.wanted = b"", 0  # as nearly always
                    self._arrived(link, to, made, now)
                else:
                    for made in self._read(stream, data):
                        self._arrived(link, to, made, now)
            except (RemoteProtocolError, ValueError) as error:
                self.violations.append(f"to {format_node_id(to)}: {error}")
                self._streams[link][stream_id] = _Stream()
        if fin:
            del self._streams[link][stream_id]

    def _read(self, stream: _Stream, data: bytes) -> Iterable[ObjectId]:
        """The objects that these bytes complete."""
        stream.unread, stream.wanted = b"", 0
        if not stream.is_between:
            return self._decode(stream, data)
        size = _size_of_one(data[:HEADERS_BYTES])
        if len(data) < size:
            stream.unread, stream.wanted = data, size
            return ()
        found = self._decode(stream, data)
        if len(data) == size and len(found) == 1:
            stream.known[data] = found[0]
        return found

    def _decode(self, stream: _Stream, data: bytes) -> list[ObjectId]:
        found: list[ObjectId] = []
        reader, decoder = stream.reader, stream.decoder
        payload = decoder.inside(data)
        for event in decoder.feed(data) if payload is None else (payload,):
            if isinstance(event, NewStreamHeader):
                stream.track = event.full_name_hash
                stream.known = self._known.setdefault(stream.track, {})
            elif not isinstance(event, ExistingStreamHeader):
                for publisher, group, number in reader.read(event):
                    found.append(ObjectId(publisher, stream.track, group, number, False))
        stream.is_between = reader.is_between and decoder.is_between
        return found

    def datagram(self, link: LinkEnd, to: NodeId, data: bytes, now: float) -> None:
        """A datagram arrives."""
        try:
            header, payload = decode_datagram(data)
        except RemoteProtocolError as error:
            self.violations.append(f"to {format_node_id(to)}: {error}")
            return
        if (found := read_datagram(bytes(payload))) is not None:
            publisher, group, number = found
            made = ObjectId(publisher, header.full_name_hash, group, number, True)
            self._arrived(link, to, made, now)

    def datagram_lost(self, data: bytes) -> None:
        """A datagram is lost, as datagrams are."""
        header, payload = decode_datagram(data)
        if (found := read_datagram(bytes(payload))) is not None:
            publisher, group, number = found
            self.lost.add(ObjectId(publisher, header.full_name_hash, group, number, True))

    def reset(self, link: LinkEnd, stream_id: int) -> None:
        """A stream was given up."""
        self._streams.get(link, {}).pop(stream_id, None)

    def closed(self, link: LinkEnd) -> None:
        """A link is over."""
        self._streams.pop(link, None)

    def _arrived(self, link: LinkEnd, to: NodeId, made: ObjectId, now: float) -> None:
        other = link.other
        other.lane.traffic.copies += 1
        trail = self.trails.get(made)
        if trail is None:
            trail = self.trails[made] = Trail(now, now)
        elif now - trail.moved > STOOD_STILL_S:
            trail.began = now
        trail.moved, reached = now, trail.reached
        before = reached.get(to)
        if before is None:
            reached[to] = now
        if to in link.passed:
            first = max(before or 0.0, trail.began)
            self.loops.append(Loop(made, to, link.passed, now - first, now))
        elif before is not None:
            self.repeats.append((made, to))
        hop = other.host.node_id, to
        if self.watch is not None:
            self.watch(made, *hop, now)
        trail.hops.append(self._hops.setdefault(hop, hop))


@lru_cache(maxsize=1024)  # most objects of a track begin with the same bytes
def _size_of_one(head: bytes) -> int:
    """How many bytes there have to be before the object that begins so can be whole.

    0 if that cannot be told: it is not one object of a publisher in one later data object.
    """
    size = len(head)
    if size < 2:
        return size + 1
    if head[1] != EXISTING_STREAM:
        return 0
    try:
        length, start = decode_varint(head, 2)
        _, inner = decode_varint(head, start)
        inner_length, inner = decode_varint(head, inner)
    except Incomplete:
        return size + 1 if size < HEADERS_BYTES else 0
    end = start + length
    return end if start == head[0] and inner + inner_length == end else 0
