"""Whatever a peer sends ends in a message, a wait for more or a refusal, in bounded memory."""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import RemoteProtocolError
from laps.types import (
    AnnounceInfo,
    DataDirection,
    NamespaceInfo,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    PeerMode,
    Reachability,
    SnsId,
    SubscribeInfo,
    TrackHash,
    TrackKey,
)
from laps.wire.control import MAX_MESSAGE_LENGTH, ControlDecoder, decode, encode
from laps.wire.extensions import (
    EXTENDED_CODECS,
    GoAway,
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
    RelayRequest,
)
from laps.wire.objects import (
    MAX_HEADER_LENGTH,
    DataStreamDecoder,
    decode_datagram,
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)
from laps.wire.peering import (
    CODECS,
    AnnounceInfoAdv,
    AnnounceInfoWd,
    Codec,
    Connect,
    ConnectResponse,
    NodeInfoAdv,
    NodeInfoWd,
    ResponseCode,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)

NODE = NodeInfo(NodeId(1), NodeType.EDGE, "relay", 1.5, 2.5, (NodePathItem(NodeId(2), 3),))
SUBSCRIBE = SubscribeInfo(7, NodeId(1), TrackHash(1, 2, TrackKey(3)), b"subscribe")
ANNOUNCE = AnnounceInfo(NodeId(1), (2, 3), 4)
REACHED = (Reachability(NodeId(2), 3, 0.5),)
VIAS = (NodeId(2), NodeId(3))
METRICS = NodeMetrics(7, NodeId(1), 0.5, 9, 8, "here", ("a", "b"), REACHED, VIAS, "relay:33435")
NAMESPACE = NamespaceInfo(7, NodeId(1), (b"conference", b"12"), b"video")

MESSAGES = [
    encode(Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, NODE)),
    encode(ConnectResponse(ResponseCode.OK, NODE)),
    encode(ConnectResponse(ResponseCode.NOT_AUTHORIZED, None)),
    encode(NodeInfoAdv(NODE)),
    encode(NodeInfoWd(NODE)),
    encode(SubscribeInfoAdv(SUBSCRIBE)),
    encode(SubscribeInfoWd(SUBSCRIBE)),
    encode(AnnounceInfoAdv(ANNOUNCE)),
    encode(AnnounceInfoWd(ANNOUNCE)),
    encode(SubscribeNodeSetAdv(SnsId(1), (NodeId(1), NodeId(2)))),
    encode(SubscribeNodeSetWd(SnsId(1))),
]
EXTENSIONS = [
    encode(message, codecs=EXTENDED_CODECS)
    for message in (
        NodeMetricsAdv(METRICS),
        NamespaceInfoAdv(NAMESPACE),
        NamespaceInfoWd(NamespaceInfo(7, NodeId(1), (b"conference",))),
        GoAway(5000, "relay:33434"),
        RelayRequest(32, NodeId(1), NodeId(2), 3, b"\x0d\0\0"),
    )
]
KEY = TrackKey(2)
STREAMS = [
    encode_new_stream_header(SnsId(1), KEY, 3, 4, 5) + b"hello",
    encode_new_stream_header(SnsId(1), KEY, 3, 4, 0) + encode_existing_stream_header(2) + b"yo",
    encode_new_stream_header(SnsId(2**31), KEY, 3, 4, 2**20) + bytes(40),
    b"\x1b\x02\0\0\0\1" + bytes(13) + b"\xc0\0\0\0\0\0\0\5hello",
]
DATAGRAMS = [
    encode_datagram_header(SnsId(1), KEY, 5) + b"hello",
    encode_datagram_header(SnsId(1), KEY, 64) + bytes(64),
    b"\x16\x00\0\0\0\1" + bytes(8) + b"\xc0\0\0\0\0\0\0\5hello",
]


# --- what a peer may do to bytes -------------------------------------------------------------


def flip(random: Random, data: bytearray, _: bytes) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def overwrite(random: Random, data: bytearray, _: bytes) -> None:
    data[random.randrange(len(data))] = random.choice((0, 1, 2, 3, 0x3F, 0x40, 0x80, 0xC0, 0xFF))


