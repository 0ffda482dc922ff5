"""The last ten minutes: figures for the plots, and what happened. A later page has them too."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from laps.dashboard.incidents import Incidents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laps.dashboard.relays import Relay

    Row = dict[str, Any]

KEPT_SAMPLES = 600  # one a second

# Lines that a plot can have data for, those with the largest values; more cannot be distinguished.
MAX_RELAYS = 64
MAX_LINKS = 128


class History:
    """Samples and incidents, each with a number that counts up: a page asks for the rest."""

    def __init__(self) -> None:
        self._samples: deque[Row] = deque(maxlen=KEPT_SAMPLES)
        self.incidents = Incidents()
        self._sample_number = 0

    def sample(
        self,
        nodes: Sequence[Row],
        links: Sequence[Row],
        at: float,
        added_us: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        """Keep how things are at this second; `added_us` is by track and node."""
        live = [row for row in nodes if row.get("measured")]
        linked = [row for row in links if row["state"] == "live"]
        packets = sum(row["packets"] for row in linked)
        lost = sum(row["lost"] for row in linked)
        self._sample_number += 1
        self._samples.append(
            {
                "added": dict(added_us),
                "number": self._sample_number,
                "at": round(at, 2),
                "delivered_bps": sum(row["delivered_bps"] for row in live) if live else None,
                "loss": round(min(1.0, lost / packets), 6) if packets > 0 else None,
                "relays": _largest({row["id"]: row["sent_bps"] for row in live}, MAX_RELAYS),
                "links": _largest(
                    {row["id"]: row["srtt_us"] for row in linked if row["srtt_us"]}, MAX_LINKS
                ),
            }
        )

    def collect(self, relays: Sequence[Relay]) -> None:
        """Take the events of relays since the last time."""
        news: list[Row] = [
            {
                "at": event.at,
                "node": relay.id,
                "event": event.event,
                "subject": event.subject,
                "detail": event.detail,
                "reason": event.reason,
            }
            for relay in relays
            for event in relay.take_news()
        ]
        for row in sorted(news, key=lambda row: row["at"]):
            self.incidents.add(row)

    def samples_after(self, number: int) -> list[Row]:
        """Oldest first."""
        return [row for row in self._samples if row["number"] > number]


def _largest(values: dict[str, int], limit: int) -> dict[str, int]:
    if len(values) <= limit:
        return values
    kept = sorted(values, key=lambda key: -values[key])[:limit]
    return {key: values[key] for key in sorted(kept)}
