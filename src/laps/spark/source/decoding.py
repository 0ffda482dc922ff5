"""Payloads as columns, in Arrow: what decodes, and what does not.

A payload that does not decode spoils no other. It makes one row with null in every column that it
was to be decoded to, and stands in `_corrupt` as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from laps.spark.source.json_values import converter, struct
from laps.spark.source.options import PayloadFormat

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


@dataclass(slots=True)
class Decoded:
    """What became of some payloads."""

    columns: list[pa.Array]
    "Those that payloads are decoded to."
    corrupt: dict[int, str] = field(default_factory=dict)
    "Payloads that did not decode, by their index, and why."
    rows: list[int] | None = None
    "How many rows each payload makes; None: one."


Decode = Callable[[Sequence[bytes]], Decoded]


def decoder(form: PayloadFormat, fields: Sequence[StructField]) -> Decode:
    """What decodes payloads of a format to columns."""
    match form:
        case PayloadFormat.RAW:
            return lambda payloads: Decoded([pa.array(payloads, pa.binary())])
        case PayloadFormat.TEXT:
            return _text
        case PayloadFormat.JSON:
            return _Json(fields)
        case PayloadFormat.ARROW:
            return _Arrow(fields)


def _text(payloads: Sequence[bytes]) -> Decoded:
    try:
        return Decoded([pa.array(payloads, pa.binary()).cast(pa.string())])
    except pa.ArrowInvalid:
        pass  # one of them is not text
    texts: list[str | None] = []
    corrupt = {}
    for index, payload in enumerate(payloads):
        try:
            texts.append(payload.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            corrupt[index] = str(error)
    return Decoded([pa.array(texts, pa.string())], corrupt)


class _Json:
    """A payload is one object of JSON, and makes a row."""

    def __init__(self, fields: Sequence[StructField]) -> None:
        self._schema = to_arrow_schema(StructType(list(fields)), timezone="UTC")
        self._convert = struct({field.name: converter(field.dataType) for field in fields})

    def __call__(self, payloads: Sequence[bytes]) -> Decoded:
        decode, convert = msgspec.json.decode, self._convert
        rows: list[dict[str, object] | None] = []
        corrupt: dict[int, str] = {}
        for index, payload in enumerate(payloads):
            try:
                rows.append(convert(decode(payload)))
            except (ValueError, RecursionError) as error:
                rows.append(None)
                corrupt[index] = str(error)
        columns = [
            pa.array([None if row is None else row[name] for row in rows], kind)
            for name, kind in zip(self._schema.names, self._schema.types, strict=True)
        ]
        return Decoded(columns, corrupt)


class _Arrow:
    """A payload is an Arrow IPC stream, each row of which makes one."""

    def __init__(self, fields: Sequence[StructField]) -> None:
        self._schema = to_arrow_schema(StructType(list(fields)), timezone="UTC")
        self._nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(1, kind) for kind in self._schema.types], schema=self._schema
        )

    def __call__(self, payloads: Sequence[bytes]) -> Decoded:
        batches: list[pa.RecordBatch] = []
        rows: list[int] = []
        corrupt: dict[int, str] = {}
        for index, payload in enumerate(payloads):
            try:
                found = self._read(payload)
            except (pa.ArrowException, ValueError, OSError) as error:
                corrupt[index] = str(error).partition("\n")[0]
                found = [self._nothing]
            batches += found
            rows.append(sum(batch.num_rows for batch in found))
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
            for column in table.columns
        ]
        return Decoded(columns, corrupt, rows)

    def _read(self, payload: bytes) -> list[pa.RecordBatch]:
        with pa.ipc.open_stream(payload) as reader:
            names = reader.schema.names
            for name in self._schema.names:
                if names.count(name) != 1:
                    raise ValueError(f"{names.count(name)} columns are called {name}")
            return [self._fitted(batch) for batch in reader]

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Lengths and offsets come from somebody else: nothing is read by them unchecked.
        batch.validate(full=True)
        columns = [
            batch.column(name).cast(kind)
            for name, kind in zip(self._schema.names, self._schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
