"""HTTP/3 on one connection, as far as it takes to carry one WebTransport session.

What the peer sends falls in three:

    streams of the session whose preamble is read    `_live`, a set: their chunks go straight on
    every other stream that has not ended            `_incoming`: what to do with its next bytes
    datagrams of the session                         told by the number they begin with

A stream of a session that is not there yet, since packets overtake each other, is held for it.
Requests and responses are for `WebTransportServer` and `WebTransportClient` to understand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from laps.errors import RemoteProtocolError, SendBufferFull, StreamLimitReached
from laps.net.early import Early
from laps.net.http3 import (
    BUFFERED_STREAM_REJECTED,
    CONTROL_FRAME_BYTES,
    FIELD_SECTION_BYTES,
    HTTP2_FRAMES,
    ErrorCode,
    Field,
    Fields,
    FrameReader,
    FrameType,
    Http3Error,
    Setting,
    StreamError,
    StreamType,
    decode_error,
    decode_number,
    decode_settings,
    describe,
    encode_frame,
    encode_settings,
)
from laps.wire.buffer import Incomplete, decode_varint, encode_varint

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed
    from laps.net.engine import Receiver
    from laps.net.transport import Transport
    from laps.net.webtransport_session import WebTransportSession

# Requests whose header is being read, each in up to FIELD_SECTION_BYTES.
REQUESTS: Final = 16

# Seconds, or ticks, for which the connection may outlive its session.
LINGER_TICKS: Final = 2

SETTINGS: Final[dict[int, int]] = {
    Setting.QPACK_MAX_TABLE_CAPACITY: 0,
    Setting.QPACK_BLOCKED_STREAMS: 0,
    Setting.MAX_FIELD_SECTION_SIZE: FIELD_SECTION_BYTES,
    Setting.ENABLE_CONNECT_PROTOCOL: 1,
    Setting.H3_DATAGRAM: 1,
    Setting.H3_DATAGRAM_DRAFT04: 1,
    Setting.ENABLE_WEBTRANSPORT: 1,
    Setting.WEBTRANSPORT_MAX_SESSIONS: 1,
    Setting.WT_MAX_SESSIONS: 1,
}

_CONTROL_FRAMES: Final = frozenset(
    (FrameType.SETTINGS, FrameType.GOAWAY, FrameType.MAX_PUSH_ID, FrameType.CANCEL_PUSH)
)
_NEVER_ON_CONTROL: Final = HTTP2_FRAMES | {
    FrameType.DATA,
    FrameType.HEADERS,
    FrameType.PUSH_PROMISE,
}
_NEVER_IN_A_MESSAGE: Final = HTTP2_FRAMES | _CONTROL_FRAMES | {FrameType.PUSH_PROMISE}
_WHOLE_IN_A_MESSAGE: Final = frozenset((FrameType.HEADERS,))

Feed = Callable[[bytes, bool], None]
"Takes the next bytes of a stream, and whether they are the last."


@dataclass(slots=True)
class Counters:
    """What was refused or lost, for the operator."""

    early_streams: int = 0
    "Held until their session was there."
    rejected_streams: int = 0
    "Of no session, or more than are held for one."
    dropped_datagrams: int = 0
    "Likewise."
    unknown_streams: int = 0
    refused_requests: int = 0


class _Nobody:
    """The receiver before there is a session and after."""

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        pass

    def stream_reset(self, stream_id: int, code: int) -> None:
        pass

    def stop_sending(self, stream_id: int, code: int) -> None:
        pass

    def datagram(self, data: bytes) -> None:
        pass

    def writable(self) -> None:
        pass

    def closed(self, close: ConnectionClosed) -> None:
        pass


NOBODY: Final = _Nobody()


def _ignore(data: bytes, fin: bool) -> None:
    """For a stream that nobody wants, until it ends."""


class Http3Connection:
    """The receiver of a connection that speaks HTTP/3."""

    def __init__(self, connection: Transport, *, is_client: bool) -> None:
        self.counters = Counters()
        self.session: WebTransportSession | None = None
        "The one session, once it is agreed on; it stays here until its connection is closed."
        self.peer_settings: dict[int, int] | None = None
        self._connection = connection
        self._is_client = is_client
        self._fields = Fields()
        self._control_id = -1
        self._connect_id: int | None = None
        "The stream of the CONNECT that is, or asks for, the session."
        self._receiver: Receiver = NOBODY
        self._datagram_prefix = b""
        self._live: set[int] = set()
        self._incoming: dict[int, Feed] = {}
        self._requests: set[int] = set()
        self._critical: dict[int, int] = {}
        "The peer's stream of each type that it has once and for good."
        self._control = FrameReader(_CONTROL_FRAMES, CONTROL_FRAME_BYTES)
        self._early = Early()
        self._lingered = 0
        connection.tick = self._tick
        try:
            self._control_id = connection.open_stream(unidirectional=True)
        except StreamLimitReached as limit:
            connection.close(ErrorCode.STREAM_CREATION_ERROR, f"no control stream: {limit}")
            return
        settings = encode_frame(FrameType.SETTINGS, encode_settings(SETTINGS))
        connection.write(self._control_id, encode_varint(StreamType.CONTROL) + settings)

    # -- what the two sides do differently -------------------------------------------------------

    def _settings_received(self) -> None:
        """The peer's settings are there."""
        raise NotImplementedError

    def _fields_received(self, stream_id: int, fields: list[Field]) -> bool:
        """The header of a message; False if another follows before the content."""
        raise NotImplementedError

    def _content_received(self, stream_id: int, data: bytes) -> None:
        """Bytes of a message's content."""
        raise NotImplementedError

    def _message_ended(self, stream_id: int, why: str) -> None:
        """A message is over, or given up, which then has a reason."""
        raise NotImplementedError

    # -- the session -----------------------------------------------------------------------------

    def begin(self, session: WebTransportSession, receiver: Receiver) -> None:
        """A session is there, and has a receiver: tell it what came too early."""
        self._receiver = receiver
        self._datagram_prefix = encode_varint(session.id // 4)
        streams, datagrams = self._early.take()
        for stream_id, early in streams.items():
            if session.close_state is None:
                self._claim(stream_id, early.session_id, bytes(early.data), early.fin)
                if early.fin:
                    self._incoming.pop(stream_id, None)
        for data in datagrams:
            if session.close_state is None:
                self.datagram(data)

    def opened(self, stream_id: int) -> None:
        """The session opened a bidirectional stream: what arrives on it has no preamble."""
        self._live.add(stream_id)

    def end(self) -> None:
        """The session is over: whatever still arrives is for nobody."""
        self._receiver = NOBODY
        self._datagram_prefix = b""
        self._live.clear()
        self._early.take()

    def leave(self) -> None:
        """Both sides know that the session is over: the client ends the connection.

        A server waits for that, up to `LINGER_TICKS`: Chromium tells a page of the end a moment
        after it has answered, and of a lost connection if that comes in between.
        """
        if self._is_client:
            self._connection.close(ErrorCode.NO_ERROR, "")

    @property
    def open_streams(self) -> int:
        """How many streams of the peer's are remembered, its critical ones included."""
        return len(self._live) + len(self._incoming) + len(self._early.streams)

    # -- what the connection tells ---------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes of any stream."""
        if stream_id in self._live:
            if fin:
                self._live.discard(stream_id)
            try:
                self._receiver.stream_data(stream_id, data, fin)
            except RemoteProtocolError as error:
                self._refuse_session(error)
            return
        try:
            self._receive(stream_id, data, fin)
        except StreamError as error:
            self.counters.refused_requests += 1
            self._abort(stream_id, error.code)
        except Http3Error as error:
            self._connection.close(error.code, error.text)
        except SendBufferFull:
            self._connection.close(ErrorCode.EXCESSIVE_LOAD, "the answers to requests are not read")
        finally:
            if fin:
                self._incoming.pop(stream_id, None)
                self._requests.discard(stream_id)

    def stream_reset(self, stream_id: int, code: int) -> None:
        """The peer gave up a stream."""
        if stream_id in self._live:
            self._live.discard(stream_id)
            try:
                self._receiver.stream_reset(stream_id, decode_error(code) or 0)
            except RemoteProtocolError as error:
                self._refuse_session(error)
        elif stream_id in self._critical.values():
            self._connection.close(ErrorCode.CLOSED_CRITICAL_STREAM, "a critical stream was reset")
        else:
            self._incoming.pop(stream_id, None)
            self._requests.discard(stream_id)
            self._early.forget(stream_id)
            if stream_id == self._connect_id:
                self._message_ended(stream_id, f"its stream was reset: {describe(code)}")

    def stop_sending(self, stream_id: int, code: int) -> None:
        """The peer no longer reads a stream."""
        if stream_id == self._control_id:
            self._connection.close(ErrorCode.CLOSED_CRITICAL_STREAM, "control is not read")
        elif stream_id == self._connect_id:
            if code != ErrorCode.NO_ERROR:  # which only says that the answer needs no more of us
                self._message_ended(stream_id, f"its stream is not read: {describe(code)}")
        elif stream_id not in self._incoming:
            try:
                self._receiver.stop_sending(stream_id, decode_error(code) or 0)
            except RemoteProtocolError as error:
                self._refuse_session(error)

    def datagram(self, data: bytes) -> None:
        """A datagram of any session."""
        prefix = self._datagram_prefix
        if prefix and data.startswith(prefix):
            try:
                self._receiver.datagram(data[len(prefix) :])
            except RemoteProtocolError as error:
                self._refuse_session(error)
            return
        try:
            quarter, offset = decode_varint(data)
        except Incomplete:
            quarter = 1 << 60
        if quarter >= 1 << 60:
            self._connection.close(ErrorCode.DATAGRAM_ERROR, "a datagram of no stream")
        elif self.session is None and self._early.add_datagram(data):
            pass  # until there is a session
        elif prefix and encode_varint(quarter) == prefix:  # the number in more bytes than it needs
            self.datagram(prefix + data[offset:])
        else:
            self.counters.dropped_datagrams += 1

    def writable(self) -> None:
        """There is room, or a stream, again."""
        self._receiver.writable()

    def closed(self, close: ConnectionClosed) -> None:
        """The connection is over, and the session with it."""
        self._incoming.clear()
        self._requests.clear()
        if self.session is not None:
            self.session.connection_closed(close)
        self.end()
        self._connection.tick = self.session = None  # which refer to this: see `net/clients.py`

    def _tick(self, now: float) -> None:
        session = self.session
        if session is None:
            return
        if session.close_state is None:
            if session.tick is not None:
                session.tick(now)
            return
        self._lingered += 1
        if self._lingered >= LINGER_TICKS:
            self._connection.close(ErrorCode.NO_ERROR, "")

    def _refuse_session(self, error: RemoteProtocolError) -> None:
        if self.session is not None:
            self.session.close(error.code, str(error))

    # -- streams that are not of the session, or not yet -----------------------------------------

    def _receive(self, stream_id: int, data: bytes, fin: bool) -> None:
        session = self.session
        if session is not None and session.close_state is not None and stream_id != session.id:
            return
        feed = self._incoming.get(stream_id)
        if feed is not None:
            feed(data, fin)
        elif stream_id & 1 == self._is_client:
            self._begin_stream(stream_id, b"", data, fin)

    def _begin_stream(self, stream_id: int, before: bytes, data: bytes, fin: bool) -> None:
        """Find out what a stream of the peer's is for."""
        data = before + data
        unidirectional = bool(stream_id & 2)
        signal = StreamType.WEBTRANSPORT if unidirectional else FrameType.WEBTRANSPORT_STREAM
        try:
            kind, offset = decode_varint(data)
            if kind == signal:
                session_id, offset = decode_varint(data, offset)
                self._incoming.pop(stream_id, None)
                self._claim(stream_id, session_id, data[offset:], fin)
                return
        except Incomplete:
            if not fin:
                self._incoming[stream_id] = partial(self._begin_stream, stream_id, data)
            elif not unidirectional:
                raise StreamError(ErrorCode.REQUEST_INCOMPLETE, "no request") from None
            return
        if unidirectional:
            self._begin_unidirectional(stream_id, kind, data[offset:], fin)
        elif self._is_client:
            raise Http3Error(ErrorCode.STREAM_CREATION_ERROR, "a request from the server")
        elif len(self._requests) >= REQUESTS:
            raise StreamError(ErrorCode.REQUEST_REJECTED, "too many requests at once")
        else:
            self._expect_message(stream_id)(data, fin)

    def _begin_unidirectional(self, stream_id: int, kind: int, data: bytes, fin: bool) -> None:
        match kind:
            case StreamType.CONTROL:
                feed = self._feed_control
            case StreamType.QPACK_ENCODER:
                feed = self._fields.feed_encoder_stream
            case StreamType.QPACK_DECODER:
                feed = self._fields.feed_decoder_stream
            case StreamType.PUSH:
                code = ErrorCode.ID_ERROR if self._is_client else ErrorCode.STREAM_CREATION_ERROR
                raise Http3Error(code, "nobody asked for pushes")
            case _:
                self.counters.unknown_streams += 1
                self._incoming[stream_id] = _ignore
                self._connection.stop_stream(stream_id, ErrorCode.STREAM_CREATION_ERROR)
                return
        if kind in self._critical:
            raise Http3Error(ErrorCode.STREAM_CREATION_ERROR, f"a second stream of type {kind}")
        self._critical[kind] = stream_id
        self._incoming[stream_id] = partial(self._feed_critical, feed)
        self._feed_critical(feed, data, fin)

    def _feed_critical(self, feed: Callable[[bytes], None], data: bytes, fin: bool) -> None:
        feed(data)
        if fin:
            raise Http3Error(ErrorCode.CLOSED_CRITICAL_STREAM, "a critical stream ended")

    def _feed_control(self, data: bytes) -> None:
        for kind, payload in self._control.feed(data):
            if (self.peer_settings is None) != (kind == FrameType.SETTINGS):
                if self.peer_settings is None:
                    raise Http3Error(ErrorCode.MISSING_SETTINGS, "control begins without SETTINGS")
                raise Http3Error(ErrorCode.FRAME_UNEXPECTED, "SETTINGS come twice")
            if kind in _NEVER_ON_CONTROL:
                raise Http3Error(ErrorCode.FRAME_UNEXPECTED, f"frame {kind:#x} on control")
            match kind:
                case FrameType.SETTINGS:
                    self.peer_settings = decode_settings(payload)
                    self._settings_received()
                case FrameType.GOAWAY:
                    decode_number(payload, "GOAWAY")
                    if self.session is not None:
                        self.session.draining()
                case FrameType.MAX_PUSH_ID if self._is_client:
                    raise Http3Error(ErrorCode.FRAME_UNEXPECTED, "MAX_PUSH_ID from a server")
                case FrameType.MAX_PUSH_ID:
                    decode_number(payload, "MAX_PUSH_ID")
                case FrameType.CANCEL_PUSH:
                    decode_number(payload, "CANCEL_PUSH")
                    raise Http3Error(ErrorCode.ID_ERROR, "CANCEL_PUSH where nothing is pushed")

    # -- messages --------------------------------------------------------------------------------

    def _expect_message(self, stream_id: int) -> Feed:
        """Read a request, or the response to one, from a stream."""
        reader = FrameReader(_WHOLE_IN_A_MESSAGE, FIELD_SECTION_BYTES)
        feed = partial(self._feed_message, stream_id, reader)
        self._incoming[stream_id] = feed
        self._requests.add(stream_id)
        return feed

    def _feed_message(self, stream_id: int, reader: FrameReader, data: bytes, fin: bool) -> None:
        for kind, payload in reader.feed(data):
            begun = stream_id not in self._requests
            self._check_frame(kind, begun)
            if kind == FrameType.HEADERS:
                fields = self._fields.decode(stream_id, payload)
                if self._fields_received(stream_id, fields):
                    self._requests.discard(stream_id)
                if self._incoming.get(stream_id) is _ignore:
                    return
            elif kind == FrameType.DATA:
                self._content_received(stream_id, payload)
        if fin and stream_id in self._requests:
            raise StreamError(ErrorCode.REQUEST_INCOMPLETE, "the stream ends before its header")
        if fin and not reader.between_frames:
            raise Http3Error(ErrorCode.FRAME_ERROR, "the stream ends inside of a frame")
        if fin:
            self._message_ended(stream_id, "")

    def _check_frame(self, kind: int, begun: bool) -> None:
        """Refuse a frame that has no place in a message, or not there."""
        if kind == FrameType.WEBTRANSPORT_STREAM:
            raise Http3Error(ErrorCode.FRAME_ERROR, "WebTransport within a message")
        if kind == FrameType.PUSH_PROMISE and self._is_client:
            raise Http3Error(ErrorCode.ID_ERROR, "nobody asked for pushes")
        misplaced = {FrameType.HEADERS} if begun else {FrameType.DATA}
        if kind in _NEVER_IN_A_MESSAGE or kind in misplaced:
            raise Http3Error(ErrorCode.FRAME_UNEXPECTED, f"frame {kind:#x} in a message")

    def _disregard(self, stream_id: int) -> None:
        """Nothing that still comes on this stream matters."""
        self._incoming[stream_id] = _ignore
        self._requests.discard(stream_id)

    def _abort(self, stream_id: int, code: int) -> None:
        """End both directions of a stream, one of which the peer may not have."""
        if stream_id == self._connect_id:
            self._message_ended(stream_id, f"it makes no sense: {describe(code)}")
        self._disregard(stream_id)
        if self._connection.established:
            self._connection.stop_stream(stream_id, code)
            if not stream_id & 2:
                self._connection.reset_stream(stream_id, code)

    # -- streams of a session --------------------------------------------------------------------

    def _claim(self, stream_id: int, session_id: int, data: bytes, fin: bool) -> None:
        """A stream names the session it is of."""
        if session_id & 3:
            raise Http3Error(ErrorCode.ID_ERROR, f"session {session_id} cannot be")
        self._incoming.pop(stream_id, None)
        if self.session is None:
            if self._early.begin(stream_id, session_id):
                self.counters.early_streams += 1
                self._incoming[stream_id] = partial(self._hold, stream_id)
                self._hold(stream_id, data, fin)
            else:
                self._reject(stream_id)
        elif self.session.id == session_id:
            if not fin:
                self._live.add(stream_id)
            if data or fin:
                try:
                    self._receiver.stream_data(stream_id, data, fin)
                except RemoteProtocolError as error:
                    self._refuse_session(error)
        else:
            self._reject(stream_id)

    def _hold(self, stream_id: int, data: bytes, fin: bool) -> None:
        if not self._early.add(stream_id, data, fin):
            self._reject(stream_id)

    def _reject(self, stream_id: int) -> None:
        self.counters.rejected_streams += 1
        self._abort(stream_id, BUFFERED_STREAM_REJECTED)