def cut(random: Random, data: bytearray, _: bytes) -> None:
    del data[random.randrange(len(data)) :]


def remove(random: Random, data: bytearray, _: bytes) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.randint(1, 8)]


def insert(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.randint(1, 8))


def duplicate(random: Random, data: bytearray, _: bytes) -> None:
    start = random.randrange(len(data))
    piece = data[start : start + random.randint(1, 32)]
    data[start:start] = piece


def splice(random: Random, data: bytearray, other: bytes) -> None:
    data[random.randrange(len(data)) :] = other[random.randrange(len(other)) :]


MUTATIONS = (flip, overwrite, cut, remove, insert, duplicate, splice)


def mutate(random: Random, corpus: list[bytes]) -> bytes:
    data = bytearray(random.choice(corpus))
    if random.random() < 0.3:
        data += random.choice(corpus)
    for _ in range(random.randint(1, 3)):
        if data:
            random.choice(MUTATIONS)(random, data, random.choice(corpus))
    return bytes(data)


def chunks(random: Random, data: bytes) -> list[bytes]:
    if random.random() < 0.5:
        return [data]
    at = random.randint(0, len(data))
    return [data[:at], data[at:]]


# --- what must hold --------------------------------------------------------------------------


def read_control(data: list[bytes], codecs: Mapping[int, Codec] = CODECS) -> None:
    decoder = ControlDecoder(codecs=codecs)
    for chunk in data:
        decoder.feed(chunk)
        for message in decoder:
            # What is taken from a peer can be sent on to the next.
            written = encode(message, codecs=codecs)
            assert decode(written, codecs=codecs) == (message, len(written))
        assert decoder.unfinished_bytes < 7 + MAX_MESSAGE_LENGTH


def read_extended(data: list[bytes]) -> None:
    read_control(data, EXTENDED_CODECS)


def read_stream(data: list[bytes]) -> None:
    decoder = DataStreamDecoder()
    for chunk in data:
        payload = 0
        for event in decoder.feed(chunk):
            if isinstance(event, (bytes, memoryview)):
                payload += len(event)
        assert payload <= len(chunk)
        assert len(decoder._unfinished) < MAX_HEADER_LENGTH
    decoder.finish()


def read_datagram(data: list[bytes]) -> None:
    for datagram in data:
        header, payload = decode_datagram(datagram)
        assert header.header_length + len(payload) == len(datagram)


Reader = Callable[[list[bytes]], None]


def refusal(read: Reader, data: list[bytes]) -> int | None:
    """The code the bytes are refused with; any other exception fails the test."""
    try:
        read(data)
    except RemoteProtocolError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("read", "corpus", "codes"),
    [
        pytest.param(read_control, MESSAGES, {34, 35}, id="control"),
        pytest.param(read_extended, EXTENSIONS, {34, 35}, id="extended"),
        pytest.param(read_stream, STREAMS, {35, 36}, id="stream"),
        pytest.param(read_datagram, DATAGRAMS, {35}, id="datagram"),
    ],
)
def test_mutated_bytes_are_read_or_refused(
    read: Reader, corpus: list[bytes], codes: set[int]
) -> None:
    random = Random(20_000)
    outcomes = Counter(refusal(read, chunks(random, mutate(random, corpus))) for _ in range(15_000))
    # Every way to end is seen often, or the mutations are too tame or too wild to say anything.
    assert set(outcomes) == {None, *codes}
    assert min(outcomes.values()) > 100


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_control, read_extended, read_stream, read_datagram):
        assert refusal(read, [data]) in {None, 34, 35, 36}
    # A right header in front takes the bytes further into the decoder.
    for message in MESSAGES:
        assert refusal(read_control, [message[:3], len(data).to_bytes(4), data]) in {None, 35}
    for message in EXTENSIONS:
        chunks = [message[:3], len(data).to_bytes(4), data]
        assert refusal(read_extended, chunks) in {None, 35}
        assert refusal(read_control, chunks) == 34
    assert refusal(read_stream, [STREAMS[0], data]) in {None, 35}
    assert refusal(read_datagram, [b"\x16\x00" + data]) in {None, 35}
