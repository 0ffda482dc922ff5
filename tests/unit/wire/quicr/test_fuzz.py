"""Whatever a client sends ends in a message, a wait for more, or a violation; in bounded memory."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.sessions.quicr import Closed, QuicrSession
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import decode_datagram as decode_between_relays
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.quicr.carried import carried_of, datagram_rank, encode_carried
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import PIECE_BYTES, Reassembler, cut, recut
from laps.wire.quicr.messages import (
    MAX_FRAGMENT_BYTES,
    MAX_MESSAGE_BYTES,
    Fin,
    Fragment,
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
    Type,
    decode_datagram,
    encode,
    encode_datagram,
)
from laps.wire.quicr.names import NameRefused, Pattern, decode_name, encode_name
from unit.wire.quicr.vectors import with_key
from unit.wire.test_fuzz import chunks, mutate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Reader = Callable[[list[bytes]], None]

NAME = b"demo/clock"
MEDIA: list[Message] = [
    StartPoint(Location(3, 0)),
    Fragment(3, 0, 0, b"hello", False),
    Fragment(3, 0, 5, b"world", True),
    Fragment(3, 1, 0, b"", True),
    Fragment(4, 0, 0, b"again", True),
    StartPoint(Location(70, 1000)),
    Fragment(70, 1000, 0, bytes(70), True),
    Fin(Location(70, 1001)),
]


def joined(*messages: Message) -> bytes:
    return b"".join(map(encode, messages))


# What the other side says where it opened the stream, and where we did.
OPENED_THERE = [
    joined(Subscribe(NAME), Subscribe(NAME), SubscribeCancel(NAME, "enough")),
    joined(Subscribe(bytes(16), 64, datagram_stream_id=700), SubscribeCancel(bytes(16))),
    joined(PublishIntent(NAME, True), *MEDIA),
    joined(PublishIntent(b"a/b"), *(part for part in cut(0, 0, bytes(40), 7))),
]
SUBSCRIBED = [
    joined(SubscribeReply(Response.OK), *MEDIA),
    joined(SubscribeReply(Response.REDIRECT, "go"), RelayRedirect("relay:33435")),
    joined(*cut(0, 0, bytes(40), 7), SubscribeReply(Response.EXPIRED, "too late")),
]
PUBLISHED = [
    joined(PublishIntentOk(5), RelayRedirect("relay:33435")),
    joined(SubscribeReply(Response.FAIL, "no"), SubscribeCancel(NAME, "enough")),
]
DATAGRAMS = [
    *(case.data for case in with_key("datagram")),
    *(encode_datagram(1, part, Terms(9)) for part in cut(9, 0, bytes(range(40)), 7)),
    *(encode_datagram(1, part, Terms(9)) for part in cut(9, 0, bytes(range(40)), 9)),
]
CARRIED = [
    *(case.data for case in with_key("carried")),
    *(encode_carried(1, part, Terms(9, 1)) for part in cut(9, 0, bytes(range(40)), 7)),
]


class Mute:
    """A wire that nothing is heard on; a `Wire`."""

    def open_stream(self) -> int:
        return 1

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        pass

    def end_stream(self, stream_id: int, code: int) -> None:
        pass


def read_messages(data: list[bytes]) -> None:
    reader = MessageReader()
    for chunk in data:
        for message in reader.feed(chunk):
            check_name(message)
            if isinstance(message, Fragment):
                again = list(recut(message, 3))
                assert b"".join(part.data for part in again) == message.data
            # What is taken can be said again, but for words that were no UTF-8.
            if "\ufffd" not in repr(message):
                assert MessageReader().feed(encode(message)) == [message]
        assert len(reader._held) < 2 + MAX_MESSAGE_BYTES


def check_name(message: Message) -> None:
    if isinstance(message, Subscribe):
        pattern = Pattern(message.name, message.mask)
        try:
            pattern.check()
        except NameRefused:
            return
        assert len(pattern.prefix) < 33
    elif isinstance(message, PublishIntent):
        try:
            track = decode_name(message.name)
        except NameRefused:
            return
        assert decode_name(encode_name(track)) == track


def converse(session: QuicrSession, stream_id: int, data: list[bytes]) -> None:
    over = False
    for number, chunk in enumerate(data, 1):
        for event in session.receive(stream_id, chunk, fin=number == len(data)):
            assert not over
            over = isinstance(event, Closed)
    for stream in list(session.streams.values()):
        session.close(stream)
    assert not session.streams


def read_opened(data: list[bytes]) -> None:
    converse(QuicrSession(Mute()), 4, data)


def read_subscribed(data: list[bytes]) -> None:
    session = QuicrSession(Mute())
    converse(session, session.open(Subscribe(NAME)).id, data)


def read_published(data: list[bytes]) -> None:
    session = QuicrSession(Mute())
    converse(session, session.open(PublishIntent(NAME)).id, data)


class Sink:
    """What a relay does with fragments, in bounds."""

    def __init__(self) -> None:
        self.objects = Reassembler(8 * PIECE_BYTES, 4, 4096)
        # The end of an object is here, and contradicts what says otherwise.
        self.objects.add(Fragment(9, 0, 35, bytes(range(35, 40)), True))

    def add(self, fragment: Fragment, terms: Terms) -> Iterator[bytes]:
        try:
            new, _ = self.objects.add(fragment)
            for item in new:
                for part in recut(item, 5):
                    yield encode_datagram(1, part, terms)
        finally:
            assert self.objects.size <= 8 * PIECE_BYTES
            assert len(self.objects.open) <= 4


def read_datagrams(data: list[bytes]) -> None:
    sink = Sink()
    for datagram in data:
        said = decode_datagram(datagram)
        again = encode_datagram(said.stream_id, said.fragment, said.terms)
        assert decode_datagram(again) == said
        for part in sink.add(said.fragment, said.terms):
            assert decode_datagram(part).fragment.end <= 4096
        encode_carried(said.stream_id, said.fragment, said.terms)


def read_carried(data: list[bytes]) -> None:
    sink = Sink()
    for datagram in data:
        assert 0 <= datagram_rank(datagram) < 512
        carried = carried_of(decode_between_relays(datagram, DRAFT16))
        if carried is not None:
            assert all(map(decode_datagram, sink.add(*carried)))
            again = encode_carried(1, *carried)
            assert carried_of(decode_between_relays(again, DRAFT16)) == carried


def refusal(read: Reader, data: list[bytes]) -> int | None:
    """The code the bytes are refused with, in words; any other exception fails the test."""
    try:
        read(data)
    except QuicrViolation as error:
        return error.code if str(error) else 0
    except MoqtViolation:
        assert read is read_carried  # it is MoQT's, around what is QUICR's
        return -1
    return None


@pytest.mark.parametrize(
    ("read", "corpus", "codes"),
    [
        pytest.param(read_messages, OPENED_THERE + SUBSCRIBED + PUBLISHED, {2}, id="messages"),
        pytest.param(read_opened, OPENED_THERE, {1, 2}, id="opened"),
        pytest.param(read_subscribed, SUBSCRIBED, {1, 2}, id="subscribed"),
        pytest.param(read_published, PUBLISHED, {1, 2}, id="published"),
        pytest.param(read_datagrams, DATAGRAMS, {1, 2, 3}, id="datagrams"),
        pytest.param(read_carried, CARRIED, {-1, 1, 3}, id="carried"),
    ],
)
def test_mutated_bytes_are_read_or_refused(
    read: Reader, corpus: list[bytes], codes: set[int]
) -> None:
    for data in corpus:
        assert refusal(read, [data]) in (None, 3)  # one vector is at the largest offset
    random = Random(20_000)
    outcomes = Counter(refusal(read, chunks(random, mutate(random, corpus))) for _ in range(6_000))
    # Every way to end is seen, or the mutations are too tame or too wild to say anything.
    assert set(outcomes) == {None, *codes}
    assert outcomes[None] > 100
    assert outcomes.total() - outcomes[None] > 200


def test_fragments_of_one_object_that_contradict_each_other_cost_that_object_only() -> None:
    random = Random(7)
    sink, whole = Reassembler(64 * PIECE_BYTES, 8, 64), Counter[str]()
    for number in range(3_000):
        group = number // 60
        start, size = random.randrange(40), random.randrange(30)
        last = random.random() < 0.1
        fragment = Fragment(group, random.randrange(5), start, bytes(size), last)
        try:
            _, payload = sink.add(fragment)
        except QuicrViolation as error:
            whole[QuicrCode(error.code).name] += 1
            assert Location(group, fragment.object_id) not in sink.open
        else:
            whole["whole"] += payload is not None
        assert len(sink.open) <= 8
        assert sink.size <= 64 * PIECE_BYTES
    assert set(whole) == {"whole", "PROTOCOL_VIOLATION", "TOO_LARGE"}
    sink.clear()
    assert sink.size == 0


@settings(max_examples=60)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_messages, read_opened, read_subscribed, read_published, read_datagrams):
        assert refusal(read, [data]) in {None, 1, 2, 3}
    assert refusal(read_carried, [data]) in {None, -1, 1, 3}
    # A right length and type in front take the bytes further into the decoder.
    for type_ in Type:
        message = (1 + len(data)).to_bytes(2) + bytes((type_,)) + data
        assert refusal(read_messages, [message]) in {None, 2}
        for read in (read_opened, read_subscribed, read_published):
            assert refusal(read, [message]) in {None, 1, 2}
    extension = b"\x7c\x51" + bytes((len(data) & 0x3F,)) + data
    carried = b"\x05\1\2\x80\x40" + bytes((len(extension),)) + extension + b"payload"
    assert refusal(read_carried, [carried]) in {None, -1, 1, 3}


@pytest.mark.parametrize("size", [1, 2, 100, 65_535])
def test_a_message_of_any_length_is_waited_for_and_no_longer(size: int) -> None:
    head = size.to_bytes(2)
    session = QuicrSession(Mute())
    assert session.receive(4, head + b"\5" * (size - 1), fin=False) == []
    with pytest.raises(QuicrViolation):
        session.receive(4, b"\5", fin=False)
    assert MAX_FRAGMENT_BYTES < MAX_MESSAGE_BYTES == 65_535
