"""Columns become payloads: each row a JSON object, or a run of rows an Arrow stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Numbers stay numbers; what JSON has no word for is text, as msgspec writes it.
_json = msgspec.json.Encoder(decimal_format="number")


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, with all times in UTC: who reads it need not know the zone of a Spark session."""
    for at, field in enumerate(batch.schema):
        kind = _utc(field.type)
        if kind != field.type:
            batch = batch.set_column(at, pa.field(field.name, kind), batch.column(at).cast(kind))
    return batch


def _utc(kind: pa.DataType) -> pa.DataType:
    """The type to cast to; itself where there is no time in it."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz in (None, "UTC") else pa.timestamp(kind.unit, "UTC")
    if not pa.types.is_nested(kind):
        return kind
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    made = [_utc(each) for each in inner]
    if made == inner:
        return kind
    if pa.types.is_struct(kind):
        names = [kind.field(at).name for at in range(kind.num_fields)]
        return pa.struct(list(zip(names, made, strict=True)))
    if pa.types.is_map(kind):
        return pa.map_(*made)
    return (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(*made)


def encode_json(batch: pa.RecordBatch) -> list[bytes]:
    """A JSON object for each row, with the columns as its keys.

    Times are RFC 3339, bytes base64, maps objects; a null is a null.
    """
    batch = in_utc(batch)
    rows: list[Any] = batch.to_pylist()
    readable = {f.name: call for f in batch.schema if (call := _readable(f.type)) is not None}
    for name, call in readable.items():
        for row in rows:
            row[name] = call(row[name])
    return [_json.encode(row) for row in rows]


def _readable(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes an object of every map in a value; None if there can be none."""
    if pa.types.is_map(kind):
        inner = _readable(kind.item_type) or _as_it_is
        return lambda pairs: None if pairs is None else {str(k): inner(v) for k, v in pairs}
    if pa.types.is_struct(kind):
        inside = {f.name: call for f in kind if (call := _readable(f.type)) is not None}
        if inside:
            return lambda value: value and value | {n: call(value[n]) for n, call in inside.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _readable(kind.value_type)
        if each is not None:
            return lambda values: values and [each(value) for value in values]
    return None


def _as_it_is(value: Any) -> Any:
    return value


def encode_arrow(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of these rows: schema, one record batch, end."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def encode_arrow_runs(
    batch: pa.RecordBatch, ends: list[int], max_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """Each run of rows, from the end of the one before to its own, as streams that are not larger.

    Yields where each begins, and its bytes: more than `max_bytes` only if it is a single row.
    """
    batch = in_utc(batch.replace_schema_metadata(None))
    start = 0
    for end in ends:
        waiting = [(start, end)]
        while waiting:
            first, last = waiting.pop()
            data = encode_arrow(batch.slice(first, last - first))
            if len(data) > max_bytes and last - first > 1:
                middle = (first + last) // 2
                waiting += [(middle, last), (first, middle)]
            else:
                yield first, data
        start = end
