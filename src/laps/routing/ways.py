"""The ways that a flow might take to a node: what peers advertise, and what links would allow.

A peer advertises one way, the one that it takes itself. Others are found in the graph of links,
within the terms of the flow. They count only if the peer they begin with can be told of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from laps.infobase.nodes import PathCandidate
from laps.routing.conditions import MARGIN
from laps.routing.flows import FromPeer
from laps.types import MAX_VIAS, NodeInfo, NodePathItem, NodeType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.nodes import Nodes
    from laps.routing.conditions import Conditions
    from laps.routing.flows import Flow, LinkId
    from laps.routing.graph import Graph, Reach
    from laps.routing.policy import PolicyInForce
    from laps.routing.terms import Terms, Way
    from laps.types import NodeId


class Neighbours(Protocol):
    """The peers of this relay, and the links to each."""

    def node_of(self, link_id: LinkId) -> NodeId | None:
        """The peer at the other end of a link."""

    def sends_data(self, node_id: NodeId) -> bool:
        """Whether data can be sent to a peer by any link."""

    def data_link(self, node_id: NodeId, number: int) -> LinkId | None:
        """The link that data of one of many flows takes to a peer; None if none carries data."""

    def takes_terms(self, link_id: LinkId) -> bool:
        """Whether the peer at the other end of a link can be told how a flow is to go on."""


class Candidate(NamedTuple):
    """A way that a flow might take."""

    path: PathCandidate
    way: Way
    link: LinkId
    loss: float
    """What its links lose together, as far as it is known."""
    is_nameable: bool
    """Whether the next relay can be told of it, or need not be."""


class Ways:
    """Finds them."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        neighbours: Neighbours,
        graph: Graph,
        policy: PolicyInForce,
        conditions: Conditions,
    ) -> None:
        self._self_id = self_id
        self._nodes = nodes
        self._neighbours = neighbours
        self._graph = graph
        self._policy = policy
        self._conditions = conditions

    def advertised(self, path: PathCandidate, flow: Flow) -> Candidate:
        """What a peer advertises that data can be sent to; it goes on by itself that way."""
        way = way_of(path)
        link = self._neighbours.data_link(path.peer_id, flow.serial)
        assert link is not None  # noqa: S101 - data can be sent to the peer
        nameable = len(way) == 1 or (_fits(way) and self._neighbours.takes_terms(link))
        return Candidate(path, way, link, self._loss(way), nameable)

    def found(
        self,
        flow: Flow,
        node_id: NodeId,
        origin: NodeId | None,
        vias: Way | None,
        known: list[Candidate],
        *,
        is_weighed: bool,
    ) -> Iterator[Candidate]:
        """Ways that no peer advertises; `vias` are those that somebody names."""
        seen = {it.way for it in known}
        barred = (*flow.passed, *(() if origin is None else (origin,)))
        for reach in self._reaches(flow, node_id, barred, vias, is_weighed=is_weighed):
            if reach is None or reach.way in seen or not _fits(reach.way):
                continue
            seen.add(reach.way)
            link = self._neighbours.data_link(reach.way[0], flow.serial)
            if link is None or (len(reach.way) > 1 and not self._neighbours.takes_terms(link)):
                continue
            path = self._path(node_id, link, reach)
            yield Candidate(path, reach.way, link, self._loss(reach.way), is_nameable=True)

    def _reaches(
        self,
        flow: Flow,
        node_id: NodeId,
        barred: Way,
        vias: Way | None,
        *,
        is_weighed: bool,
    ) -> Iterator[Reach | None]:
        terms, graph = flow.terms, self._graph
        allows = Allowed(self._policy, terms, frozenset(barred))
        key = self._policy.version, terms.inside, terms.avoid, barred
        if vias is not None:
            yield graph.measured((*vias, node_id))
            for count in range(len(vias), 0, -1):
                yield graph.reach(node_id, key, allows, after=vias[:count])
        yield graph.reach(node_id, key, allows)
        if not is_weighed or isinstance(flow.key, FromPeer):
            return
        yield graph.reach(node_id, key, allows, fastest=True)
        calm = Calm(self._policy, terms, frozenset(barred), self._conditions)
        calm_key = (*key, terms.max_load, terms.max_loss, self._conditions.version)
        yield graph.reach(node_id, calm_key, calm)
        yield graph.reach(node_id, calm_key, calm, fastest=True)

    def _path(self, node_id: NodeId, link: LinkId, reach: Reach) -> PathCandidate:
        """A way over the links of the network, as if the first peer had advertised it."""
        way, srtts = reach.way, reach.srtts_us
        between = range(len(way) - 2, -1, -1)
        items = tuple(NodePathItem(way[index], srtts[index + 1]) for index in between)
        known = self._nodes.info(node_id)
        if known is None:
            info = NodeInfo(node_id, NodeType.EDGE, path=items)
        else:
            where = known.longitude, known.latitude
            info = NodeInfo(node_id, known.type, known.contact, *where, items)
        return PathCandidate(link, way[0], info, reach.srtt_us, 0.0, carries_data=True)

    def _loss(self, way: Way) -> float:
        kept, here = 1.0, self._self_id
        for node_id in way:
            kept *= 1.0 - self._conditions.loss(here, node_id)
            here = node_id
        return 1.0 - kept


