"""What `laps report` says about a network between two times: the totals, and the rows to show.

What they look like is said in `sections`, for the terminal and for the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from laps.errors import LapsError
from laps.spark.pipeline.minutes import MINUTES
from laps.spark.pipeline.network import VIEWS, load
from laps.spark.pipeline.tables import Table
from laps.spark.pipeline.watermarks import MINUTE
from laps.telemetry.records import KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from laps.spark.pipeline.network import Network
    from laps.spark.pipeline.parquet_files import Place

Row = dict[str, Any]

MATRIX: Final = 24
"So many relays fit on both sides of a matrix that can be read."


class NothingThere(LapsError):  # noqa: N818 - a name says what happened
    """There are tables, but nothing in them is of the time that was asked for."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The network in numbers."""

    relays: int
    silent: int
    links: int
    tracks: int
    subscriptions: int
    records: dict[str, int]
    late: dict[str, int]
    corrupt: int


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a network between two times, as far as it is shown."""

    since: datetime
    until: datetime
    as_of: datetime
    totals: Totals
    views: dict[str, list[Row]]

    def to_mapping(self) -> dict[str, Any]:
        """The same in values that JSON has."""
        return {
            "since": _plain(self.since),
            "until": _plain(self.until),
            "as_of": _plain(self.as_of),
            "relays": self.totals.relays,
            "silent": self.totals.silent,
            "links": self.totals.links,
            "tracks": self.totals.tracks,
            "subscriptions": self.totals.subscriptions,
            "records": self.totals.records,
            "late": self.totals.late,
            "corrupt": self.totals.corrupt,
            "views": {
                name: [{key: _plain(value) for key, value in row.items()} for row in rows]
                for name, rows in self.views.items()
            },
        }


def make(
    spark: SparkSession, place: Place, since: datetime, until: datetime, top: int = 10
) -> Report:
    """Ask the tables; `NoTable` and `NothingThere` say so, and what to do."""
    network = load(spark, place, since, until)
    cached = []
    try:
        records = _records(spark, place, network)
        if not any(records.values()):
            raise _nothing_there(place, network)
        frames = {name: view(network) for name, view in VIEWS.items()}
        cached = [frames[name].persist() for name in ("links", "tracks", "relays")]
        views = {name: _rows(frames[view], top, order) for name, (view, order) in _SHOWN.items()}
        views["matrix"] = _matrix(frames["links"])
        regions = frames["regions"].agg(F.sum("subscribers")).first()
        totals = Totals(
            relays=frames["relays"].count(),
            silent=frames["relays"].where("silent").count(),
            links=frames["links"].where("now").count(),
            tracks=frames["tracks"].where("relays > 0").count(),
            subscriptions=(regions and regions[0]) or 0,
            records=records,
            late={kind: _late(spark, place, kind, network) for kind in MINUTES},
            corrupt=_count(spark, Table(place, "raw/corrupt"), network),
        )
        return Report(network.since, network.until, network.as_of, totals, views)
    finally:
        for frame in cached:
            frame.unpersist()
        network.forget()


_BUSIEST: Final = ("utilisation_p95", "sent_bps_p95", "node", "peer")

_SHOWN: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "relays": ("relays", ("load_p95", "node")),
    "links": ("links", _BUSIEST),
    "tracks_by_rate": ("tracks", ("rate_bps", "namespace", "track", "track_hash")),
    "tracks_by_audience": ("tracks", ("subscribers", "peak", "namespace", "track", "track_hash")),
    "regions": ("regions", ("subscribers", "peak", "region")),
    "audience": ("audience", ("subscribers", "peak", "namespace", "track", "track_hash", "region")),
    "copies": ("copies", ("tracks", "tracks_peak", "copies_bps", "node", "peer")),
    "fan_out": ("fan_out", ()),
    "path_changes": ("path_changes", ("flapping", "changes", "at", "node", "subject")),
    "delay": ("delay", ()),
}
"""What is shown: the view, and by what the first rows are chosen, largest first and names a to z.

Without an order all rows are shown: there are few, and they are in order by their first column.
"""

_NAMES: Final = frozenset(("node", "peer", "namespace", "track", "track_hash", "region", "subject"))


def _rows(frame: DataFrame, top: int, order: tuple[str, ...]) -> list[Row]:
    if not order:
        return _collect(frame.orderBy(frame.columns[0]))
    keys: list[Column] = [
        F.asc_nulls_last(name) if name in _NAMES else F.desc_nulls_last(name) for name in order
    ]
    return _collect(frame.orderBy(*keys).limit(top))


def _matrix(links: DataFrame) -> list[Row]:
    """The links among the relays that send most."""
    nodes = links.groupBy("node").agg(F.sum("sent_bps_p95").alias("sent"))
    busiest = nodes.orderBy(F.desc_nulls_last("sent"), "node").limit(MATRIX).select("node")
    inside = links.join(busiest, "node", "left_semi").join(
        busiest.withColumnRenamed("node", "peer"), "peer", "left_semi"
    )
    return _collect(
        inside.select(
            "node", "peer", "srtt_us", "srtt_us_p50", "loss_avg", "utilisation_p95"
        ).orderBy("node", "peer")
    )


def _collect(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def _records(spark: SparkSession, place: Place, network: Network) -> dict[str, int]:
    return {kind: _count(spark, Table(place, f"raw/{kind}"), network) for kind in KINDS}


def _count(spark: SparkSession, table: Table, network: Network) -> int:
    return table.read(spark, network.since, network.until).count() if table.exists() else 0


def _late(spark: SparkSession, place: Place, kind: str, network: Network) -> int:
    table = Table(place, f"late/{kind}")
    if not table.exists():
        return 0
    found = table.read(spark, network.since, network.until).agg(F.sum("rows")).first()
    return (found and found[0]) or 0


def _nothing_there(place: Place, network: Network) -> NothingThere:
    spans = [span for kind in KINDS if (span := Table(place, f"raw/{kind}").span()) is not None]
    asked = f"between {show_time(network.since)} and {show_time(network.until)}"
    if not spans:
        return NothingThere(
            f"the tables in {place} are empty: `laps pipeline --relay URL --to {place}` fills them"
        )
    first = min(first for first, _ in spans)
    end = max(last for _, last in spans) + MINUTE
    return NothingThere(
        f"the tables in {place} have nothing {asked}: ask for what they have with "
        f"--since {first:%Y-%m-%dT%H:%M} --until {end:%Y-%m-%dT%H:%M}"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show_time(at: datetime) -> str:
    """A time for people to read, in UTC as relays have it."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
