"""`laps bench control`: control servers share the subscribes of a network, over real sockets.

The servers are relays as an operator starts them, each peered with each. Edges are light ones, many
to a process (`light_edge`, `control_edges`), which speak the peering protocol on QUIC. Each track
is offered by one Edge and wanted by another. One thing after the other is measured:

    sessions    until every Edge has a session with every server, and knows every other Edge
    fill        all tracks are subscribed to, as fast as the servers take it
    changes     some are unsubscribed from and subscribed to again: how long until the publisher's
                Edge knows, and what it takes of the servers
    kill, add   a server is killed without a word meanwhile, and another is started and joins: until
                no Edge has anything left to tell to those that hold a share more
    compare     each publisher's Edge has to know exactly the subscribes that there are
    restart     a server is killed and started again: until it holds its share
"""

from __future__ import annotations

import json
import os
import time
from array import array
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from laps.bench.control_servers import ControlServer
from laps.bench.process import Process
from laps.bench.tables import Figure, as_mapping, table_of
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

EDGES_MODULE: Final = "laps.bench.control_edges"

# How often it is looked whether something has come to be.
LOOK_S: Final = 0.1
# What takes longer than this does not come to be; each subscribe to fill in adds a millisecond.
READY_S: Final = 60.0
FILL_EACH_S: Final = 0.001
# After the last change everything has arrived within this time, or does not arrive.
SETTLE_S: Final = 20.0
# What idle servers take is measured for this long, and is not counted for changes.
IDLE_S: Final = 2.0
# Changes go on for this long at least after a server was killed or added.
AFTER_S: Final = 5.0
# A machine that makes fewer of the changes that were asked for does not keep up.
KEEPS_UP: Final = 0.95


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured."""

    servers: int = 2
    edges: int = 8
    tracks: int = 20_000
    rate: float = 500.0
    seconds: float = 10.0
    kill: bool = False
    add: bool = False
    restart: bool = True


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the time in which changes were made."""

    name: str
    begin: float
    end: float
    changes: int


@dataclass(slots=True)
class Result:
    """What came of it."""

    asked: Asked
    figures: list[Figure] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    samples: list[tuple[float, float]] = field(default_factory=list)
    "Of each change: when it was made, and how long it took until it was known, in seconds."

    @property
    def keeps_up(self) -> bool:
        """Whether about as many changes were made as were asked for."""
        made = sum(it.changes for it in self.stretches)
        wanted = sum(self.asked.rate * (it.end - it.begin) for it in self.stretches)
        return made >= KEEPS_UP * wanted

    def holds(self) -> bool:
        """Whether every Edge knew in the end what it had to, and no more."""
        return all(figure.holds() for figure in self.figures)

    def add(
        self, case: str, what: str, value: float, unit: str = "", *, most: float | None = None
    ) -> None:
        """One figure more."""
        self.figures.append(Figure(case, what, value, unit, most=most))

    def add_delays(self, stretch: Stretch) -> None:
        """How long changes took that were made in a stretch."""
        delays = sorted(it for at, it in self.samples if stretch.begin <= at < stretch.end)
        for share, words in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
            value = 1000 * share_of(delays, share)
            self.add(stretch.name, f"until the publisher's Edge knows, {words}", value, "ms")


