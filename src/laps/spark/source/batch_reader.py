"""Tracks as they are now: `spark.read.format("laps")`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader

from laps.client import RequestRefused
from laps.errors import ConfigError, LapsError, RequestUnauthorized
from laps.ranges import after
from laps.spark import bridge
from laps.spark.errors import show
from laps.spark.source.connecting import Connection
from laps.spark.source.offsets import BEGINNING, track_key
from laps.spark.source.partitions import FEW, Part
from laps.spark.source.reading import Range
from laps.spark.source.tasks import read_part
from laps.types import Location, TrackName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from laps.client import Session
    from laps.spark.source.options import ReadOptions

RETRY_S: Final = 0.2
"How often a track that nobody publishes is looked for."


class LapsReader(DataSourceReader):
    """Reads what relays hold of tracks, from one location up to another."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.starting == "latest":
            raise ConfigError(
                'option startingOffsets "latest" leaves nothing to read: take earliest, or JSON'
            )
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks: one for each group, or for some that follow each other."""
        ranges = bridge.run(Plan(self._options).ranges())
        # Spark takes no tasks for one without a partition, and would ask for it all the same.
        return [Part((wanted,)) for wanted in ranges] or [Part(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_part(self._options, self._schema, partition)


class Plan:
    """What there is to read, as relays tell it now."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._starting = options.starting if isinstance(options.starting, dict) else {}
        self._ending = options.ending if isinstance(options.ending, dict) else {}
        for name, offsets in (("startingOffsets", self._starting), ("endingOffsets", self._ending)):
            for track in offsets:
                if not options.wanted.matches(track):
                    raise ConfigError(
                        f'option {name} names "{track_key(track)}", and what is read is '
                        f'"{options.wanted}"'
                    )

    async def ranges(self) -> list[Range]:
        """The ranges of all tracks; LapsError if there are none."""
        connection = Connection(self._options.relays, self._options.trust)
        try:
            session = await connection.session()
            ranges: list[Range] = []
            for track in await self._tracks(session):
                ranges += await self._ranges(session, track)
            return ranges
        finally:
            await connection.close()

    async def _tracks(self, session: Session) -> list[TrackName]:
        wanted = self._options.wanted
        if wanted.is_one and wanted.track is not None:
            return [TrackName(wanted.namespace, wanted.track)]
        named = {*self._starting, *self._ending}
        async with session.tracks(wanted.prefix) as tracks:
            await tracks.listed()
            try:
                async with asyncio.timeout(self._options.wait_s):
                    while not (found := named | {*filter(wanted.matches, tracks.known)}):
                        await anext(tracks)
            except TimeoutError:
                raise LapsError(
                    f'no track "{wanted}" is published at {session.url}, and none came within '
                    f"{self._options.wait_s:g} s: look at the options namespace and track, or "
                    "wait longer with wait_s"
                ) from None
        return sorted(found, key=track_key)

    async def _ranges(self, session: Session, track: TrackName) -> list[Range]:
        largest = await self._largest(session, track)
        exact = track in self._starting
        start = self._starting.get(track, BEGINNING).at
        end = Location(0, 0) if largest is None else after(largest)
        if track in self._ending:
            asked = self._ending[track].at
            if asked > end:
                raise LapsError(
                    f'option endingOffsets: track "{track_key(track)}" has come to {show(end)}, '
                    f"and is asked for up to {show(asked)}"
                )
            end = asked
        if start > end:
            raise LapsError(
                f'option startingOffsets: track "{track_key(track)}" is asked for from '
                f"{show(start)} on, and what is read of it ends at {show(end)}"
            )
        if not exact:
            start = await self._first(session, track, end)
        return [Range(track, low, high, exact=exact) for low, high in cut(start, end) if low < high]

    async def _largest(self, session: Session, track: TrackName) -> Location | None:
        """The last location of a track; LapsError if nobody publishes it, nor has."""
        deadline = asyncio.get_running_loop().time() + self._options.wait_s
        while True:
            try:
                return (await session.track_status(track.namespace, track.name)).largest
            except RequestUnauthorized:
                raise  # waiting does not help
            except RequestRefused as refused:
                if asyncio.get_running_loop().time() >= deadline:
                    raise LapsError(
                        f'track "{track_key(track)}" is not known: nobody has published it at '
                        f"{session.url} for {self._options.wait_s:g} s ({refused.reason}): look "
                        "at the options namespace and track, or wait longer with wait_s"
                    ) from None
            await asyncio.sleep(RETRY_S)

    async def _first(self, session: Session, track: TrackName, end: Location) -> Location:
        """The first location that a relay still holds; `end` if it holds none."""
        async with session.fetch(track.namespace, track.name) as fetch:
            try:
                some = await fetch.some(1, 1)
            except RequestUnauthorized:
                raise  # whoever may not fetch it must not take it for empty
            except RequestRefused:
                return end
        return min(some[0].location, end) if some else end


def cut(start: Location, end: Location) -> Iterator[tuple[Location, Location]]:
    """A range as the groups that may be in it, or as some parts where those are many."""
    last = end.group if end.object else end.group - 1
    step = max(1, -(-(last + 1 - start.group) // FEW))
    low = start
    for group in range(start.group + step, last + 1, step):
        yield low, (low := Location(group, 0))
    yield low, end
