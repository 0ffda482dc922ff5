"""Which peers would bring data to targets that are badly reached: too slowly, or by a detour.

the way to a target            what would help
takes too long for the class   a session with the target, or, where that is too many copies
                               for a region, with a Via there
loses too much for it          the same
is straight, and still so      a Via that the target would be reached by, which is a way round
crosses regions for it alone   a session with the target
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from laps.relay.detours import detours
from laps.relay.prospects import WELL_WITHIN
from laps.routing.conditions import MARGIN
from laps.routing.ways import way_of
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laps.infobase.nodes import PathCandidate
    from laps.relay.aggregating import Aggregating
    from laps.relay.prospects import Prospects, Round
    from laps.relay.weighing import Weighing
    from laps.routing.flows import Flow
    from laps.routing.terms import Terms
    from laps.types import NodeId

    Ways = Mapping[NodeId, PathCandidate]

# A shorter way is worth a session if it saves as much; estimates are not better than that.
GAIN_US: Final = 5_000


class Shortening:
    """Finds peers for the targets of publishers here."""

    def __init__(self, weighing: Weighing, prospects: Prospects, aggregating: Aggregating) -> None:
        self._policy = weighing.policy
        self._conditions = weighing.conditions
        self._prospects = prospects
        self._aggregating = aggregating

    def shorten(
        self,
        flow: Flow,
        region: str,
        ways: Ways,
        spared: Collection[NodeId],
        found: Round,
        *,
        is_far: bool,
    ) -> None:
        """Find peers for targets whose ways are not acceptable for the class of a track."""
        terms, prospects = flow.terms, self._prospects
        if self._is_full(terms):
            return
        poor = {
            it: why
            for it, path in ways.items()
            if it not in spared and (why := self._against(terms, it, path)) is not None
        }
        found.weighed.update(poor.keys())
        found.poor.update(poor)
        late = {}
        for node_id, why in poor.items():
            if ways[node_id].hops and prospects.is_good(flow, node_id, found):
                late[node_id] = why
            else:
                self._go_round(flow, node_id, why, found)
        if not late:
            return
        straight = sum(not path.hops for it, path in ways.items() if it not in late)
        if not is_far or straight + len(late) <= terms.fan_out:
            for node_id, why in late.items():
                prospects.need(flow, node_id, why, 1, found)
            return
        some = {it: ways[it] for it in late}
        chosen = self._aggregating.choose(flow, region, some, found)
        if chosen is not None and chosen.way in (None, (chosen.via,)):
            why = f"{len(late)} ways into {region} are too bad"
            prospects.need(flow, chosen.via, why, len(chosen.covered), found)

    def straighten(self, flow: Flow, ways: Ways, found: Round) -> None:
        """Find peers for targets that are reached by way of other regions for them alone."""
        terms, prospects = flow.terms, self._prospects
        if self._is_full(terms):
            return
        whole = {node_id: way_of(path) for node_id, path in ways.items()}
        region_of = self._policy.region_of
        for node_id, fewer in detours(prospects.self_id, whole, region_of).items():
            found.weighed[node_id] += fewer
            if prospects.is_good(flow, node_id, found):
                why = f"{fewer + 1} copies between regions where one would do"
                prospects.need(flow, node_id, why, fewer, found)

    def _is_full(self, terms: Terms) -> bool:
        load = self._conditions.load(self._prospects.self_id)
        return load > terms.max_load - MARGIN

    def _against(self, terms: Terms, node_id: NodeId, path: PathCandidate) -> str | None:
        """Why a way is not acceptable, though another might be; None where it is."""
        prospects = self._prospects
        loss = prospects.loss(way_of(path))
        if terms.stretch == inf and loss <= WELL_WITHIN * terms.max_loss:
            return None
        round_us, via = (inf, None) if path.hops else self._round(terms, node_id)
        helper = node_id if path.hops else via
        helps = helper is not None and not prospects.is_no_peer(helper)
        margin = WELL_WITHIN if helps else 1.0
        if loss > margin * terms.max_loss:
            return f"{loss:.1%} is lost on the way to it, of {terms.max_loss:.1%}"
        if terms.stretch == inf:
            return None
        least_us = min(prospects.least_us(node_id, path), round_us)
        most_us = terms.stretch * least_us + terms.slack_us
        saved_us = path.srtt_us - least_us
        if path.srtt_us <= margin * most_us or saved_us < margin * GAIN_US:
            return None
        return f"{path.srtt_us / 1000:.4g} ms to it, and {least_us / 1000:.4g} would do"

    def _go_round(self, flow: Flow, node_id: NodeId, why: str, found: Round) -> None:
        """Find a Via for a target to which no straight way is good."""
        terms, prospects = flow.terms, self._prospects
        _, via = self._round(terms, node_id)
        if via is None:
            return
        found.weighed[via] += 1
        if prospects.is_clear(flow, via, found) and prospects.may_dial(terms, via):
            prospects.need(flow, via, f"{format_node_id(node_id)}: {why}", 1, found)

    def _round(self, terms: Terms, node_id: NodeId) -> tuple[float, NodeId | None]:
        """The shortest way to a target by a Via that is no peer by configuration."""
        prospects = self._prospects
        found = [
            (prospects.by_via_us(terms, via, node_id), via)
            for via in prospects.places.best_vias(node_id)
            if via != prospects.self_id and not prospects.is_configured(via)
            if self._conditions.loss(via, node_id) <= terms.max_loss
            if prospects.may_pass_on(terms, via)
        ]
        least_us, via = min(found, default=(inf, self._prospects.self_id))
        return (inf, None) if least_us == inf else (least_us, via)
