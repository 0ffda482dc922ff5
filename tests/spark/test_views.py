from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from laps.spark.pipeline import minutes, views
from support.telemetry_frames import as_dicts, at, frame, interpreted

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


NOW = at(10, 30)
HASHES = {"": 0, "t": -1, "u": 2, "v": 3, "no origin": 4}


def located(spark: SparkSession, **nodes: str) -> DataFrame:
    """Relays that have always been where they are: `a="eu"`."""
    return views.regions(
        frame(spark, "node", *({"node": n, "region": r, "at": at()} for n, r in nodes.items()))
    )


def track_rows(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    usual = {"namespace": "n", "track": "t", "at": at(10)}
    hashed = [{"track_hash": HASHES[str(row.get("track", "t"))]} | usual | row for row in rows]
    return minutes.tracks(frame(spark, "tracks", *hashed))


# -- regions ---------------------------------------------------------------------------------------


def test_a_relay_is_where_it_said_it_was_at_the_time(spark: SparkSession) -> None:
    said = [(0, "eu"), (0.1, "eu"), (5.5, "us"), (7, "eu"), (9, "ap"), (9.2, "us"), (9.4, "eu")]
    node = frame(spark, "node", *({"node": "a", "region": r, "at": at(m)} for m, r in said))
    rows = spark.createDataFrame(
        [(at(minute),) for minute in (-60, 0, 4, 5, 6, 7, 8, 9, 60)], "minute timestamp"
    ).selectExpr("minute", "'a' AS node")
    placed = views.located(rows, views.regions(node))
    assert [row["region"] for row in as_dicts(placed, "minute", "region")] == [
        "eu",
        "eu",
        "eu",
        "us",
        "us",
        "eu",
        "eu",
        "eu",
        "eu",
    ]


def test_a_relay_that_says_nothing_of_itself_stays_without_a_region(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("b", at(1))], "node string, minute timestamp")
    assert as_dicts(views.located(rows, located(spark, a="eu")), "node", "region") == [
        {"node": "b", "region": None}
    ]


# -- links -----------------------------------------------------------------------------------------


def link(node: str, peer: str, when: datetime, **rest: Any) -> dict[str, Any]:
    return {"node": node, "peer": peer, "at": when, "capacity_bps": 8_000} | rest


def test_a_link_has_its_latest_and_its_usual_figures(spark: SparkSession) -> None:
    # The round trips are 1 to 20 ms, a second apart; the last record has sent half the capacity.
    records = [
        link("a", "b", at(10, second), srtt_us=1000 * (second + 1), loss=0.01, sent_bytes=100)
        for second in range(19)
    ]
    records.append(link("a", "b", at(10, 19), srtt_us=20_000, loss=0.21, sent_bytes=500))
    records.append(link("b", "a", at(10, 19), srtt_us=3, received_bytes=9, queue_bytes=4))
    found = views.links(frame(spark, "links", *records), located(spark, a="eu", b="us"), NOW)
    forth, back = as_dicts(found)
    assert forth == {
        "node": "a",
        "peer": "b",
        "seen_from": "both",
        "records": 20,
        "at": at(10, 19),
        "srtt_us": 20_000,
        "srtt_us_p50": 10_000,
        "srtt_us_p95": 19_000,
        "loss": 0.21,
        "loss_avg": pytest.approx(0.02),
        "loss_p95": 0.01,
        "sent_bps": 4000.0,
        "sent_bps_p50": 800.0,
        "sent_bps_p95": 800.0,
        "utilisation": 0.5,
        "utilisation_p50": 0.1,
        "utilisation_p95": 0.1,
        "queue_bytes": 0,
        "capacity_bps": 8000,
        "region": "eu",
        "peer_region": "us",
        "now": True,
    }
    assert (back["node"], back["srtt_us"], back["sent_bps"], back["queue_bytes"]) == ("b", 3, 0, 4)


