"""A track that an application publishes in QUICR."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from laps.client.publication import ANSWER_S, Publication, group_of_now
from laps.client.quicr.channel import QuicrChannel
from laps.client.quicr.outflow import QuicrOutflow, Written
from laps.client.quicr.showing import refused
from laps.client.tokens import NO_TOKEN
from laps.client.values import payload_of
from laps.errors import LapsError, LocalProtocolError, SessionClosed
from laps.names import track_text
from laps.types import Location
from laps.wire.quicr.carried import quicr_priority
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES
from laps.wire.quicr.names import encode_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.client.quicr.session import QuicrSession
    from laps.client.tokens import TokenSource
    from laps.types import TrackName
    from laps.wire.moqt.messages import KeyValue

log = logging.getLogger(__name__)

# A stream that the relay resets is opened again, so often,
RESETS: Final = 3
# and not at once.
RESET_WAIT_S: Final = 0.2

# A relay closes its half when it has seen to the end: in datagrams it waits for late ones first.
CLOSE_S: Final = 2.0


class QuicrTrack(Publication[QuicrChannel]):
    """A track that you publish; `publish` makes it.

    All of its objects go on its stream, or all in datagrams: the first one decides.
    """

    def __init__(
        self,
        session: QuicrSession,
        name: TrackName,
        *,
        priority: int,
        datagrams: bool | None,
        delivery_timeout_s: float | None,
        first_group: int | None,
        history_bytes: int,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        super().__init__(session, name, history_bytes, token)
        self.wire_name = encode_name(name)
        self.datagrams = datagrams
        "Whether objects go in datagrams; None: nothing has been written yet."
        self.priority = priority
        self.quicr_priority = quicr_priority(priority)
        self._timeout = delivery_timeout_s
        self._next_group = group_of_now() if first_group is None else first_group
        self._group: int | None = None
        self._next_id = 0
        self._objects_before = 0
        self._flow: QuicrOutflow | None = None
        self._unsent: list[Written] = []
        "What waited on a channel that was lost."
        self._delivered = 0
        "Up to which object relays have all of it."
        self._left: list[QuicrOutflow] = []
        "Where it was published before, and something is on its way."
        self._handing: asyncio.Task[None] | None = None
        self._resets = 0

    # -- writing -----------------------------------------------------------------------------------

    async def write(
        self, payload: bytes, *, new_group: bool = False, extensions: Sequence[KeyValue] = ()
    ) -> Location:
        """Send the next object of the current group, or the first of a new one.

        Where it lies in the track is returned. Waits while the relay is slower than you are, and
        raises what the relay had against the track, if it had.
        """
        return await self._write(payload, False, new_group, False, extensions)

    async def datagram(
        self,
        payload: bytes,
        *,
        new_group: bool = False,
        discardable: bool = False,
        extensions: Sequence[KeyValue] = (),
    ) -> Location:
        """Send the next object in datagrams: it arrives soon, or not at all.

        It may be larger than a datagram: then it is cut, and comes whole or not at all. What is
        `discardable` is dropped first where there is too much.
        """
        return await self._write(payload, True, new_group, discardable, extensions)

    async def _write(
        self,
        payload: bytes,
        datagrams: bool,
        new_group: bool,
        discardable: bool,
        extensions: Sequence[KeyValue],
    ) -> Location:
        payload = payload_of(payload)
        if extensions:
            raise LocalProtocolError("objects of QUICR have no extensions: publish with moqt://")
        if len(payload) > MAX_OBJECT_BYTES:
            raise LocalProtocolError(
                f"an object of {len(payload)} bytes is too large: relays take {MAX_OBJECT_BYTES}"
            )
        self._check()
        await self._decide(datagrams)
        await self.room()
        if new_group or self._group is None:
            self.end_group()
            self._group, self._next_group = self._next_group, self._next_group + 1
            self._objects_before, self._next_id = self._next_id, 0
        entry = Written(
            self.history.sequence + 1,
            self._group,
            None if datagrams else 0,
            self._next_id,
            payload,
            at=self._session.loop.time(),
            objects_before=self._objects_before,
            discardable=discardable,
        )
        self._next_id += 1
        self.history.add(entry)
        if self._flow is not None and self._flow.alive:
            self._flow.put(entry)
        else:
            self._unsent.append(entry)
        return entry.location

    def end_group(self) -> None:
        """End the current group: the next object begins another one."""
        self._group = None

    def group(self, *_: object, **__: object) -> NoReturn:
        """As MoQT has it: streams beside each other, and numbers of your own."""
        raise LapsError(
            "QUICR has no subgroups, and numbers objects itself: use write(…, new_group=True), "
            "or publish with moqt://"
        )

    async def _decide(self, datagrams: bool) -> None:
        """The first object settles how all of them go."""
        if self.datagrams is None:
            self.datagrams = datagrams
            self.attach(await self._session.channel())
        elif self.datagrams is not datagrams:
            name = track_text(self.full_name)
            raise LocalProtocolError(
                f"{name} goes in datagrams: use datagram(), or another track for write()"
                if self.datagrams
                else f"{name} goes on its stream: use write(), or another track for datagram()"
            )

    async def _flows_have_room(self) -> None:
        while True:
            flow = self._flow
            if flow is not None and flow.alive:
                if flow.has_room:
                    return
                await flow.room()
            elif self._session.connected:
                self._changed.clear()  # it is about to be published anew
                await self._changed.wait()
            else:
                await self._session.channel()
            self._check()

    def is_expired(self, entry: Written) -> bool:
        """Whether an object is too old to be sent."""
        return self._timeout is not None and self._age(entry) >= self._timeout

    def left_ms(self, entry: Written) -> int:
        """For how long an object is still of use; 0: nobody said."""
        if self._timeout is None:
            return 0
        return max(1, round((self._timeout - self._age(entry)) * 1000))

    def _age(self, entry: Written) -> float:
        return self._session.loop.time() - entry.at

    # -- who wants it ------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether the relay has taken it: it takes all that is published."""
        return self._flow is not None and self._flow.alive and self._flow.answered

    async def wait_wanted(self) -> None:
        """Wait until the relay has taken it; if nothing was written, it will be on a stream."""
        if self.datagrams is None:
            await self._decide(False)
        await super().wait_wanted()

    # -- from channel to channel -------------------------------------------------------------------

    def attach(self, channel: QuicrChannel) -> None:
        """Publish on a channel; what no relay may have of it is sent again."""
        old = self._flow
        if self.datagrams is None or self.failed:
            return
        waiting = self._unsent
        if old is not None and old.alive:
            if old.finished or old.channel is channel:
                return  # all of it is there, or on its way
            waiting = old.leave()
        elif old is not None and not old.in_datagrams:
            again = {entry.sequence: entry for entry in self._unsent} | self._undelivered()
            waiting = [again[number] for number in sorted(again)]
        self._unsent = []
        if old is not None and old.leaving:
            self._left.append(old)
        # A stream goes on, and never back: what was sent elsewhere has to have arrived first.
        held = bool(self._left) and not self.datagrams
        flow = QuicrOutflow(channel, self, waiting, last=self._delivered, held=held)
        self._flow = flow
        if self._left:
            if self._handing is not None:
                self._handing.cancel()
            self._handing = asyncio.ensure_future(self._hand_over(flow))
        self._changed.set()

    async def _hand_over(self, flow: QuicrOutflow) -> None:
        """Wait for what is on its way to relays that are left; what they lose goes on here."""
        again: dict[int, Written] = {}
        for old in list(self._left):
            try:
                await old.arrived()
                self._delivered = max(self._delivered, old.sent)
            except SessionClosed:
                self._delivered = max(self._delivered, old.arrivals.delivered)
                again = self._undelivered()
            old.left()
            self._left.remove(old)
        if flow.held:
            again.update((entry.sequence, entry) for entry in flow.queue)
            flow.sent = max(flow.sent, self._delivered)
            flow.go_on(again[number] for number in sorted(again))

    def _undelivered(self) -> dict[int, Written]:
        """What may not have arrived, and what comes before it in its group.

        Between relays a group goes by its first object: what begins elsewhere is not taken for the
        rest of a stream that broke off.
        """
        entries = list(self.history.since(self._delivered))
        if entries:
            first = entries[0].location
            entries += self.history.between(Location(first.group, 0), first)
        return {entry.sequence: entry for entry in entries if isinstance(entry, Written)}

    def lost(self, flow: QuicrOutflow) -> None:
        """The connection to a relay is over."""
        if flow is self._flow:
            self._delivered = max(self._delivered, flow.arrivals.delivered)
            unsent = list(flow.queue)
            # The rest of an object in datagrams is of no use.
            self._unsent = unsent[flow.begun :] if flow.in_datagrams else unsent
        self._changed.set()

    def refused(self, code: int, reason: str) -> None:
        """The relay does not take it."""
        self.fail(refused(f"publishing {track_text(self.full_name)}", code, reason))

    def reset(self, flow: QuicrOutflow) -> None:
        """The relay has given the stream up, and not said why: try again, a few times."""
        self.lost(flow)
        self._resets += 1
        if self._resets > RESETS:
            self.refused(QuicrCode.CANCELLED, "the relay resets its stream again and again")
            return
        channel = flow.channel

        def again() -> None:
            if channel.alive and self._flow is flow and not channel.superseded.is_set():
                self.attach(channel)

        channel.loop.call_later(RESET_WAIT_S, again)

    # -- the end -----------------------------------------------------------------------------------

    async def _end_on(self, channel: QuicrChannel) -> None:
        if self.datagrams is None:
            await self._decide(False)
        if self._flow is None or not self._flow.alive:
            self.attach(channel)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while not self.wanted and not self.failed and channel.alive:
                    self._changed.clear()
                    await self._changed.wait()
        flow = await self._all_sent(channel)
        flow.finish()
        await flow.channel.acknowledged()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await flow.closed_there()

    async def _all_sent(self, channel: QuicrChannel) -> QuicrOutflow:
        """Where it is published, when the relay has all of it; SessionClosed if that is gone."""
        while True:
            flow = self._flow
            if self._failure is not None:
                raise self._failure
            if flow is None or not flow.alive:
                raise channel.why_closed()
            if flow.queue or flow.held:
                await flow.emptied()
            else:
                # What is in datagrams has to be there ahead of what ends it.
                await flow.channel.acknowledged()
                if flow is self._flow and not flow.queue:
                    return flow
