"""Which link leads to a node: what the plan says, and else selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.infobase.nodes import SessionId
from laps.routing.plan import NO_PLAN
from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes, PathCandidate
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.settings import RelayCounters
    from laps.routing.draining import Draining
    from laps.routing.forwarding import Flow
    from laps.types import NodeId


@dataclass(frozen=True, slots=True)
class Route:
    """The way that a flow takes to a node, in an operator's words."""

    path: PathCandidate | None
    "None where no way leads there."
    reason: str
    alternates: tuple[PathCandidate, ...]
    "Best first; those the flow could not take either."


class Routes:
    """Selection for a flow: the best path that carries data and does not turn back."""

    def __init__(
        self,
        nodes: Nodes,
        peers: dict[NodeId, Peer],
        peer_links: dict[SessionId, PeerLink],
        draining: Draining,
        counters: RelayCounters,
    ) -> None:
        self._nodes = nodes
        self._peers = peers
        self._peer_links = peer_links
        self._draining = draining
        self._counters = counters
        self.plan = NO_PLAN
        "Laid over selection for the tracks of our own publishers."

    def find(self, flow: Flow, node_id: NodeId) -> SessionId | None:
        """The link that leads to a node, never back to where a flow comes from."""
        origin = self._origin(flow)
        for path in self._ranked(flow, node_id):
            if not path.carries_data or (origin is not None and _leads_through(path, origin)):
                continue
            peer = self._peers.get(path.peer_id)
            link_id = None if peer is None else peer.data_link(flow.serial)
            if link_id is not None:
                return link_id
        self._counters.unreachable_targets += 1
        return None

    def explain(self, flow: Flow, node_id: NodeId) -> Route:
        """The path that `find` takes, and why; nothing is counted."""
        origin = self._origin(flow)
        paths = self._nodes.candidates(node_id)
        able = [
            path
            for path in paths
            if path.carries_data
            and not (origin is not None and _leads_through(path, origin))
            and (peer := self._peers.get(path.peer_id)) is not None
            and peer.sends_data
        ]
        choice, words = self._draining.select(able), []
        if choice is None:
            return Route(None, _no_way(paths, origin), paths)
        best, reason = choice.path, choice.reason
        if origin is not None and (back := sum(_leads_through(path, origin) for path in paths)):
            words.append(f"{back} would turn back to {format_node_id(origin)}")
        wanted = self._wanted(flow, node_id)
        if wanted is not None:
            planned = self._planned(paths, wanted)
            said = f"plan {self.plan.sequence} says by {format_node_id(wanted)}"
            if planned:
                best, reason = planned[0], said
            else:
                words.append(f"{said}, which does not lead there")
        others = tuple(path for path in paths if path is not best)
        return Route(best, "; ".join([reason, *words]), others)

    def _ranked(self, flow: Flow, node_id: NodeId) -> tuple[PathCandidate, ...]:
        """The paths to a node: the one that the plan wants, if it is there, and the others."""
        paths = self._nodes.candidates(node_id)
        wanted = self._wanted(flow, node_id)
        if wanted is None:
            return paths
        planned = self._planned(paths, wanted)
        if not planned:
            self._counters.unmet_plans += 1
        return planned + paths

    def _wanted(self, flow: Flow, node_id: NodeId) -> NodeId | None:
        """The peer that the plan names for a track of our own publishers, if it names one."""
        if not self.plan.vias or not isinstance(flow.key, tuple) or _from_peer(flow.key):
            return None
        return self.plan.peer_for(flow.key[1], node_id)

    def _planned(
        self, paths: tuple[PathCandidate, ...], wanted: NodeId
    ) -> tuple[PathCandidate, ...]:
        return tuple(
            path
            for path in paths
            if path.peer_id == wanted and path.carries_data and not self._draining.leads_away(path)
        )

    def _origin(self, flow: Flow) -> NodeId | None:
        """The peer a flow comes from: its key is (link, SNS id), or (client, track) for our own."""
        source = flow.key[0] if isinstance(flow.key, tuple) else None
        peer_link = self._peer_links.get(SessionId(source)) if isinstance(source, int) else None
        peer = None if peer_link is None else peer_link.peer
        return None if peer is None else peer.node_id


def _from_peer(key: tuple[object, ...]) -> bool:
    return isinstance(key[0], int)


def _leads_through(path: PathCandidate, node_id: NodeId) -> bool:
    return path.peer_id == node_id or any(item.node_id == node_id for item in path.info.path)


def _no_way(paths: tuple[PathCandidate, ...], origin: NodeId | None) -> str:
    if not paths:
        return "no way leads there"
    if origin is not None and any(_leads_through(path, origin) for path in paths):
        return f"every way would turn back to {format_node_id(origin)}, where it comes from"
    return "no way that leads there carries data"
