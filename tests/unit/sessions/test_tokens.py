"""Authorization tokens: registered under aliases, used by them, in a bounded cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.sessions.tokens import ENTRY_BYTES, TokenCache
from laps.types import TrackName
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.messages import Subscribe, Token, TokenAlias, TrackStatus
from support.moqt_streams import DRAFTS, LARGEST
from support.talks import Talk

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect


def register(alias: int, value: bytes = b"secret") -> Token:
    return Token(TokenAlias.REGISTER, alias, 1, value)


def use(alias: int) -> Token:
    return Token(TokenAlias.USE_ALIAS, alias)


def delete(alias: int) -> Token:
    return Token(TokenAlias.DELETE, alias)


def value_of(value: bytes = b"secret") -> Token:
    return Token(TokenAlias.USE_VALUE, None, 1, value)


@pytest.fixture
def cache() -> TokenCache:
    return TokenCache(2 * (ENTRY_BYTES + 10))


def refused_with(code: SessionCode, cache: TokenCache, *tokens: Token) -> None:
    with pytest.raises(MoqtViolation) as caught:
        cache.take(tokens)
    assert caught.value.code is code


def test_a_value_is_used_and_forgotten(cache: TokenCache) -> None:
    assert cache.take([value_of()]) == (value_of(),)
    assert len(cache) == 0


def test_what_is_registered_is_used_at_once_and_later(cache: TokenCache) -> None:
    assert cache.take([register(0)]) == (value_of(),)
    assert cache.take([use(0), value_of(b"x")]) == (value_of(), value_of(b"x"))
    assert len(cache) == 1


def test_what_is_deleted_authorizes_nothing_and_can_be_registered_again(cache: TokenCache) -> None:
    cache.take([register(7)])
    assert cache.take([delete(7)]) == ()
    refused_with(SessionCode.UNKNOWN_AUTH_TOKEN_ALIAS, cache, use(7))
    assert cache.take([register(7, b"other"), use(7)]) == (value_of(b"other"), value_of(b"other"))


def test_aliases_are_known_and_stand_for_one_token(cache: TokenCache) -> None:
    for token in (use(1), delete(1)):
        refused_with(SessionCode.UNKNOWN_AUTH_TOKEN_ALIAS, cache, token)
    cache.take([register(1)])
    refused_with(SessionCode.DUPLICATE_AUTH_TOKEN_ALIAS, cache, register(1))


def test_the_cache_holds_what_was_promised(cache: TokenCache) -> None:
    cache.take([register(1, bytes(10)), register(2, bytes(10))])
    refused_with(SessionCode.AUTH_TOKEN_CACHE_OVERFLOW, cache, register(3, b""))
    cache.take([delete(1), register(3, bytes(10))])
    refused_with(SessionCode.AUTH_TOKEN_CACHE_OVERFLOW, cache, register(1, b""))


def test_a_setup_that_registers_too_much_uses_the_value(cache: TokenCache) -> None:
    """The client could not know the limit yet."""
    tokens = [register(1, bytes(10)), register(2, bytes(100)), register(3, bytes(10))]
    used = cache.take(tokens, in_setup=True)
    assert [token.value for token in used] == [bytes(10), bytes(100), bytes(10)]
    assert len(cache) == 2
    refused_with(SessionCode.UNKNOWN_AUTH_TOKEN_ALIAS, cache, use(2))


@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
def test_tokens_of_requests_are_resolved_in_order(dialect: Dialect) -> None:
    talk = Talk(dialect)
    track = TrackName((b"a",), b"b")
    heard = talk.hear(
        Subscribe(0, track, LARGEST, tokens=(register(1),)),
        TrackStatus(2, track, (use(1),)),
        TrackStatus(4, track, (delete(1),)),
    )
    used = [message.tokens for message in heard if isinstance(message, TrackStatus | Subscribe)]
    assert used == [(value_of(),), (value_of(),), ()]


@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
@pytest.mark.parametrize("in_setup", [True, False])
def test_without_a_cache_nothing_can_be_registered(dialect: Dialect, in_setup: bool) -> None:
    talk = Talk(dialect, limits=MoqtLimits(token_cache_bytes=0), setup=False)
    tokens = (register(1),) if in_setup else ()
    talk.hear(talk.setup(tokens=tokens))
    track = TrackName((b"a",), b"b")
    with pytest.raises(MoqtViolation) as caught:
        talk.hear(TrackStatus(0, track, (use(1) if in_setup else register(1),)))
    unknown, overflow = SessionCode.UNKNOWN_AUTH_TOKEN_ALIAS, SessionCode.AUTH_TOKEN_CACHE_OVERFLOW
    assert caught.value.code is (unknown if in_setup else overflow)
