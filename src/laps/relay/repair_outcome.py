"""What became of repairs: counted for the operator, and told as events.

Tracks that are repaired at the same time have one cause, as a rule a relay that died. When the last
of them is done one event tells of all, and each track that objects are missing of has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.names import hash_text, track_text
from laps.ranges import after

if TYPE_CHECKING:
    from laps.relay.journal import Journal
    from laps.tracks.holes import Holes
    from laps.tracks.track import Track

NOBODY_HAS_THEM: Final = "they were under way when a relay or a link died, and no relay has them"


@dataclass(slots=True)
class RepairCounters:
    """How repairs went, for the operator."""

    begun: int = 0
    asked: int = 0
    served: int = 0
    "Asked by others, and something was sent."
    sent: int = 0
    "Streams and datagrams that were sent again."
    lost_streams: int = 0
    "Streams that broke off, and nobody brought the rest."
    lost_objects: int = 0
    "Objects that nobody brought, at least, as far as their numbers tell."


class Outcome:
    """The repairs that are under way at the same time."""

    def __init__(self, journal: Journal) -> None:
        self.counters = RepairCounters()
        self._journal = journal
        self._open = 0
        self._tracks = 0
        self._lost = 0
        self._began: float | None = None
        "When a relay was noticed to be gone; None where tracks only take another way."

    def begun(self) -> None:
        """Another track is repaired."""
        self.counters.begun += 1
        self._open += 1
        self._tracks += 1

    def sudden(self, now: float) -> None:
        """A relay is gone, or may be."""
        if self._began is None:
            self._began = now

    def missing(self, track: Track, holes: Holes, now: float) -> None:
        """Count what a repair that is about to close has not brought."""
        lost = holes.count(track.cached, track.lost_before, now)
        if (largest := track.cached.largest()) is not None:
            track.lost_before = max(track.lost_before, after(largest))
        if lost:
            self.counters.lost_objects += lost
            self._lost += lost
            track.meter.lost += lost
            name = hash_text(track.key) if track.name is None else track_text(track.name)
            self._journal.note(now, "objects_lost", name, f"{lost} or more", NOBODY_HAS_THEM)

    def closed(self, now: float) -> None:
        """A repair is done, or given up."""
        self._open -= 1
        if self._open:
            return
        if self._began is not None:
            tracks = f"{self._tracks} {'track' if self._tracks == 1 else 'tracks'}"
            took = f"after {now - self._began:.1f} s"
            lost = f"{self._lost} objects are lost" if self._lost else "no object is lost"
            self._journal.note(now, "repaired", tracks, took, lost)
        self._tracks = self._lost = 0
        self._began = None
