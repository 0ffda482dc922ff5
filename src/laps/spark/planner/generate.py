"""Networks that are made up for measuring: the shape of real ones, the same for the same seed.

Regions are cities. Each has Edges and, one in twenty nodes, Vias. Vias peer with all other Vias;
Edges with the Vias of their region and with the nearest Via of the two regions next to it. sRTT
follows distance; a long link transits the region that lies in its way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from laps.errors import ConfigError
from laps.spark.planner.audience import Audience, distances_km
from laps.spark.planner.bucket import gather
from laps.spark.planner.cells import RATE, Sums, cells_of, shape_of
from laps.spark.planner.kernel import find_pairs, lookup_of, places, total_by
from laps.spark.planner.network import Link, Node, network
from laps.spark.planner.options import find_options
from laps.spark.planner.prices import alone, by_row
from laps.spark.planner.resources import find_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from laps.policy import Policy
    from laps.spark.planner.network import Ints, Network

# Name, latitude, longitude, and how large it is beside the others.
_CITIES: Final = (
    ("amsterdam", 52.4, 4.9, 5),
    ("atlanta", 33.7, -84.4, 4),
    ("bangalore", 13.0, 77.6, 4),
    ("bogota", 4.7, -74.1, 2),
    ("buenosaires", -34.6, -58.4, 2),
    ("cairo", 30.0, 31.2, 2),
    ("chicago", 41.9, -87.6, 6),
    ("dallas", 32.8, -96.8, 5),
    ("delhi", 28.6, 77.2, 4),
    ("dubai", 25.2, 55.3, 3),
    ("dublin", 53.3, -6.3, 3),
    ("frankfurt", 50.1, 8.7, 8),
    ("hongkong", 22.3, 114.2, 5),
    ("istanbul", 41.0, 29.0, 3),
    ("jakarta", -6.2, 106.8, 3),
    ("johannesburg", -26.2, 28.0, 2),
    ("lagos", 6.5, 3.4, 2),
    ("lima", -12.0, -77.0, 1),
    ("london", 51.5, -0.1, 8),
    ("losangeles", 34.1, -118.2, 6),
    ("madrid", 40.4, -3.7, 4),
    ("manila", 14.6, 121.0, 2),
    ("melbourne", -37.8, 145.0, 2),
    ("mexico", 19.4, -99.1, 3),
    ("miami", 25.8, -80.2, 4),
    ("milan", 45.5, 9.2, 4),
    ("montreal", 45.5, -73.6, 2),
    ("mumbai", 19.1, 72.9, 5),
    ("nairobi", -1.3, 36.8, 2),
    ("newyork", 40.7, -74.0, 8),
    ("osaka", 34.7, 135.5, 3),
    ("paris", 48.9, 2.3, 6),
    ("santiago", -33.4, -70.7, 2),
    ("saopaulo", -23.6, -46.6, 5),
    ("seattle", 47.6, -122.3, 4),
    ("seoul", 37.6, 127.0, 5),
    ("singapore", 1.4, 103.8, 6),
    ("stockholm", 59.3, 18.1, 3),
    ("sydney", -33.9, 151.2, 4),
    ("tokyo", 35.7, 139.7, 8),
)
_NODES_PER_REGION: Final = 20
_VIA_SHARE: Final = 0.05

# Light in fibre there and back, over cables that are a third longer than the way the crow flies.
_SRTT_US_PER_KM: Final = 13.0
_SRTT_US_AT_LEAST: Final = 300

# Capacity beside what is asked for: of a Via, of all Vias of a region, and of a link.
_SHORT: Final = 0.6
_AMPLE: Final = 1.5
_CROWDED: Final = 0.85
_SHORT_LINK: Final = 0.8
_BUSIEST_LINKS: Final = 500
_SHORT_EVERY: Final = 50

_SAMPLE_TRACKS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much is made up."""

    nodes: int = 2_000
    tracks: int = 20_000_000
    subscriptions: int = 200_000_000


_SMALLEST: Final = {"nodes": 2, "tracks": 1, "subscriptions": 1}
_LARGEST: Final = {"nodes": 5_000, "tracks": 10**10, "subscriptions": 10**11}


