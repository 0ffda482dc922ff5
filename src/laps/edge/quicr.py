"""A QUICR client at a relay: what its control streams ask, and what is sent on them.

    control streams   session -> here -> Edge, relay       fragments   Posting -> relay -> live
                                                                       QuicrDelivery <- live

A SUBSCRIBE is answered at once, whether or not anybody publishes the name yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeClient
from laps.edge.media_queue import MediaCounters
from laps.edge.moqt_publishing import Source
from laps.edge.quicr_publication import Posting
from laps.edge.quicr_subscription import QuicrDelivery
from laps.edge.quicr_wildcards import Wildcards
from laps.sessions.quicr import Closed, QuicrSession
from laps.telemetry.records import is_telemetry
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.messages import PublishDone
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import (
    Fin,
    Fragment,
    Intent,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    Response,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    decode_datagram,
)
from laps.wire.quicr.names import NameRefused, Pattern, decode_name

if TYPE_CHECKING:
    from laps.edge.client import ClientLink
    from laps.edge.edge import Edge
    from laps.edge.quicr_history import History
    from laps.edge.quicr_wildcards import Offer
    from laps.sessions.quicr import ControlStream, Event
    from laps.tracks.track import LiveTrack
    from laps.types import Address, Location, TrackHash
    from laps.wire.moqt.messages import Fetch
    from laps.wire.quicr.messages import Message


# Why a publisher may stop without its track having ended.
_NO_ENDS: Final = (DoneCode.GOING_AWAY, DoneCode.EXPIRED, DoneCode.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class QuicrSettings:
    """What an operator may decide about QUICR clients."""

    subscription_s: float = 30.0
    "A subscription that is not renewed for so long expires; 0: never."
    streams: int = 1000
    "Control streams of one client that may be open at once."
    datagrams: bool = True
    "Whether publishers that can are asked for datagrams."


@dataclass(slots=True)
class QuicrCounters:
    """What QUICR clients did, for the operator."""

    refused: int = 0
    "Subscriptions and intents that were answered with a failure."
    not_offered: int = 0
    "Tracks that a subscription with a mask found when too many streams were open."
    expired: int = 0
    renewed: int = 0
    redirected: int = 0
    unknown_datagrams: int = 0
    "For a datagram stream that is not known."
    malformed_datagrams: int = 0
    media: MediaCounters = field(default_factory=MediaCounters)


class QuicrClient(EdgeClient[QuicrDelivery]):
    """One QUICR session with a client."""

    ready = True
    violations = (QuicrCode.PROTOCOL_VIOLATION, QuicrCode.INVALID_ENCODING, QuicrCode.TOO_LARGE)

    def __init__(self, edge: Edge, link: ClientLink) -> None:
        super().__init__(edge, link)
        self.session = QuicrSession(link.wire)
        self.deliveries: dict[int, QuicrDelivery] = {}
        "What it subscribes to, by the track's hash,"
        self._by_stream: dict[int, QuicrDelivery] = {}
        "and by its control stream."
        self.wildcards = Wildcards(self)
        "What it subscribes to with a mask."
        self._postings: dict[int, Posting] = {}
        "What it publishes, by control stream,"
        self._by_datagram: dict[int, Posting] = {}
        "and by datagram stream."
        self.part_bytes = 0
        "What is held of objects that it has begun on streams."
        self._lingering: dict[Posting, None] = {}
        "Those that have ended, and of which datagrams may still come."
        self._datagram_ids = 0
        self._pumping: dict[QuicrDelivery, float] = {}
        self._was_pressed = False
        self._closed = False
        edge.client_ready(self, edge.relay.live.cache.now)

    @property
    def _counters(self) -> QuicrCounters:
        return self.edge.quicr

    @property
    def _now(self) -> float:
        return self.edge.relay.live.cache.now

    # -- what the connection tells -----------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the client writes."""
        if stream_id & 2:
            raise QuicrViolation(
                QuicrCode.PROTOCOL_VIOLATION, "a unidirectional stream has no place in QUICR"
            )
        self.edge.relay.live.cache.now = now
        self._take(self.session.receive(stream_id, data, fin=fin), now)

    def stream_reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        self.edge.relay.live.cache.now = now
        self._take(self.session.stream_ended(stream_id), now)

    def stop_sending(self, stream_id: int, now: float) -> None:
        """The client no longer reads one of our streams."""
        self.stream_reset(stream_id, 0, now)

    def receive_datagram(self, data: bytes, now: float) -> None:
        """A fragment in a datagram."""
        self.edge.relay.live.cache.now = now
        try:
            datagram = decode_datagram(data)
        except QuicrViolation:
            # It may be lost as well as broken: the session goes on.
            self._counters.malformed_datagrams += 1
            return
        posting = self._by_datagram.get(datagram.stream_id)
        if posting is None:
            self._counters.unknown_datagrams += 1
            return
        posting.datagram(datagram.fragment, datagram.terms, now)

    def writable(self, now: float) -> None:
        """There is room to send again."""
        self.edge.relay.live.cache.now = now
        for delivery in list(self._by_stream.values()):
            if delivery.queue or delivery.pressed:
                delivery.pump()
        for serving in list(self.serving.values()):
            serving.pump(now)

    def closed(self, now: float) -> None:
        """The session is over, whoever ended it."""
        self.edge.relay.live.cache.now = now
        for posting in list(self._lingering):
            self._source_over(posting, True, now)
        self._closed = True
        for posting in self._postings.values():
            posting.close(now, None)  # what came of it is whole
        self._postings.clear()
        self._by_datagram.clear()
        self.edge.client_closed(self, now)

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, events: list[Event], now: float) -> None:
        for event in events:
            stream = event.stream
            if isinstance(event, Closed):
                self._stream_closed(stream, event.well, now)
            elif stream.id in self._postings:
                self._posted(self._postings[stream.id], event.message, now)
            elif not stream.closed_here:  # or else it was refused, or is over
                self._asked(stream, event.message, now)

    def _asked(self, stream: ControlStream, message: Message, now: float) -> None:
        match message:
            case Subscribe():
                self._subscribed(stream, message, now)
            case SubscribeCancel() | SubscribeReply() if stream.ours:
                self.wildcards.declined(stream, now)
            case SubscribeCancel():
                self._let_go(stream, now)
                self.session.close(stream)
            case PublishIntent():
                self._intends(stream, message, now)
            case PublishIntentOk(datagram_stream_id):
                self.wildcards.accepted(stream, datagram_stream_id, now)
            case _:
                pass  # media on a stream that was refused, or a redirect: of no interest here

    def _stream_closed(self, stream: ControlStream, well: bool, now: float) -> None:
        posting = self._postings.pop(stream.id, None)
        if posting is not None:
            self._post_over(posting, well, now)
            return
        delivery = self._by_stream.get(stream.id)
        self._let_go(stream, now)
        if delivery is not None and delivery.queue:
            self.session.abandon(stream, QuicrCode.CANCELLED)
        else:
            self.session.close(stream)

    def say(self, stream: ControlStream, message: Message) -> None:
        """As `Reader`."""
        self.session.send(stream, message)

    def _fail(self, stream: ControlStream, reason: str) -> None:
        self._counters.refused += 1
        self.session.send(stream, SubscribeReply(Response.FAIL, reason))
        self.session.close(stream)

    # -- it subscribes -----------------------------------------------------------------------------

    def _subscribed(self, stream: ControlStream, message: Subscribe, now: float) -> None:
        known = self._by_stream.get(stream.id) or self.wildcards.get(stream)
        if known is not None:
            self._counters.renewed += 1
            known.renewed_at = now
            self.session.send(stream, SubscribeReply(Response.OK))
            return
        if len(self.session.streams) > self.edge.settings.quicr.streams:
            self._fail(stream, f"{len(self.session.streams) - 1} streams are open: close some")
            return
        pattern = Pattern(message.name, message.mask)
        datagram_id = message.datagram_stream_id
        try:
            pattern.check()
            self.check_datagrams(datagram_id, None if pattern.is_wild else pattern)
        except NameRefused as refused:
            self._fail(stream, str(refused))
            return
        self._watch_expiry(stream, now)
        if pattern.is_wild:
            self.wildcards.watch(stream, pattern, message, now)
        else:
            track = self.edge.track(pattern.track())
            self._renew_elsewhere(track, now)
            self.session.send(stream, SubscribeReply(Response.OK))
            delivery = self.deliver(stream, track, message.intent, datagram_id, now)
            delivery.renewed_at = now
        self._redirect(stream, self.edge.going_to)

    def check_datagrams(self, datagram_id: int | None, pattern: Pattern | None) -> None:
        """Refuse a datagram stream that cannot be, or is another's."""
        if datagram_id is None:
            return
        if not self.link.datagram_bytes:
            raise NameRefused("this connection takes no datagrams: subscribe in stream mode")
        for delivery in self.deliveries.values():
            same = pattern is not None and delivery.track.name == pattern.track()
            if delivery.datagram_stream_id == datagram_id and not same:
                raise NameRefused(f"datagram stream {datagram_id} is in use: choose another")

    def _renew_elsewhere(self, track: LiveTrack, now: float) -> None:
        """A name that is subscribed to again, on another stream: the older one is over."""
        older = self.deliveries.get(track.hash.full_name_hash)
        if older is not None:
            self._end_stream(older, Response.EXPIRED, "the name is subscribed to again", now)

    def deliver(
        self,
        stream: ControlStream,
        track: LiveTrack,
        intent: Intent,
        datagram_id: int | None,
        now: float,
        *,
        offer: Offer | None = None,
    ) -> QuicrDelivery:
        """Begin to send a track."""
        counters = self._counters.media
        delivery = QuicrDelivery(self, stream, track, intent, datagram_id, counters)
        delivery.is_new = not self.edge.is_offered(track)
        delivery.is_found = offer is not None
        if offer is not None and offer.is_new:
            delivery.is_new, delivery.known = True, offer.known
        self.deliveries[track.hash.full_name_hash] = delivery
        self._by_stream[stream.id] = delivery
        self.edge.subscribe(self, delivery, None, now)
        if (
            intent is Intent.CATCH_UP
            and delivery.known is not None
            and delivery.on_data is not None
        ):
            delivery.on_data()  # nobody publishes it, and something of it is here
            if track.ended_at() is not None:
                self.end(delivery, DoneCode.TRACK_ENDED, "", now)  # that is all there is
        return delivery

    def forget(self, stream: ControlStream, now: float) -> None:
        """A subscription, or an offer, is over."""
        self.wildcards.forget(stream, now)
        delivery = self._by_stream.get(stream.id)
        if delivery is not None:
            self.drop(delivery, now)
            self._by_stream.pop(stream.id, None)
            delivery.close()

    def _let_go(self, stream: ControlStream, now: float) -> None:
        """A subscription is over; others, with a mask, may want what it was for."""
        tracks = self.wildcards.found(stream)
        delivery = self._by_stream.get(stream.id)
        if delivery is not None and not stream.ours:
            tracks.append(delivery.track)
        self.forget(stream, now)
        for track in tracks:
            self.wildcards.offer_again(track)

    def _end_stream(
        self, delivery: QuicrDelivery, response: Response, reason: str, now: float
    ) -> None:
        stream = delivery.stream
        self.forget(stream, now)
        if not stream.ours:
            self.session.send(stream, SubscribeReply(response, reason))
        self.session.close(stream)

    # -- renewal -----------------------------------------------------------------------------------

    def _watch_expiry(self, stream: ControlStream, now: float) -> None:
        wait = self.edge.settings.quicr.subscription_s
        if not wait:
            return

        def check(now: float) -> None:
            known = self._by_stream.get(stream.id) or self.wildcards.get(stream)
            if known is None or known.stream is not stream or self._closed:
                return
            due = known.renewed_at + wait
            if now < due:
                self.edge.at(due, check)
                return
            self._counters.expired += 1
            self._let_go(stream, now)
            reason = f"it was not renewed for {wait:g} s"
            self.session.send(stream, SubscribeReply(Response.EXPIRED, reason))
            self.session.close(stream)

        self.edge.at(now + wait, check)

    # -- as `Reader` -------------------------------------------------------------------------------

    def fetch(self, asker: History, message: Fetch, start: Location, end: Location) -> None:
        """As `Reader`."""
        track = self._by_stream[message.request_id].track
        self.edge.fetches.begin(asker, track, message, start, end, self._now)

    def pump_at(self, delivery: QuicrDelivery, when: float) -> None:
        """As `Reader`; one alarm for each is enough."""
        if self._pumping.get(delivery, when + 1) <= when:
            return
        self._pumping[delivery] = when

        def pump(now: float) -> None:
            if self._pumping.get(delivery) == when:
                del self._pumping[delivery]
            if not self._closed:
                delivery.pump()

        self.edge.at(when, pump)

    def finish(self, delivery: QuicrDelivery) -> None:
        """As `Reader`: the track has ended, and all of it is sent."""
        stream = delivery.stream
        self._by_stream.pop(stream.id, None)
        self.wildcards.ended(stream)

        def done() -> None:
            if delivery.datagram_stream_id is not None:
                self.session.send(stream, delivery.final)
            self.session.close(stream)

        self.link.when_sent(done)

    def restarted(self, delivery: QuicrDelivery) -> None:
        """As `Reader`: on a stream there is no way back to smaller numbers."""
        reason = "the publisher has begun anew: subscribe again"
        self._end_stream(delivery, Response.EXPIRED, reason, self._now)
        if delivery.stream.ours:
            self.wildcards.offer_again(delivery.track)

    # -- it publishes ------------------------------------------------------------------------------

    def _intends(self, stream: ControlStream, message: PublishIntent, now: float) -> None:
        try:
            name = decode_name(message.name)
        except NameRefused as refused:
            self._fail(stream, str(refused))
            return
        if is_telemetry(name.namespace):
            self._fail(stream, "what is below laps/telemetry is published by relays alone")
            return
        track = self.edge.track(name)
        asked = self.tracks.get(track.hash.full_name_hash)
        if asked is not None:
            self._fail(stream, "this session publishes the name already")
            return
        if len(self.session.streams) > self.edge.settings.quicr.streams:
            self._fail(stream, f"{len(self.session.streams) - 1} streams are open: close some")
            return
        source = Source(track, stream.id, published=True, answered=True)
        posting = self._postings[stream.id] = Posting(self, stream, source)
        self.add_source(source)
        if message.datagram_capable and self.edge.settings.quicr.datagrams:
            self._datagram_ids += 1
            posting.datagram_stream_id = self._datagram_ids
            self._by_datagram[self._datagram_ids] = posting
        self.session.send(stream, PublishIntentOk(posting.datagram_stream_id))
        self.announce(name.namespace, name.name, now)
        self.edge.settle(track, now)
        self._redirect(stream, self.edge.going_to)

    def _posted(self, posting: Posting, message: Message, now: float) -> None:
        match message:
            case Fragment():
                posting.fragment(message, now)
            case StartPoint():
                posting.start()
            case Fin():
                pass  # its stream says the same by its end
            case _:
                raise AssertionError(message)  # the session lets nothing else pass

    def _post_over(self, posting: Posting, well: bool, now: float) -> None:
        """A publisher has ended its track, or has given it up: then others may go on with it."""
        posting.close(now, ObjectStatus.END_OF_TRACK if well else None)
        if well and posting.datagram_stream_id is not None:
            # The last datagrams may be behind.
            self._lingering[posting] = None
            wait = self.edge.settings.linger_s
            self.edge.at(now + wait, lambda now: self._source_over(posting, True, now))
        else:
            self._source_over(posting, well, now)

    def _source_over(self, posting: Posting, well: bool, now: float) -> None:
        self._lingering.pop(posting, None)
        if posting.datagram_stream_id is not None:
            self._by_datagram.pop(posting.datagram_stream_id, None)
        source = posting.source
        if self._closed or source.request_id not in self.sources:
            return
        self.forget_source(source)
        name = source.track.name
        if name is not None:
            self.unannounce(name.namespace, name.name, now)
        if well:
            if posting.stream.final is not None:
                source.track.final = posting.stream.final.final
            source.done = PublishDone(0, DoneCode.TRACK_ENDED)
            self.edge.source_ended(source, now)
        self.edge.settle(source.track, now)
        self.session.close(posting.stream)

    # -- as `EdgeClient` ---------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the session is."""
        return self._closed

    def is_delivered(self, stream: ControlStream) -> bool:
        """Whether media is sent on a control stream."""
        return stream.id in self._by_stream

    def offer(self, track: LiveTrack, *, forward: bool) -> None:
        """As `EdgeClient`."""
        self.wildcards.offer(track)

    @property
    def subscriptions(self) -> dict[int, QuicrDelivery]:
        """As `EdgeClient`."""
        return self.deliveries

    @property
    def pressed(self) -> bool:
        """As `EdgeClient`: of a slow reader, what waits is in the queues of its deliveries."""
        return self.link.pressed or any(d.pressed for d in self.deliveries.values())

    def review_pressure(self) -> None:
        """As `Reader`: more waits, or less."""
        pressed = self.pressed
        if pressed != self._was_pressed:
            self._was_pressed = pressed
            self.edge.pressure.changed(self, self._now)

    def accept(self, subscription: QuicrDelivery, largest: Location | None) -> None:
        """As `EdgeClient`."""
        subscription.establish(largest)

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """As `EdgeClient`: what a publisher refuses now it may grant later."""

    def drop(self, subscription: QuicrDelivery, now: float) -> None:
        """As `EdgeClient`; its stream stays."""
        key = subscription.track.hash.full_name_hash
        if self.deliveries.get(key) is subscription:
            del self.deliveries[key]
        self.edge.unsubscribe(self, subscription, now)

    def end(self, subscription: QuicrDelivery, code: int, reason: str, now: float) -> None:
        """As `EdgeClient`; where a publisher only left, whoever comes next goes on."""
        if code not in _NO_ENDS:
            self.drop(subscription, now)
            subscription.end()

    def go_away(self, to: Address | None) -> None:
        """As `EdgeClient`."""
        self._counters.redirected += to is not None
        for stream in list(self.session.streams.values()):
            self._redirect(stream, to)

    def _redirect(self, stream: ControlStream, to: Address | None) -> None:
        """Whoever is not told where to go dials again when it is closed."""
        if to is None or stream.closed_here or stream.ours:
            return
        if isinstance(stream.opening, Subscribe):
            self.session.send(stream, SubscribeReply(Response.REDIRECT, "the relay stops"))
        self.session.send(stream, RelayRedirect(str(to)))

    def dismiss(self) -> None:
        """As `EdgeClient`."""
        self.link.close(QuicrCode.GOING_AWAY, "the relay stops")

    def left(self) -> None:
        """As `EdgeClient`."""
        for delivery in self._by_stream.values():
            delivery.close()
        self.deliveries.clear()
        self._by_stream.clear()
        self.wildcards.clear()

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `ports.Client`: it sends what it has without being asked."""

    def unsubscribe(self, track: TrackHash) -> None:
        """As `ports.Client`: and goes on, for the cache."""
