"""Connections of clients: MoQT on raw QUIC and in WebTransport, and QUICR, on one port.

The ALPN decides. `quicr-01` is QUICR; `moqt-16` is MoQT's draft 16; `moq-00` is draft 14, which
names its version again in the setup; `h3` is HTTP/3, where the path may be any and the subprotocol
takes the place of the ALPN: a session that names none speaks draft 14.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.edge.moqt import MoqtClient
from laps.edge.quicr import QuicrClient
from laps.edge.shares import Limit, OverLimit
from laps.errors import ConnectionClosed, DatagramTooLarge
from laps.net.bidirectional import Bidirectional
from laps.net.egress import Egress, EgressStream
from laps.net.http3 import ErrorCode
from laps.net.webtransport import HTTP3_ALPN, Accepted, accept_http3
from laps.net.webtransport_session import WebTransportSession
from laps.types import Address
from laps.wire.moqt.codes import ResetCode, SessionCode
from laps.wire.moqt.dialect import DIALECTS
from laps.wire.moqt.tolerance import Tolerance
from laps.wire.quicr.codes import ALPN as QUICR_ALPN
from laps.wire.quicr.codes import QuicrCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.config import ClientsConfig, Config, EgressConfig
    from laps.edge.client import ClientLink, Rank, RankedStream
    from laps.edge.edge import Edge
    from laps.edge.shares import ClientShare
    from laps.net.backlog import ByClass
    from laps.net.closes import Closes
    from laps.net.connection import Connection
    from laps.net.engine import Receiver
    from laps.net.transport import Transport
    from laps.net.webtransport import ConnectRequest
    from laps.wire.moqt.dialect import Dialect

log = logging.getLogger(__name__)

# HTTP/3's own code for a connection that was of no use: nothing is wrong.
NO_SESSION: Final = int(ErrorCode.NO_ERROR)

# A window of so much is 10 Mbit/s where a round trip takes 50 ms. Whoever opens less means to take
# little at a time: that it is behind is no matter of a busy machine.
LEAST_WINDOW_BYTES: Final = 64 * 1024

# By how much a timer may be early.
EARLY_S: Final = 0.001


def alpns(config: Config) -> list[str]:
    """What a client may ask for, in the order of our preference."""
    quicr = [QUICR_ALPN] if config.quicr.enabled else []
    return [*(DIALECTS[draft].alpn for draft in config.clients.drafts), HTTP3_ALPN, *quicr]


def _too_many(alpn: str) -> int:
    """What each protocol has for a session that is one too many."""
    if alpn == QUICR_ALPN:
        return QuicrCode.TOO_MANY
    return ErrorCode.EXCESSIVE_LOAD if alpn == HTTP3_ALPN else SessionCode.TOO_MANY_REQUESTS


class Clients:
    """Makes a client of each connection."""

    def __init__(
        self,
        edge: Edge,
        config: ClientsConfig,
        egress: EgressConfig,
        setup_s: float,
        touched: Callable[[], None],
        closes: Closes,
        by_class: ByClass,
    ) -> None:
        """A session has `setup_s` to be set up; `closes` hears of those that are over.

        `touched` is called when the relay may have changed its mind about the time.
        """
        self.edge = edge
        self.egress = egress
        self.touched = touched
        self.connections: dict[ClientConnection, asyncio.TimerHandle] = {}
        "Each with the time by which its session has to be set up."
        self.past_dropped_groups = 0
        "Of sessions that are over."
        self.closes = closes
        self.by_class = by_class
        self.numbers = count(1)
        "For sessions, in the order that they begin."
        self._none = asyncio.Event()
        self._none.set()
        self._drafts = config.drafts
        self._setup_s = setup_s

    def add(self, connection: ClientConnection) -> None:
        """A session may begin, and has to before long."""
        loop = asyncio.get_running_loop()
        self.connections[connection] = loop.call_later(self._setup_s, self._set_up, connection)
        self._none.clear()

    def _set_up(self, connection: ClientConnection) -> None:
        client = connection.client
        if not client.ready:
            connection.close(client.silent_code, "it has said nothing in time")

    def remove(self, connection: ClientConnection) -> None:
        """A session is over."""
        if (setup := self.connections.pop(connection, None)) is not None:
            setup.cancel()
            self.past_dropped_groups += connection.egress.counters.dropped_groups
        if not self.connections:
            self._none.set()

    async def gone(self) -> None:
        """Wait until there are none."""
        await self._none.wait()

    def accept(self, connection: Connection) -> Receiver:
        """A QUIC connection is there."""
        try:
            self.edge.addresses.arrived(connection.knocked_from, monotonic())
        except OverLimit as over:
            code, reason = _too_many(connection.alpn), str(over)
            asyncio.get_running_loop().call_soon(connection.close, code, reason)
        if connection.alpn == QUICR_ALPN:
            return ClientConnection(self, connection, lambda link: QuicrClient(self.edge, link))
        for draft in self._drafts:
            dialect = DIALECTS[draft]
            if connection.alpn == dialect.alpn:
                named = None if dialect.version_in_setup else dialect
                return self._moqt(connection, named, webtransport=False)
        server = accept_http3(connection, self._choose)

        def check() -> None:
            if server.session is None and connection.established:
                connection.close(NO_SESSION, "no session was asked for in time")

        asyncio.get_running_loop().call_later(self._setup_s, check)
        return server

    def _choose(self, request: ConnectRequest) -> Accepted:
        """Whatever the path: what is published where is not for paths to say, but for a token."""
        bare = () if self.edge.settings.session.strict else request.bare_protocols
        for draft in self._drafts:
            dialect = DIALECTS[draft]
            if not dialect.version_in_setup and dialect.alpn in (*request.protocols, *bare):
                self.edge.counters.tolerated[Tolerance.BARE_PROTOCOLS] += dialect.alpn in bare
                return Accepted(self._accept_in(dialect, request.path), dialect.alpn)
        # A browser takes an answer it did not ask for as a failure: draft 14 goes without a name.
        return Accepted(self._accept_in(None, request.path))

    def _accept_in(
        self, dialect: Dialect | None, url: str
    ) -> Callable[[WebTransportSession], Receiver]:
        return lambda session: self._moqt(session, dialect, webtransport=True, url=url)

    def _moqt(
        self, transport: Transport, dialect: Dialect | None, *, webtransport: bool, url: str = ""
    ) -> ClientConnection:
        return ClientConnection(
            self,
            transport,
            lambda link: MoqtClient(self.edge, link, dialect, webtransport=webtransport, url=url),
        )


class ClientConnection:
    """A client's connection: its receiver, and a `relay.clients.ClientLink`."""

    def __init__(
        self,
        clients: Clients,
        transport: Transport,
        client: Callable[[ClientLink], MoqtClient | QuicrClient],
    ) -> None:
        self.transport = transport
        self.number = next(clients.numbers)
        self.too_large_datagrams = 0
        self.egress = Egress(
            transport,
            clients.egress,
            expired_code=ResetCode.DELIVERY_TIMEOUT,
            full_code=ResetCode.INTERNAL_ERROR,
            by_class=clients.by_class,
        )
        self.egress.on_pressure = self._pressure
        self._pacing: asyncio.TimerHandle | None = None
        "Until it may send more."
        self.wire = Bidirectional(transport, self.egress)
        self._room = clients.egress.pressure_bytes // 2
        self._datagram_room = clients.egress.datagram_queue_bytes // 4
        self._clients = clients
        self._meter = clients.edge.addresses.meter(self.host)
        self._keeps_up = transport.peer_window_bytes >= LEAST_WINDOW_BYTES
        self.client = client(self)
        transport.tick = self._tick
        clients.add(self)

    def __str__(self) -> str:
        host, port = self.transport.remote[:2]
        return str(Address(host, port))

    @property
    def protocol(self) -> str:
        """What is spoken, as people call it: moqt-14, moqt-16, quicr-01."""
        if isinstance(self.client, QuicrClient):
            return QUICR_ALPN
        return f"moqt-{self.client.session.dialect.draft}"

    @property
    def is_webtransport(self) -> bool:
        """Whether it came in a WebTransport session."""
        return isinstance(self.transport, WebTransportSession)

    # -- as `ClientLink` ---------------------------------------------------------------------------

    @property
    def dropped_streams(self) -> int:
        """As `ClientLink`."""
        return self.egress.counters.unopened_streams

    def has_room_for(self, order: int) -> bool:
        """As `ClientLink`."""
        if self.egress.waiting_for(order) < self._room:
            return True
        if not self.egress.is_paced:
            self.transport.wake_below(0)
        return False

    @property
    def datagram_bytes(self) -> int:
        """As `ClientLink`."""
        return self.transport.datagram_limit_bytes

    @property
    def has_datagram_room(self) -> bool:
        """As `ClientLink`; who waits for room is told when QUIC takes the next one."""
        return self.egress.queued_datagram_bytes < self._datagram_room

    @property
    def pressed(self) -> bool:
        """As `ClientLink`."""
        return self.egress.pressed

    def pressed_for(self, order: int) -> bool:
        """As `ClientLink`."""
        return self.egress.pressed_for(order)

    def crowded_for(self, order: int) -> bool:
        """As `ClientLink`; nobody else waits for one that will not take more at a time."""
        return self.egress.crowded_for(order) and self._keeps_up

    @property
    def sent_bytes(self) -> int:
        """As `ClientLink`."""
        return self.egress.counters.stream_bytes

    def open_stream(self, rank: Rank, ttl_us: int) -> EgressStream:
        """As `ClientLink`."""
        return self.egress.open(rank, ttl_us)

    def reorder(self, stream_id: int, order: int) -> None:
        """As `ClientLink`."""
        self.wire.reorder(stream_id, order)

    def send_datagram(self, data: bytes, rank: Rank, ttl_us: int) -> None:
        """As `ClientLink`."""
        try:
            self.egress.send_datagram(data, rank, ttl_us)
        except DatagramTooLarge:
            self.too_large_datagrams += 1
        except ConnectionClosed:
            pass

    def stop_stream(self, stream_id: int, code: int) -> None:
        """As `ClientLink`."""
        if self.transport.established:
            self.transport.stop_stream(stream_id, code)

    def when_sent(
        self, call: Callable[[], None], streams: Iterable[RankedStream] | None = None
    ) -> None:
        """As `ClientLink`."""
        own = None if streams is None else [it for it in streams if isinstance(it, EgressStream)]
        self.egress.when_flushed(call, own)

    def pause(self) -> None:
        """As `ClientLink`."""
        if self.transport.established:
            self.transport.pause_reading()

    def resume(self) -> None:
        """As `ClientLink`."""
        if self.transport.established:
            self.transport.resume_reading()

    def close(self, code: int, reason: str) -> None:
        """As `ClientLink`."""
        self.transport.close(code, reason)

    def abort(self, code: int, reason: str) -> None:
        """As `ClientLink`."""
        self.transport.abort(code, reason)

    @property
    def host(self) -> str:
        """As `ClientLink`."""
        return self.transport.remote[0]

    def in_its_time(self, work: Callable[[float], bool], now: float) -> bool | None:
        """As `ClientLink`."""
        if (meter := self._meter) is None:
            return work(now)
        if meter.is_spent(now):
            return None
        began = monotonic()
        try:
            return work(now)
        finally:
            meter.spend(monotonic() - began, now)

    def pace(self, share: ClientShare) -> None:
        """As `ClientLink`."""
        buckets = (account.bytes_out for account in share.outflow)
        self.egress.pace(bucket for bucket in buckets if bucket is not None)
        self.egress.on_paced = self._paced if share.outflow else None

    def _paced(self, wait_s: float) -> None:
        """It has sent as much as it may: send on after a while."""
        self.client.share.held_up(Limit.BYTES_OUT, monotonic())
        if self._pacing is not None:
            self._pacing.cancel()
        if wait_s < inf:
            self._go_on_in(wait_s)

    def _go_on_in(self, wait_s: float) -> None:
        self._pacing = asyncio.get_running_loop().call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        left_s = self.egress.paced_until - monotonic()
        if left_s > 0:  # timers count in milliseconds, and may be early: nobody else would go on
            self._go_on_in(max(left_s, EARLY_S))
            return
        self._pacing = None
        self.writable()

    # -- as `Receiver` -----------------------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""
        self.client.receive(stream_id, data, fin, monotonic())
        if not stream_id & 2 or self._clients.edge.is_due:
            self._clients.touched()

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.client.stream_reset(stream_id, code, monotonic())
        self._clients.touched()

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.egress.stopped(stream_id)
        self.client.stop_sending(stream_id, monotonic())
        self._clients.touched()

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""
        self.client.receive_datagram(data, monotonic())
        if self._clients.edge.is_due:
            self._clients.touched()

    def writable(self) -> None:
        """As `Receiver`."""
        self.egress.writable()
        self.client.writable(monotonic())
        if self._clients.edge.is_due:
            self._clients.touched()

    def closed(self, close: ConnectionClosed) -> None:
        """As `Receiver`."""
        self._clients.remove(self)
        self._clients.closes.add("client", self.protocol, str(self), close)
        if not close.by_peer and close.application and close.code in self.client.violations:
            self._clients.edge.counters.violations += 1
        level = (
            logging.INFO if close.by_peer or close.code == SessionCode.NO_ERROR else logging.WARNING
        )
        log.log(level, "client at %s: %s", self, close)
        if level is logging.WARNING:
            # Who it was stays in the log: whoever reads telemetry need not know.
            journal, protocol = self._clients.edge.relay.journal, self.transport.alpn
            journal.note(monotonic(), "client_closed", protocol, reason=str(close))
        self.client.closed(monotonic())
        # A client and its connection refer to each other. Without this they would stay in memory
        # until Python's collector looks at everything there is, which a busy relay can ill afford.
        self.transport.tick = None
        if self._pacing is not None:
            self._pacing.cancel()
        self.egress.close()
        del self.client
        self._clients.touched()

    def _tick(self, now: float) -> None:
        self.egress.tick(now)

    def _pressure(self) -> None:
        self._clients.edge.relay.pressure.client_changed(self.client, monotonic())
        self._clients.touched()
