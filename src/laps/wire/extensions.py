"""The control messages that only a peer that chose ALPN `laps-x1` ever sees.

`EXTENDED_CODECS` is the document's table with these added. Whatever has no fixed size has its count
or its length in front, and a count is checked against the bytes that are there.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from laps.errors import InvalidEncoding
from laps.types import (
    MAX_ADDRESS_LENGTH,
    NamespaceInfo,
    NodeId,
    NodeMetrics,
    Reachability,
    SnsId,
    TrackKey,
)
from laps.wire.buffer import Cursor, Incomplete, decode_varint, encode_varint
from laps.wire.extension_fields import (
    ExtensionType,
    check_fraction,
    check_most,
    decode_count,
    decode_text,
    encode_bytes,
    encode_text,
)
from laps.wire.interest import INTEREST_CODECS
from laps.wire.metric_fields import MetricFields, decode_metric_fields, encode_metric_fields
from laps.wire.node_lists import NODE_LIST_CODECS
from laps.wire.peering import CODECS, Codec, Message
from laps.wire.policy import POLICY_CODECS, PolicyRefusal

# MoQT lets a namespace have 32 parts and a full track name 4096 bytes.
MAX_NAMESPACE_PARTS: Final = 32
MAX_FULL_NAME_LENGTH: Final = 4096

# A region and a tag are words that an operator types, and every relay holds those of every node.
MAX_REGION_LENGTH: Final = 64
MAX_TAG_LENGTH: Final = 64
MAX_TAGS: Final = 32

# A node measures its neighbours and a few more, not the network: all of it takes 6 kB.
MAX_REACHABILITY: Final = 256
# Nobody tries more alternatives than this one after the other.
MAX_BEST_VIAS: Final = 16

# A second of a track is some dozens of streams or datagrams; what is left out is sent again.
MAX_HAVE: Final = 1000

# What is longer is read by nobody: a token of a relay has some hundred bytes.
MAX_TOKEN_LENGTH: Final = 8192

# Further than any network of relays is wide: what goes round in a circle ends.
MAX_HOPS: Final = 32


# --- messages --------------------------------------------------------------------------------


class Authorization(Message, frozen=True):
    """The sender proves who it is: right after CONNECT, or after CONNECT_RESPONSE with code 0."""

    message_type = ExtensionType.AUTHORIZATION
    token: bytes


class NodeMetricsAdv(Message, frozen=True):
    """How a node is doing; the newest word replaces the one before, so there is no withdrawal."""

    message_type = ExtensionType.NODE_METRICS
    node_metrics: NodeMetrics


class NamespaceInfoAdv(Message, frozen=True):
    """A node has a publisher for a namespace or a track."""

    message_type = ExtensionType.NAMESPACE_INFO_ADV
    namespace_info: NamespaceInfo


class NamespaceInfoWd(Message, frozen=True):
    """A node has no publisher left for a namespace or a track."""

    message_type = ExtensionType.NAMESPACE_INFO_WD
    namespace_info: NamespaceInfo


class GoAway(Message, frozen=True):
    """The sender is about to leave: use other ways."""

    message_type = ExtensionType.GOAWAY
    grace_ms: int
    """It closes its connections after this long."""
    contact: str = ""
    """host:port to dial instead; empty where the sender knows of none."""


class RelayRequest(Message, frozen=True):
    """A control message of MoQT draft 16 for a node that need not be a peer."""

    message_type = ExtensionType.RELAY_REQUEST
    hops: int
    """How many more it may take."""
    source_node_id: NodeId
    target_node_id: NodeId
    request_id: int
    """The source's own; 0 where no answer is wanted."""
    payload: bytes


class RelayResponse(Message, frozen=True):
    """The answer to a request, for the node that asked."""

    message_type = ExtensionType.RELAY_RESPONSE
    hops: int
    source_node_id: NodeId
    target_node_id: NodeId
    request_id: int
    """As in the request."""
    payload: bytes


