"""A subscription of an application on one channel: its objects in order, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from laps.client.inflows import Inflow
from laps.client.sequencer import Sequencer
from laps.client.values import object_from
from laps.types import Location
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.messages import UNKNOWN_STREAM_COUNT

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from laps.client.buffers import Buffer
    from laps.client.channel import Channel
    from laps.client.values import Object
    from laps.wire.moqt import objects as wire
    from laps.wire.moqt.messages import PublishDone, RequestError, Subscribe, SubscribeOk

# Streams that PUBLISH_DONE counts and that have not begun are waited for this long,
LINGER_S: Final = 2.0
# and open ones that bring nothing this long.
STALL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The relay has ended the subscription, and all its streams are read."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is over."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """More came than can be held for one who is being given something else first."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What comes cannot be read."""

    error: Exception


Outcome = Ended | Lost | Overrun | Failed


class Consumer(Protocol):
    """Who is given the objects."""

    @property
    def buffer(self) -> Buffer:
        """Where all that waits for it is counted."""

    def deliver(self, items: Iterable[Object]) -> None:
        """Objects in order; their cost is counted already."""

    def stream_closed(self, group: int, subgroup: int | None, *, complete: bool) -> None:
        """A stream has ended, or was given up."""

    def cut_off(self) -> None:
        """The track has ended, and streams that belong to it have not come."""


class Lane:
    """One SUBSCRIBE and what comes of it; nothing is delivered before `release`."""

    def __init__(
        self,
        channel: Channel,
        consumer: Consumer,
        message: Subscribe,
        *,
        ordered: bool,
        patience_s: float,
        max_object_bytes: int,
    ) -> None:
        self.channel = channel
        self.answer: asyncio.Future[SubscribeOk | RequestError] = channel.loop.create_future()
        self.outcome: asyncio.Future[Outcome] = channel.loop.create_future()
        self.first: asyncio.Future[Location | None] = channel.loop.create_future()
        "Where the first object lies that came; None if the relay has ended it without any."
        self.sequencer = Sequencer(
            channel.inbound.is_clear,
            channel.inbound.give_up_missing,
            ordered=ordered,
            patience_s=patience_s,
        )
        self._consumer = consumer
        self._done: PublishDone | None = None
        self._end_of_track = False
        self._progress = 0
        self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._kept = 0
        "What the objects cost that wait here."
        self._over = False
        channel.inbound.on_arrival[self] = self._advance
        self.inflow = Inflow(channel, self, message, max_object_bytes)

    # -- as `SubscriptionSink` ---------------------------------------------------------------------

    def answered(self, answer: SubscribeOk | RequestError) -> None:
        """As `SubscriptionSink`."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def opened(self, group: int, stream_id: int) -> None:
        """As `SubscriptionSink`."""
        self._progress += 1
        self.sequencer.opened(group, stream_id)

    def objects(self, items: list[wire.Object]) -> None:
        """As `SubscriptionSink`."""
        dialect, sequencer = self.channel.dialect, self.sequencer
        self._progress += 1
        if items and not self.first.done():
            self.first.set_result(Location(items[0].group, items[0].object_id))
        passing: list[Object] = []
        cost = 0
        for item in items:
            made = object_from(item, dialect)
            if made.status is ObjectStatus.END_OF_TRACK:
                self._end_of_track = True
            cost += made.cost
            if sequencer.add(made):
                self._kept += made.cost
            else:
                passing.append(made)
        self._consumer.deliver(passing)
        self._consumer.buffer.put(cost)
        if sequencer.waiting:
            self._advance()

    def closed(self, group: int, subgroup: int | None, *, complete: bool, goes_on: bool) -> None:
        """As `SubscriptionSink`."""
        self._progress += 1
        self._consumer.stream_closed(group, subgroup, complete=complete)
        self.sequencer.closed(group, subgroup, complete=complete, goes_on=goes_on)
        if self.sequencer.waiting:
            self._advance()
        self._maybe_over()

    def done(self, message: PublishDone) -> None:
        """As `SubscriptionSink`."""
        if not self.first.done():
            self.first.set_result(None)
        self._done = message
        self._maybe_over()

    def failed(self, error: Exception) -> None:
        """As `SubscriptionSink`."""
        if not self.sequencer.held:
            self._deliver(self.sequencer.flush())
        self._conclude(Failed(error))

    def lost(self) -> None:
        """As `SubscriptionSink`."""
        if not self.answer.done():
            self.answer.set_exception(self.channel.why_closed())
            self.answer.exception()
        if self._all_read() and not self.sequencer.held:
            self._finish()
        else:
            self._conclude(Lost())

    # -- order -------------------------------------------------------------------------------------

    def release(self) -> None:
        """Let objects pass."""
        self.sequencer.held = False
        self._advance()
        self._maybe_over()

    def _advance(self) -> None:
        sequencer, loop = self.sequencer, self.channel.loop
        self._deliver(sequencer.advance(loop.time()))
        deadline = sequencer.deadline
        if deadline is None:
            self._cancel_timer()
        elif self._timer is None or self._timer_at != deadline:
            self._cancel_timer()
            self._timer, self._timer_at = loop.call_at(deadline, self._advance), deadline

    def hurry(self) -> bool:
        """The consumer waits and much is kept here: wait no longer. False if nothing came of it."""
        kept = self._kept
        self._deliver(self.sequencer.force(self.channel.loop.time()))
        return self._kept < kept

    def _deliver(self, items: Iterable[Object]) -> None:
        ready = list(items)
        self._kept -= sum(item.cost for item in ready)
        if ready:
            self._consumer.deliver(ready)

    # -- the end -----------------------------------------------------------------------------------

    def _all_read(self) -> bool:
        if self._done is None or self.inflow.open:
            return False
        count = self._done.stream_count
        return count != UNKNOWN_STREAM_COUNT and self.inflow.streams >= count

    def _maybe_over(self) -> None:
        if self._over or (self._done is None and not self._end_of_track):
            return
        if self._all_read():
            self._finish()
        elif self._linger is None:
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        wait = STALL_S if self.inflow.open else LINGER_S
        self._linger = self.channel.loop.call_later(wait, self._waited, self._progress)

    def _waited(self, progress: int) -> None:
        self._linger = None
        if self._over:
            return
        if progress != self._progress or self.channel.inbound.pool.paused or self.sequencer.held:
            self._wait_for_more()
        else:
            self._finish()

    def _finish(self) -> None:
        if self.sequencer.held:
            return  # what comes first is still on its way
        self._deliver(self.sequencer.flush())
        if self._done is not None:
            count = self._done.stream_count
            if count != UNKNOWN_STREAM_COUNT and self.inflow.streams < count:
                self._consumer.cut_off()
        if self._done is None:
            self._conclude(Ended(DoneCode.TRACK_ENDED))
        else:
            self._conclude(Ended(self._done.code, self._done.reason))

    def overrun(self) -> None:
        """Too much has come ahead of its turn: it has to be asked for again."""
        self._conclude(Overrun())

    def _conclude(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self._stop()

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self._stop()
        self.answer.cancel()
        self.outcome.cancel()
        self.first.cancel()

    def _stop(self) -> None:
        if self._over:
            return
        self._over = True
        self._cancel_timer()
        if self._linger is not None:
            self._linger.cancel()
        self.channel.inbound.on_arrival.pop(self, None)
        self._consumer.buffer.take(self._kept)
        self._kept = 0
        self.inflow.close(tell=self._done is None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
