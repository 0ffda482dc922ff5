"""The job on streams of files that have the columns of the source; real relays are elsewhere."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from laps.errors import LapsError
from laps.spark.pipeline import ingest, network
from laps.spark.pipeline.job import CHECKPOINTS, Pipeline, starting_offsets
from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.tables import Table
from laps.telemetry.records import KINDS
from support.telemetry_frames import at, frame, records

pytestmark = pytest.mark.spark

DDL = "group_id bigint, object_id bigint, received_at timestamp, relay string, _corrupt binary"


class Killed(Exception):  # noqa: N818
    """Stands for kill -9: nothing of the job goes on behind it."""


def write_batch(folder: Path, number: int, kind: str, *rows: dict[str, Any]) -> None:
    """A file that is a batch of its own, in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = tuple({"group_id": number} | row for row in rows)
    hidden, file = folder / f"_{number}", folder / f"{number:03}.parquet"
    pq.write_table(records(kind, *rows), hidden)
    os.utime(hidden, (1_000_000 + number, 1_000_000 + number))
    hidden.rename(file)


def stream(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    reader = spark.readStream.schema(f"{KINDS[kind].ddl}, {DDL}")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(
    spark: SparkSession,
    place: Path,
    inbox: Path,
    *kinds: str,
    must_work: bool = True,
    **options: Any,
) -> Pipeline:
    """Take all batches there are."""
    streams = {kind: stream(spark, inbox / kind, kind) for kind in kinds}
    job = Pipeline(Place.of(place), streams, every_s=None, **options)
    for part in job._parts:
        with nullcontext() if must_work else suppress(StreamingQueryException):
            part.query.awaitTermination()
    return job


def link(node: str, minute: float, **rest: Any) -> dict[str, Any]:
    return {"node": node, "peer": "9:9", "at": at(minute), "srtt_us": round(minute * 60)} | rest


def write_links(inbox: Path) -> list[dict[str, Any]]:
    """Four batches of two relays; the last has two records that come too late."""
    batches: list[list[dict[str, Any]]] = [
        [link(node, m + part) for node in ("1:1", "1:2") for m in minutes for part in (0, 0.5)]
        for minutes in ((0, 1), (2, 3), (4,))
    ]
    batches.append([link("1:1", 0.25), link("1:1", 0.3), link("1:2", 3.9), link("1:2", 6)])
    for number, rows in enumerate(batches):
        write_batch(inbox / "links", number, "links", *rows)
    return [row for batch in batches for row in batch]


# What is closed when all is read: 1:1 has got to 4:30, 1:2 to 6:00.
CLOSED = {"1:1": at(2), "1:2": at(4)}
LATE = [("1:1", at(0), 2)]


def raw_rows(spark: SparkSession, place: Path) -> list[tuple[Any, ...]]:
    rows = Table(place, "raw/links").read(spark).select("node", "at", "srtt_us").toArrow()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def minute_rows(spark: SparkSession, place: Path) -> list[tuple[Any, ...]]:
    rows = Table(place, "minute/links").read(spark).select("node", "minute", "records").toArrow()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def late_rows(place: Path) -> list[tuple[Any, ...]]:
    rows = Table(place, "late/links").arrow().select(["node", "minute", "rows"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def expected_minutes(sent: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    late_ones = [(node, minute) for node, minute, _ in LATE]
    counts = Counter((row["node"], row["at"].replace(second=0)) for row in sent)
    for node, minute, rows in LATE:
        counts[node, minute] -= rows
    assert all((node, minute) in counts for node, minute in late_ones)
    return sorted((n, minute, count) for (n, minute), count in counts.items() if minute < CLOSED[n])


def check(spark: SparkSession, place: Path, sent: list[dict[str, Any]]) -> None:
    assert raw_rows(spark, place) == sorted((r["node"], r["at"], r["srtt_us"]) for r in sent)
    assert minute_rows(spark, place) == expected_minutes(sent)
    assert late_rows(place) == LATE


def test_every_record_is_in_raw_and_every_closed_minute_is_written_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = write_links(tmp_path / "in")
    place = Place.of(tmp_path / "to")
    close = ingest.Minutes._close
    reported: list[int] = []

    def report() -> None:
        found = network.read_minutes(spark, place, "links", at(0), at(60)).toArrow().to_pylist()
        assert len({(row["node"], row["minute"]) for row in found}) == len(found)
        reported.append(sum(row["records"] for row in found))

    def close_and_report(self: ingest.Minutes, *args: Any) -> None:
        if args[-1] == 2:  # of the batches, the one that closes minutes of both relays
            report()
        close(self, *args)

    monkeypatch.setattr(ingest.Minutes, "_close", close_and_report)
    job = run(spark, tmp_path / "to", tmp_path / "in", "links")
    check(spark, tmp_path / "to", sent)
    progress = job.progress()
    assert (progress.rows, progress.batches, progress.late) == (len(sent), 4, 2)
    assert progress.newest == at(6)
    # What is open is read from raw: a report has all that is in time, before a minute is written,
    # when the next batch is there whose watermark is not, and at the end.
    report()
    assert reported == [20, len(sent) - 2, len(sent) - 2]


def test_a_job_that_is_killed_at_any_step_goes_on_as_if_it_had_not_been(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = write_links(tmp_path / "in")
    killed: set[tuple[str, str]] = set()

    def deadly(name: str) -> None:
        """Let it kill the job once before and once after it, for each table."""

        def method(table: Table, *args: Any) -> Any:
            made = None
            for when in ("before", "after"):
                made = original(table, *args) if when == "after" else None
                step = (f"{when} {name}", table.name)
                # A batch that is killed again and again would be no harder than killed once.
                if step not in killed:
                    killed.add(step)
                    raise Killed(str(step))
            return made

        original = getattr(Table, name)
        monkeypatch.setattr(Table, name, method)

    for name in ("stage", "_commit", "_put"):
        deadly(name)
    for _ in range(30):
        job = run(spark, tmp_path / "to", tmp_path / "in", "links", must_work=False)
        if (failure := job.failure()) is None:
            break
        assert "Killed" in repr(job._parts[0].ingest.failure), failure
    monkeypatch.undo()
    assert killed == {
        (f"{when} {name}", table)
        for when in ("before", "after")
        for name, table in (
            ("stage", "raw/links"),
            ("_commit", "raw/links"),
            ("_put", "watermarks/links"),
            ("_put", "late/links"),
            ("stage", "minute/links"),
            ("_commit", "minute/links"),
        )
    }
    check(spark, tmp_path / "to", sent)


def test_the_job_is_killed_for_real(spark: SparkSession, tmp_path: Path) -> None:
    sent = write_links(tmp_path / "in")
    place = tmp_path / "to"
    command = [sys.executable, "-c", JOB, str(place), str(tmp_path / "in")]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
        assert job.stdout is not None
        try:
            for line in job.stdout:
                if line == "batch 2\n":  # it is being written now
                    break
        finally:
            job.send_signal(signal.SIGKILL)
    assert len(raw_rows(spark, place)) < len(sent)
    run(spark, place, tmp_path / "in", "links")
    check(spark, place, sent)


JOB = """
import sys
from pathlib import Path
import laps.spark
from laps.spark.pipeline import ingest
from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.job import Pipeline
from laps.telemetry.records import KINDS

DDL = "group_id bigint, object_id bigint, received_at timestamp, relay string, _corrupt binary"
take = ingest.Ingest._take

def saying(self, frame, batch):
    print("batch", batch, flush=True)
    take(self, frame, batch)

ingest.Ingest._take = saying
spark = laps.spark.session("local[2]")
reader = spark.readStream.schema(f"{KINDS['links'].ddl}, {DDL}").option("maxFilesPerTrigger", 1)
streams = {"links": reader.parquet(f"{sys.argv[2]}/links")}
job = Pipeline(Place.of(sys.argv[1]), streams, every_s=None)
job._parts[0].query.awaitTermination()
"""


def test_small_files_are_merged_on_the_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = write_links(tmp_path / "in")
    monkeypatch.setattr(Table, "compact", partialmethod(Table.compact, least_files=2))
    run(spark, tmp_path / "to", tmp_path / "in", "links", compact_every=3)
    assert len(Table(tmp_path / "to", "raw/links").read(spark).inputFiles()) == 1 + 1
    check(spark, tmp_path / "to", sent)


def test_what_does_not_decode_is_kept_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    broken = dict.fromkeys([c.name for c in KINDS["node"].columns]) | {"_corrupt": b"\xff?"}
    place = tmp_path / "to"
    for number in range(2):
        write_batch(
            tmp_path / "in" / "node",
            number,
            "node",
            {"node": "1:1", "at": at(number)},
            broken | {"received_at": at(5), "object_id": 7},
            {"node": None, "at": at(number), "received_at": at(6)},
            {"node": "1:1", "at": at().replace(year=9999), "received_at": at(6)},
            broken | {"_corrupt": None},  # the end of a group, which has no payload
        )
    job = run(spark, place, tmp_path / "in", "node")
    assert (job.progress().rows, job.progress().corrupt) == (2, 6)
    assert job.progress().newest == at(1)
    assert Table(place, "raw/node").read(spark).where("node IS NULL").count() == 0
    kept = Table(place, "raw/corrupt").read(spark).where("payload IS NOT NULL")
    assert kept.orderBy("group_id").toArrow().to_pylist()[1] == {
        "at": at(5),
        "kind": "node",
        "group_id": 1,
        "object_id": 7,
        "relay": "r",
        "payload": b"\xff?",
    }


def test_without_its_checkpoint_a_job_goes_on_behind_what_is_in_the_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place.of(tmp_path / "to")
    assert starting_offsets(spark, place, "links") == "earliest"
    write_batch(
        tmp_path / "in" / "links",
        0,
        "links",
        link("1:1", 0, group_id=7, object_id=9),
        link("1:1", 0, group_id=8, object_id=2),
        link("1:2", 0, group_id=3, object_id=0),
    )
    run(spark, tmp_path / "to", tmp_path / "in", "links")
    assert starting_offsets(spark, place, "links") == "earliest"  # the checkpoint knows better
    (tmp_path / "to" / CHECKPOINTS / "links" / "metadata").unlink()
    assert starting_offsets(spark, place, "links") == (
        '{"laps/telemetry/1:1 links": [8, 3], "laps/telemetry/1:2 links": [3, 1]}'
    )


def test_batches_of_a_job_without_checkpoint_are_new_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "to"
    for number, minute in enumerate((0, 3)):
        write_batch(tmp_path / "a" / "links", number, "links", link("1:1", minute))
        write_batch(tmp_path / "b" / "links", number, "links", link("1:1", minute + 6))
    run(spark, place, tmp_path / "a", "links")
    (place / CHECKPOINTS).rename(tmp_path / "lost")
    run(spark, place, tmp_path / "b", "links")
    assert len(raw_rows(spark, place)) == 4
    assert [minute for _, minute, _ in minute_rows(spark, place)] == [at(0), at(3), at(6)]


def test_a_query_that_fails_says_why_in_a_line_and_ends_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_links(tmp_path / "in")
    write_batch(tmp_path / "in" / "node", 0, "node", {"node": "1:1", "at": at()})

    def fail(table: Table, *args: Any) -> None:
        if table.name == "raw/links":
            raise LapsError("the disk is full: delete something")

    monkeypatch.setattr(Table, "commit", fail)
    streams = {k: stream(spark, tmp_path / "in" / k, k) for k in ("links", "node")}
    job = Pipeline(Place.of(tmp_path / "to"), streams, every_s=0.1)
    failed = threading.Event()
    while not failed.wait(0.05):
        if not job.is_running:
            failed.set()
    job.stop()
    assert str(job.failure()) == "links: the disk is full: delete something"
    assert not any(part.query.isActive for part in job._parts)


def test_stopping_waits_for_the_batch_that_is_being_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = write_links(tmp_path / "in")
    inside, may_go_on = threading.Event(), threading.Event()
    commit = Table.commit

    def slowly(table: Table, *args: Any) -> None:
        inside.set()
        assert may_go_on.wait(60)
        commit(table, *args)

    monkeypatch.setattr(Table, "commit", slowly)
    streams = {"links": stream(spark, tmp_path / "in" / "links", "links")}
    job = Pipeline(Place.of(tmp_path / "to"), streams, every_s=0)
    assert inside.wait(60)
    threading.Timer(0.3, may_go_on.set).start()
    job.stop()
    monkeypatch.undo()
    written = raw_rows(spark, tmp_path / "to")
    assert len(written) in {8, 16, 20, len(sent)}  # whole batches


def test_the_views_of_a_time_are_written_as_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.of(tmp_path / "to")
    two = {name: network.VIEWS[name] for name in ("links", "relays")}
    monkeypatch.setattr(network, "VIEWS", two)
    for batch in range(2):
        rows = frame(spark, "links", link("1:1", batch), link("1:2", batch))
        Table(place, "raw/links").append(rows, "test", batch)
        network.write_views(spark, place, at(0), at(60))
    links = Table(place, "views/links").read(spark).where("seen_from = 'node'")
    assert {(row.node, row.peer, row.records) for row in links.collect()} == {
        ("1:1", "9:9", 2),
        ("1:2", "9:9", 2),
    }
    assert Table(place, "views/relays").read(spark).count() == 0


@pytest.fixture(autouse=True)
def _no_noise(spark: SparkSession) -> Iterator[None]:
    spark.sparkContext.setLogLevel("OFF")  # queries fail on purpose here
    yield
    spark.sparkContext.setLogLevel("ERROR")
