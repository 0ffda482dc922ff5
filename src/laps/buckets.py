"""A token bucket: so much a second, and a burst of it at once.

    bucket = Bucket(rate=100, burst=500)
    if not bucket.take(1, now):                  # for what is refused when it is too much
        retry_s = bucket.wait_s(now, 1)
    bucket.spend(len(data), now)                 # for what is shaped: it may go into debt,
    pause_s = bucket.wait_s(now)                 # and the next waits until that is paid

The time is an argument, in seconds of any clock that goes on.
"""

from __future__ import annotations

from math import inf
from typing import Final

# Whoever is in debt waits until this much has gathered again, so that no byte wakes it.
WAKE_S: Final = 0.01


# Whoever comes back just when it was told to must not be refused for the last bit of a float.
ROUNDING: Final = 1e-6


class Bucket:
    """What may be had in a second, and at once."""

    __slots__ = ("_filled_at", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        """It begins full. A rate of 0 has no burst either: nothing may be had."""
        self.rate = rate
        self.burst = burst if rate else 0.0
        self._level = self.burst
        self._filled_at = -inf

    def take(self, amount: float, now: float) -> bool:
        """Have an amount if it is there; False, and nothing is taken, if it is not."""
        self._fill(now)
        if self._level + ROUNDING < amount:
            return False
        self._level -= amount
        return True

    def spend(self, amount: float, now: float) -> None:
        """Have an amount, there or not: what comes next waits for it."""
        self._fill(now)
        self._level -= amount

    def wait_s(self, now: float, amount: float = 0.0) -> float:
        """How long until an amount is there, or, without one, until no debt is left."""
        self._fill(now)
        if self._level >= amount and self._level > 0:
            return 0.0
        if not self.rate:
            return inf
        wanted = amount or min(self.burst, self.rate * WAKE_S)
        return max(0.0, wanted - self._level) / self.rate

    def is_full(self, now: float) -> bool:
        """Whether it is as if nothing had ever been taken."""
        self._fill(now)
        return self._level >= self.burst

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            gained = (now - self._filled_at) * self.rate if self.rate else 0.0
            self._level = min(self.burst, self._level + gained)
            self._filled_at = now
