"""Networks that carry nearly all that they can: ways leave full relays, and come to rest.

Regions with Edges and some Vias each; the Vias of one number are joined across regions, in planes,
so that there are as many ways of equal length as planes. The document's order has all tracks take
the first plane. A Via is as full as the tracks that pass it, and what it says of that is heard by
all that might use it, who might all leave at once, and come back at once.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from laps.relay.settings import DemandSettings, ProbeSettings, RelaySettings
from laps.routing.flows import FromClient, FromPeer
from laps.sim.invariants import check_always
from laps.sim.network import CACHE, Network
from laps.sim.topology import topology_from_mapping
from support.pairs import Pairs

if TYPE_CHECKING:
    from laps.sim.node import SimNode
    from laps.sim.topology import Topology

SETTINGS = RelaySettings(
    cache=CACHE, demand=DemandSettings(sessions=0), probing=ProbeSettings(enabled=False)
)
FULL = 0.9
# Flows leave in half a minute, and come back a few at a time.
SETTLE_S = 200.0
REST_S = 30.0

# How often one track may take another way until all have settled, and how many of all after that.
MOST_EACH = 6
MOST_AT_REST = 0.1


def planes(regions: int, edges: int, vias: int) -> Topology:
    """Each Edge publishes a track for an Edge of another region, the same number into each."""
    nodes: list[dict[str, object]] = []
    links: list[dict[str, object]] = []
    publishers: list[dict[str, object]] = []
    subscribers: list[dict[str, object]] = []
    for region in range(1, regions + 1):
        name = f"region {region}"
        for via in range(100, 100 + vias):
            node = {"id": f"{region}:{via}", "type": "via", "reflect": True, "region": name}
            nodes.append(node)
            for other in range(1, region):
                pair = {"a": f"{region}:{via}", "b": f"{other}:{via}"}
                links.append({**pair, "delay_ms": via - 80})
        for edge in range(1, edges + 1):
            nodes.append({"id": f"{region}:{edge}", "region": name})
            near = {"a": f"{region}:{edge}", "delay_ms": 2}
            links.extend({**near, "b": f"{region}:{via}"} for via in range(100, 100 + vias))
            track = ["sim", f"{region}-{edge}"]
            rates = {"objects_per_s": 0.5, "objects_per_group": 1}
            publisher = {"node": f"{region}:{edge}", "namespace": track, "name": "track"}
            publishers.append({**publisher, **rates})
            there = (region + edge % (regions - 1)) % regions + 1
            wants = f"{there}:{(edge * 7 + region) % edges + 1}"
            subscribers.append({"node": wants, "namespace": track})
    mapping = {"nodes": nodes, "links": links}
    clients = {"publishers": publishers, "subscribers": subscribers}
    return topology_from_mapping({**mapping, **clients}, "a test")


class Loaded:
    """A network whose Vias are as full as the tracks that pass them."""

    def __init__(self, regions: int, edges: int, vias: int, seed: int) -> None:
        made = planes(regions, edges, vias)
        self.network = Network(made, seed, extended=1.0, settings=SETTINGS, load=lambda: 0.1)
        self.capacity = 2 * edges / (FULL * vias)
        "Tracks that a Via can carry: of a region as many leave as come."
        self.vias = [it for it in self.network.nodes.values() if it.spec.type == "via"]
        for node in self.vias:
            node.load = partial(self.load_of, node)

    def load_of(self, node: SimNode) -> float:
        """How full a Via is."""
        return min(1.0, self.wanted_of(node))

    @property
    def over(self) -> float:
        """What Vias are to carry beyond what they can, all together, in Vias."""
        return sum(max(0.0, self.wanted_of(node) - 1.0) for node in self.vias)

    def wanted_of(self, node: SimNode) -> float:
        """How much of what it can carry it is to carry."""
        relay = node.relay
        assert relay is not None
        return sum(isinstance(it.key, FromPeer) and bool(it.outs) for it in relay.fib) / (
            self.capacity
        )

    def run(self, seconds: float) -> Counter[object]:
        """Let time pass; how often each track took another way."""
        moved: Counter[object] = Counter()
        before, end = ways_of(self.network), self.network.now + seconds
        while self.network.now < end:
            self.network.run(1.0)
            now = ways_of(self.network)
            moved.update(it for it in now if now[it] != before.get(it, now[it]))
            before = now
        return moved


def ways_of(network: Network) -> dict[object, object]:
    """The first link of each track's way."""
    relays = [node.relay for node in network.nodes.values() if node.relay is not None]
    return {
        (relay.id, flow.key, target): route.link
        for relay in relays
        for flow in relay.fib
        if isinstance(flow.key, FromClient)
        for target, route in flow.routes.items()
    }


