"""A network between two times, from its tables: what views are made of, and the views."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from laps.spark.pipeline import views
from laps.spark.pipeline.minutes import MINUTES
from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.tables import Table, require_any
from laps.spark.pipeline.watermarks import AHEAD, MINUTE, minute_of
from laps.telemetry.records import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

IDENTITY: Final = "group_id bigint, object_id bigint, received_at timestamp, relay string"
"What raw tables have besides the columns of their kind: which object it was, and how it came."


@dataclass(frozen=True, slots=True)
class Network:
    """What is known of a network between two times."""

    since: datetime
    until: datetime
    as_of: datetime
    "What is now: the newest that any relay has said."
    links: DataFrame
    node: DataFrame
    events: DataFrame
    link_minutes: DataFrame
    track_minutes: DataFrame
    regions: DataFrame

    def forget(self) -> None:
        """Free the memory that the frames which are used again and again take."""
        for frame in (self.node, self.track_minutes, self.regions):
            frame.unpersist()


def load(spark: SparkSession, path: str | Place, since: datetime, until: datetime) -> Network:
    """The network between two times; `NoTable` if nothing was ever written there."""
    place = path if isinstance(path, Place) else Place.of(path)
    require_any(place)
    raw = {kind: Table(place, f"raw/{kind}") for kind in KINDS}
    since, until = minute_of(since), until.astimezone(UTC)
    frames = {kind: read_raw(spark, table, since, until) for kind, table in raw.items()}
    node = frames["node"].persist()
    minutes = {kind: read_minutes(spark, place, kind, since, until) for kind in MINUTES}
    return Network(
        since,
        until,
        _as_of(node, until),
        frames["links"],
        node,
        frames["events"],
        minutes["links"],
        minutes["tracks"].persist(),
        views.regions(node).persist(),
    )


def read_raw(spark: SparkSession, table: Table, since: datetime, until: datetime) -> DataFrame:
    """Raw rows, none if the table does not exist yet: there may be no events, and no tracks."""
    if table.exists():
        return table.read(spark, since, until)
    kind = KINDS[table.name.removeprefix("raw/")]
    return spark.createDataFrame([], f"{kind.ddl}, {IDENTITY}")


def read_minutes(
    spark: SparkSession, place: Place, kind: str, since: datetime, until: datetime
) -> DataFrame:
    """The minutes of a kind: those that are written, and what there is of those still open.

    It may be called while the job runs. The watermarks are read first: what is closed after that is
    in the minute table by the time that one is read, or still open by them, or both.
    """
    marks, minute, raw = (
        Table(place, f"{name}/{kind}") for name in ("watermarks", "minute", "raw")
    )
    if not marks.exists():
        return MINUTES[kind](read_raw(spark, raw, since, until))
    still_open = _open_since(marks.arrow(), minute)
    since_open = max(since, min(still_open["closed"].to_pylist(), default=until))
    records = read_raw(spark, raw, since_open, until)
    ranges = F.broadcast(spark.createDataFrame(still_open))
    tail = MINUTES[kind](records.join(ranges, "node").where(F.col("at") >= F.col("closed")))
    if not minute.exists():
        return tail
    written = minute.read(spark, since, until)
    both = minute.read(spark, since_open, until).select("node", "minute").distinct()
    return written.unionByName(tail.join(both, ["node", "minute"], "left_anti"))


def _open_since(marks: pa.Table, minute: Table) -> pa.Table:
    """Of the relays that have open minutes, from when on."""
    column = "closed"
    if marks.num_rows and not minute.has(marks["writer"][0].as_py(), marks["batch"][0].as_py()):
        column = "closed_before"  # what the last batch closes may be on its way
    rows = [
        {"node": mark["node"], "closed": mark[column]}
        for mark in marks.to_pylist()
        if mark["last"] is not None and mark["last"] >= mark[column]
    ]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([marks.field("node"), marks.field("closed")])
    )


VIEWS: Final[dict[str, Callable[[Network], DataFrame]]] = {
    "links": lambda network: views.links(network.links, network.regions, network.as_of),
    "audience": lambda network: views.audience(
        network.track_minutes, network.regions, network.as_of
    ),
    "regions": lambda network: views.audience_of_regions(
        network.track_minutes, network.regions, network.as_of
    ),
    "copies": lambda network: views.copies(network.track_minutes, network.regions, network.as_of),
    "tracks": lambda network: views.tracks(network.track_minutes, network.as_of),
    "fan_out": lambda network: views.fan_out(network.track_minutes, network.as_of),
    "relays": lambda network: views.relays(network.node, network.events, network.as_of),
    "path_changes": lambda network: views.path_changes(network.events),
    "delay": lambda network: views.delay(network.link_minutes, delay_step(network)),
}
"The views by the names of their tables."

STEPS: Final = 360
"How many points a line over time has at most: more than a picture shows."


def delay_step(network: Network) -> int:
    """How many minutes a point of the delay over time stands for."""
    asked: timedelta = network.until - network.since
    return max(1, -(-asked // (MINUTE * STEPS)))


def write_views(spark: SparkSession, place: Place, since: datetime, until: datetime) -> None:
    """Put every view of that time in place of what its table held."""
    network = load(spark, place, since, until)
    try:
        for name, view in VIEWS.items():
            Table(place, f"views/{name}").replace(view(network).coalesce(1))
    finally:
        network.forget()


def _as_of(node: DataFrame, until: datetime) -> datetime:
    # A relay whose clock is ahead must not make all others look silent.
    ahead = F.make_dt_interval(mins=F.lit(AHEAD.seconds // 60))
    newest = node.select(F.unix_micros(F.max(F.least("at", F.col("received_at") + ahead)))).first()
    if newest is None or newest[0] is None:
        return until
    return min(until, datetime.fromtimestamp(newest[0] / 1e6, UTC))
