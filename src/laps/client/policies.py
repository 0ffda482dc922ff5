"""Policies as relays hear of them: a signed document, an object of the track `policy` in `laps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from laps.client.sealed import InvalidDocument, seal, unseal
from laps.errors import LapsError, quote
from laps.policy import policy_from_mapping

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    from laps.policy import Policy

TRACK: Final = "policy"
FORMAT: Final = "laps-policy/1"


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as it is published. It counts until the next one: what is forbidden stays so."""

    format: str = FORMAT
    sequence: int
    "A larger one takes the place of this; milliseconds since 1970."
    issued_at: float
    policy: dict[str, Any]
    "As the file has it."


def sign_policy(document: PolicyDocument, key: Ed25519PrivateKey) -> bytes:
    """The bytes to publish."""
    return seal(msgspec.json.encode(document, order="deterministic"), FORMAT, key)


def open_policy(sealed: bytes, key: Ed25519PublicKey) -> tuple[PolicyDocument, Policy]:
    """The policy in some bytes, if `key` signed it; InvalidDocument says why not."""
    bare = unseal(sealed, FORMAT, key)
    try:
        document = msgspec.json.decode(bare, type=PolicyDocument)
        if document.format != FORMAT:
            found = quote(document.format)
            raise InvalidDocument(f"format {found}: {quote(FORMAT)} is understood")
        return document, policy_from_mapping(document.policy, f"policy {document.sequence}")
    except (msgspec.DecodeError, LapsError) as error:
        raise InvalidDocument(f"signed well, and not a policy: {error}") from None
