"""Draft 14's numbers for why a request was refused and why a subscription ended.

Each answer has numbers of its own there. A number that draft 14 does not list passes through, and
so does one that draft 16 does not list, unless it would be read as something else on the far side:
that becomes INTERNAL_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import RequestKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_INTERNAL_ERROR = 0x0

_ALL: Final = {
    0x0: RequestCode.INTERNAL_ERROR,
    0x1: RequestCode.UNAUTHORIZED,
    0x2: RequestCode.TIMEOUT,
    0x3: RequestCode.NOT_SUPPORTED,
}
_TOKENS: Final = {
    0x10: RequestCode.MALFORMED_AUTH_TOKEN,
    0x12: RequestCode.EXPIRED_AUTH_TOKEN,
}
_SUBSCRIBE: Final = {
    **_ALL,
    **_TOKENS,
    0x4: RequestCode.DOES_NOT_EXIST,
    0x5: RequestCode.INVALID_RANGE,
}

_REQUEST_CODES: Final[Mapping[RequestKind, Mapping[int, RequestCode]]] = {
    RequestKind.SUBSCRIBE: _SUBSCRIBE,
    RequestKind.TRACK_STATUS: _SUBSCRIBE,
    RequestKind.PUBLISH: {**_ALL, 0x4: RequestCode.UNINTERESTED},
    RequestKind.FETCH: {
        **_SUBSCRIBE,
        0x6: RequestCode.INVALID_RANGE,  # NO_OBJECTS; draft 16 answers with a stream of none
        0x7: RequestCode.INVALID_JOINING_REQUEST_ID,
        0x8: RequestCode.UNKNOWN_STATUS_IN_RANGE,  # draft 16 marks the range instead
        0x9: RequestCode.MALFORMED_TRACK,
    },
    RequestKind.PUBLISH_NAMESPACE: {**_ALL, **_TOKENS, 0x4: RequestCode.UNINTERESTED},
    RequestKind.SUBSCRIBE_NAMESPACE: {
        **_ALL,
        **_TOKENS,
        0x4: RequestCode.DOES_NOT_EXIST,
        0x5: RequestCode.PREFIX_OVERLAP,
    },
}
_DONE_CODES: Final[Mapping[int, DoneCode]] = {
    **{code: DoneCode(code) for code in range(0x7)},
    0x7: DoneCode.MALFORMED_TRACK,
}


def _inverse(codes: Mapping[int, int]) -> dict[int, int]:
    """The first number of each meaning, which is the one that says it best."""
    return {meaning: number for number, meaning in sorted(codes.items(), reverse=True)}


_TO_REQUEST_CODES_14: Final = {kind: _inverse(codes) for kind, codes in _REQUEST_CODES.items()}
# PUBLISH_ERROR has no numbers for what may be wrong with a token.
for _code in _TOKENS.values():
    _TO_REQUEST_CODES_14[RequestKind.PUBLISH][_code] = RequestCode.UNAUTHORIZED
_TO_DONE_CODES_14: Final = _inverse(_DONE_CODES)


def _translate(code: int, table: Mapping[int, int], taken: Collection[int]) -> int:
    translated = table.get(code)
    if translated is not None:
        return translated
    return _INTERNAL_ERROR if code in taken else code


_ALL_REQUEST_CODES: Final = frozenset(RequestCode)
_ALL_DONE_CODES: Final = frozenset(DoneCode)


def request_code_from_14(code: int, kind: RequestKind) -> int:
    """What a number in draft 14's answer to such a request means."""
    return _translate(code, _REQUEST_CODES[kind], _ALL_REQUEST_CODES)


def request_code_to_14(code: int, kind: RequestKind) -> int:
    """The number in draft 14's answer to such a request."""
    taken = _ALL_REQUEST_CODES | _REQUEST_CODES[kind].keys()
    return _translate(code, _TO_REQUEST_CODES_14[kind], taken)


def done_code_from_14(code: int) -> int:
    """What a number in draft 14's PUBLISH_DONE means."""
    return _translate(code, _DONE_CODES, _ALL_DONE_CODES)


def done_code_to_14(code: int) -> int:
    """The number in draft 14's PUBLISH_DONE."""
    return _translate(code, _TO_DONE_CODES_14, _ALL_DONE_CODES | _DONE_CODES.keys())
