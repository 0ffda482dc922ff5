"""What a whole network looks like: of records and minutes of all relays, a few tables to look at.

Each function takes frames and returns one, and reads nothing. `as_of` is the time that "now" means:
what is said of now is what was said in its last two minutes, so a relay that has fallen silent, and
a track that has ended, are not part of it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from laps.spark.pipeline.minutes import ORDER, last, minute, rate
from laps.spark.pipeline.tables import timestamp
from laps.spark.pipeline.watermarks import MINUTE, minute_of

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

FLAPPING: Final = 3
"A path that changes so often within `FLAPPING_S` goes to and fro; a repair changes it twice."

FLAPPING_S: Final = 300

SILENT: Final = timedelta(minutes=1)
"A relay speaks every second: one that has said nothing for so long is gone, or cut off."

_TRACK: Final = "track_hash"
"What a track is known by everywhere; its name only where it is published or read."


def regions(node: DataFrame) -> DataFrame:
    """Of `raw/node`: in which region each relay was, from when until when.

    It is there from the minute in which it first says so, and what is older than its first record
    is taken to be of the same region.
    """
    in_order = Window.partitionBy("node").orderBy(*ORDER)
    before = F.lag("region").over(in_order)
    changes = (
        node.withColumn("before", before)
        .where(F.col("before").isNull() | (F.col("before") != F.col("region")))
        .withColumn("first", F.col("before").isNull())
    )
    since = F.when(F.col("first"), F.timestamp_seconds(F.lit(0))).otherwise(minute(F.col("at")))
    return changes.withColumn("since", since).select(
        "node", "region", "since", F.lead("since").over(in_order).alias("until")
    )


def located(
    rows: DataFrame,
    regions: DataFrame,
    time: str = "minute",
    node: str = "node",
    region: str = "region",
) -> DataFrame:
    """The rows, each with the region that its relay was in at its time; null if that is unknown."""
    places = regions.select(
        F.col("node").alias("_node"),
        F.col("region").alias(region),
        F.col("since").alias("_since"),
        F.col("until").alias("_until"),
    )
    there = (
        (F.col(node) == F.col("_node"))
        & (F.col(time) >= F.col("_since"))
        & (F.col("_until").isNull() | (F.col(time) < F.col("_until")))
    )
    return rows.join(places, there, "left").drop("_node", "_since", "_until")


# -- links -----------------------------------------------------------------------------------------


def links(records: DataFrame, regions: DataFrame, as_of: datetime) -> DataFrame:
    """Of `raw/links`: a row for each link and direction, with its latest and its usual figures.

    A direction that only the receiving end speaks of has the figures of that end: round trip and
    capacity are the same, what it received was sent, and what is lost or waits is not known.
    """
    own = _link_figures(records).withColumn("_own", F.lit(True))
    turned = records.select(
        "at",
        "group_id",
        "object_id",
        F.col("peer").alias("node"),
        F.col("node").alias("peer"),
        "interval_us",
        "srtt_us",
        F.lit(None).cast("double").alias("loss"),
        F.col("received_bytes").alias("sent_bytes"),
        F.lit(None).cast("bigint").alias("queue_bytes"),
        "capacity_bps",
    )
    other = _link_figures(turned)
    names = [name for name in other.columns if name not in ("node", "peer")]
    other = other.select(
        "node", "peer", *(F.col(name).alias(f"_{name}") for name in names)
    ).withColumn("_other", F.lit(True))
    seen_from = (
        F.when(F.col("_other").isNull(), "node").when(F.col("_own").isNull(), "peer")
    ).otherwise("both")
    figures = [F.when(F.col("_own"), F.col(n)).otherwise(F.col(f"_{n}")).alias(n) for n in names]
    both = own.join(other, ["node", "peer"], "full").select(
        "node", "peer", seen_from.alias("seen_from"), *figures
    )
    placed = located(both, regions, time="at")
    placed = located(placed, regions, time="at", node="peer", region="peer_region")
    return placed.withColumn("now", F.col("at") >= timestamp(_two_minutes(as_of)))


def _link_figures(records: DataFrame) -> DataFrame:
    bps = rate("sent_bytes")
    used = F.when(F.col("capacity_bps") > 0, bps / F.col("capacity_bps"))
    rows = records.withColumns({"sent_bps": bps, "utilisation": used})
    return rows.groupBy("node", "peer").agg(
        F.count("*").alias("records"),
        F.max("at").alias("at"),
        *_usual("srtt_us"),
        last("loss").alias("loss"),
        F.avg("loss").alias("loss_avg"),
        F.percentile_approx("loss", 0.95).alias("loss_p95"),
        *_usual("sent_bps"),
        *_usual("utilisation"),
        last("queue_bytes").alias("queue_bytes"),
        last("capacity_bps").alias("capacity_bps"),
    )


def _usual(column: str) -> list[Column]:
    return [
        last(column).alias(column),
        F.percentile_approx(column, 0.5).alias(f"{column}_p50"),
        F.percentile_approx(column, 0.95).alias(f"{column}_p95"),
    ]


def delay(minutes: DataFrame, step: int = 1) -> DataFrame:
    """Of `minute/links`: the round trips of all links, for every `step` minutes."""
    start = minute(F.col("minute"))
    if step > 1:
        start = F.timestamp_seconds(
            F.unix_seconds("minute") - F.pmod(F.unix_seconds("minute"), F.lit(60 * step))
        )
    return minutes.groupBy(start.alias("minute")).agg(
        F.count_distinct("node", "peer").alias("links"),
        F.percentile_approx("srtt_us_p50", 0.5).alias("srtt_us_p50"),
        F.percentile_approx("srtt_us_p95", 0.95).alias("srtt_us_p95"),
        F.max("srtt_us_max").alias("srtt_us_max"),
        F.avg("loss").alias("loss"),
    )


# -- tracks ----------------------------------------------------------------------------------------


def named(rows: DataFrame, minutes: DataFrame) -> DataFrame:
    """The rows with the names of their tracks, as any relay knows them; empty where none does."""
    names = minutes.groupBy(_TRACK).agg(F.max(F.struct("namespace", "track")).alias("_name"))
    others = [name for name in rows.columns if name != _TRACK]
    return rows.join(names, _TRACK).select("_name.namespace", "_name.track", _TRACK, *others)


def audience(minutes: DataFrame, regions: DataFrame, as_of: datetime) -> DataFrame:
    """Of `minute/tracks`: the subscribers of each track in each region, now and at most."""
    return named(_audience(minutes, regions, as_of, (_TRACK, "region")), minutes)


def audience_of_regions(minutes: DataFrame, regions: DataFrame, as_of: datetime) -> DataFrame:
    """Of `minute/tracks`: the subscriptions in each region, now and at most, of how many tracks."""
    return _audience(minutes, regions, as_of, ("region",))


def _audience(
    minutes: DataFrame, regions: DataFrame, as_of: datetime, of: tuple[str, ...]
) -> DataFrame:
    rows = located(minutes, regions)
    read = F.col("subscribers") > 0
    now = _now(rows, as_of).where(read)
    now = now.groupBy(*of).agg(
        F.sum("subscribers").alias("subscribers"),
        F.count_distinct("node").alias("relays"),
        F.count_distinct(_TRACK).alias("tracks"),
    )
    each = rows.groupBy("minute", *of).agg(F.sum("subscribers_max").alias("subscribers"))
    peak = each.groupBy(*of).agg(F.max("subscribers").alias("peak")).where("peak > 0")
    # Regions can be null, and null is one of them.
    same = [F.col(f"now.{name}").eqNullSafe(F.col(f"peak.{name}")) for name in of]
    joined = peak.alias("peak").join(now.alias("now"), same, "left")
    amounts = [
        F.coalesce(F.col(f"now.{name}"), F.lit(0)).alias(name)
        for name in ("subscribers", "relays", "tracks")
    ]
    kept = amounts if of == ("region",) else amounts[:2]
    return joined.select(*(F.col(f"peak.{name}") for name in of), "peak", *kept)


def tracks(minutes: DataFrame, as_of: datetime) -> DataFrame:
    """Of `minute/tracks`: each track with its rate, its audience and its copies between relays.

    The rate is what its publisher sends, while it does: at the o-relay, and where that says
    nothing, at the relay that receives most.
    """
    at_relay = minutes.groupBy(_TRACK, "node").agg(
        F.max("origin").alias("origin"),
        F.sum("received_bytes").alias("received_bytes"),
        F.sum("interval_us").alias("interval_us"),
    )
    best = F.struct(F.col("origin").cast("int"), rate("received_bytes").alias("bps"))
    overall = at_relay.groupBy(_TRACK).agg(
        F.max(best).getField("bps").alias("rate_bps"),
        F.sort_array(F.collect_set(F.when(F.col("origin"), F.col("node")))).alias("origins"),
    )
    each = minutes.groupBy("minute", _TRACK).agg(
        F.sum("subscribers_max").alias("subscribers"), F.sum("egress_max").alias("copies")
    )
    peaks = each.groupBy(_TRACK).agg(
        F.max("subscribers").alias("peak"), F.max("copies").alias("copies_peak")
    )
    now = (
        _now(minutes, as_of)
        .groupBy(_TRACK)
        .agg(
            F.sum("subscribers").alias("subscribers"),
            F.sum(F.size("egress")).alias("copies"),
            F.max(F.size("egress")).alias("fan_out"),
            F.count_distinct("node").alias("relays"),
        )
    )
    joined = overall.join(peaks, _TRACK).join(now, _TRACK, "left")
    return named(joined.fillna(0, ["subscribers", "copies", "fan_out", "relays"]), minutes)


def copies(minutes: DataFrame, regions: DataFrame, as_of: datetime) -> DataFrame:
    """Of `minute/tracks`: how many tracks' copies each link carries, and what they amount to."""
    rows = minutes.withColumn("bps", rate("received_bytes"))
    each = rows.select("minute", "node", _TRACK, F.explode("egress").alias("peer"))
    each = each.distinct().groupBy("minute", "node", "peer").agg(F.count("*").alias("tracks"))
    peak = each.groupBy("node", "peer").agg(F.max("tracks").alias("tracks_peak"))
    now = _now(rows, as_of).select("node", _TRACK, "bps", F.explode("egress").alias("peer"))
    now = now.groupBy("node", "peer").agg(
        F.count_distinct(_TRACK).alias("tracks"), F.sum("bps").alias("copies_bps")
    )
    joined = peak.join(now, ["node", "peer"], "left").fillna(0, ["tracks", "copies_bps"])
    placed = located(joined.withColumn("minute", timestamp(as_of)), regions)
    return located(placed, regions, node="peer", region="peer_region").drop("minute")


