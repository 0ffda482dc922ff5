"""Tracks: who publishes and reads them, the flows that carry them, what is kept of them."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from laps.admin.schema.fields import (
    GAUGE,
    Answering,
    At,
    Count,
    Id,
    ListPage,
    Page,
    Row,
    Time,
    Total,
    says,
)
from laps.admin.schema.network import Path


class Named(Row, frozen=True, kw_only=True):
    """A track by its name."""

    track: Annotated[str, says("Its hash, 16 hexadecimal digits.")]
    namespace: Annotated[str, says("Its namespace; empty where only the hash is known.")] = ""
    name: Annotated[str, says("Its name; empty where only the hash is known.")] = ""


class Track(Named, frozen=True, kw_only=True):
    """A track at one relay."""

    service: Annotated[
        str, says("Its class, as policy says; empty where there is no policy, or not known.")
    ] = ""
    origin: Annotated[bool, says("Whether a client here publishes it.")] = False
    publishers: Annotated[Count, says("Clients here that publish it.")] = 0
    subscribers: Annotated[Count, says("Clients here that read it.")] = 0
    ingress: Annotated[list[str], says("The peers that it comes from.")] = []
    egress: Annotated[list[str], says("The peers that copies go to.")] = []
    targets: Annotated[list[str], says("The s-relays that it goes to from here.")] = []
    received_bytes: Annotated[Count, says("Bytes of it that came in.")] = 0
    sent_bytes: Annotated[
        Count, says("Bytes of it that went on as they came in, all copies together.")
    ] = 0
    cached_bytes: Annotated[Count, says("Bytes of it that are kept.")] = 0
    cached_groups: Annotated[Count, says("Groups of it that are kept.")] = 0
    lost_objects: Annotated[
        Count, says("Objects that were lost with a relay or a link, at least, and not had again.")
    ] = 0
    largest: Annotated[
        tuple[Id, Id] | None, says("The last place that is known: [group, object].")
    ] = None


class Tracks(ListPage, frozen=True, kw_only=True):
    """The tracks that are published, wanted or passed on here."""

    path = "/v1/tracks"

    tracks: Annotated[list[Track], says("A row for each track.")] = []
    total: Total = 0


class Hop(Row, frozen=True, kw_only=True):
    """The way from this relay to one target of a track, and why it is that one."""

    node: Annotated[str, says("The target.")]
    peer: Annotated[str | None, says("The peer that it is sent to, if one leads there.")] = None
    source: Annotated[
        str | None, says("The peer that it comes from; null for a publisher here.")
    ] = msgspec.field(default=None, name="from")
    reason: Annotated[str, says("The words of selection, or of the plan that decides.")] = ""
    path: Annotated[Path | None, says("The path that is taken.")] = None
    alternates: Annotated[list[Path], says("The other paths, best first.")] = []


class OneTrack(Track, Page, frozen=True, kw_only=True):
    """One of tracks."""

    path = "/v1/tracks/{track}"

    node: Answering = ""
    at: At = 0.0
    wanted_by: Annotated[list[str], says("Every s-relay that subscribes, as far as we hear.")] = []
    servers: Annotated[list[str], says("Control servers that hold our subscribe to it.")] = []
    hops: Annotated[list[Hop], says("The way to each target.")] = []


class Origin(Row, frozen=True, kw_only=True):
    """Where a flow comes from: a peer under a set, or a client."""

    peer: Annotated[str | UnsetType | None, says("The peer, while it is connected.")] = UNSET
    sns: Annotated[Id | UnsetType | None, says("The set that the peer sends it under.")] = UNSET
    client: Annotated[Count | UnsetType | None, says("The number of the client.")] = UNSET
    stub: Annotated[str | UnsetType, says("The node of a client that is a Stub.")] = UNSET


class OutSet(Row, frozen=True, kw_only=True):
    """A subscriber node set that a flow is sent under to a peer."""

    peer: Annotated[str | None, says("The peer, while it is connected.")] = None
    sns: Annotated[Id, says("The id of the set.")] = 0
    nodes: Annotated[list[str], says("The nodes in the set.")] = []
    streams: Annotated[Count | None, says("Open streams; null where nobody counts them.")] = None
    old: Annotated[bool, says("Whether no new streams begin on it.")] = False


class Flow(Row, frozen=True, kw_only=True):
    """A flow through this relay."""

    source: Annotated[Origin, says("Where it comes from.")] = msgspec.field(name="from")
    track: Annotated[str | None, says("The hash of its track, where that is known.")] = None
    targets: Annotated[list[str], says("The s-relays that it is for.")] = []
    local: Annotated[bool, says("Whether clients here read it.")] = False
    out: Annotated[list[OutSet], says("The sets that it is sent under.")] = []
    unreached: Annotated[list[str], says("Targets that no link leads to.")] = []


class Fib(ListPage, frozen=True, kw_only=True):
    """The flows through this relay: where each comes from and goes."""

    path = "/v1/fib"

    fib: Annotated[list[Flow], says("A row for each flow.")] = []
    total: Total = 0


class NodeSet(OutSet, frozen=True, kw_only=True):
    """A subscriber node set, of a peer or for a peer."""

    direction: Annotated[str, says("Whether the peer sends it (in) or this relay (out).")] = ""


class NodeSets(ListPage, frozen=True, kw_only=True):
    """The subscriber node sets, as peers tell us and as we tell them."""

    path = "/v1/sns"

    sns: Annotated[list[NodeSet], says("A row for each set.")] = []
    total: Total = 0


class CachedTrack(Named, frozen=True, kw_only=True):
    """What is kept of one track."""

    bytes: Annotated[Count, says("Bytes of it that are kept.")] = 0
    groups: Annotated[Count, says("Groups of it that are kept.")] = 0
    first_group: Annotated[Id, says("The lowest of those groups.")] = 0
    last_group: Annotated[Id, says("The highest of those groups.")] = 0


class Cache(ListPage, frozen=True, kw_only=True):
    """What is kept of tracks."""

    path = "/v1/cache"

    bytes: Annotated[Count, says("Bytes kept of tracks."), GAUGE] = 0
    limit_bytes: Annotated[Count, says("The most that is kept."), GAUGE] = 0
    age_s: Annotated[float, says("How long a group is kept.")] = 0.0
    groups: Annotated[Count, says("Groups kept."), GAUGE] = 0
    evicted_groups: Annotated[Count, says("Groups dropped to make room.")] = 0
    expired_groups: Annotated[Count, says("Groups dropped because of their age.")] = 0
    expired_objects: Annotated[Count, says("Objects dropped because their time was up.")] = 0
    trimmed_streams: Annotated[Count, says("Streams of which the beginning was dropped.")] = 0
    large_objects: Annotated[Count, says("Objects that were too large to be kept.")] = 0
    cache: Annotated[list[CachedTrack], says("A row for each track.")] = []
    total: Total = 0


class Arrival(Row, frozen=True, kw_only=True):
    """A line of a trace: an object has begun to arrive."""

    at: Annotated[Time, says("When, in seconds since 1970.")]
    group: Annotated[Id, says("Its group.")]
    subgroup: Annotated[Id | None, says("Its subgroup; null for one in a datagram.")] = None
    object: Annotated[Id, says("Its number in the group.")]
    source: Annotated[str | None, says("The peer that it comes from; null for a client here.")] = (
        msgspec.field(default=None, name="from")
    )
    bytes: Annotated[Count, says("The size of its payload.")] = 0
    status: Annotated[Id | UnsetType, says("Its status, where that is not 0.")] = UNSET


class Missed(Row, frozen=True, kw_only=True):
    """A line of a trace: objects that came faster than they were read."""

    missed: Annotated[Count, says("How many there were.")]
