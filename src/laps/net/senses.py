"""What a relay cannot know of itself without sockets and clocks: its process and its links."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from os import sysconf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from laps.net.losses import Losses, Sent
from laps.relay.ports import LinkReading, NodeReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from laps.infobase.nodes import SessionId
    from laps.net.clients import Clients
    from laps.net.engine import Stats
    from laps.net.link import QuicLink
    from laps.net.quic import Endpoint
    from laps.relay.relay import Relay
    from laps.types import NodeId

# So many connections are read between two chances for others: a few tenths of a millisecond.
LINKS_A_TURN: Final = 64
CONNECTIONS_A_TURN: Final = 500

_STATM: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class _Counts:
    """What one link has counted since it began."""

    sent_bytes: int = 0
    received_bytes: int = 0
    dropped: int = 0


class Senses:
    """A `relay.ports.Senses` of a running relay."""

    def __init__(
        self,
        relay: Relay,
        links: Mapping[SessionId, QuicLink],
        endpoints: Callable[[], Iterable[Endpoint]],
        clients: Clients,
    ) -> None:
        self.links: list[LinkReading] = []
        self.node = NodeReading(0.0, 0, 0, 0, 0)
        self._relay = relay
        self._links = links
        self._endpoints = endpoints
        self._clients = clients
        self._counts: dict[SessionId, _Counts] = {}
        self._losses = Losses()
        self._at = time.monotonic()
        self._worked_s = time.process_time()
        self._carried = (0, 0)
        self._dropped = 0

    def read(self) -> Iterator[None]:
        """As `Senses`."""
        yield from self._read_links()
        yield from self._read_node()

    def _read_links(self) -> Iterator[None]:
        before, self._counts = self._counts, {}
        readings: dict[NodeId, LinkReading] = {}
        counted: list[Sent] = []
        for number, link in enumerate(list(self._links.values())):
            node_id = self._relay.links.node_of(link.id)
            if node_id is not None:
                stats = link.connection.stats()
                counted.append(Sent(link.id, node_id, stats.sent_packets, stats.lost_packets))
                reading = self._read_link(link, node_id, stats, before.get(link.id, _Counts()))
                known = readings.get(node_id)
                readings[node_id] = reading if known is None else _joined(known, reading)
            if not number % LINKS_A_TURN:
                yield
        lost = self._losses.read(counted)
        self.links = [replace(it, loss=lost[it.peer]) for it in readings.values()]

    def _read_link(
        self, link: QuicLink, peer: NodeId, stats: Stats, before: _Counts
    ) -> LinkReading:
        dropped = link.egress.counters.dropped_groups
        self._counts[link.id] = _Counts(stats.sent_bytes, stats.received_bytes, dropped)
        return LinkReading(
            peer,
            stats.srtt_us,
            link.egress.queued_bytes + link.connection.buffered_bytes,
            max(0, stats.sent_bytes - before.sent_bytes),
            max(0, stats.received_bytes - before.received_bytes),
            0.0,
            dropped - before.dropped,
        )

    def _read_node(self) -> Iterator[None]:
        sent = received = number = 0
        for endpoint in self._endpoints():
            for sent_bytes, received_bytes in endpoint.traffic():
                sent += sent_bytes
                received += received_bytes
                number += 1
                if not number % CONNECTIONS_A_TURN:
                    yield
        dropped = self._clients.past_dropped_groups
        for connection in self._clients.connections:
            dropped += connection.egress.counters.dropped_groups
        now, worked_s = time.monotonic(), time.process_time()
        load = (worked_s - self._worked_s) / max(now - self._at, 1e-3)
        sent_before, received_before = self._carried
        # A connection that moves to another path counts from the beginning there.
        self.node = NodeReading(
            min(1.0, load),
            resident_bytes(),
            max(0, sent - sent_before),
            max(0, received - received_before),
            dropped - self._dropped,
        )
        self._at, self._worked_s = now, worked_s
        self._carried, self._dropped = (sent, received), dropped


def resident_bytes() -> int:
    """The memory of this process that is in use; 0 where the system does not say."""
    with suppress(OSError):
        return int(_STATM.read_text().split()[1]) * sysconf("SC_PAGE_SIZE")
    return 0


def _joined(one: LinkReading, other: LinkReading) -> LinkReading:
    """Two connections to a peer as one: what they carry together, by the shorter way."""
    return LinkReading(
        one.peer,
        min(one.srtt_us, other.srtt_us),
        one.queue_bytes + other.queue_bytes,
        one.sent_bytes + other.sent_bytes,
        one.received_bytes + other.received_bytes,
        0.0,
        one.dropped + other.dropped,
    )