class HaveKind(IntEnum):
    """How much of something a node has."""

    ALL = 0
    "A stream, to its end."
    ARRIVING = 1
    "A stream that goes on arriving."
    BROKEN = 2
    "A stream that broke off: what comes before `number`."
    DATAGRAM = 3
    "The object `number`, in a datagram."
    BEFORE = 4
    "All that came before the group, or was not missing."


# So many requests for repair are remembered, as they were read.
MOST_REMEMBERED: Final = 64

_HAVE_KINDS: Final = tuple(HaveKind)


class Have(NamedTuple):
    """What a node has of a track, so that it is not sent again."""

    kind: HaveKind
    group: int
    subgroup: int
    number: int


class RepairRequest(Message, frozen=True):
    """A relay on the way of a track is gone: send what is missing to the source of this."""

    message_type = ExtensionType.REPAIR_REQUEST
    hops: int
    source_node_id: NodeId
    target_node_id: NodeId
    request_id: int
    full_name_hash: TrackKey
    age_ms: int
    """What came before that was not missing."""
    have: tuple[Have, ...]


class RepairResponse(Message, frozen=True):
    """What was asked for is on its way."""

    message_type = ExtensionType.REPAIR_RESPONSE
    hops: int
    source_node_id: NodeId
    target_node_id: NodeId
    request_id: int
    """As in the request."""
    sent: int
    """So many streams and datagrams; 0: nothing is missing that is here."""
    last_hop: NodeId
    """The node that what is live comes by to the one that asked, as far as this one knows; or 0."""


class SetSilent(Message, frozen=True):
    """Nothing is heard of where the data of a set comes from: some of it may be missing."""

    message_type = ExtensionType.SET_SILENT
    sns_id: SnsId


class NodeSilent(Message, frozen=True):
    """Nothing is heard of a peer of the sender's: who has an idle link to it had better ask it."""

    message_type = ExtensionType.NODE_SILENT
    node_id: NodeId


class Urgency(IntEnum):
    """How much it matters that whoever sends something waits."""

    NONE = 0
    "It may go on."
    PRESSED = 1
    "Everything that it goes to has more to send than is good."
    CROWDED = 2
    "Something that it goes to reads, and is about to lose some of it."


class SetPressed(Message, frozen=True):
    """How it is with what is sent under a set; said again as long as it holds."""

    message_type = ExtensionType.SET_PRESSED
    sns_id: SnsId
    urgency: Urgency


Travelling = RelayRequest | RelayResponse | RepairRequest | RepairResponse | PolicyRefusal
"""What goes from hop to hop to a node that need not be a peer."""


# --- bodies ----------------------------------------------------------------------------------


# AUTHORIZATION
# token(to the end)


def _check_token(length: int) -> None:
    check_most("the token's length", length, MAX_TOKEN_LENGTH)
    if length == 0:
        raise InvalidEncoding("the token is empty")


def _encode_authorization(message: Authorization) -> bytes:
    _check_token(len(message.token))
    return message.token


def _decode_authorization(cursor: Cursor) -> Authorization:
    _check_token(cursor.remaining)
    return Authorization(bytes(cursor.rest()))


# NODE_METRICS
# sequence(2) | source_node_id(8) | load(8) | capacity_bps(8) | egress_bps(8)
# | region_len(var-int) | region(region_len)
# | tag_count(var-int) | tags [ tag_len(var-int) | tag(tag_len) ]
# | reachability_count(var-int) | reachability [ node_id(8) | srtt_us(8) | loss(8) ]
# | best_via_count(var-int) | best_vias [ node_id(8) ]
# | client_address_len(var-int) | client_address(client_address_len)
# | fields(to the end): see `metric_fields`

_METRICS = struct.Struct(">HQdQQ")
_REACHABILITY = struct.Struct(">QQd")


