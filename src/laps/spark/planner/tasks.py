"""What a worker of Spark does with its share of the files: each function is the work of one task.

Arrays of the network lie in the work folder of a plan, and a worker maps them into its memory once.
What a task has added up it writes there too, under the number of the task: tried again, it writes
the same file, and nothing large goes through Spark.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from laps.errors import ConfigError
from laps.spark.planner import bucket as buckets
from laps.spark.planner.assign import (
    MOVED,
    NONE,
    Choice,
    Outcome,
    Slices,
    Tables,
    Today,
)
from laps.spark.planner.audience import Audience
from laps.spark.planner.cells import Shape, Sums
from laps.spark.planner.kernel import Bucket, Lookup, Pairs, find_pairs
from laps.spark.planner.options import DIRECT
from laps.spark.planner.slicing import SLICES
from laps.spark.planner.store import read_network
from laps.spark.planner.verdicts import CAPACITY, FAN_OUT, RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from laps.spark.planner.assign import Codes
    from laps.spark.planner.audience import Chunk
    from laps.spark.planner.network import Ints, Longs


@dataclass(frozen=True, slots=True)
class Share:
    """What a task is given: its number, and the buckets it goes through."""

    number: int
    buckets: tuple[int, ...]


# -- making up, and bucketing ----------------------------------------------------------------------


def make_up(folder: Path, raw: Path, shares: tuple[float, ...], seed: int, chunk: Chunk) -> int:
    """Write the tracks and subscriptions of a chunk; returns how many subscriptions there are."""
    demand = _audience(folder, shares, seed).chunk(
        chunk.number, chunk.begin, chunk.tracks, chunk.rows
    )
    buckets.write_whole(demand.tracks(), raw / "tracks" / f"part-{chunk.number:05d}.parquet")
    rows = demand.subscriptions()
    buckets.write_whole(rows, raw / "subscriptions" / f"part-{chunk.number:05d}.parquet")
    return len(demand.row)


@lru_cache(maxsize=1)
def _audience(folder: Path, shares: tuple[float, ...], seed: int) -> Audience:
    return Audience(read_network(folder), shares, seed)


@dataclass(frozen=True, slots=True)
class Part:
    """What a task spreads of a table."""

    number: int
    table: str
    pieces: tuple[buckets.Piece, ...]


def spread(work: Path, count: int, part: Part) -> buckets.Run:
    """Order the rows of some files by bucket."""
    types = buckets.TRACKS if part.table == "tracks" else buckets.SUBSCRIPTIONS
    return buckets.spread(part.pieces, types, count, work / f"{part.table}-{part.number:05d}")


def gather(
    folder: Path, work: Path, runs: Mapping[str, Sequence[buckets.Run]], share: Share
) -> buckets.Gathered:
    """Sort some buckets and write them."""
    place = np.load(work / "place.npy")
    total = buckets.Gathered()
    for number in share.buckets:
        tracks = buckets.taken(runs["tracks"], buckets.TRACKS, number)
        rows = buckets.taken(runs["subscriptions"], buckets.SUBSCRIPTIONS, number)
        bucket, gathered = buckets.gather(tracks, rows, place)
        buckets.write_bucket(
            bucket,
            buckets.bucket_file(folder / "tracks", number),
            buckets.bucket_file(folder / "subscriptions", number),
        )
        total += gathered
    return total


# -- planning --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What a worker is told besides arrays."""

    nodes: tuple[str, ...]
    regions: tuple[str, ...]
    shape: Shape


@lru_cache(maxsize=1)
def _lookup(work: Path) -> tuple[Lookup, Ints, Any]:
    lookup = Lookup(
        np.load(work / "region.npy"), _mapped(work / "allowed.npy"), np.load(work / "fan_out.npy")
    )
    return lookup, np.load(work / "place.npy"), np.load(work / "is_edge.npy")


def _mapped(path: Path) -> Any:
    return np.load(path, mmap_mode="r")


