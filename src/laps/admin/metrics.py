"""What Prometheus scrapes: gauges and counters of the relay, its peers and its clients.

A field of a page that is marked as a series is one, with its description as the HELP line. Series
are by peer, by protocol, by origin and by kind of close. None is by track or by client: there may
be a hundred thousand, and `/v1/tracks` has them. What is gathered is gathered when a scrape asks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from laps.admin.answers import in_slices
from laps.admin.rows import classes, control, decisions, network, relay, tracks
from laps.admin.rows.clients import origins, transport_of
from laps.admin.rows.sources import carried_counts
from laps.admin.schema.clients import OriginState
from laps.admin.schema.control import Control
from laps.admin.schema.decisions import ClassOfService, Demand
from laps.admin.schema.fields import LABEL, Series
from laps.admin.schema.network import Peer
from laps.admin.schema.relay import Node, Plan, Ready
from laps.admin.schema.tracks import Cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laps.admin.schema.fields import Row
    from laps.net.runner import Runner

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


@dataclass(frozen=True, slots=True)
class FieldSeries:
    """A series that is a field of a page or row."""

    field: str
    mark: Series
    description: str

    def family(self, prefix: str, labels: Sequence[str] = ()) -> Metric:
        """The family, still without a value."""
        name, words = f"{prefix}_{self.mark.name or self.field}", self.mark.help or self.description
        kind = CounterMetricFamily if self.mark.kind == "counter" else GaugeMetricFamily
        return kind(name, words, labels=labels)

    def value(self, row: Row) -> float:
        """What it is in a row."""
        return float(getattr(row, self.field) / self.mark.per)


def series_of(kind: type[Row]) -> list[FieldSeries]:
    """The fields of a page or row that are marked as series."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        words = "".join(mark.description or "" for mark in marks if isinstance(mark, msgspec.Meta))
        found += [FieldSeries(name, mark, words) for mark in marks if isinstance(mark, Series)]
    return found


def _labels_of(kind: type[Row]) -> list[str]:
    hints = get_type_hints(kind, include_extras=True)
    return [name for name, hint in hints.items() if LABEL in getattr(hint, "__metadata__", ())]


_NODE, _PLAN, _READY = series_of(Node), series_of(Plan), series_of(Ready)
_PEER, _CACHE, _ORIGIN = series_of(Peer), series_of(Cache), series_of(OriginState)
_DEMAND: Final = series_of(Demand)
_CONTROL: Final = series_of(Control)
_CLASS: Final = series_of(ClassOfService)
_INFO: Final = _labels_of(Node)


