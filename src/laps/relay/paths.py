"""Ways to nodes: what peers say of nodes, and what follows when the way to one is another.

nodes (what changed?) -> subscribes, extensions (forget) -> exchange (tell) -> fib (send)

What concerns very many nodes is done in pieces, a turn of the loop each. Until its turn comes data
follows the way that a node had, unless that link is closed.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from laps.infobase.nodes import MOST_CHOSEN
from laps.relay.pieces import MOST_TOLD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from laps.infobase.nodes import Nodes, SessionId
    from laps.policy import Policy
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.settings import Steadiness
    from laps.relay.subscribes import SubscribeExchange
    from laps.relay.weighing import Weighing
    from laps.routing.plan import Plan
    from laps.types import NodeId, NodeInfo


class Paths:
    """Keeps what is known, told and sent in step with the ways to nodes."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        weighing: Weighing,
        subscribes: SubscribeExchange,
        extensions: Extensions,
        exchange: Exchange,
        steadiness: Steadiness,
    ) -> None:
        self._self_id = self_id
        self._nodes = nodes
        self._weighing = weighing
        self._router = weighing.router
        self._fib = weighing.fib
        self._sets = weighing.sets
        self._subscribes = subscribes
        self._extensions = extensions
        self._exchange = exchange
        self._steadiness = steadiness
        self._left: dict[NodeId, None] = {}
        "Nodes whose turn has not come."
        self._differing: dict[Peer, float] = {}
        "Peers whose round trip is another, and when that counts if it stays so."

    def nodes_said(
        self,
        peer: Peer,
        peer_link: PeerLink,
        infos: Iterable[NodeInfo],
        *,
        added: bool,
        now: float,
    ) -> None:
        """A peer says one thing of a node at a time, whichever of its links it now uses."""
        left = peer.has_left(peer_link, self._self_id, now)
        if left and added:
            peer_link.late.update({info.id: info for info in infos})
            return
        if peer_link.first_node_at is None:
            peer_link.first_node_at = now
        links = [peer_link] if left else list(peer.links.values())
        changed: list[NodeId] = []
        same: list[NodeId] = []
        claimed: list[NodeId] = []
        for info in infos:
            had_way = peer.has_said(info.id)
            if added and not had_way and info.id not in peer.told:
                claimed.append(info.id)
            is_another = self._node_said(peer_link, links, info, added=added)
            (changed if is_another else same).append(info.id)
            if had_way and not added:
                self._extensions.telling.way_lost(peer, info.id)
        if changed:
            self.changed(dict.fromkeys(changed), now)
        if same:
            # The best way is as it was, but a plan may go by another, and what must not turn back.
            self._fib.reroute(same, passing=not self._router.has_names)
            self._sets.changed(now)
        for node_id in claimed:
            self._exchange.node_claimed(peer, node_id)

    def _node_said(
        self, peer_link: PeerLink, links: list[PeerLink], info: NodeInfo, *, added: bool
    ) -> bool:
        """Whether the best way to a node is another; `links` are those that count no more."""
        for link in links:
            link.late.pop(info.id, None)
        old = [link for link in links if link.heard.pop(info.id, None) is not None]
        is_another = False
        if added:
            peer_link.heard[info.id] = info
            is_another = self._nodes.add(peer_link.link.id, info) is not None
            old = [link for link in old if link is not peer_link]
        elif not old:
            old = [peer_link]
        for link in old:
            is_another |= self._nodes.withdraw(link.link.id, info) is not None
        return is_another

    def take_late(self, peer: Peer, now: float) -> None:
        """The link that control had moved to is closed: the peer may have moved back before us."""
        for peer_link in peer.links.values():
            late, peer_link.late = peer_link.late, {}
            if late:
                self.nodes_said(peer, peer_link, late.values(), added=True, now=now)

    def linked(self, peer: Peer, touched: set[NodeId], now: float) -> None:
        """A peer has one link more, which leads to these nodes."""
        self._weighing.links_changed(now)
        self._fib.share(peer.links)
        self.changed(touched if peer.is_stub else touched | {peer.node_id}, now)
        self.srtt_changed(peer, now, at_once=True)

    def closed(self, link_id: SessionId, now: float) -> set[NodeId]:
        """A link is closed: the nodes whose best way is another; if they are many, some later."""
        self._weighing.links_changed(now)
        changes = self._nodes.close_session(link_id, MOST_CHOSEN)
        return {change.node_id for change in changes}

    def reselect(self, link_id: SessionId, beside: Iterable[SessionId], now: float) -> None:
        """Other ways than by a link may be preferred now, or this one again.

        Flows are shared anew among it and the links `beside` it to the same peer: one that has
        targets on two of them would send everything twice.
        """
        self._nodes.reselect(link_id, MOST_CHOSEN)
        self._fib.share((link_id, *beside))
        self.changed(self._nodes.via(link_id), now)
        self._sets.changed(now)

    def changed(self, node_ids: Collection[NodeId], now: float) -> None:
        """Ways to these nodes may be others: forget, tell and send accordingly, now or soon."""
        if len(node_ids) <= self._exchange.share(MOST_TOLD):
            self._change(sorted(node_ids), now)
        else:
            self._left.update(dict.fromkeys(node_ids))

    def tick(self, now: float) -> None:
        """Go on with some of what is left."""
        if self._nodes.is_settling:
            changed, looked = self._nodes.settle(MOST_CHOSEN)
            self._left.update(dict.fromkeys(changed))
            self._exchange.gather(looked, now)
        for peer in [peer for peer, at in self._differing.items() if at <= now]:
            self.srtt_changed(peer, now)
        if self._left:
            ids = list(islice(self._left, self._exchange.share(MOST_TOLD)))
            for node_id in ids:
                del self._left[node_id]
            self._change(ids, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._left or self._nodes.is_settling:
            return 0.0
        return min(self._differing.values()) if self._differing else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left."""
        return not (self._left or self._nodes.is_settling or self._differing)

    def _change(self, ids: list[NodeId], now: float) -> None:
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

    def srtt_changed(self, peer: Peer, now: float, *, at_once: bool = False) -> bool:
        """The round trip to a peer may have changed by enough, and for long enough, to count.

        It is one for all links to the peer: the peer itself is reached by any of them, and the
        nodes beyond, though told of on one, are too. With one for each, a node and those beyond
        it could seem nearest by two different peers. For the same reason it is the round trip that
        has to be another for a while, and not the gain of a path. False if nothing follows.
        """
        nearest_us = peer.nearest_srtt_us
        another = self._steadiness.is_another(peer.srtt_us, nearest_us)
        if not another or peer.is_stub or not peer.links:
            self._differing.pop(peer, None)
            return False
        due = self._differing.setdefault(peer, now + self._steadiness.hold_s)
        if now < due and not at_once:
            return True
        del self._differing[peer]
        peer.srtt_us = nearest_us
        self._weighing.links_changed(now)
        for link_id in peer.links:
            changes = self._nodes.set_srtt(link_id, peer.srtt_us, MOST_CHOSEN)
            moved = [change.node_id for change in changes]
            self._fib.reroute(moved)
            self._exchange.nodes_changed(moved, now)
            if not self._nodes.is_settling:
                self._exchange.gather(self._nodes.via(link_id), now)
        self._sets.changed(now)
        return True

    def follow_policy(self, policy: Policy | None, now: float) -> None:
        """Another policy is in force, or none."""
        self._weighing.follow(policy, now)

    def follow(self, plan: Plan, now: float) -> None:
        """Lay a plan over selection, in place of the one before; streams finish where they run."""
        if plan != self._router.plan:
            self._router.plan = plan
            self._fib.reroute(self._nodes)
            self._sets.changed(now)
