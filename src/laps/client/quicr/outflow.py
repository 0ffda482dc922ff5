"""A track of ours on one channel: PUBLISH_INTENT, and its objects in fragments.

Objects wait in a queue here, and go out a piece at a time while the connection has room: so that a
large one neither fills the memory of the connection nor holds up other tracks.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laps.client.arrivals import Arrivals
from laps.client.history import Entry
from laps.errors import TransportError
from laps.types import Location
from laps.wire.quicr.carried import CARRIED_BYTES
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.messages import (
    DATAGRAM_HEAD_BYTES,
    MAX_FRAGMENT_BYTES,
    Fin,
    Fragment,
    PublishIntent,
    PublishIntentOk,
    Response,
    StartPoint,
    SubscribeCancel,
    SubscribeReply,
    Terms,
    encode_datagram,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from laps.client.quicr.channel import QuicrChannel
    from laps.client.quicr.track import QuicrTrack
    from laps.sessions.quicr import ControlStream
    from laps.wire.quicr.messages import Message

_FIRST: Final = Location(0, 0)


@dataclass(slots=True)
class Written(Entry):
    """An object, and on what terms it travels."""

    at: float = 0.0
    "When it was written."
    objects_before: int = 0
    "How many objects the group before had."
    discardable: bool = False


class QuicrOutflow:
    """A track on one channel; a `StreamUser`."""

    def __init__(
        self,
        channel: QuicrChannel,
        track: QuicrTrack,
        waiting: Iterable[Written],
        *,
        last: int,
        held: bool = False,
    ) -> None:
        """`waiting` is what is to be sent; objects up to number `last` have been delivered."""
        self.channel = channel
        self.track = track
        self.queue: deque[Written] = deque(waiting)
        self.answered = False
        self.held = held
        "Another relay is being left: nothing goes out ahead of what is on its way there."
        self.leaving = False
        "The track has gone elsewhere: what is begun is finished here."
        self.finished = False
        self.arrivals = Arrivals(channel)
        self._stream: ControlStream | None = None
        self._datagram_id: int | None = None
        self._offset = 0
        "How much of the first object of the queue has been sent."
        self._next: Location | None = None
        "What may follow without a START_POINT,"
        self._begun = False
        "and whether the first object of the next group may, too."
        self.sent = last
        "Up to which object all has been sent, here or elsewhere."
        self._waiters: list[asyncio.Future[None]] = []
        channel.flows[self] = None
        channel.awaits(self, False)
        self.token = track.token
        channel.open(PublishIntent(track.wire_name, bool(track.datagrams)), self, token=self.token)

    @property
    def alive(self) -> bool:
        """Whether objects can be sent on it."""
        return self in self.channel.flows and self.channel.alive

    @property
    def in_datagrams(self) -> bool:
        """Whether the relay takes it in datagrams."""
        return self._datagram_id is not None

    @property
    def begun(self) -> bool:
        """Whether a part of the first object that waits has been sent."""
        return self._offset > 0

    # -- as `StreamUser` ---------------------------------------------------------------------------

    def opened(self, stream: ControlStream) -> None:
        """As `StreamUser`."""
        self._stream = stream
        self._pump()

    def said(self, message: Message) -> None:
        """As `StreamUser`."""
        match message:
            case PublishIntentOk(datagram_stream_id):
                self.answered = True
                self.channel.awaits(self, True)
                if self.track.datagrams:
                    self._datagram_id = datagram_stream_id
                self.track.changed()
                self._pump()
            case SubscribeReply(Response.FAIL | Response.EXPIRED as response, reason):
                self._refused(response, reason)
            case SubscribeCancel(_, reason):
                self._refused(QuicrCode.CANCELLED, reason or "the relay does not want it any more")
            case _:
                pass  # a redirect: where to is said next

    def closed(self, well: bool) -> None:
        """As `StreamUser`."""
        stream = self._stream
        if self.finished or self.leaving:
            self._over()
        elif well:
            self._refused(QuicrCode.CANCELLED, "the relay has closed its stream")
        else:
            self._over()
            self.track.reset(self)
        if stream is not None and not stream.closed_here:
            self.channel.session.abandon(stream, QuicrCode.CANCELLED)

    def lost(self) -> None:
        """As `StreamUser`."""
        self._over()
        self.track.lost(self)

    def tick(self, now: float) -> None:
        """As `StreamUser`."""
        if not self.queue:
            self.arrivals.mark(self.sent)

    def _refused(self, code: int, reason: str) -> None:
        self._over()
        self.track.refused(code, reason)

    def _over(self) -> None:
        self.channel.flows.pop(self, None)
        self.channel.release(self, self._stream)
        self._wake()

    # -- objects -----------------------------------------------------------------------------------

    def put(self, entry: Written) -> None:
        """Send an object behind those that wait."""
        self.queue.append(entry)
        self._pump()

    def _pump(self) -> None:
        while self.channel.has_room and self.step():
            pass

    def step(self) -> bool:
        """Send a piece of what waits; False if nothing can be sent now."""
        stream = self._stream
        if not self.queue or stream is None or self.held or not self.alive:
            return False
        if self.track.datagrams and not self.answered:
            return False  # it is not known yet how the datagrams are to be called
        entry = self.queue[0]
        if not self._offset:
            if self.track.is_expired(entry):
                self._done(entry)
                return bool(self.queue)
            self._say_start(stream, entry.location)
        room = self._datagram_room() if self._datagram_id is not None else 0
        payload = memoryview(entry.payload)
        part = payload[self._offset : self._offset + (room or MAX_FRAGMENT_BYTES)]
        last = self._offset + len(part) == len(payload)
        fragment = Fragment(entry.group, entry.id, self._offset, part, last)
        if room:
            self._send_datagram(fragment, entry)
        else:
            self.channel.session.send(stream, fragment)
        self._offset += len(part)
        if last:
            self._next, self._begun = Location(entry.group, entry.id + 1), True
            self._done(entry)
        return bool(self.queue)

    def _done(self, entry: Written) -> None:
        self.sent = entry.sequence
        self._offset = 0
        self.queue.popleft()
        if not self.queue:
            self._wake()

    def _say_start(self, stream: ControlStream, place: Location) -> None:
        """Say where the media goes on, unless that follows from what came before."""
        expected = self._next or _FIRST
        if place == expected:
            return
        if self._begun and place == Location(expected.group + 1, 0):
            return
        self.channel.session.send(stream, StartPoint(place))
        self._next, self._begun = place, False

    def _datagram_room(self) -> int:
        """The bytes of an object that fit a datagram; 0 if the path carries none."""
        limit = self.channel.transport.datagram_limit_bytes - DATAGRAM_HEAD_BYTES
        return max(0, min(limit, CARRIED_BYTES))

    def _send_datagram(self, fragment: Fragment, entry: Written) -> None:
        left_ms = self.track.left_ms(entry)
        terms = Terms(left_ms, self.track.quicr_priority, entry.discardable, entry.objects_before)
        data = encode_datagram(self._datagram_id or 0, fragment, terms)
        rank: Any = (entry.discardable, terms.priority)
        with suppress(TransportError):  # it may be lost here as well as on its way
            self.channel.egress.send_datagram(data, rank, left_ms * 1000)

    # -- waiting -----------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether another object may be written."""
        return not self.queue and self.channel.has_room

    async def room(self) -> None:
        """Wait until another object may be written here, or never."""
        while self.alive and not self.leaving and not self.has_room:
            if self.queue:
                await self._change()
            else:
                await self.channel.room()

    async def emptied(self) -> None:
        """Wait until all that was put here is sent; SessionClosed if it cannot be."""
        while self.queue or self.held:
            if not self.alive:
                raise self.channel.why_closed()
            await self._change()

    async def arrived(self) -> None:
        """Wait until the relay has all that was put here; SessionClosed if it has not."""
        await self.emptied()
        await self.channel.acknowledged()

    async def closed_there(self) -> None:
        """Wait until the relay has closed its half too, or is gone."""
        while self.alive:
            await self._change()

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = self.channel.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- its end -----------------------------------------------------------------------------------

    def go_on(self, waiting: Iterable[Written]) -> None:
        """What was held may go out: `waiting`, and nothing else."""
        self.held = False
        self.queue = deque(waiting)
        self._wake()
        self._pump()

    def left(self) -> None:
        """The track has left this relay, which has all that was begun here."""
        self._over()

    def leave(self) -> list[Written]:
        """The track goes on elsewhere, at the next object; those that have not begun."""
        self.leaving, self.held = True, False
        begun = [self.queue.popleft()] if self.begun else []
        rest = list(self.queue)
        self.queue = deque(begun)
        self._wake()
        return rest

    def finish(self) -> None:
        """The track has ended."""
        self.finished = True
        stream = self._stream
        if stream is not None:
            if self.in_datagrams:
                self.channel.session.send(stream, Fin(self._next or _FIRST))
            self.channel.session.close(stream)
