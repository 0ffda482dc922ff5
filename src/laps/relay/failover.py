"""Where the clients of a relay that stops are sent: the nearest relay with room, and why.

    1. has room                     whoever is full already is helped by nobody's arrival
    2. the same region as ours      if we have one: an operator's word counts more than a figure
    3. lowest sRTT of the best path our clients are near us, so what is near us is near them
    4. lowest load
    5. lowest node id               every restart of the same network chooses the same

A node counts if a way leads to it, if it tells where its clients connect, in words that can be
dialled, and if it stays: a peer that has said GOAWAY, or is lost, does not, whatever others still
say of it. A node that begins to leave takes its client address back, so that relays that are no
peers of it know as well. Where all that are left are full, the first of them is better than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import ne
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidText
from laps.types import Address, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from laps.relay.relay import Relay
    from laps.types import NodeId, NodeMetrics

# Beyond this a process that answers each packet in time no longer does when clients come at once.
MOST_LOAD: Final = 0.8
# A link that is fuller than this queues at the next peak.
MOST_EGRESS: Final = 0.9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that clients could be sent to."""

    node_id: NodeId
    address: Address
    has_room: bool
    region: str
    srtt_us: int
    """Of the best path to it."""
    load: float


@dataclass(frozen=True, slots=True)
class Target:
    """The node that clients are sent to, and why."""

    node_id: NodeId
    address: Address
    reason: str
    """In an operator's words."""

    def __str__(self) -> str:
        return f"{self.address}, node {format_node_id(self.node_id)}: {self.reason}"


def target(relay: Relay, region: str, *, local: bool) -> Target | None:
    """Where our clients had best go, by all that a relay knows now; None where there is nowhere.

    `region` is our own, and may be empty. `local` says that our clients are on this machine.
    """
    return choose(candidates(relay, local=local), region)


def candidates(relay: Relay, *, local: bool) -> list[Candidate]:
    """Every other node that takes clients and stays.

    One that listens on loopback takes those of its machine alone: it counts where ours are `local`.
    """
    found = []
    for metrics in relay.extensions.metrics:
        node_id = metrics.source_node_id
        address = client_address(metrics)
        way = relay.nodes.best(node_id)  # none leads to ourselves
        if address is None or way is None or (address.is_loopback and not local):
            continue
        if relay.extensions.is_leaving(node_id) or relay.extensions.is_lost(node_id):
            continue
        room, srtt_us = has_room(metrics), way.path.srtt_us
        found.append(Candidate(node_id, address, room, metrics.region, srtt_us, metrics.load))
    return found


def client_address(metrics: NodeMetrics) -> Address | None:
    """Where a node's clients connect, if it says so in words that can be dialled."""
    try:
        address = Address.parse(metrics.client_address)
    except InvalidText:
        return None
    return address if address.is_dialable else None


def has_room(metrics: NodeMetrics) -> bool:
    """Whether a node can take more than it does."""
    capacity_bps = metrics.capacity_bps
    sends_less = capacity_bps == 0 or metrics.egress_bps < MOST_EGRESS * capacity_bps
    return metrics.load < MOST_LOAD and sends_less


def choose(candidates: Collection[Candidate], region: str) -> Target | None:
    """The best of some nodes for clients of ours; `region` is our own, empty where we have none."""

    def key(node: Candidate) -> tuple[bool, bool, int, float, NodeId]:
        elsewhere = region != "" and node.region != region
        return not node.has_room, elsewhere, node.srtt_us, node.load, node.node_id

    ranked = sorted(candidates, key=key)
    if not ranked:
        return None
    best, *others = ranked
    reason = "the only node known that takes clients"
    if others:
        decisive = map(ne, key(best), key(others[0]))
        reason = next(compress(_WORDS, decisive))(best, others[0])
    if not best.has_room:
        reason += "; no node has room"
    return Target(best.node_id, best.address, reason)


_WORDS: Final[tuple[Callable[[Candidate, Candidate], str], ...]] = (
    lambda _, other: f"has room, {_node(other)} has none",
    lambda best, other: f'in our region "{best.region}", {_node(other)} is not',
    lambda best, other: f"lowest sRTT: {_ms(best)} against {_ms(other)} at {_node(other)}",
    lambda best, other: f"lowest load: {best.load:.9g} against {other.load:.9g} at {_node(other)}",
    lambda best, other: f"lowest node id: {_node(best)} against {_node(other)}",
)
"""What each part of the key is called when it decides."""


def _node(candidate: Candidate) -> str:
    return format_node_id(candidate.node_id)


def _ms(candidate: Candidate) -> str:
    # Nothing of a microsecond is rounded away: it may be what decided.
    return f"{candidate.srtt_us / 1000:.12g} ms"
