"""Every option of a pair, what it would take, and why it is taken or not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from laps import units
from laps.spark.planner.loads import capacities, find_usage, resource_name
from laps.spark.planner.options import DIRECT, WEIGHT, longest_us
from laps.spark.planner.paths import UNREACHABLE_US

if TYPE_CHECKING:
    from laps.policy import Profile
    from laps.spark.planner.demand import Pairs
    from laps.spark.planner.loads import Usage
    from laps.spark.planner.network import Ints, Longs, Network
    from laps.spark.planner.options import Options

# What can stand in the way of an option, in the order it is looked at.
REACH: Final = "reach"
RULES: Final = "region rules"
DELAY: Final = "delay"
FAN_OUT: Final = "fan-out"
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One option of one pair."""

    option: int
    via: int
    "The Via, or -1: hub and spoke."
    label: str
    "`direct`, or the node id of the Via."
    long_haul_copies: int
    origin_egress: int
    cost: float
    "Of a bit in a second: the policy's weights times the copies."
    delay_us: int
    "The sum of sRTT to the s-relay that is farthest."
    stretch: float
    "The delay against that of the direct path, at the s-relay where it is worst."
    taken: bool
    constraint: str
    "What it breaks, or nothing."
    why: str
    "Why it is taken or not."
    way_out: str
    "What would make it possible."


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What pairs are judged in: what all of them take together."""

    options: Options
    pairs: Pairs
    usage: Usage
    "Of every option there is."
    loads: Longs
    limits: Longs


def setting(options: Options, pairs: Pairs, loads: Longs) -> Setting:
    """Prepare to judge pairs; `loads` are the plan's."""
    usage = find_usage(options, pairs, every=True)
    return Setting(options, pairs, usage, loads, capacities(options.network))


def judge(setting: Setting, pair: int, chosen: int) -> tuple[Verdict, ...]:
    """All options of a pair, the cheapest first; `chosen` is the one that the plan takes."""
    options, pairs = setting.options, setting.pairs
    origin, region = int(pairs.origin[pair]), int(pairs.region[pair])
    numbers = [k for k in range(options.candidates) if options.vias[origin, region, k] >= 0]
    numbers.append(DIRECT)
    place = (origin, region)
    weight = options.fixed[place] + int(pairs.n[pair]) * options.each[place]
    numbers.sort(key=lambda c: (int(weight[c]), int(options.preference[place][c])))
    bench = _Bench(setting, pair, chosen, weight)
    return tuple(bench.verdict(option) for option in numbers)


