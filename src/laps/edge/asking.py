"""Asks origins: what waits for its turn, what is under way, what is asked again and when.

    a decision is wanted     Decisions.wanted -> perform -> waiting
    its turn comes           `asked`, where the shell finds what it is to send over HTTPS
    the shell has an answer  answered -> the decision; clients that wait go on, or are refused

An answer that comes too late is for nobody. Every question has an answer within the time that the
origin has, or is refused: an origin that fails grants nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

from laps.auth.origin_api import (
    BadAnswerError,
    CallFailed,
    Verdict,
    decode_answer,
    encode_question,
)
from laps.auth.refusals import AuthError, Reason
from laps.edge.decisions import DecisionState
from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.auth.origins import Origin, OriginApi
    from laps.edge.client import EdgeClient
    from laps.edge.context import Context
    from laps.edge.decisions import Decision

# A question that an origin fails on is asked again twice, soon, and then less soon.
MOST_TRIES: Final = 3
AGAIN_FIRST_S: Final = 0.2
# An origin that cannot be reached is tried by one question, twice as late each time: all others
# wait, and the origin has to deal with one connection when it is back.
PAUSE_FIRST_S: Final = 0.1
PAUSE_MOST_S: Final = 2.0
# Who asks the same again at once, after a failure, is given the same refusal.
FAILED_S: Final = 1.0
# A decision is asked for again when a quarter of its time is left, a minute before it ends at most:
# time for several tries.
RENEW_SHARE: Final = 0.25
RENEW_MOST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request that the shell is to make."""

    id: int
    origin: str
    api: OriginApi
    body: bytes
    timeout_s: float
    "After this nobody waits for the answer."


@dataclass(slots=True)
class OriginCounters:
    """What became of the questions to one origin."""

    calls: int = 0
    "Requests that were made."
    allowed: int = 0
    refused: int = 0
    failed: int = 0
    "Questions that had no answer, or none in time, and were refused for that."
    retried: int = 0
    late: int = 0
    "Answers that nobody waited for any more."
    answered: int = 0
    "Requests that had an answer,"
    answer_us: int = 0
    "and how long all of these took together."
    last_failure: str = ""
    "Why the last question that failed did."


@dataclass(slots=True, eq=False)
class _Asked:
    """A question on its way."""

    decision: Decision
    line: _Line
    until: float
    "When it fails."
    tries: int = 0
    call_id: int | None = None
    "The request that is under way, if one is."
    began_at: float = 0.0
    problem: str = "it did not answer"
    is_closed: bool = False


@dataclass(slots=True, eq=False)
class _Line:
    """The questions to one origin."""

    name: str
    api: OriginApi
    counters: OriginCounters
    waiting: deque[_Asked]
    under_way: int = 0
    failures: int = 0
    "How often it could not be reached, since it last answered."
    paused_until: float = 0.0

    @property
    def has_room(self) -> bool:
        """Whether a request more may be made."""
        return self.under_way < (1 if self.failures else self.api.concurrent)


