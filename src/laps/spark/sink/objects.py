"""Rows become objects: which track each is of, where a group begins, and what is in it.

    a record batch of rows -> Partition -> record batches of objects, as they are staged

It is done where the rows are, and knows no relay. Rows of one track keep their order; those of
different tracks are put together, which nobody can tell who reads a track.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laps.errors import LapsError
from laps.names import track_of
from laps.spark.sink.encoding import encode_arrow_runs, encode_json
from laps.spark.source.options import PayloadFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from laps.spark.sink.options import Columns, SinkOptions
    from laps.types import TrackName

    Codes = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

OBJECTS: Final = pa.schema(
    [
        pa.field("track", pa.int32()),  # its place among the tracks of the partition
        pa.field("begins", pa.bool_()),  # a group begins here, whatever came before
        pa.field("priority", pa.int16()),  # null: as the option says
        pa.field("extensions", pa.map_(pa.int64(), pa.binary())),
        pa.field("payload", pa.large_binary()),
    ]
)

LARGEST_NUMBER: Final = (1 << 62) - 1
"Of the type of an extension, and of its value where that is a number."

LONGEST_VALUE: Final = 65_535
"Of an extension, in bytes: the drafts have it so."


class BadRow(LapsError):  # noqa: N818 - a name says what happened
    """A row that cannot be published, by its place in the partition."""


class Partition:
    """The rows of one partition of a batch, as they are turned into objects."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self.tracks: list[TrackName] = []
        "The tracks that there were rows of."
        self._options = options
        self._columns = columns
        self._numbers: dict[TrackName, int] = {}
        self._rows = 0
        "How many came before the batch in hand."
        self._last_keys: tuple[Codes, list[pa.Array]] | None = None
        "The grouping key of the last row of each track."

    def objects(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The objects of some more rows."""
        if not batch.num_rows:
            return
        tracks = self._tracks(batch)
        begins = self._begins(batch, tracks)
        order = np.argsort(tracks, kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            batch = batch.take(pa.array(order))
            tracks, begins = tracks[order], begins[order]
        made = pa.RecordBatch.from_arrays(
            [
                pa.array(tracks, pa.int32()),
                pa.array(begins, pa.bool_()),
                self._priorities(batch, order),
                self._extensions(batch, order),
            ],
            schema=pa.schema(list(OBJECTS)[:-1]),
        )
        if self._options.payload_format is PayloadFormat.ARROW:
            made = self._in_runs(batch, made, order)
        else:
            payloads = self._payloads(batch, order)
            made = pa.RecordBatch.from_arrays([*made.columns, payloads], schema=OBJECTS)
        self._rows += len(order)
        yield made

    def _row(self, order: Codes, at: int) -> str:
        """A row for a person to find."""
        return f"row {self._rows + int(order[at])} of the partition"

    # -- which track -------------------------------------------------------------------------------

    def _tracks(self, batch: pa.RecordBatch) -> Codes:
        """The number of each row's track."""
        columns = self._columns
        spaces, namespaces = _coded(batch, columns.namespace)
        names, tracks = _coded(batch, columns.track)
        pairs, firsts, inverse = np.unique(
            spaces * len(tracks) + names, return_index=True, return_inverse=True
        )
        numbers = [
            self._number(namespaces[pair // len(tracks)], tracks[pair % len(tracks)], int(first))
            for pair, first in zip(pairs.tolist(), firsts.tolist(), strict=True)
        ]
        return np.array(numbers, np.int64)[inverse]

    def _number(self, namespace: Any, track: Any, first: int) -> int:
        options, columns = self._options, self._columns
        namespace = options.namespace if namespace is None else namespace
        track = options.track if track is None else track
        for name, value, column in (
            ("namespace", namespace, columns.namespace),
            ("track", track, columns.track),
        ):
            if value is None or (name == "namespace" and any(part is None for part in value)):
                raise BadRow(
                    f"column {column} is null in row {self._rows + first} of the partition: "
                    f'leave such rows out, or say where they go with .option("{name}", …)'
                )
        full_name = track_of(namespace, track)
        number = self._numbers.get(full_name)
        if number is None:
            number = self._numbers[full_name] = len(self.tracks)
            self.tracks.append(full_name)
        return number

    # -- where groups begin ------------------------------------------------------------------------

    def _begins(self, batch: pa.RecordBatch, tracks: Codes) -> Flags:
        """Whether the key of each row is another than that of the row before, of the same track."""
        if not self._columns.group_by:
            return np.zeros(len(tracks), np.bool_)
        keys = [leaf for name in self._columns.group_by for leaf in _leaves(batch.column(name))]
        before = 0
        if self._last_keys is not None:
            before = len(self._last_keys[0])
            tracks = np.concatenate([self._last_keys[0], tracks])
            keys = [pa.concat_arrays(pair) for pair in zip(self._last_keys[1], keys, strict=True)]
        order = np.argsort(tracks, kind="stable")
        changed = np.ones(len(tracks), np.bool_)
        changed[1:] = np.diff(tracks[order]) != 0
        last = order[np.append(changed[1:], True)]
        self._last_keys = tracks[last], [key.take(pa.array(last)) for key in keys]
        for key in keys:
            changed[1:] |= np.diff(_codes(key)[order]) != 0
        begins = np.empty(len(tracks), np.bool_)
        begins[order] = changed
        return begins[before:]

    # -- what goes with it -------------------------------------------------------------------------

    def _priorities(self, batch: pa.RecordBatch, order: Codes) -> pa.Array:
        name = self._columns.priority
        if name is None:
            return pa.nulls(len(order), pa.int16())
        column = batch.column(name)
        wrong = pc.or_kleene(pc.less(column, 0), pc.greater(column, 255))
        if pc.any(wrong).as_py():
            at = pc.index(wrong, True).as_py()
            raise BadRow(
                f"column {name} is {column[at].as_py()} in {self._row(order, at)}: a priority is "
                "from 0, the most urgent, to 255"
            )
        return column.cast(pa.int16())

    def _extensions(self, batch: pa.RecordBatch, order: Codes) -> pa.Array:
        name = self._columns.extensions
        kind = OBJECTS.field("extensions").type
        if name is None:
            return pa.nulls(len(order), kind)
        column = batch.column(name).cast(kind)
        for at, pairs in enumerate(column.to_pylist()):
            for number, value in pairs or ():
                if (problem := _extension_problem(number, value)) is not None:
                    where = f"column {name} has type {number} in {self._row(order, at)}"
                    raise BadRow(f"{where}: {problem}")
        return column

    # -- payloads ----------------------------------------------------------------------------------

    def _payloads(self, batch: pa.RecordBatch, order: Codes) -> pa.Array:
        """The payload of each row."""
        if self._columns.payload is None:
            encoded = encode_json(batch.select(self._columns.published))
            payloads = pa.array(encoded, pa.large_binary())
        else:
            payloads = batch.column(self._columns.payload).cast(pa.large_binary())
        if payloads.null_count:
            at = pc.index(payloads.is_null(), True).as_py()
            raise BadRow(
                f"column {self._columns.payload} is null in {self._row(order, at)}: an object "
                "has a payload, which may be empty; leave such rows out"
            )
        sizes = pc.binary_length(payloads)
        largest = pc.max(sizes).as_py()
        if largest > self._options.max_object_bytes:
            raise self._too_large(largest, order, pc.index(sizes, largest).as_py())
        return payloads

    def _in_runs(self, batch: pa.RecordBatch, made: pa.RecordBatch, order: Codes) -> pa.RecordBatch:
        """Rows that follow one another and go to the same place are one object."""
        ends = _run_ends(made, self._options.arrow_rows)
        most = self._options.max_object_bytes
        rows = batch.select(self._columns.published)
        firsts: list[int] = []
        payloads: list[bytes] = []
        for first, payload in encode_arrow_runs(rows, ends, most):
            if len(payload) > most:
                raise self._too_large(len(payload), order, first)
            firsts.append(first)
            payloads.append(payload)
        heads = made.take(pa.array(firsts, pa.int64()))
        return pa.RecordBatch.from_arrays(
            [*heads.columns, pa.array(payloads, pa.large_binary())], schema=OBJECTS
        )

    def _too_large(self, size: int, order: Codes, at: int) -> BadRow:
        return BadRow(
            f"the object of {self._row(order, at)} has {size} bytes: the option max_object_bytes "
            f"allows {self._options.max_object_bytes}"
        )


def extension_pairs(pairs: list[tuple[int, bytes]]) -> tuple[tuple[int, int | bytes], ...]:
    """Extension headers as they are sent: of even types a number, its highest byte first."""
    return tuple(
        (number, int.from_bytes(value, "big") if number % 2 == 0 else value)
        for number, value in sorted(pairs)
    )


def _extension_problem(number: int, value: bytes | None) -> str | None:
    if not 0 <= number <= LARGEST_NUMBER:
        return f"types are from 0 to {LARGEST_NUMBER}"
    if value is None:
        return "its value is null"
    if number % 2:
        return None if len(value) <= LONGEST_VALUE else f"its value has {len(value)} bytes"
    if len(value) > 8 or int.from_bytes(value, "big") > LARGEST_NUMBER:
        return "the value of an even type is a number of at most 62 bits, in 8 bytes or less"
    return None


# -- Arrow -----------------------------------------------------------------------------------------


def _coded(batch: pa.RecordBatch, name: str | None) -> tuple[Codes, list[Any]]:
    """A column as numbers and what they stand for; without a column all are None."""
    if name is None:
        return np.zeros(batch.num_rows, np.int64), [None]
    column = batch.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = column.dictionary_encode(null_encoding="encode")
        return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()
    numbers: dict[tuple[Any, ...] | None, int] = {}
    codes = [
        numbers.setdefault(None if parts is None else tuple(parts), len(numbers))
        for parts in column.to_pylist()
    ]
    return np.array(codes, np.int64), list(numbers)


def _leaves(column: pa.Array) -> list[pa.Array]:
    """The columns that a column is made of, such that each can be compared: a window is two."""
    if pa.types.is_struct(column.type):
        inner = [leaf for child in column.flatten() for leaf in _leaves(child)]
        return [column.is_null(), *inner]
    if pa.types.is_nested(column.type):
        return [pa.array([repr(value) for value in column.to_pylist()], pa.large_string())]
    return [column]


def _codes(key: pa.Array) -> Codes:
    """Numbers that are equal where the values are."""
    if pa.types.is_null(key.type):
        return np.zeros(len(key), np.int64)
    codes: Codes = key.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return codes.astype(np.int64)


def _run_ends(made: pa.RecordBatch, most: int) -> list[int]:
    """Where runs of rows of the same track, group and headers end, each with `most` at most."""
    rows = made.num_rows
    cut = made.column("begins").to_numpy(zero_copy_only=False).copy()
    for name in ("track", "priority"):
        cut[1:] |= np.diff(_codes(made.column(name))) != 0
    extensions = made.column("extensions")
    if extensions.null_count < rows:
        cut[1:] |= np.diff(_codes(_leaves(extensions)[0])) != 0
    cut[0] = True
    starts = np.flatnonzero(cut).tolist()
    ends: list[int] = []
    for start, end in zip(starts, [*starts[1:], rows], strict=True):
        ends += [*range(start + most, end, most), end]
    return ends
