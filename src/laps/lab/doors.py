"""The door of a lab that runs: other terminals find it by the word it leaves, and ask by a socket.

One line of JSON in, one line of JSON out: `{"do": "kill", "node": "1:100"}` is answered with
`{"said": "…"}`, `{"status": …}` or `{"error": "…", "usage": true}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from laps import places
from laps.errors import ConfigError, LapsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

log = logging.getLogger(__name__)

KIND: Final = "lab"

# A relay that is started takes seconds on a busy machine.
ANSWER_S: Final = 90.0

Asked = dict[str, Any]


class NoLab(LapsError):  # noqa: N818 - it says what happened
    """There is no lab to ask, or too many."""


class Door:
    """The side of the lab."""

    def __init__(self, folder: Path, answer: Callable[[Asked], Awaitable[Asked]]) -> None:
        self._path = folder / "door"
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Let others in, and leave word of where."""
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._path))
            places.leave_word(KIND, {"door": str(self._path)})
        except (OSError, places.PlaceRefused) as error:  # a path may be too long for a socket
            log.warning("laps lab kill, delay, drop and heal will not find this lab: %s", error)

    async def close(self) -> None:
        """Let nobody in any more."""
        places.take_back(KIND)
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline())
            try:
                answer = await self._answer(asked)
            except LapsError as error:
                answer = {"error": str(error), "usage": isinstance(error, ConfigError)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError) as error:
            log.info("someone at the door was not understood: %s", error)
        finally:
            writer.close()


def ask(asked: Asked, pid: int | None = None) -> Asked:
    """Ask the lab that runs; a refusal is raised with its words."""
    word = find(pid)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(ANSWER_S)
            sock.connect(word["door"])
            sock.sendall(json.dumps(asked).encode() + b"\n")
            said = b"".join(iter(lambda: sock.recv(65536), b""))
        answer: Asked = json.loads(said)
    except (OSError, ValueError) as error:
        raise NoLab(f"the lab of process {word['pid']} does not answer: {error}") from None
    if "error" in answer:
        raise (ConfigError if answer["usage"] else LapsError)(str(answer["error"]))
    return answer


def find(pid: int | None) -> dict[str, Any]:
    """The word of the lab that is meant."""
    labs = [word for word in places.read_words(KIND) if word["pid"] != os.getpid()]
    if not labs:
        raise NoLab("no lab is running on this machine: start one with `laps lab`")
    if pid is None:
        if len(labs) > 1:
            known = ", ".join(str(word["pid"]) for word in labs)
            raise NoLab(f"several labs are running: choose one with --pid, of {known}")
        return labs[0]
    for word in labs:
        if word["pid"] == pid:
            return word
    known = ", ".join(str(word["pid"]) for word in labs)
    raise NoLab(f"no lab has the process id {pid}; there is {known}")
