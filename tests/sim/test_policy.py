"""Policies that change while tracks flow, under seeds: nothing forbidden, nothing lost."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from laps.policy import Policy
from laps.sim import generators
from laps.sim.invariants import check_always, matches
from laps.sim.network import Network
from laps.types import format_node_id
from support.policies import Inspector, has_way, in_regions, missing, random_policy

# Where nobody says how it is, for so long, is where nobody is known to be.
SAY_S = 1.0


def change_policies(seed: int) -> list[str]:
    """Let tracks flow while every relay is given policy after policy, and loads go up and down."""
    rng = Random(seed)
    plain = in_regions(generators.random(16, seed), rng)
    links = tuple(msgspec.structs.replace(link, loss=min(link.loss, 0.005)) for link in plain.links)
    nodes = tuple(
        msgspec.structs.replace(node, type="edge" if node.type == "stub" else node.type)
        for node in plain.nodes
    )
    topology = msgspec.structs.replace(plain, nodes=nodes, links=links)
    topology = generators.with_clients(topology, 5, 12, seed)
    network = Network(topology, seed, extended=1.0, metrics_s=SAY_S)
    inspector = Inspector(network)
    network.run(12.0)
    for _ in range(6):
        policy = None if rng.random() < 0.1 else random_policy(topology, rng)
        inspector.follow(policy)
        for node in rng.sample(list(network.nodes.values()), 4):
            node.load = rng.choice((0.0, 0.3, 0.85, 0.95, 1.0))
        network.run(rng.uniform(0.5, 6.0))
    last = random_policy(topology, rng)
    inspector.follow(last)
    network.run(15.0)
    since = network.now
    network.run(10.0)
    until = network.now - 4.0
    found = inspector.found[:5] + check_always(network)
    found += check_pairs(network, last, since, until)
    return found


def check_pairs(network: Network, policy: Policy, since: float, until: float) -> list[str]:
    """Who may have a track has all of it, and who may not has nothing of it."""
    found = []
    for publisher in network.publishers:
        for subscriber in network.subscribers:
            a, b = publisher.spec.node, subscriber.spec.node
            if a == b or not matches(publisher, subscriber):
                continue
            track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
            made, lost = missing(publisher, subscriber, since, until)
            pair = f"{track} from {format_node_id(a)} to {format_node_id(b)}"
            if has_way(network, policy, track, a, b):
                if not made or lost:
                    found.append(f"{pair}: {lost} of {made} missing")
            elif lost != made:
                found.append(f"{pair}: {made - lost} of {made} came, and no way is allowed")
    return found


@pytest.mark.parametrize("seed", range(12))
def test_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 312))
def test_many_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed) == []
