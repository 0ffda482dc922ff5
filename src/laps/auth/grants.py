"""What a token allows: actions, on names that match, for a time and within limits.

A scope is what C4M (draft-ietf-moq-c4m) has: actions, a match for each of the first fields of a
namespace, and one for the track's name. Matches compare bytes and normalize nothing. What is in no
scope is not allowed.

    actions PUBLISH    namespace "example", prefix "user-", ends    track suffix ".json"
      allows           example/user-ann  a.json
      does not         example/user-ann/x  a.json      example/bob  a.json      example  a.json
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Namespace = tuple[bytes, ...]


class Action(IntEnum):
    """What a client asks for, as C4M numbers it."""

    CLIENT_SETUP = 0
    """To connect."""
    SERVER_SETUP = 1
    PUBLISH_NAMESPACE = 2
    SUBSCRIBE_NAMESPACE = 3
    """To watch which namespaces are published."""
    SUBSCRIBE = 4
    REQUEST_UPDATE = 5
    PUBLISH = 6
    FETCH = 7
    TRACK_STATUS = 8

    @property
    def text(self) -> str:
        """As people write it: publish-namespace."""
        return self.name.lower().replace("_", "-")


SETUP: Final = frozenset({Action.CLIENT_SETUP, Action.SERVER_SETUP})
"Actions that concern no name."

PUBLISHING: Final = frozenset({Action.PUBLISH, Action.PUBLISH_NAMESPACE, Action.REQUEST_UPDATE})
"What somebody who may publish below a prefix does."

SUBSCRIBING: Final = frozenset(
    {
        Action.SUBSCRIBE,
        Action.FETCH,
        Action.TRACK_STATUS,
        Action.SUBSCRIBE_NAMESPACE,
        Action.REQUEST_UPDATE,
    }
)
"What somebody who may subscribe below a prefix does."

# Requests that may be about a namespace alone, so that there is no track's name to match.
_OF_NAMESPACES: Final = frozenset(
    {Action.PUBLISH_NAMESPACE, Action.SUBSCRIBE_NAMESPACE, Action.REQUEST_UPDATE}
)


OF_RELAYS: Final = (b"laps",)
"The beginning of the namespaces in which relays publish telemetry, and are told plans."


class MatchType(Enum):
    """How a field is compared; the values are C4M's, which has none for an exact match."""

    EXACT = 0
    PREFIX = 1
    SUFFIX = 2


@dataclass(frozen=True, slots=True)
class Match:
    """What one field of a namespace, or a track's name, has to be."""

    value: bytes
    type: MatchType = MatchType.EXACT

    def matches(self, value: bytes) -> bool:
        """Whether these bytes are such."""
        if self.type is MatchType.PREFIX:
            return value.startswith(self.value)
        if self.type is MatchType.SUFFIX:
            return value.endswith(self.value)
        return value == self.value

    def covers(self, other: Match) -> bool:
        """Whether everything that the other matches is matched by this one too."""
        if other.type is MatchType.EXACT:
            return self.matches(other.value)
        if self.type is MatchType.EXACT:
            return False
        return not self.value or (self.type is other.type and self.matches(other.value))


_RELAYS: Final = Match(OF_RELAYS[0])


