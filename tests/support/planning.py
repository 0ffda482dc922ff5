"""Small planning cases, and their answer found by trying everything: docs/plan.md, word by word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import TYPE_CHECKING

from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.policy import Profile
    from laps.spark.planner.demand import Track
    from laps.spark.planner.network import Link, Node

Path = tuple[int, ...]
Choice = int | None | str
"A Via by its number, `direct`, or None: left out."


@dataclass(frozen=True)
class Case:
    """A network, its tracks, and what is wanted; all Vias are candidates."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    profiles: tuple[Profile, ...]
    tracks: tuple[Track, ...]
    long_haul_weight: float = 1.0
    origin_egress_weight: float = 0.1

    @property
    def pairs(self) -> list[tuple[Track, str, list[int]]]:
        """Each track with each region and the s-relays in it, in the planner's order."""
        found = []
        for track in self.tracks:
            for region in sorted({self.nodes[relay].region for relay in track.relays}):
                relays = [s for s in track.relays if self.nodes[s].region == region]
                found.append((track, region, relays))
        return found


class Oracle:
    """Slow, plain and right."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.between = {}
        for link in (it for it in case.links if not it.is_closed):
            self.between[link.a, link.b] = self.between[link.b, link.a] = link
        size = len(case.nodes)
        self.paths = {(a, b): self._path(a, b) for a in range(size) for b in range(size)}

    def _path(self, source: int, target: int) -> Path | None:
        """Fewest hops, lowest sRTT, then the lowest id at each hop."""
        best: dict[int, tuple[int, int]] = {target: (0, 0)}
        for _ in self.case.nodes:
            for (a, b), link in self.between.items():
                if b in best and self._leads_on(b, target):
                    through = (best[b][0] + 1, best[b][1] + link.srtt_us)
                    best[a] = min(best.get(a, through), through)
        if source not in best:
            return None
        path = [source]
        while path[-1] != target:
            here = path[-1]
            leads = [
                b
                for (a, b), link in self.between.items()
                if a == here
                and b in best
                and self._leads_on(b, target)
                and (best[b][0] + 1, best[b][1] + link.srtt_us) == best[here]
            ]
            path.append(min(leads, key=lambda n: parse_node_id(self.case.nodes[n].id)))
        return tuple(path)

    def _leads_on(self, node: int, target: int) -> bool:
        return node == target or self.case.nodes[node].passes_on

    def srtt(self, path: Path) -> int:
        """The sum along a path."""
        return sum(self.between[hop].srtt_us for hop in pairwise(path))

    def keeps_rules(self, profile: Profile, path: Path) -> bool:
        """Whether all nodes and transits of a path are where they may be."""
        places = {self.case.nodes[node].region for node in path}
        for hop in pairwise(path):
            places |= set(self.between[hop].transits)
        inside = not profile.inside or places <= set(profile.inside)
        return inside and not places & set(profile.avoid)

    def options(self, track: Track, relays: Sequence[int]) -> list[Choice]:
        """What a pair may choose, by all but capacity."""
        profile = self.case.profiles[track.profile]
        straight = {s: self.paths[track.origin, s] for s in relays}
        found: list[Choice] = []
        if len(relays) <= profile.fan_out and all(
            path is not None and self.keeps_rules(profile, path) for path in straight.values()
        ):
            found.append("direct")
        for via, node in enumerate(self.case.nodes):
            if node.role == "via" and all(self._by(via, track, s, profile) for s in relays):
                found.append(via)
        return found

    def _by(self, via: int, track: Track, relay: int, profile: Profile) -> bool:
        first, second = self.paths[track.origin, via], self.paths[via, relay]
        straight = self.paths[track.origin, relay]
        if first is None or second is None or straight is None:
            return False
        longest = Fraction(str(profile.stretch)) * self.srtt(straight) + 2 * profile.slack_us
        delay = self.srtt(first) + self.srtt(second) <= longest
        return delay and self.keeps_rules(profile, first) and self.keeps_rules(profile, second)

    def copies(self, track: Track, relays: Sequence[int], choice: Choice) -> list[tuple[int, int]]:
        """From where to where each copy goes."""
        if choice is None:
            return []
        if choice == "direct":
            return [(track.origin, s) for s in relays]
        assert isinstance(choice, int)
        return [(track.origin, choice), *((choice, s) for s in relays)]

    def cost(self, track: Track, region: str, relays: Sequence[int], choice: Choice) -> Fraction:
        """The table of the page."""
        home, n = self.case.nodes[track.origin].region, len(relays)
        if choice is None:
            return Fraction(0)
        if choice == "direct":
            hauls, egress = (n if region != home else 0), n
        else:
            assert isinstance(choice, int)
            place = self.case.nodes[choice].region
            hauls, egress = (place != home) + n * (place != region), 1
        haul_weight = Fraction(str(self.case.long_haul_weight))
        egress_weight = Fraction(str(self.case.origin_egress_weight))
        return track.rate_bps * (haul_weight * hauls + egress_weight * egress)

    def fits(self, choices: Sequence[Choice]) -> bool:
        """Whether every Via and every link carries no more than it can."""
        loads: Counter[tuple[int, int] | int] = Counter()
        for (track, _, relays), choice in zip(self.case.pairs, choices, strict=True):
            if isinstance(choice, int):
                loads[choice] += track.rate_bps * len(relays)
            for ends in self.copies(track, relays, choice):
                path = self.paths[ends]
                assert path is not None
                for hop in pairwise(path):
                    loads[hop] += track.rate_bps
        for resource, load in loads.items():
            if isinstance(resource, int):
                limit = self.case.nodes[resource].capacity_bps
            else:
                limit = self.between[resource].capacity_bps
            if limit and load > limit:
                return False
        return True

    def value(self, choices: Sequence[Choice]) -> tuple[int, Fraction]:
        """What is not served, and what the rest costs: the less the better."""
        missed, cost = 0, Fraction(0)
        for (track, region, relays), choice in zip(self.case.pairs, choices, strict=True):
            missed += track.rate_bps * len(relays) if choice is None else 0
            cost += self.cost(track, region, relays, choice)
        return missed, cost

    def best(self) -> tuple[int, Fraction]:
        """The least of all that fits."""
        able = [[None, *self.options(track, relays)] for track, _, relays in self.case.pairs]
        return min(self.value(choices) for choices in product(*able) if self.fits(choices))
