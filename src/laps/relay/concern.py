"""Whom a subscribe concerns: the peers of one relay that want to hear of it.

wants      of a peer that                           is told
ALL        speaks plain `laps`, or has to pass on   of every subscribe
SHARE      is a control server                      of those that it is responsible for
OFFERED    is served by control servers, or is      of those to what it announces, and of those
           one and announces for its own peers      of nodes near it to what it wants itself
LATER      has not heard yet whom it speaks to      of none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import InvalidEncoding
from laps.infobase.announces import Announces
from laps.relay.servers import responsible
from laps.types import hash_bytes, hash_track
from laps.wire.interest import Wants
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.peers import Links, Peer
    from laps.tracks.tracks import Tracks
    from laps.types import AnnounceInfo, NodeId, SubscribeInfo, TrackKey


class Concern:
    """What the peers of one relay want to hear of."""

    def __init__(self, links: Links, subscribes: Subscribes, tracks: Tracks) -> None:
        self.servers: tuple[NodeId, ...] = ()
        "The control servers that we have a control session with, which share what we tell them."
        self.offers: Announces[NodeId] = Announces()
        "What peers announce that hear of what is offered."
        self._links = links
        self._subscribes = subscribes
        self._tracks = tracks
        self._all: dict[NodeId, Peer] = {}
        self._sharing: dict[NodeId, Peer] = {}
        self._near_of: dict[NodeId, dict[NodeId, None]] = {}
        "By node: the peers that name it as near."
        self.untold: dict[Peer, Collection[NodeId]] = {}
        "Peers that hear of more from now on, and the servers that shared with them before."
        self.nearer: dict[Peer, tuple[NodeId, ...]] = {}
        "Peers that have named more nodes as near, until they are told of their subscribes."

    # -- what peers want ---------------------------------------------------------------------------

    def add_plain(self, peer: Peer) -> None:
        """A peer that cannot say what it wants: everything, as the document has it."""
        self._all[peer.node_id] = peer

    def forget(self, peer: Peer) -> None:
        """A peer is gone, or begins anew: nothing that it has said holds."""
        self._all.pop(peer.node_id, None)
        self._sharing.pop(peer.node_id, None)
        self.untold.pop(peer, None)
        self._set_near(peer, ())
        self.offers.drop_origin(peer.node_id)
        peer.unmatched.clear()
        peer.interest = None
        peer.awaits_digest = False

    def take(self, peer: Peer) -> None:
        """What a peer wants is another than before."""
        said, node_id = peer.interest, peer.node_id
        if said is None:
            return
        told = node_id in self._all or (node_id in self._sharing and said.wants is Wants.SHARE)
        for wants, peers in ((Wants.ALL, self._all), (Wants.SHARE, self._sharing)):
            if said.wants is wants:
                peers[node_id] = peer
            else:
                peers.pop(node_id, None)
        if said.wants is Wants.OFFERED or said.wants is Wants.LATER:
            self.untold.pop(peer, None)
        elif not told:
            self.untold[peer] = ()
            peer.awaits_digest = said.digests
        if said.wants is not Wants.OFFERED:
            self.offers.drop_origin(node_id)
            peer.unmatched.clear()
        self._set_near(peer, said.near if said.wants is Wants.OFFERED else ())

    def share_anew(self, servers: tuple[NodeId, ...]) -> None:
        """Other servers share what we tell them: each is told what it has not been told yet."""
        before, self.servers = self.servers, servers
        for peer in self._sharing.values():
            self.untold[peer] = () if peer in self.untold else before

    def announced(self, peer: Peer, info: AnnounceInfo, *, added: bool) -> bool:
        """A peer offers something, or no longer does; whether that has a place here."""
        if info.source_node_id != peer.node_id or not self.hears_some(peer):
            return False
        names = info.namespace_hashes, info.name_hash
        if not added:
            self.offers.withdraw(peer.node_id, info)
            peer.unmatched.pop(names, None)
        elif self.offers.add(peer.node_id, info) is not None:
            peer.unmatched[names] = info
        return True

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

    # -- whom it concerns --------------------------------------------------------------------------

    def hears_all(self, peer: Peer) -> bool:
        """Whether a peer is told of subscribes one node after another, all or its share."""
        return peer.node_id in self._all or peer.node_id in self._sharing

    def hears_some(self, peer: Peer) -> bool:
        """Whether a peer is told of what it announces."""
        return peer.interest is not None and peer.interest.wants is Wants.OFFERED

    @property
    def has_plain(self) -> bool:
        """Whether a peer speaks the document's protocol alone."""
        return any(it.interest is None for it in self._all.values())

    @property
    def passing_on(self) -> Peer | None:
        """A peer that is no server and wants everything, as it has to pass it on."""
        peers = self._all.values()
        return next((it for it in peers if it.interest is None or not it.interest.serves), None)

    def is_shared_with(
        self, peer: Peer, key: TrackKey, before: Collection[NodeId] | None = None
    ) -> bool:
        """Whether a peer hears of a track by its share; and did not among the servers `before`."""
        if peer.node_id in self._all:
            return True
        is_told = before is not None and peer.node_id in responsible(key, before)
        return not is_told and peer.node_id in responsible(key, self.servers)

    def concerned(self, info: SubscribeInfo) -> dict[NodeId, Peer]:
        """The peers that a subscribe concerns, or its end; its source is none of them."""
        found, peers = dict(self._all), self._links.peers
        key, source = info.track_hash.full_name_hash, info.source_node_id
        if self._sharing:
            shared = responsible(key, self.servers)
            found |= {it: self._sharing[it] for it in shared if it in self._sharing}
        if len(self.offers):
            found |= {it: peers[it] for it in self.offering(info)}
        for node_id in self._near_of.get(source, ()):
            if self._subscribes.holds(node_id, key):
                found[node_id] = peers[node_id]
        found.pop(source, None)
        return found

    def offering(self, info: SubscribeInfo) -> list[NodeId]:
        """The peers that announce what a subscribe is to."""
        parts = self.parts(info)
        return [] if parts is None else self.offers.match(parts, info.track_hash.name_hash)

    def matching(self, peer: Peer) -> Iterator[tuple[NodeId, TrackKey]]:
        """What is wanted of that which a peer has announced lately, as long as it does so."""
        while peer.unmatched:
            names = next(iter(peer.unmatched))
            announce = peer.unmatched.pop(names)
            for key in self._tracks.matching(announce, None):
                for source in self._subscribes.sources(key):
                    yield source, key

    def of_near(self, info: SubscribeInfo) -> Iterator[SubscribeInfo]:
        """The subscribes of nodes near the source of one, to the same track."""
        peer = self._links.peers.get(info.source_node_id)
        for node_id in () if peer is None else peer.near:
            held = self._subscribes.get(node_id, info.track_hash.full_name_hash)
            if held is not None:
                yield held

    def parts(self, info: SubscribeInfo) -> tuple[int, ...] | None:
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
