"""`laps lab chaos`: relays die at random, and nobody misses an object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from laps import places
from support.programs import LAPS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Beside the faults themselves: starting nine or twelve relays on a busy machine, and ending.
PATIENCE_S = 180.0


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as short:  # sockets want it short
        monkeypatch.setenv(places.VARIABLE, f"{short}/place")
        monkeypatch.setenv("TMPDIR", short)
        yield


def chaos(*args: str, minutes: float) -> dict[str, Any]:
    command = [LAPS, "lab", "chaos", "--minutes", str(minutes), "--json", *args]
    shown = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60 * minutes + PATIENCE_S,
        check=False,
    )
    assert shown.stdout, shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    assert found["faults"], found
    assert (found["lost"], found["twice"]) == (0, 0), found
    assert all(row["received"] for row in found["subscribers"]), found


def test_a_minute_of_chaos_loses_and_doubles_nothing() -> None:
    check(chaos("--relays", "small", "--seed", "1", minutes=1))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1])
def test_ten_minutes_of_chaos_lose_and_double_nothing(seed: int) -> None:
    check(chaos("--seed", str(seed), minutes=10))


@pytest.mark.nightly
def test_ctrl_c_ends_chaos_in_good_order_and_says_what_was_seen() -> None:
    command = [LAPS, "lab", "chaos", "--relays", "small", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if ": longest pause " in line:
                    break
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    found = json.loads(out)
    check(found)
    assert found["seconds"] < 600
    for relay in found["memory"]:
        with pytest.raises(ProcessLookupError):
            os.kill(relay["pid"], 0)


def test_a_size_that_is_not_known_is_refused_in_one_line() -> None:
    shown = subprocess.run(
        [LAPS, "lab", "chaos", "--relays", "huge"], capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == 'laps: --relays "huge": known are full, small\n'
