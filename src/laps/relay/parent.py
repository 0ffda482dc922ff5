"""The Edge that a Stub speaks with: one at a time, the nearest, so that nothing comes twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.wire.peering import AnnounceInfoAdv, AnnounceInfoWd, SubscribeInfoAdv, SubscribeInfoWd

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.reach import Reach
    from laps.tracks.tracks import Tracks
    from laps.types import AnnounceInfo, NodeId, SubscribeInfo
    from laps.wire.peering import Message


class Parent:
    """What a Stub tells its Edge."""

    def __init__(
        self,
        self_id: NodeId,
        subscribes: Subscribes,
        tracks: Tracks,
        links: Links,
        reach: Reach,
        repair_s: float,
    ) -> None:
        self.peer: Peer | None = None
        "The Edge; None while there is none, and at a relay that is no Stub."
        self._lost_at: float | None = None
        self._self_id = self_id
        self._subscribes = subscribes
        self._tracks = tracks
        self._links = links
        self._reach = reach
        self._repair_s = repair_s

    def adopt(self, peers: Iterable[Peer], now: float) -> Peer | None:
        """Choose one of the peers that are there."""
        able = [peer for peer in peers if peer.control is not None]
        self.peer = min(able, key=lambda peer: (peer.control_srtt_us, peer.node_id), default=None)
        if self.peer is not None and self._lost_at is not None:
            self._reach.turned_to(self.peer.node_id, self._lost_at - self._repair_s, now)
            self._lost_at = None
        return self.peer

    def lost(self, now: float) -> None:
        """It is gone, perhaps with what it was sent last."""
        self._lost_at = now if self._lost_at is None else self._lost_at

    # -- what it is told ---------------------------------------------------------------------------

    def tell_all(self, control: PeerLink) -> None:
        """Tell it everything."""
        self._links.page(control, "all", self._all())

    def announced(self, info: AnnounceInfo, *, added: bool) -> None:
        """Tell it what our publishers offer, or no longer do."""
        own = replace(info, source_node_id=self._self_id)
        names = (info.namespace_hashes, info.name_hash)
        self._tell(names, AnnounceInfoAdv(own) if added else AnnounceInfoWd(own))

    def subscribed(self, info: SubscribeInfo, *, added: bool) -> None:
        """Tell it what is wanted here, or no longer is."""
        key = info.track_hash.full_name_hash
        self._tell(key, SubscribeInfoAdv(info) if added else SubscribeInfoWd(info))

    def _all(self) -> Iterator[Message]:
        announces = self._tracks.announces
        for origin, announce in announces:
            if announces.has(origin, announce):  # still, after a wait for room
                yield AnnounceInfoAdv(replace(announce, source_node_id=self._self_id))
        for key in self._subscribes.of(self._self_id):
            if (info := self._subscribes.get(self._self_id, key)) is not None:
                yield SubscribeInfoAdv(info)

    def _tell(self, key: Hashable, message: Message) -> None:
        if self.peer is not None and self.peer.control is not None:
            self._links.say(self.peer.control, key, message)
