"""What each option of each pair takes of what there is a limit of.

A resource is a Via, whose egress counts, or a link in one direction; it has a number: that of the
Via, or the count of nodes plus that of the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array  # type: ignore[import-untyped]

from laps.spark.planner.options import DIRECT, OPTIONS

if TYPE_CHECKING:
    from laps.spark.planner.demand import Pairs
    from laps.spark.planner.network import Ints, Longs, Network, Numbers
    from laps.spark.planner.options import Options
    from laps.spark.planner.paths import Paths


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Pairs with each of their options, as columns; make one with `find_usage`."""

    pair: Ints
    "[column]"
    option: Ints
    "[column]"
    column: Ints
    "[pair, option]: its column, or -1."
    bits: csc_array
    "[resource, column]: bits in a second, whole numbers."

    def of(self, column: int) -> tuple[Ints, Longs]:
        """The resources that one option of one pair takes of, each once, and how much."""
        start, end = self.bits.indptr[column : column + 2]
        return self.bits.indices[start:end], self.bits.data[start:end]

    def loads(self, choice: Ints) -> Longs:
        """[resource]: what all pairs take together; -1 chooses nothing."""
        chosen = np.flatnonzero(choice >= 0)
        taken = np.zeros(len(self.pair), np.int64)
        taken[self.column[chosen, choice[chosen]]] = 1
        total: Longs = self.bits @ taken
        return total


def capacities(network: Network) -> Longs:
    """[resource]: its limit in bits per second; 0 where none is known."""
    vias = np.where(network.is_via, network.capacity_bps, 0)
    return np.concatenate((vias, network.link_capacity_bps, network.link_capacity_bps))


def resource_name(network: Network, resource: int) -> str:
    """A resource as people call it."""
    if resource < network.size:
        return f"via {network.nodes[resource].id}"
    a, b = network.link_ends(resource - network.size)
    return f"link {network.nodes[a].id} to {network.nodes[b].id}"


def find_usage(options: Options, pairs: Pairs, *, every: bool = False) -> Usage:
    """What the options of each pair take: those that its mask has, or every one there is."""
    count = len(pairs)
    able = (pairs.mask[:, None] >> np.arange(OPTIONS, dtype=np.uint8)) & 1 == 1
    if every:
        able = np.zeros((count, OPTIONS), np.bool_)
        able[:, : options.candidates] = options.vias[pairs.origin, pairs.region] >= 0
        able[:, DIRECT] = True
    pair, option = np.nonzero(able)
    column = np.full((count, OPTIONS), -1, np.int32)
    column[pair, option] = np.arange(len(pair))
    via = _vias(options, pairs.origin[pair], pairs.region[pair], option)
    # A copy to each s-relay, from the o-relay or from the Via, and one from the o-relay to the Via.
    relayed = np.flatnonzero(via >= 0)
    copies = np.r_[np.repeat(np.arange(len(pair)), pairs.n[pair]), relayed]
    sender = np.where(via >= 0, via, pairs.origin[pair])
    source = np.r_[np.repeat(sender, pairs.n[pair]), pairs.origin[pair][relayed]]
    target = np.r_[_relays(pairs, pair), via[relayed]]
    rate = pairs.rate_bps[pair]
    size = options.network.size
    rows, columns, bits = [via[relayed]], [relayed], [rate[relayed] * pairs.n[pair][relayed]]
    for which, here, there in options.paths.walk(source, target):
        rows.append(size + options.network.link_between(here, there))
        columns.append(copies[which])
        bits.append(rate[copies[which]])
    shape = (size + 2 * len(options.network.links), len(pair))
    places = (np.concatenate(rows), np.concatenate(columns))
    matrix = csc_array((np.concatenate(bits), places), shape=shape, dtype=np.int64)
    matrix.sum_duplicates()
    return Usage(pair.astype(np.int32), option.astype(np.int32), column, matrix)


def _relays(pairs: Pairs, pair: Numbers) -> Ints:
    """The s-relays of many pairs, one after the other."""
    if not len(pair):
        return np.empty(0, np.int32)
    return np.concatenate([pairs.relays[number] for number in pair])


def _vias(options: Options, origin: Ints, region: Ints, option: Numbers) -> Ints:
    """The Via of each option, -1 where it is hub and spoke."""
    k = np.minimum(option, options.candidates - 1)
    via: Ints = options.vias[origin, region, k]
    return np.where(option == DIRECT, np.int32(-1), via)


def link_loads(network: Network, paths: Paths, source: Ints, target: Ints, bits: Longs) -> Longs:
    """[directed link]: what copies between nodes make together, all along their paths."""
    total = np.zeros(2 * len(network.links), np.int64)
    for which, here, there in paths.walk(source, target):
        np.add.at(total, network.link_between(here, there), bits[which])
    return total
