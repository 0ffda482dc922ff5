"""Sessions with peers that nobody configured: dialled as they help, and let go when they do not.

    state       what happens                                next
    DIALLING    the shell dials the contact                 UP, WAITING
    UP          it is needed                                RESTING, WAITING
    RESTING     not needed for a while: our data goes       UP, WAITING
                other ways; it is closed after some quiet
    WAITING     refused, lost, or of no use: it is not      READY
                dialled again yet
    READY       it may be dialled again                     DIALLING, forgotten

Nothing is lost when a session goes: our data leaves it first, stream by stream, and as long as the
other side sends that way it stays.
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

# Who was dialled in vain, or for less than this, is left alone for as long, and twice as long each
# time that it happens again.
AGAIN_FIRST_S: Final = 30.0
AGAIN_MOST_S: Final = 1800.0


class State(StrEnum):
    """Where a session on demand stands."""

    DIALLING = "dialling"
    UP = "up"
    RESTING = "resting"
    WAITING = "waiting"
    READY = "ready"


_IDLE: Final = (State.WAITING, State.READY)


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

    def needs(self, needs: Mapping[str, Need], now: float) -> None:
        """What would help now, or goes on helping; the most useful are dialled first."""
        for contact, need in needs.items():
            if (session := self._sessions.get(contact)) is not None:
                session.needed_at = now
                session.need = need
                if session.state is State.RESTING:
                    self._wake(session, now)
        self._wanted = {contact: self._wanted.get(contact, now) for contact in needs}
        ranked = sorted(needs.values(), key=lambda it: (-it.gain, it.contact))
        for need in ranked:
            if need.at_once or now - self._wanted[need.contact] >= LASTING_S:
                self._dial(need, now)

    def _dial(self, need: Need, now: float) -> None:
        session = self._sessions.get(need.contact)
        if session is not None and session.state is not State.READY:
            return
        if self._busy >= self._settings.sessions:
            return
        if not self._dials.take(1, now):
            return
        again_s = AGAIN_FIRST_S if session is None else session.again_s
        self._sessions[need.contact] = Session(need, State.DIALLING, now, now, now, again_s=again_s)
        self.counters.sessions_dialled += 1
        self.calls.append(Dial(need.contact, need.node_id, need.mode))
        self._note(need, "session_on_demand", need.why, now)

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
        lasted_s = now - session.since
        if lasted_s > AGAIN_MOST_S:
            session.again_s = AGAIN_FIRST_S
        session.state, session.said = State.WAITING, reason
        session.again_at = now + session.again_s
        session.again_s = min(2 * session.again_s, AGAIN_MOST_S)
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
            case State.READY if session.again_at + AGAIN_MOST_S < now:
                del self._sessions[session.need.contact]
            case State.DIALLING if unneeded_s > HOLD_S:
                self._end(session, "not needed any more", now)
            case State.UP if unneeded_s > HOLD_S and session.link_id is not None:
                session.state, session.quiet_at = State.RESTING, now
                self._avoided.resting.add(session.link_id)
                self._paths.reselect(session.link_id, (), now)
            case State.RESTING if session.link_id is not None:
                if self._is_used(session.link_id):
                    session.quiet_at = now
                elif now - session.quiet_at >= self._settings.idle_s:
                    self._end(session, f"quiet for {self._settings.idle_s:g} s", now)
            case _:
                pass

    def _is_used(self, link_id: SessionId) -> bool:
        """Whether data goes or comes that way."""
        return self._fib.uses(link_id) or bool(self._ingress.count(link_id))

    def _note(self, need: Need, event: str, reason: str, now: float) -> None:
        who = need.contact if need.node_id is None else format_node_id(need.node_id)
        self._journal.note(now, event, who, need.contact, reason=reason)
