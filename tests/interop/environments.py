"""Where foreign clients live: an environment each, made once and kept under `.interop`.

What goes into one is pinned beside its drivers; a change there makes a new one. Whatever cannot
be had here (no network, no npm, no Chromium) skips the tests that need it, and says what it was.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
KEPT = HERE.parents[1] / ".interop"
# An installation that takes longer than this belongs into no test run.
PATIENCE_S = 60


def python_with(name: str) -> Path:
    """The interpreter of an environment with the packages of `drivers/NAME.txt`."""
    pins = DRIVERS / f"{name}.txt"
    version = "{}.{}".format(*sys.version_info[:2])

    def make(place: Path) -> None:
        _run(name, [sys.executable, "-m", "venv", str(place)])
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--no-input"]
        quick = ["--retries", "1", "--timeout", "10", "--disable-pip-version-check"]
        _run(name, [*pip, *quick, "-r", str(pins)])

    return _kept(name, pins.read_bytes() + version.encode(), make) / "bin" / "python"


def bundle_of(name: str) -> Path:
    """The packages of `drivers/NAME` and our page's script in one file."""
    source = DRIVERS / name
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"{name} needs npm: `apt install npm`")
    files = [source / "package.json", source / "package-lock.json", source / "driver.js"]

    def make(place: Path) -> None:
        place.mkdir()
        for file in files:
            shutil.copy(file, place)
        quick = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
        _run(name, [npm, "ci", *quick, "--prefix", str(place)])
        esbuild = str(place / "node_modules" / ".bin" / "esbuild")
        bundle = ["--bundle", "--format=iife", "--log-level=warning"]
        out = f"--outfile={place / 'bundle.js'}"
        _run(name, [esbuild, str(place / "driver.js"), *bundle, out])

    return _kept(name, b"".join(file.read_bytes() for file in files), make) / "bundle.js"


def _kept(name: str, recipe: bytes, make: Callable[[Path], None]) -> Path:
    """The environment made from this recipe; made elsewhere first, so that none is ever half."""
    place = KEPT / f"{name}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    if place.exists():
        return place
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=KEPT) as scratch:
        fresh = Path(scratch) / "environment"
        make(fresh)
        try:
            fresh.rename(place)
        except OSError:
            assert place.exists()  # another run was quicker
    for old in KEPT.glob(f"{name}-*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)
    return place


def _run(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{name} could not be had within {PATIENCE_S} s: {' '.join(command)}")
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        why = said[0] if said else f"{command[0]} ended with {done.returncode}"
        pytest.skip(f"{name} cannot be had here: {why}")
