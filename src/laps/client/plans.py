"""Plans as relays hear of them: a signed document, an object of the track `plan` in `laps`.

    {"key": "ed25519:…", "signature": "…"}           one line, and then the plan, as it was signed
    {"format": "laps-plan/1", "sequence": …, …}

What is signed is the name of the format and the bytes of the plan. A relay believes the plan of the
one key that its operator has named, whoever brings it.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from laps.errors import ConfigError, LapsError, quote
from laps.types import parse_node_id

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACE: Final = "laps"
TRACK: Final = "plan"
FORMAT: Final = "laps-plan/1"
DIRECT: Final = "direct"
"In place of a Via: the o-relay sends to each s-relay of the region itself."

MAX_BYTES: Final = 16 * 1024 * 1024
"A plan is one object, and every relay that follows it holds it: some 100,000 tracks."

_KEY_PREFIX: Final = "ed25519:"


class InvalidPlan(LapsError):  # noqa: N818 - as in laps.errors, the name says what happened
    """A plan that is not to be followed, and why."""


class PlannedTrack(msgspec.Struct, frozen=True):
    """What is decided for one track."""

    hash: str
    "The hash of the full name, 16 hexadecimal digits; the name is for people."
    name: str
    by_region: dict[str, str]
    """For each region that has s-relays: a Via's node id, or several in the order that data passes
    them, with spaces between; or `direct`."""


class PlannedWay(msgspec.Struct, frozen=True):
    """What is decided for all tracks with names of a pattern, or of a class."""

    by_region: dict[str, str]
    "As of a track; an empty region stands for all."
    tracks: str = ""
    "A pattern for namespace/name; empty: of any name."
    service: str = msgspec.field(name="class", default="")
    "A class of service; empty: of any class."


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as it is published."""

    format: str = FORMAT
    sequence: int
    "A larger one takes the place of this; milliseconds since 1970."
    issued_at: float
    expires_at: float
    "Seconds since 1970; from then on relays select by themselves again."
    policy: str
    "The SHA-256 of the policy it was made by."
    regions: dict[str, list[str]]
    "The nodes of each region."
    tracks: list[PlannedTrack]
    ways: list[PlannedWay] = msgspec.field(default_factory=list)
    "For tracks that do not stand in `tracks`; the first that matches counts."


class _Seal(msgspec.Struct, frozen=True):
    key: str
    signature: str


def sign_plan(document: PlanDocument, key: Ed25519PrivateKey) -> bytes:
    """The bytes to publish."""
    plan = msgspec.json.encode(document, order="deterministic")
    signature = base64.b64encode(key.sign(_signed(plan))).decode()
    seal = _Seal(key_text(key.public_key()), signature)
    sealed = msgspec.json.encode(seal) + b"\n" + plan
    if len(sealed) > MAX_BYTES:
        problem = f"the plan has {len(sealed)} bytes for {len(document.tracks)} tracks"
        raise InvalidPlan(f"{problem}: {MAX_BYTES} is the most; publish fewer tracks")
    return sealed


def open_plan(sealed: bytes, key: Ed25519PublicKey) -> PlanDocument:
    """The plan in some bytes, if `key` signed it; InvalidPlan says why not."""
    head, _, plan = sealed.partition(b"\n")
    try:
        seal = msgspec.json.decode(head, type=_Seal)
        signature = base64.b64decode(seal.signature, validate=True)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise InvalidPlan(f"not a signed plan: {error}") from None
    if seal.key != key_text(key):
        raise InvalidPlan(f"signed by {quote(seal.key)}, and {quote(key_text(key))} is followed")
    try:
        key.verify(signature, _signed(plan))
    except InvalidSignature:
        raise InvalidPlan("the signature does not fit: it was changed on the way") from None
    try:
        document = msgspec.json.decode(plan, type=PlanDocument)
        _check(document)
    except (msgspec.DecodeError, ValueError, LapsError) as error:
        raise InvalidPlan(f"signed well, and not a plan: {error}") from None
    return document


def _signed(plan: bytes) -> bytes:
    # With the name of the format in front a signature is of no use for anything else.
    return FORMAT.encode() + b"\n" + plan


def _check(document: PlanDocument) -> None:
    if document.format != FORMAT:
        raise InvalidPlan(f"format {quote(document.format)}: {quote(FORMAT)} is understood")
    for nodes in document.regions.values():
        for node in nodes:
            parse_node_id(node)
    for track in document.tracks:
        int(track.hash, 16)
        _check_ways(track.by_region)
    for way in document.ways:
        _check_ways(way.by_region)


def _check_ways(by_region: dict[str, str]) -> None:
    for way in by_region.values():
        for via in way.split() if way != DIRECT else ():
            parse_node_id(via)


# -- keys ------------------------------------------------------------------------------------------


def make_key(path: Path) -> str:
    """Write a new key for the planner, and return what relays are told of it."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        # Nobody but its owner may read it, from the first moment on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path}: is there already; a key is not written over") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return key_text(key.public_key())


def read_key(path: Path) -> Ed25519PrivateKey:
    """The planner's key."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: `laps plan keygen` makes a key") from None
    except (ValueError, TypeError):
        raise ConfigError(
            f"{path}: not a private key in PEM: `laps plan keygen` makes one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an Ed25519 key: `laps plan keygen` makes one")
    return key


def key_text(key: Ed25519PublicKey) -> str:
    """A public key as people pass it on: `ed25519:` and 44 characters."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return _KEY_PREFIX + base64.b64encode(raw).decode()


def parse_key(text: str) -> Ed25519PublicKey:
    """A public key from what `key_text` wrote."""
    try:
        if not text.startswith(_KEY_PREFIX):
            raise ValueError
        raw = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        problem = "is no public key: write it as `laps plan keygen` printed it, ed25519:…"
        raise ConfigError(f"{quote(text)} {problem}") from None
