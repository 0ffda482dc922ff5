from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from laps.spark.pipeline import minutes
from support.telemetry_frames import as_dicts, at, frame, interpreted

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


def test_the_records_of_a_link_in_a_minute_become_one_row(spark: SparkSession) -> None:
    link = {"node": "1:1", "peer": "1:2", "capacity_bps": 1000}
    other = {"node": "1:2", "peer": "1:1", "srtt_us": 7}
    raw = frame(
        spark,
        "links",
        link | {"at": at(0, 59.9), "srtt_us": 99},
        link | {"at": at(1), "srtt_us": 10, "loss": 0.0, "sent_bytes": 100, "queue_bytes": 5},
        link | {"at": at(1, 30), "srtt_us": 30, "loss": 0.2, "sent_bytes": 50, "queue_bytes": 9},
        link
        | {"at": at(1, 59.999), "srtt_us": 20, "loss": 0.1, "received_bytes": 7, "capacity_bps": 2},
        other | {"at": at(1, 5)},
    )
    rows = as_dicts(minutes.links(raw).where(f"minute = '{at(1).isoformat()}'"))
    assert rows == [
        {
            "minute": at(1),
            "node": "1:1",
            "peer": "1:2",
            "records": 3,
            "interval_us": 3_000_000,
            "srtt_us_min": 10,
            "srtt_us_p50": 20,
            "srtt_us_p95": 30,
            "srtt_us_max": 30,
            "loss": pytest.approx(0.1),
            "loss_max": 0.2,
            "sent_bytes": 150,
            "received_bytes": 7,
            "queue_bytes_max": 9,
            "capacity_bps": 2,
        },
        rows[1],
    ]
    assert (rows[1]["node"], rows[1]["records"], rows[1]["srtt_us_p50"]) == ("1:2", 1, 7)
    assert minutes.links(raw).count() == 3


def test_a_track_at_a_relay_keeps_its_last_and_its_largest_audience(spark: SparkSession) -> None:
    track = {"node": "1:1", "namespace": "plant/7", "track": "celsius", "track_hash": -3}
    raw = frame(
        spark,
        "tracks",
        track | {"at": at(0, 1), "subscribers": 5, "egress": ["1:2", "1:3"], "origin": True},
        track | {"at": at(0, 2), "subscribers": 2, "egress": ["1:2"], "received_bytes": 40},
        track | {"at": at(1, 2), "subscribers": 4, "egress": []},
    )
    first, second = as_dicts(minutes.tracks(raw).drop("namespace", "track", "track_hash"))
    assert first == {
        "minute": at(0),
        "node": "1:1",
        "records": 2,
        "interval_us": 2_000_000,
        "origin": True,
        "subscribers": 2,
        "subscribers_max": 5,
        "egress": ["1:2"],
        "egress_max": 2,
        "received_bytes": 40,
        "sent_bytes": 0,
    }
    assert (second["minute"], second["subscribers"], second["egress_max"]) == (at(1), 4, 0)


def test_of_two_records_for_one_second_the_later_object_is_the_last(spark: SparkSession) -> None:
    track = {"node": "1:1", "namespace": "n", "track": "t", "at": at(0, 1)}
    raw = frame(
        spark,
        "tracks",
        track | {"subscribers": 1, "group_id": 8, "object_id": 0, "received_bytes": 10},
        track | {"subscribers": 9, "group_id": 7, "object_id": 5, "received_bytes": 20},
    )
    [row] = as_dicts(minutes.tracks(raw))
    assert (row["subscribers"], row["subscribers_max"], row["received_bytes"]) == (1, 9, 30)
    assert row["interval_us"] == 2_000_000  # each of them speaks of a time of its own


def test_a_track_has_its_name_as_soon_as_the_relay_knows_it(spark: SparkSession) -> None:
    track = {"node": "1:1", "track_hash": 5}
    raw = frame(
        spark,
        "tracks",
        track | {"at": at(0, 1), "namespace": "", "track": ""},
        track | {"at": at(0, 2), "namespace": "n", "track": "t"},
        track | {"at": at(0, 3), "namespace": "", "track": "", "track_hash": 6},
    )
    rows = as_dicts(minutes.tracks(raw), "namespace", "track", "track_hash", "records")
    assert [tuple(row.values()) for row in rows] == [("", "", 6, 1), ("n", "t", 5, 2)]


def test_a_rate_is_of_the_time_that_was_measured(spark: SparkSession) -> None:
    link = {"node": "1:1", "peer": "1:2"}
    raw = frame(
        spark,
        "links",
        link | {"at": at(0, 1), "sent_bytes": 1000, "interval_us": 500_000},
        link | {"at": at(0, 2), "sent_bytes": 0, "interval_us": 1_500_000},
        link | {"at": at(5), "sent_bytes": 4, "interval_us": 0},
    )
    rates = minutes.links(raw).select("minute", minutes.rate("sent_bytes").alias("bps"))
    assert as_dicts(rates) == [{"minute": at(0), "bps": 4000.0}, {"minute": at(5), "bps": None}]


def test_minutes_are_those_of_the_clock_in_every_time_zone(spark: SparkSession) -> None:
    before_1970 = at().replace(year=1969, second=59)
    raw = frame(
        spark,
        "links",
        {"node": "a", "peer": "b", "at": at(3, 59.999999)},
        {"node": "a", "peer": "b", "at": before_1970},
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
        found = {row["minute"] for row in as_dicts(minutes.links(raw), "minute")}
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert found == {at(3), before_1970.replace(second=0)}


def test_no_records_make_no_minutes(spark: SparkSession) -> None:
    for kind, make in minutes.MINUTES.items():
        assert make(frame(spark, kind)).count() == 0
