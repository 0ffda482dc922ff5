"""The columns of a track as a table: what every object has, and what its payload is decoded to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.errors import ConfigError, quote
from laps.spark.source.options import PayloadFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructField, StructType

OBJECT: Final = {
    "namespace": "array<string>",
    "track": "string",
    "group_id": "bigint",
    "subgroup_id": "bigint",
    "object_id": "bigint",
    "priority": "int",
    "status": "string",
    "extensions": "map<bigint,binary>",
    "payload": "binary",
    "received_at": "timestamp",
    "relay": "string",
}
"What every object has."

PAYLOAD: Final = "payload"
CORRUPT: Final = "_corrupt"
"Holds payloads that did not decode."


def schema_of(form: PayloadFormat, payload_schema: str | None) -> str:
    """The schema of the table, as Spark writes one."""
    columns = dict(OBJECT)
    if form is PayloadFormat.RAW:
        return _written(columns)
    if form is PayloadFormat.TEXT:
        columns[PAYLOAD] = "string"
        return f"{_written(columns)}, {CORRUPT} binary"
    decoded = payload_schema or ""
    for name in (PAYLOAD, *_own_names(decoded)):
        columns.pop(name.lower(), None)
    return f"{_written(columns)}, {decoded}, {CORRUPT} binary"


def decoded_fields(
    schema: StructType, form: PayloadFormat, payload_schema: str | None
) -> list[StructField]:
    """The columns of a table's schema that payloads are decoded to.

    ConfigError for a schema that is not the one of `schema_of`: somebody has given another.
    """
    names = list(OBJECT)
    if form.has_schema:
        own = {name.lower() for name in _own_names(payload_schema or "")}
        names = [name for name in names if name != PAYLOAD and name not in own]
    behind = [] if form is PayloadFormat.RAW else [CORRUPT]
    decoded = schema.fields[len(names) : len(schema.fields) - len(behind)]
    ahead = [field.name for field in schema.fields if field not in decoded]
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    expected = {**OBJECT, CORRUPT: "binary"}
    if form is PayloadFormat.TEXT:
        expected[PAYLOAD] = "string"
    if (
        ahead != [*names, *behind]
        or (decoded and not form.has_schema)
        or any(types[name] != expected[name] for name in ahead)
    ):
        raise ConfigError(
            ".schema(…) is not for this source, whose columns are given: leave it out, and say "
            'what json or arrow payloads hold with .option("payload_schema", "celsius double")'
        )
    for field in decoded:
        if not field.nullable:
            raise ConfigError(
                f"option payload_schema: {field.name} is NOT NULL, and a payload that does not "
                "decode has no value for it: leave that out"
            )
    return decoded


def _written(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _own_names(ddl: str) -> list[str]:
    names = list(column_names(ddl))
    folded = [name.lower() for name in names]
    for name in folded:
        if folded.count(name) > 1:
            raise ConfigError(f"option payload_schema {quote(ddl)} has two columns {name}")
        if name == CORRUPT:
            raise ConfigError(
                f"option payload_schema {quote(ddl)}: a column {CORRUPT} is there without it"
            )
    return names


def column_names(ddl: str) -> Iterator[str]:
    """The names of the columns in a schema as Spark writes one; Spark itself reads the rest."""
    for column in _columns(ddl):
        text = column.strip()
        if text.startswith("`"):
            closing = text.replace("``", "  ").find("`", 1)
            yield text[1:closing].replace("``", "`")
        elif text:
            yield text.replace(":", " ", 1).split(None, 1)[0]


def _columns(ddl: str) -> Iterator[str]:
    """What stands between the commas that part columns."""
    depth, start, quoted = 0, 0, ""
    for index, char in enumerate(ddl):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"`":
            quoted = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            yield ddl[start:index]
            start = index + 1
    yield ddl[start:]
