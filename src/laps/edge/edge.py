"""The clients of a relay together: the parts that serve them, and the order they are called in.

    context           the relay, the clients, timers, and who offers which track
    subscribing       subscriptions, answered when their track is known to be there
    fetching          ranges, from the cache or from upstream (`upstream_fetch`)
    track_status      how far a track is
    watching          who hears of which namespaces
    reviewing         whether clients are still allowed what they were
    keeping           which tracks policy keeps away from them
    moving            who had better be at another Edge; `neighbours`, `gains`
    asking            what origins are asked, and what follows from their answers
    shares            how much of the relay each may have; `addresses`, `shaping`
    endings           how tracks end
    relay_queries     what is asked of other relays, and `relay_requests` what they ask

A shell tells the relay and the clients what happens, and calls `perform` afterwards: what followed
from it for clients was only written down until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.edge.asking import Asking
from laps.edge.authority import Authority
from laps.edge.context import Context
from laps.edge.endings import Endings
from laps.edge.fetching import Fetches
from laps.edge.keeping import Keeping
from laps.edge.moving import Moving
from laps.edge.relay_queries import RelayQueries
from laps.edge.relay_requests import RelayRequests
from laps.edge.reviewing import Reviews
from laps.edge.shaping import Shaping
from laps.edge.subscribing import Subscribing
from laps.edge.track_status import Statuses
from laps.edge.upstream_fetch import FetchCounters, UpstreamFetches
from laps.edge.watching import Watches
from laps.infobase.namespaces import NamespaceChange
from laps.relay.refusals import PolicyChanged, TrackRefused
from laps.relay.timers import earliest
from laps.tracks.cached_stream import Resume
from laps.tracks.publication import NewGroupWanted
from laps.tracks.subscription import FirstData, SubscriptionState
from laps.tracks.track import StreamsClosed
from laps.tracks.upstream_fetch import FetchFinished, FetchProgress
from laps.types import TrackName, hash_track

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.settings import EdgeSettings
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.peers import PeerArrived
    from laps.relay.relay import Relay
    from laps.types import Address, NamespaceInfo

# How often what has expired is looked for.
TICK_S: Final = 1.0


class Edge:
    """What the clients of a relay have in common."""

    def __init__(
        self, relay: Relay, settings: EdgeSettings, authority: Authority | None = None
    ) -> None:
        """Without an `authority` everybody may do everything."""
        context = Context(relay, settings, authority or Authority())
        self.relay = relay
        self.settings = settings
        self.context = context
        self.counters = context.counters
        self.quicr = context.quicr
        self.clients = context.clients
        self.queries = RelayQueries(context)
        self.upstream = UpstreamFetches(context, self.queries, FetchCounters())
        self.fetches = Fetches(self.upstream)
        self.statuses = Statuses(context, self.queries)
        self.subscribing = Subscribing(context, self.statuses, self.upstream)
        self.watches = Watches(context)
        self.shares = context.shares
        self.addresses = context.addresses
        self.shaping = Shaping(context)
        self.reviews = Reviews(context, self.shaping)
        self.moving = Moving(relay, self.clients, settings.moving)
        self.origins = Asking(context)
        self.endings = Endings(context, self.queries)
        self.requests = RelayRequests(
            context, self.queries, self.fetches, self.statuses, self.endings
        )
        self.keeping = Keeping(context, self.reviews, self.requests)
        self._events = relay.tracks.events
        self._is_leaving = False
        self.going_to: Address | None = None
        "Where clients are sent, once we are about to stop."
        self._expire_at: float | None = None

    # -- clients -----------------------------------------------------------------------------------

    def client_connected(self, client: EdgeClient) -> None:
        """There is a connection, and may be a session."""
        self.context.connected[client] = None
        self.shaping.pace(client)

    def client_ready(self, client: EdgeClient) -> None:
        """A session has been set up."""
        self.clients[client] = None
        if self._is_leaving:
            client.go_away(self.going_to)

    def client_closed(self, client: EdgeClient, now: float) -> None:
        """A client has left, with all that it offered and wanted."""
        self.clients.pop(client, None)
        self.moving.forget(client)
        self.reviews.forget(client)
        self.origins.client_closed(client)
        self.context.connected.pop(client, None)
        client.session.let_go()
        client.share.close()
        self.context.holding.discard(client)
        for serving in list(client.serving.values()):
            serving.cancel(now)
        subscriptions = list(client.subscriptions.values())
        client.left()
        client.watching.clear()
        tracks = self.relay.tracks
        published = [tracks.get(it.key) for it in client.publications.values()]
        for publication in client.publications.values():
            if (track := tracks.get(publication.key)) is not None:
                track.end_publication(publication)
        client.publications.clear()
        self.relay.client_closed(client, now)
        for subscription in subscriptions:
            subscription.advance(SubscriptionState.CLOSED)
            self.relay.pressure.track_changed(subscription.track, now)
        self.upstream.client_closed(client, now)
        for track in published:
            if track is not None:
                self.subscribing.settle(track, now)

    def drain(self, now: float, to: Address | None = None) -> float:
        """Ask every client to go elsewhere; when those that are left may be closed.

        Without an address they are to dial the same place again, where somebody else may answer.
        Those that were asked before, and stayed, are not asked twice.
        """
        self._is_leaving, self.going_to = True, to
        self.moving.end()
        for client in self.clients:
            if not self.moving.has_asked(client):
                client.go_away(to)
        return now + self.settings.grace_s if self.clients else now

    def close(self) -> None:
        """Close the sessions of all clients that have not left."""
        for client in list(self.clients):
            client.dismiss()

    # -- what happened -----------------------------------------------------------------------------

    def perform(self, now: float) -> None:
        """Act on what was written down while a call into the relay, or a client, ran."""
        if self.origins.wanted:
            self.origins.perform(now)
        received, events = self.relay.reach.received, self._events
        while received or events:
            if received:
                self.requests.receive(received.popleft(), now)
                continue
            match events.popleft():
                case FirstData(subscription):
                    self.subscribing.first_data(subscription, now)
                case NewGroupWanted(key, value):
                    if (track := self.relay.tracks.get(key)) is not None:
                        self.subscribing.new_group(track, value)
                case StreamsClosed(track):
                    self.endings.streams_closed(track, now)
                case FetchProgress(fetch):
                    self.upstream.progressed(fetch, now)
                case FetchFinished(fetch):
                    self.upstream.finished(fetch, now)
                case Resume(waiter):
                    waiter.resume(now)
                case TrackRefused() | PolicyChanged() as event:
                    self.keeping.changed(event, now)

    def observe(self, event: ExtensionEvent | PeerArrived, now: float) -> None:
        """What the relay reports: namespaces come and go, here and elsewhere."""
        if not isinstance(event, NamespaceChange):
            return
        if event.first:
            self.watches.changed(event, now)
        if event.added:
            if event.info.source_node_id != self.relay.id:
                self._others_offer(event.info)
                self.relay.repairs.offered(event.info)
            self._settle_below(event.info, now)

    def _others_offer(self, info: NamespaceInfo) -> None:
        key = None
        if info.name is not None:
            key = hash_track(TrackName(info.namespace, info.name)).full_name_hash
        self.relay.tracks.others_offer(key)

    def _settle_below(self, info: NamespaceInfo, now: float) -> None:
        namespace, name = info.namespace, info.name
        for track in self.relay.tracks.waiting(namespace):
            if name is None or track.name == TrackName(namespace, name):
                for subscription in track.waiting:
                    subscription.refused_by.discard(info.source_node_id)
                self.subscribing.settle(track, now)

    # -- time --------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether `perform` or an earlier `tick` is wanted."""
        context = self.context
        return bool(context.is_sooner or context.holding or self._events)

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        self.context.timers.run(now)
        self.moving.tick(now)
        if self._expire_at is None or self._expire_at <= now:
            done, tracks = self.relay.tracks.expire(now), self.relay.tracks
            self._expire_at = now + (TICK_S / tracks.looks_each_second if done else 0.0)
            holding = self.context.holding
            holding -= {client for client in list(holding) if not client.expire(now)}
        self.perform(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        self.context.is_sooner = False
        due = earliest((self.moving,), self.context.timers.next)
        if len(self.relay.tracks) or self.context.holding:
            expire_at = self._expire_at or 0.0
            return expire_at if due is None else min(due, expire_at)
        return due
