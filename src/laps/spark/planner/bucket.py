"""Tables bucketed by track: written once, then planned from as often as anybody asks.

Rows come in any order, in Parquet files. Two steps, each a set of tasks that know nothing of each
other, make the layout of docs/plan.md out of them:

    spread    a task reads some of the files and writes one run: batches of rows, each ordered by
              bucket, and an index of where each bucket begins
    gather    a task takes a bucket out of all runs and sorts it by track, region and relay

Rows are never compared: a batch is ordered by counting, and a bucket is sorted by counting its
tracks, which the table of tracks tells, then the few s-relays of each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from laps.errors import LapsError
from laps.spark.planner.kernel import Bucket, Floats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from laps.spark.planner.network import Ints, Longs

    Columns = Mapping[str, NDArray[Any]]

ROWS_PER_BUCKET: Final = 800_000
"What fits the caches of a core with the arrays that are made of it."

MOST_BUCKETS: Final = 1 << 15

# A batch is read, ordered and written at once; pieces of a bucket in it are some ten kilobytes.
_BATCH_ROWS: Final = 1_000_000

TRACKS: Final[dict[str, np.dtype[Any]]] = {
    "track": np.dtype(np.int64),
    "origin": np.dtype(np.int32),
    "rate_bps": np.dtype(np.float32),
    "profile": np.dtype(np.int8),
}
SUBSCRIPTIONS: Final[dict[str, np.dtype[Any]]] = {
    "track": np.dtype(np.int64),
    "relay": np.dtype(np.int32),
}


def buckets_for(rows: int) -> int:
    """How many buckets so many subscriptions are put into: a power of two."""
    wanted = max(1, -(-rows // ROWS_PER_BUCKET))
    return min(MOST_BUCKETS, 1 << (wanted - 1).bit_length())


def bucket_of(track: Longs, buckets: int) -> NDArray[Any]:
    """The bucket of each track: its hash, as unsigned, modulo their number."""
    # They are a power of two.
    return (track & (buckets - 1)).astype(np.uint8 if buckets <= 1 << 8 else np.uint16)


def bucket_file(folder: Path, bucket: int) -> Path:
    """Where a bucket of a table is."""
    return folder / f"bucket-{bucket:05d}.parquet"


# -- spread ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """What a task of `spread` wrote."""

    data: Path
    index: Path
    rows: int


Piece = tuple[Path, tuple[int, ...]]
"A file, and which of its row groups."


def spread(pieces: Sequence[Piece], types: Mapping[str, Any], buckets: int, run: Path) -> Run:
    """Order the rows of some files by bucket, batch by batch, into the files of one run."""
    begins, rows = [], 0
    data, index = run.with_suffix(".run"), run.with_suffix(".npy")
    with data.open("wb") as out:
        for batch in _batches(pieces, types):
            bucket = bucket_of(batch["track"], buckets)
            # NumPy counts where numbers have 16 bits at most, and is stable.
            order = np.argsort(bucket, kind="stable")
            for name, wanted in types.items():
                batch[name].take(order).astype(wanted, copy=False).tofile(out)
            counts = np.bincount(bucket, minlength=buckets)
            begins.append(np.concatenate(([0], np.cumsum(counts))))
            rows += len(order)
    shape = (len(begins), buckets + 1)
    np.save(index, np.array(begins, np.int64).reshape(shape))
    return Run(data, index, rows)


def pieces_of(files: Sequence[Path], count: int) -> list[list[Piece]]:
    """All row groups of some files in so many parts, as even as they can be."""
    groups: list[tuple[Path, int, int]] = []
    for path in files:
        with _opened(path, {}) as file:
            meta = file.metadata
            groups += [(path, n, meta.row_group(n).num_rows) for n in range(meta.num_row_groups)]
    total = sum(rows for _, _, rows in groups)
    parts: list[dict[Path, list[int]]] = [{} for _ in range(count)]
    before = 0
    for path, number, rows in groups:
        parts[before * count // max(1, total)].setdefault(path, []).append(number)
        before += rows
    return [[(path, tuple(found)) for path, found in part.items()] for part in parts if part]


def count_rows(files: Sequence[Path]) -> int:
    """The rows of some files, without reading them."""
    total = 0
    for path in files:
        with _opened(path, {}) as file:
            total += file.metadata.num_rows
    return total


def _batches(pieces: Sequence[Piece], types: Mapping[str, Any]) -> Iterator[Columns]:
    for path, groups in pieces:
        with _opened(path, types) as file:
            for batch in file.iter_batches(
                _BATCH_ROWS, row_groups=list(groups), columns=list(types), use_threads=False
            ):
                yield {name: _plain(batch.column(name), path, name) for name in types}


def _opened(path: Path, types: Mapping[str, Any]) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise LapsError(f"{path}: cannot be read as Parquet: {error}") from None
    for name, wanted in types.items():
        found = file.schema_arrow.field(name).type if name in file.schema_arrow.names else None
        if found is None:
            file.close()
            raise LapsError(f"{path}: has no column {name}: it needs {', '.join(types)}")
        if not pa.types.is_primitive(found) or found.to_pandas_dtype()(0).dtype.kind != wanted.kind:
            file.close()
            raise LapsError(f"{path}: column {name} is {found}: it must be {wanted}")
    return file


def _plain(column: Any, path: Path, name: str) -> NDArray[Any]:
    if column.null_count:
        raise LapsError(f"{path}: column {name} has {column.null_count:,} nulls: it must have none")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def taken(runs: Sequence[Run], types: Mapping[str, Any], bucket: int) -> Columns:
    """The rows of a bucket out of all runs, in no order."""
    parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, types[name])] for name in types}
    for run in runs:
        begins = np.load(run.index)
        with run.data.open("rb") as data:
            batch_begin = 0
            for row in begins:
                begin, end, size = int(row[bucket]), int(row[bucket + 1]), int(row[-1])
                for name, kind in types.items():
                    if end > begin:
                        place = batch_begin + begin * kind.itemsize
                        read = np.fromfile(data, kind, end - begin, offset=place - data.tell())
                        parts[name].append(read)
                    batch_begin += size * kind.itemsize
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


# -- gather ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gathered:
    """What became of the rows of a bucket."""

    tracks: int = 0
    subscriptions: int = 0
    repeated: int = 0
    """Subscriptions of the same track at the same relay, and tracks, that came more than once."""
    at_origin: int = 0
    """Subscriptions at the o-relay itself, which needs no copy."""
    unknown: int = 0
    """Subscriptions of a track that the table of tracks does not have."""

    def __add__(self, other: Gathered) -> Gathered:
        return Gathered(
            self.tracks + other.tracks,
            self.subscriptions + other.subscriptions,
            self.repeated + other.repeated,
            self.at_origin + other.at_origin,
            self.unknown + other.unknown,
        )


def gather(tracks: Columns, subscriptions: Columns, place: Ints) -> tuple[Bucket, Gathered]:
    """Sort a bucket. `place` of a node is where it stands when nodes are ordered by region."""
    # The last row of a track counts, whatever came before.
    reverse = np.argsort(tracks["track"], kind="stable")[::-1]
    track, last = np.unique(tracks["track"][reverse], return_index=True)
    kept = reverse[last]
    origin = tracks["origin"][kept].astype(np.int32)
    relay = subscriptions["relay"]
    _require_nodes(origin, relay, len(place))
    number = find(track, subscriptions["track"])
    known = number >= 0
    unknown = len(number) - np.count_nonzero(known)
    if unknown:
        number, relay = number[known], relay[known]
    row, relay, own = _sorted(number, relay, origin, place)
    bucket = Bucket(
        track,
        origin,
        _rates(tracks["rate_bps"][kept]),
        tracks["profile"][kept].astype(np.int8),
        row,
        relay,
    )
    again = len(tracks["track"]) - len(track) + len(number) - len(relay) - own
    return bucket, Gathered(len(track), len(relay), int(again), own, int(unknown))


def _require_nodes(origin: Ints, relay: Ints, count: int) -> None:
    for name, numbers in (("origin", origin), ("relay", relay)):
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            wrong = int(numbers[(numbers < 0) | (numbers >= count)][0])
            raise LapsError(
                f"{name} {wrong} is no node: the table of nodes has {count:,}, from 0 on"
            )


def _sorted(number: Ints, relay: Ints, origin: Ints, place: Ints) -> tuple[Ints, Ints, int]:
    """Rows by track, each s-relay in order and once, without own ones; how many those are."""
    shape = (len(origin), len(place))
    rows = (number, place.take(relay))
    matrix = coo_array((np.ones(len(number), np.bool_), rows), shape=shape).tocsr()
    matrix.sum_duplicates()
    node = np.empty_like(place)
    node[place] = np.arange(len(place), dtype=place.dtype)
    found: Ints = node.take(matrix.indices)
    row = np.repeat(np.arange(len(origin), dtype=np.int32), np.diff(matrix.indptr))
    other = found != origin.take(row)
    own = len(other) - int(np.count_nonzero(other))
    return (row[other], found[other], own) if own else (row, found, own)


def find(track: Longs, wanted: Longs) -> Ints:
    """The place of each wanted track in the sorted ones, -1 where there is none.

    Hashes are even, so the high bits of one tell its place but for a few steps; what is not found
    in these, because the numbers are no hashes, is searched for.
    """
    if not len(track):
        return np.full(len(wanted), -1, np.int32)
    bits = min(22, (4 * len(track)).bit_length())
    shift, middle = 64 - bits, 1 << bits - 1
    counts = np.bincount((track >> shift) + middle, minlength=2 * middle)
    starts = (np.cumsum(counts) - counts).astype(np.int32)
    last = np.int32(len(track) - 1)
    place = np.minimum(starts.take((wanted >> shift) + middle), last)
    left = np.flatnonzero(track.take(place) != wanted)
    for _ in range(8):
        if not len(left):
            return place
        place[left] = np.minimum(place[left] + 1, last)
        left = left[track.take(place[left]) != wanted[left]]
    place[left] = np.minimum(np.searchsorted(track, wanted[left]), last)
    place[left[track.take(place[left]) != wanted[left]]] = -1
    return place


# -- buckets on disk -------------------------------------------------------------------------------

# zstd's quickest level: what is left of hashes in order is small already.
_WRITE: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "write_statistics": False,
    "store_schema": False,
    "row_group_size": 1 << 24,
}


def write_bucket(bucket: Bucket, tracks: Path, subscriptions: Path) -> None:
    """Write the two files of a bucket, each whole or not at all."""
    write_whole(
        {
            "track": bucket.track,
            "origin": bucket.origin,
            "rate_bps": bucket.rate_bps.astype(np.float32),
            "profile": bucket.profile,
        },
        tracks,
    )
    rows = {"track": bucket.track.take(bucket.row), "relay": bucket.relay}
    write_whole(rows, subscriptions, packed=["relay"])


def write_whole(columns: Mapping[str, Any], path: Path, packed: Sequence[str] = ()) -> None:
    """Write a Parquet file in one step, so that a task that is tried again spoils nothing."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    table = pa.table(dict(columns))
    words = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    encodings = dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None
    pq.write_table(table, made, use_dictionary=words, column_encoding=encodings, **_WRITE)
    made.replace(path)


