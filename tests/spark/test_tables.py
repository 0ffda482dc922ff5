import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession

from laps.errors import LapsError
from laps.spark.pipeline import table_log, tables
from laps.spark.pipeline.tables import Conflict, NoTable, Table

pytestmark = pytest.mark.spark

AT = pa.timestamp("us", "UTC")
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


def rows(spark: SparkSession, *numbers: int, minutes: int = 0) -> DataFrame:
    at = NOON + timedelta(minutes=minutes)
    table = pa.table(
        {
            "at": pa.array([at + timedelta(seconds=number) for number in numbers], AT),
            "node": pa.array([f"1:{number}" for number in numbers], pa.string()),
            "egress": pa.array([[str(number)] for number in numbers], pa.list_(pa.string())),
        }
    )
    return spark.createDataFrame(table).coalesce(1)


def nodes(frame: DataFrame) -> list[str]:
    return sorted(row.node for row in frame.collect())


def test_what_was_appended_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "with a space"
    assert Table(place, "raw/links").append(rows(spark, 1, 2), "job", 0)
    frame = tables.read(spark, place, "raw/links")
    assert [
        (row.at.astimezone(UTC), row.node, row.egress) for row in frame.orderBy("at").collect()
    ] == [
        (NOON + timedelta(seconds=1), "1:1", ["1"]),
        (NOON + timedelta(seconds=2), "1:2", ["2"]),
    ]


def test_a_batch_that_comes_again_is_not_written_twice(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "raw/links")
    assert table.append(rows(spark, 1), "job", 0)
    assert table.append(rows(spark, 2), "job", 1)
    assert not table.append(rows(spark, 2), "job", 1)
    assert not Table(tmp_path, "raw/links").append(rows(spark, 1), "job", 0)
    assert nodes(table.read(spark)) == ["1:1", "1:2"]
    # Numbers are those of a writer: who begins anew has numbers of its own.
    assert table.append(rows(spark, 3), "another job", 0)
    assert nodes(table.read(spark)) == ["1:1", "1:2", "1:3"]


def test_of_two_jobs_that_write_the_same_batch_at_once_one_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    Table(tmp_path, "raw/links").append(rows(spark, 0), "job", 0)
    first, second = Table(tmp_path, "raw/links"), Table(tmp_path, "raw/links")
    assert not first.has("job", 1)
    assert not second.has("job", 1)  # both have looked now, and neither knows of the other
    added = second._write(rows(spark, 1), "job-1")
    assert first.append(rows(spark, 1), "job", 1)
    with pytest.raises(Conflict, match="another job has written batch 1 of job meanwhile"):
        second._commit(added, "append", "job", 1)
    assert nodes(second.read(spark)) == ["1:0", "1:1"]


def test_files_of_a_batch_that_was_not_finished_are_not_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path, "raw/links")
    table.append(rows(spark, 1), "job", 0)
    table._write(rows(spark, 2), "job-1")  # and here the job is killed
    torn = tmp_path / "raw" / "links" / "job-1-x" / "_temporary" / "0" / "part-0.parquet"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    assert nodes(tables.read(spark, tmp_path, "raw/links")) == ["1:1"]
    assert table.append(rows(spark, 2), "job", 1)
    assert nodes(tables.read(spark, tmp_path, "raw/links")) == ["1:1", "1:2"]


def test_times_choose_rows_and_files(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in range(3):
        table.append(rows(spark, 0, 30, minutes=batch), "job", batch)
    middle = table.read(
        spark, since=NOON + timedelta(seconds=30), until=NOON + timedelta(seconds=90)
    )
    assert sorted(row.at.astimezone(UTC) for row in middle.collect()) == [
        NOON + timedelta(seconds=30),
        NOON + timedelta(seconds=60),
    ]
    assert len(middle.inputFiles()) == 2
    nothing = table.read(spark, since=NOON + timedelta(days=1))
    assert (nothing.count(), nothing.columns) == (0, ["at", "node", "egress"])
    assert table.span() == (NOON, NOON + timedelta(minutes=2, seconds=30))
    assert table.rows() == 6


def test_a_missing_table_is_named_with_the_way_to_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTable, match=rf"there is no table raw/links in {tmp_path}: `laps pipel"):
        tables.read(spark, tmp_path, "raw/links")
    table = Table(tmp_path, "raw/links")
    assert (table.exists(), table.span(), table.rows(), table.compact(spark), table.vacuum()) == (
        False,
        None,
        0,
        0,
        0,
    )


def test_rows_that_executors_wrote_elsewhere_are_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, "raw/links")
    write = table._write

    def lose_one(frame: DataFrame, label: str) -> list[AddAction]:
        return write(frame.repartition(3, "node"), label)[1:]

    monkeypatch.setattr(table, "_write", lose_one)
    with pytest.raises(LapsError, match=r"of 9 rows of batch 0, \d are in .*see the same storage"):
        table.append(rows(spark, *range(9)), "job", 0)
    assert Table(tmp_path, "raw/links").rows() == 0


