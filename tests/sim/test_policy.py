"""Policies that change while tracks flow, under seeds: nothing forbidden, nothing lost."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from laps.sim import generators
from laps.sim.invariants import check_always, matches
from laps.sim.network import Network
from laps.types import format_node_id
from support.policies import Inspector, has_way, in_regions, missing, random_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.policy import Policy
    from laps.sim.clients import Publisher, Subscriber
    from laps.sim.topology import Topology


class Pairs:
    """Who publishes what somebody wants, and which of them had a way all the time."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._steady = set(self._all())
        self.since = network.now

    def look(self, policy: Policy | None) -> None:
        """Those that have no allowed way now are not looked at any more."""
        self._steady = {it for it in self._steady if self._has_way(policy, *it)}

    def check_steady(self, until: float) -> list[str]:
        """Whoever had a way all the time has missed nothing."""
        found = []
        for publisher, subscriber in sorted(
            self._steady, key=lambda it: (it[0].number, it[1].number)
        ):
            made, lost = missing(publisher, subscriber, self.since, until)
            if not made or lost:
                found.append(f"{_text(publisher, subscriber)}: {lost} of {made} lost on the way")
        return found

    def check_last(self, policy: Policy, since: float, until: float) -> list[str]:
        """Who may have a track has all of it, and who may not has nothing of it."""
        found = []
        for publisher, subscriber in self._all():
            made, lost = missing(publisher, subscriber, since, until)
            text = _text(publisher, subscriber)
            if self._has_way(policy, publisher, subscriber):
                if not made or lost:
                    found.append(f"{text}: {lost} of {made} missing")
            elif lost != made:
                found.append(f"{text}: {made - lost} of {made} came, and no way is allowed")
        return found

    def _all(self) -> Iterator[tuple[Publisher, Subscriber]]:
        for publisher in self._network.publishers:
            for subscriber in self._network.subscribers:
                is_here = publisher.spec.node == subscriber.spec.node
                if matches(publisher, subscriber) and not is_here:
                    yield publisher, subscriber

    def _has_way(self, policy: Policy | None, publisher: Publisher, subscriber: Subscriber) -> bool:
        track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
        places = publisher.spec.node, subscriber.spec.node
        return has_way(self._network, policy, track, *places)


def _text(publisher: Publisher, subscriber: Subscriber) -> str:
    track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
    a, b = format_node_id(publisher.spec.node), format_node_id(subscriber.spec.node)
    return f"{track} from {a} to {b}"


def a_network(seed: int, rng: Random) -> Topology:
    """Edges and Vias in regions, and who publishes and wants what."""
    made = in_regions(generators.random(16, seed), rng)
    # More than a link loses here is the matter of other tests.
    links = tuple(msgspec.structs.replace(link, loss=min(link.loss, 0.005)) for link in made.links)
    nodes = tuple(
        msgspec.structs.replace(node, type="edge") if node.type == "stub" else node
        for node in made.nodes
    )
    topology = msgspec.structs.replace(made, nodes=nodes, links=links)
    return generators.with_clients(topology, 5, 12, seed)


def change_policies(seed: int) -> list[str]:
    """Let tracks flow while every relay is given policy after policy, and loads go up and down."""
    rng = Random(seed)
    topology = a_network(seed, rng)
    network = Network(topology, seed, extended=1.0, load=lambda: 0.0)
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
    pairs.look(policy)
    last = random_policy(topology, rng)
    inspector.follow(last)
    pairs.look(last)
    network.run(15.0)
    since = network.now
    network.run(10.0)
    until = network.now - 4.0
    found = inspector.found[:5] + check_always(network) + pairs.check_steady(until)
    return found + pairs.check_last(last, since, until)


@pytest.mark.parametrize("seed", range(12))
def test_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 312))
def test_many_policies_that_change_are_kept_at_every_hop(seed: int) -> None:
    assert change_policies(seed) == []
