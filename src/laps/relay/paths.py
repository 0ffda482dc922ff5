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
    from laps.relay.peers import Links, Peer, PeerLink
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
        links: Links,
        router: Router,
        fib: Fib,
        subscribes: SubscribeExchange,
        extensions: Extensions,
        exchange: Exchange,
    ) -> None:
        self._self_id = self_id
        self._nodes = nodes
        self._links = links
        self._router = router
        self._fib = fib
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
        elif self._router.plan.vias:
            # The best way is as it was, but a plan may go by another.
            self._links.send_sns(self._fib.reroute([info.id]))
        if added and not known:
            self._exchange.node_claimed(peer, info.id)

    def take_late(self, peer: Peer, now: float) -> None:
        """The link that control had moved to is closed: the peer may have moved back before us."""
        for peer_link in peer.links.values():
            late, peer_link.late = peer_link.late, {}
            for info in late.values():
                self.node_said(peer, peer_link, info, added=True, now=now)

    def changed(self, node_ids: Iterable[NodeId], now: float) -> None:
        """Ways to these nodes may be others: forget, tell and send accordingly."""
        ids = sorted(node_ids)
        for node_id in ids:
            if self._nodes.best(node_id) is None:
                self._subscribes.purge(node_id, now)
                self._extensions.purge(node_id, now)
            else:
                self._subscribes.node_known(node_id)
        self._exchange.nodes_changed(ids, now)
        self._links.send_sns(self._fib.reroute(ids))

    def srtt_changed(self, peer_link: PeerLink, now: float) -> None:
        """The round trip of a link may have changed by enough to speak of it."""
        link = peer_link.link
        if srtt_changed(peer_link.srtt_us, link.srtt_us):
            peer_link.srtt_us = link.srtt_us
            changes = self._nodes.set_srtt(link.id, link.srtt_us)
            self._links.send_sns(self._fib.reroute(change.node_id for change in changes))
            self._exchange.nodes_changed(self._nodes.via(link.id), now)

    def follow(self, plan: Plan) -> None:
        """Lay a plan over selection, in place of the one before; streams finish where they run."""
        if plan != self._router.plan:
            self._router.plan = plan
            self._links.send_sns(self._fib.reroute(self._nodes))
