"""The columns of the table, and the schemas that are not its own."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from laps.errors import ConfigError
from laps.spark.source.columns import column_names, decoded_fields, schema_of
from laps.spark.source.options import PayloadFormat

OBJECT = (
    "namespace array<string>, track string, group_id bigint, subgroup_id bigint, object_id bigint, "
    "priority int, status string, extensions map<bigint,binary>, payload binary, "
    "received_at timestamp, relay string"
)
BYTES = t.StructField("payload", t.BinaryType())
HEAD = [
    t.StructField("namespace", t.ArrayType(t.StringType())),
    t.StructField("track", t.StringType()),
    t.StructField("group_id", t.LongType()),
    t.StructField("subgroup_id", t.LongType()),
    t.StructField("object_id", t.LongType()),
    t.StructField("priority", t.IntegerType()),
    t.StructField("status", t.StringType()),
    t.StructField("extensions", t.MapType(t.LongType(), t.BinaryType())),
]
TAIL = [t.StructField("received_at", t.TimestampType()), t.StructField("relay", t.StringType())]
CORRUPT = t.StructField("_corrupt", t.BinaryType())
DOUBLE = t.StructField("celsius", t.DoubleType())


def test_raw_payloads_are_bytes() -> None:
    assert schema_of(PayloadFormat.RAW, None) == OBJECT
    assert decoded_fields(t.StructType([*HEAD, BYTES, *TAIL]), PayloadFormat.RAW, None) == []


def test_texts_are_strings_or_corrupt() -> None:
    expected = OBJECT.replace("payload binary", "payload string") + ", _corrupt binary"
    assert schema_of(PayloadFormat.TEXT, None) == expected
    text = t.StructField("payload", t.StringType())
    schema = t.StructType([*HEAD, text, *TAIL, CORRUPT])
    assert decoded_fields(schema, PayloadFormat.TEXT, None) == []


def test_decoded_columns_come_behind_and_corrupt_last() -> None:
    written = schema_of(PayloadFormat.JSON, "celsius double")
    expected = OBJECT.replace("payload binary, ", "") + ", celsius double, _corrupt binary"
    assert written == expected
    schema = t.StructType([*HEAD, *TAIL, DOUBLE, CORRUPT])
    assert decoded_fields(schema, PayloadFormat.JSON, "celsius double") == [DOUBLE]


def test_a_decoded_column_wins_over_one_of_the_same_name() -> None:
    ddl = "Track string, payload bigint"
    written = schema_of(PayloadFormat.ARROW, ddl)
    assert written.startswith("namespace array<string>, group_id bigint, ")
    assert written.endswith("relay string, Track string, payload bigint, _corrupt binary")
    own = [t.StructField("Track", t.StringType()), t.StructField("payload", t.LongType())]
    schema = t.StructType([HEAD[0], *HEAD[2:], *TAIL, *own, CORRUPT])
    assert decoded_fields(schema, PayloadFormat.ARROW, ddl) == own


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("a int", ["a"]),
        (" a int , b array<struct<x: int, y: string>>,c map<string,int>", ["a", "b", "c"]),
        ("a: int, b decimal(10,2) NOT NULL, c string COMMENT 'one, two'", ["a", "b", "c"]),
        ("`a, b` int, `c``d` int", ["a, b", "c`d"]),
        ("", []),
    ],
)
def test_the_names_in_a_schema(ddl: str, names: list[str]) -> None:
    assert list(column_names(ddl)) == names


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a int, A string", "has two columns a"),
        ("a int, _corrupt binary", "a column _corrupt is there without it"),
    ],
)
def test_columns_that_cannot_be(ddl: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        schema_of(PayloadFormat.JSON, ddl)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (PayloadFormat.RAW, [DOUBLE]),
        (PayloadFormat.RAW, [*HEAD, BYTES, *TAIL, DOUBLE]),
        (PayloadFormat.RAW, [*HEAD, t.StructField("payload", t.StringType()), *TAIL]),
        (PayloadFormat.TEXT, [*HEAD, BYTES, *TAIL, CORRUPT]),
        (PayloadFormat.JSON, [DOUBLE]),
        (PayloadFormat.JSON, [*HEAD, *TAIL, DOUBLE]),
    ],
)
def test_a_schema_of_somebody_else_is_refused(
    form: PayloadFormat, fields: list[t.StructField]
) -> None:
    ddl = "celsius double" if form.has_schema else None
    with pytest.raises(ConfigError, match=r"schema\(…\) is not for this source"):
        decoded_fields(t.StructType(fields), form, ddl)


def test_a_column_that_may_not_be_null_is_refused() -> None:
    never = t.StructField("celsius", t.DoubleType(), nullable=False)
    schema = t.StructType([*HEAD, *TAIL, never, CORRUPT])
    with pytest.raises(ConfigError, match="celsius is NOT NULL"):
        decoded_fields(schema, PayloadFormat.JSON, "celsius double NOT NULL")
