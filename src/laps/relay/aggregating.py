"""Which Via takes one copy of a track for a region, and sends it on.

What has been decided is held: figures vary by themselves, and subscribers come and go. A Via is
given up at once where it leads there no longer, policy forbids it, or it is too full or loses too
much; HOLD_S after nothing asks for it any more; and for a Via that leads to more of the targets
when that has been so for as long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from laps.relay.on_demand import HOLD_S
from laps.relay.prospects import LENIENCE, WELL_WITHIN
from laps.routing.route import NamedWay
from laps.routing.ways import Calm, CalmByVias
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laps.infobase.nodes import PathCandidate
    from laps.relay.on_demand import OnDemand
    from laps.relay.prospects import Prospects, Round
    from laps.relay.weighing import Weighing
    from laps.routing.flows import Flow
    from laps.routing.terms import Terms, Way
    from laps.types import NodeId

    Ways = Mapping[NodeId, PathCandidate]
    Key = tuple[int, str]
    Link = tuple[NodeId, NodeId]


class Choice(NamedTuple):
    """A Via that could take one copy for some targets."""

    via: NodeId
    covered: tuple[NodeId, ...]
    way: Way | None
    "How it is reached; None: it has to be dialled."


@dataclass(slots=True)
class Aggregation:
    """A Via that takes one copy of a flow for a region."""

    via: NodeId
    way: Way
    why: str
    asked_at: float
    "When figures last asked for a Via."
    covered: dict[NodeId, float] = field(default_factory=dict)
    "The targets that it sends on to, and when figures last spoke for that."
    better_at: float | None = None
    "Since when another Via would lead to more of them."
    spares: int = 0
    "How many copies less are sent."


class Aggregating:
    """Chooses Vias for the flows of publishers here."""

    def __init__(self, weighing: Weighing, prospects: Prospects, sessions: OnDemand) -> None:
        self._policy = weighing.policy
        self._conditions = weighing.conditions
        self._graph = weighing.graph
        self._nodes = weighing.nodes
        self._links = weighing.links
        self._prospects = prospects
        self._sessions = sessions
        self._held: dict[Key, Aggregation] = {}
        self._next: dict[Key, Aggregation] = {}
        "Those of the round that is under way."

    # -- what has been decided ---------------------------------------------------------------------

    def begin(self) -> None:
        """All flows are about to be looked at."""
        self._next = {}

    def end(self) -> None:
        """All flows were."""
        self._held, self._next = self._next, {}

    @property
    def spared_copies(self) -> int:
        """Copies that are not sent now, as a Via sends them on."""
        return sum(it.spares for it in self._held.values())

    def tracks(self) -> Counter[tuple[str, NodeId]]:
        """The Vias that take one copy for a region, and of how many tracks."""
        return Counter((region, it.via) for (_, region), it in self._held.items())

    # -- one flow and one region -------------------------------------------------------------------

    def spare(
        self, flow: Flow, region: str, ways: Ways, found: Round, *, is_far: bool
    ) -> Collection[NodeId]:
        """Have a Via take one copy for a region; the targets that it sends on to."""
        key = flow.serial, region
        held = self._held.get(key)
        if held is not None and not self._holds(flow, region, held, ways, found.at):
            held = None
        entries = {it: self._entry(path, region) for it, path in ways.items()}
        copies = len(set(entries.values()))
        why = self._asks(flow, region, ways, copies, is_spared=held is not None, is_far=is_far)
        if why is not None:
            held = self._chosen(flow, region, ways, entries, held, why, found)
        if held is None or found.at - held.asked_at >= HOLD_S:
            return ()
        held.spares = self._spares(entries, held.covered, held.way, region)
        self._next[key] = held
        by = f"a Via that spares copies ({held.why})"
        for node_id in held.covered:
            found.named[flow.serial, node_id] = NamedWay(held.way, by, is_exact=True)
        if held.way == (held.via,):
            # It may be a session on demand: it stays.
            self._prospects.need(flow, held.via, held.why, len(held.covered), found, at_once=True)
        return held.covered

    def _chosen(
        self,
        flow: Flow,
        region: str,
        ways: Ways,
        entries: Mapping[NodeId, Link],
        held: Aggregation | None,
        why: str,
        found: Round,
    ) -> Aggregation | None:
        """The Via that is to take one copy from now on; None where there is none, or not yet."""
        chosen = self.choose(flow, region, ways, found, held)
        if chosen is not None and (held is None or self._is_better(held, chosen, found.at)):
            way = chosen.way or (chosen.via,)
            if not self._spares(entries, chosen.covered, way, region):
                pass
            elif chosen.way is None:
                self._prospects.need(
                    flow, chosen.via, why, len(chosen.covered), found, at_once=True
                )
            elif held is not None and held.via == chosen.via:
                held.way = way
            else:
                held = Aggregation(chosen.via, way, why, found.at)
                held.covered = dict.fromkeys(chosen.covered, found.at)
        if held is not None and self._spares(entries, held.covered, held.way, region):
            held.why, held.asked_at = why, found.at
        return held

    def _asks(
        self, flow: Flow, region: str, ways: Ways, copies: int, *, is_spared: bool, is_far: bool
    ) -> str | None:
        """Why fewer copies are to go into a region; None where hub and spoke is fine."""
        if copies < 2 or len(ways) < 2:
            return None
        most = flow.terms.fan_out
        into = f"{copies} copies into {region}" if is_far else f"{copies} copies"
        if (burden := self._burden(flow, region, ways, is_spared=is_spared)) is not None:
            return f"{into} where one may go: {burden}"
        if is_far and copies > most:
            return f"{into} where {most} may go"
        return None

    def _burden(self, flow: Flow, region: str, ways: Ways, *, is_spared: bool) -> str | None:
        """What speaks for one copy alone; None where nothing does."""
        terms, here = flow.terms, self._prospects.self_id
        if self._prospects.is_full_for(flow, here, region, is_used=not is_spared):
            return f"this relay is {self._conditions.load(here):.0%} full"
        bound = terms.max_loss * (WELL_WITHIN if is_spared else 1.0)
        for path in ways.values():
            if self._prospects.is_link_full_for(flow, here, path.peer_id, is_used=not is_spared):
                load = self._conditions.link_load(here, path.peer_id)
                return f"the link to {format_node_id(path.peer_id)} is {load:.0%} full"
            if (loss := self._conditions.loss(here, path.peer_id)) > bound:
                return f"{loss:.1%} is lost to {format_node_id(path.peer_id)}"
        return None

    def _spares(
        self,
        entries: Mapping[NodeId, Link],
        covered: Collection[NodeId],
        way: Way,
        region: str,
    ) -> int:
        """How many copies less go into a region by a Via."""
        by_via = self._enters(way, region)
        after = {by_via if it in covered else entry for it, entry in entries.items()}
        return max(0, len(set(entries.values())) - len(after))

    def _entry(self, path: PathCandidate, region: str) -> Link:
        passed = (item.node_id for item in reversed(path.info.path))
        return self._enters((*passed, path.info.id), region)

    def _enters(self, way: Way, region: str) -> Link:
        """The link by which a way comes into a region."""
        here = self._prospects.self_id
        for node_id in way:
            if self._policy.region_of(node_id) == region:
                return here, node_id
            here = node_id
        return here, way[-1]

    # -- what is held ------------------------------------------------------------------------------

    def _holds(self, flow: Flow, region: str, held: Aggregation, ways: Ways, now: float) -> bool:
        """Whether a Via may go on; what it leads to no longer is taken off."""
        terms = flow.terms
        if self._policy.against_way(terms, held.way) is not None:
            return False
        if not self._prospects.may_pass_on(terms, held.via):
            return False
        reach = self._graph.measured(held.way)
        if reach is None or self._prospects.loss(held.way) > terms.max_loss * LENIENCE:
            return False
        if any(self._is_full(flow, region, it, is_used=True) for it in held.way):
            return False
        links = pairwise((self._prospects.self_id, *held.way))
        if any(self._prospects.is_link_full_for(flow, *it, is_used=True) for it in links):
            return False
        for node_id in list(held.covered):
            if node_id not in ways or not self._prospects.may_lead_on(terms, held.via, node_id):
                del held.covered[node_id]
        for node_id, path in ways.items():
            if node_id in held.way:
                continue
            leads_on, is_used = self._prospects.leads_on, node_id in held.covered
            if leads_on(flow, held.via, node_id, reach.srtt_us, path, is_used=is_used):
                held.covered[node_id] = now
            elif now - held.covered.get(node_id, now) >= HOLD_S:
                del held.covered[node_id]
        return len(held.covered) > 1

    def _is_better(self, held: Aggregation, chosen: Choice, now: float) -> bool:
        """Whether another choice is to take the place of what is held."""
        if chosen.via == held.via:
            # Another way to the same Via: only links that come and go make a way shorter.
            return chosen.way is None or len(chosen.way) < len(held.way)
        if len(chosen.covered) <= len(held.covered):
            held.better_at = None
            return False
        if held.better_at is None:
            held.better_at = now
        return now - held.better_at >= HOLD_S

    # -- which Via ---------------------------------------------------------------------------------

    def choose(
        self, flow: Flow, region: str, ways: Ways, found: Round, held: Aggregation | None = None
    ) -> Choice | None:
        """The Via that leads to the most of some targets in time."""
        terms, prospects = flow.terms, self._prospects
        named: Counter[NodeId] = Counter()
        for node_id in ways:
            named.update(prospects.places.best_vias(node_id))
        best = None
        for via in sorted({*named, *found.vias.get(region, ())} - {prospects.self_id}):
            is_held = held is not None and via == held.via
            if not prospects.may_pass_on(terms, via):
                continue
            if self._is_full(flow, region, via, is_used=is_held):
                continue
            way, there_us = self._reach(terms, via)
            if way is None and not (prospects.is_no_peer(via) and prospects.may_dial(terms, via)):
                continue
            covered = tuple(
                it
                for it, usual in ways.items()
                if it not in (way or ()) and prospects.leads_on(flow, via, it, there_us, usual)
            )
            if len(covered) < 2:
                continue
            found.weighed[via] += len(covered)
            if way is None and not prospects.is_clear(flow, via, found):
                continue
            rank = (-len(covered), not is_held, way is None, there_us, via)
            if best is None or rank < best[0]:
                best = rank, Choice(via, covered, way)
        return None if best is None else best[1]

    def _is_full(self, flow: Flow, region: str, node_id: NodeId, *, is_used: bool) -> bool:
        return self._prospects.is_full_for(flow, node_id, region, is_used=is_used)

    def _reach(self, terms: Terms, via: NodeId) -> tuple[Way | None, float]:
        """How a Via is reached over the links that there are, and how long that takes.

        Through other Vias: an Edge is passed only where the Via cannot be had as a peer.
        """
        info = self._nodes.info(via)
        is_last_hope = info is None or not info.contact or self._sessions.cannot_help(info.contact)
        if is_last_hope:
            allows = Calm(self._policy, terms, frozenset(), self._conditions)
        else:
            allows = CalmByVias(self._policy, terms, self._nodes, self._conditions)
        bounds = terms.max_load, terms.max_loss, self._conditions.version
        key = (self._policy.version, terms.inside, terms.avoid, (), is_last_hope, *bounds)
        reach = self._graph.reach(via, key, allows)
        if reach is None or not self._tells(reach.way[0]):
            return None, self._prospects.there_us(via)
        if self._prospects.loss(reach.way) > terms.max_loss:
            return None, self._prospects.there_us(via)
        return reach.way, reach.srtt_us

    def _tells(self, peer_id: NodeId) -> bool:
        """Whether a peer can be told how a flow is to go on."""
        link = self._links.data_link(peer_id, 0)
        return link is not None and self._links.takes_terms(link)
