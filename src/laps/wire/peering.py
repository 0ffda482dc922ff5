"""The control messages of the LAPS peering document, and the bytes behind their common header.

`control.py` frames them. It goes by the table at the end of this file, so that a peer that chose
the extensions is read with a larger table and nothing else changes.
"""

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import starmap
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from msgspec import Struct

from laps.errors import InvalidEncoding
from laps.types import (
    AnnounceInfo,
    DataDirection,
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    PeerMode,
    SnsId,
    SubscribeInfo,
    TrackHash,
    path_item,
)
from laps.wire.buffer import Cursor, encode_varint


class MessageType(IntEnum):
    """The common header's message types. 3 is the data object's and never a control message."""

    CONNECT = 1
    CONNECT_RESPONSE = 2
    NODE_INFO_ADV = 4
    NODE_INFO_WD = 5
    SUBSCRIBE_INFO_ADV = 6
    SUBSCRIBE_INFO_WD = 7
    ANNOUNCE_INFO_ADV = 8
    ANNOUNCE_INFO_WD = 9
    SUBSCRIBE_NODE_SET_ADV = 10
    SUBSCRIBE_NODE_SET_WD = 11


class ResponseCode(IntEnum):
    """How the peer that was dialled answers CONNECT."""

    OK = 0
    CONNECTION_ERROR = 1
    NOT_AUTHORIZED = 2
    PEERING_MODE_NOT_ALLOWED = 3


# --- messages --------------------------------------------------------------------------------


class Message(Struct, frozen=True):
    """A control message, the document's or an extension's: a value that knows its type.

    There are many: a struct is made in less time than a frozen dataclass.
    """

    message_type: ClassVar[IntEnum]


class Connect(Message, frozen=True):
    """The first message, from the peer that dialled."""

    message_type = MessageType.CONNECT
    peer_mode: PeerMode
    data_direction: DataDirection
    node_info: NodeInfo


class ConnectResponse(Message, frozen=True):
    """The first message from the peer that was dialled."""

    message_type = MessageType.CONNECT_RESPONSE
    response_code: ResponseCode | int
    """A code this edition does not know stays a number: any but 0 is an error."""
    node_info: NodeInfo | None
    """Present exactly when the code is 0."""


class NodeInfoAdv(Message, frozen=True):
    """A node can be reached by the sender."""

    message_type = MessageType.NODE_INFO_ADV
    node_info: NodeInfo


class NodeInfoWd(Message, frozen=True):
    """A node can no longer be reached by the sender."""

    message_type = MessageType.NODE_INFO_WD
    node_info: NodeInfo


class SubscribeInfoAdv(Message, frozen=True):
    """An s-relay has a subscriber for a track."""

    message_type = MessageType.SUBSCRIBE_INFO_ADV
    subscribe_info: SubscribeInfo


class SubscribeInfoWd(Message, frozen=True):
    """An s-relay has no subscriber left for a track."""

    message_type = MessageType.SUBSCRIBE_INFO_WD
    subscribe_info: SubscribeInfo


class AnnounceInfoAdv(Message, frozen=True):
    """A Stub has a publisher for a namespace or a track."""

    message_type = MessageType.ANNOUNCE_INFO_ADV
    announce_info: AnnounceInfo


class AnnounceInfoWd(Message, frozen=True):
    """A Stub has no publisher left for a namespace or a track."""

    message_type = MessageType.ANNOUNCE_INFO_WD
    announce_info: AnnounceInfo


class SubscribeNodeSetAdv(Message, frozen=True):
    """Data that carries this SNS id is for these s-relays."""

    message_type = MessageType.SUBSCRIBE_NODE_SET_ADV
    sns_id: SnsId
    nodes: tuple[NodeId, ...]


class SubscribeNodeSetWd(Message, frozen=True):
    """No more data will carry this SNS id."""

    message_type = MessageType.SUBSCRIBE_NODE_SET_WD
    sns_id: SnsId


