"""The metrics information base: how each node is doing, in its own last words.

A node counts what it says of itself, and only what is newer than the last word is taken, so that a
word that arrives by two ways counts once. When no way leads to a node any more, its words go too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import dist, inf
from typing import TYPE_CHECKING, Final

from laps.infobase.sequences import SequenceCounters
from laps.types import sequence_newer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.types import Candidate, Coordinates, FullLink, NodeId, NodeMetrics


# A figure that changed by less than this share, or by less than its floor, is the same.
METRICS_CHANGE: Final = 0.05
# Each floor is what varies by itself from one measurement to the next.
LOAD_FLOOR: Final = 0.01
LOSS_FLOOR: Final = 0.001
RATE_FLOOR_BPS: Final = 100_000
SRTT_FLOOR_US: Final = 1000
# Coordinates follow round trips, each of which moves them a little.
PLACE_FLOOR_MS: Final = 2.0
ERROR_FLOOR: Final = 0.1
# One probe more or less of the 32 that a loss is made of is chance, and so is a train of them.
CANDIDATE_LOSS_FLOOR: Final = 0.1
CANDIDATE_CHANGE: Final = 0.2

# A relay or a link that is less full is taken by every class, and nobody says of a link that it is.
NOTABLE: Final = 0.25
# As ways go by: what differs by less is the same.
FULL_FLOOR: Final = 0.05


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
        self.changes: deque[MetricsChange] = deque()
        "What nodes have said, for whoever weighs ways by it, and takes it."
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
        return self._changed(MetricsChange(node_id, old, metrics))

    def purge_source(self, node_id: NodeId) -> MetricsChange | None:
        """A node is gone; whatever it says when it is back is taken."""
        old = self._held.pop(node_id, None)
        return None if old is None else self._changed(MetricsChange(node_id, old, None))

    def _changed(self, change: MetricsChange) -> MetricsChange:
        self.changes.append(change)
        return change


def metrics_changed(old: NodeMetrics, new: NodeMetrics) -> bool:
    """Whether a node has something to say that matters, whatever the sequence."""
    if _words(old) != _words(new):
        return True
    return (
        _changed(old.load, new.load, LOAD_FLOOR)
        or _changed(old.capacity_bps, new.capacity_bps, RATE_FLOOR_BPS)
        or _egress_changed(old, new)
        or any(
            _changed(before.srtt_us, after.srtt_us, SRTT_FLOOR_US)
            or _changed(before.loss, after.loss, LOSS_FLOOR)
            for before, after in zip(old.reachability, new.reachability, strict=True)
        )
        or _links_filled(old.full_links, new.full_links)
        or _probes_changed(old.candidates, new.candidates)
        or _place_changed(old.coordinates, new.coordinates)
    )


def coordinates_moved(old: Coordinates, new: Coordinates) -> bool:
    """Whether a node is at another place than before, by more than its place trembles."""
    apart = dist((old.x_ms, old.y_ms, old.z_ms), (new.x_ms, new.y_ms, new.z_ms))
    apart += abs(old.height_ms - new.height_ms)
    return apart > PLACE_FLOOR_MS or abs(old.error - new.error) > ERROR_FLOOR


def _place_changed(old: Coordinates | None, new: Coordinates | None) -> bool:
    if old is None or new is None:
        return old is not new
    return coordinates_moved(old, new)


def _links_filled(old: tuple[FullLink, ...], new: tuple[FullLink, ...]) -> bool:
    """Links are fuller than before, or less full; those that are not named are as good as empty."""
    before = {it.node_id: it.full for it in old}
    after = {it.node_id: it.full for it in new}
    return any(
        abs(after.get(it, NOTABLE) - before.get(it, NOTABLE)) > FULL_FLOOR
        for it in before.keys() | after.keys()
    )


def _probes_changed(old: tuple[Candidate, ...], new: tuple[Candidate, ...]) -> bool:
    """Other candidates, or nearer ones, or such that lose more."""
    return [it.node_id for it in old] != [it.node_id for it in new] or any(
        _by_a_fifth(before.rtt_us, after.rtt_us, SRTT_FLOOR_US)
        or abs(after.loss - before.loss) > CANDIDATE_LOSS_FLOOR
        or _by_a_half(before.bandwidth_bps, after.bandwidth_bps)
        for before, after in zip(old, new, strict=True)
    )


def _words(metrics: NodeMetrics) -> tuple[object, ...]:
    """What is the same or another, with nothing in between."""
    reached = [item.node_id for item in metrics.reachability]
    return metrics.region, metrics.tags, metrics.best_vias, metrics.client_address, reached


def _egress_changed(old: NodeMetrics, new: NodeMetrics) -> bool:
    """What a relay sends never stands still: all that matters is its part of what it can send."""
    change = abs(new.egress_bps - old.egress_bps)
    return change > RATE_FLOOR_BPS and change > METRICS_CHANGE * (new.capacity_bps or inf)


def _by_a_fifth(old: float, new: float, floor: float) -> bool:
    change = abs(new - old)
    return change > floor and change > CANDIDATE_CHANGE * old


def _by_a_half(old: int, new: int) -> bool:
    """Whether it is less than half of what it was, or more than twice as much."""
    return not old / 2 <= new <= old * 2


def _changed(old: float, new: float, floor: float) -> bool:
    change = abs(new - old)
    return change > floor and change > METRICS_CHANGE * old
