"""The processes of a measurement: how they are started, asked, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def run(module: str, what: str, *args: object) -> Any:
    """What a module prints as JSON when it is run; `what` names it should it fail."""
    process = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", module, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise LapsError(f"the benchmark's process of {what} ended: {last[0]}")
    return json.loads(process.stdout)


class Process:
    """A process of our own, `python -m MODULE ARGS`; it ends when its standard input does."""

    def __init__(self, module: str, *args: str) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._args = args

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._popen.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()

    def line(self) -> str:
        """Its next line."""
        assert self._popen.stdout is not None  # noqa: S101 - asked for above
        line = self._popen.stdout.readline()
        if not line:
            _, errors = self._popen.communicate()
            last = errors.strip().splitlines()[-1:] or ["no reason given"]
            raise LapsError(f"the benchmark's process {' '.join(self._args)!r} ended: {last[0]}")
        return line.strip()

    def ask(self, question: str = "and now?") -> dict[str, float]:
        """What it has counted or measured so far, or answers to another question of one line."""
        assert self._popen.stdin is not None  # noqa: S101
        self._popen.stdin.write(f"{question}\n")
        self._popen.stdin.flush()
        answer: dict[str, float] = json.loads(self.line())
        return answer


async def answer(greeting: str, measured: Callable[[], Mapping[str, float]]) -> None:
    """Print the greeting, then what was measured for each line of input, until that ends."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def readable() -> None:
        if os.read(sys.stdin.fileno(), 4096):
            _say(json.dumps(measured()))
        else:
            loop.remove_reader(sys.stdin.fileno())
            over.set()

    loop.add_reader(sys.stdin.fileno(), readable)
    _say(greeting)
    await over.wait()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def pin(core: int) -> None:
    """Keep this process on one of the cores it may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})
