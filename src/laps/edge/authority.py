"""Who may do what at a relay: one place that judges every action of every client.

    tokens  -> Authority.read   -> grants, of a session or of one request
    actions -> Authority.judge  -> the grant that allows it, or AuthError with the reason
            -> Authority.decisions  what the origin says whose name it is, if it is to be asked

A relay without keys and origins is open: everybody may do everything. With keys, what no grant
allows is refused, but for what the operator has made public. Names of an origin are that origin's
to decide about, alone: grants of its own keys count, or what its server answers. Tokens are a
matter of wall time, which a relay does not know: the shell sets what has to be added to its clock.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from laps.auth.grants import Action, Grant, allowing
from laps.auth.origins import Origins
from laps.auth.refusals import AuthError, Reason
from laps.edge.decisions import Decisions
from laps.names import namespace_text, track_text
from laps.types import TrackName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laps.auth.grants import Namespace, Scope
    from laps.auth.judge import Verifier

# In a person's words: "a token is needed to ...".
_WORDS: Final = {
    Action.CLIENT_SETUP: "connect",
    Action.PUBLISH_NAMESPACE: "publish below",
    Action.SUBSCRIBE_NAMESPACE: "see what is published below",
    Action.SUBSCRIBE: "subscribe to",
    Action.PUBLISH: "publish",
    Action.FETCH: "fetch",
    Action.TRACK_STATUS: "ask about",
}

# What concerns no name of one origin alone.
_WIDE: Final = (Action.CLIENT_SETUP, Action.SUBSCRIBE_NAMESPACE)


class TrackPolicy(Protocol):
    """Says which tracks may come to clients of this relay, and from them."""

    @property
    def binds(self) -> bool:
        """Whether there is anything that it could refuse."""

    def refusal(self, name: TrackName, *, is_published: bool) -> str | None:
        """Why a track may not be had here, or not be published; None if it may."""


class Authority:
    """What a relay knows of who may do what."""

    def __init__(
        self,
        verifier: Verifier | None = None,
        public: Iterable[Scope] = (),
        *,
        needs_token: bool = True,
    ) -> None:
        """`public` is what everybody may do; `needs_token`: whoever connects has to show one."""
        self.verifier = verifier
        "Of the relay's own keys; None: names of no origin are open to everybody."
        self.origins = Origins()
        self.decisions = Decisions()
        self.policy: TrackPolicy | None = None
        "Which tracks clients of this relay may have at all, whatever they show."
        self.public = Grant("", tuple(public))
        self.asks_for_token = needs_token
        self.wall_s = 0.0
        "Seconds since 1970, less what the relay's clock shows."
        self.refused: Counter[tuple[str, str]] = Counter()
        "By action and reason, for the operator."

    def allow_everybody(self, public: Iterable[Scope]) -> None:
        """What nobody needs a token for."""
        self.public = Grant("", tuple(public))

    @property
    def is_open(self) -> bool:
        """Whether nothing depends on tokens, so that none is looked at.

        Policy may still keep tracks away.
        """
        return self.verifier is None and not self.origins

    @property
    def binds(self) -> bool:
        """Whether policy may keep some track away."""
        return self.policy is not None and self.policy.binds

    @property
    def needs_token(self) -> bool:
        """Whether one has to be shown to connect."""
        return self.asks_for_token and self.verifier is not None

    def looks_at(self, grant: Grant, now: float) -> float:
        """When a grant ends, or has to be looked at again, by the relay's clock."""
        end = inf if grant.until is None else grant.until - self.wall_s
        return end if grant.revalidate_s is None else min(end, now + grant.revalidate_s)

    def read(self, token_type: int, token: bytes, now: float) -> list[Grant]:
        """What a token allows, by each set of keys that knows it; AuthError if none does."""
        if self.verifier is not None and not self.origins:
            return [self.verifier.verify(token_type, token, now + self.wall_s)]
        grants, errors = [], []
        for verifier in self._verifiers():
            try:
                grants.append(verifier.verify(token_type, token, now + self.wall_s))
            except AuthError as error:
                errors.append(error)
        if grants:
            return grants
        known = (it for it in errors if it.reason is not Reason.UNKNOWN_KEY)
        raise (
            next(known, None)
            or next(iter(errors), None)
            or AuthError(Reason.UNKNOWN_KEY, "this relay has no keys to check a token with")
        )

    def _verifiers(self) -> Iterator[Verifier]:
        if self.verifier is not None:
            yield self.verifier
        yield from (it.verifier for it in self.origins if it.verifier is not None)

    def admits(self, grants: Sequence[Grant]) -> bool:
        """Whether somebody may connect with grants that were read right now, or without any.

        They count, so that nothing of them is looked at again. Where this says no, `judge` says why
        not: or yes, by what is public.
        """
        for grant in grants:
            if grant.allows(Action.CLIENT_SETUP):
                return True
        return not (grants or self.needs_token)

    def judge(
        self,
        grants: Sequence[Grant],
        action: Action,
        namespace: Namespace,
        name: bytes | None,
        now: float,
    ) -> Grant:
        """The grant that an action depends on; AuthError if none allows it."""
        origin = self.origins.find(namespace, name) if self.origins else None
        if origin is None and self.verifier is None:
            return self.public
        # Who watches a prefix that is wider than an origin is shown what its keys allow below it.
        is_wide = origin is None and action in _WIDE
        whose = "" if origin is None else origin.name
        theirs = [it for it in grants if is_wide or it.origin == whose]
        valid = [grant for grant in theirs if self.is_valid(grant, now)]
        public = () if origin is not None else (self.public,)
        found = _find((*valid, *public), action, namespace, name)
        if found is None:
            was_allowed = _find(theirs, action, namespace, name) is not None
            raise _refusal(action, namespace, name, has_token=bool(grants), ended=was_allowed)
        return found

    def may_see(
        self, grants: Sequence[Grant], namespace: Namespace, name: bytes | None, now: float
    ) -> bool:
        """Whether somebody who watches namespaces is shown this one, or a track in it."""
        origin = self.origins.find(namespace, name)
        if origin is None and (self.verifier is None or self.public.may_see(namespace)):
            return True
        whose = "" if origin is None else origin.name
        return any(
            grant.origin == whose and grant.may_see(namespace) and self.is_valid(grant, now)
            for grant in grants
        )

    def kept_away(
        self, action: Action, namespace: Namespace, name: bytes | None
    ) -> AuthError | None:
        """Why policy keeps a track away from clients of this relay; None if it does not."""
        policy = self.policy
        if policy is None or name is None or not policy.binds:
            return None
        is_sent = action is Action.PUBLISH or action is Action.PUBLISH_NAMESPACE
        reason = policy.refusal(TrackName(namespace, name), is_published=is_sent)
        return None if reason is None else AuthError(Reason.POLICY, reason)

    def count(self, action: Action, error: AuthError) -> None:
        """An action was refused."""
        self.refused[action.text, str(error.reason)] += 1

    def is_valid(self, grant: Grant, now: float) -> bool:
        """Whether a grant that was read earlier still counts."""
        verifier = self.verifier
        if grant.origin:
            origin = self.origins.get(grant.origin)
            verifier = None if origin is None else origin.verifier
        if verifier is None:
            return False
        try:
            verifier.recheck(grant, now + self.wall_s)
        except AuthError:
            return False
        return True


def _find(
    grants: Iterable[Grant], action: Action, namespace: Namespace, name: bytes | None
) -> Grant | None:
    if action is Action.SUBSCRIBE_NAMESPACE:
        # Who watches a wider prefix is shown what the grant has below it.
        return next((grant for grant in grants if grant.may_watch(namespace)), None)
    return allowing(grants, action, namespace, name)


def _refusal(
    action: Action, namespace: Namespace, name: bytes | None, *, has_token: bool, ended: bool
) -> AuthError:
    what = _WORDS.get(action, action.text)
    if name is not None:
        what += f" {track_text(TrackName(namespace, name))}"
    elif action is not Action.CLIENT_SETUP:
        what += f" {namespace_text(namespace) or 'everything'}"
    if ended:
        return AuthError(Reason.EXPIRED, f"the token that allowed to {what} is not valid any more")
    if has_token:
        return AuthError(Reason.NOT_ALLOWED, f"no token that was shown allows to {what}")
    return AuthError(Reason.NO_TOKEN, f"a token is needed to {what}")
