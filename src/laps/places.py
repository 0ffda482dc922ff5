"""Where the programs of this machine leave word of themselves, so that others find them.

    <place>/relays/<pid>.json      {"node": "1:1", "role": "edge", "admin": "127.0.0.1:33436", …}
    <place>/secret                 32 random bytes, for what has to be the same after a restart

The place is `$LAPS_PLACE`, or `laps` below `$XDG_RUNTIME_DIR`, or `/tmp/laps-<uid>`. It is ours
alone: what others could write there would be taken for the truth. A word of a process that is gone
counts no more and is removed by whoever finds it.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "LAPS_PLACE"

_SECRET_BYTES: Final = 32


class PlaceRefused(LapsError):  # noqa: N818 - a name says what happened
    """The place is not ours alone, or cannot be had."""


def place() -> Path:
    """The directory, whether or not it is there."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "laps"
    return Path(f"/tmp/laps-{os.getuid()}")  # noqa: S108 - refused unless it is ours alone


def leave_word(kind: str, data: Mapping[str, Any]) -> Path:
    """Leave word of this process, in place of what it said before; PlaceRefused if it cannot."""
    folder = _ours(place()) / kind
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{os.getpid()}.json"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({**data, "pid": os.getpid()}))
        beside.replace(path)
    except OSError as error:
        raise PlaceRefused(f"{folder}: no word can be left there: {error.strerror}") from None
    return path


def take_back(kind: str) -> None:
    """This process has no more to say, or is about to end."""
    (place() / kind / f"{os.getpid()}.json").unlink(missing_ok=True)


def read_words(kind: str) -> list[dict[str, Any]]:
    """What processes that live have left, by their process ids; nothing where nobody has."""
    folder = place() / kind
    if not folder.is_dir():
        return []
    _ours(place())
    words = []
    for path in sorted(folder.glob("*.json"), key=_pid):
        if not _lives(_pid(path)):
            path.unlink(missing_ok=True)
            continue
        try:
            word = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # it has just gone, or is none of ours
        if isinstance(word, dict):
            words.append(word)
    return words


def shared_secret() -> bytes:
    """Random bytes that all programs of this user know, until the machine starts again.

    Whoever needs them first makes them. PlaceRefused if they cannot be kept.
    """
    folder = _ours(place())
    path = folder / "secret"
    beside = folder / f"secret.{os.getpid()}"
    try:
        if not path.exists():
            beside.touch(mode=0o600)
            beside.write_bytes(os.urandom(_SECRET_BYTES))
            # Of two programs that start together the first one's counts: a link does not replace.
            with suppress(FileExistsError):
                path.hardlink_to(beside)
            beside.unlink()
        secret = path.read_bytes()
    except OSError as error:
        raise PlaceRefused(f"{path}: cannot be kept: {error.strerror}") from None
    if len(secret) != _SECRET_BYTES:
        raise PlaceRefused(f"{path}: is not {_SECRET_BYTES} bytes long: remove it")
    return secret


def _ours(folder: Path) -> Path:
    """The directory, made if it is not there, and refused if others can write or own it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise PlaceRefused(f"{folder}: {error.strerror}; set {VARIABLE} to another") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PlaceRefused(f"{folder}: is not a directory of ours: set {VARIABLE} to another")
    if found.st_mode & 0o022:
        raise PlaceRefused(
            f"{folder}: others can write there: chmod 700 it, or set {VARIABLE} to another"
        )
    return folder


def _pid(path: Path) -> int:
    return int(path.stem) if path.stem.isdecimal() else 0


def _lives(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False  # or it is somebody else's by now: only we leave words here
    return True
