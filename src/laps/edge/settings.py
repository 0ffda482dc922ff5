"""What an operator may decide about clients, and what is counted of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laps.edge.media_queue import MediaCounters
from laps.edge.shares import ShareSettings
from laps.sessions.moqt import MoqtLimits

if TYPE_CHECKING:
    from laps.edge.moqt_manners import Join
    from laps.types import Network
    from laps.wire.moqt.tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class QuicrSettings:
    """What an operator may decide about QUICR clients."""

    subscription_s: float = 30.0
    "A subscription that is not renewed for this long expires; 0: never."
    streams: int = 1000
    "Control streams of one client that may be open at once."
    datagrams: bool = True
    "Whether publishers that can are asked for datagrams."


@dataclass(frozen=True, slots=True)
class MovingSettings:
    """Which clients are moved to other Edges, and how many."""

    per_minute: int = 0
    "At most; a shell whose clients can be sent elsewhere says how many. 0: none."
    settled_s: float = 30.0
    "A client that has been here for less is not moved."
    near_ms: float = 10.0
    "Edges within this round trip are near, and those in the same region."


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What an operator may decide about clients."""

    session: MoqtLimits = field(default_factory=MoqtLimits)
    quicr: QuicrSettings = field(default_factory=QuicrSettings)
    hold_s: float = 1.0
    "How long streams wait for the message that names their track."
    hold_bytes: int = 1024 * 1024
    "How much of them waits for each client."
    hold_fragments: int = 4096
    "Fragments that wait for the answer to a PUBLISH_INTENT, of one QUICR client."
    most_tracks: int = 1_000_000
    "Tracks that are published, wanted or kept at a time, of all clients together."
    shares: ShareSettings = field(default_factory=ShareSettings)
    exempt: tuple[Network, ...] = ()
    "Clients from these networks have no limits by address."
    join: Join = "draft"
    "Where a subscription with the filter largest object begins."
    subscribe_wait_s: float = 1.0
    "A SUBSCRIBE waits this long for a publisher before it is refused."
    answer_wait_s: float = 1.0
    "How long another relay has to say how far a track is."
    linger_s: float = 0.5
    "Streams may arrive this long after a PUBLISH_DONE that does not count them."
    grace_s: float = 5.0
    "Clients have this long to follow a GOAWAY."
    moving: MovingSettings = field(default_factory=MovingSettings)


@dataclass(slots=True)
class ClientCounters:
    """What clients did that came to nothing, for the operator."""

    unknown_streams: int = 0
    "Data streams for an alias that nobody explained in time."
    unknown_datagrams: int = 0
    flushed_streams: int = 0
    "Data streams of a PUBLISH that came before it was refused."
    refused_requests: int = 0
    violations: int = 0
    "Sessions that were closed because of what the client did."
    malformed_streams: int = 0
    broken_streams: int = 0
    "Streams that ended in the middle of an object."
    tolerated: Counter[Tolerance] = field(default_factory=Counter)
    "Mistakes that were understood; a strict relay has none, and violations in their place."


@dataclass(slots=True)
class QuicrCounters:
    """What QUICR clients did, for the operator."""

    refused: int = 0
    "Subscriptions and intents that were answered with a failure."
    not_offered: int = 0
    "Tracks that a subscription with a mask found when too many streams were open."
    expired: int = 0
    renewed: int = 0
    redirected: int = 0
    unknown_datagrams: int = 0
    "For a datagram stream that is not known."
    malformed_datagrams: int = 0
    early_dropped: int = 0
    "Fragments ahead of the answer to their PUBLISH_INTENT: beyond the bounds, or not granted."
    media: MediaCounters = field(default_factory=MediaCounters)
