"""What one hostile client costs a relay, and those beside it.

A publisher sends objects at a steady rate through a relay to a subscriber, first alone and then
beside one client that does its worst. Alone they need about half of the relay's core: what they
miss of their rate beside the attack they miss because of it, unless other programs have the core.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from laps.bench.hostile_clients import ATTACKS, SOURCE
from laps.bench.process import Process, run
from laps.bench.relay_process import RelayProcess, peak_bytes
from laps.bench.relay_sessions import Load
from laps.bench.tables import table_of_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

RELAY_CORE: Final = 0
CLIENT_CORE: Final = 1

# 512 Mbit/s take about half of the relay's core, and of the clients': what an attack takes beyond
# the other half it takes from the others.
RATE: Final = 16_000.0
OBJECT_BYTES: Final = 4000

# What the project asks of itself.
MOST_MB: Final = 50.0
LEAST_RATIO: Final = 0.9

# A bound that an operator sets, whoever fills it; full in both runs.
CACHE_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Result:
    """What one attack came to."""

    attack: str
    sent: float
    "What the attacker did: messages, streams, objects, datagrams."
    sessions: float
    memory_mb: float
    "How much more the relay held at its peak than without the attack."
    cpu_alone: float
    "What the others took of the relay's core alone."
    cpu: float
    "What they and the attack took of it."
    waited: float
    "How long the relay waited while other programs of the machine had its core, as a share."
    throughput: float
    "The others' objects a second beside the attack, as a share of what they had alone."
    lost: float
    p99_us: float

    def holds(self) -> bool:
        """Whether it is as wanted."""
        fair = self.throughput >= LEAST_RATIO
        return fair and self.memory_mb < MOST_MB and not self.lost


@contextmanager
def relay(cache_bytes: int = CACHE_BYTES) -> Iterator[RelayProcess]:
    """A relay with the limits that it has by default, for clients from another address too."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "relay.toml"
        config.write_text(
            f'[limits]\nexempt = ["127.0.0.1"]\n[cache]\nbytes = {cache_bytes}\n'
            "[telemetry]\nenabled = false\n"
        )
        with RelayProcess(RELAY_CORE, "--config", str(config), "--no-discovery") as process:
            yield process


def measure(seconds: float, only: Sequence[str], progress: Callable[[str], None]) -> list[Result]:
    """Run every attack, or those that are named, each at a relay of its own."""
    progress("nobody attacks")
    with relay() as target:
        alone = _load(target, seconds)
    return [_measure(name, seconds, alone, progress) for name in only or ATTACKS]


def _measure(
    name: str, seconds: float, alone: dict[str, float], progress: Callable[[str], None]
) -> Result:
    progress(f"{name}, from {SOURCE}")
    with (
        relay() as target,
        Process("laps.bench.hostile_clients", name, str(target.port)) as attacker,
    ):
        attacker.line()
        beside = _load(target, seconds)
        counted = attacker.ask()
    return Result(
        name,
        counted["sent"],
        counted["sessions"],
        (beside["peak_bytes"] - alone["peak_bytes"]) / 1e6,
        alone["cpu"],
        beside["cpu"],
        beside["waited_s"] / beside["time_s"],
        beside["per_s"] / alone["per_s"],
        beside["lost"],
        beside.get("p99_us", 0.0),
    )


def _load(target: RelayProcess, seconds: float) -> dict[str, float]:
    """What a publisher and a subscriber have of a relay for a while, and what that takes of it."""
    load = Load(target.port, target.pid, seconds, object_bytes=OBJECT_BYTES, rate=RATE)
    args = (CLIENT_CORE, json.dumps(asdict(load)))
    result: dict[str, float] = run("laps.bench.relay_clients", "the others", *args)
    result["cpu"] = result["cpu_s"] / result["time_s"]
    result["per_s"] = result["objects"] / result["time_s"]
    result["peak_bytes"] = peak_bytes(target.pid)
    return result


def as_mapping(results: list[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [asdict(result) | {"holds": result.holds()} for result in results]


def table(results: list[Result]) -> Table:
    """The results for a person."""
    made = table_of_figures(
        "One hostile client beside a publisher and a subscriber, at a relay on one core",
        f"Wanted: less than {MOST_MB:g} MB, a ratio of {LEAST_RATIO:g} and more, nothing lost. "
        "Ratio: the others'\nobjects a second beside the attack and alone, in one run. "
        "Core: what all of them took of the\nrelay's, and in brackets what the others took alone. "
        "Waited: while programs beside the\nbenchmark had that core; with much of it, the machine "
        "is what is measured.",
    )
    made.add_column("", no_wrap=True)
    for name in ("sent", "sessions", "MB", "core", "waited", "ratio", "lost", "p99 ms", ""):
        made.add_column(name, justify="right", no_wrap=True)
    for result in results:
        made.add_row(
            result.attack,
            f"{result.sent:,.0f}",
            f"{result.sessions:,.0f}",
            f"{result.memory_mb:.1f}",
            f"{result.cpu:.2f} ({result.cpu_alone:.2f})",
            f"{result.waited:.2f}",
            f"{result.throughput:.2f}",
            f"{result.lost:,.0f}",
            f"{result.p99_us / 1000:,.1f}",
            "met" if result.holds() else "[bold]missed[/bold]",
        )
    return made
