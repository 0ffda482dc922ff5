"""Subscribes: what this relay says of its own, and what it makes of what it hears.

An s-relay's word counts by its sequence number. Beyond that:

- A node that is back has some seconds to say what it still subscribes to. Its neighbour, to whom it
  says so first, withdraws the rest on its behalf.
- A relay that hears something untrue about itself says what is true, with a higher number.
- What is said of a node that nobody has told us of is kept for a while; the node may follow.

Whatever changes who wants a track ends in `review`, which does what the track's change asks for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.infobase.subscribes import SeenSubscribes
from laps.relay.stub import StubClient
from laps.types import SubscribeInfo, next_sequence
from laps.wire.peering import AnnounceInfoAdv, AnnounceInfoWd, SubscribeInfoAdv, SubscribeInfoWd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.exchange import Exchange
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.reach import Reach
    from laps.relay.settings import RelaySettings
    from laps.relay.timers import Timers
    from laps.tracks.ports import Client
    from laps.tracks.subscription import Subscription
    from laps.tracks.tracks import Tracks
    from laps.types import AnnounceInfo, NodeId, TrackHash, TrackKey
    from laps.wire.peering import Message


class SubscribeExchange:
    """The subscribes of one relay, its own and others'."""

    def __init__(
        self,
        self_id: NodeId,
        settings: RelaySettings,
        nodes: Nodes,
        subscribes: Subscribes,
        tracks: Tracks,
        exchange: Exchange,
        links: Links,
        reach: Reach,
        timers: Timers,
        epoch: int,
        *,
        is_stub: bool,
        keeps: bool,
        own: frozenset[TrackKey] = frozenset(),
    ) -> None:
        """`keeps` is whether others' subscribes are held, or only passed on.

        Those of `own` tracks are held in any case: a relay publishes them itself.
        """
        self.parent: Peer | None = None
        "The Edge that a Stub speaks with."
        self._self_id = self_id
        self._settings = settings
        self._nodes = nodes
        self._subscribes = subscribes
        self._tracks = tracks
        self._exchange = exchange
        self._links = links
        self._reach = reach
        self._timers = timers
        self._epoch = epoch
        self._is_stub = is_stub
        self._keeps = keeps
        self._own = own
        self._seen = SeenSubscribes()
        self._orphans: dict[NodeId, float] = {}

    # -- the Edge of a Stub ------------------------------------------------------------------------

    def adopt_parent(self, peers: Iterable[Peer]) -> Peer | None:
        """A Stub speaks with one Edge at a time, the nearest, so that nothing comes twice."""
        able = [peer for peer in peers if peer.control is not None]
        self.parent = min(able, key=lambda peer: (peer.control_srtt_us, peer.node_id), default=None)
        for _, announce in self._tracks.announces:
            self._tell_parent(AnnounceInfoAdv(replace(announce, source_node_id=self._self_id)))
        for info in self._subscribes.of_source(self._self_id):
            self._tell_parent(SubscribeInfoAdv(info))
        return self.parent

    def announced(self, info: AnnounceInfo, *, added: bool) -> None:
        """Tell the Edge what our publishers offer, or no longer do."""
        own = replace(info, source_node_id=self._self_id)
        self._tell_parent(AnnounceInfoAdv(own) if added else AnnounceInfoWd(own))

    def _tell_parent(self, message: Message) -> None:
        if self.parent is not None:
            self._links.send(self.parent, message)

    # -- publishers --------------------------------------------------------------------------------

    def review(self, key: TrackKey, now: float) -> None:
        """Somebody who wants or offers a track came or left: do what follows from it."""
        change = self._tracks.review(key, now)
        track = change.track
        if track is None:
            return
        self._links.send_sns(change.sns)
        for client, node_id in change.joined:
            self._reach.catch_up(track, client, node_id, now)
        for publication in change.ask:
            publication.publisher.subscribe(track.hash, track.subscribe_data)
        for publication in change.release:
            publication.publisher.unsubscribe(track.hash)
        for info in change.unannounced:
            self.announced(info, added=False)

    def review_all(self, keys: Iterable[TrackKey], now: float) -> None:
        """Somebody who offers tracks came or left."""
        for key in keys:
            self.review(key, now)

    # -- our own -----------------------------------------------------------------------------------

    def subscribe(
        self,
        client: Client,
        track: TrackHash,
        subscribe_data: bytes,
        now: float,
        subscription: Subscription | None = None,
    ) -> None:
        """A client wants a track; the network hears of it if it is the first here."""
        first = self._tracks.subscribe(client, track, subscribe_data, now, subscription)
        found = self._tracks.track(track, now)
        stays, found.leaving_at = found.leaving_at is not None, None
        data = found.subscribe_data
        self.review(track.full_name_hash, now)
        if first and not stays:
            sequence = self._next_sequence(track.full_name_hash, now)
            info = SubscribeInfo(sequence, self._self_id, track, data)
            if self._subscribes.add(info, now) is not None:
                self._tell(info, added=True, heard_from=None)

    def unsubscribe(self, client: Client, track: TrackHash, now: float) -> None:
        """A client no longer wants a track; the network hears of it a little later."""
        if isinstance(client, StubClient):
            client.forget(track)
        if not self._tracks.unsubscribe(client, track):
            return
        found = self._tracks.track(track, now)
        # Its streams go on while the network still sends them, for whoever comes back.
        at = found.leaving_at = now + self._settings.unsubscribe_s
        self.review(track.full_name_hash, now)

        def leave(now: float) -> None:
            if found.leaving_at == at:
                found.leaving_at = None
                self._withdraw(track, now)

        self._timers.at(at, leave)

    def withdraw_all(self, now: float) -> None:
        """We are leaving."""
        for info in list(self._subscribes.of_source(self._self_id)):
            self._withdraw(info.track_hash, now)

    def _withdraw(self, track: TrackHash, now: float) -> None:
        held = self._subscribes.get(self._self_id, track.full_name_hash)
        if held is None:
            return
        info = replace(held, sequence=self._next_sequence(track.full_name_hash, now))
        if self._subscribes.withdraw(info, now) is not None:
            self._tell(info, added=False, heard_from=None)

    def _next_sequence(self, key: TrackKey, now: float) -> int:
        """After the last one sent, or, when that is forgotten, after any sent before a restart."""
        last = self._subscribes.sequence(self._self_id, key)
        return next_sequence(last, self._epoch + int(now))

    # -- others' -----------------------------------------------------------------------------------

    def receive(
        self,
        peer_link: PeerLink,
        peer: Peer,
        info: SubscribeInfo,
        stub: StubClient | None,
        *,
        added: bool,
        now: float,
    ) -> None:
        """Subscribe information, or its withdrawal, has arrived."""
        key = info.track_hash.full_name_hash
        if stub is not None:
            # The Edge subscribes in its own name: nobody else knows of the Stub.
            if added:
                self._stub_subscribes(stub, info, now)
            else:
                self.unsubscribe(stub, info.track_hash, now)
        elif info.source_node_id == self._self_id:
            self._correct(info, added=added, now=now)
        elif self._keeps or self._is_stub or key in self._own:
            if added and info.source_node_id == peer.node_id:
                peer_link.confirmed.add(key)
            self._take(info, added=added, heard_from=peer, now=now)
        elif not self._seen.seen(info, now):
            self._exchange.flood(info, added=added, heard_from=peer, stateless=True)

    def _stub_subscribes(self, stub: StubClient, info: SubscribeInfo, now: float) -> None:
        track = self._tracks.get(info.track_hash.full_name_hash)
        joins = track is None or stub not in track.subscribers
        self.subscribe(stub, info.track_hash, bytes(info.subscribe_data), now)
        if joins:
            self._reach.join_stub(stub, info.track_hash, now)

    def begin_confirming(self, peer: Peer, now: float) -> None:
        """A peer is there, or there again: it is about to say what it subscribes to."""
        if not self._keeps and next(self._subscribes.of_source(peer.node_id), None) is None:
            return
        confirmed: set[TrackKey] = set()
        peer.confirmed = confirmed
        at = now + self._settings.confirm_s
        self._timers.at(at, lambda now: self._confirm(peer, confirmed, now))

    def node_known(self, node_id: NodeId) -> None:
        """A way to a node is known."""
        self._orphans.pop(node_id, None)

    def purge(self, node_id: NodeId, now: float) -> None:
        """No way leads to a node any more, so nothing can be sent to its subscribers."""
        self._seen.purge_source(node_id)
        for info in self._subscribes.purge_source(node_id):
            self.review(info.track_hash.full_name_hash, now)

    def tick(self, now: float) -> None:
        """Forget what has outlived its time."""
        self._subscribes.expire(now)
        for node_id in [node_id for node_id, at in self._orphans.items() if at <= now]:
            del self._orphans[node_id]
            if self._nodes.best(node_id) is None:
                self.purge(node_id, now)

    def deadline(self) -> float | None:
        """When `tick` is needed."""
        due = [self._subscribes.next_expiry, min(self._orphans.values(), default=None)]
        return min((at for at in due if at is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a node."""
        return not self._orphans

    def _take(self, info: SubscribeInfo, *, added: bool, heard_from: Peer, now: float) -> None:
        take = self._subscribes.add if added else self._subscribes.withdraw
        change = take(info, now)
        if change is None:
            return
        source = info.source_node_id
        if added and self._nodes.best(source) is None:
            self._orphans.setdefault(source, now + self._settings.orphan_s)
        if not self._is_stub:
            self._tell(change.info, added=added, heard_from=heard_from)
        self.review(info.track_hash.full_name_hash, now)

    def _confirm(self, peer: Peer, confirmed: set[TrackKey], now: float) -> None:
        """What a node no longer says, some time after it came, is withdrawn on its behalf."""
        if peer.confirmed is not confirmed:
            return
        peer.confirmed = None
        for info in list(self._subscribes.of_source(peer.node_id)):
            key = info.track_hash.full_name_hash
            if not any(key in peer_link.confirmed for peer_link in peer.links.values()):
                gone = replace(info, sequence=(info.sequence + 1) & 0xFFFF)
                self._take(gone, added=False, heard_from=peer, now=now)

    def _correct(self, info: SubscribeInfo, *, added: bool, now: float) -> None:
        """Somebody speaks of our own subscribes: if it is not so, say what is."""
        held = self._subscribes.get(self._self_id, info.track_hash.full_name_hash)
        if (held is not None) == added:
            return
        said = replace(info, sequence=(info.sequence + 1) & 0xFFFF)
        if held is None:
            self._exchange.flood(said, added=False, heard_from=None)
        else:
            truth = replace(held, sequence=said.sequence)
            if self._subscribes.add(truth, now) is not None:
                self._tell(truth, added=True, heard_from=None)

    def _tell(self, info: SubscribeInfo, *, added: bool, heard_from: Peer | None) -> None:
        if not self._is_stub:
            self._exchange.flood(info, added=added, heard_from=heard_from)
        else:
            self._tell_parent(SubscribeInfoAdv(info) if added else SubscribeInfoWd(info))
