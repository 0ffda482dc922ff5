"""How fragments travel between relays: in datagrams of MoQT's draft 16, with an extension.

The extension says where in its object the payload lies, and on what terms the object travels. A
relay without QUICR clients passes it on as it is. Whoever subscribes with MoQT is given whole
objects, without it.

    type 0x3c51 | length | offset_and_fin(i) | best_before(i) | flags(8) | nb_objects_previous_group(i)
"""  # noqa: E501 - a picture

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.buffer import Incomplete, decode_varint, encode_varint
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import DatagramObject, decode_datagram, encode_datagram
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.translate import decode_extensions
from laps.wire.quicr.messages import DEFAULT_PRIORITY, Fragment, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import KeyValue

FRAGMENT_EXTENSION: Final = 0x3C51

# What a fragment may have so that it passes every path: of the 1,200 bytes that QUIC promises, 44
# are QUIC's, 20 the peering protocol's, and up to 56 of the datagram around it.
CARRIED_BYTES: Final = 1080

# QUICR has 8 priorities where MoQT has 256.
_STEP: Final = 32

# Among datagrams that wait for room, those that may be discarded come behind all others: behind
# MoQT's priority 255.
_DISCARDABLE_RANK: Final = 256


def moqt_priority(priority: int) -> int:
    """QUICR's priority as MoQT counts."""
    return priority * _STEP


def quicr_priority(priority: int | None) -> int:
    """MoQT's priority as QUICR counts."""
    return DEFAULT_PRIORITY if priority is None else priority // _STEP


def without_carried(extensions: bytes, pairs: Sequence[KeyValue], dialect: Dialect) -> bytes:
    """A client's own extensions, without one that only means something between relays.

    `pairs` are the same, as they were read.
    """
    if all(type_ != FRAGMENT_EXTENSION for type_, _ in pairs):
        return extensions
    rest = [pair for pair in pairs if pair[0] != FRAGMENT_EXTENSION]
    return encode_pairs(rest, delta=dialect.extension_deltas)


def encode_carried(alias: int, fragment: Fragment, terms: Terms) -> bytes:
    """A fragment as it goes to other relays."""
    flags = terms.priority | (terms.discardable and 8)
    value = (
        encode_varint(2 * fragment.offset + fragment.last)
        + encode_varint(terms.best_before_ms)
        + flags.to_bytes(1)
        + encode_varint(terms.objects_before)
    )
    datagram = DatagramObject(
        alias,
        fragment.group,
        fragment.object_id,
        moqt_priority(terms.priority),
        encode_pairs([(FRAGMENT_EXTENSION, value)], delta=True),
        payload=fragment.data,
    )
    return encode_datagram(datagram, DRAFT16)


def carried_of(datagram: DatagramObject) -> tuple[Fragment, Terms] | None:
    """The fragment in a datagram from another relay; None if it is a whole object."""
    if not datagram.extensions:
        return None
    for type_, value in decode_extensions(datagram.extensions, DRAFT16):
        if type_ == FRAGMENT_EXTENSION and isinstance(value, bytes):
            return _read(datagram, value)
    return None


def _read(datagram: DatagramObject, value: bytes) -> tuple[Fragment, Terms] | None:
    try:
        place, at = decode_varint(value)
        best_before_ms, at = decode_varint(value, at)
        flags = value[at]
        objects_before, at = decode_varint(value, at + 1)
    except (Incomplete, IndexError):
        return None
    group, object_id, data = datagram.group, datagram.object_id, datagram.payload
    fragment = Fragment(group, object_id, place >> 1, data, bool(place & 1))
    return fragment, Terms(best_before_ms, flags & 7, bool(flags & 8), objects_before)


def datagram_rank(data: bytes | memoryview) -> int:
    """Where a datagram between relays stands among others: the largest is dropped first."""
    try:
        datagram = decode_datagram(data, DRAFT16)
        carried = carried_of(datagram)
    except MoqtViolation:
        return _STEP * DEFAULT_PRIORITY
    if carried is not None and carried[1].discardable:
        return _DISCARDABLE_RANK + carried[1].priority
    return _STEP * DEFAULT_PRIORITY if datagram.priority is None else datagram.priority
