"""Python's garbage collector, held to what a relay can afford.

Nothing of a relay needs it: whatever is closed or forgotten is freed at once, since nothing refers
to it any more (`tests/loopback/test_leftovers.py`). Libraries and rare errors may leave something.
But left to itself the collector looks at every object there is whenever a quarter of them are new:
with a million tracks that takes seconds, in which nothing moves.

So new objects are looked at as always, and all of them only while there are few. When many have
been added, they are what the relay was told of the network, and are set aside for good.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

# The collector looks at the young after so many new objects, and at those that remained of so many
# looks. Each takes a millisecond or two.
YOUNG_OBJECTS: Final = 2_000
MIDDLE_LOOKS: Final = 10
NEVER: Final = 1 << 30

LOOK_S: Final = 10.0

# A look at so many takes from 5 to 10 ms.
MOST_OBJECTS: Final = 50_000


class Collector:
    """The collector of this process: of one in which a relay is all that runs."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # all that was imported
        gc.set_threshold(YOUNG_OBJECTS, MIDDLE_LOOKS, NEVER)
        self._old = 0
        "How many old objects there were after the last look."
        self._looks = _middle_looks()

    def look(self) -> None:
        """Find what is left over; or set everything aside, where that would take long."""
        looks = _middle_looks()
        added = (looks - self._looks) * YOUNG_OBJECTS * (MIDDLE_LOOKS + 1)
        if self._old + added <= MOST_OBJECTS:
            gc.collect()
            self._old = len(gc.get_objects(generation=2))
        else:
            gc.freeze()
            self._old = 0
        self._looks = _middle_looks()

    async def run(self) -> None:
        """Look now and then."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()


def _middle_looks() -> int:
    return int(gc.get_stats()[1]["collections"])
