"""What a person says to the sink, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from laps.errors import ConfigError, InvalidText
from laps.spark.sink import LapsStreamWriter, LapsWriter
from laps.spark.sink.options import columns_of, sink_options
from laps.spark.source.options import PayloadFormat, Trust

RELAY = {"relay": "moqt://127.0.0.1:33435"}
WHERE = RELAY | {"namespace": "plant", "track": "celsius"}


def schema(text: str) -> StructType:
    """A schema in few words: `payload binary, key long`."""
    kinds: dict[str, Any] = {
        "map": {"type": "map", "keyType": "long", "valueType": "binary", "valueContainsNull": True},
        "strings": {"type": "array", "elementType": "string", "containsNull": True},
        "numbers": {"type": "array", "elementType": "long", "containsNull": True},
    }
    fields = []
    for field in text.split(", "):
        name, kind = field.split()
        fields.append(
            {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}}
        )
    return StructType.fromJson({"type": "struct", "fields": fields})


def test_the_options_are_read() -> None:
    options = sink_options(
        {
            "Relay": "moqt://a:1, https://b:2/moq",
            "namespace": "/plant/7/",
            "TRACK": "celsius",
            "group_by": "hour, site",
            "group_objects": "50",
            "payload_format": "json",
            "priority": "7",
            "checkpoint": "s3://bucket/sink",
            "batch_id": "12",
            "end_track": "true",
            "fingerprint": "ab",
        },
        streaming=False,
    )
    assert options.relays == ("moqt://a:1", "https://b:2/moq")
    assert options.trust == Trust(fingerprint="ab")
    assert (options.namespace, options.track) == ("plant/7", "celsius")
    assert (options.group_by, options.group_objects) == (("hour", "site"), 50)
    assert (options.payload_format, options.priority) == (PayloadFormat.JSON, 7)
    assert (options.checkpoint, options.batch_id) == ("s3://bucket/sink", 12)
    assert options.end_track


def test_a_stream_writes_below_the_checkpoint_of_its_query() -> None:
    said = WHERE | {"checkpointlocation": "hdfs://cluster/q/", "queryname": "averages"}
    assert sink_options(said, streaming=True).checkpoint == "hdfs://cluster/q/laps-sink"
    said |= {"checkpoint": "elsewhere"}
    assert sink_options(said, streaming=True).checkpoint == str(Path.cwd() / "elsewhere")


@pytest.mark.parametrize(
    ("said", "streaming", "problem"),
    [
        ({}, False, "option relay is missing"),
        ({"relay": "quicr://a:1"}, False, "quicr://a:1 speaks QUICR"),
        ({"relay": "ftp://a"}, False, 'scheme "ftp" is not known'),
        (WHERE | {"trak": "x"}, False, '"trak" is not known: did you mean track'),
        (WHERE | {"group_objects": "0"}, False, "group_objects .* whole number from 1"),
        (WHERE | {"priority": "256"}, False, "priority .* from 0 to 255"),
        (WHERE | {"payload_format": "xml"}, False, "one of raw, text, json, arrow"),
        (WHERE | {"batch_id": "3"}, False, "batch_id needs option checkpoint"),
        (WHERE | {"end_track": "maybe"}, False, "end_track .* true, false"),
        (WHERE, True, "nowhere to write down .*checkpointLocation"),
        (WHERE | {"checkpoint": "x", "end_track": "true"}, True, "end_track is for df.write"),
        (WHERE | {"checkpoint": "x", "batch_id": "1"}, True, "batch_id is for df.write"),
        (WHERE | {"checkpointlocation": "x"}, False, '"checkpointlocation" is not known'),
    ],
)
def test_a_wrong_option_is_named_with_the_way_out(
    said: dict[str, str], streaming: bool, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        sink_options(said, streaming=streaming)


def test_columns_have_their_parts() -> None:
    options = sink_options(RELAY | {"group_by": "hour"}, streaming=False)
    found = columns_of(
        options,
        schema("Payload string, namespace strings, track string, priority integer, hour long"),
    )
    assert (found.payload, found.namespace, found.track) == ("Payload", "namespace", "track")
    assert (found.priority, found.extensions, found.group_by) == ("priority", None, ("hour",))
    assert found.published == ()


def test_json_publishes_all_columns_but_those_with_a_part() -> None:
    options = sink_options(WHERE | {"payload_format": "json", "group_by": "hour"}, streaming=False)
    found = columns_of(options, schema("hour long, track string, celsius double, extensions map"))
    assert found.published == ("hour", "celsius")


@pytest.mark.parametrize(
    ("said", "columns", "problem"),
    [
        (WHERE, "celsius double", "column payload, and there is none among celsius"),
        (WHERE, "payload long", "payload is bigint, .* publishes binary or a string"),
        (
            WHERE | {"payload_format": "text"},
            "payload binary",
            "payload is binary, and payload_format text publishes a string",
        ),
        (RELAY | {"namespace": "a"}, "payload binary", 'option\\("track", .* or a column track'),
        (RELAY | {"track": "t"}, "payload binary", 'option\\("namespace", .* a column namespace'),
        (WHERE, "payload binary, namespace long", "namespace is bigint, .* array of strings"),
        (WHERE, "payload binary, namespace numbers", "namespace is array<bigint>"),
        (WHERE, "payload binary, track long", "track is bigint, and has to be a string"),
        (WHERE, "payload binary, priority string", "priority is string, .* a whole number"),
        (
            WHERE,
            "payload binary, extensions binary",
            "extensions is binary, .* map<bigint, binary>",
        ),
        (WHERE | {"group_by": "hour"}, "payload binary", '"hour", which is no column: payload'),
        (WHERE | {"payload_format": "json"}, "track string", "and there is none"),
        (WHERE, "payload binary, PAYLOAD binary", 'two columns are called "PAYLOAD"'),
        (WHERE | {"namespace": "a//b"}, "payload binary", "has an empty part"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    said: dict[str, str], columns: str, problem: str
) -> None:
    options = sink_options(said, streaming=False)
    with pytest.raises((ConfigError, InvalidText), match=problem):
        columns_of(options, schema(columns))


def test_a_track_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigError, match=r'write with mode\("append"\)'):
        LapsWriter(WHERE, schema("payload binary"), overwrite=True)
    said = WHERE | {"checkpointLocation": "x"}
    LapsStreamWriter(said, schema("payload binary"), overwrite=True)  # the mode complete
