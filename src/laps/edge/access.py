"""What one client has shown, and what it may do by it.

A client's tokens are those of its session and those of single requests. What they allow ends when
they do: `review` is called then, and when keys or revocations change. It finds what is not allowed
any more, and the client ends it.

Where an origin is asked, a request waits for the decision, and what it leads to goes on as long as
the decision stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from laps.auth.grants import Action
from laps.auth.judge import MAX_TOKEN_BYTES
from laps.auth.origins import Question
from laps.auth.refusals import AuthError, Reason
from laps.edge.decisions import DecisionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.auth.grants import Grant, Namespace
    from laps.auth.origins import Origin
    from laps.edge.authority import Authority
    from laps.edge.decisions import Decision
    from laps.edge.shares import ClientShare

    Shown = Iterable[tuple[int, bytes]]
    "Tokens: the type and the value of each."


# A client with a token in each request has at most twice as many grants as open requests.
PRUNE_FROM: Final = 64

# Tokens that no key here knows, of a session and of a request each: they are kept for origins.
MAX_OPAQUE: Final = 4

# Questions to origins that one client may wait for: a tenth of what may wait for an origin, so that
# none keeps the others from asking.
MAX_WAITING: Final = 100


@dataclass(frozen=True, slots=True)
class Opaque:
    """A token that no key here knows: an origin may."""

    type: int
    value: bytes
    error: AuthError
    """Why it counts for nothing here."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was shown, for a session or for one request."""

    grants: tuple[Grant, ...] = ()
    opaque: tuple[Opaque, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.grants or self.opaque)

    def __add__(self, other: Tokens) -> Tokens:
        """All of both, each once: a request that waited shows its own again."""
        if not (self and other):
            return self or other
        grants = [it for it in other.grants if it not in self.grants]
        values = [(it.type, it.value) for it in self.opaque]
        opaque = [it for it in other.opaque if (it.type, it.value) not in values]
        _check_number(len(values) + len(opaque))
        return Tokens((*self.grants, *grants), (*self.opaque, *opaque))


def _check_number(opaque: int) -> None:
    if opaque > MAX_OPAQUE:
        words = f"more than {MAX_OPAQUE} tokens that no key here knows"
        raise AuthError(Reason.TOO_LARGE, words)


