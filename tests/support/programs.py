"""`laps` as a person runs it, in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LAPS = str(Path(sys.executable).with_name("laps"))
ANY = "127.0.0.1:0"
READY = re.compile(
    r"ready node=\S+ clients=(\S+) peers=(\S+) sha256=([0-9a-f]{64}) admin=(\S+) auth=\S+\n"
)


@dataclass(frozen=True)
class RelayProcess:
    clients: str
    peers: str
    sha256: str
    admin: str
    "Where its admin API is, or none."
    log: Path
    "What it says on standard error."
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it without a word to anybody."""
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        return f"https://{self.clients}/"


@contextmanager
def relay_process(log: Path, *args: str) -> Iterator[RelayProcess]:
    """A relay that listens; it is stopped at the end, and has to stop well if it was not killed."""
    command = [LAPS, "relay", "-v", "--listen", ANY, "--peer-listen", ANY, *args]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = READY.fullmatch(line)
            assert ready is not None, line or log.read_text()
            yield RelayProcess(ready[1], ready[2], ready[3], ready[4], log, process)
        finally:
            killed = process.returncode == -signal.SIGKILL
            process.terminate()
            status = process.wait(timeout=20)
        assert killed or status == 0, log.read_text()
