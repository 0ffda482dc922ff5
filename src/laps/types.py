"""The values every room speaks of: nodes, tracks, addresses. No behaviour to speak of."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple, NewType, Self

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from laps.errors import InvalidText

# --- nodes -----------------------------------------------------------------------------------

NodeId = NewType("NodeId", int)
"""64 bits that name a node; the document reserves none of them, 0:0 included."""

SnsId = NewType("SnsId", int)
"""32 bits that name a subscriber node set within one session, from 1; 0 means no set."""


def parse_node_id(text: str) -> NodeId:
    """Read `high:low`, each half a 32-bit number or two 16-bit numbers with a dot."""
    high, colon, low = text.partition(":")
    if not text:
        raise InvalidText("node id", text, "is empty: write high:low, like 1.2:1234")
    if not colon:
        raise InvalidText("node id", text, "needs a colon: high:low, like 1.2:1234")
    if ":" in low:
        raise InvalidText("node id", text, "has two colons or more: write high:low, like 1.2:1234")
    return NodeId(_parse_half(text, "high", high) << 32 | _parse_half(text, "low", low))


def _parse_half(text: str, which: str, half: str) -> int:
    parts = half.split(".")
    if not half:
        raise InvalidText("node id", text, f"has no {which} half: write high:low, like 1.2:1234")
    if len(parts) > 2:
        problem = f"has too many dots in its {which} half: it is one number, or two like 1.2"
        raise InvalidText("node id", text, problem)
    bits = 32 // len(parts)
    value = 0
    for part in parts:
        # str.isdigit alone also takes the digits of other scripts.
        if not (part.isascii() and part.isdigit()):
            problem = (
                f"has a {which} half that is not made of digits 0-9: write it like 1.2 or 1234"
            )
            raise InvalidText("node id", text, problem)
        # Ten digits hold 32 bits; int() itself refuses numbers of thousands of digits.
        digits = part.lstrip("0") or "0"
        if len(digits) > 10 or int(digits) >= 1 << bits:
            problem = (
                f"has a number above {(1 << bits) - 1} in its {which} half: it has {bits} bits"
            )
            raise InvalidText("node id", text, problem)
        value = value << bits | int(digits)
    return value


def format_node_id(node_id: NodeId) -> str:
    """Write a node id as `high:low`, a half dotted where it exceeds 16 bits."""
    return f"{_format_half(node_id >> 32)}:{_format_half(node_id & 0xFFFF_FFFF)}"


def _format_half(half: int) -> str:
    return f"{half >> 16}.{half & 0xFFFF}" if half > 0xFFFF else str(half)


class NodeType(IntEnum):
    """What kind of relay a node is, as it stands on the wire."""

    VIA = 0
    EDGE = 1
    STUB = 2


class PeerMode(IntEnum):
    """What a peering session is for."""

    CONTROL = 0
    DATA = 1
    BOTH = 2


class DataDirection(IntEnum):
    """Whether the peer that was dialled may send data back on the same connection."""

    UNIDIRECTIONAL = 0
    BIDIRECTIONAL = 1


class NodePathItem(Struct, frozen=True, gc=False):
    """A node that passed node information on."""

    node_id: NodeId
    srtt_us: int
    """Smoothed round trip of the session the information came in by."""


# Ways to most nodes go over the same few links: what is said of each of them is kept once.
path_item: Final = lru_cache(maxsize=8192)(NodePathItem)


_NODE_ID: Final = attrgetter("node_id")
_SRTT_US: Final = attrgetter("srtt_us")


class NodeInfo(Struct, frozen=True, cache_hash=True, gc=False):
    """What a node says about itself, and the way those words came.

    Relays make and compare many of these, so it is a struct. Nothing in it refers back to it: the
    collector need not look at it.
    """

    id: NodeId
    type: NodeType
    contact: str = ""
    """FQDN or IP to reach the node, perhaps a load balancer's."""
    longitude: float = 0.0
    latitude: float = 0.0
    path: tuple[NodePathItem, ...] = ()
    """Empty when it comes from the node itself."""

    @property
    def sum_srtt_us(self) -> int:
        """Round trips along the path, without the session it was received by."""
        return sum(map(_SRTT_US, self.path))

    def passed_on(self, node_id: NodeId, srtt_us: int) -> "NodeInfo":
        """As a node passes it on that received it by a session with this round trip."""
        path = (*self.path, path_item(node_id, srtt_us))
        return NodeInfo(self.id, self.type, self.contact, self.longitude, self.latitude, path)

    def has_passed(self, node_id: NodeId) -> bool:
        """Whether a node has passed it on."""
        return node_id in map(_NODE_ID, self.path)


