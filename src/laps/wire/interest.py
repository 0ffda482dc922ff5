"""The extension messages about which subscribes a peer wants to hear of, and holds already."""

import struct
from enum import IntEnum
from typing import Final

from laps.errors import InvalidEncoding
from laps.types import NodeId, TrackKey
from laps.wire.buffer import Cursor, encode_varint
from laps.wire.extension_fields import ExtensionType, check_most, decode_count
from laps.wire.peering import Codec, Message

# Every node has a session with each of them, so there are some.
MAX_SERVERS: Final = 64

# Buckets of a digest, as a power of two: half a kilobyte at least, and 32 at most.
MIN_BITS: Final = 6
MAX_BITS: Final = 12

# Whoever would take clients over is one of the nearest.
MAX_NEAR: Final = 64


class Wants(IntEnum):
    """Which subscribes a peer is to be told of."""

    ALL = 0
    "As the document has it: it may have to pass them on."
    OFFERED = 1
    "Those of tracks that it announces on this link, and of nodes near it."
    LATER = 2
    "It does not know yet, and says so in a moment: until then none."
    SHARE = 3
    "Those that it is responsible for among the servers that the receiver has named."


class SubscribeInterest(Message, frozen=True):
    """What the sender wants to hear of subscribes, and whom it hears them from."""

    message_type = ExtensionType.SUBSCRIBE_INTEREST
    wants: Wants
    serves: bool = False
    """It is a control server: it holds all subscribes, and tells them to whom they concern."""
    servers: tuple[NodeId, ...] = ()
    """The control servers that it exchanges subscribes with."""
    near: tuple[NodeId, ...] = ()
    """Nodes whose subscribes it wants to hear of as well, to the tracks that it wants itself."""
    digests: bool = False
    """A digest follows of what it holds of the receiver's own: only what differs is to be told."""


class SubscribeDigest(Message, frozen=True):
    """What the sender holds of the receiver's own subscribes, summed up by buckets."""

    message_type = ExtensionType.SUBSCRIBE_DIGEST
    bits: int
    """There are two to the power of this many buckets; the low bits of a track name its own."""
    sums: tuple[int, ...]


class SubscribeAgreed(Message, frozen=True):
    """The buckets of a digest that are right: what is in the others follows."""

    message_type = ExtensionType.SUBSCRIBE_AGREED
    bits: int
    same: bytes
    """A bit for each bucket, the lowest of the first byte for the first."""

    def covers(self, key: TrackKey) -> bool:
        """Whether both have the same of a track, as they have of all in its bucket."""
        bucket = key & (1 << self.bits) - 1
        return bool(self.same[bucket >> 3] >> (bucket & 7) & 1)


# SUBSCRIBE_INTEREST
# wants(1) | serves(1) | digests(1) | server_count(var-int) | servers [ node_id(8) ]
# | near_count(var-int) | near [ node_id(8) ]


def _encode_nodes(nodes: tuple[NodeId, ...], field: str, most: int) -> bytes:
    check_most(field, len(nodes), most)
    return encode_varint(len(nodes)) + struct.pack(f">{len(nodes)}Q", *nodes)


def _decode_nodes(cursor: Cursor, field: str, most: int) -> tuple[NodeId, ...]:
    count = decode_count(cursor, field, 8, most)
    nodes = struct.unpack(f">{count}Q", cursor.take(8 * count, field))
    return tuple(map(NodeId, nodes))


def _encode(message: SubscribeInterest) -> bytes:
    fixed = struct.pack(">BBB", message.wants, message.serves, message.digests)
    servers = _encode_nodes(message.servers, "server_count", MAX_SERVERS)
    return fixed + servers + _encode_nodes(message.near, "near_count", MAX_NEAR)


def _decode(cursor: Cursor) -> SubscribeInterest:
    wants, serves = cursor.u8("wants"), cursor.u8("serves")
    if wants > max(Wants):
        raise InvalidEncoding(f"wants {wants} is not known")
    digests = cursor.u8("digests")
    for field, value in (("serves", serves), ("digests", digests)):
        if value > 1:
            raise InvalidEncoding(f"{field} {value} is neither 0 nor 1")
    servers = _decode_nodes(cursor, "server_count", MAX_SERVERS)
    near = _decode_nodes(cursor, "near_count", MAX_NEAR)
    return SubscribeInterest(Wants(wants), bool(serves), servers, near, bool(digests))


# SUBSCRIBE_DIGEST
# bits(1) | sums [ sum(8) ]


def _check_bits(bits: int) -> None:
    if not MIN_BITS <= bits <= MAX_BITS:
        raise InvalidEncoding(f"bits {bits} is outside {MIN_BITS} to {MAX_BITS}")


def _encode_digest(message: SubscribeDigest) -> bytes:
    _check_bits(message.bits)
    return struct.pack(f">B{1 << message.bits}Q", message.bits, *message.sums)


def _decode_digest(cursor: Cursor) -> SubscribeDigest:
    bits = cursor.u8("bits")
    _check_bits(bits)
    count = 1 << bits
    return SubscribeDigest(bits, struct.unpack(f">{count}Q", cursor.take(8 * count, "sums")))


# SUBSCRIBE_AGREED
# bits(1) | same(a bit for each bucket)


def _encode_agreed(message: SubscribeAgreed) -> bytes:
    _check_bits(message.bits)
    check_most("same_len", len(message.same), 1 << message.bits >> 3)
    return struct.pack(">B", message.bits) + message.same


def _decode_agreed(cursor: Cursor) -> SubscribeAgreed:
    bits = cursor.u8("bits")
    _check_bits(bits)
    return SubscribeAgreed(bits, bytes(cursor.take(1 << bits >> 3, "same")))


INTEREST_CODECS: Final = (
    Codec(SubscribeInterest, _encode, _decode),
    Codec(SubscribeDigest, _encode_digest, _decode_digest),
    Codec(SubscribeAgreed, _encode_agreed, _decode_agreed),
)
