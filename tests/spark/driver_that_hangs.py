"""A query whose driver hangs in the middle of its second batch, to be killed there.

    python driver_that_hangs.py URL CHECKPOINT OUTPUT SIGN

Batches are written to OUTPUT by their number. SIGN appears when the second one has been read and
written, and Spark has not been told.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import laps.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(url: str, checkpoint: str, output: str, sign: str) -> None:
    spark = laps.spark.session("local[2]")
    spark.dataSource.register(laps.spark.LapsDataSource)

    def keep(batch: DataFrame, number: int) -> None:
        batch.coalesce(1).write.mode("overwrite").parquet(f"{output}/{number}")
        if number == 1:
            Path(sign).touch()
            threading.Event().wait()

    frame = (
        spark.readStream.format("laps")
        .options(relay=url, namespace="faults/driver", startingOffsets="earliest")
        .option("maxObjectsPerTrigger", 400)
        .load()
    )
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
