"""`laps bench failover`: a relay is killed again and again; what do subscribers notice?

    publisher -> Edge 1 -> Via 1 -> Edge 2 -> subscribers, MoQT and QUICR
                        -> Via 2 ->

Each relay is a process of its own on loopback, and the links are made as long as between regions.
The Via in use is killed without a word; when subscribers have gone on it is started again, and both
ways are there once more, the next is killed.

    detection     from the kill until Edge 1 sends by the other way
    pause         the longest time between two objects at a subscriber
    repair        from the kill until nothing is missing of what was published by then
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from laps import client
from laps.bench.tables import Figure, table_of
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

EVERY_S: Final = 0.02
PER_GROUP: Final = 50
OBJECT_BYTES: Final = 1000

# How long relays may take to find each other, and subscribers to have everything.
READY_S: Final = 30.0
REPAIR_S: Final = 15.0

# What subscribers may notice, at the 95th percentile.
PAUSE_S: Final = 1.5

ANY: Final = "127.0.0.1:0"
NAMES: Final = ("1:1", "1:100", "2:100", "2:1")
_PROGRAM: Final = "from laps.cli import main; main()"


class _Relay:
    """A relay that is killed and started again at the same addresses."""

    def __init__(self, folder: Path, name: str, delay_ms: float, *peers: _Relay) -> None:
        self.name = name
        self.peers = self.clients = ANY
        self.admin = ""
        self._config = folder / f"{name.replace(':', '-')}.toml"
        self._delay_ms = delay_ms
        self._dials = peers
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Run it."""
        via = self.name.endswith("100")
        dialled = [peer.peers for peer in self._dials]
        ways = ", ".join(f'"{place}" = {{delay_ms = {self._delay_ms:g}}}' for place in dialled)
        self._config.write_text(
            f'[node]\nid = "{self.name}"\ntype = "{"via" if via else "edge"}"\n'
            f"[relay]\nreflect = {str(via).lower()}\n"
            f'[peering]\nlisten = "{self.peers}"\npeers = {json.dumps(dialled)}\n'
            f'[clients]\nlisten = "{self.clients}"\n[discovery]\nenabled = false\n'
            f'[admin]\nlisten = "{ANY}"\n[impairment]\npeers = {{{ways}}}\n'
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM, "relay", "--config", str(self._config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise LapsError(f"the relay {self.name} to be measured did not start")
        told = dict(word.split("=", 1) for word in line.split()[1:])
        self.peers, self.admin = told["peers"], told["admin"]
        self.clients = told["clients"] if told["clients"] != "none" else ANY

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def ask(self, view: str) -> dict[str, Any]:
        """What it says of itself."""
        with suppress(OSError, urllib.error.URLError):
            where = f"http://{self.admin}/v1/{view}"
            with urllib.request.urlopen(where, timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        return {}


@dataclass(slots=True, eq=False)
class _Reader:
    """What a subscriber has received."""

    protocol: str
    numbers: set[int] = field(default_factory=set)
    duplicates: int = 0
    first: int | None = None
    pause_s: float = 0.0
    last_at: float = 0.0

    def take(self, number: int) -> None:
        """An object has come."""
        now = time.monotonic()
        if self.first is None:
            self.first, self.last_at = number, now
        self.pause_s = max(self.pause_s, now - self.last_at)
        self.last_at = now
        self.duplicates += number in self.numbers
        self.numbers.add(number)

    def missing(self, written: int) -> int:
        """How many of so many have not come."""
        if self.first is None:
            return written
        return written - self.first - sum(self.first <= it < written for it in self.numbers)


@dataclass(slots=True)
class Kill:
    """What one kill cost."""

    detection_s: float
    pause_s: float
    repair_s: float
    lost: int


class _Bench:
    """The relays and clients of a measurement."""

    def __init__(self, folder: Path, delay_ms: float, stack: ExitStack) -> None:
        near_ms, far_ms = 1.0, delay_ms

        def relay(name: str, ms: float, *peers: _Relay) -> _Relay:
            made = _Relay(folder, name, ms, *peers)
            stack.callback(made.kill)
            return made

        self.vias = [relay("1:100", near_ms), relay("2:100", near_ms)]
        self.near = relay("1:1", near_ms, *self.vias)
        self.far = relay("2:1", far_ms, *self.vias)
        self.written = 0
        self.readers = [_Reader("moqt"), _Reader("quicr")]

    async def run(self, kills: int, progress: Callable[[str], None]) -> list[Kill]:
        """Kill the Via in use so many times."""
        await self._until(lambda: self._ways() == 4, "both ways are there")
        tasks = [asyncio.ensure_future(self._publish())]
        tasks += [asyncio.ensure_future(self._read(reader)) for reader in self.readers]
        try:
            await self._until(
                lambda: all(it.numbers for it in self.readers), "objects flow", asks=False
            )
            made: list[Kill] = []
            for number in range(kills):
                progress(f"kill {number + 1} of {kills}")
                made.append(await self._kill())
            return made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _kill(self) -> Kill:
        await self._until(lambda: self._ways() == 4 and self._in_use() is not None, "two ways")
        await asyncio.sleep(1.0)
        via = self._in_use()
        if via is None:
            raise LapsError("no Via is in use")
        for reader in self.readers:
            reader.pause_s = 0.0
        died, written = time.monotonic(), self.written
        via.kill()
        detection_s = await self._until(
            lambda: self._in_use() not in (via, None), "data takes the other way", every_s=0.02
        )
        # What was published until data took the other way may have been lost.
        written = self.written
        repair_s = time.monotonic() - died
        with suppress(LapsError):
            await self._until(
                lambda: not any(it.missing(written) for it in self.readers),
                "nothing is missing",
                limit_s=REPAIR_S,
                asks=False,
            )
            repair_s = time.monotonic() - died
        await asyncio.sleep(1.0)
        lost = sum(reader.missing(written) for reader in self.readers)
        pause_s = max(reader.pause_s for reader in self.readers)
        await asyncio.to_thread(via.start)
        return Kill(detection_s, pause_s, repair_s, lost)

    async def _until(
        self,
        holds: Callable[[], bool],
        what: str,
        every_s: float = 0.05,
        limit_s: float = READY_S,
        *,
        asks: bool = True,
    ) -> float:
        """Wait until something holds; how long that took. Who `asks` relays waits for them."""
        began = time.monotonic()
        while not (await asyncio.to_thread(holds) if asks else holds()):
            if time.monotonic() - began > limit_s:
                raise LapsError(f"it did not come to be that {what}, in {limit_s:g} s")
            await asyncio.sleep(every_s)
        return time.monotonic() - began

    def _ways(self) -> int:
        nodes = [self.near.ask("nodes/2:1"), self.far.ask("nodes/1:1")]
        return sum(len(it["alternates"]) + (it["best"] is not None) for it in nodes if it)

    def _in_use(self) -> _Relay | None:
        for flow in self.near.ask("fib").get("fib", ()):
            for out in flow["out"]:
                if "2:1" in out["nodes"] and not out["old"] and "client" in flow["from"]:
                    return next((it for it in self.vias if it.name == out["peer"]), None)
        return None

    async def _publish(self) -> None:
        async with client.connect(f"moqt://{self.near.clients}") as session:
            track = await session.publish("bench/failover", "live")
            began = time.monotonic()
            while True:
                data = b"%d" % self.written
                await track.write(data.ljust(OBJECT_BYTES), new_group=self.written % PER_GROUP == 0)
                self.written += 1
                await asyncio.sleep(max(0.0, began + self.written * EVERY_S - time.monotonic()))

    async def _read(self, reader: _Reader) -> None:
        async with client.connect(f"{reader.protocol}://{self.far.clients}") as session:
            async for obj in session.subscribe("bench/failover", "live"):
                reader.take(int(obj.payload))


def measure(kills: int, delay_ms: float, progress: Callable[[str], None]) -> list[Figure]:
    """Kill a Via so many times, and say what subscribers noticed."""
    progress("starting four relays")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="laps-failover-")))
        bench = _Bench(folder, delay_ms, stack)
        made = asyncio.run(bench.run(kills, progress))
        duplicates = sum(reader.duplicates for reader in bench.readers)
    figures = []
    for name in ("detection", "pause", "repair"):
        values = sorted(getattr(kill, f"{name}_s") for kill in made)
        for share, words in ((0.5, "p50"), (0.95, "p95"), (1.0, "max")):
            value = values[min(len(values) - 1, int(share * len(values)))]
            most = PAUSE_S if (name, words) == ("pause", "p95") else None
            figures.append(Figure("a Via is killed", f"{name}, {words}", value, "s", most=most))
    row = "a Via is killed"
    figures.append(Figure(row, "objects lost", sum(it.lost for it in made), "", most=0))
    figures.append(Figure(row, "objects twice", duplicates, "", most=0))
    return figures


def table(figures: list[Figure], kills: int, delay_ms: float) -> Table:
    """The results for a person."""
    return table_of(
        figures,
        f"Four relays on loopback, {2 * delay_ms:g} ms there and back between two; {kills} kills",
        "Detection: until data takes the other way. Pause: the longest time between two objects.\n"
        "Repair: until nothing is missing of what was published by then.",
    )
