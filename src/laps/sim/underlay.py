"""The way that packets take between two nodes, also where no cable of the topology joins them.

Relays are joined by cables; a probe goes to any node. Between two that a cable joins it takes as
long as on the cable. Between others it takes what light in glass needs over the degrees between
their places, as in the networks that are generated, and where nobody says places, the fastest way
over cables. It is lost as often as on the cable, and always where the node is down or stands still.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from laps.sim.generators import MS_PER_DEGREE, degrees

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.relay.probing import Train
    from laps.sim.clock import Clock
    from laps.sim.links import Cable
    from laps.sim.node import SimNode
    from laps.types import NodeId

# A probe after another in a train: a path of 100 Mbit/s.
SPACING_S = 0.0001


class Underlay:
    """What lies under the links of a network."""

    def __init__(self, clock: Clock, nodes: Mapping[NodeId, SimNode], noise: float) -> None:
        """`nodes` by their ids in the topology; `noise` is that of `Conditions`."""
        self._clock = clock
        self._nodes = nodes
        self._noise = noise
        self._cables: dict[NodeId, dict[NodeId, tuple[Cable, int]]] = {}
        self._over_cables: dict[NodeId, dict[NodeId, float]] = {}
        self.losses: dict[frozenset[NodeId], float] = {}
        "What probes between two nodes lose that no cable joins."

    def lay(self, cable: Cable, a: NodeId, b: NodeId) -> None:
        """A cable joins two nodes; the first of several counts."""
        self._cables.setdefault(a, {}).setdefault(b, (cable, 0))
        self._cables.setdefault(b, {}).setdefault(a, (cable, 1))
        self._over_cables.clear()

    def delay_s(self, a: NodeId, b: NodeId) -> float | None:
        """One way from one node to another; None: no packet gets there."""
        if (joined := self._cables.get(a, {}).get(b)) is not None:
            cable, lane = joined
            return None if cable.is_cut else cable.lanes[lane].conditions.delay_s
        one, other = self._nodes[a].spec, self._nodes[b].spec
        if one.latitude or one.longitude or other.latitude or other.longitude:
            return (1 + MS_PER_DEGREE * degrees(one, other)) / 1000
        return self._from(a).get(b)

    def send(self, source: SimNode, train: Train, answered: Callable[[int], None]) -> None:
        """Send the probes of a train; what is not lost is answered after a round trip."""
        target = next((it for it in self._nodes.values() if it.node_id == train.node_id), None)
        if target is None:
            return
        here, there = source.spec.id, target.spec.id
        for number, probe in enumerate(train.numbers):
            out, back = self.delay_s(here, there), self.delay_s(there, here)
            if out is None or back is None or self._loses(here, there):
                continue
            late_s = number * SPACING_S
            flight_s = (out + back) * (1 + self._noise * self._clock.rng.random())
            self._clock.after(out + late_s, self._arrive, target, flight_s - out, answered, probe)

    def _arrive(
        self, target: SimNode, back_s: float, answered: Callable[[int], None], number: int
    ) -> None:
        if target.is_up and not target.is_frozen:
            self._clock.after(back_s, answered, number)

    def _loses(self, a: NodeId, b: NodeId) -> bool:
        joined = self._cables.get(a, {}).get(b)
        if joined is not None:
            return any(lane.loses() for lane in joined[0].lanes)
        loss = self.losses.get(frozenset((a, b)), 0.0)
        return loss > 0 and self._clock.rng.random() < loss

    def _from(self, source: NodeId) -> dict[NodeId, float]:
        """The fastest way over cables to every node."""
        if (found := self._over_cables.get(source)) is not None:
            return found
        found = self._over_cables[source] = {}
        queue = [(0.0, source)]
        while queue:
            at, node_id = heappop(queue)
            if node_id in found:
                continue
            found[node_id] = at
            for other, (cable, lane) in self._cables.get(node_id, {}).items():
                heappush(queue, (at + cable.lanes[lane].conditions.delay_s, other))
        return found