# --- bodies ----------------------------------------------------------------------------------
# An encoder raises InvalidEncoding too, from the checks it shares with its decoder; `encode`
# turns that into our own fault.

_Enum = TypeVar("_Enum", bound=IntEnum)


def _decode_enum(kind: type[_Enum], value: int, field: str) -> _Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.name.lower()}" for member in kind)
        raise InvalidEncoding(f"{field} {value} is unknown; known: {known}") from None


# node_info
# id(8) | type(1) | mode(1), in CONNECT only | contact_len(var-int) | contact(contact_len)
# | longitude(8) | latitude(8) | node_path [ id(8) | srtt_us(8) ], to the end of the message

_NODE = struct.Struct(">QB")
_POSITION = struct.Struct(">dd")
_PATH_ITEM = struct.Struct(">QQ")

# A name of the DNS with a port, four times over: a contact is where to dial, and no story.
MAX_CONTACT_BYTES: Final = 1024
# Far more than any network is wide. One that is longer ends here, as if it led nowhere.
MAX_PATH_NODES: Final = 255

# So many nodes are remembered as they were written last.
MOST_REMEMBERED: Final = 4096


def _check_contact(length: int) -> None:
    if length > MAX_CONTACT_BYTES:
        problem = f"{length} bytes are more than the {MAX_CONTACT_BYTES} of an address"
        raise InvalidEncoding(f"contact: {problem}")


def _check_path(length: int) -> None:
    if length > MAX_PATH_NODES:
        raise InvalidEncoding(f"node_path: {length} nodes are more than {MAX_PATH_NODES}")


def _check_position(longitude: float, latitude: float) -> None:
    # Written so that NaN fails as well.
    if not -180 <= longitude <= 180:
        raise InvalidEncoding(f"longitude {longitude} is outside -180 to 180")
    if not -90 <= latitude <= 90:
        raise InvalidEncoding(f"latitude {latitude} is outside -90 to 90")


@lru_cache(maxsize=MOST_REMEMBERED)  # each peer is told the same of a node
def encode_node_info(info: NodeInfo, mode: bytes = b"") -> bytes:
    """What is said of a node; `mode` stands after the type, in CONNECT alone."""
    _check_position(info.longitude, info.latitude)
    contact = info.contact.encode()
    _check_contact(len(contact))
    _check_path(len(info.path))
    return b"".join(
        (
            _NODE.pack(info.id, info.type),
            mode,
            encode_varint(len(contact)),
            contact,
            _POSITION.pack(info.longitude, info.latitude),
            *(_PATH_ITEM.pack(item.node_id, item.srtt_us) for item in info.path),
        )
    )


def decode_node_info(cursor: Cursor) -> NodeInfo:
    """What `encode_node_info` wrote, to the end of the bytes."""
    start = cursor.offset
    cursor.take(_NODE.size, "id and type")
    cursor.take(cursor.varint("contact_len"), "contact")
    cursor.take(_POSITION.size, "longitude and latitude")
    fields = _decode_node(bytes(cursor.view[start : cursor.offset]))
    return NodeInfo(*fields, _decode_path(cursor))


@lru_cache(maxsize=MOST_REMEMBERED)  # each neighbour says the same of a node, but for the path
def _decode_node(data: bytes) -> tuple[NodeId, NodeType, str, float, float]:
    cursor = Cursor(memoryview(data), whole=True)
    node_id, number = _NODE.unpack(cursor.take(_NODE.size, "id and type"))
    node_type = _decode_enum(NodeType, number, "node type")
    return node_id, node_type, *_decode_place(cursor)


