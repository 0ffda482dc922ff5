"""Clients of relays for Spark's processes, which know no asyncio: a loop in a thread of its own.

Spark forks its Python workers and uses them again, so the loop belongs to the process it was made
in, and is made anew in every other.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_lock = threading.Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None


def run(work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Do it in the loop of this process, and wait for it; TimeoutError cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result(timeout_s)
    except BaseException:
        future.cancel()
        raise


def loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, which runs in a thread that does not keep it from ending."""
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid():
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="laps-client", daemon=True).start()
            _running = os.getpid(), made
        return _running[1]


def _forget_after_fork() -> None:
    # The thread is not there in a child, and its lock may be held for ever.
    global _lock, _running
    _lock, _running = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_after_fork)
