"""The extension messages that carry what policy says: the terms of a set, and refusals."""

import struct
from typing import Final

from laps.errors import InvalidEncoding
from laps.types import MAX_NAME_BYTES, MAX_REGIONS, MAX_VIAS, NodeId, SnsId, TrackKey
from laps.wire.buffer import Cursor, encode_varint
from laps.wire.extension_fields import (
    ExtensionType,
    check_most,
    decode_count,
    decode_text,
    encode_text,
)
from laps.wire.peering import Codec, Message

MAX_REASON_LENGTH: Final = 1024
# As many nodes as the longest message holds.
MAX_WAYS: Final = 100_000

Way = tuple[NodeId, ...]


class SetTerms(Message, frozen=True):
    """What holds for what is sent under a set: it precedes the advertisement of the set."""

    message_type = ExtensionType.SET_TERMS
    sns_id: SnsId
    service: str
    """The class of service; empty where there is none."""
    order: int
    """Of tracks of one priority the lowest is sent first."""
    inside: tuple[str, ...]
    """Regions that its ways stay in; none means anywhere."""
    avoid: tuple[str, ...]
    ways: tuple[tuple[Way, tuple[NodeId, ...]], ...]
    """What lies between the receiver and nodes of the set; the receiver chooses for others."""
    passed: Way
    """The relays that the data has passed; there is one at least where ways are named."""


class PolicyRefusal(Message, frozen=True):
    """A relay may not send a track to the target of this, or may again."""

    message_type = ExtensionType.POLICY_REFUSAL
    hops: int
    """How many more it may take."""
    source_node_id: NodeId
    target_node_id: NodeId
    full_name_hash: TrackKey
    reason: str
    """In an operator's words; empty: it is refused no longer."""


# SET_TERMS
# sns_id(4) | order(1) | service_len(var-int) | service | inside_count(var-int)
# | inside [ len(var-int) | region ] | avoid_count(var-int) | avoid [ len(var-int) | region ]
# | passed_count(var-int) | passed [ node_id(8) ] | way_count(var-int)
# | ways [ via_count(var-int) | vias [ node_id(8) ] | node_count(var-int) | nodes [ node_id(8) ] ]


def _encode_nodes(nodes: Way) -> bytes:
    return encode_varint(len(nodes)) + struct.pack(f">{len(nodes)}Q", *nodes)


def _decode_nodes(cursor: Cursor, field: str, most: int) -> Way:
    count = decode_count(cursor, field, 8, most)
    nodes = struct.unpack(f">{count}Q", cursor.take(8 * count, field))
    return tuple(map(NodeId, nodes))


def _encode_regions(regions: tuple[str, ...], field: str) -> bytes:
    check_most(f"{field}_count", len(regions), MAX_REGIONS)
    texts = [encode_text(region, field, MAX_NAME_BYTES) for region in regions]
    return b"".join((encode_varint(len(regions)), *texts))


def _decode_regions(cursor: Cursor, field: str) -> tuple[str, ...]:
    count = decode_count(cursor, f"{field}_count", 1, MAX_REGIONS)
    return tuple(decode_text(cursor, field, MAX_NAME_BYTES) for _ in range(count))


def _encode_set_terms(message: SetTerms) -> bytes:
    check_most("passed_count", len(message.passed), MAX_VIAS)
    parts = [
        struct.pack(">IB", message.sns_id, message.order),
        encode_text(message.service, "service", MAX_NAME_BYTES),
        _encode_regions(message.inside, "inside"),
        _encode_regions(message.avoid, "avoid"),
        _encode_nodes(message.passed),
        encode_varint(len(message.ways)),
    ]
    for vias, nodes in message.ways:
        check_most("via_count", len(vias), MAX_VIAS)
        parts += [_encode_nodes(vias), _encode_nodes(nodes)]
    return b"".join(parts)


def _decode_set_terms(cursor: Cursor) -> SetTerms:
    sns_id, order = SnsId(cursor.u32("sns_id")), cursor.u8("order")
    service = decode_text(cursor, "service", MAX_NAME_BYTES)
    inside, avoid = _decode_regions(cursor, "inside"), _decode_regions(cursor, "avoid")
    passed = _decode_nodes(cursor, "passed_count", MAX_VIAS)
    count = decode_count(cursor, "way_count", 2, MAX_WAYS)
    ways = []
    for _ in range(count):
        vias = _decode_nodes(cursor, "via_count", MAX_VIAS)
        ways.append((vias, _decode_nodes(cursor, "node_count", MAX_WAYS)))
    if ways and not passed:
        raise InvalidEncoding("passed_count 0: whoever names ways has passed the data on itself")
    return SetTerms(sns_id, service, order, inside, avoid, tuple(ways), passed)


# POLICY_REFUSAL
# hops(1) | source_node_id(8) | target_node_id(8) | full_name_hash(8) | reason(to the end)

_REFUSAL = struct.Struct(">BQQQ")


def _encode_refusal(message: PolicyRefusal) -> bytes:
    reason = message.reason.encode()
    check_most("reason_len", len(reason), MAX_REASON_LENGTH)
    fixed = _REFUSAL.pack(
        message.hops, message.source_node_id, message.target_node_id, message.full_name_hash
    )
    return fixed + reason


def _decode_refusal(cursor: Cursor) -> PolicyRefusal:
    hops, source, target, key = _REFUSAL.unpack(
        cursor.take(_REFUSAL.size, "hops, node ids and full_name_hash")
    )
    check_most("reason_len", cursor.remaining, MAX_REASON_LENGTH)
    reason = bytes(cursor.rest())
    try:
        text = reason.decode()
    except UnicodeDecodeError as error:
        raise InvalidEncoding(f"reason is not UTF-8 at its byte {error.start}") from None
    return PolicyRefusal(hops, NodeId(source), NodeId(target), TrackKey(key), text)


POLICY_CODECS: Final = (
    Codec(SetTerms, _encode_set_terms, _decode_set_terms),
    Codec(PolicyRefusal, _encode_refusal, _decode_refusal),
)
