"""What arrived before its SNS: held for a while and up to a bound, the oldest dropped first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.nodes import SessionId
    from laps.types import SnsId


@dataclass(slots=True)
class Held:
    """A datagram, or the beginning of a stream, that waits for its SNS."""

    deadline: float
    sns_id: SnsId
    stream_id: int | None
    "None for a datagram."
    data: bytes
    fin: bool = False
    size: int = 0


@dataclass(slots=True)
class _Queue:
    """What waits on one link, the oldest first."""

    items: deque[Held] = field(default_factory=deque)
    size: int = 0

    def pop(self) -> Held:
        item = self.items.popleft()
        self.size -= item.size
        return item


class HeldData:
    """What waits for its SNS, on all links."""

    def __init__(self, limit_s: float, limit_bytes: int) -> None:
        """How long an item waits, and how much for each link."""
        self.limit_s = limit_s
        self._limit_bytes = limit_bytes
        self.queues: dict[SessionId, _Queue] = {}
        "By link; there are none where nothing waits."

    def add(self, link_id: SessionId, item: Held, size: int) -> Iterator[Held]:
        """Hold an item; those that are dropped to make room."""
        self.queues.setdefault(link_id, _Queue()).items.append(item)
        return self.grow(link_id, item, size)

    def grow(self, link_id: SessionId, item: Held, size: int) -> Iterator[Held]:
        """More of an item has arrived; those that are dropped to make room."""
        queue = self.queues[link_id]
        item.size += size
        queue.size += size
        while queue.size > self._limit_bytes:
            yield self._pop(link_id, queue)

    def take(self, link_id: SessionId, sns_id: SnsId) -> list[Held]:
        """Those that waited for an SNS, which is known now."""
        queue = self.queues.get(link_id)
        if queue is None:
            return []
        taken = [item for item in queue.items if item.sns_id == sns_id]
        queue.items = deque(item for item in queue.items if item.sns_id != sns_id)
        queue.size -= sum(item.size for item in taken)
        if not queue.items:
            del self.queues[link_id]
        return taken

    def close_link(self, link_id: SessionId) -> None:
        """A link is closed, and what waited on it is of no use."""
        self.queues.pop(link_id, None)

    def expired(self, now: float) -> Iterator[tuple[SessionId, Held]]:
        """Take those that have waited for too long."""
        for link_id, queue in list(self.queues.items()):
            while queue.items and queue.items[0].deadline <= now:
                yield link_id, self._pop(link_id, queue)

    def _pop(self, link_id: SessionId, queue: _Queue) -> Held:
        """Take the oldest of a link; the queue goes with the last."""
        item = queue.pop()
        if not queue.items:
            del self.queues[link_id]
        return item

    def next_expiry(self) -> float | None:
        """When `expired` has something to take."""
        due: float | None = None
        for queue in self.queues.values():
            if queue.items and (due is None or queue.items[0].deadline < due):
                due = queue.items[0].deadline
        return due
