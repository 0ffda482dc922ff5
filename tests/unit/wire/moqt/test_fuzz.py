"""Whatever a client sends ends in a message or an object, a wait for more, or a violation."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.wire.buffer import Incomplete, encode_varint
from laps.wire.moqt import draft14, draft16
from laps.wire.moqt.boundaries import Boundary, BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import (
    SubgroupHeader,
    decode_datagram,
    decode_stream_header,
    encode_datagram,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from laps.wire.moqt.fetch import FetchReader
from laps.wire.moqt.objects import Object, ObjectReader
from laps.wire.moqt.translate import StreamTranslator, translate_datagram
from unit.wire.moqt.vectors import with_key
from unit.wire.test_fuzz import chunks, mutate

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[Dialect, list[bytes]], None]

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
OTHER = {DRAFT14: DRAFT16, DRAFT16: DRAFT14}
TYPES = {DRAFT14: draft14.MessageType, DRAFT16: draft16.MessageType}


def corpus(dialect: Dialect, key: str) -> list[bytes]:
    return [case.data for case in with_key(key) if case.dialect is dialect and case.data]


def read_messages(dialect: Dialect, data: list[bytes]) -> None:
    stream, offset = b"".join(data), 0
    try:
        while True:
            type_, payload, offset = dialect.split(stream, offset)
            message = dialect.decode(type_, payload)
            # What is taken from a client can be said again.
            again = dialect.encode(message)
            assert dialect.decode(*dialect.split(again)[:2]) == message
    except Incomplete:
        pass


def read_stream(dialect: Dialect, data: list[bytes]) -> None:
    stream = b"".join(data)
    try:
        header, length = decode_stream_header(stream, dialect)
    except Incomplete:
        return
    pieces = [stream[length:]] if len(data) == 1 else [stream[length:][:3], stream[length:][3:]]
    if not isinstance(header, SubgroupHeader):
        fetch = FetchReader(dialect)
        for piece in pieces:
            fetch.feed(piece)
        fetch.finish()
        return
    reader = ObjectReader(header, dialect)
    scanner = BoundaryScanner(dialect, header.has_extensions)
    objects: list[Object] = []
    found: list[Boundary] = []
    refusals = []
    for consumer, into in ((reader, objects), (scanner, found)):
        try:
            for piece in pieces:
                into += consumer.feed(piece)  # type: ignore[operator]
            consumer.finish()
        except MoqtViolation as error:
            refusals.append(error)
    # Both go by the same objects, and refuse the same streams.
    assert len(refusals) in (0, 2)
    if refusals:
        raise refusals[0]
    assert [(item.object_id, len(item.payload), item.status) for item in objects] == [
        (row[0], row[4] - row[3], row[5]) for row in found
    ]
    translator = StreamTranslator(dialect, OTHER[dialect], header.has_extensions)
    written = b"".join(translator.feed(piece) for piece in pieces)
    translator.finish()
    ObjectReader(header, OTHER[dialect]).feed(written)


def read_datagram(dialect: Dialect, data: list[bytes]) -> None:
    for datagram in data:
        said = decode_datagram(datagram, dialect)
        assert decode_datagram(encode_datagram(said, dialect), dialect) == said
        other = translate_datagram(datagram, dialect, OTHER[dialect], 1)
        assert other is None or decode_datagram(other, OTHER[dialect])


def refusal(read: Reader, dialect: Dialect, data: list[bytes]) -> int | None:
    """The code the bytes are refused with; any other exception fails the test."""
    try:
        read(dialect, data)
    except MoqtViolation as error:
        return error.code
    return None


@BOTH
@pytest.mark.parametrize(
    ("read", "key", "codes"),
    [
        pytest.param(read_messages, "message", {3, 6}, id="messages"),
        pytest.param(read_stream, "stream", {1, 3}, id="stream"),
        pytest.param(read_datagram, "datagram", {3}, id="datagram"),
    ],
)
def test_mutated_bytes_are_read_or_refused(
    dialect: Dialect, read: Reader, key: str, codes: set[int]
) -> None:
    random = Random(20_000 + dialect.draft)
    examples = corpus(dialect, key)
    outcomes = Counter(
        refusal(read, dialect, chunks(random, mutate(random, examples))) for _ in range(5_000)
    )
    # Every way to end is seen, or the mutations are too tame or too wild to say anything.
    assert set(outcomes) == {None, *codes}
    assert outcomes[None] > 300
    assert outcomes[3] > 300


@BOTH
@settings(max_examples=60)
@given(data=st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(dialect: Dialect, data: bytes) -> None:
    for read in (read_messages, read_stream, read_datagram):
        assert refusal(read, dialect, [data]) in {None, 1, 3, 6}
    # A right type in front takes the bytes further into the decoder.
    for type_ in TYPES[dialect]:
        message = encode_varint(type_) + len(data).to_bytes(2) + data
        assert refusal(read_messages, dialect, [message]) in {None, 3, 6}
    for first in (0x05, 0x10, 0x11, 0x1D):
        assert refusal(read_stream, dialect, [encode_varint(first), data]) in {None, 1, 3}