@dataclass(frozen=True, slots=True)
class Reachability:
    """How well one node reaches another, as it measured."""

    node_id: NodeId
    srtt_us: int
    loss: float
    """The share of packets lost, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """How well a node reaches one that is no peer of its, as its probes found."""

    node_id: NodeId
    rtt_us: int
    """Round trip of a probe, smoothed."""
    loss: float
    """The share of the last probes that nobody answered, 0 to 1."""
    bandwidth_bps: int = 0
    """The path carries so much at least, as a short train of probes showed; 0: not known."""


@dataclass(frozen=True, slots=True)
class FullLink:
    """A link of a node to a peer that carries a good part of what it can."""

    node_id: NodeId
    """The peer."""
    full: float
    """The share of what the link carries at most that is sent on it, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a node is by round trips alone: two nodes are as far apart as their round trip.

    Three dimensions, and a height: what every packet of the node takes before it is under way.
    """

    x_ms: float
    y_ms: float
    z_ms: float
    height_ms: float
    error: float
    """How wrong the node believes them to be, as a share: 1 where it knows nothing yet."""


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """How a node is doing, in its own words: an extension."""

    sequence: int
    """16 bits, raised by the source alone: compare with `sequence_newer`."""
    source_node_id: NodeId
    load: float
    """The share of what it can do that it does, 0 to 1."""
    capacity_bps: int
    """Bits it can send in a second; 0 where nobody said."""
    egress_bps: int
    """Bits it sends in a second, to peers and clients together."""
    region: str = ""
    tags: tuple[str, ...] = ()
    """Words of the operator, for policies to go by."""
    reachability: tuple[Reachability, ...] = ()
    best_vias: tuple[NodeId, ...] = ()
    """The Vias it would be reached by, best first."""
    client_address: str = ""
    """host:port where its clients connect; empty where it takes none, or does not say.

    As it came: who uses it parses it."""
    coordinates: Coordinates | None = None
    candidates: tuple[Candidate, ...] = ()
    """Nodes that are no peers of it, and that it has probed."""
    full_links: tuple[FullLink, ...] = ()
    """Its links that are notably full; of others nobody knows it, or they are not."""


# --- tracks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrackName:
    """The full name of a track: a namespace tuple and a name, both opaque bytes."""

    namespace: tuple[bytes, ...]
    name: bytes


TrackKey = NewType("TrackKey", int)
"""64 bits that stand for a track in every table: the hash of its full name."""


class Location(NamedTuple):
    """An object's place in a track; places sort as the drafts order them."""

    group: int
    object: int


class TrackHash(Struct, frozen=True, cache_hash=True, gc=False):
    """A track as the peering protocol names it, 64 bits each."""

    namespace_hash: int
    name_hash: int
    full_name_hash: TrackKey


def hash_bytes(data: bytes) -> int:
    """XXH3-64 with seed 0: the hash of a name, or of one part of a namespace."""
    return xxh3_64_intdigest(data)


def hash_namespace(namespace: tuple[bytes, ...]) -> int:
    """Hash the whole tuple.

    Each part goes in behind its length, so that ("a", "bc") and ("ab", "c") differ.
    """
    return hash_bytes(b"".join(len(part).to_bytes(4) + part for part in namespace))


def hash_track(track: TrackName) -> TrackHash:
    """Every hash of a full track name."""
    namespace_hash = hash_namespace(track.namespace)
    name_hash = hash_bytes(track.name)
    return TrackHash(namespace_hash, name_hash, full_name_hash(namespace_hash, name_hash))


def full_name_hash(namespace_hash: int, name_hash: int) -> TrackKey:
    """The hash of a track's full name, from those of its namespace and name."""
    return TrackKey(hash_bytes(namespace_hash.to_bytes(8) + name_hash.to_bytes(8)))


