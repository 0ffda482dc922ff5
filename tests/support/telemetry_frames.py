"""Telemetry as frames: a test says what matters of a record, the rest is as it usually is."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laps.telemetry.records import KINDS, Type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)

_ARROW = {
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.STRING: pa.string(),
    Type.STRINGS: pa.list_(pa.string()),
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.DOUBLE: pa.float64(),
}
_USUAL: dict[Type, Any] = {
    Type.STRING: "",
    Type.STRINGS: [],
    Type.BOOLEAN: False,
    Type.INT: 0,
    Type.LONG: 0,
    Type.DOUBLE: 0.0,
}


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Plans are not compiled meanwhile: for a few rows that takes longer than to run them."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, str(old))


def at(minutes: float = 0, seconds: float = 0) -> datetime:
    """A time after noon."""
    return NOON + timedelta(minutes=minutes, seconds=seconds)


def schema(kind: str) -> pa.Schema:
    """The columns of a raw table, and the one for what does not decode."""
    columns = [(column.name, _ARROW[column.type]) for column in KINDS[kind].columns]
    identity = [
        ("group_id", pa.int64()),
        ("object_id", pa.int64()),
        ("received_at", _ARROW[Type.TIMESTAMP]),
        ("relay", pa.string()),
    ]
    return pa.schema([*columns, *identity, ("_corrupt", pa.binary())])


def records(kind: str, *rows: dict[str, Any]) -> pa.Table:
    """Records of a kind, in the order they were sent in."""
    usual = {c.name: _USUAL.get(c.type) for c in KINDS[kind].columns}
    usual |= {"interval_us": 1_000_000} if "interval_us" in usual else {}
    filled = [
        usual
        | {"group_id": 0, "object_id": number, "received_at": row.get("at"), "relay": "r"}
        | row
        for number, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(filled, schema=schema(kind))


def frame(spark: SparkSession, kind: str, *rows: dict[str, Any]) -> DataFrame:
    """The same as Spark has it from a raw table."""
    return spark.createDataFrame(records(kind, *rows).drop_columns(["_corrupt"]))


def as_dicts(frame: DataFrame, *columns: str) -> list[dict[str, Any]]:
    """The rows, in order, with the columns that a test is about."""
    rows = (frame.select(*columns) if columns else frame).toArrow().to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])
