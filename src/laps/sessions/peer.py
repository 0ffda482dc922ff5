"""A peering session: who may say what, and when, on one connection between two relays.

The relay that dials opens a bidirectional stream, the control stream, and says CONNECT on it; the
other answers CONNECT_RESPONSE; only then do other messages and data follow. A dialler may move
control to a new stream at any time, and the one before is reset.

    AWAIT_CONNECT  -- CONNECT ----------> ESTABLISHED     the side that was dialled, if it admits
                                       -> HELD            it cannot say yet: `decide` does
                                       -> REFUSED         otherwise
    AWAIT_RESPONSE -- CONNECT_RESPONSE -> ESTABLISHED     the side that dialled, code 0
                                       -> REFUSED         any other code

Where a side wants proof of who the other is, AUTHORIZATION has to follow each of the two, and the
session goes on from there:

    AWAIT_CONNECT, AWAIT_RESPONSE ------> AWAIT_AUTHORIZATION
    AWAIT_AUTHORIZATION -- AUTHORIZATION -> as above, if it is right
                                         -> REFUSED       otherwise, and if anything else comes

What the table below does not allow raises the document's error, which closes the connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from laps.errors import (
    CloseCode,
    ConnectNotReceived,
    ConnectResponseNotReceived,
    InvalidEncoding,
    InvalidMessageType,
    NotAuthorized,
    RemoteProtocolError,
)
from laps.types import format_node_id
from laps.wire.control import ControlDecoder, encode
from laps.wire.extension_fields import ExtensionType
from laps.wire.extensions import Authorization
from laps.wire.peering import CODECS, Connect, ConnectResponse, MessageType, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.types import DataDirection, NodeId, NodeInfo, PeerMode
    from laps.wire.peering import Codec, Message


class State(Enum):
    """How far the conversation is."""

    AWAIT_CONNECT = auto()
    AWAIT_RESPONSE = auto()
    AWAIT_AUTHORIZATION = auto()
    HELD = auto()
    ESTABLISHED = auto()
    REFUSED = auto()


# A name of its own, as it is asked for at each message: a member of an enum takes longer to find.
ESTABLISHED: Final = State.ESTABLISHED

_OPENING: Final = frozenset({MessageType.CONNECT, MessageType.CONNECT_RESPONSE})

# What an opening message is in each state, and what anything else is.
_EXPECTED: Final[dict[State, tuple[MessageType | None, type[RemoteProtocolError]]]] = {
    State.AWAIT_CONNECT: (MessageType.CONNECT, ConnectNotReceived),
    State.AWAIT_RESPONSE: (MessageType.CONNECT_RESPONSE, ConnectResponseNotReceived),
    State.AWAIT_AUTHORIZATION: (None, NotAuthorized),
    State.HELD: (None, ConnectNotReceived),
    State.ESTABLISHED: (None, InvalidMessageType),
    State.REFUSED: (None, InvalidMessageType),
}


# -- what comes out --------------------------------------------------------------------------------


class SendControl(Struct):
    """Write this on the control stream."""

    stream_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class EndStream:
    """Reset our half of a stream and ask the peer to stop with its own."""

    stream_id: int
    code: int


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """Both sides have introduced themselves."""

    node_info: NodeInfo
    peer_mode: PeerMode
    data_direction: DataDirection


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """One side does not want the other; `response_code` says why."""

    response_code: ResponseCode | int
    reason: str = ""
    """What is wrong with the proof of the other side; empty where that is not why."""
    node_id: NodeId | None = None
    """Who it says that it is, where a reason is given."""

    @property
    def close_code(self) -> CloseCode:
        """What the connection is closed with."""
        if self.response_code == ResponseCode.NOT_AUTHORIZED:
            return CloseCode.NOT_AUTHORIZED
        return CloseCode.GRACEFUL

    def describe(self, self_id: NodeId, *, dialled: bool) -> str:
        """In an operator's words, with the way out where we are the one that is refused."""
        refused = f"refused with response code {int(self.response_code)}"
        if self.reason:
            return f"{refused}: {self.reason}"
        if not dialled or self.response_code != ResponseCode.CONNECTION_ERROR:
            return refused
        ours = f"another relay may have our node id {format_node_id(self_id)}"
        way_out = "give this one its own, node.id"
        return (
            f"{refused}: {ours} ({way_out}), or we are connected already, or our type is not taken"
        )


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """CONNECT is not answered yet: `decide` does."""

    connect: Connect


@dataclass(frozen=True, slots=True)
class ProofAwaited:
    """The other side has said who it is, and not proved it: `give_up` ends the wait."""


