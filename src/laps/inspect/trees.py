"""What `laps explain` finds: the tree of a track, or the path between two nodes, with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.admin.schema.network import Path


@dataclass(frozen=True, slots=True)
class Way:
    """A path that could have been taken."""

    peer: str
    hops: tuple[str, ...]
    "From the peer to the node itself."
    srtt_us: int | None
    admitted: bool = True
    carries_data: bool = True

    @classmethod
    def of(cls, path: Path) -> Way:
        """As the admin API has it."""
        hops = tuple(path.hops or (path.peer,))
        return cls(path.peer, hops, path.srtt_us, path.admitted, path.carries_data)

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "peer": self.peer,
            "hops": list(self.hops),
            "srtt_us": self.srtt_us,
            "admitted": self.admitted,
            "carries_data": self.carries_data,
        }


@dataclass(frozen=True, slots=True)
class Why:
    """Why a peer was chosen on the way to some nodes."""

    targets: tuple[str, ...]
    reason: str
    alternates: tuple[Way, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "targets": list(self.targets),
            "reason": self.reason,
            "alternates": [way.to_mapping() for way in self.alternates],
        }


@dataclass(slots=True)
class Hop:
    """A relay in a tree, and how it is reached from the one above."""

    node: str
    role: str = ""
    asked: bool = True
    "It was asked itself; or else this is what others say."
    publishers: int = 0
    subscribers: int = 0
    bytes_per_s: float | None = None
    "What comes in of the track."
    srtt_us: int | None = None
    "The round trip of the link from the relay above."
    sum_us: int | None = None
    "The round trips of all links from the publisher's relay to here."
    targets: tuple[str, ...] = ()
    "The s-relays that it leads to, itself among them."
    why: tuple[Why, ...] = ()
    notes: list[str] = field(default_factory=list)
    below: list[Hop] = field(default_factory=list)

    def all(self) -> Iterator[Hop]:
        """It and all below."""
        yield self
        for hop in self.below:
            yield from hop.all()

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "node": self.node,
            "role": self.role,
            "asked": self.asked,
            "publishers": self.publishers,
            "subscribers": self.subscribers,
            "bytes_per_s": self.bytes_per_s,
            "srtt_us": self.srtt_us,
            "sum_us": self.sum_us,
            "targets": list(self.targets),
            "why": [why.to_mapping() for why in self.why],
            "notes": self.notes,
            "to": [hop.to_mapping() for hop in self.below],
        }


@dataclass(slots=True)
class TrackStory:
    """How a track's data goes now."""

    track: str
    hash: str
    service: str = ""
    "Its class, where policy says one."
    servers: list[str] = field(default_factory=list)
    "The control servers that hold the subscribes to it."
    roots: list[Hop] = field(default_factory=list)
    "The relays that it comes from."
    notes: list[str] = field(default_factory=list)
    "Everything else that a reader has to know."
    defects: list[str] = field(default_factory=list)
    "What must never be."

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "track": self.track,
            "hash": self.hash,
            "class": self.service,
            "servers": self.servers,
            "trees": [root.to_mapping() for root in self.roots],
            "notes": self.notes,
            "defects": self.defects,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a path between nodes."""

    node: str
    peer: str
    asked: bool
    srtt_us: int | None
    sum_us: int | None
    reason: str
    alternates: tuple[Way, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "node": self.node,
            "peer": self.peer,
            "asked": self.asked,
            "srtt_us": self.srtt_us,
            "sum_us": self.sum_us,
            "reason": self.reason,
            "alternates": [way.to_mapping() for way in self.alternates],
        }


@dataclass(slots=True)
class PathStory:
    """How data goes from a node to another now."""

    source: str
    target: str
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "from": self.source,
            "to": self.target,
            "steps": [step.to_mapping() for step in self.steps],
            "notes": self.notes,
            "defects": self.defects,
        }
