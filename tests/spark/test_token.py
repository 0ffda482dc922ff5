"""The source, the sink and the pipeline at a relay that has keys: with a token, and without."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

import laps.spark
from laps.auth.issue import Terms, issue_jwt
from laps.auth.keys import write_jwk
from laps.spark.pipeline.job import Pipeline, Reading, telemetry
from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.tables import Table
from laps.spark.sink import calling
from laps.spark.sink.companion import LOCK
from laps.spark.sink.options import FOLDER
from laps.token_files import TokenFile
from support.programs import relay_process
from support.tokens import jwt, key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from support.programs import RelayProcess

pytestmark = pytest.mark.spark

ROOM = (b"room",)


def sign(namespace: tuple[bytes, ...] = ROOM, life_s: float = 600) -> str:
    expires = int(time.time() + life_s)
    terms = Terms(publish=(namespace,), subscribe=(namespace,), expires=expires)
    return issue_jwt(terms, key())


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """A relay that lets in who shows a token, and takes none that has ended."""
    folder = tmp_path_factory.mktemp("relay")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    config = folder / "relay.toml"
    config.write_text(
        f'[auth]\nkeys = "{keys}"\nskew_s = 0\n[telemetry]\ninterval_s = 0.5\n'
        "[cache]\nage_s = 600.0\n"
    )
    with relay_process(folder / "log", "--config", str(config)) as running:
        yield running


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[str]:
    """Of a query; its publisher does not outlive the test."""
    made = str(tmp_path / "checkpoint")
    yield made
    lock = calling.companion_folder(f"{made}/{FOLDER}") / LOCK
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(lock.read_text()), signal.SIGTERM)


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(laps.spark.LapsDataSource)


class Room:
    """The tracks of one relay below `room`, read and written."""

    def __init__(self, spark: SparkSession, relay: RelayProcess, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._said = {"relay": f"moqt://{relay.clients}", "namespace": "room", "wait_s": "5"}

    def read(self, track: str, **options: str) -> DataFrame:
        said = {"track": track, **self._said, **options}
        return self._spark.read.format("laps").options(**said).load()

    def payloads(self, track: str, **options: str) -> list[bytes]:
        return sorted(bytes(row.payload) for row in self.read(track, **options).collect())

    def write(self, track: str, values: list[str], **options: str) -> None:
        """By a stream of one batch, whose publisher stays connected for the next."""
        inbox = Path(self._checkpoint).with_name("inbox")
        inbox.mkdir(exist_ok=True)
        (inbox / f"{time.time_ns()}.txt").write_text("\n".join(values) + "\n")
        rows = self._spark.readStream.text(str(inbox)).withColumnRenamed("value", "payload")
        said = {"track": track, "checkpointLocation": self._checkpoint, **self._said, **options}
        query = rows.writeStream.format("laps").options(**said).trigger(availableNow=True).start()
        assert query.awaitTermination(60)


@pytest.fixture
def room(spark: SparkSession, relay: RelayProcess, checkpoint: str) -> Room:
    return Room(spark, relay, checkpoint)


def test_token_lets_the_sink_publish_and_the_source_read_and_is_in_no_plan_page_or_log(
    room: Room, spark: SparkSession, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = sign()
    room.write("a", ["one", "two"], token=token)
    frame = room.read("a", token=token)
    assert sorted(bytes(row.payload) for row in frame.collect()) == [b"one", b"two"]
    frame.explain(mode="extended")
    java: Any = frame._jdf.queryExecution()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    runs = store.executionsList()
    shown = [java.toString(), frame._jdf.toString(), repr(frame)]
    shown += [
        f"{runs.apply(at).description()} {runs.apply(at).details()} "
        f"{runs.apply(at).physicalPlanDescription()} {runs.apply(at).modifiedConfigs()}"
        for at in range(runs.size())
    ]
    shown += [file.read_text("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    shown += list(capfd.readouterr())
    assert "Relation" in shown[0] or "Scan" in shown[0]
    assert len(shown) > 6
    assert not [text for text in shown if token in text]


def test_token_that_is_missing_is_refused_in_the_words_of_the_relay(room: Room) -> None:
    with pytest.raises((PySparkException, CapturedException), match="a token is needed"):
        room.payloads("a")
    with pytest.raises((PySparkException, CapturedException), match="a token is needed"):
        room.write("refused", ["one"])


@pytest.mark.parametrize(
    ("name", "life_s", "words"),
    [
        ("elsewhere", 600, "no token that was shown allows to"),
        ("room", -60, "the token expired 6"),
    ],
)
def test_token_that_is_wrong_is_refused_and_not_repeated(
    room: Room, name: str, life_s: float, words: str
) -> None:
    token = sign((name.encode(),), life_s)
    with pytest.raises((PySparkException, CapturedException)) as refused:
        room.payloads("a", token=token)
    assert words in str(refused.value)
    assert token not in str(refused.value)


def test_token_that_may_not_fetch_is_refused_and_the_track_is_not_taken_for_empty(
    room: Room,
) -> None:
    room.write("d", ["one"], token=sign())
    may = {"actions": ["subscribe", "track-status"], "namespace": "room"}
    with pytest.raises((PySparkException, CapturedException), match="allows to fetch"):
        room.payloads("d", token=jwt({"laps": {"allow": [may]}}).decode())


def test_token_file_is_read_again_when_it_changes(
    room: Room, relay: RelayProcess, tmp_path: Path
) -> None:
    """The publisher of the sink stays connected, and its first token is not enough for the rest."""
    file = tmp_path / "token"
    file.write_text(sign((b"room", b"b")))
    room.write("t", ["one"], namespace="room/b", tokenFile=str(file))
    before = sessions(relay)
    assert before
    file.write_text(sign())
    deadline = time.monotonic() + 30
    while not sessions(relay) - before:
        assert time.monotonic() < deadline, "the newer token is not shown"
        time.sleep(0.05)
    room.write("t", ["two"], namespace="room/c", tokenFile=str(file))
    assert room.payloads("t", namespace="room/b", tokenFile=str(file)) == [b"one"]
    assert room.payloads("t", namespace="room/c", tokenFile=str(file)) == [b"two"]


def sessions(relay: RelayProcess) -> set[int]:
    """The clients that are connected, by their numbers."""
    answer = httpx.get(f"http://{relay.admin}/v1/clients", trust_env=False)
    return {row["client"] for row in answer.json()["clients"]}


def test_pipeline_reads_telemetry_with_a_token_for_laps_and_not_with_another(
    spark: SparkSession, relay: RelayProcess, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.jwt"
    file.write_text(sign((b"laps",)))
    url = f"moqt://{relay.clients}"

    def run(place: Path, token: TokenFile | str) -> Pipeline:
        at = Place.of(str(place))
        stream = telemetry(spark, at, "node", Reading(url, token=token))
        job = Pipeline(at, {"node": stream}, every_s=None)
        for part in job._parts:
            with suppress(PySparkException, CapturedException):
                part.query.awaitTermination()
        return job

    everything_else = Terms(subscribe=((),), expires=int(time.time() + 600))
    refused = run(tmp_path / "refused", issue_jwt(everything_else, key()))
    assert "no token that was shown allows to" in str(refused.failure())
    good = run(tmp_path / "tables", TokenFile(file))
    assert good.failure() is None
    assert Table(Place.of(str(tmp_path / "tables")), "raw/node").read(spark).count() > 0
