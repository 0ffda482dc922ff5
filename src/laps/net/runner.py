"""A relay on the network: listens for peers, dials the configured ones, and runs their sessions.

What a peer sends beyond its introduction is decoded and checked, and goes no further yet: there is
no forwarding behind it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from laps.errors import CloseCode, ConnectNotReceived, ConnectResponseNotReceived, LapsError
from laps.net import tls
from laps.net.egress import Egress
from laps.net.quic import Endpoint
from laps.sessions.peer import (
    DatagramReceived,
    DataReceived,
    EndStream,
    PeerConnected,
    PeerRefused,
    PeerSession,
    SendControl,
    State,
)
from laps.types import (
    Address,
    DataDirection,
    NodeId,
    NodeInfo,
    NodeType,
    PeerMode,
    format_node_id,
    hash_bytes,
)
from laps.wire.peering import Connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.config import Config
    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.net.egress import EgressStream
    from laps.sessions.peer import Effect, Event

log = logging.getLogger(__name__)

PEERING_ALPN: Final = "laps"

# Control goes ahead of all data, whose ranks are 0 to 255.
CONTROL_RANK: Final = -1

# The document names no code for a stream that was dropped; 0 says no error of the peer's.
DROPPED: Final = 0

# Redialling: soon at first, since most ends are restarts, and never so rarely that a relay that is
# back stays alone for long. Half of each wait is random: a thousand peers do not come at once.
REDIAL_FIRST_S: Final = 0.5
REDIAL_MOST_S: Final = 15.0

# A self-signed certificate is replaced this long before it expires, so that whoever learned the
# new fingerprint from a page just loaded can use it for a while.
RENEW_BEFORE: Final = timedelta(days=2)


class PeerLink:
    """The connection to one peer, with its session and its egress."""

    def __init__(
        self,
        connection: Connection,
        config: Config,
        self_info: NodeInfo,
        ended: Callable[[], None],
    ) -> None:
        self._ended = ended
        self.session = PeerSession(self_info)
        self._connection = connection
        self._egress = Egress(connection, config.egress, expired_code=DROPPED, full_code=DROPPED)
        self._control: EgressStream | None = None
        self._introduce_by = asyncio.get_running_loop().call_later(
            config.quic.handshake_timeout_s, self._not_introduced
        )
        connection.tick = self._egress.tick

    def introduce(self, connect: Connect) -> None:
        """Begin the conversation, as the side that dialled."""
        stream_id = self._connection.open_stream(unidirectional=False)
        self.session, effects = PeerSession.dial(connect, stream_id)
        self._perform(effects)

    # -- what the connection tells ---------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""
        self._perform(self.session.receive(stream_id, data, fin))

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""
        self._perform(self.session.receive_datagram(data))

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self.session.receive_reset(stream_id)

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""
        self._egress.stopped(stream_id)

    def writable(self) -> None:
        """As `Receiver`."""
        self._egress.writable()

    def closed(self, close: ConnectionClosed) -> None:
        """As `Receiver`."""
        self._introduce_by.cancel()
        log.info("peer %s: %s", self._name(), close)
        self._ended()

    # -- what the session wants ------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect | Event]) -> None:
        for effect in effects:
            match effect:
                case SendControl(stream_id, data):
                    if self._control is None or self._control.stream_id != stream_id:
                        self._control = self._egress.adopt(stream_id, CONTROL_RANK)
                    self._control.write(data)
                case EndStream(stream_id, code):
                    self._connection.stop_stream(stream_id, code)
                    self._connection.reset_stream(stream_id, code)
                case PeerConnected():
                    self._introduce_by.cancel()
                    log.info("peer %s: connected, %s", self._name(), effect.peer_mode.name.lower())
                case PeerRefused(code):
                    self._connection.close(CloseCode.GRACEFUL, f"refused with response {code}")
                case DataReceived() | DatagramReceived():
                    pass  # nothing is forwarded yet

    def _not_introduced(self) -> None:
        dialled = self.session.state is State.AWAIT_RESPONSE
        error = ConnectResponseNotReceived if dialled else ConnectNotReceived
        self._connection.close(error.code, "nothing was said in time")

    def _name(self) -> str:
        info = self.session.peer_info
        host, port = self._connection.remote[:2]
        return f"{host}:{port}" if info is None else format_node_id(info.id)


class Runner:
    """One relay, from the sockets down."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.identity = self._identity()
        self.links: dict[Connection, PeerLink] = {}
        listen = config.peering.listen
        self._peering = Endpoint.listen(
            listen.host, listen.port, config.quic, [PEERING_ALPN], self.identity, self._accept
        )
        self.peer_address = Address(*self._peering.address[:2])
        node_id = config.node.id
        if node_id is None:
            node_id = node_id_of_place(socket.gethostname(), self.peer_address)
        self.node_info = NodeInfo(
            id=node_id,
            type=NodeType.EDGE,
            contact=config.node.contact or str(self.peer_address),
            longitude=config.node.longitude,
            latitude=config.node.latitude,
            path=(),
        )
        self._diallers: dict[int, Endpoint] = {}
        self._tasks = [asyncio.ensure_future(self._keep(peer)) for peer in config.peering.peers]
        if config.tls.is_self_signed:
            self._tasks.append(asyncio.ensure_future(self._renew()))

    async def close(self) -> None:
        """Say goodbye to every peer, and free the ports."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for endpoint in (self._peering, *self._diallers.values()):
            await endpoint.close(CloseCode.GRACEFUL, "the relay stops")

    def _identity(self) -> tls.Identity:
        config = self.config.tls
        if config.certificate is not None and config.key is not None:
            return tls.load(config.certificate, config.key)
        names = {self.config.peering.listen.host, "localhost", "127.0.0.1"}
        return tls.self_signed(sorted(names))

    async def _renew(self) -> None:
        while True:
            left = self.identity.expires - RENEW_BEFORE - datetime.now(UTC)
            await asyncio.sleep(left.total_seconds())
            self.identity = self._identity()
            self._peering.show(self.identity)
            log.info("a new certificate: sha256 %s", self.identity.fingerprint)

    # -- peers -----------------------------------------------------------------------------------

    def _accept(self, connection: Connection) -> PeerLink:
        def ended() -> None:
            self.links.pop(connection, None)

        link = self.links[connection] = PeerLink(connection, self.config, self.node_info, ended)
        return link

    async def _keep(self, peer: Address) -> None:
        """Dial a peer, and dial it again whenever the connection ends."""
        wait = REDIAL_FIRST_S
        while True:
            try:
                connection = await self._dial(peer)
            except LapsError as error:
                log.warning("%s", error)
            else:
                self.links[connection].introduce(
                    Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, self.node_info)
                )
                wait = REDIAL_FIRST_S
                await connection.wait_closed()
            await asyncio.sleep(wait * (0.5 + random.random() / 2))  # noqa: S311 - no secret
            wait = min(2 * wait, REDIAL_MOST_S)

    async def _dial(self, peer: Address) -> Connection:
        family = socket.AF_INET6 if ":" in peer.host else socket.AF_INET
        if family not in self._diallers:
            anywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - to dial from
            self._diallers[family] = Endpoint.dialler(anywhere, self.config.quic)
        return await self._diallers[family].connect(
            peer.host, peer.port, [PEERING_ALPN], trust_of(peer), self._accept
        )


def trust_of(peer: Address) -> tls.Trust:
    """Anyone on this machine, and elsewhere whom the system trusts."""
    try:
        local = ipaddress.ip_address(peer.host).is_loopback
    except ValueError:
        local = peer.host == "localhost"
    return tls.Trust(anyone=local)


def node_id_of_place(host: str, address: Address) -> NodeId:
    """An id for a relay that was given none: the same after a restart, another for a neighbour."""
    return NodeId(hash_bytes(f"{host} {address}".encode()))