class Access:
    """The tokens of one client."""

    __slots__ = (
        "_authority",
        "_decisions",
        "_new",
        "_own",
        "_pending",
        "_prune_at",
        "_session_tokens",
        "ends_at",
        "share",
    )

    def __init__(self, authority: Authority, share: ClientShare) -> None:
        self._authority = authority
        self.share = share
        "What the client has of the relay, by these tokens."
        self._session_tokens = Tokens()
        self.ends_at = inf
        "When the first of all grants ends, or is to be looked at again, by the relay's clock."
        self._own: dict[int, Tokens] = {}
        "Of single requests, by their ids."
        self._prune_at = PRUNE_FROM
        "With so many of these, or of decisions, those of requests that have ended are forgotten."
        self._pending: dict[int, Decision] = {}
        "What requests wait for, by their ids."
        self._decisions: dict[int, Decision] = {}
        "What requests that were granted depend on, by their ids."
        self._new: list[Decision] = []
        "Those of them that nobody has taken note of."

    @property
    def is_open(self) -> bool:
        """Whether its tokens count for nothing, as none is needed."""
        return self._authority.is_open

    @property
    def is_unlimited(self) -> bool:
        """Whether it may do everything."""
        return self._authority.is_open and not self._authority.binds

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Of the session."""
        return self._session_tokens.grants

    @property
    def subject(self) -> str:
        """Whom its tokens were made for."""
        return next((grant.subject for grant in self.grants if grant.subject), "")

    # -- what it shows -----------------------------------------------------------------------------

    def connect(self, tokens: Shown, now: float) -> None:
        """A session begins with these tokens; AuthError or OverLimit if it may not."""
        if self.is_open:
            return
        try:
            shown = self._session_tokens = self._read(tokens, now)
            if not self._authority.admits(shown.grants):
                self._judge((shown,), Action.CLIENT_SETUP, (), None, now)
        except AuthError as error:
            self._authority.count(Action.CLIENT_SETUP, error)
            raise
        self.share.join(shown.grants, now)

    def add(self, tokens: Shown, now: float) -> None:
        """More tokens for the session; AuthError or OverLimit if one is refused."""
        if not self.is_open:
            more = self._read_for(Action.CLIENT_SETUP, tokens, now)
            self.share.join(more.grants, now)
            self._session_tokens += more

    def add_own(self, request_id: int, tokens: Shown, now: float) -> None:
        """More tokens for a request that stands; AuthError if one is refused."""
        if not self.is_open:
            more = self._read_for(Action.REQUEST_UPDATE, tokens, now)
            self._own[request_id] = self._own_of(request_id) + more

    # -- what it asks for --------------------------------------------------------------------------

    def judge(
        self,
        request_id: int,
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        tokens: Shown,
        now: float,
        *,
        begins: bytes = b"",
    ) -> Decision | None:
        """A request, with tokens of its own or without; AuthError or OverLimit if it is refused.

        The decision to wait for, where an origin has to be asked; then it is judged once more.
        """
        if self.is_unlimited:
            self.share.ask(request_id, action, None, now)
            return None
        has_waited = request_id in self._pending
        grant = waits = None
        try:
            if (kept_away := self._authority.kept_away(action, namespace, name)) is not None:
                raise kept_away
            own = self._own_of(request_id) + self._read(tokens, now)
            origin = self._authority.origins.find(namespace, name, begins)
            if origin is not None and origin.api is not None:
                if not has_waited:  # what is over a limit is no question for an origin
                    self.share.ask(request_id, action, None, now)
                asked = Question(action, namespace, name, begins, self._for_origin(own))
                waits = self._asked(request_id, origin, asked, now)
            else:
                grant = self._judge((own, self._session_tokens), action, namespace, name, now)
        except AuthError as error:
            self._authority.count(action, error)
            raise
        if grant is not None:
            self.share.join((grant,), now)
            self.share.ask(request_id, action, grant, now)
        if own:
            self._own[request_id] = own
            if len(self._own) >= self._prune_at:
                self._prune()
        return waits

    def _judge(
        self,
        shown: Sequence[Tokens],
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        now: float,
    ) -> Grant:
        """The grant that allows it, or AuthError: what is wrong with a token that was not read."""
        grants = [grant for tokens in shown for grant in tokens.grants]
        try:
            return self._authority.judge(grants, action, namespace, name, now)
        except AuthError:
            for opaque in (it for tokens in shown for it in tokens.opaque):
                raise opaque.error from None
            raise

    def _asked(
        self, request_id: int, origin: Origin, question: Question, now: float
    ) -> Decision | None:
        """None if an origin has granted it; AuthError if it is refused, or the decision to come."""
        decision = self._pending.pop(request_id, None)
        is_same = decision is not None and decision.question == question
        if decision is None or not is_same or decision.origin != origin:
            if len(self._pending) >= MAX_WAITING:
                words = f"{MAX_WAITING} requests wait for origins: wait for their answers"
                raise AuthError(Reason.ORIGIN_FAILED, words)
            decision = self._authority.decisions.get(origin, question, now)
        if decision.state is DecisionState.ASKED:
            self._pending[request_id] = decision
            return decision
        if not decision.stands(now):
            raise decision.refusal()
        self._hold(request_id, decision)
        return None

    def _hold(self, request_id: int, decision: Decision) -> None:
        self._decisions[request_id] = decision
        if len(self._decisions) >= self._prune_at:
            self._prune()
        self._new.append(decision)
        self.ends_at = min(self.ends_at, decision.until)

    def _for_origin(self, own: Tokens) -> tuple[tuple[int, bytes], ...]:
        """The tokens that an origin is shown: the request's, or else the session's.

        Those that keys here know are for the relay, or for another origin, and stay here.
        """
        opaque = own.opaque or self._session_tokens.opaque
        return tuple((it.type, it.value) for it in opaque)

    # -- what it is still allowed ------------------------------------------------------------------

    def still(
        self,
        request_id: int | None,
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        now: float,
    ) -> AuthError | None:
        """Why something is not allowed, or not any more; None if it is.

        Without a request, by any token that was shown: for what follows from several requests.
        """
        authority = self._authority
        if (kept_away := authority.kept_away(action, namespace, name)) is not None:
            return kept_away
        if request_id is not None and (decision := self._decisions.get(request_id)) is not None:
            if authority.origins.get(decision.origin.name) == decision.origin:
                return None if decision.stands(now) else decision.refusal()
            del self._decisions[request_id]  # its origin is another now
        origin = authority.origins.find(namespace, name)
        if origin is not None and origin.api is not None:
            return self._still_by(origin, request_id, action, namespace, name, now)
        own = self._all_own() if request_id is None else self._own_of(request_id).grants
        try:
            authority.judge((*own, *self.grants), action, namespace, name, now)
        except AuthError as error:
            return error
        return None

    def _still_by(
        self,
        origin: Origin,
        request_id: int | None,
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        now: float,
    ) -> AuthError | None:
        """As `still`, where an origin is asked."""
        if request_id is not None:
            # It was not when this began: it goes on until the origin has answered.
            tokens = self._for_origin(self._own_of(request_id))
            question = Question(action, namespace, name, b"", tokens)
            decision = self._authority.decisions.stand_in(origin, question, now)
            self._hold(request_id, decision)
            return None if decision.stands(now) else decision.refusal()
        found = self._covering(origin, action, namespace, name)
        if any(decision.stands(now) for decision in found):
            return None
        if found:
            return found[0].refusal()
        return AuthError(Reason.NOT_ALLOWED, f"the origin {origin.name} has not granted it")

    def _covering(
        self, origin: Origin, action: Action, namespace: Namespace, name: bytes | None
    ) -> list[Decision]:
        """The decisions that something is allowed by, though it was not asked for by itself."""
        return [
            it
            for it in self._decisions.values()
            if it.origin == origin and it.question.covers(action, namespace, name)
        ]

    def has(self, action: Action, namespace: Namespace, name: bytes | None) -> bool:
        """Whether something is allowed by what was valid when that was last looked at."""
        if self.is_unlimited:
            return True
        authority = self._authority
        if authority.kept_away(action, namespace, name) is not None:
            return False
        origin = authority.origins.find(namespace, name)
        if origin is not None and origin.api is not None:
            found = self._covering(origin, action, namespace, name)
            return any(it.state is DecisionState.ALLOWED for it in found)
        if origin is None and authority.verifier is None:
            return True
        whose = "" if origin is None else origin.name
        shown = [it for it in (*self._all_own(), *self.grants) if it.origin == whose]
        public = () if origin is not None else (authority.public,)
        return any(grant.allows(action, namespace, name) for grant in (*shown, *public))

    def may_publish(self, namespace: Namespace, name: bytes) -> bool:
        """Whether a track may come from it, by what was valid when that was last looked at."""
        actions = (Action.PUBLISH, Action.PUBLISH_NAMESPACE)
        return any(self.has(action, namespace, name) for action in actions)

    def may_connect(self, now: float) -> AuthError | None:
        """Why the session has to end; None if it may go on."""
        if not self.grants and not self._authority.needs_token:
            return None
        return self.still(None, Action.CLIENT_SETUP, (), None, now)

    def may_see(self, namespace: Namespace, name: bytes | None, now: float) -> bool:
        """Whether a namespace that it watches for, or a track in it, is shown to it."""
        if self.is_open:
            return True
        origin = self._authority.origins.find(namespace, name)
        if origin is not None and origin.api is not None:
            found = self._covering(origin, Action.SUBSCRIBE_NAMESPACE, namespace, name)
            return any(decision.stands(now) for decision in found)
        grants = (*self._all_own(), *self.grants)
        return self._authority.may_see(grants, namespace, name, now)

    def may_have(self, namespace: Namespace, name: bytes, now: float) -> bool:
        """Whether a track that it watches for is offered to it."""
        return self.is_unlimited or self.still(None, Action.SUBSCRIBE, namespace, name, now) is None

    # -- what has ended ----------------------------------------------------------------------------

    def is_pending(self, request_id: int) -> bool:
        """Whether a request has not ended."""
        raise NotImplementedError

    def uses(self, decision: Decision) -> bool:
        """Whether a request that has not ended depends on a decision."""
        held = self._decisions.items()
        return any(it is decision and self.is_pending(request_id) for request_id, it in held)

    def waits(self, request_id: int) -> bool:
        """Whether a request waits for the answer of an origin."""
        return request_id in self._pending

    def take_new(self) -> list[Decision]:
        """The decisions that it depends on since this was last called."""
        new, self._new = self._new, []
        return new

    def withdrawn(self, request_id: int) -> Decision | None:
        """A request has ended before its origin has answered; what it waited for."""
        return self._pending.pop(request_id, None)

    def close(self) -> list[Decision]:
        """The client has left: the decisions that it waited for, or depended on."""
        found = [*self._pending.values(), *self._decisions.values()]
        self._pending.clear()
        self._decisions.clear()
        self._new.clear()
        return found

    def reviewed(self, now: float) -> None:
        """What was not allowed any more has been ended: find when the next thing is."""
        self._prune()
        self._session_tokens = self._valid(self._session_tokens, now)
        for request_id, own in self._own.items():
            self._own[request_id] = self._valid(own, now)
        shown = (*self._all_own(), *self.grants)
        self.share.keep(shown)
        ends = [self._authority.looks_at(it, now) for it in shown]
        ends += [it.until for it in self._decisions.values() if it.stands(now)]
        self.ends_at = min(ends, default=inf)

    def _valid(self, shown: Tokens, now: float) -> Tokens:
        is_valid = self._authority.is_valid
        return Tokens(tuple(it for it in shown.grants if is_valid(it, now)), shown.opaque)

    def _own_of(self, request_id: int) -> Tokens:
        return self._own.get(request_id) or Tokens()

    def _all_own(self) -> list[Grant]:
        return [grant for own in self._own.values() for grant in own.grants]

    def _prune(self) -> None:
        tables: tuple[dict[int, Tokens] | dict[int, Decision], ...] = (self._own, self._decisions)
        for table in tables:
            for request_id in [it for it in table if not self.is_pending(it)]:
                del table[request_id]
        self._prune_at = max(PRUNE_FROM, 2 * len(self._own), 2 * len(self._decisions))

    def _read_for(self, action: Action, tokens: Shown, now: float) -> Tokens:
        """Tokens by themselves, with nothing to judge; one that is refused is counted."""
        try:
            return self._read(tokens, now)
        except AuthError as error:
            self._authority.count(action, error)
            raise

    def _read(self, tokens: Shown, now: float) -> Tokens:
        if self.is_open:
            return Tokens()
        authority = self._authority
        grants: list[Grant] = []
        opaque: list[Opaque] = []
        for kind, value in tokens:
            try:
                grants += authority.read(kind, value, now)
            except AuthError as error:
                if not authority.origins.has_api or len(value) > MAX_TOKEN_BYTES:
                    raise
                opaque.append(Opaque(kind, value, error))
        for grant in grants:
            self.ends_at = min(self.ends_at, authority.looks_at(grant, now))
        if opaque:
            _check_number(len(opaque))
        return Tokens(tuple(grants), tuple(opaque))
