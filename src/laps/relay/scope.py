"""Who hears of which subscribes: those whose policy keeps their track away hear nothing of it.

As routes of BGP are, subscribe information is filtered where it is sent. What a peer has been told
before policy changed it keeps until the subscriber leaves, and hears of that; what it may be told
now, and was not, it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import RemoteProtocolError
from laps.routing.policy import UNKNOWN
from laps.types import hash_track
from laps.wire.buffer import Incomplete
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.relay.peers import Peer
    from laps.relay.settings import RelayCounters
    from laps.routing.policy import PolicyInForce
    from laps.routing.terms import Terms
    from laps.types import NodeId, SubscribeInfo


class Scope:
    """What peers may be told of subscribes, and what we may hear ourselves."""

    def __init__(self, self_id: NodeId, policy: PolicyInForce, counters: RelayCounters) -> None:
        self._self_id = self_id
        self._counters = counters
        self._policy = policy
        self._seen_version = policy.version
        self._was_scoped = policy.scopes
        self._told_more: set[NodeId] = set()
        "Peers that were told of subscribes by a policy of before, and hear of their ends."

    def begins(self, peer: Peer) -> None:
        """A peer is told everything from the beginning."""
        self._told_more.discard(peer.node_id)

    def changed(self, peers: Iterable[Peer]) -> bool:
        """Whether policy is another than when this was last asked."""
        if self._seen_version == self._policy.version:
            return False
        self._seen_version = self._policy.version
        was_scoped, self._was_scoped = self._was_scoped, self._policy.scopes
        if not (was_scoped or self._was_scoped):
            return False
        self._told_more.update(peer.node_id for peer in peers)
        return True

    @property
    def is_stale(self) -> bool:
        """Whether `changed` has something to say."""
        return self._seen_version != self._policy.version

    def may_tell(self, peer: Peer, info: SubscribeInfo, *, added: bool) -> bool:
        """Whether a peer is told of a subscribe, or of its end."""
        if not self._policy.scopes or (not added and peer.node_id in self._told_more):
            return True
        is_own_word = info.source_node_id == peer.node_id
        return is_own_word or self._policy.may_be_told(self._terms(info), peer.node_id)

    def may_hear(self, info: SubscribeInfo) -> bool:
        """Whether we may take a subscribe: a peer may have told us that knows no policy."""
        if not self._policy.scopes or self._policy.may_be_told(self._terms(info), self._self_id):
            return True
        self._counters.kept_away_subscribes += 1
        return False

    def _terms(self, info: SubscribeInfo) -> Terms:
        try:
            name = decode_track_name(info.subscribe_data)
        except (RemoteProtocolError, Incomplete):
            return UNKNOWN
        # A subscriber may send one name and the hashes of another.
        return self._policy.terms(name) if hash_track(name) == info.track_hash else UNKNOWN
