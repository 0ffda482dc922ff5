"""A flow: one data context on its way through this relay, where it goes, and why it goes there.

What the terms of a flow are, who names its ways and how one is chosen is in `route`; `forwarding`
keeps all flows, and lays out their sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from laps.infobase.nodes import PathCandidate, SessionId
from laps.routing.terms import FREE, NOTHING, Onward, Terms

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from laps.routing.terms import Way
    from laps.types import NodeId, SnsId, TrackKey, TrackName

LinkId = SessionId


class FromPeer(NamedTuple):
    """A flow that a peer sends: a set that it advertised on a link."""

    link: LinkId
    sns_id: SnsId


class FromClient(NamedTuple):
    """A flow of a publisher at this relay, or of a Stub: a client and one of its tracks."""

    client: Hashable
    track: TrackKey


class ToNode(NamedTuple):
    """A flow of this relay's own to one node alone, such as the answer to a FETCH."""

    node_id: NodeId
    track: TrackKey
    number: int
    "They count up, so that several to the same node stay apart."


FlowKey = FromPeer | FromClient | ToNode


@dataclass(frozen=True, slots=True)
class Route:
    """The way that a flow takes to a node: what data follows, and what an operator is shown."""

    link: LinkId | None
    "The link that data takes; None where no way leads there."
    path: PathCandidate | None
    reason: str
    """In an operator's words."""
    is_named: bool = False
    "The next relay is told the way, and does not choose it."
    is_refused: bool = False
    "Ways lead there, and policy forbids each of them."

    def is_another(self, old: Route) -> bool:
        """Whether it begins with another link than before, or is longer beyond the same one."""
        return self.link != old.link or self.hops > old.hops

    @property
    def hops(self) -> int:
        """Nodes between us and that one."""
        return 0 if self.path is None else self.path.hops


@dataclass(frozen=True, slots=True)
class SnsUpdate:
    """Tell a peer of a set, or, where there are no nodes, that the id is no more."""

    link: LinkId
    sns_id: SnsId
    nodes: tuple[NodeId, ...]
    onward: Onward | None = None
    "What it is told besides; None: nothing, and it was told nothing before."


@dataclass(slots=True)
class OutSet:
    """A flow's set on one link."""

    sns_id: SnsId
    nodes: frozenset[NodeId]
    onward: Onward | None = None
    "What the peer was told with it."
    streams: int = 0
    "How many streams run under the id."
    routes: tuple[Route, ...] = ()
    "Of a set that takes no new streams: the ways that its nodes were sent them."


@dataclass(slots=True, eq=False)
class Flow:
    """One data context on its way through this relay."""

    key: FlowKey
    serial: int
    "Its place among the flows."
    targets: frozenset[NodeId] = frozenset()
    local: bool = False
    "Whether clients of this relay are to have it too."
    track: TrackKey | None = None
    "What a peer sends under it, once a stream has come."
    name: TrackName | None = None
    "Of the track of a publisher here, or of an answer of ours."
    told: Onward = NOTHING
    "What the peer that it comes from says of it."
    terms: Terms = FREE
    ways: Mapping[NodeId, Way] = field(default_factory=dict)
    "By target: what lies between, as that peer names it."
    withdrawn: bool = False
    "The peer that it comes from has withdrawn it: only the last of its data may still arrive."
    outs: dict[LinkId, OutSet] = field(default_factory=dict)
    old: dict[tuple[LinkId, SnsId], OutSet] = field(default_factory=dict)
    "Sets that take no new streams, and wait for theirs to end."
    routes: dict[NodeId, Route] = field(default_factory=dict)
    "The way to each target, as it was last decided."
    settled: bool = True
    "Whether its sets are what its targets ask for."
    settled_at: float = -inf
    "When peers were last told of it, for whoever decides when they are told again."
    undecided: set[NodeId] = field(default_factory=set)
    "Targets whose way may be another by now."
    lost: set[NodeId] = field(default_factory=set)
    "Targets that a link led to which is gone."
    is_judged_anew: bool = False
    "Whether what it may do is another: streams that are open may go on no more as they do."
    forbidden: set[LinkId] = field(default_factory=set)
    "Links that it took, and may not any more."
    unreached_at: dict[NodeId, float] = field(default_factory=dict)
    "Since when targets that no way leads to may miss something; for whoever sends that again."

    @property
    def of_track(self) -> int:
        """What tells its track from others: 0 where that is not known."""
        return (self.track or 0) if isinstance(self.key, FromPeer) else self.key.track

    @property
    def passed(self) -> Way:
        """The relays that its data has passed, as far as they have said so."""
        return self.told.passed

    def current(self) -> list[tuple[LinkId, SnsId]]:
        """Where a new stream goes."""
        return [(link, out.sns_id) for link, out in self.outs.items()]


class Reached(NamedTuple):
    """A target of one of our own publishers whose way has been decided anew."""

    flow: Flow
    node: NodeId
    old: Route | None
    "The way that it was."
    route: Route
    "As it was decided; there may be another by the time that somebody looks."
    is_forbidden: bool
    "Policy forbids the old way, so that nothing was lost on it: what was under way is cut off."
