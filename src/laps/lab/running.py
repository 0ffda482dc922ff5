"""A lab from its start to its end, and what is done to it meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laps.errors import ConfigError, InvalidText, LapsError
from laps.lab.aftermath import Aftermath
from laps.lab.doors import Door
from laps.lab.processes import SETTINGS, PortTaken, Way, first_line, relays_of, spawn
from laps.lab.traffic import Reader, Twins, Writer
from laps.lab.watching import EVERY_S, Watch
from laps.policy import load_policy
from laps.types import PeerMode, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from laps.lab.doors import Asked
    from laps.lab.network import Network, Publisher, Subscriber
    from laps.lab.processes import Relay

log = logging.getLogger(__name__)

# Ports that were free a moment ago may be taken; so often in a row they are not.
ATTEMPTS: Final = 5

# What is waited for before subscribers come: that relays have found each other, and then that they
# have told each other of all the rest; and before it counts: that everybody has received something.
REST_S: Final = 15.0
TELL_S: Final = 1.0
FLOW_S: Final = 15.0

# What publishers get to end their tracks, and subscribers to receive the last objects.
END_S: Final = 4.0
DRAIN_S: Final = 5.0

# A dashboard has more to import than a relay.
DASHBOARD_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the network."""

    at: float
    words: str


class Lab:
    """A network of processes, with traffic through it."""

    def __init__(
        self,
        network: Network,
        folder: Path,
        port: int = 0,
        settings: Mapping[str, Mapping[str, Any]] = SETTINGS,
        policy: Path | None = None,
    ) -> None:
        """`policy` is a file that every relay keeps to."""
        self.network = network
        self.folder = folder
        settings = _with(network.settings, settings)
        self._settings = settings if policy is None else _keeping_to(policy, settings)
        self.began = time.time()
        self.flowing = float("inf")
        "Since when everybody receives something."
        self.over = False
        "Nothing more is published, and everybody had time to receive the rest."
        self.phase = "relays start"
        self.faults: list[Fault] = []
        self.dashboard = ""
        "Its address, once it has said it."
        self.relays: dict[str, Relay] = {}
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.links = [
            (format_node_id(link.a), format_node_id(link.b), link) for link in network.links
        ]
        self.routes: dict[str, list[tuple[str, str]]] = {}
        "The hops of each track, as they were last while it flowed."
        self._heard = asyncio.Event()
        self._aftermath: Aftermath | None = None
        "Since a relay was killed the last time."
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: list[asyncio.Task[None]] = []
        self._door = Door(folder, self.answer)
        self._dashboard: asyncio.subprocess.Process | None = None
        self._choose_ports(port)

    def _choose_ports(self, port: int = 0) -> None:
        self.relays = relays_of(self.network, self.folder, port, self._settings)
        self.watch = Watch(self.relays)

    # -- from start to end -------------------------------------------------------------------------

    async def start(self, *, dashboard: bool, watch: bool = True) -> None:
        """Start everything, until objects flow to every subscriber."""
        await self._start_relays()
        for relay in self.relays.values():
            relay.dial()
        await self._door.open()
        self.phase = "relays find each other"
        self._make_writers()
        self._writing = [self._task(writer.run()) for writer in self.writers]
        await self._until_rest()
        if watch:
            self._task(self._watch())
        if dashboard:  # it has much to import, which relays that start need not wait for
            self._task(self._run_dashboard())
        self.phase = "subscribers start"
        for subscriber in self.network.subscribers:
            self.readers.append(Reader(subscriber, self._urls(subscriber), self._heard.set))
            self._task(self.readers[-1].run())
        await self._until(lambda: all(reader.account.received for reader in self.readers), FLOW_S)
        self.flowing = time.time()
        self.phase = "running"

    def _make_writers(self) -> None:
        names = [publisher.track for publisher in self.network.publishers]
        twins = {name: Twins() for name in names if names.count(name) > 1}
        self.writers = [
            Writer(publisher, self._urls(publisher), twins.get(publisher.track))
            for publisher in self.network.publishers
        ]

    def _urls(self, client: Publisher | Subscriber) -> list[str]:
        return [self.relays[node].url(client.protocol) for node in (client.node, *client.others)]

    async def _start_relays(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            starting = [asyncio.ensure_future(relay.start()) for relay in self.relays.values()]
            try:
                await asyncio.gather(*starting)
            except PortTaken as error:
                log.info("%s; other ports are chosen", error)
                await self._kill_relays(starting)
                if attempt == ATTEMPTS:
                    raise
                await self.watch.close()
                self._choose_ports()
            except BaseException:
                await self._kill_relays(starting)
                raise
            else:
                return

    async def _kill_relays(self, starting: list[asyncio.Task[None]]) -> None:
        for each in starting:
            each.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(relay.kill() for relay in self.relays.values()))

    async def _until_rest(self) -> None:
        pairs = [(a, b) for a, b, _ in self.links]
        end = time.monotonic() + REST_S
        while time.monotonic() < end and not self.watch.at_rest(pairs):
            await asyncio.sleep(EVERY_S / 4)
            await self.watch.look()
        await asyncio.sleep(TELL_S)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until it holds, with a look at each object that comes; whether it does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds():
                    self._heard.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await self._heard.wait()
        return holds()

    async def end(self, end_s: float = END_S, drain_s: float = DRAIN_S) -> None:
        """Let publishers stop, then give subscribers time for what is on its way."""
        self.phase = "publishers stop"
        self._remember_routes()
        for writer in self.writers:
            writer.stop(at=self.written(writer.spec.track))
        if self._writing:
            await asyncio.wait(self._writing, timeout=end_s)
        self.phase = "subscribers receive the rest"
        slowest = max((way.delay_ms for way in self._ways()), default=0.0) / 1000
        await self._until(lambda: not any(map(self.behind, self.readers)), drain_s + 4 * slowest)
        self.over = True
        self.phase = "relays stop"

    async def close(self) -> None:
        """Stop every process; nothing is left running."""
        await self._door.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.watch.close()
        stopping = [relay.stop() for relay in self.relays.values()]
        if self._dashboard is not None and self._dashboard.returncode is None:
            self._dashboard.kill()
            stopping.append(_ended(self._dashboard))
        await asyncio.gather(*stopping)

    def _task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.append(task)
        return task

    async def _watch(self) -> None:
        while True:
            await self.watch.look()
            self._remember_routes()
            await asyncio.sleep(EVERY_S)

    def _remember_routes(self) -> None:
        if self.phase != "running":
            return
        for writer in self.writers:
            track = writer.spec.track
            if hops := self.watch.copies(track):
                self.routes[track] = hops

    async def _run_dashboard(self) -> None:
        admin = [word for relay in self.relays.values() for word in ("--admin", relay.admin)]
        log_file = self.folder / "dashboard.log"
        self._dashboard = process = await spawn(log_file, "dashboard", "--port", "0", *admin)
        with suppress(TimeoutError):
            async with asyncio.timeout(DASHBOARD_S):
                self.dashboard = (await first_line(process)).strip().rpartition(" ")[2]
        if not self.dashboard:
            log.warning("no dashboard: see %s", log_file)

    # -- what has been received --------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where anybody may publish and subscribe; empty where no relay takes clients."""
        for relay in self.relays.values():
            if relay.node.type == "edge":
                return relay.url("moqt")
        return ""

    def written(self, track: str) -> int:
        """How many objects a track has so far."""
        return max((w.written for w in self.writers if w.spec.track == track), default=0)

    def lost(self, reader: Reader) -> list[range]:
        """What a subscriber has not received: while objects flow, of those ahead of its last."""
        account = reader.account
        return account.lost(self.written(reader.spec.track) if self.over else account.following)

    def behind(self, reader: Reader) -> bool:
        """Whether there is something that a subscriber has not received yet."""
        written = self.written(reader.spec.track)
        account = reader.account
        return account.first is None or account.following < written

    # -- what is done to it ------------------------------------------------------------------------

    async def answer(self, asked: Asked) -> Asked:
        """What somebody at the door wants."""
        match asked:
            case {"do": "kill", "node": str(node)}:
                return {"said": await self.kill(node)}
            case {"do": "aftermath"} if self._aftermath is not None:
                return {"said": self._note(await self._aftermath.wait())}
            case {"do": "start", "node": str(node)}:
                return {"said": await self.restart(node)}
            case {"do": "delay", "a": str(a), "b": str(b), "ms": float() | int() as ms}:
                return {"said": self.impair(a, b, delay_ms=float(ms))}
            case {"do": "drop", "a": str(a), "b": str(b), "share": float() | int() as share}:
                return {"said": self.impair(a, b, drop=float(share))}
            case {"do": "heal"}:
                return {"said": await self.heal()}
            case {"do": "policy", "file": str(file)}:
                return {"said": self.follow(Path(file) if file else None)}
            case {"do": "status"}:
                from laps.lab.summary import summary

                return {"status": summary(self)}
        raise LapsError(f"the lab does not understand {asked}")

    async def kill(self, node: str) -> str:
        """End a relay without a word to anybody."""
        relay = self._relay(node)
        if not relay.runs:
            raise LapsError(f"{relay.name} is down already: laps lab start {relay.name}")
        left = {name for name, it in self.relays.items() if it.runs} - {relay.name}
        ways = [
            (a, b)
            for a, b, link in self.links
            if {a, b} <= left and link.mode is not PeerMode.CONTROL
        ]
        self._aftermath = Aftermath(relay.name, self.readers, self.writers, ways)
        await relay.kill()
        return self._note(f"{relay.name} was killed")

    async def restart(self, node: str) -> str:
        """Start a relay that was killed, at the same addresses."""
        relay = self._relay(node)
        if relay.runs:
            raise LapsError(f"{relay.name} is running: laps lab kill {relay.name}")
        await relay.start()
        return self._note(f"{relay.name} was started again")

    def impair(
        self, a: str, b: str, *, delay_ms: float | None = None, drop: float | None = None
    ) -> str:
        """Make a link slower, or lossy, from now on."""
        for relay, way in self._ends(a, b):
            if delay_ms is not None:
                way.delay_ms = delay_ms
            if drop is not None:
                way.drop = drop
            relay.reload()
        what = (
            f"takes {delay_ms:g} ms" if delay_ms is not None else f"loses {100 * (drop or 0):g} %"
        )
        return self._note(f"the link {a} to {b} {what}, each way")

    async def heal(self) -> str:
        """As it was at first: every relay runs, every link is as it was."""
        for a, b, link in self.links:
            for _, way in self._ends(a, b):
                way.delay_ms, way.jitter_ms = link.delay_ms, link.jitter_ms
                way.drop = link.loss
        for relay in self.relays.values():
            relay.reload()
        down = [relay for relay in self.relays.values() if not relay.runs]
        await asyncio.gather(*(relay.start() for relay in down))
        started = f"; started again: {', '.join(relay.name for relay in down)}" if down else ""
        return self._note(f"every link is as it was{started}")

    def follow(self, policy: Path | None) -> str:
        """Have every relay keep to another policy, or to none."""
        words = "no policy"
        settings = {name: it for name, it in self._settings.items() if name != "policy"}
        if policy is not None:
            load_policy(policy)
            words, settings = str(policy), _keeping_to(policy, settings)
        self._settings = settings
        for relay in self.relays.values():
            relay.settings = settings
            relay.reload()
        return self._note(f"every relay keeps to {words}")

    def _note(self, words: str) -> str:
        self.faults.append(Fault(time.time(), words))
        return words

    def _relay(self, node: str) -> Relay:
        try:
            name = format_node_id(parse_node_id(node))
        except InvalidText:
            name = node
        if name not in self.relays:
            raise ConfigError(f"no node {node} is in this lab; there are {', '.join(self.relays)}")
        return self.relays[name]

    def _ends(self, a: str, b: str) -> list[tuple[Relay, Way]]:
        """The ends of a link that dial, and how each is impaired there."""
        one, two = self._relay(a), self._relay(b)
        found = [
            (near, near.ways[far.address])
            for near, far in ((one, two), (two, one))
            if far.address in near.ways
        ]
        if not found:
            near = [x if y == one.name else y for x, y, _ in self.links if one.name in (x, y)]
            raise ConfigError(
                f"there is no link between {one.name} and {two.name}; {one.name} has links with "
                f"{', '.join(near) or 'nobody'}"
            )
        return found

    def _ways(self) -> list[Way]:
        return [way for relay in self.relays.values() for way in relay.ways.values()]


def _with(
    own: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Settings, with those of a network laid over them."""
    return {
        section: {**settings.get(section, {}), **own.get(section, {})}
        for section in {**settings, **own}
    }


def _keeping_to(
    policy: Path, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    return {**settings, "policy": {"file": str(policy.absolute())}}


async def _ended(process: asyncio.subprocess.Process) -> None:
    await process.wait()
