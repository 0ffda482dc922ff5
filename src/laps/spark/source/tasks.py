"""What a task of Spark does: read the ranges it was given, and make rows of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laps.spark import bridge
from laps.spark.source.connecting import kept_connection
from laps.spark.source.partitions import Part
from laps.spark.source.reading import RangeReader
from laps.spark.source.rows import Rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from laps.client import Object
    from laps.spark.source.options import ReadOptions


def read_part(
    options: ReadOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in record batches."""
    rows = Rows(schema, options.payload_format, options.payload_schema)
    connection = kept_connection(options.relays, options.trust)
    for wanted in partition.ranges if isinstance(partition, Part) else ():
        reader = RangeReader(options, wanted, connection)
        objects = reader.objects()
        try:
            while some := bridge.run(_next(objects)):
                now_us = time.time_ns() // 1000
                yield from rows.batches(wanted.track, some, reader.relay, now_us)
        finally:
            bridge.run(_close(objects))


async def _next(objects: AsyncIterator[list[Object]]) -> list[Object]:
    return await anext(objects, [])


async def _close(objects: AsyncIterator[list[Object]]) -> None:
    await objects.aclose()  # type: ignore[attr-defined]  # it is a generator
