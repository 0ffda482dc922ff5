"""What a pair of a track and a region can choose from, as arrays over the whole network.

An option has a number: k for the k-th candidate Via of (o-relay, region), DIRECT for hub and spoke.
Everything here is by o-relay and region, or by o-relay and s-relay: what a track adds is its rate,
its profile and the number n of its s-relays in the region, not counting the o-relay itself.

    cost of an option = rate x (fixed + n x each)

`fixed` and `each` are whole thousandths of the policy's weights, so that equal costs are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from laps.spark.planner.network import Flags, Ints, permitted
from laps.spark.planner.paths import UNREACHABLE_US, all_paths, keeping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.policy import Profile
    from laps.spark.planner.network import Network
    from laps.spark.planner.paths import Paths

Masks = NDArray[np.uint8]

DIRECT: Final = 7
"The option, and its bit in a mask, of sending a copy to every s-relay."
OPTIONS: Final = 8
"The length of arrays over options."
MAX_CANDIDATES: Final = DIRECT
WEIGHT: Final = 1000
"What a weight of 1 is in `fixed` and `each`."

_BLOCK: Final = 128
# An option that there is not costs more than any that there is, and n times that is no overflow.
_NEVER: Final = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The arrays; make them with `find_options`. N nodes, R regions, K candidates, P profiles."""

    network: Network
    paths: Paths
    profiles: tuple[Profile, ...]
    vias: Ints
    "[N, R, K]: the candidate Vias of an o-relay for a region, the best first; -1: no more."
    allowed: Masks
    """[P, o, s]: bit k: candidate k of (o, the region of s) keeps the delay and the rules for s;
    bit DIRECT: the path from o to s keeps the rules. All bits where o is s, as no copy is sent."""
    haul_fixed: Masks
    "[N, R, OPTIONS]: long-haul copies of an option, whatever n is."
    haul_each: Masks
    "[N, R, OPTIONS]: long-haul copies of an option for each s-relay."
    fixed: NDArray[np.int64]
    "[N, R, OPTIONS]: what an option costs, whatever n is."
    each: NDArray[np.int64]
    "[N, R, OPTIONS]: what it costs for each s-relay."
    delay_us: Ints
    "[N, R, OPTIONS]: the sum of sRTT to the Edges of the region, on average."
    preference: Masks
    "[N, R, OPTIONS]: 0 for the option that is taken where costs are equal, and so on."

    @property
    def candidates(self) -> int:
        """How many candidates there are at most."""
        return int(self.vias.shape[2])


def find_options(
    network: Network,
    profiles: Sequence[Profile],
    *,
    candidates: int = 3,
    long_haul_weight: float = 1.0,
    origin_egress_weight: float = 0.1,
    paths: Paths | None = None,
) -> Options:
    """All options of all pairs there could be."""
    paths = all_paths(network) if paths is None else paths
    haul, egress = round(long_haul_weight * WEIGHT), round(origin_egress_weight * WEIGHT)
    vias = _candidates(network, paths, candidates, by_region=haul > 0)
    haul_fixed, haul_each = _long_hauls(network, vias)
    there = _there(network, vias)
    is_direct = np.arange(OPTIONS) == DIRECT
    fixed = haul * haul_fixed.astype(np.int64) + egress * ~is_direct
    each = haul * haul_each.astype(np.int64) + egress * is_direct
    fixed[~there] = _NEVER
    delay = _delays(network, paths, vias)
    return Options(
        network=network,
        paths=paths,
        profiles=tuple(profiles),
        vias=vias,
        allowed=_allowed(network, paths, profiles, vias),
        haul_fixed=haul_fixed,
        haul_each=haul_each,
        fixed=fixed,
        each=each,
        delay_us=delay,
        preference=_preference(network, vias, delay),
    )


def cheapest(options: Options, origin: Ints, region: Ints, n: Ints, mask: Masks) -> Ints:
    """The best option of each pair by itself, -1 where its mask has none."""
    cost = options.fixed[origin, region] + n[:, None] * options.each[origin, region]
    key = cost * OPTIONS + options.preference[origin, region]
    able = (mask[:, None] >> np.arange(OPTIONS, dtype=np.uint8)) & 1 == 1
    key = np.where(able, key, np.iinfo(np.int64).max)
    return np.where(able.any(axis=1), key.argmin(axis=1), -1).astype(np.int32)


def _candidates(network: Network, paths: Paths, candidates: int, *, by_region: bool) -> Ints:
    """The Vias of least cost, then of least delay to the Edges of the region, then by node id."""
    size, regions = network.size, len(network.regions)
    found = np.full((size, regions, candidates), -1, np.int32)
    vias = np.flatnonzero(network.is_via)
    vias = vias[np.argsort(network.rank[vias])].astype(np.int32)
    if not len(vias):
        return found
    onward = _mean_srtt(network, paths)[vias].T  # [R, V]
    home = network.region[vias]
    here = np.arange(regions)
    count = min(candidates, len(vias))
    for start in range(0, size, _BLOCK):
        sources = slice(start, start + _BLOCK)
        total = paths.srtt_us[sources][:, None, vias].astype(np.int64) + onward
        # Copies of a pair with two s-relays: the order is the same for all with more.
        copies = (home != network.region[sources, None, None]).astype(np.int64)
        copies = copies + 2 * (home != here[:, None])
        key = (copies * by_region << 56) + (total << 20) + np.arange(len(vias))
        key[total >= UNREACHABLE_US] = np.iinfo(np.int64).max
        best = np.argpartition(key, count - 1, axis=2)[:, :, :count]
        key = np.take_along_axis(key, best, axis=2)
        order = np.argsort(key, axis=2)
        key = np.take_along_axis(key, order, axis=2)
        chosen = vias[np.take_along_axis(best, order, axis=2)]
        found[sources, :, :count] = np.where(key < np.iinfo(np.int64).max, chosen, -1)
    return found


