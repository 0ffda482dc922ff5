"""The peering session: its first words, its control stream, and how wrong steps are answered."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import (
    CloseCode,
    ConnectNotReceived,
    ConnectResponseNotReceived,
    InvalidEncoding,
    InvalidMessageType,
    RemoteProtocolError,
)
from laps.sessions.peer import (
    ControlReceived,
    Effect,
    EndStream,
    Event,
    PeerConnected,
    PeerRefused,
    PeerSession,
    SendControl,
    State,
)
from laps.types import DataDirection, NodeId, NodeInfo, NodePathItem, NodeType, PeerMode, SnsId
from laps.wire.control import MAX_MESSAGE_LENGTH, encode
from laps.wire.peering import (
    CODECS,
    Connect,
    ConnectResponse,
    MessageType,
    NodeInfoAdv,
    NodeInfoWd,
    ResponseCode,
    SubscribeNodeSetAdv,
)

US = NodeInfo(NodeId(1), NodeType.EDGE, "us", 0.0, 0.0, ())
THEM = NodeInfo(NodeId(2), NodeType.VIA, "them", 0.0, 0.0, ())
CONNECT = Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, THEM)
ADV = NodeInfoAdv(THEM)
OTHERS = (ADV, NodeInfoWd(THEM), SubscribeNodeSetAdv(SnsId(1), (NodeId(1),)))

# Stream ids: 0, 4 … bidirectional by the dialler, 1, 5 … by the side that was dialled.
CONTROL, NEXT_CONTROL = 0, 4


def dialled() -> PeerSession:
    """A session that was dialled and introduced."""
    session = PeerSession(US)
    session.receive(CONTROL, encode(CONNECT))
    return session


def dialling() -> PeerSession:
    session, _ = PeerSession.dial(Connect(PeerMode.DATA, DataDirection.UNIDIRECTIONAL, US), CONTROL)
    return session


def refused() -> PeerSession:
    session = PeerSession(US, lambda _: ResponseCode.NOT_AUTHORIZED)
    session.receive(CONTROL, encode(CONNECT))
    return session


# -- the introduction ------------------------------------------------------------------------------


def test_connect_is_answered_and_reported() -> None:
    session = PeerSession(US)
    assert session.receive(CONTROL, encode(CONNECT)) == [
        SendControl(CONTROL, encode(ConnectResponse(ResponseCode.OK, US))),
        PeerConnected(THEM, PeerMode.BOTH, DataDirection.BIDIRECTIONAL),
    ]
    assert session.state is State.ESTABLISHED
    assert session.peer_info == THEM


@pytest.mark.parametrize("mode", PeerMode)
@pytest.mark.parametrize("direction", DataDirection)
def test_mode_and_direction_are_what_the_dialler_asks_for(
    mode: PeerMode, direction: DataDirection
) -> None:
    asked = Connect(mode, direction, THEM)
    _, connected = PeerSession(US).receive(CONTROL, encode(asked))
    assert connected == PeerConnected(THEM, mode, direction)
    session, _ = PeerSession.dial(Connect(mode, direction, US), CONTROL)
    answer = encode(ConnectResponse(ResponseCode.OK, THEM))
    assert session.receive(CONTROL, answer) == [PeerConnected(THEM, mode, direction)]


@given(st.sets(st.integers(1, 200)))
def test_messages_may_be_cut_anywhere(cuts: set[int]) -> None:
    words = b"".join(map(encode, (CONNECT, *OTHERS)))
    session = PeerSession(US)
    out: list[Effect | Event] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(words)), len(words)]
    for start, end in pairwise(edges):
        out += session.receive(CONTROL, words[start:end])
    assert [type(e) for e in out[:2]] == [SendControl, PeerConnected]
    assert out[2:] == [ControlReceived(message) for message in OTHERS]
    assert session.control_messages == 4
    assert session.unfinished_bytes == 0


def test_an_unfinished_message_is_held() -> None:
    session = dialled()
    assert session.receive(CONTROL, encode(ADV)[:20]) == []
    assert session.unfinished_bytes == 20
    assert session.receive(CONTROL, encode(ADV)[20:]) == [ControlReceived(ADV)]
    assert session.unfinished_bytes == 0


def test_nothing_is_said_ahead_of_connect() -> None:
    session = PeerSession(US)
    assert session.send(ADV) == []
    assert session.receive(CONTROL, b"") == []


def test_the_dialler_introduces_itself_and_is_accepted() -> None:
    connect = Connect(PeerMode.DATA, DataDirection.UNIDIRECTIONAL, US)
    session, effects = PeerSession.dial(connect, CONTROL)
    assert effects == [SendControl(CONTROL, encode(connect))]
    assert session.send(ADV) == []
    answer = encode(ConnectResponse(ResponseCode.OK, THEM)) + encode(ADV)
    assert session.receive(CONTROL, answer) == [
        PeerConnected(THEM, PeerMode.DATA, DataDirection.UNIDIRECTIONAL),
        ControlReceived(ADV),
    ]
    assert session.send(ADV) == [SendControl(CONTROL, encode(ADV))]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [code for code in ResponseCode if code])
def test_a_dialler_that_is_not_admitted_is_told_why(code: ResponseCode) -> None:
    seen: list[Connect] = []

    def admit(connect: Connect) -> ResponseCode:
        seen.append(connect)
        return code

    session = PeerSession(US, admit)
    assert session.receive(CONTROL, encode(CONNECT)) == [
        SendControl(CONTROL, encode(ConnectResponse(code, None))),
        PeerRefused(code),
    ]
    assert seen == [CONNECT]
    assert session.state is State.REFUSED
    assert session.peer_info is None
    assert session.send(ADV) == []


@pytest.mark.parametrize("code", [1, 2, 3, 77])
def test_the_dialler_is_refused(code: int) -> None:
    session = dialling()
    answer = encode(ConnectResponse(code, None))
    assert session.receive(CONTROL, answer) == [PeerRefused(code)]
    assert session.state is State.REFUSED
    with pytest.raises(InvalidMessageType):
        session.receive(CONTROL, encode(ADV))


# -- wrong steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "wrong", "error", "code"),
    [
        (PeerSession(US), encode(ADV), ConnectNotReceived, 32),
        (PeerSession(US), encode(ConnectResponse(0, THEM)), ConnectNotReceived, 32),
        (dialling(), encode(ADV), ConnectResponseNotReceived, 33),
        (dialling(), encode(CONNECT), ConnectResponseNotReceived, 33),
        (dialled(), encode(CONNECT), InvalidMessageType, 34),
        (dialled(), encode(ConnectResponse(0, THEM)), InvalidMessageType, 34),
        (refused(), encode(ADV), InvalidMessageType, 34),
        (refused(), encode(CONNECT), InvalidMessageType, 34),
        (dialled(), b"\x01\x00\x03\x00\x00\x00\x00", InvalidMessageType, 34),
        (dialled(), b"\x01\x00\x63\x00\x00\x00\x00", InvalidMessageType, 34),
        (PeerSession(US), b"\x02\x00\x01\x00\x00\x00\x00", InvalidEncoding, 35),
        (dialled(), b"\x02\x00\x04\x00\x00\x00\x00", InvalidEncoding, 35),
        (dialled(), b"\x01\x00\x04\xff\xff\xff\xff", InvalidEncoding, 35),
        (dialled(), b"\x01\x00\x04\x00\x00\x00\x02ab", InvalidEncoding, 35),
        (dialled(), b"\x01\x00\x0a\x00\x00\x00\x04\x00\x00\x00\x00", InvalidEncoding, 35),
    ],
)
def test_a_wrong_message_raises_the_documents_code(
    session: PeerSession, wrong: bytes, error: type[RemoteProtocolError], code: int
) -> None:
    with pytest.raises(error) as raised:
        session.receive(CONTROL, wrong)
    assert raised.value.code == code


def test_an_oversized_message_is_refused_by_its_header() -> None:
    session = dialled()
    header = b"\x01\x00\x06" + (MAX_MESSAGE_LENGTH + 1).to_bytes(4)
    with pytest.raises(InvalidEncoding, match="message_length"):
        session.receive(CONTROL, header)


def test_a_message_this_peer_may_not_send_is_unknown() -> None:
    plain = {kind: codec for kind, codec in CODECS.items() if kind != MessageType.NODE_INFO_ADV}
    session = PeerSession(US, codecs=plain)
    session.receive(CONTROL, encode(CONNECT))
    with pytest.raises(InvalidMessageType):
        session.receive(CONTROL, encode(ADV))


@pytest.mark.parametrize(
    ("session", "error", "code"),
    [
        (PeerSession(US), ConnectNotReceived, 32),
        (dialling(), ConnectResponseNotReceived, 33),
        (refused(), InvalidMessageType, 34),
    ],
)
def test_data_ahead_of_the_introduction_closes(
    session: PeerSession, error: type[RemoteProtocolError], code: int
) -> None:
    with pytest.raises(error, match="a data stream") as raised:
        session.require_established("a data stream")
    assert raised.value.code == code


def test_data_may_follow_the_introduction() -> None:
    session = dialled()
    session.require_established("a data stream")
    assert session.state is State.ESTABLISHED


# -- the latch -------------------------------------------------------------------------------------


def test_control_moves_to_the_dialler_s_new_stream() -> None:
    session = dialled()
    session.receive(CONTROL, encode(ADV)[:10])
    assert session.receive(NEXT_CONTROL, encode(ADV)) == [
        EndStream(CONTROL, CloseCode.CONTROL_STREAM_SWITCHED),
        ControlReceived(ADV),
    ]
    assert session.receive(NEXT_CONTROL, encode(ADV)) == [ControlReceived(ADV)]
    assert session.send(ADV) == [SendControl(NEXT_CONTROL, encode(ADV))]


def test_connect_is_not_said_again_on_the_new_stream() -> None:
    session = dialled()
    with pytest.raises(InvalidMessageType):
        session.receive(NEXT_CONTROL, encode(CONNECT))


def test_control_moves_ahead_of_connect_too() -> None:
    session = PeerSession(US)
    session.receive(CONTROL, encode(CONNECT)[:10])
    end, answer, connected = session.receive(NEXT_CONTROL, encode(CONNECT))
    assert end == EndStream(CONTROL, CloseCode.CONTROL_STREAM_SWITCHED)
    assert answer == SendControl(NEXT_CONTROL, encode(ConnectResponse(ResponseCode.OK, US)))
    assert isinstance(connected, PeerConnected)


def test_only_the_dialler_opens_control_streams() -> None:
    session = dialling()
    session.receive(CONTROL, encode(ConnectResponse(0, THEM)))
    with pytest.raises(InvalidEncoding, match="was dialled opened"):
        session.receive(1, encode(ADV))


def test_what_was_under_way_on_the_old_stream_is_let_go() -> None:
    # The dialler cannot know how much of the old stream was read ahead of its move, and QUIC keeps
    # no order between two streams.
    session = dialled()
    session.receive(NEXT_CONTROL, encode(ADV))
    assert session.receive(CONTROL, encode(ADV)) == []
    assert session.receive(NEXT_CONTROL, encode(ADV)) == [ControlReceived(ADV)]


def test_a_path_comes_through_whole() -> None:
    told = NodeInfo(NodeId(9), NodeType.EDGE, "far", 1.5, -2.5, (NodePathItem(NodeId(2), 25_000),))
    assert dialled().receive(CONTROL, encode(NodeInfoAdv(told))) == [
        ControlReceived(NodeInfoAdv(told))
    ]
