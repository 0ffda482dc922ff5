"""What each track carries through a relay, counted by the stream.

A stream knows how many bytes came on it. Its track hears of them when somebody looks, and when the
stream ends: nothing is added up for each chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.routing.forwarding import Flow


class Meter:
    """The bytes of one track since it is known here, and what has been told of them."""

    __slots__ = (
        "asked",
        "egress",
        "flows",
        "key",
        "names",
        "received",
        "routed",
        "sent",
        "told_at",
        "told_egress",
        "told_origin",
        "told_received",
        "told_sent",
        "told_subscribers",
    )

    def __init__(self, key: int, now: float) -> None:
        self.key = key
        "The hash of the track's full name."
        self.received = 0
        self.sent = 0
        "All copies together."
        self.flows: dict[Flow, None] = {}
        "Those that it has come by from peers."
        self.names: tuple[str, str] | None = None
        "Namespace and name for people, once they are known."
        self.asked = False
        "Whether publishers here have been asked for it, and"
        self.egress: tuple[str, ...] = ()
        "the peers that it goes to, both as of"
        self.routed = -1
        "this count of changes to where tracks go."
        self.told_at = now
        self.told_received = 0
        self.told_sent = 0
        self.told_subscribers = -1
        "Never yet."
        self.told_origin = False
        self.told_egress: tuple[str, ...] = ()
