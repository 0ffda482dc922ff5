"""A relay on the network: its sockets, its clock, the peers it dials, and the order of calls.

    a connection is there     relay.link_opened
    bytes, a datagram, …      relay.link_data …, and whatever the relay writes goes out in this turn
    a connection is closed    relay.link_closed, in a turn of its own
    a deadline                relay.tick, edge.tick
    after each of these       edge.perform, for what follows for clients

The relay never waits and never calls back; everything here runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import structs

from laps.auth.grants import Limits
from laps.edge.edge import Edge
from laps.edge.settings import EdgeSettings, MovingSettings, QuicrSettings
from laps.edge.shares import ShareSettings
from laps.errors import CloseCode, ConnectNotReceived, ConnectResponseNotReceived, LapsError
from laps.infobase.nodes import SessionId
from laps.net import tls
from laps.net.authorizing import Authorizing
from laps.net.backlog import ByClass
from laps.net.callers import Callers
from laps.net.clients import Clients, alpns
from laps.net.closes import Closes
from laps.net.diallers import Diallers, address_towards
from laps.net.discovery import Announcement, Announcer
from laps.net.gauge import Gauge
from laps.net.kept import Kept
from laps.net.link import EXTENDED_ALPN, PEERING_ALPN, LinkEvents, QuicLink
from laps.net.link_watch import LinkWatch
from laps.net.origin_caller import OriginCaller
from laps.net.peer_keys import PeerKeys
from laps.net.policies import Policies
from laps.net.prober import Prober
from laps.net.processor import Processor
from laps.net.quic import Endpoint
from laps.net.reporter import Reporter
from laps.net.reset import relay_secret
from laps.net.senses import Senses
from laps.relay import failover
from laps.relay.extensions import PeerLeaving
from laps.relay.peers import PeerArrived
from laps.relay.relay import Relay
from laps.relay.roles import RULES, Role
from laps.relay.settings import (
    DemandSettings,
    ExtensionSettings,
    PeerLimits,
    ProbeSettings,
    RelaySettings,
    Steadiness,
)
from laps.routing.plan import NO_PLAN
from laps.sessions.moqt import MoqtLimits
from laps.tracks.cache import CacheLimits
from laps.types import (
    Address,
    DataDirection,
    NodeId,
    NodeInfo,
    PeerMode,
    format_node_id,
    hash_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laps.config import Config
    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.policy import Policy
    from laps.routing.plan import Plan

log = logging.getLogger(__name__)

PEERING_ALPNS: Final = (EXTENDED_ALPN, PEERING_ALPN)

# Redialling: soon at first, since most ends are restarts, and never so rarely that a relay that is
# back stays alone for long: another may die meanwhile. After a connection that lasted longer than
# the longest wait it begins anew. Half of each wait is random: thousands do not come at once.
REDIAL_FIRST_S: Final = 0.5
REDIAL_MOST_S: Final = 5.0

# How often a relay takes its own measure; what it says of it is rarer still.
MEASURE_S: Final = 2.0
FIRST_MEASURE_S: Final = 0.1

# What has happened is told to the Edge in turns of so much: a node may go with all that it offered.
MOST_EVENTS: Final = 200

# A self-signed certificate is replaced this long before it expires, so that whoever learned the
# new fingerprint from a page just loaded can use it for a while.
RENEW_BEFORE: Final = timedelta(days=2)


class Runner:
    """One relay, from the sockets down."""

    def __init__(self, config: Config, kept: Kept | None = None) -> None:
        """`kept` is what it had picked before, if it begins again."""
        self.config = config
        self.kept = kept or Kept()
        self.identity = self.kept.identity or self._identity()
        self._loop = asyncio.get_running_loop()
        self._processor = Processor()
        self.since = time.time()
        self.closes = Closes()
        self.by_class = ByClass()
        self._numbers = count(1)
        self._links: dict[SessionId, QuicLink] = {}
        self._alone = asyncio.Event()
        self._alone.set()
        self._events = LinkEvents(
            self._data,
            self._datagram,
            self._reset,
            self._closed,
            self._srtt,
            self._stopped,
            self._writable,
        )
        role = Role(config.node.type)
        self.authorizing = Authorizing(config)
        self._origins = OriginCaller(self.authorizing.authority.origins, self._arm)
        self._peer_keys = PeerKeys(config)
        self.policies = Policies(config.policy)
        self._keys_problem = ""
        "What is wrong with the files of keys, if it was said."
        self._peering: Endpoint | None = None
        self.peer_address: Address | None = None
        if RULES[role].accepts_peers:
            listen = self.kept.for_peers(config.peering.listen)
            self._peering = Endpoint.listen(
                listen.host,
                listen.port,
                config.quic,
                PEERING_ALPNS,
                self.identity,
                self._accept,
                self._reset_secret(f"peers {config.peering.listen}"),
            )
            self.peer_address = Address(*self._peering.address[:2])
        self.relay = Relay(
            self._node_info(role),
            role,
            RelaySettings(
                node_advertise_s=config.relay.node_advertise_s,
                unsubscribe_s=config.relay.unsubscribe_s,
                reflect=config.relay.reflect,
                hold_s=config.relay.hold_s,
                hold_bytes=config.relay.hold_bytes,
                repair_s=1.5 + config.peering.dead_after_s,
                region=config.node.region,
                steadiness=_steadiness(config),
                extensions=ExtensionSettings(grace_s=config.relay.drain_s),
                probing=_probe_settings(config),
                demand=_demand_settings(config),
                cache=CacheLimits(config.cache.bytes, config.cache.track_bytes, config.cache.age_s),
                limits=_peer_limits(config),
            ),
            # The relay adds its own time, which counts from when the machine began.
            epoch=int(time.time() - time.monotonic()),
        )
        self.edge = Edge(self.relay, _edge_settings(config), self.authorizing.authority)
        self._take_keys(self._peer_keys)
        self.relay.follow_policy(self.policies.in_force, time.monotonic())
        self._client_endpoint: Endpoint | None = None
        setup_s = config.quic.handshake_timeout_s
        told = self._arm, self.closes, self.by_class
        self.clients = Clients(self.edge, config.clients, config.egress, setup_s, *told)
        self.client_address: Address | None = None
        if RULES[role].accepts_clients:
            self._client_endpoint = self._listen_for_clients()
            self.client_address = Address(*self._client_endpoint.address[:2])
        self._alarm: asyncio.TimerHandle | None = None
        self._stopping = False
        self._watch = LinkWatch(
            self._links,
            self.relay.suspicion.depends_on,
            self.relay.suspicion.doubted.keys(),
            self._suspect,
            config.peering.dead_after_s,
        )
        self._gauge = Gauge(config.node, self._told_address(), self._client_endpoint)
        # Soon at first: tracks that are bound to regions wait until we have said where we are.
        self._measuring = self._loop.call_later(FIRST_MEASURE_S, self._measure)
        self._diallers = Diallers(config)
        self.prober = Prober(self.relay.probing, self._diallers, self._arm)
        self._callers = Callers(self.relay.demand.sessions, self._call, self._arm)
        self._reporter: Reporter | None = None
        if self.relay.rules.carries_data:
            senses = Senses(self.relay, self._links, self.endpoints, self.clients)
            self._reporter = Reporter(self.relay, self.edge, senses, config, self._arm)
        self._note("started", config.node.type)
        if role is Role.VIA and not (config.relay.reflect or config.peering.control):
            log.warning(
                "this via keeps no subscribes: relays that join it later hear nothing of earlier "
                "ones; set relay.reflect, or name control servers in peering.control"
            )
        if config.auth.keys is None and not config.clients.listen.is_loopback:
            log.warning(
                "everybody who reaches %s may publish and subscribe%s: name the keys that sign "
                "tokens with auth.keys, or --auth",
                config.clients.listen,
                " what is no origin's" if config.origins else "",
            )
        if self._peering is not None and not (
            config.requires_peer_auth or config.peering.listen.is_loopback
        ):
            log.warning(
                "everybody who reaches %s is a peer: set peering.keys", config.peering.listen
            )
        self._kept: dict[tuple[Address, PeerMode, int], asyncio.Task[None]] = {}
        self._keep_peers()
        self._renewal: asyncio.Task[None] | None = None
        if config.tls.is_self_signed:
            self._renewal = asyncio.ensure_future(self._renew())
        self._announcer: Announcer | None = None
        if config.discovery.enabled and self.client_address is not None:
            self._announcer = Announcer(self._announcement(self.client_address))

    async def close(self) -> None:
        """Withdraw what we said, take leave of every peer, and free the ports."""
        self._stopping = True
        tasks = [*self._kept.values(), *([self._renewal] if self._renewal else [])]
        for task in tasks:
            task.cancel()
        await self._callers.close()
        unsaying = [self._announcer.close()] if self._announcer else []
        await asyncio.gather(*tasks, *unsaying, return_exceptions=True)
        self._note("stopping")
        if self._reporter is not None:
            self._reporter.leave()
        await self._drain()
        self._measuring.cancel()
        self._watch.close()
        self.prober.close()
        await self._origins.close()
        if self._alarm is not None:
            self._alarm.cancel()
        for endpoint in self.endpoints():
            await endpoint.close(CloseCode.GRACEFUL, "the relay stops")
        self._processor.close()

    async def _drain(self) -> None:
        """Let clients, then peers, that take the hint move elsewhere before we are gone."""
        self._gauge.leave()
        self._tell_metrics()
        if self.edge.clients:
            self.edge.drain(time.monotonic(), self._elsewhere())
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.clients.drain_s):
                    await self.clients.gone()
            self.edge.close()
        self.relay.drain(time.monotonic())
        self._arm()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * self.config.relay.drain_s):
                await self._alone.wait()

    def _elsewhere(self) -> Address | None:
        """Where our clients are sent when we stop."""
        if (named := self.config.clients.redirect) is not None:
            log.info("clients are sent to %s: clients.redirect names it", named)
            return named
        local = self.client_address is not None and self.client_address.is_loopback
        chosen = failover.target(self.relay, self.config.node.region, local=local)
        if chosen is None:
            log.info("clients are sent nowhere: no other node is known that takes them and stays")
            return None
        log.info("clients are sent to %s", chosen)
        return chosen.address

    def follow_plan(self, plan: Plan) -> None:
        """Lay a plan over the relay's selection; without any ways it is the end of the last."""
        before, news = self.relay.router.plan, plan != self.relay.router.plan
        self.relay.follow_plan(plan, time.monotonic())
        if news and plan == NO_PLAN:
            self._note_plan("plan_expired", before)
        elif news:
            self._note_plan("plan_applied", plan)
        self._arm()

    def take_policy(self, policy: Policy, sequence: int) -> bool:
        """Keep to a signed policy; whether it is newer than what was heard before."""
        if not self.policies.take(policy, sequence):
            return False
        self._keep_to_policy()
        return True

    def _keep_to_policy(self) -> None:
        policy, before = self.policies.in_force, self.relay.weighing.policy.policy
        if policy != before:
            self.relay.follow_policy(policy, time.monotonic())
            detail = "everything is allowed" if policy is None else policy.digest
            now = time.monotonic()
            self.relay.journal.note(now, "policy_applied", self.policies.source or "none", detail)
        self._arm()

    def reload(self, config: Config) -> None:
        """Take a changed configuration: certificate, peers, keys, policy, probing … at once.

        The rest counts at a restart, but for the type of the relay (`begin_again`).

        A certificate that the relay made itself stays: there is nothing to read it from again.
        """
        for section in (
            "node",
            "relay",
            "quic",
            "egress",
            "clients",
            "limits",
            "quicr",
            "cache",
            "discovery",
            "admin",
        ):
            if getattr(config, section) != getattr(self.config, section):
                log.warning("[%s] has changed: restart the relay for it to count", section)
        if config.peering.listen != self.config.peering.listen:
            log.warning("peering.listen has changed: restart the relay for it to count")
        if _peer_limits(config) != _peer_limits(self.config):
            log.warning("peering.most_... has changed: restart the relay for it to count")
        for name in ("key", "kept"):
            if getattr(config.policy, name) != getattr(self.config.policy, name):
                log.warning("policy.%s has changed: restart the relay for it to count", name)
        keys, policies = PeerKeys(config, self._peer_keys), Policies(config.policy, self.policies)
        if config.tls.certificate is not None and config.tls.key is not None:
            self.identity = tls.load(config.tls.certificate, config.tls.key)
            self._show()
        self.config = config
        self._take_keys(keys)
        self.policies = policies
        self._keep_to_policy()
        self._keep_peers()
        self._diallers.configure(config)
        self._watch.configure(config.peering.dead_after_s)
        self.relay.places.configure(_probe_settings(config), time.monotonic())
        self.relay.demand.configure(_demand_settings(config), time.monotonic())
        self.edge.moving.configure(_moving_settings(config), time.monotonic())
        self.authorizing.configure(config, self.edge.reviews)
        self._origins.configure(self.authorizing.authority.origins)
        self._note("reloaded")
        self._arm()
        if self._reporter is not None:
            self._reporter.configure(config.telemetry)

    def impair(self, config: Config) -> None:
        """Take the impairment of a configuration, until the next one is read."""
        self.config = structs.replace(self.config, impairment=config.impairment)
        self._diallers.configure(self.config)
        self._note("reloaded", "the impairment of peers")

    def _take_keys(self, keys: PeerKeys) -> None:
        """Whoever proves itself with a key that is no longer there is closed."""
        self._peer_keys = keys
        self.relay.proofs.epoch_s = time.time() - time.monotonic()
        self.relay.proofs.configure(keys.policy, time.monotonic())

    def _look_at_keys(self) -> None:
        """Read keys again where a file has changed; one that is wrong changes nothing."""
        # The time of day may be set, while that of the relay only goes on.
        self.relay.proofs.epoch_s = time.time() - time.monotonic()
        if not self._peer_keys.changed():
            return
        try:
            self._take_keys(PeerKeys(self.config, self._peer_keys))
        except LapsError as error:
            if str(error) != self._keys_problem:
                log.error("the keys of peers stay as they are: %s", error)
            self._keys_problem = str(error)
        else:
            self._keys_problem = ""
            self._note("reloaded", "the keys of peers")

    def _note_plan(self, event: str, plan: Plan) -> None:
        now, tracks = time.monotonic(), len(plan.vias)
        detail = f"{tracks} track{'' if tracks == 1 else 's'}"
        self.relay.journal.note(now, event, f"plan {plan.sequence}", detail)

    def _note(self, event: str, detail: str = "") -> None:
        """Something happened to the relay itself."""
        node = format_node_id(self.relay.id)
        self.relay.journal.note(time.monotonic(), event, node, detail)

    def _listen_for_clients(self) -> Endpoint:
        config = self.config
        listen, names = self.kept.for_clients(config.clients.listen), alpns(config)
        try:
            return Endpoint.listen(
                listen.host,
                listen.port,
                config.quic,
                names,
                self.identity,
                self.clients.accept,
                self._reset_secret(f"clients {config.clients.listen}"),
                self.edge.addresses,
            )
        except LapsError:
            if self._peering is not None:
                self._peering.abandon()
            raise

    # -- what links tell ---------------------------------------------------------------------------

    def _accept(
        self, connection: Connection, *, dialled: bool = False, expected: NodeId | None = None
    ) -> QuicLink:
        link = QuicLink(
            connection,
            SessionId(next(self._numbers)),
            self.config.egress,
            self._events,
            self.by_class,
            dialled=dialled,
            expected=expected,
        )
        self._links[link.id] = link
        link.egress.on_pressure = partial(self._pressure, link)
        self._alone.clear()
        if not dialled:
            self.relay.link_opened(link, time.monotonic())
        self._loop.call_later(self.config.quic.handshake_timeout_s, self._introduced, link)
        return link

    def _data(self, link: QuicLink, stream_id: int, data: bytes, fin: bool) -> None:
        self.relay.link_data(link, stream_id, data, fin, time.monotonic())
        if not stream_id & 2 or self.relay.is_due or self.edge.is_due:
            self._arm()

    def _datagram(self, link: QuicLink, data: bytes) -> None:
        self.relay.link_datagram(link, data, time.monotonic())
        if self.relay.is_due or self.edge.is_due:
            self._arm()

    def _reset(self, link: QuicLink, stream_id: int, code: int) -> None:
        self.relay.link_reset(link, stream_id, code, time.monotonic())
        if self.relay.is_due or self.edge.is_due:
            self._arm()

    def _stopped(self, link: QuicLink, stream_id: int) -> None:
        if not stream_id & 2:
            self.relay.link_stopped(link, stream_id, time.monotonic())
            self._arm()

    def _closed(self, link: QuicLink, close: ConnectionClosed) -> None:
        unproved = close.application and close.code == CloseCode.NOT_AUTHORIZED
        refused = unproved or (not close.by_peer and close.reason.startswith("refused"))
        log.log(logging.WARNING if refused else logging.INFO, "peer at %s: %s", link, close)
        # It may be the relay that is closing it: what follows waits until that is done.
        self._loop.call_soon(self._forget, link, close)

    def _forget(self, link: QuicLink, close: ConnectionClosed) -> None:
        if self._links.pop(link.id, None) is not None:
            node_id = self.relay.links.node_of(link.id)
            who = "" if node_id is None else format_node_id(node_id)
            self.closes.add("peer", who, str(link), close)
            if close.by_peer and close.code == CloseCode.GOAWAY:
                self.relay.journal.note(time.monotonic(), "peer_leaving", who, reason=close.reason)
            self.relay.link_closed(link, time.monotonic(), str(close))
            self._arm()
        if not self._links:
            self._alone.set()

    def _suspect(self, link: QuicLink, suspect: bool) -> None:
        suspicion, now = self.relay.suspicion, time.monotonic()
        if suspect:
            log.info("peer at %s: silent, other ways are taken where there are any", link)
            suspicion.silent(link.id, now)
        else:
            log.info("peer at %s: heard again", link)
            suspicion.heard(link.id, now)
        if (node_id := self.relay.links.node_of(link.id)) is not None:
            event = "link_silent" if suspect else "link_heard"
            self.relay.journal.note(now, event, format_node_id(node_id))
        self._arm()

    def _pressure(self, link: QuicLink) -> None:
        self.relay.pressure.link_changed(link, time.monotonic())
        self.edge.requests.writable(time.monotonic())
        self._arm()

    def _srtt(self, link: QuicLink) -> None:
        self.relay.link_srtt(link, time.monotonic())
        self._arm()

    def _writable(self, link: QuicLink) -> None:
        self.relay.link_writable(link, time.monotonic())

    def _introduced(self, link: QuicLink) -> None:
        if not link.connection.established or self.relay.links.node_of(link.id) is not None:
            return
        if link.dialled:
            code, what = ConnectResponseNotReceived.code, "CONNECT was not answered in time"
        else:
            code, what = ConnectNotReceived.code, "nothing was said in time"
        link.close(code, what)

    # -- time --------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self.relay.pressure.starved_s = self._processor.waited_s()
        self.edge.perform(time.monotonic())
        if self.edge.origins.asked:
            self._origins.take(self.edge.origins)
        for _ in range(min(len(self.relay.events), MOST_EVENTS)):
            event = self.relay.events.popleft()
            if isinstance(event, PeerArrived):
                log.info("peer at %s: %s", self._links.get(event.link_id, "?"), event)
            elif isinstance(event, PeerLeaving):
                node = format_node_id(event.node_id)
                log.info("peer %s leaves; it names %s instead", node, event.contact or "nobody")
                now = time.monotonic()
                self.relay.journal.note(now, "peer_leaving", node, event.contact)
            else:
                self.edge.observe(event, time.monotonic())
                self.edge.perform(time.monotonic())
        self.prober.perform()
        if self.relay.demand.sessions.calls:
            self._callers.perform()
        due = (self.relay.deadline(), self.edge.deadline(), 0.0 if self.relay.events else None)
        deadline = min((at for at in due if at is not None), default=None)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if deadline is not None:
            wait = max(0.0, deadline - time.monotonic())
            self._alarm = self._loop.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.relay.pressure.starved_s = self._processor.waited_s()
        try:
            self.relay.tick(time.monotonic())
            self.edge.tick(time.monotonic())
        except Exception:
            # A defect of ours in one thing that was due; the relay goes on with the others.
            log.exception("the relay failed on a timer")
        self._arm()

    def _measure(self) -> None:
        """Say how we are doing, to the peers that want to know, again and again."""
        self._measuring = self._loop.call_later(MEASURE_S, self._measure)
        if self._reporter is None or not self._reporter.telemetry.running:
            self.relay.path_watch.look(time.monotonic())  # or else telemetry looks
        self.authorizing.look(self.edge.reviews)
        self._look_at_keys()
        self._tell_metrics()

    def _tell_metrics(self) -> None:
        metrics = self._gauge.read(self.relay, self._links.values())
        self.relay.extensions.measured(self.relay.places.complete(metrics), time.monotonic())
        self._arm()

    # -- who we are --------------------------------------------------------------------------------

    def _node_info(self, role: Role) -> NodeInfo:
        node = self.config.node
        where = "" if self.peer_address is None else str(self.peer_address)
        node_id = self.kept.node_id if node.id is None else node.id
        if node_id is None:
            node_id = node_id_of_place(socket.gethostname(), where or self._stub_place())
        node_type, contact = RULES[role].node_type, self._contact()
        return NodeInfo(node_id, node_type, contact, node.longitude, node.latitude, ())

    def _contact(self) -> str:
        """Where others may dial us, as they are told; nobody can dial 0.0.0.0."""
        told, peering = self.config.node.contact, self.config.peering
        if told or self.peer_address is None:
            return told
        if self.peer_address.is_dialable:
            return str(self.peer_address)
        dialled = (*peering.peers, *peering.control, *peering.data)
        host = address_towards(dialled, ipv6=":" in self.peer_address.host)
        if host is None:
            log.warning("no other relay can be told where to dial this one: set node.contact")
            return ""
        return str(Address(host, self.peer_address.port))

    def _stub_place(self) -> str:
        """What sets a Stub apart from others on its host: where its clients connect.

        With any free port it is a number of its own each time; nobody but its Edge knows of it.
        """
        listen = self.config.clients.listen
        return f"clients at {listen}" if listen.port else f"number {random.getrandbits(64)}"

    def _told_address(self) -> Address | None:
        """Where clients connect, as others are told."""
        if self.client_address is None:
            return None
        return self.config.client_address(self.client_address.port)

    def _identity(self) -> tls.Identity:
        config = self.config.tls
        if config.certificate is not None and config.key is not None:
            return tls.load(config.certificate, config.key)
        listening = (self.config.peering.listen.host, self.config.clients.listen.host)
        names = {*listening, "localhost", "127.0.0.1"}
        return tls.self_signed(sorted(names))

    def _reset_secret(self, port: str) -> bytes:
        key = None if self.config.tls.is_self_signed else self.identity.key
        node = self.config.node.id
        name = socket.gethostname() if node is None else format_node_id(node)
        return relay_secret(key, name, port)

    def _show(self) -> None:
        for endpoint in (self._peering, self._client_endpoint):
            if endpoint is not None:
                endpoint.show(self.identity)
        if self._announcer is not None:
            self._announcer.update(self.identity.fingerprint)

    def _announcement(self, address: Address) -> Announcement:
        config = self.config
        names = tuple(alpns(config))
        fingerprint = self.identity.fingerprint
        return Announcement(
            self.relay.id, config.node.type, address, names, config.node.region, fingerprint
        )

    async def _renew(self) -> None:
        while True:
            left = self.identity.expires - RENEW_BEFORE - datetime.now(UTC)
            await asyncio.sleep(left.total_seconds())
            self.identity = self._identity()
            self._show()
            log.info("a new certificate: sha256 %s", self.identity.fingerprint)

    # -- the peers we dial -------------------------------------------------------------------------

    def _keep_peers(self) -> None:
        """Begin to dial what is configured, and leave what no longer is."""
        wanted = set(self._wanted())
        for key in [key for key in self._kept if key not in wanted]:
            self._kept.pop(key).cancel()
        for key in sorted(wanted - set(self._kept), key=str):
            self._kept[key] = asyncio.ensure_future(self._keep(*key))

    def _wanted(self) -> Iterator[tuple[Address, PeerMode, int]]:
        peering = self.config.peering
        for peer in peering.peers:
            yield peer, PeerMode.BOTH, 0
            for number in range(1, peering.connections):
                yield peer, PeerMode.DATA, number
        for peer in peering.control:
            yield peer, PeerMode.CONTROL, 0
        for peer in peering.data:
            for number in range(peering.connections):
                yield peer, PeerMode.DATA, number

    async def _keep(self, peer: Address, mode: PeerMode, number: int) -> None:
        """Dial a peer, and dial it again whenever the connection ends."""
        wait = REDIAL_FIRST_S
        link: QuicLink | None = None
        try:
            while True:
                opened = time.monotonic()
                try:
                    link = await self._dial(peer, number)
                    self.relay.link_opened(link, opened, mode, self._direction())
                except LapsError as error:
                    log.warning("%s", error)
                else:
                    self._arm()
                    await link.connection.wait_closed()
                    if time.monotonic() - opened > REDIAL_MOST_S:
                        wait = REDIAL_FIRST_S
                await asyncio.sleep(wait * (0.5 + random.random() / 2))  # noqa: S311 - no secret
                wait = min(2 * wait, REDIAL_MOST_S)
        finally:
            if link is not None and not self._stopping:
                link.close(CloseCode.GRACEFUL, "no longer a peer")

    def _direction(self) -> DataDirection:
        one_way = self.config.peering.direction == "out"
        return DataDirection.UNIDIRECTIONAL if one_way else DataDirection.BIDIRECTIONAL

    async def _call(self, peer: Address, expected: NodeId | None, mode: PeerMode) -> QuicLink:
        """Dial a peer that helps, once."""
        opened = time.monotonic()
        link = await self._dial(peer, 0, expected)
        self.relay.link_opened(link, opened, mode, self._direction())
        return link

    async def _dial(self, peer: Address, number: int, expected: NodeId | None = None) -> QuicLink:
        made: list[QuicLink] = []
        is_named = expected is not None
        expected = dict(self.config.peering.nodes).get(peer, expected)

        def accept(connection: Connection) -> QuicLink:
            made.append(self._accept(connection, dialled=True, expected=expected))
            return made[-1]

        await self._diallers.connect(peer, number, PEERING_ALPNS, accept, is_named=is_named)
        return made[-1]

    # -- looking in --------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the relay is about to be gone."""
        return self._stopping

    @property
    def links(self) -> Mapping[SessionId, QuicLink]:
        """The connections to peers, those that have not said who they are among them."""
        return self._links

    def endpoints(self) -> list[Endpoint]:
        """The sockets, for clients, for peers that dial us, and for those that we dial."""
        listening = [e for e in (self._client_endpoint, self._peering) if e is not None]
        return [*listening, *self._diallers.endpoints]


