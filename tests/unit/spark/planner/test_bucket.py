from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import LapsError
from laps.spark.planner import bucket as buckets
from laps.spark.planner.bucket import SUBSCRIPTIONS, TRACKS

if TYPE_CHECKING:
    from pathlib import Path

    from laps.spark.planner.kernel import Bucket

# Nodes 0 and 2 are in one region, 1 and 3 in another: in the order of regions 0, 2, 1, 3.
PLACE = np.array([0, 2, 1, 3], np.int32)


def tracks(*rows: tuple[int, int, float, int]) -> dict[str, Any]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    return {name: np.array(c, TRACKS[name]) for name, c in zip(TRACKS, columns, strict=True)}


def subscriptions(*rows: tuple[int, int]) -> dict[str, Any]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 2
    return {
        name: np.array(c, SUBSCRIPTIONS[name])
        for name, c in zip(SUBSCRIPTIONS, columns, strict=True)
    }


def rows_of(bucket: Bucket) -> list[tuple[int, int]]:
    return list(zip(bucket.track[bucket.row].tolist(), bucket.relay.tolist(), strict=True))


def write(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


# -- gather ----------------------------------------------------------------------------------------


def test_a_bucket_is_sorted_by_track_then_region_then_relay() -> None:
    found, told = buckets.gather(
        tracks((9, 0, 5.0, 1), (-4, 3, 7.0, 0)),
        subscriptions((9, 3), (9, 1), (9, 2), (-4, 1), (-4, 0)),
        PLACE,
    )
    assert rows_of(found) == [(-4, 0), (-4, 1), (9, 2), (9, 1), (9, 3)]
    assert found.origin.tolist() == [3, 0]
    assert found.rate_bps.tolist() == [7.0, 5.0]
    assert found.profile.tolist() == [0, 1]
    assert told == buckets.Gathered(tracks=2, subscriptions=5)


def test_what_comes_twice_counts_once() -> None:
    found, told = buckets.gather(
        tracks((1, 0, 5.0, 0), (1, 2, 6.0, 1)), subscriptions((1, 1), (1, 3), (1, 1)), PLACE
    )
    assert rows_of(found) == [(1, 1), (1, 3)]
    assert (found.origin[0], found.rate_bps[0]) == (2, 6.0), "the last row of a track counts"
    assert told == buckets.Gathered(tracks=1, subscriptions=2, repeated=2)


def test_an_o_relay_needs_no_copy_and_an_unknown_track_gets_none() -> None:
    found, told = buckets.gather(
        tracks((1, 0, 5.0, 0)), subscriptions((1, 0), (1, 1), (8, 1)), PLACE
    )
    assert rows_of(found) == [(1, 1)]
    assert told == buckets.Gathered(tracks=1, subscriptions=1, at_origin=1, unknown=1)


def test_nothing_at_all_is_a_bucket_too() -> None:
    found, told = buckets.gather(tracks(), subscriptions(), PLACE)
    assert (len(found.track), len(found.relay)) == (0, 0)
    assert told == buckets.Gathered()
    _, told = buckets.gather(tracks(), subscriptions((8, 1)), PLACE)
    assert told.unknown == 1


def test_a_track_that_sends_nothing_is_still_a_track() -> None:
    found, _ = buckets.gather(tracks((1, 0, 0.0, 0)), subscriptions((1, 1)), PLACE)
    assert found.rate_bps.tolist() == [1.0]


@pytest.mark.parametrize("relay", [-1, 4])
def test_a_relay_that_is_no_node_is_named(relay: int) -> None:
    with pytest.raises(LapsError, match=rf"relay {relay} is no node: .* has 4, from 0 on"):
        buckets.gather(tracks((1, 0, 5.0, 0)), subscriptions((1, relay)), PLACE)


def test_an_origin_that_is_no_node_is_named() -> None:
    with pytest.raises(LapsError, match="origin 7 is no node"):
        buckets.gather(tracks((1, 7, 5.0, 0)), subscriptions((1, 1)), PLACE)


def test_a_rate_that_is_no_number_is_refused() -> None:
    with pytest.raises(LapsError, match="a track has the rate nan"):
        buckets.gather(tracks((1, 0, float("nan"), 0)), subscriptions((1, 1)), PLACE)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=300),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
)
def test_tracks_are_found_by_their_hash(known: list[int], others: list[int]) -> None:
    track = np.array(sorted(known), np.int64)
    wanted = np.array([*known, *others], np.int64)
    found = buckets.find(track, wanted)
    places = {hash_: place for place, hash_ in enumerate(track.tolist())}
    assert found.tolist() == [places.get(hash_, -1) for hash_ in wanted.tolist()]


def test_numbers_that_are_no_hashes_are_found_too() -> None:
    track = np.arange(10_000, dtype=np.int64)
    wanted = np.array([0, 9_999, 5_000, -1, 10_000], np.int64)
    assert buckets.find(track, wanted).tolist() == [0, 9_999, 5_000, -1, -1]
    assert buckets.find(np.empty(0, np.int64), wanted).tolist() == [-1] * 5


