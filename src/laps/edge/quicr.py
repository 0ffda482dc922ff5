"""A QUICR client at a relay: what its control streams ask, and what is sent on them.

    control streams   session -> here -> Edge, relay      fragments   quicr_publication -> relay
                                                                      quicr_subscription <- tracks

A SUBSCRIBE is answered at once, whether or not anybody publishes the name yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.auth.refusals import AuthError
from laps.edge.client import EdgeClient
from laps.edge.quicr_access import QuicrAccess, words_of
from laps.edge.quicr_leaving import redirect
from laps.edge.quicr_publication import QuicrPublishing
from laps.edge.quicr_review import review
from laps.edge.quicr_subscription import QuicrSubscription, check_datagrams
from laps.edge.quicr_waiting import WaitingStreams
from laps.edge.quicr_wildcards import Wildcards
from laps.edge.shares import OverLimit
from laps.routing.terms import ORDERS
from laps.sessions.quicr import Closed, QuicrSession
from laps.tracks.subscription import SubscriptionState
from laps.wire.moqt.codes import DoneCode
from laps.wire.quicr.codes import QuicrCode, QuicrViolation, violation
from laps.wire.quicr.messages import (
    Authorization,
    Intent,
    PublishIntent,
    PublishIntentOk,
    Response,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    decode_datagram,
)
from laps.wire.quicr.names import NameRefused, Pattern, decode_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.client import ClientLink, EdgeSubscription, Watch
    from laps.edge.decisions import Decision
    from laps.edge.edge import Edge
    from laps.edge.quicr_history import QuicrHistory
    from laps.edge.quicr_wildcards import Offer
    from laps.sessions.quicr import ControlStream, Event
    from laps.tracks.track import Track
    from laps.types import Address, Location, TrackHash, TrackKey
    from laps.wire.moqt.messages import Fetch
    from laps.wire.quicr.messages import Message

# Why a publisher may stop without its track having ended.
_NO_ENDS: Final = (DoneCode.GOING_AWAY, DoneCode.EXPIRED, DoneCode.INTERNAL_ERROR)


class QuicrClient(EdgeClient):
    """One QUICR session with a client."""

    silent_code = QuicrCode.SILENT
    held_code = QuicrCode.TOO_LARGE
    flood_code = QuicrCode.TOO_MANY
    access: QuicrAccess
    session: QuicrSession
    violations = (QuicrCode.PROTOCOL_VIOLATION, QuicrCode.INVALID_ENCODING, QuicrCode.TOO_LARGE)

    def __init__(self, edge: Edge, link: ClientLink) -> None:
        super().__init__(link, edge.context.share_of(link))
        self.edge = edge
        self._counters = edge.quicr
        self.session = QuicrSession(link.wire, self.share, edge.shares.half_messages)
        self.access = QuicrAccess(edge.context.authority, self.share, self.session)
        self._subscriptions: dict[TrackKey, QuicrSubscription] = {}
        "What it subscribes to."
        self._by_stream: dict[int, QuicrSubscription] = {}
        "The same by control stream, until all of it is sent."
        self.wildcards = Wildcards(self)
        "What it subscribes to with a mask."
        self._publishing = QuicrPublishing(edge, self, self.session)
        self._waiting = WaitingStreams(edge)
        self._was_pressed = ORDERS
        self._closed = False
        edge.client_connected(self)
        edge.client_ready(self)

    @property
    def ready(self) -> bool:
        """Whether it has said what it is here for: there is no setup, but a first stream."""
        return self.session.began

    # -- what the connection tells -----------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the client writes."""
        if stream_id & 2:
            raise violation("a unidirectional stream has no place in QUICR")
        if self.share.inflow:
            self.edge.shaping.took_in(self, len(data), now)
        self._take(self.session.receive(stream_id, data, fin=fin), now)
        if self.edge.shares.half_messages.is_full:
            self.edge.shaping.messages_read(self, now)

    def stream_reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        self._take(self.session.stream_ended(stream_id), now)

    def stop_sending(self, stream_id: int, now: float) -> None:
        """The client no longer reads one of our streams."""
        self.stream_reset(stream_id, 0, now)

    def receive_datagram(self, data: bytes, now: float) -> None:
        """A fragment in a datagram."""
        if self.share.inflow:
            self.edge.shaping.took_in(self, len(data), now)
        try:
            datagram = decode_datagram(data)
        except QuicrViolation:
            # It may be lost as well as broken: the session goes on.
            self._counters.malformed_datagrams += 1
            return
        self._counters.unknown_datagrams += not self._publishing.datagram(datagram, now)

    def writable(self, now: float) -> None:
        """There is room to send again."""
        waiting = [it for it in self._by_stream.values() if it.queue or it.pressed]
        for subscription in sorted(waiting, key=lambda it: it.track.order):
            subscription.pump(now)
        for serving in list(self.serving.values()):
            serving.pump(now)

    def closed(self, now: float) -> None:
        """The session is closed, whoever ended it."""
        self._publishing.close(now)
        self._closed = True
        for subscription in self._by_stream.values():
            subscription.close(now)
        self.edge.client_closed(self, now)
        del self._publishing  # it refers to the client: see `net/clients.py`

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, events: list[Event], now: float) -> None:
        for event in events:
            stream = event.stream
            if self._waiting.takes(self, event, now):
                continue
            if isinstance(event, Closed):
                self.stream_closed(stream, event.well, now)
            elif isinstance(event.message, Authorization):
                self._shown(stream, event.message, now)
            elif not (self.published(stream, event.message, now) or stream.closed_here):
                self.asked(stream, event.message, now)

    def _shown(self, stream: ControlStream, message: Authorization, now: float) -> None:
        """A token, for the connection or for a stream that is open."""
        try:
            self.access.shown(stream, message, now)
        except (AuthError, OverLimit) as error:
            self.fail(stream, words_of(error))
            return
        self.edge.reviews.expect(self)
        if stream.opening is message:
            self.session.send(stream, SubscribeReply(Response.OK))
            self.session.close(stream)

    def review(self, now: float) -> None:
        """As `EdgeClient.review`."""
        review(self, list(self._by_stream.values()), now)
        self._publishing.review(self.access, now)

    def decided(self, decision: Decision, now: float) -> None:
        """As `Depending.decided`."""
        try:
            self._waiting.decided(self, decision, now)
        except QuicrViolation as error:
            self.link.close(error.code, str(error))

    def taken_back(self, now: float) -> None:
        """As `Depending.taken_back`."""
        self.edge.reviews.one(self, now)

    def asked(self, stream: ControlStream, message: Message, now: float) -> None:
        """As `WaitingClient.asked`."""
        self.edge.shaping.took_message(self, now)
        match message:
            case Subscribe():
                self._subscribed(stream, message, now)
            case SubscribeCancel() | SubscribeReply() if stream.ours:
                self.wildcards.declined(stream, now)
            case SubscribeCancel():
                self.unsubscribed(stream, now)
                self.session.close(stream)
            case PublishIntent():
                self._intends(stream, message, now)
            case PublishIntentOk(datagram_stream_id):
                self.wildcards.accepted(stream, datagram_stream_id, now)
            case _:
                pass  # media on a stream that was refused, or a redirect: of no interest here

    def published(self, stream: ControlStream, message: Message, now: float) -> bool:
        """As `WaitingClient.published`."""
        if stream not in self._publishing:
            return False
        self._publishing.receive(stream, message, now)
        return True

    def stream_closed(self, stream: ControlStream, well: bool, now: float) -> None:
        """As `WaitingClient.stream_closed`."""
        if stream in self._publishing:
            self._publishing.stream_closed(stream, now, ok=well)
            return
        subscription = self._by_stream.get(stream.id)
        self.unsubscribed(stream, now)
        if subscription is not None and subscription.queue:
            self.session.abandon(stream, QuicrCode.CANCELLED)
        else:
            self.session.close(stream)

    def say(self, stream: ControlStream, message: Message) -> None:
        """As `Reader.say`."""
        self.session.send(stream, message)

    def fail(self, stream: ControlStream, reason: str) -> None:
        """As `WaitingClient.fail`."""
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
            self.fail(stream, f"{len(self.session.streams) - 1} streams are open: close some")
            return
        pattern = Pattern(message.name, message.mask)
        datagram_id = message.datagram_stream_id
        try:
            pattern.check()
            if (decision := self.access.check(stream, pattern, now)) is not None:
                self._waiting.add(self, stream, message, decision)
                return
            self.check_datagrams(datagram_id, None if pattern.is_wild else pattern)
            if not pattern.is_wild and (reason := self.edge.context.no_room_for(pattern.track())):
                raise NameRefused(reason)
        except NameRefused as refused:
            self.fail(stream, str(refused))
            return
        self._watch_expiry(stream, now)
        if pattern.is_wild:
            self.wildcards.watch(stream, pattern, message, now)
        else:
            track = self.edge.context.track(pattern.track(), now)
            if (older := self._subscriptions.get(track.key)) is not None:
                self.end_stream(older, Response.EXPIRED, "the name is subscribed to again", now)
            self.session.send(stream, SubscribeReply(Response.OK))
            subscription = self.deliver(stream, track, message.intent, datagram_id, now)
            subscription.renewed_at = now
        self._granted(stream)

    def check_datagrams(self, datagram_id: int | None, pattern: Pattern | None) -> None:
        """As `WildcardClient.check_datagrams`."""
        check_datagrams(self.link, self._subscriptions.values(), datagram_id, pattern)

    def deliver(
        self,
        stream: ControlStream,
        track: Track,
        intent: Intent,
        datagram_id: int | None,
        now: float,
        *,
        offer: Offer | None = None,
    ) -> QuicrSubscription:
        """As `WildcardClient.deliver`."""
        counters = self._counters.media
        subscription = QuicrSubscription(self, self, stream, track, intent, datagram_id, counters)
        subscription.is_new = not self.edge.context.is_offered(track)
        subscription.is_found = offer is not None
        if offer is not None and offer.is_new:
            subscription.is_new, subscription.known = True, offer.known
        self._subscriptions[track.key] = subscription
        self._by_stream[stream.id] = subscription
        self.edge.subscribing.subscribe(subscription, now)
        waits = subscription.state is SubscriptionState.WAITING
        if intent is Intent.CATCH_UP and subscription.known is not None and waits:
            # Nobody publishes it, and something of it is here.
            self.edge.subscribing.establish(subscription, None, now)
            if track.ended_at(now) is not None:
                self.end(subscription, DoneCode.TRACK_ENDED, "", now)  # that is all there is
        return subscription

    def forget(self, stream: ControlStream, now: float) -> None:
        """As `WildcardClient.forget`."""
        self.wildcards.forget(stream, now)
        subscription = self._by_stream.get(stream.id)
        if subscription is not None:
            self.drop(subscription, now)
            self._by_stream.pop(stream.id, None)
            subscription.close(now)

    def unsubscribed(self, stream: ControlStream, now: float) -> None:
        """A subscription has ended; others, with a mask, may want what it was for."""
        names = self.wildcards.found(stream)
        subscription = self._by_stream.get(stream.id)
        if subscription is not None and not stream.ours and subscription.track.name is not None:
            names.append(subscription.track.name)
        self.forget(stream, now)
        for name in names:
            self.wildcards.offer_again(self.edge.context.track(name, now))

    def end_stream(
        self, subscription: QuicrSubscription, response: Response, reason: str, now: float
    ) -> None:
        """As `ReviewedClient.end_stream`."""
        stream = subscription.stream
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
                self.edge.context.at(due, check)
                return
            self._counters.expired += 1
            self.unsubscribed(stream, now)
            reason = f"it was not renewed for {wait:g} s"
            self.session.send(stream, SubscribeReply(Response.EXPIRED, reason))
            self.session.close(stream)

        self.edge.context.at(now + wait, check)

    # -- as `Reader` -------------------------------------------------------------------------------

    def fetch_history(
        self, history: QuicrHistory, message: Fetch, start: Location, end: Location, now: float
    ) -> None:
        """As `Reader.fetch_history`."""
        track = self._by_stream[message.request_id].track
        self.edge.fetches.begin(history, track, message, start, end, now)

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """As `Reader.at`."""
        self.edge.context.at(when, call)

    def finish(self, subscription: QuicrSubscription) -> None:
        """As `Reader.finish`: the track has ended, and all of it is sent."""
        stream = subscription.stream
        self._by_stream.pop(stream.id, None)
        self.wildcards.ended(stream, subscription.track)

        def done() -> None:
            if subscription.datagram_stream_id is not None:
                self.session.send(stream, subscription.final)
            self.session.close(stream)

        self.link.when_sent(done)

    def restarted(self, subscription: QuicrSubscription, now: float) -> None:
        """As `Reader.restarted`: on a stream there is no way back to smaller numbers."""
        if self._by_stream.get(subscription.stream.id) is not subscription:
            return
        reason = "the publisher has begun anew: subscribe again"
        self.end_stream(subscription, Response.EXPIRED, reason, now)
        if subscription.stream.ours:
            self.wildcards.offer_again(subscription.track, anew=True)

    # -- it publishes ------------------------------------------------------------------------------

    def _intends(self, stream: ControlStream, message: PublishIntent, now: float) -> None:
        try:
            decision = self.access.check_intent(stream, decode_name(message.name), now)
            if decision is not None:
                self._waiting.add(self, stream, message, decision)
                return
            self._publishing.begin(stream, message, now)
        except NameRefused as refused:
            self.fail(stream, str(refused))
            return
        self._granted(stream)

    def _granted(self, stream: ControlStream) -> None:
        """What a stream asks for has begun."""
        self.edge.reviews.expect(self)
        redirect(self.session, stream, self.edge.going_to)

    # -- as `WildcardClient` -----------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """As `WildcardClient.is_closed`."""
        return self._closed

    def is_subscribed(self, key: TrackKey) -> bool:
        """As `WildcardClient.is_subscribed`."""
        return key in self._subscriptions

    def is_delivered(self, stream: ControlStream) -> bool:
        """As `WildcardClient.is_delivered`."""
        return stream.id in self._by_stream

    def watch(self, watch: Watch, now: float) -> None:
        """As `WildcardClient.watch`."""
        self.edge.watches.watch(self, watch, now)

    # -- as `EdgeClient` ---------------------------------------------------------------------------

    def offer(self, track: Track, *, forward: bool, now: float) -> None:
        """As `EdgeClient.offer`."""
        self.wildcards.offer(track)

    @property
    def subscriptions(self) -> dict[TrackKey, QuicrSubscription]:
        """As `EdgeClient.subscriptions`."""
        return self._subscriptions

    @property
    def pressed(self) -> bool:
        """As `Pressed.pressed`: what waits for a slow reader is in its subscriptions' queues."""
        return self.link.pressed or self._pressed_from() < ORDERS

    def pressed_for(self, order: int) -> bool:
        """As `Pressed.pressed_for`."""
        return self.link.pressed_for(order) or self._pressed_from() <= order

    def _pressed_from(self) -> int:
        pressed = [it.track.order for it in self._subscriptions.values() if it.pressed]
        return min(pressed, default=ORDERS)

    def review_pressure(self, now: float) -> None:
        """As `Reader.review_pressure`."""
        if (pressed := self._pressed_from()) != self._was_pressed:
            self._was_pressed = pressed
            self.edge.relay.pressure.client_changed(self, now)

    def accept(self, subscription: EdgeSubscription, largest: Location | None, now: float) -> None:
        """As `EdgeClient.accept`; the client has its answer already."""
        assert isinstance(subscription, QuicrSubscription)  # noqa: S101 - it is one of ours
        subscription.advance(SubscriptionState.ESTABLISHED)
        subscription.begin(largest, now)

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """As `EdgeClient.refuse`: what a publisher refuses now it may grant later."""

    def drop(self, subscription: EdgeSubscription, now: float) -> None:
        """As `EdgeClient.drop`; its stream stays."""
        if self._subscriptions.get(subscription.track.key) is subscription:
            del self._subscriptions[subscription.track.key]
        self.edge.subscribing.unsubscribe(subscription, now)

    def end(self, subscription: EdgeSubscription, code: int, reason: str, now: float) -> None:
        """As `EdgeClient.end`; where a publisher only left, whoever comes next goes on."""
        assert isinstance(subscription, QuicrSubscription)  # noqa: S101 - it is one of ours
        if code not in _NO_ENDS:
            self.drop(subscription, now)
            subscription.end(now)

    def go_away(self, to: Address | None) -> None:
        """As `EdgeClient.go_away`."""
        self._counters.redirected += to is not None
        for stream in list(self.session.streams.values()):
            redirect(self.session, stream, to)

    def dismiss(self) -> None:
        """As `EdgeClient.dismiss`."""
        self.link.close(QuicrCode.GOING_AWAY, "the relay stops")

    def left(self) -> None:
        """As `EdgeClient.left`."""
        self._subscriptions.clear()
        self._by_stream.clear()
        self._waiting.clear()
        self.wildcards.clear()

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client.subscribe`: it sends what it has without being asked."""

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client.unsubscribe`: it goes on, for the cache."""
