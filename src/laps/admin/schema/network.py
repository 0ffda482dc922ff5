"""The network as a relay knows it: peers, nodes, who wants what and who offers it."""

from typing import Annotated

from laps.admin.schema.fields import (
    COUNTER,
    GAUGE,
    At,
    Count,
    Id,
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


class Peer(Row, frozen=True, kw_only=True):
    """A relay that this one is connected to, with all connections to it together."""

    node: Annotated[str, says("Its id, like 1:2.")]
    role: Annotated[str, says("What it is: edge, via or stub; a Control server is a via.")] = ""
    mode: Annotated[str, says("What its connections carry: control, data or both.")] = ""
    dialled: Annotated[bool, says("Whether this relay made the connection.")] = False
    extended: Annotated[bool, says("Whether it speaks the extension laps-x1.")] = False
    leaving: Annotated[bool, says("Whether it has sent GOAWAY.")] = False
    on_demand: Annotated[
        str, says("Why this relay dialled it, if nobody configured it; empty for others.")
    ] = ""
    since: Annotated[Time, says("When the first of its connections began, since 1970.")] = 0.0
    connections: Annotated[Count, says("Connections to a peer."), GAUGE] = 0
    leads_to: Annotated[
        Count,
        says("Nodes that a peer leads to, itself among them."),
        Series("gauge", "reachable_nodes"),
    ] = 0
    address: Annotated[str, says("The address of the connection that has control.")] = ""
    srtt_us: Annotated[
        Count,
        says("Smoothed round trip time to a peer."),
        Series("gauge", "srtt_seconds", per=1e6),
    ] = 0
    sent_bytes: Annotated[
        Count, says("Bytes sent to a peer since its connections began."), COUNTER
    ] = 0
    received_bytes: Annotated[
        Count, says("Bytes received from a peer since they began."), COUNTER
    ] = 0
    sent_packets: Annotated[Count, says("Packets sent to a peer."), COUNTER] = 0
    lost_packets: Annotated[Count, says("Packets to a peer that were lost."), COUNTER] = 0
    probe_timeouts: Annotated[
        Count, says("Times that a peer acknowledged nothing in time and was probed."), COUNTER
    ] = 0
    queue_bytes: Annotated[Count, says("Bytes that wait to be sent to a peer."), GAUGE] = 0
    dropped_groups: Annotated[
        Count, says("Groups not sent because a peer does not keep up."), COUNTER
    ] = 0


class Peers(ListPage, frozen=True, kw_only=True):
    """The relays that this one is connected to."""

    path = "/v1/peers"

    peers: Annotated[list[Peer], says("A row for each peer.")] = []
    total: Total = 0


class Path(Row, frozen=True, kw_only=True):
    """A path to a node."""

    peer: Annotated[str, says("The peer that it begins with.")] = ""
    hops: Annotated[list[str], says("The nodes from the peer to the node itself.")] = []
    srtt_us: Annotated[Count, says("The sum of the round trip times on it.")] = 0
    carries_data: Annotated[bool, says("Whether data may take it, or control alone.")] = True
    admitted: Annotated[bool, says("Whether policy admits it.")] = True
    since: Annotated[Time, says("When its first link began, in seconds since 1970.")] = 0.0


class KnownNode(Row, frozen=True, kw_only=True):
    """A node as another one knows it, with the paths to it."""

    node: Annotated[str, says("Its id, like 1:2.")]
    role: Annotated[str, says("What it is: edge, via or stub; a Control server is a via.")] = ""
    region: Annotated[str, says("Its region, where it has sent one.")] = ""
    contact: Annotated[str, says("Where other relays reach it.")] = ""
    latitude: Annotated[Latitude, says("Where it stands, in degrees; 0 where not given.")] = 0.0
    longitude: Annotated[Longitude, says("Where it stands, in degrees; 0 where not given.")] = 0.0
    clients_address: Annotated[str, says("Where clients reach it; empty where unknown.")] = ""
    load: Annotated[float | None, says("The share of a core it uses, if it has sent one.")] = None
    leaving: Annotated[bool, says("Whether it has sent GOAWAY.")] = False
    reason: Annotated[str, says("Why the best path is the best.")] = ""
    best: Annotated[Path | None, says("The path that is taken, if one is admitted.")] = None
    alternates: Annotated[list[Path], says("The other paths, best first.")] = []


class Nodes(ListPage, frozen=True, kw_only=True):
    """Every node that is known, with the paths to it, best first."""

    path = "/v1/nodes"

    nodes: Annotated[list[KnownNode], says("A row for each node.")] = []
    total: Total = 0


class OneNode(KnownNode, Page, frozen=True, kw_only=True):
    """One of nodes."""

    path = "/v1/nodes/{node}"

    at: At = 0.0


class Subscribe(Row, frozen=True, kw_only=True):
    """A node that wants a track."""

    source: Annotated[str, says("The node with the subscribers.")] = ""
    track: Annotated[str, says("The hash of the track.")] = ""
    namespace: Annotated[str, says("Its namespace; empty where it cannot be read.")] = ""
    name: Annotated[str, says("Its name; empty where it cannot be read.")] = ""
    sequence: Annotated[Id, says("The number of the latest message about it.")] = 0


class Subscribes(ListPage, frozen=True, kw_only=True):
    """Who, on which node, wants which track."""

    path = "/v1/subscribes"

    subscribes: Annotated[list[Subscribe], says("A row for each node and track.")] = []
    total: Total = 0


class Announce(Row, frozen=True, kw_only=True):
    """A namespace, or one track, that a publisher offers."""

    source: Annotated[str, says("The node of the publisher.")] = ""
    client: Annotated[Count | None, says("The publisher's number, if it is a client here.")] = None
    namespace: Annotated[str, says("The namespace that is offered.")] = ""
    name: Annotated[str | None, says("The one track; null for all below the namespace.")] = None


class Announces(ListPage, frozen=True, kw_only=True):
    """What publishers offer, here and elsewhere."""

    path = "/v1/announces"

    announces: Annotated[list[Announce], says("A row for each offer.")] = []
    total: Total = 0
