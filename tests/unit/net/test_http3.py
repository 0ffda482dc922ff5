"""HTTP/3 as bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.net.http3 import (
    FIELD_SECTION_BYTES,
    FIRST_APPLICATION_ERROR,
    LAST_APPLICATION_ERROR,
    ErrorCode,
    Fields,
    FrameReader,
    FrameType,
    Http3Error,
    StreamError,
    decode_error,
    decode_number,
    decode_settings,
    decode_strings,
    decode_tokens,
    describe,
    encode_error,
    encode_frame,
    encode_settings,
    encode_strings,
    parse_request,
    parse_response,
)

HEADERS_ONLY = frozenset((FrameType.HEADERS,))
VARINTS = st.integers(0, 2**62 - 1)


# -- error codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "on_the_wire"),
    [
        (0, 0x52E4A40FA8DB),
        (1, 0x52E4A40FA8DC),
        (0x1D, 0x52E4A40FA8F8),
        (0x1E, 0x52E4A40FA8FA),  # 0x52e4a40fa8f9 is greased
        (0xFF, 0x52E4A40FA9E2),
        (0x100, 0x52E4A40FA9E3),
        (0xFFFF_FFFF, 0x52E5AC983162),
        (2**62 - 1, 0x52E5AC983162),  # more than 32 bits: the largest there is
    ],
)
def test_an_error_code_has_its_place(code: int, on_the_wire: int) -> None:
    assert encode_error(code) == on_the_wire
    assert decode_error(on_the_wire) == min(code, 0xFFFF_FFFF)


@given(st.integers(0, 0xFFFF_FFFF))
def test_error_codes_come_back_and_never_greased(code: int) -> None:
    sent = encode_error(code)
    assert FIRST_APPLICATION_ERROR <= sent <= LAST_APPLICATION_ERROR
    assert (sent - 0x21) % 0x1F
    assert decode_error(sent) == code


def test_the_first_thousand_error_codes_lie_close_and_apart() -> None:
    sent = [encode_error(code) for code in range(1000)]
    assert sent == sorted(set(sent))
    gaps = set(range(sent[0], sent[-1])) - set(sent)
    assert gaps == {code for code in range(sent[0], sent[-1]) if decode_error(code) is None}
    assert len(gaps) == 999 // 30


@pytest.mark.parametrize(
    "code", [0, 0x100, FIRST_APPLICATION_ERROR - 1, LAST_APPLICATION_ERROR + 1, 0x52E4A40FA8F9]
)
def test_other_codes_are_no_application_s(code: int) -> None:
    assert decode_error(code) is None


def test_codes_have_words() -> None:
    assert describe(0x10C) == "H3_REQUEST_CANCELLED"
    assert describe(0x200) == "QPACK_DECOMPRESSION_FAILED"
    assert describe(0x3994BD84) == "HTTP/3 error 0x3994bd84"


# -- frames ----------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from([0x0, 0x1, 0x21, 0x40, 0x41AA]), st.binary(max_size=80))),
    st.integers(1, 200),
)
def test_frames_are_cut_however_they_arrive(frames: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader(HEADERS_ONLY, 100)
    pieces = [
        piece
        for offset in range(0, len(stream), size)
        for piece in reader.feed(stream[offset : offset + size])
    ]
    assert reader.between_frames
    whole = [payload for kind, payload in frames if kind == FrameType.HEADERS]
    assert [payload for kind, payload in pieces if kind == FrameType.HEADERS] == whole
    data = b"".join(payload for kind, payload in frames if kind == FrameType.DATA)
    assert b"".join(payload for kind, payload in pieces if kind == FrameType.DATA) == data
    # Each frame is told of in its place; of those that nobody knows, only that they were there.
    begun = [kind for kind, payload in pieces if kind == FrameType.HEADERS or not payload]
    assert begun == [kind for kind, _ in frames]


def test_a_frame_that_is_under_way_is_not_the_end() -> None:
    reader = FrameReader(HEADERS_ONLY, 100)
    assert list(reader.feed(b"\x21\x02a")) == [(0x21, b"")]
    assert not reader.between_frames
    assert list(reader.feed(b"b\x40")) == []
    assert not reader.between_frames


def test_a_frame_to_be_kept_whole_has_a_limit() -> None:
    reader = FrameReader(HEADERS_ONLY, 100)
    with pytest.raises(Http3Error) as caught:
        list(reader.feed(b"\x01\x40\x65"))
    assert caught.value.code == ErrorCode.EXCESSIVE_LOAD


def test_a_frame_of_one_number() -> None:
    assert decode_number(b"\x40\x05", "GOAWAY") == 5
    for payload in (b"", b"\x40", b"\x05\x05"):
        with pytest.raises(Http3Error) as caught:
            decode_number(payload, "GOAWAY")
        assert caught.value.code == ErrorCode.FRAME_ERROR


# -- settings --------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0x34, 0x3FFFFF).filter(lambda k: k != 0xFFD277), VARINTS))
def test_settings_come_back(settings: dict[int, int]) -> None:
    assert decode_settings(encode_settings(settings)) == settings


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\x06", ErrorCode.FRAME_ERROR),
        (b"\x06\x40", ErrorCode.FRAME_ERROR),
        (b"\x06\x01\x06\x01", ErrorCode.SETTINGS_ERROR),
        (b"\x02\x01", ErrorCode.SETTINGS_ERROR),
        (b"\x33\x02", ErrorCode.SETTINGS_ERROR),
        (b"\x08\x02", ErrorCode.SETTINGS_ERROR),
    ],
)
def test_settings_that_are_none(payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(Http3Error) as caught:
        decode_settings(payload)
    assert caught.value.code == code


# -- header fields ---------------------------------------------------------------------------------

REQUEST = [
    (b":method", b"CONNECT"),
    (b":protocol", b"webtransport"),
    (b":scheme", b"https"),
    (b":authority", b"example.org:443"),
    (b":path", b"/moq?x=1"),
    (b"origin", b"https://example.org"),
    (b"cookie", b"a"),
    (b"cookie", b"b"),
]


def test_fields_come_back() -> None:
    frame = Fields().encode(0, REQUEST)
    [(kind, block)] = FrameReader(HEADERS_ONLY, 1000).feed(frame)
    assert kind == FrameType.HEADERS
    fields = Fields().decode(0, block)
    assert fields == REQUEST
    request = parse_request(fields)
    assert (request.method, request.protocol) == ("CONNECT", "webtransport")
    assert (request.authority, request.path) == ("example.org:443", "/moq?x=1")
    assert request.header("origin") == "https://example.org"
    assert request.header("cookie") == "a, b"
    assert request.header("absent") == ""


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"", ErrorCode.QPACK_DECOMPRESSION_FAILED),
        (b"\x00", ErrorCode.QPACK_DECOMPRESSION_FAILED),
        (b"\x02\x00\x80", ErrorCode.QPACK_DECOMPRESSION_FAILED),  # the dynamic table
        (b"\x00\x00\xff\xff\xff", ErrorCode.QPACK_DECOMPRESSION_FAILED),
        # a value of 20,000 bytes, as a literal
        (b"\x00\x00\x21a\x7f\xa1\x9b\x01" + b"x" * 20_000, ErrorCode.EXCESSIVE_LOAD),
    ],
)
def test_fields_that_are_none(block: bytes, code: ErrorCode) -> None:
    with pytest.raises(Http3Error) as caught:
        Fields().decode(0, block)
    assert caught.value.code == code
    assert FIELD_SECTION_BYTES < 20_000


@given(st.binary(max_size=64))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    fields = Fields()
    with suppress(Http3Error):
        parse_request(fields.decode(0, data))
    with suppress(Http3Error):
        fields.feed_encoder_stream(data)
    with suppress(Http3Error):
        fields.feed_decoder_stream(data)


def test_the_streams_of_qpack_have_little_to_say() -> None:
    fields = Fields()
    fields.feed_encoder_stream(b"\x20")  # a table of 0 bytes
    fields.feed_decoder_stream(b"\x41")  # a stream cancelled
    with pytest.raises(Http3Error) as caught:
        fields.feed_encoder_stream(b"\x3f\xff\x10")  # a table of more
    assert caught.value.code == ErrorCode.QPACK_ENCODER_STREAM_ERROR
    with pytest.raises(Http3Error) as caught:
        fields.feed_decoder_stream(b"\x80")  # an acknowledgement of nothing
    assert caught.value.code == ErrorCode.QPACK_DECODER_STREAM_ERROR


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in REQUEST if field[0] != name]


@pytest.mark.parametrize(
    "fields",
    [
        [],
        without(b":method"),
        without(b":scheme"),
        without(b":path"),
        without(b":authority"),
        [*without(b":path"), (b":path", b"/")],  # behind other fields
        [(b":path", b"/"), *REQUEST],
        [(b":status", b"200"), *REQUEST],
        [(b":method", b"CONNECT"), (b":authority", b"x"), (b":path", b"/")],
        [(b":method", b"GET"), *without(b":method")],  # with :protocol
        [*REQUEST, (b"Upper", b"x")],
        [*REQUEST, (b"", b"x")],
        [*REQUEST, (b"a b", b"x")],
        [*REQUEST, (b"name", b"x\r\ny")],
        [*REQUEST, (b"connection", b"close")],
        [*REQUEST, (b"te", b"gzip")],
    ],
)
def test_a_malformed_request_costs_its_stream(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(StreamError) as caught:
        parse_request(fields)
    assert caught.value.code == ErrorCode.MESSAGE_ERROR


def test_responses() -> None:
    assert parse_response([(b":status", b"404"), (b"a", b"b")]) == (404, (("a", "b"),))
    bad = [[], [(b":status", b"20")], [(b":status", b"abc")], [(b":method", b"GET")]]
    for fields in bad:
        with pytest.raises(StreamError):
            parse_response(fields)


# -- lists of strings ------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))))
def test_strings_come_back(strings: list[str]) -> None:
    assert decode_strings(encode_strings(strings).decode()) == tuple(strings)


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ("", ()),
        ('"moqt-16"', ("moqt-16",)),
        ('"moqt-18";q=0.5, "moqt-16" ;a="x,y";b', ("moqt-18", "moqt-16")),
        ('"a","b"', ("a", "b")),
        (r'"a\"b\\"', ('a"b' + chr(92),)),
        ("moqt-16", ()),
        ('"a" "b"', ()),
        ('"open', ()),
        ('"a", 5', ()),
    ],
)
def test_lists_of_strings(text: str, strings: tuple[str, ...]) -> None:
    assert decode_strings(text) == strings


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ()),
        ("moqt-16", ("moqt-16",)),
        ("moqt-18;q=0.5, moqt-16 ;a=x", ("moqt-18", "moqt-16")),
        ("a,b", ("a", "b")),
        ('"moqt-16"', ()),
        ("moqt-16 moqt-18", ()),
        ("16", ()),
        ('moqt-16, "moqt-18"', ()),
    ],
)
def test_lists_of_tokens(text: str, tokens: tuple[str, ...]) -> None:
    assert decode_tokens(text) == tokens
