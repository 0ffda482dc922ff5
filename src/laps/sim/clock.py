"""Virtual time: what is to happen and when, and the one source of chance.

Nothing in a simulation reads a clock or rolls dice of its own, so a seed replays it event by event.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A queue of calls by their time; calls of the same time keep the order they were made in."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = Random(seed)  # noqa: S311 - no secret
        self.below: Callable[[int], int] = self.rng._randbelow  # type: ignore[attr-defined] # noqa: SLF001
        "As `rng.randrange`, which calls nothing else and takes twice the time."
        self.events = 0
        "Calls made so far."
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._chores = 0

    def at(self, time: float, callback: Callable[..., None], *args: object) -> None:
        """Make a call at a time, or now if that is past."""
        self.call_at(time, partial(callback, *args) if args else callback)

    def call_at(self, time: float, call: Callable[[], None]) -> None:
        """As `at`, for what is called most often."""
        heappush(self._queue, (time if time > self.now else self.now, next(self._order), call))

    def after(self, delay_s: float, callback: Callable[..., None], *args: object) -> None:
        """Make a call in a while."""
        self.call_at(self.now + delay_s, partial(callback, *args) if args else callback)

    def every(self, interval_s: float, callback: Callable[[], None]) -> None:
        """Make a call over and over; a clock with nothing else to do is idle."""

        def again() -> None:
            self.after(interval_s, again)
            callback()

        self._chores += 1
        self.after(interval_s, again)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to happen but what is repeated anyway."""
        return len(self._queue) <= self._chores

    def run(self, until: float) -> None:
        """Let happen what is due up to a time; then it is that time."""
        queue, done = self._queue, 0
        try:
            while queue and queue[0][0] <= until:
                self.now, _, call = heappop(queue)
                done += 1
                call()
        finally:
            self.events += done
        self.now = until

    def run_until_idle(self, limit: float) -> bool:
        """Let happen whatever is due, to a limit in time; False if that was reached."""
        queue = self._queue
        while not self.is_idle:
            if queue[0][0] > limit:
                self.now = limit
                return False
            self.now, _, call = heappop(queue)
            self.events += 1
            call()
        return True
