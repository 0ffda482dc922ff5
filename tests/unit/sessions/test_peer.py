"""The peering session: its first words, its streams, and what each wrong step is answered with."""

from __future__ import annotations

import pytest

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
    DatagramReceived,
    DataReceived,
    EndStream,
    PeerConnected,
    PeerRefused,
    PeerSession,
    SendControl,
    State,
)
from laps.types import DataDirection, NodeId, NodeInfo, NodeType, PeerMode, SnsId
from laps.wire.control import encode
from laps.wire.objects import (
    NewStreamHeader,
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)
from laps.wire.peering import Connect, ConnectResponse, NodeInfoAdv, ResponseCode

US = NodeInfo(NodeId(1), NodeType.EDGE, "us", 0.0, 0.0, ())
THEM = NodeInfo(NodeId(2), NodeType.VIA, "them", 0.0, 0.0, ())
CONNECT = Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, THEM)
ADV = NodeInfoAdv(THEM)

# Stream ids: 0, 4 … bidirectional by the dialler, 1 … by the dialled, 2 and 3 … unidirectional.
CONTROL, NEXT_CONTROL, DATA = 0, 4, 2


def dialled() -> PeerSession:
    """A session that was dialled and introduced."""
    session = PeerSession(US)
    session.receive(CONTROL, encode(CONNECT), False)
    return session


def dialling() -> PeerSession:
    session, _ = PeerSession.dial(Connect(PeerMode.DATA, DataDirection.UNIDIRECTIONAL, US), CONTROL)
    return session


def test_connect_is_answered_and_reported() -> None:
    session = PeerSession(US)
    assert session.receive(CONTROL, encode(CONNECT), False) == [
        SendControl(CONTROL, encode(ConnectResponse(ResponseCode.OK, US))),
        PeerConnected(THEM, PeerMode.BOTH, DataDirection.BIDIRECTIONAL),
    ]
    assert session.state is State.ESTABLISHED
    assert session.peer_info == THEM


def test_connect_may_come_byte_by_byte() -> None:
    session = PeerSession(US)
    out = [e for byte in encode(CONNECT) for e in session.receive(CONTROL, bytes([byte]), False)]
    assert [type(e) for e in out] == [SendControl, PeerConnected]


def test_the_dialler_introduces_itself_and_is_accepted() -> None:
    connect = Connect(PeerMode.DATA, DataDirection.UNIDIRECTIONAL, US)
    session, effects = PeerSession.dial(connect, CONTROL)
    assert effects == [SendControl(CONTROL, encode(connect))]
    answer = encode(ConnectResponse(ResponseCode.OK, THEM)) + encode(ADV)
    assert session.receive(CONTROL, answer, False) == [
        PeerConnected(THEM, PeerMode.DATA, DataDirection.UNIDIRECTIONAL),
        ControlReceived(ADV),
    ]


@pytest.mark.parametrize("code", [1, 2, 3, 77])
def test_the_dialler_is_refused(code: int) -> None:
    session = dialling()
    answer = encode(ConnectResponse(code, None))
    assert session.receive(CONTROL, answer, False) == [PeerRefused(code)]
    assert session.state is State.REFUSED
    with pytest.raises(InvalidMessageType):
        session.receive(CONTROL, encode(ADV), False)


@pytest.mark.parametrize(
    ("session", "wrong", "error", "code"),
    [
        (PeerSession(US), encode(ADV), ConnectNotReceived, 32),
        (PeerSession(US), encode(ConnectResponse(0, THEM)), ConnectNotReceived, 32),
        (dialling(), encode(ADV), ConnectResponseNotReceived, 33),
        (dialling(), encode(CONNECT), ConnectResponseNotReceived, 33),
        (dialled(), encode(CONNECT), InvalidMessageType, 34),
        (dialled(), encode(ConnectResponse(0, THEM)), InvalidMessageType, 34),
        (dialled(), b"\x01\x00\x03\x00\x00\x00\x00", InvalidMessageType, 34),
        (dialled(), b"\x02\x00\x04\x00\x00\x00\x00", InvalidEncoding, 35),
        (dialled(), b"\x01\x00\x04\xff\xff\xff\xff", InvalidEncoding, 35),
    ],
)
def test_a_wrong_message_raises_the_documents_code(
    session: PeerSession, wrong: bytes, error: type[RemoteProtocolError], code: int
) -> None:
    with pytest.raises(error) as raised:
        session.receive(CONTROL, wrong, False)
    assert raised.value.code == code


