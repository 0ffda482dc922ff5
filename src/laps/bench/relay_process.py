"""A relay as a process of its own, as an operator starts it, and what the system says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from laps.errors import LapsError

ANY_PORT: Final = "127.0.0.1:0"

_PROGRAM: Final = "from laps.cli import main; main()"

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class RelayProcess:
    """`laps relay` on one core, until the block that it was started for is left."""

    def __init__(self, core: int, *args: str) -> None:
        command = [sys.executable, "-c", _PROGRAM, "relay"]
        listen = ["--listen", ANY_PORT, "--peer-listen", ANY_PORT]
        self._popen = subprocess.Popen(  # noqa: S603 - our own program
            [*command, *listen, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(self._popen.pid, {cores[core % len(cores)]})
        assert self._popen.stdout is not None  # noqa: S101 - asked for above
        line = self._popen.stdout.readline()
        if not line.startswith("ready "):
            _, errors = self._popen.communicate()
            last = errors.strip().splitlines()[-1:] or ["no reason given"]
            raise LapsError(f"the relay to be measured did not start: {last[0]}")
        self._told = dict(word.split("=", 1) for word in line.split()[1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._told["clients"].rpartition(":")[2])

    @property
    def peer_address(self) -> str:
        """Where other relays dial in."""
        return self._told["peers"]


def cpu_s(pid: int) -> float:
    """The processor time that a process has used, its own and the kernel's for it."""
    # pid (name) state ppid … utime stime …: the name may have spaces, so count behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def worked_s(pid: int) -> float:
    """The processor time of a process, to the nanosecond where the system tells it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return cpu_s(pid)


def waited_s(pid: int) -> float:
    """How long a process had work to do while others had its core; 0 where nobody tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def rss_bytes(pid: int) -> int:
    """The memory that a process has in use."""
    resident = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had in use."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )
