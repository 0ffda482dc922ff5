"""One QUICR session on one connection: what is said on control streams, to those it concerns.

    transport -> QuicrChannel -> users of streams    feeds of subscriptions, flows of our tracks
              <- egress       <-

A channel lives as long as its connection. What outlives it (a `QuicrTrack`, a `QuicrSubscription`)
begins anew on the next one.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from laps.client.carrier import Carrier
from laps.client.tokens import NO_TOKEN
from laps.errors import ConnectionClosed, InvalidText, StreamLimitReached
from laps.net.bidirectional import Bidirectional
from laps.sessions.quicr import Closed, QuicrSession
from laps.types import Address
from laps.wire.quicr.codes import QuicrCode, QuicrViolation, violation
from laps.wire.quicr.messages import (
    Holds,
    PublishIntent,
    RelayRedirect,
    Subscribe,
    SubscribeCancel,
    decode_datagram,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from laps.client.quicr.outflow import QuicrOutflow
    from laps.client.tokens import TokenSource
    from laps.net.transport import Transport
    from laps.sessions.quicr import ControlStream, Event
    from laps.types import Location
    from laps.wire.quicr.messages import Authorization, Datagram, Message

log = logging.getLogger(__name__)


class StreamUser(Protocol):
    """Whose a control stream is."""

    token: TokenSource
    "What is shown on it."

    def opened(self, stream: ControlStream) -> None:
        """A stream of our own is open."""

    def said(self, message: Message) -> None:
        """The relay has said something on it."""

    def closed(self, well: bool) -> None:
        """The relay has ended it."""

    def lost(self) -> None:
        """The connection is over."""

    def tick(self, now: float) -> None:
        """About once a second."""


class _Opening(NamedTuple):
    """A stream that is about to be opened."""

    opening: Subscribe | PublishIntent | Authorization
    user: StreamUser
    since: Location | None
    token: TokenSource


class QuicrChannel(Carrier):
    """One QUICR session with a relay; the receiver of its connection."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, expired_code=QuicrCode.CANCELLED, full_code=QuicrCode.NOT_READ)
        self.session = QuicrSession(Bidirectional(transport, self.egress))
        self.users: dict[ControlStream, StreamUser] = {}
        self.media: dict[int, Callable[[Datagram], None]] = {}
        "Who takes the datagrams of a datagram stream; we choose its number ahead of the first."
        self.feeds: set[object] = set()
        "Subscriptions that live here."
        self.flows: dict[QuicrOutflow, None] = {}
        "Our tracks that are sent here."
        self.takers: list[Callable[[ControlStream, PublishIntent], bool]] = []
        "Asked in turn whether they want a track that the relay offers."
        self.unknown_datagrams = 0
        self.malformed_datagrams = 0
        self._unanswered_users: set[object] = set()
        self._datagram_ids = 0
        self._opening: deque[_Opening] = deque()
        "Streams that the relay does not allow yet."

    @property
    def asking(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._unanswered_users)

    def awaits(self, user: object, answered: bool) -> None:
        """Somebody waits for an answer, or no longer: then a full buffer stops nothing."""
        if answered:
            self._unanswered_users.discard(user)
        else:
            self._unanswered_users.add(user)
        self.pool.changed()

    @property
    def idle(self) -> bool:
        """Whether nothing is open on it."""
        busy = any(flow.queue or flow.leaving or flow.finished for flow in self.flows)
        return not self.feeds and not busy

    def next_datagram_id(self) -> int:
        """The number of a datagram stream that we are sent."""
        self._datagram_ids += 1
        return self._datagram_ids

    # -- streams of our own ------------------------------------------------------------------------

    def open(
        self,
        opening: Subscribe | PublishIntent | Authorization,
        user: StreamUser,
        since: Location | None = None,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        """Open a control stream, as soon as the relay allows another one."""
        self._opening.append(_Opening(opening, user, since, token))
        self._open_next()

    def show_again(self, token: TokenSource) -> None:
        """Show a newer token where the one before it was shown."""
        if token.shown is None:
            return
        for stream, user in self.users.items():
            if user.token is token:
                self.session.send(stream, token.shown.in_quicr(Holds.STREAM))

    def _open_next(self) -> None:
        while self._opening and self.alive:
            opening, user, since, token = self._opening[0]
            shown = None if token.shown is None else token.shown.in_quicr(Holds.STREAM)
            try:
                stream = self.session.open(opening, since, shown)
            except StreamLimitReached:
                return  # `writable` follows
            except ConnectionClosed:
                return  # so does `closed`
            self._opening.popleft()
            self.users[stream] = user
            user.opened(stream)

    def release(self, user: StreamUser, stream: ControlStream | None) -> None:
        """Nobody listens to a stream any more, or wants it opened."""
        self.awaits(user, True)
        if stream is None:
            self._opening = deque(item for item in self._opening if item.user is not user)
        else:
            self.users.pop(stream, None)

    def unsubscribe(self, stream: ControlStream, reason: str) -> None:
        """Nothing more is wanted on a stream that brings media."""
        opening = stream.opening
        if self.alive and isinstance(opening, Subscribe | PublishIntent):
            self.session.send(stream, SubscribeCancel(opening.name, reason))
            self.session.close(stream)
            if not stream.closed_there and self.transport.established:
                self.transport.stop_stream(stream.id, QuicrCode.CANCELLED)

    # -- as `Receiver` -----------------------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""
        self.received += 1
        if stream_id & 2:
            raise violation("a unidirectional stream has no place in QUICR")
        self._take(self.session.receive(stream_id, data, fin=fin))

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self._take(self.session.stream_ended(stream_id))

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.egress.stopped(stream_id)
        self._take(self.session.stream_ended(stream_id))

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""
        self.received += 1
        try:
            datagram = decode_datagram(data)
        except QuicrViolation:
            self.malformed_datagrams += 1  # it might have been lost as well
            return
        take = self.media.get(datagram.stream_id)
        if take is None:
            self.unknown_datagrams += 1  # of a subscription that is over
        else:
            take(datagram)

    def writable(self) -> None:
        """As `Receiver`."""
        super().writable()
        self._open_next()
        self.pump()

    def pump(self) -> None:
        """Let tracks send what waits, in turns, as far as there is room."""
        busy = deque(flow for flow in self.flows if flow.queue)
        while busy and self.has_room and self.alive:
            flow = busy.popleft()
            if flow.step():
                busy.append(flow)

    def _tick(self, now: float) -> None:
        super()._tick(now)
        for user in list(self.users.values()):
            user.tick(now)

    def _unanswered(self) -> Iterable[asyncio.Future[Any]]:
        return ()

    def _lost(self) -> None:
        users = [*self.users.values(), *(item.user for item in self._opening)]
        self.users.clear()
        self.media.clear()
        self._opening.clear()
        for user in users:
            user.lost()

    # -- what the relay says -----------------------------------------------------------------------

    def _take(self, events: list[Event]) -> None:
        for event in events:
            stream = event.stream
            user = self.users.get(stream)
            if isinstance(event, Closed):
                if user is None:
                    self.session.close(stream)
                else:
                    del self.users[stream]
                    user.closed(event.well)
            elif isinstance(event.message, RelayRedirect):
                self._redirected(event.message.address)
            elif user is not None:
                user.said(event.message)
            elif isinstance(event.message, PublishIntent):
                self._offered(stream, event.message)

    def _offered(self, stream: ControlStream, message: PublishIntent) -> None:
        """The relay has a track that somebody may have asked for."""
        if not any(take(stream, message) for take in list(self.takers)):
            self.unsubscribe(stream, "nobody here asked for it")

    def _redirected(self, text: str) -> None:
        """The relay leaves, and says where to go."""
        try:
            address = Address.parse(text)
        except InvalidText as error:
            log.warning("the relay leaves, and where to go cannot be read: %s", error)
            return
        if not address.is_dialable:
            log.warning("the relay leaves, and %s is nowhere to go", address)
        elif not self.leaving.done():
            self.leaving.set_result(f"quicr://{address}")
