"""What origins have decided, and what they are being asked: one decision for the same question.

                        no answer yet, requests wait
    wanted -> ASKED  ---------------------------------+
               |  granted                  refused,   |  could not be asked
               v                                      v
            ALLOWED  -- asked again before it ends -> REFUSED

Whoever depends on a decision holds it, and finds in it what was answered last. The table is for
those that ask the same next: what leaves it loses nothing but that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from laps.auth.refusals import AuthError, Reason

if TYPE_CHECKING:
    from laps.auth.origins import Origin, Question

# A decision without tokens has about 1 kB.
MAX_DECISIONS: Final = 10_000
# With tokens it has theirs too, and a stranger may show a thousand of 8 kB each.
MAX_BYTES: Final = 16 * 1024 * 1024


class DecisionState(Enum):
    """What is known of a decision."""

    ASKED = auto()
    """Nothing: who asked has to wait."""
    ALLOWED = auto()
    REFUSED = auto()


class Depending(Protocol):
    """A client, as far as decisions go."""

    def decided(self, decision: Decision, now: float) -> None:
        """An origin has answered: the requests that waited for it go on."""

    def taken_back(self, now: float) -> None:
        """An origin has taken back what it allowed: what went on by it ends."""

    def depends_on(self, decision: Decision) -> bool:
        """Whether anything goes on by a decision."""


class Decision:
    """What an origin answers to one question."""

    __slots__ = (
        "error",
        "is_wanted",
        "origin",
        "question",
        "renew_at",
        "state",
        "until",
        "users",
        "waiting",
    )

    def __init__(self, origin: Origin, question: Question) -> None:
        self.origin = origin
        self.question = question
        self.state = DecisionState.ASKED
        self.until = inf
        "When it ends, by the relay's clock."
        self.renew_at = inf
        "When it is asked for again, if anybody depends on it then."
        self.error: AuthError | None = None
        "Why it is refused, or why asking again has failed."
        self.is_wanted = False
        "Whether it is being asked for, or about to be."
        self.waiting: dict[Depending, None] = {}
        "Clients with requests that wait for it."
        self.users: WeakKeyDictionary[Depending, None] = WeakKeyDictionary()
        "Clients that do something that it allows, or did; those that have left are not kept by it."

    def stands(self, now: float) -> bool:
        """Whether what it allows may go on."""
        return self.state is DecisionState.ALLOWED and now < self.until

    def refusal(self) -> AuthError:
        """Why something is not allowed, or not any more."""
        if self.error is not None:
            return self.error
        if self.is_wanted:
            words = f"the origin {self.origin.name} cannot be asked: it has not answered yet"
            return AuthError(Reason.ORIGIN_FAILED, words)
        words = f"what the origin {self.origin.name} granted has ended"
        return AuthError(Reason.EXPIRED, words)


class Decisions:
    """The decisions of a relay's origins."""

    def __init__(self) -> None:
        self.wanted: deque[Decision] = deque()
        "Those that are to be asked for; the Edge takes them."
        self._known: OrderedDict[tuple[str, Question], Decision] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, origin: Origin, question: Question, now: float) -> Decision:
        """The decision on a question; one that is not known is asked for."""
        key = (origin.name, question)
        decision = self._known.get(key)
        if decision is not None and decision.origin == origin and now < decision.until:
            self._known.move_to_end(key)
            if decision.state is DecisionState.ASKED or now >= decision.renew_at:
                self.want(decision)  # whoever asked before has left, or nobody needed it by then
            return decision
        decision = Decision(origin, question)
        self._remember(key, decision)
        self.want(decision)
        return decision

    def stand_in(self, origin: Origin, question: Question, now: float) -> Decision:
        """The decision on what goes on already: it is allowed until the answer is there.

        One that is not known is for that alone: others wait for their answer.
        """
        known = self._known.get((origin.name, question))
        if known is not None and known.origin == origin and known.stands(now):
            return known
        decision = Decision(origin, question)
        decision.state = DecisionState.ALLOWED
        decision.until = now + (0.0 if origin.api is None else origin.api.timeout_s)
        self.want(decision)
        return decision

    def want(self, decision: Decision) -> None:
        """Have a decision asked for, or asked for again."""
        if not decision.is_wanted:
            decision.is_wanted = True
            self.wanted.append(decision)

    def forget(self) -> None:
        """Origins are others than they were: answers of before are for nobody new."""
        self._known.clear()
        self._bytes = 0

    def _remember(self, key: tuple[str, Question], decision: Decision) -> None:
        if (before := self._known.pop(key, None)) is not None:
            self._bytes -= before.question.size
        self._known[key] = decision
        self._bytes += decision.question.size
        while len(self._known) > MAX_DECISIONS or self._bytes > MAX_BYTES:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.question.size
