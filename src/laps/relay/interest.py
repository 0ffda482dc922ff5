"""Which subscribes a relay asks its peers for: control servers tell each node what concerns it.

As a route reflector of BGP sends each router the routes that it asks for, a control server tells
an Edge the subscribes to what the Edge announces, and no others; so does each of its peers. The
subscribes of its own clients an Edge tells the servers that share them, and those of others it
passes on to nobody.

It can only be so where nobody needs it for passing on. So a relay is *served* while all of this
holds, and otherwise exchanges everything with everybody, as the document says:

    it has a control session with a server, at least one
    its servers exchange subscribes, as far as it hears, each with each or by others of them
    every server that it has heard of is one of them, or exchanges subscribes with one of them
    each other control peer of it is served by one of them too

A server asks for its share, and announces to each other one what those of its peers announce that
have no session with that one. It asks for everything while it has peers that hear everything, or
while two of its servers have no session with each other.

What is asked for, SUBSCRIBE_INTEREST, is said again whenever it changes. Who asks for what is
offered announces it on the same link, as a Stub does to its Edge.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import structs

from laps.relay.concern import Concern
from laps.relay.roles import Role
from laps.relay.servers import are_all_joined, are_joined, responsible
from laps.types import format_node_id
from laps.wire.interest import MAX_SERVERS, SubscribeInterest, Wants
from laps.wire.peering import AnnounceInfoAdv, AnnounceInfoWd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.tracks.tracks import Tracks
    from laps.types import AnnounceInfo, NodeId, SubscribeInfo, TrackKey
    from laps.wire.peering import Message

# A server that is restarted is back in this time; who would not wait for it hears everything.
GRACE_S: Final = 2.0

# Whoever was without any server for a moment is not told what has ended meanwhile: after this time,
# when all others are back too, it tells servers what it has of others, and they put it right.
REGAINED_S: Final = 30.0

# Whoever has heard everything goes on for a while: servers that come and go cost no more than that.
AGAIN_S: Final = 10.0


class Interest:
    """Which subscribes one relay wants to hear of."""

    def __init__(
        self,
        self_id: NodeId,
        role: Role,
        links: Links,
        subscribes: Subscribes,
        tracks: Tracks,
        *,
        reflects: bool = False,
    ) -> None:
        """`reflects`: an operator says that we keep all subscribes and pass them on."""
        self.concern = Concern(links, subscribes, tracks)
        self.is_served = False
        "Whether we hear only what concerns us, and pass nothing on."
        self.shares = False
        "Whether we are a control server, and hear only our share."
        self.why = "there is no control server"
        "Why we are sent every subscribe, in an operator's words; empty if we need not be."
        self.near: tuple[NodeId, ...] = ()
        "Nodes whose subscribes concern us as well, to the tracks that are wanted here."
        self.known_servers: tuple[NodeId, ...] = ()
        "The control servers that anybody has named."
        self.unwanted: deque[Iterator[tuple[NodeId, TrackKey] | None]] = deque()
        "Subscribes that do not concern us any more, to be forgotten; None for each that does."
        self._self_id = self_id
        self._serves = role is Role.CONTROL
        self._reflects = reflects
        self._is_stub = role is Role.STUB
        self._links = links
        self._subscribes = subscribes
        self._tracks = tracks
        self._said: dict[NodeId, tuple[PeerLink, SubscribeInterest]] = {}
        "What each peer was told last, and on which link."
        self._moved: dict[tuple[tuple[int, ...], int], AnnounceInfo] = {}
        "What peers have begun to offer that lack a server, or offer no more."
        self._regained_at: float | None = None
        "When we tell servers what we have of others, as we had none; inf while there is none."
        self._put_right: frozenset[NodeId] = frozenset()
        "The servers that we have told."
        self._turns_at: float | None = None
        "When we turn from one to the other, unless that changes."
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
            self.concern.add_plain(peer)
        self._review(now)

    def left(self, peer: Peer, now: float) -> None:
        """A peer has no control link any more."""
        self._forget(peer)
        self._review(now)

    def _forget(self, peer: Peer) -> None:
        self._said.pop(peer.node_id, None)
        self._offers_moved(self.concern.offers.of(peer.node_id))
        self.concern.forget(peer)

    def announced(self, peer: Peer, info: AnnounceInfo, *, added: bool) -> bool:
        """A peer offers something, or no longer does; whether that has a place here."""
        if not self.concern.announced(peer, info, added=added):
            return False
        if self._lacks(peer.node_id):
            self._offers_moved((info,))
        return True

    def _offers_moved(self, infos: Iterable[AnnounceInfo]) -> None:
        if self.shares:
            self._moved |= {(it.namespace_hashes, it.name_hash): it for it in infos}

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
        before, peer.interest = peer.interest, said
        self.concern.take(peer)
        if self.shares and before is not None and before.servers != said.servers:
            held = ((peer.node_id, key) for key in self._subscribes.of(peer.node_id))
            self.unwanted.append(self._of_no_concern(held))
            self._offers_moved(self.concern.offers.of(peer.node_id))

    # -- what we hear ------------------------------------------------------------------------------

    def concerns_us(self, info: SubscribeInfo) -> bool:
        """Whether we want to hear of a subscribe of another node."""
        if not (self.is_served or self.shares):
            return True
        if self.is_said_by_source(info):
            return True
        if self.shares:
            return self._is_for_others(info)
        key = info.track_hash.full_name_hash
        return info.source_node_id in self.near and self._subscribes.holds(self._self_id, key)

    def is_said_by_source(self, info: SubscribeInfo) -> bool:
        """Whether the source of a subscribe says it to us itself, if it is a peer."""
        if self.shares:
            key, peer = info.track_hash.full_name_hash, self._links.peers.get(info.source_node_id)
            it = None if peer is None else peer.interest
            return it is not None and self._self_id in responsible(key, it.servers)
        if not self.is_served:
            return True
        parts = self.concern.parts(info)
        offered, name_hash = self._tracks.announces, info.track_hash.name_hash
        return parts is not None and bool(offered.match(parts, name_hash))

    def _is_for_others(self, info: SubscribeInfo) -> bool:
        """Whether a peer offers what is wanted that has no session with another server."""
        return any(self._lacks(it) for it in self.concern.offering(info))

    def _lacks(self, node_id: NodeId) -> bool:
        return any(self._is_lacked_by(node_id, it) for it in self.concern.servers)

    def _is_lacked_by(self, node_id: NodeId, server: NodeId) -> bool:
        """Whether a peer that is no server has no session with a server."""
        peer = self._links.peers.get(node_id)
        it = None if peer is None else peer.interest
        return it is not None and not it.serves and server not in it.servers

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
        self.unwanted.append(self._of_no_concern(iter(gone)))
        self._review(now)

    def unsubscribed(self, key: TrackKey) -> None:
        """A track is wanted here no longer: nodes near us that want it may not concern us."""
        if self.near and self.is_served:
            held = [(it, key) for it in self._subscribes.sources(key)]
            self.unwanted.append(self._of_no_concern(iter(held)))

    def speaks_of(self, source: NodeId, peer: Peer) -> bool:
        """Whether a peer hears from us what another node subscribes to, or our own."""
        is_own = source == self._self_id
        return is_own or not self.is_served or peer.node_id in self._put_right

    # -- whether we are served ---------------------------------------------------------------------

    def _review(self, now: float) -> None:
        peers = [it for it in self._links.peers.values() if it.interest is not None]
        lists = {it.node_id: it.interest.servers for it in peers if it.interest is not None}
        serving = [it.node_id for it in peers if it.interest is not None and it.interest.serves]
        servers = tuple(sorted(serving)[:MAX_SERVERS])
        if servers != self.concern.servers:
            self._note_regained(servers, now)
            self.concern.share_anew(servers)
        known = set(servers).union(*lists.values()) - {self._self_id}
        self.known_servers = () if self._is_stub else tuple(sorted(known)[:MAX_SERVERS])
        self.why = self._against(servers, lists)
        is_served, shares = not (self.why or self._serves), self._serves and not self.why
        if (is_served, shares) == (self.is_served, self.shares):
            self._turns_at = None
        elif self.is_served or self.shares:
            # What a plain peer says it says once.
            wait_s = 0.0 if self.concern.has_plain else GRACE_S
            self._turns_at = min(now + wait_s, inf if self._turns_at is None else self._turns_at)
        else:
            self._turns_at = max(now, self._again_at)
        if self._turns_at is not None and self._turns_at <= now:
            self._turn(is_served, shares, now)
        for peer in list(self._links.peers.values()):
            self._say(peer)

    def _note_regained(self, servers: tuple[NodeId, ...], now: float) -> None:
        self._put_right = frozenset()
        if self._serves:
            return  # others tell it what is so
        if not servers:
            self._regained_at = inf
        elif self._regained_at == inf:
            self._regained_at = now + REGAINED_S

    def _be_put_right(self) -> None:
        """Servers are told what we have of others, as if we passed it on."""
        self._regained_at, self._put_right = None, frozenset(self.concern.servers)
        for node_id in self._put_right if self.is_served else ():
            self.concern.untold[self._links.peers[node_id]] = ()

    def _turn(self, is_served: bool, shares: bool, now: float) -> None:
        self._turns_at = None
        self.is_served, self.shares = is_served, shares
        if is_served or shares:
            self.unwanted.append(self._of_no_concern(self._subscribes.keys()))
            return
        self._again_at = now + AGAIN_S
        # They were told of others' subscribes by servers.
        for peer in self._links.peers.values():
            if self.concern.hears_all(peer):
                self.concern.untold[peer] = ()

    def _against(self, servers: tuple[NodeId, ...], lists: dict[NodeId, tuple[NodeId, ...]]) -> str:
        """Why we hear everything, in an operator's words; empty where we need not."""
        if self._is_stub or self._reflects:
            return "a Stub speaks with its Edge" if self._is_stub else "relay.reflect is set"
        plain = [it for it in self._links.peers.values() if self._is_plain(it)]
        if plain:
            return f"{format_node_id(plain[0].node_id)} speaks the document's protocol alone"
        if self._serves:
            if (peer := self.concern.passing_on) is not None:
                return f"{format_node_id(peer.node_id)} hears everything"
            return "" if are_all_joined(servers, lists) else "two servers have no session"
        if not servers:
            return "there is no control server"
        for node_id, named in lists.items():
            if node_id not in servers and not set(named).intersection(servers):
                return f"{format_node_id(node_id)} is served by none of our control servers"
        reached = set(servers).union(*(lists[it] for it in servers))
        for node_id in self.known_servers:
            if node_id not in reached:
                return f"none of our control servers has a session with {format_node_id(node_id)}"
        return "" if are_joined(servers, lists) else "our control servers have no sessions"

    def _is_plain(self, peer: Peer) -> bool:
        control = peer.control
        return control is not None and not control.link.extended and not peer.is_stub

    # -- what we say -------------------------------------------------------------------------------

    def wants_of(self, peer: Peer) -> Wants:
        """What we ask a peer for."""
        if peer.interest is None:
            return Wants.LATER
        if self.shares and not peer.interest.serves:
            return Wants.SHARE
        return Wants.OFFERED if self.shares or self.is_served else Wants.ALL

    def _say(self, peer: Peer) -> None:
        control = peer.control
        if self._is_stub or peer.is_stub or control is None or not control.link.extended:
            return
        wants = self.wants_of(peer)
        near = self.near if wants is Wants.OFFERED else ()
        message = SubscribeInterest(
            wants, self._serves, self.concern.servers, near, peer.owes_digest
        )
        link, said = self._said.get(peer.node_id, (None, None))
        if said is not None and link is control and _says_the_same(said, message):
            return
        self._said[peer.node_id] = control, message
        self._links.send_on(control, message)
        before = Wants.LATER if said is None or link is not control else said.wants
        if wants is Wants.OFFERED and before is not wants:
            self._links.page(control, "offers", self._offers_for(peer.node_id), soon=True)

    def _offers_for(self, node_id: NodeId) -> Iterator[Message]:
        """What we announce to a peer: what is offered here, and by peers that it has none of."""
        for info in chain(self._tracks.announces.names(), self.concern.offers.names()):
            if self._announces(node_id, info):  # still, after a wait for room
                yield AnnounceInfoAdv(replace(info, source_node_id=self._self_id))

    def _announces(self, node_id: NodeId, info: AnnounceInfo) -> bool:
        if self._tracks.announces.is_offered(info):
            return True
        offering = self.concern.offers.offering(info) if self.shares else ()
        return any(self._is_lacked_by(it, node_id) for it in offering)

    def _tell_offers(self, moved: Iterable[AnnounceInfo]) -> None:
        """Somebody offers something, or no longer does."""
        for info in moved if self.is_served or self.shares else ():
            for node_id, (link, said) in list(self._said.items()):
                if said.wants is Wants.OFFERED:
                    self._tell_offer(node_id, link, info)
            self.unwanted.append(self._of_no_concern(self._wanted_of(info)))

    def _tell_offer(self, node_id: NodeId, link: PeerLink, info: AnnounceInfo) -> None:
        own = replace(info, source_node_id=self._self_id)
        added = self._announces(node_id, info)
        message = AnnounceInfoAdv(own) if added else AnnounceInfoWd(own)
        key = "offer", info.namespace_hashes, info.name_hash
        if not self._links.say(link, key, message, "offers" if added else None):
            self._links.page(link, "offers", self._offers_for(node_id))

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

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        if self._turns_at is not None and self._turns_at <= now:
            self._review(now)
        if self._regained_at is not None and self._regained_at <= now:
            self._be_put_right()
        if self._tracks.announces.moved:
            self._tell_offers(self._tracks.announces.take_moved())
        if self._moved:
            moved, self._moved = self._moved, {}
            self._tell_offers(moved.values())

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._moved or self._tracks.announces.moved:
            return 0.0
        due = [at for at in (self._turns_at, self._regained_at) if at is not None and at < inf]
        return min(due, default=None)


def _says_the_same(said: SubscribeInterest, message: SubscribeInterest) -> bool:
    """Whether it need not be said again: that the digest has been sent is seen anyway."""
    return structs.replace(message, digests=said.digests) == said
