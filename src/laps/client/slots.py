"""Whose request goes out next, where a relay allows a session only so many at once.

Request ids follow each other without a gap, so that a request which has its id and may not be sent
yet holds up all that follow. Who wants to ask therefore waits here, and takes an id only when it
can be sent at once.

A subscription and a publication last; a FETCH, and whatever else is asked, comes to its end by
itself. A subscription may need a FETCH before its first object, and again later. If lasting
requests took every slot, all of them would wait for FETCHes that none of them makes room for. So
while there are subscriptions, lasting requests leave some slots free.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.sessions.moqt import MoqtSession

log = logging.getLogger(__name__)

# One slot in so many is left to FETCHes, and one at least: with 1,000 slots 20 run side by side.
SLOTS_PER_SPARE: Final = 50

# A wait that lasts so long is worth a warning; shorter ones come with every change of hands.
WARN_S: Final = 1.0

# Questions that a relay has answered with "not there" are repeated so far apart at least, all
# those of a session together: a thousand subscriptions to tracks that nobody publishes cost a relay
# no more than a hundred requests a second.
REPEAT_S: Final = 0.01


class Need(IntEnum):
    """What a request is; the most urgent first."""

    PASSING = 0
    "It comes to its end by itself."
    PUBLISH = 1
    "It lasts, and needs nothing else."
    SUBSCRIBE = 2
    "It lasts, and may need a FETCH."


class Slots:
    """The requests that one channel may have open."""

    def __init__(
        self,
        session: MoqtSession,
        loop: asyncio.AbstractEventLoop,
        subscriptions: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """`subscriptions` counts those that are open; `changed` is called when waiting changes."""
        self._session = session
        self._loop = loop
        self._subscriptions = subscriptions
        self._changed = changed
        self._limit = 0
        "How many the relay allows at once; 0 while it allows none."
        self._queues: dict[Need, deque[asyncio.Future[bool]]] = {need: deque() for need in Need}
        self._granted = 0
        "Slots that were given to somebody whose task has not run yet."
        self._granted_subscriptions = 0
        self._warned = False
        self._warning: asyncio.TimerHandle | None = None
        self._repeat_at = 0.0
        self._over = False
        self._left = False
        "There is another channel to go to: nothing that lasts begins here."

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return sum(map(len, self._queues.values()))

    def may(self, need: Need) -> bool:
        """Whether a request can be sent now."""
        return self._waits_for(need) == 0 and self._has_room(need)

    def _waits_for(self, need: Need) -> int:
        """How many come first."""
        return sum(len(queue) for other, queue in self._queues.items() if other <= need)

    def _has_room(self, need: Need) -> bool:
        self._limit = self._limit or self._session.ids.most // 2
        spare = 0
        if need is not Need.PASSING:
            subscriptions = self._subscriptions() + self._granted_subscriptions
            subscriptions += need is Need.SUBSCRIBE
            most = min(max(1, self._limit // SLOTS_PER_SPARE), max(0, self._limit - 1))
            spare = min(most, subscriptions)
        return self._session.ids.left - self._granted > spare

    async def take(self, need: Need) -> bool:
        """Wait until a request can be sent; then send it at once.

        False if the channel is closed, or is being left and nothing that lasts begins on it.
        """
        if self._over or (self._left and need is not Need.PASSING):
            return False
        if self.may(need):
            return True
        future: asyncio.Future[bool] = self._loop.create_future()
        queue = self._queues[need]
        queue.append(future)
        self._session.say_blocked()
        if self._warning is None and not self._warned:
            self._warning = self._loop.call_later(WARN_S, self._warn)
        self._changed()
        try:
            taken = await future
        except asyncio.CancelledError:
            if future in queue:
                queue.remove(future)
            elif not future.cancelled() and future.result():
                self._give_back(need)
            self.review()
            raise
        if taken:
            self._give_back(need)
        return taken

    def _give_back(self, need: Need) -> None:
        self._granted -= 1
        self._granted_subscriptions -= need is Need.SUBSCRIBE

    def review(self) -> None:
        """More is allowed, or somebody has stopped waiting: let those go whose turn has come."""
        for need, queue in self._queues.items():
            while queue and self._has_room(need):
                future = queue.popleft()
                if future.done():
                    continue  # its task was cancelled, and has not run yet
                self._granted += 1
                self._granted_subscriptions += need is Need.SUBSCRIBE
                future.set_result(True)
            if queue:
                break
        if self.waiting:
            self._session.say_blocked()
        elif self._warning is not None:
            self._warning.cancel()
            self._warning = None
        self._changed()

    def _warn(self) -> None:
        self._warning = None
        self._warned = True
        log.warning(
            "the relay allows no more requests on this session (clients.requests there, %d): "
            "%d wait until something else has ended; open another session",
            self._limit,
            self.waiting,
        )

    async def repeat(self) -> None:
        """Wait until a question may be repeated."""
        now = self._loop.time()
        self._repeat_at = max(now, self._repeat_at + REPEAT_S)
        if self._repeat_at > now:
            await asyncio.sleep(self._repeat_at - now)

    def left(self) -> None:
        """There is another channel to go to."""
        self._left = True
        self._send_away(Need.PUBLISH, Need.SUBSCRIBE)

    def closed(self) -> None:
        """The channel is closed: nobody's turn comes."""
        self._over = True
        self._send_away(*Need)
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None

    def _send_away(self, *needs: Need) -> None:
        for need in needs:
            queue = self._queues[need]
            while queue:
                future = queue.popleft()
                if not future.done():
                    future.set_result(False)
