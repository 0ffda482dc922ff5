"""What each room of a relay has counted since it began."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laps.edge.edge import Edge
    from laps.relay.relay import Relay

Counts = dict[str, dict[str, int]]


def counters(relay: Relay, edge: Edge) -> Counts:
    """By room; what only the network knows is for others to add."""
    quicr = edge.quicr
    return {
        "relay": counts_of(relay.counters),
        "nodes": counts_of(relay.nodes.counters),
        "subscribes": counts_of(relay.subscribes.counters)
        | {"unreadable": relay.tracks.unreadable},
        "announces": counts_of(relay.tracks.announces.counters),
        "metrics": counts_of(relay.extensions.metrics.counters),
        "namespaces": counts_of(relay.extensions.namespaces.counters),
        "extensions": counts_of(relay.extensions.counters),
        "data": counts_of(relay.data.counters),
        "live": counts_of(relay.live.counters),
        "cache": counts_of(relay.live.cache.counters),
        "fetches": counts_of(edge.fetches.counters),
        "clients": counts_of(edge.counters),
        "quicr": counts_of(quicr),
        "media": counts_of(quicr.media),
        "journal": {"dropped_events": relay.journal.dropped},
    }


def counts_of(counted: Any) -> dict[str, int]:
    """The numbers of a dataclass of counters."""
    assert is_dataclass(counted)  # noqa: S101 - all of them are
    values = {field.name: getattr(counted, field.name) for field in fields(counted)}
    return {name: value for name, value in values.items() if isinstance(value, int)}
