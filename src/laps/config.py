"""What an operator decides, read from TOML. Every default stands here with its reason.

A key is declared once, as a field: its type carries the bounds and the words that say what would
have been right. The file and the command line go through the same checks:

    config = load_config(Path("laps.toml"))
    config = override(config, {"node.id": "1.2:1234"}, source="--node-id")
"""

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from laps.errors import ConfigError, InvalidText, quote
from laps.files import convert, read_rows, read_toml, refuse, suggest
from laps.types import Address, Network, NodeId, parse_node_id

KIB = 1024
MIB = 1024 * KIB

# --- what a value may be: `files` says how it is declared ------------------------------------


def _parse_node_id(value: object) -> NodeId:
    return parse_node_id(msgspec.convert(value, str))


def _parse_address(value: object) -> Address:
    return Address.parse(msgspec.convert(value, str))


def _parse_place(value: object) -> Address:
    place = _parse_address(value)
    if not place.is_dialable:
        problem = "cannot be dialled: give the host and the port where clients reach a relay"
        raise InvalidText("address", str(place), problem)
    return place


def _parse_peers(value: object) -> tuple[Address, ...]:
    peers = tuple(Address.parse(text) for text in msgspec.convert(value, list[str]))
    for peer in peers:
        if peer.port == 0:
            raise InvalidText("address", str(peer), "cannot be dialled: give the peer's port")
    return peers


class Impairment(msgspec.Struct, frozen=True, kw_only=True):
    """How much worse the path to a peer that we dial is made, both ways."""

    peer: Address
    # One way: a round trip takes twice as long.
    delay_ms: float = 0.0
    # Up to so much more, each datagram its own; none overtakes another.
    jitter_ms: float = 0.0
    # The share of datagrams that never arrive, in each direction.
    drop: float = 0.0
    # So much in each direction, and a quarter of a second of it waits; 0: as much as there is.
    bandwidth_mbit: float = 0.0


