"""What JWT and CAT have in common: a seal to check, and claims to read once it has been."""

from __future__ import annotations

import binascii
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.auth.grants import NO_LIMITS, Limits, Scope
from laps.auth.refusals import malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

# The end of the year 9999. What is larger is no time but a mistake, or an attempt at one.
MAX_TIME: Final = 253_402_300_799


URL_PARAMETERS: Final = ("jwt", "cat", "token")
"Parameters of a URL that hold a token: they are sent, and not shown."


class Algorithm(StrEnum):
    """The algorithms that are allowed, as JOSE names them; a key is for one of them."""

    EDDSA = "EdDSA"
    ES256 = "ES256"
    HS256 = "HS256"


class Sealed(NamedTuple):
    """A token that was taken apart, and not checked."""

    algorithm: Algorithm
    key_id: str | None
    """None where the token names no key."""
    signed: bytes
    """What the signature is of."""
    signature: bytes
    payload: bytes
    """The claims, to be read only after the signature was checked."""


class Claims(NamedTuple):
    """What a token says, whatever it is written in."""

    scopes: tuple[Scope, ...]
    subject: str = ""
    issuer: str = ""
    audience: tuple[str, ...] = ()
    id: str = ""
    expires: int | None = None
    not_before: int | None = None
    issued: int | None = None
    limits: Limits = NO_LIMITS
    revalidate_s: float | None = None


# --- base64 and JSON, taken in one way only -------------------------------------------------------

_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def read_base64url(text: str, what: str) -> bytes:
    """As `decode_base64url`, of text."""
    if not text.isascii():
        raise malformed(f"{what} is not base64url")
    return decode_base64url(text.encode(), what)


def decode_base64url(letters: bytes, what: str) -> bytes:
    """Bytes from base64url without padding, and from nothing that only resembles it.

    Python's decoder skips what it does not know, and several last letters stand for the same byte:
    a token would have many spellings, and refusals by its text could be dodged.
    """
    try:
        padding = b"=" * (-len(letters) % 4)
        data = binascii.a2b_base64(letters.translate(_STANDARD) + padding)
    except ValueError:  # binascii.Error is one
        raise malformed(f"{what} is not base64url") from None
    if binascii.b2a_base64(data, newline=False).translate(_URL_SAFE, b"=") != letters:
        raise malformed(f"{what} is not base64url as RFC 7515 has it")
    return data


def write_base64url(data: bytes) -> str:
    """Base64url without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE, b"=").decode()


def read_json_object(data: bytes, what: str) -> dict[str, object]:
    """A JSON object in which no key comes twice: readers differ on which of the two counts."""
    try:
        text = data.decode().strip(" \t\n\r")  # what JSON calls space, and no more
        value, end = _JSON.raw_decode(text)
        if end != len(text):
            raise ValueError("something follows")
    except (ValueError, RecursionError):
        raise malformed(f"{what} is not JSON in which each key is there once") from None
    if not isinstance(value, dict):
        raise malformed(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


_JSON: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


# --- single claims --------------------------------------------------------------------------------


def text_of(value: object, claim: str) -> str:
    """A claim that is text, and can be written as UTF-8."""
    if not isinstance(value, str):
        raise malformed(f"{claim} must be text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise malformed(f"{claim} holds half of a character") from None
    return value


def time_of(value: object, claim: str) -> int:
    """A claim that is a time: whole seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TIME:
        raise malformed(f"{claim} must be a whole number of seconds since 1970")
    return value


def audience_of(value: object) -> tuple[str, ...]:
    """The claim `aud`: one text, or a list of them."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise malformed("aud is empty: it names nobody")
    return tuple(text_of(one, "aud") for one in values)


def unknown(found: Iterable[object], known: Iterable[object], what: str) -> None:
    """Refuse keys that are not known: one of them may be a restriction."""
    for key in found:
        if key not in set(known):
            raise malformed(f"{what} has the unknown key {key!r:.40}")
