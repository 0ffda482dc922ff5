"""Targets that data reaches by way of other regions, though a session with them would spare that.

A way that crosses from region to region twice is two long-haul copies, where one would do: unless
another target is reached by the same crossing, so that it is paid for in any case.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.routing.terms import Way
    from laps.types import NodeId


def detours(
    here: NodeId, ways: Mapping[NodeId, Way], region_of: Callable[[NodeId], str]
) -> dict[NodeId, int]:
    """By target: how many fewer copies between regions a track takes that goes straight there.

    `ways` are those of all its targets. Where a region is not known nothing is said.
    """

    def crosses(a: NodeId, b: NodeId) -> bool:
        one, other = region_of(a), region_of(b)
        return bool(one and other) and one != other

    crossings = {
        target: [pair for pair in pairwise((here, *way)) if crosses(*pair)]
        for target, way in ways.items()
    }
    users = Counter(pair for pairs in crossings.values() for pair in pairs)
    found = {
        target: sum(users[pair] == 1 for pair in pairs) - 1 for target, pairs in crossings.items()
    }
    return {target: fewer for target, fewer in found.items() if fewer > 0}
