"""Python's garbage collector, held to what a relay can afford.

Nothing of a relay needs it: whatever is closed or forgotten is freed at once, since nothing refers
to it any more (`tests/loopback/test_leftovers.py`). Libraries and rare errors may leave something.
But left to itself the collector looks at every object there is whenever a quarter of them are new:
with a million tracks that takes seconds, in which nothing moves.

So young objects are looked at as always, and all of them only while there are few. When many have
been added, they are what the relay was told of the network, and are set aside for good.

Memory that was freed is given back to the system now and then. The C library keeps it for later,
in pieces that hardly fit anything: a relay that passed a few large answers on stays a third larger.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final

# The collector looks at the young after so many new objects, and at those that remained of so many
# looks. Each takes a millisecond or two.
YOUNG_OBJECTS: Final = 1_000
MIDDLE_LOOKS: Final = 5
NEVER: Final = 1 << 30

LOOK_S: Final = 0.5

# A look at so many takes from 1 to 15 ms: by how many others each of them refers to.
MOST_OBJECTS: Final = 15_000

# With every sixtieth look everything is looked at, and memory given back. That takes 2 ms at
# 100 MB, and more where there are more pieces: so not where the network is large.
FULL_LOOKS: Final = 60
MOST_TRIMMED: Final = 1_000_000


class Collector:
    """The collector of this process: of one in which a relay is all that runs."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # all that was imported
        gc.set_threshold(YOUNG_OBJECTS, MIDDLE_LOOKS, NEVER)
        self._looks = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone

    def look(self) -> None:
        """Set aside what has been added, if it is much, or find what is left over."""
        self._looks += 1
        if sum(len(gc.get_objects(generation)) for generation in range(3)) > MOST_OBJECTS:
            gc.freeze()
        elif self._looks % FULL_LOOKS == 0:
            gc.collect()
            if self._trim is not None and gc.get_freeze_count() < MOST_TRIMMED:
                self._trim(0)

    async def run(self) -> None:
        """Look now and then."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
