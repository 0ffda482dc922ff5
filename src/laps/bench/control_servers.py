"""Control servers as processes of their own, which are killed and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from laps.bench.relay_process import ANY_PORT, cpu_s, rss_bytes
from laps.errors import LapsError
from laps.types import NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Node ids of control servers are 9:1, 9:2 …
FIRST_SERVER: Final = 9 << 32

# On a machine that is busy with all of them, who answers late is not dead. One that is killed is
# noticed sooner: its machine refuses what is sent.
DEAD_AFTER_S: Final = 5.0

# A server that is told two million subscribes at once answers a little later.
ANSWER_S: Final = 10.0

# It ends with its standard input, and so with the process that measures it, however that ends.
_PROGRAM: Final = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from laps.cli import main
main()
"""


class ControlServer:
    """A relay of type control, as an operator starts it, on a port that stays the same."""

    def __init__(self, folder: Path, number: int, others: Sequence[ControlServer]) -> None:
        self.id = NodeId(FIRST_SERVER + number)
        self.name = f"9:{number}"
        self.address = ANY_PORT
        self._admin = ""
        self._config = folder / f"server-{number}.toml"
        self._dials = [other.address for other in others]
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Run it, and wait until it listens."""
        self._config.write_text(
            f'[node]\nid = "{self.name}"\ntype = "control"\n'
            f'[peering]\nlisten = "{self.address}"\ncontrol = {json.dumps(self._dials)}\n'
            f"dead_after_s = {DEAD_AFTER_S}\n"
            f'[discovery]\nenabled = false\n[admin]\nlisten = "{ANY_PORT}"\n'
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM, "relay", "--config", str(self._config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise LapsError(f"the control server {self.name} to be measured did not start")
        told = dict(word.split("=", 1) for word in line.split()[1:])
        self.address, self._admin = told["peers"], told["admin"]

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None

    @property
    def held(self) -> int:
        """How many subscribes it holds; -1 where it does not answer."""
        return int(self._ask().get("sizes", {}).get("subscribes", -1))

    @property
    def cpu_s(self) -> float:
        """The time of the processor that it has taken."""
        return 0.0 if self._process is None else cpu_s(self._process.pid)

    @property
    def memory_bytes(self) -> int:
        """The memory that it has in use."""
        return 0 if self._process is None else rss_bytes(self._process.pid)

    def _ask(self) -> dict[str, Any]:
        with suppress(OSError, urllib.error.URLError):
            where = f"http://{self._admin}/v1/node"
            with urllib.request.urlopen(where, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        return {}
