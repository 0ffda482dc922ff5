"""`df.write` and `df.writeStream` with real relays, as a person uses them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import laps
from laps.spark import LapsDataSource, bridge
from laps.spark.sink import calling
from laps.spark.sink.companion import LOCK
from laps.spark.sink.options import FOLDER, SinkOptions
from laps.spark.sink.writers import scratch_place
from support.sinks import Relays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from laps.client import Object

pytestmark = pytest.mark.spark

NOBODY = "moqt://127.0.0.1:1"


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Relays(tmp_path_factory.mktemp("relay")) as relays:
        yield relays.start()


@pytest.fixture(scope="module")
def laps_spark(spark: SparkSession, relay: str) -> Iterator[SparkSession]:
    spark.dataSource.register(LapsDataSource)
    yield spark
    gateway: Any = spark.sparkContext._gateway
    scratch = scratch_place(SinkOptions((relay,)), gateway.proc.pid)
    end_companion(scratch)
    shutil.rmtree(scratch)


def end_companion(sink: str) -> None:
    """Kill the publisher of a sink, if there is one."""
    folder = calling.companion_folder(sink)
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((folder / LOCK).read_text()), signal.SIGKILL)
    shutil.rmtree(folder)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[str]:
    """A folder for a query; its companion does not outlive the test."""
    made = str(tmp_path / "checkpoint")
    yield made
    end_companion(f"{made}/{FOLDER}")
    end_companion(f"{made}-sink")


class Listener:
    """A subscriber that is there all the time, in a loop of its own."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.ended = False

    @property
    def payloads(self) -> list[bytes]:
        return [item.payload for item in self.objects]

    def has(self, count: int) -> list[bytes]:
        wait_until(lambda: len(self.objects) >= count, f"{count} objects")
        return self.payloads


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


@contextmanager
def listening(url: str, namespace: str, track: str = "t") -> Iterator[Listener]:
    listener = Listener()

    async def listen() -> None:
        async with laps.connect(url) as session:
            async for item in session.subscribe(namespace, track, start="start", patience_s=30):
                listener.objects.append(item)
            listener.ended = True

    task = asyncio.run_coroutine_threadsafe(listen(), bridge.loop())
    try:
        yield listener
    finally:
        task.cancel()


def write(frame: DataFrame, relay: str, namespace: str, **options: object) -> None:
    writer = frame.write.format("laps").mode("append")
    for name, value in {"relay": relay, "namespace": namespace, **options}.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_the_rows_of_a_frame_are_the_objects_of_a_track(
    laps_spark: SparkSession, relay: str
) -> None:
    frame = laps_spark.range(0, 1000, numPartitions=3).select(
        F.concat(F.lit("row "), F.col("id")).alias("payload"),
        (F.col("id") % 2 + 7).cast("int").alias("priority"),
        F.create_map(F.lit(3), F.lit(b"odd")).alias("extensions"),
    )
    with listening(relay, "sink/plain") as listener:
        write(frame, relay, "sink/plain", track="t")
        assert listener.has(1000) == [b"row %d" % n for n in range(1000)]
        assert {item.extensions for item in listener.objects} == {((3, b"odd"),)}
        assert {item.priority for item in listener.objects} == {7, 8}
        write(frame.limit(5).select("payload"), relay, "sink/plain", track="t", end_track="true")
        wait_until(lambda: listener.ended, "the end of the track")
        assert len(listener.payloads) == 1005


