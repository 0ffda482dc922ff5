"""Which peers would help that nobody configured, and which Vias spare copies: without a planner.

The document uses hub and spoke where policy permits it, where the way there is good, where the
o-relay is not overloaded, and where no more copies go into a region than it may send there (2 as
long as policy says nothing). Otherwise a Via takes one copy, and sends it on. So for each track of
a publisher here, and each region that it goes to:

    copies into the region   ways                        what follows
    more than may            a Via there leads on        the ways by the Via are named to the router
                             none leads to the Via       the Via is dialled
    that many or fewer       too long for the class,     the s-relay is dialled, or, where that is
                             or too lossy                too many, a Via there; or a Via that leads
                                                         round a straight way that is bad
                             by way of other regions     the s-relay is dialled
                             for it alone

As many may go as policy says (`fan_out`), and one where this relay is full or a link loses much.
Within our own region, and where nobody says in which a relay is, only the latter counts.

Ways that policy or a plan names are left as they are. `aggregating` chooses the Vias, `shortening`
finds the other peers, and `on_demand` has the sessions.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from laps.relay.aggregating import Aggregating
from laps.relay.on_demand import Need
from laps.relay.prospects import Prospects, Rates, Round
from laps.relay.roles import Role
from laps.relay.shortening import Shortening
from laps.routing.flows import FromClient
from laps.types import NodeType, PeerMode, format_node_id

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

    from laps.infobase.nodes import PathCandidate
    from laps.relay.interest import Interest
    from laps.relay.on_demand import OnDemand
    from laps.relay.prospects import Places
    from laps.relay.settings import DemandSettings
    from laps.relay.weighing import Weighing
    from laps.routing.flows import Flow
    from laps.routing.route import NamedWay
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, NodeInfo

# All flows are looked at in this time, some at once: 10 µs each.
LOOK_S: Final = 1.0
MOST_AT_ONCE: Final = 200
NEXT_S: Final = 0.04
# With very many flows more rarely, so that it stays a twentieth of a core.
LOOK_EACH_S: Final = 0.0002

# Ranks: a relay that a leaving peer names in its place is dialled before relays that only help, and
# a control server before both.
SUCCESSOR: Final = 1
SERVER: Final = 2


class Demand:
    """What would help the publishers of one relay."""

    def __init__(
        self,
        self_info: NodeInfo,
        role: Role,
        weighing: Weighing,
        places: Places,
        sessions: OnDemand,
        tracks: Tracks,
        interest: Interest,
        settings: DemandSettings,
    ) -> None:
        self.sessions = sessions
        self._self_id = self_info.id
        self._own_contact = self_info.contact
        self._is_edge = role is Role.EDGE
        self._nodes = weighing.nodes
        self._links = weighing.links
        self._policy = weighing.policy
        self._router = weighing.router
        self._fib = weighing.fib
        self._sets = weighing.sets
        self._places = places
        self._rates = Rates(tracks)
        self._prospects = Prospects(self_info.id, weighing, places, sessions, self._rates)
        self._aggregating = Aggregating(weighing, self._prospects, sessions)
        self._shortening = Shortening(weighing, self._prospects, self._aggregating)
        self._interest = interest
        self._settings = settings
        self._named: dict[tuple[int, NodeId], NamedWay] = {}
        "By flow and target, as the last round has found."
        self._round: Round | None = None
        self._steps: Iterator[None] = iter(())
        self._due_at = 0.0
        self._successors: dict[NodeId, Need] = {}
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
        return bool(self._named)

    def way(self, flow: Flow, node_id: NodeId) -> NamedWay | None:
        """The way by a Via that spares copies."""
        return self._named.get((flow.serial, node_id))

    @property
    def spared_copies(self) -> int:
        """Copies that are not sent now, as a Via sends them on."""
        return self._aggregating.spared_copies

    def aggregating(self) -> Counter[tuple[str, NodeId]]:
        """The Vias that take one copy for a region, and of how many tracks."""
        return self._aggregating.tracks()

    # -- what peers say ----------------------------------------------------------------------------

    def peer_leaves(self, node_id: NodeId, contact: str, now: float) -> None:
        """A peer has said GOAWAY, and named another in its place."""
        if contact in ("", self._own_contact) or not self._settings.sessions:
            return
        named = self._node_at(contact)
        if named is not None and self._prospects.is_configured(named):
            return
        self._successors.pop(node_id, None)
        if len(self._successors) >= self._settings.sessions:
            del self._successors[next(iter(self._successors))]
        why = f"{format_node_id(node_id)} leaves, and names it"
        need = Need(contact, named, why, 0, PeerMode.BOTH, at_once=True, rank=SUCCESSOR)
        self._successors[node_id] = need
        self._due_at = now

    def _may_follow(self, need: Need) -> bool:
        """Whether policy lets us be a peer of a relay that was named."""
        node_id = need.node_id
        if node_id is None:
            node_id = self._node_at(need.contact)
        return node_id is None or self._policy.may_peer(node_id)

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

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at some flows; when all were, act on what was found."""
        if now < self._due_at or self.deadline() is None:
            return
        if self._round is None:
            self._round = Round(now)
            self._steps = self._look(self._round)
        if next(islice(self._steps, MOST_AT_ONCE, None), self) is not self:
            self._due_at = now + NEXT_S
            return
        found, self._round = self._round, None
        self._due_at = now + max(LOOK_S, LOOK_EACH_S * len(self._fib))
        self._act(found, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        has_begun = self._named or len(self._rates) or len(self._fib)
        if (self._is_edge and has_begun) or len(self.sessions) or self._successors:
            return self._due_at
        return self._due_at if self._interest.known_servers else None

    def _act(self, found: Round, now: float) -> None:
        self._aggregating.end()
        self._rates.end()
        wanted = [it for it, _ in found.weighed.most_common() if self._prospects.is_no_peer(it)]
        self._places.want(wanted)
        kept = self._successors.items()
        self._successors = {it: need for it, need in kept if not self._is_back(it)}
        named = {it.contact: it for it in self._successors.values() if self._may_follow(it)}
        servers = {it.contact: it for it in self._servers()} if self._settings.sessions else {}
        every = found.needs | named | servers
        needs = {it.contact: it for it in every.values() if self._is_enough(it)}
        # First, as ways by a session that is let go are avoided.
        is_back = self.sessions.needs(needs, now)
        pairs = found.named.items() ^ self._named.items()
        self._named = found.named
        if is_back:
            pairs |= found.named.items()
        self._router.steered |= found.poor
        if pairs:
            self._fib.reroute(sorted({node_id for (_, node_id), _ in pairs}))
            self._sets.changed(now)
        self.sessions.tick(now)

    def _servers(self) -> Iterator[Need]:
        """Control servers that others have named: each tells what concerns us of its share."""
        for node_id in self._interest.to_dial():
            info = self._nodes.info(node_id)
            if info is None or not info.contact or self._prospects.is_configured(node_id):
                continue
            if info.contact not in self._settings.dialled and self._policy.may_peer(node_id):
                why, mode = "it is a control server", PeerMode.CONTROL
                yield Need(info.contact, node_id, why, 0, mode, at_once=True, rank=SERVER)

    def _is_enough(self, need: Need) -> bool:
        return need.rank > 0 or need.gain >= self._settings.least

    # -- what would help ---------------------------------------------------------------------------

    def _look(self, found: Round) -> Iterator[None]:
        self._aggregating.begin()
        for node_id in self._nodes:
            info = self._nodes.info(node_id)
            if info is not None and info.type is NodeType.VIA:
                found.vias.setdefault(self._policy.region_of(node_id), []).append(node_id)
        for flow in self._fib:
            if isinstance(flow.key, FromClient) and flow.targets:
                self._rates.look(flow.of_track, found.at)
                self._look_at(flow, found)
            yield

    def _look_at(self, flow: Flow, found: Round) -> None:
        regions: dict[str, list[NodeId]] = {}
        for node_id in sorted(flow.targets):
            regions.setdefault(self._policy.region_of(node_id), []).append(node_id)
        own = self._policy.region_of(self._self_id)
        others: dict[NodeId, PathCandidate] = {}
        for region, targets in regions.items():
            free = (it for it in targets if self._router.told_way(flow, it) is None)
            usual = self._prospects.usual
            ways = {it: path for it in free if (path := usual(it)) is not None}
            is_far = bool(region) and region != own
            spared: Collection[NodeId]
            spared = self._aggregating.spare(flow, region, ways, found, is_far=is_far)
            self._shortening.shorten(flow, region, ways, spared, found, is_far=is_far)
            others |= {it: path for it, path in ways.items() if it not in spared}
        self._shortening.straighten(flow, others, found)
