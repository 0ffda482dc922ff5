"""Who hears of which subscribes: control servers hold all, and tell each node what concerns it.

As a route reflector of BGP sends each router the routes that it asks for, a control server tells
an Edge the subscribes to what the Edge announces, and no others; so does each of its peers. The
subscribes of its own clients an Edge tells the servers, and those of others it passes on to nobody.

It can only be so where nobody needs it for passing on. So a relay is *served* while all of this
holds, and otherwise exchanges everything with everybody, as the document says:

    it has a control session with a server, at least one
    its servers exchange subscribes, as far as it hears, each with each, by others or at once
    each other control peer of it is served by one of them too

What is said of it, SUBSCRIBE_INTEREST, is said again whenever it changes. A relay that is served
announces on each control link what its publishers offer, as a Stub does to its Edge.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidEncoding
from laps.infobase.announces import Announces
from laps.relay.roles import Role
from laps.types import AnnounceInfo, hash_bytes, hash_track
from laps.wire.interest import MAX_SERVERS, SubscribeInterest, Wants
from laps.wire.peering import AnnounceInfoAdv, AnnounceInfoWd
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, SubscribeInfo, TrackKey
    from laps.wire.peering import Message

# A server that is restarted is back in this time; who would not wait for it hears everything.
GRACE_S: Final = 2.0

# Whoever has heard everything goes on for a while: servers that come and go cost no more than that.
AGAIN_S: Final = 10.0


class Interest:
    """Which subscribes one relay wants to hear of, and its peers from it."""

    def __init__(
        self, self_id: NodeId, role: Role, links: Links, subscribes: Subscribes, tracks: Tracks
    ) -> None:
        self.is_served = False
        "Whether we hear only what concerns us."
        self.near: tuple[NodeId, ...] = ()
        "Nodes whose subscribes concern us as well, to the tracks that are wanted here."
        self.known_servers: tuple[NodeId, ...] = ()
        "The control servers that anybody has named."
        self.untold: dict[Peer, None] = {}
        "Peers that are to be told everything, from now on."
        self.nearer: dict[Peer, tuple[NodeId, ...]] = {}
        "Peers that have named more nodes as near, until they are told of their subscribes."
        self._self_id = self_id
        self._serves = role is Role.CONTROL
        self._is_stub = role is Role.STUB
        self._links = links
        self._subscribes = subscribes
        self._tracks = tracks
        self._said: dict[NodeId, tuple[PeerLink, SubscribeInterest]] = {}
        "What each peer was told last, and on which link."
        self._all: dict[NodeId, Peer] = {}
        "Peers that hear of all subscribes."
        self._near_of: dict[NodeId, dict[NodeId, None]] = {}
        "By node: the peers that name it as near."
        self._offers: Announces[NodeId] = Announces()
        "What peers announce that hear of nothing else."
        self._unwanted: deque[Iterator[tuple[NodeId, TrackKey] | None]] = deque()
        "Subscribes to be looked at, as they may not concern us any more."
        self._turns_at: float | None = None
        "When we are served no longer, unless that changes."
        self._again_at = 0.0

    # -- peers -------------------------------------------------------------------------------------

    def begin(self, peer: Peer, now: float) -> None:
        """A control link is up: the first thing that is said on it."""
        self._forget(peer)
        if self._is_stub or peer.is_stub or peer.control is None:
            return
        if peer.control.link.extended:
            self._take(peer)
            self._say(peer)
        else:
            self._all[peer.node_id] = peer
        self._review(now)

    def left(self, peer: Peer, now: float) -> None:
        """A peer has no control link any more."""
        self._forget(peer)
        self._review(now)

    def _forget(self, peer: Peer) -> None:
        self._said.pop(peer.node_id, None)
        self._all.pop(peer.node_id, None)
        self.untold.pop(peer, None)
        self._set_near(peer, ())
        self._offers.drop_origin(peer.node_id)
        peer.unmatched.clear()
        peer.interest = None

    def heard(
        self, peer_link: PeerLink, peer: Peer, message: SubscribeInterest, now: float
    ) -> bool:
        """A peer says which subscribes it wants to hear of; whether that has a place here."""
        if self._is_stub or peer.is_stub or peer.control is None:
            return False
        peer_link.interest = message
        self._take(peer)
        self._review(now)
        return True

    def _take(self, peer: Peer) -> None:
        """What a peer says on the link that control uses counts; until it does, on any other.

        The two sides need not agree which link that is.
        """
        links = [*peer.links.values(), *([] if peer.control is None else [peer.control])]
        said = next((it.interest for it in reversed(links) if it.interest is not None), None)
        if said is None or said is peer.interest:
            return
        before = Wants.LATER if peer.interest is None else peer.interest.wants
        peer.interest = said
        if said.wants is not Wants.OFFERED:
            self._offers.drop_origin(peer.node_id)
            peer.unmatched.clear()
        if said.wants is not Wants.ALL:
            self._all.pop(peer.node_id, None)
            self.untold.pop(peer, None)
        elif before is not Wants.ALL:
            self._all[peer.node_id] = peer
            self.untold[peer] = None
        self._set_near(peer, said.near if said.wants is Wants.OFFERED else ())

    def announced(self, peer: Peer, info: AnnounceInfo, *, added: bool) -> bool:
        """A peer that is served offers something, or no longer does; whether that has a place."""
        if info.source_node_id != peer.node_id or not self.hears_some(peer):
            return False
        names = info.namespace_hashes, info.name_hash
        if not added:
            self._offers.withdraw(peer.node_id, info)
            peer.unmatched.pop(names, None)
        elif self._offers.add(peer.node_id, info) is not None:
            peer.unmatched[names] = info
        return True

    def count(self, node_id: NodeId) -> int:
        """How much a peer announces."""
        return self._offers.count(node_id)

    def _set_near(self, peer: Peer, near: tuple[NodeId, ...]) -> None:
        self.nearer.pop(peer, None)
        if new := set(near).difference(peer.near):
            self.nearer[peer] = tuple(sorted(new))
        for node_id in peer.near:
            of = self._near_of.get(node_id, {})
            of.pop(peer.node_id, None)
            if not of:
                self._near_of.pop(node_id, None)
        for node_id in near:
            self._near_of.setdefault(node_id, {})[peer.node_id] = None
        peer.near = near

    # -- what peers hear ---------------------------------------------------------------------------

    def hears_all(self, peer: Peer) -> bool:
        """Whether a peer is told of every subscribe."""
        return peer.node_id in self._all

    def hears_some(self, peer: Peer) -> bool:
        """Whether a peer is told of what concerns it."""
        return peer.interest is not None and peer.interest.wants is Wants.OFFERED

    def concerned(self, info: SubscribeInfo) -> dict[NodeId, Peer]:
        """The peers that a subscribe concerns, or its end; its source is none of them."""
        found, peers = dict(self._all), self._links.peers
        if len(self._offers):
            found |= {it: peers[it] for it in self._offering(info)}
        for node_id in self._near_of.get(info.source_node_id, ()):
            if self._subscribes.holds(node_id, info.track_hash.full_name_hash):
                found[node_id] = peers[node_id]
        found.pop(info.source_node_id, None)
        return found

    def matching(self, peer: Peer) -> Iterator[tuple[NodeId, TrackKey]]:
        """What is wanted of that which a peer has announced lately, as long as it does so."""
        while peer.unmatched:
            names = next(iter(peer.unmatched))
            announce = peer.unmatched.pop(names)
            for key in self._tracks.matching(announce, None):
                for source in self._subscribes.sources(key):
                    yield source, key

    def still_offers(self, peer: Peer, info: SubscribeInfo) -> bool:
        """Whether a subscribe is to something that a peer announces."""
        return peer.node_id in self._offering(info)

    def of_near(self, info: SubscribeInfo) -> Iterator[SubscribeInfo]:
        """The subscribes of nodes near the source of one, to the same track."""
        peer = self._links.peers.get(info.source_node_id)
        for node_id in () if peer is None else peer.near:
            held = self._subscribes.get(node_id, info.track_hash.full_name_hash)
            if held is not None:
                yield held

    def _offering(self, info: SubscribeInfo) -> list[NodeId]:
        parts = self._parts(info)
        return [] if parts is None else self._offers.match(parts, info.track_hash.name_hash)

    def _parts(self, info: SubscribeInfo) -> tuple[int, ...] | None:
        """The hashes of the parts of a namespace; None where the SUBSCRIBE does not fit them."""
        parts = self._tracks.names.parts(info.track_hash.namespace_hash)
        if parts is not None:
            return parts
        try:
            name = decode_track_name(bytes(info.subscribe_data))
        except InvalidEncoding:
            return None
        fits = hash_track(name) == info.track_hash
        return tuple(map(hash_bytes, name.namespace)) if fits else None

    # -- what we hear ------------------------------------------------------------------------------

    def concerns_us(self, info: SubscribeInfo) -> bool:
        """Whether we want to hear of a subscribe of another node."""
        if not self.is_served:
            return True
        key = info.track_hash.full_name_hash
        if info.source_node_id in self.near and self._subscribes.holds(self._self_id, key):
            return True
        parts = self._parts(info)
        name_hash = info.track_hash.name_hash
        return parts is not None and bool(self._tracks.announces.match(parts, name_hash))

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """The control servers that we have a control session with."""
        peers = self._links.peers.values()
        found = (it.node_id for it in peers if it.interest is not None and it.interest.serves)
        return tuple(sorted(found))[:MAX_SERVERS]

    def to_dial(self) -> Iterator[NodeId]:
        """Control servers that we want a session with, or go on having one with."""
        for node_id in self.known_servers:
            peer = self._links.peers.get(node_id)
            it = None if peer is None else peer.interest
            # Of two servers the lower dials.
            is_ours = not self._serves or self._self_id < node_id
            if is_ours and (it is None or it.serves):
                yield node_id

    def name_near(self, near: Iterable[NodeId], now: float) -> None:
        """Other nodes are near us."""
        found, before = tuple(sorted(near)), self.near
        if found == before:
            return
        self.near = found
        gone = [(it, key) for it in before if it not in found for key in self._subscribes.of(it)]
        self._unwanted.append(self._of_no_concern(iter(gone)))
        self._review(now)

    def unsubscribed(self, key: TrackKey) -> None:
        """A track is wanted here no longer: nodes near us that want it may not concern us."""
        if self.near and self.is_served:
            held = [(it, key) for it in self._subscribes.sources(key)]
            self._unwanted.append(self._of_no_concern(iter(held)))

    # -- whether we are served ---------------------------------------------------------------------

    def _review(self, now: float) -> None:
        servers = self.servers
        lists = (it.interest.servers for it in self._links.peers.values() if it.interest)
        named = set(servers).union(*lists) - {self._self_id}
        self.known_servers = () if self._is_stub else tuple(sorted(named)[:MAX_SERVERS])
        if self._may_be_served(servers) is self.is_served:
            self._turns_at = None
        elif self.is_served:
            self._turns_at = now + GRACE_S if self._turns_at is None else self._turns_at
        else:
            self._turns_at = max(now, self._again_at)
        if self._turns_at is not None and self._turns_at <= now:
            self._turn(now)
        for peer in list(self._links.peers.values()):
            self._say(peer, servers)

    def _turn(self, now: float) -> None:
        self._turns_at = None
        self.is_served = not self.is_served
        if self.is_served:
            self._unwanted.append(self._of_no_concern(self._subscribes.keys()))
            return
        self._again_at = now + AGAIN_S
        # They were told of others' subscribes by servers.
        self.untold |= dict.fromkeys(self._all.values())

    def _may_be_served(self, servers: tuple[NodeId, ...]) -> bool:
        if self._serves or self._is_stub or not servers:
            return False
        for peer in self._links.peers.values():
            if peer.control is None or peer.is_stub:
                continue
            if not peer.control.link.extended:
                return False
            it = peer.interest
            # Who has not said it yet is about to, and until then passes nothing on by us.
            if it is not None and not it.serves and not set(it.servers).intersection(servers):
                return False
        return self._is_one(servers)

    def _is_one(self, servers: tuple[NodeId, ...]) -> bool:
        """Whether servers exchange subscribes, each with each or by others of them."""
        ways: dict[NodeId, set[NodeId]] = {it: set() for it in servers}
        for node_id in servers:
            it = self._links.peers[node_id].interest
            for other in () if it is None else it.servers:
                if other in ways:
                    ways[node_id].add(other)
                    ways[other].add(node_id)
        seen, queue = {servers[0]}, [servers[0]]
        while queue:
            queue += (new := ways[queue.pop()] - seen)
            seen |= new
        return len(seen) == len(servers)

    # -- what we say -------------------------------------------------------------------------------

    def _say(self, peer: Peer, servers: tuple[NodeId, ...] | None = None) -> None:
        control = peer.control
        if self._is_stub or peer.is_stub or control is None or not control.link.extended:
            return
        wants = Wants.OFFERED if self.is_served else Wants.ALL
        if peer.interest is None:
            wants = Wants.LATER
        near = self.near if wants is Wants.OFFERED else ()
        servers = self.servers if servers is None else servers
        message = SubscribeInterest(wants, self._serves, servers, near)
        link, said = self._said.get(peer.node_id, (None, None))
        if link is control and said == message:
            return
        self._said[peer.node_id] = control, message
        self._links.send_on(control, message)
        before = Wants.LATER if said is None or link is not control else said.wants
        if wants is Wants.OFFERED and before is not wants:
            self._links.page(control, "offers", self._own_offers(), soon=True)

    def _own_offers(self) -> Iterator[Message]:
        announces = self._tracks.announces
        for info in announces.names():
            if announces.is_offered(info):  # still, after a wait for room
                yield AnnounceInfoAdv(replace(info, source_node_id=self._self_id))

    def _tell_offers(self, moved: Iterable[AnnounceInfo]) -> None:
        """Our publishers offer something, or no longer do."""
        announces = self._tracks.announces
        for info in moved if self.is_served else ():
            own = replace(info, source_node_id=self._self_id)
            added = announces.is_offered(info)
            message = AnnounceInfoAdv(own) if added else AnnounceInfoWd(own)
            key = "offer", info.namespace_hashes, info.name_hash
            for link, said in list(self._said.values()):
                if said.wants is not Wants.OFFERED:
                    continue
                if not self._links.say(link, key, message, "offers" if added else None):
                    self._links.page(link, "offers", self._own_offers())
            if not added:
                self._unwanted.append(self._of_no_concern(self._wanted_of(info)))

    # -- what is not for us any more ---------------------------------------------------------------

    def _wanted_of(self, info: AnnounceInfo) -> Iterator[tuple[NodeId, TrackKey]]:
        for key in self._tracks.matching(info, None):
            for source in self._subscribes.sources(key):
                yield source, key

    def _of_no_concern(
        self, held: Iterator[tuple[NodeId, TrackKey]]
    ) -> Iterator[tuple[NodeId, TrackKey] | None]:
        for source, key in held:
            info = None if source == self._self_id else self._subscribes.get(source, key)
            yield None if info is None or self.concerns_us(info) else (source, key)

    @property
    def unwanted(self) -> deque[Iterator[tuple[NodeId, TrackKey] | None]]:
        """Subscribes that do not concern us any more, to be forgotten."""
        return self._unwanted

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        if self._turns_at is not None and self._turns_at <= now:
            self._review(now)
        if self._tracks.announces.moved:
            self._tell_offers(self._tracks.announces.take_moved())

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return 0.0 if self._tracks.announces.moved else self._turns_at
