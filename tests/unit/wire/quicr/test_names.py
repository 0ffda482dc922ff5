"""Names and the tracks they stand for, one or many."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.names import BINARY_NAMESPACE
from laps.types import TrackName
from laps.wire.quicr.names import (
    MAX_NAME_BYTES,
    MAX_PARTS,
    NameRefused,
    Pattern,
    decode_name,
    encode_name,
    is_binary,
)

BINARY = bytes(range(0xF0, 0x100))
HEX = b"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"


def track(*parts: bytes) -> TrackName:
    return TrackName(parts[:-1], parts[-1])


def binary(name: bytes) -> TrackName:
    return TrackName((b"quicr",), name.hex().encode())


# -- one track -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (b"demo/clock/seconds", (b"demo", b"clock", b"seconds")),
        (b"a/b", (b"a", b"b")),
        (b"demo/clock/secon", (b"demo", b"clock", b"secon")),  # 16 bytes, with slashes
        (b"democlocksecon/x", (b"democlocksecon", b"x")),
        ("démo/heure".encode(), ("démo".encode(), b"heure")),
        ("日本語/ok".encode(), ("日本語".encode(), b"ok")),
        ("日本/日本/é".encode(), ("日本".encode(), "日本".encode(), "é".encode())),  # 16 bytes
        (b"with space/and, comma", (b"with space", b"and, comma")),
        (b"quicr/video", (b"quicr", b"video")),
        (b"quicr/" + HEX.upper(), (b"quicr", HEX.upper())),
        (b"quicr/x/" + HEX, (b"quicr", b"x", HEX)),
    ],
)
def test_text_is_the_parts_of_a_track(name: bytes, parts: tuple[bytes, ...]) -> None:
    assert not is_binary(name)
    assert decode_name(name) == track(*parts)
    assert encode_name(track(*parts)) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(BINARY, id="binary"),
        pytest.param(bytes(16), id="zeros"),
        pytest.param(b"conference-rooms", id="text without a slash"),
        pytest.param("日本語日本".encode() + b"x", id="other text without a slash"),
        pytest.param(b"demo/clock/sec\0n", id="a control character"),
        pytest.param(b"demo/clock/sec\nn", id="a new line"),
        pytest.param(b"demo/clock/sec\x7fn", id="a deleted character"),
        pytest.param(b"demo/clock/sec\xffn", id="no UTF-8"),
        pytest.param(b"demo/clock/secn\xc3", id="UTF-8 that is cut off"),
        pytest.param(b"/" + b"\xff" * 15, id="a slash and no text"),
    ],
)
def test_sixteen_bytes_are_a_number_unless_they_are_text_with_slashes(name: bytes) -> None:
    assert len(name) == 16
    assert is_binary(name)
    assert decode_name(name) == binary(name)
    assert encode_name(binary(name)) == name


def test_the_track_of_a_binary_name_is_its_hex_digits() -> None:
    assert decode_name(BINARY) == TrackName((b"quicr",), HEX)
    assert BINARY_NAMESPACE == (b"quicr",)
    # It can be written out as well, and has one name all the same.
    assert decode_name(b"quicr/" + HEX) == TrackName((b"quicr",), HEX)
    assert encode_name(TrackName((b"quicr",), HEX)) == BINARY


def test_hex_digits_of_what_is_no_binary_name_are_text() -> None:
    # These 16 bytes are the name of another track.
    text = TrackName((b"quicr",), b"demo/clock/secon".hex().encode())
    assert encode_name(text) == b"quicr/" + text.name
    assert decode_name(encode_name(text)) == text
    assert decode_name(b"demo/clock/secon") != text


@pytest.mark.parametrize(
    "name",
    [
        HEX.upper(),
        HEX[:-1] + b"F",
        HEX[:-2],
        HEX + b"00",
        HEX[:-1] + b"g",
        HEX[:-2] + b"  ",
        b" " + HEX[:-2] + b" ",
        "é".encode() * 16,
    ],
)
def test_other_tracks_in_the_namespace_of_binary_names_are_text(name: bytes) -> None:
    other = TrackName((b"quicr",), name)
    assert encode_name(other) == b"quicr/" + name
    assert decode_name(encode_name(other)) == other


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(b"/", "empty", id="a slash"),
        pytest.param(b"demo", "at least one slash", id="one part"),
        pytest.param(b"fifteen-bytes-x", "at least one slash", id="15 bytes"),
        pytest.param(b"seventeen-bytes-x", "at least one slash", id="17 bytes"),
        pytest.param(b"/demo", "empty", id="no first part"),
        pytest.param(b"demo/", "empty", id="no last part"),
        pytest.param(b"demo//clock", "empty", id="no part in the middle"),
        pytest.param(b"/demo/clock/seco", "empty", id="16 bytes, no first part"),
        pytest.param(b"demo/clock/seco/", "empty", id="16 bytes, no last part"),
        pytest.param(b"demo//clock/seco", "empty", id="16 bytes, a part is missing"),
        pytest.param(b"demo/\0", "text", id="a control character"),
        pytest.param(b"demo/clock\n", "text", id="a new line"),
        pytest.param(b"demo/\x1b[2J", "text", id="an escape"),
        pytest.param("demo/\u202eclock".encode(), "text", id="writing backwards"),
        pytest.param(b"demo/\xff", "UTF-8", id="no UTF-8"),
        pytest.param(b"demo/\xed\xa0\x80", "UTF-8", id="half a surrogate pair"),
        pytest.param(b"demo/\xc0\xaf", "UTF-8", id="a slash in two bytes"),
    ],
)
def test_names_that_stand_for_nothing_are_refused(name: bytes, problem: str) -> None:
    with pytest.raises(NameRefused, match=problem):
        decode_name(name)
    with pytest.raises(NameRefused, match=problem):
        Pattern(name).check()


def test_a_name_has_33_parts_at_most() -> None:
    parts = [b"%d" % number for number in range(MAX_PARTS)]
    assert decode_name(b"/".join(parts)) == track(*parts)
    assert len(decode_name(b"/".join(parts)).namespace) == 32  # MoQT's bound
    assert encode_name(track(*parts)) == b"/".join(parts)
    with pytest.raises(NameRefused, match="34 parts"):
        decode_name(b"/".join([*parts, b"x"]))
    with pytest.raises(NameRefused):
        encode_name(track(*parts, b"x"))


def test_a_name_has_4096_bytes_at_most() -> None:
    name = b"demo/" + b"x" * (MAX_NAME_BYTES - 5)
    assert decode_name(name) == track(b"demo", name[5:])
    assert encode_name(track(b"demo", name[5:])) == name
    with pytest.raises(NameRefused, match="4097 bytes"):
        decode_name(name + b"x")
    with pytest.raises(NameRefused, match="long"):
        encode_name(track(b"demo", name[5:] + b"x"))


@pytest.mark.parametrize(
    "unnamed",
    [
        TrackName((), b"clock"),
        TrackName((), b"demo/clock"),
        TrackName((), BINARY),
        TrackName((b"demo",), b""),
        TrackName((b"",), b"clock"),
        TrackName((b"demo", b""), b"clock"),
        TrackName((b"demo/clock",), b"seconds"),
        TrackName((b"demo",), b"clock/seconds"),
        TrackName((b"demo",), b"/"),
        TrackName((b"demo",), b"\xff"),
        TrackName((b"\0",), b"clock"),
        TrackName((b"demo",), b"clock/sec\xff"),  # 16 bytes with its slash
        TrackName((b"demo",), b"\xff" * 11),
        TrackName((b"quicr",), BINARY),
        TrackName((b"quicr",), b"\xff" * 32),
    ],
)
def test_tracks_that_have_no_name(unnamed: TrackName) -> None:
    with pytest.raises(NameRefused, match="has no name"):
        encode_name(unnamed)


names = st.one_of(
    st.binary(min_size=16, max_size=16),
    st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=5).map(
        lambda parts: "/".join(parts).encode()
    ),
    st.text(alphabet="ab/é\n", max_size=18).map(str.encode),
    st.binary(max_size=20),
)
parts = st.one_of(
    st.binary(max_size=6),
    st.text(alphabet="ab/é", min_size=1, max_size=6).map(str.encode),
    st.binary(min_size=16, max_size=16).map(lambda data: data.hex().encode()),
    st.sampled_from([b"quicr", b"demo/clock/secon".hex().encode()]),
)
tracks = st.one_of(
    st.builds(TrackName, st.lists(parts, max_size=4).map(tuple), parts),
    st.builds(TrackName, st.just((b"quicr",)), parts),
)


def is_part(part: bytes) -> bool:
    """Whether a name can have such a part."""
    try:
        return part != b"" and b"/" not in part and part.decode().isprintable()
    except UnicodeDecodeError:
        return False


@settings(max_examples=300)
@given(tracks)
def test_a_track_that_has_a_name_is_what_it_stands_for(one: TrackName) -> None:
    try:
        name = encode_name(one)
    except NameRefused:
        assert not one.namespace or not all(map(is_part, (*one.namespace, one.name)))
        return
    assert all(map(is_part, (*one.namespace, one.name)))
    assert decode_name(name) == one
    assert Pattern(name).matches(one)


@settings(max_examples=300)
@given(names)
def test_a_name_stands_for_a_track_that_has_one(name: bytes) -> None:
    try:
        one = decode_name(name)
    except NameRefused:
        return
    again = encode_name(one)
    assert again == name or name == b"quicr/" + again.hex().encode()
    assert decode_name(again) == one
    Pattern(name).check()


# -- many ------------------------------------------------------------------------------------------


def matches(name: bytes, mask: int, *parts: bytes) -> bool:
    pattern = Pattern(name, mask)
    pattern.check()
    found = pattern.matches(track(*parts))
    # What is looked for by its prefix is found by it.
    assert not found or parts[:-1][: len(pattern.prefix)] == pattern.prefix
    return found


def test_without_a_mask_it_is_one_track() -> None:
    pattern = Pattern(b"demo/clock/seconds")
    assert not pattern.is_wild
    assert pattern.track() == track(b"demo", b"clock", b"seconds")
    assert pattern.prefix == (b"demo", b"clock")
    assert matches(b"demo/clock", 0, b"demo", b"clock")
    assert not matches(b"demo/clock", 0, b"demo", b"clock", b"seconds")
    assert not matches(b"demo/clock", 0, b"demo", b"clocks")
    assert matches(BINARY, 0, b"quicr", HEX)
    assert not matches(BINARY, 0, b"quicr", HEX[:-1] + b"e")
    assert Pattern(BINARY).prefix == (b"quicr",)


@pytest.mark.parametrize("mask", [1, 8, 64, 127, 128, 129, 255])
@pytest.mark.parametrize("name", [b"demo/x", b"demo/x/", b"demo/some-sixtee", b"demo/x/y"])
def test_text_is_the_beginning_whatever_the_mask(name: bytes, mask: int) -> None:
    begins = tuple(name.removesuffix(b"/").split(b"/"))
    assert Pattern(name, mask).is_wild
    assert matches(name, mask, *begins)
    assert matches(name, mask, *begins, b"y")
    assert matches(name, mask, *begins, b"y", b"z")
    # Whole parts count: demo/x is not the beginning of demo/xy.
    assert not matches(name, mask, *begins[:-1], begins[-1] + b"y")
    assert not matches(name, mask, *begins[:-1], begins[-1] + b"y", b"z")
    assert not matches(name, mask, *begins[:-1], begins[-1][:-1], b"z")
    assert not matches(name, mask, b"other", *begins)
    assert not matches(name, mask, b"quicr", HEX)
    assert Pattern(name, mask).prefix == begins[:-1]


def test_one_part_can_be_a_beginning() -> None:
    for name in (b"demo", b"demo/"):
        assert matches(name, 1, b"demo", b"clock")
        assert matches(name, 1, b"demo", b"clock", b"seconds")
        assert not matches(name, 1, b"demos", b"clock")
        assert Pattern(name, 1).prefix == ()
    assert matches(b"quicr", 1, b"quicr", HEX)
    # 16 bytes of text without a slash are binary; with one they are a beginning again.
    assert not matches(b"conference-rooms", 1, b"conference-rooms", b"a")
    assert matches(b"conference-rooms/", 1, b"conference-rooms", b"a")
    assert matches(b"conference-room/", 1, b"conference-room", b"a")


@pytest.mark.parametrize("name", [b"", b"/"])
def test_an_empty_beginning_is_that_of_all(name: bytes) -> None:
    assert Pattern(name, 1).prefix == ()
    assert matches(name, 1, b"demo", b"clock")
    assert matches(name, 1, b"quicr", HEX)


@pytest.mark.parametrize("name", [b"", b"/", b"demo", b"demo/"])
def test_only_tracks_that_have_a_name_are_among_them(name: bytes) -> None:
    for unnamed in (
        TrackName((b"demo",), b""),
        TrackName((b"demo",), b"\xff"),
        TrackName((b"demo",), b"a/b"),
        TrackName((b"demo", b""), b"clock"),
        TrackName((b"demo",), b"x" * MAX_NAME_BYTES),
    ):
        assert not Pattern(name, 1).matches(unnamed)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (b"//", "empty"),
        (b"demo//", "empty"),
        (b"/demo", "empty"),
        (b"demo//clock", "empty"),
        (b"demo/\xff", "text"),
        (b"demo/\n", "text"),
        (b"x" * (MAX_NAME_BYTES + 1), "4097 bytes"),
        (b"/".join([b"x"] * (MAX_PARTS + 1)), "34 parts"),
    ],
)
def test_beginnings_of_nothing_are_refused(name: bytes, problem: str) -> None:
    for mask in (1, 128, 255):
        with pytest.raises(NameRefused, match=problem):
            Pattern(name, mask).check()


@pytest.mark.parametrize("mask", [0, 1, 7, 8, 63, 64, 65, 127, 128])
def test_the_mask_of_a_binary_name_counts_its_low_bits(mask: int) -> None:
    number = int.from_bytes(BINARY)
    pattern = Pattern(BINARY, mask)
    pattern.check()
    assert pattern.is_wild is (mask > 0)
    assert pattern.prefix == (b"quicr",)
    assert pattern.matches(binary(BINARY))
    for bit in range(128):
        other = (number ^ 1 << bit).to_bytes(16)
        if is_binary(other):
            assert pattern.matches(binary(other)) is (bit < mask)
    for other_track in (
        track(b"demo", b"clock"),
        track(b"quicr", b"video"),
        track(b"quicr", HEX.upper()),
        track(b"quicr", HEX, b"x"),
        track(b"other", HEX),
        track(b"demo", b"clock", b"secon"),  # its name has 16 bytes too
        TrackName((), b"\xff" * 16),
        TrackName((b"quicr",), b""),
    ):
        assert not pattern.matches(other_track)


def test_what_is_text_is_not_among_binary_names() -> None:
    text = b"demo/clock/secon"
    near = (int.from_bytes(text) ^ 0xFF).to_bytes(16)
    assert is_binary(near)
    assert not Pattern(near, 8).matches(decode_name(text))
    assert not Pattern(near, 8).matches(TrackName((b"quicr",), text.hex().encode()))
    assert Pattern(near, 128).matches(binary(BINARY))


@pytest.mark.parametrize("mask", [129, 200, 255])
def test_a_binary_name_has_128_bits(mask: int) -> None:
    with pytest.raises(NameRefused, match=f"mask {mask} is too large: the name has 128 bits"):
        Pattern(BINARY, mask).check()


def test_patterns_are_equal_where_they_ask_for_the_same() -> None:
    assert Pattern(b"demo/x", 1) == Pattern(b"demo/x", 1)
    assert len({Pattern(b"demo/x"), Pattern(b"demo/x", 0), Pattern(b"demo/x", 1)}) == 2


@settings(max_examples=300)
@given(names, st.integers(0, 255), tracks)
def test_what_matches_has_a_name_that_begins_so(name: bytes, mask: int, one: TrackName) -> None:
    pattern = Pattern(name, mask)
    try:
        pattern.check()
    except NameRefused:
        return
    if not pattern.matches(one):
        return
    encode_name(one)
    assert one.namespace[: len(pattern.prefix)] == pattern.prefix
    # Nobody who asks for more is given less.
    wider = Pattern(name, min(mask + 1, 128 if is_binary(name) else 255))
    assert wider.matches(one)
