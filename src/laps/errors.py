"""Everything that can go wrong, and whose fault it is.

LapsError
    ConfigError                       a person wrote something wrong; the command line exits with 2
        InvalidText                   a node id, an address ... that does not read as one
    ListenError                       a port in use, an address that is not ours; exits with 2 too
    ProtocolError                     carries the wire `code` that closes the connection or stream
        LocalProtocolError            we were about to break the protocol
        RemoteProtocolError           the peer broke it
            LimitExceeded              1
            NotAuthorized              8
            ConnectNotReceived        32
            ConnectResponseNotReceived 33
            InvalidMessageType        34
            InvalidEncoding           35
            InvalidStartOfStream      36
    TransportError                    the QUIC connection under us
        ConnectionClosed
        HandshakeFailed
        StreamLimitReached
        SendBufferFull
        DatagramTooLarge
    ObjectTooLarge                    an object of more bytes than can be written, or are read
    ObjectsMissing                    a strict reader was not given all of a track
    RequestRefused                    the relay said no to what an application asked for
        RequestUnauthorized           because no token allows it; an Unauthorized
    SessionClosed                     the session of an application with its relay is over
        SessionUnauthorized           because no token allows it; an Unauthorized
    Unauthorized                      what a relay refuses for want of a valid token
"""
# ruff: noqa: N818 - a name says what happened; the tree above says that it is an error.

import json
from enum import IntEnum
from typing import ClassVar, Self


class CloseCode(IntEnum):
    """The document's QUIC application error codes, in CONNECTION_CLOSE and RESET_STREAM."""

    GRACEFUL = 1
    GOAWAY = 2
    NOT_AUTHORIZED = 8
    CONNECT_NOT_RECEIVED = 32
    CONNECT_RESPONSE_NOT_RECEIVED = 33
    INVALID_MESSAGE_TYPE = 34
    INVALID_ENCODING = 35
    INVALID_START_OF_STREAM = 36
    CONTROL_STREAM_SWITCHED = 128

    def describe(self) -> str:
        """The code in an operator's words."""
        return _CLOSE_CODE_WORDS[self]


_CLOSE_CODE_WORDS = {
    CloseCode.GRACEFUL: "closed gracefully",
    CloseCode.GOAWAY: "asked to move to another relay",
    CloseCode.NOT_AUTHORIZED: "not authorized",
    CloseCode.CONNECT_NOT_RECEIVED: "the first message was not CONNECT",
    CloseCode.CONNECT_RESPONSE_NOT_RECEIVED: "the first answer was not CONNECT_RESPONSE",
    CloseCode.INVALID_MESSAGE_TYPE: "invalid control message type",
    CloseCode.INVALID_ENCODING: "invalid encoding of a message",
    CloseCode.INVALID_START_OF_STREAM: "invalid start of a new data stream",
    CloseCode.CONTROL_STREAM_SWITCHED: "the control stream moved to a new stream",
}


class LapsError(Exception):
    """Whatever LAPS raises on purpose."""


class ConfigError(LapsError):
    """What a person wrote is wrong: one line naming the thing, the value and the way out."""


class InvalidText(ConfigError, ValueError):
    """Text that does not read as the value it stands for."""

    def __init__(self, thing: str, text: str, problem: str) -> None:
        # All of it goes to Exception, so that the error survives pickling.
        super().__init__(thing, text, problem)
        self.thing = thing
        self.text = text
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.thing} {quote(self.text)} {self.problem}"


def quote(value: object) -> str:
    """A value a person wrote, much as TOML writes it, on one short line whatever it holds."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


class ListenError(LapsError):
    """The address to listen on cannot be had."""


class ProtocolError(LapsError):
    """The protocol was, or was about to be, broken."""

    # What has no code of its own in the document is an encoding nobody can accept.
    code: ClassVar[int] = CloseCode.INVALID_ENCODING


class LocalProtocolError(ProtocolError):
    """We were about to break the protocol; `code` is what the peer would have answered."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; `code` is what it is closed or reset with."""


class LimitExceeded(RemoteProtocolError):
    """The peer asks to hold more than it may; the document has no code for it but the graceful."""

    code = CloseCode.GRACEFUL