_Wait = Annotated[float, Meta(ge=0, le=10_000)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Megabits = Annotated[float, Meta(ge=0, le=100_000)]
_IMPAIRMENT: dict[str, Any] = {
    "delay_ms": _Wait,
    "jitter_ms": _Wait,
    "drop": _Share,
    "bandwidth_mbit": _Megabits,
}
_IMPAIRED = (
    'a table like {"127.0.0.1:40001" = {delay_ms = 40, jitter_ms = 5, drop = 0.02}}: addresses '
    "that are dialled, delays from 0 to 10000, drop from 0 to 1, bandwidth_mbit from 0 to 100000"
)


def _parse_impaired(value: object) -> tuple[Impairment, ...]:
    made = []
    for text, numbers in msgspec.convert(value, dict[str, dict[str, float]]).items():
        peer = Address.parse(text)
        try:
            ipaddress.ip_address(peer.host)
        except ValueError:
            problem = "must be the IP address and port that is dialled"
            raise InvalidText("address", text, problem) from None
        if unknown := sorted(set(numbers) - set(_IMPAIRMENT)):
            problem = f"has {unknown[0]}; known: {', '.join(_IMPAIRMENT)}"
            raise InvalidText("address", text, problem)
        read = {key: msgspec.convert(each, _IMPAIRMENT[key]) for key, each in numbers.items()}
        made.append(Impairment(peer=peer, **read))
    return tuple(made)


def _parse_fingerprints(value: object) -> tuple[tuple[Address, str], ...]:
    made = []
    for text, digest in msgspec.convert(value, dict[str, str]).items():
        plain = digest.replace(":", "").lower()
        if re.fullmatch("[0-9a-f]{64}", plain) is None:
            problem = "is no SHA-256 in hexadecimal: 64 digits, as a relay's ready line prints it"
            raise InvalidText("fingerprint", digest, problem)
        made.append((_parse_address(text), plain))
    return tuple(made)


def _parse_nodes(value: object) -> tuple[tuple[Address, NodeId], ...]:
    nodes = msgspec.convert(value, dict[str, str])
    return tuple((_parse_address(text), parse_node_id(node)) for text, node in nodes.items())


def _parse_networks(value: object) -> tuple[Network, ...]:
    made = []
    for text in msgspec.convert(value, list[str]):
        try:
            made.append(ipaddress.ip_network(text))
        except ValueError:
            problem = "must be an IP address, or a network of them like 192.0.2.0/24"
            raise InvalidText("address", text, problem) from None
    return tuple(made)


def _parse_namespaces(value: object) -> tuple[str, ...]:
    texts = tuple(msgspec.convert(value, list[str]))
    for text in texts:
        if not text or not all(text.split("/")):
            problem = 'is no namespace: write it like "live/news", without empty parts'
            raise InvalidText("namespace", text, problem)
    return texts


def _parse_digits(value: object) -> tuple[str, ...]:
    texts = tuple(text.lower() for text in msgspec.convert(value, list[str]))
    for text in texts:
        if re.fullmatch("[0-9a-f]{1,32}", text) is None:
            problem = "must be 1 to 32 hexadecimal digits, as the names of 16 bytes begin"
            raise InvalidText("id", text, problem)
    return texts


def _parse_url(value: object) -> str:
    text = msgspec.convert(value, str)
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        raise InvalidText("URL", text, "is no URL") from None
    if url.scheme not in ("http", "https") or not host or not text.isascii() or " " in text:
        raise InvalidText("URL", text, "is no URL of HTTPS, like https://media.example/laps")
    if url.username is not None or url.password is not None or url.fragment:
        raise InvalidText("URL", text, "must have no user and no #: both are not sent")
    if url.scheme == "http" and not Address(host, url.port or 80).is_loopback:
        problem = "would send tokens in the clear: write https, or a server on this machine"
        raise InvalidText("URL", text, problem)
    return text


def _parse_path(value: object) -> Path:
    return Path(msgspec.convert(value, Annotated[str, Meta(min_length=1)]))


_NodeId = Annotated[
    NodeId | None,
    Meta(description='a node id in quotes, like "1.2:1234"', extra={"parse": _parse_node_id}),
]
_Address = Annotated[
    Address,
    Meta(description='host:port in quotes, like "[::1]:33434"', extra={"parse": _parse_address}),
]
_Place = Annotated[
    Address | None,
    Meta(
        description='host:port in quotes, like "relay.example:33435"',
        extra={"parse": _parse_place},
    ),
]
_Peers = Annotated[
    tuple[Address, ...],
    Meta(description='a list like ["192.0.2.1:33434"]', extra={"parse": _parse_peers}),
]
_Direction = Annotated[Literal["both", "out"], Meta(description='"both" or "out"')]
_Fingerprints = Annotated[
    tuple[tuple[Address, str], ...],
    Meta(
        description='a table like {"192.0.2.1:33434" = "SHA-256 in hexadecimal"}',
        extra={"parse": _parse_fingerprints},
    ),
]
_Nodes = Annotated[
    tuple[tuple[Address, NodeId], ...],
    Meta(
        description='a table like {"192.0.2.1:33434" = "1.2:1234"}',
        extra={"parse": _parse_nodes},
    ),
]
_Networks = Annotated[
    tuple[Network, ...],
    Meta(description='a list like ["192.0.2.7"]', extra={"parse": _parse_networks}),
]
_Keys = Annotated[
    Path | None,
    Meta(description="the path of a file or folder of keys", extra={"parse": _parse_path}),
]
_Path = Annotated[
    Path | None, Meta(description="the path of a PEM file", extra={"parse": _parse_path})
]
_File = Annotated[Path | None, Meta(description="the path of a file", extra={"parse": _parse_path})]
_Impaired = Annotated[
    tuple[Impairment, ...], Meta(description=_IMPAIRED, extra={"parse": _parse_impaired})
]
_AdminAddress = Annotated[
    Address | None,
    Meta(
        description='host:port in quotes, like "127.0.0.1:33436"', extra={"parse": _parse_address}
    ),
]
# What a header carries as it is: no spaces and nothing that is not ASCII.
_Token = Annotated[
    str, Meta(pattern="^[!-~]*$", description="a string of letters, digits and signs, no spaces")
]
_Role = Annotated[
    Literal["edge", "via", "stub", "control"],
    Meta(description='one of "edge", "via", "stub", "control"'),
]
_Retry = Annotated[
    Literal["auto", "always", "never"], Meta(description='one of "auto", "always", "never"')
]
_String = Annotated[str, Meta(description="a string")]
# In bytes it may be four times as much, and that is the most that other relays take.
_Contact = Annotated[str, Meta(max_length=256, description="a string of up to 256 characters")]
_Strings = Annotated[tuple[str, ...], Meta(description='a list like ["gold", "eu"]')]
_Bits = Annotated[int, Meta(ge=0, le=10**15, description="a whole number, at least 0")]
_Switch = Annotated[bool | None, Meta(description="true or false")]
_Flag = Annotated[bool, Meta(description="true or false")]
# More than a handful of connections between two relays gain nothing and cost memory.
_Connections = Annotated[int, Meta(ge=1, le=16, description="a whole number from 1 to 16")]
_Latitude = Annotated[float, Meta(ge=-90, le=90, description="a number from -90 to 90")]
_Longitude = Annotated[float, Meta(ge=-180, le=180, description="a number from -180 to 180")]
# An hour: whatever waits longer is forgotten rather than slow.
_Seconds = Annotated[
    float, Meta(gt=0, le=3600, description="a number greater than 0, at most 3600")
]
_MaybeSeconds = Annotated[float, Meta(ge=0, le=3600, description="a number from 0 to 3600")]
_Amount = Annotated[int, Meta(ge=1, le=1 << 40, description="a whole number from 1")]
_Count = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]
# Below 16 KiB a burst of a dozen packets does not fit; above 1 GiB one slow peer eats the machine.
_Bytes = Annotated[
    int,
    Meta(ge=16 * KIB, le=1024 * MIB, description="a whole number from 16384 to 1073741824"),
]
_Limit = Annotated[
    int, Meta(ge=0, le=1 << 40, description="a whole number, 0 for as much as anybody likes")
]
_CacheBytes = Annotated[
    int, Meta(ge=0, le=1 << 40, description="a whole number of bytes, 0 to keep nothing")
]
_Candidates = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
_Moves = Annotated[int, Meta(ge=0, le=10_000, description="a whole number from 0 to 10000")]
_Near = Annotated[float, Meta(ge=0, le=1000, description="a number from 0 to 1000")]
_Sessions = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
# A hundred a second are a megabit, which is no probing any more.
_ProbeRate = Annotated[float, Meta(ge=0.01, le=100, description="a number from 0.01 to 100")]
# Ten times a second is a load; who hears nothing for more than a minute takes a relay for dead.
_Interval = Annotated[float, Meta(ge=0.1, le=60, description="a number from 0.1 to 60")]
_HistorySeconds = Annotated[float, Meta(ge=0, le=86400, description="a number from 0 to 86400")]
# Less does not hold what is being said.
_HistoryBytes = Annotated[
    int, Meta(ge=64 * KIB, le=1024 * MIB, description="a whole number from 65536 to 1073741824")
]
_Texts = Annotated[tuple[str, ...], Meta(description='a list like ["relay.example"]')]
_Namespaces = Annotated[
    tuple[str, ...], Meta(description='a list of namespaces like ["demo", "live/news"]')
]
# The label of a metric, and a part of a name: no slashes and nothing that is not seen.
_OriginName = Annotated[
    str,
    Meta(
        pattern="^[!-.0-~]{1,64}$",
        description='a name like "media.example": up to 64 letters, digits and signs, no slash',
    ),
]
_OriginNamespaces = Annotated[
    tuple[str, ...] | None,
    Meta(
        description='a list of namespaces like ["live", "media.example/room"]',
        extra={"parse": _parse_namespaces},
    ),
]
_Digits = Annotated[
    tuple[str, ...],
    Meta(
        description='a list like ["00000102"]: 1 to 32 hexadecimal digits each',
        extra={"parse": _parse_digits},
    ),
]
_Url = Annotated[
    str,
    Meta(
        description='a URL like "https://media.example/laps"',
        extra={"parse": _parse_url},
    ),
]
_Timeout = Annotated[float, Meta(ge=0.1, le=60, description="a number from 0.1 to 60")]
_Concurrent = Annotated[int, Meta(ge=1, le=1000, description="a whole number from 1 to 1000")]
_Queue = Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100000")]
_Join = Annotated[Literal["draft", "group"], Meta(description='"draft" or "group"')]
_Drafts = Annotated[
    tuple[Literal[14, 16], ...],
    Meta(min_length=1, description="a list like [16, 14]"),
]
# QUIC asks for 1200 at least; 9000 is the largest frame an Ethernet commonly carries.
_UdpPayload = Annotated[int, Meta(ge=1200, le=9000, description="a whole number from 1200 to 9000")]
# RFC 9221: 65535 and above mean any datagram that fits a packet.
_DatagramFrame = Annotated[
    int, Meta(ge=0, le=65536, description="a whole number from 0 (off) to 65536")
]


