"""What a person says to the sink by `.option(…)`, and what the columns of a frame are to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
)

from laps.errors import ConfigError, quote
from laps.names import track_of
from laps.spark.source.options import (
    PayloadFormat,
    Trust,
    check_names,
    parse_bool,
    parse_payload_format,
    parse_relays,
    parse_trust,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructField, StructType

MIB: Final = 1024 * 1024

WRITING: Final = (
    "relay",
    "namespace",
    "track",
    "group_by",
    "group_objects",
    "payload_format",
    "arrow_rows",
    "max_object_bytes",
    "priority",
    "checkpoint",
    "wait_s",
    "linger_s",
    "history_bytes",
    "insecure",
    "fingerprint",
    "token",
    "tokenFile",
)
ONLY_BATCH: Final = ("batch_id", "end_track")
OF_SPARK: Final = ("checkpointLocation", "queryName")
"What Spark's own options of a stream are called: it hands them over with the others."

FOLDER: Final = "laps-sink"
"Where the sink writes, below Spark's own checkpoint."


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that was said to the sink."""

    relays: tuple[str, ...]
    trust: Trust = field(default_factory=Trust)
    namespace: str | None = None
    track: str | None = None
    group_by: tuple[str, ...] = ()
    group_objects: int = 10_000
    "A group has no more objects than this: who joins begins with one."
    payload_format: PayloadFormat = PayloadFormat.RAW
    arrow_rows: int = 1024
    max_object_bytes: int = 16 * MIB
    "As much as subscribers that speak QUICR can take."
    priority: int = 128
    checkpoint: str | None = None
    batch_id: int | None = None
    end_track: bool = False
    wait_s: float = 30.0
    linger_s: float = 60.0
    history_bytes: int = MIB


def sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read and check the options of a stream, or of one write."""
    said = {name.lower(): text for name, text in options.items()}
    _check_names(said, streaming)
    checkpoint = said.get("checkpoint", "").strip() or None
    if streaming and checkpoint is None:
        checkpoint = _below_checkpoint(said)
    if checkpoint is not None and ":" not in checkpoint:
        checkpoint = str(Path(checkpoint).absolute())  # executors may be elsewhere
    batch_id = _whole(said, "batch_id", 0, least=0) if "batch_id" in said else None
    if batch_id is not None and checkpoint is None:
        raise ConfigError(
            "option batch_id needs option checkpoint, a folder of its own where the sink writes "
            "down which batches it has published"
        )
    defaults = SinkOptions(())
    return SinkOptions(
        relays=parse_relays(require(said, "relay", "moqt://127.0.0.1:33435")),
        trust=parse_trust(said),
        namespace=said.get("namespace", "").strip("/ ") or None,
        track=said.get("track") or None,
        group_by=tuple(c.strip() for c in said.get("group_by", "").split(",") if c.strip()),
        group_objects=_whole(said, "group_objects", defaults.group_objects),
        payload_format=parse_payload_format(said),
        arrow_rows=_whole(said, "arrow_rows", defaults.arrow_rows),
        max_object_bytes=_whole(said, "max_object_bytes", defaults.max_object_bytes),
        priority=_whole(said, "priority", defaults.priority, least=0, most=255),
        checkpoint=checkpoint,
        batch_id=batch_id,
        end_track=parse_bool("end_track", said.get("end_track", "false")),
        wait_s=_whole(said, "wait_s", int(defaults.wait_s), least=0),
        linger_s=_whole(said, "linger_s", int(defaults.linger_s), least=0),
        history_bytes=_whole(said, "history_bytes", defaults.history_bytes, least=0),
    )


def _check_names(said: Mapping[str, str], streaming: bool) -> None:
    if not streaming:
        check_names(said, (*WRITING, *ONLY_BATCH))
        return
    if "end_track" in said:
        raise ConfigError(
            "option end_track is for df.write: a stream that stops may go on later, and its "
            "tracks with it"
        )
    if "batch_id" in said:
        raise ConfigError("option batch_id is for df.write in foreachBatch: a stream has its own")
    check_names(said, (*WRITING, *OF_SPARK))


def _below_checkpoint(said: Mapping[str, str]) -> str:
    spark = said.get("checkpointlocation", "").strip()
    if not spark:
        raise ConfigError(
            "the sink has nowhere to write down what it has published: give the query "
            '.option("checkpointLocation", "…"), or the sink a folder of its own by '
            '.option("checkpoint", "…")'
        )
    return f"{spark.rstrip('/')}/{FOLDER}"


def _whole(
    said: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int | None = None
) -> int:
    text = said.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        upto = "" if most is None else f" to {most}"
        raise ConfigError(f"option {name} {quote(text)} is not a whole number from {least}{upto}")
    return number


# -- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a frame are what; None, or none, where it has no such column."""

    payload: str | None
    "Its bytes are the object; None where objects are made of the columns `published`."
    published: tuple[str, ...]
    namespace: str | None
    track: str | None
    priority: str | None
    extensions: str | None
    group_by: tuple[str, ...]


