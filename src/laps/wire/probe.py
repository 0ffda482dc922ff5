"""The probe: a packet that every QUIC server answers, and that makes no session there.

    first(1), 0b11...... | version(4), 0x?a?a?a?a | 16 | destination_id(16) | 16 | source_id(16)
    | zeros, up to 1,200 bytes

A server answers a version that it does not know with Version Negotiation (RFC 9000 section 6) and
keeps nothing. Versions of this form are reserved, so nobody ever knows them. The answer repeats
both ids, exchanged:

    first(1), 0b1....... | 0(4) | 16 | source_id(16) | 16 | destination_id(16)
    | versions, 4 bytes each

It is smaller than the probe: nobody can use a server to send somebody else more than it gets.

The ids follow from a secret of the one that probes and from the number of the probe, which is in
the first of them. So nothing has to be kept to tell an answer from what somebody made up.
"""

import hashlib
import hmac
from typing import Final

from laps.wire.buffer import Cursor, Incomplete

# RFC 9000 section 14.1: a server need not answer less.
PROBE_BYTES: Final = 1200

ID_BYTES: Final = 16
NUMBERS: Final = 1 << 64

_NUMBER_BYTES: Final = 8
_NEGOTIATION: Final = 0
_LONG_HEADER: Final = 0x80
_RESERVED: Final = 0x0A0A0A0A
_NOT_RESERVED: Final = 0xF0F0F0F0


def encode_probe(number: int, key: bytes) -> bytes:
    """The probe with this number, of one who has this secret."""
    tag = _tag(number, key)
    version = int.from_bytes(tag[:4]) & _NOT_RESERVED | _RESERVED
    ids = _ids(number, tag)
    header = b"".join(
        (
            bytes((0xC0 | tag[4] & 0x3F,)),
            version.to_bytes(4),
            *(bytes((ID_BYTES,)) + it for it in ids),
        )
    )
    return header.ljust(PROBE_BYTES, b"\0")


def decode_answer(data: bytes, key: bytes) -> int | None:
    """The number of the probe that this answers; None: it is no answer to one of ours."""
    cursor = Cursor(memoryview(data), whole=False)
    try:
        first, version = cursor.u8("first"), cursor.u32("version")
        source = bytes(cursor.take(cursor.u8("length of the id"), "source_id"))
        destination = bytes(cursor.take(cursor.u8("length of the id"), "destination_id"))
    except Incomplete:
        return None
    # At least one version has to be named.
    if not first & _LONG_HEADER or version != _NEGOTIATION or cursor.remaining < 4:
        return None
    number = int.from_bytes(source[:_NUMBER_BYTES])
    ours = b"".join(_ids(number, _tag(number, key)))
    return number if hmac.compare_digest(ours, destination + source) else None


def _tag(number: int, key: bytes) -> bytes:
    return hmac.digest(key, b"laps probe " + number.to_bytes(_NUMBER_BYTES), hashlib.sha256)


def _ids(number: int, tag: bytes) -> tuple[bytes, bytes]:
    """The ids of destination and source."""
    rest = ID_BYTES - _NUMBER_BYTES
    return tag[-ID_BYTES:], number.to_bytes(_NUMBER_BYTES) + tag[5 : 5 + rest]