def parse_size(text: str) -> Size:
    """Read `nodes=2000,tracks=20e6,subscriptions=200e6`; what is left out keeps its default."""
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name not in _SMALLEST or not equals:
            raise ConfigError(
                f'--generate "{part}": write nodes=2000,tracks=20e6,subscriptions=200e6'
            )
        if not re.fullmatch(r"\d+(\.\d+)?([eE]\d{1,2})?", number) or float(number) % 1:
            raise ConfigError(f'--generate "{part}": {name} is a whole number, like 2000 or 20e6')
        value = int(float(number))
        if not _SMALLEST[name] <= value <= _LARGEST[name]:
            raise ConfigError(
                f'--generate "{part}": {name} is from {_SMALLEST[name]:,} to {_LARGEST[name]:,}'
            )
        found[name] = value
    size = replace(Size(), **found)
    edges = len(_edges(_nodes(size.nodes)))
    most = size.tracks * max(1, edges // 2)
    if size.subscriptions > most:
        raise ConfigError(
            f"--generate: {size.tracks:,} tracks have at most {most:,} subscriptions in a network "
            f"of {size.nodes:,} nodes: ask for fewer, or for more tracks"
        )
    return size


def shares_of(policy: Policy) -> list[float]:
    """How common each profile is: half of all tracks have the first one."""
    others = len(policy.profiles) - 1
    return [1.0] if not others else [0.5, *(0.5 / others for _ in range(others))]


# -- the network -----------------------------------------------------------------------------------


def generate_network(size: Size, policy: Policy, shares: Sequence[float], seed: int = 1) -> Network:
    """Nodes, links, and capacities that the demand of that size makes tight in places.

    What is asked of each Via and link if every pair takes its own best option follows from a sample
    of the demand. The busiest Via of every second region has less than that, and so has one in
    fifty of the busiest links. Others of the region have room for it, but for some regions with two
    Vias: from there a part has to go by another region, which costs.
    """
    nodes = _nodes(size.nodes)
    made = network(nodes, _links(nodes, seed))
    loads, across = _asked(size, made, policy, shares, seed)
    vias = np.flatnonzero(made.is_via)
    capacity = np.zeros(made.size, np.int64)
    for region in range(len(made.regions)):
        here = vias[made.region[vias] == region]
        here = here[np.argsort(-loads[here], kind="stable")]
        capacity[here] = np.ceil(_AMPLE * loads[here].sum())
        if region % 2 == 0 and len(here) > 1:
            capacity[here[0]] = np.ceil(_SHORT * loads[here[0]])
        if region % 4 == 0 and len(here) == 2:
            capacity[here[1]] = np.ceil(_CROWDED * loads[here].sum()) - capacity[here[0]]
    nodes = [replace(node, capacity_bps=int(capacity[n])) for n, node in enumerate(nodes)]
    return network(nodes, _with_capacities(made, loads[made.size :], across))


def _with_capacities(
    made: Network, loads: NDArray[np.float64], across: NDArray[np.float64]
) -> list[Link]:
    """Between Vias of two regions room for all that goes there, and for as much as links have on
    average; what Edges have is not known."""
    a, b = made.region[made.link_a], made.region[made.link_b]
    backbone = (a != b) & made.is_via[made.link_a] & made.is_via[made.link_b]
    busiest = np.maximum(loads[: len(a)], loads[len(a) :])
    usual = busiest[backbone & (busiest > 0)].mean() if np.any(busiest[backbone]) else 0.0
    asked = np.maximum(busiest, np.maximum(across[a, b], across[b, a]))
    capacity = np.ceil(2 * _AMPLE * np.maximum(asked, usual))
    order = np.argsort(-np.where(backbone, busiest, 0), kind="stable")
    short = order[:_BUSIEST_LINKS:_SHORT_EVERY]
    capacity[short] = np.ceil(_SHORT_LINK * busiest[short])
    capacity[~backbone] = 0
    return [
        replace(link, capacity_bps=int(bits))
        for link, bits in zip(made.links, capacity, strict=True)
    ]


def _asked(
    size: Size, made: Network, policy: Policy, shares: Sequence[float], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bits per second: of each resource, and from each region into each as one copy of a track."""
    tracks = min(size.tracks, _SAMPLE_TRACKS)
    scale = size.tracks / tracks
    demand = Audience(made, shares, seed).chunk(
        0, 0, tracks, max(1, round(size.subscriptions / scale))
    )
    options = find_options(
        made,
        policy.profiles,
        candidates=policy.goals.candidates,
        long_haul_weight=policy.goals.long_haul_weight,
        origin_egress_weight=policy.goals.origin_egress_weight,
    )
    bucket, _ = gather(demand.tracks(), demand.subscriptions(), places(made))
    shape = shape_of(options)
    sums = Sums(shape.count)
    pairs = find_pairs(lookup_of(options), bucket)
    sums.add(shape.numbers(bucket, pairs), pairs.n, bucket.rate_bps.take(pairs.track))
    cells = cells_of(options, shape, *sums.taken())
    rate = bucket.rate_bps.take(bucket.row)
    slots = find_slots(options, total_by(bucket.relay, rate, made.size))
    loads = slots.expected_loads(*by_row(slots, cells, alone(slots, cells)))
    regions = len(made.regions)
    across = total_by(
        made.region[cells.origin] * regions + cells.region, cells.sums[RATE], regions * regions
    )
    return loads * scale, across.reshape(regions, regions) * scale


def _nodes(count: int) -> list[Node]:
    regions = _CITIES[: max(1, min(len(_CITIES), count // _NODES_PER_REGION))]
    if len(regions) < len(_CITIES):
        # The large ones first, so that a small network is no alphabet.
        regions = tuple(sorted(_CITIES, key=lambda city: -city[3]))[: len(regions)]
    weight = np.cumsum([0.0, *(city[3] for city in regions)])
    ends = np.round(weight / weight[-1] * count).astype(int)
    jitter = np.random.default_rng(count).normal(0.0, 0.2, (count, 2))
    nodes = []
    for number, (name, latitude, longitude, _) in enumerate(regions):
        here = int(ends[number + 1] - ends[number])
        vias = 0 if here < 2 else max(min(2, here // 4), round(here * _VIA_SHARE), 1)
        for place in range(here):
            moved = jitter[ends[number] + place]
            nodes.append(
                Node(
                    id=f"{number + 1}:{place + 1}",
                    role="via" if place < vias else "edge",
                    region=name,
                    latitude=round(latitude + float(moved[0]), 4),
                    longitude=round(longitude + float(moved[1]), 4),
                )
            )
    return nodes


def _edges(nodes: Sequence[Node]) -> Ints:
    return np.array([n for n, node in enumerate(nodes) if node.role == "edge"], np.int32)


def _links(nodes: Sequence[Node], seed: int) -> list[Link]:
    km = distances_km(np.array([(node.latitude, node.longitude) for node in nodes]))
    names = sorted({node.region for node in nodes})
    region = np.array([names.index(node.region) for node in nodes])
    vias = np.flatnonzero([node.role == "via" for node in nodes])
    pairs = [(a, b) for place, a in enumerate(vias) for b in vias[place + 1 :]]
    for edge in _edges(nodes):
        own = vias[region[vias] == region[edge]]
        others = vias[region[vias] != region[edge]]
        near = others[np.argsort(km[edge, others], kind="stable")]
        _, first = np.unique(region[near], return_index=True)
        pairs += [(edge, via) for via in (*own, *near[np.sort(first)[:2]])]
    extra = np.random.default_rng(seed).uniform(1.0, 1.15, len(pairs))
    middle = {name: int(np.flatnonzero(region == n)[0]) for n, name in enumerate(names)}
    return [
        Link(
            int(a),
            int(b),
            int(_SRTT_US_AT_LEAST + km[a, b] * _SRTT_US_PER_KM * factor),
            transits=_transits(nodes, km, middle, int(a), int(b)),
        )
        for (a, b), factor in zip(pairs, extra, strict=True)
    ]


def _transits(
    nodes: Sequence[Node], km: NDArray[Any], middle: dict[str, int], a: int, b: int
) -> tuple[str, ...]:
    """The region nearest to the middle of a long way, if it is hardly a detour."""
    if km[a, b] < 3000:
        return ()
    ends = (nodes[a].region, nodes[b].region)
    ways = {name: (km[a, n], km[n, b]) for name, n in middle.items() if name not in ends}
    if not ways:
        return ()
    name = min(ways, key=lambda name: max(ways[name]))
    return (name,) if sum(ways[name]) < 1.05 * km[a, b] else ()
