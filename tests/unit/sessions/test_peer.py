"""The peering session: its first words, its control stream, and how wrong steps are answered."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from laps.errors import (
    CloseCode,
    ConnectNotReceived,
    ConnectResponseNotReceived,
    InvalidEncoding,
    InvalidMessageType,
    NotAuthorized,
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
    PeerWaits,
    ProofAwaited,
    SendControl,
    State,
)
from laps.types import DataDirection, NodeId, NodeInfo, NodePathItem, NodeType, PeerMode, SnsId
from laps.wire.control import MAX_MESSAGE_LENGTH, encode
from laps.wire.extensions import EXTENDED_CODECS, Authorization
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.wire.peering import Codec, Message

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
    assert session.send(ADV) is None
    assert session.receive(CONTROL, b"") == []


def test_the_dialler_introduces_itself_and_is_accepted() -> None:
    connect = Connect(PeerMode.DATA, DataDirection.UNIDIRECTIONAL, US)
    session, effects = PeerSession.dial(connect, CONTROL)
    assert effects == [SendControl(CONTROL, encode(connect))]
    assert session.send(ADV) is None
    answer = encode(ConnectResponse(ResponseCode.OK, THEM)) + encode(ADV)
    assert session.receive(CONTROL, answer) == [
        PeerConnected(THEM, PeerMode.DATA, DataDirection.UNIDIRECTIONAL),
        ControlReceived(ADV),
    ]
    assert session.send(ADV) == SendControl(CONTROL, encode(ADV))


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
    assert session.send(ADV) is None


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
    assert session.send(ADV) == SendControl(NEXT_CONTROL, encode(ADV))


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


# -- proofs ----------------------------------------------------------------------------------------

TOKEN = Authorization(b"token")


class Checking:
    """Proofs of one who wants them, and takes one token alone."""

    wanted = True

    def __init__(self, own: bytes | None = b"own") -> None:
        self._own = own

    def token(self, now: float) -> bytes | None:
        return self._own

    def check(self, info: NodeInfo, token: bytes | None, now: float) -> str:
        return "" if token == b"token" else f"{token!r} is wrong"


def checking(*, dials: bool, codecs: Mapping[int, Codec] = EXTENDED_CODECS) -> PeerSession:
    if not dials:
        return PeerSession(US, codecs=codecs, proofs=Checking())
    session, _ = PeerSession.dial(replace(CONNECT, node_info=US), CONTROL, codecs, Checking())
    return session


def sent(*messages: Message) -> bytes:
    return b"".join(encode(message, codecs=EXTENDED_CODECS) for message in messages)


OWN = SendControl(CONTROL, sent(Authorization(b"own")))
OK = ConnectResponse(ResponseCode.OK, THEM)
CONNECTED = PeerConnected(THEM, PeerMode.BOTH, DataDirection.BIDIRECTIONAL)
NOT_AUTHORIZED = SendControl(CONTROL, encode(ConnectResponse(ResponseCode.NOT_AUTHORIZED, None)))


def test_proof_stands_right_after_connect_and_after_the_response() -> None:
    connect = replace(CONNECT, node_info=US)
    _, effects = PeerSession.dial(connect, CONTROL, EXTENDED_CODECS, Checking())
    assert effects == [SendControl(CONTROL, encode(connect)), OWN]
    assert checking(dials=False).receive(CONTROL, sent(CONNECT, TOKEN)) == [
        ProofAwaited(),
        SendControl(CONTROL, encode(ConnectResponse(ResponseCode.OK, US))),
        OWN,
        CONNECTED,
    ]


def test_proof_is_never_sent_on_plain_laps() -> None:
    connect = replace(CONNECT, node_info=US)
    _, effects = PeerSession.dial(connect, CONTROL, CODECS, Checking())
    assert effects == [SendControl(CONTROL, encode(connect))]


def test_proof_of_the_side_that_was_dialled_is_waited_for() -> None:
    session = checking(dials=True)
    assert session.receive(CONTROL, sent(OK)) == [ProofAwaited()]
    assert session.state is State.AWAIT_AUTHORIZATION
    assert session.is_ahead
    assert session.receive(CONTROL, sent(TOKEN, ADV)) == [CONNECTED, ControlReceived(ADV)]


@pytest.mark.parametrize("wrong", [Authorization(b"x"), ADV, CONNECT])
def test_proof_that_is_wrong_is_answered_with_response_2(wrong: Message) -> None:
    session = checking(dials=False)
    session.receive(CONTROL, encode(CONNECT))
    response, refused = session.receive(CONTROL, sent(wrong, ADV, ADV))
    assert response == NOT_AUTHORIZED
    assert isinstance(refused, PeerRefused)
    assert refused.close_code is CloseCode.NOT_AUTHORIZED
    assert refused.node_id == THEM.id
    is_token = isinstance(wrong, Authorization)
    words = "b'x' is wrong" if is_token else "came in place of AUTHORIZATION"
    assert words in refused.describe(US.id, dialled=False)
    assert session.state is State.REFUSED


def test_proof_that_the_dialler_does_not_take_closes_without_a_response() -> None:
    session = checking(dials=True)
    session.receive(CONTROL, sent(OK))
    (refused,) = session.receive(CONTROL, sent(Authorization(b"x"), ADV))
    assert refused == PeerRefused(ResponseCode.NOT_AUTHORIZED, "b'x' is wrong", THEM.id)


@pytest.mark.parametrize("dials", [False, True])
def test_proof_that_plain_laps_has_no_message_for_is_not_waited_for(dials: bool) -> None:
    session = checking(dials=dials, codecs=CODECS)
    *response, refused = session.receive(CONTROL, encode(OK if dials else CONNECT))
    assert response == ([] if dials else [NOT_AUTHORIZED])
    assert refused == PeerRefused(ResponseCode.NOT_AUTHORIZED, "None is wrong", THEM.id)


def test_proof_that_does_not_come_is_given_up_and_one_that_came_is_not() -> None:
    session = checking(dials=False)
    assert session.give_up("late") == []
    session.receive(CONTROL, encode(CONNECT))
    refused = PeerRefused(ResponseCode.NOT_AUTHORIZED, "late", THEM.id)
    assert session.give_up("late") == [NOT_AUTHORIZED, refused]
    assert session.give_up("late") == []
    proved = checking(dials=False)
    proved.receive(CONTROL, sent(CONNECT, TOKEN))
    assert proved.give_up("late") == []


def test_proof_that_nobody_asked_for_is_passed_over() -> None:
    session = PeerSession(US, codecs=EXTENDED_CODECS)
    assert session.receive(CONTROL, sent(CONNECT, TOKEN))[1:] == [CONNECTED]
    held = PeerSession(US, lambda _: None, EXTENDED_CODECS)
    assert held.receive(CONTROL, sent(CONNECT, TOKEN)) == [PeerWaits(CONNECT)]
    assert held.state is State.HELD
    assert held.decide(ResponseCode.OK)[1:] == [CONNECTED]


def test_data_ahead_of_a_proof_is_not_authorized() -> None:
    session = checking(dials=False)
    session.receive(CONTROL, encode(CONNECT))
    assert not session.is_ahead
    with pytest.raises(NotAuthorized):
        session.require_established("a data stream")
