"""What a simulated node measures of its links, as `net.gauge` does of real ones."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from laps.infobase.metrics import NOTABLE
from laps.relay.link_capacity import LinkCapacity
from laps.types import FullLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.sim.lanes import Lane
    from laps.types import NodeId


class LinkGauge:
    """How much a node sends, and how full its links are, since it was read before."""

    def __init__(self) -> None:
        self._at = 0.0
        self._sent_bytes: dict[Lane, int] = {}
        self._busy_s: dict[Lane, float] = {}
        self._capacities: dict[NodeId, LinkCapacity] = {}

    def read(self, lanes: Mapping[NodeId, Lane], now: float) -> tuple[int, tuple[FullLink, ...]]:
        """The bits a second that it sends, and the links that are notably full."""
        passed_s, self._at = max(now - self._at, 1e-3), now
        sent_before, self._sent_bytes = self._sent_bytes, {}
        busy_before, self._busy_s = self._busy_s, {}
        known, self._capacities = self._capacities, {}
        sent_bytes, found = 0, []
        for peer, lane in sorted(lanes.items()):
            traffic = lane.traffic
            total = traffic.stream_bytes + traffic.datagram_bytes + traffic.control_bytes
            self._sent_bytes[lane] = total
            sent_bytes += total - sent_before.get(lane, total)
            if (bytes_per_s := lane.conditions.bytes_per_s) == inf:
                continue
            self._busy_s[lane] = busy_s = lane.busy_s
            # What is being sent keeps what follows waiting.
            waited_s = busy_s - busy_before.get(lane, busy_s)
            capacity = self._capacities[peer] = known.get(peer) or LinkCapacity()
            full = capacity.read(waited_s * bytes_per_s, waited_s, passed_s, now)
            if full is not None and full > NOTABLE:
                found.append(FullLink(peer, full))
        return round(8 * sent_bytes / passed_s), tuple(found)
