"""The golden bytes of tests/vectors/moqt, read and written."""

from __future__ import annotations

import pytest

from laps.wire.moqt import draft14, draft16
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.data import (
    DatagramObject,
    FetchHeader,
    SubgroupHeader,
    decode_datagram,
    decode_stream_header,
    encode_datagram,
    encode_fetch_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.fetch import FetchReader, FetchWriter
from laps.wire.moqt.object_fields import encode_object
from laps.wire.moqt.objects import Object, ObjectReader
from laps.wire.moqt.tolerance import Tolerance
from unit.wire.moqt.vectors import (
    Case,
    fetch_items,
    flag,
    message,
    number,
    subgroup_objects,
    with_key,
)


def parametrized(key: str, value: str | None = None) -> pytest.MarkDecorator:
    cases = [case for case in with_key(key) if value in (None, case.meaning[key])]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@parametrized("message")
def test_a_message_is_read(case: Case) -> None:
    type_, payload, end = case.dialect.split(case.data)
    assert end == len(case.data)
    tolerated: list[Tolerance] = []
    assert case.dialect.decode(type_, payload, tolerated) == message(case.meaning)
    assert tolerated == [Tolerance(name) for name in case.meaning.get("tolerated", "").split()]


@parametrized("tolerated")
def test_what_is_tolerated_is_refused_by_an_exact_reader(case: Case) -> None:
    type_, payload, _ = case.dialect.split(case.data)
    with pytest.raises(MoqtViolation) as caught:
        case.dialect.decode(type_, payload)
    assert caught.value.code == SessionCode.PROTOCOL_VIOLATION


@parametrized("message")
def test_a_message_is_written(case: Case) -> None:
    assert (case.dialect.encode(message(case.meaning)) == case.data) is case.canonical


def test_every_message_of_both_drafts_has_vectors() -> None:
    for dialect, types in ((DRAFT14, draft14.MessageType), (DRAFT16, draft16.MessageType)):
        seen = {
            dialect.split(case.data)[0]
            for case in with_key("message")
            if case.dialect is dialect and case.canonical
        }
        assert {types(number).name for number in seen} == {type_.name for type_ in types}


def subgroup_header(case: Case) -> SubgroupHeader:
    meaning = case.meaning
    subgroup, priority = meaning["subgroup"], meaning["priority"]
    return SubgroupHeader(
        number(meaning["alias"]),
        number(meaning["group"]),
        None if subgroup == "first" else number(subgroup),
        None if priority == "default" else number(priority),
        flag(meaning["extensions"]),
        flag(meaning["end_of_group"]),
    )


@parametrized("stream", "subgroup")
def test_a_subgroup_is_read(case: Case) -> None:
    header, length = decode_stream_header(case.data, case.dialect)
    assert header == subgroup_header(case)
    assert isinstance(header, SubgroupHeader)
    reader = ObjectReader(header, case.dialect)
    objects = reader.feed(case.data[length:])
    reader.finish()
    expected = subgroup_objects(case.meaning)
    subgroup = expected[0][0] if header.subgroup is None else header.subgroup
    assert objects == [
        Object(header.group, subgroup, object_id, header.priority, status, raw, payload)
        for object_id, status, raw, payload in expected
    ]


@parametrized("stream", "subgroup")
def test_a_subgroup_is_written(case: Case) -> None:
    header = subgroup_header(case)
    data = encode_subgroup_header(header, case.dialect)
    last_id = -1
    for object_id, status, raw, payload in subgroup_objects(case.meaning):
        delta = object_id - last_id - 1
        data += encode_object(delta, raw, payload, status, header.has_extensions)
        last_id = object_id
    assert (data == case.data) is case.canonical


@parametrized("stream", "fetch")
def test_a_fetch_is_read(case: Case) -> None:
    header, length = decode_stream_header(case.data, case.dialect)
    assert header == FetchHeader(number(case.meaning["request_id"]))
    reader = FetchReader(case.dialect)
    assert reader.feed(case.data[length:]) == fetch_items(case.meaning)
    reader.finish()


@parametrized("stream", "fetch")
def test_a_fetch_is_written(case: Case) -> None:
    data = encode_fetch_header(FetchHeader(number(case.meaning["request_id"])))
    writer = FetchWriter(case.dialect)
    data += b"".join(map(writer.encode, fetch_items(case.meaning)))
    assert (data == case.data) is case.canonical


def datagram(case: Case) -> DatagramObject:
    meaning = case.meaning
    return DatagramObject(
        number(meaning["alias"]),
        number(meaning["group"]),
        number(meaning["object_id"]),
        None if meaning["priority"] == "default" else number(meaning["priority"]),
        bytes.fromhex(meaning.get("extensions", "")),
        number(meaning["status"]) if "status" in meaning else None,
        bytes.fromhex(meaning.get("payload", "")),
        flag(meaning.get("end_of_group", "no")),
    )


@parametrized("datagram")
def test_a_datagram_is_read(case: Case) -> None:
    assert decode_datagram(case.data, case.dialect) == datagram(case)


@parametrized("datagram")
def test_a_datagram_is_written(case: Case) -> None:
    assert (encode_datagram(datagram(case), case.dialect) == case.data) is case.canonical


def arrive(case: Case) -> None:
    match case.meaning["reader"]:
        case "control":
            type_, payload, end = case.dialect.split(case.data)
            assert end == len(case.data)
            case.dialect.decode(type_, payload)
        case "stream":
            header, length = decode_stream_header(case.data, case.dialect)
            if isinstance(header, SubgroupHeader):
                reader = ObjectReader(header, case.dialect)
                reader.feed(case.data[length:])
                reader.finish()
            else:
                fetch = FetchReader(case.dialect)
                fetch.feed(case.data[length:])
                fetch.finish()
        case "datagram":
            decode_datagram(case.data, case.dialect)


@parametrized("error")
def test_what_is_wrong_is_refused_with_its_code(case: Case) -> None:
    with pytest.raises(MoqtViolation) as caught:
        arrive(case)
    assert caught.value.code == number(case.meaning["error"])
    assert str(caught.value)
