"""Large plans without Spark, for tests: the same tasks, one after the other in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from laps.policy import Policy, policy_from_mapping
from laps.spark.planner import large, store
from laps.spark.planner.audience import Audience
from laps.spark.planner.bucket import write_whole
from laps.spark.planner.demand import find_pairs
from laps.spark.planner.exact import solve
from laps.spark.planner.layout import unsigned
from laps.spark.planner.options import Options, find_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from laps.spark.planner.audience import Demand
    from laps.spark.planner.demand import Pairs, Track
    from laps.spark.planner.exact import Solution
    from laps.spark.planner.network import Network
    from laps.spark.planner.outcome import LargePlan


class Inline(large.Works):
    """Works without Spark."""

    def __init__(self) -> None:
        super().__init__(None, large.Watch())  # type: ignore[arg-type]

    @property
    def task_count(self) -> int:
        return 12

    def run(self, name: str, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        with self.watch.phase(name, len(items)):
            return [work(item) for item in items]


@dataclass
class Planned:
    """The same demand, planned by cells and pair by pair."""

    folder: Path
    options: Options
    policy: Policy
    large: LargePlan

    @property
    def tracks(self) -> tuple[Track, ...]:
        return store.read_demand(self.folder, self.options.network, self.policy)

    @property
    def pairs(self) -> Pairs:
        return find_pairs(self.options, self.tracks)

    def exact(self) -> Solution:
        return solve(self.options, self.pairs)

    def chosen(self) -> dict[tuple[int, str], str]:
        """The plan on disk: the Via of each track and region."""
        found = {}
        for path in sorted((self.folder / "plan").iterdir()):
            for row in pq.read_table(path).to_pylist():
                found[unsigned(row["track"]), row["region"]] = row["via"]
        return found

    def missing(self) -> dict[tuple[int, str], str]:
        """The table of what is not served: the constraint of each track and region."""
        found = {}
        for path in sorted((self.folder / "infeasible").iterdir()):
            for row in pq.read_table(path).to_pylist():
                found[unsigned(row["track"]), row["region"]] = row["constraint"]
        return found

    def choice(self) -> Any:
        """[pair]: the option that the plan on disk has, -1 where it has none."""
        pairs, chosen = self.pairs, self.chosen()
        tracks, nodes = self.tracks, self.options.network.nodes
        choice = np.full(len(pairs), -1, np.int32)
        for pair in range(len(pairs)):
            origin, region = int(pairs.origin[pair]), int(pairs.region[pair])
            via = chosen.get((tracks[pairs.track[pair]].hash, self.options.network.regions[region]))
            if via is not None:
                candidates = self.options.vias[origin, region]
                names = {nodes[v].id: k for k, v in enumerate(candidates) if v >= 0} | {"": 7}
                choice[pair] = names[via]
        return choice


def plan(
    folder: Path,
    network: Network,
    demands: Sequence[Demand],
    policy: Policy | None = None,
) -> Planned:
    """Bucket and plan some demand."""
    policy = policy or policy_from_mapping({}, "policy")
    write_raw(folder / "raw", demands)
    store.write_network(folder, network)
    large.bucket(Inline(), folder / "raw", folder, network)
    options = find_options(
        network,
        policy.profiles,
        candidates=policy.goals.candidates,
        long_haul_weight=policy.goals.long_haul_weight,
        origin_egress_weight=policy.goals.origin_egress_weight,
    )
    return Planned(folder, options, policy, large.plan(Inline(), folder, options))


def write_raw(raw: Path, demands: Sequence[Demand]) -> None:
    """Tables in no order."""
    for table in ("tracks", "subscriptions"):
        (raw / table).mkdir(parents=True)
    for number, demand in enumerate(demands):
        write_whole(demand.tracks(), raw / "tracks" / f"part-{number}.parquet")
        write_whole(demand.subscriptions(), raw / "subscriptions" / f"part-{number}.parquet")


def made_up(network: Network, tracks: int, rows: int, seed: int = 1) -> Demand:
    """Tracks of three profiles."""
    return Audience(network, (0.5, 0.25, 0.25), seed).chunk(0, 0, tracks, rows)
