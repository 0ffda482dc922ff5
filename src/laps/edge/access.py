"""What one client has shown, and what it may do by it.

A client's tokens are those of its session and those of single requests. What they allow ends when
they do: `review` is called then, and when keys or revocations change. It finds what is not allowed
any more, and the client ends it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from laps.auth.grants import Action
from laps.auth.refusals import AuthError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.auth.grants import Grant, Namespace
    from laps.edge.authority import Authority
    from laps.edge.shares import ClientShare

    Shown = Iterable[tuple[int, bytes]]
    "Tokens: the type and the value of each."


# A client with a token in each request has at most twice as many grants as open requests.
PRUNE_FROM: Final = 64


class Access:
    """The tokens of one client."""

    __slots__ = ("_authority", "_own", "_prune_at", "ends_at", "grants", "share")

    def __init__(self, authority: Authority, share: ClientShare) -> None:
        self._authority = authority
        self.share = share
        "What the client has of the relay, by these tokens."
        self.grants: tuple[Grant, ...] = ()
        "Of the session."
        self.ends_at = inf
        "When the first of all grants ends, or is to be looked at again, by the relay's clock."
        self._own: dict[int, tuple[Grant, ...]] = {}
        "Of single requests, by their ids."
        self._prune_at = PRUNE_FROM
        "With so many of these, those of requests that have ended are forgotten."

    @property
    def is_open(self) -> bool:
        """Whether it may do everything."""
        return self._authority.is_open

    @property
    def subject(self) -> str:
        """Whom its tokens were made for."""
        return next((grant.subject for grant in self.grants if grant.subject), "")

    def connect(self, tokens: Shown, now: float) -> None:
        """A session begins with these tokens; AuthError or OverLimit if it may not."""
        if self.is_open:
            return
        try:
            self.grants = self._read(tokens, now)
            if self.grants or self._authority.needs_token:
                self._authority.judge(self.grants, Action.CLIENT_SETUP, (), None, now)
        except AuthError as error:
            self._authority.count(Action.CLIENT_SETUP, error)
            raise
        self.share.join(self.grants, now)

    def add(self, tokens: Shown, now: float) -> None:
        """More tokens for the session; AuthError or OverLimit if one is refused."""
        if not self.is_open:
            more = self._read(tokens, now)
            self.share.join(more, now)
            self.grants += more

    def add_own(self, request_id: int, tokens: Shown, now: float) -> None:
        """More tokens for a request that stands; AuthError if one is refused."""
        if not self.is_open:
            self._own[request_id] = self._own.get(request_id, ()) + self._read(tokens, now)

    def judge(
        self,
        request_id: int,
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        tokens: Shown,
        now: float,
    ) -> None:
        """A request, with tokens of its own or without; AuthError or OverLimit if it is refused."""
        if self.is_open:
            self.share.ask(request_id, action, None, now)
            return
        try:
            own = self._own.get(request_id, ()) + self._read(tokens, now)
            grant = self._authority.judge((*own, *self.grants), action, namespace, name, now)
        except AuthError as error:
            self._authority.count(action, error)
            raise
        self.share.join((grant,), now)
        self.share.ask(request_id, action, grant, now)
        if own:
            self._own[request_id] = own
            if len(self._own) >= self._prune_at:
                self._prune()

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
        own = self._all_own() if request_id is None else self._own.get(request_id, ())
        try:
            self._authority.judge((*own, *self.grants), action, namespace, name, now)
        except AuthError as error:
            return error
        return None

    def has(self, action: Action, namespace: Namespace, name: bytes | None) -> bool:
        """Whether something is allowed by what was valid when that was last looked at."""
        shown = (*self._all_own(), *self.grants, self._authority.public)
        return self.is_open or any(grant.allows(action, namespace, name) for grant in shown)

    def may_connect(self, now: float) -> AuthError | None:
        """Why the session has to end; None if it may go on."""
        if not self.grants and not self._authority.needs_token:
            return None
        return self.still(None, Action.CLIENT_SETUP, (), None, now)

    def may_see(self, namespace: Namespace, now: float) -> bool:
        """Whether a namespace that it watches for is shown to it."""
        if self.is_open:
            return True
        return self._authority.may_see((*self._all_own(), *self.grants), namespace, now)

    def may_have(self, namespace: Namespace, name: bytes, now: float) -> bool:
        """Whether a track that it watches for is offered to it."""
        return self.is_open or self.still(None, Action.SUBSCRIBE, namespace, name, now) is None

    def is_pending(self, request_id: int) -> bool:
        """Whether a request has not ended."""
        raise NotImplementedError

    def reviewed(self, now: float) -> None:
        """What was not allowed any more has been ended: find when the next thing is."""
        self._prune()
        is_valid = self._authority.is_valid
        self.grants = tuple(it for it in self.grants if is_valid(it, now))
        for request_id, own in self._own.items():
            self._own[request_id] = tuple(it for it in own if is_valid(it, now))
        shown = (*self._all_own(), *self.grants)
        self.share.keep(shown)
        self.ends_at = min((self._authority.looks_at(it, now) for it in shown), default=inf)

    def _all_own(self) -> list[Grant]:
        return [grant for own in self._own.values() for grant in own]

    def _prune(self) -> None:
        for request_id in [it for it in self._own if not self.is_pending(it)]:
            del self._own[request_id]
        self._prune_at = max(PRUNE_FROM, 2 * len(self._own))

    def _read(self, tokens: Shown, now: float) -> tuple[Grant, ...]:
        grants = tuple(self._authority.read(kind, value, now) for kind, value in tokens)
        for grant in grants:
            self.ends_at = min(self.ends_at, self._authority.looks_at(grant, now))
        return grants
