"""What an operator may decide about a relay's manners, and what the relay counts for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from laps.tracks.cache import CacheLimits


@dataclass(frozen=True, slots=True)
class ExtensionSettings:
    """What an operator may decide about the extensions."""

    metrics_s: float = 2.0
    "Our own metrics are told no more often than this, as nodes are."
    metrics_bps: int = 500_000
    "What the metrics of all nodes may take of a link, each way: all nodes set it alike."
    confirm_s: float = 5.0
    "How long a node that is back has to say what it still offers."
    grace_s: float = 5.0
    "How long we stay after GOAWAY: two hops learn of other ways, at 2 s each, and take them."


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How much nodes that are no peers are probed."""

    enabled: bool = False
    "A shell that can send probes says so. Without it no coordinates are kept either."
    count: int = 16
    "So many nodes at a time; 0: none, and coordinates come from peers alone."
    rate: float = 1.0
    "Probes a second on average, of 1,200 bytes each, to all of them together."


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """How many peers nobody configured there may be."""

    sessions: int = 0
    "A shell that can dial says how many. Without it Vias still spare copies."
    least: int = 1
    "Peers are dialled that help so many subscribers' relays, each counted for each track."
    idle_s: float = 30.0
    "A session that is not needed any more is closed after so long without data."
    dialled: frozenset[str] = frozenset()
    "The contacts that the shell dials in any case."


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """How much one link may make us hold. More than any network has, and less than memory."""

    nodes: int = 100_000
    "200 bytes each, and as much again for each peer that is told of it."
    subscribes: int = 10_000_000
    "300 bytes each."
    namespaces: int = 1_000_000
    announces: int = 100_000
    "Of a Stub."
    sets: int = 1_000_000
    "Of subscriber nodes, one for each track that is sent."


@dataclass(frozen=True, slots=True)
class Steadiness:
    """When the round trip to a peer counts as another.

    It is measured, and never stands still. Two paths that are about equal would be taken in turn,
    and each change costs something: sets to advertise, streams by two ways, objects again.
    """

    share: float = 0.1
    "It differs by so much of it,"
    least_us: int = 2000
    "and not by less than this,"
    hold_s: float = 5.0
    "for as long as this."

    def is_another(self, before_us: int, now_us: int) -> bool:
        """Whether a round trip differs by enough."""
        differs = abs(now_us - before_us)
        return differs >= self.least_us and differs >= self.share * before_us


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """What an operator may decide about a relay's manners."""

    node_advertise_s: float = 2.0
    "Advertisements of nodes gather for this long, so that a flapping link is told of once."
    unsubscribe_s: float = 5.0
    "The last subscriber's leaving is told after this long, if none has come meanwhile."
    reflect: bool = False
    "A Via keeps subscribes and passes them to peers that join later, as a Control server does."
    hold_s: float = 1.0
    "How long data waits for its SNS, and an SNS that was withdrawn for the last of its data."
    hold_bytes: int = 256 * 1024
    "How much of it waits for each link."
    confirm_s: float = 5.0
    "How long a node that is back has to say what it still subscribes to."
    probe_s: float = 3.0
    "How long a newcomer waits while the peer that has its id is probed."
    proof_s: float = 3.0
    "How long a peer has to prove who it is, after it has said so: it is sent together."
    orphan_s: float = 10.0
    "How long subscribes are kept of a node that nobody has told us of."
    repair_s: float = 2.5
    "What was sent so long before a relay was found dead may be missing; longer than that takes."
    region: str = ""
    "Where the relay is, for policies to go by."
    steadiness: Steadiness = field(default_factory=Steadiness)
    demand: DemandSettings = field(default_factory=DemandSettings)
    extensions: ExtensionSettings = field(default_factory=ExtensionSettings)
    probing: ProbeSettings = field(default_factory=ProbeSettings)
    cache: CacheLimits = field(default_factory=CacheLimits)
    limits: PeerLimits = field(default_factory=PeerLimits)


@dataclass(slots=True)
class RelayCounters:
    """What the relay did and refused, for the operator."""

    control_sent: int = 0
    control_received: int = 0
    refused_peers: int = 0
    unproved_peers: int = 0
    "Links to peers that did not prove who they are; also those that we dialled."
    refused_claims: int = 0
    "What peers said and may not: of other nodes, or of tracks that they do not serve."
    corrected_claims: int = 0
    "What peers said of other peers, and these themselves say otherwise."
    kept_away_subscribes: int = 0
    "Subscribes that peers told of and policy keeps from this relay."
    unwanted_messages: int = 0
    unknown_sns_withdraws: int = 0
    double_node_ids: int = 0
    "Times that two relays were found to have the same id."
    peers_over_limit: int = 0
    "Links that were closed because the peer told of too much."
    unsendable_messages: int = 0
    "What no message can hold, and was left out: a defect, here or at a peer."
