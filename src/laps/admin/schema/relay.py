"""A relay itself: who it is, what it has counted, what has happened, whether it is of use."""

from typing import Annotated

from laps.admin.schema.fields import (
    COUNTER,
    GAUGE,
    LABEL,
    At,
    Count,
    Latitude,
    ListPage,
    Longitude,
    Page,
    Row,
    Series,
    Time,
    Total,
    says,
)


class Plan(Row, frozen=True, kw_only=True):
    """The plan that a relay follows."""

    tracks: Annotated[Count, says("Tracks of the plan that is followed."), GAUGE] = 0
    sequence: Annotated[
        Count, says("Number of that plan."), Series("gauge", help="Number of that plan; 0: none.")
    ] = 0
    expires_at: Annotated[Time, says("When it ends, in seconds since 1970.")] = 0.0


class Node(Page, frozen=True, kw_only=True):
    """The relay itself."""

    path = "/v1/node"

    node: Annotated[str, says("Its id, like 1:2."), LABEL]
    at: At = 0.0
    role: Annotated[str, says("What it is: edge, via, stub or control."), LABEL] = ""
    region: Annotated[str, says("The region that its operator named."), LABEL] = ""
    tags: Annotated[list[str], says("The tags that its operator gave it.")] = []
    latitude: Annotated[Latitude, says("Where it stands, in degrees; 0 where not given.")] = 0.0
    longitude: Annotated[Longitude, says("Where it stands, in degrees; 0 where not given.")] = 0.0
    contact: Annotated[str, says("Where other relays reach it.")] = ""
    version: Annotated[str, says("The version of laps that it runs."), LABEL] = ""
    since: Annotated[
        Time, says("When the relay began, since 1970."), Series("gauge", "start_time_seconds")
    ] = 0.0
    clients_address: Annotated[str | None, says("Where clients connect, if any may.")] = None
    peers_address: Annotated[str | None, says("Where peers connect, if any may.")] = None
    sha256: Annotated[str, says("The fingerprint of its certificate.")] = ""
    memory_bytes: Annotated[Count, says("Memory that the process holds.")] = 0
    cpu_s: Annotated[float, says("Processor time that the process has used.")] = 0.0
    sent_bytes: Annotated[Count, says("Bytes sent, to peers and clients."), COUNTER] = 0
    received_bytes: Annotated[Count, says("Bytes received, from peers and clients."), COUNTER] = 0
    draining: Annotated[
        bool,
        says("Whether the relay is about to stop."),
        Series("gauge", help="1 while the relay is about to stop."),
    ] = False
    plan: Annotated[Plan | None, says("The plan that it follows, if it has one.")] = None
    sizes: Annotated[dict[str, Count], says("How full each table is.")] = {}


class Counters(Page, frozen=True, kw_only=True):
    """What each room of a relay has counted since it began, by the name of the counter."""

    path = "/v1/counters"

    relay: Annotated[dict[str, Count], says("Links, introductions and control messages.")] = {}
    nodes: Annotated[dict[str, Count], says("Advertisements of nodes.")] = {}
    subscribes: Annotated[dict[str, Count], says("Subscribe information of all relays.")] = {}
    announces: Annotated[dict[str, Count], says("What publishers here have announced.")] = {}
    metrics: Annotated[dict[str, Count], says("Metrics that other relays have sent.")] = {}
    namespaces: Annotated[dict[str, Count], says("Namespaces that other relays offer.")] = {}
    extensions: Annotated[dict[str, Count], says("Messages of the extension laps-x1.")] = {}
    data: Annotated[dict[str, Count], says("Streams and datagrams on their way through.")] = {}
    live: Annotated[dict[str, Count], says("Tracks as they pass to subscribers here.")] = {}
    cache: Annotated[dict[str, Count], says("What was kept of tracks, and dropped.")] = {}
    fetches: Annotated[dict[str, Count], says("Requests for ranges of a track.")] = {}
    repairs: Annotated[
        dict[str, Count], says("What was lost with relays that died, and sent again.")
    ] = {}
    clients: Annotated[dict[str, Count], says("Clients of every protocol.")] = {}
    quicr: Annotated[dict[str, Count], says("Clients that speak QUICR.")] = {}
    media: Annotated[dict[str, Count], says("The order of objects for clients of QUICR.")] = {}
    probing: Annotated[dict[str, Count], says("Probes of nodes that are no peers.")] = {}
    demand: Annotated[dict[str, Count], says("Sessions with peers that nobody configured.")] = {}
    moving: Annotated[dict[str, Count], says("Clients that were sent to another Edge.")] = {}
    journal: Annotated[dict[str, Count], says("Events that nobody could be shown.")] = {}
    quic: Annotated[dict[str, Count], says("Packets and connections of QUIC.")] = {}


class Alive(Page, frozen=True, kw_only=True):
    """Whether the relay lives."""

    path = "/healthz"

    alive: Annotated[bool, says("True whenever the relay answers.")] = True


class Ready(Page, frozen=True, kw_only=True):
    """Whether it is of use now; 503 and why, if not."""

    path = "/readyz"

    ready: Annotated[
        bool,
        says("Whether new clients and peers are welcome."),
        Series("gauge", help="1 while the relay is of use, as /readyz says."),
    ] = False
    reasons: Annotated[list[str], says("Why they are not, a sentence each.")] = []


class Event(Row, frozen=True, kw_only=True):
    """Something that happened at a relay."""

    number: Annotated[Count, says("Counts up from 1 since the relay began.")]
    at: Annotated[Time, says("When it happened, in seconds since 1970.")] = 0.0
    event: Annotated[str, says("What happened, like peer_up.")] = ""
    subject: Annotated[str, says("What it happened to: a node, a track or a plan.")] = ""
    detail: Annotated[str, says("What else is to be known of it.")] = ""
    reason: Annotated[str, says("Why it happened, in words.")] = ""


class Events(ListPage, frozen=True, kw_only=True):
    """What has happened lately; the oldest first."""

    path = "/v1/events"

    events: Annotated[list[Event], says("A row for each event.")] = []
    total: Total = 0


class Done(Row, frozen=True, kw_only=True):
    """What was changed."""

    node: Annotated[str, says("The relay that was asked.")] = ""
    at: At = 0.0
    done: Annotated[str, says("What it has done, or does now.")] = ""


class Error(Row, frozen=True, kw_only=True):
    """Why a request was refused."""

    error: Annotated[str, says("The reason, with the way out.")] = ""