class NotAuthorized(RemoteProtocolError):
    """The peer may not do what it asked for."""

    code = CloseCode.NOT_AUTHORIZED


class ConnectNotReceived(RemoteProtocolError):
    """The peer that dialled us sent something ahead of CONNECT."""

    code = CloseCode.CONNECT_NOT_RECEIVED


class ConnectResponseNotReceived(RemoteProtocolError):
    """The peer we dialled sent something ahead of CONNECT_RESPONSE."""

    code = CloseCode.CONNECT_RESPONSE_NOT_RECEIVED


class InvalidMessageType(RemoteProtocolError):
    """A control message of a type that does not exist or has no place on a control stream."""

    code = CloseCode.INVALID_MESSAGE_TYPE


class InvalidEncoding(RemoteProtocolError):
    """Bytes that do not read as the message they claim to be."""

    code = CloseCode.INVALID_ENCODING


class InvalidStartOfStream(RemoteProtocolError):
    """A data stream whose first object is not a new stream data object."""

    code = CloseCode.INVALID_START_OF_STREAM


class TransportError(LapsError):
    """The QUIC connection under us cannot do what was asked of it."""


class ConnectionClosed(TransportError):
    """The connection is closed, by whom and why.

    What an application code means depends on the protocol that was spoken: `CloseCode` reads it
    for a peer, MoQT and QUICR have their own.
    """

    def __init__(self, code: int, reason: str, by_peer: bool, application: bool) -> None:
        super().__init__(code, reason, by_peer, application)
        self.code = code
        """The application's error code, or QUIC's own."""
        self.reason = reason
        """The reason phrase that came with it, often empty."""
        self.by_peer = by_peer
        """The peer closed it, not we."""
        self.application = application
        """`code` is the application's, not QUIC's."""

    def again(self) -> Self:
        """The same to raise: one that is kept must not gather the frames of all who hear it."""
        return type(self)(self.code, self.reason, self.by_peer, self.application)

    def __str__(self) -> str:
        who = "the peer" if self.by_peer else "us"
        error = f"application error {self.code}" if self.application else f"QUIC error {self.code}"
        return f"connection closed by {who}: {error}" + (f": {self.reason}" if self.reason else "")


class HandshakeFailed(TransportError):
    """The connection was never established."""


class StreamLimitReached(TransportError):
    """The peer allows no more streams at the moment."""


class SendBufferFull(TransportError):
    """The peer reads slower than we write, and the bound on what waits for it is reached."""


class DatagramTooLarge(TransportError):
    """The datagram does not fit the path."""


class ObjectTooLarge(LapsError):
    """An object has more bytes than can be written, or than its reader takes."""


class ObjectsMissing(LapsError):
    """A reader that wants all of a track was not given some of it."""


class RequestRefused(LapsError):
    """The relay refused a request, or ended what it had granted."""

    def __init__(self, what: str, code: int, reason: str = "") -> None:
        super().__init__(what, code, reason)
        self.what = what
        """What was asked for, in words."""
        self.code = code
        """A `laps.wire.moqt.codes.RequestCode` or `DoneCode`, or a number that is none."""
        self.reason = reason
        """The relay's own words, often empty."""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.what} was refused (code {self.code:#x}){why}"


class SessionClosed(LapsError):
    """The session with a relay is over, and nothing can be asked of it any more."""


class Unauthorized(LapsError):
    """No token that was shown allows what was asked for. The token itself is never part of it."""

    reason: str
    """The relay's own words, often empty."""
    expired: bool
    """A token that allowed it has ended: a newer one is worth another attempt."""


class RequestUnauthorized(RequestRefused, Unauthorized):
    """The relay refused a request, or ended what it had granted, because of its tokens."""

    def __init__(self, what: str, code: int, reason: str = "", expired: bool = False) -> None:
        super().__init__(what, code, reason)
        self.args = (what, code, reason, expired)
        self.expired = expired

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.what} was refused (not authorized){why}"


class SessionUnauthorized(SessionClosed, Unauthorized):
    """The relay refused a session, or ended it, because of its tokens."""

    def __init__(self, what: str, reason: str = "", expired: bool = False) -> None:
        super().__init__(what, reason, expired)
        self.what = what
        """Which session, in words."""
        self.reason = reason
        self.expired = expired

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.what} was refused (not authorized){why}"
