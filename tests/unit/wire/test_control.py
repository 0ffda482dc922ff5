"""Control messages there and back, and a control stream cut anywhere."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import (
    InvalidEncoding,
    InvalidMessageType,
    LocalProtocolError,
    RemoteProtocolError,
)
from laps.types import (
    AnnounceInfo,
    DataDirection,
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    PeerMode,
    SnsId,
    SubscribeInfo,
    TrackHash,
    TrackKey,
)
from laps.wire.control import MAX_MESSAGE_LENGTH, ControlDecoder, decode, encode
from laps.wire.peering import (
    CODECS,
    AnnounceInfoAdv,
    AnnounceInfoWd,
    Codec,
    Connect,
    ConnectResponse,
    Message,
    MessageType,
    NodeInfoAdv,
    NodeInfoWd,
    ResponseCode,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)

# No test times a wall clock, Hypothesis included.
quick = settings(deadline=None, max_examples=50)

u64 = st.integers(0, 2**64 - 1)
node_ids = u64.map(NodeId)
sns_ids = st.integers(1, 2**32 - 1).map(SnsId)
hashes = st.lists(u64, max_size=4).map(tuple)
node_infos = st.builds(
    NodeInfo,
    node_ids,
    st.sampled_from(NodeType),
    st.text(max_size=80),
    st.floats(-180, 180),
    st.floats(-90, 90),
    st.lists(st.builds(NodePathItem, node_ids, u64), max_size=3).map(tuple),
)
subscribe_infos = st.builds(
    SubscribeInfo,
    st.integers(0, 2**16 - 1),
    node_ids,
    st.builds(TrackHash, u64, u64, u64),
    st.binary(max_size=40),
)
announce_infos = st.builds(AnnounceInfo, node_ids, hashes, u64)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Connect, st.sampled_from(PeerMode), st.sampled_from(DataDirection), node_infos),
    st.builds(ConnectResponse, st.just(ResponseCode.OK), node_infos),
    st.builds(ConnectResponse, st.integers(1, 2**16 - 1), st.none()),
    st.builds(NodeInfoAdv, node_infos),
    st.builds(NodeInfoWd, node_infos),
    st.builds(SubscribeInfoAdv, subscribe_infos),
    st.builds(SubscribeInfoWd, subscribe_infos),
    st.builds(AnnounceInfoAdv, announce_infos),
    st.builds(AnnounceInfoWd, announce_infos),
    st.builds(SubscribeNodeSetAdv, sns_ids, st.lists(node_ids, max_size=4).map(tuple)),
    st.builds(SubscribeNodeSetWd, sns_ids),
)

NODE = NodeInfo(NodeId(1), NodeType.EDGE)
TRACK = TrackHash(1, 2, TrackKey(3))
SUBSCRIBE = SubscribeInfo(7, NodeId(1), TRACK, b"subscribe")
WITHDRAW = encode(SubscribeNodeSetWd(SnsId(1)))


def read(decoder: ControlDecoder, *chunks: bytes) -> list[Message]:
    out: list[Message] = []
    for chunk in chunks:
        decoder.feed(chunk)
        out += decoder
    return out


@quick
@given(messages, st.binary(max_size=8), st.binary(max_size=8))
def test_every_message_survives_the_wire(message: Message, before: bytes, after: bytes) -> None:
    data = encode(message)
    assert decode(before + data + after, len(before)) == (message, len(before) + len(data))


@quick
@given(messages, st.data())
def test_a_message_cut_short_waits(message: Message, draw: st.DataObject) -> None:
    data = encode(message)
    cut = draw.draw(st.integers(0, len(data) - 1))
    assert decode(data[:cut]) is None


@quick
@given(st.lists(messages, max_size=5), st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(
    sent: list[Message], draw: st.DataObject
) -> None:
    stream = b"".join(map(encode, sent))
    cuts = draw.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    chunks = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]
    decoder = ControlDecoder()
    assert read(decoder, *chunks) == sent
    assert decoder.unfinished_bytes == 0


def test_the_stream_may_come_byte_by_byte() -> None:
    sent: list[Message] = [
        NodeInfoAdv(NODE),
        SubscribeInfoAdv(SUBSCRIBE),
        SubscribeNodeSetWd(SnsId(2)),
    ]
    stream = b"".join(map(encode, sent))
    assert read(ControlDecoder(), *(stream[i : i + 1] for i in range(len(stream)))) == sent


def test_every_type_of_the_document_has_a_codec() -> None:
    assert list(CODECS) == list(MessageType) == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]


def test_known_response_codes_have_names_and_others_stay_numbers() -> None:
    decoded = decode(encode(ConnectResponse(ResponseCode.NOT_AUTHORIZED, None)))
    assert decoded is not None
    assert isinstance(decoded[0], ConnectResponse)
    assert decoded[0].response_code is ResponseCode.NOT_AUTHORIZED
    decoded = decode(encode(ConnectResponse(4, None)))
    assert decoded is not None
    assert decoded[0] == ConnectResponse(4, None)


def test_long_subscribe_data_is_a_view_of_the_chunk_it_came_in() -> None:
    chunk = encode(SubscribeInfoAdv(replace(SUBSCRIBE, subscribe_data=bytes(300))))
    (message,) = read(ControlDecoder(), chunk)
    assert isinstance(message, SubscribeInfoAdv)
    view = message.subscribe_info.subscribe_data
    assert isinstance(view, memoryview)
    assert view.obj is chunk


def test_what_two_neighbours_flood_is_read_once() -> None:
    chunk = encode(SubscribeInfoAdv(SUBSCRIBE))
    (message,) = read(ControlDecoder(), chunk)
    (again,) = read(ControlDecoder(), chunk)
    assert again is message
    (withdrawal,) = read(ControlDecoder(), encode(SubscribeInfoWd(SUBSCRIBE)))
    assert withdrawal == SubscribeInfoWd(SUBSCRIBE)


def test_a_message_outlives_the_chunks_that_follow() -> None:
    data = encode(SubscribeInfoAdv(SUBSCRIBE))
    decoder = ControlDecoder()
    (message,) = read(decoder, data[:20], data[20:])
    read(decoder, *[WITHDRAW[:3], WITHDRAW[3:]] * 3)
    assert message == SubscribeInfoAdv(SUBSCRIBE)
    assert hash(message) == hash(SubscribeInfoAdv(SUBSCRIBE))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (SubscribeNodeSetWd(SnsId(0)), "SUBSCRIBE_NODE_SET_WD: SNS id 0"),
        (SubscribeNodeSetAdv(SnsId(0), ()), "SNS id 0"),
        (SubscribeNodeSetAdv(SnsId(2**32), ()), "SUBSCRIBE_NODE_SET_ADV: "),
        (SubscribeNodeSetAdv(SnsId(1), (NodeId(-1),)), "SUBSCRIBE_NODE_SET_ADV: "),
        (
            SubscribeNodeSetAdv(SnsId(1), (NodeId(1),) * (MAX_MESSAGE_LENGTH // 8)),
            "1048580 bytes are more than the 1048576 a peer takes",
        ),
        (NodeInfoAdv(NodeInfo(NodeId(2**64), NodeType.EDGE)), "NODE_INFO_ADV: "),
        (NodeInfoAdv(NodeInfo(NodeId(1), NodeType.EDGE, longitude=181)), "longitude 181"),
        (NodeInfoAdv(NodeInfo(NodeId(1), NodeType.EDGE, latitude=float("nan"))), "latitude nan"),
        (NodeInfoAdv(NodeInfo(NodeId(1), NodeType.EDGE, contact="\ud800")), "surrogates"),
        (ConnectResponse(ResponseCode.OK, None), "response code 0 needs the node information"),
        (ConnectResponse(2, NODE), "response code 2 goes without node information"),
        (ConnectResponse(2**16, None), "CONNECT_RESPONSE: "),
        (SubscribeInfoAdv(SubscribeInfo(2**16, NodeId(1), TRACK, b"")), "SUBSCRIBE_"),
        (AnnounceInfoAdv(AnnounceInfo(NodeId(1), (2**64,))), "ANNOUNCE_INFO_ADV: "),
    ],
)
def test_what_the_document_forbids_is_never_written(message: Message, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        encode(message)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ("02 0001 00000000", InvalidEncoding, "protocol version 2 is not 1"),
        ("01 0003 00000000", InvalidMessageType, "message type 3 has no place"),
        ("01 000a 00100001", InvalidEncoding, "message_length 1048577 is more than 1048576"),
        ("01 000b 00000003 000001", InvalidEncoding, "SUBSCRIBE_NODE_SET_WD: .* ends inside id"),
        ("01 000b 00000005 0000000100", InvalidEncoding, "1 bytes follow the last field"),
        ("01 0008 00000008 0000000000000001", InvalidEncoding, "ends before name_hash"),
        ("01 0002 00000002 0000", InvalidEncoding, "response code 0 needs the node information"),
        ("01 0002 00000003 000100", InvalidEncoding, "response code 1 goes without node inform"),
        ("01 0001 00000001 03", InvalidEncoding, "peer mode 3 is unknown; known: 0 control, 1"),
    ],
)
def test_a_refusal_says_what_is_wrong(
    data: str, error: type[RemoteProtocolError], words: str
) -> None:
    with pytest.raises(error, match=words):
        decode(bytes.fromhex(data))


def test_messages_ahead_of_an_error_are_still_read() -> None:
    decoder = ControlDecoder()
    decoder.feed(WITHDRAW + b"\x09" * 7)
    assert next(decoder) == SubscribeNodeSetWd(SnsId(1))
    with pytest.raises(InvalidEncoding):
        next(decoder)


def test_a_lost_stream_stays_lost_with_the_same_error() -> None:
    decoder = ControlDecoder()
    decoder.feed(bytes.fromhex("01 0003 00000000"))
    with pytest.raises(InvalidMessageType) as first:
        next(decoder)
    for again in (lambda: decoder.feed(WITHDRAW), lambda: next(decoder)):
        with pytest.raises(InvalidMessageType) as later:
            again()
        assert later.value is first.value


def test_a_chunk_waits_for_the_messages_of_the_last() -> None:
    decoder = ControlDecoder()
    decoder.feed(WITHDRAW + WITHDRAW)
    assert next(decoder) == SubscribeNodeSetWd(SnsId(1))
    with pytest.raises(LocalProtocolError, match="before the messages of the last were read"):
        decoder.feed(WITHDRAW)
    assert list(decoder) == [SubscribeNodeSetWd(SnsId(1))]
    assert read(decoder, WITHDRAW) == [SubscribeNodeSetWd(SnsId(1))]


def test_the_bound_can_be_set() -> None:
    data = encode(SubscribeNodeSetAdv(SnsId(1), (NodeId(1),)))
    assert decode(data, max_message_length=12) is not None
    with pytest.raises(InvalidEncoding, match="message_length 12 is more than 11"):
        decode(data, max_message_length=11)
    with pytest.raises(InvalidEncoding, match="message_length 12 is more than 11"):
        read(ControlDecoder(max_message_length=11), data[:7])


def test_a_smaller_table_refuses_the_types_it_lacks() -> None:
    codecs = {1: CODECS[MessageType.CONNECT]}
    with pytest.raises(InvalidMessageType):
        decode(WITHDRAW, codecs=codecs)
    with pytest.raises(InvalidMessageType):
        read(ControlDecoder(codecs=codecs), WITHDRAW)


def test_a_set_of_100_000_nodes_fits() -> None:
    message = SubscribeNodeSetAdv(SnsId(1), tuple(map(NodeId, range(100_000))))
    data = encode(message)
    assert read(ControlDecoder(), data[:500_000], data[500_000:]) == [message]


def test_a_long_message_is_looked_at_when_it_begins_and_when_it_is_whole() -> None:
    class Counted(dict[int, Codec]):
        looked_at = 0

        def get(self, *args: Any) -> Any:
            self.looked_at += 1
            return super().get(*args)

    codecs = Counted(CODECS)
    data = encode(SubscribeNodeSetAdv(SnsId(1), (NodeId(1),) * 100))
    read(ControlDecoder(codecs=codecs), *(data[at : at + 8] for at in range(0, len(data), 8)))
    assert codecs.looked_at == 2


def test_what_is_held_is_one_unfinished_message() -> None:
    header = bytes.fromhex("01 000a 00100000")
    decoder = ControlDecoder()
    tracemalloc.start()
    try:
        assert read(decoder, header) == []
        # The length the peer claims takes no memory before its bytes are there.
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    assert read(decoder, *[bytes(1024)] * 1023) == []
    assert decoder.unfinished_bytes == 7 + 1023 * 1024
