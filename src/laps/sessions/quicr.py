"""One QUICR conversation: a bidirectional stream for each media stream, and the messages on it.

A stream is opened by who wants the media, with SUBSCRIBE, or by who has it, with PUBLISH_INTENT:

    opened with       who opened it says                   who did not says
    SUBSCRIBE         SUBSCRIBE again, SUBSCRIBE_CANCEL    SUBSCRIBE_REPLY, media, RELAY_REDIRECT
    PUBLISH_INTENT    media                                PUBLISH_INTENT_OK, SUBSCRIBE_REPLY,
                                                           SUBSCRIBE_CANCEL, RELAY_REDIRECT
    AUTHORIZATION     nothing more                         SUBSCRIBE_REPLY

where media is START_POINT, FRAGMENT and FIN. START_POINT ahead of SUBSCRIBE says where somebody who
catches up goes on. AUTHORIZATION ahead of either opening, or later, is a token for that stream; as
an opening it holds for the connection. Either side ends a stream by closing its half; then the
other closes its own. A relay opens streams too, with PUBLISH_INTENT, for the tracks that a
subscription with a mask has found. Whatever has no place is a QuicrViolation, and ends the session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeGuard

from laps.sessions.half_messages import HalfMessages
from laps.sessions.requests import NoLedger
from laps.wire.quicr.codes import QuicrCode, QuicrViolation, violation
from laps.wire.quicr.fragments import MediaOrder
from laps.wire.quicr.messages import (
    Authorization,
    Fin,
    Fragment,
    Holds,
    MessageReader,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    encode,
)

if TYPE_CHECKING:
    from laps.sessions.moqt import Wire
    from laps.sessions.requests import Ledger
    from laps.types import Location
    from laps.wire.quicr.messages import Message

_MEDIA: Final = (StartPoint, Fragment, Fin)

# Who may say what, behind the message that opened the stream.
_SUBSCRIBER: Final = (Subscribe, SubscribeCancel, Authorization)
_SERVER: Final = (SubscribeReply, RelayRedirect, *_MEDIA)
_PUBLISHER: Final = (*_MEDIA, Authorization)
_TAKER: Final = (PublishIntentOk, SubscribeReply, SubscribeCancel, RelayRedirect)

# So many streams that are over are remembered: who no longer reads one may have written to it
# before, and what comes of that later opens no new one.
OVER: Final = 1024

# Of one stream: a client has a token or two.
MAX_TOKENS: Final = 4

# A publisher may be in the middle of a fragment on each of its streams: this is 128 of the longest.
MAX_HELD_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True, eq=False)
class ControlStream:
    """A bidirectional stream, for one media stream."""

    id: int
    ours: bool
    "We opened it."
    opening: Subscribe | PublishIntent | Authorization | None = None
    "What it was opened with; None until that has come."
    since: Location | None = None
    "Where who opened it with SUBSCRIBE goes on, if it has said so."
    tokens: list[Authorization] = field(default_factory=list)
    "What was shown ahead of the opening."
    order: MediaOrder = field(default_factory=MediaOrder)
    "Of the fragments that the other side sends."
    final: Fin | None = None
    "The other side has said what its last object is."
    closed_here: bool = False
    closed_there: bool = False
    abandoned: bool = False
    "We gave it up: what is still on its way is not looked at."
    reader: MessageReader = field(default_factory=MessageReader)

    @property
    def is_over(self) -> bool:
        """Whether both sides have closed it."""
        return self.closed_here and self.closed_there


@dataclass(frozen=True, slots=True)
class Said:
    """The other side has said something; its first word on a stream of its own is the opening."""

    stream: ControlStream
    message: Message


@dataclass(frozen=True, slots=True)
class Closed:
    """The other side has ended a stream: well, or by giving it up."""

    stream: ControlStream
    well: bool


Event = Said | Closed


class QuicrSession:
    """One side of a QUICR session."""

    def __init__(
        self,
        wire: Wire,
        ledger: Ledger | None = None,
        half_messages: HalfMessages | None = None,
    ) -> None:
        """`ledger` counts what the other side has open, by stream."""
        self.streams: dict[int, ControlStream] = {}
        self._wire = wire
        self._ledger = ledger or NoLedger()
        self._half_messages = half_messages or HalfMessages()
        self._over: dict[int, None] = {}
        self.began = False
        "Whether a stream was ever opened, by either side."
        self.held_bytes = 0
        "Of messages that are not whole, on all streams together."

    # -- what the other side says ------------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, *, fin: bool) -> list[Event]:
        """Bytes of a bidirectional stream."""
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id in self._over:
                return []
            if not data:
                if fin:  # it was closed without a word
                    self._forget(stream_id)
                    self._wire.send(stream_id, b"", fin=True)
                return []
            stream = self.streams[stream_id] = ControlStream(stream_id, ours=False)
        if stream.abandoned:
            return self.stream_ended(stream_id) if fin else []
        if stream.closed_there:
            return []
        events: list[Event] = []
        held = stream.reader.held_bytes
        messages = stream.reader.feed(data)
        self._hold(stream.reader.held_bytes - held)
        for message in messages:
            if stream.opening is None and isinstance(message, StartPoint):
                self._goes_on(stream, message)
                continue
            if stream.opening is None and _is_of_stream(message):
                self._show(stream, message)
                continue
            self._check(stream, message)
            events.append(Said(stream, message))
        if fin:
            if not stream.reader.is_empty:
                raise violation("a control stream ends inside a message")
            events.append(self._ended(stream, well=not stream.order.inside))
        return events

    def _hold(self, more: int) -> None:
        """Each of thousands of streams may begin a message and leave it at that."""
        self.held_bytes += more
        self._half_messages.size += more
        if self.held_bytes > MAX_HELD_BYTES:
            problem = f"messages that are not whole have {self.held_bytes} bytes on all streams"
            raise QuicrViolation(QuicrCode.TOO_LARGE, problem)

    def let_go(self) -> None:
        """The session is closed, or about to be: nothing more is held of messages."""
        self._half_messages.size -= self.held_bytes
        self.held_bytes = 0
        for stream in self.streams.values():
            stream.reader = MessageReader()

    def stream_ended(self, stream_id: int) -> list[Event]:
        """The other side gave a stream up, or no longer reads it."""
        stream = self.streams.get(stream_id)
        if stream is None and stream_id not in self._over:  # ahead of its first word
            self._forget(stream_id)
            self._wire.end_stream(stream_id, QuicrCode.CANCELLED)
        if stream is None or stream.closed_there:
            return []
        ended = self._ended(stream, well=False)
        return [] if stream.abandoned else [ended]

    def _ended(self, stream: ControlStream, *, well: bool) -> Closed:
        stream.closed_there = True
        self._tidy(stream)
        return Closed(stream, well)

    def _goes_on(self, stream: ControlStream, message: StartPoint) -> None:
        """Who is about to subscribe has had what lies before."""
        if stream.since is not None:
            raise violation("a second StartPoint ahead of Subscribe")
        stream.since = message.start

    def _show(self, stream: ControlStream, message: Authorization) -> None:
        """A token for what is about to be asked for."""
        if len(stream.tokens) == MAX_TOKENS:
            raise violation(f"more than {MAX_TOKENS} tokens for one stream")
        stream.tokens.append(message)

    def _check(self, stream: ControlStream, message: Message) -> None:
        """Refuse what has no place here, or not now."""
        opening = stream.opening
        if opening is None:
            if not isinstance(message, Subscribe | PublishIntent | Authorization):
                raise violation(f"{_name(message)} opens no control stream")
            if stream.since is not None and not isinstance(message, Subscribe):
                raise violation(f"{_name(message)} behind a StartPoint")
            stream.opening = message
            self.began = True
            return
        allowed: tuple[type, ...]
        if isinstance(opening, Authorization):
            allowed = (SubscribeReply,) if stream.ours else ()
        elif isinstance(opening, Subscribe):
            allowed = _SERVER if stream.ours else _SUBSCRIBER
        else:
            allowed = _TAKER if stream.ours else _PUBLISHER
        if not isinstance(message, allowed):
            raise violation(f"{_name(message)} has no place on a stream of {_name(opening)}")
        if isinstance(message, _MEDIA):
            self._check_media(stream, message)
        elif isinstance(opening, Authorization):
            pass
        elif isinstance(message, Subscribe | SubscribeCancel) and message.name != opening.name:
            raise violation(f"{_name(message)} names something else than what its stream is for")

    def _check_media(self, stream: ControlStream, message: StartPoint | Fragment | Fin) -> None:
        if stream.final is not None:
            raise violation(f"{_name(message)} behind a Fin")
        match message:
            case Fragment():
                stream.order.check(message)
            case StartPoint(start):
                stream.order.start(start)
            case Fin():
                if stream.order.inside:
                    raise violation("Fin inside an object")
                stream.final = message

    # -- what we say -------------------------------------------------------------------------------

    def open(
        self,
        opening: Subscribe | PublishIntent | Authorization,
        since: Location | None = None,
        token: Authorization | None = None,
    ) -> ControlStream:
        """A stream of our own; of what is subscribed to, we have what lies before `since`."""
        stream_id = self._wire.open_stream()
        stream = ControlStream(stream_id, ours=True, opening=opening, since=since)
        self.streams[stream_id] = stream
        if token is not None:
            self.send(stream, token)
        if since is not None:
            self.send(stream, StartPoint(since))
        self.send(stream, opening)
        return stream

    def send(self, stream: ControlStream, message: Message) -> None:
        """Say something, unless our half is closed."""
        if not stream.closed_here:
            self._wire.send(stream.id, encode(message))

    def close(self, stream: ControlStream) -> None:
        """End our half, behind all that was said."""
        if not stream.closed_here:
            stream.closed_here = True
            self._ledger.ended(stream.id)
            self._wire.send(stream.id, b"", fin=True)
            self._tidy(stream)

    def abandon(self, stream: ControlStream, code: int) -> None:
        """Give a stream up, with what is still to be sent on it and what is to come."""
        if not stream.abandoned and not stream.is_over:
            stream.closed_here = stream.abandoned = True
            self._ledger.ended(stream.id)
            self._wire.end_stream(stream.id, code)
            self._tidy(stream)

    def _tidy(self, stream: ControlStream) -> None:
        if stream.is_over:
            self._forget(stream.id)

    def _forget(self, stream_id: int) -> None:
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self.held_bytes -= stream.reader.held_bytes
            self._half_messages.size -= stream.reader.held_bytes
        self._over[stream_id] = None
        if len(self._over) > OVER:
            del self._over[next(iter(self._over))]


def _is_of_stream(message: Message) -> TypeGuard[Authorization]:
    return isinstance(message, Authorization) and message.holds is Holds.STREAM


def _name(message: Message) -> str:
    return type(message).__name__
