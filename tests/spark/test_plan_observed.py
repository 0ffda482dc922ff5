"""What relays report, made into a network and demand to plan for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.errors import ConfigError
from laps.policy import policy_from_mapping
from laps.spark.pipeline import minutes
from laps.spark.pipeline.tables import Table
from laps.spark.planner import observed
from laps.spark.planner.demand import serving_edges
from laps.spark.planner.network import Link, Node
from laps.spark.planner.plan import make_plan
from laps.spark.planner.sources import problem_of, write_tables
from laps.spark.planner.topology import topology_from_mapping
from support.telemetry_frames import as_dicts, at, frame, records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EDGES = ("2:2", "2:3", "2:4")
POLICY = policy_from_mapping({}, "policy.toml")


def node(name: str, region: str, role: str = "edge", **rest: Any) -> dict[str, Any]:
    return {"node": name, "region": region, "role": role, "at": at(1)} | rest


def link(name: str, peer: str, srtt_us: int, **rest: Any) -> dict[str, Any]:
    return {"node": name, "peer": peer, "srtt_us": srtt_us, "at": at(1)} | rest


def track(name: str, **rest: Any) -> dict[str, Any]:
    usual = {"namespace": "a/b", "track": "x", "track_hash": -7, "at": at(1)}
    return usual | {"node": name} | rest


# -- frames ----------------------------------------------------------------------------------------


def test_a_relay_is_as_it_last_described_itself(spark: SparkSession) -> None:
    said = frame(
        spark,
        "node",
        node("1:10", "us", capacity_bps=5),
        node("1:9", "eu", "via", latitude=1.5, longitude=2.5),
        node("1:10", "ap", at=at(2)),
    )
    assert observed.collected_nodes(observed.nodes(said)) == (
        Node("1:9", "via", "eu", 1.5, 2.5, 0),
        Node("1:10", "edge", "ap", 0.0, 0.0, 0),
    )


def test_a_link_is_one_whoever_speaks_of_it(spark: SparkSession) -> None:
    rows = [link("1:1", "1:2", 9000, at=at(1, second), capacity_bps=80) for second in range(3)]
    rows += [link("1:1", "1:2", 99_000, at=at(2)), link("1:2", "1:1", 8000, capacity_bps=70)]
    rows += [link("1:3", "1:1", 500), link("1:1", "7:7", 500)]
    said = frame(spark, "links", *rows)
    nodes = (Node("1:1"), Node("1:2"), Node("1:3"))
    expected = (Link(0, 1, 8000, 70), Link(0, 2, 500, 0))
    assert observed.collected_links(observed.links(said), nodes) == expected
    # Minutes say the same.
    assert observed.collected_links(observed.links(minutes.links(said)), nodes)[1] == expected[1]


def test_a_track_has_the_rate_that_its_o_relay_receives(spark: SparkSession) -> None:
    said = frame(
        spark,
        "tracks",
        track("1:1", origin=True, received_bytes=1000, interval_us=1_000_000),
        track("1:1", origin=True, received_bytes=3000, interval_us=3_000_000, at=at(2)),
        # Somebody who published there before, and one who only passes it on.
        track("1:2", origin=True, received_bytes=10),
        track("1:3", received_bytes=99_000),
    )
    wanted = [{"track": -7, "namespace": "a/b", "name": "x", "node": "1:1", "rate_bps": 8000.0}]
    assert as_dicts(observed.tracks(said), *wanted[0]) == wanted
    assert as_dicts(observed.tracks(minutes.tracks(said)), *wanted[0]) == wanted


def test_relays_whose_subscribers_have_gone_do_not_count(spark: SparkSession) -> None:
    said = frame(
        spark,
        "tracks",
        track("1:1", subscribers=2),
        track("1:2", subscribers=5),
        track("1:2", subscribers=0, at=at(2)),
        track("1:3", subscribers=0),
        track("1:3", subscribers=1, at=at(2), egress=["1:4", "1:5"]),
        track("1:3", subscribers=1, at=at(1.5), egress=["1:6"]),
    )
    found = sorted(row["node"] for row in observed.subscriptions(said).collect())
    assert found == ["1:1", "1:3"]
    copies = {(row["node"], row["peer"]) for row in observed.hops(said).collect()}
    assert copies == {("1:3", "1:4"), ("1:3", "1:5")}


def test_only_what_was_seen_lately_counts(spark: SparkSession) -> None:
    said = frame(spark, "node", *(node(f"1:{m}", "", at=at(m)) for m in (1, 5, 16, 20)))
    kept = sorted(row["node"] for row in observed.recent(said).collect())
    assert kept == ["1:16", "1:20"]
    assert observed.recent(said, minutes=60).count() == 4


def test_rules_give_tracks_their_profiles_on_spark_as_in_python(spark: SparkSession) -> None:
    policy = policy_from_mapping(
        {
            "rule": [
                {"tracks": "a/*/x", "class": "gold"},
                {"tracks": "a/[bc]*", "avoid": ["ca"]},
                {"tracks": "d.e/?", "fan_out_per_region": 9},
            ]
        },
        "",
    )
    names = [("a/b", "x"), ("a/b/c", "x"), ("a/b", "y"), ("a/d", "y"), ("d.e", "z"), ("d_e", "z")]
    names += [("za/b", "x"), ("a/b", "x\n"), ("d.e", "zz"), ("a/!", "x")]
    rows = spark.createDataFrame(names, "namespace string, name string")
    for row in observed.with_profile(rows, policy).collect():
        label = f"{row['namespace']}/{row['name']}"
        assert policy.profiles[row["profile"]] == policy.profile_of(label), label


def test_nodes_become_numbers_and_clients_of_stubs_those_of_their_edge(spark: SparkSession) -> None:
    nodes = (Node("1:1"), Node("1:2", "stub"), Node("1:3", "via"))
    places = serving_edges(nodes, (Link(0, 1, 5),))
    rows = spark.createDataFrame([(1, "1:1"), (2, "1:2"), (3, "1:3")], "track long, node string")
    found = observed.numbered(rows, "node", "relay", places)
    assert as_dicts(found, "track", "relay") == [
        {"track": 1, "relay": 0},
        {"track": 2, "relay": 0},
    ]


# -- tables ----------------------------------------------------------------------------------------


def written(root: Path) -> None:
    """Two regions; the track goes from 1:1 to each of 2:2, 2:3 and 2:4, and could go by a Via."""
    tables = {
        "node": records(
            "node",
            node("1:1", "us"),
            node("2:1", "eu", "via"),
            *(node(edge, "eu") for edge in EDGES),
        ),
        "links": records(
            "links",
            link("1:1", "2:1", 80_000),
            *(link("1:1", edge, 80_000) for edge in EDGES),
            *(link("2:1", edge, 8000) for edge in EDGES),
        ),
        "tracks": records(
            "tracks",
            track("1:1", origin=True, received_bytes=1_000_000, egress=list(EDGES)),
            *(track(edge, subscribers=1, received_bytes=1_000_000) for edge in EDGES),
            # Nobody publishes this one, and nobody wants that one.
            track("2:2", track="y", track_hash=8, subscribers=1),
            track("1:1", track="z", track_hash=9, origin=True),
        ),
    }
    for kind, rows in tables.items():
        Table(root, f"raw/{kind}").append_arrow(rows.drop_columns(["_corrupt"]), "a test", 0)


def test_a_plan_is_made_of_what_the_pipeline_has_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path)
    plan = make_plan(problem_of(tmp_path, POLICY, "policy.toml", None))
    (one,) = plan.assignments
    (only,) = plan.problem.tracks
    assert (only.label, only.hash, only.rate_bps) == ("a/b/x", 2**64 - 7, 8_000_000)
    assert (one.region, one.via, one.relays) == ("eu", "2:1", 3)
    # Today is what relays say that they send.
    assert plan.to_mapping()["today_is"] == "as relays report it"
    assert (plan.today.long_haul_copies, plan.planned.long_haul_copies) == (3, 1)
    assert plan.today.p95_delay_us == 40_000
    # Tables made of it, for plans of any size, say the same.
    known = write_tables(tmp_path, tmp_path / "tables", POLICY, "policy.toml", None)
    assert known.nodes == plan.problem.network.nodes
    again = make_plan(problem_of(tmp_path / "tables", POLICY, "policy.toml", None))
    assert again.problem.tracks == plan.problem.tracks
    assert again.assignments == plan.assignments
    # The same demand on another network.
    other = topology_from_mapping(
        {
            "nodes": [{"id": "1:1", "region": "us"}]
            + [{"id": edge, "region": "eu"} for edge in EDGES],
            "links": [{"a": "1:1", "b": edge} for edge in EDGES],
        },
        "net.toml",
    )
    (missing,) = make_plan(problem_of(tmp_path, POLICY, "policy.toml", other)).infeasible
    assert missing.constraint == "fan-out"


def test_tables_that_nobody_has_written_yet_are_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(ConfigError, match=r"raw/tracks"):
        problem_of(tmp_path, POLICY, "policy.toml", None)
