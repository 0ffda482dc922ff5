"""Whether a better path is worth a change.

Round trips are measured and never stand still. Two paths that are about equal would be taken in
turn, and every change costs something: sets to advertise, streams by two ways, objects that arrive
twice. So the path in use is kept, unless

    it has to change     another has fewer hops or carries data, or this one is avoided
    it gains enough      the round trip is shorter by a share and a time, and stays so for a while
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.infobase.nodes import Gain

if TYPE_CHECKING:
    from laps.infobase.nodes import PathCandidate
    from laps.routing.avoided import Avoided


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How much a path has to gain, as an operator may decide."""

    share: float = 0.1
    "Of the round trip,"
    gain_us: int = 2000
    "and not less than this,"
    hold_s: float = 5.0
    "for as long as this."


class Steady:
    """Weighs a change from one path to another."""

    def __init__(self, settings: Steadiness, avoided: Avoided) -> None:
        self._settings = settings
        self._avoided = avoided

    def gain(self, held: PathCandidate, best: PathCandidate) -> Gain:
        """What is gained by leaving the path in use for the best one."""
        if held.peer_id == best.peer_id:
            return Gain.MUST  # the same way by another session
        if held.carries_data != best.carries_data or held.hops != best.hops:
            return Gain.MUST
        if self._avoided.avoids(held) and not self._avoided.avoids(best):
            return Gain.MUST
        gained = held.srtt_us - best.srtt_us
        settings = self._settings
        enough = gained >= settings.gain_us and gained >= settings.share * held.srtt_us
        return Gain.WORTH if enough else Gain.LITTLE
