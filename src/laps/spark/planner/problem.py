"""A planning problem, put together and checked: the network, the policy and the tracks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.spark.planner.demand import find_pairs, require_reachable
from laps.spark.planner.network import under
from laps.spark.planner.options import find_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.policy import Policy
    from laps.spark.planner.demand import Pairs, Track
    from laps.spark.planner.network import Network
    from laps.spark.planner.options import Options

Hop = tuple[int, int, int]
"A copy that is sent today: of which track, from which node, to which peer, by their numbers."


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is planned; make one with `pose`."""

    policy: Policy
    options: Options
    tracks: tuple[Track, ...]
    pairs: Pairs
    today: tuple[Hop, ...] | None = None
    """The copies of today, where they are known; else hub and spoke is taken for it."""

    @property
    def network(self) -> Network:
        """The nodes and links."""
        return self.options.network


def pose(
    network: Network,
    policy: Policy,
    tracks: Sequence[Track],
    *,
    sources: tuple[str, str] = ("the network", "the policy"),
    today: Sequence[Hop] | None = None,
) -> Problem:
    """Find what there is to choose from, or say what does not go together.

    `sources` name where the network and the policy come from.
    """
    network = under(policy, network, sources[1])
    goals = policy.goals
    options = find_options(
        network,
        policy.profiles,
        candidates=goals.candidates,
        long_haul_weight=goals.long_haul_weight,
        origin_egress_weight=goals.origin_egress_weight,
    )
    require_reachable(network, options.paths, tracks, sources[0])
    return Problem(
        policy=policy,
        options=options,
        tracks=tuple(tracks),
        pairs=find_pairs(options, tracks),
        today=None if today is None else tuple(today),
    )
