"""Chaos in a lab: lets faults happen, each sequence on its own, and notes what they cost."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laps.errors import LapsError
from laps.lab.chaos.cost import Cost
from laps.lab.chaos.faults import control_faults, link_faults, relay_faults
from laps.lab.chaos.memory import EVERY_S, Memory
from laps.lab.processes import SETTINGS, PortTaken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from laps.lab.chaos.faults import Fault
    from laps.lab.running import Lab

# What relays say of themselves is kept for a quarter of an hour otherwise, and they would grow for
# as long; whether their memory is flat is to be seen in minutes.
CHAOS_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    **SETTINGS,
    "telemetry": {"history_s": 30.0},
}

# What a relay gets to be back with all its peers, and how often it is asked.
WHOLE_S: Final = 30.0
LOOK_S: Final = 0.25

# At the end: what publishers get to end their tracks, and subscribers for what is on its way.
END_S: Final = 20.0
DRAIN_S: Final = 30.0

# Somebody may have the port of a relay that is down for a moment.
STARTS: Final = 5


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault, and what it cost."""

    at_s: float
    "Since chaos began."
    fault: Fault
    pause_s: float
    "The longest at any subscriber, beyond the usual time between two objects."
    subscriber: str
    behind: tuple[str, ...]
    "Who did not have everything in the end."

    def __str__(self) -> str:
        words = f"{clock(self.at_s)} {self.fault}: "
        words += f"longest pause {self.pause_s:.2f} s, {self.subscriber}"
        if self.behind:
            words += f"; not there yet for {', '.join(self.behind)}"
        return words