class Allowed:
    """The links and nodes that a flow may use."""

    def __init__(self, policy: PolicyInForce, terms: Terms, barred: frozenset[NodeId]) -> None:
        self._policy = policy
        self._terms = terms
        self._barred = barred

    def node(self, node_id: NodeId, *, transit: bool) -> bool:
        """Whether data may go to a node, and through it if it is in `transit`."""
        if node_id in self._barred:
            return False
        if transit:
            return self._policy.against_via(node_id) is None
        return self._policy.against_node(self._terms, node_id) is None

    def link(self, a: NodeId, b: NodeId) -> bool:
        """Whether data may take a link."""
        return self._policy.against_link(self._terms, a, b) is None


class Calm(Allowed):
    """Those of them that are not too full for its class, and do not lose too much."""

    def __init__(
        self,
        policy: PolicyInForce,
        terms: Terms,
        barred: frozenset[NodeId],
        conditions: Conditions,
    ) -> None:
        super().__init__(policy, terms, barred)
        self._most_loss = terms.max_loss
        self._most_load = terms.max_load - MARGIN
        self._conditions = conditions

    def node(self, node_id: NodeId, *, transit: bool) -> bool:
        """Whether data may go to a node, and through it if it is in `transit`."""
        if transit and self._conditions.load(node_id) > self._most_load:
            return False
        return super().node(node_id, transit=transit)

    def link(self, a: NodeId, b: NodeId) -> bool:
        """Whether data may take a link."""
        conditions = self._conditions
        if conditions.loss(a, b) > self._most_loss or conditions.link_load(a, b) > self._most_load:
            return False
        return super().link(a, b)


class CalmByVias(Calm):
    """Those of them that lead by Vias alone."""

    def __init__(
        self, policy: PolicyInForce, terms: Terms, nodes: Nodes, conditions: Conditions
    ) -> None:
        super().__init__(policy, terms, frozenset(), conditions)
        self._nodes = nodes

    def node(self, node_id: NodeId, *, transit: bool) -> bool:
        """Whether data may go to a node, and through it if it is in `transit`."""
        if transit:
            info = self._nodes.info(node_id)
            if info is None or info.type is not NodeType.VIA:
                return False
        return super().node(node_id, transit=transit)


def _fits(way: Way) -> bool:
    """Whether the next relay, the first of a way, can be told what follows before the last."""
    return len(way) <= MAX_VIAS + 2


def way_of(path: PathCandidate) -> Way:
    """The nodes that a path passes after this one, with the one that it leads to."""
    passed = [item.node_id for item in reversed(path.info.path)]
    return (*passed, path.info.id)
