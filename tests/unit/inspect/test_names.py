"""Which track, or which nodes, words stand for."""

from __future__ import annotations

import pytest

from laps.errors import ConfigError
from laps.inspect.names import by_number, is_nodes, node_text, track_of
from laps.types import TrackName, hash_track


def hashed(*namespace: bytes, name: bytes) -> str:
    return f"{hash_track(TrackName(namespace, name)).full_name_hash:016x}"


def test_a_namespace_and_a_name_are_a_track_as_two_words_or_one() -> None:
    wanted = hashed(b"demo", b"rooms", name=b"video")
    assert track_of(["demo/rooms", "video"]).hash == wanted
    assert track_of(["demo/rooms video"]).hash == wanted
    assert str(track_of(["demo/rooms", "video"])) == "demo/rooms video"


def test_sixteen_digits_are_a_hash() -> None:
    assert track_of(["00ABcdef00112233"]).hash == "00abcdef00112233"
    assert track_of(["00abcdef00112233"]).key == 0xABCDEF00112233


def test_bytes_that_are_no_text_are_read_as_relays_write_them() -> None:
    assert track_of([r"quicr/\xff\x00", r"a\x80"]).hash == hashed(
        b"quicr", b"\xff\0", name=b"a\x80"
    )


@pytest.mark.parametrize("words", [["demo"], ["a", "b", "c"], [""]])
def test_what_is_no_track_is_said_with_the_way_out(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="name"):
        track_of(words)


def test_two_node_ids_are_two_nodes() -> None:
    assert is_nodes(["1:1", "1.2:34"])
    assert not is_nodes(["1:1"])
    assert not is_nodes(["1:1", "video"])
    assert node_text("0.1:0001") == "1:1"
    with pytest.raises(ConfigError):
        node_text("1")


def test_nodes_are_ordered_by_number() -> None:
    assert by_number(["1:10", "1:9", "1:9"]) == ("1:9", "1:10")
