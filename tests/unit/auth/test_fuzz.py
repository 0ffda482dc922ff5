"""Tokens that were changed: each is refused in words, or allows just what it did before.

Three kinds of changes. To the bytes as a stranger would do it, without the key. To what is inside,
signed again with a right key: what an issuer with a defect may send, so that the grant may differ,
but nothing else than an AuthError may come of it. And to the parts around what is signed.
"""

from __future__ import annotations

import base64
import json
import random
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from laps.auth.cat import Claim
from laps.auth.judge import Verifier
from laps.auth.refusals import AuthError
from laps.auth.tokens import Algorithm, write_base64url
from support.tokens import COSE, NOW, cat, jwt, key, keys

if TYPE_CHECKING:
    from laps.auth.grants import Grant

SEED = 16
TIMES = {"exp": int(NOW) + 100, "nbf": int(NOW) - 100, "iat": int(NOW) - 100}
CLAIMS: dict[str, Any] = {
    "sub": "ann",
    "jti": "call-7",
    "root": "rooms/123",
    "put": ["ann"],
    "get": [""],
    **TIMES,
    "laps": {
        "allow": [
            {
                "actions": ["publish", "fetch"],
                "namespace": ["logs", {"prefix": "a"}],
                "ends": True,
                "track": {"suffix": ".json"},
            }
        ],
        "limits": {"tracks": 10},
    },
}
CWT: dict[Any, Any] = {
    Claim.SUB: "ann",
    Claim.EXP: TIMES["exp"],
    Claim.NBF: TIMES["nbf"],
    Claim.CTI: b"call-7",
    Claim.MOQT: [[[0]], [[2, 6], [b"logs", [1, b"a"], None], [2, b".json"]]],
    Claim.MOQT_REVAL: 300,
}
INTERESTING = (
    *(b"\x00", b"\xff", b".", b"=", b"==", b"\n", b"-", b"_", b"{", b"}", b'"', b"eyJ", b"none"),
    *(b"\x84", b"\xd2", b"\xd1", b"\xd8\x3d", b"\xf6", b"\xbf", b"\x9b\xff\xff\xff\xff\xff\xff"),
    *(b"\x81" * 50, b"A" * 300, "\u202e".encode(), b"\xed\xa0\x80"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**64, 10**30, "", "x", "\x00", "../../x", "\u202e", "none"),
    *([], {}, [None], [[]], {"prefix": ""}, {"a": {"b": []}}, "*", "/", "a/b", "\ud800"),
)


def tokens() -> list[tuple[int, bytes]]:
    made = []
    for algorithm in Algorithm:
        made.append((0, jwt(CLAIMS, by=key(algorithm))))
        made.append((1, cat(CWT, by=key(algorithm))))
        made.append((0, cat(CWT, by=key(algorithm), tag=b"\xd8\x3d")))
        made.append((0, base64.b64encode(made[-1][1])))
        made.append((1, dotted(algorithm)))
    return made


def dotted(algorithm: Algorithm) -> bytes:
    """The form of the draft's vectors."""
    header = cbor2.dumps({1: COSE[algorithm], 4: key(algorithm).id.encode()})
    signed = f"{write_base64url(header)}.{write_base64url(cbor2.dumps(CWT))}"
    return f"{signed}.{write_base64url(key(algorithm).sign(signed.encode()))}".encode()


def mutate(token: bytes, chance: random.Random) -> bytes:
    """One to four changes of bytes, as a stranger makes them."""
    data = bytearray(token)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 1, 2, 8, 40))
        match chance.randrange(7):
            case 0:
                data[at : at + length] = chance.randbytes(length)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = chance.choice(INTERESTING)
            case 3:
                data[at:at] = data[at : at + length]
            case 4 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 5:
                start = chance.randrange(len(data) + 1)
                data[at : at + length] = data[start : start + length]
            case _:
                data = data[:at]
        if not data:
            break
    return bytes(data)


def outcome(verifier: Verifier, token_type: int, token: bytes) -> Grant | None:
    """The grant, or None for a refusal; whatever else is raised fails the test."""
    try:
        return verifier.verify(token_type, token, NOW)
    except AuthError as error:
        words = str(error)
    assert 0 < len(words) < 300
    return None


def changed_bytes(times: int, seed: int) -> None:
    chance = random.Random(seed)
    verifier = Verifier(keys(), max_cached=10)
    made = [(*token, verifier.verify(*token, NOW)) for token in tokens()]
    for number in range(times):
        token_type, token, grant = made[number % len(made)]
        mutated = mutate(token, chance)
        found = outcome(verifier, token_type, mutated)
        assert found is None or found == grant, (seed, number, mutated.hex())


def spoil(value: Any, chance: random.Random) -> Any:
    """What is somewhere inside replaced, removed, doubled or put elsewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        rest = {key: one for key, one in value.items() if key != name}
        match chance.randrange(5):
            case 0:
                return rest
            case 1:
                return {**rest, chance.choice(("x", "scope", "cnf", 99)): value[name]}
        return {**value, name: spoil(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        match chance.randrange(4):
            case 0:
                return [*value[:at], *value[at + 1 :]]
            case 1:
                return [*value, chance.choice(VALUES)]
        return [*value[:at], spoil(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


def changed_claims(times: int, seed: int) -> None:
    chance = random.Random(seed)
    verifier = Verifier(keys(), max_cached=10)
    by = key(Algorithm.HS256)  # the quickest to sign with
    for number in range(times):
        if number % 2:
            claims = json.dumps(spoil(CLAIMS, chance))
            header = chance.choice((None, {"x": 1}, {"kid": "y"}))
            outcome(verifier, 0, jwt(claims, header, by=by))
            continue
        try:
            payload = cbor2.dumps(spoil(CWT, chance))
        except UnicodeEncodeError:  # half of a character has no CBOR
            continue
        protected: Any = chance.choice((None, {99: 1}, {4: b"y"}))
        outcome(verifier, 1, cat(payload, protected, by=by))


def test_fuzzed_tokens_are_refused_or_mean_what_they_meant() -> None:
    changed_bytes(6_000, SEED)


def test_fuzzed_claims_are_refused_or_granted_and_nothing_else() -> None:
    changed_claims(4_000, SEED)


@pytest.mark.nightly
def test_fuzzed_tokens_by_the_hundred_thousand() -> None:
    changed_bytes(100_000, SEED + 1)
    changed_claims(100_000, SEED + 1)
