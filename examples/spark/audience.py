"""Who reads what, and where: audience analytics on the tables of a running network.

    laps pipeline --relay moqt://127.0.0.1:33435 --to laps-tables     # telemetry becomes tables
    python examples/spark/audience.py --tables laps-tables            # any time, also meanwhile

For who programs the channels: the audience of every track by region, how it went over time, and how
many copies the network made for it. Cells are marked as notebooks mark them.
"""

# %% What there is to choose
import argparse
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import laps.spark
from laps.errors import LapsError
from laps.spark.pipeline import network as networks
from laps.spark.pipeline import views

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tables", default="laps-tables", help="where `laps pipeline` writes")
parser.add_argument("--hours", type=float, default=1.0, help="how far back to look")
args = parser.parse_args()

# %% The network as its tables have it
spark = laps.spark.session()
until = datetime.now(UTC)
try:
    network = networks.load(spark, args.tables, until - timedelta(hours=args.hours), until)
except LapsError as error:
    raise SystemExit(f"audience: {error}") from None
track = F.concat_ws(" ", "namespace", "track").alias("track")
own = ~F.col("namespace").startswith("laps")  # what relays say of themselves is nobody's programme

# %% The audience of each track by region, now and at its peak
audience = views.audience(network.track_minutes, network.regions, network.as_of).where(own)
audience.select(track, "region", "subscribers", "peak", "relays").orderBy(
    F.desc("peak"), "track", "region"
).show(20, truncate=False)

# %% How it went, minute by minute
minutes = network.track_minutes.where(own).groupBy("minute", track)
over_time = minutes.agg(
    F.sum("subscribers_max").alias("subscribers"),
    F.sum(F.size("egress")).alias("copies between relays"),
)
over_time.orderBy("minute", "track").show(100, truncate=False)

# %% What an audience costs: copies between relays for each hundred subscribers, the dearest first
tracks = views.tracks(network.track_minutes, network.as_of).where(own & (F.col("peak") > 0))
cost = F.round(100 * F.col("copies_peak") / F.col("peak"), 1)
tracks.select(
    track,
    F.round(F.col("rate_bps") / 1e6, 3).alias("Mbit/s"),
    "peak",
    "copies_peak",
    cost.alias("copies per 100"),
).orderBy(F.desc("copies per 100"), "track").show(20, truncate=False)

network.forget()
spark.stop()
