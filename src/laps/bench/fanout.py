"""The bare loop that a relay is measured against: streams in, the same streams out to everybody.

Nothing but QUIC: no MoQT, no cache, no priorities. Whatever comes on one connection's streams is
handed to the engine of every other connection. So that nothing is dropped and nothing grows without
bound, the sender is not read from while anybody has too much to be sent.

    python -m laps.bench.fanout CORE
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import uvloop

from laps.bench.process import answer, pin
from laps.bench.relay_sessions import ALPN, HOST
from laps.config import QuicConfig
from laps.net.quic import Endpoint
from laps.net.tls import self_signed

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection

# As much as a relay lets wait for one client before it slows the publisher down.
FULL_BYTES: Final = 1 << 20


class Fanout:
    """All the connections there are."""

    def __init__(self) -> None:
        self.peers: dict[Peer, None] = {}

    def accept(self, connection: Connection) -> Peer:
        peer = Peer(self, connection)
        self.peers[peer] = None
        return peer


class Peer:
    """One connection: a sender, or somebody who is sent everything."""

    def __init__(self, fanout: Fanout, connection: Connection) -> None:
        self.connection = connection
        self.waits = False
        self._fanout = fanout
        self._copies: dict[int, list[tuple[Connection, int]]] = {}

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        copies = self._copies.get(stream_id)
        if copies is None:
            others = [p.connection for p in self._fanout.peers if p is not self]
            copies = [(other, other.open_stream(unidirectional=True)) for other in others]
            self._copies[stream_id] = copies
        for other, copy in copies:
            other.write(copy, data, fin=fin)
            if other.buffered_bytes > FULL_BYTES:
                other.wake_below(FULL_BYTES // 2)
                self._pause()
        if fin:
            del self._copies[stream_id]

    def _pause(self) -> None:
        if not self.waits:
            self.waits = True
            self.connection.pause_reading()

    def writable(self) -> None:
        peers = self._fanout.peers
        if self.connection.buffered_bytes > FULL_BYTES:  # it was for a stream to open
            self.connection.wake_below(FULL_BYTES // 2)
        elif all(peer.connection.buffered_bytes <= FULL_BYTES for peer in peers):
            for peer in peers:
                if peer.waits:
                    peer.waits = False
                    peer.connection.resume_reading()

    def closed(self, close: ConnectionClosed) -> None:
        self._fanout.peers.pop(self, None)

    def stream_reset(self, stream_id: int, code: int) -> None: ...
    def stop_sending(self, stream_id: int, code: int) -> None: ...
    def datagram(self, data: bytes) -> None: ...


async def _serve() -> None:
    fanout = Fanout()
    endpoint = Endpoint.listen(HOST, 0, QuicConfig(), [ALPN], self_signed([HOST]), fanout.accept)
    await answer(f"{os.getpid()} {endpoint.address[1]}", dict)


if __name__ == "__main__":
    pin(int(sys.argv[1]))
    uvloop.run(_serve())
