"""Sessions with peers that nobody configured: dialled as they help, and let go when they do not.

    state       what happens                                next
    DIALLING    the shell dials the contact                 UP, WAITING
    UP          it is needed                                RESTING, WAITING
    RESTING     not needed for a while, or others are       UP, WAITING
                needed more: our data goes other ways;
                it is closed after some quiet
    WAITING     refused, lost, or of no use: it is not      READY
                dialled again yet
    READY       it may be dialled again                     DIALLING, forgotten

Nothing is lost when a session goes: our data leaves it first, stream by stream, and as long as the
other side sends that way it stays.

There are places for some sessions only. Those that help the most have them, and who has one keeps
it until another would help twice as much.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.buckets import Bucket
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from laps.infobase.nodes import SessionId
    from laps.relay.ingress import IngressSets
    from laps.relay.journal import Journal
    from laps.relay.paths import Paths
    from laps.relay.settings import DemandSettings
    from laps.relay.weighing import Weighing
    from laps.types import NodeId

# What helps is dialled at once; so many a minute, and as many at once as there may be sessions.
DIALS_PER_MINUTE: Final = 12

# The round trips that relays tell at first are those of handshakes, and settle in this time. What
# is needed for another reason is dialled at once.
LASTING_S: Final = 7.0

# A need may be gone for a moment: a track ends, and the next begins.
HOLD_S: Final = 10.0

# A session that was let go is not dialled again for this long. For one that was dialled in vain, as
# it was refused, lost or never used, it is twice as long each time.
AGAIN_FIRST_S: Final = 30.0
AGAIN_MOST_S: Final = 1800.0
# A control server is there again soon, or another in its place.
AGAIN_SERVER_S: Final = 5.0


class State(StrEnum):
    """Where a session on demand stands."""

    DIALLING = "dialling"
    UP = "up"
    RESTING = "resting"
    WAITING = "waiting"
    READY = "ready"


_IDLE: Final = (State.WAITING, State.READY)

# Who has a session is preferred to others that help less than this many times as much.
KEEPS: Final = 2

# The end of what was sent last is on its way for some round trips.
DRAINED_S: Final = 3.0


class Need(NamedTuple):
    """A peer that would help."""

    contact: str
    node_id: NodeId | None
    "Who has to answer there; None: whoever does."
    why: str
    gain: int
    "For how many subscribers' relays, each counted for each track."
    mode: PeerMode = PeerMode.DATA
    "What the session is for: control goes the ways that are configured, mostly."
    at_once: bool = False
    "It is not for round trips, which may yet turn out to be shorter."
    rank: int = 0
    "Peers of a higher rank are dialled first, whatever the others would help."


class Dial(NamedTuple):
    """What the shell is to dial."""

    contact: str
    node_id: NodeId | None
    mode: PeerMode


class HangUp(NamedTuple):
    """What the shell is to close, or dial no longer."""

    contact: str


@dataclass(slots=True)
class DemandCounters:
    """What came of it, for the operator."""

    sessions_dialled: int = 0
    sessions_ended: int = 0
    "Let go, lost, or dialled in vain."


@dataclass(slots=True, eq=False)
class Session:
    """A peer that we dial because it helps, or that we dialled."""

    need: Need
    state: State
    since: float
    "When it was dialled."
    needed_at: float
    quiet_at: float
    "Since when nothing has gone that way in any direction."
    link_id: SessionId | None = None
    was_used: bool = False
    "Whether data has gone that way."
    again_s: float = 0.0
    "How long it waits the next time."
    again_at: float = 0.0
    said: str = ""
    "Why it waits."


class OnDemand:
    """The sessions of one relay that nobody configured."""

    def __init__(
        self,
        weighing: Weighing,
        ingress: IngressSets,
        paths: Paths,
        journal: Journal,
        settings: DemandSettings,
    ) -> None:
        self.counters = DemandCounters()
        self.calls: deque[Dial | HangUp] = deque()
        "What the shell is to do, in order."
        self._fib = weighing.fib
        self._ingress = ingress
        self._avoided = weighing.avoided
        self._paths = paths
        self._journal = journal
        self._settings = settings
        self._most = settings.sessions
        "As many as there may be now, with those to control servers."
        self._sessions: dict[str, Session] = {}
        self._wanted: dict[str, float] = {}
        "Since when each contact has been needed without a break."
        self._dials = Bucket(DIALS_PER_MINUTE / 60, max(1, settings.sessions))

    def __iter__(self) -> Iterator[Session]:
        """All sessions, in the order in which they came to be wanted."""
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def most(self) -> int:
        """As many as there may be."""
        return self._settings.sessions

    @property
    def link_ids(self) -> frozenset[SessionId]:
        """The links that are there on demand."""
        found = (it.link_id for it in self._sessions.values())
        return frozenset(link_id for link_id in found if link_id is not None)

    @property
    def leaving(self) -> Collection[SessionId]:
        """The links of peers that have said GOAWAY."""
        return self._avoided.leaving

    def configure(self, settings: DemandSettings, now: float) -> None:
        """Have more sessions from now on, or fewer, or none."""
        self._settings = settings
        self._dials = Bucket(DIALS_PER_MINUTE / 60, max(1, settings.sessions))
        if not settings.sessions:
            for session in self:
                self._end(session, "no sessions on demand are wanted any more", now)

    def why(self, link_id: SessionId) -> str | None:
        """Why a link is there; None: it is none of these."""
        for session in self._sessions.values():
            if session.link_id == link_id:
                return session.need.why
        return None

    def cannot_help(self, contact: str) -> bool:
        """Whether a peer cannot be had now: it was dialled in vain, or none are wanted."""
        session = self._sessions.get(contact)
        if session is None:
            return not self._settings.sessions
        return session.state is State.WAITING

    # -- what is needed ----------------------------------------------------------------------------

    def needs(self, needs: Mapping[str, Need], now: float) -> bool:
        """What would help now, or goes on helping; whether one that was let go is used again.

        The most useful are dialled first, and as many are kept as there are places.
        """
        woken = False
        self._wanted = {contact: self._wanted.get(contact, now) for contact in needs}
        ranked = sorted((it for it in needs.values() if not self._waits(it)), key=self._rank)
        # Control servers take no place of those that help.
        self._most = self._settings.sessions and self._settings.sessions + sum(
            need.mode is PeerMode.CONTROL for need in ranked
        )
        for need in ranked[: self._most]:
            if (session := self._sessions.get(need.contact)) is not None:
                session.needed_at = now
                session.need = need
                if session.state is State.RESTING:
                    self._wake(session, now)
                    woken = True
            if need.at_once or now - self._wanted[need.contact] >= LASTING_S:
                self._dial(need, now)
        return woken

    def _waits(self, need: Need) -> bool:
        session = self._sessions.get(need.contact)
        return session is not None and session.state is State.WAITING

    def _rank(self, need: Need) -> tuple[int, int, str]:
        session = self._sessions.get(need.contact)
        has_one = session is not None and session.state not in _IDLE
        return -need.rank, -need.gain * (KEEPS if has_one else 1), need.contact

    def _dial(self, need: Need, now: float) -> None:
        session = self._sessions.get(need.contact)
        if session is not None and session.state is not State.READY:
            return
        if self._busy >= self._most and not self._make_room(now):
            return
        if not self._dials.take(1, now):
            return
        again_s = AGAIN_FIRST_S if session is None else session.again_s
        self._sessions[need.contact] = Session(need, State.DIALLING, now, now, now, again_s=again_s)
        self.counters.sessions_dialled += 1
        self.calls.append(Dial(need.contact, need.node_id, need.mode))
        self._note(need, "session_on_demand", need.why, now)

    def _make_room(self, now: float) -> bool:
        """End a session that is let go in any case, if nothing of it is on its way any more."""
        for session in self._sessions.values():
            is_quiet = now - session.quiet_at >= DRAINED_S and not self._is_used(session)
            if session.state is State.RESTING and is_quiet:
                self._end(session, "another is needed in its place", now)
                return True
        return False

    @property
    def _busy(self) -> int:
        return sum(it.state not in _IDLE for it in self._sessions.values())

    def _wake(self, session: Session, now: float) -> None:
        session.state = State.UP
        if session.link_id is not None and session.link_id in self._avoided.resting:
            self._avoided.resting.discard(session.link_id)
            self._paths.reselect(session.link_id, (), now)

    # -- what becomes of it ------------------------------------------------------------------------

    def opened(self, contact: str, link_id: SessionId, now: float) -> None:
        """The shell has a connection: the peer is about to say who it is."""
        if (session := self._sessions.get(contact)) is not None:
            session.link_id = link_id
            session.state = State.UP
            session.quiet_at = now

    def ended(self, contact: str, reason: str, now: float) -> None:
        """There is no connection, or none any more."""
        session = self._sessions.get(contact)
        if session is None or session.state in _IDLE:
            return
        self._forget_link(session)
        self.counters.sessions_ended += 1
        was_of_use = session.state is State.RESTING and session.was_used
        wait_s = AGAIN_FIRST_S if was_of_use else session.again_s
        if session.need.mode is PeerMode.CONTROL:
            wait_s = min(wait_s, AGAIN_SERVER_S)
        session.state, session.said = State.WAITING, reason
        session.again_at = now + wait_s
        session.again_s = AGAIN_FIRST_S if was_of_use else min(2 * wait_s, AGAIN_MOST_S)
        self._note(session.need, "session_released", reason, now)

    def _end(self, session: Session, reason: str, now: float) -> None:
        self.calls.append(HangUp(session.need.contact))
        self.ended(session.need.contact, reason, now)

    def _forget_link(self, session: Session) -> None:
        if session.link_id is not None:
            self._avoided.resting.discard(session.link_id)
            session.link_id = None

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Let go of what is not needed any more."""
        for session in self:
            self._look(session, now)

    def _look(self, session: Session, now: float) -> None:
        unneeded_s = now - session.needed_at
        match session.state:
            case State.WAITING if session.again_at <= now:
                session.state = State.READY
            case State.READY if now > session.again_at + self._remembered_s(session):
                del self._sessions[session.need.contact]
            case State.DIALLING if unneeded_s > HOLD_S:
                self._end(session, "not needed any more", now)
            case State.UP if unneeded_s > HOLD_S and session.link_id is not None:
                session.state, session.quiet_at = State.RESTING, now
                self._avoided.resting.add(session.link_id)
                self._paths.reselect(session.link_id, (), now)
            case State.UP:
                session.was_used |= self._is_used(session)
            case State.RESTING if session.link_id is not None:
                if self._is_used(session):
                    session.quiet_at = now
                elif now - session.quiet_at >= self._settings.idle_s:
                    self._end(session, f"quiet for {self._settings.idle_s:g} s", now)
            case _:
                pass

    def _remembered_s(self, session: Session) -> float:
        """How long it counts that a peer was dialled in vain."""
        is_server = session.need.mode is PeerMode.CONTROL
        return AGAIN_SERVER_S if is_server else AGAIN_MOST_S

    def _is_used(self, session: Session) -> bool:
        """Whether data goes or comes that way."""
        link_id = session.link_id
        return link_id is not None and (
            self._fib.uses(link_id) or bool(self._ingress.count(link_id))
        )

    def _note(self, need: Need, event: str, reason: str, now: float) -> None:
        who = need.contact if need.node_id is None else format_node_id(need.node_id)
        self._journal.note(now, event, who, need.contact, reason=reason)
