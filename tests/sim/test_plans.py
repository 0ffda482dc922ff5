"""Plans that change while tracks flow, under seeds: nothing is lost, doubled or sent round."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.routing.plan import DIRECT, NO_PLAN, Plan
from laps.sim import generators
from laps.sim.invariants import check_always, check_delivery
from laps.sim.network import Network
from laps.types import TrackName, hash_track

if TYPE_CHECKING:
    from laps.routing.terms import Way
    from laps.types import NodeId


def random_plan(network: Network, origin: NodeId, sequence: int, rng: Random) -> Plan:
    """For every track and node something else; also peers that do not lead there."""
    relay = network.nodes[origin].relay
    assert relay is not None
    others = rng.sample(list(network.nodes), 2)
    ways: list[Way] = [DIRECT, *((node_id,) for node_id in (*relay.peers, *others)), tuple(others)]
    regions = {node_id: str(number) for number, node_id in enumerate(network.nodes)}
    specs = [subscriber.spec for subscriber in network.subscribers]
    names = [TrackName(tuple(p.encode() for p in s.namespace), s.name.encode()) for s in specs]
    hashes = sorted({hash_track(name).full_name_hash for name in names})
    vias = {track: {region: rng.choice(ways) for region in regions.values()} for track in hashes}
    return Plan(sequence, 1e10, regions, vias)


def change_plans(seed: int) -> list[str]:
    """Let tracks flow while every o-relay is given plan after plan."""
    rng = Random(seed)
    topology = generators.with_clients(generators.random(20, seed), 4, 12, seed)
    network = Network(topology, seed)
    network.settle()
    origins = sorted({publisher.spec.node for publisher in network.publishers})
    since = network.now + 1.0
    for sequence in range(1, 25):
        network.run(rng.random())
        for origin in origins:
            relay = network.nodes[origin].relay
            assert relay is not None
            if rng.random() < 0.7:
                plan = random_plan(network, origin, sequence, rng)
                relay.follow_plan(NO_PLAN if rng.random() < 0.1 else plan, network.now)
    until = network.now
    network.run(5.0)
    # Nodes that a plan sends by two peers may have a relay on the way in common: it passes on two
    # sets. That costs a copy, and is what the plan asked for.
    delivery = check_delivery(network, since, until)
    found = [problem for problem in delivery if not problem.endswith("by two ways")]
    return found + check_always(network)


@pytest.mark.parametrize("seed", range(12))
def test_plans_that_change_lose_and_double_nothing(seed: int) -> None:
    assert change_plans(seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 312))
def test_many_plans_that_change_lose_and_double_nothing(seed: int) -> None:
    assert change_plans(seed) == []
