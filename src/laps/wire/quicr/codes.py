"""The numbers of QUICR that go into CONNECTION_CLOSE and RESET_STREAM; the text names none."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from laps.errors import RemoteProtocolError

ALPN: Final = "quicr-01"


class QuicrCode(IntEnum):
    """Why a session, or one of its streams, ends."""

    NO_ERROR = 0
    PROTOCOL_VIOLATION = 1
    "What was said has no place in the protocol."
    INVALID_ENCODING = 2
    "It cannot be read."
    TOO_LARGE = 3
    "More than is kept for a client: an object without end, a name too long."
    GOING_AWAY = 4
    "The relay stops, and nobody has followed its redirect."
    NOT_READ = 5
    "The other side does not read what it asked for."
    CANCELLED = 6
    "Nobody wants it any more."
    SILENT = 7
    "It was opened, and nothing was asked for or offered in time."
    TOO_MANY = 8
    "More sessions than it may have, or requests without end."


class QuicrViolation(RemoteProtocolError):  # noqa: N818 - as in errors.py
    """The other side broke the protocol."""

    def __init__(self, code: QuicrCode, problem: str) -> None:
        super().__init__(code, problem)
        self.code = code  # type: ignore[misc]  # one class for all codes
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


def violation(problem: str) -> QuicrViolation:
    """What was said has no place in the protocol."""
    return QuicrViolation(QuicrCode.PROTOCOL_VIOLATION, problem)