_WHOLE_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)


def columns_of(options: SinkOptions, schema: StructType) -> Columns:
    """Find the columns, or say what is wrong with them."""
    fields: dict[str, StructField] = {}
    for column in schema.fields:
        if column.name.lower() in fields:
            raise ConfigError(f"two columns are called {quote(column.name)}: rename one of them")
        fields[column.name.lower()] = column

    special = {
        name: _special(fields, name) for name in ("namespace", "track", "priority", "extensions")
    }
    payload = None
    published: tuple[str, ...] = ()
    if options.payload_format.has_schema:
        published = tuple(f.name for f in schema.fields if f.name not in special.values())
        if not published:
            raise ConfigError(
                f"payload_format {options.payload_format} publishes the columns besides "
                "namespace, track, priority and extensions, and there is none"
            )
    else:
        payload = _payload(fields, options.payload_format)
    for name in ("namespace", "track"):
        if special[name] is None and getattr(options, name) is None:
            example = {"namespace": "plant/averages", "track": "celsius"}[name]
            raise ConfigError(
                f'where to publish is not said: give .option("{name}", "{example}"), '
                f"or a column {name}"
            )
    if options.namespace is not None and options.track is not None:
        track_of(options.namespace, options.track)  # so that a wrong one is found at once
    return Columns(
        payload=payload,
        published=published,
        group_by=tuple(_group_column(fields, name) for name in options.group_by),
        **special,
    )


def _special(fields: Mapping[str, StructField], name: str) -> str | None:
    found = fields.get(name)
    if found is None:
        return None
    problem = {
        "namespace": None if _is_namespace(found.dataType) else "a string or an array of strings",
        "track": None if isinstance(found.dataType, StringType) else "a string",
        "priority": None if isinstance(found.dataType, _WHOLE_NUMBERS) else "a whole number",
        "extensions": None if _is_extensions(found.dataType) else "a map<bigint, binary>",
    }[name]
    if problem is not None:
        kind = found.dataType.simpleString()
        raise ConfigError(
            f"column {found.name} is {kind}, and has to be {problem}: cast it, or rename it if "
            "it is something else"
        )
    return found.name


def _is_namespace(kind: DataType) -> bool:
    is_array = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    return is_array or isinstance(kind, StringType)


def _is_extensions(kind: DataType) -> bool:
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, _WHOLE_NUMBERS)
        and isinstance(kind.valueType, BinaryType)
    )


def _payload(fields: Mapping[str, StructField], form: PayloadFormat) -> str:
    found = fields.get("payload")
    if found is None:
        there = ", ".join(f.name for f in fields.values()) or "none"
        raise ConfigError(
            f"payload_format {form} publishes the column payload, and there is none among "
            f"{there}: name one so, or publish all columns with payload_format json or arrow"
        )
    kinds = (StringType,) if form is PayloadFormat.TEXT else (BinaryType, StringType)
    if not isinstance(found.dataType, kinds):
        kind = found.dataType.simpleString()
        wanted = "a string" if form is PayloadFormat.TEXT else "binary or a string"
        raise ConfigError(
            f"column {found.name} is {kind}, and payload_format {form} publishes {wanted}: "
            "cast it, or choose another payload_format"
        )
    return found.name


def _group_column(fields: Mapping[str, StructField], name: str) -> str:
    found = fields.get(name.lower())
    if found is None:
        there = ", ".join(f.name for f in fields.values()) or "none"
        raise ConfigError(f"option group_by names {quote(name)}, which is no column: {there}")
    return found.name
