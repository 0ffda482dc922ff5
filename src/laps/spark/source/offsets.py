"""How far a query has read: the next location of each track, as Spark writes it down in JSON.

    {"plant/sensors/7 celsius": [12, 3, 4711]}

The key is the track: the parts of its namespace with slashes between, a space, and its name. Bytes
that would make it ambiguous, and those that are not text, are written `%2F`. The value is a group,
the next object in it, and how many objects of the track were read up to there. By the number a
reader that begins there again can tell what is missing from what never was. Who writes an offset
by hand leaves it out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laps.errors import ConfigError, InvalidText, quote
from laps.names import track_of
from laps.types import Location, TrackName

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST: Final = (1 << 62) - 1
"What a group and an object can be numbered up to."

_EXAMPLE: Final = '{"plant/sensors/7 celsius": [12, 0]}'


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The next location of a track."""

    at: Location
    count: int = 0
    "How many objects lie ahead of it, as far as they were read."


BEGINNING: Final = Position(Location(0, 0))
"Ahead of all that a track may hold."

Positions = dict[TrackName, Position]


def fetch_end(end: Location) -> Location | None:
    """The end of a range as FETCH has it, where an object of 0 is all of the group; None: empty."""
    if end.object:
        return end
    return Location(end.group - 1, 0) if end.group else None


def track_key(track: TrackName) -> str:
    """The track, as it is written in offsets; no two have the same."""
    namespace = "/".join(_escape(part, "%/ ") for part in track.namespace)
    return f"{namespace} {_escape(track.name, '%')}"


def parse_track_key(key: str) -> TrackName:
    """The track that was written; InvalidText if it is none."""
    namespace, space, name = key.partition(" ")
    if not space:
        problem = "has no space: write the namespace, a space and the name, like plant/7 celsius"
        raise InvalidText("track", key, problem)
    return track_of([_unescape(part) for part in namespace.split("/")], _unescape(name))


def to_json(positions: Positions) -> dict[str, list[int]]:
    """Offsets as Spark is given them: the same ones are always the same text."""
    written = {track_key(track): [*p.at, p.count] for track, p in positions.items()}
    return dict(sorted(written.items()))


def from_json(offsets: Mapping[str, Any]) -> Positions:
    """Offsets as Spark gives them back, or as a person wrote them."""
    positions = {}
    for key, value in offsets.items():
        numbers = value if isinstance(value, list) else []
        if len(numbers) not in (2, 3) or not all(_is_number(number) for number in numbers):
            problem = f"offset of {quote(key)} is {quote(value)}, not a group and an object"
            raise ConfigError(f"{problem}: write it like {_EXAMPLE}")
        group, at, *count = numbers
        positions[parse_track_key(key)] = Position(Location(group, at), *count)
    return positions


def parse_offsets(option: str, text: str, words: str) -> Positions:
    """An option that holds offsets; `words` are what it may be instead."""
    try:
        offsets = json.loads(text)
    except ValueError as error:
        problem = f"is neither {words} nor JSON ({error})"
        raise ConfigError(f"option {option} {quote(text)} {problem}: like {_EXAMPLE}") from None
    if not isinstance(offsets, dict):
        raise ConfigError(f"option {option} {quote(text)} is no JSON object: like {_EXAMPLE}")
    try:
        return from_json(offsets)
    except ConfigError as error:
        raise ConfigError(f"option {option}: {error}") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _escape(data: bytes, reserved: str) -> str:
    # What is not UTF-8 comes out as lone surrogates, which are written byte by byte again.
    text = data.decode("utf-8", "surrogateescape")
    return "".join(
        "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        if char in reserved or not char.isprintable()
        else char
        for char in text
    )


def _unescape(text: str) -> bytes:
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
