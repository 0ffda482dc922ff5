"""Which peers would help that nobody configured, and which Vias spare copies: without a planner.

The document uses hub and spoke where policy permits it, where the way there is good, where the
o-relay is not overloaded, and where no more copies go into a region than it may send there (2 as
long as policy says nothing). Otherwise a Via takes one copy, and sends it on. So for each track of
a publisher here, and each region that it goes to:

    copies into the region   ways                        what follows
    more than may            a Via there leads on        the ways by the Via are named to the router
                             none leads to the Via       the Via is dialled
    so many or fewer         too long for the class      the s-relay is dialled, or, where that is
                                                         too many, a Via there
                             by way of other regions     the s-relay is dialled
                             for it alone

So many may go as policy says (`fan_out`), and one where this relay is full or a link loses much.

Ways are those that there would be without sessions on demand, so that what a session changes does
not take away the reason for it. Those that policy or a plan names are left as they are. What has
begun goes on until the figures are well beyond its bound.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from laps.relay.detours import detours
from laps.relay.on_demand import Need
from laps.relay.roles import Role
from laps.routing.conditions import MARGIN, draw
from laps.routing.flows import FromClient
from laps.routing.route import NamedWay
from laps.routing.selection import select
from laps.routing.ways import Allowed, ByVias, way_of
from laps.types import NodeType, PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from laps.infobase.nodes import PathCandidate
    from laps.relay.on_demand import OnDemand
    from laps.relay.settings import DemandSettings
    from laps.relay.weighing import Weighing
    from laps.routing.flows import Flow
    from laps.routing.graph import Reach
    from laps.routing.terms import Terms, Way
    from laps.types import NodeId

# All flows are looked at in this time, some at once: 10 µs each.
LOOK_S: Final = 1.0
MOST_AT_ONCE: Final = 200
NEXT_S: Final = 0.04
# With very many flows more rarely, so that it stays a twentieth of a core.
LOOK_EACH_S: Final = 0.0002

# A shorter way is worth a session if it saves as much; estimates are not better than that.
GAIN_US: Final = 5_000
# What has a session has to be this much inside of its bound without it to be let go.
WELL_WITHIN: Final = 0.85


class Places(Protocol):
    """What is known of the paths to nodes, peers or not."""

    def round_trip(self, a: NodeId, b: NodeId) -> float | None:
        """About how many seconds a round trip between two nodes takes; None: nobody can tell."""

    def best_vias(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The Vias that a node would be reached by, best first, as it says."""

    def loss(self, node_id: NodeId) -> float:
        """What the path to a node that is no peer loses at least, as probes show."""

    def want(self, node_ids: Iterable[NodeId]) -> None:
        """Have these nodes probed before others, the first of them above all."""


@dataclass(slots=True)
class _Round:
    """What is found out while all flows are looked at once."""

    named: dict[tuple[int, NodeId], NamedWay] = field(default_factory=dict)
    vias: dict[tuple[int, str], NodeId] = field(default_factory=dict)
    "The Via of a flow and a region."
    needs: dict[str, Need] = field(default_factory=dict)
    spared: int = 0
    known_vias: dict[str, list[NodeId]] = field(default_factory=dict)
    "By region."
    weighed: Counter[NodeId] = field(default_factory=Counter)
    "Nodes that would help if their paths were good, and how many would be helped."


