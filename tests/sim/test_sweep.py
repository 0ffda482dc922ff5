"""Sweeps over seeds: stopped, killed and continued, and what they say of seeds that fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from laps.cli_sim import sim
from laps.errors import ConfigError
from laps.sim.families import FAMILIES
from laps.sweep import Outcome, State, sweep
from support.sweeping import ODD, STRANGE

if TYPE_CHECKING:
    from pathlib import Path

LAPS = [sys.executable, "-c", "from laps.cli import main; main()", "sim", "sweep"]


def call(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(sim, ["sweep", *args])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "odd", ODD)


def test_sweep_runs_every_seed_whatever_becomes_of_others() -> None:
    work = [(STRANGE, seed) for seed in range(6)]
    done = {one.seed: one.findings for one in sweep(work, processes=2) if one is not None}
    assert sorted(done) == list(range(6))
    assert done[0] == done[4] == done[5] == ()
    assert done[1] == ("LapsError: never at rest",)
    assert "ZeroDivisionError" in done[2][0]
    assert done[3] == ("its process ended with exit code 7",)


@pytest.mark.usefixtures("odd")
def test_sweep_shows_what_fails_and_how_to_run_it_alone(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    args = ("--family", "odd", "--count", "4", "--jobs", "1", "--state", state)
    code, text = call(*args)
    assert code == 1
    assert "odd 3: laps sim sweep --family odd --from 3 --count 1 --again" in text
    assert "  3 is odd" in text
    assert "  and 5 more" in text
    assert "4 of 4 seeds, 2 failed" in text
    # What failed before is not forgotten.
    code, text = call(*args, "--json")
    assert code == 1
    shown = json.loads(text)
    assert shown["done"] == 4
    assert [one["seed"] for one in shown["failed"]] == [1, 3]
    one = ("--family", "odd", "--from", "2", "--count", "1", "--again")
    assert call(*one, "--state", state)[0] == 0


def start(state: Path, *args: str) -> subprocess.Popen[str]:
    """A long sweep, of which one seed is done."""
    command = [*LAPS, "--family", "both-dial", "--count", "10000", "--jobs", "1"]
    process = subprocess.Popen(
        [*command, "--state", str(state), *args],
        stderr=subprocess.PIPE,
        text=True,
        # What a shell runs in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not (state.exists() and state.read_bytes().count(b"\n")):
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_sweep_is_stopped_and_continued(tmp_path: Path, number: signal.Signals) -> None:
    state = tmp_path / "state"
    with start(state) as process:
        process.send_signal(number)
        try:
            said = process.communicate(timeout=20)[1]
        finally:
            process.kill()
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert "failed" in said
        assert "the same command goes on" in said
    kept = State(state)
    kept.close()
    done = len(kept.outcomes)
    assert done
    # All of these are done, so nothing is run.
    again = ("--family", "both-dial", "--count", str(done), "--state", str(state))
    code, text = call(*again)
    assert (code, text) == (0, f"{done} of {done} seeds, 0 failed\n")
    assert state.read_bytes().count(b"\n") == done


def test_sweep_survives_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b'{"family":"odd","seed":0,"findings":[],"seconds":0.1}\n{"family":"odd","se')
    state = State(path)
    state.add(Outcome(family="odd", seed=1))
    state.close()
    again = State(path)
    again.close()
    assert list(again.outcomes) == [("odd", 0), ("odd", 1)]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--family", "none"), '--family "none" is not known: random, narrow, both-dial'),
        (("--state", __file__), "line 1 is not of a sweep: name another file with --state"),
        (("--state", "/no/such/state"), "cannot be kept as a sweep's state"),
    ],
)
def test_sweep_refuses_what_is_wrong(args: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    assert problem in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_sweep_help_names_every_family() -> None:
    shown = " ".join(call("--help")[1].split())
    assert all(name in shown for name in FAMILIES)
    assert "Example: laps sim sweep" in shown
