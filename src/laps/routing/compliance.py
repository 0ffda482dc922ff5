"""What a policy would refuse in a network, decided as its relays would decide it.

It is asked before the policy is rolled out: which peers could not stay, which tracks would reach
which nodes no more, and what the policy says that this network can never follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from laps.infobase.metrics import Metrics
from laps.routing.graph import Graph
from laps.routing.policy import PolicyInForce, terms_of
from laps.routing.terms import FREE
from laps.routing.ways import Allowed
from laps.types import NodeInfo, NodeMetrics, NodeType, Reachability, format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from laps.policy import Policy
    from laps.routing.terms import Terms
    from laps.types import NodeId

OTHERS: Final = "all others"
"""The tracks that no rule names."""

# A track that hardly any pattern of a rule is meant for.
_UNNAMED: Final = "\x00/\x00"


@dataclass(frozen=True, slots=True)
class Relay:
    """A node, as far as policy asks."""

    id: NodeId
    role: str = "edge"
    region: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """A track that is published at one node, and wanted at another."""

    track: str
    "Its namespace and name."
    origin: NodeId
    target: NodeId


@dataclass(frozen=True, slots=True)
class NoWay:
    """A pair of nodes that tracks may take no way between."""

    tracks: str
    "The pattern of the rule that they match, or the name of a track that is wanted."
    origin: NodeId
    target: NodeId
    why: str


@dataclass(slots=True)
class Findings:
    """What would be refused."""

    peers: list[tuple[NodeId, NodeId]] = field(default_factory=list)
    "Links of the network whose nodes may not be peers."
    closed: list[tuple[NodeId, NodeId]] = field(default_factory=list)
    "Links that no data may take."
    pairs: dict[str, int] = field(default_factory=dict)
    "By kind of tracks: the pairs of edges that a way leads between today."
    refused: list[NoWay] = field(default_factory=list)
    "Those of them that no allowed way leads between."
    wanted: list[NoWay] = field(default_factory=list)
    "Tracks that somebody publishes and somebody wants, and that do not reach him."
    advice: list[str] = field(default_factory=list)
    "What the policy says in vain, and what it leaves out."

    @property
    def is_clean(self) -> bool:
        """Whether all that is there goes on, and all that the policy says can be followed."""
        return not (self.peers or self.closed or self.wanted or self.advice)


class Network:
    """The relays and links that a policy is tried on."""

    def __init__(
        self,
        relays: Iterable[Relay],
        links: Iterable[tuple[NodeId, NodeId]],
        control: Iterable[tuple[NodeId, NodeId]] | None = None,
    ) -> None:
        """`links` are those that carry data, each way; `control` those that carry control."""
        self.relays = {relay.id: relay for relay in relays}
        self.links = list(dict.fromkeys(links))
        self._tells: dict[NodeId, set[NodeId]] = {node_id: set() for node_id in self.relays}
        for a, b in self.links if control is None else control:
            self._tells[a].add(b)
            self._tells[b].add(a)
        self._metrics = Metrics()
        peers: dict[NodeId, dict[NodeId, Reachability]] = {node_id: {} for node_id in self.relays}
        for a, b in self.links:
            peers[a][b] = Reachability(b, 1, 0.0)
            peers[b][a] = Reachability(a, 1, 0.0)
        for relay in self.relays.values():
            near = tuple(peers[relay.id].values())
            said = NodeMetrics(1, relay.id, 0.0, 0, 0, relay.region, reachability=near)
            self._metrics.add(said)

    @property
    def regions(self) -> set[str]:
        """Where relays are."""
        return {relay.region for relay in self.relays.values()} - {""}

    @property
    def edges(self) -> list[NodeId]:
        """The relays that tracks come from and go to: a Stub's go by its Edge."""
        return sorted(relay.id for relay in self.relays.values() if relay.role == "edge")

    def edges_of(self, node_id: NodeId) -> list[NodeId]:
        """Where clients of a relay are known: those of a Stub at its Edges."""
        relay = self.relays[node_id]
        if relay.role != "stub":
            return [node_id] if relay.role == "edge" else []
        return sorted(it for it in self._tells[node_id] if self.relays[it].role == "edge")

    def told_of(self, target: NodeId, rules: PolicyInForce, terms: Terms) -> set[NodeId]:
        """The relays that hear who wants a track at one of them: each is told by another."""
        told, left = {target}, [target]
        while left:
            for node_id in self._tells[left.pop()] - told:
                is_stub = self.relays[node_id].role == "stub"
                if not is_stub and rules.may_be_told(terms, node_id):
                    told.add(node_id)
                    left.append(node_id)
        return told

    def seen_from(self, node_id: NodeId, policy: Policy | None) -> _Seen:
        """The network as one of its relays knows it."""
        return _Seen(node_id, self, self._metrics, policy)


