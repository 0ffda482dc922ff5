"""The authorization tokens of one side of a session: registered under aliases, used by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.messages import Token, TokenAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

# What the drafts count for an entry beside its value.
ENTRY_BYTES: Final = 16


class TokenCache:
    """Tokens by alias, in as many bytes as were promised."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._tokens: dict[int, Token] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def take(self, tokens: Iterable[Token], *, in_setup: bool = False) -> tuple[Token, ...]:
        """Do what a message says of tokens; those it authorizes itself with, by value."""
        used: list[Token] = []
        for token in tokens:
            match token.alias_type:
                case TokenAlias.USE_VALUE:
                    used.append(token)
                case TokenAlias.REGISTER:
                    used.append(self._register(token, in_setup=in_setup))
                case _ if in_setup:
                    raise violation("a setup can neither delete nor use a token's alias")
                case TokenAlias.USE_ALIAS:
                    used.append(self._known(token))
                case TokenAlias.DELETE:
                    self._used -= _size(self._known(token))
                    del self._tokens[token.alias or 0]
        return tuple(used)

    def _register(self, token: Token, *, in_setup: bool) -> Token:
        alias = token.alias or 0
        value = Token(TokenAlias.USE_VALUE, None, token.type, token.value)
        if alias in self._tokens:
            problem = f"token alias {alias} is registered already"
            raise MoqtViolation(SessionCode.DUPLICATE_AUTH_TOKEN_ALIAS, problem)
        if self._used + _size(value) > self._limit:
            if in_setup:  # the client could not know the limit
                return value
            problem = f"registered tokens take more than {self._limit} bytes"
            raise MoqtViolation(SessionCode.AUTH_TOKEN_CACHE_OVERFLOW, problem)
        self._used += _size(value)
        self._tokens[alias] = value
        return value

    def _known(self, token: Token) -> Token:
        known = self._tokens.get(token.alias or 0)
        if known is None:
            problem = f"token alias {token.alias} is not registered"
            raise MoqtViolation(SessionCode.UNKNOWN_AUTH_TOKEN_ALIAS, problem)
        return known


def _size(token: Token) -> int:
    return ENTRY_BYTES + len(token.value or b"")
