"""The one Spark session of this process, and what it needs in order to start."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from laps.errors import LapsError
from laps.spark.java import find_java

_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()

_EVERYWHERE = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING}",
    # pyarrow cannot read Spark's lz4; of what it can, zstd is the smallest.
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
}

_ON_THIS_MACHINE = {
    # Neither a web page on a port that may be taken, nor a look at the machine's name and network.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}

_PARTITIONS = "spark.sql.shuffle.partitions"


def session(
    master: str | None = None, *, name: str = "laps", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the session that already runs in this process.

    `master` is where it runs: by default on all cores of this machine, `local[*]`, or, in a program
    that `spark-submit` started, where that one was told to. `settings` are Spark's own; they win
    over the ones chosen here, and count only for the call that starts the session.
    """
    if (running := _running()) is not None:
        where = running.sparkContext.master
        if master not in (None, where):
            problem = f"Spark runs on {where} in this process, not on {master}: stop it first"
            raise LapsError(problem)
        return running

    chosen = dict(_EVERYWHERE)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java already
        master = master or "local[*]"
        os.environ["JAVA_HOME"] = str(find_java())
    local = master is not None and master.startswith("local")
    if local:
        # Workers are this very Python, whatever python3 means on the path.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        chosen |= _ON_THIS_MACHINE
    if master is not None:
        chosen["spark.master"] = master
    chosen |= settings or {}

    with _saying(f"Starting Spark on {master or 'its cluster'}: 5 to 15 s ..."):
        spark = SparkSession.builder.appName(name).config(map=dict(chosen)).getOrCreate()
    if local and _PARTITIONS not in chosen:
        # The default of 200 is for a cluster; here each costs more to start than it carries.
        spark.conf.set(_PARTITIONS, spark.sparkContext.defaultParallelism)
    return spark


def _running() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


@contextmanager
def _saying(text: str) -> Iterator[None]:
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text(text)):
            yield
    else:
        console.print(Text(text), soft_wrap=True)
        yield
