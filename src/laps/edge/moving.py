"""Clients moved where their content is, and away from a relay that is full.

The document asks for it in its considerations ("Optimizing Peering using MoQT GOAWAY"): subscribers
of the same content had best be at the same relay, if there is room. So each Edge looks at its own
clients once a second, some at a time. One that is alone here on a track that comes from afar, and
that an Edge nearby has subscribers for, is asked to go there: GOAWAY in MoQT, RELAY_REDIRECT in
QUICR.

    standing   what happens                                            next
    HERE       it has been here for less than `settled_s`, or nothing  DRAWN, ASKED
               would be saved if it were elsewhere
    DRAWN      an Edge nearby would save copies                        HERE, ASKED
    ASKED      it was asked to go there, and is served until it does   STAYS, gone
    STAYS      it has not gone: it is served on, and asked no more     gone

Of two relays with a lone client each, the one with the higher node id moves its client, and the
other waits for it. If nothing comes of that, because of policy or room, it moves its own.

A relay that has been full for a while moves any client that may go, to Edges nearby with room,
until it is well below the limit.

Clients that publish, or read what relays say of themselves, stay where they are. One that moves is
new at the next relay, and has to settle there before it is moved again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from laps.edge.gains import Gain, Gains
from laps.edge.neighbours import TAKES_BELOW, Neighbours
from laps.relay.failover import MOST_LOAD
from laps.relay.roles import Role
from laps.routing.policy import STEERING
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laps.edge.client import EdgeClient
    from laps.edge.settings import MovingSettings
    from laps.relay.relay import Relay
    from laps.types import Address, NodeId

# All clients are looked at in this time, some at once: 20 µs for each of their tracks. With very
# many it takes longer, so that it stays a twentieth of a core.
LOOK_S: Final = 1.0
MOST_AT_ONCE: Final = 200
NEXT_S: Final = 0.1

# Who reads more tracks is left alone.
MOST_TRACKS: Final = 200

# Who moves is at both relays for a while, and the one that it left wants its tracks for some time
# after that (`unsubscribe_s`), in case that somebody comes back: a gain has to last longer.
BOTH_S: Final = 5.0

# A relay that expects another to move its client first waits for this many times `settled_s` more.
PATIENCE: Final = 2

# A session is made within some round trips; who has not gone by now does not go.
FOLLOW_S: Final = 10.0

# A load that has counted for this long is no burst.
FULL_S: Final = 10.0

# A client goes within some seconds, and some later the load is measured without it.
SHOWS_S: Final = 10.0

MINUTE_S: Final = 60.0

# Of very many clients a full relay asks one in so many a minute, if that is more than its limit.
FULL_PART: Final = 20


class Standing(StrEnum):
    """Where a client stands."""

    HERE = "here"
    DRAWN = "drawn"
    ASKED = "asked"
    STAYS = "stays"


_NEXT: Final = {
    Standing.HERE: frozenset({Standing.DRAWN, Standing.ASKED}),
    Standing.DRAWN: frozenset({Standing.HERE, Standing.ASKED}),
    Standing.ASKED: frozenset({Standing.STAYS}),
    Standing.STAYS: frozenset[Standing](),
}


@dataclass(slots=True)
class MovingCounters:
    """What came of it, for the operator."""

    asked_for_content: int = 0
    "Clients that were asked to go where their tracks are."
    asked_for_load: int = 0
    "Clients that were asked to go because this relay is full."
    followed: int = 0
    "Of all these, those that went."
    stayed: int = 0
    "Those that did not go in time, and are left alone since."


@dataclass(slots=True, eq=False)
class Case:
    """A client that was looked at."""

    since: float
    "When it was looked at first: it came less than a round of looks before."
    standing: Standing = Standing.HERE
    target: NodeId | None = None
    "The node that it would go to, or was asked to go to."
    target_at: float = 0.0
    "Since when that node would save copies; or when the client was asked."
    why: str = ""
    "Why it was asked, in an operator's words."

    def advance(self, standing: Standing) -> None:
        """Go on to another standing, if the table has such a step."""
        assert standing in _NEXT[self.standing], (self.standing, standing)  # noqa: S101 - a defect
        self.standing = standing

    @property
    def was_asked(self) -> bool:
        """Whether the client has been asked to go."""
        return self.standing in (Standing.ASKED, Standing.STAYS)


class Moving:
    """Looks which clients of an Edge had better be at another one."""

    def __init__(
        self, relay: Relay, clients: Mapping[EdgeClient, None], settings: MovingSettings
    ) -> None:
        self.counters = MovingCounters()
        self.is_full = False
        "Whether this relay has been full for a while, and is not well below that yet."
        self._relay = relay
        self._clients = clients
        self._settings = settings
        self._neighbours = Neighbours(relay, settings.near_ms)
        self._gains = Gains(relay, self._neighbours)
        self._cases: dict[EdgeClient, Case] = {}
        self._asked: deque[tuple[EdgeClient, Case]] = deque()
        "Those that may still go, the first that was asked first."
        self._moves: deque[tuple[float, int]] = deque()
        "When clients were asked within the last minute, and how many there were."
        self._round: Iterator[EdgeClient] | None = None
        "Those that are still to be looked at; None between two rounds."
        self._full_at: float | None = None
        "Since when this relay is full."
        self._next_at = 0.0
        "When a round may begin, and the load is looked at."
        self._due_at = 0.0
        self._ended = False

    def configure(self, settings: MovingSettings, now: float) -> None:
        """Take what an operator has changed."""
        if settings == self._settings:
            return
        self._settings = settings
        self._neighbours.near_ms = settings.near_ms
        self._due_at = now
        for case in self._cases.values():
            if case.standing is Standing.DRAWN:
                case.target_at = now  # nobody has looked since moving was turned off

    def end(self) -> None:
        """The relay is about to stop: all clients are sent elsewhere together."""
        self._ended = True

    def forget(self, client: EdgeClient) -> None:
        """A client has left."""
        case = self._cases.pop(client, None)
        if case is not None and case.standing is Standing.ASKED:
            self.counters.followed += 1

    def case(self, client: EdgeClient) -> Case | None:
        """How it is with a client; None if it has not been looked at."""
        return self._cases.get(client)

    def has_asked(self, client: EdgeClient) -> bool:
        """Whether a client was asked to go: MoQT allows that once a session."""
        case = self._cases.get(client)
        return case is not None and case.was_asked

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at some clients; once a second at all, if they are not very many."""
        if now < self._due_at:
            return
        self._look_who_stays(now)
        if not self._is_on:
            self._due_at = now + LOOK_S
            return
        if self._next_at <= now:
            self._next_at = now + LOOK_S
            self._neighbours.look()
            self._relay.interest.name_near(self._neighbours, now)
            self._look_at_load(now)
            while self._moves and self._moves[0][0] <= now - MINUTE_S:
                self._moves.popleft()
        self._due_at = self._next_at if self._look(now) else now + NEXT_S

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return self._due_at if self._asked or (self._is_on and self._clients) else None

    @property
    def _is_on(self) -> bool:
        is_edge = self._relay.role is Role.EDGE
        return is_edge and self._settings.per_minute > 0 and not self._ended

    def _look_who_stays(self, now: float) -> None:
        """Who was asked long enough ago and is still here does not follow."""
        while self._asked and self._asked[0][1].target_at <= now - FOLLOW_S:
            client, case = self._asked.popleft()
            if client not in self._cases or not client.subscriptions:
                continue  # it is gone, or only what it was sent before is still on its way
            case.advance(Standing.STAYS)
            self.counters.stayed += 1
            said = f"asked {FOLLOW_S:g} s ago: {case.why}"
            self._note(case, "client_stays", "it is served on, and not asked again", said, now)

    def _look_at_load(self, now: float) -> None:
        load = self._neighbours.load
        if load < MOST_LOAD:
            self._full_at = None
        elif self._full_at is None:
            self._full_at = now
        elif now - self._full_at >= FULL_S:
            self.is_full = True
        self.is_full = self.is_full and load >= TAKES_BELOW

    def _look(self, now: float) -> bool:
        """Look at the next clients; whether the round is over, and another may begin."""
        if self._round is None:
            self._round = iter(list(self._clients))
        targets = list(self._neighbours)
        left = MOST_AT_ONCE
        while left > 0:
            client = next(self._round, None)
            if client is None:
                self._round = None
                return True
            if client in self._clients:
                left -= 1 + len(client.subscriptions)
                self._look_at(client, targets, now)
        return False

    # -- one client --------------------------------------------------------------------------------

    def _look_at(self, client: EdgeClient, targets: list[NodeId], now: float) -> None:
        case = self._cases.get(client)
        if case is None:
            case = self._cases[client] = Case(now)
        if case.was_asked:
            return
        is_drawn = False
        if targets and self._may_go(client):
            gains = self._gains.of(client, targets)
            is_drawn = self._draw(case, gains, now)
            if now - case.since >= self._settings.settled_s and self._may_move:
                if self._sheds(now) and self._relieve(client, case, gains, now):
                    return
                if is_drawn and self._follow_content(client, case, gains, now):
                    return
        if not is_drawn and case.standing is Standing.DRAWN:
            case.advance(Standing.HERE)
            case.target = None

    @property
    def _may_move(self) -> bool:
        """Whether another may be asked: a relay that is full asks a part of many."""
        most = self._settings.per_minute
        if self.is_full:
            most = max(most, len(self._clients) // FULL_PART)
        return len(self._moves) < most

    def _sheds(self, now: float) -> bool:
        """Whether a client may be sent away for the load: one a second, as that takes effect.

        Whoever was asked just now leaves room that is not measured yet.
        """
        if not self.is_full or (self._moves and now - self._moves[-1][0] < LOOK_S):
            return False
        leaving = sum(1 / max(1, count) for at, count in self._moves if now - at < SHOWS_S)
        return self._neighbours.load * (1.0 - leaving) >= TAKES_BELOW

    def _may_go(self, client: EdgeClient) -> bool:
        """Whether a client only subscribes, and could follow."""
        subscriptions, policy = client.subscriptions, self._relay.weighing.policy
        if not client.follows_goaway or client.is_leaving or client.serving:
            return False
        if not subscriptions or len(subscriptions) > MOST_TRACKS:
            return False
        if client.publications or self._relay.tracks.announces.count(client):
            return False
        # What it may yet find below a prefix might not be allowed elsewhere.
        if client.watching and (policy.binds or policy.limits):
            return False
        # What relays say of themselves, or are told, is read where it is asked for.
        names = (it.track.name for it in subscriptions.values())
        return all(name is not None and name.namespace[:1] != STEERING for name in names)

    def _draw(self, case: Case, gains: Mapping[NodeId, Gain], now: float) -> bool:
        """Whether some node would save copies; the one that saves most, the lowest id of several.

        All relays choose alike, so that lone clients of several meet at one.
        """
        saving = [
            it
            for it in gains.values()
            if it.copies > 0 and self._neighbours.taking(it.node_id) is not None
        ]
        best = min(saving, key=lambda it: (-it.copies, it.node_id), default=None)
        if best is None:
            return False
        if case.standing is Standing.HERE:
            case.advance(Standing.DRAWN)
        elif case.target == best.node_id:
            return True
        case.target, case.target_at = best.node_id, now
        return True

    def _follow_content(
        self, client: EdgeClient, case: Case, gains: Mapping[NodeId, Gain], now: float
    ) -> bool:
        """Ask a client to go where its tracks are; False if it is too early, or not possible."""
        target = case.target
        if target is None:
            return False
        lasting_s = self._relay.settings.unsubscribe_s + BOTH_S
        if target > self._relay.id:
            lasting_s += PATIENCE * self._settings.settled_s
        if now - case.target_at < lasting_s:
            return False
        names = gains[target].tracks
        which, it = names[0], "it"
        if len(names) > 1:
            which, it = f"{len(names)} tracks, {names[0]} among them", "them"
        why = f"alone here on {which}; {format_node_id(target)} has subscribers for {it}"
        if not self._ask(client, case, target, why, now):
            return False
        self.counters.asked_for_content += 1
        return True

    def _relieve(
        self, client: EdgeClient, case: Case, gains: Mapping[NodeId, Gain], now: float
    ) -> bool:
        """Ask a client to go where there is room; False if there is none that policy allows."""
        found = [
            (-gain.copies, there.load, gain.node_id)
            for gain in gains.values()
            if (there := self._neighbours.taking(gain.node_id)) is not None
        ]
        if not found:
            return False
        _, load, target = min(found)
        here = f"this relay is {self._neighbours.load:.0%} full"
        if not self._ask(client, case, target, f"{here}, {format_node_id(target)} {load:.0%}", now):
            return False
        self.counters.asked_for_load += 1
        return True

    def _ask(
        self, client: EdgeClient, case: Case, target: NodeId, why: str, now: float
    ) -> Address | None:
        """Ask a client to go to a node, if that still takes clients."""
        there = self._neighbours.taking(target)
        if there is None:
            return None
        case.advance(Standing.ASKED)
        case.target, case.target_at, case.why = target, now, why
        self._asked.append((client, case))
        self._moves.append((now, len(self._clients)))
        self._note(case, "client_moved", str(there.address), why, now)
        client.go_away(there.address)
        return there.address

    def _note(self, case: Case, event: str, detail: str, why: str, now: float) -> None:
        # Who the client is stays here: whoever reads telemetry need not know.
        node = "" if case.target is None else format_node_id(case.target)
        self._relay.journal.note(now, event, node, detail, why)
