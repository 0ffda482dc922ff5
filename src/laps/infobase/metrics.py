"""The metrics information base: how each node is doing, in its own last words.

A node counts what it says of itself, and only what is newer than the last word is taken, so that a
word that arrives by two ways counts once. When no way leads to a node any more, its words go too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.infobase.sequences import SequenceCounters
from laps.types import sequence_newer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.types import NodeId, NodeMetrics


@dataclass(frozen=True, slots=True)
class MetricsChange:
    """A node has said something new of itself, or is gone."""

    node_id: NodeId
    old: NodeMetrics | None
    new: NodeMetrics | None


class Metrics:
    """The newest metrics of every node."""

    def __init__(self) -> None:
        self.counters = SequenceCounters()
        self._held: dict[NodeId, NodeMetrics] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[NodeMetrics]:
        """What every node said last."""
        return iter(tuple(self._held.values()))

    def get(self, node_id: NodeId) -> NodeMetrics | None:
        """What a node said last."""
        return self._held.get(node_id)

    def add(self, metrics: NodeMetrics) -> MetricsChange | None:
        """A node speaks of itself; None if it has said something newer, or this, before."""
        node_id = metrics.source_node_id
        old = self._held.get(node_id)
        if old is not None and not sequence_newer(metrics.sequence, old.sequence):
            self.counters.duplicates += 1
            return None
        self._held[node_id] = metrics
        return MetricsChange(node_id, old, metrics)

    def purge_source(self, node_id: NodeId) -> MetricsChange | None:
        """A node is gone; whatever it says when it is back is taken."""
        old = self._held.pop(node_id, None)
        return None if old is None else MetricsChange(node_id, old, None)
