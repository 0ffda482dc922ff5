"""A plan laid over selection: for some tracks, which peer copies for a region go to first.

A plan knows the whole network's demand, selection only paths. It says for a track and a region
"by this Via" or "direct", and it is followed where the peer it names leads to the s-relay; where
that peer is gone, or does not lead there, selection decides as if there were no plan. So a plan
can be old or wrong and nothing is lost but its saving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.types import NodeId, TrackKey

DIRECT = None
"In place of a Via: the s-relay itself, from the o-relay."


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided for the tracks of the network, or of one relay."""

    sequence: int
    "A plan with a larger number takes the place of this one."
    expires_at: float
    "Seconds since 1970; from then on it counts no more."
    regions: Mapping[NodeId, str] = field(default_factory=dict)
    vias: Mapping[TrackKey, Mapping[str, NodeId | None]] = field(default_factory=dict)
    "By the hash of a track's full name and the region of the s-relay: a Via, or DIRECT."

    def peer_for(self, full_name_hash: TrackKey, node_id: NodeId) -> NodeId | None:
        """The peer that a track for a node is to be sent to first; None where nothing is said."""
        by_region = self.vias.get(full_name_hash)
        if by_region is None:
            return None
        region = self.regions.get(node_id)
        if region is None or region not in by_region:
            return None
        via = by_region[region]
        return node_id if via is DIRECT else via


NO_PLAN = Plan(sequence=0, expires_at=0.0)