def _edge_settings(config: Config) -> EdgeSettings:
    clients = config.clients
    return EdgeSettings(
        session=MoqtLimits(requests=clients.requests, strict=clients.strict),
        quicr=QuicrSettings(
            subscription_s=config.quicr.subscription_s,
            streams=clients.requests,
            datagrams=config.quicr.datagrams,
        ),
        most_tracks=clients.most_tracks,
        shares=_share_settings(config),
        exempt=config.limits.exempt,
        join=clients.join,
        subscribe_wait_s=clients.subscribe_wait_s,
        grace_s=clients.drain_s,
        moving=_moving_settings(config),
    )


def _share_settings(config: Config) -> ShareSettings:
    limits, cache = config.limits, config.cache.bytes
    share = limits.address_cache_share
    return ShareSettings(
        address=Limits(
            sessions=limits.address_sessions or None,
            requests_per_s=limits.address_requests_per_s or None,
            open_requests=limits.address_open_requests or None,
            tracks=limits.address_tracks or None,
            subscriptions=limits.address_subscriptions or None,
            namespaces=limits.address_namespaces or None,
            bytes_in_per_s=limits.address_bytes_in_per_s or None,
            bytes_out_per_s=limits.address_bytes_out_per_s or None,
            cache_bytes=round(share * cache) if share < 1 else None,
        ),
        address_handshakes_per_s=limits.address_handshakes_per_s or None,
        address_time_share=limits.address_time_share if limits.address_time_share < 1 else None,
        relay=Limits(namespaces=limits.namespaces or None),
        handshakes_per_s=limits.handshakes_per_s or None,
        name_bytes=limits.name_bytes or None,
        half_message_bytes=limits.half_message_bytes or None,
    )


