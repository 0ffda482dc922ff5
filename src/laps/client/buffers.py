"""What arrived and was not taken yet: bounded by leaving the connection unread.

There is one connection for all that a session reads, so a full buffer stops everything on it, the
answers to requests too. Where somebody waits for something that will come to an end (an answer, a
fetch), the connection is read all the same, up to a second and larger bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# How much more may be held while somebody waits for an answer or a fetch: twice what the windows of
# a connection let a relay send ahead of it, so that it is reached.
MORE_BYTES: Final = 32 * 1024 * 1024


class Buffer:
    """The bytes that one consumer has not taken yet."""

    def __init__(self, limit_bytes: int, *, finite: bool) -> None:
        """`finite` is what comes to its end by itself."""
        self.bytes = 0
        self.limit = limit_bytes
        self.finite = finite
        self.hungry = False
        "Somebody waits, and there is nothing to take."
        self.on_stuck: Callable[[], None] | None = None
        "Called when the bound is passed by what nobody can take yet."
        self._pools: tuple[BufferPool, ...] = ()
        self._full = False

    @property
    def is_far_over(self) -> bool:
        """Whether the second bound is passed too."""
        return self.bytes > self.limit + MORE_BYTES

    def put(self, cost: int) -> None:
        """Something arrived."""
        self.bytes += cost
        if self.bytes <= self.limit:
            return
        if self.hungry and self.on_stuck is not None:
            self.on_stuck()
        if not self._full or self.is_far_over:
            self._full = self.bytes > self.limit
            self._review()

    def take(self, cost: int) -> None:
        """Something was taken."""
        self.bytes -= cost
        if self._full and self.bytes <= self.limit // 2:
            self._full = False
            self._review()

    def wait(self, hungry: bool) -> None:
        """Somebody waits for something to take, or no longer."""
        if hungry != self.hungry:
            self.hungry = hungry
            for pool in self._pools:
                pool.changed()

    @property
    def level(self) -> int:
        """0: read on; 1: better not; 2: not at all."""
        if not self._full or self.hungry:
            return 0
        return 2 if self.is_far_over else 1

    def attach(self, *pools: BufferPool) -> None:
        """Fill from these connections from now on, and from no others."""
        before, self._pools = self._pools, pools
        for pool in before:
            if pool not in pools:
                pool.discard(self)
        for pool in pools:
            if pool not in before:
                pool.add(self)

    def _review(self) -> None:
        for pool in self._pools:
            pool.review()


class BufferPool:
    """The buffers of one connection; `pause` is called with whether to leave it unread."""

    def __init__(self, pause: Callable[[bool], None], asking: Callable[[], bool]) -> None:
        self.paused = False
        self._pause = pause
        self._asking = asking
        self._buffers: set[Buffer] = set()

    def add(self, buffer: Buffer) -> None:
        """A buffer fills from this connection."""
        self._buffers.add(buffer)
        self.review()

    def discard(self, buffer: Buffer) -> None:
        """It no longer does."""
        self._buffers.discard(buffer)
        self.review()

    def changed(self) -> None:
        """Somebody waits, or no longer: it matters where a buffer is full."""
        if self.paused or any(buffer.level for buffer in self._buffers):
            self.review()

    def review(self) -> None:
        """Read on, or not."""
        level = max((buffer.level for buffer in self._buffers), default=0)
        awaited = self._asking() or any(b.finite and b.hungry for b in self._buffers)
        paused = level == 2 or (level == 1 and not awaited)
        if paused != self.paused:
            self.paused = paused
            self._pause(paused)