def test_a_direction_that_only_its_receiver_speaks_of_is_there_too(spark: SparkSession) -> None:
    records = frame(
        spark,
        "links",
        link("a", "b", at(5), srtt_us=70, loss=0.5, sent_bytes=10, received_bytes=20),
    )
    forth, back = as_dicts(views.links(records, located(spark, a="eu"), NOW))
    assert (forth["node"], forth["seen_from"], forth["sent_bps"]) == ("a", "node", 80.0)
    assert (forth["region"], forth["peer_region"], forth["now"]) == ("eu", None, False)
    assert (back["node"], back["peer"], back["seen_from"]) == ("b", "a", "peer")
    assert (back["srtt_us"], back["sent_bps"], back["utilisation"]) == (70, 160.0, 0.02)
    assert (back["loss"], back["queue_bytes"]) == (None, None)


def test_of_two_records_of_a_link_in_one_second_the_later_counts(spark: SparkSession) -> None:
    records = frame(
        spark,
        "links",
        link("a", "b", at(10), srtt_us=1, group_id=5),
        link("a", "b", at(10), srtt_us=2, group_id=4),
    )
    [forth, _] = as_dicts(views.links(records, located(spark), NOW))
    assert (forth["srtt_us"], forth["records"]) == (1, 2)


def test_the_use_of_a_link_without_a_known_capacity_is_not_known(spark: SparkSession) -> None:
    records = frame(
        spark,
        "links",
        link("a", "b", at(10), sent_bytes=1, capacity_bps=0),
        link("a", "b", at(10, 1), sent_bytes=1, interval_us=0, capacity_bps=0),
    )
    [forth, _] = as_dicts(views.links(records, located(spark), NOW))
    assert (forth["utilisation"], forth["utilisation_p95"], forth["sent_bps"]) == (None, None, None)
    assert forth["sent_bps_p50"] == 8.0


def test_delay_over_time_is_of_all_links_in_each_step(spark: SparkSession) -> None:
    records = frame(
        spark,
        "links",
        link("a", "b", at(0), srtt_us=10),
        link("b", "a", at(0), srtt_us=20),
        link("c", "a", at(0), srtt_us=90, loss=0.3),
        link("a", "b", at(1), srtt_us=50),
    )
    rows = minutes.links(records)
    assert as_dicts(views.delay(rows)) == [
        {
            "minute": at(0),
            "links": 3,
            "srtt_us_p50": 20,
            "srtt_us_p95": 90,
            "srtt_us_max": 90,
            "loss": pytest.approx(0.1),
        },
        {
            "minute": at(1),
            "links": 1,
            "srtt_us_p50": 50,
            "srtt_us_p95": 50,
            "srtt_us_max": 50,
            "loss": 0.0,
        },
    ]
    [both] = as_dicts(views.delay(rows, step=5), "minute", "links", "srtt_us_p50")
    assert both == {"minute": at(0), "links": 3, "srtt_us_p50": 20}


# -- tracks ----------------------------------------------------------------------------------------


def test_an_audience_is_summed_over_the_relays_of_a_region(spark: SparkSession) -> None:
    rows = track_rows(
        spark,
        {"node": "a", "subscribers": 3},
        {"node": "b", "subscribers": 4},
        {"node": "c", "subscribers": 5},
        {"node": "x", "subscribers": 6},
        {"node": "a", "track": "u", "subscribers": 0},
        {"node": "a", "subscribers": 10, "at": at(3)},
        {"node": "b", "subscribers": 20, "at": at(3)},
        {"node": "b", "subscribers": 25, "at": at(4)},
    )
    found = views.audience(rows, located(spark, a="eu", b="eu", c="us"), NOW)
    assert as_dicts(found) == [
        {
            "namespace": "n",
            "track": "t",
            "track_hash": -1,
            "region": None,
            "peak": 6,
            "subscribers": 6,
            "relays": 1,
        },
        {
            "namespace": "n",
            "track": "t",
            "track_hash": -1,
            "region": "eu",
            "peak": 30,
            "subscribers": 7,
            "relays": 2,
        },
        {
            "namespace": "n",
            "track": "t",
            "track_hash": -1,
            "region": "us",
            "peak": 5,
            "subscribers": 5,
            "relays": 1,
        },
    ]
    by_region = views.audience_of_regions(rows, located(spark, a="eu", b="eu", c="us"), NOW)
    assert as_dicts(by_region) == [
        {"region": None, "peak": 6, "subscribers": 6, "relays": 1, "tracks": 1},
        {"region": "eu", "peak": 30, "subscribers": 7, "relays": 2, "tracks": 1},
        {"region": "us", "peak": 5, "subscribers": 5, "relays": 1, "tracks": 1},
    ]


