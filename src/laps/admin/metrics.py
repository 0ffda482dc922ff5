"""What Prometheus scrapes: gauges and counters of the relay, its peers and its clients.

Series are by peer, by protocol and by kind of close. None is by track or by client: there may be a
hundred thousand, and `/v1/tracks` has them. What is gathered is gathered when a scrape asks for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from laps.admin import health
from laps.admin.answers import in_slices
from laps.admin.rows import clients as views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.admin.rows.table import Row
    from laps.net.runner import Runner

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

# What is made of a peer's row: the name, the field, what it is, and how many of it make a unit.
PEER_COUNTERS: Final = (
    ("sent_bytes", "sent_bytes", "Bytes sent to a peer since its connections began."),
    ("received_bytes", "received_bytes", "Bytes received from a peer since they began."),
    ("sent_packets", "sent_packets", "Packets sent to a peer."),
    ("lost_packets", "lost_packets", "Packets to a peer that were lost."),
    ("dropped_groups", "dropped_groups", "Groups not sent because a peer does not keep up."),
)
PEER_GAUGES: Final = (
    ("connections", "connections", "Connections to a peer.", 1),
    ("srtt_seconds", "srtt_us", "Smoothed round trip time to a peer.", 1e6),
    ("queue_bytes", "queue_bytes", "Bytes that wait to be sent to a peer.", 1),
    ("reachable_nodes", "leads_to", "Nodes that a peer leads to, itself among them.", 1),
)


class RelayCollector(Collector):
    """Reads a relay, each time that it is asked."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._traffic = views.Traffic()
        self._peer_rows: list[Row] = []
        self._client_counts: Counter[tuple[str, str]] = Counter()
        self._client_queue = 0
        self.turn_s = 0.0
        "How long one turn of the loop took, as last measured."

    def gather(self) -> Iterator[None]:
        """Read what there may be thousands of, a little at a time; `collect` shows it."""
        self._traffic = views.Traffic()
        yield from self._traffic.read(self._runner)
        table = views.peers(self._runner, views.Wall())
        self._peer_rows = []
        for key in table.keys:
            if (row := table.row(key)) is not None:
                self._peer_rows.append(row)
            yield
        self._client_counts, self._client_queue = Counter(), 0
        for number, connection in enumerate(list(self._runner.clients.connections)):
            transport = "webtransport" if connection.is_webtransport else "quic"
            self._client_counts[connection.protocol, transport] += 1
            self._client_queue += connection.egress.queued_bytes
            if not number % views.CONNECTIONS_A_TURN:
                yield

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is changes as peers come and go."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family, each made when the one before has been written."""
        yield from self._node()
        yield from self._peers()
        yield from self._clients()
        yield from self._tables()
        yield from self._counters()

    def _node(self) -> Iterator[Metric]:
        runner = self._runner
        row = views.node(runner, self._traffic)
        info = GaugeMetricFamily(
            "laps_node_info",
            "The relay: always 1.",
            labels=["node", "role", "region", "version"],
        )
        info.add_metric([row["node"], row["role"], row["region"], row["version"]], 1)
        yield info
        yield _gauge("laps_start_time_seconds", "When the relay began, since 1970.", row["since"])
        ready = not health.unready(runner)
        yield _gauge("laps_ready", "1 while the relay is of use, as /readyz says.", ready)
        yield _gauge("laps_draining", "1 while the relay is about to stop.", row["draining"])
        yield _counter("laps_sent_bytes", "Bytes sent, to peers and clients.", row["sent_bytes"])
        yield _counter(
            "laps_received_bytes", "Bytes received, from peers and clients.", row["received_bytes"]
        )
        plan = row["plan"] or {"tracks": 0, "sequence": 0}
        yield _gauge("laps_plan_tracks", "Tracks of the plan that is followed.", plan["tracks"])
        yield _gauge("laps_plan_sequence", "Number of that plan; 0: none.", plan["sequence"])
        yield _gauge(
            "laps_loop_turn_seconds", "How long a turn of the relay's loop took.", self.turn_s
        )

    def _peers(self) -> Iterator[Metric]:
        rows = self._peer_rows
        for name, field, words in PEER_COUNTERS:
            counter = CounterMetricFamily(f"laps_peer_{name}", words, labels=["peer"])
            for row in rows:
                counter.add_metric([row["node"]], row[field])
            yield counter
        for name, field, words, unit in PEER_GAUGES:
            gauge = GaugeMetricFamily(f"laps_peer_{name}", words, labels=["peer"])
            for row in rows:
                gauge.add_metric([row["node"]], row[field] / unit)
            yield gauge

    def _clients(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "laps_clients", "Clients connected.", labels=["protocol", "transport"]
        )
        for key, count in sorted(self._client_counts.items()):
            family.add_metric(key, count)
        yield family
        queue = self._client_queue
        yield _gauge("laps_clients_queue_bytes", "Bytes that wait to be sent to clients.", queue)

    def _tables(self) -> Iterator[Metric]:
        relay = self._runner.relay
        family = GaugeMetricFamily(
            "laps_table_entries", "How full each table is.", labels=["table"]
        )
        live = relay.live
        passing = {"live_tracks": len(live.tracks), "transit_tracks": len(live.transit)}
        for table, size in (relay.sizes() | passing).items():
            family.add_metric([table], size)
        yield family
        cache = live.cache
        yield _gauge("laps_cache_bytes", "Bytes kept of tracks.", cache.size)
        yield _gauge("laps_cache_limit_bytes", "The most that is kept.", cache.limits.total_bytes)
        yield _gauge("laps_cache_groups", "Groups kept.", len(cache.order))
        closes = CounterMetricFamily(
            "laps_closed_connections",
            "Connections that ended, by kind (peer, client) and code.",
            labels=["kind", "code"],
        )
        for (kind, code), count in sorted(self._runner.closes.counts.items()):
            closes.add_metric([kind, code], count)
        yield closes

    def _counters(self) -> Iterator[Metric]:
        for room, counts in views.counters(self._runner).items():
            for name, value in counts.items():
                words = f"{name.replace('_', ' ').capitalize()}, counted by {room}."
                yield _counter(f"laps_{room}_{name}", words, value)


class Metrics:
    """The metrics of one relay, in a registry of their own."""

    def __init__(self, runner: Runner) -> None:
        self._collector = RelayCollector(runner)
        self._registry = CollectorRegistry()
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)

    async def scrape(self) -> bytes:
        """All of it in the text format, a family at a time."""
        began = time.monotonic()
        await asyncio.sleep(0)
        self._collector.turn_s = time.monotonic() - began
        await in_slices(self._collector.gather())
        written: list[bytes] = []
        await in_slices(self._write(written))
        return b"".join(written)

    def _write(self, written: list[bytes]) -> Iterator[None]:
        for family in self._registry.collect():
            written.append(generate_latest(_Only(family)))
            yield


class _Only:
    """A registry of one family, so that what is written can be written in turns."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=float(value))


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(name, words, value=float(value))