@dataclass(frozen=True, slots=True)
class Scope:
    """Some actions on some names."""

    actions: frozenset[Action]
    namespace: tuple[Match, ...] = ()
    """For the first fields; longer namespaces are in the scope too, unless it `ends`."""
    ends: bool = False
    """Whether a namespace has just these fields, and none after them."""
    track: Match | None = None
    """None: every name."""

    def allows(self, action: Action, namespace: Namespace, name: bytes | None) -> bool:
        """Whether this scope has the action on this name."""
        if action not in self.actions:
            return False
        if action in SETUP:
            return True
        if len(namespace) < len(self.namespace):
            return False
        return self.meets(namespace) and self._has(action, name)

    def meets(self, prefix: Namespace) -> bool:
        """Whether the namespace, or one below it, can match.

        What relays publish of themselves has to be named: all names are those of applications.
        """
        if prefix[:1] == OF_RELAYS and (not self.namespace or self.namespace[0] != _RELAYS):
            return False
        if self.ends and len(prefix) > len(self.namespace):
            return False
        return all(match.matches(part) for match, part in zip(self.namespace, prefix, strict=False))

    def covers(self, other: Scope, action: Action) -> bool:
        """Whether all that the other allows with this action is allowed here."""
        if action not in self.actions:
            return False
        if action in SETUP:
            return True
        length = len(self.namespace)
        if len(other.namespace) < length:
            return False
        if self.ends and not (other.ends and len(other.namespace) == length):
            return False
        return all(
            mine.covers(theirs)
            for mine, theirs in zip(self.namespace, other.namespace, strict=False)
        ) and (self.track is None or (other.track is not None and self.track.covers(other.track)))

    def _has(self, action: Action, name: bytes | None) -> bool:
        if self.track is None:
            return True
        return action in _OF_NAMESPACES if name is None else self.track.matches(name)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a bearer may have at a time; None where the token says nothing."""

    sessions: int | None = None
    requests_per_s: int | None = None
    open_requests: int | None = None
    tracks: int | None = None
    subscriptions: int | None = None
    namespaces: int | None = None
    bytes_in_per_s: int | None = None
    bytes_out_per_s: int | None = None
    cache_bytes: int | None = None


NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token that was checked allows its bearer."""

    subject: str
    """Whom the token was made for; empty where it does not say."""
    scopes: tuple[Scope, ...]
    until: float | None = None
    """When what it allows ends, in seconds since 1970, the skew of clocks added; None: never."""
    id: str = ""
    """`jti` or `cti`, to revoke it by; empty where it has none."""
    key_id: str = ""
    """The key that it was checked with; empty for what a relay grants by itself, to everybody."""
    key_fingerprint: bytes = field(default=b"", repr=False)
    """Tells that key from another that was given its id later."""
    limits: Limits = NO_LIMITS
    revalidate_s: float | None = None
    """`moqt-reval`: how often the token has to be verified again; None: never."""
    origin: str = ""
    """Whose key that is: the grant counts for names of that origin only; empty: the relay's own."""
    not_before: float = 0.0
    """When what it allows begins, as `until`, the skew of clocks taken off."""

    def allows(self, action: Action, namespace: Namespace = (), name: bytes | None = None) -> bool:
        """Whether an action on a name is allowed.

        A request about a namespace has no name. A publisher of a namespace is judged again for each
        track that it is asked for, with the name of it: its grant may not have all of them.
        """
        for scope in self.scopes:  # noqa: SIM110 - each request asks: no generator
            if scope.allows(action, namespace, name):
                return True
        return False

    def may_watch(self, prefix: Namespace) -> bool:
        """Whether SUBSCRIBE_NAMESPACE with this prefix makes sense.

        C4M compares a prefix like any namespace, so that a shorter one than the grant's is refused.
        Here it is allowed if the grant has something below it, since watchers ask for what they
        display; they are shown what `may_see` lets through, which is what C4M would show them.
        """
        return any(
            Action.SUBSCRIBE_NAMESPACE in scope.actions and scope.meets(prefix)
            for scope in self.scopes
        )

    def may_see(self, namespace: Namespace) -> bool:
        """Whether a watcher is shown that this namespace is published."""
        return self.allows(Action.SUBSCRIBE_NAMESPACE, namespace)

    def is_within(self, scopes: Iterable[Scope]) -> bool:
        """Whether nothing is allowed that these scopes do not have."""
        bounds = tuple(scopes)
        return all(
            any(bound.covers(scope, action) for bound in bounds)
            for scope in self.scopes
            for action in scope.actions
        )


def allowing(
    grants: Iterable[Grant], action: Action, namespace: Namespace = (), name: bytes | None = None
) -> Grant | None:
    """The grant that allows an action, of all that a client has shown; None if none does.

    A client has the grants of its setup and of the request together. They are not merged into one,
    as each ends at its own time and has its own limits: the one that is returned is the one that
    what is asked for depends on, so it is the one that lasts longest.
    """
    found = None
    for grant in grants:
        if grant.allows(action, namespace, name):
            found = grant if found is None else max(found, grant, key=_lasts)
    return found


def _lasts(grant: Grant) -> float:
    return float("inf") if grant.until is None else grant.until
