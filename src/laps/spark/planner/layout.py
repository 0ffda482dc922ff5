"""The tables of a plan as files: their columns, and how they are written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NODES: Final = pa.schema(
    [
        ("node", pa.string()),
        ("role", pa.string()),
        ("region", pa.string()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("capacity_bps", pa.int64()),
    ]
)
LINKS: Final = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.int32()),
        ("srtt_us", pa.int64()),
        ("capacity_bps", pa.int64()),
        ("transits", pa.list_(pa.string())),
    ]
)
TRACKS: Final = pa.schema(
    [
        ("track", pa.int64()),
        ("origin", pa.int32()),
        ("rate_bps", pa.float32()),
        ("profile", pa.int8()),
    ]
)
SUBSCRIPTIONS: Final = pa.schema([("track", pa.int64()), ("relay", pa.int32())])
NAMES: Final = pa.schema([("track", pa.int64()), ("namespace", pa.string()), ("name", pa.string())])
PLAN: Final = pa.schema(
    [
        ("track", pa.int64()),
        ("namespace", pa.string()),
        ("name", pa.string()),
        ("region", pa.string()),
        ("class", pa.string()),
        ("via", pa.string()),
        ("relays", pa.int32()),
        ("rate_bps", pa.int64()),
        ("long_haul_copies", pa.int32()),
        ("origin_egress", pa.int32()),
        ("cost", pa.float64()),
        ("delay_us", pa.int64()),
        ("stretch", pa.float64()),
        ("reason", pa.string()),
    ]
)
INFEASIBLE: Final = pa.schema(
    [
        ("track", pa.int64()),
        ("namespace", pa.string()),
        ("name", pa.string()),
        ("region", pa.string()),
        ("relays", pa.int32()),
        ("constraint", pa.string()),
        ("reason", pa.string()),
        ("way_out", pa.string()),
    ]
)
LOADS: Final = pa.schema(
    [
        ("resource", pa.int32()),
        ("load_bps", pa.int64()),
        ("capacity_bps", pa.int64()),
    ]
)


def signed(track_hash: int) -> int:
    """A hash as tables hold it."""
    return track_hash - (1 << 64) if track_hash >= 1 << 63 else track_hash


def unsigned(track: int) -> int:
    """A hash as relays have it."""
    return track % (1 << 64)


def write(path: Path, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> None:
    """All of it or nothing, under its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    made = path.with_name(f".{path.name}.new")
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), made, compression="zstd")
    made.replace(path)


def write_text(path: Path, text: str) -> None:
    """All of it or nothing, under its name."""
    made = path.with_name(f".{path.name}.new")
    made.write_text(text)
    made.replace(path)


def clear(folder: Path, tables: Sequence[str]) -> None:
    """Remove the buckets of a table that was there before: there may have been more of them."""
    for table in tables:
        for path in (folder / table).glob("bucket-*.parquet"):
            path.unlink()


def dataset(folder: Path, table: str, schema: pa.Schema) -> ds.Dataset:
    """A table that is a file, or a folder of files, with the columns that it has to have."""
    path = folder / table
    if not path.is_dir():
        path = folder / f"{table}.parquet"
    try:
        found = ds.dataset(path, format="parquet")
    except (OSError, pa.ArrowInvalid) as error:
        problem = str(error).splitlines()[0]
        raise ConfigError(f"{folder}: the table {table} cannot be read: {problem}") from None
    missing = [name for name in schema.names if name not in found.schema.names]
    if missing:
        have = ", ".join(found.schema.names)
        raise ConfigError(f"{path}: column {missing[0]} is missing; there are {have}")
    return found


def rows(folder: Path, table: str, schema: pa.Schema) -> list[dict[str, Any]]:
    """All rows of a table."""
    found: list[dict[str, Any]] = (
        dataset(folder, table, schema).to_table(columns=schema.names).to_pylist()
    )
    return found


def of_track(
    folder: Path, table: str, schema: pa.Schema, track_hash: int | None
) -> list[dict[str, Any]]:
    """All rows, or those of one track, from the one file that has them."""
    if track_hash is None:
        return rows(folder, table, schema)
    buckets = sorted((folder / table).glob("bucket-*.parquet"))
    found = dataset(folder, table, schema)
    if buckets:
        found = ds.dataset(buckets[track_hash % len(buckets)], format="parquet")
    found_rows: list[dict[str, Any]] = found.to_table(
        columns=schema.names, filter=ds.field("track") == signed(track_hash)
    ).to_pylist()
    return found_rows
