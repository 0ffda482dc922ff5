"""The tokens of an application: where they come from, and when the next one is needed.

A token is text (a JWT, or a CAT in base64url) or bytes (a CAT), or a function that returns one. A
function is called for every connection, and again before the token that it gave ends; a `TokenFile`
also when its file has changed.

What is held here is shown to relays and to nobody else: no `repr`, log or error has it.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from time import time
from typing import TYPE_CHECKING, Final

from laps.auth import cat, cose, jwt
from laps.auth.judge import OUT_OF_BAND, as_cat
from laps.auth.refusals import AuthError
from laps.auth.tokens import time_of
from laps.errors import (
    ConfigError,
    LapsError,
    RequestRefused,
    RequestUnauthorized,
    SessionUnauthorized,
)
from laps.token_files import TokenFile
from laps.wire.moqt.codes import RequestCode, SessionCode
from laps.wire.moqt.messages import Token, TokenAlias
from laps.wire.quicr.messages import Authorization, Holds

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed, Unauthorized

log = logging.getLogger(__name__)

Text = str | bytes
TokenLike = Text | Callable[[], Text | Awaitable[Text]]
"What an application gives: a token, or a function that returns one."

VARIABLE: Final = "LAPS_TOKEN"
"The environment variable that holds a token where none is given."

# A token is replaced when this part of its life has passed, or this long before it ends, whichever
# is sooner: time for several attempts. Half of its life is used in any case.
RENEW_AT: Final = 0.8
RENEW_BEFORE_S: Final = 30.0
RENEW_LEAST: Final = 0.5

# A function that fails, or gives the same token again, is not called oftener than this.
AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A token as it goes to a relay."""

    value: bytes = field(repr=False)
    type: int = OUT_OF_BAND
    expires: float | None = None
    "Seconds since 1970, by its own word: only a relay can check it."

    def in_moqt(self) -> Token:
        """As a parameter of MoQT."""
        return Token(TokenAlias.USE_VALUE, None, self.type, self.value)

    def in_quicr(self, holds: Holds) -> Authorization:
        """As a message of QUICR, for a stream or for the connection."""
        return Authorization(self.value, self.type, holds)


class TokenSource:
    """Where the tokens of a session, a track or a reader come from."""

    def __init__(self, given: TokenLike | None = None) -> None:
        """Without anything given there is no token: `shown` is None."""
        self._give = given if callable(given) else None
        self.shown: Shown | None = None
        "The newest; None while there is none."
        self.due = inf
        "When to ask for the next, in seconds since 1970."
        self._asked_at = -inf
        self._refusals: dict[str, tuple[Shown | None, SessionUnauthorized]] = {}
        "By relay: what it has refused, and how."
        if given is not None and self._give is None:
            self.shown = read(given)

    def __repr__(self) -> str:
        kind = "function" if self.is_renewable else "token" if self.shown else "none"
        return f"<TokenSource: {kind}>"

    @property
    def is_renewable(self) -> bool:
        """Whether it can give another token than the one it gave."""
        return self._give is not None

    @property
    def in_moqt(self) -> tuple[Token, ...]:
        """The tokens of a message."""
        return () if self.shown is None else (self.shown.in_moqt(),)

    @property
    def is_due(self) -> bool:
        """Whether the next token has to be asked for."""
        if isinstance(self._give, TokenFile) and self._give.has_changed:
            return True
        return time() >= self.due

    async def renew(self) -> bool:
        """Ask for the next token; whether it is another. LapsError where there is none."""
        if self._give is None:
            return False
        before = self.shown
        self._asked_at = time()
        self.due = self._asked_at + AGAIN_S
        try:
            given = self._give()
            value = await given if inspect.isawaitable(given) else given
        except LapsError:
            raise
        except Exception as error:
            problem = f"the function that gives the token failed: {type(error).__name__}"
            raise LapsError(problem) from error
        self.shown = read(value)
        self.due = max(time() + AGAIN_S, _due(self.shown))
        return self.shown != before

    async def current(self) -> None:
        """See that there is a token, and not one that is about to end, for another request."""
        if self._give is None or (self.shown is not None and not self.is_due):
            return
        try:
            await self.renew()
        except LapsError as error:
            if self.shown is None:
                raise
            log.warning("%s; the last one is shown again", error)

    async def for_connection(self, url: str) -> Shown | None:
        """The token to show to a relay first; SessionUnauthorized if it has refused that one."""
        refused, refusal = self._refusals.get(url, (None, None))
        if refusal is not None or time() >= self._asked_at + AGAIN_S:
            await self.renew()
        if refusal is not None and self.shown == refused:
            raise SessionUnauthorized(refusal.what, refusal.reason)
        return self.shown

    def refused(self, url: str, refusal: SessionUnauthorized) -> None:
        """A relay has refused the token, and is not shown it again."""
        self._refusals[url] = self.shown, refusal

    def may_retry(self, refusal: Unauthorized) -> bool:
        """Whether a refused session is worth another attempt: it can have a newer token."""
        return self.is_renewable and refusal.expired


