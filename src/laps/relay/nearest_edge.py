"""Which of its Edges a Stub speaks with: the nearest, and it moves when another is nearer for good.

A Stub speaks with one Edge at a time, so that nothing comes twice. When another Edge has been
nearer by enough for long enough, it is told everything, and a little later the link to the one
before is closed, which takes back all that was said there; it is dialled again, and waits. What
arrives by both meanwhile is known to be the same. What the Stub's own publishers send is not wanted
from the one before any more: it would come back by way of the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.errors import CloseCode
from laps.wire.peering import SubscribeInfoWd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.introduction import Introduction
    from laps.relay.peers import Links, Peer
    from laps.relay.subscribes import SubscribeExchange
    from laps.relay.timers import Timers
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId

# Nearer by a fifth and by some milliseconds: less is not felt, and round trips vary as much.
NEARER_SHARE: Final = 0.8
NEARER_US: Final = 5_000

# For as long as a load or a burst of losses does not last. A quiet link is measured every 10 s.
STEADY_S: Final = 20.0

# What a new Edge gets to ask the network and to begin to send.
HANDOVER_S: Final = 2.0


class NearestEdge:
    """Watches the round trips to the Edges of a Stub."""

    def __init__(
        self,
        self_id: NodeId,
        wanted: Subscribes,
        tracks: Tracks,
        links: Links,
        subscribes: SubscribeExchange,
        introduction: Introduction,
        timers: Timers,
    ) -> None:
        self._self_id = self_id
        self._wanted = wanted
        self._tracks = tracks
        self._links = links
        self._subscribes = subscribes
        self._introduction = introduction
        self._timers = timers
        self._nearer: tuple[Peer, float] | None = None
        "The Edge that is nearer than the one in use, and since when."

    def review(self, now: float) -> None:
        """A round trip may have changed."""
        used = self._subscribes.parent.peer
        nearer = None if used is None else self._nearer_than(used)
        if used is None or nearer is None:
            self._nearer = None
        elif self._nearer is None or self._nearer[0] is not nearer:
            self._nearer = nearer, now
            self._timers.at(now + STEADY_S, self.review)
        elif now >= self._nearer[1] + STEADY_S:
            self._nearer = None
            self._move(used, now)

    def _nearer_than(self, used: Peer) -> Peer | None:
        able = [peer for peer in self._links.peers.values() if peer.control is not None]
        nearest = min(able, key=lambda peer: (peer.control_srtt_us, peer.node_id), default=used)
        here, there = nearest.control_srtt_us, used.control_srtt_us
        return nearest if here < there * NEARER_SHARE and here + NEARER_US < there else None

    def _move(self, used: Peer, now: float) -> None:
        self._introduction.adopt_parent(now)
        if used.control is not None:
            self._links.page(used.control, "published here", self._published_here(used))

        def leave(_: float) -> None:
            if self._subscribes.parent.peer is not used:
                for peer_link in list(used.links.values()):
                    peer_link.link.close(CloseCode.GRACEFUL, "another Edge is nearer")

        self._timers.at(now + HANDOVER_S, leave)

    def _published_here(self, used: Peer) -> Iterator[SubscribeInfoWd | None]:
        """Withdraw what our own publishers send from an Edge that we leave; None for the rest."""
        for info in self._wanted.of_source(self._self_id):
            if self._subscribes.parent.peer is used:  # again, after a wait for room
                return
            track = self._tracks.get(info.track_hash.full_name_hash)
            yield SubscribeInfoWd(info) if track is not None and track.publishers else None
