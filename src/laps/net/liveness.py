"""Whether the other end of a connection still lives, by what is heard of it.

    ALIVE    -> SUSPECT    it was asked, and nothing has come for long enough to be sure that the
                           question was not lost, nor the answer
    ALIVE    -> SUSPECT    somebody else has found it silent, and it has not been asked yet
    SUSPECT  -> ALIVE      something has come
    SUSPECT  -> DEAD       still nothing, for as long as the operator allows

It is asked (a QUIC PING) once it has been silent for a moment, and only while something depends on
it: between relays with nothing to do there is nothing on the wire. QUIC sends a question that is
not acknowledged again by itself, at ever longer intervals; asking again meanwhile makes it sure
that several were sent, so that a path that loses 5 % accuses nobody.

Its machine may refuse what is sent: nobody has the port open any more. One refusal makes a silent
peer suspect, which costs nothing. Several mean that it is dead, where it listens; a peer that has
dialled us may be behind a wall that refuses everybody but us, and has its time.

Silence is counted from look to look. A process that stood still itself, whether it was stopped or
the machine was busy, counts a look or two, and not the time that it was away: what came meanwhile
is read first. One that was away for so long that others may have given it up asks everybody, though
nothing depends on them: whoever closed a connection meanwhile may not have been able to say so, and
what is sent there from now on would be lost.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

# How often a connection is looked at: what is known of it is this much too old at most.
LOOK_S: Final = 0.1

# A connection that carries data is seldom silent for so long,
ASK_S: Final = 0.2
# and a process that is not stopped answers in this time and two round trips, on a busy machine too.
ANSWER_S: Final = 0.3

# So many refusals in a row are believed.
REFUSALS: Final = 3


class Life(Enum):
    """What is thought of the other end."""

    ALIVE = auto()
    SUSPECT = auto()
    DEAD = auto()


class Look(NamedTuple):
    """What one look at a connection leads to."""

    life: Life
    ask: bool
    "Whether the other end is to be asked for a sign of life."


class Liveness:
    """What is thought of the other end of one connection."""

    __slots__ = (
        "_back_at",
        "_dead_after_s",
        "_heard_at",
        "_listens",
        "_looked_at",
        "life",
        "silent_s",
    )

    def __init__(self, now: float, dead_after_s: float, *, listens: bool = False) -> None:
        """`listens`: where the peer is, it has a port open for everybody."""
        self.life = Life.ALIVE
        self.silent_s = 0.0
        "For how long nothing has come, as far as we were there to hear it."
        self._dead_after_s = dead_after_s
        self._listens = listens
        self._heard_at = now
        self._looked_at = now
        self._back_at: float | None = None
        "When we were back after we had stood still; None once we know that we are still known."

    def doubt(self) -> None:
        """Somebody else has found it silent: it is asked, and suspect until it answers."""
        if self.life is Life.ALIVE:
            self.life, self.silent_s = Life.SUSPECT, max(self.silent_s, ASK_S)

    def look(
        self, now: float, heard_at: float, srtt_s: float, *, needed: bool, refusals: int = 0
    ) -> Look:
        """`heard_at` is when the last packet came; `needed`, whether anything depends on it.

        `refusals` is how often its machine has refused what was sent since then.
        """
        away_s, self._looked_at = now - self._looked_at, now
        passed = min(away_s, 2 * LOOK_S)
        if away_s >= self._dead_after_s:
            self._back_at = now
        if heard_at > self._heard_at:
            self._heard_at = heard_at
            # What had come meanwhile is read at once, and says nothing of how it is now.
            if self._back_at is not None and heard_at > self._back_at + LOOK_S:
                self._back_at = None
            self.silent_s = min(now - heard_at, passed)
            self.life = Life.ALIVE
            return Look(self.life, ask=False)
        if not (needed or self._back_at is not None) and self.life is Life.ALIVE:
            # Nobody has asked, so its silence says nothing; nor does it once somebody does.
            self.silent_s = min(self.silent_s + passed, ASK_S)
            return Look(self.life, ask=False)
        self.silent_s += passed
        suspect_s = ASK_S + ANSWER_S + 2 * srtt_s
        is_refused = self._listens and refusals >= REFUSALS
        if is_refused or self.silent_s >= max(self._dead_after_s, suspect_s):
            self.life = Life.DEAD
        elif refusals or self.silent_s >= suspect_s:
            self.life = Life.SUSPECT
        return Look(self.life, ask=self.silent_s >= ASK_S and self.life is not Life.DEAD)
