from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.report import NothingThere, Report, make
from laps.spark.pipeline.sections import render
from laps.spark.pipeline.tables import NoTable, Table
from support.telemetry_frames import at, frame, interpreted

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


UNTIL = at(11)


def fill(spark: SparkSession, place: Path) -> None:
    """Three relays: o in eu sends two tracks to v, which sends one on to s in us."""

    def put(kind: str, *rows: dict[str, Any]) -> None:
        Table(place, f"raw/{kind}").append(frame(spark, kind, *rows).coalesce(1), "test", 0)

    def track(node: str, minute: int, name: str = "video", **rest: Any) -> dict[str, Any]:
        hashed = {"track_hash": len(name) if name == "video" else 9}
        return {"node": node, "namespace": "n", "track": name, "at": at(minute)} | hashed | rest

    put(
        "node",
        *(
            {"node": node, "region": region, "at": at(minute), "load": load}
            for minute in (0, 10)
            for node, region, load in (("o", "eu", 0.5), ("v", "us", 0.9), ("s", "us", 0.1))
            if (node, minute) != ("s", 10)
        ),
    )
    put(
        "links",
        *(
            {"node": node, "peer": peer, "at": at(minute), "srtt_us": 1000 * minute}
            for minute in range(11)
            for node, peer in (("o", "v"), ("v", "o"), ("v", "s"))
        ),
    )
    put(
        "tracks",
        track("o", 10, origin=True, egress=["v"], received_bytes=1000),
        track("v", 10, egress=["s"], received_bytes=1000, subscribers=4),
        track("s", 10, received_bytes=1000, subscribers=2),
        track("o", 10, "audio", origin=True, egress=["v"], received_bytes=10),
        track("v", 10, "audio", subscribers=9, received_bytes=10),
    )
    put(
        "events",
        {"node": "o", "event": "path_changed", "subject": "s", "at": at(3), "detail": "v to w"},
    )
    late = pa.table({"minute": pa.array([at(1)], pa.timestamp("us", "UTC"))})
    late = late.append_column("node", pa.array(["o"])).append_column("rows", pa.array([17]))
    Table(place, "late/links").append_arrow(late, "test", 0)


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    fill(spark, place)
    return place


@pytest.fixture(scope="module")
def report(spark: SparkSession, place: Path) -> Report:
    return make(spark, Place.of(place), at(0), UNTIL, top=2)


def test_the_totals_are_those_of_the_whole_network(report: Report) -> None:
    totals = report.totals
    assert (totals.relays, totals.silent, totals.tracks, totals.subscriptions) == (3, 1, 2, 15)
    assert totals.links == 4  # what v sends to s is said by v alone, and counts in both directions
    assert totals.records == {"links": 33, "tracks": 5, "node": 5, "events": 1}
    assert (totals.late, totals.corrupt) == ({"links": 17, "tracks": 0}, 0)
    assert report.as_of == at(10)


def test_every_view_has_its_first_rows_in_order(report: Report) -> None:
    def shown(view: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns) for row in report.views[view]]

    assert shown("relays", "node", "load") == [("v", 0.9), ("o", 0.5)]
    assert shown("tracks_by_rate", "track", "rate_bps") == [("video", 8000.0), ("audio", 80.0)]
    assert shown("tracks_by_audience", "track", "subscribers") == [("audio", 9), ("video", 6)]
    assert shown("regions", "region", "subscribers") == [("us", 15)]
    assert shown("audience", "track", "region", "subscribers") == [
        ("audio", "us", 9),
        ("video", "us", 6),
    ]
    assert shown("copies", "node", "peer", "tracks") == [("o", "v", 2), ("v", "s", 1)]
    assert shown("fan_out", "copies", "at_origin", "at_relays") == [(0, 0, 2), (1, 2, 3)]
    assert shown("path_changes", "node", "subject", "flapping") == [("o", "s", False)]
    assert shown("delay", "minute", "srtt_us_p50") == [(at(m), 1000 * m) for m in range(11)]
    assert len(report.views["links"]) == 2
    assert len(report.views["matrix"]) == 4
    assert render(report).renderables


def test_a_time_with_nothing_in_it_says_what_there_is(spark: SparkSession, place: Path) -> None:
    with pytest.raises(NothingThere) as caught:
        make(spark, Place.of(place), at(60), at(70))
    assert str(caught.value) == (
        f"the tables in {place} have nothing between 2026-08-01 13:00:00 UTC and 2026-08-01 "
        "13:10:00 UTC: ask for what they have with --since 2026-08-01T12:00 --until "
        "2026-08-01T12:11"
    )


def test_tables_that_are_not_there_are_named_with_the_way_to_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(NoTable, match=r"no tables in .*: `laps pipeline --relay URL --to .*` wri"):
        make(spark, Place.of(tmp_path), at(0), at(0) + timedelta(hours=1))


def test_a_network_of_which_only_one_thing_is_known_is_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = frame(spark, "events", {"node": "a", "event": "started", "at": at(0)})
    Table(tmp_path, "raw/events").append(events, "test", 0)
    found = make(spark, Place.of(tmp_path), at(0), at(5))
    assert (found.totals.relays, found.totals.records["events"]) == (0, 1)
    assert render(found).renderables
