"""The clients of a relay together: who waits for which publisher, and who hears of what.

A SUBSCRIBE is answered when its track is known to be there:

    a publisher here has answered, or sends already      at once, with the largest object it has
    a relay elsewhere offers the track                   when that relay has said how far it is
    nobody does                                          when a publisher comes, or its first bytes;
                                                         or with an error, after a while

Until then the subscription stands in the network, so that a publisher is asked as soon as it is
there, and what it sends is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeClient
from laps.edge.fetching import Fetches
from laps.edge.moqt import MoqtClient
from laps.edge.moqt_publishing import ClientCounters, Source
from laps.edge.pressure import Pressure
from laps.edge.quicr import QuicrCounters, QuicrSettings
from laps.edge.relay_requests import Tunnel
from laps.edge.track_status import Statuses
from laps.edge.watching import Watches
from laps.infobase.namespaces import NamespaceChange
from laps.relay.roles import Role
from laps.relay.stub import StubClient
from laps.relay.timers import Timers
from laps.sessions.moqt import MoqtLimits
from laps.telemetry.records import is_telemetry
from laps.types import TrackName, hash_bytes, hash_track
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import PublishDone
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from laps.edge.client import AnyClient, Subscription
    from laps.edge.moqt_subscription import Delivery
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.peers import PeerArrived
    from laps.relay.relay import Relay
    from laps.tracks.ports import Client, Pressed
    from laps.tracks.track import LiveTrack
    from laps.types import Address, Location, NamespaceInfo, NodeId

# How often what has expired is looked for.
TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What an operator may decide about clients."""

    session: MoqtLimits = field(default_factory=MoqtLimits)
    quicr: QuicrSettings = field(default_factory=QuicrSettings)
    hold_s: float = 1.0
    "Streams wait this long for the message that names their track,"
    hold_bytes: int = 1024 * 1024
    "and so much of them for each client."
    subscribe_wait_s: float = 2.0
    "A SUBSCRIBE waits this long for a publisher before it is refused."
    answer_wait_s: float = 1.0
    "How long another relay has to say how far a track is."
    linger_s: float = 0.5
    "Streams may come this long behind a PUBLISH_DONE that does not count them."
    grace_s: float = 5.0
    "Clients have this long to follow a GOAWAY."


@dataclass(slots=True, eq=False)
class _Waiting:
    """A subscription without an answer."""

    client: AnyClient
    delivery: Subscription
    new_group: int | None
    is_new: bool = False
    "Nobody offered the track when it was asked for: whatever is published of it is new."
    asked: bool = False
    "Another relay has been asked how far the track is."
    refused_by: set[NodeId] = field(default_factory=set)
    "Relays whose publishers would not, or that have none any more."


