"""What the options of an o-relay and a region take of Vias and links, for each bit of a track.

    load of a resource = rate x fixed + rate x n x each

Egress of a Via is exactly that. So is the copy from the o-relay to a Via along its path. The copies
to s-relays go different ways: here each s-relay of a region counts by its share of all that goes
into the region, so what links carry is an estimate until pairs are gone through one by one.

A slot is an option without gaps in its number: candidate k is slot k, and hub and spoke the last.
Slots of all o-relays and regions are rows: (o x regions + r) x slots + slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from laps.spark.planner.kernel import Floats, total_by
from laps.spark.planner.loads import capacities
from laps.spark.planner.options import DIRECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.spark.planner.network import Ints, Longs
    from laps.spark.planner.options import Options

Numbers = NDArray[Any]
_Entries = tuple[Numbers, Numbers, Floats]
Marks = NDArray[np.uint64]

_SPREAD: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The options of all o-relays and regions, in rows; make them with `find_slots`."""

    options: Options
    limits: Floats
    "[resource]: as in `laps.spark.planner.loads`; 0: no limit known."
    via: Ints
    "[row]: the Via, or -1."
    fixed: Floats
    "[row]: what it costs, whatever n is."
    each: Floats
    "[row]: what it costs for each s-relay."
    delay_us: Floats
    "[row]: the sum of sRTT, on average."
    share: Floats
    "[node]: of all that goes into its region."
    link: Ints
    "[from, to], flat: the directed link between neighbours, -1 where there is none."

    @property
    def count(self) -> int:
        """Slots of an o-relay and a region."""
        return self.options.candidates + 1

    @property
    def option_of(self) -> Ints:
        """[slot]: its option."""
        return np.array([*range(self.count - 1), DIRECT], np.int32)

    def slot_of(self, option: Ints) -> Ints:
        """The slot of each option; -1 stays -1."""
        return np.minimum(option, self.count - 1)

    def row(self, origin: Numbers, region: Numbers) -> Numbers:
        """The row of slot 0."""
        regions = self.options.vias.shape[1]
        row: Numbers = (origin.astype(np.int64) * regions + region) * self.count
        return row

    def ends(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """The o-relay and the region of each row."""
        origin, region = np.divmod(rows // self.count, self.options.vias.shape[1])
        return origin, region

    def sender(self) -> Numbers:
        """[row]: the node that sends to the s-relays."""
        return np.where(self.via >= 0, self.via, self.ends(np.arange(len(self.via)))[0])

    def usage(self, resources: Longs) -> tuple[csr_array, csr_array]:
        """[row, resource], fixed and each: what rows take of these resources, in their order."""
        size = self.options.network.size
        vias, links = resources[resources < size], resources[resources >= size] - size
        rows = np.flatnonzero(np.isin(self.via, vias))
        column = np.searchsorted(vias, self.via[rows])
        to_via, onward = self._along(links, len(vias)) if len(links) else ([], [])
        shape = (len(self.via), len(resources))
        each = [(rows, column, np.ones(len(rows))), *onward]
        return _matrix(to_via, shape), _matrix(each, shape)

    def at_prices(self, resources: Longs, prices: Floats) -> tuple[Floats, Floats, Floats]:
        """[row] fixed and each, and [from, to] what links cost on the way to an s-relay.

        The last is empty where no link has a price. Unlike `usage`, none of it is an estimate.
        """
        network = self.options.network
        size = network.size
        of = np.zeros(len(self.limits))
        of[resources] = prices
        relayed = self.via >= 0
        fixed, each = self.fixed.copy(), self.each.copy()
        each[relayed] += of[self.via[relayed]]
        if not np.any(of[size:]):
            return fixed, each, np.empty(0)
        onward = np.zeros(size * size)
        source, target = np.divmod(np.arange(size * size), size)
        for which, link in self._walk(source, target, of[size:] > 0):
            onward[which] += of[size + link]
        origin = self.ends(np.flatnonzero(relayed))[0]
        fixed[relayed] += onward[origin * size + self.via[relayed]]
        return fixed, each, onward

    def touched(self, onward: Floats) -> NDArray[np.bool_]:
        """[row]: whether there is a price on the way from its sender to any node of the region."""
        size, regions = self.options.network.size, self.options.vias.shape[1]
        found = np.zeros((size, regions), np.bool_)
        if len(onward):
            source, target = np.divmod(np.flatnonzero(onward), size)
            found[source, self.options.network.region[target]] = True
        rows: NDArray[np.bool_] = found[self.sender(), self.ends(np.arange(len(self.via)))[1]]
        return rows

    def _along(self, links: Longs, before: int) -> tuple[list[_Entries], list[_Entries]]:
        """What goes over some links: (row, column, share) of the copy to the Via, and of others."""
        network = self.options.network
        size, regions = network.size, self.options.vias.shape[1]
        column = np.full(2 * len(network.links), -1)
        column[links] = np.arange(before, before + len(links))
        relayed = np.flatnonzero(self.via >= 0)
        to_via = [
            (relayed[which], column[link], np.ones(len(which)))
            for which, link in self._walk(self.ends(relayed)[0], self.via[relayed], column >= 0)
        ]
        # From every node to every s-relay, gathered by region, then given to the rows that send so.
        nodes = np.flatnonzero(self.share)
        source, target = np.repeat(np.arange(size), len(nodes)), np.tile(nodes, size)
        parts = [
            (
                source[which] * regions + network.region[target[which]],
                column[link],
                self.share[target[which]],
            )
            for which, link in self._walk(source, target, column >= 0)
        ]
        gathered = _matrix(parts, (size * regions, before + len(links)))
        region = self.ends(np.arange(len(self.via)))[1]
        onward = gathered[self.sender() * regions + region].tocoo()
        return to_via, [(onward.row, onward.col, onward.data)]

    def _walk(
        self, source: Numbers, target: Numbers, wanted: NDArray[np.bool_]
    ) -> Iterator[tuple[Numbers, Numbers]]:
        size = self.options.network.size
        for which, here, there in self.options.paths.walk(source, target):
            link = self.link.take(here.astype(np.int64) * size + there)
            on = wanted[link]
            yield which[on], link[on]

    def marks(self) -> Marks:
        """[row]: a number that is the same where cost and use of all limited resources are."""
        network = self.options.network
        size, regions = network.size, self.options.vias.shape[1]
        limited = self.limits[size:] > 0
        of_link = np.random.default_rng(0).integers(1, 1 << 63, len(limited), np.uint64)
        path = np.zeros(size * size, np.uint64)
        source, target = np.divmod(np.arange(size * size), size)
        for which, link in self._walk(source, target, limited):
            path[which] += of_link[link]
        origin, region = self.ends(np.arange(len(self.via)))
        relayed = self.via >= 0
        mark = self.fixed.view(np.uint64) * np.uint64(3) + self.each.view(np.uint64)
        mark = mixed(mark + region.astype(np.uint64))
        mark = mixed(mark + self.via.astype(np.uint64))
        mark[relayed] += path[origin[relayed] * size + self.via[relayed]]
        # Of hub and spoke all paths into the region count.
        spokes = np.zeros((size, regions), np.uint64)
        for here in range(regions):
            nodes = np.flatnonzero((network.region == here) & (self.share > 0))
            spokes[:, here] = path.reshape(size, size)[:, nodes].sum(axis=1, dtype=np.uint64)
        mark[~relayed] += spokes[origin[~relayed], region[~relayed]]
        return mixed(mark)

    def expected_loads(self, rate: Floats, egress: Floats) -> Floats:
        """[resource]: what is carried if rows carry so much; of links it is an estimate."""
        network = self.options.network
        size, regions = network.size, self.options.vias.shape[1]
        rows = np.flatnonzero(egress)
        origin, region = self.ends(rows)
        via = self.via[rows]
        relayed = via >= 0
        flow = total_by(origin[relayed] * size + via[relayed], rate[rows[relayed]], size * size)
        sender = np.where(relayed, via, origin)
        sent = total_by(sender * regions + region, egress[rows], size * regions)
        sent = sent.reshape(size, regions)
        for block in range(0, size, 256):
            part = sent[block : block + 256][:, network.region] * self.share
            flow[block * size : (block + len(part)) * size] += part.ravel()
        by_via = total_by(via[relayed], egress[rows[relayed]], size)
        return np.concatenate((by_via, self.carried(flow)))

    def carried(self, flow: Floats) -> Floats:
        """[directed link]: its load, if so much goes from node to node, [from, to] flat.

        All goes a hop at a time, and what has the same way to go then goes on together.
        """
        size = self.options.network.size
        next_hop = self.options.paths.next_hop.reshape(-1)
        loads = np.zeros(2 * len(self.options.network.links))
        # Whole bits: sums are the same in whatever order they are made.
        place = np.flatnonzero(flow)
        bits = np.rint(flow[place])
        while len(place):
            here, goal = np.divmod(place, size)
            there = next_hop[place].astype(np.int64)
            on = (there != here) & (here != goal)
            here, there, goal, bits = here[on], there[on], goal[on], bits[on]
            loads += total_by(self.link.take(here * size + there), bits, len(loads))
            flow = total_by(there * size + goal, bits, size * size)
            place = np.flatnonzero(flow)
            place = place[place // size != place % size]
            bits = flow[place]
        return loads


def find_slots(options: Options, into: Floats) -> Slots:
    """Arrange options in rows. `into` is what each node receives today, in bits per second."""
    size, regions, candidates = options.vias.shape
    which = [*range(candidates), DIRECT]
    via = np.full((size, regions, candidates + 1), -1, np.int32)
    via[:, :, :candidates] = options.vias
    by_region = total_by(options.network.region, into, regions)
    total = by_region[options.network.region]
    network = options.network
    link = np.full((size, size), -1, np.int32)
    link[network.link_a, network.link_b] = np.arange(len(network.links))
    link[network.link_b, network.link_a] = np.arange(len(network.links)) + len(network.links)
    return Slots(
        options=options,
        limits=capacities(options.network).astype(np.float64),
        via=via.ravel(),
        fixed=options.fixed[:, :, which].astype(np.float64).ravel(),
        each=options.each[:, :, which].astype(np.float64).ravel(),
        delay_us=options.delay_us[:, :, which].astype(np.float64).ravel(),
        share=np.divide(into, total, out=np.zeros(size), where=total > 0),
        link=link.ravel(),
    )


def mixed(number: Marks) -> Marks:
    """Numbers spread over all 64 bits, so that sums of them tell apart what they are sums of."""
    number = number * _SPREAD
    number = (number ^ number >> np.uint64(32)) * _SPREAD
    return number ^ number >> np.uint64(29)


def _matrix(entries: list[_Entries], shape: tuple[int, int]) -> csr_array:
    rows = np.concatenate([np.empty(0, np.int64), *(entry[0] for entry in entries)])
    columns = np.concatenate([np.empty(0, np.int64), *(entry[1] for entry in entries)])
    values = np.concatenate([np.empty(0), *(entry[2] for entry in entries)])
    return csr_array((values, (rows, columns)), shape=shape)
