"""The last sequences that nodes gave to what they said, kept where the thing itself is not.

A word that arrives late must not undo a newer one. Where a thing is held, its sequence is held with
it; where it was withdrawn, or is only passed on, the sequence is kept alone for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from laps.tables import Table

if TYPE_CHECKING:
    from laps.types import NodeId

K = TypeVar("K", bound=Hashable)

# A microsecond each. A network that was withdrawn at once expires at once as well.
MOST_EXPIRED: Final = 1000


@dataclass(slots=True)
class SequenceCounters:
    """What arrived that was no news, for the operator."""

    duplicates: int = 0
    "Not newer than the last word about the same thing."
    forgotten_early: int = 0
    "Sequences given up before their time, because too many were kept."


class Sequences(Generic[K]):
    """The last sequence of each source and thing, for so long and no more than so many."""

    def __init__(self, retention_s: float, most: int, counters: SequenceCounters) -> None:
        self._retention_s = retention_s
        self._most = most
        self._counters = counters
        self._kept: dict[NodeId, Table[K, tuple[int, float]]] = {}
        self._queue: deque[tuple[float, NodeId, K]] = deque()
        "In the order they expire. What was kept anew or forgotten since stands here in vain."

    def get(self, source: NodeId, key: K) -> int | None:
        """The sequence kept, or None."""
        kept = self._kept.get(source)
        found = kept.get(key) if kept else None
        return found[0] if found else None

    def keep(self, source: NodeId, key: K, sequence: int, now: float) -> None:
        """Keep a sequence from now on."""
        expires_at = now + self._retention_s
        kept = self._kept.get(source)
        if kept is None:
            kept = self._kept[source] = Table()
        kept[key] = sequence, expires_at
        self._queue.append((expires_at, source, key))
        if len(self._queue) > self._most:
            self._counters.forgotten_early += self._drop_oldest()

    def forget(self, source: NodeId, key: K) -> None:
        """Give one up, if it is kept at all."""
        if (kept := self._kept.get(source)) and kept.pop(key, None) and not kept:
            del self._kept[source]

    def forget_source(self, source: NodeId) -> None:
        """Give up all of a source."""
        self._kept.pop(source, None)

    def expire(self, now: float) -> None:
        """Give up those whose time has come, some at a time."""
        for _ in range(MOST_EXPIRED):
            if not self._queue or self._queue[0][0] > now:
                break
            self._drop_oldest()

    @property
    def next_expiry(self) -> float | None:
        """When `expire` has something to do."""
        return self._queue[0][0] if self._queue else None

    def _drop_oldest(self) -> bool:
        """Whether it was still of use."""
        expires_at, source, key = self._queue.popleft()
        kept = self._kept.get(source)
        found = None if kept is None else kept.get(key)
        if found is None or found[1] != expires_at:
            return False
        self.forget(source, key)
        return True
