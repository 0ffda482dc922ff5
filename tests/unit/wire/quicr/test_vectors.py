"""The golden bytes of tests/vectors/quicr, read and written."""

from __future__ import annotations

import pytest

from laps.wire.moqt.data import decode_datagram as decode_between_relays
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.quicr.carried import carried_of, encode_carried, moqt_priority
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import (
    Datagram,
    MessageReader,
    Type,
    decode,
    decode_datagram,
    encode,
    encode_datagram,
)
from unit.wire.quicr.vectors import Case, fragment, message, number, terms, with_key


def parametrized(key: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", with_key(key), ids=lambda case: case.name)


@parametrized("message")
def test_a_message_is_read(case: Case) -> None:
    reader = MessageReader()
    assert reader.feed(case.data) == [message(case.meaning)]
    assert reader.is_empty


@parametrized("message")
def test_a_message_is_written(case: Case) -> None:
    assert (encode(message(case.meaning)) == case.data) is case.canonical


def test_every_message_has_vectors() -> None:
    assert {case.data[2] for case in with_key("message") if case.canonical} == set(Type)


@parametrized("message")
def test_a_message_that_ends_too_soon_is_refused(case: Case) -> None:
    value = case.data[2:]
    for size in range(len(value)):
        # A SUBSCRIBE_REPLY may do without a reason.
        if value[0] == Type.SUBSCRIBE_REPLY and size == 2:
            continue
        assert refusal(size.to_bytes(2) + value[:size]) == QuicrCode.INVALID_ENCODING


@parametrized("message")
def test_a_message_that_ends_too_late_is_refused(case: Case) -> None:
    value = case.data[2:] + b"\0"
    # The bare ok and the bare fail: what follows is the length of the reason.
    if value[0] == Type.SUBSCRIBE_REPLY and len(value) == 3:
        value += b"\0"
    assert refusal(len(value).to_bytes(2) + value) == QuicrCode.INVALID_ENCODING


def refusal(data: bytes) -> int:
    with pytest.raises(QuicrViolation) as caught:
        MessageReader().feed(data)
    assert str(caught.value) == caught.value.problem != ""
    return caught.value.code


@parametrized("datagram")
def test_a_datagram_is_read(case: Case) -> None:
    said = decode_datagram(case.data)
    stream_id = number(case.meaning["stream_id"])
    assert said == Datagram(stream_id, fragment(case.meaning), terms(case.meaning))


@parametrized("datagram")
def test_a_datagram_is_written(case: Case) -> None:
    stream_id = number(case.meaning["stream_id"])
    written = encode_datagram(stream_id, fragment(case.meaning), terms(case.meaning))
    assert (written == case.data) is case.canonical


@parametrized("carried")
def test_a_datagram_between_relays_is_read(case: Case) -> None:
    datagram = decode_between_relays(case.data, DRAFT16)
    assert datagram.alias == number(case.meaning["alias"])
    assert datagram.priority == moqt_priority(terms(case.meaning).priority)
    assert carried_of(datagram) == (fragment(case.meaning), terms(case.meaning))


@parametrized("carried")
def test_a_datagram_between_relays_is_written(case: Case) -> None:
    alias = number(case.meaning["alias"])
    written = encode_carried(alias, fragment(case.meaning), terms(case.meaning))
    assert (written == case.data) is case.canonical


@parametrized("error")
def test_what_is_wrong_is_refused_with_its_code(case: Case) -> None:
    read = {"control": MessageReader().feed, "datagram": decode_datagram}[case.meaning["reader"]]
    with pytest.raises(QuicrViolation) as caught:
        read(case.data)
    assert caught.value.code == number(case.meaning["error"])
    assert str(caught.value)


def test_a_length_says_all_there_is_to_a_message() -> None:
    # What does not read is refused when it is whole, and not before.
    for case in with_key("error"):
        if case.meaning["reader"] == "control" and case.data[:2] != b"\0\2":
            assert MessageReader().feed(case.data[:-1]) == []


def test_the_data_of_a_fragment_is_not_copied() -> None:
    data = b"\0\7\5\1\2\0\2ab"
    (read,) = MessageReader().feed(data)
    assert read == decode(memoryview(data)[2:])
    assert getattr(read, "data").obj is data  # noqa: B009 - of one kind of message only
    assert getattr(decode_datagram(data).fragment.data, "obj") is data  # noqa: B009
