"""Which way a flow takes to a node: what the plan says, or else selection.

There is one decision, `Router.route`. The flow keeps its value, data follows its link, and whoever
looks in is shown its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from laps.routing.forwarding import FromClient, FromPeer, Route
from laps.routing.plan import NO_PLAN
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from laps.infobase.nodes import Nodes, PathCandidate
    from laps.routing.avoided import Avoided
    from laps.routing.forwarding import Flow, LinkId
    from laps.types import NodeId


class Neighbours(Protocol):
    """The peers of this relay, and the links to each."""

    def node_of(self, link_id: LinkId) -> NodeId | None:
        """The peer at the other end of a link."""

    def sends_data(self, node_id: NodeId) -> bool:
        """Whether data can be sent to a peer by any link."""

    def data_link(self, node_id: NodeId, number: int) -> LinkId | None:
        """The link that data of one of many flows takes to a peer; None if none carries data."""


@dataclass(slots=True)
class RouteCounters:
    """What became of decisions, for the operator."""

    unreachable_targets: int = 0
    unmet_plans: int = 0
    "Times the peer that a plan names did not lead to an s-relay, and selection decided."


class Router:
    """Selection for a flow: the best path that carries data and does not turn back."""

    def __init__(self, nodes: Nodes, neighbours: Neighbours, avoided: Avoided) -> None:
        self.counters = RouteCounters()
        self.plan = NO_PLAN
        "Laid over selection for the tracks of our own publishers."
        self._nodes = nodes
        self._neighbours = neighbours
        self._avoided = avoided

    def route(self, flow: Flow, node_id: NodeId) -> Route:
        """The way to a node, never back to where a flow comes from, and why it is that one."""
        origin = self._origin(flow)
        wanted = self._wanted(flow, node_id)
        best = self._nodes.best(node_id)
        if wanted is None and best is not None and self._is_able(best.path, origin):
            # So it is nearly always, and then the other paths are not looked at.
            link = self._neighbours.data_link(best.path.peer_id, flow.serial)
            return Route(link, best.path, best.reason)
        paths = self._nodes.paths(node_id)
        able = [path for path in paths if self._is_able(path, origin)]
        planned = None if wanted is None else self._planned(able, wanted)
        if wanted is not None and planned is None:
            self.counters.unmet_plans += 1
        # The best of all paths is known already, unless some are of no use to the flow.
        choice = best if len(able) == len(paths) else None
        choice = choice or self._avoided.select(able)
        if choice is None:
            self.counters.unreachable_targets += 1
            return Route(None, None, _no_way(paths, origin))
        path, words = choice.path, [choice.reason]
        if planned is not None:
            path, words = planned, []
        if wanted is not None:
            met = "" if planned is not None else ", which does not lead there"
            words.append(f"plan {self.plan.sequence} says by {format_node_id(wanted)}{met}")
        if origin is not None and (back := sum(_leads_through(it, origin) for it in paths)):
            words.append(f"{back} would turn back to {format_node_id(origin)}")
        link = self._neighbours.data_link(path.peer_id, flow.serial)
        return Route(link, path, "; ".join(words))

    def _is_able(self, path: PathCandidate, origin: NodeId | None) -> bool:
        if not path.carries_data or (origin is not None and _leads_through(path, origin)):
            return False
        return self._neighbours.sends_data(path.peer_id)

    def _wanted(self, flow: Flow, node_id: NodeId) -> NodeId | None:
        """The peer that the plan names for a track of our own publishers, if it names one."""
        if not self.plan.vias or not isinstance(flow.key, FromClient):
            return None
        return self.plan.peer_for(flow.key.track, node_id)

    def _planned(self, able: list[PathCandidate], wanted: NodeId) -> PathCandidate | None:
        choice = self._avoided.select(
            [path for path in able if path.peer_id == wanted and not self._avoided.avoids(path)]
        )
        return None if choice is None else choice.path

    def _origin(self, flow: Flow) -> NodeId | None:
        """The peer that a flow comes from."""
        return self._neighbours.node_of(flow.key.link) if isinstance(flow.key, FromPeer) else None


def _leads_through(path: PathCandidate, node_id: NodeId) -> bool:
    return path.peer_id == node_id or path.info.has_passed(node_id)


def _no_way(paths: Collection[PathCandidate], origin: NodeId | None) -> str:
    if not paths:
        return "no way leads there"
    if origin is not None and any(_leads_through(path, origin) for path in paths):
        return f"every way would turn back to {format_node_id(origin)}, where it comes from"
    return "no way that leads there carries data"
