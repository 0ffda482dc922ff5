"""Edges without clients and without sockets, as `laps bench control` has many in one process.

A light Edge says of subscribes what a relay says that control servers serve (`relay/interest.py`),
and takes what servers tell it: to the bytes the same protocol. It holds a subscribe in an item of a
few arrays, by the number of its track, where a relay has tables. So two million fit anywhere.

Track number `n` is ("bench", "<publisher's Edge>") "<n>". One Edge offers it and another wants it:
the tracks that one Edge offers are wanted by all of the others.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from laps.relay.outbox import Outbox
from laps.relay.servers import responsible
from laps.types import (
    NodeId,
    SubscribeInfo,
    TrackHash,
    TrackKey,
    TrackName,
    announce_info,
    full_name_hash,
    hash_bytes,
    hash_namespace,
    sequence_newer,
)
from laps.wire.buffer import decode_varint
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.interest import SubscribeInterest, Wants
from laps.wire.node_lists import NodeListAdv, NodeListWd
from laps.wire.peering import (
    AnnounceInfoAdv,
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
)
from laps.wire.subscribe import decode_track_name, encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from laps.types import NodeInfo
    from laps.wire.peering import Message

# Node ids of light Edges are 1:1, 1:2 …
FIRST_EDGE: Final = 1 << 32 | 1

# As a relay writes them: so much at once, and what a page looks at and does not tell counts little.
BATCH_BYTES: Final = 16 * 1024
LOOK_BYTES: Final = 32

# A SUBSCRIBE says when it was made, as its request id: in four bytes, as that of a client that has
# made many.
TICKS_PER_S: Final = 100_000

# type(i) = 3 | length(2) | request_id(i) …
_REQUEST_ID_AT: Final = 3

# The pages of an outbox: all that a server is responsible for, or what is new in that.
_ALL: Final = "all"
_MOVED: Final = "moved"


class Layout(NamedTuple):
    """Which Edge offers a track, and which one wants it."""

    tracks: int
    edges: int

    def publisher(self, track: int) -> int:
        """The number of the Edge that offers it."""
        return track % self.edges

    def subscriber(self, track: int) -> int:
        """The number of the Edge that wants it, which is another one."""
        row, publisher = divmod(track, self.edges)
        return (publisher + 1 + row % (self.edges - 1)) % self.edges

    def wanted_in(self, row: int, edge: int) -> int:
        """The track that an Edge wants among those numbered `row * edges` and on."""
        return row * self.edges + (edge - 1 - row % (self.edges - 1)) % self.edges

    def wanted(self, edge: int) -> Iterator[int]:
        """The tracks that an Edge wants."""
        for row in range(-(-self.tracks // self.edges)):
            if (track := self.wanted_in(row, edge)) < self.tracks:
                yield track


@dataclass(slots=True)
class Counters:
    """What the Edges of one process have seen."""

    wanted: int = 0
    "Subscribes that there are now."
    known: int = 0
    "Subscribes to what is offered here that are known now."
    told: int = 0
    "Advertisements and withdrawals that were sent, to each server."
    told_again: int = 0
    "Those of them that moved, as servers came or left."
    heard: int = 0
    "Advertisements and withdrawals that came."
    strays: int = 0
    "Of tracks that are not offered here: nobody had to tell us of them."
    corrected: int = 0
    "A server said of a subscribe of ours what is not so."


class Tables:
    """The subscribes of all Edges of one process: their own, and those to what they offer."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.counters = Counters()
        tracks = layout.tracks
        self.is_wanted = bytearray(tracks)
        self.sequences = array("H", bytes(2 * tracks))
        self.changed_at = array("I", bytes(4 * tracks))
        "When it was subscribed to or unsubscribed from, in ticks."
        self.is_known = bytearray(tracks)
        self.heard = array("H", bytes(2 * tracks))
        "The last sequence that has come."
        self.samples = array("d")
        "Of each change that has come: when it was made, and how long it took, in seconds."


class Wire(Protocol):
    """A control session with a server."""

    @property
    def room(self) -> int:
        """How many bytes had best be written now."""

    def write(self, data: bytes) -> None:
        """Send control messages."""


@dataclass(slots=True, eq=False)
class ServerSession:
    """A server, and what it is still to be told."""

    wire: Wire
    interest: SubscribeInterest | None = None
    "What it wants to hear; None: it has said nothing yet."
    outbox: Outbox = field(default_factory=Outbox)
    pages: int = 0
    "Of its outbox, those that are not told to their end."
    waits_for_all: bool = False
    "Whether one of them is of all, and has not begun."
    nodes: set[NodeId] = field(default_factory=set)
    "The nodes that it has told us of."


