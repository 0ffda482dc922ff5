"""Tracks as a stream: `spark.readStream.format("laps")`.

Spark calls `read` in its workers, and everything else in one process of the driver's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from laps.spark import bridge
from laps.spark.source.following import Following
from laps.spark.source.offsets import BEGINNING, from_json, to_json
from laps.spark.source.partitions import parts_of
from laps.spark.source.reading import Range
from laps.spark.source.tasks import read_part
from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from laps.spark.source.offsets import Position, Positions
    from laps.spark.source.options import ReadOptions
    from laps.types import TrackName


class LapsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows tracks, and reads what is settled of them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._made: Following | None = None
        self._asked: tuple[dict[str, Any], int | None] | None = None
        self._answer: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Workers get what they need to read, and nothing of what the driver follows.
        return self.__dict__ | {"_made": None}

    @property
    def _following(self) -> Following:
        if self._made is None:
            self._made = bridge.run(_make(self._options))
        return self._made

    # -- in the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        return to_json(bridge.run(self._following.begin()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a micro-batch may take."""
        most = self._options.max_objects
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what there is now, and nothing that comes later."""
        bridge.run(self._following.stand_still())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch reads."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        # Spark asks a hundred times a second while there is nothing, and tracks may be many.
        if not self._following.stirred and self._asked == (start, most):
            return self._answer
        self._answer = to_json(bridge.run(self._latest(from_json(start), most)))
        self._asked = start, most
        return self._answer

    async def _latest(self, start: Positions, most: int | None) -> Positions:
        await self._following.resume(start)
        self._following.stirred = False
        return self._following.latest(start, most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """How far tracks are, and what did not go as it should, for the query's progress."""
        return bridge.run(self._report())

    async def _report(self) -> dict[str, Any]:
        return {"tracks": to_json(self._following.latest({}, None)), **self._following.counters()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: the same rows for the same offsets, whenever it is asked."""
        return bridge.run(self._partitions(from_json(start), from_json(end)))

    async def _partitions(self, start: Positions, end: Positions) -> Sequence[InputPartition]:
        ranges: list[Range] = []
        for track, upto in end.items():
            begin = start.get(track, BEGINNING)
            if begin.at < upto.at:
                ranges += self._ranges(track, begin, upto)
        return parts_of(ranges)

    def _ranges(self, track: TrackName, start: Position, end: Position) -> list[Range]:
        follower = self._following.followers.get(track)
        frontier = None if follower is None else follower.frontier
        if frontier is None or not frontier.covers(start.at) or frontier.position.at < end.at:
            # A batch of before a restart: how many objects it has stands in its offsets.
            return [Range(track, start.at, end.at, end.count - start.count)]
        return [
            Range(track, Location(s.group, s.first), Location(s.group, s.end), s.count)
            for s in frontier.spans(start.at, end.at)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """What lies ahead of these offsets is not read again."""
        bridge.run(self._commit(from_json(end)))

    async def _commit(self, end: Positions) -> None:
        self._following.forget(end)

    def stop(self) -> None:
        """The query is over."""
        made, self._made = self._made, None
        if made is not None:
            bridge.run(made.close())

    # -- in the workers ----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_part(self._options, self._schema, partition)


async def _make(options: ReadOptions) -> Following:
    return Following(options)
