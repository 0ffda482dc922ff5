"""A peering session: who may say what, and when, on one connection between two relays.

The relay that dials opens a bidirectional stream, the control stream, and says CONNECT on it; the
other answers CONNECT_RESPONSE; only then do other messages and data follow. A dialler may move
control to a new stream at any time, and the one before is reset.

    AWAIT_CONNECT  -- CONNECT ----------> ESTABLISHED     the side that was dialled
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
from laps.wire.control import ControlDecoder, encode
from laps.wire.objects import DataStreamDecoder, decode_datagram
from laps.wire.peering import Connect, ConnectResponse, MessageType, ResponseCode

if TYPE_CHECKING:
    from laps.types import DataDirection, NodeInfo, PeerMode
    from laps.wire.objects import DatagramHeader, StreamEvent
    from laps.wire.peering import Message


class State(Enum):
    """How far the conversation is."""

    AWAIT_CONNECT = auto()
    AWAIT_RESPONSE = auto()
    ESTABLISHED = auto()
    REFUSED = auto()


_OPENING: Final = frozenset({MessageType.CONNECT, MessageType.CONNECT_RESPONSE})

# What each state takes from the peer, and what anything else is.
_ALLOWED: Final[dict[State, tuple[frozenset[MessageType], type[RemoteProtocolError]]]] = {
    State.AWAIT_CONNECT: (frozenset({MessageType.CONNECT}), ConnectNotReceived),
    State.AWAIT_RESPONSE: (frozenset({MessageType.CONNECT_RESPONSE}), ConnectResponseNotReceived),
    State.ESTABLISHED: (frozenset(MessageType) - _OPENING, InvalidMessageType),
    State.REFUSED: (frozenset(), InvalidMessageType),
}


# -- what comes out --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
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
    """The peer we dialled does not want us."""

    response_code: ResponseCode | int


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A control message of an established session."""

    message: Message


@dataclass(slots=True)
class DataReceived:
    """Headers and payload of a data stream, as they came."""

    stream_id: int
    events: list[StreamEvent]
    fin: bool


@dataclass(slots=True)
class DatagramReceived:
    """A data object in a datagram."""

    header: DatagramHeader
    payload: memoryview


Effect = SendControl | EndStream
Event = PeerConnected | PeerRefused | ControlReceived | DataReceived | DatagramReceived


@dataclass(slots=True)
class Counters:
    """What the session saw, for the operator."""

    control_messages: int = 0
    refused_streams: int = 0


class PeerSession:
    """One side of a peering session; `dial` makes the side that dials."""

    def __init__(self, self_info: NodeInfo) -> None:
        self.state = State.AWAIT_CONNECT
        self.counters = Counters()
        self.peer_info: NodeInfo | None = None
        self._self_info = self_info
        self._connect: Connect | None = None
        self._control_stream: int | None = None
        self._control = ControlDecoder()
        self._data: dict[int, DataStreamDecoder | None] = {}

    @classmethod
    def dial(cls, connect: Connect, stream_id: int) -> tuple[PeerSession, list[Effect | Event]]:
        """A session that introduces itself on the control stream just opened."""
        session = cls(connect.node_info)
        session.state = State.AWAIT_RESPONSE
        session._connect = connect
        session._control_stream = stream_id
        return session, [SendControl(stream_id, encode(connect))]

    def receive(self, stream_id: int, data: bytes, fin: bool) -> list[Effect | Event]:
        """Take bytes of a stream; raises what the connection is to be closed with."""
        if stream_id & 2:
            return self._receive_data(stream_id, data, fin)
        return self._receive_control(stream_id, data)

    def receive_datagram(self, data: bytes) -> list[Effect | Event]:
        """Take a datagram."""
        self._require_established("a datagram")
        return [DatagramReceived(*decode_datagram(data))]

    def receive_reset(self, stream_id: int) -> None:
        """The peer gave a stream up."""
        self._data.pop(stream_id, None)

    # -- control -----------------------------------------------------------------------------------

    def _receive_control(self, stream_id: int, data: bytes) -> list[Effect | Event]:
        out: list[Effect | Event] = []
        if stream_id != self._control_stream:
            out += self._latch(stream_id)
        self._control.feed(data)
        for message in self._control:
            self.counters.control_messages += 1
            out += self._receive_message(message)
        return out

    def _latch(self, stream_id: int) -> list[Effect | Event]:
        """Move to the stream the dialler now uses; two are never in use."""
        if self._connect is not None:
            raise InvalidEncoding("the side that was dialled opened a bidirectional stream")
        previous, self._control_stream = self._control_stream, stream_id
        self._control = ControlDecoder()
        if previous is None:
            return []
        if stream_id < previous:
            raise InvalidEncoding(f"control went back from stream {previous} to {stream_id}")
        return [EndStream(previous, CloseCode.CONTROL_STREAM_SWITCHED)]

    def _receive_message(self, message: Message) -> list[Effect | Event]:
        allowed, error = _ALLOWED[self.state]
        if message.message_type not in allowed:
            raise error(f"{message.message_type.name} in state {self.state.name}")
        match message:
            case Connect():
                self.state = State.ESTABLISHED
                self.peer_info = message.node_info
                answer = encode(ConnectResponse(ResponseCode.OK, self._self_info))
                assert self._control_stream is not None  # noqa: S101 - it came on it
                connected = PeerConnected(
                    message.node_info, message.peer_mode, message.data_direction
                )
                return [SendControl(self._control_stream, answer), connected]
            case ConnectResponse(response_code, node_info):
                if node_info is None or self._connect is None:
                    self.state = State.REFUSED
                    return [PeerRefused(response_code)]
                self.state = State.ESTABLISHED
                self.peer_info = node_info
                dialled = self._connect
                return [PeerConnected(node_info, dialled.peer_mode, dialled.data_direction)]
        return [ControlReceived(message)]

    # -- data --------------------------------------------------------------------------------------

    def _receive_data(self, stream_id: int, data: bytes, fin: bool) -> list[Effect | Event]:
        self._require_established("a data stream")
        decoder = self._data.get(stream_id)
        if decoder is None:
            if stream_id in self._data:  # refused, and not yet heard of it
                if fin:
                    del self._data[stream_id]
                return []
            decoder = self._data[stream_id] = DataStreamDecoder()
        try:
            events = decoder.feed(data) if data else []
            if fin:
                decoder.finish()
                del self._data[stream_id]
        except RemoteProtocolError as error:
            # A stream error, as the document has it: the session and its other streams go on.
            self.counters.refused_streams += 1
            if fin:
                del self._data[stream_id]
            else:
                self._data[stream_id] = None
            return [EndStream(stream_id, error.code)]
        return [DataReceived(stream_id, events, fin)]

    def _require_established(self, what: str) -> None:
        if self.state is not State.ESTABLISHED:
            _, error = _ALLOWED[self.state]
            raise error(f"{what} in state {self.state.name}")
