"""The two tokens of the admin API: one to look, one to change things too.

    admin.token, admin.token_file            may do everything
    admin.read_token, admin.read_token_file  may look

A token in a file is read again when the file changes, so that it can be replaced while the relay
runs. A file that is wrong changes nothing.
"""

from __future__ import annotations

import hmac
import logging
from enum import IntEnum
from typing import TYPE_CHECKING

from laps.errors import ConfigError
from laps.token_files import TokenFile

if TYPE_CHECKING:
    from pathlib import Path

    from laps.config import AdminConfig

log = logging.getLogger(__name__)


class Right(IntEnum):
    """What whoever shows a token may do; the greater has the lesser too."""

    NOTHING = 0
    READ = 1
    WRITE = 2


class Tokens:
    """What the operator has set, as it is now."""

    def __init__(self, config: AdminConfig) -> None:
        """ConfigError where a file cannot be read, or both tokens are the same."""
        self._write = _Token("admin.token_file", config.token, config.token_file)
        self._read = _Token("admin.read_token_file", config.read_token, config.read_token_file)
        if self._write.value and self._write.value == self._read.value:
            raise ConfigError(
                "admin.token and admin.read_token are the same: whoever may look could change "
                "things too; set another admin.read_token, or none"
            )

    @property
    def are_needed(self) -> bool:
        """Whether nobody is answered without one."""
        return bool(self._write.value or self._read.value)

    @property
    def may_be_written(self) -> bool:
        """Whether there is a token that changes things."""
        return bool(self._write.value)

    def right_of(self, shown: bytes) -> Right:
        """What these bytes allow; both are compared, in a time that does not tell which is near."""
        self._write.look()
        self._read.look()
        writes, reads = self._write.is_it(shown), self._read.is_it(shown)
        return Right.WRITE if writes else Right.READ if reads else Right.NOTHING


class _Token:
    """One of them."""

    def __init__(self, setting: str, value: str, path: Path | None) -> None:
        self._setting = setting
        self._file = None if path is None else TokenFile(path)
        self.value = value.encode() if self._file is None else self._from(self._file)

    def is_it(self, shown: bytes) -> bool:
        return hmac.compare_digest(shown, self.value) and bool(self.value)

    def look(self) -> None:
        """Read the file again if it is another."""
        if self._file is None or not self._file.has_changed:
            return
        try:
            self.value = self._from(self._file)
        except ConfigError as error:
            log.warning("the token stays as it was: %s", error)
        else:
            log.info("%s has been read again", self._setting)

    def _from(self, file: TokenFile) -> bytes:
        try:
            token = file()
        except ConfigError as error:
            raise ConfigError(f"{self._setting}: {error}") from None
        if isinstance(token, bytes) or not token.isprintable() or " " in token:
            problem = "must hold a token: letters, digits and signs, no spaces, on one line"
            raise ConfigError(f"{self._setting}: {file.path} {problem}")
        return token.encode()
