"""The parameters of draft 14's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.moqt.keyvalues import TOKEN, Parameters, decode_parameters, encode_parameters
from laps.wire.moqt.messages import GroupOrder, Token, TrackProperties

if TYPE_CHECKING:
    from collections.abc import Collection

    from laps.wire.buffer import Cursor

DELIVERY_TIMEOUT: Final = 0x02
MAX_CACHE: Final = 0x04
_KNOWN: Final = frozenset({TOKEN, DELIVERY_TIMEOUT, MAX_CACHE})


def read_parameters(cursor: Cursor, *belonging: int) -> Parameters:
    """The parameters of a message that belong there; all others are ignored."""
    return decode_parameters(cursor, belonging, _KNOWN, delta=False)


def write_parameters(*pairs: tuple[int, int | None], tokens: Collection[Token] = ()) -> bytes:
    """Parameters with their count; those of None are left out."""
    return encode_parameters(pairs, tokens, delta=False)


def read_timeout(parameters: Parameters) -> int | None:
    """The delivery timeout; 0, which draft 14 lets pass, can only mean that there is none."""
    return parameters.number(DELIVERY_TIMEOUT) or None


def read_properties(
    parameters: Parameters, order: GroupOrder = GroupOrder.PUBLISHERS
) -> TrackProperties:
    """What a publisher says of its track."""
    timeout_ms, max_cache_ms = read_timeout(parameters), parameters.number(MAX_CACHE)
    return TrackProperties(timeout_ms, max_cache_ms, order=order)


def write_properties(properties: TrackProperties, tokens: Collection[Token] = ()) -> bytes:
    """What a publisher says of its track, as far as there are parameters for it."""
    return write_parameters(
        (DELIVERY_TIMEOUT, properties.delivery_timeout_ms or None),
        (MAX_CACHE, properties.max_cache_ms),
        tokens=tokens,
    )
