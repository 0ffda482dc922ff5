import pytest

from laps.names import (
    bytes_text,
    hash_text,
    namespace_text,
    read_bytes,
    read_hash,
    read_namespace,
    track_text,
)
from laps.types import TrackName


@pytest.mark.parametrize("data", [b"", b"video", "café".encode(), b"\xff\x00a", b"a\x80/b c"])
def test_names_are_read_back_from_their_text(data: bytes) -> None:
    assert read_bytes(bytes_text(data)) == data


@pytest.mark.parametrize("namespace", [(), (b"a",), (b"a", b"b\xff"), (b"a", b"", b"c")])
def test_names_of_namespaces_are_read_back_from_their_text(namespace: tuple[bytes, ...]) -> None:
    assert read_namespace(namespace_text(namespace)) == namespace


def test_names_take_escapes_in_either_case() -> None:
    assert read_bytes(r"\xFF\xfe \x4") == b"\xff\xfe \\x4"


def test_names_of_tracks_have_a_space_before_the_name() -> None:
    assert track_text(TrackName((b"demo", b"a"), b"\xff")) == r"demo/a \xff"


def test_names_hashes_have_sixteen_digits() -> None:
    assert read_hash(hash_text(255)) == 255
    assert read_hash(hash_text(255)[1:]) is None
