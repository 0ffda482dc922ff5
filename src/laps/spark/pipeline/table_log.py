"""The log of a table, as the Delta library has it: files, columns, and what it says of errors."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from laps.spark.pipeline.parquet_files import File, bounds, time_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.fs as pafs
    from deltalake import DeltaTable


def entries(log: DeltaTable) -> list[File]:
    """The files that count."""
    entries = pa.table(log.get_add_actions(flatten=True))
    time = time_column(
        name.removeprefix("min.") for name in entries.column_names if name.startswith("min.")
    )
    return [
        File(
            entry["path"],
            entry["size_bytes"],
            entry["num_records"] or 0,
            None if time is None else entry[f"min.{time}"],
            None if time is None else entry[f"max.{time}"],
        )
        for entry in entries.to_pylist()
    ]


def add_action(files: pafs.FileSystem, file: pafs.FileInfo) -> AddAction | None:
    """The entry for a file that Spark has written; None for what is no data."""
    if not file.path.endswith(".parquet"):
        if file.path.endswith(".crc"):  # of Hadoop's local file system; nobody needs it
            files.delete_file(file.path)
        return None
    with files.open_input_file(file.path) as opened:
        footer = pq.ParquetFile(opened).metadata
    if footer.num_rows == 0:
        files.delete_file(file.path)
        return None
    stats = {"numRecords": footer.num_rows} | bounds(footer)
    return AddAction(file.path, file.size, {}, now_ms(), True, json.dumps(stats))


def once(writer: str, batch: int) -> CommitProperties:
    """The number of a batch, which the log takes once of each writer."""
    return CommitProperties(app_transactions=[Transaction(writer, batch)])


def row_count(added: Sequence[AddAction]) -> int:
    """How many rows files have together."""
    return sum(json.loads(file.stats)["numRecords"] for file in added)


def spark_schema(log: DeltaTable) -> StructType:
    """The columns of a table, as Spark has them."""
    return StructType.fromJson(json.loads(log.schema().to_json()))  # they write it the same way


def nullable_json(schema: StructType) -> str:
    """Columns as the log writes them; all of them may be null."""
    text = schema.json().replace('"nullable":false', '"nullable":true')
    return text.replace('"containsNull":false', '"containsNull":true')


def now_ms() -> int:
    """The time as the log writes it."""
    return int(datetime.now(UTC).timestamp() * 1000)


def one_line(error: Exception) -> str:
    """What the library says, which has several lines and colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
