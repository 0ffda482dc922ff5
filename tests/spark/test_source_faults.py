"""Exactly once, whoever is killed: the driver, a worker, the relay. And what no relay holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException

import laps.spark
from support.programs import relay_process
from support.publishing import publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from support.publishing import Publisher

pytestmark = pytest.mark.spark

Objects = set[tuple[str, int, int, bytes]]


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(laps.spark.LapsDataSource)


class Job:
    """A query that writes each batch to a directory of its own, and so twice is once."""

    def __init__(self, spark: SparkSession, place: Path, relay: str, namespace: str) -> None:
        self.spark = spark
        self.output = place / "output"
        self.checkpoint = place / "checkpoint"
        self.options = {
            "relay": relay,
            "namespace": namespace,
            "startingOffsets": "earliest",
            "settle_ms": "200",
        }

    def start(self, **options: Any) -> StreamingQuery:
        return self._start(options, {"processingTime": "0 seconds"})

    def drain(self, **options: Any) -> StreamingQuery:
        """Run it until it has all that there is."""
        query = self._start(options, {"availableNow": True})
        assert query.awaitTermination(60)
        return query

    def _start(self, options: dict[str, Any], trigger: dict[str, Any]) -> StreamingQuery:
        output = self.output

        def keep(batch: DataFrame, number: int) -> None:
            batch.coalesce(1).write.mode("overwrite").parquet(f"{output}/{number}")

        frame = self.spark.readStream.format("laps").options(**self.options | options).load()
        return (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def batch(self, number: int) -> list[tuple[str, int, int, bytes]]:
        columns = ["track", "group_id", "object_id", "payload"]
        rows = parquet.read_table(self.output / str(number), columns=columns).to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    def count(self) -> int:
        """How many objects have been written so far."""
        done = [place.parent for place in self.output.glob("*/_SUCCESS")]
        return sum(parquet.read_table(place, columns=["track"]).num_rows for place in done)

    def relays(self) -> set[str]:
        """Where they came from."""
        tables = [parquet.read_table(place, columns=["relay"]) for place in self.output.iterdir()]
        return {relay for table in tables for relay in table["relay"].to_pylist()}

    def read(self) -> Objects:
        """All that was written, each object once."""
        found = [row for place in self.output.iterdir() for row in self.batch(int(place.name))]
        assert len(found) == len(set(found))
        return set(found)


def payloads(first: int, last: int, size: int = 100) -> list[bytes]:
    return [b"%08d" % number + bytes(size - 8) for number in range(first, last)]


def wait_for(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- who is killed ---------------------------------------------------------------------------------


def test_a_driver_that_is_killed_in_a_batch_repeats_it(spark: SparkSession, tmp_path: Path) -> None:
    with (
        relay_process(tmp_path / "log") as relay,
        publisher(f"moqt://{relay.clients}") as pub,
    ):
        url = f"moqt://{relay.clients}"
        job = Job(spark, tmp_path, url, "faults/driver")
        one, other = pub.publish("faults/driver/a", "one"), pub.publish("faults/driver/b", "other")
        pub.write(one, *payloads(0, 600), every=70)
        pub.write(other, *payloads(0, 300), every=50)
        sign = tmp_path / "sign"
        program = Path(__file__).with_name("driver_that_hangs.py")
        args = [url, job.checkpoint, job.output, sign]
        log = tmp_path / "driver"
        with (
            log.open("w") as said,
            subprocess.Popen(
                [sys.executable, program, *map(str, args)],
                # It finds a Java of its own: this process has set the one it found.
                env=os.environ | {"JAVA_HOME": ""},
                start_new_session=True,
                stderr=said,
            ) as driver,
        ):
            try:
                wait_for(lambda: sign.exists() or driver.poll() is not None, seconds=120)
                assert sign.exists(), log.read_text()
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
        before = job.batch(1)
        assert len(before) == 400
        # What comes meanwhile is not part of the batch that is repeated.
        pub.write(one, *payloads(600, 650), every=50)
        job.drain(maxObjectsPerTrigger=400)
        assert job.batch(1) == before
        assert job.read() == pub.written


def test_a_worker_that_is_killed_costs_no_object(spark: SparkSession, tmp_path: Path) -> None:
    with (
        relay_process(tmp_path / "log") as relay,
        publisher(f"moqt://{relay.clients}") as pub,
    ):
        job = Job(spark, tmp_path, f"moqt://{relay.clients}", "faults/worker")
        track = pub.publish("faults/worker", "t")
        pub.write(track, *payloads(0, 20_000), every=5000)
        query = job.start(maxObjectsPerTrigger=4000)
        wait_for(lambda: (job.output / "0" / "_SUCCESS").exists())
        # A task may fail once only, with this master: so the query does, with its worker.
        while query.isActive:
            for pid in workers():
                with suppress(ProcessLookupError):  # Spark has ended it meanwhile
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        assert "Python worker exited unexpectedly" in str(query.exception())
        assert not (job.output / "4").exists()
        pub.write(track, *payloads(20_000, 20_010))
        job.drain()
        assert job.read() == pub.written


def workers() -> list[int]:
    """The Python processes in which Spark runs tasks: the children of its daemon."""
    daemons = set(children(os.getpid(), "pyspark.daemon\0pyspark.worker"))
    return [pid for daemon in daemons for pid in children(daemon, "") if pid not in daemons - {pid}]


def children(of: int, command: str) -> Iterator[int]:
    """The processes below one, at any depth, whose command line holds something."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    waiting = list(parents.get(of, []))
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        try:
            if command in Path(f"/proc/{pid}/cmdline").read_text():
                yield pid
        except OSError:
            continue