class Edge:
    """What the clients of a relay have in common."""

    def __init__(self, relay: Relay, settings: EdgeSettings) -> None:
        self.relay = relay
        self.settings = settings
        self.counters = ClientCounters()
        self.quicr = QuicrCounters()
        self.clients: dict[AnyClient, None] = {}
        self.holding: set[AnyClient] = set()
        "Those with streams that nobody has explained yet."
        self.fetches = Fetches(self)
        self.tunnel = Tunnel(relay, self)
        self.pressure = Pressure(self)
        self.watches = Watches(self)
        self.statuses = Statuses(self)
        relay.live.fetched = self._fetched
        self._sources: dict[int, dict[AnyClient, Source]] = {}
        self._waiting: dict[int, dict[Subscription, _Waiting]] = {}
        self._timers = Timers()
        self._sooner = False
        "Something falls due earlier than all that was known at the last `deadline`."
        self._going_away = False
        self.going_to: Address | None = None
        "Where clients are sent, once we are about to stop."
        self._tick_at: float | None = None

    # -- clients -----------------------------------------------------------------------------------

    def client_ready(self, client: AnyClient, now: float) -> None:
        """A session has been set up."""
        self.clients[client] = None
        if self._going_away:
            client.go_away(self.going_to)

    def client_closed(self, client: AnyClient, now: float) -> None:
        """A client is gone, with all that it offered and wanted."""
        self.clients.pop(client, None)
        self.holding.discard(client)
        self.pressure.forget(client)
        for serving in list(client.serving.values()):
            serving.cancel()
        for delivery in list(client.subscriptions.values()):
            self._forget_waiting(delivery)
            delivery.track.subscribers.pop(client, None)
            self.pressure.changed_track(delivery.track, now)
        client.left()
        client.watching.clear()
        tracks = [source.track for source in client.sources.values()]
        for source in list(client.sources.values()):
            self.drop_source(client, source)
        client.sources.clear()
        client.tracks.clear()
        self.relay.client_closed(client, now)
        self.fetches.errands.client_closed(client, now)
        for track in tracks:
            self.settle(track, now)

    def drain(self, now: float, to: Address | None = None) -> float:
        """Ask every client to go elsewhere; when those that are left may be closed.

        Without an address they are to dial the same place again, where somebody else may answer.
        """
        self._going_away, self.going_to = True, to
        for client in self.clients:
            client.go_away(to)
        return now + self.settings.grace_s if self.clients else now

    def close(self) -> None:
        """Whoever is left has to go."""
        for client in list(self.clients):
            client.dismiss()

    # -- tracks ------------------------------------------------------------------------------------

    def track(self, name: TrackName) -> LiveTrack:
        """A track by its name."""
        return self.relay.live.track(hash_track(name), name)

    def add_source(self, client: AnyClient, source: Source) -> None:
        """A client may publish a track to us."""
        source.track.final = None
        source.track.pins += 1
        self._sources.setdefault(source.track.hash.full_name_hash, {})[client] = source

    def drop_source(self, client: AnyClient, source: Source) -> None:
        """It no longer does."""
        key = source.track.hash.full_name_hash
        sources = self._sources.get(key, {})
        if sources.get(client) is source:
            source.track.pins -= 1
            if source.track.sources.pop(client, None) is not None:
                source.track.left = True
            del sources[client]
            if not sources:
                del self._sources[key]

    @property
    def published(self) -> Container[int]:
        """The hashes of the tracks that clients publish, or have been asked for."""
        return self._sources

    def sources(self, track: LiveTrack) -> dict[AnyClient, Source]:
        """The clients that publish a track, or have been asked to."""
        return self._sources.get(track.hash.full_name_hash, {})

    def sinks(self, publisher: AnyClient, track: LiveTrack) -> Iterator[Pressed]:
        """The connections that a publisher's track goes out by."""
        for client in track.subscribers:
            if isinstance(client, EdgeClient):
                yield client
        flow = self.relay.fib.get((publisher, track.hash.full_name_hash))
        if flow is not None:
            for link_id, _ in flow.current():
                if (link := self.relay.link(link_id)) is not None:
                    yield link

    def _fetched(self, request_id: int, data: bytes, fin: bool) -> bool:
        now = self.relay.live.cache.now
        return self.fetches.errands.receive_from_relay(request_id, data, fin, now)

    def source_ended(self, source: Source, now: float) -> None:
        """A publisher says that a track is over: so it is for subscribers, if it was the last."""
        track, done = source.track, source.done
        if self.sources(track) or self.elsewhere(track):
            return
        code = DoneCode.TRACK_ENDED if done is None else done.code
        reason = "" if done is None else done.reason
        self._tell_relays(track, PublishDone(0, code, reason=reason))
        self.end_track(track, code, reason, now)

    def _tell_relays(self, track: LiveTrack, done: PublishDone) -> None:
        """Tell the relays with subscribers that a track of ours is over."""
        key = track.hash.full_name_hash
        nodes = [n for n in self.relay.subscribes.sources(key) if n != self.relay.id]
        if track.name is not None:
            self.tunnel.track_ended(track.name, nodes, done)

    def ended_elsewhere(
        self, name: TrackName, done: PublishDone, source: NodeId, now: float
    ) -> None:
        """Another relay says that a track is over; its last streams may be behind the word."""
        track = self.relay.live.get(hash_track(name).full_name_hash)
        if track is None:
            return
        peer = self.relay.peers.get(source)
        if peer is not None and peer.is_stub:
            self._tell_relays(track, done)  # to them it is a track of ours

        def end(now: float) -> None:
            others = [node_id for node_id in self.elsewhere(track) if node_id != source]
            if not self.sources(track) and not others:
                self.end_track(track, done.code, done.reason, now)

        self.at(now + self.settings.hold_s, end)

    def end_track(self, track: LiveTrack, code: int, reason: str, now: float) -> None:
        """Tell the subscribers of a track, when the last of its streams is through."""
        stubs = [c.peer.node_id for c in track.subscribers if isinstance(c, StubClient)]
        if track.name is not None:
            self.tunnel.track_ended(track.name, stubs, PublishDone(0, code, reason=reason))

        def tell() -> None:
            for client, subscriber in list(track.subscribers.items()):
                if (
                    isinstance(client, EdgeClient)
                    and client.subscriptions.get(track.hash.full_name_hash) is subscriber
                ):
                    delivery = client.subscriptions[track.hash.full_name_hash]
                    # Who waits for a publisher goes on waiting.
                    if delivery not in self._waiting.get(track.hash.full_name_hash, {}):
                        client.end(delivery, code, reason, self.relay.live.cache.now)

        track.when_idle(tell)

    def await_streams(self, client: MoqtClient, source: Source, now: float) -> None:
        """A track has ended, and streams of it are still to come: not for ever."""

        def over(now: float) -> None:
            if not source.open:
                client.source_over(source, now)

        self.at(now + self.settings.linger_s, over)

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(
        self, client: AnyClient, delivery: Subscription, new_group: int | None, now: float
    ) -> None:
        """A client wants a track."""
        track = delivery.track
        key = track.hash.full_name_hash
        is_new = track.largest() is None and not self.is_offered(track)
        waiting = _Waiting(client, delivery, new_group, is_new)
        self._waiting.setdefault(key, {})[delivery] = waiting
        track.subscribers[client] = delivery
        self.pressure.changed_track(track, now)
        assert track.name is not None  # noqa: S101 - it was made from its name
        self.relay.subscribe(client, track.name, encode_subscribe(track.name), now)
        self.settle(track, now)
        if delivery in self._waiting.get(key, {}):
            if not waiting.asked:
                delivery.on_data = lambda: self._establish(waiting, None)
            self.at(now + self.settings.subscribe_wait_s, lambda now: self._give_up(waiting, now))
        if new_group is not None:
            self.new_group(track, new_group)

    def unsubscribe(self, client: AnyClient, delivery: Subscription, now: float) -> None:
        """A client no longer wants a track."""
        self._forget_waiting(delivery)
        track = delivery.track
        if track.subscribers.get(client) is delivery:
            del track.subscribers[client]
            self.pressure.changed_track(track, now)
            if track.name is not None:
                self.relay.unsubscribe(client, track.name, now)

    def offered(self, client: MoqtClient, delivery: Delivery, now: float) -> None:
        """A client has accepted our PUBLISH of a track."""
        track = delivery.track
        track.subscribers[client] = delivery
        delivery.establish(delivery.largest)
        if track.name is not None:
            self.relay.subscribe(client, track.name, encode_subscribe(track.name), now)

    def settle(self, track: LiveTrack, now: float) -> None:
        """Something has changed for a track: answer those who wait for it, where there is one."""
        self.statuses.settle(track, now)
        waiting = self._waiting.get(track.hash.full_name_hash)
        if not waiting:
            return
        sources = self.sources(track)
        if any(source.established for source in sources.values()) or self.has_plain(track):
            for item in list(waiting.values()):
                self._establish(item, track.largest())
        elif any(not source.answered for source in sources.values()):
            return
        elif nodes := self.elsewhere(track):
            for item in list(waiting.values()):
                self._ask(item, nodes, now)
        elif sources:
            # Those that have ended refuse nothing: somebody else may come.
            refusals = (source.refused for source in sources.values() if source.refused)
            if (refused := next(refusals, None)) is not None:
                for item in list(waiting.values()):
                    self._refuse(item, refused.code, refused.reason, now)

    def _ask(self, item: _Waiting, nodes: list[NodeId], now: float) -> None:
        """Another relay has the track: begin where it is."""
        nodes = [node_id for node_id in nodes if node_id not in item.refused_by]
        if item.asked or not nodes:
            return
        item.asked = True
        item.delivery.on_data = None
        track = item.delivery.track

        def answered(largest: Location | None) -> None:
            if self._is_waiting(item):
                track.cached.saw(largest)
                # Who has waited for the publisher begins with the first object. QUICR's fetch it.
                from_start = item.is_new and not item.delivery.patient
                self._establish(item, None if from_start else largest)

        def refused(code: int, reason: str) -> None:
            item.refused_by.add(nodes[0])
            item.asked = False
            now = self.relay.live.cache.now
            if not self._is_waiting(item):
                return
            self._ask(item, self.elsewhere(track), now)
            # Where there is no publisher, one may have just left, and may come back.
            if not item.asked and code != RequestCode.DOES_NOT_EXIST:
                self._refuse(item, code, reason, now)

        self.statuses.ask_relay(track, nodes[0], answered, refused)

        def late(now: float) -> None:
            if self._is_waiting(item) and item.asked:
                self._establish(item, track.largest())

        self.at(now + self.settings.answer_wait_s, late)

    def _establish(self, item: _Waiting, largest: Location | None) -> None:
        delivery = item.delivery
        self._forget_waiting(delivery)
        delivery.on_data = None
        if delivery.is_past(largest):
            reason = f"group {delivery.end_group} is past: the track is at group {largest.group}"  # type: ignore[union-attr]
            self._refuse(item, RequestCode.INVALID_RANGE, reason, self.relay.live.cache.now)
            return
        item.client.accept(delivery, largest)

    def _give_up(self, item: _Waiting, now: float) -> None:
        """Nobody has come who publishes the track."""
        if not self._is_waiting(item) or item.asked or item.delivery.patient:
            return
        track = item.delivery.track
        if any(not source.answered for source in self.sources(track).values()):
            self._refuse(item, RequestCode.TIMEOUT, "its publisher does not answer", now)
        elif self._is_blind():
            # Not every relay tells us what it has: its track may come without a word.
            self._establish(item, track.largest())
        else:
            self._refuse(item, RequestCode.DOES_NOT_EXIST, "nobody publishes this track", now)

    def _refuse(self, item: _Waiting, code: int, reason: str, now: float) -> None:
        if item.delivery.patient:
            return
        self._forget_waiting(item.delivery)
        client = item.client
        client.drop(item.delivery, now)
        client.refuse(item.delivery.request_id, code, reason)

    def _is_waiting(self, item: _Waiting) -> bool:
        key = item.delivery.track.hash.full_name_hash
        return item.delivery in self._waiting.get(key, {})

    def _forget_waiting(self, delivery: Subscription) -> None:
        key = delivery.track.hash.full_name_hash
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(delivery, None)
            if not waiting:
                del self._waiting[key]

    def has_plain(self, track: LiveTrack) -> bool:
        """Whether a publisher offers a track that has nothing to answer, or knows no way to."""
        return any(
            not isinstance(client, EdgeClient)
            and not (isinstance(client, StubClient) and client.answers)
            for client in self._publishers(track)
        )

    def _publishers(self, track: LiveTrack) -> list[Client]:
        if track.name is None:
            return []
        parts = tuple(hash_bytes(part) for part in track.name.namespace)
        found = self.relay.tracks.announces.match(parts, hash_bytes(track.name.name))
        if is_telemetry(track.name.namespace):  # whatever a client says that it publishes
            found = [client for client in found if not isinstance(client, EdgeClient)]
        return found

    def is_offered(self, track: LiveTrack) -> bool:
        """Whether somebody is known to publish a track."""
        here = self.sources(track) or self.publisher(track) or self.has_plain(track)
        return bool(here or self.elsewhere(track))

    def elsewhere(self, track: LiveTrack) -> list[NodeId]:
        """The other relays that offer a track, our own Stubs first."""
        if track.name is None:
            return []
        publishers = self._publishers(track)
        stubs = [
            client.peer.node_id
            for client in publishers
            if isinstance(client, StubClient) and client.answers
        ]
        offers = self.relay.extensions.namespaces.offering(track.name.namespace, track.name.name)
        return stubs + [node_id for node_id in offers if node_id != self.relay.id]

    def _is_blind(self) -> bool:
        """Whether tracks may exist that nobody has told us of."""
        if self.relay.role is Role.STUB:
            return True
        return any(
            not peer_link.link.extended
            for peer in self.relay.peers.values()
            for peer_link in peer.links.values()
        )

    # -- new groups --------------------------------------------------------------------------------

    def wanted_group(self, full_name_hash: int) -> int | None:
        """The new group that a subscriber has asked for, to pass on with our own SUBSCRIBE."""
        waiting = self._waiting.get(full_name_hash, {}).values()
        return next((item.new_group for item in waiting if item.new_group is not None), None)

    def new_group(self, track: LiveTrack, value: int) -> None:
        """A subscriber would like a new group: ask for it, unless it has been."""
        largest = track.largest()
        if value and largest is not None and value <= largest.group:
            return
        for client, source in self.sources(track).items():
            if source.established and track.properties.dynamic_groups:
                client.wants_new_group(source, value)

    # -- publishers --------------------------------------------------------------------------------

    def publisher(self, track: LiveTrack) -> MoqtClient | None:
        """A client that offers a track, whether or not it has been asked for it."""
        publishers = self._publishers(track)
        return next((client for client in publishers if isinstance(client, MoqtClient)), None)

    # -- namespaces --------------------------------------------------------------------------------

    def observe(self, event: ExtensionEvent | PeerArrived, now: float) -> None:
        """What the relay reports: namespaces come and go, here and elsewhere."""
        self.relay.live.cache.now = now
        if not isinstance(event, NamespaceChange):
            return
        info = event.info
        if event.first:
            self.watches.changed(event, now)
        if event.added:
            if info.source_node_id != self.relay.id:
                self._others_offer(info)
            self._settle_below(info, now)

    def _others_offer(self, info: NamespaceInfo) -> None:
        key = None
        if info.name is not None:
            key = hash_track(TrackName(info.namespace, info.name)).full_name_hash
        self.relay.live.others_offer(key)

    def _settle_below(self, info: NamespaceInfo, now: float) -> None:
        namespace, name = info.namespace, info.name
        for key, waiting in list(self._waiting.items()):
            track = self.relay.live.get(key)
            if track is None or track.name is None:
                continue
            if track.name.namespace[: len(namespace)] != namespace:
                continue
            if name is None or track.name == TrackName(namespace, name):
                for item in waiting.values():
                    item.refused_by.discard(info.source_node_id)
                self.settle(track, now)

    # -- time --------------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Make a call at a time."""
        first = self._timers.next
        self._sooner = self._sooner or first is None or when < first
        self._timers.at(when, call)

    @property
    def is_due(self) -> bool:
        """Whether something waits for its time that did not before."""
        return self._sooner or bool(self.holding)

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        self.relay.live.cache.now = now
        self._timers.run(now)
        if self._tick_at is None or self._tick_at <= now:
            self._tick_at = now + TICK_S
            self.relay.live.expire(now)
            for client in list(self.holding):
                if not client.expire(now):
                    self.holding.discard(client)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        self._sooner = False
        due = [self._timers.next]
        if self.relay.live.tracks or self.holding:
            due.append(self._tick_at or 0.0)
        return min((at for at in due if at is not None), default=None)
