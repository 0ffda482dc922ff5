"""What becomes of a batch of telemetry: raw rows first, and then minutes from the raw rows.

Each step is one change to one table, in this order, and each is found done when the batch comes
again after the job was killed: raw rows, watermarks, counts of late rows, minutes. Everything
behind the first step is made from the raw table and not from the batch, so a batch whose raw rows
are there is never asked of the relays again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from laps.errors import LapsError
from laps.spark.pipeline.minutes import MINUTES, minute
from laps.spark.pipeline.tables import Table, timestamp
from laps.spark.pipeline.watermarks import AHEAD, Mark, Seen, advance, late

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from laps.spark.pipeline.parquet_files import Place

CORRUPT: Final = "_corrupt"
"The source's column for a payload that does not decode."

_IS_BROKEN: Final = "_is_broken"

# No relay's clock is there, not even one that has lost its battery.
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(2200, 1, 1, tzinfo=UTC)

_AT: Final = pa.timestamp("us", "UTC")
_MARKS: Final = pa.schema(
    [("writer", pa.string()), ("batch", pa.int64())]
    + [(f.name, pa.string() if f.name == "node" else _AT) for f in fields(Mark)]
)
_LATE: Final = pa.schema([("minute", _AT), ("node", pa.string()), ("rows", pa.int64())])

_VACUUM_EVERY: Final = 10
"So many times that small files are merged, old ones are deleted once: they stay for a day anyway."

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """What has come in since the job began; written by its query, read by who shows it."""

    rows: int = 0
    batches: int = 0
    late: int = 0
    corrupt: int = 0
    newest: datetime | None = None


class Ingest:
    """Takes the batches of one kind of record, one after the other."""

    def __init__(self, root: Place, kind: str, compact_every: int = 0) -> None:
        self.kind = kind
        self.tally = Tally()
        self.failure: Exception | None = None
        self.idle = threading.Event()
        "No batch is being written."
        self.idle.set()
        self._compact_every = compact_every
        self._raw = Table(root, f"raw/{kind}")
        self._corrupt = Table(root, "raw/corrupt")
        self._minutes = Minutes(root, kind) if kind in MINUTES else None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """One batch; what goes wrong is kept, as Spark would wrap it in pages of its own."""
        self.idle.clear()
        try:
            self._take(frame, batch)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self.idle.set()

    def _take(self, frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        # The query's own number, kept in its checkpoint: without the checkpoint it is another one,
        # and its batches, numbered from 0 again, are new ones.
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        writer = f"laps {self.kind} {query}"
        if not self._raw.has(writer, batch):
            self._add_raw(frame, writer, batch)
        if self._minutes is not None:
            self.tally.late += self._minutes.add(spark, self._raw, writer, batch)
        if self._compact_every and batch % self._compact_every == self._compact_every - 1:
            self._keep_small(spark, with_vacuum=batch // self._compact_every % _VACUUM_EVERY == 0)

    def _add_raw(self, frame: DataFrame, writer: str, batch: int) -> None:
        frame = frame.withColumn(_IS_BROKEN, _broken())
        counted = Observation()
        counting = frame.observe(
            counted,
            F.count_if(_IS_BROKEN).alias("corrupt"),
            F.unix_micros(F.max(F.when(~F.col(_IS_BROKEN), F.col("at")))).alias("newest"),
        )
        good = counting.where(F.col("at").isNotNull() & ~F.col(_IS_BROKEN))
        # Rebalanced, the rows of hundreds of tracks come in one file, or in as many as they fill.
        good = good.drop(CORRUPT, _IS_BROKEN).hint("rebalance")
        staged = self._raw.stage(good, writer, batch)
        corrupt = int(counted.get["corrupt"])
        if corrupt:
            self._corrupt.append(_corrupt_rows(frame, self.kind), writer, batch)
        self._raw.commit(staged, writer, batch)
        self.tally.batches += 1
        self.tally.rows += staged.rows
        self.tally.corrupt += corrupt
        if (newest := counted.get["newest"]) is not None:
            self.tally.newest = datetime.fromtimestamp(newest / 1e6, UTC)

    def _keep_small(self, spark: SparkSession, *, with_vacuum: bool) -> None:
        tables = [self._raw] if self._minutes is None else [self._raw, *self._minutes.tables]
        for table in tables:
            try:
                table.compact(spark)
                if with_vacuum:
                    table.vacuum()
            except (LapsError, PySparkException) as error:  # it is done again soon
                _log.warning("small files stay for now: %s", error)


class Minutes:
    """Writes the minutes of one kind of record, each once, when it is closed."""

    def __init__(self, root: Place, kind: str) -> None:
        self._aggregate = MINUTES[kind]
        self._marks = Table(root, f"watermarks/{kind}")
        self._late = Table(root, f"late/{kind}")
        self._minute = Table(root, f"minute/{kind}")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables it writes."""
        return self._marks, self._late, self._minute

    def add(self, spark: SparkSession, raw: Table, writer: str, batch: int) -> int:
        """Close the minutes that a batch of raw rows closes: how many of its rows were late."""
        if (rows := raw.batch(spark, writer, batch)) is None:
            return 0  # it had none, or it was merged with others after all was done
        seen = look_at(rows)
        marks = self._advance(spark, raw, writer, batch, seen)
        too_late = late(marks, seen)
        if too_late:
            self._late.append_arrow(_late_rows(too_late), writer, batch)
        self._close(spark, raw, marks.values(), writer, batch)
        return sum(some.rows for some in too_late)

    def _advance(
        self, spark: SparkSession, raw: Table, writer: str, batch: int, seen: list[Seen]
    ) -> dict[str, Mark]:
        """The marks after this batch, as they are or will be in the table."""
        stored = self._marks.arrow().to_pylist() if self._marks.exists() else []
        marks = {row["node"]: Mark(**_without_writer(row)) for row in stored}
        if self._marks.has(writer, batch):
            return marks
        if stored:
            # A job that was killed and whose checkpoint is lost may have left its minutes to us.
            self._close(spark, raw, marks.values(), stored[0]["writer"], stored[0]["batch"])
        moved = advance(marks, seen)
        self._marks.replace_arrow(_mark_rows(moved.values(), writer, batch), writer, batch)
        return moved

    def _close(
        self, spark: SparkSession, raw: Table, marks: Iterable[Mark], writer: str, batch: int
    ) -> None:
        closing = [mark for mark in marks if mark.closes]
        if not closing or self._minute.has(writer, batch):
            return
        since = min(mark.first for mark in closing if mark.first is not None)
        until = max(mark.closed for mark in closing)
        ranges = spark.createDataFrame(
            _mark_rows(closing, writer, batch).select(["node", "first", "closed"])
        )
        rows = raw.read(spark, since, until).join(F.broadcast(ranges), "node")
        rows = rows.where((F.col("at") >= F.col("first")) & (F.col("at") < F.col("closed")))
        self._minute.append(self._aggregate(rows).hint("rebalance"), writer, batch)


