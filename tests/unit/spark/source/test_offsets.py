"""Offsets as they are written down."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import ConfigError
from laps.spark.source.offsets import (
    Position,
    fetch_end,
    from_json,
    parse_offsets,
    parse_track_key,
    to_json,
    track_key,
)
from laps.types import Location, TrackName

parts = st.binary(min_size=1, max_size=12)
names = st.builds(
    TrackName, st.lists(parts, min_size=1, max_size=4).map(tuple), st.binary(max_size=12)
)
positions = st.builds(
    Position,
    st.builds(Location, st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 62) - 1)),
    st.integers(0, 1 << 60),
)


def test_a_track_is_written_as_people_write_it() -> None:
    track = TrackName((b"plant", b"sensors", b"7"), "Außen temperatur".encode())
    assert track_key(track) == "plant/sensors/7 Außen temperatur"


def test_what_would_be_ambiguous_is_escaped() -> None:
    track = TrackName((b"a/b c", b"100%", b"\xff\n"), b"d/e 5%")
    assert track_key(track) == "a%2Fb%20c/100%25/%FF%0A d/e 5%25"


@given(names)
def test_a_track_is_read_as_it_was_written(track: TrackName) -> None:
    key = track_key(track)
    assert key.isprintable()
    assert parse_track_key(json.loads(json.dumps(key))) == track


@given(names, names)
def test_no_two_tracks_are_written_alike(one: TrackName, other: TrackName) -> None:
    assert (track_key(one) == track_key(other)) == (one == other)


@given(st.dictionaries(names, positions, max_size=4))
def test_offsets_survive_spark_and_are_always_the_same_text(
    offsets: dict[TrackName, Position],
) -> None:
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text


def test_who_writes_an_offset_leaves_the_count_out() -> None:
    track = TrackName((b"plant", b"7"), b"celsius")
    assert parse_offsets("startingOffsets", '{"plant/7 celsius": [12, 3]}', "latest") == {
        track: Position(Location(12, 3), 0)
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("newest", "is neither earliest, latest nor JSON"),
        ("[1, 2]", "is no JSON object"),
        ('{"plant/7 celsius": 12}', "is 12, not a group and an object"),
        ('{"plant/7 celsius": [1]}', "not a group and an object"),
        ('{"plant/7 celsius": [1, -1]}', "not a group and an object"),
        ('{"plant/7 celsius": [1, true]}', "not a group and an object"),
        ('{"plant/7 celsius": [1, 2.5]}', "not a group and an object"),
        (f'{{"plant/7 celsius": [{1 << 62}, 0]}}', "not a group and an object"),
        ('{"plant/7": [1, 2]}', "has no space"),
        ('{"plant//7 celsius": [1, 2]}', "has an empty part"),
    ],
)
def test_offsets_that_are_none_are_refused_with_the_option(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_offsets("startingOffsets", text, "earliest, latest")
    assert "option startingOffsets" in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("end", "asked"),
    [((3, 4), (3, 4)), ((3, 0), (2, 0)), ((1, 0), (0, 0)), ((0, 0), None)],
)
def test_the_end_of_a_range_never_takes_a_group_too_much(
    end: tuple[int, int], asked: tuple[int, int] | None
) -> None:
    assert fetch_end(Location(*end)) == asked
