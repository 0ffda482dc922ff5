"""Plans as relays hear of them: a signed document, an object of the track `plan` in `laps`.

    {"key": "ed25519:…", "signature": "…"}           one line, and then the plan, as it was signed
    {"format": "laps-plan/1", "sequence": …, …}

What is signed is the name of the format and the bytes of the plan. A relay believes the plan of the
one key that its operator has named, whoever brings it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from laps.client.sealed import InvalidDocument, seal, unseal
from laps.errors import LapsError, quote
from laps.types import parse_node_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

TRACK: Final = "plan"
FORMAT: Final = "laps-plan/1"
DIRECT: Final = "direct"
"In place of a Via: the o-relay sends to each s-relay of the region itself."


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


def sign_plan(document: PlanDocument, key: Ed25519PrivateKey) -> bytes:
    """The bytes to publish."""
    try:
        return seal(msgspec.json.encode(document, order="deterministic"), FORMAT, key)
    except InvalidDocument as error:
        tracks = f"a plan for {len(document.tracks)} tracks"
        raise InvalidDocument(f"{tracks}: {error}; publish fewer tracks") from None


def open_plan(sealed: bytes, key: Ed25519PublicKey) -> PlanDocument:
    """The plan in some bytes, if `key` signed it; InvalidDocument says why not."""
    plan = unseal(sealed, FORMAT, key)
    try:
        document = msgspec.json.decode(plan, type=PlanDocument)
        _check(document)
    except (msgspec.DecodeError, ValueError, LapsError) as error:
        raise InvalidDocument(f"signed well, and not a plan: {error}") from None
    return document


def _check(document: PlanDocument) -> None:
    if document.format != FORMAT:
        raise InvalidDocument(f"format {quote(document.format)}: {quote(FORMAT)} is understood")
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
