"""Setup parameters, whose numbers are the same in every draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from laps.wire.moqt.keyvalues import TOKEN, decode_parameters, encode_parameters

if TYPE_CHECKING:
    from laps.wire.buffer import Cursor
    from laps.wire.moqt.messages import ClientSetup, ServerSetup

_PATH = 0x01
_MAX_REQUEST_ID = 0x02
_MAX_TOKEN_CACHE = 0x04
_AUTHORITY = 0x05
# Draft 14 prints 0x05 here too, which is AUTHORITY's; draft 16 and those who speak 14 say 0x07.
_IMPLEMENTATION = 0x07
_KNOWN: Final = frozenset(
    {_PATH, _MAX_REQUEST_ID, TOKEN, _MAX_TOKEN_CACHE, _AUTHORITY, _IMPLEMENTATION}
)


def decode_setup_parameters(cursor: Cursor, *, delta: bool) -> dict[str, Any]:
    """The fields that both setups have; parameters that nobody knows are ignored."""
    parameters = decode_parameters(cursor, _KNOWN, _KNOWN, delta=delta)
    return {
        "path": parameters.data(_PATH),
        "authority": parameters.data(_AUTHORITY),
        "max_request_id": parameters.number(_MAX_REQUEST_ID) or 0,
        "max_token_cache_bytes": parameters.number(_MAX_TOKEN_CACHE) or 0,
        "tokens": parameters.tokens,
        "implementation": parameters.data(_IMPLEMENTATION),
    }


def encode_setup_parameters(message: ClientSetup | ServerSetup, *, delta: bool) -> bytes:
    """The parameters of a setup; the defaults go without saying."""
    pairs = (
        (_PATH, message.path),
        (_MAX_REQUEST_ID, message.max_request_id or None),
        (_MAX_TOKEN_CACHE, message.max_token_cache_bytes or None),
        (_AUTHORITY, message.authority),
        (_IMPLEMENTATION, message.implementation),
    )
    return encode_parameters(pairs, message.tokens, delta=delta)
