"""Why a track goes the way it does: every option of every region, from a plan's folder alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from laps.errors import ConfigError, quote
from laps.files import suggest
from laps.names import hash_text, read_hash
from laps.spark.planner import store
from laps.spark.planner.demand import find_pairs, track_hash
from laps.spark.planner.network import under
from laps.spark.planner.options import DIRECT, find_options
from laps.spark.planner.verdicts import Verdict, hinder, judge, setting

if TYPE_CHECKING:
    from pathlib import Path

    from laps.policy import Policy, Profile
    from laps.spark.planner.demand import Track
    from laps.spark.planner.network import Network, Node
    from laps.spark.planner.options import Options


@dataclass(frozen=True, slots=True)
class Region:
    """One region that has s-relays of the track."""

    name: str
    relays: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    """All options, the cheapest first."""
    infeasible: str
    """Why nothing was taken; empty where something was."""
    way_out: str

    @property
    def taken(self) -> Verdict | None:
        """The option that the plan takes."""
        return next((verdict for verdict in self.verdicts if verdict.taken), None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that a plan says about a track."""

    track: Track
    origin: Node
    profile: Profile
    regions: tuple[Region, ...]

    def to_mapping(self) -> dict[str, Any]:
        """For a program."""
        return {
            "track": self.track.label,
            "hash": hash_text(self.track.hash),
            "origin": self.origin.id,
            "origin_region": self.origin.region,
            "rate_bps": self.track.rate_bps,
            "class": self.profile.service,
            "stretch": self.profile.stretch,
            "slack_us": self.profile.slack_us,
            "fan_out_per_region": self.profile.fan_out,
            "inside": list(self.profile.inside),
            "avoid": list(self.profile.avoid),
            "regions": [
                {
                    "region": region.name,
                    "relays": list(region.relays),
                    "taken": None if region.taken is None else region.taken.label,
                    "infeasible": region.infeasible or None,
                    "way_out": region.way_out or None,
                    "options": [_option(verdict) for verdict in region.verdicts],
                }
                for region in self.regions
            ],
        }


def _option(verdict: Verdict) -> dict[str, Any]:
    return {
        "option": verdict.label,
        "taken": verdict.taken,
        "cost": verdict.cost,
        "long_haul_copies": verdict.long_haul_copies,
        "origin_egress": verdict.origin_egress,
        "delay_us": verdict.delay_us // 2,
        "stretch": round(verdict.stretch, 3),
        "constraint": verdict.constraint or None,
        "why": verdict.why,
        "way_out": verdict.way_out or None,
    }


def explain(folder: Path, name: str) -> Explanation:
    """What the plan in a folder says about a track, by `namespace/name` or by its hash."""
    policy = store.read_policy(folder)
    network = under(policy, store.read_network(folder), str(folder))
    track = _find(folder, name, network, policy)
    profile = policy.profiles[track.profile]
    goals = policy.goals
    options = find_options(
        network,
        # The others stay away: only this one is asked for.
        [profile],
        candidates=goals.candidates,
        long_haul_weight=goals.long_haul_weight,
        origin_egress_weight=goals.origin_egress_weight,
    )
    pairs = find_pairs(options, [replace(track, profile=0)])
    vias = store.read_vias(folder, track.hash)
    court = setting(options, pairs, store.read_loads(folder, network))
    regions = []
    for pair in range(len(pairs)):
        region = network.regions[pairs.region[pair]]
        chosen = _choice(options, int(pairs.origin[pair]), int(pairs.region[pair]), vias)
        verdicts = judge(court, pair, chosen)
        _, reason, way_out = hinder(profile, verdicts, int(pairs.n[pair]))
        regions.append(
            Region(
                name=region,
                relays=tuple(network.nodes[relay].id for relay in pairs.relays[pair]),
                verdicts=verdicts,
                infeasible="" if chosen >= 0 else reason,
                way_out="" if chosen >= 0 else way_out,
            )
        )
    return Explanation(track, network.nodes[track.origin], profile, tuple(regions))


def _find(folder: Path, name: str, network: Network, policy: Policy) -> Track:
    """The track, by its hash, by its name, or by a name that only the table of names has."""
    namespace, slash, last = name.rpartition("/")
    wanted = read_hash(name)
    if wanted is None and slash and all(namespace.split("/")):
        wanted = track_hash(tuple(namespace.split("/")), last)
    if wanted is None:
        problem = "is no track: write it as namespace/name, or the 16 digits of its hash"
        raise ConfigError(f"{quote(name)} {problem}")
    found = store.read_demand(folder, network, policy, only=wanted)
    if not found:
        labels = store.read_labels(folder)
        if name in labels:
            found = store.read_demand(folder, network, policy, only=labels[name])
    if not found:
        hint = suggest(name, sorted(labels)) if 0 < len(labels) <= 20 else ""
        raise ConfigError(f"{folder}: the plan has no track {quote(name)} with subscribers{hint}")
    return found[0]


def _choice(options: Options, origin: int, region: int, vias: dict[str, str]) -> int:
    """The option that a row of the plan stands for, -1 where there is no row."""
    network = options.network
    via = vias.get(network.regions[region])
    if via is None:
        return -1
    if not via:
        return DIRECT
    for k in range(options.candidates):
        number = int(options.vias[origin, region, k])
        if number >= 0 and network.nodes[number].id == via:
            return k
    raise ConfigError(
        f"the plan sends a track from {network.nodes[origin].id} via {via}, and that is no "
        "candidate of this network and policy: plan it again"
    )
