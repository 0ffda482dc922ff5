"""A connection in memory, for what is built upon one."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from laps.errors import (
    ConnectionClosed,
    DatagramTooLarge,
    SendBufferFull,
    StreamLimitReached,
)
from laps.net.engine import Stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.net.engine import BytesLike, Receiver


class NoRefusals:
    """A `Refusals` that asks nobody."""

    def send(self) -> None:
        pass

    def refused(self) -> bool:
        return False

    def close(self) -> None:
        pass


class FakeConnection:
    """A `Transport` that queues what it is told, for whoever is at its other end."""

    def __init__(self, *, is_client: bool) -> None:
        self.tick: Callable[[float], None] | None = None
        self.opened_at = 1.0
        self.last_heard = 2.0
        self.remote = ("192.0.2.1", 1000)
        self.alpn = "h3"
        self.close_state: ConnectionClosed | None = None
        self.buffered_bytes = 0
        self.carried_per_s = inf
        self.datagram_limit_bytes = 1000
        self.peer_window_bytes = 1 << 20
        self.receiver: Receiver | None = None
        self.sent: deque[tuple[Any, ...]] = deque()
        self.streams_left = 10_000
        self.full = False
        self.pauses: list[bool] = []
        self.woken_below = -1
        self.pings = 0
        self._next = {False: 0 if is_client else 1, True: 2 if is_client else 3}

    @property
    def established(self) -> bool:
        return self.close_state is None

    def peer_certificate(self) -> bytes | None:
        return b"certificate"

    def stats(self) -> Stats:
        return Stats(1, 2, 3, 4, 5, 6, 7, 8, 9)

    def open_stream(self, *, unidirectional: bool) -> int:
        if not self.streams_left:
            raise StreamLimitReached("no more")
        self.streams_left -= 1
        stream_id = self._next[unidirectional]
        self._next[unidirectional] += 4
        return stream_id

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        if self.full:
            raise SendBufferFull("full")
        self.sent.append(("stream_data", stream_id, bytes(data), fin))
        return True

    def reset_stream(self, stream_id: int, code: int) -> None:
        self.sent.append(("stream_reset", stream_id, code))

    def stop_stream(self, stream_id: int, code: int) -> None:
        self.sent.append(("stop_sending", stream_id, code))

    def send_datagram(self, data: bytes) -> bool:
        if len(data) > self.datagram_limit_bytes:
            raise DatagramTooLarge("too large")
        self.sent.append(("datagram", data))
        return True

    def wake_below(self, buffered_bytes: int) -> None:
        self.woken_below = buffered_bytes

    def pause_reading(self) -> None:
        self.pauses.append(True)

    def resume_reading(self) -> None:
        self.pauses.append(False)

    def probe(self) -> NoRefusals:
        return NoRefusals()

    def ping(self) -> None:
        self.pings += 1

    def close(self, code: int, reason: str) -> None:
        if self.close_state is None:
            self.sent.append(("closed", ConnectionClosed(code, reason, True, True)))
            self.ended(ConnectionClosed(code, reason, by_peer=False, application=True))

    def abort(self, code: int, reason: str) -> None:
        self.close(code, reason)

    def ended(self, close: ConnectionClosed) -> None:
        if self.close_state is None:
            self.close_state = close
            if self.receiver is not None:
                self.receiver.closed(close)

    async def wait_closed(self) -> ConnectionClosed:
        raise NotImplementedError

    def written(self, stream_id: int) -> bytes:
        return b"".join(s[2] for s in self.sent if s[:2] == ("stream_data", stream_id))
