"""Objects of a track as Arrow record batches."""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from laps.names import bytes_text
from laps.spark.errors import show
from laps.spark.source.columns import CORRUPT, PAYLOAD, decoded_fields
from laps.spark.source.decoding import decoder
from laps.spark.source.offsets import track_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from laps.client import Object
    from laps.spark.source.options import PayloadFormat
    from laps.types import TrackName

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 10_000
"A payload may hold many rows: a record batch has so many at most."


class Rows:
    """Makes rows of objects, in the schema of the table."""

    def __init__(
        self, schema: StructType, form: PayloadFormat, payload_schema: str | None = None
    ) -> None:
        """ConfigError if the schema is not that of the table."""
        fields = decoded_fields(schema, form, payload_schema)
        self.corrupt = 0
        "Payloads that did not decode."
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._decode = decoder(form, fields)
        self._decoded = [field.name for field in fields] or [PAYLOAD]

    def batches(
        self, track: TrackName, objects: Sequence[Object], relay: str, received_at_us: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some objects."""
        payloads = [item.payload for item in objects]
        decoded = self._decode(payloads)
        if decoded.corrupt:
            self._note(track, objects, decoded.corrupt)
        columns = dict(zip(self._decoded, decoded.columns, strict=True))
        same = {
            "namespace": [bytes_text(part) for part in track.namespace],
            "track": bytes_text(track.name),
            "received_at": received_at_us,
            "relay": relay,
        }
        if not any(item.extensions for item in objects):
            same["extensions"] = []
        own = {}
        for name, kind in zip(self._schema.names, self._schema.types, strict=True):
            if name in columns:
                continue
            if name == CORRUPT:
                own[name] = _spoiled(payloads, decoded.corrupt)
            elif name in same:
                own[name] = _same(same[name], len(objects), kind)
            else:
                own[name] = pa.array([*map(_EACH[name], objects)], kind)
        if decoded.rows is not None:
            repeated = pa.array(np.repeat(np.arange(len(objects)), decoded.rows))
            own = {name: column.take(repeated) for name, column in own.items()}
        columns |= own
        whole = pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )
        for offset in range(0, whole.num_rows, BATCH_ROWS):
            yield whole.slice(offset, BATCH_ROWS)

    def _note(self, track: TrackName, objects: Sequence[Object], corrupt: dict[int, str]) -> None:
        before = self.corrupt
        self.corrupt += len(corrupt)
        if before.bit_length() != self.corrupt.bit_length():  # now and then, not for each
            index, why = next(iter(corrupt.items()))
            log.warning(
                "%s: payload of object %s does not decode (%s); the %dth here; they are in %s",
                track_key(track),
                show(objects[index].location),
                why,
                self.corrupt,
                CORRUPT,
            )


def _same(value: object, count: int, kind: pa.DataType) -> pa.Array:
    """A column that has the same value in every row."""
    return pa.array([value], kind).take(pa.array(np.zeros(count, dtype=np.int64)))


def _spoiled(payloads: Sequence[bytes], corrupt: dict[int, str]) -> pa.Array:
    if not corrupt:
        return pa.nulls(len(payloads), pa.binary())
    return pa.array(
        [data if i in corrupt else None for i, data in enumerate(payloads)], pa.binary()
    )


def _extensions(item: Object) -> list[tuple[int, bytes]]:
    """Extension headers, each type once; numbers as eight bytes, the highest first."""
    found: dict[int, bytes] = {}
    for kind, value in item.extensions:
        found.setdefault(kind, value.to_bytes(8) if isinstance(value, int) else value)
    return list(found.items())


_EACH: Final[dict[str, Callable[[Object], Any]]] = {
    "group_id": attrgetter("group"),
    "subgroup_id": attrgetter("subgroup"),
    "object_id": attrgetter("id"),
    "priority": attrgetter("priority"),
    "status": lambda item: item.status.name.lower(),
    "extensions": _extensions,
}
"The columns that each object has of its own."
