"""`laps bench admin`: what it costs a relay to be looked into.

One relay on the first core with ten thousand tracks, each with a publisher and a subscriber, and
its clients on the second. It is asked for the same view again and again; what it works while
nobody asks is taken off. The longest that its loop was held is the longest that an object, which
came at the worst time, had to wait.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

import httpx

from laps.bench.process import Process
from laps.bench.tables import table_of_figures
from laps.bench.telemetry_clients import Tracks
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

RELAY_CORE: Final = 0
CLIENT_CORE: Final = 1

# What a scrape may cost, with ten thousand tracks.
WANTED_MS: Final = 50.0
# What an object may wait: with the relay's own rounds through all its tracks, each second, which
# take a fifth of it, and what has gathered while others had the processor.
WANTED_HELD_MS: Final = 50.0

# Of all tracks together: each is alive, and the relay is not busy with them.
OBJECTS_PER_S: Final = 500.0

REST_S: Final = 3.0

# How much longer than it ought to take objects are waited for.
PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """A view that is asked for."""

    name: str
    path: str
    wanted: bool = True
    "Whether the bounds are for it."


CASES: Final = (
    Case("/metrics", "/metrics"),
    Case("/v1/tracks, 1,000 of them", "/v1/tracks?limit=1000"),
    Case("/v1/tracks, all", "/v1/tracks?limit=0", wanted=False),
    Case("/v1/tracks, all that contain a text", "/v1/tracks?limit=0&q=t42", wanted=False),
    Case("/v1/fib, 1,000 flows", "/v1/fib?limit=1000", wanted=False),
    Case("/v1/node", "/v1/node"),
)


AT_REST: Final = Case("nobody asks, each second", "", wanted=False)


@dataclass(frozen=True, slots=True)
class Result:
    """What a view came to, in milliseconds."""

    case: Case
    cpu_ms: float
    "Of the relay's processor, the median of all times."
    held_ms: float
    "The longest that its loop was held, of all times."
    answer_ms: float
    "Until the answer was there."
    size_bytes: int

    def holds(self) -> bool:
        """Whether it is as wanted."""
        return not self.case.wanted or (self.cpu_ms < WANTED_MS and self.held_ms < WANTED_HELD_MS)


def measure(tracks: int, rounds: int, progress: Callable[[str], None]) -> list[Result]:
    """Ask for each view so often."""
    with Process("laps.bench.admin_relay", str(RELAY_CORE)) as relay:
        port, admin = relay.line().split()
        load = Tracks(int(port), "1:1", tracks, OBJECTS_PER_S / tracks, read=False)
        progress(f"{tracks:,} tracks: connecting")
        with Process(
            "laps.bench.telemetry_clients", str(CLIENT_CORE), json.dumps(asdict(load))
        ) as clients:
            clients.line()
            progress(f"{tracks:,} tracks: waiting for objects")
            _wait(clients, tracks)
            with httpx.Client(base_url=f"http://{admin}", trust_env=False, timeout=60) as http:
                _check(http, tracks)
                progress("nobody asks")
                rest = _at_rest(relay)
                share = rest.cpu_ms / 1e3
                asked = [_measure(case, rounds, relay, http, share, progress) for case in CASES]
                return [rest, *asked]


def _wait(clients: Process, tracks: int) -> None:
    """Until each track has had an object, about."""
    until = monotonic() + PATIENCE * max(1.0, tracks / OBJECTS_PER_S)
    while clients.ask()["objects"] < tracks:
        if monotonic() > until:
            raise LapsError("objects do not come: the machine is too busy")
        sleep(0.5)


def _check(http: httpx.Client, tracks: int) -> None:
    total = http.get("/v1/tracks?limit=1").json()["total"]
    if total < tracks:
        raise LapsError(f"the relay knows {total:,} tracks of {tracks:,}")


def _at_rest(relay: Process) -> Result:
    """What the relay works while nobody asks."""
    before, began = relay.ask()["cpu_s"], monotonic()
    sleep(REST_S)
    after, passed = relay.ask(), monotonic() - began
    share = (after["cpu_s"] - before) / passed
    return Result(AT_REST, 1e3 * share, 1e3 * after["held_s"], 0.0, 0)


def _measure(
    case: Case,
    rounds: int,
    relay: Process,
    http: httpx.Client,
    share: float,
    progress: Callable[[str], None],
) -> Result:
    progress(case.name)
    http.get(case.path)  # whatever is loaded or made once is there then
    relay.ask()
    works, takes, held, size = [], [], 0.0, 0
    for _ in range(rounds):
        before, began = relay.ask(), monotonic()
        answer = http.get(case.path)
        passed = monotonic() - began
        after = relay.ask()
        if answer.status_code != httpx.codes.OK:
            raise LapsError(f"{case.path}: {answer.status_code}: {answer.text[:200]}")
        works.append(after["cpu_s"] - before["cpu_s"] - share * passed)
        takes.append(passed)
        held, size = max(held, after["held_s"]), len(answer.content)
    return Result(
        case,
        cpu_ms=1e3 * max(0.0, median(works)),
        held_ms=1e3 * held,
        answer_ms=1e3 * median(takes),
        size_bytes=size,
    )


def holds(results: list[Result]) -> bool:
    """Whether all is as wanted."""
    return all(result.holds() for result in results)


def as_mapping(results: list[Result]) -> list[dict[str, Any]]:
    """The results for a program."""
    return [asdict(result) | {"holds": result.holds()} for result in results]


def table(tracks: int, results: list[Result]) -> Table:
    """The results for a person."""
    made = table_of_figures(
        f"A relay with {tracks:,} tracks that is looked into, in milliseconds",
        "CPU: the relay's own, the median. Held: the longest that its loop\n"
        "was, by its own work and not the garbage collector's.\n"
        f"Wanted: both below {WANTED_MS:g}.",
    )
    made.add_column("", no_wrap=True)
    for name in ("CPU", "held", "answer", "KB", ""):
        made.add_column(name, justify="right", no_wrap=True)
    for result in results:
        verdict = "met" if result.holds() else "[bold]missed[/bold]"
        made.add_row(
            result.case.name,
            f"{result.cpu_ms:.1f}",
            f"{result.held_ms:.1f}",
            f"{result.answer_ms:.1f}",
            f"{result.size_bytes / 1e3:,.0f}",
            verdict if result.case.wanted else "",
        )
    return made
