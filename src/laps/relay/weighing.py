"""Has flows weighed anew when what they are weighed by is another: policy, figures, or links.

Metrics come from every node every few seconds, and most of them say nothing that a way depends on.
So what has changed is looked at first, and only the flows to nodes that it concerns are decided
anew: those with a way through a relay that has become full or empty, and those that take a way of
their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.infobase.metrics import Metrics
from laps.relay.sets import Sets
from laps.routing.conditions import Conditions
from laps.routing.forwarding import Fib
from laps.routing.graph import Graph
from laps.routing.policy import PolicyInForce
from laps.routing.route import Router

if TYPE_CHECKING:
    from laps.infobase.metrics import MetricsChange
    from laps.infobase.nodes import Nodes
    from laps.policy import Policy
    from laps.relay.peers import Links
    from laps.routing.avoided import Avoided
    from laps.types import NodeId

# Links come and go together, as when a relay starts: what takes a way of its own is looked at once.
GATHER_S: Final = 0.5


class Weighing:
    """What the ways of one relay's flows are weighed by."""

    def __init__(
        self, self_id: NodeId, region: str, nodes: Nodes, links: Links, avoided: Avoided
    ) -> None:
        """`region` is where we are; it may be empty."""
        self.metrics = Metrics()
        "What nodes say of themselves."
        self.policy = PolicyInForce(self_id, region, self.metrics)
        self.conditions = Conditions()
        self.graph = Graph(self_id, nodes, self.metrics, links)
        known = self.graph, self.policy, self.conditions
        self.router = Router(self_id, nodes, links, avoided, *known)
        self.fib = Fib(self.router)
        self.sets = Sets(self.fib, links)
        self.nodes = nodes
        self.links = links
        self.avoided = avoided
        self._steered_at: float | None = None
        "When what takes a way of its own is looked at, as other links are there."

    def follow(self, policy: Policy | None, now: float) -> None:
        """Another policy is in force, or none: every flow is decided anew."""
        self.policy.follow(policy)
        self._reconsider(now)

    def links_changed(self, now: float) -> None:
        """Our own links are others, or lead to their peers in another time."""
        self.graph.changed()
        if self.router.steered and self._steered_at is None:
            self._steered_at = now + GATHER_S

    def tick(self, now: float) -> None:
        """Look at what nodes have said, and at what has lasted long enough to count."""
        moved = False
        while self.metrics.changes:
            moved |= self._heard(self.metrics.changes.popleft(), now)
        if moved:
            self._reconsider(now)
        concerned: set[NodeId] = set()
        if changed := self.conditions.tick(now):
            concerned = {it for it in self.nodes if self._passes_any(it, changed)}
            concerned |= self.router.steered
        if self._steered_at is not None and self._steered_at <= now:
            self._steered_at = None
            concerned |= self.router.steered
        if concerned:
            self.router.steered -= concerned
            self.fib.reroute(sorted(concerned))
            self.sets.changed(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self.metrics.changes:
            return 0.0
        due = self.conditions.deadline()
        if self._steered_at is None or (due is not None and due < self._steered_at):
            return due
        return self._steered_at

    @property
    def is_idle(self) -> bool:
        """Whether nothing has been said that is not looked at."""
        return not self.metrics.changes and self._steered_at is None

    def _heard(self, change: MetricsChange, now: float) -> bool:
        """A node has said how it is; whether it is in another region than before."""
        old, new = change.old, change.new
        if new is None:
            self.conditions.gone(change.node_id)
        else:
            self.conditions.heard(new, now)
        links = () if new is None else tuple(it.node_id for it in new.reachability)
        before = () if old is None else tuple(it.node_id for it in old.reachability)
        if new is None or old is None or new.reachability != old.reachability:
            self.graph.changed()
        if links != before:
            self.links_changed(now)
        region = "" if new is None else new.region
        if region == ("" if old is None else old.region):
            return False
        self.policy.moved()
        return self.policy.binds or self.policy.limits

    def _passes_any(self, node_id: NodeId, relays: set[NodeId]) -> bool:
        return any(
            path.peer_id in relays or any(map(path.info.has_passed, relays))
            for path in self.nodes.paths(node_id)
        )

    def _reconsider(self, now: float) -> None:
        self.router.steered.clear()
        self.fib.reconsider()
        self.sets.changed(now)
