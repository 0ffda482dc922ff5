"""Who hears of which subscribes: those whose policy keeps their track away hear nothing of it.

As routes of BGP are, subscribe information is filtered where it is sent. What a peer was told
under one policy it keeps until the subscriber leaves, also under the next one, and it hears of
that; of what it was never told it hears no end either. So it is known under which policies a
subscribe has lived, by the era in which it was first said, and since when a peer is there.

A relay that is told of a subscribe that policy keeps from it keeps it aside, and takes it when
policy is another: relays do not change their policy all at once, and nothing is told twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.errors import RemoteProtocolError
from laps.routing.policy import STEERING, UNKNOWN, is_told, terms_of, track_pattern_text
from laps.routing.terms import FREE
from laps.types import hash_track
from laps.wire.buffer import Incomplete
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.policy import Policy
    from laps.relay.peers import Peer
    from laps.relay.settings import RelayCounters
    from laps.routing.policy import PolicyInForce
    from laps.routing.terms import Terms
    from laps.types import NodeId, SubscribeInfo, TrackKey

# Policies change by hand, and regions nearly never. What is older is taken to have been told.
MOST_ERAS: Final = 64

# Subscribes that are bound to regions, and others' that policy keeps from us: 150 bytes each.
MOST_BORN: Final = 1_000_000
MOST_ASIDE: Final = 100_000


class Era(NamedTuple):
    """A time in which one policy was in force, and peers were in one region each."""

    policy: Policy | None
    regions: dict[NodeId, str]


class Scope:
    """What peers may be told of subscribes, and what we may hear ourselves."""

    def __init__(self, self_id: NodeId, policy: PolicyInForce, counters: RelayCounters) -> None:
        self._self_id = self_id
        self._counters = counters
        self._policy = policy
        self._seen_version = policy.version
        self._was_scoped = policy.scopes
        self._eras: dict[int, Era] = {0: Era(None, {})}
        self._era = 0
        self._born: dict[NodeId, dict[TrackKey, int]] = {}
        "The era in which a subscribe was first said; it is 0 for all that are not here."
        self._count = 0
        self._aside: dict[NodeId, dict[TrackKey, SubscribeInfo]] = {}
        "Subscribes of other nodes that policy keeps from us."
        self._set_aside = 0
        self._heard_version = policy.version

    # -- policy ------------------------------------------------------------------------------------

    def begins(self, peer: Peer) -> None:
        """A peer is told everything from the beginning."""
        peer.told_since = self._era
        self._eras[self._era].regions[peer.node_id] = self._policy.region_of(peer.node_id)

    def changed(self, peers: Iterable[Peer]) -> bool:
        """Whether policy is another than when this was last asked."""
        if self._seen_version == self._policy.version:
            return False
        self._seen_version = self._policy.version
        was_scoped, self._was_scoped = self._was_scoped, self._policy.scopes
        if not (was_scoped or self._was_scoped):
            return False
        regions = {it.node_id: self._policy.region_of(it.node_id) for it in peers}
        self._era += 1
        self._eras[self._era] = Era(self._policy.policy, regions)
        self._eras.pop(self._era - MOST_ERAS, None)
        return True

    @property
    def is_stale(self) -> bool:
        """Whether `changed` has something to say."""
        return self._seen_version != self._policy.version

    # -- what peers may be told --------------------------------------------------------------------

    def born(self, info: SubscribeInfo) -> None:
        """A subscribe that was not there is about to be told."""
        if self._policy.scopes and self._count < MOST_BORN and not self._is_free(info):
            of_source = self._born.setdefault(info.source_node_id, {})
            self._count += info.track_hash.full_name_hash not in of_source
            of_source[info.track_hash.full_name_hash] = self._era

    def ended(self, info: SubscribeInfo) -> None:
        """A subscribe is no more, and all who are to hear of that have."""
        source, key = info.source_node_id, info.track_hash.full_name_hash
        of_source = self._born.get(source)
        if of_source is not None and of_source.pop(key, None) is not None:
            self._count -= 1
            if not of_source:
                del self._born[source]

    def may_tell(self, peer: Peer, info: SubscribeInfo, *, added: bool) -> bool:
        """Whether a peer is told of a subscribe, or of its end."""
        if not self._policy.scopes or info.source_node_id == peer.node_id:
            return True
        if self._policy.may_be_told(self._terms(info), peer.node_id):
            return True
        return not added and self._was_told(peer, info)

    def _was_told(self, peer: Peer, info: SubscribeInfo) -> bool:
        """Whether a peer was told of a subscribe by a policy of before."""
        born = self._born.get(info.source_node_id, {}).get(info.track_hash.full_name_hash, 0)
        first = max(born, peer.told_since)
        return any(
            (era := self._eras.get(number)) is None or self._is_told_in(era, peer.node_id, info)
            for number in range(max(first, self._era - MOST_ERAS), self._era + self.is_stale)
        )

    def _is_told_in(self, era: Era, node_id: NodeId, info: SubscribeInfo) -> bool:
        if era.policy is None or not era.policy.scopes:
            return True
        return is_told(self._terms(info, era.policy), era.regions.get(node_id, ""))

    def _is_free(self, info: SubscribeInfo) -> bool:
        terms = self._terms(info)
        return not terms.is_bound and terms.told is None

    # -- what we may hear --------------------------------------------------------------------------

    @property
    def policy(self) -> Policy | None:
        """The policy in force."""
        return self._policy.policy

    def against(self, info: SubscribeInfo) -> str | None:
        """Why this relay may not have the track of a subscribe for anybody; None if it may."""
        if not self._policy.binds:
            return None
        return self._policy.against_node(self._terms(info), self._self_id)

    def hears(self, info: SubscribeInfo, *, added: bool) -> bool:
        """Whether we may take a subscribe: a peer may have told us that knows no policy.

        What we may not is kept aside. The end of one may always be heard.
        """
        if self._set_aside:
            self._take_back(info)
        if not added or not self._policy.scopes:
            return True
        if self._policy.may_be_told(self._terms(info), self._self_id):
            return True
        self._counters.kept_away_subscribes += 1
        if self._set_aside < MOST_ASIDE:
            # What waits must not be a view of all that it arrived with.
            kept = replace(info, subscribe_data=bytes(info.subscribe_data))
            self._aside.setdefault(info.source_node_id, {})[info.track_hash.full_name_hash] = kept
            self._set_aside += 1
        return False

    def purge(self, node_id: NodeId) -> None:
        """No way leads to a node any more."""
        self._count -= len(self._born.pop(node_id, ()))
        self._set_aside -= len(self._aside.pop(node_id, ()))

    @property
    def hears_more(self) -> bool:
        """Whether what was kept aside may be taken by now."""
        return self._set_aside > 0 and self._heard_version != self._policy.version

    def heard_now(self) -> Iterator[SubscribeInfo]:
        """What was kept aside, and may be taken now."""
        self._heard_version = self._policy.version
        for of_source in list(self._aside.values()):
            for info in list(of_source.values()):
                if self._policy.may_be_told(self._terms(info), self._self_id):
                    self._take_back(info)
                    yield info

    def _take_back(self, info: SubscribeInfo) -> None:
        of_source = self._aside.get(info.source_node_id, {})
        if of_source.pop(info.track_hash.full_name_hash, None) is not None:
            self._set_aside -= 1
            if not of_source:
                del self._aside[info.source_node_id]

    # -- how it works ------------------------------------------------------------------------------

    def _terms(self, info: SubscribeInfo, policy: Policy | None = None) -> Terms:
        """What holds for the track of a subscribe, by a policy or by the one that is in force."""
        try:
            name = decode_track_name(info.subscribe_data)
        except (RemoteProtocolError, Incomplete):
            return UNKNOWN
        # A subscriber may send one name and the hashes of another.
        if hash_track(name) != info.track_hash:
            return UNKNOWN
        if policy is None:
            return self._policy.terms(name)
        return FREE if name.namespace == STEERING else terms_of(policy, track_pattern_text(name))
