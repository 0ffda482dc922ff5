"""Where objects wait to be published: files that executors write and the publisher reads.

A task writes all its objects to one file, under a name that no other attempt of it has, and tells
the driver. A task that fails tells nothing, so what it wrote is never published.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laps.errors import LapsError
from laps.spark.sink.objects import OBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.spark.sink.place import Place

# What the publisher holds of a file at a time: so many objects, and about so many bytes.
CHUNK_OBJECTS: Final = 8192
CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The objects of one partition, as they wait in a file."""

    name: str
    "Its path in the place."
    objects: int
    tracks: tuple[str, ...]
    "The keys of the tracks that its objects are numbered by."
    extensions: bool
    "Whether any of them has extension headers."


class StagingWriter:
    """Writes the objects of one partition."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self._file: Any = None
        self._writer: Any = None
        self.objects = 0
        self.extensions = False

    def write(self, made: pa.RecordBatch) -> None:
        """Add objects."""
        if self._writer is None:
            self._file = self._place.open_output(self._name)
            self._writer = pa.ipc.new_file(self._file, OBJECTS)
        self.objects += made.num_rows
        self.extensions |= made.column("extensions").null_count < made.num_rows
        for chunk in chunks(made):
            self._writer.write_batch(chunk)

    def close(self) -> None:
        """All objects are there."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._place.keep(self._name)

    def discard(self) -> None:
        """They are not wanted."""
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._file.close()
            self._place.remove(self._name)


def chunks(made: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same objects, cut where they would be too much to hold."""
    sizes = np.cumsum(pc.binary_length(made.column("payload")).to_numpy(zero_copy_only=False))
    start = 0
    while start < made.num_rows:
        before = 0 if start == 0 else int(sizes[start - 1])
        end = int(np.searchsorted(sizes, before + CHUNK_BYTES, side="right"))
        end = min(max(end, start + 1), start + CHUNK_OBJECTS, made.num_rows)
        yield made.slice(start, end - start)
        start = end


def check_is_here(place: Place, file: StagedFile) -> None:
    """LapsError if a file that was staged is not here."""
    if not place.has(file.name):
        raise LapsError(
            f"{place.url}/{file.name} was staged to be published, and is not here: give the sink "
            'a folder that the driver and all executors see, by .option("checkpoint", '
            '"file:///mnt/shared/laps") or a URL like s3://bucket/laps; if somebody has removed '
            "the file, remove the whole folder to begin anew"
        )


def read_chunks(place: Place, file: StagedFile, *, payloads: bool) -> Iterator[pa.RecordBatch]:
    """The objects of a file, some at a time; without payloads where their numbers are wanted."""
    check_is_here(place, file)
    options = pa.ipc.IpcReadOptions(included_fields=None if payloads else [0, 1, 2])
    with (
        place.open_input(file.name) as source,
        pa.ipc.open_file(source, options=options) as reader,
    ):
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
