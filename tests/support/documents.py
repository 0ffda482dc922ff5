"""The commands of a page, run as a reader would: in order, some of them beside the others.

What a page shows as `sh` is run by bash, in one folder, and has to end with status 0. A comment
above a block, which a reader does not see, says what else there is to it:

    <!-- run beside until "ready" -->    goes on beside what follows; it has said this before that
    <!-- run says "3 objects" -->        has said this when it ends; may be said several times
    <!-- run fails -->                   ends with another status than 0
    <!-- stop "laps relay" -->           ends what was started beside and contains this, then runs
    <!-- file page/index.html -->        is written there, whatever its language is
    <!-- step name -->                   the test does it
    <!-- not run: why -->                is for another machine, or for a person
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0

_BLOCK = re.compile(r"((?:^<!--.*?-->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- (.*?) -->")
_PORT = re.compile(r"127\.0\.0\.1:(\d{4,5})\b")
_QUOTED = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """Something a page shows as code."""

    page: Path
    line: int
    language: str
    text: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def note(self, begins: str) -> str | None:
        """What a note says behind the words it begins with."""
        found = [note.removeprefix(begins).strip() for note in self.notes if _is(note, begins)]
        return found[0] if found else None

    def quoted(self, begins: str) -> list[str]:
        """What all notes with this beginning quote."""
        return [text for note in self.notes if _is(note, begins) for text in _QUOTED.findall(note)]


def _is(note: str, begins: str) -> bool:
    return note == begins or note.startswith((f"{begins} ", f"{begins}:"))


def blocks(page: Path) -> list[Block]:
    """Everything that a page shows as code, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, m.start(2)) + 1, m[2], m[3], tuple(_NOTE.findall(m[1])))
        for m in _BLOCK.finditer(text)
    ]


def free_port() -> int:
    """A port that nothing listens on, by UDP or TCP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
                udp.bind(("127.0.0.1", port))
                return port


class Beside:
    """A command that goes on beside others."""

    def __init__(self, block: Block, command: str, log: Path, process: subprocess.Popen[bytes]):
        self.block = block
        self.command = command
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        """All that it has said up to now."""
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Until it has said something."""
        until = time.monotonic() + WAIT_S
        while text not in self.said:
            assert self.process.poll() is None, f"{self.block}: it ended: {self.said}"
            assert time.monotonic() < until, f"{self.block}: not a word of {text!r}: {self.said}"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it, and all that it has started."""
        for number, wait_s in ((signal.SIGINT, 10.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 5)):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)
                break
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Reader:
    """Somebody who does what a page says, with ports that are free on this machine."""

    def __init__(self, folder: Path, pages: Iterable[Path], **steps: Callable[[Reader], None]):
        self.folder = folder
        self.done: list[Block] = []
        self.beside: list[Beside] = []
        self._steps = steps
        ports = {port for page in pages for port in _PORT.findall(page.read_text())}
        self._ports = {port: str(free_port()) for port in sorted(ports)}
        (folder / "examples").symlink_to(ROOT / "examples")
        programs = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LAPS_PLACE": str(folder / "place"),
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for beside in reversed(self.beside):
            beside.stop()

    def here(self, text: str) -> str:
        """A text of the page with the ports of this machine."""
        if not self._ports:
            return text
        return re.sub(rf"\b({'|'.join(self._ports)})\b", lambda m: self._ports[m[1]], text)

    def read(self, page: Path) -> None:
        """Do all that a page says."""
        for block in blocks(page):
            self.do(block)

    def do(self, block: Block) -> None:
        """Do what a block says."""
        if block.note("not run") is not None:
            return
        for part in block.quoted("stop"):
            self._stop(part)
        if (path := block.note("file")) is not None:
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.here(block.text))
        elif (step := block.note("step")) is not None:
            self._steps[step](self)
        elif block.language == "sh":
            self._run(block)
        else:
            return
        self.done.append(block)

    def saying(self, part: str) -> str:
        """What the command beside that contains this has said."""
        return self._find(part).said

    def _find(self, part: str) -> Beside:
        (found,) = (beside for beside in self.beside if part in beside.command)
        return found

    def _stop(self, part: str) -> None:
        found = [beside for beside in self.beside if part in beside.command]
        assert found, f"nothing runs that contains {part!r}"
        for beside in found:
            beside.stop()
            self.beside.remove(beside)

    def _run(self, block: Block) -> None:
        command = self.here(block.text)
        if block.note("run beside") is not None:
            self._start(block, command)
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        said = f"{done.stdout}\n{done.stderr}"
        if block.note("run fails") is not None:
            assert done.returncode, f"{block}: {command}: it did not fail: {said}"
        else:
            assert not done.returncode, f"{block}: {command}: status {done.returncode}: {said}"
        for text in block.quoted("run says"):
            assert self.here(text) in said, f"{block}: {command}: no word of {text!r}: {said}"

    def _start(self, block: Block, command: str) -> None:
        log = self.folder / f"beside-{block.page.stem}-{block.line}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        beside = Beside(block, shlex.join(shlex.split(command, comments=True)), log, process)
        self.beside.append(beside)
        for text in block.quoted("run beside"):
            beside.wait_for(self.here(text))
