"""Records as Arrow IPC streams: read back by another implementation, value by value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.telemetry.encode import Encoder
from laps.telemetry.records import KINDS, TRACKS, Kind, Type
from support.telemetry import rows_of

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.TIMESTAMP: st.integers(0, 4_000_000_000_000_000),
    Type.STRING: TEXTS,
    Type.STRINGS: st.lists(TEXTS, max_size=4),
    Type.BOOLEAN: st.booleans(),
    Type.INT: st.integers(-(1 << 31), (1 << 31) - 1),
    Type.LONG: LONGS,
    Type.DOUBLE: st.floats(allow_nan=False),
}
ARROW = {
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.STRING: pa.string(),
    Type.STRINGS: pa.list_(pa.field("item", pa.string(), nullable=False)),
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.DOUBLE: pa.float64(),
}

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def as_read(kind: Kind, row: tuple[Any, ...]) -> dict[str, Any]:
    read = {column.name: value for column, value in zip(kind.columns, row, strict=True)}
    read["at"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=read["at"])
    return read


@kinds
@given(data=st.data())
def test_every_value_is_read_back(kind: Kind, data: st.DataObject) -> None:
    row = st.tuples(*(VALUES[column.type] for column in kind.columns))
    rows = data.draw(st.lists(row, max_size=20))
    columns = [[row[number] for row in rows] for number in range(len(kind.columns))]
    assert rows_of(Encoder(kind).encode(columns)) == [as_read(kind, row) for row in rows]


@kinds
def test_the_schema_has_the_columns_of_the_kind_and_no_nulls(kind: Kind) -> None:
    payload = Encoder(kind).encode([[] for _ in kind.columns])
    with pa.ipc.open_stream(payload) as stream:
        wanted = [pa.field(c.name, ARROW[c.type], nullable=False) for c in kind.columns]
        assert stream.schema.equals(pa.schema(wanted))
        assert stream.read_all().num_rows == 0


@kinds
def test_every_stream_of_a_kind_begins_alike(kind: Kind) -> None:
    encoder = Encoder(kind)
    columns: list[list[Any]] = [[] for _ in kind.columns]
    assert encoder.encode(columns) == encoder.head + encoder.tail(columns)
    assert Encoder(kind).head == encoder.head


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 1000])
def test_many_records_are_one_batch(size: int) -> None:
    columns: list[Any] = [
        list(range(size)),
        ["1:1"] * size,
        [f"räume/{number % 7}" for number in range(size)],
        [f"t{number}" for number in range(size)],
        [number - 500 for number in range(size)],
        [1_000_000] * size,
        [number % 3 == 0 for number in range(size)],
        list(range(size)),
        [("1:2", "1:3")[: number % 3] for number in range(size)],
        list(range(size)),
        [2 * number for number in range(size)],
    ]
    with pa.ipc.open_stream(Encoder(TRACKS).encode(columns)) as stream:
        (batch,) = list(stream)
    batch.validate(full=True)
    assert batch.num_rows == size
    assert batch.column("namespace").to_pylist() == columns[2]
    assert batch.column("origin").to_pylist() == columns[6]
    assert batch.column("egress").to_pylist() == [list(egress) for egress in columns[8]]
    assert batch.column("sent_bytes").to_pylist() == columns[10]


def test_what_is_no_text_becomes_a_question_mark() -> None:
    events = KINDS["events"]
    columns: list[list[Any]] = [[0], ["1:1"], ["bad"], ["\ud800ü"], ["x"], [""]]
    (row,) = rows_of(Encoder(events).encode(columns))
    assert (row["subject"], row["detail"]) == ("?ü", "x")
