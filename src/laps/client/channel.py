"""One MoQT session on one connection: messages to those they concern, and what is sent.

    transport -> Channel -> inbound    objects that others publish: subscriptions and fetches
                         -> outbound   tracks of our own: who asks for them
              <- egress  <-

A channel lives as long as its connection. What outlives it (a `Track`, a `Subscription`) begins
anew on the next one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from laps.client.carrier import Carrier
from laps.client.inbound import Inbound
from laps.client.outbound import Outbound
from laps.client.slots import Need, Slots
from laps.client.tokens import closed, refused
from laps.net.bidirectional import Bidirectional
from laps.sessions.moqt import MoqtLimits, MoqtSession
from laps.wire.moqt.codes import RequestCode, ResetCode
from laps.wire.moqt.messages import (
    ClientSetup,
    Fetch,
    FetchCancel,
    FetchOk,
    Goaway,
    NamespaceAdded,
    NamespaceDone,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    RequestUpdate,
    ServerSetup,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from laps.errors import SessionClosed
    from laps.names import Namespace
    from laps.net.transport import Transport
    from laps.sessions.requests import Answer, Request
    from laps.types import TrackName
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import (
        Message,
    )

log = logging.getLogger(__name__)

# A publisher waits with the next object, too, while so many streams have not begun.
STREAMS_WAITING: Final = 1000

# A relay that allows no requests in its setup has this long to allow some; then they are sent all
# the same. One of them (lapsRelay) never says how many it takes, and takes any.
REQUEST_LIMIT_S: Final = 0.5

# A relay keeps a request open for each track that it tells of.
MAX_OFFERS: Final = 100_000


class Channel(Carrier):
    """One session with a relay; the receiver of its connection."""

    def __init__(
        self,
        transport: Transport,
        dialect: Dialect | None,
        *,
        is_client: bool = True,
        webtransport: bool = False,
    ) -> None:
        """`dialect` is what the ALPN named; None is draft 14."""
        super().__init__(
            transport,
            expired_code=ResetCode.DELIVERY_TIMEOUT,
            full_code=ResetCode.INTERNAL_ERROR,
        )
        self.session = MoqtSession(
            Bidirectional(transport, self.egress),
            dialect,
            is_client=is_client,
            limits=MoqtLimits(requests=MAX_OFFERS),
            webtransport=webtransport,
        )
        # HTTP/3 takes some of the first streams for itself.
        first_stream = None if webtransport else 3 if is_client else 2
        self.inbound = Inbound(self, first_stream)
        self.outbound = Outbound(self)
        self.watches: list[Callable[[Namespace, bool], None]] = []
        "Told of namespaces that come and go."
        self.offers: list[Callable[[TrackName, bool], bool]] = []
        "Told of tracks that come and go; whether that is of interest."
        self.offered: dict[int, TrackName] = {}
        "Tracks that the relay has told of with PUBLISH, by its request."
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.streams_begun = 0
        "Streams of ours, of which some may wait to be opened."
        self.slots = Slots(
            self.session, self.loop, lambda: len(self.inbound.inflows), self.pool.changed
        )
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._asking: dict[int, asyncio.Future[Answer]] = {}

    @property
    def dialect(self) -> Dialect:
        """The draft that is spoken."""
        return self.session.dialect

    def why_closed(self) -> SessionClosed:
        """As `Carrier`."""
        if self.over.done():
            refusal = closed("the session with the relay", self.over.result())
            if refusal is not None:
                return refusal
        return super().why_closed()

    @property
    def idle(self) -> bool:
        """Whether nothing is open on it."""
        return self.outbound.idle and not self.inbound.inflows

    # -- requests ----------------------------------------------------------------------------------

    def request(self, message: Request, answered: Callable[[Answer], None] | None = None) -> int:
        """Ask for something; `answered` is called with the answer, ahead of all that follows it.

        Whoever asks has waited for its turn: `Slots.take`.
        """
        if not self.alive:
            raise self.why_closed()
        request_id = self.session.request(message)
        if answered is not None:
            self._answers[request_id] = answered
        return request_id

    async def ask(self, message: Request, what: str) -> Answer:
        """Ask for something and wait for the answer; RequestRefused if it is no."""
        lasts = isinstance(message, SubscribeNamespace)
        if not await self.slots.take(Need.PUBLISH if lasts else Need.PASSING):
            raise self.why_closed()
        future: asyncio.Future[Answer] = self.loop.create_future()

        def answered(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        request_id = self.request(message, answered)
        self._asking[request_id] = future
        self.inbound.review()
        try:
            answer = await future
        finally:
            self._asking.pop(request_id, None)
            self._answers.pop(request_id, None)
        if isinstance(answer, RequestError):
            raise refused(what, answer.code, answer.reason)
        return answer

    @property
    def asking(self) -> bool:
        """Whether somebody waits for an answer, or for the relay to allow the question."""
        return bool(self._asking or self.slots.waiting)

    def leave(self) -> None:
        """There is another channel to go to."""
        super().leave()
        self.slots.left()

    def may_publish(self) -> bool:
        """Whether the relay can be told of another track now."""
        return self.slots.may(Need.PUBLISH)

    async def publishable(self) -> bool:
        """Wait until it can; False if the channel is closed, or there is another one."""
        return await self.slots.take(Need.PUBLISH)

    def forget(self, request_id: int) -> None:
        """Nobody waits for the answer to a request any more."""
        self._answers.pop(request_id, None)

    @property
    def has_room(self) -> bool:
        """Whether little enough waits to be sent."""
        waiting = self.streams_begun - self.egress.counters.streams
        return super().has_room and waiting < STREAMS_WAITING

    def _tick(self, now: float) -> None:
        super()._tick(now)
        self.inbound.expire(now)
        self.outbound.tick()

    # -- as `Receiver` -----------------------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""
        self.received += 1
        if stream_id & 2:
            self.inbound.receive(stream_id, data, fin)
            return
        for message in self.session.receive(stream_id, data, fin=fin):
            self._take(message)
        if self.slots.waiting:
            self.slots.review()  # a MAX_REQUEST_ID may have been among them

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        if stream_id & 2:
            self.inbound.reset(stream_id, code)
            return
        for message in self.session.stream_ended(stream_id):
            self._take(message)

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.egress.stopped(stream_id)
        if not stream_id & 2:
            for message in self.session.stream_ended(stream_id):
                self._take(message)

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""
        self.received += 1
        self.inbound.datagram(data)

    def _unanswered(self) -> Iterable[asyncio.Future[Any]]:
        return *self._asking.values(), self.ready

    def _lost(self) -> None:
        if not self.ready.cancelled():
            self.ready.exception()  # it may be that nobody has waited for it
        self.slots.closed()
        self.inbound.closed()
        self.outbound.closed()

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:  # noqa: C901 - a flat table
        match message:
            case ServerSetup() | ClientSetup():
                self.session.flush()
                if not self.ready.done():
                    self.ready.set_result(None)
                self.inbound.release(None)
                if not message.max_request_id:
                    self.loop.call_later(REQUEST_LIMIT_S, self._presume_requests)
            case SubscribeOk() | PublishOk() | FetchOk() | RequestOk() | RequestError():
                answered = self._answers.pop(message.request_id, None)
                if answered is not None:
                    answered(message)
                if isinstance(message, SubscribeOk):
                    self.inbound.release(message.alias)
            case Goaway():
                if not self.leaving.done():
                    self.leaving.set_result(message.uri.decode("utf-8", "replace"))
            case PublishDone(request_id) if request_id in self.offered:
                self._tell_track(self.offered.pop(request_id), False)
            case PublishDone():
                self.inbound.done(message)
            case NamespaceAdded(namespace):
                self._tell(namespace, True)
            case NamespaceDone(namespace):
                self._tell(namespace, False)
            case PublishNamespace(request_id, namespace):
                self.session.send(RequestOk(request_id))
                self._tell(namespace, True)
            case PublishNamespaceDone(_, namespace) if namespace is not None:
                self._tell(namespace, False)
            case Publish(request_id, track, alias):
                # Whoever wants a track subscribes to it.
                self.session.drop_alias(alias, request_id)
                if self._tell_track(track, True):
                    self.offered[request_id] = track
                    self.session.send(PublishOk(request_id, forward=False))
                else:
                    self.refuse(request_id, RequestCode.UNINTERESTED, "nobody here asked for it")
            case SubscribeNamespace(request_id):
                self.refuse(request_id, RequestCode.NOT_SUPPORTED, "this is no relay")
            case Subscribe() | Fetch() | TrackStatus() | RequestUpdate() | PublishNamespaceCancel():
                self.outbound.take(message)
            case Unsubscribe(request_id) | FetchCancel(request_id):
                self.outbound.withdrawn(request_id)
            case _:
                log.debug("nothing to do for %s", message)

    def _presume_requests(self) -> None:
        if self.alive:
            self.session.presume_requests()
            self.slots.review()

    def refuse(self, request_id: int, code: RequestCode, reason: str) -> None:
        """Answer a request with an error; the session goes on."""
        self.session.send(RequestError(request_id, code, reason))

    def _tell_track(self, track: TrackName, added: bool) -> bool:
        told = [offer(track, added) for offer in self.offers]
        return any(told)

    def _tell(self, namespace: Namespace, added: bool) -> None:
        for watch in list(self.watches):
            watch(namespace, added)
