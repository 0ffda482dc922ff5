"""The numbers of MoQT errors, as draft 16 has them; `draft14` says which differ in draft 14."""

from __future__ import annotations

from enum import IntEnum

from laps.errors import RemoteProtocolError


class SessionCode(IntEnum):
    """Why a session is closed."""

    NO_ERROR = 0x0
    INTERNAL_ERROR = 0x1
    UNAUTHORIZED = 0x2
    PROTOCOL_VIOLATION = 0x3
    INVALID_REQUEST_ID = 0x4
    DUPLICATE_TRACK_ALIAS = 0x5
    KEY_VALUE_FORMATTING_ERROR = 0x6
    TOO_MANY_REQUESTS = 0x7
    INVALID_PATH = 0x8
    MALFORMED_PATH = 0x9
    GOAWAY_TIMEOUT = 0x10
    CONTROL_MESSAGE_TIMEOUT = 0x11
    DATA_STREAM_TIMEOUT = 0x12
    AUTH_TOKEN_CACHE_OVERFLOW = 0x13
    DUPLICATE_AUTH_TOKEN_ALIAS = 0x14
    VERSION_NEGOTIATION_FAILED = 0x15
    MALFORMED_AUTH_TOKEN = 0x16
    UNKNOWN_AUTH_TOKEN_ALIAS = 0x17
    EXPIRED_AUTH_TOKEN = 0x18
    INVALID_AUTHORITY = 0x19
    MALFORMED_AUTHORITY = 0x1A


class RequestCode(IntEnum):
    """Why a request is refused."""

    INTERNAL_ERROR = 0x0
    UNAUTHORIZED = 0x1
    TIMEOUT = 0x2
    NOT_SUPPORTED = 0x3
    MALFORMED_AUTH_TOKEN = 0x4
    EXPIRED_AUTH_TOKEN = 0x5
    UNKNOWN_STATUS_IN_RANGE = 0x8
    "Of drafts that cannot mark what is unknown in a FETCH; no number of draft 16's."
    DOES_NOT_EXIST = 0x10
    INVALID_RANGE = 0x11
    MALFORMED_TRACK = 0x12
    DUPLICATE_SUBSCRIPTION = 0x19
    UNINTERESTED = 0x20
    PREFIX_OVERLAP = 0x30
    INVALID_JOINING_REQUEST_ID = 0x32


class DoneCode(IntEnum):
    """Why a subscription has ended."""

    INTERNAL_ERROR = 0x0
    UNAUTHORIZED = 0x1
    TRACK_ENDED = 0x2
    SUBSCRIPTION_ENDED = 0x3
    GOING_AWAY = 0x4
    EXPIRED = 0x5
    TOO_FAR_BEHIND = 0x6
    UPDATE_FAILED = 0x8
    MALFORMED_TRACK = 0x12


class ResetCode(IntEnum):
    """Why a data stream was given up."""

    INTERNAL_ERROR = 0x0
    CANCELLED = 0x1
    DELIVERY_TIMEOUT = 0x2
    SESSION_CLOSED = 0x3
    UNKNOWN_OBJECT_STATUS = 0x4
    MALFORMED_TRACK = 0x12


class MoqtViolation(RemoteProtocolError):  # noqa: N818 - as in errors.py
    """The other side broke MoQT: its session is closed with the code."""

    def __init__(self, code: SessionCode, problem: str) -> None:
        super().__init__(code, problem)
        self.code = code  # type: ignore[misc]  # one class for all codes: the draft lists 21
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class MalformedTrack(MoqtViolation):
    """A track contradicts itself: it ends, and the session of its publisher goes on."""

    def __init__(self, problem: str) -> None:
        super().__init__(SessionCode.PROTOCOL_VIOLATION, problem)


def violation(problem: str) -> MoqtViolation:
    """What most mistakes are."""
    return MoqtViolation(SessionCode.PROTOCOL_VIOLATION, problem)
