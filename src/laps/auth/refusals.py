"""Why a token is refused, in words for a person and in the three that MoQT has."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from laps.errors import LapsError


class Outcome(Enum):
    """What MoQT calls a refusal; both drafts have a code for each, of sessions and of requests."""

    MALFORMED_AUTH_TOKEN = "malformed"  # noqa: S105 - the name of a code
    EXPIRED_AUTH_TOKEN = "expired"  # noqa: S105 - the name of a code
    UNAUTHORIZED = "unauthorized"


class Reason(StrEnum):
    """Why a token is refused; the values are labels of a metric."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNKNOWN_TYPE = "unknown_type"
    """A token type, or a `typ` in a header, of something that is no token for us."""
    CRITICAL = "critical"
    """A header that must be understood, and is not."""
    ALGORITHM = "algorithm"
    """An algorithm that is not allowed, or not that of the key."""
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    UNENFORCED = "unenforced"
    """A claim that restricts its bearer in a way that nobody here could check."""
    KEY_SCOPE = "key_scope"
    """It grants more than its key may."""
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    REVOKED = "revoked"
    NO_TOKEN = "no_token"  # noqa: S105 - a label
    NOT_ALLOWED = "not_allowed"
    """What was asked for is not among what the tokens that were shown allow."""
    ORIGIN_REFUSED = "origin_refused"
    """The server of the origin whose name it is says no."""
    ORIGIN_FAILED = "origin_failed"
    """That server could not be asked, or gave no answer that counts."""
    POLICY = "policy"
    """The operator's policy keeps the track away from the client's relay, whatever its tokens."""

    @property
    def outcome(self) -> Outcome:
        """What the drafts have for it."""
        return _OUTCOMES.get(self, Outcome.UNAUTHORIZED)


_OUTCOMES: Final = {
    Reason.MALFORMED: Outcome.MALFORMED_AUTH_TOKEN,
    Reason.TOO_LARGE: Outcome.MALFORMED_AUTH_TOKEN,
    Reason.UNKNOWN_TYPE: Outcome.MALFORMED_AUTH_TOKEN,
    Reason.EXPIRED: Outcome.EXPIRED_AUTH_TOKEN,
}


class AuthError(LapsError):
    """A token is refused. The words name what is wrong, and never show the token itself."""

    def __init__(self, reason: Reason, words: str) -> None:
        # Both go to Exception, so that the error survives pickling.
        super().__init__(reason, words)
        self.reason = reason
        self.words = words

    def __str__(self) -> str:
        return self.words


def malformed(words: str) -> AuthError:
    """The refusal of a token that does not read as one."""
    return AuthError(Reason.MALFORMED, words)