def share_of(values: Sequence[float], share: float) -> float:
    """What so many of some sorted values are at most; 0 of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


@dataclass(frozen=True, slots=True)
class Compared:
    """The subscribes that there are, beside those that are known."""

    missed: int
    left_over: int
    examples: tuple[int, ...] = ()
    "Some of either, by the numbers of their tracks."


def compare(wanted: Sequence[bytes], known: Sequence[bytes]) -> Compared:
    """Put together what processes hold: a byte for each track, 0 or 1."""
    is_wanted, is_known = _union(wanted), _union(known)
    missed, left_over = is_wanted & ~is_known, is_known & ~is_wanted
    examples: list[int] = []
    differs = missed | left_over
    while differs and len(examples) < 10:
        lowest = differs & -differs
        examples.append((lowest.bit_length() - 1) // 8)
        differs ^= lowest
    return Compared(missed.bit_count(), left_over.bit_count(), tuple(examples))


def _union(tables: Sequence[bytes]) -> int:
    found = 0
    for table in tables:
        found |= int.from_bytes(table, "little")
    return found


class Bench:
    """The processes of one measurement."""

    def __init__(
        self, asked: Asked, folder: Path, stack: ExitStack, progress: Callable[[str], None]
    ) -> None:
        self.asked = asked
        self.result = Result(asked)
        self._folder = folder
        self._stack = stack
        self._progress = progress
        self._epoch = time.monotonic()
        self.servers: list[ControlServer] = []
        self._started = 0
        self._edges: list[Process] = []

    def run(self) -> Result:
        """Measure one thing after the other."""
        self._start()
        self._fill()
        self._change()
        self._compare("compared")
        if self.asked.restart:
            self._restart()
        return self.result

    # -- processes ---------------------------------------------------------------------------------

    def add_server(self) -> ControlServer:
        """One server more, which is ended with the measurement."""
        self._started += 1
        made = ControlServer(self._folder, self._started, self.servers)
        self._stack.callback(made.kill)
        self.servers.append(made)
        return made

    def _start(self) -> None:
        self._progress(f"{self.asked.servers} control servers are started")
        for _ in range(self.asked.servers):
            self.add_server()
        began = time.monotonic()
        asked = self.asked
        count = min(asked.edges, max(2, (os.cpu_count() or 2) // 2))
        for number in range(count):
            given = {
                "tracks": asked.tracks,
                "edges": asked.edges,
                "mine": list(range(number, asked.edges, count)),
                "servers": [server.address for server in self.servers],
                "epoch": self._epoch,
                "folder": str(self._folder),
            }
            process = self._stack.enter_context(Process(EDGES_MODULE, json.dumps(given)))
            process.line()
            self._edges.append(process)
        what = "Edges have a session with each server, and know each other"
        self._until(what, lambda: self._all("has_servers") and self._all("knows_nodes"))
        self.result.add("sessions", "until all are there", time.monotonic() - began, "s")

    def _ask(self, **question: Any) -> list[dict[str, float]]:
        line = json.dumps({"servers": [server.id for server in self._ranked], **question})
        return [process.ask(line) for process in self._edges]

    @property
    def _ranked(self) -> list[ControlServer]:
        return sorted(self.servers, key=lambda it: it.id)

    def _state(self) -> dict[str, float]:
        states = self._ask(do="state")
        return {name: sum(it[name] for it in states) for name in states[0]}

    def _all(self, *names: str) -> bool:
        states = self._ask(do="state")
        return all(it[name] for it in states for name in names)

    def _until(
        self, what: str, holds: Callable[[], bool], limit_s: float = READY_S, *, fails: bool = True
    ) -> bool:
        """Wait until something holds, and say so where it takes a while."""
        began = time.monotonic()
        while not holds():
            spent = time.monotonic() - began
            if spent > limit_s:
                if fails:
                    raise LapsError(f"it did not come to be that {what}, in {limit_s:g} s")
                return False
            self._progress(f"{what}: {spent:.0f} s")
            time.sleep(LOOK_S)
        return True

    # -- phases ------------------------------------------------------------------------------------

    def _fill(self) -> None:
        tracks, add = self.asked.tracks, self.result.add
        before = sum(server.memory_bytes for server in self.servers)
        began = time.monotonic()
        self._ask(do="fill")
        limit_s = READY_S + FILL_EACH_S * tracks
        while (known := self._state()["known"]) < tracks:
            spent = time.monotonic() - began
            self._progress(f"fill: {known:,.0f} of {tracks:,} subscribes after {spent:.0f} s")
            if spent > limit_s:
                raise LapsError(f"{known:,.0f} of {tracks:,} subscribes after {limit_s:g} s")
            time.sleep(LOOK_S)
        spent = time.monotonic() - began
        self._until("the servers hold them", self._holds_shares, SETTLE_S, fails=False)
        held = sum(server.held for server in self.servers)
        memory = [server.memory_bytes for server in self.servers]
        add("fill", "subscribes", tracks)
        add("fill", "subscribes a second", tracks / spent)
        add("fill", "held by the servers", held)
        add("fill", "memory of a server, the most", max(memory) / 1e6, "MB")
        add("fill", "for each subscribe that it holds", (sum(memory) - before) / held, "B")

    def _holds_shares(self) -> bool:
        """Whether the servers hold as many as they have to; of two or fewer each holds all."""
        copies = min(2, len(self.servers))
        return sum(server.held for server in self.servers) == copies * self.asked.tracks

    def _change(self) -> None:
        asked = self.asked
        self._progress(f"idle servers are looked at for {IDLE_S:g} s")
        idle_s = -self._cpu_s()
        time.sleep(IDLE_S)
        idle_s = (idle_s + self._cpu_s()) / IDLE_S
        self._ask(do="change", rate=asked.rate / len(self._edges))
        cpu_s, before = self._cpu_s(), self._state()
        steady = self._stretch("changes", asked.seconds)
        cpu_s, after = self._cpu_s() - cpu_s, self._state()
        killed = self._kill() if asked.kill else None
        added = self._add() if asked.add else None
        self._ask(do="change", rate=0)
        self._until("everything has been said", lambda: self._all("is_quiet"))
        self._read_samples()
        add, changes = self.result.add, max(1, steady.changes)
        add("changes", "asked for in a second", asked.rate)
        add("changes", "made in a second", steady.changes / (steady.end - steady.begin))
        self.result.add_delays(steady)
        moved = after["bytes"] - before["bytes"]
        add("changes", "servers receive and send, for each", moved / changes, "B")
        busy_s = max(0.0, cpu_s - idle_s * (steady.end - steady.begin))
        add("changes", "servers' processor time, for each", 1e6 * busy_s / changes, "us")
        for stretch, after_s in filter(None, (killed, added)):
            for what, seconds in after_s.items():
                add(stretch.name, what, seconds, "s")
            self.result.add_delays(stretch)

    def _stretch(
        self,
        name: str,
        seconds: float,
        act: Callable[[], object] = lambda: None,
        holds: Callable[[float], bool] = lambda _: True,
    ) -> Stretch:
        """Do something, and let changes go on for so long and until something holds since then."""
        before, began = self._state()["made"], self._now()
        act()
        is_held = False
        while (spent := self._now() - began) < seconds or not is_held:
            self._progress(f"{name}: {self.asked.rate:g} changes a second, {spent:.0f} s")
            time.sleep(LOOK_S)
            is_held = is_held or holds(began)
            if spent > seconds + READY_S + FILL_EACH_S * self.asked.tracks:
                raise LapsError(f"{name}: the shares were not whole again after {spent:.0f} s")
        stretch = Stretch(name, began, self._now(), int(self._state()["made"] - before))
        self.result.stretches.append(stretch)
        return stretch

    def _now(self) -> float:
        return time.monotonic() - self._epoch

    def _cpu_s(self) -> float:
        return sum(server.cpu_s for server in self.servers)

    def _kill(self) -> tuple[Stretch, dict[str, float]]:
        name, noticed = "a server is killed", "until all Edges have noticed"
        return self._move(name, noticed, lambda: self.servers.pop().kill())

    def _add(self) -> tuple[Stretch, dict[str, float]]:
        name, noticed = "a server is added", "until all Edges have a session with it"
        return self._move(name, noticed, self.add_server)

    def _move(
        self, name: str, noticed: str, act: Callable[[], object]
    ) -> tuple[Stretch, dict[str, float]]:
        """Changes go on while Edges tell other servers their shares; how long that took."""
        after_s: dict[str, float] = {}

        def is_whole(began: float) -> bool:
            states = self._ask(do="state")
            if all(it["has_servers"] for it in states):
                after_s.setdefault(noticed, self._now() - began)
                if all(it["is_whole"] for it in states):
                    after_s["until the shares are whole again"] = self._now() - began
                    return True
            return False

        seconds = max(AFTER_S, self.asked.seconds / 2)
        return self._stretch(name, seconds, act, is_whole), after_s

    def _restart(self) -> None:
        case, server = "a server is restarted", self.servers[0]
        self._progress(f"{case}: what its share is")
        share = self._shares()[server.id]
        before = self._state()["told_again"]
        began = time.monotonic()
        server.kill()
        server.start()
        started_s = time.monotonic() - began
        limit_s = READY_S + FILL_EACH_S * self.asked.tracks
        held = self._until(
            f"{case}: it holds its share", lambda: server.held == share, limit_s, fails=False
        )
        whole_s, add = time.monotonic() - began, self.result.add
        add(case, "until it runs", started_s, "s")
        add(case, "until it holds its share", whole_s, "s")
        add(case, "its share", share)
        add(case, "told again by Edges", self._state()["told_again"] - before)
        if not held:
            add(
                case, "subscribes that it lacks, or has and should not", _off(server, share), most=0
            )
        self._compare(case)

    # -- what has to be so -------------------------------------------------------------------------

    def _shares(self) -> dict[int, int]:
        """How many subscribes each server has to hold."""
        found: dict[int, int] = {}
        for shares in self._ask(do="shares"):
            for server, held in shares.items():
                found[int(server)] = found.get(int(server), 0) + int(held)
        return found

    def _compare(self, case: str) -> None:
        """Every publisher's Edge has to know the subscribes that there are, and no others."""
        shares, found = self._shares(), Compared(0, 0)

        def agrees() -> bool:
            nonlocal found
            found = self._compared()
            is_shared = all(it.held == shares.get(it.id, 0) for it in self.servers)
            return not found.missed and not found.left_over and is_shared

        self._until(f"{case}: all is known", agrees, SETTLE_S, fails=False)
        add, state = self.result.add, self._state()
        add(case, "subscribes that there are", state["wanted"])
        add(case, "missed by the publisher's Edge", found.missed, most=0)
        add(case, "left over at the publisher's Edge", found.left_over, most=0)
        off = sum(_off(server, shares.get(server.id, 0)) for server in self.servers)
        add(case, "too many or too few at servers", off, most=0)

    def _compared(self) -> Compared:
        for number, process in enumerate(self._edges):
            process.ask(json.dumps({"do": "keep", "as": f"edges-{number}"}))
        kept = [
            [path.read_bytes() for path in sorted(self._folder.glob(f"edges-*.{kind}"))]
            for kind in ("wanted", "known")
        ]
        return compare(*kept)

    def _read_samples(self) -> None:
        self._compared()
        for path in self._folder.glob("edges-*.samples"):
            values = array("d", path.read_bytes())
            self.result.samples += zip(values[::2], values[1::2], strict=True)
        self.result.samples.sort()


def _off(server: ControlServer, share: int) -> int:
    return abs(server.held - share)


def measure(asked: Asked, progress: Callable[[str], None] = lambda _: None) -> Result:
    """Do all that was asked for; `progress` is told what is under way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="laps-control-")))
        return Bench(asked, folder, stack, progress).run()


def table(result: Result) -> Table:
    """The results for a person."""
    asked = result.asked
    caption = (
        "A change is a subscribe or an unsubscribe at one Edge, until\n"
        "the Edge that offers the track knows. Shares are whole when\n"
        "no Edge has anything left to tell to a server."
    )
    if not result.keeps_up:
        caption += "\nThe machine did not keep up: not all changes were made."
    title = f"{asked.servers} control servers and {asked.edges} Edges, {asked.tracks:,} tracks"
    return table_of(result.figures, title, caption)


def mapping(result: Result) -> dict[str, object]:
    """The results for a program."""
    return {
        "asked": asdict(result.asked),
        "figures": as_mapping(result.figures),
        "stretches": [asdict(stretch) for stretch in result.stretches],
        "keeps_up": result.keeps_up,
        "holds": result.holds(),
    }