class LightEdge:
    """What one Edge says to control servers, and makes of what they say."""

    def __init__(self, number: int, tables: Tables) -> None:
        self.number = number
        self.id = NodeId(FIRST_EDGE + number)
        self.sessions: dict[NodeId, ServerSession] = {}
        self.servers: tuple[NodeId, ...] = ()
        "Those that share what we say."
        self.contacts: dict[NodeId, str] = {}
        "Where nodes are that servers have told of."
        self.waiting: dict[NodeId, None] = {}
        "Servers that something may be sent to now."
        self._tables = tables
        self._layout = tables.layout
        self._namespaces = {hash_namespace(_namespace(it)): it for it in range(tables.layout.edges)}
        self._hashes = {it: key for key, it in self._namespaces.items()}

    # -- servers -----------------------------------------------------------------------------------

    @property
    def named(self) -> set[NodeId]:
        """The servers that servers have named."""
        said = [it.interest for it in self.sessions.values() if it.interest is not None]
        return {server for it in said for server in it.servers}

    def begin(self, server: NodeId, wire: Wire) -> None:
        """There is a session: what is said first on it."""
        self.sessions[server] = session = ServerSession(wire)
        self._say(session, SubscribeInterest(Wants.LATER, servers=self.servers))

    def left(self, server: NodeId) -> None:
        """There is no session any more: others share what it held."""
        if self.sessions.pop(server, None) is not None:
            self.waiting.pop(server, None)
            self._review()

    def _review(self) -> None:
        """Say with whom we have sessions, where that is another; and then what that moves."""
        serving = [it for it, session in self.sessions.items() if session.interest is not None]
        servers, before = tuple(sorted(serving)), self.servers
        if servers == before:
            return
        self.servers = servers
        for server in servers:
            self._say(self.sessions[server], SubscribeInterest(Wants.OFFERED, servers=servers))
        for server in servers:
            session = self.sessions[server]
            if server not in before:
                offer = announce_info(self.id, _namespace(self.number))
                self._say(session, AnnounceInfoAdv(offer))
            elif session.interest is not None and session.interest.wants is Wants.SHARE:
                self._keep_page(server, before)

    def _heard(self, server: NodeId, said: SubscribeInterest) -> None:
        session = self.sessions[server]
        before = Wants.LATER if session.interest is None else session.interest.wants
        if said.serves:
            session.interest = said
            self._review()
        hears = said.wants in (Wants.ALL, Wants.SHARE)
        told = before is Wants.ALL or (before is Wants.SHARE and said.wants is Wants.SHARE)
        if said.serves and hears and not told:
            self._keep_page(server)

    def _say(self, session: ServerSession, message: Message) -> None:
        session.wire.write(encode(message, codecs=EXTENDED_CODECS))

    # -- what is wanted here -----------------------------------------------------------------------

    def change(self, track: int, ticks: int, *, wanted: bool) -> None:
        """Subscribe to a track of ours, or unsubscribe; `pump` sends it."""
        tables = self._tables
        tables.counters.wanted += wanted - tables.is_wanted[track]
        tables.is_wanted[track] = wanted
        tables.changed_at[track] = ticks
        tables.sequences[track] = (tables.sequences[track] + 1) & 0xFFFF
        self._tell(track)

    def _tell(self, track: int) -> None:
        wanted = bool(self._tables.is_wanted[track])
        info = self.info(track)
        message = SubscribeInfoAdv(info) if wanted else SubscribeInfoWd(info)
        shared = responsible(info.track_hash.full_name_hash, self.servers)
        for server, session in self.sessions.items():
            if not _hears(session, is_shared=server in shared):
                continue
            if not session.outbox.keep_word(track, message, _ALL if wanted else None):
                self._keep_page(server)
            self.waiting[server] = None

    def info(self, track: int) -> SubscribeInfo:
        """A subscribe as it is told."""
        tables, number = self._tables, self._layout.publisher(track)
        name = b"%d" % track
        data = encode_subscribe(TrackName(_namespace(number), name), tables.changed_at[track])
        return SubscribeInfo(tables.sequences[track], self.id, self._hash(track), data)

    def _hash(self, track: int) -> TrackHash:
        namespace = self._hashes[self._layout.publisher(track)]
        name = hash_bytes(b"%d" % track)
        return TrackHash(namespace, name, full_name_hash(namespace, name))

    def key(self, track: int) -> TrackKey:
        """By which servers share it."""
        return self._hash(track).full_name_hash

    # -- what waits to be sent ---------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits to be said."""
        return not any(session.outbox for session in self.sessions.values())

    @property
    def is_whole(self) -> bool:
        """Whether each server was told all that moved to it, but for changes of now."""
        return not any(session.pages for session in self.sessions.values())

    def _keep_page(self, server: NodeId, before: Collection[NodeId] | None = None) -> None:
        session = self.sessions[server]
        self.waiting[server] = None
        if session.waits_for_all:
            return
        if session.pages:
            before = None  # it may not have been told yet what it had before
        session.pages += 1
        session.waits_for_all = before is None
        key = _ALL if before is None else _MOVED
        session.outbox.keep_page(key, self._page(server, session, before))

    def _page(
        self, server: NodeId, session: ServerSession, before: Collection[NodeId] | None
    ) -> Iterator[Message | None]:
        """All that concerns a server, but for what was its own among the servers `before`."""
        tables, servers = self._tables, self.servers
        if before is None:
            session.waits_for_all = False
        for track in self._layout.wanted(self.number):
            if self.servers is not servers:
                before = None
            message: Message | None = None
            if tables.is_wanted[track]:
                key = self.key(track)
                shared = responsible(key, self.servers)
                is_told = before is not None and server in responsible(key, before)
                if not is_told and _hears(session, is_shared=server in shared):
                    message = SubscribeInfoAdv(self.info(track))
                    tables.counters.told_again += 1
            yield message
        session.pages -= 1

    def pump(self, server: NodeId) -> bool:
        """Send some of what waits, as far as there is room; whether there is room for more."""
        session = self.sessions[server]
        room = min(session.wire.room, BATCH_BYTES)
        size, batch = 0, []
        while size < room and session.outbox:
            message = session.outbox.take()
            if message is None:
                size += LOOK_BYTES
                continue
            batch.append(encode(message, codecs=EXTENDED_CODECS))
            size += len(batch[-1])
        if batch:
            self._tables.counters.told += len(batch)
            session.wire.write(b"".join(batch))
        return bool(session.outbox) and session.wire.room > 0

    # -- what comes --------------------------------------------------------------------------------

    def receive(self, server: NodeId, message: Message, ticks: int) -> None:
        """A server has said something."""
        match message:
            case SubscribeInfoAdv(info) | SubscribeInfoWd(info):
                added = isinstance(message, SubscribeInfoAdv)
                if info.source_node_id == self.id:
                    self._correct(info, added=added)
                else:
                    self._take(info, ticks, added=added)
            case SubscribeInterest():
                self._heard(server, message)
            case NodeInfoAdv(info):
                self._meet(server, (info,))
            case NodeListAdv(infos):
                self._meet(server, infos)
            case NodeInfoWd(info):
                self.sessions[server].nodes.discard(info.id)
            case NodeListWd(infos):
                self.sessions[server].nodes.difference_update(info.id for info in infos)

    def _meet(self, server: NodeId, infos: Iterable[NodeInfo]) -> None:
        """A server tells of nodes."""
        for info in infos:
            self.contacts[info.id] = info.contact
            self.sessions[server].nodes.add(info.id)

    def _take(self, info: SubscribeInfo, ticks: int, *, added: bool) -> None:
        """Somebody wants a track of ours, or no longer: the latest word about it counts."""
        tables, counters = self._tables, self._tables.counters
        counters.heard += 1
        if self._namespaces.get(info.track_hash.namespace_hash) != self.number:
            counters.strays += 1
            return
        track = int(decode_track_name(info.subscribe_data).name)
        if not sequence_newer(info.sequence, tables.heard[track]):
            return
        tables.heard[track] = info.sequence
        if bool(tables.is_known[track]) is added:
            return  # what was in between has been overtaken
        counters.known += 1 if added else -1
        tables.is_known[track] = added
        made_at, _ = decode_varint(info.subscribe_data, _REQUEST_ID_AT)
        tables.samples.extend((made_at / TICKS_PER_S, (ticks - made_at) / TICKS_PER_S))

    def _correct(self, info: SubscribeInfo, *, added: bool) -> None:
        """A server speaks of a subscribe of ours: if it is not so, say what is."""
        tables = self._tables
        track = int(decode_track_name(info.subscribe_data).name)
        wanted, held = bool(tables.is_wanted[track]), tables.sequences[track]
        if wanted is added and (not wanted or held == info.sequence):
            return
        truth = (info.sequence + 1) & 0xFFFF
        if not wanted and not sequence_newer(truth, held):
            truth = (held + 1) & 0xFFFF
        if sequence_newer(truth, held):
            tables.counters.corrected += 1
            tables.sequences[track] = truth
            self._tell(track)


def _hears(session: ServerSession, *, is_shared: bool) -> bool:
    wants = Wants.LATER if session.interest is None else session.interest.wants
    return wants is Wants.ALL or (wants is Wants.SHARE and is_shared)


def _namespace(edge: int) -> tuple[bytes, ...]:
    return (b"bench", b"%d" % edge)
