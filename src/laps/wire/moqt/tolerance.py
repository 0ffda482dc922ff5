"""Mistakes of other implementations that are understood all the same.

Each is one that a draft asks to close the session for, made by a program that people use, and with
one meaning only. A session that is told to be strict closes as the draft asks; any other counts it.
"""

from __future__ import annotations

from enum import StrEnum

from laps.wire.buffer import Cursor
from laps.wire.moqt.codes import violation


class Tolerance(StrEnum):
    """What is tolerated, under the name of its counter."""

    ZERO_TIMEOUT = "zero_timeout"
    "A DELIVERY_TIMEOUT of 0, which says that there is none, as later drafts have it (libquicr)."
    NO_PARAMETERS = "no_parameters"
    "A message that ends where the number of its parameters should be: it has none (libquicr)."
    MISPLACED_JOIN = "misplaced_join"
    "A joining FETCH for a subscription with another filter, or none: it is refused (libquicr)."
    UNREADABLE_FETCH = "unreadable_fetch"
    "Objects that a publisher sends for a FETCH and cannot be read: that FETCH fails (libquicr)."
    BARE_PROTOCOLS = "bare_protocols"
    "WT-Available-Protocols without quotes (libquicr)."
    NO_REQUEST_LIMIT = "no_request_limit"
    "A server that allows no requests and never says more (lapsRelay): some are sent all the same."


class MessageCursor(Cursor):
    """A cursor over a control message that notes what was tolerated in it."""

    __slots__ = ("tolerated",)

    def __init__(self, view: memoryview, tolerated: list[Tolerance] | None) -> None:
        """None: nothing is."""
        super().__init__(view, whole=True)
        self.tolerated = tolerated

    def tolerate(self, what: Tolerance, problem: str) -> None:
        """Note it, or raise `MoqtViolation` with the problem."""
        if self.tolerated is None:
            raise violation(problem)
        self.tolerated.append(what)
