"""What a fault costs subscribers: how long they waited, until nothing of it was missing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from laps.lab.traffic import SHAPES

if TYPE_CHECKING:
    from laps.lab.running import Lab
    from laps.lab.traffic import Reader

# What is not there by then may come later; whether it does is counted at the end.
LIMIT_S: Final = 15.0
LOOK_S: Final = 0.1


class Cost:
    """Watches the subscribers from the moment that something is broken."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._known = {id(reader): frozenset(reader.account.missing) for reader in lab.readers}
        "What was missing before is not missed again."
        self._began = time.monotonic()

    async def caught_up(self) -> list[Reader]:
        """Wait until everybody has what was published until now; who has not, in the end."""
        written = {id(reader): self._lab.written(reader.spec.track) for reader in self._lab.readers}
        end = time.monotonic() + LIMIT_S
        while True:
            late = [it for it in self._lab.readers if not self._has(it, written[id(it)])]
            if not late or time.monotonic() > end:
                return late
            await asyncio.sleep(LOOK_S)

    def _has(self, reader: Reader, written: int) -> bool:
        account = reader.account
        return account.following >= written and account.missing <= self._known[id(reader)]

    def longest(self) -> tuple[float, Reader]:
        """The longest pause beyond the usual time between two objects, and whose it was."""
        kinds = {writer.spec.track: writer.spec.kind for writer in self._lab.writers}

        def pause_s(reader: Reader) -> float:
            usual = 1 / SHAPES[kinds[reader.spec.track]].per_s
            return max(0.0, reader.pause_since(self._began) - usual)

        longest = max(self._lab.readers, key=pause_s)
        return pause_s(longest), longest