class _Bench:
    """One pair, and what all others take of the network."""

    def __init__(self, setting: Setting, pair: int, chosen: int, weight: Longs) -> None:
        options, pairs = setting.options, setting.pairs
        self._options = options
        self._setting = setting
        self._pair = pair
        self._origin, self._region = int(pairs.origin[pair]), int(pairs.region[pair])
        self._relays = pairs.relays[pair]
        self._n = int(pairs.n[pair])
        self._chosen = chosen
        self._weight = weight
        self._mask = int(pairs.mask[pair])
        self._profile = options.profiles[int(pairs.profile[pair])]
        self._own = {} if chosen < 0 else dict(zip(*self._taken(chosen), strict=True))

    def _taken(self, option: int) -> tuple[Ints, Longs]:
        usage = self._setting.usage
        return usage.of(int(usage.column[self._pair, option]))

    def verdict(self, option: int) -> Verdict:
        options, place = self._options, (self._origin, self._region, option)
        via = -1 if option == DIRECT else int(options.vias[place])
        srtt = options.paths.srtt_us
        straight = srtt[self._origin, self._relays]
        total = straight if via < 0 else srtt[self._origin, via] + srtt[via, self._relays]
        constraint, why, way_out = "", "", ""
        if not self._mask >> option & 1:
            constraint, why, way_out = self._broken(via, straight, total)
        if not constraint and option != self._chosen:
            constraint, why, way_out = self._crowded(option)
        taken = option == self._chosen
        if not constraint:
            why = "taken" if taken else self._dearer(option)
        return Verdict(
            option=option,
            via=via,
            label="direct" if via < 0 else options.network.nodes[via].id,
            long_haul_copies=int(options.haul_fixed[place])
            + self._n * int(options.haul_each[place]),
            origin_egress=self._n if via < 0 else 1,
            cost=int(self._weight[option]) / WEIGHT,
            delay_us=int(total.max()),
            stretch=float((total / np.maximum(straight, 1)).max()),
            taken=taken,
            constraint=constraint,
            why=why,
            way_out=way_out,
        )

    # -- what stands in the way --------------------------------------------------------------------

    def _broken(self, via: int, straight: Ints, total: Ints) -> tuple[str, str, str]:
        nodes = self._options.network.nodes
        far = self._relays[int(total.argmax())]
        if total.max() >= UNREACHABLE_US:
            return REACH, f"no path to {nodes[far].id}", f"add a link that leads to {nodes[far].id}"
        if rule := self._against_rules(via):
            return RULES, *rule
        if via < 0:
            if self._n > self._profile.fan_out:
                allowed = f"{self._profile.fan_out} allowed"
                why = f"{units.many(self._n, 'copy', 'copies')} from the o-relay, {allowed}"
                return FAN_OUT, why, f"raise fan_out_per_region to {self._n}"
            return "", "", ""
        longest = longest_us(self._profile, straight)
        over = total - longest
        worst = int(over.argmax())
        if over[worst] > 0:
            relay = nodes[self._relays[worst]].id
            taken, allowed = units.path_delay(total[worst]), units.path_delay(longest[worst])
            why = f"{taken} to {relay}, {allowed} allowed"
            slack = (self._profile.slack_us + int(over[worst] + 1) // 2) / 1000
            service = self._profile.service
            return DELAY, why, f"raise slack_ms of class {service} to {slack:g}"
        return "", "", ""

    def _against_rules(self, via: int) -> tuple[str, str] | None:
        """The first place that a copy would be at and must not be."""
        ends = [(self._origin, int(s)) for s in self._relays]
        if via >= 0:
            ends = [(self._origin, via), *((via, int(s)) for s in self._relays)]
        for source, target in ends:
            path = self._options.paths.nodes_between(source, target)
            for words_of_place, place in _places(self._options.network, path):
                inside, avoid = self._profile.inside, self._profile.avoid
                if inside and place not in inside:
                    allowed = ", ".join(inside)
                    return f"{words_of_place}, outside of {allowed}", f"let the track go to {place}"
                if place in avoid:
                    problem = f"{words_of_place}, which is to be avoided"
                    return problem, f"let the track go to {place}, or add a Via that leads around"
        return None

    def _crowded(self, option: int) -> tuple[str, str, str]:
        network = self._options.network
        resources, bits = self._taken(option)
        own = np.array([self._own.get(resource, 0) for resource in resources], np.int64)
        with_it = self._setting.loads[resources] - own + bits
        limits = self._setting.limits[resources]
        short = np.flatnonzero((limits > 0) & (with_it > limits))
        if not len(short):
            return "", "", ""
        most = short[np.argmax(with_it[short] / limits[short])]
        worst = int(resources[most])
        name = resource_name(network, worst)
        why = f"{name} would have {units.load(with_it[most], limits[most])}"
        way_out = f"raise the capacity of {name} to {units.bits(with_it[most])}"
        if worst < network.size:
            region = network.nodes[worst].region
            way_out += f", or add a Via in {region or 'its region'}"
        return CAPACITY, why, way_out

    def _dearer(self, option: int) -> str:
        if self._chosen < 0:
            return "possible by itself, but what room there is serves more with others"
        here, best = int(self._weight[option]), int(self._weight[self._chosen])
        if here > best:
            return f"costs {here / WEIGHT:g} against {best / WEIGHT:g}"
        if here < best:
            return "would be cheaper, and was not found in the time there was"
        preference = self._options.preference[self._origin, self._region]
        if preference[option] < preference[self._chosen]:
            return "costs the same and comes first, but what room it has is for others"
        return "costs the same, and has more delay or the higher node id"


def _places(network: Network, path: tuple[int, ...]) -> list[tuple[str, str]]:
    """Where a path leads: each node and each transit, in words and as a region."""
    found = [(_at(network, path[0]), network.nodes[path[0]].region)] if path else []
    for a, b in pairwise(path):
        number = int(network.link_between(np.array([a]), np.array([b]))[0])
        link = network.links[number % len(network.links)]
        name = f"the link {network.nodes[a].id} to {network.nodes[b].id}"
        found += [(f"{name} transits {region}", region) for region in link.transits]
        found.append((_at(network, b), network.nodes[b].region))
    return found


def _at(network: Network, node: int) -> str:
    return f"{network.nodes[node].id} is in {network.nodes[node].region or 'no region'}"


def hinder(profile: Profile, verdicts: tuple[Verdict, ...], n: int) -> tuple[str, str, str]:
    """Why a pair has no assignment: the constraints, what each option breaks, what would help."""
    constraints = dict.fromkeys(verdict.constraint for verdict in verdicts if verdict.constraint)
    reasons = [
        f"{'direct' if verdict.via < 0 else f'via {verdict.label}'}: {verdict.why}"
        for verdict in verdicts
    ]
    if len(verdicts) == 1 and n > profile.fan_out:
        reasons.append("there is no Via")
    ways = dict.fromkeys(verdict.way_out for verdict in verdicts if verdict.way_out)
    return ", ".join(constraints), "; ".join(reasons), "; or ".join(ways)
