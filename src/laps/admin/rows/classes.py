"""Classes of service: which tracks are of each, and what became of their data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from laps.admin.rows.sources import meters
from laps.admin.rows.table import Table
from laps.admin.schema.decisions import ClassOfService
from laps.routing.terms import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.tracks.meter import Meter

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
        for number, meter in enumerate(meters(relay)):
            self._count(relay, meter)
            if not number % TURN:
                yield

    def _count(self, relay: Relay, meter: Meter) -> None:
        for flow in meter.flows:
            if flow.terms.service:
                self.names.setdefault(flow.terms.order, set()).add(flow.terms.service)
        track = relay.tracks.get(meter.key)
        order = next(
            (flow.terms.order for flow in meter.flows), None if track is None else track.order
        )
        if order is not None:
            self.tracks[order] += 1


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