def test_a_relay_that_moves_takes_its_audience_along(spark: SparkSession) -> None:
    node = frame(
        spark,
        "node",
        {"node": "a", "region": "eu", "at": at(0)},
        {"node": "a", "region": "us", "at": at(10, 20)},
    )
    rows = track_rows(
        spark,
        {"node": "a", "subscribers": 3, "at": at(9, 59)},
        {"node": "a", "subscribers": 2, "at": at(10, 25)},
    )
    assert as_dicts(views.audience(rows, views.regions(node), NOW), "region", "subscribers") == [
        {"region": "eu", "subscribers": 0},
        {"region": "us", "subscribers": 2},
    ]


def test_who_has_fallen_silent_has_no_audience_now(spark: SparkSession) -> None:
    rows = track_rows(
        spark,
        {"node": "a", "subscribers": 3, "at": at(8, 59)},
        {"node": "b", "subscribers": 4, "at": at(9)},
    )
    found = views.audience(rows, located(spark, a="eu", b="us"), NOW)
    assert as_dicts(found, "region", "subscribers", "peak") == [
        {"region": "eu", "subscribers": 0, "peak": 3},
        {"region": "us", "subscribers": 4, "peak": 4},
    ]


def test_a_track_has_the_rate_of_its_publisher(spark: SparkSession) -> None:
    rows = track_rows(
        spark,
        {"node": "o", "origin": True, "received_bytes": 100, "egress": ["v", "s"]},
        {"node": "o", "origin": True, "received_bytes": 300, "egress": ["v"], "at": at(10, 1)},
        # A relay that began in the middle of a burst has seen a higher rate.
        {"node": "v", "received_bytes": 500, "egress": ["s", "z", "y"], "subscribers": 1},
        {"node": "s", "received_bytes": 90, "subscribers": 2},
        {"node": "s", "track": "no origin", "received_bytes": 7},
        {"node": "v", "track": "no origin", "received_bytes": 8, "at": at(2)},
    )
    lone, t = as_dicts(views.tracks(rows, NOW))
    assert t == {
        "namespace": "n",
        "track": "t",
        "track_hash": -1,
        "rate_bps": 1600.0,
        "origins": ["o"],
        "peak": 3,
        "copies_peak": 5,
        "subscribers": 3,
        "copies": 4,
        "fan_out": 3,
        "relays": 3,
    }
    assert (lone["track"], lone["rate_bps"], lone["origins"]) == ("no origin", 64.0, [])
    assert (lone["relays"], lone["copies"]) == (1, 0)


def test_a_track_is_one_where_a_relay_in_the_middle_does_not_know_its_name(
    spark: SparkSession,
) -> None:
    nameless = {"namespace": "", "track": ""}
    rows = track_rows(
        spark,
        {"node": "o", "origin": True, "egress": ["v"], "received_bytes": 100},
        nameless | {"node": "v", "track_hash": -1, "egress": ["s", "y"]},
        nameless | {"node": "s", "track_hash": -1, "at": at(10, 1)},
        {"node": "s", "subscribers": 2, "at": at(10, 2)},
        nameless | {"node": "v", "track_hash": 77, "egress": ["s"], "received_bytes": 5},
    )
    columns = ("namespace", "track", "track_hash", "relays", "copies", "subscribers", "rate_bps")
    found = [tuple(row.values()) for row in as_dicts(views.tracks(rows, NOW), *columns)]
    assert found == [("", "", 77, 1, 1, 0, 40.0), ("n", "t", -1, 3, 3, 2, 800.0)]
    on_links = as_dicts(views.copies(rows, located(spark), NOW), "node", "peer", "tracks")
    assert [tuple(row.values()) for row in on_links] == [
        ("o", "v", 1),
        ("v", "s", 2),
        ("v", "y", 1),
    ]
    [audience] = as_dicts(views.audience(rows, located(spark), NOW), "track", "subscribers")
    assert audience == {"track": "t", "subscribers": 2}