class Asking:
    """The questions to all origins of a relay."""

    def __init__(self, context: Context) -> None:
        self.asked: deque[Call] = deque()
        "Requests for the shell to take, and to make."
        self.counters: dict[str, OriginCounters] = {}
        "By origin."
        self._context = context
        self._decisions = context.authority.decisions
        self.wanted = self._decisions.wanted
        "What `perform` takes."
        self._lines: dict[str, _Line] = {}
        self._calls: dict[int, _Asked] = {}
        self._ids = count(1)

    def waiting(self, origin: str) -> int:
        """How many questions to an origin have no answer yet."""
        line = self._lines.get(origin)
        return 0 if line is None else len(line.waiting) + line.under_way

    # -- what is to be asked -----------------------------------------------------------------------

    def perform(self, now: float) -> None:
        """Take what is wanted."""
        while self.wanted:
            self._ask(self.wanted.popleft(), now)

    def _ask(self, decision: Decision, now: float) -> None:
        origin, api = decision.origin, decision.origin.api
        if api is None or not (decision.waiting or decision.users):
            decision.is_wanted = False  # who asked has left
            return
        line = self._line(origin, api)
        if len(line.waiting) >= api.queue:
            self._failed(decision, line, f"{api.queue} questions wait for it", now)
            return
        asked = _Asked(decision, line, now + api.timeout_s)
        line.waiting.append(asked)
        self._context.at(asked.until, lambda now: self._expire(asked, now))
        self._pump(line, now)

    def _line(self, origin: Origin, api: OriginApi) -> _Line:
        line = self._lines.get(origin.name)
        if line is None or line.api != api:
            counters = self.counters.setdefault(origin.name, OriginCounters())
            line = self._lines[origin.name] = _Line(origin.name, api, counters, deque())
        return line

    def _pump(self, line: _Line, now: float) -> None:
        while line.waiting and line.has_room and now >= line.paused_until:
            asked = line.waiting.popleft()
            decision = asked.decision
            if not (decision.waiting or decision.users):
                self._close(asked)
            elif not asked.is_closed:
                self._call(asked, line, now)

    def _call(self, asked: _Asked, line: _Line, now: float) -> None:
        call_id = asked.call_id = next(self._ids)
        asked.tries += 1
        asked.began_at = now
        line.under_way += 1
        line.counters.calls += 1
        line.counters.retried += asked.tries > 1
        self._calls[call_id] = asked
        relay = format_node_id(self._context.relay.id)
        body = encode_question(line.name, relay, asked.decision.question)
        self.asked.append(Call(call_id, line.name, line.api, body, asked.until - now))

    # -- what is answered --------------------------------------------------------------------------

    def answered(self, call_id: int, result: bytes | CallFailed, now: float) -> None:
        """The shell has made a request: the body of the answer, or what went wrong."""
        asked = self._calls.pop(call_id, None)
        if asked is None:
            return
        line, asked.call_id = asked.line, None
        if asked.is_closed:
            line.counters.late += 1
            return
        line.under_way -= 1
        if isinstance(result, CallFailed):
            self._tried(asked, result, now)
        else:
            self._heard(asked, result, now)
        self._pump(line, now)

    def _heard(self, asked: _Asked, body: bytes, now: float) -> None:
        line, decision = asked.line, asked.decision
        line.failures = 0
        line.counters.answered += 1
        line.counters.answer_us += round((now - asked.began_at) * 1e6)
        self._close(asked)
        try:
            verdict = decode_answer(body)
        except BadAnswerError as error:
            self._failed(decision, line, f"its answer is none: {error}", now)
            return
        self._decide(decision, line, verdict, now)

    def _tried(self, asked: _Asked, result: CallFailed, now: float) -> None:
        """A request has failed: the question is asked again, if there is time."""
        line = asked.line
        asked.problem = result.words
        if result.unreachable:
            line.failures += 1
            wait = min(PAUSE_FIRST_S * 2 ** (line.failures - 1), PAUSE_MOST_S)
            line.paused_until = now + wait
            line.waiting.appendleft(asked)
            self._context.at(line.paused_until, lambda now: self._pump(line, now))
            return
        line.failures = 0
        if not result.again or asked.tries >= MOST_TRIES:
            self._close(asked)
            self._failed(asked.decision, line, result.words, now)
            return
        wait = AGAIN_FIRST_S * 2 ** (asked.tries - 1)
        self._context.at(now + wait, lambda now: self._again(asked, now))

    def _again(self, asked: _Asked, now: float) -> None:
        if not asked.is_closed:
            asked.line.waiting.append(asked)
            self._pump(asked.line, now)

    def _expire(self, asked: _Asked, now: float) -> None:
        """An origin had its time."""
        if asked.is_closed:
            return
        line = asked.line
        self._close(asked)
        if asked.call_id is not None:  # what is answered later is counted, and is for nobody
            line.under_way -= 1
        elif asked in line.waiting:
            line.waiting.remove(asked)
        words = f"{asked.problem}, {line.api.timeout_s:g} s at most"
        self._failed(asked.decision, line, words, now)
        self._pump(line, now)

    @staticmethod
    def _close(asked: _Asked) -> None:
        asked.is_closed = True
        asked.decision.is_wanted = False

    # -- what follows ------------------------------------------------------------------------------

    def _decide(self, decision: Decision, line: _Line, verdict: Verdict, now: float) -> None:
        if not verdict.allow:
            line.counters.refused += 1
            words = f"the origin {line.name} says no: {verdict.reason}"
            self._refuse(decision, AuthError(Reason.ORIGIN_REFUSED, words), verdict.keep_s, now)
            return
        line.counters.allowed += 1
        decision.state = DecisionState.ALLOWED
        decision.error = None
        decision.until = now + verdict.keep_s
        lead = min(RENEW_SHARE * verdict.keep_s, RENEW_MOST_S)
        self._renew_at(decision, decision.until - lead)
        self._go_on(decision, now)

    def _failed(self, decision: Decision, line: _Line, words: str, now: float) -> None:
        """A question has no answer. What goes on by an earlier one does so until that ends."""
        decision.is_wanted = False
        line.counters.failed += 1
        line.counters.last_failure = words
        error = AuthError(Reason.ORIGIN_FAILED, f"the origin {line.name} cannot be asked: {words}")
        if not decision.stands(now):
            self._refuse(decision, error, FAILED_S, now)
            return
        decision.error = error
        self._renew_at(decision, now + max(FAILED_S, RENEW_SHARE * (decision.until - now)))

    def _refuse(self, decision: Decision, error: AuthError, keep_s: float, now: float) -> None:
        decision.state = DecisionState.REFUSED
        decision.error = error
        decision.until = now + keep_s
        decision.renew_at = inf
        self._go_on(decision, now)
        users = list(decision.users)
        decision.users.clear()
        for client in users:
            if client in self._context.clients:
                client.taken_back(now)

    def _go_on(self, decision: Decision, now: float) -> None:
        waiting = list(decision.waiting)
        decision.waiting.clear()
        for client in waiting:
            if client in self._context.clients:
                client.decided(decision, now)

    def _renew_at(self, decision: Decision, when: float) -> None:
        decision.renew_at = when
        if when < decision.until:
            self._context.at(when, lambda now: self._renew(decision, when, now))

    def _renew(self, decision: Decision, when: float, now: float) -> None:
        """Ask again, if somebody depends on it and it was not asked for meanwhile."""
        if decision.renew_at != when or decision.state is not DecisionState.ALLOWED:
            return
        for client in [it for it in decision.users if not it.depends_on(decision)]:
            del decision.users[client]
        current = self._context.authority.origins.get(decision.origin.name)
        if decision.users and current == decision.origin:
            self._decisions.want(decision)
            self.perform(now)

    def client_closed(self, client: EdgeClient) -> None:
        """A client has left, and whatever it waited for."""
        for decision in client.access.close():
            decision.users.pop(client, None)
            decision.waiting.pop(client, None)
