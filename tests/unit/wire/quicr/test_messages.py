"""Control messages and datagrams: round trips, chunks of any size, and the sizes there can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import LocalProtocolError
from laps.types import Location
from laps.wire.buffer import VARINT_MAX, encode_varint
from laps.wire.quicr.codes import QuicrCode, QuicrViolation, violation
from laps.wire.quicr.messages import (
    DATAGRAM_HEAD_BYTES,
    DEFAULT_PRIORITY,
    FRAGMENT_HEAD_BYTES,
    MAX_ADDRESS_BYTES,
    MAX_FRAGMENT_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_REASON_BYTES,
    Datagram,
    Fin,
    Fragment,
    Intent,
    Message,
    MessageReader,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    Response,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    Terms,
    decode_datagram,
    encode,
    encode_datagram,
)
from unit.wire.quicr.strategies import chunked, cuts, datagrams, messages

LARGEST_OFFSET = VARINT_MAX >> 1


def message(value: bytes) -> bytes:
    return len(value).to_bytes(2) + value


def refused(data: bytes) -> QuicrViolation:
    with pytest.raises(QuicrViolation) as caught:
        MessageReader().feed(data)
    return caught.value


# -- round trips -----------------------------------------------------------------------------------


@given(messages)
def test_what_is_written_is_read(said: Message) -> None:
    data = encode(said)
    assert int.from_bytes(data[:2]) == len(data) - 2
    assert MessageReader().feed(data) == [said]


@given(datagrams())
def test_a_datagram_that_is_written_is_read(said: Datagram) -> None:
    data = encode_datagram(said.stream_id, said.fragment, said.terms)
    assert len(data) <= DATAGRAM_HEAD_BYTES + len(said.fragment.data)
    assert decode_datagram(data) == said


@settings(max_examples=60)
@given(st.lists(messages, max_size=6), st.data())
def test_messages_come_out_of_chunks_of_any_size(said: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode, said))
    reader = MessageReader()
    heard: list[Message] = []
    for chunk in chunked(stream, data.draw(cuts(len(stream)))):
        heard += reader.feed(chunk)
    assert heard == said
    assert reader.is_empty


@settings(max_examples=30)
@given(st.lists(messages, min_size=1, max_size=4))
def test_each_message_comes_out_with_its_last_byte(said: list[Message]) -> None:
    stream = b"".join(map(encode, said))
    reader = MessageReader()
    ends, end = [], 0
    for one in said:
        end += len(encode(one))
        ends.append(end)
    heard: list[Message] = []
    for at in range(len(stream)):
        heard += reader.feed(stream[at : at + 1])
        assert len(heard) == sum(end <= at + 1 for end in ends)
        assert reader.is_empty is (at + 1 in ends)
    assert heard == said


def test_nothing_is_held_but_the_message_that_is_not_whole() -> None:
    reader = MessageReader()
    whole = encode(PublishIntentOk())
    assert reader.feed(whole * 3 + whole[:3]) == [PublishIntentOk()] * 3
    assert reader._held == whole[:3]
    assert reader.feed(b"") == []
    assert not reader.is_empty
    assert reader.feed(whole[3:]) == [PublishIntentOk()]
    assert reader.is_empty


def test_no_more_than_the_longest_message_is_held() -> None:
    reader = MessageReader()
    whole = encode(Fragment(0, 0, 0, bytes(MAX_FRAGMENT_BYTES), True))
    fill = encode(SubscribeReply(Response.OK)) * 20
    for chunk in chunked((whole + fill) * 2, list(range(0, 2 * len(whole), 1000))):
        reader.feed(chunk)
        assert len(reader._held) < 2 + MAX_MESSAGE_BYTES


def test_what_was_said_ahead_of_a_mistake_does_not_hide_it() -> None:
    good = encode(StartPoint(Location(1, 2)))
    assert refused(good + good + b"\0\1\0" + good).code is QuicrCode.INVALID_ENCODING


# -- defaults --------------------------------------------------------------------------------------


def test_what_goes_without_saying() -> None:
    assert Subscribe(b"a/b") == Subscribe(b"a/b", 0, Intent.IMMEDIATE, None)
    assert PublishIntent(b"a/b") == PublishIntent(b"a/b", False)
    assert PublishIntentOk() == PublishIntentOk(None)
    assert Terms() == Terms(0, DEFAULT_PRIORITY, False, 0)
    assert DEFAULT_PRIORITY == 4


def test_a_fragment_knows_where_it_ends() -> None:
    assert Fragment(0, 0, 7, b"abc", False).end == 10
    assert Fragment(0, 0, 7, memoryview(b""), True).end == 7


def test_stream_0_of_datagrams_is_one_too() -> None:
    assert MessageReader().feed(encode(PublishIntentOk(0))) == [PublishIntentOk(0)]
    said = Subscribe(b"a/b", datagram_stream_id=0)
    assert MessageReader().feed(encode(said)) == [said]


# -- sizes -----------------------------------------------------------------------------------------


def test_the_largest_fragment_is_the_longest_message() -> None:
    data = bytes(MAX_FRAGMENT_BYTES)
    said = Fragment(VARINT_MAX, VARINT_MAX, LARGEST_OFFSET, data, True)
    written = encode(said)
    assert len(written) == 2 + MAX_MESSAGE_BYTES == 65_537
    assert len(data) == MAX_MESSAGE_BYTES - FRAGMENT_HEAD_BYTES
    assert MessageReader().feed(written) == [said]
    with pytest.raises(LocalProtocolError, match=r"65536 bytes: there can be 65535"):
        encode(replace(said, data=data + b"x"))


@pytest.mark.parametrize(
    "said",
    [
        Subscribe(bytes(0x10000)),
        PublishIntent(bytes(0x10000)),
        SubscribeCancel(bytes(0x10000)),
        Subscribe(b"a/b", 256),
        Subscribe(b"a/b", -1),
        Subscribe(b"a/b", datagram_stream_id=VARINT_MAX + 1),
        PublishIntentOk(VARINT_MAX + 1),
        PublishIntentOk(-1),
        StartPoint(Location(VARINT_MAX + 1, 0)),
        Fin(Location(0, VARINT_MAX + 1)),
        Fragment(0, 0, LARGEST_OFFSET + 1, b"", False),
        Fragment(-1, 0, 0, b"", False),
        RelayRedirect("a" * (MAX_ADDRESS_BYTES + 1)),
    ],
    ids=lambda said: type(said).__name__,
)
def test_what_nobody_could_read_is_not_written(said: Message) -> None:
    with pytest.raises(LocalProtocolError):
        encode(said)


@pytest.mark.parametrize(
    "datagram",
    [
        Datagram(VARINT_MAX + 1, Fragment(0, 0, 0, b"", True), Terms()),
        Datagram(0, Fragment(0, 0, LARGEST_OFFSET + 1, b"", True), Terms()),
        Datagram(0, Fragment(0, 0, 0, b"", True), Terms(-1)),
        Datagram(0, Fragment(0, 0, 0, b"", True), Terms(objects_before=VARINT_MAX + 1)),
    ],
    ids=["stream", "offset", "best before", "objects before"],
)
def test_no_datagram_is_written_that_nobody_could_read(datagram: Datagram) -> None:
    with pytest.raises(LocalProtocolError):
        encode_datagram(datagram.stream_id, datagram.fragment, datagram.terms)


def test_the_longest_header_of_a_datagram() -> None:
    many = Terms(VARINT_MAX, 7, True, VARINT_MAX)
    # Object 0 takes one byte, and the number of objects comes with no other.
    later = encode_datagram(VARINT_MAX, Fragment(VARINT_MAX, 1 << 30, 1 << 30, b"", True), many)
    first = encode_datagram(VARINT_MAX, Fragment(VARINT_MAX, 0, 0, b"", True), many)
    assert (len(later), len(first)) == (41, 35)
    assert len(later) == DATAGRAM_HEAD_BYTES


@pytest.mark.parametrize("offset", [LARGEST_OFFSET - 2, LARGEST_OFFSET - 1, LARGEST_OFFSET])
def test_a_datagram_ends_at_the_largest_offset_at_the_latest(offset: int) -> None:
    data = encode_datagram(1, Fragment(1, 1, offset, b"ab", False), Terms())
    if offset + 2 <= LARGEST_OFFSET:
        assert decode_datagram(data).fragment.end == LARGEST_OFFSET
        return
    with pytest.raises(QuicrViolation) as caught:
        decode_datagram(data)
    assert caught.value.code is QuicrCode.INVALID_ENCODING


# -- words -----------------------------------------------------------------------------------------


def test_a_reason_may_have_1024_bytes() -> None:
    for size in (MAX_REASON_BYTES, MAX_REASON_BYTES + 1):
        sized = encode_varint(size) + b"x" * size
        for value in (b"\4\2" + sized, b"\4\0" + sized, b"\x09\3a/b" + sized):
            if size > MAX_REASON_BYTES:
                error = refused(message(value))
                assert error.code is QuicrCode.INVALID_ENCODING
                assert "of 1025 bytes is too long: there can be 1024" in error.problem
            else:
                (said,) = MessageReader().feed(message(value))
                assert isinstance(said, SubscribeReply | SubscribeCancel)
                assert said.reason == "x" * size


def test_an_address_may_have_1024_bytes() -> None:
    said = RelayRedirect("x" * MAX_ADDRESS_BYTES)
    assert MessageReader().feed(encode(said)) == [said]
    value = b"\x0a" + encode_varint(MAX_ADDRESS_BYTES + 1) + b"x" * (MAX_ADDRESS_BYTES + 1)
    error = refused(message(value))
    assert error.code is QuicrCode.INVALID_ENCODING
    assert "of 1025 bytes is too long: there can be 1024" in error.problem


@pytest.mark.parametrize(
    ("reason", "heard"),
    [
        ("x" * 1023, "x" * 1023),
        ("x" * 1024, "x" * 1024),
        ("x" * 5000, "x" * 1024),
        ("x" * 1023 + "é", "x" * 1023),  # not half a letter
        ("é" * 512, "é" * 512),
        ("é" * 513, "é" * 512),
        ("x" + "é" * 512, "x" + "é" * 511),
        ("𝄞" * 300, "𝄞" * 256),
        ("xyz" + "𝄞" * 256, "xyz" + "𝄞" * 255),
    ],
)
def test_a_reason_that_is_too_long_is_cut(reason: str, heard: str) -> None:
    for said in (SubscribeReply(Response.FAIL, reason), SubscribeCancel(b"a/b", reason)):
        (read,) = MessageReader().feed(encode(said))
        assert read == replace(said, reason=heard)


def test_words_that_are_no_utf_8_are_read_as_far_as_they_can_be() -> None:
    data = b"\xc3\x28 \xff\xfe ok"
    for value in (b"\4\2\x08" + data, b"\x09\0\x08" + data, b"\x0a\x08" + data):
        (said,) = MessageReader().feed(message(value))
        assert isinstance(said, SubscribeReply | SubscribeCancel | RelayRedirect)
        text = said.address if isinstance(said, RelayRedirect) else said.reason
        assert text == "\ufffd( \ufffd\ufffd ok"


def test_names_are_bytes_of_any_kind_and_length() -> None:
    for name in (b"", b"\0", b"\xff" * 16, bytes(4097), bytes(60_000)):
        for said in (Subscribe(name, 7), PublishIntent(name, True), SubscribeCancel(name)):
            (read,) = MessageReader().feed(encode(said))
            assert read == said
            assert isinstance(getattr(read, "name"), bytes)  # noqa: B009 - of three of them


# -- violations ------------------------------------------------------------------------------------


def test_a_violation_carries_its_code_and_its_words() -> None:
    error = violation("no such thing")
    assert (error.code, error.problem, str(error)) == (1, "no such thing", "no such thing")
    assert QuicrViolation(QuicrCode.TOO_LARGE, "x").code is QuicrCode.TOO_LARGE


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0", "message_type"),
        (b"\0\1\x3f", "message type 63 is unknown"),
        (b"\0\7\1\3a/b\0\3", "intent 3 is unknown"),
        (b"\0\2\4\4", "response 4 is unknown"),
        (b"\0\6\6\3a/b\2", "datagram_capable is 2, neither 0 nor 1"),
        (b"\0\2\7\2", "use_datagram is 2, neither 0 nor 1"),
        (b"\0\3\1\5a", "name"),
        (b"\0\4\7\0\0\0", "2 bytes follow a PublishIntentOk"),
    ],
)
def test_a_refusal_names_what_is_wrong(data: bytes, words: str) -> None:
    assert words in refused(data).problem
