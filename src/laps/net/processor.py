"""How long the thread of a relay has had the processor, and how long it has waited for it.

On a machine that others use too, a thread that has work to do waits for its turn. By its processor
time alone it would look idle then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import thread_time
from typing import Final

# run_ns wait_ns timeslices, of the thread that opens it. Linux has it; it takes 2 µs to read.
SCHEDSTAT: Final = "/proc/thread-self/schedstat"
LINE_BYTES: Final = 64


class Processor:
    """What the thread that makes it has had so far."""

    def __init__(self, path: str = SCHEDSTAT) -> None:
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def ran_s(self) -> float:
        """How long the thread has run."""
        # The line has it too, but only up to the last tick of the scheduler.
        return thread_time()

    def waited_s(self) -> float:
        """How long the thread has waited to run; 0 where the system does not tell."""
        if self._fd is None:
            return 0.0
        return int(os.pread(self._fd, LINE_BYTES, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Leave the file; the time it ran is still known."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
