"""Whose what is kept is: one that publishes may take a part of the cache, and not others' parts."""

from __future__ import annotations

from typing import Any


class CacheOwner:
    """What is kept of the tracks of one publisher, a bearer or an address."""

    __slots__ = ("limit", "order", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        "How many bytes it may have; its own oldest goes when there are more."
        self.size = 0
        self.order: dict[Any, None] = {}
        "Its groups (`cache.CachedGroup`), the oldest first."
