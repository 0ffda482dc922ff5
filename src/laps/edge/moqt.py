"""A MoQT client at a relay: what its messages ask of the relay, and what the relay asks of it.

A client may publish and subscribe at once. Whatever concerns more than one client is the `Edge`'s:
who waits for which publisher, who hears of which namespace, what is fetched from where.

    messages   session -> here -> Edge, relay            bytes of objects   here -> relay -> live
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.client import EdgeClient, announce_info
from laps.edge.moqt_offers import Offers
from laps.edge.moqt_publishing import Inflows, Source
from laps.edge.moqt_subscription import Delivery
from laps.sessions.moqt import MoqtSession
from laps.telemetry.records import is_telemetry
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    UNFILTERED,
    ClientSetup,
    Fetch,
    FetchCancel,
    FetchOk,
    Filter,
    FilterType,
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
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
    UnsubscribeNamespace,
)

if TYPE_CHECKING:
    from laps.edge.client import ClientLink
    from laps.edge.edge import Edge
    from laps.edge.moqt_subscription import Rank
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.types import Address, TrackHash, TrackName
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message, TrackProperties


class MoqtClient(EdgeClient[Delivery]):
    """One MoQT session with a client."""

    violations = frozenset(SessionCode) - {SessionCode.NO_ERROR, SessionCode.GOAWAY_TIMEOUT}

    def __init__(
        self, edge: Edge, link: ClientLink, dialect: Dialect | None, *, webtransport: bool
    ) -> None:
        super().__init__(edge, link)
        self._webtransport = webtransport
        self.session = MoqtSession(
            link.wire,
            dialect,
            is_client=False,
            limits=edge.settings.session,
            webtransport=webtransport,
        )
        self.deliveries: dict[int, Delivery] = {}
        self.by_request: dict[int, Delivery] = {}
        self.namespaces: dict[int, tuple[bytes, ...]] = {}
        "The namespaces it publishes, by request id."
        self.inflows = Inflows(self)
        self.offers = Offers(self.session)

    # -- what the connection tells -----------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the client writes."""
        if not stream_id & 2:
            self.edge.relay.live.cache.now = now
            for message in self.session.receive(stream_id, data, fin=fin):
                self._take(message, now)
            return
        self.inflows.receive(stream_id, data, fin, now)

    def stream_reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        if not stream_id & 2:
            for message in self.session.stream_ended(stream_id):
                self._take(message, now)
            return
        self.inflows.reset(stream_id, code, now)

    def stop_sending(self, stream_id: int, now: float) -> None:
        """The client no longer reads one of our streams."""
        if not stream_id & 2:
            for message in self.session.stream_ended(stream_id):
                self._take(message, now)

    def receive_datagram(self, data: bytes, now: float) -> None:
        """An object in a datagram."""
        self.inflows.datagram(data, now)

    def writable(self, now: float) -> None:
        """There is room to send again."""
        for serving in list(self.serving.values()):
            serving.pump(now)

    def closed(self, now: float) -> None:
        """The session is over, whoever ended it."""
        self.edge.relay.live.cache.now = now
        self.edge.client_closed(self, now)

    # -- as `EdgeClient` ---------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the session has been set up."""
        return self.session.ready

    @property
    def subscriptions(self) -> dict[int, Delivery]:
        """As `EdgeClient`."""
        return self.deliveries

    def wants_new_group(self, source: Source, value: int) -> None:
        """As `EdgeClient`; draft 14 has no word for it."""
        if self.session.dialect.asks_for_new_groups and source.new_group_wanted(
            value, source.track.largest()
        ):
            self.session.request(RequestUpdate(0, source.request_id, new_group=value))

    def go_away(self, to: Address | None) -> None:
        """As `EdgeClient`."""
        scheme = "https" if self._webtransport else "moqt"
        self.session.send(Goaway(b"" if to is None else f"{scheme}://{to}".encode()))

    def dismiss(self) -> None:
        """As `EdgeClient`."""
        self.link.close(SessionCode.GOAWAY_TIMEOUT, "the relay stops")

    def expire(self, now: float) -> bool:
        """As `EdgeClient`."""
        self.inflows.expire(now)
        return self.inflows.holding

    def left(self) -> None:
        """As `EdgeClient`."""
        self.deliveries.clear()
        self.by_request.clear()
        self.offers.clear()

    # -- as `fetches.Asker` ------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""
        return self.session.dialect

    @property
    def has_room(self) -> bool:
        """Whether little waits to be sent to it."""
        return self.link.has_room

    def answer(self, message: Message) -> None:
        """Answer a request."""
        self.session.send(message)

    def open_fetch(self, track: LiveTrack, rank: Rank) -> OutStream:
        """A stream for what it asked for."""
        return self.link.open_stream(rank, 0)

    # -- messages ----------------------------------------------------------------------------------

    def _is_refused(self, message: Message) -> bool:
        """Draft 14 allows names that draft 16, which relays speak with each other, does not."""
        match message:
            case Subscribe(request_id, track) | Publish(request_id, track):
                namespace = track.namespace
            case TrackStatus(request_id, track):
                namespace = track.namespace
            case Fetch(request_id, StandaloneFetch(track)):
                namespace = track.namespace
            case PublishNamespace(request_id, namespace):
                pass
            case _:
                return False
        if isinstance(message, Publish | PublishNamespace) and is_telemetry(namespace):
            reason = "what is below laps/telemetry is published by relays, about themselves"
            self.refuse(request_id, RequestCode.UNAUTHORIZED, reason)
            return True
        if all(namespace) and namespace:
            return False
        reason = "a namespace here has at least one field, and no empty ones"
        self.refuse(request_id, RequestCode.NOT_SUPPORTED, reason)
        return True

    def _take(self, message: Message, now: float) -> None:  # noqa: C901 - a flat table
        if self._is_refused(message):
            return
        match message:
            case ClientSetup():
                self.session.flush()
                self.edge.client_ready(self, now)
                self.inflows.release(None, now)
            case Subscribe():
                self._subscribe(message, now)
            case RequestUpdate():
                self._update(message, now)
            case Unsubscribe(request_id):
                self._unsubscribed(request_id, now)
            case Publish():
                self._publish(message, now)
            case PublishDone():
                self._publish_done(message, now)
            case PublishNamespace(request_id, namespace):
                self.namespaces[request_id] = namespace
                self.session.send(RequestOk(request_id))
                self.announce(namespace, None, now)
            case PublishNamespaceDone(request_id, namespace) if namespace is not None:
                self.namespaces.pop(request_id or 0, None)
                self._keep_sources(namespace, now)
                self.unannounce(namespace, None, now)
            case SubscribeNamespace():
                self.edge.watches.add(self, message, now)
            case UnsubscribeNamespace(prefix):
                self.edge.watches.remove(self, prefix)
            case Fetch():
                self.edge.fetches.serve(self, message, now)
            case FetchCancel(request_id):
                if (serving := self.serving.pop(request_id, None)) is not None:
                    serving.cancel()
            case TrackStatus():
                self.edge.statuses.ask(self, message, now)
            case SubscribeOk():
                self._subscribe_ok(message, now)
            case PublishOk():
                self._publish_ok(message, now)
            case FetchOk():
                self.edge.fetches.errands.answered(self, message, now)
            case RequestError():
                self._refused(message, now)
            case PublishNamespaceCancel():
                self.edge.watches.cancelled(self, message)
            case RequestOk() | Goaway():
                pass
            case _:
                raise MoqtViolation(
                    SessionCode.PROTOCOL_VIOLATION,
                    f"{type(message).__name__} has no place at a relay",
                )

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """Answer a request with an error; the session goes on."""
        self.edge.counters.refused_requests += 1
        self.session.send(RequestError(request_id, code, reason))

    # -- it subscribes -----------------------------------------------------------------------------

    def _subscribe(self, message: Subscribe, now: float) -> None:
        track = self.edge.track(message.track)
        key = track.hash.full_name_hash
        if key in self.deliveries:
            reason = "this session is subscribed to the track already"
            self.refuse(message.request_id, RequestCode.DUPLICATE_SUBSCRIPTION, reason)
            return
        delivery = Delivery(
            self.link,
            self.session.dialect,
            track,
            message.request_id,
            message.filter,
            message.priority,
            message.order,
            message.delivery_timeout_ms,
            forward=message.forward,
        )
        self._add(delivery)
        self.edge.subscribe(self, delivery, message.new_group, now)

    def _add(self, delivery: Delivery) -> None:
        self.deliveries[delivery.track.hash.full_name_hash] = delivery
        self.by_request[delivery.request_id] = delivery

    def accept(self, delivery: Delivery, largest: Location | None) -> None:
        """The track is there: say so, and begin."""
        track = delivery.track
        self.session.send(
            SubscribeOk(delivery.request_id, track.alias, largest, None, track.properties)
        )
        delivery.establish(largest)

    def end(self, delivery: Delivery, code: int, reason: str, now: float) -> None:
        """A subscription of the client's has come to its end."""
        self.drop(delivery, now)

        def done() -> None:
            count = delivery.stream_count
            self.session.send(PublishDone(delivery.request_id, code, count, reason))

        # Some clients drop what is still on its way when they hear that it was the last.
        self.link.when_sent(done)

    def drop(self, delivery: Delivery, now: float) -> None:
        """Forget a subscription."""
        delivery.given_up(now)
        self.deliveries.pop(delivery.track.hash.full_name_hash, None)
        self.by_request.pop(delivery.request_id, None)
        self.edge.unsubscribe(self, delivery, now)

    def _unsubscribed(self, request_id: int, now: float) -> None:
        delivery = self.by_request.get(request_id)
        if delivery is not None:
            self.drop(delivery, now)
            delivery.close()
            return
        if self.offers.take(request_id) is not None:
            return
        source = self.sources.get(request_id)
        if source is not None:
            raise MoqtViolation(
                SessionCode.PROTOCOL_VIOLATION, "UNSUBSCRIBE by the publisher of a track"
            )

    def _update(self, message: RequestUpdate, now: float) -> None:
        if message.forward and self._take_up(message.existing_id):
            self.edge.offered(self, self.by_request[message.existing_id], now)
        delivery = self.by_request.get(message.existing_id)
        if delivery is None:
            # Of the other requests only tokens can be updated, and those are taken already.
            self.session.send(RequestOk(message.request_id))
            return
        wanted = message.filter
        if wanted is not None and not self.session.dialect.updates_may_widen:
            self._check_narrowed(delivery, wanted)
        if message.delivery_timeout_ms is not None:
            delivery.timeout_ms = message.delivery_timeout_ms
        if wanted is not None and wanted.type in (
            FilterType.NEXT_GROUP,
            FilterType.LARGEST_OBJECT,
        ):
            largest = delivery.track.largest()
            group = 0 if largest is None else largest.group
            wanted = Filter(FilterType.ABSOLUTE_START, Location(group + 1, 0))
            if message.filter.type is FilterType.LARGEST_OBJECT and largest is not None:  # type: ignore[union-attr]
                wanted = Filter(FilterType.ABSOLUTE_START, Location(group, largest.object + 1))
        delivery.update(wanted, message.priority, message.forward)
        if message.new_group is not None:
            self.edge.new_group(delivery.track, message.new_group)
        self.session.send(RequestOk(message.request_id, largest=delivery.track.largest()))

    def _check_narrowed(self, delivery: Delivery, wanted: Filter) -> None:
        """Some drafts let a subscription become smaller only."""
        end = delivery.end_group
        wider = end is not None and (wanted.end_group is None or wanted.end_group > end)
        if wider or (wanted.start < delivery.filter.start):
            raise MoqtViolation(
                SessionCode.PROTOCOL_VIOLATION, "SUBSCRIBE_UPDATE widens the subscription"
            )

    # -- it is told of a track by PUBLISH ----------------------------------------------------------

    def offer(self, track: LiveTrack, *, forward: bool) -> None:
        """Tell a client that watches a namespace of a track in it."""
        if not forward:
            self.offers.tell(track)
            return
        key = track.hash.full_name_hash
        if key in self.deliveries or track.name is None or not self.session.can_request:
            return
        largest = track.largest()
        request_id = self.session.request(
            Publish(0, track.name, track.alias, largest, forward, None, (), track.properties)
        )
        self._deliver(track, request_id, forward=forward)

    def withdraw(self, track: TrackName) -> None:
        """As `EdgeClient`."""
        self.offers.gone(track)

    def _take_up(self, request_id: int) -> bool:
        """A client wants the objects of a track that it was told of; False if it has them."""
        track = self.offers.take(request_id)
        if track is None or track.hash.full_name_hash in self.deliveries:
            return False
        self._deliver(track, request_id, forward=True)
        return True

    def _deliver(self, track: LiveTrack, request_id: int, *, forward: bool) -> None:
        delivery = Delivery(
            self.link,
            self.session.dialect,
            track,
            request_id,
            Filter(FilterType.LARGEST_OBJECT),
            DEFAULT_PRIORITY,
            track.properties.order,
            None,
            forward=forward,
        )
        delivery.largest = track.largest()
        self._add(delivery)
        track.subscribers[self] = delivery

    def _publish_ok(self, message: PublishOk, now: float) -> None:
        request_id = message.request_id
        if message.forward:
            self._take_up(request_id)
        delivery = self.by_request.get(request_id)
        if delivery is None:
            return
        if not message.forward:
            self.drop(delivery, now)
            delivery.close()
            self.offers.keep(request_id, delivery.track)
            return
        delivery.accepted(message)
        self.edge.offered(self, delivery, now)

    # -- it publishes ------------------------------------------------------------------------------

    def _publish(self, message: Publish, now: float) -> None:
        track = self.edge.track(message.track)
        key = track.hash.full_name_hash
        asked = self.tracks.get(key)
        if asked is not None and asked.published and asked.done is None:
            self.session.drop_alias(message.alias, message.request_id)
            reason = "this session publishes the track already"
            self.refuse(message.request_id, RequestCode.DUPLICATE_SUBSCRIPTION, reason)
            return
        if asked is not None:  # our SUBSCRIBE has crossed its PUBLISH, or it publishes again
            self.forget_source(asked)
            self._unsubscribe(asked)
        self.session.move_alias(message.alias, message.request_id)
        source = self._add_source(track, message.request_id, published=True)
        # Who sends at once may go on, for the cache; who waits is told when somebody wants it.
        source.lazy, source.forward = not message.forward, message.forward
        track.cached.past.published_here(all_of_it=message.forward)
        self._describe(source, message.alias, message.properties, message.largest)
        self.announce(message.track.namespace, message.track.name, now)
        source.answered = True
        self.session.send(PublishOk(message.request_id, forward=source.forward))
        self.edge.settle(track, now)
        self.inflows.release(message.alias, now)

    def _add_source(self, track: LiveTrack, request_id: int, *, published: bool) -> Source:
        source = Source(track, request_id, published)
        if not published:
            track.cached.past.published_here(all_of_it=False)
        self.add_source(source)
        return source

    def forget_source(self, source: Source) -> None:
        """As `EdgeClient`."""
        super().forget_source(source)
        if source.alias is not None:
            self.session.drop_alias(source.alias, source.request_id)
        if source.kept is not None:
            self.edge.relay.unannounce(self, source.kept, self.edge.relay.live.cache.now)

    def _keep_sources(self, namespace: tuple[bytes, ...], now: float) -> None:
        """What is subscribed to goes on when its namespace is done: only new tracks do not."""
        relay = self.edge.relay
        for source in self.tracks.values():
            name = source.track.name
            if source.published or source.kept is not None or name is None:
                continue
            if name.namespace[: len(namespace)] == namespace:
                source.kept = announce_info(relay.id, name.namespace, name.name)
                relay.announce(self, source.kept, now)

    def _describe(
        self, source: Source, alias: int, properties: TrackProperties, largest: Location | None
    ) -> None:
        source.alias = alias
        track = source.track
        track.describe(properties)
        track.cached.saw(largest)
        if track.properties.priority is not None:
            source.priority = track.properties.priority
        source.ttl_us = min(0xFFFFFFFF, (track.properties.delivery_timeout_ms or 0) * 1000)

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `ports.Client`: somebody wants a track that this client can publish."""
        source = self.tracks.get(track.full_name_hash)
        if source is not None:
            self._set_forward(source, forward=True)
            return
        live = self.edge.relay.live.get(track.full_name_hash)
        if live is None or live.name is None or is_telemetry(live.name.namespace):
            return
        new_group = self.edge.wanted_group(track.full_name_hash)
        request = Subscribe(0, live.name, Filter(FilterType.LARGEST_OBJECT), new_group=new_group)
        self._add_source(live, self.session.request(request), published=False)

    def unsubscribe(self, track: TrackHash) -> None:
        """As `ports.Client`: nobody wants the track any more."""
        source = self.tracks.get(track.full_name_hash)
        if source is None:
            return
        if source.published:
            self._set_forward(source, forward=False)
        else:
            self.forget_source(source)
            self._unsubscribe(source)

    def _unsubscribe(self, source: Source) -> None:
        """Unless it has been refused, or has ended."""
        if source.request_id in self.session.outgoing:
            self.session.send(Unsubscribe(source.request_id))

    def _set_forward(self, source: Source, *, forward: bool) -> None:
        """Tell a publisher that waits for it to send, or to stop."""
        if not source.lazy or source.forward is forward:
            return
        source.forward = forward
        if source.answered:
            self.session.request(
                RequestUpdate(0, source.request_id, UNFILTERED, DEFAULT_PRIORITY, forward)
            )

    def _subscribe_ok(self, message: SubscribeOk, now: float) -> None:
        source = self.sources.get(message.request_id)
        if source is None:
            return
        source.answered = True
        self._describe(source, message.alias, message.properties, message.largest)
        self.edge.settle(source.track, now)
        self.inflows.release(message.alias, now)

    def _refused(self, message: RequestError, now: float) -> None:
        match message.kind:
            case RequestKind.SUBSCRIBE:
                source = self.sources.get(message.request_id)
                if source is not None:
                    source.answered, source.refused = True, message
                    self.edge.settle(source.track, now)
            case RequestKind.FETCH:
                self.edge.fetches.errands.refused(self, message, now)
            case RequestKind.PUBLISH:
                self.offers.take(message.request_id)
                delivery = self.by_request.pop(message.request_id, None)
                if delivery is not None:
                    self.deliveries.pop(delivery.track.hash.full_name_hash, None)
                    self.edge.unsubscribe(self, delivery, now)

    def _publish_done(self, message: PublishDone, now: float) -> None:
        source = self.sources.get(message.request_id)
        if source is None:
            return
        source.done = message
        self.maybe_over(source, now)

    def maybe_over(self, source: Source, now: float) -> None:
        """PUBLISH_DONE may overtake the last streams: it counts them, so that we can wait.

        Some publishers count none; then a while has to do.
        """
        done = source.done
        if done is None or source.open:
            return
        if 0 < done.stream_count <= source.streams:
            self.source_over(source, now)
        else:
            self.edge.await_streams(self, source, now)

    def source_over(self, source: Source, now: float) -> None:
        """Nothing more comes of a track that has ended."""
        if self.sources.get(source.request_id) is not source:
            return
        self.forget_source(source)
        name = source.track.name
        if source.published and name is not None:
            self.unannounce(name.namespace, name.name, now)
        self.edge.source_ended(source, now)
