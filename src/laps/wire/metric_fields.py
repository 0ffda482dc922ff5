"""The fields at the end of NODE_METRICS, which may be left out, and may become more.

    field_type(var-int) | field_len(var-int) | field(field_len)

Each comes once at most. A type that is not known is skipped by its length, so that relays of
different versions understand each other in what both know.
"""

import struct
from enum import IntEnum
from math import isfinite
from typing import Final, NamedTuple

from laps.errors import InvalidEncoding
from laps.types import Candidate, Coordinates, FullLink, NodeId
from laps.wire.buffer import Cursor, encode_varint
from laps.wire.extension_fields import check_fraction, check_most, encode_bytes

# What a node has probed and others have not: the best few of them. 20 bytes each.
MAX_CANDIDATES: Final = 8

# As many as links are told of.
MAX_FULL_LINKS: Final = 256

# Light goes round the earth in an eighth of that.
MAX_COORDINATE_MS: Final = 1000.0

_MOST_U32: Final = (1 << 32) - 1


class FieldType(IntEnum):
    """What a field is."""

    COORDINATES = 1
    CANDIDATES = 2
    FULL_LINKS = 3


class MetricFields(NamedTuple):
    """What the fields say; an empty one is left out."""

    coordinates: Coordinates | None = None
    candidates: tuple[Candidate, ...] = ()
    full_links: tuple[FullLink, ...] = ()


# COORDINATES
# x_ms(4) | y_ms(4) | z_ms(4) | height_ms(4) | error(4): floats of single precision

_COORDINATES = struct.Struct(">5f")


def _encode_coordinates(place: Coordinates) -> bytes:
    _check_coordinates(place)
    return _COORDINATES.pack(place.x_ms, place.y_ms, place.z_ms, place.height_ms, place.error)


def _decode_coordinates(cursor: Cursor) -> Coordinates:
    place = Coordinates(*_COORDINATES.unpack(cursor.take(_COORDINATES.size, "coordinates")))
    _check_coordinates(place)
    return place


def _check_coordinates(place: Coordinates) -> None:
    for value in (place.x_ms, place.y_ms, place.z_ms):
        if not (isfinite(value) and abs(value) <= MAX_COORDINATE_MS):
            raise InvalidEncoding(f"a coordinate of {value} ms is none")
    if not 0 <= place.height_ms <= MAX_COORDINATE_MS:
        raise InvalidEncoding(f"height {place.height_ms} ms is outside 0 to {MAX_COORDINATE_MS}")
    check_fraction(place.error, "error")


# CANDIDATES: as many as there are bytes for
# node_id(8) | rtt_us(4) | loss(4), a float | bandwidth_kbps(4)

_CANDIDATE = struct.Struct(">QIfI")


def _encode_candidates(candidates: tuple[Candidate, ...]) -> bytes:
    check_most("candidates", len(candidates), MAX_CANDIDATES)
    for it in candidates:
        check_fraction(it.loss, "loss")
    return b"".join(
        _CANDIDATE.pack(
            it.node_id,
            min(it.rtt_us, _MOST_U32),
            it.loss,
            min(it.bandwidth_bps // 1000, _MOST_U32),
        )
        for it in candidates
    )


def _decode_candidates(cursor: Cursor) -> tuple[Candidate, ...]:
    count, rest = divmod(cursor.remaining, _CANDIDATE.size)
    if rest:
        raise InvalidEncoding(f"candidates end inside of one: {rest} bytes are left")
    check_most("candidates", count, MAX_CANDIDATES)
    found = []
    for node_id, rtt_us, loss, kbps in _CANDIDATE.iter_unpack(cursor.rest()):
        check_fraction(loss, "loss")
        found.append(Candidate(NodeId(node_id), rtt_us, loss, 1000 * kbps))
    return tuple(found)


# FULL_LINKS: as many as there are bytes for
# node_id(8) | full(4), a float

_FULL_LINK = struct.Struct(">Qf")


def _encode_full_links(links: tuple[FullLink, ...]) -> bytes:
    check_most("full_links", len(links), MAX_FULL_LINKS)
    for it in links:
        check_fraction(it.full, "full")
    return b"".join(_FULL_LINK.pack(it.node_id, it.full) for it in links)


def _decode_full_links(cursor: Cursor) -> tuple[FullLink, ...]:
    count, rest = divmod(cursor.remaining, _FULL_LINK.size)
    if rest:
        raise InvalidEncoding(f"full links end inside of one: {rest} bytes are left")
    check_most("full_links", count, MAX_FULL_LINKS)
    found = []
    for node_id, full in _FULL_LINK.iter_unpack(cursor.rest()):
        check_fraction(full, "full")
        found.append(FullLink(NodeId(node_id), full))
    return tuple(found)


# -- all of them -----------------------------------------------------------------------------------


def encode_metric_fields(said: MetricFields) -> bytes:
    """Those that there are."""
    fields = []
    if said.coordinates is not None:
        fields.append((FieldType.COORDINATES, _encode_coordinates(said.coordinates)))
    if said.candidates:
        fields.append((FieldType.CANDIDATES, _encode_candidates(said.candidates)))
    if said.full_links:
        fields.append((FieldType.FULL_LINKS, _encode_full_links(said.full_links)))
    return b"".join(encode_varint(number) + encode_bytes(body) for number, body in fields)


def decode_metric_fields(cursor: Cursor) -> MetricFields:
    """The fields up to the end of the message; what is not known is skipped."""
    coordinates: Coordinates | None = None
    candidates: tuple[Candidate, ...] = ()
    full_links: tuple[FullLink, ...] = ()
    seen: set[int] = set()
    while cursor.remaining:
        number = cursor.varint("field_type")
        body = cursor.take(cursor.varint("field_len"), "field")
        if number in seen:
            raise InvalidEncoding(f"field {number} comes twice")
        inner = Cursor(body, whole=True)
        match number:
            case FieldType.COORDINATES:
                coordinates = _decode_coordinates(inner)
                if inner.remaining:
                    raise InvalidEncoding(f"{inner.remaining} bytes follow the coordinates")
            case FieldType.CANDIDATES:
                candidates = _decode_candidates(inner)
            case FieldType.FULL_LINKS:
                full_links = _decode_full_links(inner)
            case _:
                continue
        seen.add(number)
    return MetricFields(coordinates, candidates, full_links)
