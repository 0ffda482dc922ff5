"""Records of a minute made into one row: of each link, and of each track at each relay.

Amounts are summed together with the time that they are of, so a rate is their quotient, whatever
the relay was doing for the rest of the minute, and however many records came for one second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody who uses Spark calls it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

ORDER: Final = ("at", "group_id", "object_id")
"What says which of two records is the later one; two can have the same time."


def links(records: DataFrame) -> DataFrame:
    """Of `raw/links`: a row for each link, as its relay sees it, and minute."""
    return records.groupBy(minute(F.col("at")).alias("minute"), "node", "peer").agg(
        F.count("*").alias("records"),
        F.sum("interval_us").alias("interval_us"),
        F.min("srtt_us").alias("srtt_us_min"),
        F.percentile_approx("srtt_us", 0.5).alias("srtt_us_p50"),
        F.percentile_approx("srtt_us", 0.95).alias("srtt_us_p95"),
        F.max("srtt_us").alias("srtt_us_max"),
        F.avg("loss").alias("loss"),
        F.max("loss").alias("loss_max"),
        F.sum("sent_bytes").alias("sent_bytes"),
        F.sum("received_bytes").alias("received_bytes"),
        F.max("queue_bytes").alias("queue_bytes_max"),
        last("capacity_bps").alias("capacity_bps"),
    )


def tracks(records: DataFrame) -> DataFrame:
    """Of `raw/tracks`: a row for each track at each relay, and minute.

    A relay in the middle knows the hash of a track and not its name, which is empty then.
    """
    rows = records.groupBy(minute(F.col("at")).alias("minute"), "node", "track_hash").agg(
        F.max(F.struct("namespace", "track")).alias("name"),
        F.count("*").alias("records"),
        F.sum("interval_us").alias("interval_us"),
        F.max("origin").alias("origin"),
        last("subscribers").alias("subscribers"),
        F.max("subscribers").alias("subscribers_max"),
        last("egress").alias("egress"),
        F.max(F.size("egress")).alias("egress_max"),
        F.sum("received_bytes").alias("received_bytes"),
        F.sum("sent_bytes").alias("sent_bytes"),
    )
    keys = ("minute", "node", "track_hash")
    figures = [name for name in rows.columns if name not in (*keys, "name")]
    return rows.select("minute", "node", "name.namespace", "name.track", "track_hash", *figures)


MINUTES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {"links": links, "tracks": tracks}
"What is made of each kind that has minutes."


def minute(at: Column) -> Column:
    """The minute that a time is in, whatever time zone Spark is in."""
    seconds = F.unix_seconds(at)
    return F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(60)))


def last(column: str) -> Column:
    """The value of the latest record."""
    return F.max_by(column, F.struct(*ORDER))


def rate(amount: str, interval_us: str = "interval_us") -> Column:
    """Bits per second, of bytes and the time that they took; null without a time."""
    return F.try_divide(F.col(amount) * 8e6, F.col(interval_us).cast("double"))
