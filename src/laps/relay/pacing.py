"""How often a node tells how it is doing, so that all nodes together do not fill the links.

What a node says of itself crosses every link of the network, each way once at most, and fewer of
them where all relays know metrics (`telling`). So what a link carries of it grows with the nodes,
and each node has a part of it:

    time between two messages = bits of a message * nodes / bits a second for all of them

With 1,000 nodes and 300 bytes that is every 5 s, and with 100 every 2 s, which is the least.

What others act upon at once does not wait that long: that a relay or a link has become full, that
a peer is lost, and that it takes no more clients. It is told before its turn, and the turns after
it come later by as much.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from laps.infobase.metrics import NOTABLE
from laps.routing.conditions import fullness

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.relay.settings import ExtensionSettings
    from laps.types import NodeMetrics

# Header, figures, counts and coordinates.
FIXED_BYTES: Final = 72

# A relay or link this full is avoided by some, and so is one that is so much fuller at once.
FULL: Final = 0.8
SUDDENLY: Final = 0.2
# So much more is lost on a link than before.
LOSS: Final = 0.05


class Urgency(IntEnum):
    """How soon others want to know something; the value is how many turns it may take before."""

    IN_TURN = 0
    SOON = 3
    "Ways are chosen by it."
    AT_ONCE = 10
    "Clients are being sent there, or no longer: that is seldom."


class Pace:
    """When a node may tell how it is doing."""

    def __init__(self, nodes: Nodes, settings: ExtensionSettings) -> None:
        self._nodes = nodes
        self._settings = settings
        self._share_s = 0.0
        "How long it takes until what was told last has its part of the links."
        self._turn_at = 0.0
        "When it is our turn again."
        self._told_at: float | None = None

    def due_at(self, urgency: Urgency, now: float) -> float:
        """When something may be told."""
        if self._told_at is None:
            return now
        due = self._turn_at - urgency * self._share_s
        if urgency is not Urgency.AT_ONCE:
            due = max(due, self._told_at + self._settings.metrics_s)
        return max(due, now)

    def told(self, metrics: NodeMetrics, now: float) -> None:
        """A message has gone out."""
        bits = 8 * bytes_of(metrics)
        self._share_s = bits * (len(self._nodes) + 1) / self._settings.metrics_bps
        self._turn_at = max(self._turn_at, now) + self._share_s
        self._told_at = now


def bytes_of(metrics: NodeMetrics) -> int:
    """About what the message takes, each time that it crosses a link."""
    texts = (metrics.region, metrics.client_address, *metrics.tags)
    return (
        FIXED_BYTES
        + sum(len(text.encode()) + 1 for text in texts)
        + 24 * len(metrics.reachability)
        + 8 * len(metrics.best_vias)
        + 20 * len(metrics.candidates)
        + 12 * len(metrics.full_links)
    )


def urgency_of(told: NodeMetrics | None, new: NodeMetrics) -> Urgency:
    """How soon others want to know what is new."""
    if told is None or told.client_address != new.client_address:
        return Urgency.AT_ONCE
    if _is_filling(fullness(told), fullness(new)):
        return Urgency.SOON
    full = {it.node_id: it.full for it in told.full_links}
    if any(_is_filling(full.get(it.node_id, NOTABLE), it.full) for it in new.full_links):
        return Urgency.SOON
    links = {it.node_id: it.loss for it in new.reachability}
    if any(links.get(it.node_id, 1.0) - it.loss >= LOSS for it in told.reachability):
        return Urgency.SOON
    return Urgency.IN_TURN


def _is_filling(before: float, now: float) -> bool:
    return now - before >= SUDDENLY or before < FULL <= now
