"""`laps bench telemetry`: what a relay's telemetry costs the relay.

    publishers -> relay -> subscribers          1,000 tracks, an object a second on each
                    |
                    +----> a reader of its four tracks of telemetry, in a second case

One relay, as an operator starts it, on the first core and its clients on the second. Telemetry is
turned off and on in turns (SIGHUP), in the same process with the same clients, and the processor
time of each turn is compared with that of the turn beside it.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from laps.bench.process import Process
from laps.bench.relay_process import RelayProcess, worked_s
from laps.bench.tables import table_of_figures
from laps.bench.telemetry_clients import Tracks
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

RELAY_CORE: Final = 0
CLIENT_CORE: Final = 1
NODE: Final = "1:1"

# The share of a core that telemetry may take, at a thousand tracks.
WANTED: Final = 0.01

# After telemetry is turned on its first round comes a second later, and tells of everything.
SETTLE_ON_S: Final = 1.6
SETTLE_OFF_S: Final = 0.4


@dataclass(frozen=True, slots=True)
class Case:
    """What flows while it is measured."""

    name: str
    tracks: int
    rate: float
    read: bool
    wanted: float | None


CASES: Final = (
    Case("1,000 tracks, nobody reads", 1000, 1.0, read=False, wanted=WANTED),
    Case("1,000 tracks, somebody reads all", 1000, 1.0, read=True, wanted=WANTED),
    Case("10,000 tracks, nobody reads", 10_000, 0.1, read=False, wanted=None),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a case came to, in shares of a core."""

    case: Case
    off: float
    on: float
    telemetry: float
    "The median of the differences between turns side by side."
    objects_per_s: float
    records: float
    "Objects of telemetry that were read."

    def holds(self) -> bool:
        """Whether it is as wanted."""
        return self.case.wanted is None or self.telemetry < self.case.wanted


def measure(
    seconds: float, rounds: int, tracks: int | None, progress: Callable[[str], None]
) -> list[Result]:
    """Run the cases; with `tracks`, those of that many."""
    cases = [case for case in CASES if tracks is None or case.tracks == tracks]
    return [_measure(case, seconds, rounds, progress) for case in cases]


def _measure(case: Case, seconds: float, rounds: int, progress: Callable[[str], None]) -> Result:
    with TemporaryDirectory() as folder:
        config = Path(folder) / "relay.toml"
        _write(config, enabled=False)
        args = ("--config", str(config), "--node-id", NODE, "--no-discovery")
        with RelayProcess(RELAY_CORE, *args) as relay:
            progress(f"{case.name}: connecting")
            load = Tracks(relay.port, NODE, case.tracks, case.rate, case.read)
            with Process(
                "laps.bench.telemetry_clients", str(CLIENT_CORE), json.dumps(asdict(load))
            ) as clients:
                clients.line()
                return _take_turns(case, seconds, rounds, progress, config, relay, clients)


def _take_turns(
    case: Case,
    seconds: float,
    rounds: int,
    progress: Callable[[str], None],
    config: Path,
    relay: RelayProcess,
    clients: Process,
) -> Result:
    shares: dict[bool, list[float]] = {False: [], True: []}
    began, before = monotonic(), clients.ask()
    for number in range(rounds):
        progress(f"{case.name}: turn {number + 1} of {rounds}")
        # Off, on, on, off: what drifts by itself is on both sides.
        for enabled in (False, True) if number % 2 == 0 else (True, False):
            _write(config, enabled=enabled)
            os.kill(relay.pid, signal.SIGHUP)
            sleep(SETTLE_ON_S if enabled else SETTLE_OFF_S)
            shares[enabled].append(_share(relay.pid, seconds))
    after, passed = clients.ask(), monotonic() - began
    objects = after["objects"] - before["objects"]
    expected = case.tracks * case.rate * passed
    if objects < 0.9 * expected:
        raise LapsError(f"{objects:,.0f} objects came of {expected:,.0f}: the machine is too busy")
    records = after["records"] - before["records"]
    if case.read and not records:
        raise LapsError("nothing came of the relay's telemetry")
    differences = [on - off for off, on in zip(shares[False], shares[True], strict=True)]
    return Result(
        case,
        median(shares[False]),
        median(shares[True]),
        median(differences),
        objects / passed,
        records,
    )


def _share(pid: int, seconds: float) -> float:
    began, before = monotonic(), worked_s(pid)
    sleep(seconds)
    worked = worked_s(pid) - before
    return worked / (monotonic() - began)


def _write(config: Path, *, enabled: bool) -> None:
    text = f"[telemetry]\nenabled = {str(enabled).lower()}\n"
    config.write_text(text + "[clients]\nrequests = 20000\n")


def holds(results: list[Result]) -> bool:
    """Whether all is as wanted."""
    return all(result.holds() for result in results)


def as_mapping(results: list[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [asdict(result) | {"holds": result.holds()} for result in results]


def table(results: list[Result]) -> Table:
    """The results for a person."""
    made = table_of_figures(
        "A relay with telemetry off and on in turns, in shares of a core",
        "Objects are of 1,000 bytes. Telemetry: the median of the differences between\n"
        "turns side by side.",
    )
    made.add_column("", no_wrap=True)
    for name in ("objects/s", "off", "on", "telemetry", "wanted", ""):
        made.add_column(name, justify="right", no_wrap=True)
    for result in results:
        wanted = result.case.wanted
        made.add_row(
            result.case.name,
            f"{result.objects_per_s:,.0f}",
            f"{result.off:.1%}",
            f"{result.on:.1%}",
            f"{result.telemetry:.2%}",
            "" if wanted is None else f"< {wanted:.0%}",
            "" if wanted is None else "met" if result.holds() else "[bold]missed[/bold]",
        )
    return made
