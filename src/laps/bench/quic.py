"""`laps bench quic`: what the QUIC endpoint does on loopback, beside qh3 alone and aioquic.

The server is a process of its own on the first core and the client one on the second. Sending is
a closed loop: the client keeps a megabyte ahead of the wire, and what counts is what the server
receives within so many seconds of its own clock. Contenders take turns within each round, so
that a noisy moment of the machine falls on all of them, and the median of the rounds is reported.

This module is also the program of both processes: `python -m laps.bench.quic serve laps`.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Final

from laps.bench.contenders import contenders
from laps.bench.process import Process, answer, pin

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.bench.contenders import Contender

CHUNK: Final = bytes(64 * 1024)
SMALL: Final = bytes(100)
DATAGRAM: Final = bytes(1000)
HANDSHAKES_AT_ONCE: Final = 4

# Nothing is counted before the congestion window is open.
WARM_UP_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    name: str
    unit: str
    counter: str
    "Which of a contender's counters tells."
    scale: float
    "What turns counts a second into the unit."
    wanted: dict[str, float] = field(default_factory=dict)
    "The least ratio of ours to each other contender."


CASES: Final = (
    Case("one stream", "Mbit/s", "stream_bytes", 8e-6, {"qh3": 0.85, "aioquic": 8.0}),
    Case("100 streams", "Mbit/s", "stream_bytes", 8e-6),
    Case("small writes", "thousand/s", "stream_bytes", 1e-3 / len(SMALL)),
    Case("datagrams", "/s", "datagrams", 1.0),
    Case("handshakes", "/s", "handshakes", 1.0),
)


@dataclass(frozen=True, slots=True)
class Result:
    """A case, and what each contender reached in it."""

    case: Case
    reached: dict[str, float]

    def ratio(self, other: str) -> float | None:
        """Ours to another's."""
        return self.reached["laps"] / self.reached[other] if self.reached.get(other) else None

    def holds(self) -> bool:
        """Whether every ratio is at least what is wanted, of those that were measured."""
        ratios = ((self.ratio(other), least) for other, least in self.case.wanted.items())
        return all(ratio >= least for ratio, least in ratios if ratio is not None)


def measure(
    seconds: float, rounds: int, only: list[str], progress: Callable[[str], None]
) -> list[Result]:
    """Run the cases; `progress` is told what is under way."""
    results = []
    for case in CASES:
        if only and case.name not in only:
            continue
        figures: dict[str, list[float]] = {name: [] for name in contenders()}
        for number in range(rounds):
            for name, reached in figures.items():
                progress(f"{case.name}, {name}, round {number + 1} of {rounds}")
                reached.append(run(case, name, seconds))
        results.append(Result(case, {name: median(reached) for name, reached in figures.items()}))
    return results


def as_mapping(results: list[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [
        {
            "case": result.case.name,
            "unit": result.case.unit,
            **{name: round(figure, 1) for name, figure in result.reached.items()},
            "ratios": {
                name: round(ratio, 3)
                for name in list(result.reached)[1:]
                if (ratio := result.ratio(name)) is not None
            },
            "wanted": result.case.wanted,
            "holds": result.holds(),
        }
        for result in results
    ]


def run(case: Case, name: str, seconds: float) -> float:
    """One measurement: a server process, a client process, a figure."""
    with Process("laps.bench.quic", "0", "serve", name) as server:
        port = server.line()
        with Process("laps.bench.quic", "1", "send", name, case.name, port) as client:
            client.line()
            counting = client if case.counter == "handshakes" else server
            sleep(WARM_UP_S)
            before = counting.ask()
            sleep(seconds)
            after = counting.ask()
    counted = after[case.counter] - before[case.counter]
    return counted / (after["time"] - before["time"]) * case.scale


# -- what the processes do -------------------------------------------------------------------------


async def _serve(contender: Contender) -> None:
    port = await contender.serve()
    await answer(str(port), contender.counts)


async def _send(contender: Contender, case: str, port: int) -> None:
    if case == "handshakes":
        tasks = [
            asyncio.ensure_future(_shake_hands(contender, port)) for _ in range(HANDSHAKES_AT_ONCE)
        ]
        await answer("ready", contender.counts)
        for task in tasks:
            task.cancel()
        return
    await contender.dial(port)
    match case:
        case "datagrams":
            task = asyncio.ensure_future(_send_datagrams(contender))
        case "one stream":
            task = asyncio.ensure_future(_write(contender, 1, CHUNK))
        case "100 streams":
            task = asyncio.ensure_future(_write(contender, 100, CHUNK[: 16 * 1024]))
        case _:
            task = asyncio.ensure_future(_write(contender, 1, SMALL))
    await answer("ready", contender.counts)
    task.cancel()


async def _shake_hands(contender: Contender, port: int) -> None:
    while True:
        await contender.handshake(port)
        contender.handshakes += 1


async def _write(contender: Contender, number: int, data: bytes) -> None:
    """Keep the stack's own queue filled, each stream in turn, whenever it has room."""
    streams = cycle([contender.open_stream() for _ in range(number)])

    def fill() -> None:
        for _ in range(contender.room() // len(data)):
            contender.write(next(streams), data)
        contender.flush()

    contender.on_writable = fill
    fill()
    await asyncio.Event().wait()


async def _send_datagrams(contender: Contender) -> None:
    """As many as the stack takes, and then again; the loop turns in between."""
    while True:
        contender.send_datagrams(DATAGRAM)
        contender.flush()
        await asyncio.sleep(0)


def _main(core: str, job: str, name: str, *args: str) -> None:
    pin(int(core))
    contender = contenders()[name]()
    work = _serve(contender) if job == "serve" else _send(contender, args[0], int(args[1]))
    with asyncio.Runner(loop_factory=contender.event_loop) as runner:
        runner.run(work)


if __name__ == "__main__":
    _main(*sys.argv[1:])
