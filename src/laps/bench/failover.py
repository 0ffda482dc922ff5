"""`laps bench failover`: a relay is killed again and again; what do subscribers notice?

    publisher -> Edge 1 -> Via 1 -> Edge 2 -> subscribers, MoQT and QUICR
                        -> Via 2 ->

Each relay is a process of its own on loopback, and the links are made as long as between regions.
The Via in use is killed without a word; when subscribers have gone on it is started again, and both
ways are there once more, the next is killed. `failover_edges` does the same to Edges of clients.

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

# Which relays can be killed.
RELAYS: Final = ("via", "edge")

# What subscribers may notice, at the 95th percentile.
PAUSE_S: Final = 1.5

# Inside a region, one way.
NEAR_MS: Final = 1.0

ANY: Final = "127.0.0.1:0"
_PROGRAM: Final = "from laps.cli import main; main()"


class KilledRelay:
    """A relay that is killed and started again at the same addresses."""

    def __init__(self, folder: Path, name: str, delay_ms: float, *peers: KilledRelay) -> None:
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
class CountingReader:
    """What a subscriber has received."""

    protocol: str
    numbers: set[int] = field(default_factory=set)
    duplicates: int = 0
    first: int | None = None
    given_up: int = 0
    "Objects that have not come after an earlier kill."
    pause_s: float = 0.0
    last_at: float = 0.0
    session: client.Session | None = None

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
        """How many of so many have not come, but for those that were given up earlier."""
        if self.first is None:
            return written
        came = sum(self.first <= it < written for it in self.numbers)
        return written - self.first - came - self.given_up

    def give_up(self, written: int) -> int:
        """Wait no more for what is missing of so many; how many those are."""
        missing = self.missing(written)
        self.given_up += missing
        return missing


@dataclass(slots=True)
class Kill:
    """What one kill cost."""

    row: str
    "Whose relay it was."
    detection_s: float
    pause_s: float
    repair_s: float
    lost: int


class Bench:
    """The relays and clients of a measurement."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.written = 0
        self.readers = [CountingReader("moqt"), CountingReader("quicr")]
        self.publisher: client.Session | None = None

    def relay(self, name: str, delay_ms: float, *peers: KilledRelay) -> KilledRelay:
        """Start a relay, which is ended with the measurement."""
        made = KilledRelay(self._folder, name, delay_ms, *peers)
        self._stack.callback(made.kill)
        return made

    # -- what is measured --------------------------------------------------------------------------

    def publisher_urls(self) -> list[str]:
        """The relays of the publisher."""
        raise NotImplementedError

    def reader_urls(self, protocol: str) -> list[str]:
        """The relays of a subscriber."""
        raise NotImplementedError

    async def ready(self) -> None:
        """Wait until every relay has found the others."""
        raise NotImplementedError

    async def choose(self, number: int) -> tuple[str, KilledRelay]:
        """Which relay is killed next, and in which row that counts."""
        raise NotImplementedError

    async def detected(self, killed: KilledRelay) -> float:
        """Wait until it is noticed; how long that took."""
        raise NotImplementedError

    # -- how ---------------------------------------------------------------------------------------

    async def run(self, kills: int, progress: Callable[[str], None]) -> list[Kill]:
        """Kill a relay so many times."""
        await self.ready()
        tasks = [asyncio.ensure_future(self._publish())]
        tasks += [asyncio.ensure_future(self._read(reader)) for reader in self.readers]
        try:
            await self.until(
                lambda: all(it.numbers for it in self.readers), "objects flow", asks=False
            )
            made: list[Kill] = []
            for number in range(kills):
                progress(f"kill {number + 1} of {kills}")
                made.append(await self._kill(number))
            return made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _kill(self, number: int) -> Kill:
        await self.ready()
        await asyncio.sleep(1.0)
        row, relay = await self.choose(number)
        for reader in self.readers:
            reader.pause_s = 0.0
        died = time.monotonic()
        relay.kill()
        detection_s = await self.detected(relay)
        # What was published until it was noticed may have been lost.
        written = self.written
        repair_s = time.monotonic() - died
        with suppress(LapsError):
            await self.until(
                lambda: not any(it.missing(written) for it in self.readers),
                "nothing is missing",
                limit_s=REPAIR_S,
                asks=False,
            )
            repair_s = time.monotonic() - died
        await asyncio.sleep(1.0)
        lost = sum(reader.give_up(written) for reader in self.readers)
        pause_s = max(reader.pause_s for reader in self.readers)
        await asyncio.to_thread(relay.start)
        return Kill(row, detection_s, pause_s, repair_s, lost)

    async def until(
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

    async def _publish(self) -> None:
        async with client.connect(self.publisher_urls()) as session:
            self.publisher = session
            track = await session.publish("bench/failover", "live")
            began = time.monotonic()
            while True:
                data = b"%d" % self.written
                await track.write(data.ljust(OBJECT_BYTES), new_group=self.written % PER_GROUP == 0)
                self.written += 1
                await asyncio.sleep(max(0.0, began + self.written * EVERY_S - time.monotonic()))

    async def _read(self, reader: CountingReader) -> None:
        async with client.connect(self.reader_urls(reader.protocol)) as session:
            reader.session = session
            async for obj in session.subscribe("bench/failover", "live"):
                reader.take(int(obj.payload))


class ViaBench(Bench):
    """Two Edges with two Vias between them, of which the one in use is killed."""

    def __init__(self, folder: Path, delay_ms: float, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        self._vias = [self.relay("1:100", NEAR_MS), self.relay("2:100", NEAR_MS)]
        self._near = self.relay("1:1", NEAR_MS, *self._vias)
        self._far = self.relay("2:1", delay_ms, *self._vias)

    def publisher_urls(self) -> list[str]:
        return [f"moqt://{self._near.clients}"]

    def reader_urls(self, protocol: str) -> list[str]:
        return [f"{protocol}://{self._far.clients}"]

    async def ready(self) -> None:
        await self.until(lambda: self._ways() == 4, "both ways are there")

    async def choose(self, number: int) -> tuple[str, KilledRelay]:
        await self.until(lambda: self._in_use() is not None, "a Via is in use")
        via = self._in_use()
        if via is None:
            raise LapsError("no Via is in use")
        return "a Via is killed", via

    async def detected(self, killed: KilledRelay) -> float:
        what = "data takes the other way"
        return await self.until(lambda: self._in_use() not in (killed, None), what, every_s=0.02)

    def _ways(self) -> int:
        nodes = [self._near.ask("nodes/2:1"), self._far.ask("nodes/1:1")]
        return sum(len(it["alternates"]) + (it["best"] is not None) for it in nodes if it)

    def _in_use(self) -> KilledRelay | None:
        for flow in self._near.ask("fib").get("fib", ()):
            for out in flow["out"]:
                if "2:1" in out["nodes"] and not out["old"] and "client" in flow["from"]:
                    return next((it for it in self._vias if it.name == out["peer"]), None)
        return None


def measure(
    relay: str, kills: int, delay_ms: float, progress: Callable[[str], None]
) -> list[Figure]:
    """Kill a relay so many times, and say what subscribers noticed."""
    progress("starting relays")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="laps-failover-")))
        bench = _bench(relay, folder, delay_ms, stack)
        made = asyncio.run(bench.run(kills, progress))
        duplicates = sum(reader.duplicates for reader in bench.readers)
    figures = []
    rows: dict[str, list[Kill]] = {}
    for kill in made:
        rows.setdefault(kill.row, []).append(kill)
    for row, those in rows.items():
        figures += _figures(row, those)
    figures.append(Figure("in all", "objects twice", duplicates, "", most=0))
    return figures


