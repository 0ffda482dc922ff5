"""Classes of service: which tracks are of each, and what became of their data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from laps.admin.rows.sources import carried_keys, flows_of, meter_of
from laps.admin.rows.table import Table
from laps.admin.schema.decisions import ClassOfService
from laps.routing.terms import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.types import TrackKey

# So many tracks are counted between two chances for others.
TURN = 1000


class TracksByClass:
    """How many tracks are of each class, and what relays call it."""

    def __init__(self) -> None:
        self.tracks: Counter[int] = Counter()
        self.names: dict[int, set[str]] = {}

    def read(self, relay: Relay) -> Iterator[None]:
        """Count them, a little at a time."""
        policy = relay.weighing.policy.policy
        for name, service in () if policy is None else policy.services.items():
            self.names.setdefault(service.order, set()).add(name)
        for number, key in enumerate(carried_keys(relay)):
            self._count(relay, key)
            if not number % TURN:
                yield

    def _count(self, relay: Relay, key: TrackKey) -> None:
        track = relay.tracks.get(key)
        flows = flows_of(relay, track, meter_of(relay, key, track))
        for flow in flows:
            if flow.terms.service:
                self.names.setdefault(flow.terms.order, set()).add(flow.terms.service)
        if flows:
            self.tracks[min(flow.terms.order for flow in flows)] += 1
        elif track is not None and track.is_wanted:
            self.tracks[track.order] += 1


def classes(runner: Runner, counted: TracksByClass) -> Table[ClassOfService]:
    """A row for each place that has a class, or has had data."""
    by_class = runner.by_class

    def row(order: int) -> ClassOfService:
        return ClassOfService(
            order=order,
            classes=sorted(counted.names.get(order, ())),
            tracks=counted.tracks[order],
            sent_bytes=by_class.sent_bytes[order],
            waiting_bytes=by_class.waiting_bytes[order],
            dropped=by_class.dropped[order],
        )

    known = [
        order
        for order in range(ORDERS)
        if order in counted.names or counted.tracks[order] or by_class.sent_bytes[order]
    ]
    return Table.of(known, row)
