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

from laps.net.liveness import LOOK_S, Life
from laps.net.sign_of_life import SignOfLife

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
        self._sign: SignOfLife | None = None
        self.follow(channel)
        self._next = self._loop.call_later(LOOK_S, self._look)

    def follow(self, channel: Carrier) -> None:
        """Look at another channel from now on."""
        now = monotonic()
        self._channel = channel
        if self._sign is not None:
            self._sign.close()
        self._sign = SignOfLife(channel.transport, now, self._dead_after_s, dialled=True)
        self._carried = -1
        self._carried_at = now

    def close(self) -> None:
        """Look no more."""
        self._next.cancel()
        if self._sign is not None:
            self._sign.close()

    def _look(self) -> None:
        self._next = self._loop.call_later(LOOK_S, self._look)
        channel, sign = self._channel, self._sign
        transport = channel.transport
        if sign is None or not channel.alive or not transport.established:
            return
        now = monotonic()
        if (carried := channel.carried) != self._carried:
            self._carried, self._carried_at = carried, now
        silent = transport.last_heard <= now - LOOK_S
        needed = silent and self._is_due(now) and (self._needed() or not channel.idle)
        srtt_s = transport.stats().srtt_us / 1e6 if needed else 0.0
        if sign.look(now, srtt_s, needed=needed) is Life.DEAD:
            channel.give_up(sign.words)

    def _is_due(self, now: float) -> bool:
        """Whether to ask a relay that is silent: at once, or after a while if all is quiet."""
        last_heard = self._channel.transport.last_heard
        return now < self._carried_at + QUIET_S or now >= last_heard + QUIET_S