def _decode_place(cursor: Cursor) -> tuple[str, float, float]:
    contact_len = cursor.varint("contact_len")
    _check_contact(contact_len)
    try:
        contact = str(cursor.take(contact_len, "contact"), "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidEncoding(f"contact is not UTF-8 at its byte {error.start}") from None
    longitude, latitude = _POSITION.unpack(cursor.take(_POSITION.size, "longitude and latitude"))
    _check_position(longitude, latitude)
    return contact, longitude, latitude


def _decode_path(cursor: Cursor) -> tuple[NodePathItem, ...]:
    if odd := cursor.remaining % _PATH_ITEM.size:
        raise InvalidEncoding(f"node_path is not a multiple of 16 bytes: {odd} left over")
    _check_path(cursor.remaining // _PATH_ITEM.size)
    return tuple(starmap(path_item, _PATH_ITEM.iter_unpack(cursor.rest())))


# CONNECT
# peer_mode(1) | node_info with mode


def _encode_connect(message: Connect) -> bytes:
    mode = struct.pack(">B", message.data_direction)
    return struct.pack(">B", message.peer_mode) + encode_node_info(message.node_info, mode)


def _decode_connect(cursor: Cursor) -> Connect:
    peer_mode = _decode_enum(PeerMode, cursor.u8("peer_mode"), "peer mode")
    node_id = NodeId(cursor.u64("id"))
    node_type = _decode_enum(NodeType, cursor.u8("type"), "node type")
    direction = _decode_enum(DataDirection, cursor.u8("mode"), "data direction")
    place = _decode_place(cursor)
    info = NodeInfo(node_id, node_type, *place, _decode_path(cursor))
    return Connect(peer_mode, direction, info)


# CONNECT_RESPONSE
# response_code(2) | node_info, if response_code is 0


_RESPONSE_CODES = frozenset(ResponseCode)


def _check_response(code: int, has_node_info: bool) -> None:
    if code == ResponseCode.OK and not has_node_info:
        raise InvalidEncoding("response code 0 needs the node information")
    if code != ResponseCode.OK and has_node_info:
        raise InvalidEncoding(f"response code {code} goes without node information")


def _encode_connect_response(message: ConnectResponse) -> bytes:
    _check_response(message.response_code, message.node_info is not None)
    code = struct.pack(">H", message.response_code)
    return code if message.node_info is None else code + encode_node_info(message.node_info)


def _decode_connect_response(cursor: Cursor) -> ConnectResponse:
    code = cursor.u16("response_code")
    _check_response(code, cursor.remaining > 0)
    if code == ResponseCode.OK:
        return ConnectResponse(ResponseCode.OK, decode_node_info(cursor))
    return ConnectResponse(ResponseCode(code) if code in _RESPONSE_CODES else code, None)


# NODE_INFO_ADV, NODE_INFO_WD
# node_info


def _encode_node(message: NodeInfoAdv | NodeInfoWd) -> bytes:
    return encode_node_info(message.node_info)


# SUBSCRIBE_INFO_ADV, SUBSCRIBE_INFO_WD
# sequence(2) | source_node_id(8) | namespace_hash(8) | name_hash(8) | full_name_hash(8)
# | subscribe_data, to the end of the message

_SUBSCRIBE_INFO = struct.Struct(">HQQQQ")


def _encode_subscribe(message: SubscribeInfoAdv | SubscribeInfoWd) -> bytes:
    info, track = message.subscribe_info, message.subscribe_info.track_hash
    hashes = (track.namespace_hash, track.name_hash, track.full_name_hash)
    return b"".join(
        (_SUBSCRIBE_INFO.pack(info.sequence, info.source_node_id, *hashes), info.subscribe_data)
    )


def _decode_subscribe_info(cursor: Cursor) -> SubscribeInfo:
    fixed = cursor.take(_SUBSCRIBE_INFO.size, "sequence, source_node_id and track_hash")
    sequence, source, *hashes = _SUBSCRIBE_INFO.unpack(fixed)
    return SubscribeInfo(sequence, NodeId(source), TrackHash(*hashes), cursor.rest())


# ANNOUNCE_INFO_ADV, ANNOUNCE_INFO_WD
# source_node_id(8) | namespace_tuple_hashes [ tuple_hash(8) ] | name_hash(8), the last 8 bytes


def _encode_announce(message: AnnounceInfoAdv | AnnounceInfoWd) -> bytes:
    info = message.announce_info
    hashes = (*info.namespace_hashes, info.name_hash)
    return struct.pack(f">Q{len(hashes)}Q", info.source_node_id, *hashes)


def _decode_announce_info(cursor: Cursor) -> AnnounceInfo:
    source = NodeId(cursor.u64("source_node_id"))
    hashes = cursor.u64s("track_full_name_hash")
    if not hashes:
        raise InvalidEncoding("the message ends before name_hash")
    return AnnounceInfo(source, hashes[:-1], hashes[-1])


# SUBSCRIBE_NODE_SET_ADV
# id(4) | nodes [ node_id(8) ], to the end of the message


def _check_sns_id(sns_id: int) -> SnsId:
    if sns_id == 0:
        raise InvalidEncoding("SNS id 0 means no set: ids start at 1")
    return SnsId(sns_id)


def _encode_node_set_adv(message: SubscribeNodeSetAdv) -> bytes:
    _check_sns_id(message.sns_id)
    return struct.pack(f">I{len(message.nodes)}Q", message.sns_id, *message.nodes)


def _decode_node_set_adv(cursor: Cursor) -> SubscribeNodeSetAdv:
    sns_id = _check_sns_id(cursor.u32("id"))
    return SubscribeNodeSetAdv(sns_id, tuple(map(NodeId, cursor.u64s("nodes"))))


# SUBSCRIBE_NODE_SET_WD
# id(4)


def _encode_node_set_wd(message: SubscribeNodeSetWd) -> bytes:
    return struct.pack(">I", _check_sns_id(message.sns_id))


def _decode_node_set_wd(cursor: Cursor) -> SubscribeNodeSetWd:
    return SubscribeNodeSetWd(_check_sns_id(cursor.u32("id")))


# --- the table -------------------------------------------------------------------------------


class Codec(NamedTuple):
    """How the body of one message is written and read."""

    message: type[Message]
    encode: Callable[[Any], bytes]
    """The body, or InvalidEncoding."""
    decode: Callable[[Cursor], Message]
    """The message, from a cursor over the whole body."""
    recurs: bool = False
    """Whether the same bytes come again: from another neighbour, or when a session begins anew."""


CODECS: Mapping[int, Codec] = {
    codec.message.message_type: codec
    for codec in (
        Codec(Connect, _encode_connect, _decode_connect),
        Codec(ConnectResponse, _encode_connect_response, _decode_connect_response),
        Codec(
            NodeInfoAdv,
            _encode_node,
            lambda body: NodeInfoAdv(decode_node_info(body)),
            recurs=True,
        ),
        Codec(
            NodeInfoWd, _encode_node, lambda body: NodeInfoWd(decode_node_info(body)), recurs=True
        ),
        Codec(
            SubscribeInfoAdv,
            _encode_subscribe,
            lambda body: SubscribeInfoAdv(_decode_subscribe_info(body)),
            recurs=True,
        ),
        Codec(
            SubscribeInfoWd,
            _encode_subscribe,
            lambda body: SubscribeInfoWd(_decode_subscribe_info(body)),
            recurs=True,
        ),
        Codec(
            AnnounceInfoAdv,
            _encode_announce,
            lambda body: AnnounceInfoAdv(_decode_announce_info(body)),
        ),
        Codec(
            AnnounceInfoWd,
            _encode_announce,
            lambda body: AnnounceInfoWd(_decode_announce_info(body)),
        ),
        Codec(SubscribeNodeSetAdv, _encode_node_set_adv, _decode_node_set_adv),
        Codec(SubscribeNodeSetWd, _encode_node_set_wd, _decode_node_set_wd),
    )
}