def track_alias(full_name_hash: TrackKey) -> int:
    """The MoQT track alias every relay uses: the 62 bits of the hash that a varint holds."""
    return full_name_hash & (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class SubscribeInfo:
    """A subscribe as the s-relay tells it to every control peer."""

    sequence: int
    """16 bits, raised by the s-relay alone: compare with `sequence_newer`."""
    source_node_id: NodeId
    track_hash: TrackHash
    subscribe_data: bytes | memoryview
    """The whole MoQT SUBSCRIBE message. Off the wire it is a view: who keeps it copies it."""


@dataclass(frozen=True, slots=True)
class AnnounceInfo:
    """What a Stub tells its o-relay that it can publish."""

    source_node_id: NodeId
    namespace_hashes: tuple[int, ...]
    """The hash of each part of the namespace, in order."""
    name_hash: int = 0
    """0 where the announce has no name."""


def announce_info(
    node_id: NodeId, namespace: tuple[bytes, ...], name: bytes | None = None
) -> AnnounceInfo:
    """The announce of a namespace, or of one track in it."""
    parts = tuple(hash_bytes(part) for part in namespace)
    return AnnounceInfo(node_id, parts, 0 if name is None else hash_bytes(name))


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace, or a track, that publishers at a node offer: an extension."""

    sequence: int
    """16 bits, raised by the source alone: compare with `sequence_newer`."""
    source_node_id: NodeId
    namespace: tuple[bytes, ...]
    name: bytes | None = None
    """None where everything below the namespace is offered."""


def sequence_newer(a: int, b: int) -> bool:
    """Whether sequence `a` comes after `b` in 16-bit serial arithmetic (RFC 1982).

    Of two numbers exactly half the circle apart RFC 1982 orders neither. Here the larger is newer,
    so that two relays that hold one each come to hold the same.
    """
    distance = a - b & 0xFFFF
    return 0 < distance < 0x8000 or (distance == 0x8000 and a > b)


def next_sequence(last: int | None, seconds: int) -> int:
    """The sequence to say after `last`, or, when that is forgotten, after any before a restart.

    It is the time of day where that is ahead, so a node counts on after it forgot what it said.
    """
    by_clock = seconds & 0xFFFF
    if last is None:
        return by_clock
    following = (last + 1) & 0xFFFF
    ahead = sequence_newer(by_clock, last) and sequence_newer(by_clock, following)
    return by_clock if ahead else following


# --- addresses -------------------------------------------------------------------------------


# A name of the DNS has 253 bytes at most; then a colon and a port.
MAX_HOST_LENGTH: Final = 253

# What peers can be told of a track: words that an operator types, and ways that are longer than any
# network of relays is wide.
MAX_NAME_BYTES: Final = 64
MAX_REGIONS: Final = 64
MAX_VIAS: Final = 32
MAX_ADDRESS_LENGTH: Final = MAX_HOST_LENGTH + 6


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen or to dial."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host:port`, with an IPv6 host in brackets."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            raise InvalidText("address", text, "needs a port: host:port, like 127.0.0.1:33434")
        if not host:
            raise InvalidText("address", text, "needs a host: host:port, like 127.0.0.1:33434")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise InvalidText("address", text, "needs a port from 0 to 65535, like :33434")
        return cls(_parse_host(text, host), int(port))

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of a machine: to listen on, not to dial."""
        ip = _ip(self.host)
        return ip is not None and ip.is_unspecified

    @property
    def is_dialable(self) -> bool:
        """Whether others may be told of it: it means something on another machine, or this one."""
        return bool(self.host and self.port) and not self.is_wildcard and "%" not in self.host

    @property
    def is_loopback(self) -> bool:
        """Whether it is of use on its own machine only."""
        ip = _ip(self.host)
        return self.host == "localhost" if ip is None else ip.is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_in_network(host: str, networks: Sequence[Network]) -> bool:
    """Whether an IP address is in one of some networks.

    A socket for both kinds of addresses writes those of IPv4 as if they were of IPv6.
    """
    if not networks:
        return False
    address = ipaddress.ip_address(host.partition("%")[0])
    plain = getattr(address, "ipv4_mapped", None) or address
    return any(plain in network for network in networks)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parse_host(text: str, host: str) -> str:
    if len(host) > MAX_HOST_LENGTH:
        problem = f"has a host longer than {MAX_HOST_LENGTH}: write it like relay.example:33434"
        raise InvalidText("address", text, problem)
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            problem = "has no IPv6 address in its brackets: write it like [::1]:33434"
            raise InvalidText("address", text, problem) from None
        return host[1:-1]
    if host.count(":") > 1:
        raise InvalidText("address", text, "needs brackets around IPv6: write it like [::1]:33434")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        problem = "has a host that is neither a name nor an IP: write it like relay.example:33434"
        raise InvalidText("address", text, problem)
    if re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            problem = "has a host that is not an IPv4 address: write it like 127.0.0.1:33434"
            raise InvalidText("address", text, problem) from None
    return host
