"""The Edges near this one that clients of ours could go to, and what comes from afar.

Near is who is in the same region, or a round trip of no more than `near_ms` away. Of all nodes some
are looked at in each look. Whether one takes clients is asked again at the moment that a client is
sent there: it may have begun to leave.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.relay.failover import MOST_LOAD, client_address
from laps.routing.conditions import MARGIN, fullness
from laps.types import NodeType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.relay.relay import Relay
    from laps.tracks.track import Track
    from laps.types import Address, NodeId, NodeMetrics

# At 10 µs each.
MOST_NODES: Final = 200

# Each client's tracks are compared with what each of them wants.
MOST_NEIGHBOURS: Final = 16

# Who is as full as this is sent nobody: well below the load at which it would send some back.
TAKES_BELOW: Final = MOST_LOAD - MARGIN


class Neighbour(NamedTuple):
    """A node near us that takes clients now."""

    address: Address
    load: float


class Neighbours:
    """The Edges near this one."""

    def __init__(self, relay: Relay, near_ms: float) -> None:
        self.near_ms = near_ms
        self._relay = relay
        self._nodes: tuple[NodeId, ...] = ()
        self._found: list[tuple[float, NodeId]] = []
        "Of the round that is under way: each with its round trip in seconds."
        self._round: Iterator[NodeMetrics] = iter(())

    def __iter__(self) -> Iterator[NodeId]:
        """The nearest first; whether they take clients is another question."""
        return iter(self._nodes)

    def look(self) -> None:
        """Look at some nodes; those that are near count when all have been looked at."""
        metrics = self._relay.extensions.metrics
        some = list(islice(self._round, MOST_NODES))
        self._found += [
            (self._round_trip(it.source_node_id), it.source_node_id)
            for it in some
            if it.client_address and self.is_near(it.source_node_id)
        ]
        if len(some) < MOST_NODES:
            found = sorted(self._found)[:MOST_NEIGHBOURS]
            self._nodes = tuple(node_id for _, node_id in found)
            self._found, self._round = [], iter(metrics)

    def _round_trip(self, node_id: NodeId) -> float:
        measured = self._relay.places.round_trip(self._relay.id, node_id)
        return float("inf") if measured is None else measured

    # -- how far nodes are -------------------------------------------------------------------------

    def is_near(self, node_id: NodeId) -> bool:
        """Whether a node, and not this one, is near us."""
        if node_id == self._relay.id:
            return False
        policy = self._relay.weighing.policy
        own = policy.region_of(self._relay.id)
        if own and policy.region_of(node_id) == own:
            return True
        return self._round_trip(node_id) * 1000 <= self.near_ms

    def comes_from_afar(self, track: Track) -> bool:
        """Whether a track comes over a long haul, and to us alone.

        What a relay near us hands on has come here once for all that it serves, and what we hand on
        comes whether or not a client here wants it.
        """
        relay, is_far = self._relay, False
        for source in relay.tracks.shared.feeding.get(track.key, ()):
            flow, peer = relay.fib.get(source), relay.links.node_of(source.link)
            if flow is None or flow.withdrawn or peer is None:
                continue
            if flow.targets or self.is_near(peer):
                return False
            is_far = True
        return is_far

    # -- who takes clients -------------------------------------------------------------------------

    def taking(self, node_id: NodeId) -> Neighbour | None:
        """Where a node takes clients, and how full it is; None where it takes none, or has no room.

        One that listens on loopback takes those of its machine alone: it counts where we do too.
        """
        relay = self._relay
        extensions, info = relay.extensions, relay.nodes.info(node_id)
        metrics = extensions.metrics.get(node_id)
        if metrics is None or info is None or info.type is not NodeType.EDGE:
            return None
        if extensions.is_leaving(node_id) or extensions.is_lost(node_id):
            return None
        address = client_address(metrics)
        if address is None or (address.is_loopback and not self._is_local()):
            return None
        # As it counts, which is steady, and as it said last.
        load = max(relay.weighing.conditions.load(node_id), fullness(metrics))
        return Neighbour(address, load) if load < TAKES_BELOW else None

    def _is_local(self) -> bool:
        own = self._relay.extensions.metrics.get(self._relay.id)
        address = None if own is None else client_address(own)
        return address is not None and address.is_loopback

    @property
    def load(self) -> float:
        """How full we are ourselves: as it counts, or less where we are less full by now."""
        relay = self._relay
        held = relay.weighing.conditions.load(relay.id)
        own = relay.extensions.metrics.get(relay.id)
        return held if own is None else min(held, fullness(own))
