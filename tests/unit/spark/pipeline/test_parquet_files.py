import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from laps.errors import ConfigError
from laps.spark.pipeline.parquet_files import (
    SMALL_BYTES,
    File,
    Place,
    remove_empty_folders,
    time_column,
    to_merge,
)

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
MIB = 1 << 20


def file(name: str, size: int, minute: int | None = 0) -> File:
    at = None if minute is None else NOON + timedelta(minutes=minute)
    return File(name, size, 1, at, at)


@pytest.mark.parametrize(
    ("text", "spark", "delta"),
    [
        ("/data/t", "file:/data/t", "/data/t"),
        ("/data/with space/", "file:/data/with space", "/data/with space"),
        ("file:///data/t", "file:/data/t", "/data/t"),
        ("s3://bucket/t", "s3a://bucket/t", "s3://bucket/t"),
        ("s3a://bucket/t/", "s3a://bucket/t", "s3://bucket/t"),
        ("gs://bucket/t", "gs://bucket/t", "gs://bucket/t"),
        ("abfss://c@a.dfs.core.windows.net/t",) * 3,
        ("hdfs://name:9000/t",) * 3,
    ],
)
def test_a_place_has_the_names_that_spark_and_the_log_know(
    text: str, spark: str, delta: str
) -> None:
    place = Place.of(text) / "raw/links"
    assert (place.spark, place.delta) == (f"{spark}/raw/links", f"{delta}/raw/links")
    assert (place.local is not None) == (not delta.partition("://")[1])


def test_a_relative_place_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(Place.of("./laps-tables")) == str(tmp_path / "laps-tables")


def test_a_place_that_cannot_have_tables_is_named_with_those_that_can() -> None:
    with pytest.raises(
        ConfigError, match=r'"ftp://x" is no place for tables: take a path, or .*s3a'
    ):
        Place.of("ftp://x")


def test_a_file_may_hold_what_its_times_allow() -> None:
    one = File("f", 1, 2, NOON, NOON + timedelta(minutes=1))
    minute = timedelta(minutes=1)
    assert one.may_hold(None, None)
    assert one.may_hold(NOON + minute, None)
    assert not one.may_hold(NOON + minute * 1.01, None)
    assert one.may_hold(None, NOON + minute * 0.01)
    assert not one.may_hold(None, NOON)
    assert file("f", 1, None).may_hold(NOON, NOON)  # what is not known may be anything


def test_the_oldest_small_files_are_merged_first_up_to_the_target() -> None:
    files = [file(f"{minute}", 10 * MIB, minute) for minute in (3, 1, 2, 0)]
    assert [f.path for f in to_merge(files, 2, 32 * MIB)] == ["0", "1", "2"]
    assert to_merge(files, 5, 32 * MIB) == []
    assert to_merge([*files, file("big", SMALL_BYTES)], 5, 128 * MIB) == []


def test_what_would_not_make_one_of_two_is_left_alone() -> None:
    assert to_merge([file("a", 20 * MIB), file("b", 20 * MIB, 1)], 2, 32 * MIB) == []
    small = [file("a", 30 * MIB), file("b", 20 * MIB, 1), file("c", 5 * MIB, 2)]
    assert [f.path for f in to_merge(small, 2, 32 * MIB)] == ["b", "c"]
    assert to_merge([], 0, 32 * MIB) == []


def test_empty_folders_go_when_they_are_old(tmp_path: Path) -> None:
    for name in ("old/_temporary/0", "full", "_delta_log", "new"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "full" / "part-0.parquet").touch()
    for name in ("old/_temporary/0", "old/_temporary", "old", "full", "_delta_log"):
        os.utime(tmp_path / name, (0, 0))
    before = datetime.now(UTC) - timedelta(hours=1)
    left = {"_delta_log", "full", "new", "old"}
    for gone in ("0", "_temporary", "old"):
        remove_empty_folders(tmp_path, before)
        # What loses a folder has changed, and goes when that is old too.
        for folder in tmp_path.glob("old/**"):
            os.utime(folder, (0, 0))
        assert not list(tmp_path.rglob(f"{gone}"))
    assert {path.name for path in tmp_path.iterdir()} == left - {"old"}


def test_minutes_come_before_other_times() -> None:
    assert time_column(["at", "minute"]) == "minute"
    assert time_column(["node", "at"]) == "at"
    assert time_column(["node"]) is None
