"""Subscribes: what this relay says of its own, and what it makes of what it hears.

An s-relay's word counts by its sequence number. Beyond that:

- A node that is back has some seconds to say what it still subscribes to. Its neighbour, to whom it
  says so first, withdraws the rest on its behalf.
- A relay that hears something untrue about itself says what is true, with a higher number.
- What is said of a node that nobody has told us of is kept for a while; the node may follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.infobase.subscribes import SeenSubscribes
from laps.relay.stub import StubClient
from laps.wire.peering import AnnounceInfoAdv, SubscribeInfoAdv, SubscribeInfoWd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.exchange import Exchange
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.settings import RelaySettings
    from laps.tracks.ports import Client
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, SubscribeInfo, TrackHash
    from laps.wire.peering import Message


class Subscriptions:
    """The subscribes of one relay, its own and others'."""

    def __init__(
        self,
        self_id: NodeId,
        settings: RelaySettings,
        nodes: Nodes,
        subscribes: Subscribes,
        tracks: Tracks,
        exchange: Exchange,
        send: Callable[[Peer, Message], None],
        at: Callable[[float, Callable[[float], None]], None],
        *,
        is_stub: bool,
        keeps: bool,
        own: frozenset[int] = frozenset(),
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
        self._send = send
        self._at = at
        self._is_stub = is_stub
        self._keeps = keeps
        self._own = own
        self._seen = SeenSubscribes()
        self._leaving: dict[int, float] = {}
        self._orphans: dict[NodeId, float] = {}

    # -- the Edge of a Stub ------------------------------------------------------------------------

    def adopt_parent(self, peers: Iterable[Peer]) -> Peer | None:
        """A Stub speaks with one Edge at a time, the nearest, so that nothing comes twice."""
        able = [peer for peer in peers if peer.control is not None]
        self.parent = min(able, key=lambda peer: (peer.control_srtt_us, peer.node_id), default=None)
        for _, announce in self._tracks.announces:
            self.tell_parent(AnnounceInfoAdv(replace(announce, source_node_id=self._self_id)))
        for info in self._subscribes.of_source(self._self_id):
            self.tell_parent(SubscribeInfoAdv(info))
        return self.parent

    def tell_parent(self, message: Message) -> None:
        """Say something to the Edge, where there is one."""
        if self.parent is not None:
            self._send(self.parent, message)

    # -- our own -----------------------------------------------------------------------------------

    def subscribe(
        self, client: Client, track: TrackHash, subscribe_data: bytes, now: float
    ) -> None:
        """A client wants a track; the network hears of it if it is the first here."""
        first = self._tracks.subscribe(client, track, subscribe_data)
        staying = self._leaving.pop(track.full_name_hash, None) is not None
        if first and not staying:
            info = self._tracks.own_info(track, now)
            if self._subscribes.add(info, now) is not None:
                self._tell(info, added=True, heard_from=None)

    def unsubscribe(self, client: Client, track: TrackHash, now: float) -> None:
        """A client no longer wants a track; the network hears of it a little later."""
        if isinstance(client, StubClient):
            client.forget(track)
        if not self._tracks.unsubscribe(client, track):
            return
        key, at = track.full_name_hash, now + self._settings.unsubscribe_s
        self._leaving[key] = at
        release = self._tracks.keep(track)

        def leave(now: float) -> None:
            release()
            if self._leaving.get(key) == at:
                del self._leaving[key]
                self._withdraw(track, now)

        self._at(at, leave)

    def withdraw_all(self, now: float) -> None:
        """We are leaving."""
        for info in list(self._subscribes.of_source(self._self_id)):
            self._withdraw(info.track_hash, now)

    def _withdraw(self, track: TrackHash, now: float) -> None:
        held = self._subscribes.get(self._self_id, track.full_name_hash)
        if held is None:
            return
        sequence = self._tracks.next_sequence(self._self_id, track.full_name_hash, now)
        info = replace(held, sequence=sequence)
        if self._subscribes.withdraw(info, now) is not None:
            self._tell(info, added=False, heard_from=None)

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
        """Subscribe information, or its withdrawal, has come."""
        if stub is not None:
            # The Edge subscribes in its own name: nobody else knows of the Stub.
            if added:
                self.subscribe(stub, info.track_hash, bytes(info.subscribe_data), now)
            else:
                self.unsubscribe(stub, info.track_hash, now)
        elif info.source_node_id == self._self_id:
            self._correct(info, added=added, now=now)
        elif self._keeps or self._is_stub or info.track_hash.full_name_hash in self._own:
            if added and info.source_node_id == peer.node_id:
                peer_link.confirmed.add(info.track_hash.full_name_hash)
            self._take(info, added=added, heard_from=peer, now=now)
        elif not self._seen.seen(info, now):
            self._exchange.flood(info, added=added, heard_from=peer, stateless=True)

    def begin_confirming(self, peer: Peer, now: float) -> None:
        """A peer is there, or there again: it is about to say what it subscribes to."""
        if not self._keeps and next(self._subscribes.of_source(peer.node_id), None) is None:
            return
        confirmed: set[int] = set()
        peer.confirmed = confirmed
        self._at(now + self._settings.confirm_s, lambda now: self._confirm(peer, confirmed, now))

    def node_known(self, node_id: NodeId) -> None:
        """A way to a node is known."""
        self._orphans.pop(node_id, None)

    def purge(self, node_id: NodeId) -> None:
        """No way leads to a node any more, so nothing can be sent to its subscribers."""
        self._seen.purge_source(node_id)
        for info in self._subscribes.purge_source(node_id):
            self._tracks.review(info.track_hash.full_name_hash)

    def tick(self, now: float) -> None:
        """Forget what has outlived its time."""
        self._subscribes.expire(now)
        for node_id in [node_id for node_id, at in self._orphans.items() if at <= now]:
            del self._orphans[node_id]
            if self._nodes.best(node_id) is None:
                self.purge(node_id)

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
        self._tracks.review(info.track_hash.full_name_hash)

    def _confirm(self, peer: Peer, confirmed: set[int], now: float) -> None:
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
            self.tell_parent(SubscribeInfoAdv(info) if added else SubscribeInfoWd(info))