def look_at(rows: DataFrame) -> list[Seen]:
    """What a batch holds of each relay in each minute."""
    ahead = F.make_dt_interval(mins=F.lit(AHEAD.seconds // 60))
    newest = F.least("at", F.col("received_at") + ahead)
    found = (
        rows.groupBy("node", minute(F.col("at")).alias("minute"))
        .agg(F.count("*").alias("rows"), F.max(newest).alias("newest"))
        .toArrow()
    )
    return [Seen(**row) for row in found.to_pylist()]


def _broken() -> Column:
    """Whether a record says nothing that can be used: it did not decode, or has impossible values.

    One that a program cannot read back would stop the job for ever.
    """
    at = F.col("at")
    impossible = F.col("node").isNull() | (at < timestamp(_FIRST)) | (at >= timestamp(_LAST))
    return F.col(CORRUPT).isNotNull() | (at.isNotNull() & impossible)


def _corrupt_rows(frame: DataFrame, kind: str) -> DataFrame:
    return frame.where(_IS_BROKEN).select(
        F.col("received_at").alias("at"),
        F.lit(kind).alias("kind"),
        "group_id",
        "object_id",
        "relay",
        F.col(CORRUPT).alias("payload"),
    )


def _mark_rows(marks: Iterable[Mark], writer: str, batch: int) -> pa.Table:
    rows = [
        {"writer": writer, "batch": batch} | {f.name: getattr(mark, f.name) for f in fields(Mark)}
        for mark in marks
    ]
    return pa.Table.from_pylist(rows, schema=_MARKS)


def _without_writer(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("writer", "batch")}


def _late_rows(too_late: Iterable[Seen]) -> pa.Table:
    rows = [{"minute": some.minute, "node": some.node, "rows": some.rows} for some in too_late]
    return pa.Table.from_pylist(rows, schema=_LATE)
