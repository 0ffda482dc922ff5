"""A plan in a few figures, beside those of today."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laps.spark.planner.loads import capacities, find_usage, resource_name
from laps.spark.planner.options import DIRECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.spark.planner.network import Ints, Longs, Network
    from laps.spark.planner.problem import Hop, Problem


@dataclass(frozen=True, slots=True)
class Load:
    """What a Via sends, or a link carries in one direction."""

    name: str
    load_bps: int
    capacity_bps: int
    """0: no limit known."""


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """What all tracks together take."""

    pairs: int
    """Tracks in a region that are served."""
    deliveries: int
    """Tracks at an s-relay."""
    long_haul_copies: int
    """Copies that cross from one region to another."""
    long_haul_bps: int
    origin_egress_copies: int
    """Copies that leave an o-relay."""
    origin_egress_bps: int
    p95_delay_us: int
    """Of deliveries: one in twenty takes longer; half a sum of sRTT."""
    overloaded: tuple[Load, ...]
    """Those with more than they can, the worst first."""
    busiest: tuple[Load, ...]
    """The links with the most, ten at most."""
    loads: Longs
    "[resource]"

    def to_mapping(self) -> dict[str, Any]:
        """For a program."""
        mapping = {name: getattr(self, name) for name in _NUMBERS}
        mapping["overloaded"] = [asdict(load) for load in self.overloaded]
        mapping["busiest"] = [asdict(load) for load in self.busiest]
        return mapping


_NUMBERS = (
    "pairs",
    "deliveries",
    "long_haul_copies",
    "long_haul_bps",
    "origin_egress_copies",
    "origin_egress_bps",
    "p95_delay_us",
)


def figures_of(problem: Problem, choice: Ints) -> Figures:
    """Those of an option for each pair, -1 for a pair that is not served."""
    pairs, options = problem.pairs, problem.options
    served = np.flatnonzero(choice >= 0)
    place = (pairs.origin[served], pairs.region[served], choice[served])
    n = pairs.n[served].astype(np.int64)
    rate = pairs.rate_bps[served]
    hauls = options.haul_fixed[place] + n * options.haul_each[place]
    egress = np.where(choice[served] == DIRECT, n, 1)
    delays = [_srtt(problem, int(pair), int(choice[pair])) for pair in served]
    return _figures(
        problem.network,
        find_usage(options, pairs, every=True).loads(choice),
        pairs=len(served),
        srtt=np.concatenate(delays) if delays else np.empty(0, np.int64),
        hauls=(int(hauls.sum()), int((hauls * rate).sum())),
        egress=(int(egress.sum()), int((egress * rate).sum())),
    )


def figures_of_today(problem: Problem) -> Figures:
    """Hub and spoke for all, or what the tables say is sent."""
    if problem.today is None:
        return figures_of(problem, np.full(len(problem.pairs), DIRECT, np.int32))
    network, tracks = problem.network, problem.tracks
    links = {(link.a, link.b) for link in network.links}
    known = [hop for hop in problem.today if {hop[1:], hop[:0:-1]} & links]
    source, target = np.array([hop[1:] for hop in known], np.int32).reshape(-1, 2).T
    rate = np.array([tracks[track].rate_bps for track, _, _ in known], np.int64)
    loads = np.zeros(network.size + 2 * len(network.links), np.int64)
    np.add.at(loads, network.size + network.link_between(source, target), rate)
    vias = network.is_via[source]
    np.add.at(loads, source[vias], rate[vias])
    far = network.region[source] != network.region[target]
    origin = np.array([tracks[track].origin for track, _, _ in known], np.int32)
    first = source == origin
    return _figures(
        network,
        loads,
        pairs=len(problem.pairs),
        srtt=_srtt_of_hops(problem, known),
        hauls=(int(far.sum()), int(rate[far].sum())),
        egress=(int(first.sum()), int(rate[first].sum())),
    )


def _figures(
    network: Network,
    loads: Longs,
    *,
    pairs: int,
    srtt: Longs,
    hauls: tuple[int, int],
    egress: tuple[int, int],
) -> Figures:
    limits = capacities(network)
    share = loads / np.maximum(limits, 1)
    over = np.flatnonzero((limits > 0) & (loads > limits))
    over = over[np.argsort(-share[over], kind="stable")]
    links = np.flatnonzero(loads[network.size :]) + network.size
    links = links[np.argsort(-loads[links], kind="stable")][:10]

    def named(resources: Ints) -> tuple[Load, ...]:
        return tuple(
            Load(resource_name(network, int(r)), int(loads[r]), int(limits[r])) for r in resources
        )

    return Figures(
        pairs=pairs,
        deliveries=len(srtt),
        long_haul_copies=hauls[0],
        long_haul_bps=hauls[1],
        origin_egress_copies=egress[0],
        origin_egress_bps=egress[1],
        p95_delay_us=_p95(srtt) // 2,
        overloaded=named(over.astype(np.int32)),
        busiest=named(links.astype(np.int32)),
        loads=loads,
    )


def _srtt(problem: Problem, pair: int, option: int) -> Longs:
    """The sums of sRTT to the s-relays of a pair."""
    pairs, options = problem.pairs, problem.options
    origin, relays = int(pairs.origin[pair]), pairs.relays[pair]
    srtt = options.paths.srtt_us
    if option == DIRECT:
        straight: Longs = srtt[origin, relays].astype(np.int64)
        return straight
    via = int(options.vias[origin, pairs.region[pair], option])
    around: Longs = srtt[origin, via] + srtt[via, relays].astype(np.int64)
    return around


def _p95(values: Longs) -> int:
    """The nearest rank: the least that 95 of 100 do not exceed."""
    if not len(values):
        return 0
    return int(np.sort(values)[math.ceil(0.95 * len(values)) - 1])


def _srtt_of_hops(problem: Problem, hops: Sequence[Hop]) -> Longs:
    """The sums of sRTT along the copies of today; the direct path where they do not lead there."""
    network, paths = problem.network, problem.options.paths
    onward: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, node, peer in hops:
        onward[number][node].append(peer)
    found: list[int] = []
    for number, track in enumerate(problem.tracks):
        reached = {track.origin: 0}
        waiting = [track.origin]
        for node in waiting:
            for peer in onward[number][node]:
                if peer not in reached:
                    link = int(network.link_between(np.array([node]), np.array([peer]))[0])
                    srtt = int(network.link_srtt_us[link % len(network.links)])
                    reached[peer] = reached[node] + srtt
                    waiting.append(peer)
        straight = paths.srtt_us[track.origin]
        found += (reached.get(relay, int(straight[relay])) for relay in track.relays)
    return np.array(found, np.int64)
