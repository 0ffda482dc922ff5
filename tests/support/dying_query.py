"""A streaming query in a process of its own, that dies at a chosen moment.

`python -m support.dying_query FOLDER RELAY [MOMENT]` publishes the text files of FOLDER/input, one
a batch, and ends when there are no more. At MOMENT, which comes once, somebody is killed:

    write     the worker that stages the rows of batch 1
    commit    the driver, before batch 1 is published
    done      the driver, when batch 1 is published and Spark does not know
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laps.spark
from laps.spark import LapsDataSource
from laps.spark.sink import LapsStreamWriter
from laps.spark.sink.calling import driver_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DyingWriter(LapsStreamWriter):
    """The writer, with a moment at which somebody is killed."""

    def __init__(self, folder: Path, *args: Any) -> None:
        super().__init__(*args)
        self._folder = folder

    def write(self, iterator: Any) -> Any:
        def dying() -> Any:
            for batch in iterator:
                yield batch
                if "b1-" in str(batch.column(0)[0]):
                    self._die("write", os.getpid())

        return super().write(dying())

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's word
        if batchId == 1:
            self._die("commit", driver_of(os.getpid()).pid)
        super().commit(messages, batchId)
        if batchId == 1:
            self._die("done", driver_of(os.getpid()).pid)

    def _die(self, moment: str, pid: int) -> None:
        chosen = self._folder / "moment"
        if chosen.exists() and chosen.read_text() == moment:
            chosen.unlink()
            os.kill(pid, signal.SIGKILL)
            if pid != os.getpid():
                signal.pause()  # until Spark's own processes find that it is gone


class DyingDataSource(LapsDataSource):
    """The data source, with that writer."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802
        options = dict(self.options)
        return DyingWriter(Path(options.pop("folder")), options, schema, overwrite)


def main(folder: str, relay: str, moment: str = "") -> None:
    if moment:
        (Path(folder) / "moment").write_text(moment)
    # A task may fail once.
    spark = laps.spark.session("local[2,2]", settings={"spark.sql.shuffle.partitions": "2"})
    spark.dataSource.register(DyingDataSource)
    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/input")
    query = (
        rows.withColumnRenamed("value", "payload")
        .writeStream.format("laps")
        .option("relay", relay)
        .option("namespace", "demo/sink")
        .option("track", "t")
        .option("folder", folder)
        .option("linger_s", 15)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
