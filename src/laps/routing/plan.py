"""A plan laid over selection: for some tracks, which peer copies for a region go to first.

A plan knows the whole network's demand, selection only paths. It says for a track and a region
"by this Via", "by these Vias, one after the other" or "direct", and for patterns of tracks and for
classes too. It is followed as far as what it names is there and leads to the s-relay; where it is
gone, selection decides as if there were no plan. So a plan can be old or wrong and nothing is lost
but its saving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.routing.terms import Way
    from laps.types import NodeId, TrackKey

DIRECT: Way = ()
"No Via: the o-relay sends to the s-relay itself."


@dataclass(frozen=True, slots=True)
class PlannedWay:
    """What a plan says of more than one track."""

    tracks: str
    "A pattern for namespace/name; empty: of any name."
    service: str
    "A class of service; empty: of any class."
    by_region: Mapping[str, Way]
    "By the region of the s-relay; an empty one stands for all."


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided for the tracks of the network, or of one relay."""

    sequence: int
    "A plan with a larger number takes the place of this one."
    expires_at: float
    "Seconds since 1970; from then on it counts no more."
    regions: Mapping[NodeId, str] = field(default_factory=dict)
    vias: Mapping[TrackKey, Mapping[str, Way]] = field(default_factory=dict)
    "By the hash of a track's full name and the region of the s-relay: Vias in order, or DIRECT."
    ways: tuple[PlannedWay, ...] = ()
    "For tracks that stand in `vias` with nothing; the first that matches counts."

    def way_for(
        self, key: TrackKey, node_id: NodeId, track: str | None = None, service: str = ""
    ) -> Way | None:
        """The Vias that a track passes on its way to a node; None where nothing is said.

        `track` is its namespace/name, where it is known.
        """
        region = self.regions.get(node_id)
        by_region = self.vias.get(key)
        if by_region is not None and region is not None and region in by_region:
            return by_region[region]
        for way in self.ways:
            if way.service not in ("", service):
                continue
            if way.tracks and (track is None or not fnmatchcase(track, way.tracks)):
                continue
            found = way.by_region.get(region or "", way.by_region.get(""))
            if found is not None:
                return found
        return None


NO_PLAN = Plan(sequence=0, expires_at=0.0)