def test_a_batch_may_go_to_several_tracks_group_by_group(
    laps_spark: SparkSession, relay: str
) -> None:
    frame = laps_spark.createDataFrame(
        [("a", 1, 20.5), ("b", 1, 19.0), ("a", 1, 20.6), ("a", 2, 20.7), ("b", 2, 19.1)],
        "track string, hour int, celsius double",
    ).coalesce(1)
    with listening(relay, "sink/two", "a") as a, listening(relay, "sink/two", "b") as b:
        write(frame, relay, "sink/two", payload_format="json", group_by="hour")
        assert list(map(json.loads, a.has(3))) == [
            {"hour": 1, "celsius": 20.5},
            {"hour": 1, "celsius": 20.6},
            {"hour": 2, "celsius": 20.7},
        ]
        first = a.objects[0].group
        places = [(item.group - first, item.id) for item in a.objects]
        assert places == [(0, 0), (0, 1), (1, 0)]
        assert len(b.has(2)) == 2


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_what_was_written_is_read_as_it_was(
    laps_spark: SparkSession, relay: str, form: str
) -> None:
    schema = (
        "n bigint, at timestamp, day date, price decimal(10,2), raw binary, "
        "tags map<string, array<int>>, inner struct<a: double, b: timestamp>"
    )
    frame = laps_spark.sql(
        "SELECT id AS n, timestamp'2026-03-01 12:00:00.25' AS at, date'2026-03-01' AS day, "
        "cast(1.5 AS decimal(10,2)) AS price, X'00FF' AS raw, map('k', array(1, 2)) AS tags, "
        "named_struct('a', 0.5D, 'b', timestamp'2026-03-01 12:00:00') AS inner FROM range(20) "
        "UNION ALL SELECT null, null, null, null, null, null, null"
    ).coalesce(1)
    write(frame, relay, f"sink/{form}", track="t", payload_format=form)
    read = laps_spark.read.format("laps").option("relay", relay).option("track", "t")
    read = read.option("namespace", f"sink/{form}").option("payload_format", form)
    back = read.option("payload_schema", schema).load().select(*frame.columns)
    assert back.collect() == frame.collect()


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"track": "t"}, "publishes the column payload, and there is none among id"),
        ({"track": "t", "payload_format": "json", "trak": "x"}, "did you mean track"),
        ({"payload_format": "json"}, 'give .option\\("track", '),
        ({"track": "t", "payload_format": "json", "relay": "quicr://a:1"}, "speaks QUICR"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_done(
    laps_spark: SparkSession, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        write(laps_spark.range(3), options.pop("relay", NOBODY), "sink/bad", **options)


def test_a_row_that_cannot_be_published_fails_the_write_with_nothing_published(
    laps_spark: SparkSession, relay: str
) -> None:
    frame = laps_spark.range(100).selectExpr("if(id = 77, null, string(id)) AS payload")
    with pytest.raises(CapturedException, match="column payload is null in row"):
        write(frame, relay, "sink/null", track="t")
    with listening(relay, "sink/null") as listener:
        write(frame.where("payload IS NOT NULL").limit(1), relay, "sink/null", track="t")
        listener.has(1)
        assert len(listener.objects) == 1


def test_what_was_published_cannot_be_overwritten(laps_spark: SparkSession) -> None:
    writer = laps_spark.range(3).selectExpr("string(id) AS payload").write.format("laps")
    with pytest.raises(AnalysisException, match=r'write with mode\("append"\)'):
        writer.mode("overwrite").options(relay=NOBODY, namespace="a", track="t").save()


# -- streams ---------------------------------------------------------------------------------------


def lines(folder: Path, number: int, count: int = 20) -> list[bytes]:
    """A file of the input: its lines, which are one batch."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [f"b{number}-{n}" for n in range(count)]
    path = folder / f"{number}.txt"
    (folder / f".{number}").write_text("\n".join(made))
    os.utime(folder / f".{number}", (1e9 + number, 1e9 + number))  # by which they are read in order
    (folder / f".{number}").rename(path)
    return [line.encode() for line in made]


def run(frame: DataFrame, relay: str, namespace: str, checkpoint: str, **options: object) -> None:
    writer = frame.writeStream.format("laps").trigger(availableNow=True)
    options = {"relay": relay, "namespace": namespace, "track": "t", "linger_s": 0} | options
    for name, value in {"checkpointLocation": checkpoint, **options}.items():
        writer = writer.option(name, str(value))
    query = writer.start()
    assert query.awaitTermination(60)


def test_a_query_goes_on_with_its_track_when_it_is_started_again(
    laps_spark: SparkSession, relay: str, checkpoint: str, tmp_path: Path
) -> None:
    wanted = lines(tmp_path / "input", 0) + lines(tmp_path / "input", 1)
    rows = laps_spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    frame = rows.load(str(tmp_path / "input")).withColumnRenamed("value", "payload")
    with listening(relay, "sink/stream") as listener:
        run(frame, relay, "sink/stream", checkpoint)
        assert listener.has(40) == wanted
        wanted += lines(tmp_path / "input", 2)
        run(frame, relay, "sink/stream", checkpoint)
        assert listener.has(60) == wanted
        groups = [item.group for item in listener.objects]
        assert groups == [groups[0] + n // 20 for n in range(60)]
        assert not listener.ended
        staged = Path(checkpoint, FOLDER, "staged")
        # A walk, unlike a glob, bears it that a folder goes while it is being read.
        wait_until(lambda: not any(files for _, _, files in os.walk(staged)), "staged files to go")

        # A batch of which Spark does not know that it is published: it is not published again.
        last = Path(checkpoint) / "commits" / "2"
        last.unlink()
        last.with_name(".2.crc").unlink(missing_ok=True)
        wanted += lines(tmp_path / "input", 3)
        run(frame, relay, "sink/stream", checkpoint)
        assert listener.has(80) == wanted


def test_relays_that_do_not_answer_are_named_by_the_query(
    laps_spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    lines(tmp_path / "input", 0)
    rows = laps_spark.readStream.format("text").load(str(tmp_path / "input"))
    frame = rows.withColumnRenamed("value", "payload")
    with pytest.raises(StreamingQueryException, match=r"no relay answers: moqt://127\.0\.0\.1:1"):
        run(frame, NOBODY, "sink/nobody", checkpoint)


def test_a_windowed_table_is_published_as_it_changes(
    laps_spark: SparkSession, relay: str, checkpoint: str, tmp_path: Path
) -> None:
    def publish(batch: DataFrame, batch_id: int) -> None:
        ordered = batch.orderBy("window").coalesce(1)
        for _ in range(2):  # as if the batch came again
            write(
                ordered,
                relay,
                "sink/window",
                track="t",
                payload_format="json",
                group_by="window",
                checkpoint=f"{checkpoint}-sink",
                batch_id=batch_id,
                linger_s=0,
            )

    (tmp_path / "input").mkdir()
    schema = "at timestamp, celsius double"
    rows = laps_spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    table = (
        rows.json(str(tmp_path / "input"))
        .withWatermark("at", "1 hour")
        .groupBy(F.window("at", "1 minute"))
        .agg(F.count("*").alias("n"))
    )
    for number, minutes in enumerate([[0, 0, 1], [1, 2]]):
        path = tmp_path / "input" / f"{number}.json"
        path.write_text("\n".join(f'{{"at": "2026-03-01T12:0{m}:30Z"}}' for m in minutes))
        os.utime(path, (1e9 + number, 1e9 + number))
    with listening(relay, "sink/window") as listener:
        query = (
            table.writeStream.outputMode("update")
            .foreachBatch(publish)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        found = [json.loads(payload) for payload in listener.has(4)]
        assert [(row["window"]["start"][14:16], row["n"]) for row in found] == [
            ("00", 2),
            ("01", 1),
            ("01", 2),
            ("02", 1),
        ]
        assert len({item.group for item in listener.objects}) == 4


def test_a_write_in_foreach_batch_has_to_know_its_batch(
    laps_spark: SparkSession, relay: str, checkpoint: str, tmp_path: Path
) -> None:
    lines(tmp_path / "input", 0)

    def publish(batch: DataFrame, _: int) -> None:
        write(batch, relay, "sink/each", track="t", checkpoint=f"{checkpoint}-sink")

    rows = laps_spark.readStream.format("text").load(str(tmp_path / "input"))
    query = (
        rows.withColumnRenamed("value", "payload")
        .writeStream.foreachBatch(publish)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=r'give .option\("batch_id", batch_id\)'):
        query.awaitTermination(60)


def test_every_example_of_the_page_works(
    laps_spark: SparkSession, relay: str, checkpoint: str
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    section = page.partition("## Writing\n")[2].partition("\n## ")[0]
    once, stream = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    places = {"moqt://127.0.0.1:33435": relay, "/data/averages": checkpoint}
    names: dict[str, Any] = {"spark": laps_spark}
    for example, track, count in ((once, "celsius", 100), (stream, "seconds", 2)):
        for written, there in places.items():
            example = example.replace(written, there)
        with listening(relay, "plant/averages", track) as listener:
            exec(example, names)
            assert all(json.loads(payload) for payload in listener.has(count))
    names["query"].stop()


# -- whoever is killed -----------------------------------------------------------------------------


def test_each_object_comes_once_when_the_driver_and_a_worker_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "query"
    wanted = [line for number in range(3) for line in lines(folder / "input", number)]

    def start(url: str, moment: str) -> int:
        command = [sys.executable, "-m", "support.dying_query", str(folder), url, moment]
        path = str(Path(__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": path, "JAVA_HOME": ""}
        with (folder / "log").open("a") as log:
            return subprocess.run(command, env=environment, stderr=log, check=False).returncode

    with Relays(tmp_path) as relays:
        url = relays.start()
        with listening(url, "demo/sink") as listener:
            # The driver dies when batch 1 is published and Spark does not know; so it comes again,
            # and then the worker that stages it dies, and the task is tried once more.
            assert start(url, "done") != 0
            assert listener.has(40) == wanted[:40]
            assert start(url, "write") == 0, (folder / "log").read_text()
            assert listener.has(60) == wanted
            assert not (folder / "moment").exists()
            first = listener.objects[0].group
        assert fetched(url, first) == wanted
    end_companion(f"{folder}/checkpoint/{FOLDER}")


def fetched(url: str, group: int) -> list[bytes]:
    async def fetch() -> list[bytes]:
        async with laps.connect(url) as session:
            objects = session.fetch("demo/sink", "t", start=(group, 0))
            return [item.payload async for item in objects]

    return bridge.run(fetch(), 30)