class Demand:
    """What would help the publishers of one relay."""

    def __init__(
        self,
        self_id: NodeId,
        role: Role,
        weighing: Weighing,
        places: Places,
        sessions: OnDemand,
        settings: DemandSettings,
    ) -> None:
        self.sessions = sessions
        self._self_id = self_id
        self._is_edge = role is Role.EDGE
        self._nodes = weighing.nodes
        self._links = weighing.links
        self._policy = weighing.policy
        self._router = weighing.router
        self._conditions = weighing.conditions
        self._graph = weighing.graph
        self._fib = weighing.fib
        self._sets = weighing.sets
        self._places = places
        self._settings = settings
        self._last = _Round()
        self._round: _Round | None = None
        self._steps: Iterator[None] = iter(())
        self._due_at = 0.0
        self._said: dict[NodeId, Need] = {}
        "What peers have named in their place that said GOAWAY and are not back."

    def configure(self, settings: DemandSettings, now: float) -> None:
        """Take what an operator has changed."""
        self._settings = settings
        self.sessions.configure(settings, now)
        self._due_at = now

    # -- as `Namer` --------------------------------------------------------------------------------

    @property
    def is_naming(self) -> bool:
        """Whether it names any way."""
        return bool(self._last.named)

    def way(self, flow: Flow, node_id: NodeId) -> NamedWay | None:
        """The way by a Via that spares copies."""
        return self._last.named.get((flow.serial, node_id))

    @property
    def spared_copies(self) -> int:
        """Copies that are not sent now, as a Via sends them on."""
        return self._last.spared

    def aggregating(self) -> Counter[tuple[str, NodeId]]:
        """The Vias that take one copy for a region, and of how many tracks."""
        return Counter((region, via) for (_, region), via in self._last.vias.items())

    # -- what peers say ----------------------------------------------------------------------------

    def peer_leaves(self, node_id: NodeId, contact: str, now: float) -> None:
        """A peer has said GOAWAY, and named another in its place."""
        if not contact or not self._settings.sessions:
            return
        named = self._node_at(contact)
        if named is not None and named in self._links.peers and not self._is_own(contact):
            return
        why = f"{format_node_id(node_id)} leaves, and names it"
        need = Need(contact, named, why, gain=1 << 20, mode=PeerMode.BOTH, at_once=True)
        self._said[node_id] = need
        self._due_at = now

    def _is_back(self, node_id: NodeId) -> bool:
        """Whether a peer that said GOAWAY has a link again on which it did not."""
        peer = self._links.peers.get(node_id)
        leaving = self.sessions.leaving
        return peer is not None and any(link_id not in leaving for link_id in peer.links)

    def _node_at(self, contact: str) -> NodeId | None:
        for node_id in self._nodes:
            info = self._nodes.info(node_id)
            if info is not None and info.contact == contact:
                return node_id
        return None

    def _is_own(self, contact: str) -> bool:
        return any(contact == it.need.contact for it in self.sessions)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at some flows; when all were, act on what was found."""
        if now < self._due_at or self.deadline() is None:
            return
        if self._round is None:
            self._round = _Round()
            self._steps = self._look(self._round)
        if next(islice(self._steps, MOST_AT_ONCE, None), self) is not self:
            self._due_at = now + NEXT_S
            return
        found, self._round = self._round, None
        self._due_at = now + max(LOOK_S, LOOK_EACH_S * len(self._fib))
        self._act(found, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._is_edge and (len(self._fib) or len(self.sessions) or self._last.named):
            return self._due_at
        return self._due_at if self._said else None

    def _act(self, found: _Round, now: float) -> None:
        before, self._last = self._last, found
        found.known_vias.clear()
        considered = [it for it, _ in found.weighed.most_common() if self._is_no_peer(it)]
        self._places.want(considered)
        found.weighed.clear()
        pairs = found.named.items() ^ before.named.items()
        if pairs:
            self._fib.reroute(sorted({node_id for (_, node_id), _ in pairs}))
            self._sets.changed(now)
        self._said = {it: need for it, need in self._said.items() if not self._is_back(it)}
        needs = found.needs | {need.contact: need for need in self._said.values()}
        least = self._settings.least
        self.sessions.needs({it.contact: it for it in needs.values() if it.gain >= least}, now)
        self.sessions.tick(now)

    # -- what would help ---------------------------------------------------------------------------

    def _look(self, found: _Round) -> Iterator[None]:
        for node_id in self._nodes:
            info = self._nodes.info(node_id)
            if info is not None and info.type is NodeType.VIA:
                found.known_vias.setdefault(self._policy.region_of(node_id), []).append(node_id)
        for flow in self._fib:
            if isinstance(flow.key, FromClient) and flow.targets:
                self._look_at(flow, found)
            yield

    def _look_at(self, flow: Flow, found: _Round) -> None:
        regions: dict[str, list[NodeId]] = {}
        for node_id in sorted(flow.targets):
            regions.setdefault(self._policy.region_of(node_id), []).append(node_id)
        own = self._policy.region_of(self._self_id)
        others: dict[NodeId, PathCandidate] = {}
        for region, targets in regions.items():
            free = (it for it in targets if self._router.told_way(flow, it) is None)
            ways = {it: path for it in free if (path := self._usual(it)) is not None}
            is_far = bool(region) and region != own
            spared: Collection[NodeId] = ()
            if is_far:
                spared = self._spare(flow, region, ways, found)
            self._shorten(flow, region, ways, spared, found, is_far=is_far)
            others |= {it: path for it, path in ways.items() if it not in spared}
        self._straighten(flow, others, found)

    def _usual(self, node_id: NodeId) -> PathCandidate | None:
        """The way that there would be without sessions on demand."""
        ours = self.sessions.link_ids
        best = self._nodes.best(node_id)
        if ours and best is not None and best.path.session in ours:
            best = select([it for it in self._nodes.paths(node_id) if it.session not in ours])
        return None if best is None or not best.path.carries_data else best.path

    # -- fewer copies ------------------------------------------------------------------------------

    def _spare(
        self, flow: Flow, region: str, ways: Mapping[NodeId, PathCandidate], found: _Round
    ) -> Collection[NodeId]:
        """Have a Via take one copy for a region; the targets that it sends on to."""
        entries = {it: self._entry(way_of(path), region) for it, path in ways.items()}
        copies = len(set(entries.values()))
        if copies < 2 or len(ways) < 2:
            return ()
        burden = self._burden(flow, region, ways)
        if copies <= flow.terms.fan_out and burden is None:
            return ()
        chosen = self._via(flow, region, ways, found)
        if chosen is None:
            return ()
        via, covered, reach = chosen
        by_via = self._entry((via,) if reach is None else reach.way, region)
        after = len({by_via if it in covered else entries[it] for it in ways})
        if after >= copies:
            return ()
        why = f"{copies} copies into {region} where {burden or f'{flow.terms.fan_out} may go'}"
        if reach is None:
            self._need(via, why, len(covered), found, at_once=True)
            return ()
        by = f"a Via that spares copies ({why})"
        for node_id in covered:
            found.named[flow.serial, node_id] = NamedWay(reach.way, by, is_exact=True)
        found.vias[flow.serial, region] = via
        found.spared += copies - after
        if reach.way == (via,):
            # It may be a session on demand: it stays.
            self._need(via, why, len(covered), found, at_once=True)
        return covered

    def _burden(self, flow: Flow, region: str, ways: Mapping[NodeId, PathCandidate]) -> str | None:
        """Why one copy is enough; None where hub and spoke is fine."""
        terms, here = flow.terms, self._self_id
        is_spared = (flow.serial, region) in self._last.vias
        if self._is_full_for(flow, here, is_used=not is_spared):
            return f"one may go: this relay is {self._conditions.load(here):.0%} full"
        bound = terms.max_loss * (WELL_WITHIN if is_spared else 1.0)
        for path in ways.values():
            if (loss := self._conditions.loss(here, path.peer_id)) > bound:
                return f"one may go: {loss:.1%} is lost to {format_node_id(path.peer_id)}"
        return None

    def _entry(self, way: Way, region: str) -> tuple[NodeId, NodeId]:
        """The link by which a way comes into a region."""
        here = self._self_id
        for node_id in way:
            if self._policy.region_of(node_id) == region:
                return here, node_id
            here = node_id
        return here, way[-1]

    def _via(
        self, flow: Flow, region: str, ways: Mapping[NodeId, PathCandidate], found: _Round
    ) -> tuple[NodeId, list[NodeId], Reach | None] | None:
        """The Via that leads to the most of some targets in time, and how it is reached."""
        current = self._last.vias.get((flow.serial, region))
        named: Counter[NodeId] = Counter()
        for node_id in ways:
            named.update(self._places.best_vias(node_id))
        known = sorted({*named, *found.known_vias.get(region, ())} - {self._self_id})
        best = None
        for via in known:
            if not self._may_aggregate(flow, via, is_current=via == current):
                continue
            reach = self._reach(flow.terms, via)
            there_us = self._there_us(via, reach)
            passed = () if reach is None else reach.way
            covered = [
                it
                for it, usual in ways.items()
                if it not in passed and self._leads_on(flow.terms, via, it, there_us, usual)
            ]
            if len(covered) < 2:
                continue
            found.weighed[via] += len(covered)
            if reach is None and self._places.loss(via) > flow.terms.max_loss:
                continue
            rank = (-len(covered), via != current, reach is None, there_us, via)
            if best is None or rank < best[0]:
                best = rank, via, covered, reach
        return None if best is None else best[1:]

    def _may_aggregate(self, flow: Flow, via: NodeId, *, is_current: bool) -> bool:
        terms = flow.terms
        if self._policy.against_via(via) or self._policy.against_node(terms, via):
            return False
        info = self._nodes.info(via)
        if info is None or info.type is NodeType.STUB:
            return False
        return not self._is_full_for(flow, via, is_used=is_current)

    def _is_full_for(self, flow: Flow, node_id: NodeId, *, is_used: bool) -> bool:
        mine = draw(flow.of_track, node_id)
        return self._conditions.turns_away(node_id, flow.terms.max_load, mine, is_used=is_used)

    def _reach(self, terms: Terms, via: NodeId) -> Reach | None:
        """How a Via is reached over the links that there are.

        Through other Vias: an Edge is passed only where the Via cannot be had as a peer.
        """
        info = self._nodes.info(via)
        is_last_hope = info is None or not info.contact or self.sessions.cannot_help(info.contact)
        allows = Allowed(self._policy, terms, frozenset())
        if not is_last_hope:
            allows = ByVias(self._policy, terms, self._nodes)
        key = self._policy.version, terms.inside, terms.avoid, (), is_last_hope
        reach = self._graph.reach(via, key, allows)
        if reach is None or not self._takes_terms(reach.way[0]):
            return None
        return reach

    def _takes_terms(self, peer_id: NodeId) -> bool:
        link = self._links.data_link(peer_id, 0)
        return link is not None and self._links.takes_terms(link)

    def _there_us(self, via: NodeId, reach: Reach | None) -> float:
        if reach is not None:
            return reach.srtt_us
        known = self._places.round_trip(self._self_id, via)
        return inf if known is None else known * 1e6

    def _leads_on(
        self, terms: Terms, via: NodeId, node_id: NodeId, there_us: float, usual: PathCandidate
    ) -> bool:
        """Whether a Via sends on to a node, in the time that the class of a track bears."""
        link = self._graph.links_of(via).get(node_id)
        if link is None or node_id == via or link[1] > terms.max_loss:
            return False
        if self._policy.against_link(terms, via, node_id) is not None:
            return False
        whole = there_us + link[0]
        if terms.stretch == inf:
            return whole < inf
        return whole <= terms.stretch * self._least_us(node_id, usual) + terms.slack_us

    # -- shorter ways ------------------------------------------------------------------------------

    def _shorten(
        self,
        flow: Flow,
        region: str,
        ways: Mapping[NodeId, PathCandidate],
        spared: Collection[NodeId],
        found: _Round,
        *,
        is_far: bool,
    ) -> None:
        """Find peers for targets whose ways take too long for the class of a track."""
        terms = flow.terms
        if terms.stretch == inf or self._conditions.load(self._self_id) > terms.max_load - MARGIN:
            return
        late = {
            it: ways[it] for it in ways if it not in spared and self._is_late(terms, it, ways[it])
        }
        found.weighed.update(late.keys())
        late = {it: path for it, path in late.items() if self._is_good(terms, it)}
        if not late:
            return
        straight = sum(not path.hops for it, path in ways.items() if it not in late)
        if not is_far or straight + len(late) <= terms.fan_out:
            for node_id, path in late.items():
                least_us = self._least_us(node_id, path)
                why = f"{path.srtt_us / 1000:.4g} ms to it, and {least_us / 1000:.4g} would do"
                self._need(node_id, why, 1, found)
            return
        chosen = self._via(flow, region, late, found)
        if chosen is not None and (chosen[2] is None or chosen[2].way == (chosen[0],)):
            why = f"{len(late)} ways into {region} take too long"
            self._need(chosen[0], why, len(chosen[1]), found)

    def _straighten(self, flow: Flow, ways: Mapping[NodeId, PathCandidate], found: _Round) -> None:
        """Find peers for targets that are reached by way of other regions for them alone."""
        terms, region_of = flow.terms, self._policy.region_of
        if self._conditions.load(self._self_id) > terms.max_load - MARGIN:
            return
        whole = {node_id: way_of(path) for node_id, path in ways.items()}
        for node_id, fewer in detours(self._self_id, whole, region_of).items():
            found.weighed[node_id] += fewer
            if self._is_good(terms, node_id):
                why = f"{fewer + 1} copies between regions where one would do"
                self._need(node_id, why, fewer, found)

    def _is_late(self, terms: Terms, node_id: NodeId, path: PathCandidate) -> bool:
        if not path.hops:
            return False
        least_us = self._least_us(node_id, path)
        bound = terms.stretch * least_us + terms.slack_us
        has_session = node_id in self._links.peers
        margin = WELL_WITHIN if has_session else 1.0
        return path.srtt_us > margin * bound and path.srtt_us - least_us >= margin * GAIN_US

    def _is_good(self, terms: Terms, node_id: NodeId) -> bool:
        """Whether data may go straight to a node, and nothing known speaks against it."""
        if self._policy.against_way(terms, (node_id,)) is not None:
            return False
        if self._is_no_peer(node_id):
            return self._places.loss(node_id) <= terms.max_loss
        return self._conditions.loss(self._self_id, node_id) <= terms.max_loss

    def _is_no_peer(self, node_id: NodeId) -> bool:
        return node_id not in self._links.peers

    def _least_us(self, node_id: NodeId, path: PathCandidate) -> float:
        """The shortest round trip to a node that there could be."""
        straight = self._places.round_trip(self._self_id, node_id)
        return min(path.srtt_us, inf if straight is None else straight * 1e6)

    # -- who is needed -----------------------------------------------------------------------------

    def _need(
        self, node_id: NodeId, why: str, gain: int, found: _Round, *, at_once: bool = False
    ) -> None:
        info = self._nodes.info(node_id)
        if info is None or not info.contact or info.type is NodeType.STUB:
            return
        if node_id in self._links.peers and not self._is_own(info.contact):
            return  # it is configured
        if not self._policy.may_peer(node_id):
            return
        before = found.needs.get(info.contact)
        if before is not None:
            why, gain, at_once = before.why, gain + before.gain, at_once or before.at_once
        found.needs[info.contact] = Need(info.contact, node_id, why, gain, at_once=at_once)
