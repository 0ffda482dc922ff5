"""A relay with its admin API that watches its own loop: `python -m laps.bench.admin_relay CORE`.

It says where clients connect and where it is looked into, then answers each line of input with the
processor time that it has used, and the longest that its loop was held since the line before.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from time import monotonic, process_time
from typing import Final

import uvloop

from laps.admin.server import Admin
from laps.bench.process import answer, pin
from laps.config import Config, override
from laps.net.runner import Runner

TICK_S: Final = 0.001

SETTINGS: Final = {
    "node.id": "1:1",
    "clients.listen": "127.0.0.1:0",
    "peering.listen": "127.0.0.1:0",
    "admin.listen": "127.0.0.1:0",
    "clients.requests": 20_000,
    "clients.drain_s": 0.1,
    "relay.drain_s": 0.1,
    "discovery.enabled": False,
}


class Watch:
    """How long the loop is held: by our own code, not by whoever else has the processor."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._collected_s = 0.0
        self._collecting = 0.0
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _: object) -> None:
        """The garbage collector's own pauses are its own, whoever is asked for what."""
        if phase == "start":
            self._collecting = process_time()
        else:
            self._collected_s += process_time() - self._collecting

    async def run(self) -> None:
        """Be there a thousand times a second, and see how much too late that is."""
        while True:
            began, worked, collected = monotonic(), process_time(), self._collected_s
            await asyncio.sleep(TICK_S)
            late = monotonic() - began - TICK_S
            busy = process_time() - worked - (self._collected_s - collected)
            self._longest = max(self._longest, min(late, busy))

    def take(self) -> float:
        """The longest since the last time."""
        longest, self._longest = self._longest, 0.0
        return longest


async def run() -> None:
    """Until the input ends."""
    runner = Runner(override(Config(), SETTINGS, "laps bench admin"))
    admin = Admin(runner, runner.config.admin)
    watch = Watch()
    watching = asyncio.ensure_future(watch.run())
    assert runner.client_address is not None  # noqa: S101 - an Edge has one
    try:
        await answer(
            f"{runner.client_address.port} {admin.address}",
            lambda: {"cpu_s": process_time(), "held_s": watch.take()},
        )
    finally:
        watching.cancel()
        await runner.close()
        await admin.close()


if __name__ == "__main__":
    pin(int(sys.argv[1]))
    uvloop.run(run())
