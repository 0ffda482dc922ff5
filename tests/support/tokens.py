"""Tokens for tests: right ones, and ones that are wrong in a way that no issuer would sign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import cbor2

from laps.auth.judge import OUT_OF_BAND, Verifier
from laps.auth.keys import Key, KeySet, generate
from laps.auth.tokens import Algorithm, write_base64url

if TYPE_CHECKING:
    from laps.auth.grants import Grant

NOW = 1_790_000_000.0


_MADE = {algorithm: generate(algorithm, f"test-{algorithm.lower()}") for algorithm in Algorithm}


def key(algorithm: Algorithm = Algorithm.EDDSA) -> Key:
    """A key that all tests share."""
    return _MADE[algorithm]


def keys() -> KeySet:
    return KeySet([key(algorithm) for algorithm in Algorithm])


def jwt(
    payload: dict[str, Any] | str, header: dict[str, Any] | str | None = None, by: Key | None = None
) -> bytes:
    """A JWT with a right signature, whatever it says; text is taken as the JSON of it."""
    by = by or key()
    if header is None or isinstance(header, dict):
        header = {"alg": str(by.algorithm), "typ": "JWT", "kid": by.id, **(header or {})}
    parts = [part if isinstance(part, str) else json.dumps(part) for part in (header, payload)]
    signed = ".".join(write_base64url(part.encode()) for part in parts)
    return f"{signed}.{write_base64url(by.sign(signed.encode()))}".encode()


COSE = {Algorithm.EDDSA: -8, Algorithm.ES256: -7, Algorithm.HS256: 5}


def cat(
    payload: dict[Any, Any] | bytes,
    header: dict[Any, Any] | None = None,
    by: Key | None = None,
    unprotected: dict[Any, Any] | None = None,
    tag: bytes = b"",
) -> bytes:
    """A CAT with a right signature, whatever it says; bytes are taken as the CBOR of it."""
    by = by or key()
    protected = cbor2.dumps({1: COSE[by.algorithm], 4: by.id.encode(), **(header or {})})
    body = payload if isinstance(payload, bytes) else cbor2.dumps(payload)
    context = "MAC0" if by.algorithm is Algorithm.HS256 else "Signature1"
    signature = by.sign(cbor2.dumps([context, protected, b"", body]))
    return tag + cbor2.dumps([protected, unprotected or {}, body, signature])


def verify(token: bytes, now: float = NOW, token_type: int = OUT_OF_BAND) -> Grant:
    return Verifier(keys()).verify(token_type, token, now)
