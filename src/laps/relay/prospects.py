"""Which nodes could help as peers, and what is known of them and of the ways to them.

Ways are those that there would be without sessions on demand, so that what a session changes does
not take away the reason for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from laps.relay.on_demand import Need
from laps.routing.conditions import draw, link_draw
from laps.routing.selection import select
from laps.types import NodeType, TrackKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import PathCandidate
    from laps.relay.on_demand import OnDemand
    from laps.relay.weighing import Weighing
    from laps.routing.flows import Flow
    from laps.routing.route import NamedWay
    from laps.routing.terms import Terms, Way
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId

# What has begun goes on until the figures are this much inside of the bound that it began beyond,
WELL_WITHIN: Final = 0.85
# or this much beyond one that it has to keep to.
LENIENCE: Final = 1.2

# Each look at how much a track carries counts a third.
SMOOTHING: Final = 1 / 3


class Places(Protocol):
    """What is known of the paths to nodes, peers or not."""

    def round_trip(self, a: NodeId, b: NodeId) -> float | None:
        """About how many seconds a round trip between two nodes takes; None: nobody can tell."""

    def best_vias(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The Vias that a node would be reached by, best first, as it says."""

    def loss(self, node_id: NodeId) -> float:
        """What the path to a node that is no peer loses at least, as probes show."""

    def width_bps(self, node_id: NodeId) -> int:
        """What the path to a node that is no peer carries at least, as probes show; 0: unknown."""

    def want(self, node_ids: Iterable[NodeId]) -> None:
        """Have these nodes probed before others, the first of them above all."""


@dataclass(slots=True)
class Round:
    """What is found out while all flows are looked at once."""

    at: float
    "When it began."
    weighed: Counter[NodeId] = field(default_factory=Counter)
    "Nodes that would help if their paths were good, and how many would be helped."
    named: dict[tuple[int, NodeId], NamedWay] = field(default_factory=dict)
    "Ways by Vias that spare copies, by flow and target."
    needs: dict[str, Need] = field(default_factory=dict)
    "Peers that would help, by contact."
    promised_bps: Counter[NodeId] = field(default_factory=Counter)
    "What would be sent to nodes that are to be dialled."
    poor: set[NodeId] = field(default_factory=set)
    "Targets whose ways are not acceptable, though others might be."
    vias: dict[str, list[NodeId]] = field(default_factory=dict)
    "The Vias of each region."


