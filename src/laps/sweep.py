"""Many seeds of simulated networks, in processes; a sweep can be stopped and continued.

    state = State(Path("sweep-failover.jsonl"))
    for outcome in sweep(jobs(families, range(1000), state), processes=8):
        if outcome is not None:
            state.add(outcome)

A seed is run from beginning to end by one process, so one that fails is run again by its number.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from multiprocessing import connection, get_context
from typing import TYPE_CHECKING, Final

import msgspec

from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from laps.sim.families import Family

# Who shows how far a sweep is wants to be called this often.
SHOW_S: Final = 0.5


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one seed."""

    family: str
    seed: int
    findings: tuple[str, ...] = ()
    "What does not hold."
    seconds: float = 0.0
    "Of processor time."


class State:
    """The file of a sweep: a line for each seed that is done, the latest of a seed counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        try:
            self._read()
            self._file = path.open("ab")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be kept as a sweep's state: {error}") from None
        if self._is_cut:
            self._file.write(b"\n")

    def _read(self) -> None:
        self._is_cut = False
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                outcome = msgspec.json.decode(line, type=Outcome) if line else None
            except (msgspec.DecodeError, UnicodeDecodeError):
                # A sweep that was killed while it wrote leaves half a line, after which another
                # begins a new one.
                if not line.startswith(b'{"family":'[: len(line)]):
                    problem = f"line {number} is not of a sweep: name another file with --state"
                    raise ConfigError(f"{self.path}: {problem}") from None
                outcome = None
            if outcome is not None:
                self.outcomes[outcome.family, outcome.seed] = outcome
        self._is_cut = bool(lines[-1])

    def add(self, outcome: Outcome) -> None:
        """A seed is done; from now on it counts, whatever happens to this process."""
        self.outcomes[outcome.family, outcome.seed] = outcome
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()


def sweep(
    work: Iterable[tuple[Family, int]], processes: int, show_s: float = SHOW_S
) -> Iterator[Outcome | None]:
    """Run seeds, as many at once as there are processes; None every now and then."""
    waiting = iter(work)
    workers: dict[Connection, _Worker] = {}
    try:
        for _ in range(processes):
            if (job := next(waiting, None)) is None:
                break
            worker = _Worker(job)
            workers[worker.pipe] = worker
        while workers:
            ready = connection.wait(list(workers), timeout=show_s)
            if not ready:
                yield None
            for pipe in ready:
                worker = workers.pop(pipe)  # type: ignore[call-overload] # only pipes are waited for
                yield worker.outcome()
                if (job := next(waiting, None)) is None:
                    worker.stop()
                    continue
                if worker.is_alive:
                    worker.run(job)
                else:
                    worker = _Worker(job)
                workers[worker.pipe] = worker
    finally:
        for worker in workers.values():
            worker.stop()


class _Worker:
    """A process that runs one seed after the other, until this one closes its pipe or ends."""

    def __init__(self, job: tuple[Family, int]) -> None:
        # Spawned, not forked: it has none of the pipes of the others, so that each of them sees
        # the end of its own.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.is_alive = True
        self.run(job)

    def run(self, job: tuple[Family, int]) -> None:
        """Have it run a seed."""
        self._job = job
        with suppress(BrokenPipeError):  # it died just now, which reading tells
            self.pipe.send(job)

    def outcome(self) -> Outcome:
        """What came of it; that the process has died, too."""
        family, seed = self._job
        try:
            findings, seconds = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            self.is_alive = False
            findings = [f"its process ended with exit code {self._process.exitcode}"]
            seconds = 0.0
        return Outcome(family=family.name, seed=seed, findings=tuple(findings), seconds=seconds)

    def stop(self) -> None:
        """End it, whatever it does."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _work(pipe: Connection) -> None:
    # Ctrl-C goes to all processes of a terminal: the first one sees to the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):  # whoever asked is gone
        while True:
            family, seed = pipe.recv()
            began = time.process_time()
            found = family.findings(seed)
            pipe.send((found, round(time.process_time() - began, 3)))
