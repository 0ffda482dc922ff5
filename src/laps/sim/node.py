"""A node of a simulated network: a relay while it is up, its links, its clients, its timer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from laps.edge.edge import Edge
from laps.edge.settings import EdgeSettings
from laps.errors import RemoteProtocolError
from laps.infobase.nodes import SessionId
from laps.relay.relay import Relay
from laps.relay.roles import RULES, Role
from laps.sim.clients import RETURN_S, Publisher, Subscriber
from laps.sim.gauge import LinkGauge
from laps.types import NodeId, NodeInfo, NodeMetrics, PeerMode, Reachability, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.auth.origin_api import CallFailed
    from laps.policy import Policy
    from laps.relay.settings import RelaySettings
    from laps.sim.calling import Calling
    from laps.sim.clock import Clock
    from laps.sim.dialling import Dialler
    from laps.sim.lanes import Lane
    from laps.sim.links import Cable, LinkEnd
    from laps.sim.origins import SimOrigins
    from laps.sim.topology import Node
    from laps.sim.trace import Trace
    from laps.sim.underlay import Underlay

# The time of day when a clock stands at 0: any will do, as long as it is the same.
EPOCH: Final = 1_700_000_000

# A relay that is stopped has this long to say goodbye.
DRAIN_S: Final = 1.0

# Links here are long and lossy, and word of a publisher may take a while.
EDGE: Final = EdgeSettings(subscribe_wait_s=2.0)

# What a node's id grows by when it comes back as another: no node of a topology has such an id.
LIFE: Final = 1_000_000

# A relay that wants to be called this often at one moment would never stop; what is much is done in
# hundreds of turns.
MOST_TICKS_AT_ONCE: Final = 10_000


class SimNode:
    """One node; `relay` is None while it is down."""

    def __init__(
        self,
        spec: Node,
        clock: Clock,
        settings: RelaySettings,
        trace: Trace,
        changed: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.node_id: NodeId = spec.id
        "Who it is now: another than at first, if it came back as another node."
        self.role = Role(spec.type)
        self.passed = self._alone = frozenset({spec.id})
        self._lives = 0
        "How often it came back as another node."
        self._joined: dict[frozenset[NodeId], frozenset[NodeId]] = {}
        "The nodes that something has passed when it came here, and with this one."
        self.clock = clock
        self.relay: Relay | None = None
        self.edge: Edge | None = None
        "Its MoQT clients, if it has any."
        self.edge_settings = EDGE
        "What holds for its clients, from the next start on."
        self.client_address = ""
        "Where others are told that clients connect; empty: nowhere."
        self.said = spec.latitude, spec.longitude
        "Where it says it is."
        self.calling: Calling | None = None
        "What dials for it peers that nobody configured; None: nobody."
        self.underlay: Underlay | None = None
        "What its probes go by."
        self.load: Callable[[], float] | None = None
        "How much it has to do, by chance or as a test says; None: it tells nobody how it is."
        self.capacity_bps = 0
        "What it says that it can send; 0: nothing."
        self._gauge = LinkGauge()
        self.origins: SimOrigins | None = None
        "Who decides about names, from the next start on; None: everybody may do everything."
        self.policy: Policy | None = None
        "What its relay keeps to, from the next start on too."
        self.cables: list[Cable] = []
        self.diallers: list[Dialler] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.links: dict[SessionId, LinkEnd] = {}
        self.violations: list[str] = []
        self.closes: list[str] = []
        "Why each of its links ended."
        self.is_frozen = False
        self._freezes = 0
        self._waiting: list[Callable[[], None]] = []
        "What is to happen when the process goes on."
        self._ahead_s = 0.0
        "How far its clock is ahead of the others."
        self._settings = replace(settings, region=spec.region)
        self._trace = trace
        self._changed = changed
        self._is_stopping = False
        self._last_link = 0
        self._tick_at: float | None = None
        self._ticks: tuple[float, int] = (0.0, 0)

    @property
    def is_up(self) -> bool:
        """Whether its relay runs, and answers who dials it."""
        return self.relay is not None and not self._is_stopping

    @property
    def now(self) -> float:
        """What its clock shows."""
        return self.clock.now + self._ahead_s

    @property
    def contact(self) -> str:
        """As others dial it, whatever its id is by now."""
        return format_node_id(self.spec.id)

    @property
    def name(self) -> str:
        """Its id, for people."""
        return format_node_id(self.node_id)

    @property
    def clients(self) -> list[Publisher | Subscriber]:
        """The applications that belong here."""
        return [*self.publishers, *self.subscribers]

    # -- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Run a relay that knows nothing yet; its clients come a moment later."""
        info = NodeInfo(
            id=self.node_id,
            type=RULES[self.role].node_type,
            contact=self.contact,
            longitude=self.said[1],
            latitude=self.said[0],
        )
        dialled = frozenset(dialler.contact for dialler in self.diallers)
        demand = replace(self._settings.demand, dialled=dialled)
        self.relay = Relay(info, self.role, replace(self._settings, demand=demand), EPOCH)
        self.relay.follow_policy(self.policy, self.now)
        authority = None if self.origins is None else self.origins.authority()
        self.edge = Edge(self.relay, self.edge_settings, authority)
        self._tick_at = None
        self._is_stopping = False
        self._changed()
        self.touched()
        for dialler in self.diallers:
            dialler.start()
        self.clock.after(RETURN_S, self._bring_clients)

    def become_another(self) -> None:
        """Be another node from the next start on: one with an id that nobody has had."""
        self._lives += 1
        self.node_id = NodeId(self.spec.id + self._lives * LIFE)
        self.passed = self._alone = frozenset({self.node_id})
        self._joined.clear()

    def crash(self, *, noticed: bool) -> None:
        """Stop without a word; peers notice at once, or when they have heard nothing for long."""
        self._halt()
        for end in self._ends():
            self._trace.closed(end)
            end.vanish(noticed=noticed)

    def stop(self) -> None:
        """Stop as an operator stops a relay: it says goodbye first."""
        if self.is_frozen:
            self.wait(self.stop)
            return
        if self.relay is None:
            return
        self._is_stopping = True
        for dialler in self.diallers:
            dialler.stop()
        self.relay.drain(self.now)
        self.touched()
        self.clock.after(DRAIN_S, self._exit, self.relay)

    def freeze(self) -> None:
        """Stand still, as a process does that is stopped by a signal."""
        if self.relay is None or self.is_frozen:
            return
        self.is_frozen = True
        self._freezes += 1
        freezes = self._freezes
        for end in self._ends():
            end.other.give_up_later(lambda: self.is_frozen and self._freezes == freezes)

    def thaw(self) -> None:
        """Go on: read what has arrived meanwhile."""
        if not self.is_frozen:
            return
        self.is_frozen = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
        for cable in self.cables:
            for end in list(cable.ends):
                end.resume()
        self._look_again()

    def jump(self, seconds: float) -> None:
        """Its clock goes forward at once."""
        self._ahead_s += seconds
        if not self.is_frozen:
            self._look_again()

    def wait(self, call: Callable[[], None]) -> None:
        """As `Host`."""
        self._waiting.append(call)

    def _look_again(self) -> None:
        """What its timer was set to counts no more."""
        self._tick_at = None
        self.touched()

    def _ends(self) -> list[LinkEnd]:
        """Its ends of the connections that are not over here."""
        return [
            end
            for cable in self.cables
            for end in cable.ends
            if end.host is self and not end.is_over
        ]

    def _exit(self, relay: Relay) -> None:
        if self.relay is relay:
            self.crash(noticed=True)

    def _halt(self) -> None:
        self.relay = self.edge = None
        self.is_frozen = False
        self._waiting.clear()
        self.links.clear()
        self._changed()
        for dialler in self.diallers:
            dialler.stop()
        for client in self.clients:
            client.lost()

    def _bring_clients(self) -> None:
        if self.is_frozen:
            self.wait(self._bring_clients)
            return
        for client in self.clients:
            client.attach()

    # -- as `Host` -------------------------------------------------------------------------------

    def next_link_id(self) -> SessionId:
        """As `Host`."""
        self._last_link += 1
        return SessionId(self._last_link)

    def link_opened(self, link: LinkEnd) -> None:
        """As `Host`."""
        self.links[link.id] = link
        self._changed()
        if self.relay is not None:
            self._call(link, partial(self.relay.link_opened, link, self.now, link.mode))

    def link_data(self, link: LinkEnd, stream_id: int, pieces: list[bytes], fin: bool) -> None:
        """As `Host`; the last piece is taken off the list."""
        relay, edge = self.relay, self.edge
        if relay is None or edge is None:
            return
        now, is_data, passed = self.clock.now, stream_id & 2, self._alone
        data = pieces.pop()
        if is_data:
            whole = b"".join((*pieces, data)) if pieces else data
            self._trace.data(link, self.node_id, stream_id, whole, fin, now)
            passed = self._joined.get(link.passed) or self._join(link.passed)
        now += self._ahead_s
        for piece in pieces:
            self.passed = passed
            try:
                relay.link_data(link, stream_id, piece, False, now)
            except RemoteProtocolError as error:
                self._violated(link, error)
            self.passed = self._alone
            self._perform(relay, edge, now)
            if not link.is_open:
                break
        else:
            # As `_call` and `flowed`, written out: nothing is called as often.
            self.passed = passed
            try:
                relay.link_data(link, stream_id, data, fin, now)
            except RemoteProtocolError as error:
                self._violated(link, error)
            self.passed = self._alone
        if not is_data or relay.is_due or edge.is_due or relay.events:
            self.touched()

    def link_datagram(self, link: LinkEnd, data: bytes) -> None:
        """As `Host`."""
        if self.relay is None:
            return
        self._trace.datagram(link, self.node_id, data, self.clock.now)
        self.passed = self._joined.get(link.passed) or self._join(link.passed)
        try:
            self.relay.link_datagram(link, data, self.now)
        except RemoteProtocolError as error:
            self._violated(link, error)
        self.passed = self._alone
        self.flowed()

    def link_reset(self, link: LinkEnd, stream_id: int, code: int) -> None:
        """As `Host`."""
        if self.relay is not None:
            self._trace.reset(link, stream_id)
            self._call(link, partial(self.relay.link_reset, link, stream_id, code, self.now))

    def link_needed(self, link: LinkEnd) -> bool:
        """As `Host`."""
        return self.relay is not None and self.relay.suspicion.depends_on(link.id)

    def link_silent(self, link: LinkEnd, *, silent: bool) -> None:
        """As `Host`."""
        if self.relay is not None:
            suspicion = self.relay.suspicion
            tell = suspicion.silent if silent else suspicion.heard
            self._call(link, partial(tell, link.id, self.now))

    def link_lost(self, data: bytes) -> None:
        """As `Host`."""
        self._trace.datagram_lost(data)

    def link_writable(self, link: LinkEnd) -> None:
        """As `Host`."""
        if self.relay is not None:
            self._call(link, partial(self.relay.link_writable, link, self.now))

    def link_closed(self, link: LinkEnd, reason: str) -> None:
        """As `Host`."""
        self._trace.closed(link)
        self.closes.append(f"{self.clock.now:.3f} {reason}")
        # A link that was never opened is not known to the relay.
        if self.links.pop(link.id, None) is not None and self.relay is not None:
            self._changed()
            self._call(link, partial(self.relay.link_closed, link, self.now))

    def measure(self) -> None:
        """Take the round trip times of now."""
        if self.is_frozen:
            return
        follows, relay, now = False, self.relay, self.now
        for link in list(self.links.values()):
            if link.measure() and relay is not None:
                follows |= relay.link_srtt(link, now)
        if follows:
            self.touched()

    def follow(self, policy: Policy | None) -> None:
        """Keep to another policy, or to none."""
        self.policy = policy
        if self.relay is not None:
            self.relay.follow_policy(policy, self.now)
            self.touched()

    def tell(self) -> None:
        """Say how it is doing, as net does every two seconds."""
        relay = self.relay
        if relay is None or self.is_frozen or self._is_stopping or self.load is None:
            return
        near: dict[NodeId, Reachability] = {}
        lanes: dict[NodeId, Lane] = {}
        for link in self.links.values():
            peer_id = relay.links.node_of(link.id)
            if peer_id is None or relay.peers[peer_id].is_stub or link.mode is PeerMode.CONTROL:
                continue
            known = near.get(peer_id)
            if known is None or link.srtt_us < known.srtt_us:
                near[peer_id] = Reachability(peer_id, link.srtt_us, link.lane.conditions.loss)
                lanes[peer_id] = link.lane
        egress_bps, full_links = self._gauge.read(lanes, self.clock.now)
        own = NodeMetrics(
            sequence=0,
            source_node_id=self.node_id,
            load=self.load(),
            capacity_bps=self.capacity_bps,
            egress_bps=egress_bps,
            region=self.spec.region,
            reachability=tuple(near.values()),
            client_address=self.client_address,
            full_links=full_links,
        )
        relay.extensions.measured(relay.places.complete(own), self.now)
        self.touched()

    def _probe(self, relay: Relay) -> None:
        """Send the probes that the relay wants to be sent."""
        probing = relay.probing

        def answered(number: int) -> None:
            if self.relay is relay and not self.is_frozen:
                probing.answered(number, self.now)
                self.touched()

        while probing.outgoing:
            train = probing.outgoing.popleft()
            if self.underlay is not None:
                probing.sent(train, self.now)
                self.underlay.send(self, train, answered)

    def _call(self, link: LinkEnd, call: Callable[[], None]) -> None:
        """Have the relay take something; a peer that broke the protocol is closed, as net does."""
        try:
            call()
        except RemoteProtocolError as error:
            self._violated(link, error)
        self.passed = self._alone
        self.touched()

    def _violated(self, link: LinkEnd, error: RemoteProtocolError) -> None:
        # Every relay here is ours: one of them is wrong.
        self.violations.append(f"{self.clock.now:.3f} {self.name}: {error!r}")
        link.close(error.code, str(error))

    def _join(self, passed: frozenset[NodeId]) -> frozenset[NodeId]:
        """What is dealt with now has passed the nodes that it came by, and this one."""
        joined = self._joined[passed] = self._alone | passed
        return joined

    def flowed(self) -> None:
        """As `Place`; as net, since after data few deadlines are sooner than they were."""
        relay, edge = self.relay, self.edge
        if relay is not None and edge is not None and (relay.is_due or edge.is_due or relay.events):
            self.touched()

    # -- its timer -------------------------------------------------------------------------------

    def touched(self) -> None:
        """As `Place`."""
        relay, edge = self.relay, self.edge
        if relay is None or edge is None or self.is_frozen:
            return
        now = self.clock.now + self._ahead_s
        edge.perform(now)
        if relay.events:
            self._perform(relay, edge, now)
        for link_id in relay.suspicion.doubted:
            self.links[link_id].doubt()
        while self.origins is not None and edge.origins.asked:
            self.origins.ask(edge.origins.asked.popleft(), partial(self._answered, edge))
        if relay.probing.outgoing:
            self._probe(relay)
        if self.calling is not None and relay.demand.sessions.calls:
            self.calling.perform(relay)
        deadline, edge_at = relay.deadline(), edge.deadline()
        if edge_at is not None and (deadline is None or edge_at < deadline):
            deadline = edge_at
        if deadline is None or (self._tick_at is not None and self._tick_at <= deadline):
            return
        self._tick_at = max(deadline, now)
        self.clock.at(self._tick_at - self._ahead_s, self._tick, relay, self._tick_at)

    def _answered(self, edge: Edge, call_id: int, result: bytes | CallFailed) -> None:
        """An origin has answered the relay that ran then."""
        if self.edge is not edge:
            return
        if self.is_frozen:
            self.wait(partial(self._answered, edge, call_id, result))
            return
        edge.origins.answered(call_id, result, self.now)
        self.touched()

    @staticmethod
    def _perform(relay: Relay, edge: Edge, now: float) -> None:
        edge.perform(now)
        while relay.events:
            edge.observe(relay.events.popleft(), now)
            edge.perform(now)

    def _tick(self, relay: Relay, due: float) -> None:
        if self.relay is not relay or self._tick_at != due or self.is_frozen:
            return
        self._tick_at = None
        at, times = self._ticks
        self._ticks = (due, times + 1 if at == due else 1)
        if self._ticks[1] > MOST_TICKS_AT_ONCE:
            raise RuntimeError(f"{self.name} wants to be called at {due:.6f} over and over")
        relay.tick(due)
        if self.edge is not None:
            self.edge.tick(due)
        self.touched()
