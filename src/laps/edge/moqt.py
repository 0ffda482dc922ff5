"""A MoQT client at a relay: what its messages ask of the relay, and what the relay asks of it.

A client may publish and subscribe at once. Whatever concerns more than one client is the `Edge`'s:
who waits for which publisher, who hears of which namespace, what is fetched from where.

    messages                session -> here -> Edge, relay
    what it publishes       moqt_publications, moqt_published_streams -> relay -> tracks
    what it subscribes to   moqt_subscription <- tracks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.moqt_access import MoqtAccess
from laps.edge.moqt_asker import MoqtAsker
from laps.edge.moqt_fetches import MoqtFetches
from laps.edge.moqt_gate import MoqtGate
from laps.edge.moqt_manners import manners_of
from laps.edge.moqt_offers import Offers, watch_no_more, watch_of
from laps.edge.moqt_publications import MoqtPublications
from laps.edge.moqt_published_streams import PublishedStreams
from laps.edge.moqt_review import review
from laps.edge.moqt_subscription import MoqtSubscription
from laps.edge.shares import Limit
from laps.errors import RemoteProtocolError
from laps.sessions.moqt import MoqtSession
from laps.tracks.subscription import SubscriptionState
from laps.wire.moqt.carried_subscribe import accepted_as
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode, violation
from laps.wire.moqt.messages import (
    ClientSetup,
    Fetch,
    FetchCancel,
    FetchOk,
    Goaway,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestKind,
    RequestOk,
    RequestUpdate,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
    UnsubscribeNamespace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.client import ClientLink, EdgeSubscription, Watch
    from laps.edge.decisions import Decision
    from laps.edge.edge import Edge
    from laps.tracks.publication import Publication
    from laps.tracks.track import Track
    from laps.types import Address, Location, TrackHash, TrackKey, TrackName
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message


class MoqtClient(MoqtAsker):
    """One MoQT session with a client."""

    violations = frozenset(SessionCode) - {SessionCode.NO_ERROR, SessionCode.GOAWAY_TIMEOUT}
    silent_code = SessionCode.CONTROL_MESSAGE_TIMEOUT
    held_code = SessionCode.INTERNAL_ERROR
    flood_code = SessionCode.TOO_MANY_REQUESTS
    access: MoqtAccess

    def __init__(
        self,
        edge: Edge,
        link: ClientLink,
        dialect: Dialect | None,
        *,
        webtransport: bool,
        url: str = "",
    ) -> None:
        """`url` is the path and query that a WebTransport session was asked for with."""
        super().__init__(link, edge.context.share_of(link))
        self.edge = edge
        self._webtransport = webtransport
        self.session = MoqtSession(
            link.wire,
            dialect,
            is_client=False,
            limits=edge.settings.session,
            webtransport=webtransport,
            tolerated=edge.counters.tolerated,
            ledger=self.share,
            half_messages=edge.shares.half_messages,
        )
        self._subscriptions: dict[TrackKey, MoqtSubscription] = {}
        self._by_request: dict[int, MoqtSubscription] = {}
        self._unread: dict[int, None] = {}
        "Streams whose messages were too many for one turn."
        self._publishing = MoqtPublications(edge, self, self.session)
        self._streams_in = PublishedStreams(edge, self, self.session, self._publishing)
        self._fetches = MoqtFetches(edge, self, self.session)
        self.access = MoqtAccess(edge.context.authority, self.share, self.session, url)
        self._gate = MoqtGate(edge, self, self.session, self.access, self._streams_in)
        self.offers = Offers(self.session)
        edge.client_connected(self)

    # -- what the connection tells -----------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the client writes."""
        if self.share.inflow:
            self.edge.shaping.took_in(self, len(data), now)
        if not stream_id & 2:
            self._read(stream_id, self.session.receive(stream_id, data, fin=fin), now)
            return
        self._streams_in.receive(stream_id, data, fin, now)

    def _read(self, stream_id: int, messages: Iterator[Message], now: float) -> None:
        """Act on messages; those that are too many for a turn stay in the session."""
        shaping = self.edge.shaping
        for message in messages:
            self._take(message, now)
            if shaping.took_message(self, now):
                self._unread[stream_id] = None
                return
        shaping.messages_read(self, now)

    def read_on(self, now: float) -> bool:
        """As `EdgeClient.read_on`."""
        unread, self._unread = self._unread, {}
        try:
            for stream_id in unread:
                self._read(stream_id, self.session.receive(stream_id, b""), now)
        except MoqtViolation as error:
            self.link.close(error.code, str(error))
            return False
        return bool(self._unread)

    def stream_reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        if not stream_id & 2:
            for message in self.session.stream_ended(stream_id):
                self._take(message, now)
            return
        self._streams_in.reset(stream_id, code, now)

    def stop_sending(self, stream_id: int, now: float) -> None:
        """The client no longer reads one of our streams."""
        if not stream_id & 2:
            for message in self.session.stream_ended(stream_id):
                self._take(message, now)

    def receive_datagram(self, data: bytes, now: float) -> None:
        """An object in a datagram."""
        if self.share.inflow:
            self.edge.shaping.took_in(self, len(data), now)
        self._streams_in.datagram(data, now)

    def writable(self, now: float) -> None:
        """There is room to send again."""
        for serving in list(self.serving.values()):
            serving.pump(now)

    def closed(self, now: float) -> None:
        """The session is closed, whoever ended it."""
        self.edge.client_closed(self, now)
        # They refer to the client: see `net/clients.py`.
        del self._publishing, self._streams_in, self._fetches, self._gate

    # -- as `EdgeClient` ---------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the session has been set up."""
        return self.session.ready

    @property
    def subscriptions(self) -> dict[TrackKey, MoqtSubscription]:
        """As `EdgeClient.subscriptions`."""
        return self._subscriptions

    def wants_new_group(
        self, publication: Publication, value: int, largest: Location | None
    ) -> None:
        """As `EdgeClient.wants_new_group`; some drafts cannot ask for one."""
        if self.session.dialect.asks_for_new_groups and publication.wants_new_group(value, largest):
            self.session.request(RequestUpdate(0, publication.request_id, new_group=value))

    def go_away(self, to: Address | None) -> None:
        """As `EdgeClient.go_away`."""
        if not self.follows_goaway:
            return
        scheme = "https" if self._webtransport else "moqt"
        self.session.send(Goaway(b"" if to is None else f"{scheme}://{to}".encode()))

    def dismiss(self) -> None:
        """As `EdgeClient.dismiss`."""
        end = self.link.close if self.follows_goaway else self.link.abort
        end(SessionCode.GOAWAY_TIMEOUT, "the relay stops")

    def review(self, now: float) -> None:
        """As `EdgeClient.review`."""
        if (error := self.access.may_connect(now)) is not None:
            self.link.close(SessionCode[error.reason.outcome.name], str(error))
            return
        self._publishing.review(now)
        review(self, self.access, self.session, self.edge.context, now)

    def decided(self, decision: Decision, now: float) -> None:
        """As `Depending.decided`."""
        try:
            for message in self._gate.released(decision, now):
                self._take(message, now)
        except RemoteProtocolError as error:
            self.link.close(error.code, str(error))

    def taken_back(self, now: float) -> None:
        """As `Depending.taken_back`."""
        self.edge.reviews.one(self, now)

    def expire(self, now: float) -> bool:
        """As `EdgeClient.expire`."""
        self._streams_in.expire(now)
        return self._streams_in.holding

    def left(self) -> None:
        """As `EdgeClient.left`."""
        self._subscriptions.clear()
        self._by_request.clear()
        self.offers.clear()

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client.subscribe`: somebody wants a track that this client can publish."""
        self._publishing.ask(track)

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client.unsubscribe`: nobody wants the track any more."""
        self._publishing.release(track)

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, message: Message, now: float) -> None:  # noqa: C901 - a flat table
        if not self._gate.admits(message, now):
            return
        match message:
            case ClientSetup():
                self.access.set_up(message, now)
                self.edge.reviews.expect(self)
                manners = manners_of(message.implementation, self.edge.settings.join)
                self.joins_groups, self.answers_fetches, self.follows_goaway = manners
                self.session.flush()
                self.edge.client_ready(self)
                self._streams_in.release(None, now)
            case Subscribe():
                self._subscribe(message, now)
            case RequestUpdate():
                self._update(message, now)
            case Unsubscribe(request_id):
                self._unsubscribed(request_id, now)
            case Publish():
                is_taken = self._publishing.publish(message, now)
                decide = self._streams_in.release if is_taken else self._streams_in.flush
                decide(message.alias, now)
            case PublishDone():
                self._publishing.done(message, now)
            case PublishNamespace(request_id, namespace):
                self.session.send(RequestOk(request_id))
                self.edge.context.announce(self, namespace, None, now)
            case PublishNamespaceDone(_, namespace) if namespace is not None:
                self._publishing.namespace_done(namespace, now)
            case SubscribeNamespace():
                self._watch(message, now)
            case UnsubscribeNamespace(prefix):
                for request_id in watch_no_more(self.watching, prefix):
                    self.session.finish(request_id)
            case Fetch():
                self._fetches.fetch(message, self._by_request, now)
            case FetchCancel(request_id):
                if (serving := self.serving.pop(request_id, None)) is not None:
                    serving.cancel(now)
            case TrackStatus():
                self.edge.statuses.ask(self, message, now)
            case SubscribeOk():
                if self._publishing.accepted(message, now):
                    self._streams_in.release(message.alias, now)
            case PublishOk():
                self._publish_ok(message, now)
            case FetchOk():
                self.edge.upstream.answered(self, message, now)
            case RequestError():
                self._refused(message, now)
            case PublishNamespaceCancel(namespace=namespace):
                for watch in self.watching.values():
                    if namespace in watch.told:
                        watch.told[namespace] = None
            case Goaway():
                self.is_leaving = True
            case RequestOk():
                pass
            case _:
                raise violation(f"{type(message).__name__} has no place at a relay")

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """As `EdgeClient.refuse`."""
        # What nobody publishes now somebody may publish in a moment, and we have waited already.
        retry_ms = 0 if code in (RequestCode.DOES_NOT_EXIST, RequestCode.TIMEOUT) else None
        self.edge.counters.refused_requests += 1
        self.session.send(RequestError(request_id, code, reason, retry_ms))

    def _refused(self, message: RequestError, now: float) -> None:
        match message.kind:
            case RequestKind.SUBSCRIBE:
                self._publishing.refused(message, now)
            case RequestKind.FETCH:
                self.edge.upstream.refused(self, message.request_id, now)
            case RequestKind.PUBLISH:
                self.offers.take(message.request_id)
                subscription = self._by_request.get(message.request_id)
                if subscription is not None:
                    self.drop(subscription, now)

    # -- it subscribes -----------------------------------------------------------------------------

    def _subscribe(self, message: Subscribe, now: float) -> None:
        track = self.edge.context.track(message.track, now)
        if track.key in self._subscriptions:
            reason = "this session is subscribed to the track already"
            self.refuse(message.request_id, RequestCode.DUPLICATE_SUBSCRIPTION, reason, now)
            return
        subscription = MoqtSubscription(
            self,
            self.session.dialect,
            track,
            message.request_id,
            message.filter,
            message.priority,
            message.order,
            message.delivery_timeout_ms,
            SubscriptionState.WAITING,
            forward=message.forward,
        )
        subscription.new_group, subscription.request = message.new_group, message
        self._add(subscription)
        self.edge.subscribing.subscribe(subscription, now)

    def _add(self, subscription: MoqtSubscription) -> None:
        self._subscriptions[subscription.track.key] = subscription
        self._by_request[subscription.request_id] = subscription

    def accept(self, subscription: EdgeSubscription, largest: Location | None, now: float) -> None:
        """As `EdgeClient.accept`."""
        assert isinstance(subscription, MoqtSubscription)  # noqa: S101 - it is one of ours
        track = subscription.track
        self.session.send(
            SubscribeOk(subscription.request_id, track.alias, largest, None, track.properties)
        )
        subscription.advance(SubscriptionState.ESTABLISHED)
        subscription.begin(largest, now)
        for message in subscription.take_joining():
            self._fetches.join(message, subscription, now)

    def end(self, subscription: EdgeSubscription, code: int, reason: str, now: float) -> None:
        """As `EdgeClient.end`."""
        assert isinstance(subscription, MoqtSubscription)  # noqa: S101 - it is one of ours
        self.drop(subscription, now)
        subscription.replay.finish(now)

        def done() -> None:
            count = subscription.stream_count
            self.session.send(PublishDone(subscription.request_id, code, count, reason))

        # Some clients drop what is still on its way when they hear that it was the last.
        self.link.when_sent(done, subscription.unsent())

    def drop(self, subscription: EdgeSubscription, now: float) -> None:
        """As `EdgeClient.drop`."""
        assert isinstance(subscription, MoqtSubscription)  # noqa: S101 - it is one of ours
        for message in subscription.take_joining():
            self._fetches.join(message, subscription, now)
        self._subscriptions.pop(subscription.track.key, None)
        self._by_request.pop(subscription.request_id, None)
        self.edge.subscribing.unsubscribe(subscription, now)

    def _unsubscribed(self, request_id: int, now: float) -> None:
        subscription = self._by_request.get(request_id)
        if subscription is not None:
            self.drop(subscription, now)
            subscription.close(now)
            return
        if self.offers.take(request_id) is not None:
            return
        if request_id in self.publications:
            raise violation("UNSUBSCRIBE by the publisher of a track")

    def _update(self, message: RequestUpdate, now: float) -> None:
        if message.forward and self._take_up(message.existing_id, now):
            self._offer_accepted(self._by_request[message.existing_id], now)
        subscription = self._by_request.get(message.existing_id)
        if subscription is None:
            # Of the others only tokens can be updated, which are taken already, and priorities.
            if message.filter is not None or message.new_group is not None:
                problem = f"request {message.existing_id} is no subscription that could be narrowed"
                raise violation(problem)
            serving = self.serving.get(message.existing_id)
            if serving is not None and message.priority is not None:
                serving.prioritize(message.priority)
            self.session.send(RequestOk(message.request_id))
            return
        subscription.update(message, now)
        if message.new_group is not None:
            self.edge.subscribing.wants_new_group(subscription, message.new_group, now)
        largest = subscription.track.largest()
        self.session.send(RequestOk(message.request_id, largest=largest))

    # -- it watches namespaces ---------------------------------------------------------------------

    def _watch(self, message: SubscribeNamespace, now: float) -> None:
        self.session.send(RequestOk(message.request_id))
        self.edge.watches.watch(self, watch_of(message), now)

    def tell_namespace(self, watch: Watch, namespace: tuple[bytes, ...]) -> None:
        """As `EdgeClient.tell_namespace`."""
        watch.told[namespace] = self.session.tell_namespace(watch.request_id, namespace)

    def tell_namespace_gone(self, watch: Watch, namespace: tuple[bytes, ...]) -> None:
        """As `EdgeClient.tell_namespace_gone`."""
        told_by = watch.told.pop(namespace)
        self.session.tell_namespace_gone(watch.request_id, namespace, told_by)

    # -- it is told of a track by PUBLISH ----------------------------------------------------------

    def offer(self, track: Track, *, forward: bool, now: float) -> None:
        """As `EdgeClient.offer`."""
        if not forward:
            self.offers.tell(track)
            return
        if track.key in self._subscriptions or track.name is None or not self.session.can_request:
            return
        if not self.share.has_room(Limit.SUBSCRIPTIONS):
            return
        request_id = self.session.request(
            Publish(
                0, track.name, track.alias, track.largest(), forward, None, (), track.properties
            )
        )
        self._deliver(track, request_id)

    def withdraw(self, track: TrackName) -> None:
        """As `EdgeClient.withdraw`."""
        self.offers.gone(track)

    def _take_up(self, request_id: int, now: float) -> bool:
        """The client wants the objects of a track that it was told of; False if it has them."""
        name = self.offers.take(request_id)
        if name is None:
            return False
        track = self.edge.context.track(name, now)
        if track.key in self._subscriptions:
            return False
        self._deliver(track, request_id)
        return True

    def _deliver(self, track: Track, request_id: int) -> None:
        self.share.hold(request_id, Limit.SUBSCRIPTIONS)
        subscription = MoqtSubscription.offered(self, self.session.dialect, track, request_id)
        self._add(subscription)
        track.add_subscriber(self, subscription)

    def _publish_ok(self, message: PublishOk, now: float) -> None:
        request_id = message.request_id
        if message.forward:
            self._take_up(request_id, now)
        subscription = self._by_request.get(request_id)
        if subscription is None:
            return
        if not message.forward:
            self.drop(subscription, now)
            subscription.close(now)
            if subscription.track.name is not None:
                self.offers.keep(request_id, subscription.track.name)
            return
        subscription.accepted(message)
        if (name := subscription.track.name) is not None:
            subscription.request = accepted_as(message, name)
        self._offer_accepted(subscription, now)

    def _offer_accepted(self, subscription: MoqtSubscription, now: float) -> None:
        self.edge.subscribing.offered(subscription, now)
        subscription.begin(subscription.largest, now)
