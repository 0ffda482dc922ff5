"""Tokens that only their receiver can send back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laps.net.retry import TOKEN_LIFETIME_S, RetryTokens

ADDR = ("192.0.2.1", 4433)
ADDR6 = ("2001:db8::1", 4433, 0, 0)


@given(st.binary(min_size=8, max_size=20), st.binary(min_size=8, max_size=8))
def test_a_token_comes_back_as_it_went(original: bytes, retry: bytes) -> None:
    tokens = RetryTokens()
    for addr in (ADDR, ADDR6):
        token = tokens.make(addr, original, retry, now=1000.0)
        assert tokens.check(addr, token, now=1000.0) == (original, retry)


def test_a_token_is_worth_nothing_elsewhere_later_or_to_another() -> None:
    tokens = RetryTokens()
    token = tokens.make(ADDR, b"original", b"retrycid", now=1000.0)
    assert tokens.check(ADDR, token, now=1000.0 + TOKEN_LIFETIME_S - 0.1) is not None
    assert tokens.check(ADDR, token, now=1000.0 + TOKEN_LIFETIME_S + 0.1) is None
    assert tokens.check(ADDR, token, now=900.0) is None
    assert tokens.check(("192.0.2.2", 4433), token, now=1000.0) is None
    assert tokens.check(("192.0.2.1", 4434), token, now=1000.0) is None
    assert RetryTokens().check(ADDR, token, now=1000.0) is None


@given(st.integers(0, 57), st.integers(1, 255))
def test_a_changed_token_is_refused(at: int, change: int) -> None:
    tokens = RetryTokens()
    token = bytearray(tokens.make(ADDR, b"original", b"retrycid", now=1000.0))
    token[at % len(token)] ^= change
    assert tokens.check(ADDR, bytes(token), now=1000.0) is None


@given(st.binary(max_size=100))
def test_noise_is_refused(noise: bytes) -> None:
    assert RetryTokens().check(ADDR, noise, now=1000.0) is None