def test_the_copies_on_a_link_are_counted_once_for_each_track(spark: SparkSession) -> None:
    rows = track_rows(
        spark,
        {"node": "a", "egress": ["b", "c"], "received_bytes": 10},
        {"node": "a", "egress": ["b"], "received_bytes": 30, "at": at(10, 1)},
        {"node": "a", "track": "u", "egress": ["b"], "received_bytes": 5},
        {"node": "b", "egress": ["d"], "received_bytes": 10},
        {"node": "a", "track": "t", "egress": ["b", "e"], "at": at(2)},
        {"node": "a", "track": "u", "egress": ["b", "e"], "at": at(2)},
        {"node": "a", "track": "v", "egress": ["b", "e"], "at": at(2)},
    )
    found = views.copies(rows, located(spark, a="eu", b="us"), NOW)
    columns = ("node", "peer", "tracks", "tracks_peak", "copies_bps", "region", "peer_region")
    values = [tuple(row.values()) for row in as_dicts(found, *columns)]
    assert values == [
        ("a", "b", 2, 3, 200.0, "eu", "us"),
        ("a", "e", 0, 3, 0.0, "eu", None),
        ("b", "d", 1, 1, 80.0, "us", None),
    ]


def test_fan_out_counts_tracks_by_their_copies(spark: SparkSession) -> None:
    rows = track_rows(
        spark,
        {"node": "o", "origin": True, "egress": ["a", "b"]},
        {"node": "o", "track": "u", "origin": True, "egress": ["a", "c"]},
        {"node": "a", "egress": ["d", "e"]},
        {"node": "d", "egress": []},
        {"node": "e", "egress": ["a", "b", "c"], "at": at(2)},
    )
    assert as_dicts(views.fan_out(rows, NOW)) == [
        {"copies": 0, "at_origin": 0, "at_relays": 1},
        {"copies": 2, "at_origin": 2, "at_relays": 3},
    ]


# -- relays and events -----------------------------------------------------------------------------


def test_a_relay_has_its_load_and_its_restarts(spark: SparkSession) -> None:
    said = {"node": "a", "role": "edge", "capacity_bps": 8000, "version": "1"}
    node = frame(
        spark,
        "node",
        said | {"at": at(9), "load": 0.9, "region": "eu", "dropped": 2, "memory_bytes": 50},
        said | {"at": at(10), "load": 0.2, "region": "us", "dropped": 1, "memory_bytes": 30}
        | {"sent_bytes": 100, "clients": 3},
        said | {"at": at(9), "node": "b", "capacity_bps": 0},
    )  # fmt: skip
    events = frame(
        spark,
        "events",
        {"node": "a", "event": "started", "at": at(0)},
        {"node": "a", "event": "started", "at": at(1)},
        {"node": "a", "event": "peer_up", "at": at(1)},
    )
    a, b = as_dicts(views.relays(node, events, NOW))
    assert (a["load"], a["load_p50"], a["load_p95"]) == (0.2, 0.2, 0.9)
    assert (a["region"], a["dropped"], a["memory_bytes"], a["memory_bytes_max"]) == (
        "us",
        3,
        30,
        50,
    )
    assert (a["sent_bps"], a["utilisation"], a["clients"], a["starts"]) == (800.0, 0.1, 3, 2)
    assert (a["silent"], b["silent"], b["utilisation"], b["starts"]) == (False, True, None, 0)


def test_a_path_that_goes_to_and_fro_is_told_from_one_that_was_repaired(
    spark: SparkSession,
) -> None:
    def change(node: str, when: datetime, detail: str = "") -> dict[str, Any]:
        return {
            "node": node,
            "event": "path_changed",
            "subject": "9:9",
            "at": when,
            "detail": detail,
            "reason": "fewer hops",
        }

    events = frame(
        spark,
        "events",
        change("a", at(0), "b -> c"),
        change("a", at(4), "c -> b"),
        change("a", at(5), "b -> d"),
        change("b", at(0)),
        change("b", at(5, 1)),
        change("b", at(10)),
        {"node": "b", "event": "peer_down", "subject": "9:9", "at": at(10)},
    )
    a, b = as_dicts(views.path_changes(events))
    assert a == {
        "node": "a",
        "subject": "9:9",
        "changes": 3,
        "at": at(5),
        "detail": "b -> d",
        "reason": "fewer hops",
        "most_at_once": 3,
        "flapping": True,
    }
    assert (b["changes"], b["most_at_once"], b["flapping"]) == (3, 2, False)