# -- spread ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3)), max_size=60))
@settings(deadline=None, max_examples=25)
def test_every_row_is_in_the_run_of_its_bucket(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spread")
    half = len(rows) // 2
    files = [
        write(folder / "a.parquet", subscriptions(*rows[:half])),
        write(folder / "b.parquet", subscriptions(*rows[half:])),
    ]
    runs = [
        buckets.spread(pieces, SUBSCRIPTIONS, 4, folder / f"run-{number}")
        for number, pieces in enumerate(buckets.pieces_of(files, 2))
    ]
    assert sum(run.rows for run in runs) == len(rows)
    found = []
    for number in range(4):
        taken = buckets.taken(runs, SUBSCRIPTIONS, number)
        here = list(zip(taken["track"].tolist(), taken["relay"].tolist(), strict=True))
        assert all(track % 2**64 % 4 == number for track, _ in here)
        found += here
    assert sorted(found) == sorted(rows)


def test_pieces_are_all_row_groups_and_each_once(tmp_path: Path) -> None:
    table = pa.table(subscriptions(*((n, 0) for n in range(1000))))
    for name, size in (("a", 100), ("b", 7), ("c", 1000)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=size)
    files = sorted(tmp_path.glob("*.parquet"))
    assert buckets.count_rows(files) == 3000
    for count in (1, 2, 5, 500):
        parts = buckets.pieces_of(files, count)
        assert len(parts) <= count
        found = [(path, n) for part in parts for path, groups in part for n in groups]
        assert sorted(found) == [
            (f, n) for f, k in zip(files, (10, 143, 1), strict=True) for n in range(k)
        ]
        assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"track": np.array([1])}, "has no column relay: it needs track, relay"),
        (
            {"track": np.array([1]), "relay": np.array([1.5])},
            "column relay is double: it must be int32",
        ),
        (
            {"track": pa.array(["one"]), "relay": np.array([1])},
            "column track is string: it must be int64",
        ),
        (
            {"track": pa.array([1, None]), "relay": np.array([1, 2])},
            "column track has 1 nulls: it must have none",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_named(
    tmp_path: Path, columns: dict[str, Any], problem: str
) -> None:
    path = write(tmp_path / "rows.parquet", columns)
    with pytest.raises(LapsError, match=rf"rows.parquet: {problem}"):
        buckets.spread([(path, (0,))], SUBSCRIPTIONS, 2, tmp_path / "run")


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("not a table")
    with pytest.raises(LapsError, match=r"rows.parquet: cannot be read as Parquet"):
        buckets.pieces_of([tmp_path / "rows.parquet"], 1)


@pytest.mark.parametrize(
    ("rows", "count"),
    [(0, 1), (1, 1), (800_000, 1), (800_001, 2), (200_000_000, 256), (10**12, 1 << 15)],
)
def test_buckets_are_a_power_of_two(rows: int, count: int) -> None:
    assert buckets.buckets_for(rows) == count


# -- on disk ---------------------------------------------------------------------------------------


def test_a_bucket_on_disk_is_what_the_page_says(tmp_path: Path) -> None:
    made, _ = buckets.gather(
        tracks((9, 0, 5.0, 1), (-4, 3, 7.0, 0)), subscriptions((9, 3), (-4, 1), (-4, 0)), PLACE
    )
    place = buckets.bucket_file(tmp_path, 17)
    assert place.name == "bucket-00017.parquet"
    buckets.write_bucket(made, tmp_path / "t.parquet", tmp_path / "s.parquet")
    of_tracks, rows = pq.read_table(tmp_path / "t.parquet"), pq.read_table(tmp_path / "s.parquet")
    assert of_tracks.to_pylist() == [
        {"track": -4, "origin": 3, "rate_bps": 7.0, "profile": 0},
        {"track": 9, "origin": 0, "rate_bps": 5.0, "profile": 1},
    ]
    assert str(of_tracks.schema.field("rate_bps").type) == "float"
    assert str(of_tracks.schema.field("profile").type) == "int8"
    assert rows.to_pylist() == [
        {"track": -4, "relay": 0},
        {"track": -4, "relay": 1},
        {"track": 9, "relay": 3},
    ]
    for path in (tmp_path / "t.parquet", tmp_path / "s.parquet"):
        assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.parquet", "t.parquet"]
    again = buckets.read_bucket(tmp_path / "t.parquet", tmp_path / "s.parquet", PLACE)
    assert rows_of(again) == rows_of(made)
    assert again.origin.tolist() == made.origin.tolist()


@pytest.mark.parametrize(
    "rows",
    [
        [(9, 3), (-4, 1), (-4, 0)],  # no order at all
        [(-4, 1), (-4, 0), (9, 3)],  # by track, but not by region
        [(-4, 0), (-4, 0), (-4, 1), (9, 3)],  # one twice
        [(-4, 0), (-4, 1), (9, 0), (9, 3)],  # one at its o-relay
    ],
)
def test_a_bucket_that_something_else_wrote_is_put_in_order(
    tmp_path: Path, rows: list[tuple[int, int]]
) -> None:
    first = write(tmp_path / "t.parquet", tracks((-4, 3, 7.0, 0), (9, 0, 5.0, 1)))
    second = write(tmp_path / "s.parquet", subscriptions(*rows))
    found = buckets.read_bucket(first, second, PLACE)
    assert rows_of(found) == [(-4, 0), (-4, 1), (9, 3)]


def test_a_track_without_subscribers_is_no_disorder(tmp_path: Path) -> None:
    first = write(tmp_path / "t.parquet", tracks((1, 0, 1.0, 0), (2, 0, 1.0, 0), (3, 0, 1.0, 0)))
    second = write(tmp_path / "s.parquet", subscriptions((2, 1)))
    found = buckets.read_bucket(first, second, PLACE)
    assert rows_of(found) == [(2, 1)]
    assert found.row.tolist() == [1]


def test_subscriptions_of_tracks_of_another_bucket_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "t.parquet", tracks((1, 0, 1.0, 0)))
    second = write(tmp_path / "s.parquet", subscriptions((1, 1), (2, 1), (3, 1)))
    with pytest.raises(LapsError, match=r"s.parquet: 2 subscriptions are of tracks that .*t.parq"):
        buckets.read_bucket(first, second, PLACE)
