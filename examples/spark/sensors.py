"""Sensor tracks to a windowed table, and back to a track.

    make lab                                     # or any relay of yours
    python examples/spark/sensors.py             # in a second terminal

For the data engineer: four sensors publish a reading a second, Spark averages ten seconds of them,
writes the averages as a table and publishes them as a track of their own, which anybody can
subscribe to. Cells are marked as notebooks mark them; it runs from top to bottom as it is.
"""

# %% What there is to choose
import argparse
import asyncio
import itertools
import json
import random
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import laps
import laps.spark

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--relay", default="moqt://127.0.0.1:33435", help="where sensors publish")
parser.add_argument("--averages", type=int, default=16, help="ends when so many have come")
parser.add_argument("--to", type=Path, help="where the table goes; a temporary folder by default")
args = parser.parse_args()
place = args.to or Path(tempfile.mkdtemp(prefix="laps-sensors-"))


# %% The sensors: each a track of its own, below plant/sensors
async def sensors(count: int, stop: threading.Event) -> None:
    """Publish a reading a second from every sensor."""
    async with laps.connect(args.relay) as session:
        names = [f"sensor-{number}" for number in range(count)]
        tracks = [await session.publish(f"plant/sensors/{name}", "celsius") for name in names]
        for second in itertools.count():
            if stop.is_set():
                break
            for name, track in zip(names, tracks, strict=True):
                celsius = round(20 + 5 * random.random(), 2)  # noqa: S311 - a reading, no secret
                reading = {"sensor": name, "at": datetime.now(UTC).isoformat(), "celsius": celsius}
                await track.write(json.dumps(reading).encode(), new_group=second % 60 == 0)
            await asyncio.sleep(1)


stopping = threading.Event()
publishing = threading.Thread(target=lambda: asyncio.run(sensors(4, stopping)))
publishing.start()

# %% The tracks as a table: one row for each object, decoded
spark = laps.spark.session()
spark.dataSource.register(laps.spark.LapsDataSource)

readings = (
    spark.readStream.format("laps")
    .option("relay", args.relay)
    .option("namespace", "plant/sensors")
    .option("startingOffsets", "earliest")
    .option("payload_format", "json")
    .option("payload_schema", "sensor string, at timestamp, celsius double")
    .load()
)

# %% Averages over ten seconds; what comes more than five seconds late is left out
averages = (
    readings.where("_corrupt IS NULL")
    .withWatermark("at", "5 seconds")
    .groupBy(F.window("at", "10 seconds"), "sensor")
    .agg(F.round(F.avg("celsius"), 2).alias("celsius"), F.count("*").alias("readings"))
    .select(F.col("window.start").alias("since"), "sensor", "celsius", "readings")
)

# %% To a table on disk, and back to a track: plant/averages celsius
to_table = (
    averages.writeStream.format("parquet")
    .option("path", str(place / "averages"))
    .option("checkpointLocation", str(place / "_table"))
    .start()
)
to_track = (
    averages.writeStream.format("laps")
    .option("relay", args.relay)
    .option("namespace", "plant/averages")
    .option("track", "celsius")
    .option("payload_format", "json")
    .option("group_by", "since")
    .option("checkpointLocation", str(place / "_track"))
    .start()
)


# %% Anybody can follow the averages, live
async def follow(count: int) -> None:
    """Print as many as are asked for, as they come."""
    async with laps.connect(args.relay) as session:
        objects = session.subscribe("plant/averages", "celsius", start="start")
        for _ in range(count):
            waiting = asyncio.ensure_future(anext(objects))
            while not (await asyncio.wait([waiting], timeout=1))[0]:
                for query in (to_table, to_track):
                    if query.exception() is not None:
                        raise SystemExit(str(query.exception()))
            print("track:", waiting.result().payload.decode())  # noqa: T201


try:
    asyncio.run(follow(args.averages))
finally:
    to_table.stop()
    to_track.stop()
    stopping.set()
    publishing.join()

# %% The table holds the same
table = spark.read.parquet(str(place / "averages"))
table.orderBy("since", "sensor").show(100, truncate=False)
print(f"{args.averages} averages came by the track, {table.count()} are in {place}")  # noqa: T201
spark.stop()