def read_bucket(tracks: Path, subscriptions: Path, place: Ints) -> Bucket:
    """Read a bucket; one that something else wrote is put in order first."""
    of_tracks = _read(tracks, TRACKS)
    rows = _read(subscriptions, SUBSCRIPTIONS)
    bucket = _as_it_is(of_tracks, rows, place)
    if bucket is None:
        bucket, found = gather(of_tracks, rows, place)
        if found.unknown:
            raise LapsError(
                f"{subscriptions}: {found.unknown:,} subscriptions are of tracks that {tracks} "
                "does not have: bucket the tables again, into the same number of buckets"
            )
    return bucket


def _read(path: Path, types: Mapping[str, Any]) -> Columns:
    with _opened(path, types) as file:
        table = file.read(columns=list(types), use_threads=False)
    return {name: _plain(table[name], path, name) for name in types}


def _as_it_is(tracks: Columns, rows: Columns, place: Ints) -> Bucket | None:
    """The bucket, if it is in order; None otherwise."""
    track, origin, relay = tracks["track"], tracks["origin"], rows["relay"]
    begins = np.ones(len(relay), np.bool_)
    np.not_equal(rows["track"][1:], rows["track"][:-1], out=begins[1:])
    first = np.flatnonzero(begins)
    found = rows["track"].take(first)
    if not (np.all(track[1:] > track[:-1]) and np.all(found[1:] > found[:-1])):
        return None
    number = np.searchsorted(track, found).astype(np.int32)
    if len(found) and (number[-1] >= len(track) or not np.array_equal(track[number], found)):
        return None
    _require_nodes(origin, relay, len(place))
    row = np.repeat(number, np.diff(first, append=len(relay)))
    where = place.take(relay)
    begins[1:] |= where[1:] > where[:-1]
    if not begins.all() or (relay == origin.take(row)).any():
        return None
    return Bucket(track, origin, _rates(tracks["rate_bps"]), tracks["profile"], row, relay)


def _rates(rate: NDArray[Any]) -> Floats:
    """A track that sends nothing is still a track: a bit in a second."""
    if not np.isfinite(rate).all():
        raise LapsError(f"a track has the rate {rate[~np.isfinite(rate)][0]}: it must be a number")
    return np.maximum(rate.astype(np.float64), 1.0)
