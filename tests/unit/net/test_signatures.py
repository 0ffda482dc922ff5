"""qh3's check of Ed25519 says what that of `cryptography` says, of right and of odd signatures."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from qh3 import _hazmat

from laps.auth import ed25519
from laps.auth.keys import Key, generate
from laps.auth.tokens import Algorithm
from laps.net.signatures import check_ed25519, use_those_of_quic

PRIME = 2**255 - 19
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RIGHT = PRIVATE.sign(b"data")
NEUTRAL = b"\x01" + bytes(31)
"The neutral point, as a key or as the first half of a signature."


@pytest.fixture(autouse=True)
def _nobody_brought_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ed25519, "_brought", None)


def too_large(signature: bytes) -> bytes:
    number = int.from_bytes(signature[32:], "little") + ed25519._ORDER
    return signature[:32] + number.to_bytes(32, "little")


def public(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)


@pytest.mark.parametrize(
    ("key", "signature"),
    [
        (PRIVATE.public_key(), RIGHT),
        (PRIVATE.public_key(), b""),
        (PRIVATE.public_key(), RIGHT[:32]),
        (PRIVATE.public_key(), RIGHT + RIGHT),
        (PRIVATE.public_key(), PRIVATE.sign(b"date")),
        (PRIVATE.public_key(), too_large(RIGHT)),
        (PRIVATE.public_key(), bytes(64)),
        (PRIVATE.public_key(), b"\xff" * 64),
        (public(NEUTRAL), NEUTRAL + bytes(32)),
        (public(NEUTRAL), (PRIME + 1).to_bytes(32, "little") + bytes(32)),
        (public((PRIME + 1).to_bytes(32, "little")), NEUTRAL + bytes(32)),
        (public(b"\x02" + bytes(31)), NEUTRAL + bytes(32)),
    ],
)
def test_both_libraries_agree(key: Ed25519PublicKey, signature: bytes) -> None:
    by_cryptography = Key("a", Algorithm.EDDSA, key)
    spki = by_cryptography.public_bytes
    assert check_ed25519(spki, b"data", signature) is by_cryptography.verifies(b"data", signature)


def test_the_check_of_this_version_is_taken() -> None:
    assert use_those_of_quic()
    assert ed25519._brought is check_ed25519


def _takes_everything(*_: Any) -> None: ...


@pytest.mark.parametrize("found", [None, _takes_everything, lambda spki, signed: None])
def test_version_without_it_leaves_cryptography(
    found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if found is None:
        monkeypatch.delattr(_hazmat, "verify_with_public_key")
    else:
        monkeypatch.setattr(_hazmat, "verify_with_public_key", found)
    assert not use_those_of_quic()
    key = generate(Algorithm.EDDSA)
    assert key.verifies(b"data", key.sign(b"data"))
    assert not key.verifies(b"data", bytes(64))
