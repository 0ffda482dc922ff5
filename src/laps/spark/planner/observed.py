"""The network and its demand as relays report them: telemetry made into a planner's tables.

Functions from frames to frames, for any number of rows. They take the columns of
`laps.telemetry.records`, record by record (`at`) or minute by minute (`minute`), and read nothing.
Nodes are still text here; `numbered` turns them into the numbers that a plan has.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody who uses Spark calls it

from laps.spark.planner.network import Link, Node
from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from laps.policy import Policy

WINDOW_MINUTES: Final = 15
"What is seen in so long before the latest record is what is planned for."


def recent(records: DataFrame, minutes: int = WINDOW_MINUTES) -> DataFrame:
    """The rows of the last minutes that there are rows of."""
    time = _time(records)
    newest = records.agg(F.max(time).alias("_newest"))
    within = F.col(time) > F.col("_newest") - F.expr(f"INTERVAL {minutes} MINUTES")
    return records.crossJoin(F.broadcast(newest)).where(within).drop("_newest")


def nodes(records: DataFrame) -> DataFrame:
    """Of `node`: each relay as it last described itself, in the columns of `nodes`."""
    columns = ("role", "region", "latitude", "longitude", "capacity_bps")
    latest = F.max_by(F.struct(*columns), F.col(_time(records))).alias("latest")
    rows = records.groupBy("node").agg(latest)
    return rows.select("node", *(F.col(f"latest.{name}").alias(name) for name in columns))


def links(records: DataFrame) -> DataFrame:
    """Of `links`: each link once, whichever end speaks of it: node, peer, srtt_us, capacity_bps.

    The round trip is the usual one, of the end that sees the shorter; the capacity the lower one of
    those that are known.
    """
    srtt = "srtt_us" if "srtt_us" in records.columns else "srtt_us_p50"
    ends = records.groupBy("node", "peer").agg(
        F.percentile_approx(srtt, 0.5).alias("srtt_us"),
        F.max_by("capacity_bps", F.col(_time(records))).alias("capacity_bps"),
    )
    known = F.when(F.col("capacity_bps") > 0, F.col("capacity_bps"))
    return (
        ends.select(
            F.least("node", "peer").alias("node"),
            F.greatest("node", "peer").alias("peer"),
            "srtt_us",
            known.alias("capacity_bps"),
        )
        .where("node <> peer")
        .groupBy("node", "peer")
        .agg(
            F.min("srtt_us").alias("srtt_us"),
            F.coalesce(F.min("capacity_bps"), F.lit(0)).alias("capacity_bps"),
        )
    )


def tracks(records: DataFrame) -> DataFrame:
    """Of `tracks`: each track that somebody publishes: track, namespace, name, node, rate_bps.

    `node` is the o-relay; where several say that they are, the one that received most.
    """
    of_origin = records.where("origin").groupBy("track_hash", "namespace", "track", "node")
    sums = of_origin.agg(
        F.sum("received_bytes").alias("received_bytes"), F.sum("interval_us").alias("interval_us")
    )
    first = Window.partitionBy("track_hash").orderBy(F.desc("received_bytes"), "node")
    rate = F.try_divide(F.col("received_bytes") * 8e6, F.col("interval_us").cast("double"))
    return (
        sums.withColumn("_place", F.row_number().over(first))
        .where("_place = 1")
        .select(
            F.col("track_hash").alias("track"),
            "namespace",
            F.col("track").alias("name"),
            "node",
            F.coalesce(rate, F.lit(0.0)).alias("rate_bps"),
        )
    )


def subscriptions(records: DataFrame) -> DataFrame:
    """Of `tracks`: the relays that have subscribers of a track, as they last said: track, node."""
    return (
        records.groupBy("track_hash", "node")
        .agg(F.max_by("subscribers", F.col(_time(records))).alias("subscribers"))
        .where("subscribers > 0")
        .select(F.col("track_hash").alias("track"), "node")
    )


def hops(records: DataFrame) -> DataFrame:
    """Of `tracks`: the copies that relays send each other, as they last said: track, node, peer."""
    latest = F.max_by("egress", F.col(_time(records))).alias("egress")
    rows = records.groupBy("track_hash", "node").agg(latest)
    return rows.select(
        F.col("track_hash").alias("track"), "node", F.explode("egress").alias("peer")
    ).distinct()


# -- as a plan has them ----------------------------------------------------------------------------


def collected_nodes(nodes: DataFrame) -> tuple[Node, ...]:
    """The nodes in the order of their ids."""
    rows = [
        Node(
            row["node"],
            row["role"],
            row["region"],
            row["latitude"],
            row["longitude"],
            row["capacity_bps"],
        )
        for row in nodes.collect()
    ]
    return tuple(sorted(rows, key=lambda node: parse_node_id(node.id)))


def collected_links(links: DataFrame, nodes: Sequence[Node]) -> tuple[Link, ...]:
    """The links between nodes that are known, in the order of their numbers."""
    number = {node.id: index for index, node in enumerate(nodes)}
    rows = [
        Link(number[row["node"]], number[row["peer"]], row["srtt_us"], row["capacity_bps"])
        for row in links.collect()
        if row["node"] in number and row["peer"] in number
    ]
    return tuple(sorted(rows, key=lambda link: (link.a, link.b)))


def numbered(rows: DataFrame, column: str, name: str, number: Mapping[str, int]) -> DataFrame:
    """The rows with the number of a node in place of its id; those of other nodes are left out.

    Give `demand.serving_edges` for the nodes that clients come to.
    """
    spark = rows.sparkSession
    places = spark.createDataFrame(list(number.items()), f"`{column}` string, `{name}` int")
    return rows.join(F.broadcast(places), column).drop(column)


def with_profile(tracks: DataFrame, policy: Policy) -> DataFrame:
    """Tracks with the number of the profile that the policy's rules give them."""
    number = {profile: index for index, profile in enumerate(policy.profiles)}
    label = F.concat_ws("/", "namespace", "name")
    chosen: Column = F.lit(number[policy.profile_under(None)])
    for rule in reversed(policy.rules):
        profile = policy.profile_under(rule)
        chosen = F.when(label.rlike(_regex(rule.tracks)), number[profile]).otherwise(chosen)
    return tracks.withColumn("profile", chosen.cast("tinyint"))


def _regex(pattern: str) -> str:
    """A pattern as Java reads it: all of the text, with line ends like any other character."""
    return "^" + fnmatch.translate(pattern).replace(r"\Z", r"\z")


def _time(records: DataFrame) -> str:
    return "at" if "at" in records.columns else "minute"
