"""The extension message that says which subscribes a peer wants to hear of."""

import struct
from enum import IntEnum
from typing import Final

from laps.errors import InvalidEncoding
from laps.types import NodeId
from laps.wire.buffer import Cursor, encode_varint
from laps.wire.extension_fields import ExtensionType, check_most, decode_count
from laps.wire.peering import Codec, Message

# Every node has a session with each of them, so there are some.
MAX_SERVERS: Final = 64

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


# SUBSCRIBE_INTEREST
# wants(1) | serves(1) | server_count(var-int) | servers [ node_id(8) ]
# | near_count(var-int) | near [ node_id(8) ]


def _encode_nodes(nodes: tuple[NodeId, ...], field: str, most: int) -> bytes:
    check_most(field, len(nodes), most)
    return encode_varint(len(nodes)) + struct.pack(f">{len(nodes)}Q", *nodes)


def _decode_nodes(cursor: Cursor, field: str, most: int) -> tuple[NodeId, ...]:
    count = decode_count(cursor, field, 8, most)
    nodes = struct.unpack(f">{count}Q", cursor.take(8 * count, field))
    return tuple(map(NodeId, nodes))


def _encode(message: SubscribeInterest) -> bytes:
    fixed = struct.pack(">BB", message.wants, message.serves)
    servers = _encode_nodes(message.servers, "server_count", MAX_SERVERS)
    return fixed + servers + _encode_nodes(message.near, "near_count", MAX_NEAR)


def _decode(cursor: Cursor) -> SubscribeInterest:
    wants, serves = cursor.u8("wants"), cursor.u8("serves")
    if wants > max(Wants):
        raise InvalidEncoding(f"wants {wants} is not known")
    if serves > 1:
        raise InvalidEncoding(f"serves {serves} is neither 0 nor 1")
    servers = _decode_nodes(cursor, "server_count", MAX_SERVERS)
    near = _decode_nodes(cursor, "near_count", MAX_NEAR)
    return SubscribeInterest(Wants(wants), bool(serves), servers, near)


INTEREST_CODECS: Final = (Codec(SubscribeInterest, _encode, _decode),)
