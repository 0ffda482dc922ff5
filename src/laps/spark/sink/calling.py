"""Telling a batch to the companion of a query, and starting that where there is none."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from laps.errors import ConfigError, LapsError
from laps.spark.sink.companion import SOCKET, Answer, Driver, Request, started

START_S: Final = 30.0
"How long a companion may take to listen: half a second is normal, a busy machine takes longer."

ATTEMPTS: Final = 3
"A companion that dies is started again, and goes on with the batch; not for ever."

LOG: Final = "log"

LONGEST: Final = 100
"A little less than the path of a socket may have, on any system."


def publish(request: Request) -> bool:
    """Have a batch published; False if it had been before. LapsError says why it could not be."""
    folder = companion_folder(request.checkpoint)
    for _ in range(ATTEMPTS):
        answer = _ask(folder, request)
        if answer is None or answer.stale:
            continue
        if answer.ok:
            return answer.published
        raise (ConfigError if answer.config else LapsError)(answer.error)
    problem = f"the process that publishes for this query died {ATTEMPTS} times"
    raise LapsError(f"{problem}: {_last_words(folder)}")


def companion_folder(checkpoint: str) -> Path:
    """Where the companion of a sink listens."""
    return private_folder(f"sink-{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}")


def private_folder(name: str) -> Path:
    """A folder for what is of this machine only, and that only this user can open."""
    parent = Path(tempfile.gettempdir()) / f"laps-{os.getuid()}"
    folder = parent / name
    if len(str(folder / SOCKET)) > LONGEST:
        raise LapsError(f"{folder} is too long for a socket: set TMPDIR to a shorter path")
    for place in (parent, folder):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077 or place.is_symlink():
            raise LapsError(
                f"{place} is open to others, and is to hold what is published: remove it, or set "
                "TMPDIR to a folder of your own"
            )
    return folder


def _ask(folder: Path, request: Request) -> Answer | None:
    """The companion's answer; None if it died over it."""
    with _connect(folder) as line:
        try:
            data = msgspec.json.encode(request)
            line.sendall(len(data).to_bytes(8, "big") + data)
            with line.makefile("rb") as answers:
                size = answers.read(8)
                text = answers.read(int.from_bytes(size, "big"))
        except OSError:
            return None
    if not size:
        return None
    try:
        return msgspec.json.decode(text, type=Answer)
    except msgspec.MsgspecError:
        return None


def _connect(folder: Path) -> socket.socket:
    """A line to the companion, which is started if nobody answers."""
    deadline = time.monotonic() + START_S
    process: subprocess.Popen[bytes] | None = None
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(folder / SOCKET))
            return line
        except OSError:
            line.close()
        # One that ends may still have the place: the next attempt gets it.
        if process is None or process.poll() is not None:
            process = _start(folder)
        if time.monotonic() > deadline:
            problem = f"the process that publishes for this query does not listen in {START_S:g} s"
            raise LapsError(f"{problem}: {_last_words(folder)}")
        time.sleep(0.05)


_started: list[subprocess.Popen[bytes]] = []
"Companions that this process has started: they outlive it, and those that do not are reaped."


def _start(folder: Path) -> subprocess.Popen[bytes]:
    _started[:] = [process for process in _started if process.poll() is None]
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - this very Python
            [sys.executable, "-m", "laps.spark.sink", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Whoever ends Spark's processes together does not mean this one.
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    _started.append(process)
    return process


def _last_words(folder: Path) -> str:
    path = folder / LOG
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{path} ends with: {lines[-1]}" if lines else f"{path} is empty"


def driver_of(pid: int) -> Driver:
    """The driver that a process of Spark's belongs to: the nearest Java above it, or itself."""
    at = pid
    while at > 1:
        try:
            name, _, rest = Path(f"/proc/{at}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name == "java":
            return Driver(at, started(at))
        at = int(rest.split()[1])
    return Driver(pid, started(pid))