def test_an_empty_batch_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "raw/links")
    assert table.append(rows(spark), "job", 0)
    assert list((tmp_path / "raw" / "links").rglob("*.parquet")) == []
    assert table.read(spark).count() == 0


def test_a_column_that_is_new_is_empty_in_old_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "raw/links")
    table.append(rows(spark, 1), "job", 0)
    wider = rows(spark, 2).selectExpr("*", "7L AS hops")
    table.append(wider, "job", 1)
    table.append(rows(spark, 3), "job", 2)
    assert {row.node: row.hops for row in table.read(spark).collect()} == {
        "1:1": None,
        "1:2": 7,
        "1:3": None,
    }
    with pytest.raises(LapsError, match="its column hops has another type"):
        table.append(rows(spark, 4).selectExpr("*", "'7' AS hops"), "job", 3)


def test_small_files_are_merged_and_no_reader_sees_a_row_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in range(8):
        table.append(rows(spark, batch), "job", batch)
    before = table.read(spark)  # a reader that has its files, and has not read them
    assert table.compact(spark, least_files=9) == 0
    assert table.compact(spark) == 8
    after = table.read(spark)
    assert len(after.inputFiles()) == 1
    assert nodes(before) == nodes(after) == [f"1:{number}" for number in range(8)]
    assert table.span() == (NOON, NOON + timedelta(seconds=7))
    assert table.has("job", 7)
    assert not table.has("job", 8)
    [file] = DeltaTable(str(tmp_path / "raw" / "links")).file_uris()
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"


def test_of_two_who_merge_at_once_the_second_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in range(3):
        table.append(rows(spark, batch), "job", batch)
    late = Table(tmp_path, "raw/links")
    log = late._need()
    files = table_log.entries(log)
    assert table.compact(spark, least_files=2) == 3
    with pytest.raises(Conflict):
        late._merge(spark, log, files)
    assert nodes(table.read(spark)) == ["1:0", "1:1", "1:2"]


def test_a_job_goes_on_appending_while_files_are_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in range(4):
        table.append(rows(spark, batch), "job", batch)
    appended = threading.Event()

    def append() -> None:
        writer = Table(tmp_path, "raw/links")
        for batch in range(4, 8):
            writer.append(rows(spark, batch), "job", batch)
        appended.set()

    thread = threading.Thread(target=append)
    thread.start()
    while not appended.is_set():
        table.compact(spark, least_files=2)
    thread.join()
    assert nodes(table.read(spark)) == [f"1:{number}" for number in range(8)]


def test_files_that_do_not_count_are_deleted_when_they_are_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in range(3):
        table.append(rows(spark, batch), "job", batch)
    table.compact(spark, least_files=2)
    table._write(rows(spark, 9), "job-3")
    folder = tmp_path / "raw" / "links"
    data = [file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert len(data) == 5
    assert table.vacuum() == 0
    assert table.vacuum(grace_hours=0) == 4
    kept = [path.name for path in folder.iterdir()]
    assert len(kept) == 2  # the log, and the folder of what was merged
    assert nodes(table.read(spark)) == ["1:0", "1:1", "1:2"]


def test_a_view_is_replaced_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "views/top")
    table.replace(rows(spark, 1, 2))
    before = table.read(spark)
    table.replace(rows(spark, 3))
    assert nodes(before) == ["1:1", "1:2"]
    assert nodes(table.read(spark)) == ["1:3"]
    table.replace(rows(spark))
    assert nodes(table.read(spark)) == []


def test_small_batches_are_written_without_spark(tmp_path: Path) -> None:
    table = Table(tmp_path, "late/links")
    for batch in (0, 1, 1):
        table.append_arrow(pa.table({"rows": [batch]}), "job", batch)
    assert sorted(table.arrow()["rows"].to_pylist()) == [0, 1]
    for batch in (2, 2):
        table.replace_arrow(pa.table({"rows": [batch]}), "job", batch)
    assert table.arrow()["rows"].to_pylist() == [2]
    stale = Table(tmp_path, "late/links")
    assert not stale.has("job", 3)
    table.replace_arrow(pa.table({"rows": [3]}), "job", 3)
    with pytest.raises(LapsError):
        stale._put(pa.table({"rows": [33]}), "overwrite", "job", 3)
    assert table.arrow()["rows"].to_pylist() == [3]


def test_a_batch_is_read_alone_until_it_is_merged(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(tmp_path, "raw/links")
    for batch in (1, 11):
        table.append(rows(spark, batch, batch + 1), "a job", batch)
    alone = table.batch(spark, "a job", 1)
    assert alone is not None
    assert nodes(alone) == ["1:1", "1:2"]
    assert table.batch(spark, "a job", 2) is None
    table.compact(spark, least_files=2)
    assert table.batch(spark, "a job", 1) is None


def test_the_log_stays_short(tmp_path: Path) -> None:
    table = Table(tmp_path, "late/links")
    for batch in range(120):
        table.append_arrow(pa.table({"rows": [batch]}), "job", batch)
    log = tmp_path / "late" / "links" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    assert Table(tmp_path, "late/links").committed("job") == 119
