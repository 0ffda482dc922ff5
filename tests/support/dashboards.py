"""`laps dashboard` in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.programs import LAPS

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID = re.compile(r"dashboard (http://127\.0\.0\.1:\d+/)\n")


@contextmanager
def dashboard_process(*args: str) -> Iterator[str]:
    """One that serves; its address. It has to stop well at the end."""
    command = [LAPS, "dashboard", "--port", "0", *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            said = SAID.fullmatch(line)
            assert said is not None, line
            yield said[1]
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
