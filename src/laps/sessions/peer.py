"""A peering session: who may say what, and when, on one connection between two relays.

The relay that dials opens a bidirectional stream, the control stream, and says CONNECT on it; the
other answers CONNECT_RESPONSE; only then do other messages and data follow. A dialler may move
control to a new stream at any time, and the one before is reset.

    AWAIT_CONNECT  -- CONNECT ----------> ESTABLISHED     the side that was dialled, if it admits
                                       -> REFUSED         otherwise
    AWAIT_RESPONSE -- CONNECT_RESPONSE -> ESTABLISHED     the side that dialled, code 0
                                       -> REFUSED         any other code

What the table below does not allow raises the document's error, which closes the connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from laps.errors import (
    CloseCode,
    ConnectNotReceived,
    ConnectResponseNotReceived,
    InvalidEncoding,
    InvalidMessageType,
    RemoteProtocolError,
)
from laps.types import format_node_id
from laps.wire.control import ControlDecoder, encode
from laps.wire.peering import CODECS, Connect, ConnectResponse, MessageType, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.types import DataDirection, NodeId, NodeInfo, PeerMode
    from laps.wire.peering import Codec, Message


class State(Enum):
    """How far the conversation is."""

    AWAIT_CONNECT = auto()
    AWAIT_RESPONSE = auto()
    ESTABLISHED = auto()
    REFUSED = auto()


_OPENING: Final = frozenset({MessageType.CONNECT, MessageType.CONNECT_RESPONSE})

# What an opening message is in each state, and what anything else is.
_EXPECTED: Final[dict[State, tuple[MessageType | None, type[RemoteProtocolError]]]] = {
    State.AWAIT_CONNECT: (MessageType.CONNECT, ConnectNotReceived),
    State.AWAIT_RESPONSE: (MessageType.CONNECT_RESPONSE, ConnectResponseNotReceived),
    State.ESTABLISHED: (None, InvalidMessageType),
    State.REFUSED: (None, InvalidMessageType),
}


# -- what comes out --------------------------------------------------------------------------------


@dataclass(slots=True)
class SendControl:
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

    def describe(self, self_id: NodeId, *, dialled: bool) -> str:
        """In an operator's words, with the way out where we are the one that is refused."""
        refused = f"refused with response code {int(self.response_code)}"
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


@dataclass(slots=True)
class ControlReceived:
    """A control message of an established session."""

    message: Message


Effect = SendControl | EndStream
Event = PeerConnected | PeerRefused | PeerWaits | ControlReceived


class PeerSession:
    """One side of a peering session; `dial` makes the side that dials."""

    def __init__(
        self,
        self_info: NodeInfo,
        admit: Callable[[Connect], ResponseCode | None] = lambda _: ResponseCode.OK,
        codecs: Mapping[int, Codec] = CODECS,
    ) -> None:
        """`admit` decides how CONNECT is answered, or that it waits; `codecs` what may be said."""
        self.state = State.AWAIT_CONNECT
        self.peer_info: NodeInfo | None = None
        self.control_messages = 0
        self._self_info = self_info
        self._admit = admit
        self._codecs = codecs
        self._connect: Connect | None = None
        self._waiting: Connect | None = None
        "A CONNECT that is not answered yet."
        self._control_stream: int | None = None
        self._control = ControlDecoder(codecs=codecs)

    @classmethod
    def dial(
        cls, connect: Connect, stream_id: int, codecs: Mapping[int, Codec] = CODECS
    ) -> tuple[PeerSession, list[Effect | Event]]:
        """A session that introduces itself on the control stream just opened."""
        session = cls(connect.node_info, codecs=codecs)
        session.state = State.AWAIT_RESPONSE
        session._connect = connect
        session._control_stream = stream_id
        return session, [SendControl(stream_id, encode(connect))]

    @property
    def unfinished_bytes(self) -> int:
        """How much of an unfinished message is held."""
        return self._control.unfinished_bytes

    def send(self, message: Message) -> list[Effect | Event]:
        """Say something on the control stream of now."""
        if self._control_stream is None or self.state is not State.ESTABLISHED:
            return []
        return [SendControl(self._control_stream, encode(message, codecs=self._codecs))]

    def receive(self, stream_id: int, data: bytes) -> list[Effect | Event]:
        """Take bytes of a bidirectional stream; raises what the connection is closed with."""
        out: list[Effect | Event] = []
        if stream_id != self._control_stream:
            if self._has_left(stream_id):
                return out
            out += self._latch(stream_id)
        self._control.feed(data)
        for message in self._control:
            self.control_messages += 1
            out += self._receive_message(message)
        return out

    def is_control(self, stream_id: int) -> bool:
        """Whether a stream is the one that control messages go by now."""
        return stream_id == self._control_stream and self.state is not State.REFUSED

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

    def _receive_message(self, message: Message) -> list[Effect | Event]:
        established = self.state is State.ESTABLISHED
        if established and message.message_type not in _OPENING:
            return [ControlReceived(message)]
        expected, error = _EXPECTED[self.state]
        if established or message.message_type != expected:
            raise error(f"{message.message_type.name} in state {self.state.name}")
        match message:
            case Connect():
                return self._answer(message)
            case ConnectResponse(response_code, node_info):
                if node_info is None or self._connect is None:
                    self.state = State.REFUSED
                    return [PeerRefused(response_code)]
                self.state = State.ESTABLISHED
                self.peer_info = node_info
                dialled = self._connect
                return [PeerConnected(node_info, dialled.peer_mode, dialled.data_direction)]
        return [ControlReceived(message)]

    def _answer(self, connect: Connect) -> list[Effect | Event]:
        stream_id = self._control_stream
        assert stream_id is not None  # noqa: S101 - CONNECT came on it
        code = self._admit(connect)
        if code is None:
            self._waiting = connect
            return [PeerWaits(connect)]
        return self._respond(connect, stream_id, code)

    def decide(self, code: ResponseCode) -> list[Effect | Event]:
        """Answer the CONNECT that waits; nothing where none does."""
        connect, self._waiting = self._waiting, None
        if connect is None or self._control_stream is None:
            return []
        return self._respond(connect, self._control_stream, code)

    def _respond(
        self, connect: Connect, stream_id: int, code: ResponseCode
    ) -> list[Effect | Event]:
        if code is not ResponseCode.OK:
            self.state = State.REFUSED
            return [SendControl(stream_id, encode(ConnectResponse(code, None))), PeerRefused(code)]
        self.state = State.ESTABLISHED
        self.peer_info = connect.node_info
        answer = encode(ConnectResponse(ResponseCode.OK, self._self_info))
        connected = PeerConnected(connect.node_info, connect.peer_mode, connect.data_direction)
        return [SendControl(stream_id, answer), connected]