def come_to_rest(regions: int, edges: int, vias: int, seed: int, left: float) -> list[str]:
    """Let a network find its ways at once; what does not hold of it after that.

    `left` is how much may be left, at most, of what is too much for Vias at first.
    """
    loaded = Loaded(regions, edges, vias, seed)
    network, tracks = loaded.network, regions * edges
    network.run(12.0)
    # What is published while relays hear of one another may be on a way that ends.
    pairs = Pairs(network)
    pairs.look(None)
    worst, over = max(map(loaded.wanted_of, loaded.vias)), loaded.over
    moved = loaded.run(SETTLE_S)
    after = loaded.run(REST_S)
    found = check_always(network) + pairs.check_steady(network.now - 4.0)
    if worst <= 1.0 or not moved:
        found.append(f"nothing had to be done: the fullest Via is to carry {worst:.0%}")
    if left < 1.0:
        found += _much_was_done(loaded, worst, len(moved) / tracks)
    if max(moved.values(), default=0) > MOST_EACH:
        found.append(f"a track took another way {max(moved.values())} times")
    if after.total() > MOST_AT_REST * tracks:
        found.append(f"{after.total()} tracks took another way when all had settled")
    if loaded.over > left * over:
        found.append(f"Vias are to carry {loaded.over:.2f} too much, and {over:.2f} at first")
    return found


def _much_was_done(loaded: Loaded, worst: float, moved: float) -> list[str]:
    """What does not hold of a network with a Via that is much too full at first."""
    found = []
    if worst < 1.5:
        found.append(f"no Via was too full at first: {worst:.0%}")
    if moved < 0.25:
        found.append(f"only {moved:.0%} of the tracks left Vias that were too full")
    most = max(map(loaded.wanted_of, loaded.vias))
    if most >= worst:
        found.append(f"a Via is to carry {most:.0%}, and {worst:.0%} before")
    return found


@pytest.mark.parametrize("seed", range(1))
def test_a_network_that_is_nearly_full_comes_to_rest(seed: int) -> None:
    assert come_to_rest(4, 6, 3, seed, left=0.5) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 30))
def test_many_networks_that_are_nearly_full_come_to_rest(seed: int) -> None:
    # Each track is a fifth of a Via: where both Vias of all its ways are nearly full, it stays.
    assert come_to_rest(4, 6, 3, seed, left=1.0) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_two_hundred_relays_that_carry_nearly_all_they_can_come_to_rest(seed: int) -> None:
    assert come_to_rest(8, 22, 3, seed, left=0.5) == []


def fat_tracks(tracks: int, each: float) -> Network:
    """Two Vias as ways of equal length, and tracks that each take a large part of one."""
    vias = ("1:8", "1:9")
    nodes: list[dict[str, object]] = [{"id": "1:1"}, {"id": "2:1"}]
    nodes += [{"id": via, "type": "via", "reflect": True} for via in vias]
    links = [{"a": end, "b": via} for end in ("1:1", "2:1") for via in vias]
    names = [["sim", str(number)] for number in range(tracks)]
    rates = {"objects_per_s": 0.5, "objects_per_group": 1}
    publishers = [{"node": "1:1", "namespace": it, "name": "track", **rates} for it in names]
    subscribers = [{"node": "2:1", "namespace": it} for it in names]
    clients = {"publishers": publishers, "subscribers": subscribers}
    made = topology_from_mapping({"nodes": nodes, "links": links, **clients}, "a test")
    network = Network(made, 1, extended=1.0, settings=SETTINGS, load=lambda: 0.1)

    def load_of(node: SimNode) -> float:
        assert node.relay is not None
        passing = (isinstance(it.key, FromPeer) and bool(it.outs) for it in node.relay.fib)
        return min(1.0, each * sum(passing))

    for node in network.nodes.values():
        if node.spec.type == "via":
            node.load = partial(load_of, node)
    return network


@pytest.mark.parametrize(("tracks", "each"), [(1, 0.95), (2, 0.6), (3, 0.5)])
def test_tracks_that_are_much_of_what_a_relay_can_do_move_ever_more_rarely(
    tracks: int, each: float
) -> None:
    network = fat_tracks(tracks, each)
    network.run(8.0)
    # Each period is twice as long as the one before, and has as few changes.
    changes = [changes_of_way(network, seconds) for seconds in (300, 600, 1200)]
    assert 0 < changes[0] <= 8
    assert max(changes[1:]) <= 4


def changes_of_way(network: Network, seconds: float) -> int:
    """How often tracks take another way while time passes."""
    changes, before, end = 0, ways_of(network), network.now + seconds
    while network.now < end:
        network.run(1.0)
        now = ways_of(network)
        changes += sum(now[it] != before.get(it, now[it]) for it in now)
        before = now
    return changes
