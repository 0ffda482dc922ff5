"""A check of Ed25519 that somebody brings is taken if it is right, and only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from laps.auth import ed25519
from laps.auth.keys import generate
from laps.auth.tokens import Algorithm

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.auth.ed25519 import Check


@pytest.fixture(autouse=True)
def _nobody_brought_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ed25519, "_brought", None)


def right(spki: bytes, signed: bytes, signature: bytes) -> bool:
    """By `cryptography`, from the same bytes."""
    public = Ed25519PublicKey.from_public_bytes(spki.removeprefix(ed25519.SPKI_PREFIX))
    try:
        public.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def breaking(*_: object) -> bool:
    raise TypeError("it takes other arguments now")


def silent(*args: Any) -> bool:
    right(*args)
    return None  # type: ignore[return-value]


WRONG: dict[str, Callable[..., bool]] = {
    "takes everything": lambda *_: True,
    "takes nothing": lambda *_: False,
    "raises": breaking,
    "says nothing": silent,
    "skips what is signed": lambda spki, _, signature: right(spki, b"\xaf\x82", signature),
    "skips the key": lambda _, *rest: right(ed25519.SPKI_PREFIX + ed25519._KEY, *rest),
    "cuts signatures": lambda spki, signed, it: right(spki, signed, it[:64]),
    "fills signatures": lambda spki, signed, it: right(spki, signed, it.ljust(64, b"\x0a")),
    "takes numbers that are too large": lambda spki, signed, it: right(spki, signed, reduced(it)),
}


def reduced(signature: bytes) -> bytes:
    number = int.from_bytes(signature[32:64], "little") % ed25519._ORDER
    return signature[:32] + number.to_bytes(32, "little") + signature[64:]


@pytest.mark.parametrize("wrong", WRONG)
def test_check_that_is_wrong_is_left_alone(wrong: str) -> None:
    assert not ed25519.use(WRONG[wrong])
    key, other = generate(Algorithm.EDDSA), generate(Algorithm.EDDSA)
    assert key.verifies(b"data", key.sign(b"data"))
    assert not key.verifies(b"data", other.sign(b"data"))


def test_check_that_is_right_is_used() -> None:
    key = generate(Algorithm.EDDSA)
    seen = []

    def check(spki: bytes, signed: bytes, signature: bytes) -> bool:
        seen.append(signed)
        return right(spki, signed, signature)

    taken: Check = check
    assert ed25519.use(taken)
    assert key.verifies(b"data", key.sign(b"data"))
    assert not key.verifies(b"date", key.sign(b"data"))
    assert seen[-2:] == [b"data", b"date"]


def test_wrong_check_does_not_displace_a_right_one() -> None:
    assert ed25519.use(right)
    assert not ed25519.use(WRONG["takes everything"])
    key = generate(Algorithm.EDDSA)
    assert not key.verifies(b"data", bytes(64))
