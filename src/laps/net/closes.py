"""The connections that ended: the last ones, whose and why, and how many of each kind."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed

MAX_CLOSES: Final = 200

# Codes come from whoever closes: past so many different ones the rest is counted together.
MAX_CODES: Final = 64
OTHER: Final = "other"

CloseKind = Literal["peer", "client"]


@dataclass(frozen=True, slots=True)
class Close:
    """One connection that ended."""

    at: float
    "Seconds since 1970."
    kind: CloseKind
    who: str
    "The node, or what the client spoke; empty where nobody had said."
    address: str
    by_peer: bool
    code: int
    application: bool
    "`code` is the application's, not QUIC's."
    reason: str


class Closes:
    """What is known of connections that are over."""

    def __init__(self) -> None:
        self.last: deque[Close] = deque(maxlen=MAX_CLOSES)
        self.counts: Counter[tuple[str, str]] = Counter()
        "By kind, and by code as text."

    def add(self, kind: CloseKind, who: str, address: str, close: ConnectionClosed) -> None:
        """A connection has ended."""
        self.last.append(
            Close(
                time.time(),
                kind,
                who,
                address,
                close.by_peer,
                close.code,
                close.application,
                close.reason,
            )
        )
        key = kind, str(close.code) if close.application else f"quic-{close.code}"
        known = key in self.counts or len(self.counts) < MAX_CODES
        self.counts[key if known else (kind, OTHER)] += 1
