"""Networks that decide by themselves, under seeds: policy, load, probes and demand at once.

Policies and loads change all the time, subscribers come and go, relays dial each other and let go.
No forbidden way carries anything, whoever has an allowed way all the time misses nothing, and when
things stand still, so do the ways, and they take hardly more copies than the exact plan.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.policy import policy_from_mapping
from laps.relay.settings import DemandSettings, ProbeSettings, RelaySettings
from laps.sim import generators
from laps.sim.copies import copies
from laps.sim.invariants import check_always
from laps.sim.network import CACHE, Network
from support.pairs import Pairs
from support.planned import planned
from support.policies import Inspector, random_policy

if TYPE_CHECKING:
    from laps.sim.topology import Topology

SETTINGS = RelaySettings(
    cache=CACHE,
    demand=DemandSettings(sessions=8, idle_s=5.0),
    probing=ProbeSettings(enabled=True, count=8),
)

# One copy into a region: what the planner finds cheapest, and what relays are to find too.
LAST = policy_from_mapping({"plan": {"fan_out_per_region": 1}}, "a test")

# While nothing changes, ways do not, but for a figure that settles late.
MOST_CHANGES = 4
MOST_COPIES = 1.3


def a_network(seed: int) -> Topology:
    """Three or four regions with Edges and Vias, joined by Vias or only by spokes of Edges."""
    rng = Random(seed)
    count = rng.randint(3, 4)
    made = generators.regions(count, 4, count + 1, control=0, seed=seed)
    if rng.random() < 0.5:
        made = generators.with_spokes(made, rng.choice((0.0, 0.1, 0.4)), seed)
    else:
        where = {node.id: node.region for node in made.nodes}
        near = tuple(it for it in made.links if where[it.a] == where[it.b])
        made = generators.with_spokes(structs.replace(made, links=near), 0.5, seed)
    return generators.with_audiences(made, 4, 4, seed)


def decide(seed: int) -> tuple[list[str], float]:
    """Let everything change at once, and then nothing; what does not hold, and the copies."""
    rng = Random(seed)
    topology = a_network(seed)
    network = Network(topology, seed, extended=1.0, settings=SETTINGS, load=lambda: 0.1)
    inspector = Inspector(network)
    network.run(12.0)
    pairs, policy = Pairs(network), None
    for _ in range(6):
        pairs.look(policy)
        policy = None if rng.random() < 0.1 else random_policy(topology, rng)
        inspector.follow(policy)
        pairs.look(policy)
        for node in rng.sample(list(network.nodes.values()), 4):
            node.load = partial(float, rng.choice((0.0, 0.3, 0.85, 0.95, 1.0)))
        for subscriber in rng.sample(network.subscribers, len(network.subscribers) // 3):
            pairs.leave(subscriber)
            if subscriber.is_subscribed:
                subscriber.unsubscribe_now()
            else:
                subscriber.attach()
        network.run(rng.uniform(2.0, 12.0))
        inspector.look_at_classes()
    pairs.look(policy)
    for subscriber in network.subscribers:
        subscriber.attach()
    for node in network.nodes.values():
        node.load = partial(float, 0.1)
    inspector.follow(LAST)
    pairs.look(LAST)
    # Flows that left full relays come back a minute later, and a few at a time.
    network.run(100.0)
    before, since = _changes(network), network.now
    network.run(20.0)
    until = network.now - 4.0
    changed = _changes(network) - before
    inspector.look_at_classes()
    found = inspector.found[:5] + check_always(network) + pairs.check_steady(until)
    found += pairs.check_last(LAST, since, until)
    if changed > MOST_CHANGES:
        found.append(f"ways changed {changed} times while nothing else did")
    ours, theirs = copies(network, since, until), planned(network, LAST)
    ratio = ours.long_haul / max(1, theirs.planned.long_haul_copies)
    if ratio > MOST_COPIES:
        plan = theirs.planned.long_haul_copies
        found.append(f"{ours.long_haul:g} copies between regions, and the plan has {plan}")
    return found, ratio


def _changes(network: Network) -> int:
    relays = (node.relay for node in network.nodes.values())
    return sum(relay.fib.changes for relay in relays if relay is not None)


@pytest.mark.parametrize("seed", range(2))
def test_a_network_decides_by_itself_while_everything_changes(seed: int) -> None:
    found, _ = decide(seed)
    assert found == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 300))
def test_many_networks_decide_by_themselves_while_everything_changes(seed: int) -> None:
    found, _ = decide(seed)
    assert found == []
