"""Links of which nothing is heard: what can go another way does, while the connection is kept.

The shell finds out (`net/link_watch.py`) and asks here what depends on a link. A link that is heard
again is as good as before; one that stays silent is closed by the shell, and then all that was
learned from it goes, as with any link.

Only links that something depends on are watched. A relay that takes another way, because a peer is
dead, may so lead to one that is still about to send by the dead one: nobody there has noticed. So
whoever finds a peer silent tells its other peers (NODE_SILENT). Where their own link to it is idle,
they avoid it until it has answered, which takes a round trip if they are wrong.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from laps.relay.roles import Role
from laps.routing.flows import FromPeer
from laps.wire.extensions import NodeSilent

# A link is found silent after half a second, and two round trips; what was sent a little earlier
# may have been with the peer, and not gone on.
LOST_S: Final = 1.0

# An idle link that has answered is not doubted again sooner, whatever peers say: each doubt moves
# ways away from it and back, and peers are told of both.
DOUBT_S: Final = 5.0

if TYPE_CHECKING:
    from laps.infobase.nodes import SessionId
    from laps.infobase.subscribes import Subscribes
    from laps.relay.data import DataPlane
    from laps.relay.ingress import IngressSets
    from laps.relay.passing import Passing
    from laps.relay.paths import Paths
    from laps.relay.peers import Links
    from laps.relay.repairs import Repairs
    from laps.routing.avoided import Avoided
    from laps.routing.forwarding import Fib
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, SnsId


class Suspicion:
    """What follows when a link falls silent, and when it is heard again."""

    def __init__(
        self,
        role: Role,
        avoided: Avoided,
        links: Links,
        paths: Paths,
        subscribes: Subscribes,
        tracks: Tracks,
        fib: Fib,
        ingress: IngressSets,
        data: DataPlane,
        repairs: Repairs,
    ) -> None:
        self._has_data = role not in (Role.CONTROL, Role.STUB)
        self._subscribes = subscribes
        self._announces = tracks.announces
        self._avoided = avoided
        self._links = links
        self._fib = fib
        self._ingress = ingress
        self._data = data
        self._repairs = repairs
        self._paths = paths
        self.doubted: dict[SessionId, float] = {}
        "Idle links whose peer another has found silent, and when; each until it is heard."
        self._answered: dict[SessionId, float] = {}
        "When a link that was doubted was heard."

    def depends_on(self, link_id: SessionId) -> bool:
        """Whether it matters soon if the other end of a link is gone.

        That is so while data goes or comes that way. A Control server has no data, and a Stub may
        have none yet: there it is so while anybody subscribes to anything, or offers it there.
        """
        if link_id in self.doubted or self._is_used(link_id):
            return True
        return not self._has_data and bool(len(self._subscribes) or len(self._announces))

    def _is_used(self, link_id: SessionId) -> bool:
        """Whether data goes or comes that way."""
        return self._fib.uses(link_id) or bool(self._ingress.count(link_id))

    def heard(self, link_id: SessionId, now: float) -> None:
        """A link that was silent is heard again."""
        if self.doubted.pop(link_id, None) is not None:
            self._answered[link_id] = now
        if link_id in self._avoided.suspect:
            self._avoided.suspect.discard(link_id)
            self._paths.reselect(link_id, self._beside(link_id), now)

    def silent(self, link_id: SessionId, now: float) -> None:
        """Nothing is heard of a link, though it was asked."""
        if link_id in self._links.links:
            if link_id not in self.doubted:
                self._tell(link_id)
            self._avoided.suspect.add(link_id)
            self.lost(link_id, now)
            for passing in self._data.open_streams(link_id):
                self._break_off(passing, now)
            self._repairs.sources_silent(self._ingress.of_link(link_id))
            self._paths.reselect(link_id, self._beside(link_id), now)

    def _tell(self, link_id: SessionId) -> None:
        """Tell the other peers, before anything is sent their way instead."""
        node_id = self._links.node_of(link_id)
        if node_id is None:
            return
        for peer in self._links.peers.values():
            control = peer.control
            if peer.node_id != node_id and control is not None and control.link.extended:
                self._links.send_on(control, NodeSilent(node_id))

    def peer_said(self, node_id: NodeId, now: float) -> None:
        """A peer has found a node silent: an idle link to it is avoided until it has answered."""
        peer = self._links.peers.get(node_id)
        for link_id in () if peer is None else list(peer.links):
            if self._is_used(link_id) or link_id in self._avoided.suspect:
                continue  # it is watched
            if now < self._answered.get(link_id, -inf) + DOUBT_S:
                continue
            self.doubted[link_id] = now
            self._avoided.suspect.add(link_id)
            self._paths.reselect(link_id, self._beside(link_id), now)

    def closed(self, link_id: SessionId, now: float) -> None:
        """A link is closed."""
        self.lost(link_id, now)
        self.doubted.pop(link_id, None)
        self._answered.pop(link_id, None)

    def _beside(self, link_id: SessionId) -> list[SessionId]:
        """The other links to the same peer."""
        peer_link = self._links.peer_links.get(link_id)
        if peer_link is None or peer_link.peer is None:
            return []
        return [other for other in peer_link.peer.links if other != link_id]

    def set_silent(self, link_id: SessionId, sns_id: SnsId, now: float) -> None:
        """A peer says that nothing is heard of where a set comes from."""
        source = FromPeer(link_id, sns_id)
        for passing in self._data.open_streams(link_id):
            flow = passing.flow
            if flow is not None and flow.key == source:
                self._break_off(passing, now)
        self._repairs.sources_silent([source])

    def lost(self, link_id: SessionId, now: float) -> None:
        """What was sent by a link a moment ago may not have arrived: it is sent by other ways."""
        link = self._links.links.get(link_id)
        srtt_s = 0.0 if link is None else link.srtt_us / 1e6
        flows = self._fib.published_on(link_id)
        self._repairs.way_lost(flows, now - LOST_S - 2 * srtt_s, link_id)

    def _break_off(self, passing: Passing, now: float) -> None:
        """Have clients given the rest of a stream from elsewhere.

        Where nobody can be asked for it, it is waited for: the link may be heard again.
        """
        if passing.track is not None and self._repairs.can_ask(passing.track):
            self._data.break_off(passing, now)
