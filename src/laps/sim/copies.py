"""What tracks take: copies between regions, copies that publishers' relays send, delays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.sim.network import Network
    from laps.types import NodeId


@dataclass(frozen=True, slots=True)
class Copies:
    """Of all tracks together: what one object of each takes, on average."""

    tracks: int
    long_haul: float
    "Copies that cross from one region to another."
    origin_egress: float
    "Copies that leave a publisher's relay."
    delays_s: tuple[float, ...]
    "From the publisher's relay to each relay with subscribers, for each object, in order."

    def delay_s(self, share: float) -> float:
        """What so many of the deliveries take at most."""
        if not self.delays_s:
            return 0.0
        return self.delays_s[min(len(self.delays_s) - 1, int(share * len(self.delays_s)))]


def copies(network: Network, since: float, until: float) -> Copies:
    """What objects took that were published in a time; all of them have arrived by now."""
    region = {node.node_id: node.spec.region for node in network.nodes.values()}
    wanted = _wanted(network)
    objects: dict[int, int] = defaultdict(int)
    far: dict[int, int] = defaultdict(int)
    out: dict[int, int] = defaultdict(int)
    delays: list[float] = []
    for made, trail in network.trace.trails.items():
        if not since <= trail.began < until or not trail.hops:
            continue
        origin = network.publishers[made.publisher].spec.node
        objects[made.track] += 1
        far[made.track] += sum(region[a] != region[b] for a, b in trail.hops)
        out[made.track] += sum(a == origin for a, _ in trail.hops)
        delays += [
            at - trail.began
            for node_id, at in trail.reached.items()
            if node_id in wanted[made.track] and node_id != origin
        ]
    return Copies(
        len(objects), _per_object(far, objects), _per_object(out, objects), tuple(sorted(delays))
    )


def _wanted(network: Network) -> dict[int, set[NodeId]]:
    found: dict[int, set[NodeId]] = defaultdict(set)
    for subscriber in network.subscribers:
        found[subscriber.track_hash.full_name_hash].add(subscriber.spec.node)
    return found


def _per_object(counts: dict[int, int], objects: dict[int, int]) -> float:
    return sum(counts[track] / many for track, many in objects.items())
