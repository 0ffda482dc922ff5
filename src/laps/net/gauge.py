"""How this relay is doing: what it tells others of itself, measured where the sockets are."""

from __future__ import annotations

import time
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Protocol

from laps.infobase.metrics import NOTABLE
from laps.net.losses import Losses, Sent
from laps.relay.link_capacity import LinkCapacity
from laps.types import FullLink, NodeMetrics, Reachability
from laps.wire.metric_fields import MAX_FULL_LINKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from laps.config import NodeConfig
    from laps.infobase.nodes import SessionId
    from laps.net.link import QuicLink
    from laps.relay.relay import Relay
    from laps.types import Address, NodeId


class Carrying(Protocol):
    """A socket whose connections carry data."""

    def traffic(self) -> Iterator[tuple[int, int]]:
        """Bytes sent and received: of all connections that are over, then of each that is not."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What one link has counted since it began."""

    sent_bytes: int = 0
    sent_packets: int = 0
    lost_packets: int = 0
    waited_s: float = 0.0

    def carried_since(self, then: _Counts) -> float:
        """The bytes that were sent and not lost: what a path drops it does not carry."""
        packets = self.sent_packets - then.sent_packets
        lost = self.lost_packets - then.lost_packets
        arrived = min(1.0, max(0.0, 1.0 - lost / packets)) if packets > 0 else 1.0
        return max(0, self.sent_bytes - then.sent_bytes) * arrived


class Gauge:
    """Reads the process and the links, and remembers what it read before."""

    def __init__(
        self, node: NodeConfig, client_address: Address | None, clients: Carrying | None = None
    ) -> None:
        """`client_address` is where others may send clients, if there is such a place.

        `clients` is the socket that they come to.
        """
        self._node = node
        self._clients = clients
        self._sent_to_clients = 0
        self._client_address = "" if client_address is None else str(client_address)
        self._at = time.monotonic()
        self._worked_s = time.process_time()
        self._counted: dict[SessionId, _Counts] = {}
        self._capacities: dict[NodeId, LinkCapacity] = {}
        self._losses = Losses()

    def leave(self) -> None:
        """From now on no more clients are wanted."""
        self._client_address = ""

    def read(self, relay: Relay, links: Iterable[QuicLink]) -> NodeMetrics:
        """The load, the rate and the paths since the last time."""
        now, worked_s = time.monotonic(), time.process_time()
        passed = max(now - self._at, 1e-3)
        load = min(1.0, (worked_s - self._worked_s) / passed)
        self._at, self._worked_s = now, worked_s
        sent_bytes, reachability, full_links = self._read_links(relay, links, passed)
        sent_bytes += self._read_clients()
        return NodeMetrics(
            sequence=0,
            source_node_id=relay.id,
            load=load,
            capacity_bps=self._node.capacity_bps,
            egress_bps=round(8 * sent_bytes / passed),
            region=self._node.region,
            tags=self._node.tags,
            reachability=tuple(sorted(reachability, key=lambda it: (it.srtt_us, it.node_id))),
            client_address=self._client_address,
            full_links=tuple(sorted(full_links, key=lambda it: it.node_id)),
        )

    def _read_clients(self) -> int:
        """What was sent to clients, at 0.3 µs for each of them."""
        if self._clients is None:
            return 0
        before = self._sent_to_clients
        self._sent_to_clients = sum(sent for sent, _ in self._clients.traffic())
        # A connection that moves to another path counts from the beginning there.
        return max(0, self._sent_to_clients - before)

    def _read_links(
        self, relay: Relay, links: Iterable[QuicLink], passed_s: float
    ) -> tuple[int, list[Reachability], list[FullLink]]:
        before, self._counted = self._counted, {}
        sent_bytes = 0
        srtts_us: dict[NodeId, int] = {}
        counted: list[Sent] = []
        used: dict[NodeId, tuple[float, float]] = {}
        for link in links:
            stats = link.connection.stats()
            now = _Counts(
                stats.sent_bytes, stats.sent_packets, stats.lost_packets, link.egress.waited_s
            )
            self._counted[link.id] = now
            then = before.get(link.id, _Counts())
            sent_bytes += now.sent_bytes - then.sent_bytes
            node_id = relay.links.node_of(link.id)
            # Ways for data are found by what is told here: a link for control alone is none.
            if node_id is None or not relay.links.sends_data(node_id):
                continue
            if relay.peers[node_id].is_stub:
                continue
            counted.append(Sent(link.id, node_id, stats.sent_packets, stats.lost_packets))
            srtts_us[node_id] = min(stats.srtt_us, srtts_us.get(node_id, stats.srtt_us))
            others, waited_s = used.get(node_id, (0.0, 0.0))
            # Several connections take the same path: it is full where one of them waits.
            waited_s = max(waited_s, now.waited_s - then.waited_s)
            used[node_id] = others + now.carried_since(then), waited_s
        lost = self._losses.read(counted)
        reached = [Reachability(it, srtts_us[it], loss) for it, loss in lost.items()]
        return sent_bytes, reached, self._full_links(used, passed_s)

    def _full_links(
        self, used: Mapping[NodeId, tuple[float, float]], passed_s: float
    ) -> list[FullLink]:
        """The links that are notably full, by what each carried and how long data waited."""
        known = self._capacities
        self._capacities = {it: known.get(it) or LinkCapacity() for it in used}
        found = []
        for node_id, (carried_bytes, waited_s) in used.items():
            capacity = self._capacities[node_id]
            full = capacity.read(carried_bytes, waited_s, passed_s, self._at)
            if full is not None and full > NOTABLE:
                found.append(FullLink(node_id, full))
        return nlargest(MAX_FULL_LINKS, found, key=lambda it: it.full)
