"""A token in a file, that somebody else writes anew before it ends; and the option that names it.

    laps.connect(url, token=TokenFile("ann.token"))

What stands on a command line is shown by `ps` to everybody on the machine. So `--token` names where
the token is: a file, or standard input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from laps.errors import ConfigError, quote

STANDARD_INPUT: Final = "-"
IN_FILE: Final = "@"

METAVAR: Final = "@FILE|-"
HELP: Final = (
    "Show the relay the token in a file, which is read again when it changes, or - for standard "
    "input. Left out: LAPS_TOKEN."
)

ADMIN_VARIABLE: Final = "LAPS_ADMIN_TOKEN"
"Not LAPS_TOKEN, which is shown to every relay that a client connects to."

ADMIN_HELP: Final = (
    "The token that their admin APIs ask for, in a file, or - for standard input. Left out: "
    f"{ADMIN_VARIABLE}."
)

# The largest token that relays take is 8 KiB: what is much larger is another file.
MAX_BYTES: Final = 64 * 1024


class TokenFile:
    """Gives the token that a file holds, each time it is called."""

    def __init__(self, path: Path | str) -> None:
        """Nothing is read before the token is asked for."""
        self.path = Path(path)
        self._read: tuple[int, int, int] | None = None
        "Which file it was, how large and how old, when it was last read."

    def __repr__(self) -> str:
        return f"TokenFile({quote(str(self.path))})"

    def __call__(self) -> str | bytes:
        """The token; ConfigError if there is none."""
        where = f"the token file {quote(str(self.path))}"
        try:
            self._read = self._stamp()
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{where} has more than {MAX_BYTES} bytes: is it a token?")
        return _token(data, where)

    @property
    def has_changed(self) -> bool:
        """Whether it is another file than the one that was read; one that is missing is not."""
        try:
            return self._stamp() != self._read
        except OSError:
            return False

    def _stamp(self) -> tuple[int, int, int]:
        seen = self.path.stat()
        return seen.st_ino, seen.st_size, seen.st_mtime_ns


def read_option(option: str | None, variable: str = "LAPS_TOKEN") -> str | bytes | TokenFile | None:
    """The token that an option names; None where it is not given, and the variable is taken."""
    if option is None:
        return None
    if option == STANDARD_INPUT:
        return _token(sys.stdin.buffer.read(), "--token: standard input")
    if option.startswith(IN_FILE):
        file = TokenFile(option.removeprefix(IN_FILE))
        file()  # what cannot be read is said at once
        return file
    raise ConfigError(
        "--token: a token on the command line is seen by everybody on this machine: "
        f"give --token @FILE, --token - for standard input, or set {variable}"
    )


def read_admin_option(option: str | None) -> str:
    """The token for admin APIs that an option names, or the variable has; empty: none."""
    given = read_option(option, ADMIN_VARIABLE)
    token = given() if isinstance(given, TokenFile) else given
    if token is None:
        token = os.environ.get(ADMIN_VARIABLE, "").strip()
    if isinstance(token, bytes) or not token.isprintable() or " " in token:
        raise ConfigError("--token: no token of an admin API: letters, digits and signs, one line")
    return token


def _token(data: bytes, where: str) -> str | bytes:
    """Text, which may end with a line, or bytes as they are; ConfigError if there is nothing."""
    if not data.strip():
        raise ConfigError(f"{where} is empty: it has to hold a token")
    return data.decode().strip() if data.isascii() else data
