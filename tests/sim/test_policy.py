"""Policies that change while tracks flow, under seeds: nothing forbidden, nothing lost."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from laps.relay.settings import RelaySettings
from laps.sim import generators
from laps.sim.invariants import check_always
from laps.sim.network import Network
from laps.tracks.cache import CacheLimits
from support.pairs import Pairs
from support.policies import Inspector, in_regions, random_policy

if TYPE_CHECKING:
    from laps.sim.topology import Topology


# Groups that do not end within a test: their streams outlast every policy.
ENDLESS = 100_000


def a_network(seed: int, rng: Random, *, endless: bool) -> Topology:
    """Edges, Vias and some Stubs in regions, and who publishes and wants what."""
    made = in_regions(generators.random(16, seed), rng)
    # More than a link loses here is the matter of other tests.
    links = tuple(msgspec.structs.replace(link, loss=min(link.loss, 0.005)) for link in made.links)
    nodes = tuple(
        msgspec.structs.replace(node, type="edge") if node.type == "stub" and seed % 3 else node
        for node in made.nodes
    )
    topology = msgspec.structs.replace(made, nodes=nodes, links=links)
    topology = generators.with_clients(topology, 5, 12, seed)
    if not endless:
        return topology
    publishers = tuple(
        msgspec.structs.replace(it, objects_per_group=ENDLESS) for it in topology.publishers
    )
    return msgspec.structs.replace(topology, publishers=publishers)


def change_policies(seed: int, *, endless: bool = False) -> list[str]:
    """Let tracks flow while every relay is given policy after policy, and loads go up and down."""
    rng = Random(seed)
    topology = a_network(seed, rng, endless=endless)
    # Of a group that does not end, what is missed is in the cache as long as a relay keeps it.
    settings = RelaySettings(cache=CacheLimits()) if endless else None
    network = Network(topology, seed, extended=1.0, load=lambda: 0.0, settings=settings)
    inspector = Inspector(network)
    network.run(12.0)
    pairs, policy = Pairs(network), None
    for _ in range(7):
        pairs.look(policy)
        policy = None if rng.random() < 0.1 else random_policy(topology, rng)
        inspector.follow(policy)
        pairs.look(policy)
        for node in rng.sample(list(network.nodes.values()), 4):
            node.load = partial(float, rng.choice((0.0, 0.3, 0.85, 0.95, 1.0)))
        network.run(rng.uniform(0.5, 6.0))
        inspector.look_at_classes()
    pairs.look(policy)
    last = random_policy(topology, rng)
    inspector.follow(last)
    pairs.look(last)
    network.run(15.0)
    since = network.now
    network.run(10.0)
    until = network.now - 4.0
    inspector.look_at_classes()
    assert inspector.streams
    found = inspector.found[:5] + check_always(network) + pairs.check_steady(until)
    return found + pairs.check_last(last, since, until)


@pytest.mark.parametrize("seed", range(8))
def test_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed) == []


@pytest.mark.parametrize("seed", range(12, 16))
def test_policies_that_change_are_kept_by_streams_that_do_not_end(seed: int) -> None:
    assert change_policies(seed, endless=True) == []


def test_what_begins_between_two_policies_comes_when_its_way_is_known_a_moment_later() -> None:
    assert change_policies(57, endless=True) == []


def test_what_a_stub_has_sent_before_its_way_is_forbidden_comes_once() -> None:
    assert change_policies(48) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [*range(8, 12), *range(16, 320)])
def test_many_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed, endless=seed >= 16 and seed % 2 == 0) == []