def _buckets(
    folder: Path, work: Path, shape: Shape, share: Share
) -> Iterator[tuple[int, Bucket, Pairs, Longs]]:
    """Each bucket with its pairs and their cells."""
    lookup, place, _ = _lookup(work)
    for number in share.buckets:
        tracks = buckets.bucket_file(folder / "tracks", number)
        rows = buckets.bucket_file(folder / "subscriptions", number)
        bucket = buckets.read_bucket(tracks, rows, place)
        if len(bucket.profile) and not 0 <= bucket.profile.min() <= bucket.profile.max() < (
            shape.profiles
        ):
            wrong = int(bucket.profile.max())
            raise ConfigError(
                f"{tracks}: a track has profile {wrong}: the policy has 0 to {shape.profiles - 1}"
            )
        pairs = find_pairs(lookup, bucket)
        yield number, bucket, pairs, shape.numbers(bucket, pairs)


@contextmanager
def _empty_sums(count: int) -> Iterator[Sums]:
    """Sums over all cells. A worker keeps the memory: to be given it takes longer than to add."""
    try:
        yield _sums(count)
    except BaseException:
        _sums.cache_clear()
        raise


@lru_cache(maxsize=1)
def _sums(count: int) -> Sums:
    return Sums(count)


def add_cells(folder: Path, work: Path, names: Names, share: Share) -> Path:
    """Add up cells."""
    with _empty_sums(names.shape.count) as sums:
        for _, bucket, pairs, cell in _buckets(folder, work, names.shape, share):
            sums.add(cell, pairs.n, bucket.rate_bps.take(pairs.track))
        cell, of_cell = sums.taken()
    return _save(work, "cells", share, cell=cell, sums=of_cell)


def add_up(folder: Path, work: Path, names: Names, share: Share) -> Path:
    """Add up cells, and what hub and spoke takes today."""
    shape = names.shape
    _, _, is_edge = _lookup(work)
    srtt = _mapped(work / "srtt_us.npy")
    today = Today(shape.nodes)
    with _empty_sums(shape.count) as sums:
        for _, bucket, pairs, cell in _buckets(folder, work, shape, share):
            _require_edges(bucket, is_edge, names)
            sums.add(cell, pairs.n, bucket.rate_bps.take(pairs.track))
            lost = today.add(bucket, srtt)
            if lost is not None:
                origin, relay = names.nodes[lost[0]], names.nodes[lost[1]]
                raise ConfigError(
                    f"{folder}: node {relay} cannot be reached from {origin}, where a track that "
                    "it subscribes to is published: add a link that joins them"
                )
        cell, of_cell = sums.taken()
    return _save(work, "sum", share, cell=cell, sums=of_cell, flow=today.flow, delays=today.delays)


def _require_edges(bucket: Bucket, is_edge: NDArray[np.bool_], names: Names) -> None:
    for numbers in (bucket.origin, bucket.relay):
        right = is_edge.take(numbers)
        if not right.all():
            node = names.nodes[numbers[np.argmin(right)]]
            raise ConfigError(f"a track is at {node}, which is no edge: clients are at edges")


def slice_up(folder: Path, work: Path, names: Names, share: Share) -> Path:
    """Add up the slices of some cells."""
    found = Slices(np.load(work / "split.npy"), SLICES)
    for _, bucket, pairs, cell in _buckets(folder, work, names.shape, share):
        found.add(bucket, pairs, cell)
    return _save(work, "slice", share, sums=found.sums.all())


def assign(folder: Path, work: Path, names: Names, left_out: float, share: Share) -> Path:
    """Write the plan of some buckets, and add up what it takes."""
    shape = names.shape
    choice = Choice(
        code=_mapped(work / "code.npy"),
        split=np.load(work / "split.npy"),
        of_slice=np.load(work / "of_slice.npy"),
    )
    tables = Tables(
        via=np.load(work / "via.npy"),
        srtt_us=_mapped(work / "srtt_us.npy"),
        fixed=np.load(work / "fixed.npy"),
        each=np.load(work / "each.npy"),
        onward=_mapped(work / "onward.npy"),
        touched=np.load(work / "touched.npy"),
        left_out=left_out,
        priced=(work / "priced").exists(),
    )
    outcome = Outcome(shape, tables)
    missing = np.zeros((len(MISSING), 2))
    for number, bucket, pairs, cell in _buckets(folder, work, shape, share):
        code = choice.of(bucket, pairs, cell)
        served, row, srtt = outcome.add(bucket, pairs, code)
        _write_plan(folder, names, number, bucket, pairs, code, served, tables.via.take(row), srtt)
        missing += _write_missing(folder, names, number, bucket, pairs, code)
    return _save(
        work,
        "assign",
        share,
        by_row=outcome.by_row.all(),
        flow=outcome.flow,
        delays=outcome.delays,
        asked=np.array([outcome.least, outcome.dearest]),
        missing=missing,
    )