class RelayCollector(Collector):
    """Reads a relay, each time that it is asked."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._traffic = relay.Traffic()
        self._peer_rows: list[Peer] = []
        self._client_counts: Counter[tuple[str, str]] = Counter()
        self._client_queue = 0
        self._by_class = classes.TracksByClass()
        self.turn_s = 0.0
        "How long one turn of the loop took, as last measured."

    def gather(self) -> Iterator[None]:
        """Read what there may be thousands of, a little at a time; `collect` shows it."""
        self._traffic = relay.Traffic()
        yield from self._traffic.read(self._runner)
        table = network.peers(self._runner, relay.Wall())
        self._peer_rows = []
        for key in table.keys:
            if (row := table.row(key)) is not None:
                self._peer_rows.append(row)
            yield
        self._by_class = classes.TracksByClass()
        yield from self._by_class.read(self._runner.relay)
        self._client_counts, self._client_queue = Counter(), 0
        for number, connection in enumerate(list(self._runner.clients.connections)):
            self._client_counts[connection.protocol, transport_of(connection)] += 1
            self._client_queue += connection.egress.queued_bytes
            if not number % relay.CONNECTIONS_A_TURN:
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
        row = relay.node(self._runner, self._traffic)
        info = GaugeMetricFamily("laps_node_info", "The relay: always 1.", labels=_INFO)
        info.add_metric([getattr(row, name) for name in _INFO], 1)
        yield info
        yield from _of_one(_NODE, "laps", row)
        yield from _of_one(_READY, "laps", relay.readiness(self._runner))
        yield from _of_one(_PLAN, "laps_plan", row.plan or Plan())
        words = "How long a turn of the relay's loop took."
        yield GaugeMetricFamily("laps_loop_turn_seconds", words, value=self.turn_s)

    def _peers(self) -> Iterator[Metric]:
        for series in _PEER:
            family: Any = series.family("laps_peer", ["peer"])
            for row in self._peer_rows:
                family.add_metric([row.node], series.value(row))
            yield family

    def _clients(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "laps_clients", "Clients connected.", labels=["protocol", "transport"]
        )
        for key, count in sorted(self._client_counts.items()):
            family.add_metric(key, count)
        yield family
        words = "Bytes that wait to be sent to clients."
        yield GaugeMetricFamily("laps_clients_queue_bytes", words, value=self._client_queue)
        refused = CounterMetricFamily(
            "laps_auth_refused",
            "What clients were not allowed, by action and reason.",
            labels=["action", "reason"],
        )
        for key, count in sorted(self._runner.edge.context.authority.refused.items()):
            refused.add_metric(key, count)
        yield refused
        table = origins(self._runner)
        rows = [row for key in table.keys if (row := table.row(key)) is not None]
        for series in _ORIGIN:
            by_origin: Any = series.family("laps_origin", ["origin"])
            for row in rows:
                by_origin.add_metric([row.origin], series.value(row))
            yield by_origin
        yield from self._limits()

    def _limits(self) -> Iterator[Metric]:
        shares = self._runner.edge.shares
        for name, words, counts in (
            ("refused", "What was over a limit and refused, by whose it is.", shares.refused),
            ("shaped", "How often somebody waited for bytes, by whose limit.", shares.shaped),
        ):
            family = CounterMetricFamily(f"laps_limits_{name}", words, labels=["whose", "limit"])
            for key, count in sorted(counts.items()):
                family.add_metric(key, count)
            yield family
        words = "Bytes of messages that have not come whole, of all clients."
        size = shares.half_messages.size
        yield GaugeMetricFamily("laps_half_message_bytes", words, value=size)

    def _tables(self) -> Iterator[Metric]:
        here = self._runner.relay
        family = GaugeMetricFamily(
            "laps_table_entries", "How full each table is.", labels=["table"]
        )
        for table, size in (here.sizes() | carried_counts(here)).items():
            family.add_metric([table], size)
        yield family
        yield from _of_one(_CACHE, "laps_cache", tracks.cache(here, relay.Wall()))
        yield from self._classes()
        yield from _of_one(_DEMAND, "laps_demand", decisions.demand(here, relay.Wall()))
        yield from _of_one(_CONTROL, "laps_control", control.control(here, relay.Wall()))
        closes = CounterMetricFamily(
            "laps_closed_connections",
            "Connections that ended, by kind (peer, client) and code.",
            labels=["kind", "code"],
        )
        for (kind, code), count in sorted(self._runner.closes.counts.items()):
            closes.add_metric([kind, code], count)
        yield closes

    def _classes(self) -> Iterator[Metric]:
        table = classes.classes(self._runner, self._by_class)
        rows = [row for key in table.keys if (row := table.row(key)) is not None]
        for series in _CLASS:
            family: Any = series.family("laps_class", ["order"])
            for row in rows:
                family.add_metric([str(row.order)], series.value(row))
            yield family

    def _counters(self) -> Iterator[Metric]:
        for room, counts in msgspec.structs.asdict(relay.counters(self._runner)).items():
            for name, value in counts.items():
                words = f"{name.replace('_', ' ').capitalize()}, counted by {room}."
                yield CounterMetricFamily(f"laps_{room}_{name}", words, value=float(value))


def _of_one(series: Sequence[FieldSeries], prefix: str, row: Row) -> Iterator[Metric]:
    for one in series:
        family: Any = one.family(prefix)
        family.add_metric([], one.value(row))
        yield family


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