def _bench(relay: str, folder: Path, delay_ms: float, stack: ExitStack) -> Bench:
    if relay == "via":
        return ViaBench(folder, delay_ms, stack)
    from laps.bench.failover_edges import EdgeBench

    return EdgeBench(folder, delay_ms, stack)


def _figures(row: str, kills: list[Kill]) -> list[Figure]:
    figures = [Figure(row, "kills", len(kills), "")]
    for name in ("detection", "pause", "repair"):
        values = sorted(getattr(kill, f"{name}_s") for kill in kills)
        for share, words in ((0.5, "p50"), (0.95, "p95"), (1.0, "max")):
            value = values[min(len(values) - 1, int(share * len(values)))]
            most = PAUSE_S if (name, words) == ("pause", "p95") else None
            figures.append(Figure(row, f"{name}, {words}", value, "s", most=most))
    figures.append(Figure(row, "objects lost", sum(it.lost for it in kills), "", most=0))
    return figures


def table(figures: list[Figure], relay: str, kills: int, delay_ms: float) -> Table:
    """The results for a person."""
    what = "data takes the other way" if relay == "via" else "clients are at another relay"
    return table_of(
        figures,
        f"Relays on loopback, {2 * delay_ms:g} ms there and back between two; {kills} kills",
        f"Detection: until {what}. Pause: the longest time between two objects.\n"
        "Repair: until nothing is missing of what was published by then.",
    )
