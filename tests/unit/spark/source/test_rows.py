"""Objects as rows, and payloads as columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from laps.client import Object
from laps.errors import ConfigError
from laps.spark.source.columns import OBJECT
from laps.spark.source.decoding import decoder
from laps.spark.source.json_values import converter
from laps.spark.source.options import PayloadFormat
from laps.spark.source.rows import Rows
from laps.types import TrackName

TRACK = TrackName((b"plant", b"7"), b"celsius")
TYPES = {
    "array<string>": t.ArrayType(t.StringType()),
    "string": t.StringType(),
    "bigint": t.LongType(),
    "int": t.IntegerType(),
    "map<bigint,binary>": t.MapType(t.LongType(), t.BinaryType()),
    "binary": t.BinaryType(),
    "timestamp": t.TimestampType(),
}


def schema(form: PayloadFormat, *decoded: t.StructField) -> t.StructType:
    fields = [t.StructField(name, TYPES[kind]) for name, kind in OBJECT.items()]
    if form is PayloadFormat.TEXT:
        fields = [
            t.StructField("payload", t.StringType()) if f.name == "payload" else f for f in fields
        ]
    if form.has_schema:
        fields = [field for field in fields if field.name != "payload"]
    behind = [] if form is PayloadFormat.RAW else [t.StructField("_corrupt", t.BinaryType())]
    return t.StructType([*fields, *decoded, *behind])


def field(name: str, kind: t.DataType) -> t.StructField:
    return t.StructField(name, kind)


def rows_of(
    form: PayloadFormat, objects: list[Object], *decoded: t.StructField
) -> list[dict[str, Any]]:
    ddl = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in decoded) or None
    rows = Rows(schema(form, *decoded), form, ddl)
    return [
        row
        for batch in rows.batches(TRACK, objects, "moqt://r", 1_000_000)
        for row in batch.to_pylist()
    ]


def test_an_object_is_a_row() -> None:
    extensions = ((2, 7), (3, b"odd"), (2, 9))
    whole = Object(4, 5, b"21.5", 1, extensions, priority=9)
    datagram = Object(4, 6, b"", None)
    assert rows_of(PayloadFormat.RAW, [whole, datagram]) == [
        {
            "namespace": ["plant", "7"],
            "track": "celsius",
            "group_id": 4,
            "subgroup_id": 1,
            "object_id": 5,
            "priority": 9,
            "status": "normal",
            "extensions": [(2, (7).to_bytes(8)), (3, b"odd")],
            "payload": b"21.5",
            "received_at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "relay": "moqt://r",
        },
        {
            "namespace": ["plant", "7"],
            "track": "celsius",
            "group_id": 4,
            "subgroup_id": None,
            "object_id": 6,
            "priority": None,
            "status": "normal",
            "extensions": [],
            "payload": b"",
            "received_at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "relay": "moqt://r",
        },
    ]


def test_names_that_are_not_text_are_shown_all_the_same() -> None:
    rows = Rows(schema(PayloadFormat.RAW), PayloadFormat.RAW)
    track = TrackName((b"\xff",), b"a\xfeb")
    (batch,) = rows.batches(track, [Object(0, 0, b"")], "", 0)
    assert batch.to_pylist()[0]["namespace"] == ["\\xff"]
    assert batch.to_pylist()[0]["track"] == "a\\xfeb"


def payloads(*data: bytes) -> list[Object]:
    return [Object(0, number, payload) for number, payload in enumerate(data)]


def test_what_is_not_text_is_corrupt_and_spoils_nothing_else() -> None:
    rows = rows_of(PayloadFormat.TEXT, payloads("grün".encode(), b"\xff", b""))
    assert [(row["payload"], row["_corrupt"]) for row in rows] == [
        ("grün", None),
        (None, b"\xff"),
        ("", None),
    ]
    assert [row["object_id"] for row in rows] == [0, 1, 2]


def test_json_becomes_columns() -> None:
    data = payloads(
        b'{"celsius": 21.5, "at": "2026-01-02T03:04:05Z", "extra": 1}',
        b'{"celsius": null}',
        b'{"celsius": "warm"}',
        b"[1]",
        b'{"celsius"',
        b"",
    )
    rows = rows_of(
        PayloadFormat.JSON, data, field("celsius", t.DoubleType()), field("at", t.TimestampType())
    )
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [(row["celsius"], row["at"], row["_corrupt"]) for row in rows] == [
        (21.5, at, None),
        (None, None, None),
        (None, None, b'{"celsius": "warm"}'),
        (None, None, b"[1]"),
        (None, None, b'{"celsius"'),
        (None, None, b""),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (t.StringType(), '"x"', "x"),
        (t.StringType(), "[1, true]", "[1,true]"),
        (t.BooleanType(), "true", True),
        (t.ByteType(), "-128", -128),
        (t.ShortType(), "32767", 32767),
        (t.IntegerType(), "1", 1),
        (t.LongType(), "9223372036854775807", 2**63 - 1),
        (t.FloatType(), "0.5", 0.5),
        (t.DoubleType(), "3", 3.0),
        (t.DoubleType(), '"-Infinity"', float("-inf")),
        (t.DecimalType(5, 2), "123.45", Decimal("123.45")),
        (t.DecimalType(5, 2), '"1"', Decimal("1.00")),
        (t.BinaryType(), '"AQI="', b"\x01\x02"),
        (t.DateType(), '"2026-01-02"', date(2026, 1, 2)),
        (t.TimestampType(), "1.5", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (t.TimestampType(), '"1970-01-01T02:00:00+02:00"', datetime(1970, 1, 1, tzinfo=UTC)),
        (t.TimestampNTZType(), '"1970-01-01T02:00:00"', datetime(1970, 1, 1, 2)),  # noqa: DTZ001
        (t.ArrayType(t.LongType()), "[1, null]", [1, None]),
        (t.MapType(t.StringType(), t.LongType()), '{"a": 1}', [("a", 1)]),
        (t.StructType([field("x", t.LongType())]), '{"x": 1, "y": 2}', {"x": 1}),
    ],
    ids=str,
)
def test_values_of_json(kind: t.DataType, text: str, value: object) -> None:
    decoded = decoder(PayloadFormat.JSON, [field("v", kind)])([b'{"v": %s}' % text.encode()])
    assert decoded.corrupt == {}
    assert decoded.columns[0].to_pylist() == [value]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (t.BooleanType(), "1"),
        (t.ByteType(), "128"),
        (t.IntegerType(), "1.0"),
        (t.IntegerType(), "true"),
        (t.LongType(), "9223372036854775808"),
        (t.LongType(), '"1"'),
        (t.DoubleType(), '"x"'),
        (t.DoubleType(), "true"),
        (t.DecimalType(5, 2), "1234.5"),
        (t.DecimalType(5, 2), '"x"'),
        (t.BinaryType(), '"?"'),
        (t.DateType(), '"tomorrow"'),
        (t.TimestampType(), '"now"'),
        (t.TimestampType(), "1e300"),
        (t.TimestampNTZType(), '"1970-01-01T02:00:00Z"'),
        (t.ArrayType(t.LongType()), "1"),
        (t.ArrayType(t.LongType()), '["a"]'),
        (t.MapType(t.StringType(), t.LongType()), "[]"),
        (t.StructType([field("x", t.LongType())]), '{"x": "a"}'),
    ],
    ids=str,
)
def test_values_that_do_not_fit(kind: t.DataType, text: str) -> None:
    decoded = decoder(PayloadFormat.JSON, [field("v", kind)])([b'{"v": %s}' % text.encode()])
    assert list(decoded.corrupt) == [0]
    assert "v: " in decoded.corrupt[0]
    assert decoded.columns[0].to_pylist() == [None]


def test_a_type_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="json has no map<int,int>"):
        converter(t.MapType(t.IntegerType(), t.IntegerType()))


@given(st.binary(max_size=64))
def test_no_bytes_break_the_decoding_of_json(data: bytes) -> None:
    decoded = decoder(PayloadFormat.JSON, [field("v", t.LongType())])([data, b'{"v": 1}'])
    assert decoded.columns[0].to_pylist()[1] == 1


def ipc(**columns: pa.Array) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_each_row_of_arrow_is_a_row() -> None:
    data = payloads(
        ipc(celsius=pa.array([1, 2], pa.int32()), extra=pa.array(["a", "b"])),
        ipc(celsius=pa.array([], pa.float64())),
        b"nothing",
        ipc(celsius=pa.array([3.5])),
    )
    rows = rows_of(PayloadFormat.ARROW, data, field("celsius", t.DoubleType()))
    assert [(row["object_id"], row["celsius"], row["_corrupt"]) for row in rows] == [
        (0, 1.0, None),
        (0, 2.0, None),
        (2, None, b"nothing"),
        (3, 3.5, None),
    ]


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (ipc(fahrenheit=pa.array([1.0])), "0 columns are called celsius"),
        (ipc(celsius=pa.array(["warm"])), "warm"),
        (ipc(celsius=pa.array([2**40])), "1099511627776"),
        (b"", ""),
    ],
)
def test_arrow_that_does_not_fit_is_corrupt(payload: bytes, problem: str) -> None:
    decoded = decoder(PayloadFormat.ARROW, [field("celsius", t.IntegerType())])([payload])
    assert problem in decoded.corrupt[0]
    assert decoded.rows == [1]


@given(st.data())
def test_no_bytes_break_the_decoding_of_arrow(data: st.DataObject) -> None:
    good = ipc(v=pa.array(["a", "bb", None]))
    spoiled = bytearray(good)
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=8)):
        spoiled[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    decode = decoder(PayloadFormat.ARROW, [field("v", t.StringType())])
    decoded = decode([bytes(spoiled), good[:cut], good])
    assert decoded.rows is not None
    assert decoded.rows[2] == 3
    assert decoded.columns[0].to_pylist()[-3:] == ["a", "bb", None]


def test_a_payload_of_many_rows_is_cut_into_batches() -> None:
    rows = Rows(
        schema(PayloadFormat.ARROW, field("v", t.LongType())), PayloadFormat.ARROW, "v bigint"
    )
    data = payloads(ipc(v=pa.array(range(25_000))))
    sizes = [batch.num_rows for batch in rows.batches(TRACK, data, "r", 0)]
    assert sizes == [10_000, 10_000, 5_000]


def test_corrupt_payloads_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows(
        schema(PayloadFormat.JSON, field("v", t.LongType())), PayloadFormat.JSON, "v bigint"
    )
    for _ in range(3):
        list(rows.batches(TRACK, payloads(b"x", json.dumps({"v": 1}).encode()), "r", 0))
    assert rows.corrupt == 3
    assert "plant/7 celsius: payload of object (0, 0) does not decode" in caplog.text
    assert len(caplog.records) == 2
