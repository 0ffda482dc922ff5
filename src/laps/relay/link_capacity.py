"""What the link to a peer carries at most, learned where it was the bottleneck.

A link that takes all that it is given shows only that it carries that much. Where data waited for
it all the time, it sent as much as it can; the first interval of several also filled the queues on
the way. So the highest rate of the others is what it carries, over the last KEEP_S; before there
was one, nothing is known and nothing is said.

What is known grows old, for a path may become wider, and flows that left a full link are no longer
there to show it. It is not dropped at once, or else all of them would come back at once: when there
was no such interval for KEEP_S, the link is taken to carry more, twice as much after each GROW_S.
Flows come back a few at a time, and if it is as narrow as before, a few too many show that.

    full = 1              data waits for the link
           rate / most    what it sends of what it carries
           None           nobody knows what it carries
"""

from __future__ import annotations

from collections import deque
from math import exp2
from typing import Final, NamedTuple

KEEP_S: Final = 600.0
GROW_S: Final = 1800.0

# Data waits all the time if it does so for this share of an interval: what waits is not looked at
# at the very moment that an interval begins.
THROUGHOUT: Final = 0.9

# What is sent comes in bursts, and a flow that moves to a link begins with what it had missed: so
# how full a link is, is that of a few intervals.
MEAN_S: Final = 6.0

# A link that sends this much more than it was held to carry, and is no bottleneck, is another.
WIDER: Final = 1.1


class _Interval(NamedTuple):
    sent_bytes: float
    waited_s: float
    passed_s: float


class LinkCapacity:
    """How full one link is."""

    def __init__(self) -> None:
        self._tops: deque[tuple[float, float]] = deque()
        "When it was the bottleneck, and the rate: each lower than the one before, and later."
        self._recent: deque[_Interval] = deque()
        self._was_bottleneck = False
        "In the interval before."

    def read(self, sent_bytes: float, waited_s: float, passed_s: float, now: float) -> float | None:
        """What was sent in an interval, and how long data waited; how full the link is."""
        rate = sent_bytes / passed_s
        self._recent.append(_Interval(sent_bytes, waited_s, passed_s))
        while sum(it.passed_s for it in self._recent) - self._recent[0].passed_s >= MEAN_S:
            self._recent.popleft()
        was_bottleneck = self._was_bottleneck
        self._was_bottleneck = is_bottleneck = waited_s >= THROUGHOUT * passed_s
        if is_bottleneck and was_bottleneck and sent_bytes:
            while self._tops and self._tops[-1][1] <= rate:
                self._tops.pop()
            self._tops.append((now, rate))
        while len(self._tops) > 1 and self._tops[0][0] + KEEP_S < now:
            self._tops.popleft()
        most = self.most(now)
        if most is not None and not is_bottleneck and rate > WIDER * most:
            self._tops.clear()
        return self.full(now)

    def most(self, now: float) -> float | None:
        """The bytes a second that it carries; None: not known."""
        if not self._tops:
            return None
        at, rate = self._tops[0]
        return rate * exp2(max(0.0, now - at - KEEP_S) / GROW_S)

    def full(self, now: float) -> float | None:
        """The share of what it carries that it sends, 0 to 1; None: not known."""
        if (most := self.most(now)) is None:
            return None
        sent_bytes, waited_s, passed_s = map(sum, zip(*self._recent, strict=True))
        if waited_s >= THROUGHOUT * passed_s:
            return 1.0
        return min(1.0, sent_bytes / passed_s / most)
