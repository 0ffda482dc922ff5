"""Tracks as tables: streams and bounded reads, with a real relay."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import laps.spark
from support.programs import relay_process
from support.publishing import publisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from support.programs import RelayProcess
    from support.publishing import Publisher

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with relay_process(tmp_path_factory.mktemp("relay") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def url(relay: RelayProcess) -> str:
    return f"moqt://{relay.clients}"


@pytest.fixture(scope="module")
def pub(url: str) -> Iterator[Publisher]:
    with publisher(url) as made:
        yield made


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(laps.spark.LapsDataSource)


@pytest.fixture
def tables(spark: SparkSession, url: str, tmp_path: Path) -> Tables:
    return Tables(spark, url, tmp_path)


class Tables:
    """Reads of one relay."""

    def __init__(self, spark: SparkSession, url: str, place: Path) -> None:
        self.spark = spark
        self.url = url
        self.place = place
        self.batches: dict[str, dict[int, list[Row]]] = {}

    def read(self, namespace: str, track: str | None = None, **options: Any) -> DataFrame:
        return (
            self.spark.read.format("laps").options(**self._said(namespace, track, options)).load()
        )

    def follow(self, namespace: str, track: str | None = None, **options: Any) -> DataFrame:
        source = self.spark.readStream.format("laps")
        return source.options(**self._said(namespace, track, options)).load()

    def _said(self, namespace: str, track: str | None, options: dict[str, Any]) -> dict[str, Any]:
        said = {"relay": self.url, "namespace": namespace, "wait_s": 5}
        return said | ({} if track is None else {"track": track}) | options

    def start(self, frame: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        """Keep what comes, batch by batch: one that is run again replaces itself."""

        def keep(batch: DataFrame, number: int) -> None:
            self.batches.setdefault(name, {})[number] = batch.collect()

        return (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.place / name))
            .trigger(**trigger or {"processingTime": "0 seconds"})
            .start()
        )

    def drain(self, frame: DataFrame, name: str, **trigger: Any) -> list[Any]:
        """Run a query to its end; the progress of its batches."""
        query = self.start(frame, name, **trigger or NOW)
        assert query.awaitTermination(60)
        return query.recentProgress

    def rows(self, name: str) -> list[Row]:
        return [row for batch in self.batches.get(name, {}).values() for row in batch]

    def payloads(self, name: str) -> list[bytes]:
        return [bytes(row.payload) for row in self.rows(name)]


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def as_set(rows: list[Row]) -> set[tuple[str, int, int, bytes]]:
    return {(row.track, row.group_id, row.object_id, bytes(row.payload)) for row in rows}


# -- bounded reads ---------------------------------------------------------------------------------


def test_a_track_is_read_as_a_table(tables: Tables, pub: Publisher) -> None:
    track = pub.publish("table/7", "celsius", first_group=5, priority=9)
    pub.run(track.write(b"zero", extensions=[(2, 7)]))
    pub.write(track, *numbered(*range(25)))
    rows = tables.read("table/7", "celsius").sort("group_id", "object_id").collect()
    assert [(row.group_id, row.object_id) for row in rows] == [
        (5, 0),
        *((6 + number // 10, number % 10) for number in range(25)),
    ]
    first = rows[0]
    assert (first.namespace, first.track, first.status) == (["table", "7"], "celsius", "normal")
    assert (first.priority, first.subgroup_id, first.relay) == (9, 0, tables.url)
    assert (first.extensions, bytes(first.payload)) == ({2: (7).to_bytes(8)}, b"zero")
    assert [bytes(row.payload) for row in rows[1:]] == numbered(*range(25))
    # A task for each group.
    assert tables.read("table/7", "celsius").rdd.getNumPartitions() == 4


def test_a_range_is_read_by_its_offsets(tables: Tables, pub: Publisher) -> None:
    track = pub.publish("range", "t", first_group=0)
    pub.write(track, *numbered(*range(30)))

    def between(start: list[int], end: list[int]) -> list[int]:
        frame = tables.read(
            "range",
            startingOffsets=json.dumps({"range t": start}),
            endingOffsets=json.dumps({"range t": end}),
        )
        return sorted(int(bytes(row.payload)) for row in frame.collect())

    assert between([0, 4], [1, 3]) == [*range(4, 13)]
    assert between([1, 0], [2, 0]) == [*range(10, 20)]
    assert between([2, 9], [2, 10]) == [29]
    assert between([1, 1], [1, 1]) == []
    with pytest.raises(PySparkException, match=r'"range t" has come to \(2, 10\)'):
        between([0, 0], [2, 11])


def test_all_tracks_below_a_prefix_are_read(tables: Tables, pub: Publisher) -> None:
    for part, name in (("a", "x"), ("a", "y"), ("b/c", "x")):
        pub.write(pub.publish(f"below/{part}", name), f"{part} {name}".encode())
    pub.write(pub.publish("belows", "x"), b"no")
    payloads = {bytes(row.payload) for row in tables.read("below").collect()}
    assert payloads == {b"a x", b"a y", b"b/c x"}
    payloads = {bytes(row.payload) for row in tables.read("below/*", "x").collect()}
    assert payloads == {b"a x"}


# -- decoding --------------------------------------------------------------------------------------


def test_payloads_are_decoded_and_what_is_corrupt_is_kept(
    tables: Tables, pub: Publisher, spark: SparkSession
) -> None:
    track = pub.publish("decoded", "json", first_group=0)
    pub.write(track, b'{"celsius": 21.5, "track": "mine"}', b"{", b'{"celsius": "warm"}')
    frame = tables.read(
        "decoded", "json", payload_format="json", payload_schema="celsius double, track string"
    )
    assert frame.columns == [
        "namespace",
        "group_id",
        "subgroup_id",
        "object_id",
        "priority",
        "status",
        "extensions",
        "received_at",
        "relay",
        "celsius",
        "track",
        "_corrupt",
    ]
    rows = frame.sort("object_id").collect()
    assert [(row.celsius, row.track) for row in rows] == [
        (21.5, "mine"),
        (None, None),
        (None, None),
    ]
    corrupt = [None if row["_corrupt"] is None else bytes(row["_corrupt"]) for row in rows]
    assert corrupt == [None, b"{", b'{"celsius": "warm"}']

    arrow = pub.publish("decoded", "arrow")
    batch = pa.record_batch({"v": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    pub.write(arrow, bytes(sink.getvalue()), b"nothing")
    frame = tables.read("decoded", "arrow", payload_format="arrow", payload_schema="v bigint")
    assert sorted(row.v or 0 for row in frame.collect()) == [0, 1, 2, 3]
    assert frame.where("_corrupt IS NOT NULL").count() == 1

    text = pub.publish("decoded", "text")
    pub.write(text, "grün".encode(), b"\xff")
    frame = tables.read("decoded", "text", payload_format="text").sort("object_id")
    assert [row.payload for row in frame.collect()] == ["grün", None]


# -- streams ---------------------------------------------------------------------------------------


def test_a_query_reads_what_there_is_and_stops(tables: Tables, pub: Publisher) -> None:
    one, other = pub.publish("now/a", "t"), pub.publish("now/b", "t")
    pub.write(one, *numbered(*range(50)))
    pub.write(other, *numbered(*range(100, 105)))
    frame = tables.follow("now", startingOffsets="earliest", maxObjectsPerTrigger=20)
    progress = tables.drain(frame, "first")
    assert [len(batch) for batch in tables.batches["first"].values()] == [20, 20, 15]
    assert sorted(map(int, tables.payloads("first"))) == [*range(50), *range(100, 105)]
    assert json.loads(progress[-1]["sources"][0]["latestOffset"])["late"] == 0

    # It goes on where it was: nothing twice, and nothing left out, however much came meanwhile.
    pub.write(one, *numbered(*range(50, 60)))
    third = pub.publish("now/c", "t")
    pub.write(third, *numbered(200))
    tables.drain(frame, "first")
    assert sorted(map(int, tables.payloads("first"))) == [*range(60), *range(100, 105), 200]
    tables.drain(frame, "first")
    assert len(tables.payloads("first")) == 66


def test_one_batch_takes_all_there_is(tables: Tables, pub: Publisher) -> None:
    track = pub.publish("once", "t")
    pub.write(track, *numbered(*range(30)))
    tables.drain(tables.follow("once", "t", startingOffsets="earliest"), "once", once=True)
    assert sorted(map(int, tables.payloads("once"))) == [*range(30)]


def test_a_stream_follows_tracks_and_new_ones(tables: Tables, pub: Publisher) -> None:
    track = pub.publish("live/a", "t")
    pub.write(track, b"before")
    query = tables.start(tables.follow("live"), "live")
    try:
        query.processAllAvailable()
        assert tables.payloads("live") == []
        pub.write(track, *numbered(*range(25)))
        until(query, lambda: len(tables.payloads("live")) == 25)
        # A track that comes later is read from its first object on.
        late = pub.publish("live/b", "t")
        pub.write(late, *numbered(100, 101))
        until(query, lambda: len(tables.payloads("live")) == 27)
        assert sorted(map(int, tables.payloads("live"))) == [*range(25), 100, 101]
        pub.end(late)
        pub.write(track, b"30")
        until(query, lambda: len(tables.payloads("live")) == 28)
        assert as_set(tables.rows("live")) <= pub.written
    finally:
        query.stop()


def test_subgroups_and_groups_out_of_order_are_all_read(tables: Tables, pub: Publisher) -> None:
    track = pub.publish("mixed", "t", first_group=0)
    query = tables.start(tables.follow("mixed", "t", startingOffsets="earliest"), "mixed")

    async def write() -> None:
        layers = [track.group(0, layer, last=False) for layer in range(3)]
        later = track.group(1, 0, last=True)
        await later.write(b"later", object_id=0)
        for number in range(30):
            # The third layer is a good way behind, and so is the whole group.
            layer = layers[(number * 7) % 3]
            await layer.write(b"%d" % number, object_id=number)
        for layer in layers:
            layer.end()
        later.end()
        await track.group(2, 0).write(b"last", object_id=0)

    try:
        pub.run(write())
        until(query, lambda: len(tables.payloads("mixed")) == 32)
        rows = tables.rows("mixed")
        assert len({(row.group_id, row.object_id) for row in rows}) == 32
        until(query, lambda: query.lastProgress is not None)
        progress = query.lastProgress
        assert progress is not None
        report = json.loads(progress["sources"][0]["latestOffset"])
        assert (report["late"], report["skipped"]) == (0, 0)
    finally:
        query.stop()


def until(query: StreamingQuery, condition: Any) -> None:
    """Wait for what a running query is about to do; what went wrong with it is raised."""
    deadline = time.monotonic() + 60
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.02)


# -- what can go wrong -----------------------------------------------------------------------------


def failure(query: StreamingQuery) -> str:
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(60)
    return str(caught.value)


def test_a_relay_that_is_down_is_named_with_all_others(tables: Tables) -> None:
    relays = "moqt://nobody.invalid:1,moqt://nobody.invalid:2"
    query = tables.start(tables.follow("down", "t", relay=relays), "down")
    problem = failure(query)
    assert "no relay answers: moqt://nobody.invalid:1: " in problem
    assert 'moqt://nobody.invalid:2: URL "moqt://nobody.invalid:2": host' in problem


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"relay": "quicr://127.0.0.1:33435"}, "speaks QUICR, which has no FETCH"),
        ({"payload_format": "json", "payload_schema": "a nonsense"}, "nonsense"),
        ({"startingOffsets": '{"other t": [0, 0]}'}, 'startingOffsets names "other t"'),
    ],
)
def test_what_is_wrong_is_said_in_the_query(
    tables: Tables, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        tables.read("wrong", "t", wait_s=0, **options).collect()
    assert problem in str(caught.value)


def test_a_schema_that_is_not_the_sources_is_refused(tables: Tables, spark: SparkSession) -> None:
    frame = spark.read.format("laps").options(relay=tables.url, namespace="a", track="t")
    with pytest.raises(PySparkException, match="is not for this source"):
        frame.schema("celsius double").load().collect()


def test_a_track_that_nobody_publishes_is_an_error(tables: Tables) -> None:
    with pytest.raises(PySparkException, match='track "nobody t" is not known'):
        tables.read("nobody", "t", wait_s=0.1).collect()
    with pytest.raises(PySparkException, match='no track "nobody" is published at'):
        tables.read("nobody", wait_s=0).collect()
    query = tables.start(tables.follow("nobody", "t", wait_s=0.1), "nobody")
    assert 'track "nobody t" is not known' in failure(query)


def test_a_prefix_without_tracks_waits_for_the_first(tables: Tables, pub: Publisher) -> None:
    query = tables.start(tables.follow("soon"), "soon")
    try:
        query.processAllAvailable()
        pub.write(pub.publish("soon/a", "t"), b"there")
        until(query, lambda: tables.payloads("soon") == [b"there"])
    finally:
        query.stop()