class Rates:
    """How much publishers here send of their tracks, between two looks at each."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._seen: dict[int, tuple[int, float, int]] = {}
        "What had come of a track, when, and how much a second that was."
        self._next: dict[int, tuple[int, float, int]] = {}
        "The same, of the round that is under way."

    def __len__(self) -> int:
        return len(self._seen)

    def look(self, key: int, now: float) -> None:
        """Measure one track."""
        track = self._tracks.get(TrackKey(key))
        if track is None:
            return
        received = track.meter.received
        before, at, bps = self._seen.get(key, (received, now, 0))
        if now > at:
            # What came is counted when streams end: a long one all at once.
            bps += round(SMOOTHING * (8 * (received - before) / (now - at) - bps))
        self._next[key] = received, now, bps

    def bps(self, key: int) -> int:
        """As last measured; 0 where nobody counts it, or it was not there before."""
        found = self._next.get(key)
        return 0 if found is None else found[2]

    def end(self) -> None:
        """All tracks were measured: those that were not are gone."""
        self._seen, self._next = self._next, {}


class Prospects:
    """Answers what the relay asks itself about peers that it could have."""

    def __init__(
        self,
        self_id: NodeId,
        weighing: Weighing,
        places: Places,
        sessions: OnDemand,
        rates: Rates,
    ) -> None:
        self.self_id = self_id
        self.places = places
        self._nodes = weighing.nodes
        self._links = weighing.links
        self._policy = weighing.policy
        self._conditions = weighing.conditions
        self._graph = weighing.graph
        self._sessions = sessions
        self._rates = rates

    # -- as things are -----------------------------------------------------------------------------

    def usual(self, node_id: NodeId) -> PathCandidate | None:
        """The way that there would be without sessions on demand."""
        ours = self._sessions.link_ids
        best = self._nodes.best(node_id)
        if ours and best is not None and best.path.session in ours:
            best = select([it for it in self._nodes.paths(node_id) if it.session not in ours])
        return None if best is None or not best.path.carries_data else best.path

    def is_no_peer(self, node_id: NodeId) -> bool:
        """Whether there is no link to a node."""
        return node_id not in self._links.peers

    def is_own(self, contact: str) -> bool:
        """Whether a contact is dialled because it helps."""
        return any(contact == it.need.contact for it in self._sessions)

    def is_configured(self, node_id: NodeId) -> bool:
        """Whether a node is a peer, and not one because it helps."""
        info = self._nodes.info(node_id)
        return not self.is_no_peer(node_id) and (info is None or not self.is_own(info.contact))

    def is_full_for(self, flow: Flow, node_id: NodeId, region: str, *, is_used: bool) -> bool:
        """Whether a relay is too full for a flow's copies into a region: not for all at once."""
        mine = draw(flow.of_track ^ crc32(region.encode()), node_id)
        return self._conditions.turns_away(node_id, flow.terms.max_load, mine, is_used=is_used)

    def is_link_full_for(self, flow: Flow, a: NodeId, b: NodeId, *, is_used: bool) -> bool:
        """Whether a link is too full for a flow."""
        mine, most = link_draw(flow.of_track, a, b), flow.terms.max_load
        return self._conditions.link_turns_away(a, b, most, mine, is_used=is_used)

    def loss(self, way: Way) -> float:
        """What the links of a way lose together, as far as it has lasted."""
        kept, here = 1.0, self.self_id
        for node_id in way:
            kept *= 1.0 - self._conditions.loss(here, node_id)
            here = node_id
        return 1.0 - kept

    def least_us(self, node_id: NodeId, path: PathCandidate) -> float:
        """The shortest round trip to a node that there could be."""
        straight = self.places.round_trip(self.self_id, node_id)
        return min(path.srtt_us, inf if straight is None else straight * 1e6)

    def there_us(self, node_id: NodeId) -> float:
        """About how long a round trip to a node takes that is no peer; inf: nobody can tell."""
        known = self.places.round_trip(self.self_id, node_id)
        return inf if known is None else known * 1e6

    # -- what a Via could do -----------------------------------------------------------------------

    def may_pass_on(self, terms: Terms, node_id: NodeId) -> bool:
        """Whether a node may pass a track on to others."""
        if self._policy.against_via(node_id) or self._policy.against_node(terms, node_id):
            return False
        info = self._nodes.info(node_id)
        return info is not None and info.type is not NodeType.STUB

    def leads_on(
        self,
        flow: Flow,
        via: NodeId,
        node_id: NodeId,
        there_us: float,
        usual: PathCandidate,
        *,
        is_used: bool = False,
    ) -> bool:
        """Whether a Via sends on to a node, in the time that the class of a track bears."""
        terms, lenient = flow.terms, LENIENCE if is_used else 1.0
        link = self._link(terms, via, node_id)
        if link is None or self._conditions.loss(via, node_id) > terms.max_loss * lenient:
            return False
        if self.is_link_full_for(flow, via, node_id, is_used=is_used):
            return False
        whole = there_us + link
        if terms.stretch == inf:
            return whole < inf
        most_us = terms.stretch * self.least_us(node_id, usual) + terms.slack_us
        return whole <= most_us * lenient

    def may_lead_on(self, terms: Terms, via: NodeId, node_id: NodeId) -> bool:
        """Whether a Via could send on to a node at all."""
        return self._link(terms, via, node_id) is not None

    def by_via_us(self, terms: Terms, via: NodeId, node_id: NodeId) -> float:
        """How long a round trip to a node takes by a Via; inf where it leads nowhere."""
        link = self._link(terms, via, node_id)
        return inf if link is None else self.there_us(via) + link

    def _link(self, terms: Terms, via: NodeId, node_id: NodeId) -> int | None:
        link = self._graph.links_of(via).get(node_id)
        if link is None or node_id == via:
            return None
        return None if self._policy.against_link(terms, via, node_id) else link[0]

    # -- who could be dialled ----------------------------------------------------------------------

    def is_good(self, flow: Flow, node_id: NodeId, found: Round) -> bool:
        """Whether data may go straight to a node, and nothing known speaks against it."""
        if self._policy.against_way(flow.terms, (node_id,)) is not None:
            return False
        return self.is_clear(flow, node_id, found)

    def is_clear(self, flow: Flow, node_id: NodeId, found: Round) -> bool:
        """Whether the way straight to a node has room for a flow, and loses no more than it bears.

        Of a node that is no peer probes show it.
        """
        if not self.is_no_peer(node_id):
            return self._conditions.loss(self.self_id, node_id) <= flow.terms.max_loss
        if self.places.loss(node_id) > flow.terms.max_loss:
            return False
        width_bps = self.places.width_bps(node_id)
        wanted_bps = found.promised_bps[node_id] + self._rates.bps(flow.of_track)
        return not width_bps or wanted_bps <= flow.terms.max_load * width_bps

    def may_dial(self, terms: Terms, node_id: NodeId) -> bool:
        """Whether a node may be a peer, and could take a track then."""
        info = self._nodes.info(node_id)
        if info is None or not info.contact or info.type is NodeType.STUB:
            return False
        if not self._policy.may_peer(node_id):
            return False
        return self._policy.against_link(terms, self.self_id, node_id) is None

    def need(
        self,
        flow: Flow,
        node_id: NodeId,
        why: str,
        gain: int,
        found: Round,
        *,
        at_once: bool = False,
    ) -> None:
        """Note that a node would help as a peer; nothing where it is one by configuration."""
        info = self._nodes.info(node_id)
        if info is None or self.is_configured(node_id):
            return
        before = found.needs.get(info.contact)
        if before is not None:
            why, gain, at_once = before.why, gain + before.gain, at_once or before.at_once
        found.promised_bps[node_id] += self._rates.bps(flow.of_track)
        found.needs[info.contact] = Need(info.contact, node_id, why, gain, at_once=at_once)
