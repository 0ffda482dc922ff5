"""A QUIC endpoint: one UDP socket and the connections on it, dialled by others and by us.

`Endpoint.listen` binds the socket. Whoever completes a handshake is handed to `accept`, which names
the receiver of what the connection brings; `Endpoint.connect` does the same for a dialled one.
The clock is `time.monotonic`, since uvloop's own counts whole milliseconds and round trips do not.
Everything runs in callbacks of one event loop: the loop reads a batch of datagrams, hands each
connection its share whole, and then lets every connection that has something to say send it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from qh3._hazmat import pull_quic_header
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.packet import (
    QuicErrorCode,
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
)

from laps.buckets import Bucket
from laps.edge.addresses import Knock
from laps.edge.shares import OverLimit
from laps.errors import ConfigError, HandshakeFailed
from laps.net import udp
from laps.net.connection import Connection
from laps.net.engine import (
    CONNECTION_ID_BYTES,
    NO_APPLICATION_PROTOCOL,
    Engine,
    Receiver,
)
from laps.net.handshake import encode_refusal
from laps.net.impairment import ImpairedSocket
from laps.net.processor import Processor
from laps.net.reset import PeerTokens, Resets
from laps.net.retry import RetryTokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laps.config import Impairment, QuicConfig
    from laps.edge.addresses import IdleTime
    from laps.errors import ConnectionClosed
    from laps.net.connection import Meter
    from laps.net.handshake import Address
    from laps.net.tls import Identity, Trust

log = logging.getLogger(__name__)

# One datagram of this size at least begins a connection (RFC 9000 section 14.1), so that an
# answer is never much larger than the question.
MIN_INITIAL_BYTES: Final = 1200

# How much is read before connections are served: a GRO batch is up to 2 MiB already.
READS_PER_TURN: Final = 4

# How many packets a connection sends before the next one has its turn; two full GSO batches.
PACKETS_PER_TURN: Final = 128

# How often connections that refill their send buffer are served before the socket is read again.
ROUNDS_PER_TURN: Final = 4

# Keep-alives, dead handshakes and expired data are looked for this often.
TICK_S: Final = 1.0

# How long `Endpoint.close` waits for the peers to have heard of it.
GOODBYE_S: Final = 0.5

# A relay that is there answers within this time, unless it is far away or starting. Then the port
# is probed, and this many refusals in a row, of the machine at the other end, are believed.
PROBE_AFTER_S: Final = 0.25
PROBE_EVERY_S: Final = 0.2
REFUSALS: Final = 3

# What is answered that nobody begins a connection with: probes, for most. A thousand relays may
# probe one at the same time, and at 20 µs each nobody is kept busy with them.
NEGOTIATIONS_A_SECOND: Final = 1000

_V1: Final = int(QuicProtocolVersion.VERSION_1)


@dataclass(slots=True)
class Counters:
    """What an endpoint saw, for the operator."""

    accepted: int = 0
    dialled: int = 0
    handshakes_failed: int = 0
    retries_sent: int = 0
    retries_refused: int = 0
    version_negotiations_sent: int = 0
    version_negotiations_refused: int = 0
    "Not sent, as there were too many in a second."
    malformed_datagrams: int = 0
    unroutable_datagrams: int = 0
    resets_sent: int = 0
    "Stateless ones, to peers of connections that are not known (any more)."
    resets_received: int = 0
    refused_for_half_open: int = 0
    refused_for_connections: int = 0
    dropped_for_time: int = 0
    "Datagrams of addresses that had taken as much of the relay's time as they may."
    past_sent_bytes: int = 0
    "Of connections that are over, as the next."
    past_received_bytes: int = 0


class Door(Protocol):
    """Decides who may begin a handshake, by address; `edge.addresses.Addresses` is one."""

    def knock(self, host: str, now: float, *, proved: bool) -> Knock:
        """What becomes of the first packet of a handshake; OverLimit if it is refused."""

    def left(self, host: str) -> None:
        """A connection that was accepted is closed."""

    def meter(self, host: str) -> Meter | None:
        """What measures the time that an address takes; None: nobody does."""

    @property
    def idle(self) -> IdleTime:
        """How long there was nothing to do."""


Negotiated = Callable[[bytes, "Address", float], None]
"Takes an answer to a packet of no connection: Version Negotiation, who sent it, and when."

Accept = Callable[[Connection], Receiver]
"Names the receiver of a connection whose handshake is over."


class Endpoint:
    """One UDP socket and the QUIC connections on it."""

    def __init__(
        self,
        sock: socket.socket,
        config: QuicConfig,
        alpn: Sequence[str],
        identity: Identity | None,
        accept: Accept | None,
        reset_secret: bytes | None = None,
        door: Door | None = None,
    ) -> None:
        self._door = door
        self._processor = None if door is None else Processor()
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self._config = config
        self._alpn = list(alpn)
        self._accept = accept
        self._identity: QuicConfiguration | None = None
        self._shown = ""
        "SHA-256 of the certificate that is shown."
        if identity is not None:
            self.show(identity)
        self.on_negotiation: Negotiated | None = None
        self._negotiations = Bucket(NEGOTIATIONS_A_SECOND, NEGOTIATIONS_A_SECOND)
        self._retry = RetryTokens()
        self._resets = Resets(reset_secret or os.urandom(32), CONNECTION_ID_BYTES)
        self._peer_tokens = PeerTokens()
        self._by_token: dict[bytes, Connection] = {}
        "By the key of the token with which the peer would reset it."
        self._routes: dict[bytes, Connection] = {}
        self._connections: dict[Connection, None] = {}
        self._half_open: dict[Connection, None] = {}
        self._timers: dict[Connection, tuple[float, asyncio.TimerHandle]] = {}
        self._dirty: dict[Connection, None] = {}
        self._serving: asyncio.Handle | None = None
        self._closing = self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._udp: udp.UdpSocket | ImpairedSocket = udp.UdpSocket(
            sock, self.loop, self._readable, self._serve
        )
        self._ticker = self.loop.call_later(TICK_S, self._tick)

    @classmethod
    def listen(
        cls,
        host: str,
        port: int,
        config: QuicConfig,
        alpn: Sequence[str],
        identity: Identity,
        accept: Accept,
        reset_secret: bytes | None = None,
        door: Door | None = None,
    ) -> Endpoint:
        """An endpoint that takes connections; ALPNs in the order of our preference.

        Started again with the same `reset_secret`, it tells the peers of those it had. Without a
        `door` everybody may begin a handshake.
        """
        sock = udp.bind(host, port, config.socket_buffer_bytes)
        return cls(sock, config, alpn, identity, accept, reset_secret, door)

    @classmethod
    def dialler(cls, host: str, config: QuicConfig) -> Endpoint:
        """An endpoint that only dials, from any free port of `host`."""
        return cls(udp.bind(host, 0, config.socket_buffer_bytes), config, (), None, None)

    @property
    def address(self) -> Address:
        """Where it is bound."""
        return self._udp.address

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those established and not closed."""
        return tuple(c for c in self._connections if c.established)

    def traffic(self) -> Iterator[tuple[int, int]]:
        """Bytes sent and received: of all connections that are over, then of each that is not."""
        yield self.counters.past_sent_bytes, self.counters.past_received_bytes
        for connection in list(self._connections):
            yield connection.engine.traffic()

    @property
    def half_open(self) -> int:
        """Handshakes under way that others began."""
        return len(self._half_open)

    def show(self, identity: Identity) -> None:
        """Show this certificate to whoever dials from now on."""
        configuration = self._configuration(is_client=False, alpn=self._alpn)
        configuration.load_cert_chain(identity.certificate, identity.key)
        self._identity = configuration
        self._shown = identity.fingerprint

    def impair(self, impairments: Sequence[Impairment]) -> None:
        """Make the paths to these addresses worse, and no others; for labs and tests."""
        sock = self._udp
        if isinstance(sock, ImpairedSocket):
            if not sock.change(impairments):
                self._udp = sock.real
        elif impairments:
            impaired = ImpairedSocket(sock, self.loop, self._readable)
            impaired.change(impairments)
            self._udp = impaired

    async def connect(
        self,
        host: str,
        port: int,
        alpn: Sequence[str],
        trust: Trust,
        accept: Accept,
    ) -> Connection:
        """Dial, and wait for the handshake; HandshakeFailed says what to look at."""
        addr = await self._resolve(host, port)
        configuration = self._configuration(is_client=True, alpn=alpn)
        configuration.server_name = host
        trust.apply(configuration)
        completed: asyncio.Future[Connection] = self.loop.create_future()

        def accept_dialled(connection: Connection) -> Receiver:
            if (token := engine.peer_reset_token) is not None:
                connection.reset_key = self._peer_tokens.key_of(token)
                self._by_token[connection.reset_key] = connection
            if (shown := engine.peer_certificate()) is not None:
                connection.certificate = sha256(shown).hexdigest()
            receiver = accept(connection)
            completed.set_result(connection)
            return receiver

        now = monotonic()
        engine = Engine(configuration, self._config, lambda _: accept_dialled(connection))
        connection = Connection(engine, addr, now, self.serve_soon, self._serve_now)
        engine.connect(addr, now)
        self.counters.dialled += 1
        self._adopt(connection, engine.cid)
        self.serve_soon(connection)
        over = asyncio.ensure_future(connection.wait_closed())
        refused = asyncio.ensure_future(self._refused(engine, addr))
        try:
            await asyncio.wait(
                (completed, over, refused),
                timeout=self._config.handshake_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if completed.done():
                return completed.result()
            if refused.done() and not over.done():
                raise HandshakeFailed(f"nobody listens at {host}:{port}: does a relay run there?")
            raise HandshakeFailed(self._explain(host, port, connection.close_state))
        finally:
            over.cancel()
            refused.cancel()
            if not completed.done():
                engine.close(0, "dialling was given up", application=False)
                self._forget(connection)

    async def _refused(self, engine: Engine, addr: Address) -> None:
        """Wait until it is certain that nobody listens where we dial; a relay may be starting."""
        await asyncio.sleep(PROBE_AFTER_S)
        refusals = 0
        with udp.Probe(addr) as probe:
            while refusals < REFUSALS:
                if engine.authenticated:
                    await self.loop.create_future()  # somebody does
                probe.send()
                await asyncio.sleep(PROBE_EVERY_S)
                refusals += probe.refused()

    def _explain(self, host: str, port: int, close: ConnectionClosed | None) -> str:
        where = f"{host}:{port}"
        if close is None:
            return (
                f"no answer from {where} within {self._config.handshake_timeout_s:g} s: "
                "is a relay listening there, and does a firewall let UDP through?"
            )
        if close.code == NO_APPLICATION_PROTOCOL and not close.application:
            return f"{where} does not speak the protocol asked for: is it the right port?"
        if close.code == QuicErrorCode.CONNECTION_REFUSED and not close.application:
            return (
                f"the relay at {where} takes no more connections now: {close.reason}; "
                "try another one, or later"
            )
        return f"no connection to {where}: {close}"

    async def close(self, code: int, reason: str) -> None:
        """Close every connection, let the peers hear of it, and free the port."""
        if self._closing:
            return
        self._closing = True
        self._identity = None  # who redials at once finds nobody
        for connection in list(self._connections):
            connection.close(code, reason)
        self._serve()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._empty.wait()
        finally:  # who is cancelled while saying goodbye frees the port all the same
            self._closed = True
            for connection in list(self._connections):
                self._forget(connection)
            self.abandon()

    def abandon(self) -> None:
        """Free the port at once, and leave the peers to find out."""
        self._closing = self._closed = True
        self._ticker.cancel()
        for _, timer in self._timers.values():
            timer.cancel()
        if self._serving is not None:
            self._serving.cancel()
        if self._processor is not None:
            self._processor.close()
        self._udp.close()

    # -- reading ---------------------------------------------------------------------------------

    def _readable(self) -> None:
        now = monotonic()
        # The socket's state is freed with its last reference: an exception that somebody keeps also
        # keeps this frame, and must not keep the port with it.
        routes, udp = self._routes, self._udp
        # Each connection's datagrams of this turn, in order, as long as they come from one place.
        batches: dict[Connection, tuple[list[bytes], Address]] = {}
        for _ in range(READS_PER_TURN):
            try:
                received = udp.recv()
            except OSError:
                break  # a port that answered "unreachable" to something we sent
            if not received:
                break
            for data, addr in received:
                if not data:
                    continue
                if data[0] & 0x80:
                    self._receive_long(data, addr, now)
                    continue
                connection = routes.get(data[1 : 1 + CONNECTION_ID_BYTES])
                if connection is None:
                    self._receive_unknown(data, addr, now)
                    continue
                batch = batches.get(connection)
                if batch is None:
                    batches[connection] = ([data], addr)
                elif batch[1] == addr:
                    batch[0].append(data)
                else:
                    self._receive(connection, *batch, now)
                    batches[connection] = ([data], addr)
        if self._door is not None and self._processor is not None:
            had = self._processor
            self._door.idle.look(monotonic(), had.ran_s(), had.waited_s())
        for connection, batch in batches.items():
            self._receive(connection, *batch, now)
        self._serve()

    def _receive(
        self, connection: Connection, datagrams: list[bytes], addr: Address, now: float
    ) -> None:
        connection.last_heard = now
        if (meter := connection.meter) is None:
            connection.engine.receive(datagrams, addr, now)
        elif meter.is_spent(now):  # what is more than its share of the time is lost
            self.counters.dropped_for_time += len(datagrams)
            return
        else:
            began = monotonic()
            connection.engine.receive(datagrams, addr, now)
            meter.spend(monotonic() - began, now)
        self._dirty[connection] = None

    def _receive_unknown(self, data: bytes, addr: Address, now: float) -> None:
        """A packet with an id of no connection: a stateless reset, or one is the answer to it."""
        if (key := self._peer_tokens.key(data)) is not None and (
            (connection := self._by_token.get(key)) is not None and connection.remote == addr
        ):
            self.counters.resets_received += 1
            connection.engine.receive_reset()
            self._dirty[connection] = None
            return
        self.counters.unroutable_datagrams += 1
        if self._identity is None:
            return
        if (answer := self._resets.answer(data, now)) is not None:
            self.counters.resets_sent += 1
            self._udp.send([answer], addr)

    def _receive_long(self, data: bytes, addr: Address, now: float) -> None:
        """A packet of a handshake, which names both ids and the version."""
        try:
            header = pull_quic_header(data, 0, CONNECTION_ID_BYTES)
        except ValueError:
            self.counters.malformed_datagrams += 1
            return
        version, kind, _, destination_cid, source_cid, token = header[:6]
        connection = self._routes.get(destination_cid[:CONNECTION_ID_BYTES])
        if connection is not None:
            self._shake(connection, data, addr, now)
        elif not version and self.on_negotiation is not None:
            self.on_negotiation(data, addr, now)
        elif self._identity is None or len(data) < MIN_INITIAL_BYTES or not version:
            self.counters.unroutable_datagrams += 1
        elif version != _V1:
            self._negotiate(addr, destination_cid, source_cid, now)
        elif kind == QuicPacketType.INITIAL and len(destination_cid) >= CONNECTION_ID_BYTES:
            self._receive_initial(data, addr, now, destination_cid, source_cid, token)
        else:
            self.counters.unroutable_datagrams += 1

    def _negotiate(
        self, addr: Address, destination_cid: bytes, source_cid: bytes, now: float
    ) -> None:
        """Name the version that is spoken here; nothing is kept, and it is much less than came."""
        if not self._negotiations.take(1, now):
            self.counters.version_negotiations_refused += 1
            return
        self.counters.version_negotiations_sent += 1
        answer = encode_quic_version_negotiation(destination_cid, source_cid, [_V1])
        self._udp.send([answer], addr)

    def _shake(self, connection: Connection, data: bytes, addr: Address, now: float) -> None:
        """A step of a handshake; what all of them took counts for the address once it is proved."""
        began, is_unproved = monotonic(), connection.meter is None
        self._receive(connection, [data], addr, now)
        # Each step of a handshake takes a millisecond: the peer need not wait for the others'.
        self._pump(connection, now)
        if is_unproved:
            connection.handshake_s += monotonic() - began
            if connection.meter is not None:
                connection.meter.spend(connection.handshake_s, now)

    def _receive_initial(
        self,
        data: bytes,
        addr: Address,
        now: float,
        destination_cid: bytes,
        source_cid: bytes,
        token: bytes,
    ) -> None:
        """The first packet of a connection: accept it, ask for a proof of address, or drop it."""
        counters, config = self.counters, self._config
        original_cid, retry_cid = destination_cid, None
        if self._wants_retry():
            if not token:
                self._send_retry(addr, now, destination_cid, source_cid)
                return
            ids = self._retry.check(addr, token, now)
            if ids is None or ids[1] != destination_cid:
                counters.retries_refused += 1
                return
            original_cid, retry_cid = ids
        elif token and (ids := self._retry.check(addr, token, now)) is not None:
            # The flood that asked for the proof is over; the answer counts all the same.
            original_cid, retry_cid = ids
        if len(self._half_open) >= config.half_open_limit:
            counters.refused_for_half_open += 1
            return
        if len(self._connections) >= config.connection_limit:
            counters.refused_for_connections += 1
            self._refuse(addr, destination_cid, source_cid, "there are as many as are taken")
            return
        if self._door is not None:
            try:
                knock = self._door.knock(addr[0], now, proved=retry_cid is not None)
            except OverLimit as over:
                self._refuse(addr, destination_cid, source_cid, str(over))
                return
            if knock is Knock.PROVE:
                self._send_retry(addr, now, destination_cid, source_cid)
            if knock is not Knock.ADMIT:
                return
        self._begin(data, addr, now, (original_cid, destination_cid, source_cid), retry_cid)

    def _refuse(self, addr: Address, initial_cid: bytes, client_cid: bytes, reason: str) -> None:
        code = int(QuicErrorCode.CONNECTION_REFUSED)
        self._udp.send([encode_refusal(initial_cid, client_cid, code, reason)], addr)

    def _begin(
        self,
        data: bytes,
        addr: Address,
        now: float,
        cids: tuple[bytes, bytes, bytes],
        retry_cid: bytes | None,
    ) -> None:
        original_cid, destination_cid, source_cid = cids
        configuration, accept = self._identity, self._accept
        if configuration is None or accept is None:
            return

        def completed(_: str) -> Receiver:
            self._half_open.pop(connection, None)
            self._unroute(destination_cid, unless=engine.cid)
            self.counters.accepted += 1
            if self._door is not None:
                connection.knocked_from = addr[0]
            receiver = accept(connection)
            if self._door is not None:
                connection.meter = self._door.meter(addr[0])
            return receiver

        engine = Engine(
            configuration,
            self._config,
            completed,
            original_destination_cid=original_cid,
            retry_source_cid=retry_cid,
            client_cid=source_cid,
            resets=self._resets,
        )
        began = monotonic()
        engine.receive([data], addr, now)
        if not engine.authenticated:
            self.counters.malformed_datagrams += 1
            return
        connection = Connection(engine, addr, now, self.serve_soon, self._serve_now)
        connection.certificate = self._shown
        self._half_open[connection] = None
        self._adopt(connection, destination_cid, engine.cid)
        self._pump(connection, now)
        connection.handshake_s = monotonic() - began

    def _wants_retry(self) -> bool:
        match self._config.retry:
            case "always":
                return True
            case "auto":
                return len(self._half_open) >= self._config.half_open_before_retry
        return False

    def _send_retry(
        self, addr: Address, now: float, destination_cid: bytes, source_cid: bytes
    ) -> None:
        self.counters.retries_sent += 1
        retry_cid = os.urandom(CONNECTION_ID_BYTES)
        packet = encode_quic_retry(
            version=_V1,
            source_cid=retry_cid,
            destination_cid=source_cid,
            original_destination_cid=destination_cid,
            retry_token=self._retry.make(addr, destination_cid, retry_cid, now),
        )
        self._udp.send([packet], addr)

    # -- sending ---------------------------------------------------------------------------------

    def send_bare(self, datagrams: list[bytes], addr: Address) -> bool:
        """Send packets that belong to no connection; False: the socket takes none now."""
        if self._closed or self._udp.blocked():
            return False
        self._udp.send(datagrams, addr)
        return True

    def serve_soon(self, connection: Connection) -> None:
        """Let a connection send what it has, once the caller is done."""
        self._dirty[connection] = None
        if self._serving is None and not self._closed:
            self._serving = self.loop.call_soon(self._serve)

    def _serve_now(self, connection: Connection) -> None:
        self._pump(connection, monotonic())

    def _serve(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None
        now = monotonic()
        for _ in range(ROUNDS_PER_TURN):
            dirty = list(self._dirty)
            self._dirty.clear()
            for connection in dirty:
                self._pump(connection, now)
            if self._udp.blocked() or not self._dirty:
                return
        self._serving = self.loop.call_soon(self._serve)

    def _pump(self, connection: Connection, now: float) -> None:
        engine = connection.engine
        if self._udp.blocked():
            self._dirty[connection] = None
            return
        while (batch := engine.transmit(now, PACKETS_PER_TURN)) is not None:
            self._udp.send(*batch)
            if self._udp.blocked():
                self._dirty[connection] = None
                break
        engine.settle()
        if engine.issued_cids or engine.retired_cids:
            self._adopt(connection, *engine.issued_cids)
            for cid in engine.retired_cids:
                self._unroute(cid)
            engine.issued_cids.clear()
            engine.retired_cids.clear()
        if engine.close_state is not None:
            self._half_open.pop(connection, None)
            connection.ended()
        if engine.terminated:
            self._forget(connection)
        else:
            self._arm(connection, now)

    # -- time ------------------------------------------------------------------------------------

    def _arm(self, connection: Connection, now: float) -> None:
        """See to it that the engine's timer is served; a call that comes too early re-arms."""
        deadline = connection.engine.timer()
        armed = self._timers.get(connection)
        if deadline is None or (armed is not None and armed[0] <= deadline):
            return
        if armed is not None:
            armed[1].cancel()
        handle = self.loop.call_later(max(0.0, deadline - now), self._timer_due, connection)
        self._timers[connection] = (deadline, handle)

    def _timer_due(self, connection: Connection) -> None:
        del self._timers[connection]
        # In a busy turn timers come ahead of the socket, where the acknowledgement may be waiting
        # that this one would miss: what is not lost would be sent again.
        self._readable()
        if connection not in self._connections:
            return
        now = monotonic()
        deadline = connection.engine.timer()
        # The loop counts in milliseconds and may call that much early.
        if deadline is not None and deadline <= now + 0.001:
            connection.engine.handle_timer(max(now, deadline))
            self._dirty[connection] = None
            self._serve()
        else:
            self._arm(connection, now)

    def _tick(self) -> None:
        now = monotonic()
        config = self._config
        self._ticker = self.loop.call_later(TICK_S, self._tick)
        for connection in list(self._half_open):
            if now - connection.opened_at > config.handshake_timeout_s:
                connection.engine.close(0, "handshake timed out", application=False)
                self._dirty[connection] = None
        for connection in list(self._connections):
            if not connection.established:
                continue
            if now - connection.last_heard >= config.keepalive_s:
                connection.engine.ping()
                self._dirty[connection] = None
            if connection.tick is not None:
                connection.tick(now)
        self._serve()

    # -- who is there ----------------------------------------------------------------------------

    def _adopt(self, connection: Connection, *cids: bytes) -> None:
        self._connections[connection] = None
        self._empty.clear()
        for cid in cids:
            self._routes[cid[:CONNECTION_ID_BYTES]] = connection
            connection.cids.add(cid[:CONNECTION_ID_BYTES])

    def _unroute(self, cid: bytes, unless: bytes = b"") -> None:
        key = cid[:CONNECTION_ID_BYTES]
        if key != unless[:CONNECTION_ID_BYTES] and (connection := self._routes.pop(key, None)):
            connection.cids.discard(key)

    def _forget(self, connection: Connection) -> None:
        for cid in connection.cids:
            self._routes.pop(cid, None)
        self._by_token.pop(connection.reset_key, None)
        if connection in self._connections:
            del self._connections[connection]
            if self._door is not None and connection.knocked_from:
                self._door.left(connection.knocked_from)
            sent, received = connection.engine.traffic()
            self.counters.past_sent_bytes += sent
            self.counters.past_received_bytes += received
        self._dirty.pop(connection, None)
        self._half_open.pop(connection, None)
        if not connection.alpn:
            self.counters.handshakes_failed += 1
        if (timer := self._timers.pop(connection, None)) is not None:
            timer[1].cancel()
        connection.ended()
        connection.engine.release()
        if not self._connections:
            self._empty.set()

    # -- configuration ---------------------------------------------------------------------------

    def _configuration(self, *, is_client: bool, alpn: Sequence[str]) -> QuicConfiguration:
        config = self._config
        return QuicConfiguration(
            alpn_protocols=list(alpn),
            connection_id_length=CONNECTION_ID_BYTES,
            idle_timeout=config.idle_timeout_s,
            is_client=is_client,
            max_data=config.connection_window_bytes,
            max_stream_data=config.stream_window_bytes,
            max_datagram_size=config.udp_payload_bytes,
            max_datagram_frame_size=config.datagram_frame_bytes,
        )

    async def _resolve(self, host: str, port: int) -> Address:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return (host, port, 0, 0) if ":" in host else (host, port)
        family = socket.AF_INET6 if len(self.address) > 2 else socket.AF_INET
        try:
            infos = await self.loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
        except socket.gaierror as error:
            raise ConfigError(f'host "{host}" is not known: {error.strerror}') from error
        return infos[0][4]  # type: ignore[return-value]
