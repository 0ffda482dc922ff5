import pytest

from laps.names import (
    bytes_text,
    hash_text,
    namespace_text,
    read_bytes,
    read_hash,
    read_namespace,
    track_text,
    visible,
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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("live\u202eevil", r"live\xe2\x80\xaeevil"),
        ("a\x1b[2Jb\n", r"a\x1b[2Jb\x0a"),
        ("\u2066x\u2069\u200b\u061c", r"\xe2\x81\xa6x\xe2\x81\xa9\xe2\x80\x8b\xd8\x9c"),
        ("\x85\x7f\ufeff", r"\xc2\x85\x7f\xef\xbb\xbf"),
        ("نور / 日本 👩\u200d🚀", "نور / 日本 👩\u200d🚀"),
    ],
)
def test_names_show_what_would_not_be_seen(name: str, shown: str) -> None:
    assert bytes_text(name.encode()) == visible(name) == shown
    assert read_bytes(shown) == name.encode()