def fan_out(minutes: DataFrame, as_of: datetime) -> DataFrame:
    """Of `minute/tracks`: how many tracks are sent on in how many copies, now, by relays.

    `at_origin` counts tracks at their o-relays, `at_relays` at all relays that carry them.
    """
    return (
        _now(minutes, as_of)
        .groupBy(F.size("egress").alias("copies"))
        .agg(F.count_if("origin").alias("at_origin"), F.count("*").alias("at_relays"))
    )


def _now(minutes: DataFrame, as_of: datetime) -> DataFrame:
    """Of each track at each relay the last row, if it is of now."""
    recent = minutes.where(F.col("minute") >= timestamp(_two_minutes(as_of)))
    newest_first = Window.partitionBy("node", _TRACK).orderBy(F.col("minute").desc())
    return (
        recent.withColumn("_rank", F.row_number().over(newest_first))
        .where("_rank = 1")
        .drop("_rank")
    )


# -- relays and events -----------------------------------------------------------------------------


def relays(node: DataFrame, events: DataFrame, as_of: datetime) -> DataFrame:
    """Of `raw/node` and `raw/events`: each relay, how busy it is and how it has been."""
    bps = rate("sent_bytes")
    used = F.when(F.col("capacity_bps") > 0, bps / F.col("capacity_bps"))
    rows = node.withColumns({"sent_bps": bps, "utilisation": used})
    figures = rows.groupBy("node").agg(
        F.count("*").alias("records"),
        F.max("at").alias("at"),
        *(last(name).alias(name) for name in ("role", "region", "version")),
        *_usual("load"),
        *_usual("sent_bps"),
        *_usual("utilisation"),
        last("memory_bytes").alias("memory_bytes"),
        F.max("memory_bytes").alias("memory_bytes_max"),
        *(last(name).alias(name) for name in ("clients", "peers", "tracks", "cache_bytes")),
        F.sum("dropped").alias("dropped"),
    )
    starts = events.where("event = 'started'").groupBy("node").agg(F.count("*").alias("starts"))
    silent = F.col("at") < timestamp(as_of - SILENT)
    return figures.join(starts, "node", "left").fillna(0, ["starts"]).withColumn("silent", silent)


def path_changes(events: DataFrame) -> DataFrame:
    """Of `raw/events`: the paths that changed, how often, and which of them go to and fro."""
    changes = events.where("event = 'path_changed'")
    recent = (
        Window.partitionBy("node", "subject")
        .orderBy(F.unix_micros("at"))
        .rangeBetween(-FLAPPING_S * 1_000_000, 0)
    )
    counted = changes.withColumn("recent", F.count("*").over(recent))
    return (
        counted.groupBy("node", "subject")
        .agg(
            F.count("*").alias("changes"),
            F.max("at").alias("at"),
            last("detail").alias("detail"),
            last("reason").alias("reason"),
            F.max("recent").alias("most_at_once"),
        )
        .withColumn("flapping", F.col("most_at_once") >= FLAPPING)
    )


def _two_minutes(as_of: datetime) -> datetime:
    """Where the last two minutes begin: the one that `as_of` is in may have just begun."""
    return minute_of(as_of) - MINUTE