def clock(seconds: float) -> str:
    """Minutes and seconds, as people write them."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Chaos:
    """Everything that happens to a lab which runs."""

    def __init__(self, lab: Lab, seed: int, say: Callable[[str], None]) -> None:
        self.lab = lab
        self.seed = seed
        self.happened: list[Happened] = []
        self.problems: list[str] = []
        "What went wrong beside objects that were lost."
        self.memory = Memory(lab.relays)
        self.seconds = 0.0
        "How long faults happened."
        self._say = say
        self._began = 0.0
        self._ending = asyncio.Event()
        self._broken: set[str] = set()
        "Relays that are down or stand still, or were a moment ago."
        self._ended: set[int] = set()
        "Processes that ended by themselves."
        self._neighbours: dict[str, set[str]] = {name: set() for name in lab.relays}
        for a, b, _ in lab.links:
            self._neighbours[a].add(b)
            self._neighbours[b].add(a)

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        """Let faults happen for so long, or until it is stopped; then everything is whole."""
        network = self.lab.network
        self._began = time.monotonic()
        lanes = [
            self._lane(relay_faults(network, self.seed), self._break_relays),
            self._lane(control_faults(network, self.seed), self._break_relays),
            self._lane(link_faults(network, self.seed), self._impair),
        ]
        tasks = [asyncio.ensure_future(lane) for lane in lanes]
        watch = asyncio.ensure_future(self._watch())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait(
                {stopped, *tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            self.seconds = time.monotonic() - self._began
            self._ending.set()
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, watch, stopped):
                task.cancel()
            await asyncio.gather(*tasks, watch, stopped, return_exceptions=True)
            for relay in self.lab.relays.values():
                relay.thaw()
        await self.lab.end(END_S, DRAIN_S)
        self.memory.look()

    async def _lane(
        self, faults: Iterator[Fault], cause: Callable[[Fault], Awaitable[None]]
    ) -> None:
        for fault in faults:
            if await self._wait(fault.pause_s):
                return
            at_s, cost = time.monotonic() - self._began, Cost(self.lab)
            try:
                await cause(fault)
            except LapsError as error:
                self.problems.append(f"{fault}: {error}")
                self._say(self.problems[-1])
                return
            behind = await cost.caught_up()
            pause_s, reader = cost.longest()
            late = tuple(str(it.spec) for it in behind)
            self.happened.append(Happened(at_s, fault, pause_s, str(reader.spec), late))
            self._say(str(self.happened[-1]))

    async def _wait(self, seconds: float) -> bool:
        """Wait; whether it is time to end, which is heard at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        return self._ending.is_set()

    async def _watch(self) -> None:
        """See how much memory relays have, and say at once what should not be."""
        wrong = [(0, 0)] * len(self.lab.readers)
        while True:
            await self.lab.watch.look()
            nodes = {name: sight.node for name, sight in self.lab.watch.sights.items()}
            self.memory.look({name: it.sizes["clients"] for name, it in nodes.items() if it})
            self._look_for_ended()
            for number, reader in enumerate(self.lab.readers):
                account = reader.account
                if (found := (account.duplicates, account.late)) != wrong[number]:
                    wrong[number] = found
                    at = clock(time.monotonic() - self._began)
                    words = f"{found[0]} came twice and {found[1]} out of order, up to now"
                    self._say(f"{at} {reader.spec}: {words}, before {account.following}")
            await asyncio.sleep(EVERY_S)

    def _look_for_ended(self) -> None:
        """A relay that ends though nobody killed it is a problem, once."""
        for name, relay in self.lab.relays.items():
            process = relay.process
            if name in self._broken or process is None or process.returncode is None:
                continue
            if process.pid not in self._ended:
                self._ended.add(process.pid)
                self.problems.append(f"{name} ended by itself, with status {process.returncode}")
                self._say(self.problems[-1])

    # -- relays ------------------------------------------------------------------------------------

    async def _break_relays(self, fault: Fault) -> None:
        for node in fault.nodes:
            self._broken.add(node)
            relay = self.lab.relays[node]
            match fault.kind:
                case "freeze":
                    relay.freeze()
                    await self._wait(fault.lasts_s)
                    relay.thaw()
                case "kill":
                    await relay.kill()
                    await self._wait(fault.lasts_s)
                    await self._start(node)
                case _:
                    await relay.stop()
                    await self._wait(fault.lasts_s)
                    await self._start(node)
            self._broken.discard(node)
            await self._until_whole(node)
            if self._ending.is_set():
                return

    async def _start(self, node: str) -> None:
        for attempt in range(1, STARTS + 1):
            try:
                await self.lab.relays[node].start()
            except PortTaken:
                if attempt == STARTS:
                    raise
                await asyncio.sleep(1.0)
            else:
                return

    async def _until_whole(self, node: str) -> None:
        """Wait until a relay is back with its peers, as both ends see it."""
        end = time.monotonic() + WHOLE_S
        while missing := await self._missing(node):
            if time.monotonic() > end:
                raise LapsError(f"{node} is not back with {', '.join(missing)} in {WHOLE_S:g} s")
            await asyncio.sleep(LOOK_S)

    async def _missing(self, node: str) -> list[str]:
        """The peers that a relay should have now, and has not."""
        near = sorted(self._neighbours[node] - self._broken)
        await self.lab.watch.look([node, *near])
        sights = self.lab.watch.sights
        has = {row.node for row in sights[node].peers}
        if self._is_stub(node):  # it uses one of them at a time
            return near if has.isdisjoint(near) else []
        return [
            peer
            for peer in near
            if not self._is_stub(peer)
            and not (peer in has and any(row.node == node for row in sights[peer].peers))
            and peer not in self._broken
        ]

    def _is_stub(self, node: str) -> bool:
        return self.lab.relays[node].node.type == "stub"

    # -- links -------------------------------------------------------------------------------------

    async def _impair(self, fault: Fault) -> None:
        a, b = fault.nodes
        link = next(link for x, y, link in self.lab.links if (x, y) == (a, b))
        if fault.kind == "delay":
            self.lab.impair(a, b, delay_ms=link.delay_ms + fault.amount)
        else:
            self.lab.impair(a, b, drop=fault.amount)
        await self._wait(fault.lasts_s)
        self.lab.impair(a, b, delay_ms=link.delay_ms, drop=link.loss)
