"""Subscribes: what this relay says of its own, and what it makes of what it hears.

An s-relay's word counts by its sequence number. Beyond that:

- A node that is back has some seconds to say what it still subscribes to. Its neighbour, to whom it
  says so first, withdraws the rest on its behalf.
- A relay that receives something untrue or newer about itself sends what is true, with a higher
  number. So it reaches a relay again whose numbers began anew at a restart: whoever receives a
  word that is older than the one held answers with that.
- What is said of a node that nobody has told us of is kept for a while; the node may follow.

Whatever changes who wants a track ends in `review`, which does what the track's change asks for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from laps.infobase.subscribes import SeenSubscribes
from laps.relay.confirming import Confirming
from laps.relay.parent import Parent
from laps.relay.pieces import MOST_IN_A_TURN, in_pieces
from laps.relay.stub import StubClient
from laps.tracks.publication import NewGroupWanted
from laps.types import SubscribeInfo, next_sequence, sequence_newer
from laps.wire.moqt.carried_subscribe import carried_subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.corrections import Corrections
    from laps.relay.exchange import Exchange
    from laps.relay.interest import Interest
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.reach import Reach
    from laps.relay.refusals import Refused
    from laps.relay.scope import Scope
    from laps.relay.sets import Sets
    from laps.relay.settings import RelaySettings
    from laps.relay.stub_refusals import StubRefusals
    from laps.relay.timers import Timers
    from laps.tracks.ports import Client
    from laps.tracks.subscription import Subscription
    from laps.tracks.track import Track
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, TrackHash, TrackKey


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
        sets: Sets,
        timers: Timers,
        corrections: Corrections,
        scope: Scope,
        interest: Interest,
        refused: Refused,
        stub_refusals: StubRefusals,
        epoch: int,
        *,
        is_stub: bool,
        keeps: bool,
        own: frozenset[TrackKey] = frozenset(),
    ) -> None:
        """`keeps`: others' subscribes are held, and not only passed on; of `own` tracks always."""
        self.parent = Parent(self_id, subscribes, tracks, links, reach, settings.repair_s)
        self._self_id = self_id
        self._settings = settings
        self._nodes = nodes
        self._subscribes = subscribes
        self._tracks = tracks
        self._exchange = exchange
        self._links = links
        self._reach = reach
        self._sets = sets
        self._timers = timers
        self._corrections = corrections
        self._scope = scope
        self._interest = interest
        self._refused = refused
        self._stub_refusals = stub_refusals
        self._epoch = epoch
        self.is_stub = is_stub
        self._keeps = keeps
        self._own = own
        self._seen = SeenSubscribes()
        self._orphans: dict[NodeId, float] = {}
        "Until when what nodes want is kept that nobody has told us of; the first is the next due."
        self._reviews: deque[Iterator[TrackKey | None]] = deque()
        "Tracks whose publishers came or left, to be reviewed."
        self._confirming = Confirming(settings.confirm_s, subscribes, links, interest, timers)
        self._known: deque[Iterator[tuple[Track, Client, NodeId] | None]] = deque()
        "What nodes want that were told of after their subscribes."

    # -- what is known ---------------------------------------------------------------------------

    def is_known(self, node_id: NodeId, key: TrackKey) -> bool:
        """Whether it has come here that a node subscribes to a track."""
        return self._subscribes.holds(node_id, key)

    def sequence(self, node_id: NodeId, key: TrackKey) -> int | None:
        """The last sequence of a node's subscribe, as far as it is remembered."""
        held = self._subscribes.sequence(node_id, key)
        return self._seen.sequence(node_id, key) if held is None else held

    def may_ask(self, node_id: NodeId) -> bool:
        """Whether a node may be asked for what is missing: a Stub asks its Edge, and no other."""
        parent = self.parent.peer
        return not self.is_stub or (parent is not None and parent.node_id == node_id)

    # -- publishers --------------------------------------------------------------------------------

    def review(self, key: TrackKey, now: float) -> None:
        """Somebody who wants or offers a track came or left: do what follows from it."""
        change = self._tracks.review(key, now)
        track = change.track
        if track is None:
            return
        self._links.send_sns(change.sns)
        self._sets.changed(now)
        for client, node_id in change.joined:
            self._reach.catch_up(track, client, node_id, now)
        for publication in change.ask:
            publication.publisher.subscribe(track.hash, track.subscribe_data)
        for publication in change.release:
            publication.publisher.unsubscribe(track.hash)
        for info in change.unannounced:
            self.parent.announced(info, added=False)

    def review_all(self, keys: Iterable[TrackKey | None], now: float) -> None:
        """Somebody who offers tracks came or left; a great many of them are left for later.

        In place of a track that is not concerned stands None.
        """
        self._reviews.append(iter(keys))
        if len(self._reviews) == 1:
            self._review_some(now)

    def _review_some(self, now: float) -> None:
        for key in in_pieces(self._reviews):
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
        found = self._tracks.track(track, now)
        again = client in found.subscribers
        first = self._tracks.subscribe(client, track, subscribe_data, now, subscription)
        stays, found.leaving_at = found.leaving_at is not None, None
        data = found.subscribe_data
        self.review(track.full_name_hash, now)
        if first and not stays:
            sequence = self._next_sequence(track.full_name_hash, now)
            info = SubscribeInfo(sequence, self._self_id, track, data)
            if self._subscribes.add(info, now) is not None:
                self._tracks.noted(track, data)
                self._scope.born(info)
                self._tell(info, added=True)
        elif again:
            self._asks_again(track, subscribe_data, now)

    def _asks_again(self, track: TrackHash, subscribe_data: bytes, now: float) -> None:
        """A subscriber wants something else of a track that it has: the network hears of it."""
        held = self._subscribes.get(self._self_id, track.full_name_hash)
        if held is None or held.subscribe_data == subscribe_data:
            return
        sequence = self._next_sequence(track.full_name_hash, now)
        info = replace(held, sequence=sequence, subscribe_data=subscribe_data)
        if self._subscribes.add(info, now) is not None:
            self._tell(info, added=True)
            self._pass_on(info)

    def _pass_on(self, info: SubscribeInfo) -> None:
        """What a subscriber elsewhere asks of publishers here that send already."""
        track = self._tracks.get(info.track_hash.full_name_hash)
        asked = [] if track is None else [it for it in track.publishers.values() if it.wanted]
        if track is None or not asked:
            return
        request = carried_subscribe(info.subscribe_data)
        if request is None or request.new_group is None:
            return
        self._tracks.events.append(NewGroupWanted(track.key, request.new_group))
        for publication in asked:
            if isinstance(publication.publisher, StubClient):
                publication.publisher.subscribe(track.hash, bytes(info.subscribe_data))

    def client_closed(self, client: Client, now: float) -> None:
        """A client has left, with all it offered and wanted; what follows is left for later."""
        if isinstance(client, StubClient):
            self._stub_refusals.closed(client)
        tracks = self._tracks.subscribed(client)
        left = [track for track in tracks if self._leave(client, track, now)]
        self.review_all((track.full_name_hash for track in left), now)
        dropped, keys = self._tracks.drop_publisher(client)
        self.review_all(keys, now)
        for info in dropped if self.is_stub else ():
            self.parent.announced(info, added=False)

    def unsubscribe(self, client: Client, track: TrackHash, now: float) -> None:
        """A client no longer wants a track; the network hears of it a little later."""
        if self._leave(client, track, now):
            self.review(track.full_name_hash, now)

    def _leave(self, client: Client, track: TrackHash, now: float) -> bool:
        """Whether the client was the last here to want a track."""
        if isinstance(client, StubClient):
            client.forget(track)
            self._reach.leave(client.peer.node_id, track.full_name_hash, now)
        if not self._tracks.unsubscribe(client, track):
            return False
        found = self._tracks.track(track, now)
        # Its streams go on while the network still sends them, for whoever comes back.
        at = found.leaving_at = now + self._settings.unsubscribe_s

        def leave(now: float) -> None:
            if found.leaving_at == at:
                found.leaving_at = None
                self._withdraw(track, now)
                self._tracks.forget(track.full_name_hash, now)

        self._timers.at(at, leave)
        return True

    def withdraw_all(self, now: float) -> None:
        """We are leaving."""
        for info in list(self._subscribes.of_source(self._self_id)):
            self._withdraw(info.track_hash, now)

    def _withdraw(self, track: TrackHash, now: float) -> None:
        if (held := self._subscribes.get(self._self_id, track.full_name_hash)) is None:
            return
        info = replace(held, sequence=self._next_sequence(track.full_name_hash, now))
        if self._subscribes.withdraw(info, now) is not None:
            self._tracks.noted(track, b"")
            self._tell(info, added=False)
            self._scope.ended(info)
            self._interest.unsubscribed(track.full_name_hash)
            self._refused.unwanted(track.full_name_hash)

    def _next_sequence(self, key: TrackKey, now: float) -> int:
        """After the last one sent, or, when that is forgotten, after any sent before a restart."""
        return next_sequence(self._subscribes.sequence(self._self_id, key), self._epoch + int(now))

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
                self._stub_refusals.left(stub, key)
                self.unsubscribe(stub, info.track_hash, now)
        elif info.source_node_id == self._self_id:
            self._correct(info, added=added, now=now)
        elif not self._scope.hears(info, added=added) or self._is_no_concern(info, added=added):
            return
        elif self._holds(key):
            if info.source_node_id == peer.node_id:
                self._confirming.note(peer_link, peer, key, added=added, now=now)
            self._take(info, added=added, heard_from=peer, now=now)
        else:
            known = self._seen.sequence(info.source_node_id, key) is not None
            if not self._seen.seen(info, now):
                flood = self._exchange.flood
                flood(info, added=added, heard_from=peer, known=known, stateless=True)

    def _holds(self, key: TrackKey) -> bool:
        """Whether others' subscribes to a track are held, and not only passed on."""
        return self._keeps or self.is_stub or key in self._own

    def _is_no_concern(self, info: SubscribeInfo, *, added: bool) -> bool:
        """Whether it is no concern of ours: it was on its way when we said so."""
        if not (self._interest.is_served or self._interest.shares):
            return False
        # A server that was told of its end alone has those hear of it that were told by another;
        # and so that an older word which another still sends does not bring it back, it counts.
        if not added and self._subscribes.holds(
            info.source_node_id, info.track_hash.full_name_hash
        ):
            return False
        return not self._interest.concerns_us(info)

    def _hear_more(self, now: float) -> None:
        """Policy lets us hear what it kept from us, or Stubs have what it kept from them."""
        for info in self._scope.heard_now() if self._scope.hears_more else ():
            if self._holds(info.track_hash.full_name_hash):
                self._take(info, added=True, heard_from=None, now=now)
            elif not self._seen.seen(info, now):
                self._exchange.flood(info, added=True, heard_from=None, stateless=True)
        for stub, info in self._stub_refusals.review() if self._stub_refusals.is_stale else ():
            self._stub_subscribes(stub, info, now)

    def _stub_subscribes(self, stub: StubClient, info: SubscribeInfo, now: float) -> None:
        if self._stub_refusals.keeps(stub, info, now):
            self.unsubscribe(stub, info.track_hash, now)
            return
        track = self._tracks.get(info.track_hash.full_name_hash)
        joins = track is None or stub not in track.subscribers
        self.subscribe(stub, info.track_hash, bytes(info.subscribe_data), now)
        if joins:
            # What was repaired for somebody before says nothing of the time since.
            self._tracks.track(info.track_hash, now).repaired_since = None
            self._reach.join_stub(stub, info.track_hash, now)

    def begin_confirming(self, peer: Peer, now: float) -> None:
        """A peer is there, or there again: it is about to say what it subscribes to."""
        if self._keeps or next(self._subscribes.of_source(peer.node_id), None) is not None:
            self._confirming.begin(peer, now)

    def node_known(self, node_id: NodeId, now: float) -> None:
        """A way to a node is known; where its subscribes came first, open streams wait for it."""
        self._reach.met(node_id, now)
        if self._orphans.pop(node_id, None) is not None:
            self._known.append(self._published_for(node_id))
            self._catch_up(now)

    def _published_for(self, node_id: NodeId) -> Iterator[tuple[Track, Client, NodeId] | None]:
        """The tracks that a node wants and publishers here send; None for each other."""
        for key in self._subscribes.of(node_id):
            track = self._tracks.get(key)
            for client in () if track is None else list(track.publishers):
                if track is not None:
                    yield track, client, node_id
            yield None

    def _catch_up(self, now: float) -> None:
        for track, client, node_id in in_pieces(self._known):
            self._reach.catch_up(track, client, node_id, now)

    def purge(self, node_id: NodeId, now: float) -> None:
        """No way leads to a node any more, so nothing can be sent to its subscribers."""
        self._reach.lost(node_id)
        self._seen.purge_source(node_id)
        self._subscribes.purge_source(node_id)
        self._scope.purge(node_id)
        self._refused.purge(node_id)

    def forget(self, now: float) -> None:
        """Do what follows for the tracks of nodes that are gone, for some of them."""
        for node_id, track in self._subscribes.purged(MOST_IN_A_TURN):
            self._reach.leave(node_id, track.full_name_hash, now)
            self._tracks.noted(track, b"")
            self.review(track.full_name_hash, now)

    def _forget_unwanted(self, now: float) -> None:
        """Hold no longer what does not concern us any more: whoever said it goes on wanting it."""
        for source, key in in_pieces(self._interest.unwanted):
            held = self._subscribes.get(source, key)
            if held is None:
                continue
            self._subscribes.forget(source, key)
            self._confirming.forget(self._links.peers.get(source), key)
            self._reach.leave(source, key, now)
            self._refused.left(source, key)
            self._tracks.noted(held.track_hash, b"")
            self._scope.ended(held)
            self.review(key, now)

    def tick(self, now: float) -> None:
        """Forget what has outlived its time."""
        self._subscribes.expire(now)
        for node_id in list(islice(self._orphans, MOST_IN_A_TURN)):
            if self._orphans[node_id] > now:
                break
            del self._orphans[node_id]
            if self._nodes.best(node_id) is None:
                self.purge(node_id, now)
        self.forget(now)
        self._hear_more(now)
        self._forget_unwanted(now)
        self._review_some(now)
        self._withdraw_unconfirmed(now)
        self._catch_up(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        todo = self._reviews or self._confirming.unsaid or self._known or self._interest.unwanted
        if todo or self._subscribes.is_purging:
            return 0.0  # as `_is_busy`, which is asked less often
        if self._scope.hears_more or self._stub_refusals.is_stale:
            return 0.0
        due = self._subscribes.next_expiry
        if not self._orphans:
            return due
        orphan = next(iter(self._orphans.values()))
        return orphan if due is None else min(due, orphan)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a node, or is left to do."""
        return not (self._orphans or self._is_busy)

    @property
    def _is_busy(self) -> bool:
        todo = self._reviews or self._confirming.unsaid or self._known or self._interest.unwanted
        return bool(todo or self._subscribes.is_purging)

    def _take(
        self, info: SubscribeInfo, *, added: bool, heard_from: Peer | None, now: float
    ) -> None:
        source, key = info.source_node_id, info.track_hash.full_name_hash
        known = self._subscribes.sequence(source, key) is not None
        again = added and self._subscribes.holds(source, key)
        take = self._subscribes.add if added else self._subscribes.withdraw
        change = take(info, now)
        if change is None:
            if heard_from is not None and not self.is_stub:
                self._exchange.answer(heard_from, info, added=added)
            return
        if added and self._nodes.best(source) is None:
            self._orphans.setdefault(source, now + self._settings.orphan_s)
        if not added:
            self._reach.leave(source, key, now)
            self._refused.left(source, key)
        self._tracks.noted(info.track_hash, info.subscribe_data)
        if added and not again:
            self._scope.born(change.info)
        if not self.is_stub:
            self._exchange.flood(change.info, added=added, heard_from=heard_from, known=known)
        if not added:
            self._scope.ended(change.info)
        self.review(key, now)
        if again:
            self._joins_again(info, now)
        if added:
            self._pass_on(info)

    def _joins_again(self, info: SubscribeInfo, now: float) -> None:
        """A node subscribes to what it is held to have: it may have been restarted meanwhile.

        Of streams that began before it said so it has nothing, though it was sent them.
        """
        track = self._tracks.get(info.track_hash.full_name_hash)
        request = None if track is None else carried_subscribe(info.subscribe_data)
        if track is None or (request is not None and request.new_group is not None):
            return
        for client in list(track.publishers):
            self._reach.catch_up(track, client, info.source_node_id, now)

    def _withdraw_unconfirmed(self, now: float) -> None:
        for info in in_pieces(self._confirming.unsaid):
            # Told to the node itself too: it may be that its words are late.
            gone = replace(info, sequence=(info.sequence + 1) & 0xFFFF)
            self._take(gone, added=False, heard_from=None, now=now)

    def _correct(self, info: SubscribeInfo, *, added: bool, now: float) -> None:
        """Somebody speaks of our own subscribes: if it is not so, or not from us, say what is."""
        key, sequence = info.track_hash.full_name_hash, info.sequence
        held, last = self._subscribes.get(self._self_id, key), self.sequence(self._self_id, key)
        agrees = (held is not None) is added and (held is None or held.sequence == sequence)
        if agrees or not self._corrections.may(key, now):
            return
        if held is None and last is not None and sequence_newer(last, sequence):
            sequence = last  # who says so was not told of the end, or has forgotten it since
        truth = replace(held or info, sequence=(sequence + 1) & 0xFFFF)
        take = self._subscribes.withdraw if held is None else self._subscribes.add
        if take(truth, now) is not None:
            self._tell(truth, added=held is not None)

    def _tell(self, info: SubscribeInfo, *, added: bool) -> None:
        """Say something of our own."""
        if self.is_stub:
            self.parent.subscribed(info, added=added)
        else:
            self._exchange.flood(info, added=added, heard_from=None)
