"""What policy refuses: a relay with a publisher tells those that it may not send its track to.

    o-relay    no way to an s-relay is allowed   ->  POLICY_REFUSAL, with the reason
               one is again                      ->  POLICY_REFUSAL without, and the track goes on
    s-relay    hears of it                       ->  TrackRefused: its clients are told why

An s-relay that follows the same policy knows by itself that it is outside of a track's regions, and
says so at once. The refusals that it hears are of relays whose policy it need not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.routing.flows import Flow, FromClient, ToNode
from laps.routing.terms import ORDERS, Onward
from laps.types import format_node_id, hash_track
from laps.wire.extensions import MAX_HOPS
from laps.wire.policy import MAX_REASON_LENGTH, PolicyRefusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from laps.infobase.subscribes import Subscribes
    from laps.relay.journal import Journal
    from laps.relay.reach import Reach
    from laps.relay.weighing import Weighing
    from laps.routing.forwarding import Fib
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, TrackKey, TrackName
    from laps.wire.policy import SetTerms

# Tracks that somebody here wants and that some relay may not send: more than clients ask for.
MOST_HEARD: Final = 100_000

# A way that is lost may be refused until the next one is known, and where a node is too. Whoever is
# refused is told when that has lasted.
SETTLED_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TrackRefused:
    """An event: another relay refuses a track to this one, or does no longer."""

    key: TrackKey


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """An event: another policy is in force."""


@dataclass(slots=True)
class Refused:
    """What is refused now. With the last who wanted a track at a relay its refusal ends, too."""

    told: dict[tuple[TrackKey, NodeId], str] = field(default_factory=dict)
    "What relays were told that want tracks of publishers here, and why."
    heard: dict[TrackKey, dict[NodeId, str]] = field(default_factory=dict)
    "The reasons of relays that may not send us a track."

    def left(self, node_id: NodeId, key: TrackKey) -> None:
        """A relay does not want a track any more: it forgets what it was told."""
        self.told.pop((key, node_id), None)

    def unwanted(self, key: TrackKey) -> None:
        """Nobody here wants a track any more, and other relays have been told so."""
        self.heard.pop(key, None)

    def purge(self, node_id: NodeId) -> None:
        """No way leads to a node any more."""
        for place in [place for place in self.told if place[1] == node_id]:
            del self.told[place]
        for key in [key for key, reasons in self.heard.items() if node_id in reasons]:
            del self.heard[key][node_id]
            if not self.heard[key]:
                del self.heard[key]


class Refusals:
    """What is refused to other relays, and by them."""

    def __init__(
        self,
        self_id: NodeId,
        refused: Refused,
        subscribes: Subscribes,
        weighing: Weighing,
        fib: Fib,
        reach: Reach,
        tracks: Tracks,
        journal: Journal,
    ) -> None:
        self._self_id = self_id
        self._subscribes = subscribes
        self._weighing = weighing
        self._fib = fib
        self._reach = reach
        self._tracks = tracks
        self._journal = journal
        self._waiting: dict[tuple[FromClient, NodeId], float] = {}
        "Targets that were refused just now, or are no longer; and when they are told."
        self._refused = refused

    @property
    def told(self) -> Mapping[tuple[TrackKey, NodeId], str]:
        """What relays were told, by track."""
        return self._refused.told

    # -- what is refused here ----------------------------------------------------------------------

    @property
    def binds(self) -> bool:
        """Whether there may be anything to refuse to clients of this relay."""
        return self._weighing.policy.binds or bool(self._refused.heard)

    def here(self, name: TrackName) -> str | None:
        """Why clients of this relay may not have a track; None if they may."""
        policy = self._weighing.policy
        against = policy.against_node(policy.terms(name), self._self_id)
        return None if against is None else f"policy: {against}"

    def against(self, name: TrackName, node_id: NodeId) -> str | None:
        """Why a node may not be sent a track from here; None if it may, or no way leads there."""
        if self._weighing.policy.policy is None:
            return None
        if (reason := self.here(name)) is not None:
            return reason
        router = self._weighing.router
        flow = Flow(ToNode(node_id, hash_track(name).full_name_hash, 0), 0, name=name)
        flow.terms = router.terms(flow)
        route = router.route(flow, node_id)
        return route.reason if route.is_refused else None

    def changed(self) -> None:
        """Another policy is in force: clients may have what they may not."""
        self._tracks.events.append(PolicyChanged())

    def tick(self, now: float) -> None:
        """Tell relays that are refused now, or no longer."""
        judged, self._fib.judged = self._fib.judged, []
        for flow, node_id, _ in judged:
            if isinstance(flow.key, FromClient):
                self._waiting.setdefault((flow.key, node_id), now + SETTLED_S)
        while self._waiting:
            place = next(iter(self._waiting))
            if self._waiting[place] > now:
                break
            del self._waiting[place]
            self._judge(*place, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return 0.0 if self._fib.judged else next(iter(self._waiting.values()), None)

    def _judge(self, key: FromClient, node_id: NodeId, now: float) -> None:
        flow = self._fib.get(key)
        route = None if flow is None else flow.routes.get(node_id)
        reason = route.reason if route is not None and route.is_refused else ""
        place = key.track, node_id
        if self._refused.told.get(place, "") == reason:
            return
        if reason:
            self._refused.told[place] = reason
            self._journal.note(now, "policy_refused", format_node_id(node_id), reason=reason)
        else:
            del self._refused.told[place]
        text = reason.encode()[:MAX_REASON_LENGTH].decode(errors="ignore")
        self._reach.send(node_id, PolicyRefusal(MAX_HOPS, self._self_id, node_id, key.track, text))

    # -- what others refuse ------------------------------------------------------------------------

    def heard(self, message: PolicyRefusal, now: float) -> None:
        """A relay may not send us a track, or may again."""
        key, source = message.full_name_hash, message.source_node_id
        if not message.reason:
            reasons = self._refused.heard.get(key, {})
            if reasons.pop(source, None) is not None:
                self._tracks.events.append(TrackRefused(key))
            if not reasons:
                self._refused.heard.pop(key, None)
        elif self._subscribes.holds(self._self_id, key) and len(self._refused.heard) < MOST_HEARD:
            self._refused.heard.setdefault(key, {})[source] = message.reason
            self._tracks.events.append(TrackRefused(key))

    def is_heard(self, key: TrackKey) -> bool:
        """Whether some relay may not send us a track."""
        return key in self._refused.heard

    def reason_of(self, key: TrackKey, offering: Collection[NodeId]) -> str | None:
        """Why all of the relays that offer a track may not send it; None if one may."""
        reasons = self._refused.heard.get(key, {})
        if not offering or any(node_id not in reasons for node_id in offering):
            return None
        return reasons[min(offering)]

    def reasons(self, key: TrackKey) -> dict[NodeId, str]:
        """Who refuses a track, and why."""
        return dict(self._refused.heard.get(key, {}))

    def all_reasons(self) -> Iterator[tuple[TrackKey, NodeId, str]]:
        """Every track that some relay refuses us."""
        for key, reasons in self._refused.heard.items():
            for node_id, reason in reasons.items():
                yield key, node_id, reason

    def sizes(self) -> dict[str, int]:
        """How full its tables are."""
        return {
            "refusals_told": len(self._refused.told),
            "refusals_heard": len(self._refused.heard),
        }


def onward_of(message: SetTerms) -> Onward:
    """What a peer says of a set."""
    order, ways = min(message.order, ORDERS - 1), message.ways
    return Onward(message.service, order, message.inside, message.avoid, ways, message.passed)
