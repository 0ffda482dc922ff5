"""Keys and revocations from files, and when to read them again.

A path leads to a file or to a folder. A file holds a JSON Web Key, a set of them, or a key in PEM.
A folder holds such files, `*.jwk`, `*.json` and `*.pem`, as moq-token writes them. A key without an
id of its own has the name of its file, without the ending.

Beside the file, or in the folder, a file `revoked` may say what is refused from now on, by line:

    # left the company
    token call-7
    key 2026-spring

It has lines, so that a script can add one with `echo`. This is the one module of `laps.auth` that
touches files.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from laps.auth.judge import Revoked
from laps.auth.keys import Key, KeySet, UnusableKeyError, read_jwk, read_pem
from laps.auth.refusals import AuthError
from laps.auth.tokens import read_base64url, read_json_object
from laps.errors import ConfigError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from laps.auth.judge import Verifier

REVOKED: Final = "revoked"
PUBLIC: Final = ".pub.json"
"How the name of a file ends that holds public halves only."
_ENDINGS: Final = (".jwk", ".json", ".pem")

# A set of a thousand keys has 200 kB: what is larger is another file, given by mistake.
MAX_FILE_BYTES: Final = 4 * 1024 * 1024

_HOW: Final = "`laps token key` makes one"


class KeyFiles:
    """The files that a relay's keys and revocations are in."""

    def __init__(self, path: Path, revoked: Path | None = None) -> None:
        self._path = path
        # A file that was named has to be there; the one beside the keys need not.
        self._needs_revoked = revoked is not None
        self._revoked = revoked or (path if path.is_dir() else path.parent) / REVOKED
        self._seen: tuple[object, ...] = ()

    def changed(self) -> bool:
        """Whether any of them is another than when they were read."""
        return self._stamp() != self._seen

    def read(self) -> tuple[KeySet, Revoked]:
        """What the files hold; ConfigError names the file, and what is wrong in it."""
        # Before reading: what changes meanwhile is noticed later. And whether or not it can be
        # read: a file that is wrong is read again when somebody has changed it.
        self._seen = self._stamp()
        return read_keys(self._path), self._read_revoked()

    def reload(self, verifier: Verifier) -> str | None:
        """Give a verifier what the files hold now; None, or why it keeps what it has."""
        try:
            verifier.replace(*self.read())
        except ConfigError as error:
            return f"{error}; the keys and revocations that were read before count"
        return None

    def _stamp(self) -> tuple[object, ...]:
        try:
            files = (*_files(self._path), self._path, self._revoked)
        except ConfigError:
            files = (self._path, self._revoked)
        return tuple(map(_look, files))

    def _read_revoked(self) -> Revoked:
        if not self._needs_revoked and not self._revoked.exists():
            return Revoked()
        return read_revoked(self._revoked)


def _look(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return path, error.errno
    return path, found.st_ino, found.st_size, found.st_mtime_ns


# --- keys -----------------------------------------------------------------------------------------


def read_keys(path: Path) -> KeySet:
    """The keys in a file or a folder; ConfigError names the file, and what is wrong in it."""
    keys: list[Key] = []
    skipped: list[str] = []
    for file in _files(path):
        for key in _read_file(file):
            if isinstance(key, Key):
                keys.append(key)
            else:
                skipped.append(f"{file}: {key}")
    if not keys:
        reason = f": {skipped[0]}" if skipped else ""
        raise ConfigError(f"{path}: holds no key that could be used{reason}: {_HOW}")
    try:
        return KeySet(keys, skipped)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _files(path: Path) -> list[Path]:
    """The file, or those in the folder: names come from the folder, and never from a token."""
    try:
        if not path.is_dir():
            return [path]
        return sorted(
            file
            for file in path.iterdir()
            if file.suffix in _ENDINGS and not file.name.startswith(".")
        )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _read_file(path: Path) -> Iterator[Key | str]:
    """The keys of a file, and for those that are of no use here the reason."""
    data = _read_bytes(path)
    try:
        if b"-----BEGIN" in data:
            yield read_pem(data, path.stem)
            return
        content = _read_json(data)
        keys = content.get("keys", [content])
        if not isinstance(keys, list):
            raise ConfigError("keys must be a list")
        for number, jwk in enumerate(keys, start=1):
            if not isinstance(jwk, dict):
                raise ConfigError(f"key {number} of the set is not a JSON object")
            name = path.stem if len(keys) == 1 else f"{path.stem}-{number}"
            try:
                yield read_jwk(jwk, name)
            except UnusableKeyError as error:
                yield str(error)
    except UnusableKeyError as error:
        yield str(error)
    except (ConfigError, AuthError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_json(data: bytes) -> dict[str, object]:
    text = data.strip()
    if text.startswith(b"{"):
        return read_json_object(text, "the file")
    # moq-token also writes keys as base64url of their JSON.
    try:
        return read_json_object(read_base64url(text.decode(), "the file"), "the file")
    except (AuthError, UnicodeDecodeError):
        raise ConfigError(f"holds neither JSON nor PEM: {_HOW}") from None


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}: {_HOW}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_FILE_BYTES} bytes: not a file of keys")
    return data


def write_keys(contents: Mapping[Path, object], *, force: bool) -> None:
    """Write files of keys, all for their owner only but `*.pub.json`; ConfigError if one is there.

    None is written where one of them is there, unless forced.
    """
    for path in contents:
        if path.exists() and not force:
            raise ConfigError(f"{path}: is there already; --force writes over it")
    for path, content in contents.items():
        # Nobody but its owner may read a private key, from the first moment on.
        mode = 0o644 if path.name.endswith(PUBLIC) else 0o600
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{json.dumps(content, indent=2)}\n")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


# --- revocations ----------------------------------------------------------------------------------


def read_revoked(path: Path) -> Revoked:
    """The tokens and keys that a file revokes; ConfigError names the line that says neither."""
    try:
        lines = _read_bytes(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    found: dict[str, set[str]] = {"token": set(), "key": set()}
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        kind, _, name = words.partition(" ")
        if kind not in found or not name.strip():
            problem = f"{quote(words)}: write token ID, or key ID"
            raise ConfigError(f"{path}:{number}: {problem}")
        found[kind].add(name.strip())
    return Revoked(frozenset(found["token"]), frozenset(found["key"]))
