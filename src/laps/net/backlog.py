"""What waits to be sent on a connection, by class of service, and for which classes it is too much.

A class goes ahead of those below it, so what presses on it is what waits of itself and of better
ones. Much of bronze may wait on a narrow link: gold is not held up by it, nor lost.

    pressed     more waits than is good: whoever writes might wait a little
    crowded     half of what may wait does: whoever writes has to wait, or something is dropped soon

Each holds until it is half of what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laps.routing.terms import ORDERS

if TYPE_CHECKING:
    from laps.config import EgressConfig


@dataclass(slots=True)
class ByClass:
    """What became of data, by the place of its class: on all connections of a relay together."""

    sent_bytes: list[int] = field(default_factory=lambda: [0] * ORDERS)
    "Of streams and datagrams."
    waiting_bytes: list[int] = field(default_factory=lambda: [0] * ORDERS)
    "Of streams."
    dropped: list[int] = field(default_factory=lambda: [0] * ORDERS)
    "Streams and datagrams that were too many, or too old."


class Backlog:
    """The bytes that wait, by the place of their class."""

    __slots__ = (
        "_config", "_notable_bytes", "_waiting_bytes", "by_order", "crowded_from", "pressed_from",
        "total",
    )  # fmt: skip

    def __init__(self, config: EgressConfig, all_together: ByClass) -> None:
        self.total = 0
        self.by_order = [0] * ORDERS
        self.pressed_from = ORDERS
        "The best class that is pressed; those below it are too. There may be none."
        self.crowded_from = ORDERS
        self._config = config
        self._waiting_bytes = all_together.waiting_bytes
        self._notable_bytes = min(config.pressure_bytes, config.queue_bytes // 2)

    def add(self, order: int, size: int) -> None:
        """So much more waits of a class, or less."""
        self.total += size
        self.by_order[order] += size
        self._waiting_bytes[order] += size

    def may_press(self, order: int) -> bool:
        """Whether something was added to a class that calls for a review."""
        return self.total > self._notable_bytes and (
            order < self.pressed_from or order < self.crowded_from
        )

    def review(self, *, is_paced: bool) -> bool:
        """See what is too much now; whether that is another.

        Nobody waits for one that is held to its share: it loses what it has no share for.
        """
        config, waiting = self._config, self.total
        pressed = crowded = ORDERS
        for order in reversed(range(ORDERS)):
            is_pressed, is_crowded = order >= self.pressed_from, order >= self.crowded_from
            if waiting > config.pressure_bytes // (1 + is_pressed):
                pressed = order
            if not is_paced and waiting > config.queue_bytes // (2 + 2 * is_crowded):
                crowded = order
            waiting -= self.by_order[order]
        before = self.pressed_from, self.crowded_from
        self.pressed_from, self.crowded_from = pressed, crowded
        return before != (pressed, crowded)


class Stopwatch:
    """For how long something has waited, again and again, as told at each end of it."""

    __slots__ = ("_since_at", "_total_s")

    def __init__(self) -> None:
        self._total_s = 0.0
        self._since_at: float | None = None

    def note(self, now: float, *, waits: bool) -> None:
        """Something waits, or nothing does."""
        if waits:
            if self._since_at is None:
                self._since_at = now
        elif self._since_at is not None:
            self._total_s += now - self._since_at
            self._since_at = None

    def total_s(self, now: float) -> float:
        """How long in all, up to now."""
        return self._total_s + (0.0 if self._since_at is None else now - self._since_at)
