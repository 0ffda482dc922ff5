"""A part of a benchmark in a process of its own: what was measured before it does not count."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from laps.errors import LapsError


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
