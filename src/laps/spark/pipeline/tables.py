"""Tables on disk: Parquet files that executors write, and a Delta log that says which count.

A file is part of a table once the log names it, and the log is written in one step, by the driver.
So what a job leaves behind that is killed in the middle is never seen, and readers see all of a
batch or none of it. Each batch is written down in the log together with who wrote it: a batch that
comes again is known, and is not written twice. Merging small files is such a step too.

Whatever reads Delta tables reads these. Spark itself needs no jar for it: it is given the files.
"""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody who uses Spark calls it

from laps.errors import LapsError
from laps.spark.pipeline.parquet_files import (
    TARGET_BYTES,
    File,
    Place,
    remove_empty_folders,
    time_column,
    to_merge,
)
from laps.spark.pipeline.table_log import (
    add_action,
    entries,
    now_ms,
    nullable_json,
    once,
    one_line,
    row_count,
    spark_schema,
)
from laps.telemetry.records import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

GRACE_HOURS: Final = 24
"How long a file stays that no longer counts: longer than any report reads or any batch is written."

_VACUUM_EVERY: Final = 100
"A table that is replaced again and again is rid of its old files once in so many times."

_COMPACTION: Final = "laps compaction"
_REPLACEMENT: Final = "laps replacement"
# Spark would write timestamps in a form that has no minimum and maximum, and that few others read.
_TIMESTAMPS: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
_WRITING: Final = {
    "compression": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


class NoTable(LapsError):  # noqa: N818 - a name says what happened
    """There is no such table (yet)."""


class Conflict(LapsError):  # noqa: N818
    """Somebody else has written the same meanwhile, and nothing was changed."""


def read(
    spark: SparkSession,
    path: str | Path | Place,
    name: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """A table below `path`, like `raw/links`, as it is now; `NoTable` if there is none.

    With times only the rows of then, `until` excluded, and only the files that may have some.
    """
    return Table(path, name).read(spark, since, until)


def require_any(place: Place) -> None:
    """`NoTable` if there is no raw table: `laps pipeline` has never written there."""
    if not any(Table(place, f"raw/{kind}").exists() for kind in KINDS):
        raise NoTable(
            f"there are no tables in {place}: `laps pipeline --relay URL --to {place}` writes them"
        )


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of a batch that does not count yet."""

    files: list[AddAction]
    rows: int


class Table:
    """One table, for one thread."""

    def __init__(self, root: str | Path | Place, name: str) -> None:
        self.name = name
        self.root = root if isinstance(root, Place) else Place.of(root)
        self.place = self.root / name
        self._log: DeltaTable | None = None

    # -- reading -----------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether it has ever been written."""
        return self._newest() is not None

    def read(
        self, spark: SparkSession, since: datetime | None = None, until: datetime | None = None
    ) -> DataFrame:
        """Its rows as they are now; `NoTable` if there is none."""
        log = self._need()
        schema = spark_schema(log)
        files = [file for file in entries(log) if file.may_hold(since, until)]
        frame = self._frame(spark, files, schema)
        if (time := time_column(schema.names)) is not None:
            if since is not None:
                frame = frame.where(F.col(time) >= timestamp(since))
            if until is not None:
                frame = frame.where(F.col(time) < timestamp(until))
        return frame

    def arrow(self) -> pa.Table:
        """All of it at once, for the small ones; `NoTable` if there is none."""
        return self._need().to_pyarrow_table()

    def span(self) -> tuple[datetime, datetime] | None:
        """The time of its first and of its last row, if it has rows with times."""
        log = self._newest()
        files = [] if log is None else entries(log)
        firsts = [file.first for file in files if file.first is not None]
        lasts = [file.last for file in files if file.last is not None]
        return (min(firsts), max(lasts)) if firsts and lasts else None

    def rows(self) -> int:
        """How many rows it has."""
        log = self._newest()
        return 0 if log is None else sum(file.rows for file in entries(log))

    def committed(self, writer: str) -> int | None:
        """The number of the last batch of a writer that is in it."""
        log = self._newest()
        return None if log is None else log.transaction_version(writer)

    def has(self, writer: str, batch: int) -> bool:
        """Whether a batch of a writer is in it."""
        last = self.committed(writer)
        return last is not None and last >= batch

    # -- writing -----------------------------------------------------------------------------------

    def append(self, frame: DataFrame, writer: str, batch: int) -> bool:
        """Add a batch, unless the writer has added it before: whether it was added now."""
        if self.has(writer, batch):
            return False
        self.commit(self.stage(frame, writer, batch), writer, batch)
        return True

    def stage(self, frame: DataFrame, writer: str, batch: int) -> Staged:
        """Write the files of a batch: they count from `commit` on."""
        self._fit(frame.schema)
        counted = Observation()
        files = self._write(
            frame.observe(counted, F.count("*").alias("rows")), _folder(writer, batch)
        )
        rows = int(counted.get["rows"])
        # A task that had to be done again is counted twice: then, and if rows are not there.
        if row_count(files) != rows and row_count(files) != (rows := frame.count()):
            raise LapsError(
                f"{self.name}: of {rows} rows of batch {batch}, {row_count(files)} are in "
                f"{self.root}: executors and driver have to see the same storage there"
            )
        return Staged(files, rows)

    def commit(self, staged: Staged, writer: str, batch: int) -> None:
        """Let the files of a batch count; `Conflict` if another job was faster."""
        if staged.files:
            self._commit(staged.files, "append", writer, batch)

    def batch(self, spark: SparkSession, writer: str, batch: int) -> DataFrame | None:
        """The rows of one batch alone; None if it had none, or is merged with others by now."""
        log = self._need()
        folder = _folder(writer, batch)
        files = [file for file in entries(log) if file.path.startswith(f"{folder}-")]
        return self._frame(spark, files, spark_schema(log)) if files else None

    def append_arrow(self, rows: pa.Table, writer: str, batch: int) -> None:
        """Add a small batch that is in memory, unless the writer has added it before."""
        if not self.has(writer, batch):
            self._put(rows, "append", writer, batch)

    def replace_arrow(self, rows: pa.Table, writer: str, batch: int) -> None:
        """Put a small batch in place of all there is, unless the writer has done so before."""
        if not self.has(writer, batch):
            self._put(rows, "overwrite", writer, batch)

    def replace(self, frame: DataFrame) -> None:
        """Put rows in place of all there is; who reads meanwhile reads what was there before."""
        last = self.committed(_REPLACEMENT)
        number = 0 if last is None else last + 1
        self._fit(frame.schema)
        self._commit(self._write(frame, "replacement"), "overwrite", _REPLACEMENT, number)
        if number % _VACUUM_EVERY == _VACUUM_EVERY - 1:
            self.vacuum()

    # -- keeping it small --------------------------------------------------------------------------

    def compact(
        self, spark: SparkSession, *, least_files: int = 8, target_bytes: int = TARGET_BYTES
    ) -> int:
        """Merge small files, oldest first: how many went into larger ones.

        It is safe beside a job that appends, and beside another that merges: the one of two that
        comes second gets a `Conflict`, and has changed nothing.
        """
        merged = 0
        while (log := self._newest()) is not None:
            files = to_merge(entries(log), least_files, target_bytes)
            if not files:
                break
            self._merge(spark, log, files)
            merged += len(files)
        return merged

    def vacuum(self, grace_hours: int = GRACE_HOURS) -> int:
        """Delete files that no longer count, or never did, once they are old: how many."""
        if (log := self._newest()) is None:
            return 0
        with self._saying():
            gone = log.vacuum(
                grace_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
            log.cleanup_metadata()
            log.update_incremental()
        if self.place.local is not None:
            old = datetime.now(UTC) - timedelta(hours=grace_hours)
            remove_empty_folders(self.place.local, old)
        return len(set(gone))

    # -- inside ------------------------------------------------------------------------------------

    def _merge(self, spark: SparkSession, log: DeltaTable, files: Sequence[File]) -> None:
        schema = spark_schema(log)
        frame = self._frame(spark, files, schema).coalesce(1)
        if (time := time_column(schema.names)) is not None:
            frame = frame.sortWithinPartitions(time)
        added = self._write(frame, "merged")
        if row_count(added) != sum(file.rows for file in files):
            raise LapsError(f"{self.name}: its files do not hold the rows that its log speaks of")
        changes: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, file.modification_time, False, file.stats)
            for file in added
        ]
        changes += [
            RemoveAction(file.path, data_change=False, deletion_timestamp=now_ms(), size=file.size)
            for file in files
        ]
        # The log lets a file be removed twice, and two who merge would double its rows. But of one
        # writer it takes only what was begun with its last batch known, and merging is one writer.
        last = log.transaction_version(_COMPACTION)
        self._commit(changes, "append", _COMPACTION, 0 if last is None else last + 1)

    def _commit(
        self, changes: Sequence[AddAction | RemoveAction], mode: str, writer: str, batch: int
    ) -> None:
        # On what was known when the batch was looked for: what came since then is compared.
        log = self._known()
        with self._saying(writer, batch):
            log.create_write_transaction(
                list(changes), mode, log.schema(), commit_properties=once(writer, batch)
            )

    def _put(
        self, rows: pa.Table, mode: Literal["append", "overwrite"], writer: str, batch: int
    ) -> None:
        where = self.place.delta if self._log is None else self._log
        with self._saying(writer, batch):
            write_deltalake(where, rows, mode=mode, commit_properties=once(writer, batch))

    def _write(self, frame: DataFrame, label: str) -> list[AddAction]:
        """Files with the rows of a frame, that do not count yet."""
        folder = f"{label}-{uuid.uuid4().hex[:12]}"
        frame.sparkSession.conf.set(*_TIMESTAMPS)
        frame.write.options(**_WRITING).parquet(f"{self.place.spark}/{folder}")
        with self._saying():
            files = pafs.PyFileSystem(DeltaStorageHandler(self.place.delta))
            found = files.get_file_info(pafs.FileSelector(folder, recursive=True))
            return [action for file in found if (action := add_action(files, file)) is not None]

    def _fit(self, schema: StructType) -> None:
        """Make the table, or give it the columns that it lacks."""
        wanted = Schema.from_json(nullable_json(schema))
        if self._log is None:
            with self._saying():
                self._log = DeltaTable.create(
                    self.place.delta,
                    wanted,
                    mode="ignore",
                    configuration={"delta.logRetentionDuration": f"interval {GRACE_HOURS} hours"},
                )
        log = self._known()
        have = {field.name: field.type for field in log.schema().fields}
        for field in wanted.fields:
            if field.name in have and have[field.name] != field.type:
                raise LapsError(
                    f"{self.name}: its column {field.name} has another type in {self.root} than "
                    "this version of laps writes: give the tables a new place"
                )
        missing = [field for field in wanted.fields if field.name not in have]
        if missing:
            with self._saying():
                log.alter.add_columns(missing)
                log.update_incremental()

    def _newest(self) -> DeltaTable | None:
        with self._saying():
            if self._log is not None:
                self._log.update_incremental()
            elif DeltaTable.is_deltatable(self.place.delta):
                self._log = DeltaTable(self.place.delta)
        return self._log

    def _need(self) -> DeltaTable:
        self._newest()
        return self._known()

    def _known(self) -> DeltaTable:
        if self._log is None:
            raise NoTable(
                f"there is no table {self.name} in {self.root}: `laps pipeline --to {self.root}` "
                "writes it"
            )
        return self._log

    def _frame(self, spark: SparkSession, files: Sequence[File], schema: StructType) -> DataFrame:
        if not files:
            return spark.createDataFrame([], schema)
        # Without a schema Spark would look into a file for it.
        return spark.read.schema(schema).parquet(*(f"{self.place.spark}/{f.path}" for f in files))

    @contextmanager
    def _saying(self, writer: str = "", batch: int = 0) -> Iterator[None]:
        """What the library says about a table, in one line."""
        try:
            yield
        except CommitFailedError as error:
            if "Concurrent transaction" in str(error):
                raise Conflict(
                    f"{self.name}: another job has written batch {batch} of {writer} meanwhile: "
                    f"only one may write to {self.root}"
                ) from None
            raise LapsError(f"{self.name}: {one_line(error)}") from error
        except (DeltaError, OSError) as error:
            raise LapsError(f"{self.name} in {self.root}: {one_line(error)}") from error


def timestamp(at: datetime) -> Column:
    """A time as a column, whatever time zone Spark is in."""
    return F.timestamp_micros(F.lit((at - _EPOCH) // _MICROSECOND))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def _folder(writer: str, batch: int) -> str:
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', writer)}-{batch}"