_OF_SESSIONS: Final = (
    SessionCode.UNAUTHORIZED,
    SessionCode.MALFORMED_AUTH_TOKEN,
    SessionCode.EXPIRED_AUTH_TOKEN,
)
_OF_REQUESTS: Final = (
    RequestCode.UNAUTHORIZED,
    RequestCode.MALFORMED_AUTH_TOKEN,
    RequestCode.EXPIRED_AUTH_TOKEN,
)


def refused(what: str, code: int, reason: str) -> RequestRefused:
    """The error for a request that MoQT refuses, or ends, with this code."""
    if code not in _OF_REQUESTS:
        return RequestRefused(what, code, reason)
    return RequestUnauthorized(what, code, reason, code == RequestCode.EXPIRED_AUTH_TOKEN)


def closed(what: str, close: ConnectionClosed) -> SessionUnauthorized | None:
    """The error for a session that MoQT closes because of its tokens; None if it does not."""
    if not (close.by_peer and close.application) or close.code not in _OF_SESSIONS:
        return None
    return SessionUnauthorized(what, close.reason, close.code == SessionCode.EXPIRED_AUTH_TOKEN)


NO_TOKEN: Final = TokenSource()
"Of whatever has no token of its own."


def source_of(given: TokenLike | None) -> TokenSource:
    """The token of a session: what is given, or else LAPS_TOKEN."""
    if given is None:
        given = os.environ.get(VARIABLE, "").strip() or None
    return TokenSource(given)


def own_source(given: TokenLike | None) -> TokenSource:
    """The token of one track or reader."""
    return NO_TOKEN if given is None else TokenSource(given)


def read(given: object) -> Shown:
    """A token with its type and its end; ConfigError if it cannot be one."""
    if not isinstance(given, str | bytes):
        raise ConfigError(f"a token is text or bytes, and this is {type(given).__name__}")
    try:
        value = given.strip().encode("ascii") if isinstance(given, str) else given
    except UnicodeEncodeError:
        raise ConfigError("the token has letters that no token has: is it a token?") from None
    if not value:
        raise ConfigError("the token is empty: give one as `laps token sign` makes it")
    is_binary = cose.looks_like(value) and not value.isascii()
    return Shown(value, cat.TOKEN_TYPE if is_binary else OUT_OF_BAND, _expires(value))


def _expires(value: bytes) -> float | None:
    """When a token ends, unchecked; None where it does not say so, or cannot be read here."""
    try:
        binary = as_cat(value)
        _, claims = jwt.peek(value) if binary is None else cat.peek(binary)
        return time_of(claims["exp"], "exp") if "exp" in claims else None
    except AuthError:
        return None  # it may be of a kind that the relay knows and we do not


def _due(shown: Shown) -> float:
    """When to ask for the next token."""
    if shown.expires is None:
        return inf
    left = shown.expires - time()
    return time() + max(RENEW_LEAST * left, min(RENEW_AT * left, left - RENEW_BEFORE_S))