def _encode_node_metrics(message: NodeMetricsAdv) -> bytes:
    metrics = message.node_metrics
    check_fraction(metrics.load, "load")
    check_most("tag_count", len(metrics.tags), MAX_TAGS)
    check_most("reachability_count", len(metrics.reachability), MAX_REACHABILITY)
    check_most("best_via_count", len(metrics.best_vias), MAX_BEST_VIAS)
    for item in metrics.reachability:
        check_fraction(item.loss, "loss")
    return b"".join(
        (
            _METRICS.pack(
                metrics.sequence,
                metrics.source_node_id,
                metrics.load,
                metrics.capacity_bps,
                metrics.egress_bps,
            ),
            encode_text(metrics.region, "region", MAX_REGION_LENGTH),
            encode_varint(len(metrics.tags)),
            *(encode_text(tag, "tag", MAX_TAG_LENGTH) for tag in metrics.tags),
            encode_varint(len(metrics.reachability)),
            *(
                _REACHABILITY.pack(item.node_id, item.srtt_us, item.loss)
                for item in metrics.reachability
            ),
            encode_varint(len(metrics.best_vias)),
            struct.pack(f">{len(metrics.best_vias)}Q", *metrics.best_vias),
            encode_text(metrics.client_address, "client_address", MAX_ADDRESS_LENGTH),
            encode_metric_fields(
                MetricFields(metrics.coordinates, metrics.candidates, metrics.full_links)
            ),
        )
    )


def _decode_node_metrics(cursor: Cursor) -> NodeMetricsAdv:
    fixed = cursor.take(_METRICS.size, "sequence, source_node_id, load, capacity and egress")
    sequence, source, load, capacity_bps, egress_bps = _METRICS.unpack(fixed)
    check_fraction(load, "load")
    region = decode_text(cursor, "region", MAX_REGION_LENGTH)
    tag_count = decode_count(cursor, "tag_count", 1, MAX_TAGS)
    tags = tuple(decode_text(cursor, "tag", MAX_TAG_LENGTH) for _ in range(tag_count))
    return NodeMetricsAdv(
        NodeMetrics(
            sequence,
            NodeId(source),
            load,
            capacity_bps,
            egress_bps,
            region,
            tags,
            _decode_reachability(cursor),
            _decode_best_vias(cursor),
            decode_text(cursor, "client_address", MAX_ADDRESS_LENGTH),
            *decode_metric_fields(cursor),
        )
    )


def _decode_reachability(cursor: Cursor) -> tuple[Reachability, ...]:
    size = _REACHABILITY.size
    count = decode_count(cursor, "reachability_count", size, MAX_REACHABILITY)
    items = tuple(
        Reachability(NodeId(node_id), srtt_us, loss)
        for node_id, srtt_us, loss in _REACHABILITY.iter_unpack(
            cursor.take(count * size, "reachability")
        )
    )
    for item in items:
        check_fraction(item.loss, "loss")
    return items


def _decode_best_vias(cursor: Cursor) -> tuple[NodeId, ...]:
    count = decode_count(cursor, "best_via_count", 8, MAX_BEST_VIAS)
    return struct.unpack(f">{count}Q", cursor.take(count * 8, "best_vias"))


# NAMESPACE_INFO_ADV, NAMESPACE_INFO_WD
# sequence(2) | source_node_id(8)
# | part_count(var-int) | namespace [ part_len(var-int) | part(part_len) ]
# | has_name(1) | name_len(var-int) | name(name_len), if has_name is 1

_NAMESPACE_INFO = struct.Struct(">HQ")


def check_full_name(namespace: tuple[bytes, ...], name: bytes | None) -> None:
    """Raise InvalidEncoding for a name that namespace information cannot carry."""
    check_most("part_count", len(namespace), MAX_NAMESPACE_PARTS)
    size = sum(map(len, namespace)) + len(name or b"")
    check_most("the full name's length", size, MAX_FULL_NAME_LENGTH)


def _encode_namespace(message: NamespaceInfoAdv | NamespaceInfoWd) -> bytes:
    info = message.namespace_info
    check_full_name(info.namespace, info.name)
    return b"".join(
        (
            _NAMESPACE_INFO.pack(info.sequence, info.source_node_id),
            encode_varint(len(info.namespace)),
            *map(encode_bytes, info.namespace),
            b"\0" if info.name is None else b"\1" + encode_bytes(info.name),
        )
    )


