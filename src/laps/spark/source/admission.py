"""How many objects of each track a micro-batch may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def share_out(waiting: Sequence[int], most: int, turn: int = 0) -> list[int]:
    """Share `most` among tracks with so many objects each; what one leaves goes to the others.

    Where there is less than one for each, `turn` says who is the first to have it.
    """
    shares = [0] * len(waiting)
    hungry = [i % len(waiting) for i in range(turn, turn + len(waiting)) if waiting]
    left = most
    while left and hungry:
        each = max(1, left // len(hungry))
        for index in hungry:
            taken = min(each, waiting[index] - shares[index], left)
            shares[index] += taken
            left -= taken
        hungry = [index for index in hungry if shares[index] < waiting[index]]
    return shares
