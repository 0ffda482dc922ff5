"""Whether the relay of a session still answers: one that does not is left for another.

QUIC itself takes a relay for lost after its idle timeout of half a minute. Where something is
published or read, a relay that is silent is asked, and left when it has not answered for a second,
or for five if it is the only one.

Asking costs a relay a packet, and it may have ten thousand clients. So one that brings and takes
nothing for a while is asked less often, and what comes then may be some seconds late.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.errors import ConnectionClosed
from laps.net.liveness import LOOK_S, Life, Liveness

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.carrier import Carrier

# A relay that is there answers in a fraction of it, unless its machine stands still.
DEAD_AFTER_S: Final = 1.0

# Where there is no other to go to, a relay that is busy for a moment must not have all its clients
# dial anew; and one that is started again says so itself, with a stateless reset.
ALONE_DEAD_AFTER_S: Final = 5.0

# A session on which nothing was sent or received for so long is quiet; then it is asked this often.
QUIET_S: Final = 5.0


class RelayWatch:
    """Looks at the channel of a session, and closes it when its relay does not answer."""

    def __init__(self, channel: Carrier, needed: Callable[[], bool], *, alone: bool) -> None:
        """`needed` says whether the session is of use to anybody; `alone`: no other is known."""
        self._needed = needed
        self._dead_after_s = ALONE_DEAD_AFTER_S if alone else DEAD_AFTER_S
        self._loop = asyncio.get_running_loop()
        self.follow(channel)
        self._next = self._loop.call_later(LOOK_S, self._look)

    def follow(self, channel: Carrier) -> None:
        """Look at another channel from now on."""
        now = monotonic()
        self._channel = channel
        self._life = Liveness(now, self._dead_after_s)
        self._carried = -1
        self._carried_at = now

    def close(self) -> None:
        """Look no more."""
        self._next.cancel()

    def _look(self) -> None:
        self._next = self._loop.call_later(LOOK_S, self._look)
        channel = self._channel
        transport = channel.transport
        if not channel.alive or not transport.established:
            return
        now = monotonic()
        if (carried := channel.carried) != self._carried:
            self._carried, self._carried_at = carried, now
        silent = transport.last_heard <= now - LOOK_S
        needed = silent and self._is_due(now) and (self._needed() or not channel.idle)
        srtt_s = transport.stats().srtt_us / 1e6 if needed else 0.0
        seen = self._life.look(now, transport.last_heard, srtt_s, needed=needed)
        if seen.ask:
            try:
                transport.ping()
            except ConnectionClosed:
                return
        if seen.life is Life.DEAD:
            channel.give_up(f"no sign of life for {self._life.silent_s:.1f} s")

    def _is_due(self, now: float) -> bool:
        """Whether to ask a relay that is silent: at once, or after a while if all is quiet."""
        last_heard = self._channel.transport.last_heard
        return now < self._carried_at + QUIET_S or now >= last_heard + QUIET_S