def _decode_name(cursor: Cursor, field: str) -> bytes:
    size = cursor.varint(f"{field}_len")
    check_most(f"{field}_len", size, MAX_FULL_NAME_LENGTH)
    return bytes(cursor.take(size, field))


def _decode_namespace_info(cursor: Cursor) -> NamespaceInfo:
    sequence, source = cursor.u16("sequence"), NodeId(cursor.u64("source_node_id"))
    count = decode_count(cursor, "part_count", 1, MAX_NAMESPACE_PARTS)
    namespace = tuple(_decode_name(cursor, "part") for _ in range(count))
    name = None
    if has_name := cursor.u8("has_name"):
        if has_name != 1:
            raise InvalidEncoding(f"has_name {has_name} is neither 0 nor 1")
        name = _decode_name(cursor, "name")
    check_full_name(namespace, name)
    return NamespaceInfo(sequence, source, namespace, name)


# GOAWAY
# grace_ms(4) | contact_len(var-int) | contact(contact_len)


def _encode_go_away(message: GoAway) -> bytes:
    contact = encode_text(message.contact, "contact", MAX_ADDRESS_LENGTH)
    return struct.pack(">I", message.grace_ms) + contact


def _decode_go_away(cursor: Cursor) -> GoAway:
    return GoAway(cursor.u32("grace_ms"), decode_text(cursor, "contact", MAX_ADDRESS_LENGTH))


# RELAY_REQUEST, RELAY_RESPONSE
# hops(1) | source_node_id(8) | target_node_id(8) | request_id(4) | payload(to the end)

_RELAY = struct.Struct(">BQQI")


def _encode_relay(message: RelayRequest | RelayResponse) -> bytes:
    fixed = _RELAY.pack(
        message.hops, message.source_node_id, message.target_node_id, message.request_id
    )
    return fixed + message.payload


def _decode_relay(cursor: Cursor) -> tuple[int, NodeId, NodeId, int, bytes]:
    fixed = cursor.take(_RELAY.size, "hops, source_node_id, target_node_id and request_id")
    hops, source, target, request_id = _RELAY.unpack(fixed)
    return hops, NodeId(source), NodeId(target), request_id, bytes(cursor.rest())


# REPAIR_REQUEST
# hops(1) | source_node_id(8) | target_node_id(8) | request_id(4) | full_name_hash(8) | age_ms(4)
# | have_count(var-int) | have [ kind(1) | group(var-int) | subgroup(var-int) | number(var-int) ]
#
# REPAIR_RESPONSE
# hops(1) | source_node_id(8) | target_node_id(8) | request_id(4) | sent(4) | last_hop(8)

_REPAIR = struct.Struct(">BQQIQI")
_REPAIRED = struct.Struct(">BQQIIQ")
_SHORT_HAVE = struct.Struct(">BBBB")


def _encode_repair(message: RepairRequest) -> bytes:
    check_most("have_count", len(message.have), MAX_HAVE)
    fixed = _REPAIR.pack(
        message.hops,
        message.source_node_id,
        message.target_node_id,
        message.request_id,
        message.full_name_hash,
        message.age_ms,
    )
    # A kind is a byte, as any varint below 64.
    numbers = list(chain.from_iterable(message.have))
    are_small = min(numbers, default=0) >= 0 and max(numbers, default=0) < 0x40
    items = bytes(numbers) if are_small else b"".join(map(encode_varint, numbers))
    return b"".join((fixed, encode_varint(len(message.have)), items))


def _decode_repair(cursor: Cursor) -> RepairRequest:
    hops, source, target, request_id, key, age_ms = _REPAIR.unpack(
        cursor.take(_REPAIR.size, "hops, node ids, request_id, full_name_hash and age_ms")
    )
    count = decode_count(cursor, "have_count", 4, MAX_HAVE)
    have, size = _decode_have(bytes(cursor.view[cursor.offset :]), count)
    cursor.offset += size
    return RepairRequest(
        hops, NodeId(source), NodeId(target), request_id, TrackKey(key), age_ms, have
    )