_REASONS: Final = ("the best by itself", "its best option is short of capacity")


def _write_plan(
    folder: Path,
    names: Names,
    number: int,
    bucket: Bucket,
    pairs: Pairs,
    code: Codes,
    served: Longs,
    via: Ints,
    srtt: Ints,
) -> None:
    columns = {
        "track": bucket.track.take(pairs.track[served]),
        "region": _words(pairs.region[served], names.regions),
        # A number of a node, and the one behind all of them: none.
        "via": _words(np.where(via < 0, len(names.nodes), via), (*names.nodes, "")),
        "relays": pairs.n[served].astype(np.int32),
        "delay_us": (srtt >> 1).astype(np.int64),
        "reason": _words((code[served] >= MOVED).astype(np.int8), _REASONS),
    }
    path = buckets.bucket_file(folder / "plan", number)
    buckets.write_whole(columns, path, packed=("relays", "delay_us"))


_HELP: Final = "laps plan explain with the 16 digits of its hash says more"
MISSING: Final = (
    (
        FAN_OUT,
        "more s-relays than the fan-out allows, and no candidate Via keeps delay and rules",
        f"raise fan_out_per_region, slack_ms of the class, or candidates; {_HELP}",
    ),
    (
        RULES,
        "neither hub and spoke nor a candidate Via keeps the rules of the track and its delay",
        f"let the track go to more regions, or raise candidates; {_HELP}",
    ),
    (
        CAPACITY,
        "no option has room for it",
        "add capacity where loads.parquet says that there is none left",
    ),
)


def _write_missing(
    folder: Path, names: Names, number: int, bucket: Bucket, pairs: Pairs, code: Codes
) -> NDArray[np.float64]:
    """Write the pairs that are not served; returns pairs and bits per second by what is missing."""
    some = np.flatnonzero(code == NONE)
    by_rules = pairs.together[some] >> DIRECT == 0
    why = np.where(pairs.mask[some] > 0, 2, np.where(by_rules, 1, 0))
    constraint, reason, way_out = zip(*MISSING, strict=True)
    columns = {
        "track": bucket.track.take(pairs.track[some]),
        "region": _words(pairs.region[some], names.regions),
        "relays": pairs.n[some].astype(np.int32),
        "constraint": _words(why, constraint),
        "reason": _words(why, reason),
        "way_out": _words(why, way_out),
    }
    buckets.write_whole(columns, buckets.bucket_file(folder / "infeasible", number))
    bits = bucket.rate_bps.take(pairs.track[some]) * pairs.n[some]
    counts = [np.bincount(why, weights, minlength=len(MISSING)) for weights in (None, bits)]
    return np.stack(counts, axis=1).astype(np.float64)


def _words(number: NDArray[Any], words: Sequence[str]) -> pa.DictionaryArray:
    kind: Any = np.int8 if len(words) < 1 << 7 else np.int16 if len(words) < 1 << 15 else np.int32
    return pa.DictionaryArray.from_arrays(pa.array(number.astype(kind)), pa.array(words))


def _save(work: Path, name: str, share: Share, **arrays: NDArray[Any]) -> Path:
    """Write arrays one after the other into a file."""
    path = work / f"{name}-{share.number:05d}.npy"
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with made.open("wb") as out:
        np.save(out, np.array(list(arrays)))
        for array in arrays.values():
            np.save(out, array)
    made.replace(path)
    return path


def added_up(path: Path) -> dict[str, NDArray[Any]]:
    """What a task wrote, which is gone then."""
    with path.open("rb") as file:
        found = {name: np.load(file) for name in np.load(file).tolist()}
    path.unlink()
    return found
