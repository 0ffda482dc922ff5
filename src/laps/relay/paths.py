"""Ways to nodes: what peers say of nodes, and what follows when the way to one is another.

nodes (what changed?) -> subscribes, extensions (forget) -> exchange (tell) -> fib (send)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.exchange import srtt_changed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import Nodes
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.sets import Sets
    from laps.relay.subscribes import SubscribeExchange
    from laps.routing.forwarding import Fib
    from laps.routing.plan import Plan
    from laps.routing.route import Router
    from laps.types import NodeId, NodeInfo


class Paths:
    """Keeps what is known, told and sent in step with the ways to nodes."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        router: Router,
        fib: Fib,
        sets: Sets,
        subscribes: SubscribeExchange,
        extensions: Extensions,
        exchange: Exchange,
    ) -> None:
        self._self_id = self_id
        self._nodes = nodes
        self._router = router
        self._fib = fib
        self._sets = sets
        self._subscribes = subscribes
        self._extensions = extensions
        self._exchange = exchange

    def node_said(
        self, peer: Peer, peer_link: PeerLink, info: NodeInfo, *, added: bool, now: float
    ) -> None:
        """A peer says one thing of a node at a time, whichever of its links it now uses."""
        left = peer.has_left(peer_link, self._self_id, now)
        if left and added:
            peer_link.late[info.id] = info
            return
        if peer_link.first_node_at is None:
            peer_link.first_node_at = now
        known = peer.knows(info.id)
        links = [peer_link] if left else list(peer.links.values())
        for link in links:
            link.late.pop(info.id, None)
        old = [link for link in links if link.heard.pop(info.id, None) is not None]
        changes = []
        if added:
            peer_link.heard[info.id] = info
            changes.append(self._nodes.add(peer_link.link.id, info))
            old = [link for link in old if link is not peer_link]
        elif not old:
            old = [peer_link]
        changes += [self._nodes.withdraw(link.link.id, info) for link in old]
        if any(changes):
            self.changed({info.id}, now)
        else:
            # The best way is as it was, but a plan may go by another, and what must not turn back.
            self._fib.reroute([info.id], passing=not self._router.plan.vias)
            self._sets.changed(now)
        if added and not known:
            self._exchange.node_claimed(peer, info.id)

    def take_late(self, peer: Peer, now: float) -> None:
        """The link that control had moved to is closed: the peer may have moved back before us."""
        for peer_link in peer.links.values():
            late, peer_link.late = peer_link.late, {}
            for info in late.values():
                self.node_said(peer, peer_link, info, added=True, now=now)

    def linked(self, peer: Peer, touched: set[NodeId], now: float) -> None:
        """A peer has one link more, which leads to these nodes."""
        self._fib.share(peer.links)
        self.changed(touched if peer.is_stub else touched | {peer.node_id}, now)
        self.srtt_changed(peer, now)

    def changed(self, node_ids: Iterable[NodeId], now: float) -> None:
        """Ways to these nodes may be others: forget, tell and send accordingly."""
        ids = sorted(node_ids)
        for node_id in ids:
            if self._nodes.best(node_id) is None:
                self._subscribes.purge(node_id, now)
                self._extensions.purge(node_id, now)
            else:
                self._subscribes.node_known(node_id, now)
        self._subscribes.forget(now)
        self._exchange.nodes_changed(ids, now)
        self._fib.reroute(ids)
        self._sets.changed(now)

    def srtt_changed(self, peer: Peer, now: float) -> None:
        """The round trip to a peer may have changed by enough to speak of it.

        It is one for all links to the peer: the peer itself is reached by any of them, and the
        nodes beyond, though told of on one, are too. With one for each, a node and those beyond
        it could seem nearest by two different peers.
        """
        if peer.is_stub or not peer.links:
            return
        if not srtt_changed(peer.srtt_us, peer.nearest_srtt_us):
            return
        peer.srtt_us = peer.nearest_srtt_us
        for link_id in peer.links:
            changes = self._nodes.set_srtt(link_id, peer.srtt_us)
            moved = [change.node_id for change in changes]
            self._fib.reroute(moved)
            self._exchange.nodes_changed(moved, now)
            self._exchange.gather(self._nodes.via(link_id), now)
        self._sets.changed(now)

    def follow(self, plan: Plan, now: float) -> None:
        """Lay a plan over selection, in place of the one before; streams finish where they run."""
        if plan != self._router.plan:
            self._router.plan = plan
            self._fib.reroute(self._nodes)
            self._sets.changed(now)
