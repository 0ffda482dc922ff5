"""What a relay decides by, and what it has decided: policy, probes, sessions on demand."""

from typing import Annotated

from laps.admin.schema.fields import COUNTER, GAUGE, Count, ListPage, Row, Time, Total, says

# Of a way that carries this much or more, probes cannot tell how much it is.
WIDEST_BPS = 144_000_000


class PolicyLine(Row, frozen=True, kw_only=True):
    """A line of the policy in force, or something that it refuses now."""

    kind: Annotated[
        str,
        says(
            "The table of the policy: plan, class, rule, way, node, link, peering or vias; or "
            "refused, for what it refuses now, and refused_by, for what another relay refuses."
        ),
    ]
    what: Annotated[str, says("What the line is about, like the pattern of a rule.")] = ""
    holds: Annotated[str, says("What holds for it, in words.")] = ""


class PolicyLines(ListPage, frozen=True, kw_only=True):
    """The policy in force, line by line, and what it refuses now."""

    path = "/v1/policy"

    source: Annotated[
        str, says("Where the policy comes from; empty where there is none, and all is allowed.")
    ] = ""
    digest: Annotated[str, says("What tells it from another: relays that agree have the same.")] = (
        ""
    )
    kept_away_subscribes: Annotated[
        Count, says("Subscribes that a peer told and this relay may not hear of.")
    ] = 0
    policy: Annotated[list[PolicyLine], says("A row for each line.")] = []
    total: Total = 0


class Probe(Row, frozen=True, kw_only=True):
    """A node that is no peer, and what is known of the way to it."""

    node: Annotated[str, says("Its id, like 1:2.")]
    role: Annotated[str, says("What it is: edge, via or stub; a Control server is a via.")] = ""
    contact: Annotated[str, says("Where probes go.")] = ""
    rtt_us: Annotated[Count | None, says("Round trip of probes; null before the first.")] = None
    loss: Annotated[float, says("Share of the last probes that nobody answered.")] = 0.0
    width_bps: Annotated[
        Count, says("What the way carries, about, or more than can be told; 0 where not known.")
    ] = 0
    estimate_us: Annotated[
        Count | None, says("Round trip by the coordinates of both, where both know theirs.")
    ] = None
    probed_at: Annotated[Time | None, says("When it was probed last, since 1970.")] = None
    unanswered: Annotated[Count, says("Times in a row that nothing was answered.")] = 0
    doubted: Annotated[
        list[str], says("Nodes that it is nearer to than both can be, if they are where they say.")
    ] = []


class Probes(ListPage, frozen=True, kw_only=True):
    """The nodes that are probed, and where this relay is by round trips."""

    path = "/v1/probes"

    place: Annotated[
        list[float] | None, says("Its network coordinates and its height, in milliseconds.")
    ] = None
    error: Annotated[float, says("How far its coordinates may be wrong, as a share.")] = 0.0
    probes: Annotated[list[Probe], says("A row for each node that is probed.")] = []
    total: Total = 0


class Decision(Row, frozen=True, kw_only=True):
    """A session on demand, or a Via that spares copies."""

    kind: Annotated[str, says("session, or via for one that takes one copy for a region.")]
    node: Annotated[str, says("The peer or the Via; empty where only its contact is known.")] = ""
    contact: Annotated[str, says("Where it is dialled.")] = ""
    state: Annotated[
        str,
        says("dialling, up, resting (let go soon), waiting or ready to be dialled again; used."),
    ] = ""
    region: Annotated[str, says("The region that a Via takes copies for.")] = ""
    flows: Annotated[Count, says("Tracks and subscribers' relays that it helps.")] = 0
    since: Annotated[Time, says("When it was dialled, since 1970; 0 for a Via.")] = 0.0
    again_at: Annotated[Time, says("When it may be dialled again; 0 where it need not be.")] = 0.0
    why: Annotated[str, says("What it is for; and of one that waits, why it does.")] = ""


class ClassOfService(Row, frozen=True, kw_only=True):
    """The tracks of one place in the order of classes, and what became of their data."""

    order: Annotated[Count, says("Its place: 0 goes first among tracks of one priority.")]
    classes: Annotated[
        list[str], says("The classes that have the place, by the policy or as relays say.")
    ] = []
    tracks: Annotated[Count, says("Tracks of these classes that pass here."), GAUGE] = 0
    sent_bytes: Annotated[
        Count, says("Bytes of streams and datagrams sent to peers and clients, by class."), COUNTER
    ] = 0
    waiting_bytes: Annotated[
        Count, says("Bytes that wait to be sent to peers and clients, by class."), GAUGE
    ] = 0
    dropped: Annotated[
        Count,
        says("Streams and datagrams dropped as too many waited, or too old, by class."),
        COUNTER,
    ] = 0


class ClassesOfService(ListPage, frozen=True, kw_only=True):
    """The classes of service, the best first, and what became of the data of each."""

    path = "/v1/classes"

    classes: Annotated[list[ClassOfService], says("A row for each place in their order.")] = []
    total: Total = 0


class Demand(ListPage, frozen=True, kw_only=True):
    """Sessions with peers that nobody configured, and Vias that spare copies."""

    path = "/v1/demand"

    sessions: Annotated[Count, says("Sessions on demand that there are now."), GAUGE] = 0
    most_sessions: Annotated[Count, says("As many as there may be.")] = 0
    spared_copies: Annotated[
        Count, says("Copies into regions that are not sent now, as a Via sends them on."), GAUGE
    ] = 0
    demand: Annotated[list[Decision], says("A row for each session and each Via.")] = []
    total: Total = 0
