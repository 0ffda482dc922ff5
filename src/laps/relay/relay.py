"""The relay: what happens when a link opens, a message comes, a subscriber leaves.

It calls the rooms below it in turn, and none of them calls back:

    a control message    sessions -> infobase (what changed?) -> routing (so what?) -> links
    data                 relay.data -> links

A shell (`net`, or `sim`) tells it what happens, with the time, and gives it links and clients to
act on (`ports`). A method that raises a RemoteProtocolError wants the link closed with its code.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from laps.errors import CloseCode, ConnectResponseNotReceived
from laps.infobase.nodes import Nodes
from laps.infobase.subscribes import Subscribes
from laps.relay.admission import Admission
from laps.relay.data import DROPPED, DataPlane
from laps.relay.exchange import Exchange, srtt_changed
from laps.relay.extensions import Extensions
from laps.relay.journal import Journal
from laps.relay.path_watch import PathWatch
from laps.relay.peers import Peer, PeerArrived, PeerLink
from laps.relay.reach import Reach
from laps.relay.roles import RULES, Role
from laps.relay.settings import MAX_EVENTS, RelayCounters, RelaySettings
from laps.relay.stub import StubClient
from laps.relay.subscribes import Subscriptions
from laps.relay.timers import Timers
from laps.routing.draining import Draining
from laps.routing.forwarding import Fib
from laps.routing.route import Routes
from laps.sessions.peer import (
    ControlReceived,
    EndStream,
    PeerConnected,
    PeerRefused,
    PeerSession,
    SendControl,
    State,
)
from laps.telemetry.records import tracks_of
from laps.tracks.track import Live
from laps.tracks.tracks import Tracks
from laps.types import DataDirection, PeerMode, TrackName, format_node_id, hash_track
from laps.wire.extensions import EXTENDED_CODECS, RelayRequest, RelayResponse
from laps.wire.peering import (
    CODECS,
    AnnounceInfoAdv,
    AnnounceInfoWd,
    Connect,
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

    from laps.infobase.namespaces import Names
    from laps.infobase.nodes import SessionId
    from laps.relay.extensions import ExtensionEvent
    from laps.relay.ports import Link
    from laps.routing.forwarding import Flow, SnsUpdate
    from laps.routing.plan import Plan
    from laps.routing.route import Route
    from laps.sessions.peer import Effect, Event
    from laps.tracks.ports import Client
    from laps.types import (
        AnnounceInfo,
        NodeId,
        NodeInfo,
        SnsId,
        TrackHash,
    )
    from laps.wire.peering import Message


class Relay:
    """One relay, without sockets and clocks."""

    def __init__(
        self, self_info: NodeInfo, role: Role, settings: RelaySettings, epoch: int
    ) -> None:
        """`epoch` is the time of day in seconds: sequence numbers go on from it after a restart."""
        self.self_info = self_info
        self.role = role
        self.rules = RULES[role]
        self.settings = settings
        self.counters = RelayCounters()
        self._timers = Timers()
        self._draining = Draining()
        self.events: deque[ExtensionEvent | PeerArrived] = deque(maxlen=MAX_EVENTS)
        "What the shell may want to know; the oldest go when nobody looks."
        self.journal = Journal()
        "What has happened, to be told."
        self.nodes = Nodes(self_info.id, self._draining.select)
        self.path_watch = PathWatch(self.nodes, self.journal)
        self.subscribes = Subscribes()
        self.peers: dict[NodeId, Peer] = {}
        self._links: dict[SessionId, Link] = {}
        self._peer_links: dict[SessionId, PeerLink] = {}
        self._routes = Routes(
            self.nodes, self.peers, self._peer_links, self._draining, self.counters
        )
        self.fib = Fib(self._routes.find)
        self._admission = Admission(self_info.id, self.rules, self.peers, self.counters)
        self.live = Live(settings.cache, self._is_source)
        self.tracks = Tracks(
            self_info.id,
            self.subscribes,
            self.fib,
            self.live,
            self._tell_sns,
            lambda *joined: self.reach.catch_up(*joined),
            epoch,
        )
        self.data = DataPlane(
            self.fib,
            self._links,
            self.live,
            lambda update: self._tell_sns([update]),
            settings.hold_s,
            settings.hold_bytes,
            self.node_of,
        )
        self.extensions = Extensions(
            self_info.id,
            role,
            self.nodes,
            self._draining,
            self.peers,
            self._send_on,
            self._nodes_touched,
            self.events.append,
            settings.extensions,
            epoch,
        )
        self._exchange = Exchange(
            self_info,
            self.nodes,
            self.subscribes,
            self.peers,
            self._send,
            settings.node_advertise_s,
            self.extensions.advertised,
        )
        self._subscriptions = Subscriptions(
            self_info.id,
            settings,
            self.nodes,
            self.subscribes,
            self.tracks,
            self._exchange,
            self._send,
            self._timers.at,
            is_stub=role is Role.STUB,
            keeps=self.rules.keeps_subscribes or settings.reflect,
            own=frozenset(hash_track(own).full_name_hash for own in tracks_of(self_info.id)),
        )
        self._stubs: dict[SessionId, StubClient] = {}
        self.reach = Reach(
            self_info.id,
            self.nodes,
            self.peers,
            self._stubs,
            self.live,
            self.data,
            self._send_on,
            self._tell_sns,
        )
        self._ingress: dict[SessionId, dict[SnsId, float | None]] = {}

    # -- links -------------------------------------------------------------------------------------

    def link_opened(
        self,
        link: Link,
        now: float,
        mode: PeerMode = PeerMode.BOTH,
        direction: DataDirection = DataDirection.BIDIRECTIONAL,
    ) -> None:
        """A QUIC connection is there. `mode` and `direction` are what we ask for, if we dialled."""
        self._links[link.id] = link
        codecs = EXTENDED_CODECS if link.extended else CODECS
        if link.dialled:
            if not self.rules.carries_data:
                mode = PeerMode.CONTROL
            connect = Connect(mode, direction, self.self_info)
            session, effects = PeerSession.dial(connect, link.open_control(), codecs)
        else:
            session, effects = PeerSession(self.self_info, self._admission.admit, codecs), []
        peer_link = self._peer_links[link.id] = PeerLink(link, session)
        self._perform(peer_link, effects, now)

    def link_data(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream that the peer writes."""
        peer_link = self._peer_links.get(link.id)
        if peer_link is None:
            return
        if not stream_id & 2:
            self._perform(peer_link, peer_link.session.receive(stream_id, data), now)
            return
        if peer_link.session.state is State.AWAIT_RESPONSE:
            self._hold_early(peer_link, stream_id, data, fin, now)
            return
        peer_link.session.require_established("a data stream")
        if not (self.rules.carries_data and peer_link.receives_data):
            link.end_stream(stream_id, DROPPED)
            return
        self.live.cache.now = now
        self.data.receive(link, stream_id, data, fin, self._stubs.get(link.id), now)

    def _hold_early(
        self, peer_link: PeerLink, stream_id: int, data: bytes, fin: bool, now: float
    ) -> None:
        """Data has overtaken the CONNECT_RESPONSE, since QUIC keeps no order between streams."""
        if not peer_link.early:

            def late(now: float) -> None:
                if peer_link.session.state is State.AWAIT_RESPONSE:
                    error = ConnectResponseNotReceived
                    peer_link.link.close(error.code, "data came, and no response ahead of it")

            self._timers.at(now + self.settings.hold_s, late)
        peer_link.early.append((stream_id, data, fin))
        if sum(len(data) for _, data, _ in peer_link.early) > self.settings.hold_bytes:
            peer_link.session.require_established("so much data")

    def link_datagram(self, link: Link, data: bytes, now: float) -> None:
        """A datagram from the peer."""
        peer_link = self._peer_links.get(link.id)
        if peer_link is None:
            return
        if peer_link.session.state is State.AWAIT_RESPONSE:
            return  # it has overtaken the response; datagrams may be lost, and this one is
        peer_link.session.require_established("a datagram")
        if self.rules.carries_data and peer_link.receives_data:
            self.live.cache.now = now
            self.data.receive_datagram(link, data, self._stubs.get(link.id), now)

    def link_reset(self, link: Link, stream_id: int, code: int, now: float) -> None:
        """The peer gave a stream up."""
        if stream_id & 2:
            self.data.reset(link.id, stream_id, code)

    def link_closed(self, link: Link, now: float, reason: str = "") -> None:
        """A connection is over, whoever ended it and why: everything learned from it goes."""
        self._links.pop(link.id, None)
        self.extensions.link_closed(link.id)
        peer_link = self._peer_links.pop(link.id, None)
        self.data.close_source(link.id)
        if peer_link is None or peer_link.peer is None:
            return
        peer = peer_link.peer
        del peer.links[link.id]
        if (stub := self._stubs.pop(link.id, None)) is not None:
            self.client_closed(stub, now)
        if not peer.links:
            del self.peers[peer.node_id]
            peer.confirmed = None
            self.journal.note(now, "peer_down", format_node_id(peer.node_id), reason=reason)
        touched = {change.node_id for change in self.nodes.close_session(link.id)}
        for sns_id in self._ingress.pop(link.id, ()):
            self._tell_sns(self.fib.remove((link.id, sns_id)))
        touched |= self._elect(peer, now)
        self._nodes_touched(touched, now)
        self._tell_sns(self.fib.close_link(link.id))
        if peer is self._subscriptions.parent and peer.control is None:
            self._adopt_parent(now)

    def link_srtt(self, link: Link, now: float) -> None:
        """The round trip of a link may have changed."""
        peer_link = self._peer_links.get(link.id)
        if peer_link is None or peer_link.peer is None or peer_link.peer.is_stub:
            return
        if srtt_changed(peer_link.srtt_us, link.srtt_us):
            peer_link.srtt_us = link.srtt_us
            changes = self.nodes.set_srtt(link.id, link.srtt_us)
            self._tell_sns(self.fib.reroute(change.node_id for change in changes))
            self._exchange.nodes_changed(self.nodes.via(link.id), now)

    # -- clients -----------------------------------------------------------------------------------

    def announce(
        self, client: Client, info: AnnounceInfo, now: float, names: Names | None = None
    ) -> None:
        """A publisher offers a namespace or a track; `names` are told to relays that take them."""
        if names is not None:
            self.extensions.announce(client, *names, now)
        if self.tracks.announce(client, info, _track(names)):
            self._subscriptions.tell_parent(AnnounceInfoAdv(replace(info, source_node_id=self.id)))

    def unannounce(
        self, client: Client, info: AnnounceInfo, now: float, names: Names | None = None
    ) -> None:
        """A publisher offers it no more."""
        if names is not None:
            self.extensions.unannounce(client, *names, now)
        if self.tracks.unannounce(client, info, _track(names)):
            self._subscriptions.tell_parent(AnnounceInfoWd(replace(info, source_node_id=self.id)))

    def subscribe(
        self, client: Client, track: TrackName, subscribe_data: bytes, now: float
    ) -> None:
        """A client wants a track; the network hears of it if it is the first here."""
        self._subscriptions.subscribe(client, hash_track(track), subscribe_data, now)

    def unsubscribe(self, client: Client, track: TrackName, now: float) -> None:
        """A client no longer wants a track; the network hears of it a little later."""
        self._subscriptions.unsubscribe(client, hash_track(track), now)

    def client_closed(self, client: Client, now: float) -> None:
        """A client is gone, with all it offered and wanted."""
        for track in self.tracks.tracks_of(client):
            self._subscriptions.unsubscribe(client, track, now)
        for info in self.tracks.drop_publisher(client):
            self._subscriptions.tell_parent(AnnounceInfoWd(replace(info, source_node_id=self.id)))
        self.extensions.client_closed(client, now)
        self.data.close_source(client)

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
        self.live.cache.now = now
        self.data.publish(client, track, stream_key, data, fin, priority, ttl_us)

    def publish_reset(self, client: Client, stream_key: Hashable, code: int, now: float) -> None:
        """A publisher gave a stream up."""
        self.data.reset(client, stream_key, code)

    def publish_datagram(
        self, client: Client, track: TrackHash, data: bytes, priority: int, now: float
    ) -> None:
        """A publisher's datagram."""
        self.live.cache.now = now
        self.data.publish_datagram(client, track, data)

    # -- time --------------------------------------------------------------------------------------

    def follow_plan(self, plan: Plan) -> None:
        """Lay a plan over selection, in place of the one before; streams finish where they run."""
        if plan == self._routes.plan:
            return
        self._routes.plan = plan
        self._tell_sns(self.fib.reroute(self.nodes))

    @property
    def plan(self) -> Plan:
        """The plan that is followed."""
        return self._routes.plan

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        self._timers.run(now)
        if self._exchange.flush_at is not None and self._exchange.flush_at <= now:
            self._exchange.flush()
        self.data.expire(now)
        self._subscriptions.tick(now)
        self.extensions.tick(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        due = [
            self._timers.next,
            self._exchange.flush_at,
            self.data.next_expiry(),
            self._subscriptions.deadline(),
            self.extensions.deadline(),
        ]
        return min((at for at in due if at is not None), default=None)

    def drain(self, now: float) -> None:
        """Say that we leave, stay for the grace, and stop."""
        at = self.extensions.drain(now)
        if at > now:
            self._timers.at(at, self._stop)
        else:
            self._stop(now)

    def _stop(self, now: float) -> None:
        """Stop in good order: withdraw what we subscribed to, and close every link."""
        self._subscriptions.withdraw_all(now)
        for link in list(self._links.values()):
            link.close(CloseCode.GRACEFUL, "the relay stops")

    # -- looking in --------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """Our own node id."""
        return self.self_info.id

    def node_of(self, link_id: SessionId) -> NodeId | None:
        """Who is at the other end of a link, once it has said so."""
        peer_link = self._peer_links.get(link_id)
        return None if peer_link is None or peer_link.peer is None else peer_link.peer.node_id

    def link(self, link_id: SessionId) -> Link | None:
        """A connection to a peer."""
        return self._links.get(link_id)

    @property
    def stubs(self) -> Collection[StubClient]:
        """The Stubs of this relay."""
        return self._stubs.values()

    def ingress_sets(self) -> list[tuple[SessionId, SnsId, bool]]:
        """The sets that peers have told us of, by link; and whether they are withdrawn by now."""
        return [
            (link_id, sns_id, until is not None)
            for link_id, sets in self._ingress.items()
            for sns_id, until in sets.items()
        ]

    def explain_route(self, flow: Flow, node_id: NodeId) -> Route:
        """Which way a flow takes to a node, and why."""
        return self._routes.explain(flow, node_id)

    def is_idle(self) -> bool:
        """Whether nothing is about to be said or dropped."""
        waiting = self._timers or self.data.holding or self._exchange.flush_at is not None
        return not waiting and self._subscriptions.is_idle and self.extensions.is_idle()

    def sizes(self) -> dict[str, int]:
        """How full each table is."""
        return {
            "links": len(self._links),
            "peers": len(self.peers),
            "nodes": len(self.nodes),
            "subscribes": len(self.subscribes),
            "announces": len(self.tracks.announces),
            "tracks": len(self.tracks),
            "flows": len(self.fib),
            "streams": len(self.data),
            "metrics": len(self.extensions.metrics),
            "namespaces": len(self.extensions.namespaces),
        }

    # -- the introduction --------------------------------------------------------------------------

    def _connected(self, peer_link: PeerLink, event: PeerConnected, now: float) -> None:
        link, info = peer_link.link, replace(event.node_info, path=())
        if not self._admission.is_welcome(info):
            link.close(CloseCode.GRACEFUL, "this node id or type cannot be a peer")
            return
        peer = self.peers.get(info.id)
        if peer is None:
            peer = self.peers[info.id] = Peer(info)
        peer_link.mode, peer_link.direction = event.peer_mode, event.data_direction
        self._replace_lost(peer, peer_link, now)
        if not peer.links:
            kind, mode = info.type.name.lower(), event.peer_mode.name.lower()
            self.journal.note(now, "peer_up", format_node_id(info.id), f"{kind} for {mode}")
        peer.links[link.id] = peer_link
        peer_link.peer, peer_link.established_at = peer, now
        self.events.append(PeerArrived(link.id, info, event.peer_mode))
        peer_link.srtt_us = link.srtt_us
        if peer.is_stub:
            self._stubs[link.id] = self._stub(peer, link)
        touched = set() if peer.is_stub else {info.id}
        touched |= self._elect(peer, now)
        self._nodes_touched(touched, now)

    def _replace_lost(self, peer: Peer, peer_link: PeerLink, now: float) -> None:
        """A side that dials control again has lost the link it had dialled before.

        One that had been dialled itself may have lost that too, if it was restarted.
        """
        for other in list(peer.links.values()):
            if not (peer_link.has_control and other.has_control):
                continue
            if other.link.dialled == peer_link.link.dialled:
                reason = "replaced by a new connection"
                other.link.close(CloseCode.GRACEFUL, reason)
                self.link_closed(other.link, now, reason)
            else:
                other.link.probe()
        self.peers[peer.node_id] = peer

    def _elect(self, peer: Peer, now: float) -> set[NodeId]:
        """After a link came or went: which has control, which lead to data; the nodes touched."""
        touched: set[NodeId] = set()
        elected = peer.elect(self.id)
        if elected is not peer.control:
            peer.control = elected
            peer.told.clear()
        if not peer.is_stub:
            for peer_link in peer.links.values():
                touched |= self._reopen(peer_link)
        if elected is not None and elected is not peer.synced:
            self._begin_control(peer, now)
        peer.synced = elected
        return touched

    def _reopen(self, peer_link: PeerLink) -> set[NodeId]:
        """Lay a link's paths down anew, if it is new or can now do something else."""
        peer, link = peer_link.peer, peer_link.link
        if peer is None or peer_link.laid_down is (able := peer.sends_data):
            return set()
        peer_link.laid_down = able
        touched = {change.node_id for change in self.nodes.close_session(link.id)}
        self.nodes.open_session(
            link.id, peer.node_id, peer_link.srtt_us, peer_link.established_at, able
        )
        for info in (peer.info, *peer_link.heard.values()):
            if (change := self.nodes.add(link.id, info)) is not None:
                touched.add(change.node_id)
        return touched

    def _begin_control(self, peer: Peer, now: float) -> None:
        """A control link is up, or has moved: tell everything, and hear it."""
        if self.role is Role.STUB:
            if self._subscriptions.parent is None or self._subscriptions.parent is peer:
                self._adopt_parent(now)
            return
        if peer.is_stub:
            self.extensions.begin_stub(peer, now)
            return
        self.extensions.begin(peer, now)
        self._exchange.sync(peer)
        self._subscriptions.begin_confirming(peer, now)

    def _stub(self, peer: Peer, link: Link) -> StubClient:
        return StubClient(
            peer,
            link,
            self.id,
            lambda message: self._send(peer, message),
            lambda key: self.tracks.next_sequence(self.id, key, 0.0),
        )

    def _adopt_parent(self, now: float) -> None:
        parent = self._subscriptions.adopt_parent(self.peers.values())
        if parent is not None:
            self.extensions.begin(parent, now)

    # -- messages ----------------------------------------------------------------------------------

    def _perform(self, peer_link: PeerLink, effects: Sequence[Effect | Event], now: float) -> None:
        link = peer_link.link
        for effect in effects:
            match effect:
                case SendControl(stream_id, data):
                    self.counters.control_sent += 1
                    link.send_control(stream_id, data)
                case EndStream(stream_id, code):
                    link.end_stream(stream_id, code)
                case PeerConnected():
                    self._connected(peer_link, effect, now)
                    early, peer_link.early = peer_link.early, []
                    for item in early:
                        self.link_data(link, *item, now)
                case PeerRefused(code):
                    link.close(CloseCode.GRACEFUL, f"refused with response code {int(code)}")
                case ControlReceived(message):
                    self.counters.control_received += 1
                    if peer_link.peer is not None:
                        self._receive(peer_link, peer_link.peer, message, now)

    def _send(self, peer: Peer, message: Message) -> None:
        if peer.control is not None:
            self._send_on(peer.control, message)

    def _send_on(self, peer_link: PeerLink, message: Message) -> None:
        for effect in peer_link.session.send(message):
            if isinstance(effect, SendControl):
                self.counters.control_sent += 1
                peer_link.link.send_control(effect.stream_id, effect.data)

    def _receive(self, peer_link: PeerLink, peer: Peer, message: Message, now: float) -> None:
        link_id = peer_link.link.id
        takes_data = self.rules.carries_data and peer_link.receives_data
        takes_control = peer_link.has_control
        match message:
            case NodeInfoAdv(info) if takes_control and not peer.is_stub:
                self._node_said(peer, peer_link, info, added=True, now=now)
            case NodeInfoWd(info) if takes_control and not peer.is_stub:
                self._node_said(peer, peer_link, info, added=False, now=now)
            case SubscribeInfoAdv(info) if takes_control:
                stub = self._stubs.get(link_id)
                joins = stub is not None and not self.tracks.has_subscriber(stub, info.track_hash)
                self._subscriptions.receive(peer_link, peer, info, stub, added=True, now=now)
                if stub is not None and joins:
                    self.reach.join_stub(stub, info.track_hash)
            case SubscribeInfoWd(info) if takes_control:
                stub = self._stubs.get(link_id)
                self._subscriptions.receive(peer_link, peer, info, stub, added=False, now=now)
            case AnnounceInfoAdv(announce) if (stub := self._stubs.get(link_id)) is not None:
                self.tracks.announce(stub, announce)
            case AnnounceInfoWd(announce) if (stub := self._stubs.get(link_id)) is not None:
                self.tracks.unannounce(stub, announce)
            case SubscribeNodeSetAdv(sns_id, nodes) if takes_data:
                self._ingress.setdefault(link_id, {})[sns_id] = None
                others = [node_id for node_id in nodes if node_id != self.id]
                updates = self.fib.install((link_id, sns_id), others, local=self.id in nodes)
                self._tell_sns(updates)
                self.data.sns_known(peer_link.link, sns_id, now)
            case SubscribeNodeSetWd(sns_id) if takes_data:
                self._sns_withdrawn(link_id, sns_id, now)
            case RelayRequest() | RelayResponse() if takes_control:
                self.live.cache.now = now
                self.reach.receive(message, now)
            case _:
                stub = self._stubs.get(link_id)
                if not self.extensions.receive(peer, message, now, stub, peer_link):
                    self.counters.unwanted_messages += 1

    def _is_source(self, source: Hashable) -> bool:
        """Whether streams may still come from a publisher or by a flow."""
        return self.fib.get(source) is not None or source in self.tracks.announces

    def _sns_withdrawn(self, link_id: SessionId, sns_id: SnsId, now: float) -> None:
        """Data may come behind its withdraw, as it may come ahead of its set: wait as long."""
        sets = self._ingress.get(link_id, {})
        if sns_id not in sets or sets[sns_id] is not None:
            self.counters.unknown_sns_withdraws += 1
            return
        at = sets[sns_id] = now + self.settings.hold_s

        def go(now: float) -> None:
            sets = self._ingress.get(link_id, {})
            if sets.get(sns_id) == at:
                del sets[sns_id]
                self._tell_sns(self.fib.remove((link_id, sns_id)))

        self._timers.at(at, go)

    # -- nodes -------------------------------------------------------------------------------------

    def _node_said(
        self, peer: Peer, peer_link: PeerLink, info: NodeInfo, *, added: bool, now: float
    ) -> None:
        """A peer says one thing of a node at a time, whichever of its links it now uses."""
        known = peer.knows(info.id)
        over = [link for link in peer.links.values() if link.heard.pop(info.id, None) is not None]
        changes = []
        if added:
            peer_link.heard[info.id] = info
            changes.append(self.nodes.add(peer_link.link.id, info))
            over = [link for link in over if link is not peer_link]
        elif not over:
            over = [peer_link]
        changes += [self.nodes.withdraw(link.link.id, info) for link in over]
        if any(changes):
            self._nodes_touched({info.id}, now)
        elif self._routes.plan.vias:
            # The best way is as it was, but a plan may go by another.
            self._tell_sns(self.fib.reroute([info.id]))
        if added and not known:
            self._exchange.node_claimed(peer, info.id)

    def _nodes_touched(self, node_ids: Iterable[NodeId], now: float) -> None:
        """Ways to these nodes may be others: forget, tell and send accordingly."""
        ids = sorted(node_ids)
        for node_id in ids:
            if self.nodes.best(node_id) is None:
                self._subscriptions.purge(node_id)
                self.extensions.purge(node_id, now)
            else:
                self._subscriptions.node_known(node_id)
        self._exchange.nodes_changed(ids, now)
        self._tell_sns(self.fib.reroute(ids))

    def _tell_sns(self, updates: Iterable[SnsUpdate]) -> None:
        for update in updates:
            peer_link = self._peer_links.get(update.link)
            if peer_link is None:
                continue
            if update.nodes:
                self._send_on(peer_link, SubscribeNodeSetAdv(update.sns_id, update.nodes))
            else:
                self._send_on(peer_link, SubscribeNodeSetWd(update.sns_id))


def _track(names: Names | None) -> TrackName | None:
    """The track that is offered, if it is one and not all below a namespace."""
    if names is None or names[1] is None:
        return None
    return TrackName(names[0], names[1])
