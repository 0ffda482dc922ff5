"""The cells of `laps bench plan`, added up by others: DuckDB in SQL, Polars in its own language.

A process of its own for each, so that the memory one leaves behind is not there for the next:
`python -m laps.bench.plan_rivals duckdb FOLDER 3`. The folder has the bucketed tables and, in
`bench`, what the kernel looks up. The time begins when the library is loaded and the lookups are in
its hands, and ends when the cells are in ours.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Columns = Mapping[str, Any]

NAMES: Final = ("duckdb", "polars")

COLUMNS: Final = ("origin", "region", "profile", "mask", "class")
SUMS: Final = ("pairs", "copies", "rate", "egress")


def duckdb_cells(folder: Path, known: Columns) -> tuple[Callable[[], Columns], str]:
    """One statement: joins, a group for each pair, and a group for each cell of those."""
    import pyarrow as pa

    duckdb: Any = import_module("duckdb")

    size = len(known["region"])
    place = np.arange(known["allowed"].size, dtype=np.int32)
    nodes = pa.table({"relay": np.arange(size, dtype=np.int32), "region": known["region"]})
    allowed = pa.table({"place": place, "mask": known["allowed"].reshape(-1)})
    base = duckdb.connect()
    base.execute(f"SET threads = {os.cpu_count()}; SET preserve_insertion_order = false")
    for name, table in (("nodes", nodes), ("allowed", allowed)):
        base.register(f"given_{name}", table)
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")  # noqa: S608 - ours
    fan_out = " ".join(f"WHEN {p} THEN {n}" for p, n in enumerate(known["fan_out"].tolist()))
    kind = " + ".join(f"(n >= {begin})::INTEGER" for begin in known["begins"].tolist()[1:]) or "0"
    query = f"""
        WITH pairs AS (
            SELECT any_value(t.origin) AS origin, nodes.region, any_value(t.profile) AS profile,
                any_value(t.rate_bps)::DOUBLE AS rate, count(*) AS n, bit_and(a.mask) AS mask
            FROM read_parquet('{folder}/subscriptions/*.parquet') s
            JOIN read_parquet('{folder}/tracks/*.parquet') t USING (track)
            JOIN nodes USING (relay)
            JOIN allowed a ON a.place = (t.profile::INTEGER * {size} + t.origin) * {size} + s.relay
            WHERE s.relay <> t.origin
            GROUP BY s.track, nodes.region
        )
        SELECT origin, region, profile,
            CASE WHEN n > CASE profile {fan_out} END THEN mask & 127 ELSE mask END AS mask,
            {kind} AS class, count(*) AS pairs, sum(n)::DOUBLE AS copies, sum(rate) AS rate,
            sum(rate * n) AS egress
        FROM pairs GROUP BY ALL
    """  # noqa: S608 - a folder and numbers of our own
    return lambda: base.sql(query).fetchnumpy(), duckdb.__version__


def polars_cells(folder: Path, known: Columns) -> tuple[Callable[[], Columns], str]:
    """The same, lazily and streaming; what the kernel looks up it looks up in the same arrays."""
    pl: Any = import_module("polars")
    region, allowed = known["region"], known["allowed"].reshape(-1)
    size = len(region)

    def look_up(array: Any, where: Any, kind: Any) -> Any:
        return where.map_batches(
            lambda places: pl.Series(array[places.to_numpy()]),
            return_dtype=kind,
            is_elementwise=True,
        )

    place = (pl.col("profile").cast(pl.Int32) * size + pl.col("origin")) * size + pl.col("relay")
    n, profile = pl.col("n"), pl.col("profile")
    fan_out = look_up(known["fan_out"], profile.cast(pl.Int32), pl.Int32)
    kind = sum(((n >= begin).cast(pl.Int32) for begin in known["begins"].tolist()[1:]), pl.lit(0))
    query = (
        pl.scan_parquet(folder / "subscriptions" / "*.parquet")
        .join(pl.scan_parquet(folder / "tracks" / "*.parquet"), on="track")
        .filter(pl.col("relay") != pl.col("origin"))
        .with_columns(
            region=look_up(region, pl.col("relay"), pl.Int32),
            mask=look_up(allowed, place, pl.UInt8),
        )
        .group_by("track", "region")
        .agg(
            pl.col("origin", "profile").first(),
            rate=pl.col("rate_bps").first().cast(pl.Float64),
            n=pl.len().cast(pl.Int64),
            mask=pl.col("mask").bitwise_and(),
        )
        .with_columns(
            pl.when(n > fan_out).then(pl.col("mask") & 127).otherwise(pl.col("mask")).alias("mask"),
            kind.alias("class"),
        )
        .group_by(*COLUMNS)
        .agg(
            pairs=pl.len(),
            copies=n.sum(),
            rate=pl.col("rate").sum(),
            egress=(pl.col("rate") * n).sum(),
        )
    )

    def cells() -> Columns:
        found = query.collect(engine="streaming")
        return {name: found[name].to_numpy() for name in (*COLUMNS, *SUMS)}

    return cells, pl.__version__


def _main(name: str, folder: str, rounds: str) -> None:
    place = Path(folder)
    known = {
        name: np.load(place / "bench" / f"{name}.npy")
        for name in ("region", "allowed", "fan_out", "begins")
    }
    prepare = {"duckdb": duckdb_cells, "polars": polars_cells}.get(name)
    if prepare is None:
        raise LapsError(f"{name} is no rival: known are {', '.join(NAMES)}")
    cells, version = prepare(place, known)
    seconds: list[float] = []
    found: Columns = {}
    for _ in range(int(rounds)):
        began = perf_counter()
        found = cells()
        seconds.append(perf_counter() - began)
    answer: dict[str, Any] = {key: np.asarray(found[key]) for key in found}
    np.savez(place / "bench" / f"{name}.npz", **answer)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"version": version, "seconds": seconds, "peak_bytes": peak}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