def test_the_next_relay_takes_over_when_one_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    with (
        relay_process(tmp_path / "origin") as origin,
        relay_process(tmp_path / "first", "--peer", origin.peers) as first,
        relay_process(tmp_path / "second", "--peer", origin.peers) as second,
        publisher(f"moqt://{origin.clients}") as pub,
    ):
        relays = f"moqt://{first.clients},moqt://{second.clients}"
        job = Job(spark, tmp_path, relays, "faults/relay")
        track = pub.publish("faults/relay", "t")
        pub.write(track, *payloads(0, 100))
        query = job.start()
        try:
            wait_for(lambda: job.count() == 100)
            assert job.relays() == {f"moqt://{first.clients}"}
            first.kill()
            # Published while nobody knows that it is dead, and after.
            for number in range(100, 300, 20):
                pub.write(track, *payloads(number, number + 20))
                time.sleep(0.1)
            wait_for(lambda: job.count() == 300 or not query.isActive)
            assert query.exception() is None
            assert job.relays() >= {f"moqt://{second.clients}"}
            assert job.read() == pub.written
        finally:
            query.stop()


# -- what no relay holds ---------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[str, Publisher]]:
    """A relay that keeps little, and a publisher that keeps nothing."""
    config = tmp_path / "relay.toml"
    config.write_text("[cache]\nbytes = 65536\ntrack_bytes = 65536\n")
    with (
        relay_process(tmp_path / "log", "--config", str(config)) as relay,
        publisher(f"moqt://{relay.clients}") as pub,
    ):
        yield f"moqt://{relay.clients}", pub


def test_offsets_that_no_relay_holds_are_an_error_or_a_counted_skip(
    spark: SparkSession, tmp_path: Path, small: tuple[str, Publisher]
) -> None:
    url, pub = small
    job = Job(spark, tmp_path, url, "faults/lost")
    track = pub.publish("faults/lost", "t", first_group=0, history_bytes=0)
    pub.write(track, *payloads(0, 20, 1000))
    job.drain()
    assert job.read() == pub.written
    # While nobody reads, more comes than the relay has room for.
    for begin in range(20, 320, 10):
        pub.write(track, *payloads(begin, begin + 10, 1000))
        pub.wait_received(track, url)
    with pytest.raises(PySparkException) as caught:
        job.drain()
    problem = str(caught.value)
    assert 'objects of track "faults/lost t" are lost: from (1, 10) up to (31, 10)' in problem
    assert f"{url} holds" in problem
    assert '.option("failOnDataLoss", "false")' in problem
    # The way out that it names: what is held is read, and that something is not is told.
    progress = job.drain(failOnDataLoss=False).lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["latestOffset"])["skipped"] == 1
    read = job.read()
    assert read < pub.written
    assert {place for place in pub.written if place[1] >= 30} <= read
    # And from there on nothing is missing.
    pub.write(track, *payloads(320, 340, 1000))
    job.drain()
    assert {place for place in pub.written if place[1] >= 30} <= job.read()


def test_a_range_that_was_asked_for_and_is_not_held_is_an_error(
    spark: SparkSession, small: tuple[str, Publisher]
) -> None:
    url, pub = small
    track = pub.publish("faults/range", "t", first_group=0, history_bytes=0)
    pub.write(track, *payloads(0, 300, 1000), every=50)

    def read(start: str, **options: Any) -> int:
        frame = spark.read.format("laps").options(relay=url, namespace="faults/range", track="t")
        return frame.options(startingOffsets=start, settle_ms=10, **options).load().count()

    lost = '{"faults/range t": [1, 0]}'
    with pytest.raises(PySparkException, match='track "faults/range t" are lost'):
        read(lost)
    held = read(lost, failOnDataLoss=False)
    assert 0 < held < 250
    # What relays still hold is what was asked for here.
    assert read("earliest") == held