def test_data_ahead_of_the_introduction_closes() -> None:
    stream = encode_new_stream_header(SnsId(1), 2, 3, 4, 0)
    with pytest.raises(ConnectNotReceived):
        PeerSession(US).receive(DATA, stream, False)
    with pytest.raises(ConnectResponseNotReceived):
        dialling().receive(DATA + 1, stream, False)
    with pytest.raises(ConnectNotReceived):
        PeerSession(US).receive_datagram(encode_datagram_header(SnsId(1), 2, 0))


def test_control_moves_to_the_dialler_s_new_stream() -> None:
    session = dialled()
    session.receive(CONTROL, encode(ADV)[:10], False)
    assert session.receive(NEXT_CONTROL, encode(ADV), False) == [
        EndStream(CONTROL, CloseCode.CONTROL_STREAM_SWITCHED),
        ControlReceived(ADV),
    ]
    assert session.receive(NEXT_CONTROL, encode(ADV), False) == [ControlReceived(ADV)]
    with pytest.raises(InvalidEncoding, match="went back"):
        session.receive(CONTROL, encode(ADV)[10:], False)


def test_only_the_dialler_opens_control_streams() -> None:
    session = dialling()
    session.receive(CONTROL, encode(ConnectResponse(0, THEM)), False)
    with pytest.raises(InvalidEncoding, match="was dialled opened"):
        session.receive(1, encode(ADV), False)


def test_data_streams_come_out_as_they_go_in() -> None:
    session = dialled()
    header = encode_new_stream_header(SnsId(7), 99, 3, 1000, 5)
    (first,) = session.receive(DATA, header + b"ab", False)
    assert isinstance(first, DataReceived)
    assert isinstance(first.events[0], NewStreamHeader)
    assert bytes(first.events[1]) == b"ab"  # type: ignore[arg-type]
    (last,) = session.receive(DATA, b"cde", True)
    assert isinstance(last, DataReceived)
    assert (last.events, last.fin) == ([b"cde"], True)
    assert session._data == {}


@pytest.mark.parametrize(
    ("data", "fin", "code"),
    [
        (encode_existing_stream_header(3), False, 36),
        (encode_datagram_header(SnsId(1), 2, 0), False, 36),
        (b"", True, 36),
        (encode_new_stream_header(SnsId(1), 2, 3, 4, 0) * 2, False, 35),
        (encode_new_stream_header(SnsId(1), 2, 3, 4, 9), True, 35),
    ],
)
def test_a_wrong_data_stream_ends_alone(data: bytes, fin: bool, code: int) -> None:
    session = dialled()
    assert session.receive(DATA, data, fin) == [EndStream(DATA, code)]
    assert session.counters.refused_streams == 1
    if not fin:
        assert session.receive(DATA, b"more of it", False) == []
        assert session.receive(DATA, b"", True) == []
    assert session._data == {}
    assert session.receive(CONTROL, encode(ADV), False) == [ControlReceived(ADV)]


def test_a_reset_stream_is_forgotten() -> None:
    session = dialled()
    session.receive(DATA, encode_new_stream_header(SnsId(1), 2, 3, 4, 9), False)
    session.receive_reset(DATA)
    assert session._data == {}


def test_datagrams_are_decoded_and_bad_ones_close() -> None:
    session = dialled()
    (event,) = session.receive_datagram(encode_datagram_header(SnsId(5), 6, 3) + b"abc")
    assert isinstance(event, DatagramReceived)
    assert (event.header.sns_id, bytes(event.payload)) == (5, b"abc")
    with pytest.raises(InvalidEncoding):
        session.receive_datagram(encode_datagram_header(SnsId(5), 6, 3) + b"ab")