class _Seen:
    """The network as one of its relays knows it, and the policy that this keeps to."""

    def __init__(
        self, self_id: NodeId, network: Network, metrics: Metrics, policy: Policy | None
    ) -> None:
        region = network.relays[self_id].region
        self.policy = PolicyInForce(self_id, region, metrics)
        self.policy.follow(policy)
        own = _Own(metrics, self_id)
        self._graph = Graph(self_id, _Roles(network.relays), metrics, own)

    def has_way(self, terms: Terms, node_id: NodeId) -> bool:
        """Whether tracks of some terms reach a node."""
        if self.policy.against_way(terms, ()) is not None:
            return False
        allows = Allowed(self.policy, terms, frozenset())
        return self._graph.reach(node_id, terms, allows) is not None

    def why_not(self, free: _Seen, terms: Terms, node_id: NodeId) -> str:
        """What is against the way that would be taken if everything were allowed."""
        way = free.way(node_id)
        return self.policy.against_way(terms, way) or "no other way is allowed"

    def way(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The shortest way to a node; nothing where there is none."""
        terms = self.policy.terms(None)
        reach = self._graph.reach(node_id, terms, Allowed(self.policy, terms, frozenset()))
        return () if reach is None else reach.way


class _Own:
    """The links of the relay that looks."""

    def __init__(self, metrics: Metrics, self_id: NodeId) -> None:
        self._metrics = metrics
        self._self_id = self_id

    def data_peers(self) -> Iterator[tuple[NodeId, int]]:
        """The peers that data can be sent to, and the round trip to each."""
        said = self._metrics.get(self._self_id)
        for item in () if said is None else said.reachability:
            yield item.node_id, item.srtt_us


class _Roles:
    """The nodes of a network, of which the roles are known."""

    def __init__(self, relays: Mapping[NodeId, Relay]) -> None:
        self._relays = relays

    def info(self, node_id: NodeId) -> NodeInfo | None:
        """A node, as far as ways depend on it."""
        relay = self._relays.get(node_id)
        if relay is None:
            return None
        return NodeInfo(node_id, NodeType.STUB if relay.role == "stub" else NodeType.EDGE)


def review(policy: Policy, network: Network, demand: Iterable[Demand] = ()) -> Findings:
    """Try a policy on a network, and on what flows there."""
    found = Findings()
    if not network.relays:
        return found
    rules = network.seen_from(next(iter(network.relays)), policy).policy
    for a, b in network.links:
        if not policy.may_peer(a, b, rules.region_of):
            found.peers.append((a, b))
        elif policy.is_closed(a, b, rules.region_of):
            found.closed.append((a, b))
    _look_at_tracks(policy, network, rules, list(demand), found)
    found.advice = [
        *_unknown_regions(policy, network, rules),
        *_lost_ways(policy, network),
        *_told_elsewhere(policy),
    ]
    return found


def _look_at_tracks(
    policy: Policy,
    network: Network,
    rules: PolicyInForce,
    demand: Collection[Demand],
    found: Findings,
) -> None:
    """Find the pairs of edges, and the subscriptions, that are refused."""
    judge = _Judge(network, rules)
    kinds = {rule.tracks: terms_of(policy, rule.tracks) for rule in policy.rules}
    if policy.rule_of(_UNNAMED) is None:
        kinds[OTHERS] = terms_of(policy, _UNNAMED)
    for origin in network.edges:
        seen, free = network.seen_from(origin, policy), network.seen_from(origin, None)
        reached = [node_id for node_id in network.edges if node_id != origin and free.way(node_id)]
        for kind, terms in kinds.items():
            found.pairs[kind] = found.pairs.get(kind, 0) + len(reached)
            for it in reached:
                if (why := judge.why_not(origin, seen, free, terms, it)) is not None:
                    found.refused.append(NoWay(kind, origin, it, why))
        for one in demand:
            if one.origin != origin or one.target == origin:
                continue
            why = judge.why_not(origin, seen, free, terms_of(policy, one.track), one.target)
            if why is not None:
                found.wanted.append(NoWay(one.track, origin, one.target, why))


class _Judge:
    """Says why a track does not come from one node to another."""

    def __init__(self, network: Network, rules: PolicyInForce) -> None:
        self._network = network
        self._rules = rules
        self._told: dict[tuple[Terms, NodeId], set[NodeId]] = {}

    def why_not(
        self, origin: NodeId, seen: _Seen, free: _Seen, terms: Terms, target: NodeId
    ) -> str | None:
        """What is against it; None: nothing. `seen` and `free` are of the node it comes from."""
        if not seen.has_way(terms, target):
            return seen.why_not(free, terms, target)
        if terms.told is None and not terms.is_bound:
            return None
        if origin in self._told_of(terms, target) or origin not in self._told_of(FREE, target):
            return None
        if not self._rules.may_be_told(terms, origin):
            region = self._rules.region_of(origin) or "no region that is known"
            return f"{format_node_id(origin)} is in {region}, which is not told who subscribes"
        return f"no relay that is told who subscribes leads to {format_node_id(origin)}"

    def _told_of(self, terms: Terms, target: NodeId) -> set[NodeId]:
        """The relays that hear who wants a track at one of them."""
        told = self._told.get((terms, target))
        if told is None:
            told = self._told[terms, target] = self._network.told_of(target, self._rules, terms)
        return told


def _told_elsewhere(policy: Policy) -> Iterator[str]:
    """Rules that tell only relays that may not have the track."""
    for number, rule in enumerate(policy.rules, start=1):
        may = set(rule.told) - set(rule.avoid)
        if rule.inside:
            may &= set(rule.inside)
        if rule.told and not may:
            where = ", ".join(rule.told)
            yield f"rule[{number}] tells only relays in {where}, where the tracks may not be"


def _unknown_regions(policy: Policy, network: Network, rules: PolicyInForce) -> Iterator[str]:
    """Regions that no node is in: misspelt, or of nodes that are to come."""
    there = {rules.region_of(node_id) for node_id in network.relays} - {""}
    there |= {region for link in policy.links for region in link.transits}
    for where, region in policy.regions_named():
        if region not in there:
            yield f"{where} names the region {region}, and no node is in it"
    nowhere = sorted(node_id for node_id in network.relays if not rules.region_of(node_id))
    if nowhere and policy.scopes:
        names = ", ".join(map(format_node_id, nowhere[:5])) + (" …" if len(nowhere) > 5 else "")
        yield f"no region is known of {names}: tracks that are bound to regions do not go there"


def _lost_ways(policy: Policy, network: Network) -> Iterator[str]:
    """Ways over links that are not there."""
    linked = {frozenset(link) for link in network.links}
    for number, way in enumerate(policy.ways, start=1):
        vias = policy.vias_of(way)
        for via in vias:
            if via not in network.relays:
                yield f"way[{number}] passes {format_node_id(via)}, which is no node"
        for a, b in pairwise(vias):
            if frozenset((a, b)) not in linked and {a, b} <= network.relays.keys():
                pair = f"{format_node_id(a)} and {format_node_id(b)}"
                yield f"way[{number}] passes {pair}, which are no peers"
