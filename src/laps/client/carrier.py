"""A connection to a relay, whatever is spoken on it: what is sent, what is read, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from laps.client.buffers import BufferPool
from laps.config import EgressConfig
from laps.errors import ConnectionClosed, SessionClosed
from laps.net.egress import Egress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.net.transport import Transport

# A publisher waits with the next object when this much waits to be sent; 60 ms at 125 Mbit/s.
PRESSURE_BYTES: Final = 1024 * 1024

# The same of datagrams: each takes memory beside its bytes.
DATAGRAM_BYTES: Final = 64 * 1024

# Nothing of a publisher's is dropped: it waits instead, so the queue needs no bound of its own.
UNBOUNDED: Final = 1 << 60

# How often a sender looks whether all that it sent was acknowledged.
ACKNOWLEDGED_POLL_S: Final = 0.01


class Carrier:
    """One connection to a relay; a channel of each protocol is its receiver."""

    def __init__(self, transport: Transport, *, expired_code: int, full_code: int) -> None:
        """The codes tell why a stream of ours was reset."""
        self.loop = asyncio.get_running_loop()
        self.transport = transport
        self.egress = Egress(
            transport,
            EgressConfig(queue_bytes=UNBOUNDED, pressure_bytes=PRESSURE_BYTES),
            expired_code=expired_code,
            full_code=full_code,
        )
        self.pool = BufferPool(self._pause, lambda: self.asking)
        self.leaving: asyncio.Future[str] = self.loop.create_future()
        "Done when the relay has said that it leaves: the URL to go to; empty: dial the same again."
        self.superseded = asyncio.Event()
        "Set when there is another channel to go to."
        self.over: asyncio.Future[ConnectionClosed] = self.loop.create_future()
        self.given_up = False
        "The relay did not answer any more."
        self.received = 0
        "How often something came."
        self._room: list[asyncio.Future[None]] = []
        self._flushed: list[asyncio.Future[None]] = []
        transport.tick = self._tick

    @property
    def alive(self) -> bool:
        """Whether the connection stands."""
        return not self.over.done()

    @property
    def asking(self) -> bool:
        """Whether somebody waits for an answer."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether nothing is open on it."""
        raise NotImplementedError

    def why_closed(self) -> SessionClosed:
        """Why nothing more can be asked."""
        if self.over.done():
            return SessionClosed(f"the session with the relay is over: {self.over.result()}")
        return SessionClosed("the session with the relay is over")

    async def until(self, *futures: asyncio.Future[Any]) -> None:
        """Wait for one of these, or until there is another channel to go to."""
        superseded = asyncio.ensure_future(self.superseded.wait())
        try:
            await asyncio.wait((*futures, superseded), return_when=asyncio.FIRST_COMPLETED)
        finally:
            superseded.cancel()

    def close(self, code: int = 0, reason: str = "") -> None:
        """End the session; in MoQT and QUICR alike 0 says that nothing is wrong."""
        if self.transport.established:
            self.transport.close(code, reason)

    @property
    def carried(self) -> int:
        """A number that changes when something was sent or came."""
        counters = self.egress.counters
        return self.received + counters.stream_bytes + counters.datagrams

    def give_up(self, reason: str) -> None:
        """The relay does not answer: end the session."""
        self.given_up = True
        self.transport.abort(0, reason)

    def leave(self) -> None:
        """There is another channel to go to."""
        self.superseded.set()

    # -- publishing --------------------------------------------------------------------------------

    def may_publish(self) -> bool:
        """Whether the relay can be told of another track now."""
        return True

    async def publishable(self) -> bool:
        """Wait until it can; False if the channel is closed, or there is another one."""
        return self.alive

    # -- sending -----------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether little enough waits to be sent."""
        egress = self.egress
        return not egress.pressed and egress.queued_datagram_bytes < DATAGRAM_BYTES

    async def room(self) -> None:
        """Wait until little enough waits to be sent."""
        while self.alive and not self.has_room:
            future: asyncio.Future[None] = self.loop.create_future()
            self._room.append(future)
            await future

    async def flushed(self) -> None:
        """Wait until all that was written has been sent once."""
        if not self.alive:
            raise self.why_closed()
        future: asyncio.Future[None] = self.loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self._flushed.append(future)
        self.egress.when_flushed(done)
        try:
            await future
        finally:
            self._flushed.remove(future)

    @property
    def quiet(self) -> bool:
        """Whether all that was written has been acknowledged, as far as QUIC tells."""
        transport = self.transport
        return (
            not self.egress.queued_bytes
            and not self.egress.queued_datagram_bytes
            and not transport.buffered_bytes
            and not transport.stats().in_flight_bytes
        )

    async def acknowledged(self) -> None:
        """Wait until the relay has all that was written."""
        await self.flushed()
        while self.alive:
            if self.quiet:
                return
            # QUIC has no event for it: packets in flight are the only sign.
            await asyncio.sleep(ACKNOWLEDGED_POLL_S)
        raise self.why_closed()

    def _tick(self, now: float) -> None:
        self.egress.tick(now)

    def writable(self) -> None:
        """As `Receiver`."""
        self.egress.writable()
        if self._room and self.has_room:
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    # -- reading -----------------------------------------------------------------------------------

    def _pause(self, paused: bool) -> None:
        if paused:
            self.transport.pause_reading()
        else:
            # It is read at once, and whoever is being called may not be done yet.
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.pool.paused and self.transport.established:
            self.transport.resume_reading()

    # -- the end -----------------------------------------------------------------------------------

    def closed(self, close: ConnectionClosed) -> None:
        """As `Receiver`."""
        if self.over.done():
            return
        self.over.set_result(close)
        error = self.why_closed()
        for future in (*self._flushed, *self._unanswered()):
            if not future.done():
                future.set_exception(error)
        for waiting in self._room:
            if not waiting.done():
                waiting.set_result(None)
        self.leaving.cancel()
        self._lost()

    def _unanswered(self) -> Iterable[asyncio.Future[Any]]:
        """Those that are told that no answer will come."""
        raise NotImplementedError

    def _lost(self) -> None:
        """Tell whoever lives on this channel."""
        raise NotImplementedError


C = TypeVar("C", bound=Carrier)
C_co = TypeVar("C_co", bound=Carrier, covariant=True)
