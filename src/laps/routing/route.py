"""Which way a flow takes to a node, and why.

There is one decision, `Router.route`. The flow keeps its value, data follows its link, and whoever
looks in is shown its reason. Where nothing is known but nodes, paths and round trips it is what
selection says, the document's order. Otherwise the first of these that tells two ways apart
decides:

    1. allowed            a way that policy forbids is none, even where it is the only one
    2. no turning back    nor is one through a relay that the data has passed
    3. heard of           a peer of which nothing is heard, or that leaves, is avoided
    4. named              by the relay before us, by policy, by a plan, or to spare copies
    5. acceptable         no relay or link on it too full, not too much lost, not too long
    6. the document's     fewest hops, lowest sum of sRTT, lowest peer node id, oldest session

The relay that a track is published at decides for the whole way, and where that is another than
selection would take, or has to be kept to, the next relay is told (`Onward`). A relay in the middle
follows what it is told, and otherwise the document's order. So each flow is weighed once, and two
relays that judge differently cannot send it in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from laps.routing.conditions import draw, link_draw
from laps.routing.flows import FromClient, FromPeer, Route
from laps.routing.plan import NO_PLAN
from laps.routing.policy import track_pattern_text
from laps.routing.selection import peer_text, preference, why
from laps.routing.terms import NOTHING, Onward
from laps.routing.ways import Ways, way_of
from laps.types import MAX_VIAS, format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from laps.infobase.nodes import Choice, Nodes, PathCandidate
    from laps.routing.avoided import Avoided
    from laps.routing.conditions import Conditions
    from laps.routing.flows import Flow, LinkId
    from laps.routing.graph import Graph
    from laps.routing.policy import PolicyInForce
    from laps.routing.terms import Terms, Way
    from laps.routing.ways import Candidate, Neighbours
    from laps.types import NodeId

# A way that a flow takes is left for its delay or its loss only when it is this much worse than its
# class allows: figures vary by themselves.
LENIENCE: Final = 1.2

ACCEPTABLE: Final = 0, 0.0
"Of a way that nothing speaks against: no other is more acceptable."


class NamedWay(NamedTuple):
    """A way that somebody names for a flow."""

    vias: Way
    """What it passes, in order; nothing: it goes straight to the node."""
    by: str
    """Who names it, in an operator's words."""
    is_exact: bool
    """Whether nothing else may be passed after the Vias."""


class Namer(Protocol):
    """Somebody who names ways for flows, such as a plan."""

    @property
    def is_naming(self) -> bool:
        """Whether it names any way."""

    def way(self, flow: Flow, node_id: NodeId) -> NamedWay | None:
        """The way that a flow is to take to a node; None where nothing is said."""


@dataclass(slots=True)
class RouteCounters:
    """What became of decisions, for the operator."""

    unreachable_targets: int = 0
    refused_targets: int = 0
    "Times that policy forbade every way to an s-relay."
    unmet_plans: int = 0
    "Times that the way a plan, or a relay before us, names was not to be had."


