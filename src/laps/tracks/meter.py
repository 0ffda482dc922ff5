"""What each track carries through a relay, counted by the stream.

A stream knows how many bytes arrived on it. They are added to its track's when somebody looks, and
when the stream closes: nothing is added up for each chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.routing.flows import Flow
    from laps.types import TrackKey


class Meter:
    """The bytes of one track since it is known here, and what was last reported of them."""

    __slots__ = (
        "asked",
        "egress",
        "flows",
        "key",
        "lost",
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

    def __init__(self, key: TrackKey, now: float) -> None:
        self.key = key
        self.received = 0
        self.sent = 0
        "All copies together."
        self.lost = 0
        "Objects that repairs did not bring, at least."
        self.flows: dict[Flow, None] = {}
        "Those that it arrives by from peers."
        self.names: tuple[str, str] | None = None
        "Namespace and name for people, once they are known."
        self.asked = False
        "Whether publishers here were asked for it, as of `routed`."
        self.egress: tuple[str, ...] = ()
        "The peers that it goes to, as of `routed`."
        self.routed = -1
        "The count of changes to where tracks go, when `asked` and `egress` were looked up."
        self.told_at = now
        "When it was last reported."
        self.told_received = 0
        self.told_sent = 0
        self.told_subscribers = -1
        "Less than 0 where it was never reported."
        self.told_origin = False
        self.told_egress: tuple[str, ...] = ()
