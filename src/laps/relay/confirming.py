"""A node that is back says what it still subscribes to; the rest is withdrawn on its behalf.

Its neighbour, to whom it says so first, waits for some seconds, and for as long as what it hears is
what it knows.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.interest import Interest
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.timers import Timers
    from laps.types import SubscribeInfo, TrackKey


class Confirming:
    """What peers say of their own subscribes after they have come."""

    def __init__(
        self,
        confirm_s: float,
        subscribes: Subscribes,
        links: Links,
        interest: Interest,
        timers: Timers,
    ) -> None:
        self.unsaid: deque[Iterator[SubscribeInfo | None]] = deque()
        "What nodes no longer want that came again, and None for each that they do."
        self._confirm_s = confirm_s
        self._subscribes = subscribes
        self._links = links
        self._interest = interest
        self._timers = timers

    def begin(self, peer: Peer, now: float) -> None:
        """A peer is about to say what it subscribes to."""
        if peer.confirm_at is None:
            self._timers.at(now + self._confirm_s, lambda now: self._confirm(peer, now))
        peer.confirm_at = now + self._confirm_s

    def note(
        self, peer_link: PeerLink, peer: Peer, key: TrackKey, *, added: bool, now: float
    ) -> None:
        """A peer says something of its own: while it repeats what is known, it is not done."""
        if not added:
            self.forget(peer, key)
            return
        if key not in peer_link.confirmed:
            peer_link.confirmed.insert(key, b"")
        if peer.confirm_at is not None and self._subscribes.holds(peer.node_id, key):
            peer.confirm_at = now + self._confirm_s

    def forget(self, peer: Peer | None, key: TrackKey) -> None:
        """What a peer said of a track is not for us any more."""
        for link in () if peer is None else peer.links.values():
            link.confirmed.pop(key)

    def _confirm(self, peer: Peer, now: float) -> None:
        if peer.confirm_at is None:
            return
        if peer.awaits_agreed or peer.owes_digest:
            peer.confirm_at = max(peer.confirm_at, now + self._confirm_s)
        if now < peer.confirm_at:
            self._timers.at(peer.confirm_at, lambda now: self._confirm(peer, now))
            return
        peer.confirm_at = None
        self.unsaid.append(self._unsaid(peer))

    def _unsaid(self, peer: Peer) -> Iterator[SubscribeInfo | None]:
        for key in self._subscribes.of(peer.node_id):
            if self._links.peers.get(peer.node_id) is not peer:
                return
            said = any(key in peer_link.confirmed for peer_link in peer.links.values())
            said = said or (peer.agreed is not None and peer.agreed.covers(key))
            held = None if said else self._subscribes.get(peer.node_id, key)
            # What others told us of it, it need not say itself.
            yield held if held is not None and self._interest.is_said_by_source(held) else None