class Router:
    """Decides which way a flow takes to a node."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        neighbours: Neighbours,
        avoided: Avoided,
        graph: Graph,
        policy: PolicyInForce,
        conditions: Conditions,
    ) -> None:
        self.counters = RouteCounters()
        self.plan = NO_PLAN
        "Laid over selection for the tracks of our own publishers."
        self.steered: set[NodeId] = set()
        """Nodes that some flow reaches by another way than selection's, not by the way that
        somebody names, by one that is not acceptable, or by none. Other links may be all that is
        missing."""
        self.namers: tuple[Namer, ...] = ()
        "Who else names ways, the first of them before the others."
        self._self_id = self_id
        self._nodes = nodes
        self._neighbours = neighbours
        self._avoided = avoided
        self._policy = policy
        self._conditions = conditions
        self._ways = Ways(self_id, nodes, neighbours, graph, policy, conditions)

    def route(self, flow: Flow, node_id: NodeId) -> Route:
        """The way to a node, never back to where a flow comes from, and why it is that one."""
        origin = self._origin(flow)
        named = self._named(flow, node_id)
        best = self._nodes.best(node_id)
        if (
            named is None
            and best is not None
            and self._is_able(best.path, origin, flow)
            and (not self._is_weighed(flow) or self._is_good(flow, best.path))
        ):
            # So it is nearly always, and then the other paths are not looked at.
            link = self._neighbours.data_link(best.path.peer_id, flow.serial)
            return Route(link, best.path, best.reason)
        return self._weigh(flow, node_id, origin, named)

    @property
    def has_names(self) -> bool:
        """Whether flows may go by other ways than the best, so that each way counts."""
        planned = self.plan.vias or self.plan.ways
        naming = any(namer.is_naming for namer in self.namers)
        return self._policy.policy is not None or bool(planned) or naming

    def terms(self, flow: Flow) -> Terms:
        """What holds for a flow that is no peer's."""
        return self._policy.terms(flow.name)

    # -- what is told of it ------------------------------------------------------------------------

    def onward(self, flow: Flow, link: LinkId, nodes: Iterable[NodeId]) -> Onward | None:
        """What the next relay is told of a flow; None: nothing, or it takes no such word."""
        if not self._neighbours.takes_terms(link):
            return None
        ways: dict[Way, list[NodeId]] = {}
        for node_id in sorted(nodes):
            route = flow.routes[node_id]
            if route.is_named and route.path is not None:
                ways.setdefault(way_of(route.path)[1:-1], []).append(node_id)
        told = Onward(
            flow.terms.service,
            flow.terms.order,
            flow.terms.inside,
            flow.terms.avoid,
            tuple((way, tuple(to)) for way, to in sorted(ways.items())),
            (*flow.passed, self._self_id)[-MAX_VIAS:] if ways or flow.terms.is_bound else (),
        )
        return None if told.says_nothing else told

    def forbids(self, flow: Flow, route: Route) -> bool:
        """Whether a flow may not take a way that it took until now."""
        if route.path is None or route.link is None:
            return False
        way = way_of(route.path)
        if flow.terms.is_bound and len(way) > 1 and not self._neighbours.takes_terms(route.link):
            return True
        return self._policy.against_way(flow.terms, way) is not None

    def onward_again(self, flow: Flow, link: LinkId, told: Onward | None) -> Onward | None:
        """What a peer is told of a set of before, as the terms are now; its ways are the same."""
        if not self._neighbours.takes_terms(link):
            return told
        terms, before = flow.terms, told or NOTHING
        passed = before.passed or ((*flow.passed, self._self_id) if terms.is_bound else ())
        again = Onward(
            terms.service, terms.order, terms.inside, terms.avoid, before.ways, passed[-MAX_VIAS:]
        )
        return told if told is None and again.says_nothing else again

    # -- the decision ------------------------------------------------------------------------------

    def _is_weighed(self, flow: Flow) -> bool:
        """Whether more than selection may have to do with a flow."""
        terms = flow.terms
        if terms.is_bound or self._policy.limits:
            return True
        if isinstance(flow.key, FromPeer):
            return False
        return terms.is_exacting or bool(self._conditions)

    def _is_good(self, flow: Flow, path: PathCandidate) -> bool:
        """Whether the way that selection takes need not be weighed against others."""
        terms = flow.terms
        if terms.is_bound or terms.is_exacting or self._avoided.avoids(path):
            return False
        way = way_of(path)
        if self._policy.against_way(terms, way) is not None:
            return False
        return isinstance(flow.key, FromPeer) or not self._conditions.concern(self._self_id, way)

    def _weigh(
        self, flow: Flow, node_id: NodeId, origin: NodeId | None, named: NamedWay | None
    ) -> Route:
        terms = flow.terms
        paths = self._nodes.paths(node_id)
        able = [path for path in paths if self._is_able(path, origin, flow)]
        usual = self._avoided.select(able)
        known = [self._ways.advertised(path, flow) for path in able]
        vias = named.vias if named is not None and named.is_exact else None
        is_weighed = self._is_weighed(flow)
        if is_weighed or vias is not None:
            known += self._ways.found(flow, node_id, origin, vias, known, is_weighed=is_weighed)
        against = {it.way: self._against(terms, it) for it in known}
        allowed = [it for it in known if against[it.way] is None]
        refusals = [why for why in against.values() if why is not None]
        if not allowed:
            if named is not None:
                self.counters.unmet_plans += 1
                self.steered.add(node_id)
            return self._no_way(node_id, paths, origin, refusals)
        shortest_us = min(it.path.srtt_us for it in allowed)
        chosen = min(allowed, key=lambda it: self._weight(flow, node_id, it, named, shortest_us))
        words = list(self._words(flow, chosen, usual, allowed, named))
        if origin is not None and (back := sum(_leads_through(it, origin) for it in paths)):
            words.append(f"{back} would turn back to {format_node_id(origin)}")
        if refusals:
            words.append(f"{len(refusals)} not allowed: {refusals[0]}")
        is_usual = usual is not None and chosen.path is usual.path
        is_unmet = named is not None and _in_common(chosen.way, named) <= len(named.vias)
        acceptance = self._acceptance(flow, chosen, shortest_us, chosen.way)
        if is_unmet or not is_usual or acceptance != ACCEPTABLE:
            self.steered.add(node_id)
        is_named = terms.is_bound or not is_usual or (named is not None and named.is_exact)
        return Route(
            chosen.link,
            chosen.path,
            "; ".join(words),
            is_named=is_named and len(chosen.way) > 1 and chosen.is_nameable,
        )

    def _no_way(
        self,
        node_id: NodeId,
        paths: Collection[PathCandidate],
        origin: NodeId | None,
        refusals: list[str],
    ) -> Route:
        if refusals:
            self.steered.add(node_id)
            self.counters.refused_targets += 1
            return Route(None, None, f"policy: {refusals[0]}", is_refused=True)
        self.counters.unreachable_targets += 1
        return Route(None, None, _no_way(paths, origin))

    def _weight(
        self,
        flow: Flow,
        node_id: NodeId,
        it: Candidate,
        named: NamedWay | None,
        shortest_us: int,
    ) -> tuple[int | float, ...]:
        """What is compared of a way: the lowest is taken."""
        current = flow.routes.get(node_id)
        current_way = () if current is None or current.path is None else way_of(current.path)
        is_ours = not isinstance(flow.key, FromPeer)
        return (
            self._avoided.is_suspect(it.path),
            self._avoided.leads_away(it.path),
            -_in_common(it.way, named),
            *(self._acceptance(flow, it, shortest_us, current_way) if is_ours else ACCEPTABLE),
            *preference(it.path),
            *it.way,
        )

    def _acceptance(
        self, flow: Flow, it: Candidate, shortest_us: int, current: Way
    ) -> tuple[int, float]:
        """How acceptable a way is for the class of a flow: the lowest is the best.

        Where nothing is, it stays by a relay or a link that is too full: others leave it, too. Or
        else it takes the way that is least full.
        """
        if self._unacceptable(flow, it, shortest_us, current) is None:
            return ACCEPTABLE
        if self._is_too_bad(flow.terms, it, shortest_us, it.way == current) is not None:
            return 3, 0.0
        if it.way == current:
            return 1, 0.0
        fullest = max(map(self._conditions.load, it.way[:-1]), default=0.0)
        links = pairwise((self._self_id, *it.way))
        return 2, max(fullest, *(self._conditions.link_load(a, b) for a, b in links))

    def _unacceptable(
        self, flow: Flow, it: Candidate, shortest_us: int, current: Way
    ) -> str | None:
        """Why a way is not acceptable for the class of a flow; None if it is."""
        terms, conditions = flow.terms, self._conditions
        if (bad := self._is_too_bad(terms, it, shortest_us, it.way == current)) is not None:
            return bad
        for node_id in it.way[:-1]:
            mine, is_used = draw(flow.of_track, node_id), node_id in current
            if conditions.turns_away(node_id, terms.max_load, mine, is_used=is_used):
                load = conditions.load(node_id)
                return f"passes {format_node_id(node_id)}, which is {load:.0%} full"
        used = set(pairwise((self._self_id, *current)))
        for link in pairwise((self._self_id, *it.way)):
            mine, is_used = link_draw(flow.of_track, *link), link in used
            if conditions.link_turns_away(*link, terms.max_load, mine, is_used=is_used):
                load, ends = conditions.link_load(*link), "-".join(map(format_node_id, link))
                return f"passes {ends}, which is {load:.0%} full"
        return None

    def _is_too_bad(
        self, terms: Terms, it: Candidate, shortest_us: int, is_current: bool
    ) -> str | None:
        """Why a way itself is not good enough for a class; None if it is."""
        lenient = LENIENCE if is_current else 1.0
        most_us = terms.stretch * shortest_us * lenient + terms.slack_us
        if it.path.srtt_us > most_us:
            return f"takes {_ms(it.path.srtt_us)} of {_ms(most_us)}"
        if it.loss > terms.max_loss * lenient:
            return f"loses {it.loss:.1%} of {terms.max_loss:.1%}"
        return None

    def _words(
        self,
        flow: Flow,
        chosen: Candidate,
        usual: Choice | None,
        ways: list[Candidate],
        named: NamedWay | None,
    ) -> Iterator[str]:
        """Why it is this way, in an operator's words."""
        if named is not None:
            names = f"{named.by} says {_vias(named.vias, chosen.way[-1])}"
            if _in_common(chosen.way, named) == len(named.vias) + 1:
                yield names
                return
        yield self._why(flow, chosen, usual, ways)
        if named is not None:
            self.counters.unmet_plans += 1
            yield f"{names}, which does not lead there"

    def _why(
        self, flow: Flow, chosen: Candidate, usual: Choice | None, ways: list[Candidate]
    ) -> str:
        """What tells a way that nobody names from the one that selection would take."""
        if usual is not None and chosen.path is usual.path:
            return usual.reason
        by = f"by {' > '.join(map(format_node_id, chosen.way))}"
        other = next((it for it in ways if usual is not None and it.path is usual.path), None)
        if other is None:
            return f"{by}: the best of {len(ways)} allowed" if len(ways) > 1 else f"{by}: only way"
        shortest_us = min(it.path.srtt_us for it in ways)
        problem = self._unacceptable(flow, other, shortest_us, ())
        if problem is not None:
            return f"{by}: the path via {peer_text(other.path)} {problem}"
        return f"{by}: {why(chosen.path, other.path)}"

    # -- candidates --------------------------------------------------------------------------------

    def _is_able(self, path: PathCandidate, origin: NodeId | None, flow: Flow) -> bool:
        if not path.carries_data or (origin is not None and _leads_through(path, origin)):
            return False
        if flow.passed and any(_leads_through(path, node_id) for node_id in flow.passed):
            return False
        return self._neighbours.sends_data(path.peer_id)

    def _against(self, terms: Terms, it: Candidate) -> str | None:
        against = self._policy.against_way(terms, it.way)
        if against is None and terms.is_bound and not it.is_nameable:
            who = format_node_id(it.way[0])
            return f"{who} speaks no laps-x1, and cannot be told where the track has to stay"
        return against

    # -- what is named -----------------------------------------------------------------------------

    def _named(self, flow: Flow, node_id: NodeId) -> NamedWay | None:
        """The way that somebody names for a flow, if there is one."""
        if isinstance(flow.key, FromPeer):
            way = flow.ways.get(node_id)
            if way is None:
                return None
            return NamedWay(way, f"the relay {format_node_id(flow.passed[-1])}", is_exact=True)
        if (told := self.told_way(flow, node_id)) is not None:
            return told
        for namer in self.namers:
            if (found := namer.way(flow, node_id)) is not None:
                return found
        return None

    def told_way(self, flow: Flow, node_id: NodeId) -> NamedWay | None:
        """The way that policy or the plan names for a flow of ours."""
        name = flow.name
        way = self._policy.named_way(name, flow.terms, node_id)
        if way is not None:
            return NamedWay(way, "policy", is_exact=True)
        if self.plan is not NO_PLAN and isinstance(flow.key, FromClient):
            text = None if name is None else track_pattern_text(name)
            way = self.plan.way_for(flow.key.track, node_id, text, flow.terms.service)
            if way is not None:
                return NamedWay(way, f"plan {self.plan.sequence}", is_exact=len(way) > 1)
        return None

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


def _in_common(way: Way, named: NamedWay | None) -> int:
    """How much of a way is as somebody names it: all of it counts one more than its Vias."""
    if named is None:
        return 0
    whole = (*named.vias, way[-1])
    begins = whole if named.is_exact else whole[: len(named.vias) or 1]
    if way == whole or (not named.is_exact and way[: len(begins)] == begins):
        return len(named.vias) + 1
    same = takewhile(lambda pair: pair[0] == pair[1], zip(way, named.vias, strict=False))
    return sum(1 for _ in same)


def _vias(vias: Way, node_id: NodeId) -> str:
    return f"by {' > '.join(map(format_node_id, vias or (node_id,)))}"


def _ms(srtt_us: float) -> str:
    return f"{srtt_us / 1000:.4g} ms"
