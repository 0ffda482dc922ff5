"""The relay: what happens when a link opens, a message arrives, a subscriber leaves.

It calls the rooms below it in turn, and none of them calls back. A shell (`net`, or `sim`) tells it
what happens, with the time, and gives it links and clients to act on (`ports`). RemoteProtocolError
wants the link closed. The Edge acts on `tracks.events` and `reach.received` afterwards.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from laps.infobase.namespaces import track_of
from laps.infobase.nodes import Nodes
from laps.infobase.subscribes import Subscribes
from laps.relay.admission import Admission
from laps.relay.arrivals import Arrivals
from laps.relay.claims import Claims
from laps.relay.classes import Classes
from laps.relay.control_streams import ControlStreams
from laps.relay.corrections import Corrections
from laps.relay.data import DataPlane
from laps.relay.demand import Demand
from laps.relay.digests import Digests
from laps.relay.exchange import Exchange
from laps.relay.extensions import Extensions
from laps.relay.ingress import IngressSets
from laps.relay.interest import Interest
from laps.relay.introduction import Introduction
from laps.relay.journal import Journal, PathWatch
from laps.relay.leaving import Leaving
from laps.relay.locating import Places
from laps.relay.nearest_edge import NearestEdge
from laps.relay.on_demand import OnDemand
from laps.relay.passing import DROPPED
from laps.relay.paths import Paths
from laps.relay.peers import Links, PeerLink
from laps.relay.pressure import Pressure
from laps.relay.proofs import PeerProofs
from laps.relay.reach import Reach
from laps.relay.receiving import Receiving
from laps.relay.refusals import Refusals, Refused
from laps.relay.repairs import Repairs
from laps.relay.roles import RULES, Role
from laps.relay.scope import Scope
from laps.relay.settings import RelayCounters, RelaySettings
from laps.relay.sizes import sizes_of
from laps.relay.stub_refusals import StubRefusals
from laps.relay.subscribes import SubscribeExchange
from laps.relay.suspicion import Suspicion
from laps.relay.timers import Due, Timers, earliest, tick_due
from laps.relay.weighing import Weighing
from laps.routing.avoided import Avoided
from laps.sessions.peer import (
    ControlReceived,
    EndStream,
    PeerConnected,
    PeerRefused,
    PeerWaits,
    ProofAwaited,
    SendControl,
)
from laps.telemetry.records import tracks_of
from laps.tracks.tracks import Tracks
from laps.types import DataDirection, PeerMode, format_node_id, hash_track
from laps.wire.peering import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from laps.infobase.namespaces import Names
    from laps.infobase.nodes import SessionId
    from laps.policy import Policy
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.peers import GiveUp, PeerArrived
    from laps.relay.ports import Link
    from laps.relay.stub import StubClient
    from laps.routing.plan import Plan
    from laps.sessions.peer import Effect, Event
    from laps.tracks.ports import Client
    from laps.tracks.subscription import Subscription
    from laps.types import AnnounceInfo, NodeId, NodeInfo, TrackHash, TrackKey, TrackName


class Relay:
    """One relay, without sockets and clocks."""

    def __init__(
        self, self_info: NodeInfo, role: Role, settings: RelaySettings, epoch: int
    ) -> None:
        """`epoch` is the time of day in seconds: sequence numbers go on from it after a restart."""
        self.self_info = self_info
        self.role = role
        self._is_stub = role is Role.STUB
        self.rules = RULES[role]
        self.settings = settings
        self.counters = RelayCounters()
        self.events: deque[ExtensionEvent | PeerArrived] = deque()
        "What the shell wants to know, and takes after each call: none of it is lost."
        self.journal = Journal()
        self._timers = Timers()
        avoided = Avoided()
        self.nodes = Nodes(self_info.id, avoided.select)
        self.path_watch = PathWatch(self.nodes, self.journal)
        self.subscribes = Subscribes()
        self.links = Links(self.counters, avoided)
        self.peers = self.links.peers
        self.weighing = Weighing(self.id, settings.region, self.nodes, self.links, avoided)
        self.router, self.fib = self.weighing.router, self.weighing.fib
        self._sets = self.weighing.sets
        seen = self.nodes, self.links, self.weighing, self.journal, settings.probing
        self.places = Places(self.id, (self_info.latitude, self_info.longitude), *seen, epoch)
        self.probing = self.places.probing
        self.tracks = Tracks(self_info.id, self.subscribes, self.fib, settings.cache)
        hold = settings.hold_s, settings.hold_bytes
        self.data = DataPlane(self.fib, self._sets, self.links, self.tracks, *hold)
        self._stubs: dict[SessionId, StubClient] = {}
        through = self.tracks, self._sets, self.fib, self.data.egress
        self.reach = Reach(self.id, self.nodes, self.links, self._stubs, *through, *hold)
        corrections = Corrections(self.id, self.journal, self.counters)
        around = self.nodes, avoided, self.links, self.events, settings.extensions
        advertised = corrections, self.weighing.metrics, epoch
        self.extensions = Extensions(self.id, role, *around, *advertised)
        bases = self.nodes, self.subscribes, self.links, self.extensions
        scope, refused = Scope(self.id, self.weighing.policy, self.counters), Refused()
        held = self.links, self.subscribes
        self.interest = Interest(self.id, role, *held, self.tracks, reflects=settings.reflect)
        self._digests = Digests(self.id, *held, self.interest)
        told_of = *bases, scope, self.interest, self._digests
        self._exchange = Exchange(self_info, *told_of, settings.node_advertise_s)
        refusing = scope, refused, self.tracks, self.reach, self.journal
        self.stub_refusals = StubRefusals(self.id, self._stubs, *refusing)
        limiting = corrections, scope, self.interest, refused, self.stub_refusals
        self._subscribes = SubscribeExchange(
            self_info.id,
            settings,
            self.nodes,
            self.subscribes,
            self.tracks,
            self._exchange,
            self.links,
            self.reach,
            self._sets,
            self._timers,
            *limiting,
            epoch,
            is_stub=self._is_stub,
            keeps=self.rules.keeps_subscribes or settings.reflect,
            own=frozenset(hash_track(own).full_name_hash for own in tracks_of(self_info.id)),
        )
        self._admission = Admission(
            self.id, self.rules, self.links, self.nodes, self.journal, self.counters
        )
        counted = self.weighing.policy, self.journal, self.counters
        exchanging = self._exchange, self.interest, self._digests
        self.proofs = PeerProofs(self.id, role, self.links, *counted)
        self._introduction = Introduction(
            self.id, role, self.links, self.nodes, self.extensions, *exchanging, self._subscribes
        )
        wanted = self.id, self.subscribes, self.tracks
        self._nearest_edge = NearestEdge(
            *wanted, self.links, self._subscribes, self._introduction, self._timers
        )
        self._control_streams = ControlStreams(
            self.links, self.fib, self._stubs, self._introduction, self._timers, settings.hold_s
        )
        self.ingress = IngressSets(
            self.id, self.fib, self._sets, self.links, self._timers, self.tracks.shared, hold[0]
        )
        having = self.nodes, self.extensions.namespaces, self.tracks, self.links, self._sets
        asking = self.reach, self._subscribes, self.journal
        self.repairs = Repairs(self.id, *having, *asking, settings.repair_s)
        self._paths = Paths(
            self.id,
            self.nodes,
            self.weighing,
            self._subscribes,
            self.extensions,
            self._exchange,
            settings.steadiness,
        )
        sessions = OnDemand(self.weighing, self.ingress, self._paths, self.journal, settings.demand)
        helping = self.weighing, self.places, sessions, self.tracks, self.interest
        self.demand = Demand(self_info, role, *helping, settings.demand)
        self.router.namers = (self.demand,)
        deciding = self.subscribes, self.weighing, self.fib, self.reach, self.tracks
        self.refusals = Refusals(self.id, refused, *deciding, self.journal)
        carried = self.subscribes, self.tracks, self.fib, self.ingress, self.data, self.repairs
        self.suspicion = Suspicion(role, avoided, self.links, self._paths, *carried)
        telling = self.extensions, self._exchange, self._subscribes, self.links, self._timers
        self._leaving = Leaving(self_info, self.weighing, *telling)
        meeting = self._admission, self.proofs, self._introduction, self._paths, self.links
        self.classes = Classes(self.weighing.policy, self.fib, self.tracks, self.data)
        told = self.classes, self._stubs, self.events, self.journal
        self._arrivals = Arrivals(self_info, self.rules, *meeting, *told)
        self.pressure = Pressure(self.links, self.fib, self.data, self.tracks, self._stubs)
        exchanges = self.proofs, self.links, self.extensions, self._subscribes, self.interest
        self.claims = Claims(self.id, *exchanges, self.journal, self.counters)
        known = self.nodes, self.subscribes, self._stubs, self._paths, self._subscribes
        flowing = self.tracks, self.ingress, self.data, self.reach, self.repairs
        watching = self.suspicion, self.pressure, self.extensions, self.refusals, self.demand
        bounds = self.rules, self.counters, settings.limits, self.claims, *known, *flowing
        self._receiving = Receiving(*bounds, *watching, *exchanging)
        fib, shared = self.fib, self.tracks.shared
        moved = fib.abandoned, fib.unsettled, fib.reached, fib.reordered
        self._moved_by_data = *moved, shared.broken, shared.reordered, self.data.holding
        "Where something may be that `tick` is to deal with, after data came."
        sending = self.weighing, self._paths, self._exchange, self._sets, self.ingress, self.data
        saying = self._subscribes, self.extensions, self.repairs, self.pressure, self.links
        looking = self.refusals, self.proofs, self.places, self.demand, self.classes
        self._due: tuple[Due, ...] = (*sending, self.interest, self._digests, *saying, *looking)

    # -- links -------------------------------------------------------------------------------------

    def link_opened(
        self,
        link: Link,
        now: float,
        mode: PeerMode = PeerMode.BOTH,
        direction: DataDirection = DataDirection.BIDIRECTIONAL,
    ) -> None:
        """A QUIC connection is there. `mode` and `direction` are what we ask for, if we dialled."""
        peer_link, effects = self._arrivals.opened(link, mode, direction, now)
        self._perform(peer_link, effects, now)

    def link_data(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the peer writes."""
        peer_link = self.links.peer_links.get(link.id)
        if peer_link is None:
            return
        if not stream_id & 2:
            self._perform(peer_link, peer_link.session.receive(stream_id, data, now), now)
            if fin:
                self._control_streams.ended(link.id, stream_id, now)
            return
        if self.data.receive_more(link, stream_id, data, fin, now):
            if self.tracks.shared.began or self.data.egress.pressing:
                self._flowed(now)
            return
        if peer_link.session.is_ahead:
            peer_link.hold(stream_id, data, fin, self.settings, self._timers, now)
            return
        peer_link.session.require_established("a data stream")
        if not (self.rules.carries_data and peer_link.receives_data):
            link.end_stream(stream_id, DROPPED)
            return
        self.data.receive(link, stream_id, data, fin, self._stubs.get(link.id), now)
        self._flowed(now)

    def link_datagram(self, link: Link, data: bytes, now: float) -> None:
        """A datagram from the peer."""
        peer_link = self.links.peer_links.get(link.id)
        if peer_link is None:
            return
        if peer_link.session.is_ahead:
            return  # it has overtaken the response; datagrams may be lost, and this one is
        peer_link.session.require_established("a datagram")
        if self.rules.carries_data and peer_link.receives_data:
            self.data.receive_datagram(link, data, self._stubs.get(link.id), now)
            self.reach.serve_joining(now)

    def link_reset(self, link: Link, stream_id: int, code: int, now: float) -> None:
        """The peer gave a stream up."""
        if stream_id & 2:
            if (peer_link := self.links.peer_links.get(link.id)) is not None:
                peer_link.drop_early(stream_id)
            self.data.reset(link.id, stream_id, code, now)
            self.reach.serve_joining(now)
        else:
            self._control_streams.ended(link.id, stream_id, now)

    def link_stopped(self, link: Link, stream_id: int, now: float) -> None:
        """The peer reads no more of a stream that we write."""
        if not stream_id & 2:
            self._control_streams.ended(link.id, stream_id, now)

    def link_closed(self, link: Link, now: float, reason: str = "") -> None:
        """A connection is closed, whoever did it and why: everything learned from it goes."""
        self.suspicion.closed(link.id, now)
        self.links.links.pop(link.id, None)
        self._admission.forget(link.id)
        self.proofs.closed(link.id)
        self.extensions.link_closed(link.id)
        peer_link = self.links.peer_links.pop(link.id, None)
        self.data.close_link(link.id, now)
        self.pressure.closed(link)
        if peer_link is None or peer_link.peer is None:
            return
        peer = peer_link.peer
        self.claims.closed(peer_link)
        del peer.links[link.id]
        if (stub := self._stubs.pop(link.id, None)) is not None:
            self.client_closed(stub, now)
        if not peer.links:
            del self.peers[peer.node_id]
            peer.confirm_at = None
            self.journal.note(now, "peer_down", format_node_id(peer.node_id), reason=reason)
        touched = self._paths.closed(link.id, now)
        self.ingress.close_link(link.id, now)
        touched |= self._introduction.elect(peer, now)
        if peer_link.first_node_at is not None:
            # Before nodes without a way are forgotten, with their subscribes.
            self._paths.take_late(peer, now)
        self._paths.changed(touched, now)
        self._paths.srtt_changed(peer, now, at_once=True)
        self.fib.close_link(link.id)
        self._sets.changed(now)
        self.reach.serve_joining(now)
        if peer is self._subscribes.parent.peer and peer.control is None:
            self._subscribes.parent.lost(now)
            self._introduction.adopt_parent(now)
        for heard in self.claims.released(peer.node_id) if peer.control is None else ():
            self._receiving.receive(*heard, now)
        for held in self._admission.released(peer.node_id):
            self._perform(held, held.session.decide(ResponseCode.OK, now), now)

    def link_writable(self, link: Link, now: float) -> None:
        """A link has room for control messages again."""
        if (peer_link := self.links.peer_links.get(link.id)) is not None and peer_link.outbox:
            self.links.pump(peer_link)

    def link_srtt(self, link: Link, now: float) -> bool:
        """The round trip of a link may have changed; whether anything follows from it."""
        peer_link = self.links.peer_links.get(link.id)
        if peer_link is None or peer_link.peer is None:
            return False
        if self._is_stub:
            self._nearest_edge.review(now)
        return self._paths.srtt_changed(peer_link.peer, now) or self._is_stub

    # -- clients -----------------------------------------------------------------------------------

    def announce(
        self, client: Client, info: AnnounceInfo, now: float, names: Names | None = None
    ) -> None:
        """A publisher offers a namespace or a track; `names` are told to relays that take them."""
        if names is not None:
            self.extensions.announce(client, *names, now)
        keys = self.tracks.announce(client, info, track_of(names))
        if keys is not None:
            self._subscribes.review_all(keys, now)
            self._subscribes.parent.announced(info, added=True)

    def unannounce(
        self, client: Client, info: AnnounceInfo, now: float, names: Names | None = None
    ) -> None:
        """A publisher offers it no more."""
        if names is not None:
            self.extensions.unannounce(client, *names, now)
        keys = self.tracks.unannounce(client, info, track_of(names))
        if keys is not None:
            self._subscribes.review_all(keys, now)
            self._subscribes.parent.announced(info, added=False)

    def subscribe(
        self,
        client: Client,
        track: TrackName,
        subscribe_data: bytes,
        now: float,
        subscription: Subscription | None = None,
    ) -> None:
        """A client wants a track; the network hears of it if it is the first here.

        Without a subscription it is given every stream as it is.
        """
        self._subscribes.subscribe(client, hash_track(track), subscribe_data, now, subscription)

    def unsubscribe(self, client: Client, track: TrackName, now: float) -> None:
        """A client no longer wants a track; the network hears of it a little later."""
        self._subscribes.unsubscribe(client, hash_track(track), now)

    def review(self, key: TrackKey, now: float) -> None:
        """Publishers of a track that refused it, or ended it, may be asked again."""
        self._subscribes.review(key, now)

    def client_closed(self, client: Client, now: float) -> None:
        """A client has left, with all it offered and wanted."""
        self._subscribes.client_closed(client, now)
        self.extensions.client_closed(client, now)
        self.data.close_source(client, now)
        self.pressure.closed(client.sink)
        self.reach.serve_joining(now)

    def publish(
        self,
        client: Client,
        track: TrackHash,
        stream_key: Hashable,
        data: bytes | memoryview,
        fin: bool,
        priority: int,
        ttl_us: int,
        now: float,
    ) -> None:
        """Bytes of a publisher's stream; the first with a new key opens it."""
        self.data.publish(client, track, stream_key, data, fin, priority, ttl_us, now)
        self._flowed(now)

    def publish_reset(self, client: Client, stream_key: Hashable, code: int, now: float) -> None:
        """A publisher gave a stream up."""
        self.data.reset(client, stream_key, code, now)
        self.reach.serve_joining(now)

    def publish_datagram(self, client: Client, track: TrackHash, data: bytes, now: float) -> bool:
        """A publisher's datagram; False if its object arrived before."""
        is_new = self.data.publish_datagram(client, track, data, now)
        self.reach.serve_joining(now)
        return is_new

    def _flowed(self, now: float) -> None:
        """Data has come: streams that began are for those who join, and may press on links."""
        if self.tracks.shared.began:
            self.reach.serve_joining(now)
        if self.data.egress.pressing:
            self.pressure.began(now)

    # -- time --------------------------------------------------------------------------------------

    def follow_plan(self, plan: Plan, now: float) -> None:
        """Lay a plan over selection, in place of the one before; streams finish where they run."""
        self._paths.follow(plan, now)

    def follow_policy(self, policy: Policy | None, now: float) -> None:
        """Keep to another policy, or to none, from now on."""
        self._paths.follow_policy(policy, now)
        self.refusals.changed()
        self.classes.changed()

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        self._timers.run(now)
        tick_due(self._due, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return earliest(self._due, self._timers.look())

    def drain(self, now: float) -> None:
        """Say that we leave, stay for the grace, and stop."""
        self._leaving.begin(now)

    # -- looking in --------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """Our own node id."""
        return self.self_info.id

    @property
    def stubs(self) -> Collection[StubClient]:
        """The Stubs of this relay."""
        return self._stubs.values()

    @property
    def is_due(self) -> bool:
        """Whether `tick` may be wanted sooner than `deadline` last said, after data came."""
        return self._timers.is_sooner or self.pressure.is_sooner or any(self._moved_by_data)

    def is_idle(self) -> bool:
        """Whether nothing is about to be said or dropped."""
        waiting = self._timers or self.data.holding or self._exchange.deadline() is not None
        waiting = waiting or any(link.outbox for link in self.links.peer_links.values())
        parts = self._sets, self._subscribes, self._paths, self.repairs, self.weighing
        return not waiting and all(it.is_idle for it in parts) and self.extensions.is_idle()

    def sizes(self) -> dict[str, int]:
        """How full each table is."""
        return sizes_of(self)

    # -- messages ----------------------------------------------------------------------------------

    def _perform(self, peer_link: PeerLink, effects: Sequence[Effect | Event], now: float) -> None:
        link = peer_link.link
        for effect in effects:
            match effect:
                case ControlReceived(message):
                    self.counters.control_received += 1
                    if peer_link.peer is not None:
                        self._receiving.receive(peer_link, peer_link.peer, message, now)
                case SendControl():
                    self.links.write(peer_link, effect)
                case EndStream(stream_id, code):
                    link.end_stream(stream_id, code)
                    self._control_streams.moved(peer_link, now)
                case PeerConnected():
                    self._arrivals.connected(peer_link, effect, now)
                    for item in peer_link.take_early():
                        self.link_data(link, *item, now)
                case PeerWaits(connect):
                    self._admission.hold(peer_link, connect)
                    self._wait(peer_link, self._admission.give_up, now + self.settings.probe_s)
                case ProofAwaited():
                    self._wait(peer_link, self.proofs.give_up, now + self.settings.proof_s)
                case PeerRefused():
                    self.proofs.refused(link, effect, now)

    def _wait(self, peer_link: PeerLink, give_up: GiveUp, until: float) -> None:
        """An introduction waits; after its time it is given up, if it still does."""
        self._timers.at(until, lambda now: self._perform(peer_link, give_up(peer_link, now), now))