# --- the sections ----------------------------------------------------------------------------


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[node]: who this relay is, as other relays are told."""

    # None: the relay picks one when it starts; it has no name to be found by before that.
    id: _NodeId = None
    # An edge serves clients and relays alike, so it is the one role that is useful alone.
    type: _Role = "edge"
    # Empty: nobody is told where to dial; peers that know the address need no contact.
    contact: _Contact = ""
    # 0, 0 lies in the sea off Africa, where no relay stands: it reads as "not said".
    latitude: _Latitude = 0.0
    longitude: _Longitude = 0.0
    # Words of the operator's own, told to other relays for policies to go by.
    region: _String = ""
    tags: _Strings = ()
    # What the machine can send; 0: not said.
    capacity_bps: _Bits = 0


class PeeringConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[peering]: where other relays reach this one, and which ones it dials."""

    # Loopback: a relay opens itself to the network only where somebody says so. Port 0 takes
    # any free port.
    listen: _Address = Address("127.0.0.1", 33434)
    # None: a relay alone is a whole service for the clients of one machine.
    peers: _Peers = ()
    # Control servers to dial, for control messages only.
    control: _Peers = ()
    # Relays to dial for data only, where control servers carry the rest.
    data: _Peers = ()
    # One connection to a peer is one path through the network between; more spread the data.
    connections: _Connections = 1
    # Which way data goes on connections that this relay dials: "both" ways, or only "out", from
    # here to the peer, as the uni-directional peering of the document.
    direction: _Direction = "both"
    # A peer that gives no sign of life for so long is dead, though its connection lasts longer: a
    # process on a busy machine answers in less, and a viewer forgives a second.
    dead_after_s: _Seconds = 1.0
    # Whose certificates are taken from peers that are dialled: those that these authorities signed
    # (PEM). None: what the system trusts, and anyone on this machine.
    authorities: _Path = None
    # Or, for single peers, the SHA-256 of the very certificate.
    fingerprints: _Fingerprints = ()
    # And the node that has to be there. None: whoever proves to be one.
    nodes: _Nodes = ()
    # The private key that this relay proves with who it is, as `laps token key` makes it. None: it
    # has nothing to prove, as among relays of one machine.
    key: _Keys = None
    # The public keys that proofs of others are checked with, in a file or a folder.
    keys: _Keys = None
    # Whether peers have to prove who they are. None: yes where there are keys to check them with,
    # and where this relay listens beyond loopback, so that no stranger gets in by an oversight.
    require_auth: _Switch = None
    # Where peers are that need not: relays that speak plain laps, which has no message for it.
    trusted: _Networks = ()
    # What one link may make this relay hold: more than any network has, less than memory. A peer
    # that tells of more is closed.
    most_nodes: _Amount = 100_000
    most_subscribes: _Amount = 10_000_000
    most_namespaces: _Amount = 1_000_000
    most_announces: _Amount = 100_000
    # Of subscriber nodes: one for each track that is sent.
    most_sets: _Amount = 1_000_000


class ClientsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[clients]: where applications and browsers connect, and what they may ask for."""

    # Loopback, as for peers. The next port after theirs. Port 0 takes any free port.
    listen: _Address = Address("127.0.0.1", 33435)
    # What other relays are told, to send their clients here when they stop. None: the address that
    # is listened on, since nobody has to say it twice; where that is every address of the machine,
    # the host of node.contact with its port, or nothing: nobody can dial 0.0.0.0.
    advertise: _Place = None
    # Drafts of MoQT that are offered, in this order.
    drafts: _Drafts = (16, 14)
    # Requests a session may have open at once: subscriptions, fetches, namespaces.
    requests: _Count = 1000
    # Tracks that are published, wanted or kept at a time: some kilobytes each, of all sessions.
    most_tracks: _Count = 1_000_000
    # Where a subscription to the largest object begins: after it, as the drafts say, or with the
    # group that the track is in. Clients of moq-lite, which count on that, get it in any case.
    join: _Join = "draft"
    # Whether mistakes that can be understood close a session, as the drafts ask. Programs that
    # people use make them, and nobody else is harmed; docs/moqt.md lists them.
    strict: _Flag = False
    # A subscribe waits this long for a publisher. Shorter than the patience of clients, who can
    # ask again; longer than it takes a publisher that starts at the same time.
    subscribe_wait_s: _Seconds = 1.0
    # What clients get to go elsewhere when this relay stops,
    drain_s: _Seconds = 2.0
    # and where. None: the nearest relay with room that is known by then, since nobody knows when
    # writing the file which that will be.
    redirect: _Place = None


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[limits]: what one address, and all clients, may have; 0: no bound. See docs/security.md.

    What the bearer of a token may have is in the token.
    """

    # Clients from these networks have no limits by address: those of this machine, a proxy, an
    # office of one's own.
    exempt: _Networks = (
        ipaddress.ip_network("127.0.0.0/8"),
        ipaddress.ip_network("::1/128"),
    )
    # A large office after one NAT, with a page and a camera for everybody.
    address_sessions: _Limit = 1000
    # A handshake takes a millisecond, so this is a twentieth of a core; ten times as many pass at
    # once, for the office whose relay was restarted.
    address_handshakes_per_s: _Limit = 50
    # A request takes about a tenth of a millisecond. Four times as many pass at once: pages ask for
    # all they show when they are opened.
    address_requests_per_s: _Limit = 1000
    # Two hundred people who open a page with twenty tracks at once. It takes some 7 kB each.
    address_open_requests: _Limit = 4000
    # As much each, so that one address has less than 50 MB by any of them.
    address_tracks: _Limit = 5000
    address_subscriptions: _Limit = 5000
    address_namespaces: _Limit = 2000
    # While the relay has more to do than it can, what one address sends takes no more of its time:
    # the rest is lost on the way in, and QUIC slows the sender down. Idle time is anybody's.
    address_time_share: _Share = 0.1
    # What an address may send depends on the line of the relay and on who pays for it.
    address_bytes_in_per_s: _Limit = 0
    address_bytes_out_per_s: _Limit = 0
    # Of the cache: whoever fills it leaves as much to all others.
    address_cache_share: _Share = 0.5
    # Of all addresses together, more than a core completes: whoever is dropped tries again by
    # itself.
    handshakes_per_s: _Limit = 1000
    # Published and watched: a kilobyte each, and all other relays hear of them.
    namespaces: _Limit = 100_000
    # What the drafts allow for a namespace and a name together.
    name_bytes: _Limit = 4096
    # Of messages that have begun to arrive, of all sessions: 60 of the most that a session may
    # have in MoQT. Above it the one that holds most is closed.
    half_message_bytes: _Limit = 64 * MIB


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[auth]: who may publish and subscribe; without keys, everybody may. See docs/security.md."""

    # A file or a folder with the public keys of those who sign tokens, as `laps token key` makes.
    # Read again when it changes, and so is what is revoked.
    keys: _File = None
    # Tokens and keys that are refused, by line: token ID, key ID. None: the file `revoked` beside
    # the keys, where there is one.
    revoked: _File = None
    # What tokens may name as their audience (aud); one that names another is refused.
    audience: _Texts = ()
    # What everybody may publish below, and subscribe below, without a token: namespaces.
    public_publish: _Namespaces = ()
    public_subscribe: _Namespaces = ()
    # Whether a token has to be shown to connect; if not, those of single requests do.
    needs_token: _Flag = True
    # How far the clocks of those who sign tokens may be from ours: a token is taken this long
    # before and after its time. People's machines are right within a minute or so.
    skew_s: _MaybeSeconds = 60.0


class OriginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[[origins]]: whose names are whose, and who decides about them. See docs/security.md."""

    # What it is called, in metrics and refusals, and the first part of its QUICR names.
    name: _OriginName
    # What its names begin with. None: the name alone.
    namespaces: _OriginNamespaces = None
    # Or, of QUICR names of 16 bytes, the digits that they begin with.
    ids: _Digits = ()
    # Who decides: the keys in this file or folder, as [auth].keys,
    keys: _File = None
    # with what they have revoked; None: the file `revoked` beside them,
    revoked: _File = None
    # and what its tokens may name as their audience;
    audience: _Texts = ()
    # or its own server, which is asked about every action.
    api: _Url = ""
    # Whose certificate that server has to have (PEM). None: what the system trusts.
    authorities: _Path = None
    # A client waits so long at most, and what fails by then is refused: a person notices more.
    timeout_s: _Timeout = 5.0
    # Requests at a time: at 10 ms each, three thousand a second.
    concurrent: _Concurrent = 32
    # Questions that wait for their turn: more could not be answered in time.
    queue: _Queue = 1000

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What its names begin with."""
        return (self.name,) if self.namespaces is None else self.namespaces


class QuicrConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[quicr]: clients that speak QUICR, on the same port."""

    enabled: _Flag = True
    # Six times the five seconds after which clients are to renew; 0: never.
    subscription_s: _MaybeSeconds = 30.0
    # Who can send datagrams wants to: nothing waits behind what was lost.
    datagrams: _Flag = True


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[cache]: what is kept of tracks for those who come late."""

    # Half a minute of 64 Mbit/s in all,
    bytes: _CacheBytes = 256 * MIB
    # and of 8 Mbit/s for a track.
    track_bytes: _CacheBytes = 32 * MIB
    # A live track is seldom wanted from further back.
    age_s: _Seconds = 60.0


class RelayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[relay]: its manners towards other relays."""

    # As the peering document suggests: long enough that a flapping link is told of once.
    node_advertise_s: _Seconds = 2.0
    # As it suggests too: who subscribes again meanwhile is not noticed by anybody else.
    unsubscribe_s: _Seconds = 5.0
    # How long data waits for the set of nodes that it is for, and how much of it for each peer:
    # longer than a control message is late by on a link that loses packets.
    hold_s: _Seconds = 1.0
    hold_bytes: _Bytes = 256 * KIB
    # What peers get to move their data elsewhere when this relay stops.
    drain_s: _Seconds = 2.0
    # The round trip to a peer counts as another, and paths may change, if it differs by this share
    # and this much for this long: measurements never stand still, and each change costs something.
    srtt_change: _Share = 0.1
    srtt_change_ms: _Wait = 2.0
    srtt_hold_s: _MaybeSeconds = 5.0
    # A Via is spared everybody's subscribes, unless there are no control servers to keep them.
    reflect: _Flag = False


class ProbingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[probing]: relays that are no peers, and how far they are from here."""

    # Which peer would be better than those there are can only be known by who has looked.
    enabled: _Flag = True
    # At a time: more than a relay has use for as peers. 0: none, and coordinates come from peers.
    count: _Candidates = 16
    # Probes a second on average, of 1,200 bytes, to all together: ten kbit/s.
    rate: _ProbeRate = 1.0


class DemandConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[demand]: peers that nobody configured, dialled while they help."""

    # Each costs both sides some 100 KB. 0: none; Vias that are peers spare copies all the same.
    sessions: _Sessions = 8
    # A subscriber's relay counts once for each track: more, and only what many want is dialled for.
    least: _Count = 1
    # What is not needed may be needed again in a moment, and a session takes round trips to make.
    idle_s: _Seconds = 30.0


class MovingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[moving]: clients that are sent to another Edge, where their content is or where room is."""

    # A hundred relays that each move a few align a region in minutes, and one that is wrong about
    # it annoys few. 0: nobody is moved.
    per_minute: _Moves = 6
    # Who goes from track to track, or leaves at once, is not worth a session.
    settled_s: _Seconds = 30.0
    # What a client does not notice: a city, and its neighbours. 0: regions alone count.
    near_ms: _Near = 10.0


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[tls]: the certificate this relay shows. Paths count from where the relay is started."""

    # None: the relay makes a certificate for itself, so that it starts with nothing prepared.
    certificate: _Path = None
    key: _Path = None
    # None: yes exactly where there is no certificate. `false` refuses to start without one.
    self_signed: _Switch = None

    @property
    def is_self_signed(self) -> bool:
        """Whether the relay makes its own certificate."""
        return self.certificate is None


class QuicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[quic]: the transport under peers and clients."""

    # Long enough to outlive a routing change, short enough to drop a dead peer's state.
    idle_timeout_s: _Seconds = 30.0
    # A third of the idle timeout: two lost in a row do not end a quiet connection. It also keeps
    # NAT bindings open, which may close after 15 s.
    keepalive_s: _Seconds = 10.0
    # Three lost flights at QUIC's initial one second timer, doubling, and the far side's answer.
    handshake_timeout_s: _Seconds = 10.0
    # A group of a track is a stream, so thousands live at once; 5,000 open ones cost 44 MB.
    max_streams_bidi: _Count = 10_000
    max_streams_uni: _Count = 10_000
    # A whole second at 125 Mbit/s, or 100 ms at 1.2 Gbit/s, in flight.
    connection_window_bytes: _Bytes = 15 * MIB
    # Less than half of the connection's, so that one slow stream cannot stop the others.
    stream_window_bytes: _Bytes = 6 * MIB
    # What Chromium begins with. It leaves a tunnel 120 bytes of the 1500 that nearly every path
    # carries, and takes a tenth less time for each byte than 1280.
    udp_payload_bytes: _UdpPayload = 1350
    # Any datagram that fits a packet.
    datagram_frame_bytes: _DatagramFrame = 65536
    # The kernel's default loses packets by the thousand at some hundred Mbit/s.
    socket_buffer_bytes: _Bytes = 4 * MIB
    # A quarter of a second at 125 Mbit/s; past it a peer that does not read is pushed back.
    send_buffer_bytes: _Bytes = 4 * MIB
    # Retry proves an address for one round trip: asked for only while a flood is suspected.
    retry: _Retry = "auto"
    # More handshakes than this under way at once are a flood, or a restart that can wait.
    half_open_before_retry: _Count = 64
    # The handshakes that may hold memory before they prove anything; the rest is dropped.
    half_open_limit: _Count = 1024
    # At some 100 KB each a full relay stays near 1 GB.
    connection_limit: _Count = 10_000


class EgressConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[egress]: what waits for one peer or client before it is sent or dropped."""

    # A second at 125 Mbit/s: older live data is worth less than what comes after it.
    queue_bytes: _Bytes = 16 * MIB
    # Past this a publisher is slowed to the pace of its fastest subscriber; half a frame of video
    # for each of a dozen subscribers, and 60 ms at 125 Mbit/s.
    pressure_bytes: _Bytes = 1 * MIB
    # What QUIC itself holds is past recall by priority; this keeps 10 ms at 100 Mbit/s busy.
    quic_queue_bytes: _Bytes = 128 * KIB
    # Datagrams are for what must not wait: a short queue drops early.
    datagram_queue_bytes: _Bytes = 1 * MIB


class DiscoveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[discovery]: whether clients find this relay by mDNS."""

    # Clients find a relay without being told its address. It is announced as far as it listens, so
    # by default on loopback: nobody hears of it who could not reach it.
    enabled: _Flag = True


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[telemetry]: what this relay publishes about itself, in laps/telemetry/<node>."""

    # Whoever can subscribe at a relay of the network can read it: names of tracks among it.
    enabled: _Flag = True
    # Often enough to see what somebody complains of, and a thousandth of a core.
    interval_s: _Interval = 1.0
    # A reader may be away for a quarter of an hour, a restart and a coffee,
    history_s: _HistorySeconds = 900.0
    # if there is no more to say than this: half of it is for tracks, two minutes of a thousand.
    history_bytes: _HistoryBytes = 16 * MIB


class PlanConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[plan]: whose plans this relay follows."""

    # Empty: nobody's. Who can sign a plan decides about ways, so no key is trusted by itself.
    key: _String = ""
    # None: a relay that is started again waits for the next plan.
    file: _File = None


class PolicyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[policy]: what this relay keeps to: which ways tracks take, and who may be its peer."""

    # None: everything is allowed, and the document's order decides.
    file: _File = None
    # Empty: the file is all there is. A policy that this key has signed takes the place of it.
    key: _String = ""
    # None: a relay that is started again keeps to the file until it hears of the signed one.
    kept: _File = None


class ImpairmentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[impairment]: a worse network than there is; for labs and tests."""

    # None: nobody wants that of a network he has to live with.
    peers: _Impaired = ()


class AdminConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[admin]: where this relay shows what it knows, over HTTP."""

    # Who cannot look in cannot help; on loopback nobody sees it who is not on the machine.
    enabled: _Flag = True
    # None: 127.0.0.1:33436, the next port after the clients', or any free one where that is taken,
    # so that several relays start on one machine with nothing said. Port 0 takes any free port.
    listen: _AdminAddress = None
    # Empty: nobody else is on this machine's loopback whom the operator does not trust. Required
    # on any other address, since names of tracks and addresses of clients are there to be read.
    token: _Token = ""
    # None: the token stands above. In a file of its own it can be kept from who may read this one,
    # and replaced while the relay runs.
    token_file: _File = None
    # A second token, for who may look and change nothing: dashboards, Prometheus. Empty: there is
    # the one above only, which may do both.
    read_token: _Token = ""
    read_token_file: _File = None

    def __repr__(self) -> str:
        """Without the tokens: what is printed is read by others."""
        token, read_token = ("…" if text else "" for text in (self.token, self.read_token))
        return (
            f"AdminConfig(enabled={self.enabled}, listen={self.listen}, token={token!r}, "
            f"token_file={self.token_file}, read_token={read_token!r}, "
            f"read_token_file={self.read_token_file})"
        )

    @property
    def has_token(self) -> bool:
        """Whether nobody is answered without one."""
        files = (self.token_file, self.read_token_file)
        return bool(self.token or self.read_token or any(files))


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an operator decides about one relay."""

    node: NodeConfig = NodeConfig()
    peering: PeeringConfig = PeeringConfig()
    relay: RelayConfig = RelayConfig()
    probing: ProbingConfig = ProbingConfig()
    demand: DemandConfig = DemandConfig()
    moving: MovingConfig = MovingConfig()
    tls: TlsConfig = TlsConfig()
    quic: QuicConfig = QuicConfig()
    egress: EgressConfig = EgressConfig()
    clients: ClientsConfig = ClientsConfig()
    limits: LimitsConfig = LimitsConfig()
    auth: AuthConfig = AuthConfig()
    origins: tuple[OriginConfig, ...] = ()
    quicr: QuicrConfig = QuicrConfig()
    cache: CacheConfig = CacheConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    plan: PlanConfig = PlanConfig()
    policy: PolicyConfig = PolicyConfig()
    impairment: ImpairmentConfig = ImpairmentConfig()
    admin: AdminConfig = AdminConfig()

    @property
    def requires_peer_auth(self) -> bool:
        """Whether peers have to prove who they are."""
        peering = self.peering
        if peering.require_auth is not None:
            return peering.require_auth
        listens = self.node.type != "stub" and not peering.listen.is_loopback
        return listens or peering.keys is not None

    def client_address(self, port: int) -> Address | None:
        """What others are told of where clients connect, if they listen on this port."""
        if self.clients.advertise is not None:
            return self.clients.advertise
        listen = self.clients.listen
        host = _host_of(self.node.contact) if listen.is_wildcard else listen.host
        told = Address(host, port)
        return told if told.is_dialable else None


def _host_of(contact: str) -> str:
    """The host of a contact that may have a port, and may be any text; empty where it has none."""
    for text in (contact, f"{contact}:0", f"[{contact}]:0"):
        with suppress(InvalidText):
            return Address.parse(text).host
    return ""


# --- reading ---------------------------------------------------------------------------------


def load_config(path: Path) -> Config:
    """Read a TOML file, or say in one line what to mend in it."""
    return config_from_mapping(read_toml(path), str(path))


def config_from_mapping(mapping: Mapping[str, object], source: str) -> Config:
    """Read the sections of a parsed TOML file; `source` names it in a refusal.

    Of what there may be several, each is a table of its own: [[origins]].
    """
    values: dict[str, object] = {}
    origins = tuple(read_rows(OriginConfig, mapping, "origins", source))
    for section, content in mapping.items():
        if section == "origins":
            continue
        if isinstance(content, Mapping):
            _require_section(section, f"{source}: [{_show_key(section)}]")
            values |= {f"{section}.{key}": value for key, value in content.items()}
        else:
            _require_section(section, f"{source}: {_show_key(section)} = {quote(content)}")
            refuse(source, section, content, f"must be a section: [{section}]")
    return override(Config(origins=origins), values, source)


def override(config: Config, values: Mapping[str, object], source: str) -> Config:
    """Lay values over a configuration, each under its dotted key and as TOML would hold it.

    `source` is the flag they came by. Values that depend on each other go in one call.
    """
    sections: dict[str, Any] = msgspec.structs.asdict(config)
    for dotted, value in values.items():
        name, _, key = dotted.partition(".")
        shown = "…" if _may_be_secret(name, key) else quote(value)
        where = f"{source}: {_show_key(name)}.{_show_key(key)} = {shown}"
        _require_section(name, where)
        if name == "origins":
            raise ConfigError(f"{where}: there may be several: write them as [[origins]] in a file")
        known = sections[name].__struct_fields__
        if key not in known:
            raise ConfigError(f"{where}: unknown key{suggest(key, known, f'known in [{name}]')}")
        wanted = get_type_hints(type(sections[name]), include_extras=True)[key]
        converted = convert(wanted, value, where)
        sections[name] = msgspec.structs.replace(sections[name], **{key: converted})
    config = Config(**sections)
    _check(config, source)
    return config


def _may_be_secret(section: str, key: str) -> bool:
    """Whether a value may be a token, its key misspelt perhaps: what no refusal repeats."""
    return section == "admin" and key not in {
        "enabled",
        "listen",
        "token_file",
        "read_token_file",
    }


def _require_section(name: str, where: str) -> None:
    known = Config.__struct_fields__
    if name not in known:
        raise ConfigError(f"{where}: unknown section{suggest(name, known)}")


def _check(config: Config, source: str) -> None:
    """Refuse what is right key by key and wrong together."""
    _check_peers(config, source)
    clients, tls, quic = config.clients, config.tls, config.quic
    if clients.redirect == clients.listen:
        problem = "is this relay itself: name another, or leave it out and one is chosen"
        refuse(source, "clients.redirect", str(clients.redirect), problem)
    if tls.certificate is not None and tls.key is None:
        refuse(source, "tls.certificate", tls.certificate, "needs its private key: set tls.key")
    if tls.key is not None and tls.certificate is None:
        refuse(source, "tls.key", tls.key, "needs its certificate: set tls.certificate")
    if tls.certificate is not None and tls.self_signed:
        problem = f"contradicts tls.certificate = {quote(tls.certificate)}: remove one of them"
        refuse(source, "tls.self_signed", True, problem)
    if tls.certificate is None and tls.self_signed is False:
        problem = "needs a certificate to use instead: set tls.certificate and tls.key"
        refuse(source, "tls.self_signed", False, problem)
    _check_admin(config.admin, source)
    _check_auth(config.auth, source)
    _check_origins(config.origins, source)
    if config.policy.kept is not None and not config.policy.key:
        problem = "keeps policies of a key, and there is none: set policy.key"
        refuse(source, "policy.kept", str(config.policy.kept), problem)
    if quic.keepalive_s >= quic.idle_timeout_s:
        problem = f"must be below quic.idle_timeout_s = {quote(quic.idle_timeout_s)}"
        refuse(source, "quic.keepalive_s", quic.keepalive_s, problem)


def _check_peers(config: Config, source: str) -> None:
    """A peer that is dialled twice for control would replace its own connection for ever."""
    peering = config.peering
    for key in ("peers", "control"):
        for peer in getattr(peering, key):
            if (*peering.peers, *peering.control).count(peer) > 1:
                problem = "is dialled for control more than once: name it once, in peers or control"
                refuse(source, f"peering.{key}", str(peer), problem)
    dialled = (*peering.peers, *peering.control, *peering.data)
    for key in ("fingerprints", "nodes"):
        for named, _ in getattr(peering, key):
            if named not in dialled:
                problem = "is not dialled: name it as in peers, control or data"
                refuse(source, f"peering.{key}", str(named), problem)
    _check_proofs(config, source)
    if config.node.type != "stub":
        return
    if peering.connections > 1:
        problem = "is too many for a stub: its Edge takes one connection from it, for everything"
        refuse(source, "peering.connections", peering.connections, problem)
    if peering.direction != "both":
        problem = "is not for a stub: its Edge can send it data by no other connection"
        refuse(source, "peering.direction", peering.direction, problem)
    for key in ("control", "data"):
        for peer in getattr(peering, key):
            problem = "is not for a stub: it dials Edges, for everything: name it in peers"
            refuse(source, f"peering.{key}", str(peer), problem)


def _check_auth(auth: AuthConfig, source: str) -> None:
    """Rights mean nothing where everybody has all of them."""
    if auth.keys is not None:
        return
    for key in ("revoked", "audience", "public_publish", "public_subscribe"):
        if value := getattr(auth, key):
            problem = "means nothing without keys, as everybody may do everything: set auth.keys"
            refuse(source, f"auth.{key}", value, problem)


def _check_origins(origins: tuple[OriginConfig, ...], source: str) -> None:
    """Every name has one origin at most, and every origin one that decides."""
    taken: dict[tuple[str, str], str] = {}
    for number, origin in enumerate(origins, start=1):
        where = f"{source}: origins[{number}]"
        if (origin.keys is None) == (not origin.api):
            both = "has both keys and an api: leave one of them out"
            neither = "has nobody who decides: set keys or api"
            refuse(where, "name", origin.name, neither if origin.keys is None else both)
        for key in ("revoked", "audience") if origin.keys is None else ("authorities",):
            if value := getattr(origin, key):
                which = "keys" if origin.keys is None else "api"
                refuse(where, key, str(value), f"means nothing without {which}")
        named = [("name", origin.name)]
        named += [("namespaces", text) for text in origin.prefixes]
        named += [("ids", text) for text in origin.ids]
        for key, text in named:
            if text.partition("/")[0] == "laps" and key == "namespaces":
                refuse(where, key, text, "is what relays publish of themselves: no origin has it")
            if (other := taken.setdefault((key, text), origin.name)) != origin.name:
                refuse(where, key, text, f"is that of the origin {quote(other)} already")
        if (first := taken.setdefault(("origin", origin.name), str(number))) != str(number):
            refuse(where, "name", origin.name, f"is that of origins[{first}] already")


def _check_proofs(config: Config, source: str) -> None:
    """Whoever asks others who they are has keys to check them with, and one of its own."""
    peering = config.peering
    missing = [key for key in ("keys", "key") if getattr(peering, key) is None]
    if not config.requires_peer_auth or not missing:
        return
    needs = f"needs peering.{missing[0]}: `laps token key` makes keys"
    if peering.require_auth:
        refuse(source, "peering.require_auth", True, needs)
    if peering.keys is not None:
        refuse(source, "peering.keys", str(peering.keys), needs)
    problem = f"is not loopback, so peers have to prove who they are, and that {needs}; "
    refuse(
        source,
        "peering.listen",
        str(peering.listen),
        f"{problem}or let in everybody who reaches it: peering.require_auth = false",
    )


def _check_admin(admin: AdminConfig, source: str) -> None:
    """Whoever reaches another address than loopback has to show a token."""
    listen = admin.listen
    for key in ("token", "read_token"):
        if getattr(admin, key) and (file := getattr(admin, f"{key}_file")) is not None:
            problem = f"is one token too many: remove it, or admin.{key}"
            refuse(source, f"admin.{key}_file", str(file), problem)
    if admin.enabled and listen is not None and not listen.is_loopback and not admin.has_token:
        problem = "is not loopback and needs a token: set admin.token or admin.token_file"
        refuse(source, "admin.listen", str(listen), problem)


def _show_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quote(key)
