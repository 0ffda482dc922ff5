"""The writing half of the data source `laps`: rows become objects of tracks.

    df.write.format("laps").mode("append").option("relay", …).option("track", …).save()
    df.writeStream.format("laps").option("relay", …).option("checkpointLocation", …).start()

Executors turn rows into objects and write them to files; a commit has them published, in the order
of their partitions. What a task does that fails, or is run twice, nobody sees.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from laps.errors import ConfigError, LapsError
from laps.spark.sink import calling
from laps.spark.sink.companion import IDLE_S, PROTOCOL, Request
from laps.spark.sink.journal import read_state
from laps.spark.sink.objects import Partition
from laps.spark.sink.options import columns_of, sink_options
from laps.spark.sink.place import Place
from laps.spark.sink.publisher import STAGED, Batch, PublisherSettings
from laps.spark.sink.staging import StagedFile, StagingWriter
from laps.spark.source.offsets import track_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from laps.spark.sink.options import Columns, SinkOptions

# What Spark tells the tasks of a stream, also those of `df.write` in foreachBatch.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    partition: int
    query: str | None
    file: StagedFile


def stage(
    place: Place,
    folder: str,
    options: SinkOptions,
    columns: Columns,
    rows: Iterator[pa.RecordBatch],
) -> Staged:
    """Turn the rows of a partition into objects, and write them to a file."""
    task = TaskContext.get()
    number = 0 if task is None else task.partitionId()
    partition = Partition(options, columns)
    name = f"{folder}/{number:05d}-{uuid4().hex}.arrow"
    writer = StagingWriter(place, name)
    try:
        for batch in rows:
            for made in partition.objects(batch):
                writer.write(made)
        writer.close()
    except BaseException:
        writer.discard()
        raise
    tracks = tuple(track_key(track) for track in partition.tracks)
    file = StagedFile(name, writer.objects, tracks, writer.extensions)
    return Staged(number, _property(task, QUERY_ID), file)


def _property(task: TaskContext | None, name: str) -> str | None:
    return None if task is None else task.getLocalProperty(name)


def batch_of(
    messages: Sequence[WriterCommitMessage | None],
    options: SinkOptions,
    number: int | None,
    folder: str,
) -> Batch:
    """What the tasks have staged, in the order of their partitions."""
    staged = sorted(
        (message for message in messages if isinstance(message, Staged)),
        key=lambda message: message.partition,
    )
    if len(staged) < len(messages):
        raise LapsError("a task has not told what it staged: nothing of this batch is published")
    queries = (message.query for message in staged if message.query and number is not None)
    return Batch(
        number,
        next(queries, None),
        folder,
        tuple(message.file for message in staged),
        options.group_objects,
        options.priority,
        options.end_track,
    )


def discard(
    place: Place, messages: Sequence[WriterCommitMessage | None], *, keep_taken: bool
) -> None:
    """Remove what was staged, but for what is being published: it has to be gone on with."""
    taken = read_state(place).taken if keep_taken else None
    wanted = set() if taken is None else {file.name for file in taken.files}
    for message in messages:
        if isinstance(message, Staged) and message.file.name not in wanted:
            place.remove(message.file.name)


def publish(batch: Batch, checkpoint: str, options: SinkOptions) -> None:
    """Have a batch published by the process that stays connected for the next one."""
    calling.publish(
        Request(
            PROTOCOL,
            checkpoint,
            PublisherSettings(options.relays, options.trust, options.wait_s, options.history_bytes),
            batch,
            calling.driver_of(os.getpid()),
            linger_s=options.linger_s,
            # One write may be the last, and numbered ones are those of a stream.
            idle_s=options.linger_s if batch.number is None else IDLE_S,
            temporary=options.checkpoint is None,
        )
    )


def scratch_place(options: SinkOptions, driver: int) -> str:
    """Where a driver stages what it writes to some relays without a checkpoint."""
    known_by = repr((options.relays, options.trust)).encode()
    name = f"writes-{driver}-{hashlib.sha256(known_by).hexdigest()[:8]}"
    return str(calling.private_folder(name))


class LapsWriter(DataSourceArrowWriter):
    """`df.write.format("laps")`: publishes the rows of a frame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('what was published cannot be overwritten: write with mode("append")')
        self._options = sink_options(options, streaming=False)
        self._columns = columns_of(self._options, schema)
        self._number = self._options.batch_id
        name = f"write-{uuid4().hex}" if self._number is None else self._number
        self._folder = f"{STAGED}/{name}"
        driver = calling.driver_of(os.getpid())
        self._checkpoint = self._options.checkpoint or scratch_place(self._options, driver.pid)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        in_stream = _property(TaskContext.get(), BATCH_ID) is not None
        if in_stream and self._options.checkpoint is not None and self._number is None:
            raise ConfigError(
                "a write in foreachBatch that has a checkpoint has to know its batch, so that one "
                'that comes again is not published twice: give .option("batch_id", batch_id)'
            )
        place = Place(self._checkpoint)
        return stage(place, self._folder, self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged."""
        batch = batch_of(messages, self._options, self._number, self._folder)
        publish(batch, self._checkpoint, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was staged, unless it can be gone on with."""
        place = Place(self._checkpoint)
        discard(place, messages, keep_taken=self._number is not None)
        place.remove_empty(self._folder)


class LapsStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("laps")`: publishes each batch once, and stays between them.

    In the output mode complete each batch publishes the whole table.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = sink_options(options, streaming=True)
        self._columns = columns_of(self._options, schema)
        assert self._options.checkpoint is not None  # noqa: S101 - the options of a stream have one
        self._checkpoint = self._options.checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        folder = _folder_of(_property(TaskContext.get(), BATCH_ID))
        return stage(Place(self._checkpoint), folder, self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's word
        """Publish what was staged."""
        batch = batch_of(messages, self._options, batchId, _folder_of(batchId))
        publish(batch, self._checkpoint, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's word
        """Forget what was staged, unless it is being published: the batch comes again."""
        discard(Place(self._checkpoint), messages, keep_taken=True)


def _folder_of(batch: object) -> str:
    return f"{STAGED}/{batch}"
