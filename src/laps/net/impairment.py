"""A worse network than there is, for labs and tests: datagrams that are late, or never come.

`ImpairedSocket` stands between an endpoint and its socket. For each peer that is impaired it has a
lane out and a lane in: what is sent to that address, and what comes from it, is dropped by a
share, and the rest waits for the delay, in order. So the side that dials impairs both directions,
and a round trip takes twice the delay. Other addresses pass by; without an impairment there is no
such socket at all.
"""

from __future__ import annotations

from collections import deque
from math import inf
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from laps.config import Impairment
    from laps.net.handshake import Address
    from laps.net.udp import UdpSocket

# What is on its way at once, in one direction: half a second at 250 Mbit/s. A path holds no more,
# and drops what comes on top.
LANE_BYTES: Final = 16 * 1024 * 1024

# What waits at a narrow path; more is dropped, and QUIC slows down.
NARROW_S: Final = 0.25

# The loop's timers count whole milliseconds: they are set half of one later, and what is due within
# half of one goes with them.
EARLY_S: Final = 0.0005
TIMER_S: Final = 0.001

Datagrams = list[bytes]


class Lane:
    """One direction of a path to one address: what was sent, in order, until it has arrived."""

    def __init__(self, addr: Address, rng: Random) -> None:
        self.addr = addr
        self.wanted = True
        "False: it is there for what is still on its way."
        self.passed = 0
        self.dropped = 0
        "Lost by the share that was asked for."
        self.overflowed = 0
        "Lost because the lane was full."
        self._rng = rng
        self._delay = self._jitter = self._drop = 0.0
        self._bytes_per_s = inf
        self._free_at = 0.0
        "When what was sent before has left."
        self._waiting: deque[tuple[float, Datagrams]] = deque()
        self._bytes = 0
        self._last_due = 0.0

    def change(self, impairment: Impairment | None) -> None:
        """Treat what comes from now on so; None: like any other datagram, behind what waits."""
        self.wanted = impairment is not None
        self._delay = 0.0 if impairment is None else impairment.delay_ms / 1000
        self._jitter = 0.0 if impairment is None else impairment.jitter_ms / 1000
        self._drop = 0.0 if impairment is None else impairment.drop
        megabits = 0.0 if impairment is None else impairment.bandwidth_mbit
        self._bytes_per_s = megabits * 1e6 / 8 or inf

    @property
    def due(self) -> float | None:
        """When the first one that waits arrives; None: nothing is on its way."""
        return self._waiting[0][0] if self._waiting else None

    def put(self, datagrams: Datagrams, now: float) -> None:
        """Send datagrams on their way; they stay together, as they were written or read."""
        if self._drop:
            kept = [data for data in datagrams if self._rng.random() >= self._drop]
            self.dropped += len(datagrams) - len(kept)
            datagrams = kept
        size = sum(map(len, datagrams))
        if self._bytes + size > LANE_BYTES:
            self.overflowed += len(datagrams)
            return
        if not datagrams:
            return
        leaves = max(now, self._free_at) + size / self._bytes_per_s
        if leaves > now + NARROW_S:
            self.overflowed += len(datagrams)
            return
        self._free_at = leaves
        wait = leaves - now + self._delay
        if self._jitter:
            wait += self._rng.uniform(0.0, self._jitter)
        # Never ahead of what was sent before: a path that reorders is another kind of bad.
        self._last_due = max(self._last_due, now + wait)
        self._waiting.append((self._last_due, datagrams))
        self._bytes += size

    def take(self, now: float) -> Datagrams:
        """What has arrived by now."""
        arrived: Datagrams = []
        while self._waiting and self._waiting[0][0] <= now + EARLY_S:
            arrived += self._waiting.popleft()[1]
        if arrived:
            self._bytes -= sum(map(len, arrived))
            self.passed += len(arrived)
        return arrived


class ImpairedSocket:
    """A UDP socket, as an endpoint uses it, with lanes for the peers that are impaired."""

    def __init__(
        self,
        sock: UdpSocket,
        loop: asyncio.AbstractEventLoop,
        readable: Callable[[], None],
        rng: Random | None = None,
    ) -> None:
        self.real = sock
        self.address = sock.address
        self.blocked = sock.blocked
        self._loop = loop
        self._readable = readable
        self._rng = rng or Random()  # noqa: S311 - no secret
        self.outbound: dict[tuple[str, int], Lane] = {}
        self.inbound: dict[tuple[str, int], Lane] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0
        "When the timer is due."

    def change(self, impairments: Sequence[Impairment]) -> bool:
        """Impair these peers and no others; False: nothing is impaired, or on its way, any more."""
        wanted = {(each.peer.host, each.peer.port): each for each in impairments}
        for lanes in (self.outbound, self.inbound):
            for addr in wanted:
                if addr not in lanes:
                    lanes[addr] = Lane(addr, self._rng)
            for addr, lane in lanes.items():
                lane.change(wanted.get(addr))
        self._tidy()
        return bool(self.outbound or self.inbound)

    def send(self, datagrams: Datagrams, addr: Address) -> None:
        """Send datagrams to one address: at once, or by its lane."""
        lane = self.outbound.get(addr[:2])
        if lane is None:
            self.real.send(datagrams, addr)
            return
        lane.addr = addr
        lane.put(datagrams, monotonic())
        self._arm()

    def recv(self) -> list[tuple[bytes, Address]]:
        """What has come, and has arrived by now; empty: nothing yet."""
        now = monotonic()
        try:
            received = self.real.recv()
        except OSError:
            received = []  # a port that answered "unreachable": what is in the lanes counts still
        arrived: list[tuple[bytes, Address]] = []
        inbound = self.inbound
        for data, addr in received:
            lane = inbound.get(addr[:2])
            if lane is None:
                arrived.append((data, addr))
            else:
                lane.addr = addr
                lane.put([data], now)
        for lane in inbound.values():
            arrived += [(data, lane.addr) for data in lane.take(now)]
        self._arm()
        return arrived

    def close(self) -> None:
        """Free the port; what is on its way is lost."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.outbound.clear()
        self.inbound.clear()
        self.real.close()

    def _arm(self) -> None:
        """See to it that what arrives first is seen to; a call that comes too early re-arms."""
        lanes = (*self.outbound.values(), *self.inbound.values())
        due = min((lane.due for lane in lanes if lane.due is not None), default=None)
        if due is None or (self._timer is not None and self._armed <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = due
        wait = max(TIMER_S, due - monotonic() + EARLY_S)
        self._timer = self._loop.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = monotonic()
        for lane in list(self.outbound.values()):
            if datagrams := lane.take(now):
                self.real.send(datagrams, lane.addr)
        self._readable()  # takes what has arrived, and sets the timer again
        self._tidy()

    def _tidy(self) -> None:
        for lanes in (self.outbound, self.inbound):
            for addr, lane in list(lanes.items()):
                if not lane.wanted and lane.due is None:
                    del lanes[addr]
