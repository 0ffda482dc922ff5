"""Work that concerns very much, cut into pieces that a turn of the loop can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator

T = TypeVar("T")

# 80 µs each: a few milliseconds, also where memory has to be had for it, and data has its turn.
MOST_IN_A_TURN: Final = 20

# To tell one peer of one thing takes 10 µs.
MOST_TOLD: Final = 400

# To look at something and find that it is not concerned is this many times less work.
LOOKS: Final = 20


def in_pieces(work: deque[Iterator[T | None]], most: int = MOST_IN_A_TURN) -> Iterator[T]:
    """What is next in a queue of iterators, up to so much; those that have ended are taken out.

    None stands for something that was looked at and is not concerned.
    """
    left = most * LOOKS
    while work:
        for item in work[0]:
            if item is not None:
                yield item
            left -= 1 if item is None else LOOKS
            if left <= 0:
                return
        work.popleft()
