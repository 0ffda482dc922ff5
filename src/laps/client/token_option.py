"""`--token`: a token for a command, that other users of the machine do not see.

What stands on a command line is shown by `ps`. So the option names where the token is: a file, or
standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from laps.errors import ConfigError, quote

STANDARD_INPUT: Final = "-"
IN_FILE: Final = "@"


def read_option(option: str | None) -> str | bytes | None:
    """The token that an option names; None where it is not given, and LAPS_TOKEN is taken."""
    if option is None:
        return None
    if option == STANDARD_INPUT:
        return _token(sys.stdin.buffer.read(), "standard input")
    if option.startswith(IN_FILE):
        path = Path(option.removeprefix(IN_FILE))
        try:
            return _token(path.read_bytes(), quote(str(path)))
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise ConfigError(f"--token @: {quote(str(path))} {problem}") from None
    raise ConfigError(
        "--token: a token on the command line is seen by everybody on this machine: "
        "give --token @FILE, --token - for standard input, or set LAPS_TOKEN"
    )


def _token(data: bytes, where: str) -> str | bytes:
    """Text, which may end with a line, or bytes as they are."""
    if not data.strip():
        raise ConfigError(f"--token: there is nothing in {where}")
    return data.decode().strip() if data.isascii() else data
