"""LAPS on Spark: `laps.spark.session()` starts it, with a Java of its own where there is none."""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError("laps.spark needs PySpark: pip install 'laps[spark]'", name="pyspark")

from laps.spark.data_source import LapsDataSource
from laps.spark.driver import session
from laps.spark.errors import DataLost
from laps.spark.java import JavaNotFound

__all__ = ["DataLost", "JavaNotFound", "LapsDataSource", "session"]
