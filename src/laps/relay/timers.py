"""What a relay means to do later."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# 30 µs each.
MOST_CALLS: Final = 100


class Due(Protocol):
    """What has something to do when its time has come, or in pieces, a turn of the loop each."""

    def tick(self, now: float) -> None:
        """Do what has fallen due."""

    def deadline(self) -> float | None:
        """When `tick` wants to be called: a time that is past means in the next turn."""


def earliest(parts: Iterable[Due], due: float | None) -> float | None:
    """When the first of these wants to be called, or something else is due."""
    for part in parts:
        if (at := part.deadline()) is not None and (due is None or at < due):
            due = at
    return due


def tick_due(parts: Iterable[Due], now: float) -> None:
    """Have those of these do something whose time has come, also by what one before it did."""
    for part in parts:
        if (at := part.deadline()) is not None and at <= now:
            part.tick(now)


class Timers:
    """Calls for a time, made in the order of their times."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self.is_sooner = False
        "A call was added since the last `look` that comes before all others."

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def next(self) -> float | None:
        """When the next one is due."""
        return self._calls[0][0] if self._calls else None

    def look(self) -> float | None:
        """As `next`; what is added from now on may be sooner."""
        self.is_sooner = False
        return self._calls[0][0] if self._calls else None

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Make a call at a time, with the time."""
        self.is_sooner = self.is_sooner or not self._calls or when < self._calls[0][0]
        heapq.heappush(self._calls, (when, next(self._order), call))

    def run(self, now: float) -> None:
        """Make the calls that are due, some at a time: a thousand may be for one moment."""
        for _ in range(MOST_CALLS):
            if not self._calls or self._calls[0][0] > now:
                break
            _, _, call = heapq.heappop(self._calls)
            call(now)
