"""Beyond the neighbours: messages to any node, and streams to one node alone.

A request or an answer goes from hop to hop towards its target, by the peers that lead there and
take extensions. A stream to one node runs under a subscriber node set of its own, so that relays
on the way need not know what it is for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from laps.relay.framing import DirectStream
from laps.relay.passing import DROPPED, Passing
from laps.routing.flows import FromClient, FromPeer, ToNode
from laps.tracks.again import as_datagrams, begun, following, recent
from laps.tracks.cached_stream import CachedStream
from laps.tracks.sinks import Cut
from laps.tracks.streams import SOURCE_LOST
from laps.wire.extensions import HaveKind
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.objects import encode_datagram_header
from laps.wire.quicr.carried import datagram_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.infobase.nodes import Nodes, SessionId
    from laps.relay.egress import EgressSets
    from laps.relay.peers import Links, PeerLink
    from laps.relay.sets import Sets
    from laps.relay.stub import StubClient
    from laps.routing.flows import Flow
    from laps.routing.forwarding import Fib
    from laps.tracks.again import Kept
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.tracks.tracks import Tracks
    from laps.types import Location, NodeId, TrackHash, TrackKey
    from laps.wire.extensions import Have, RelayRequest, RelayResponse, Travelling

# As long as data may arrive before its set.
JOINING_S: Final = 1.0

# A node tells what it wants right after it is known itself.
MEETING_S: Final = 2.0

# An Edge that a Stub turns to asks for what is wanted within this time.
TURNING_S: Final = 5.0

# Somebody waits for it, and what is live matters more to others: in the middle.
DIRECT_PRIORITY: Final = 128


class _NodeStream(DirectStream):
    """A stream to a node that need not be a peer."""

    def __init__(self, passing: Passing, egress: EgressSets, fib: Fib, links: Links) -> None:
        super().__init__(passing.outs)
        self._passing = passing
        self._egress = egress
        self._fib = fib
        self._links = links
        if not passing.outs:
            self.close()

    def withdraw(self) -> None:
        """As `DirectStream.withdraw`."""
        flow = self._passing.flow
        self._egress.leave(self._passing)
        if flow is not None:
            self._links.send_sns(self._fib.remove(flow.key))


class Reach:
    """How one relay reaches nodes that need not be its peers."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        links: Links,
        stubs: Mapping[SessionId, StubClient],
        tracks: Tracks,
        sets: Sets,
        fib: Fib,
        egress: EgressSets,
        hold_s: float,
        hold_bytes: int,
    ) -> None:
        """What came in the last `hold_s` is sent again to a relay that could not hear of it."""
        self.received: deque[RelayRequest | RelayResponse] = deque()
        "Requests and answers that are for this relay."
        self.told: dict[tuple[NodeId, TrackKey], Location] = {}
        "How far a track was, as nodes that are about to subscribe were told, by node and track."
        self.undelivered = 0
        "Requests and answers that no way led to."
        self._self_id = self_id
        self._nodes = nodes
        self._links = links
        self._stubs = stubs
        self._tracks = tracks
        self._sets = sets
        self._fib = fib
        self._egress = egress
        self._hold_s = hold_s
        self._hold_bytes = hold_bytes
        self._turned: tuple[NodeId, float, float] | None = None
        "The Edge that a Stub turned to: since when it is to be given all, and when it did."
        self._met: dict[NodeId, float] = {}
        "Since when a way to each node is known."
        self._opened = 0
        self._joined: dict[tuple[NodeId, TrackKey], dict[IncomingStream, OutStream]] = {}
        "The open streams that nodes joined late, by node and track."

    # -- messages ----------------------------------------------------------------------------------

    def receive(self, message: RelayRequest | RelayResponse, heard_from: NodeId) -> None:
        """A request or an answer: for us, or on its way."""
        if not self.pass_on(message, heard_from):
            self.received.append(message)

    def pass_on(self, message: Travelling, heard_from: NodeId) -> bool:
        """Send a message further that is for another node; False if it is for us."""
        if message.target_node_id == self._self_id:
            return False
        if message.hops > 0:
            onward = structs.replace(message, hops=message.hops - 1)
            self.send(message.target_node_id, onward, not_to=heard_from)
        return True

    def send(
        self, node_id: NodeId, message: Travelling, turn: int = 0, not_to: NodeId | None = None
    ) -> bool:
        """Send to the peer that leads to a node; False if none does that takes extensions.

        Who asks again says so: where several lead there, `turn` has another take it each time. Not
        back to whom it came from, if another leads there: that one's best way may be one that does
        not take extensions, and its next one by us.
        """
        ways: dict[NodeId, PeerLink] = {}
        for peer_id in (node_id, *(path.peer_id for path in self._nodes.candidates(node_id))):
            peer = self._links.peers.get(peer_id)
            control = None if peer is None else peer.control
            if control is not None and control.link.extended:
                ways.setdefault(peer_id, control)
        if not_to is not None and len(ways) > 1:
            ways.pop(not_to, None)
        # Of those that are silent, the best one: it may only be slow.
        able = [way for way in ways.values() if not self._links.is_suspect(way)]
        able = able or list(ways.values())[:1]
        if not able:
            self.undelivered += 1
            return False
        self._links.send_on(able[turn % len(able)], message)
        return True

    def has_room_for(self, node_id: NodeId, order: int) -> bool:
        """Whether little waits on the way to a node ahead of a class of service."""
        for peer_id in (node_id, *(path.peer_id for path in self._nodes.candidates(node_id))):
            if (peer := self._links.peers.get(peer_id)) is not None:
                return not any(it.link.pressed_for(order) for it in peer.links.values())
        return True

    # -- streams -----------------------------------------------------------------------------------

    def open_stream(
        self, node_id: NodeId, key: TrackKey, priority: int = DIRECT_PRIORITY, ttl_us: int = 0
    ) -> OutStream:
        """A data stream to one node alone; a Stub has its own way."""
        track = self._tracks.get(key)
        if (stub := self.stub(node_id)) is not None and track is not None:
            return stub.open_direct(track.hash, priority, ttl_us)
        return self._open_direct(node_id, key, priority, ttl_us)

    def _open_direct(self, node_id: NodeId, key: TrackKey, priority: int, ttl_us: int) -> OutStream:
        """Under a set of its own for as long as it is open."""
        self._opened += 1
        flow_key = ToNode(node_id, key, self._opened)
        track = self._tracks.get(key)
        name = None if track is None else track.name
        flow = self._fib.install(flow_key, [node_id], local=False, name=name)
        self._links.send_sns(self._fib.settle(flow))
        passing = Passing(flow)
        self._egress.open(passing, key, priority, ttl_us, wrapped=True)
        return _NodeStream(passing, self._egress, self._fib, self._links)

    def stub(self, node_id: NodeId) -> StubClient | None:
        """A Stub of ours."""
        return next((it for it in self._stubs.values() if it.peer.node_id == node_id), None)

    # -- late joiners ------------------------------------------------------------------------------

    def catch_up(self, track: Track, client: Client, node_id: NodeId, now: float) -> None:
        """A node joins a track: give it the streams and objects that are open, from the beginning.

        Where it has asked how far the track is, its subscribe may be late by whole groups: it is
        given those too. So is a node that could not tell us earlier that it wants the track.
        """
        for stream in list(track.streams.values()):
            if stream.source is client:
                self._join(track.key, stream, node_id, fin=False, now=now)
        if self._shares_set(client, track.key, node_id):
            track.joining[node_id] = now + JOINING_S
        datagrams: list[bytes] = []
        for item in self._missed(track, client, node_id, now):
            if isinstance(item, CachedStream):
                if item.source is client:
                    self._send_again(node_id, track.key, item, now)
            elif item[0].source is client:
                datagrams += as_datagrams(*item, now)
        datagrams += begun(track, now)
        flow = self._sets.flow(FromClient(client, track.key)) if datagrams else None
        for data in datagrams:
            self._send_datagram(flow, track.key, node_id, data)

    def _missed(self, track: Track, client: Client, node_id: NodeId, now: float) -> list[Kept]:
        """What has ended of a track that a node joins, and that it could not ask for in time."""
        kept: list[Kept] = []
        if (since := self._missed_since(node_id, now)) is not None:
            kept += recent(track.cached, since, self._tracks.shared.cache.limits.track_bytes, now)
        elif self._is_early(track, client, self._met.get(node_id, 0.0), now):
            kept += recent(track.cached, now - self._hold_s, self._hold_bytes, now)
        told = self.told.pop((node_id, track.key), None)
        if told is not None:
            known = set(map(_place, kept))
            kept += [it for it in following(track.cached, told, now) if _place(it) not in known]
        return kept

    def join_stub(self, stub: StubClient, track: TrackHash, now: float) -> None:
        """A Stub joins a track: give it what `catch_up` gives a node, but its own."""
        found, node_id = self._tracks.get(track.full_name_hash), stub.peer.node_id
        if found is None:
            return
        for stream in list(found.streams.values()):
            if stub not in (stream.source, stream.exclude):
                self._join(found.key, stream, node_id, fin=False, now=now)
        if self._is_early(found, None, stub.since, now):
            for item in recent(found.cached, now - self._hold_s, self._hold_bytes, now):
                if not isinstance(item, CachedStream):
                    for data in as_datagrams(*item, now):
                        stub.send_datagram(track, data, datagram_rank(data))
                elif item.source is not stub:
                    self._send_again(node_id, found.key, item, now)
        for data in begun(found, now):
            stub.send_datagram(track, data, datagram_rank(data))

    def turned_to(self, node_id: NodeId, since: float, now: float) -> None:
        """A Stub has lost its Edge and turns to another: what the first was sent may be lost."""
        self._turned = node_id, since, now

    def _missed_since(self, node_id: NodeId, now: float) -> float | None:
        """Since when an Edge that has just been turned to is given all; None: it was not."""
        if self._turned is None:
            return None
        edge, since, turned_at = self._turned
        return since if node_id == edge and now < turned_at + TURNING_S else None

    def met(self, node_id: NodeId, now: float) -> None:
        """A way to a node is known."""
        self._met.setdefault(node_id, now)

    def lost(self, node_id: NodeId) -> None:
        """No way leads to a node any more."""
        self._met.pop(node_id, None)

    def _is_early(self, track: Track, client: Client | None, met: float, now: float) -> bool:
        """Whether a node may have wanted a track before what is here of it came.

        It has told us of what it wants as soon as it could, or the track has just begun, or this
        publisher has: the one before it may have been at a relay that died.
        """
        groups = track.cached.groups
        oldest = next(iter(groups.values()), None)
        began = 0.0 if oldest is None else oldest.at
        if client is not None and (first := groups.get(track.senders.get(client, -1))) is not None:
            began = min((it.since for it in first.streams if it.source is client), default=began)
        return met >= now - MEETING_S or began >= now - self._hold_s

    def _send_datagram(
        self, flow: Flow | None, key: TrackKey, node_id: NodeId, data: bytes
    ) -> None:
        """A datagram once more, by the way that leads to a node; others there have it already."""
        if flow is None:
            return
        for link_id, out in flow.outs.items():
            link = self._links.links.get(link_id)
            if node_id in out.nodes and link is not None:
                header = encode_datagram_header(out.sns_id, key, len(data))
                link.send_datagram(header + data, datagram_rank(data), flow.terms.order)

    def serve_joining(self, now: float) -> None:
        """Streams began, or datagrams arrived, while nodes join their tracks.

        The nodes were added to a set under its old id, as the document has it. A relay that hears
        of the stream before the set sends it where the set was before; so they are given it apart
        as well, and keep what comes first.
        """
        shared = self._tracks.shared
        if not (shared.began or shared.arrived):
            return
        began, shared.began = shared.began, []
        arrived, shared.arrived = shared.arrived, []
        for key, stream, fin in began:
            for node_id in self._joining(key, now):
                if not isinstance(stream.source, FromPeer):  # a publisher's, here or at a Stub
                    self._join(key, stream, node_id, fin=fin, now=now)
        for key in dict.fromkeys(key for key, _ in arrived):
            if (track := self._tracks.get(key)) is not None:
                data = [it for of, it in arrived if of == key]
                for node_id in self._joining(key, now):
                    self._send_datagrams(track, node_id, data)

    def _joining(self, key: TrackKey, now: float) -> list[NodeId]:
        """The nodes that joined a track a moment ago."""
        track = self._tracks.get(key)
        if track is None:
            return []
        track.joining = {node_id: until for node_id, until in track.joining.items() if until >= now}
        return list(track.joining)

    def _join(
        self,
        key: TrackKey,
        stream: IncomingStream,
        node_id: NodeId,
        *,
        fin: bool,
        now: float,
        first: int = 0,
    ) -> None:
        cached = stream.cached
        if cached is None or (cached.base and fin):
            return
        if not (cached.base or first):
            out = self.open_stream(node_id, key, stream.priority, stream.ttl_us)
            whole = b"".join((stream.head, *cached.chunks))
            if fin:
                out.finish(whole, now)
            elif out.write(whole, now):
                self._add(key, stream, node_id, out)
            return
        # Its beginning is kept no more, or not missing: from the first object that is.
        cached.scan()
        if cached.malformed:
            return
        out = self.open_stream(node_id, key, stream.priority, stream.ttl_us)
        header = replace(stream.header, subgroup=stream.subgroup)
        head = encode_subgroup_header(header, BETWEEN_RELAYS)
        cut = Cut(out, head, first, header.has_extensions)
        cut.write_kept(cached, now)
        self._add(key, stream, node_id, cut)

    def _add(self, key: TrackKey, stream: IncomingStream, node_id: NodeId, out: OutStream) -> None:
        """A late joiner is given the rest of a stream, until it leaves the track."""
        stream.add(out)
        joined = self._joined.setdefault((node_id, key), {})
        for ended in [other for other, one in joined.items() if one.over]:
            del joined[ended]
        joined[stream] = out

    def leave(self, node_id: NodeId, key: TrackKey, now: float) -> None:
        """A node wants a track no more, nor the streams that it joined late."""
        for out in self._joined.pop((node_id, key), {}).values():
            if not out.over:
                out.reset(DROPPED, now)

    # -- what is missing ---------------------------------------------------------------------------

    def replay(
        self,
        track: Track,
        node_id: NodeId,
        since: float,
        until: float,
        have: Iterable[Have],
        now: float,
    ) -> int:
        """Send a node what came in a time and it does not have; how many streams and datagrams.

        It asks again until nothing is missing: what was sent the last time may have gone to a
        relay that is not known to be dead.
        """
        known: dict[tuple[int, int], Have] = {}
        datagrams: set[tuple[int, int]] = set()
        for item in have:
            if item.kind is HaveKind.DATAGRAM:
                datagrams.add((item.group, item.number))
            elif item.kind is not HaveKind.BEFORE:
                known[item.group, item.subgroup] = item
        sent = 0
        missing: list[bytes] = []
        for kept in recent(track.cached, since, track.shared.cache.limits.track_bytes, now):
            if isinstance(kept, CachedStream):
                had = known.get((kept.header.group, kept.subgroup))
                young = had is None and kept.since > until
                if not young and (had is None or had.kind is HaveKind.BROKEN):
                    sent += self._send_again(node_id, track.key, kept, now)
            elif (kept[0].id, kept[1]) not in datagrams and kept[0].came(kept[1]) <= until:
                missing += as_datagrams(*kept, now)
        self._send_datagrams(track, node_id, missing)
        # What is open goes last: nearly always it is the newest.
        joined = self._joined.get((node_id, track.key), {})
        for stream in list(track.streams.values()):
            had = known.get((stream.header.group, stream.subgroup))
            if stream.is_broken or (had is not None and had.kind is not HaveKind.BROKEN):
                continue
            if had is None and stream.cached is not None and stream.cached.since > until:
                continue
            if (before := joined.pop(stream, None)) is not None and not before.over:
                before.reset(SOURCE_LOST, now)
            first = 0 if had is None else had.number
            self._join(track.key, stream, node_id, fin=False, now=now, first=first)
            sent += 1
        return sent + len(missing)

    def _send_datagrams(self, track: Track, node_id: NodeId, missing: list[bytes]) -> None:
        """Datagrams once more, for one node alone."""
        if (stub := self.stub(node_id)) is not None:
            for data in missing:
                stub.send_datagram(track.hash, data, datagram_rank(data))
        elif missing:
            self._opened += 1
            flow_key = ToNode(node_id, track.key, self._opened)
            flow = self._fib.install(flow_key, [node_id], local=False, name=track.name)
            self._links.send_sns(self._fib.settle(flow))
            for data in missing:
                self._send_datagram(flow, track.key, node_id, data)
            # Whoever hears of it keeps it for the last of its data.
            self._links.send_sns(self._fib.remove(flow_key))

    def _send_again(self, node_id: NodeId, key: TrackKey, cached: CachedStream, now: float) -> bool:
        """A stream that has ended, if all of it is here; False if it is not."""
        whole = cached.fin and not cached.base
        if whole:
            priority = DIRECT_PRIORITY if cached.priority is None else cached.priority
            out = self.open_stream(node_id, key, priority, cached.ttl_us)
            head = encode_subgroup_header(cached.header, BETWEEN_RELAYS)
            out.finish(b"".join((head, *cached.chunks)), now)
        return whole

    def _shares_set(self, client: Client, key: TrackKey, node_id: NodeId) -> bool:
        """Whether a publisher's track goes to a node by a set that has others in it."""
        flow = self._fib.get(FromClient(client, key))
        if flow is None:
            return False
        self._fib.refresh(flow)
        if not flow.settled:  # peers are told in a moment
            return len(flow.targets) > 1
        sets = [out.nodes for out in flow.outs.values()]
        return any(node_id in nodes and len(nodes) > 1 for nodes in sets)


def _place(kept: Kept) -> object:
    """What tells one from another."""
    return kept if isinstance(kept, CachedStream) else kept[:2]