@lru_cache(maxsize=MOST_REMEMBERED)
def _decode_have(view: bytes, count: int) -> tuple[tuple[Have, ...], int]:
    """All at once, and how long they are: there may be hundreds.

    They come again: who asks does so more than once, and in a simulation relays on the way read
    them in one process.
    """
    have: list[Have] = []
    offset = 0
    try:
        for _ in range(count):
            kind, group, subgroup, number = _SHORT_HAVE.unpack_from(view, offset)
            if kind >= len(_HAVE_KINDS):
                raise InvalidEncoding(f"kind {kind} of what a node has is not known")
            if (group | subgroup | number) < 0x40:  # a byte each, as most are
                offset += 4
            else:
                group, offset = decode_varint(view, offset + 1)
                subgroup, offset = decode_varint(view, offset)
                number, offset = decode_varint(view, offset)
            have.append(Have(_HAVE_KINDS[kind], group, subgroup, number))
    except (Incomplete, struct.error):
        raise InvalidEncoding("the message ends inside have") from None
    return tuple(have), offset


def _encode_repaired(message: RepairResponse) -> bytes:
    return _REPAIRED.pack(
        message.hops,
        message.source_node_id,
        message.target_node_id,
        message.request_id,
        message.sent,
        message.last_hop,
    )


def _decode_repaired(cursor: Cursor) -> RepairResponse:
    fixed = cursor.take(_REPAIRED.size, "hops, node ids, request_id, sent and last_hop")
    hops, source, target, request_id, sent, last_hop = _REPAIRED.unpack(fixed)
    return RepairResponse(hops, NodeId(source), NodeId(target), request_id, sent, NodeId(last_hop))


# SET_SILENT
# sns_id(4)


def _decode_set_silent(cursor: Cursor) -> SetSilent:
    return SetSilent(SnsId(cursor.u32("sns_id")))


# NODE_SILENT
# node_id(8)


def _decode_node_silent(cursor: Cursor) -> NodeSilent:
    return NodeSilent(NodeId(cursor.u64("node_id")))


# SET_PRESSED
# sns_id(4) urgency(1)


def _encode_set_pressed(message: SetPressed) -> bytes:
    return struct.pack(">IB", message.sns_id, message.urgency)


def _decode_set_pressed(cursor: Cursor) -> SetPressed:
    sns_id, urgency = SnsId(cursor.u32("sns_id")), cursor.u8("urgency")
    if urgency > max(Urgency):
        raise InvalidEncoding(f"urgency {urgency} is not known")
    return SetPressed(sns_id, Urgency(urgency))


# --- the table -------------------------------------------------------------------------------

EXTENDED_CODECS: Mapping[int, Codec] = {
    **CODECS,
    **{
        codec.message.message_type: codec
        for codec in (
            Codec(NodeMetricsAdv, _encode_node_metrics, _decode_node_metrics),
            Codec(
                NamespaceInfoAdv,
                _encode_namespace,
                lambda body: NamespaceInfoAdv(_decode_namespace_info(body)),
                recurs=True,
            ),
            Codec(
                NamespaceInfoWd,
                _encode_namespace,
                lambda body: NamespaceInfoWd(_decode_namespace_info(body)),
                recurs=True,
            ),
            Codec(GoAway, _encode_go_away, _decode_go_away),
            Codec(RelayRequest, _encode_relay, lambda body: RelayRequest(*_decode_relay(body))),
            Codec(RelayResponse, _encode_relay, lambda body: RelayResponse(*_decode_relay(body))),
            Codec(RepairRequest, _encode_repair, _decode_repair),
            Codec(RepairResponse, _encode_repaired, _decode_repaired),
            Codec(SetSilent, lambda message: struct.pack(">I", message.sns_id), _decode_set_silent),
            Codec(SetPressed, _encode_set_pressed, _decode_set_pressed),
            Codec(Authorization, _encode_authorization, _decode_authorization),
            Codec(
                NodeSilent, lambda message: struct.pack(">Q", message.node_id), _decode_node_silent
            ),
            *POLICY_CODECS,
            *INTEREST_CODECS,
            *NODE_LIST_CODECS,
        )
    },
}