class ControlReceived(Struct):
    """A control message of an established session."""

    message: Message


Effect = SendControl | EndStream
Event = PeerConnected | PeerRefused | PeerWaits | ProofAwaited | ControlReceived


class Proofs(Protocol):
    """How the two sides of a session prove who they are."""

    @property
    def wanted(self) -> bool:
        """Whether the other side has to."""

    def token(self, now: float) -> bytes | None:
        """What we prove ourselves with; None: we have nothing to."""

    def check(self, info: NodeInfo, token: bytes | None, now: float) -> str:
        """Why a node is not who it says, or not the one that is expected; empty: it is.

        The token is None where it has none, or has no message to send it in.
        """


class _Trusting:
    """Nobody proves anything."""

    wanted = False

    def token(self, now: float) -> bytes | None:
        return None

    def check(self, info: NodeInfo, token: bytes | None, now: float) -> str:
        return ""


TRUSTING: Final = _Trusting()


class PeerSession:
    """One side of a peering session; `dial` makes the side that dials."""

    def __init__(
        self,
        self_info: NodeInfo,
        admit: Callable[[Connect], ResponseCode | None] = lambda _: ResponseCode.OK,
        codecs: Mapping[int, Codec] = CODECS,
        proofs: Proofs = TRUSTING,
    ) -> None:
        """`admit` decides how CONNECT is answered, or that it waits; `codecs` what may be said."""
        self.state = State.AWAIT_CONNECT
        self.peer_info: NodeInfo | None = None
        self.control_messages = 0
        self._self_info = self_info
        self._admit = admit
        self._codecs = codecs
        self._proofs = proofs
        self._connect: Connect | None = None
        self._waiting: Connect | None = None
        "A CONNECT that is not answered yet."
        self._unproved: NodeInfo | None = None
        "Who the other side says that it is, while it has not proved it."
        self._control_stream: int | None = None
        self._control = ControlDecoder(codecs=codecs)

    @classmethod
    def dial(
        cls,
        connect: Connect,
        stream_id: int,
        codecs: Mapping[int, Codec] = CODECS,
        proofs: Proofs = TRUSTING,
        now: float = 0.0,
    ) -> tuple[PeerSession, list[Effect | Event]]:
        """A session that introduces itself on the control stream just opened."""
        session = cls(connect.node_info, codecs=codecs, proofs=proofs)
        session.state = State.AWAIT_RESPONSE
        session._connect = connect
        session._control_stream = stream_id
        return session, [SendControl(stream_id, encode(connect)), *session._prove(stream_id, now)]

    @property
    def unfinished_bytes(self) -> int:
        """How much of an unfinished message is held."""
        return self._control.unfinished_bytes

    def send(self, message: Message) -> SendControl | None:
        """Say something on the control stream of now; None: nothing may be said."""
        if self._control_stream is None or self.state is not ESTABLISHED:
            return None
        return SendControl(self._control_stream, encode(message, codecs=self._codecs))

    def receive(self, stream_id: int, data: bytes, now: float = 0.0) -> list[Effect | Event]:
        """Take bytes of a bidirectional stream; raises what the connection is closed with."""
        out: list[Effect | Event] = []
        if stream_id != self._control_stream:
            if self._has_left(stream_id):
                return out
            out += self._latch(stream_id)
        self._control.feed(data)
        for message in self._control:
            self.control_messages += 1
            if self.state is ESTABLISHED and message.message_type not in _OPENING:
                # Whoever asks for no proof may be given one all the same.
                if not isinstance(message, Authorization):
                    out.append(ControlReceived(message))
                continue
            out += self._receive_opening(message, now)
            if self.state is State.REFUSED:
                break  # whatever follows was sent before the other side knew
        return out

    def is_control(self, stream_id: int) -> bool:
        """Whether a stream is the one that control messages go by now."""
        return stream_id == self._control_stream and self.state is not State.REFUSED

    @property
    def is_ahead(self) -> bool:
        """Whether data may arrive ahead of what ends the introduction: on a stream of its own."""
        opening = self.state in (State.AWAIT_RESPONSE, State.AWAIT_AUTHORIZATION)
        return opening and self._connect is not None

    def require_established(self, what: str) -> None:
        """Data ahead of the introduction closes the connection."""
        if self.state is not State.ESTABLISHED:
            _, error = _EXPECTED[self.state]
            raise error(f"{what} in state {self.state.name}")

    def _has_left(self, stream_id: int) -> bool:
        """Whether a stream is older than the one in use: QUIC may deliver its last bytes late."""
        current = self._control_stream
        return self._connect is None and current is not None and stream_id < current

    def _latch(self, stream_id: int) -> list[Effect | Event]:
        """Move to the stream the dialler now uses; two are never in use."""
        if self._connect is not None:
            raise InvalidEncoding("the side that was dialled opened a bidirectional stream")
        previous, self._control_stream = self._control_stream, stream_id
        self._control = ControlDecoder(codecs=self._codecs)
        return [] if previous is None else [EndStream(previous, CloseCode.CONTROL_STREAM_SWITCHED)]

    def _receive_opening(self, message: Message, now: float) -> list[Effect | Event]:
        """A message before the session is established, or one that has no place after that."""
        if self.state is State.AWAIT_AUTHORIZATION:
            return self._receive_proof(message, now)
        if self.state is State.HELD and isinstance(message, Authorization):
            return []
        expected, error = _EXPECTED[self.state]
        if message.message_type != expected:
            raise error(f"{message.message_type.name} in state {self.state.name}")
        match message:
            case Connect():
                self._waiting = message
                return self._introduced(message.node_info, now)
            case ConnectResponse(response_code, node_info):
                if node_info is None or self._connect is None:
                    self.state = State.REFUSED
                    return [PeerRefused(response_code)]
                return self._introduced(node_info, now)
        return [ControlReceived(message)]

    # -- proofs ------------------------------------------------------------------------------------

    def _prove(self, stream_id: int, now: float) -> list[Effect | Event]:
        """Say who we are in a way that can be checked, if there is a message for it."""
        token = self._proofs.token(now) if self._may_prove else None
        if token is None:
            return []
        return [SendControl(stream_id, encode(Authorization(token), codecs=self._codecs))]

    @property
    def _may_prove(self) -> bool:
        return ExtensionType.AUTHORIZATION in self._codecs

    def _introduced(self, info: NodeInfo, now: float) -> list[Effect | Event]:
        """The other side says who it is."""
        if self._proofs.wanted and self._may_prove:
            self.state, self._unproved = State.AWAIT_AUTHORIZATION, info
            return [ProofAwaited()]
        return self._check(info, None, now)

    def _receive_proof(self, message: Message, now: float) -> list[Effect | Event]:
        if not isinstance(message, Authorization):
            return self.give_up(f"{message.message_type.name} came in place of AUTHORIZATION")
        assert self._unproved is not None  # noqa: S101 - the state says so
        return self._check(self._unproved, message.token, now)

    def _check(self, info: NodeInfo, token: bytes | None, now: float) -> list[Effect | Event]:
        if reason := self._proofs.check(info, token, now):
            return self._refuse(info, reason)
        if self._connect is None:
            return self._answer(now)
        self.state = State.ESTABLISHED
        self.peer_info = info
        return [PeerConnected(info, self._connect.peer_mode, self._connect.data_direction)]

    def give_up(self, reason: str) -> list[Effect | Event]:
        """The other side has had its time to prove who it is; nothing if it has."""
        if self.state is not State.AWAIT_AUTHORIZATION or self._unproved is None:
            return []
        return self._refuse(self._unproved, reason)

    def _refuse(self, info: NodeInfo, reason: str) -> list[Effect | Event]:
        connect, self._waiting = self._waiting, None
        self.state = State.REFUSED
        refused = PeerRefused(ResponseCode.NOT_AUTHORIZED, reason, info.id)
        if connect is None or self._control_stream is None:
            return [refused]
        response = encode(ConnectResponse(ResponseCode.NOT_AUTHORIZED, None))
        return [SendControl(self._control_stream, response), refused]

    # -- the answer to CONNECT ---------------------------------------------------------------------

    def _answer(self, now: float) -> list[Effect | Event]:
        connect = self._waiting
        assert connect is not None  # noqa: S101 - it has just come
        code = self._admit(connect)
        if code is None:
            self.state = State.HELD
            return [PeerWaits(connect)]
        return self.decide(code, now)

    def decide(self, code: ResponseCode, now: float = 0.0) -> list[Effect | Event]:
        """Answer the CONNECT that waits; nothing where none does."""
        connect, self._waiting = self._waiting, None
        stream_id = self._control_stream
        if connect is None or stream_id is None:
            return []
        if code is not ResponseCode.OK:
            self.state = State.REFUSED
            return [SendControl(stream_id, encode(ConnectResponse(code, None))), PeerRefused(code)]
        self.state = State.ESTABLISHED
        self.peer_info = connect.node_info
        answer = SendControl(stream_id, encode(ConnectResponse(ResponseCode.OK, self._self_info)))
        connected = PeerConnected(connect.node_info, connect.peer_mode, connect.data_direction)
        return [answer, *self._prove(stream_id, now), connected]