def _probe_settings(config: Config) -> ProbeSettings:
    """A Stub is behind a NAT and has its Edge; who carries no data has no use for ways."""
    probing, role = config.probing, Role(config.node.type)
    enabled = probing.enabled and role is not Role.STUB and RULES[role].carries_data
    return ProbeSettings(enabled, probing.count, probing.rate)


def _demand_settings(config: Config) -> DemandSettings:
    demand, peering = config.demand, config.peering
    dialled = frozenset(map(str, (*peering.peers, *peering.control, *peering.data)))
    return DemandSettings(demand.sessions, demand.least, demand.idle_s, dialled)


def _moving_settings(config: Config) -> MovingSettings:
    moving = config.moving
    return MovingSettings(moving.per_minute, moving.settled_s, moving.near_ms)


def _steadiness(config: Config) -> Steadiness:
    relay = config.relay
    return Steadiness(relay.srtt_change, round(relay.srtt_change_ms * 1000), relay.srtt_hold_s)


def _peer_limits(config: Config) -> PeerLimits:
    peering = config.peering
    return PeerLimits(
        nodes=peering.most_nodes,
        subscribes=peering.most_subscribes,
        namespaces=peering.most_namespaces,
        announces=peering.most_announces,
        sets=peering.most_sets,
    )


def node_id_of_place(host: str, where: str) -> NodeId:
    """An id for a relay that was given none: the same after a restart, another for a neighbour."""
    return NodeId(hash_bytes(f"{host} {where}".encode()))
