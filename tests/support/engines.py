"""Two QUIC engines joined in memory, under a clock that only moves when they do."""

from __future__ import annotations

import heapq
import os
import ssl
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from qh3._hazmat import pull_quic_header
from qh3.quic.configuration import QuicConfiguration

from laps.config import QuicConfig
from laps.net.engine import CONNECTION_ID_BYTES, Engine
from laps.net.tls import Identity, self_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.errors import ConnectionClosed
    from laps.net.reset import Resets

CLIENT = ("192.0.2.1", 1000)
SERVER = ("192.0.2.2", 2000)


@cache
def identity() -> Identity:
    """A certificate for all tests of a run."""
    return self_signed(["127.0.0.1", "::1", "localhost"])


@dataclass
class Recorder:
    """A receiver that writes down what it is told."""

    data: dict[int, bytearray] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    resets: list[tuple[int, int]] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)
    datagrams: list[bytes] = field(default_factory=list)
    closes: list[ConnectionClosed] = field(default_factory=list)
    wakes: int = 0
    on_data: Callable[[int, bytes, bool], None] | None = None
    on_writable: Callable[[], None] | None = None

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        self.data.setdefault(stream_id, bytearray()).extend(data)
        if fin:
            self.finished.add(stream_id)
        if self.on_data is not None:
            self.on_data(stream_id, data, fin)

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.resets.append((stream_id, code))

    def stop_sending(self, stream_id: int, code: int) -> None:
        self.stops.append((stream_id, code))

    def datagram(self, data: bytes) -> None:
        self.datagrams.append(data)

    def writable(self) -> None:
        self.wakes += 1
        if self.on_writable is not None:
            self.on_writable()

    def closed(self, close: ConnectionClosed) -> None:
        self.closes.append(close)


def configuration(
    limits: QuicConfig, *, is_client: bool, alpn: Sequence[str], cid_bytes: int
) -> QuicConfiguration:
    made = QuicConfiguration(
        alpn_protocols=list(alpn),
        connection_id_length=cid_bytes,
        idle_timeout=limits.idle_timeout_s,
        is_client=is_client,
        max_data=limits.connection_window_bytes,
        max_stream_data=limits.stream_window_bytes,
        max_datagram_size=limits.udp_payload_bytes,
        max_datagram_frame_size=limits.datagram_frame_bytes,
    )
    if is_client:
        made.verify_mode = ssl.CERT_NONE
        made.server_name = "localhost"
    else:
        made.load_cert_chain(identity().certificate, identity().key)
    return made


class Pair:
    """A client and a server; `run` lets packets and time pass."""

    def __init__(
        self,
        *,
        limits: QuicConfig | None = None,
        server_limits: QuicConfig | None = None,
        alpn: Sequence[str] = ("laps",),
        server_alpn: Sequence[str] = ("laps",),
        delay_s: float = 0.005,
        client_cid_bytes: int = CONNECTION_ID_BYTES,
        resets: Resets | None = None,
    ) -> None:
        self.now = 100.0
        self.delay_s = delay_s
        self.lost: Callable[[int], bool] = lambda _: False
        "Whether the n-th packet, counted over both directions, is lost."
        self.packets = 0
        self.losses = 0
        self.client_saw = Recorder()
        self.server_saw = Recorder()
        self.alpns: list[str] = []
        self._limits = limits or QuicConfig()
        self._server_limits = server_limits or self._limits
        self._server_alpn = server_alpn
        self._resets = resets
        self._order = count()
        self._wire: list[tuple[float, int, bool, bytes]] = []
        self.client = Engine(
            configuration(self._limits, is_client=True, alpn=alpn, cid_bytes=client_cid_bytes),
            self._limits,
            lambda chosen: self._completed(chosen, self.client_saw),
        )
        self.server: Engine | None = None
        # qh3 would make the id it chooses for the server as short as its own.
        self.client._face._original_destination_connection_id = os.urandom(8)
        self.client.connect(SERVER, self.now)

    def _completed(self, alpn: str, recorder: Recorder) -> Recorder:
        self.alpns.append(alpn)
        return recorder

    def connect(self) -> tuple[Engine, Engine]:
        """Run the handshake; both engines, established."""
        self.run(lambda: len(self.alpns) == 2 and self.client.established)
        assert self.server is not None
        return self.client, self.server

    def run(self, until: Callable[[], bool] = lambda: False, seconds: float = 60.0) -> None:
        """Let packets and timers happen until `until` holds, nothing is left, or time is up."""
        end = self.now + seconds
        while not until():
            self._send()
            due = [self._wire[0][0]] if self._wire else []
            timers = [e.timer() for e in self._engines() if not e.terminated]
            due += [t for t in timers if t is not None]
            if not due or min(due) > end:
                self.now = end
                return
            self.now = max(self.now, min(due))
            while self._wire and self._wire[0][0] <= self.now:
                _, _, to_server, data = heapq.heappop(self._wire)
                self._deliver(data, to_server=to_server)
            for engine in self._engines():
                timer = engine.timer()
                if timer is not None and timer <= self.now:
                    engine.handle_timer(self.now)

    def _engines(self) -> list[Engine]:
        return [self.client] if self.server is None else [self.client, self.server]

    def _send(self) -> None:
        for engine in self._engines():
            while (batch := engine.transmit(self.now, 64)) is not None:
                for data in batch[0]:
                    self.packets += 1
                    if self.lost(self.packets):
                        self.losses += 1
                        continue
                    entry = (
                        self.now + self.delay_s,
                        next(self._order),
                        engine is self.client,
                        data,
                    )
                    heapq.heappush(self._wire, entry)
            engine.settle()

    def _deliver(self, data: bytes, *, to_server: bool) -> None:
        if not to_server:
            self.client.receive([data], SERVER, self.now)
            return
        if self.server is None:
            header = pull_quic_header(data, 0, CONNECTION_ID_BYTES)
            self.server = Engine(
                configuration(
                    self._server_limits,
                    is_client=False,
                    alpn=self._server_alpn,
                    cid_bytes=CONNECTION_ID_BYTES,
                ),
                self._server_limits,
                lambda chosen: self._completed(chosen, self.server_saw),
                original_destination_cid=header[3],
                client_cid=header[4],
                resets=self._resets,
            )
        self.server.receive([data], CLIENT, self.now)