def _mean_srtt(network: Network, paths: Paths) -> NDArray[np.int64]:
    """[N, R]: the sum of sRTT from a node to the Edges of a region that it reaches, on average."""
    mean = np.full((network.size, len(network.regions)), UNREACHABLE_US, np.int64)
    for region in range(len(network.regions)):
        edges = np.flatnonzero(network.is_edge & (network.region == region))
        srtt = paths.srtt_us[:, edges].astype(np.int64)
        reached = srtt < UNREACHABLE_US
        count = reached.sum(axis=1)
        some = count > 0
        mean[some, region] = (srtt * reached).sum(axis=1)[some] // count[some]
    return mean


def _there(network: Network, vias: Ints) -> Flags:
    """[N, R, OPTIONS]: whether there is such an option at all."""
    there = np.zeros((*vias.shape[:2], OPTIONS), np.bool_)
    there[:, :, : vias.shape[2]] = vias >= 0
    there[:, :, DIRECT] = True
    return there


def _long_hauls(network: Network, vias: Ints) -> tuple[Masks, Masks]:
    fixed = np.zeros((*vias.shape[:2], OPTIONS), np.uint8)
    each = np.zeros_like(fixed)
    home = network.region[:, None]
    here = np.arange(len(network.regions))
    each[:, :, DIRECT] = home != here
    for k in range(vias.shape[2]):
        of_via = network.region[vias[:, :, k]]
        fixed[:, :, k] = (of_via != home) & (vias[:, :, k] >= 0)
        each[:, :, k] = (of_via != here) & (vias[:, :, k] >= 0)
    return fixed, each


def _delays(network: Network, paths: Paths, vias: Ints) -> Ints:
    mean = _mean_srtt(network, paths)
    delay = np.full((*vias.shape[:2], OPTIONS), UNREACHABLE_US, np.int64)
    delay[:, :, DIRECT] = mean
    source = np.arange(network.size)[:, None]
    here = np.arange(len(network.regions))
    for k in range(vias.shape[2]):
        via = vias[:, :, k]
        total = paths.srtt_us[source, via].astype(np.int64) + mean[via, here]
        delay[:, :, k] = np.where(via >= 0, total, UNREACHABLE_US)
    return np.minimum(delay, UNREACHABLE_US).astype(np.int32)


def _preference(network: Network, vias: Ints, delay: Ints) -> Masks:
    """Least delay first, then hub and spoke, then the lower node id."""
    rank = np.full(delay.shape, -1, np.int64)
    rank[:, :, : vias.shape[2]] = network.rank[vias]
    order = np.argsort((delay.astype(np.int64) << 32) + rank, axis=2, kind="stable")
    preference = np.empty(delay.shape, np.uint8)
    np.put_along_axis(preference, order, np.arange(OPTIONS, dtype=np.uint8)[None, None], axis=2)
    return preference


def _allowed(network: Network, paths: Paths, profiles: Sequence[Profile], vias: Ints) -> Masks:
    """Block by block, as each step needs a few numbers for each pair of nodes."""
    size = network.size
    allowed = np.zeros((len(profiles), size, size), np.uint8)
    rules = {(profile.inside, profile.avoid) for profile in profiles}
    kept = {rule: keeping(paths, permitted(network, *rule)) for rule in rules if any(rule)}
    everywhere = np.arange(size)
    for start in range(0, size, _BLOCK):
        sources = np.arange(start, min(start + _BLOCK, size))[:, None]
        block = slice(start, start + _BLOCK)
        straight = paths.srtt_us[block]
        reached = straight < UNREACHABLE_US
        for number, profile in enumerate(profiles):
            rule = kept.get((profile.inside, profile.avoid))
            fine = reached if rule is None else reached & rule[block]
            allowed[number, block] |= fine.astype(np.uint8) << DIRECT
        for k in range(vias.shape[2]):
            via = vias[block, :, k][:, network.region]
            total = paths.srtt_us[sources, via] + paths.srtt_us[via, everywhere]
            usable = reached & (via >= 0) & (total < UNREACHABLE_US)
            for number, profile in enumerate(profiles):
                fine = usable & (total <= longest_us(profile, straight))
                rule = kept.get((profile.inside, profile.avoid))
                if rule is not None:
                    fine &= rule[sources, via] & rule[via, everywhere]
                allowed[number, block] |= fine.astype(np.uint8) << k
    allowed[:, everywhere, everywhere] = 0xFF
    return allowed


def longest_us(profile: Profile, straight_us: Ints) -> NDArray[np.int64]:
    """The sum of sRTT that a detour may have: twice the delay, in whole microseconds."""
    stretched = straight_us.astype(np.int64) * round(profile.stretch * 1000) // 1000
    return stretched + 2 * profile.slack_us
