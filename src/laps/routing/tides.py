"""Who leaves a relay or a link that is too full, and when they come back.

Each flow has a draw, from 0 to 1, at each place. A tide at the place rises while it is too full:
whoever has drawn less than the tide leaves. It stops as soon as the place is too full no longer,
and falls, more slowly, when the place is well below the limit. Between the two it stands.

    too full          it rises                     a flow that has drawn less leaves
    below the limit   it stands
    well below it     it falls, after its hold     a flow that has drawn more comes back

That comes to rest if each flow is a small part of what the place carries. One that is a large part
makes the place too full whenever it comes back. So each time that a place is too full again soon
after flows had come back, they wait twice as long the next time, up to half an hour. Such a flow
takes another way some twelve times in the first hour, and from then on it tries a place twice an
hour. The hold fades, in an hour, while flows are back and there is room for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# How often tides move, and by how much: all flows would have left in half a minute. They come back
# the sooner, the more room there is: in half a minute where the relay does hardly anything.
TIDE_S: Final = 2.0
RISE: Final = 1 / 16
FALL: Final = 1 / 8
LEAST_FALL: Final = 1 / 256

# A first hold is longer than it takes a tide at another place to rise, so that a flow that is too
# much for each of two places finds both closed, and stays.
HOLD_S: Final = 60.0
MOST_HOLD_S: Final = 1800.0
# What is too full this long after flows came back is so because of others. Each time that long
# halves a hold.
SOON_S: Final = 600.0
# No hold is left then.
FORGET_S: Final = 7200.0


@dataclass(slots=True)
class Tide:
    """The tide at one place, for the flows with one limit."""

    level: float = 0.0
    "The share of them that has to leave it."
    hold_s: float = 0.0
    "How long the place has to be full no more before they come back."
    is_full: bool = False
    emptied_at: float = 0.0
    "When it was full no more."
    fell_at: float | None = None
    "When flows came back last; None: it has risen since."

    def move(self, drift: float, now: float) -> bool:
        """Rise, fall or stand; whether it has moved."""
        if drift > 0.0:
            self.is_full = True
            if self.fell_at is not None:
                self._hold_longer(now - self.fell_at)
                self.fell_at = None
            before, self.level = self.level, min(1.0, self.level + drift)
            return self.level != before
        if self.is_full:
            self.is_full, self.emptied_at = False, now
        if drift == 0.0 or self.level == 0.0 or now < self.emptied_at + self.hold_s:
            return False
        self.level = max(0.0, self.level + drift)
        self.fell_at = now
        return True

    def due_at(self, drift: float, next_at: float) -> float | None:
        """When it moves; tides move at `next_at` at the earliest."""
        if (drift > 0.0) != self.is_full:
            return next_at
        if drift > 0.0:
            return next_at if self.level < 1.0 else None
        if drift < 0.0 and self.level > 0.0:
            return max(next_at, self.emptied_at + self.hold_s)
        return None

    def is_over(self, drift: float, now: float) -> bool:
        """Whether there is nothing to remember of it."""
        if drift > 0.0 or self.level > 0.0:
            return False
        return self.fell_at is None or now - self.fell_at > FORGET_S

    def _hold_longer(self, quiet_s: float) -> None:
        """The place is too full again, this long after flows had come back."""
        if quiet_s <= SOON_S:
            self.hold_s = min(max(2 * self.hold_s, HOLD_S), MOST_HOLD_S)
        else:
            faded_s = self.hold_s * 0.5 ** (quiet_s / SOON_S)
            self.hold_s = faded_s if faded_s >= HOLD_S else 0.0
