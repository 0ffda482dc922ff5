"""Whole networks under seeds: they converge, deliver, and hold what `laps.sim.invariants` says."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import msgspec
import pytest

from laps.sim import generators
from laps.sim.families import check_end, check_rest, disturb, findings
from laps.sim.invariants import check_always, check_delivery, check_paths, check_subscribes
from laps.sim.network import Network, NotSettled
from laps.sim.report import run
from laps.sim.topology import topology_from_mapping
from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.sim.topology import Topology


# A dozen in every run, and as many more at night.
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(12, 25))]


# 30: a Stub with two Edges; 505: datagrams overtake a stream on a new way.
@pytest.mark.parametrize("seed", [*SEEDS, 30, 505])
def test_a_network_survives_what_happens_to_it(seed: int) -> None:
    assert findings("random", seed) == []


@pytest.mark.parametrize("seed", [*SEEDS, 110003])
def test_a_network_of_links_that_take_little_survives_too(seed: int) -> None:
    assert findings("narrow", seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(25, 525))
def test_many_networks_survive_what_happens_to_them(seed: int) -> None:
    assert findings("random", seed) == []


# In most of these a new path overtakes an old one, as control moves to the link dialled second. In
# 249 a neighbour withdraws in a node's name what the node still wants, as its link is cut. In 855 a
# stream is reset before its peer has introduced itself, in 2136 a third source of one begins when
# the second goes on in place of the first, in 2322 one outlives its set.
@pytest.mark.parametrize("seed", [*SEEDS, 100, 152, 158, 168, 249, 290, 456, 697, 855, 2136, 2322])
def test_a_network_in_which_both_sides_dial_survives_too(seed: int) -> None:
    assert findings("both-dial", seed) == []


@pytest.mark.parametrize("seed", [*SEEDS, 150080])
def test_failover_loses_no_object(seed: int) -> None:
    assert findings("failover", seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(25, 425))
def test_failover_loses_no_object_under_many_seeds(seed: int) -> None:
    assert findings("failover", seed) == []


# In 14, 22 and 24 the clock of a subscriber's relay jumps: it asks for more than it remembers.
@pytest.mark.parametrize("seed", [*SEEDS, 14, 22, 24])
def test_any_relay_may_die_and_come_back_as_another(seed: int) -> None:
    assert findings("restarts", seed) == []


@pytest.mark.parametrize("hours", [10, 15])
def test_a_relay_that_ran_for_hours_is_heard_after_a_restart(hours: int) -> None:
    topology = generators.with_clients(generators.ring(3), 1, 3, seed=1)
    quiet = msgspec.structs.replace(topology, publishers=())
    network = Network(quiet, seed=1, extended=1.0)
    network.settle()
    network.run(hours * 3600.0)
    for node_id in sorted({subscriber.node for subscriber in topology.subscribers}):
        network.crash(node_id)
        network.restart(node_id)
        network.settle()
    found = [*check_always(network), *check_paths(network), *check_subscribes(network)]
    assert found == []
    assert check_end(network) == []


def test_a_seed_replays_event_by_event() -> None:
    first, second = disturb(3), disturb(3)
    for network in (first, second):
        network.settle()
    assert first.clock.events == second.clock.events
    assert first.now == second.now
    assert [s.got for s in first.subscribers] == [s.got for s in second.subscribers]
    assert [t for _, _, t in first.traffic()] == [t for _, _, t in second.traffic()]


def converge(topology: Topology) -> Network:
    """Bring a large network up, and say what that took."""
    network = Network(topology, seed=1, split=0.0, noise=0.0)
    network.settle(limit_s=300.0)
    return network


def say(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    (start,) = network.disturbances
    messages = network.control_messages
    with capsys.disabled():
        print(  # noqa: T201 - the figure is what it is run for
            f"\n{len(network.nodes)} nodes, {len(network.cables)} links: {messages} messages,"
            f" {start.convergence_s:.1f} s virtual time"
        )


def test_a_hundred_nodes_converge() -> None:
    topology = generators.with_clients(generators.regions(5, 18, 10), 5, 40, seed=1)
    network = converge(topology)
    assert check_rest(network) == []
    assert network.disturbances[0].convergence_s < 20
    assert check_end(network) == []


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Millions of objects live to the end: to look through them again and again takes minutes."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.nightly
@pytest.mark.usefixtures("no_collector")
def test_a_thousand_nodes_converge(capsys: pytest.CaptureFixture[str]) -> None:
    topology = generators.with_clients(generators.regions(30, 30, 100), 20, 200, seed=1)
    network = converge(topology)
    say(network, capsys)
    since = network.now
    network.run(4.0)
    assert check_always(network) == []
    assert check_subscribes(network) == []
    assert check_delivery(network, since, since + 2.0) == []


def test_what_keeps_a_network_from_resting_is_named() -> None:
    network = Network(generators.ring(3), seed=1)
    with pytest.raises(NotSettled, match=r"after 0\.5 s at .*: 1:1-1:2: control messages"):
        network.settle(limit_s=0.5)


def test_a_network_whose_messages_are_under_way_for_long_is_not_at_rest() -> None:
    network = Network(diamond("1:1", "3:1"), seed=1)
    network.settle()
    for via in ("2:1", "2:2"):
        network.set_delay(parse_node_id("3:1"), parse_node_id(via), 4.0)
    network.settle()
    assert check_end(network) == []


def test_a_crash_that_peers_notice_is_dealt_with_sooner() -> None:
    topology = generators.with_clients(generators.ring(6), 2, 4, seed=1)
    node_id = parse_node_id("1:3")
    took = []
    for noticed in (True, False):
        network = Network(topology, seed=1)
        network.settle()
        network.crash(node_id, noticed=noticed)
        took.append(network.settle())
    assert took[0] + 4 < took[1] < 20


def diamond(publisher: str, *subscribers: str) -> Topology:
    """Two vias between edges, the first a little nearer."""
    return topology_from_mapping(
        {
            "nodes": [
                {"id": publisher},
                {"id": "2:1", "type": "via", "reflect": True},
                {"id": "2:2", "type": "via", "reflect": True},
                *({"id": subscriber} for subscriber in subscribers),
            ],
            "links": [
                {"a": edge, "b": via, "delay_ms": delay_ms, "jitter_ms": 8}
                for edge in (publisher, *subscribers)
                for via, delay_ms in (("2:1", 20), ("2:2", 25))
            ],
            "publishers": [
                {
                    "node": publisher,
                    "namespace": ["demo"],
                    "objects_per_s": 50,
                    "objects_per_group": 4,
                }
            ],
            "subscribers": [
                {"node": subscriber, "namespace": ["demo"]} for subscriber in subscribers
            ],
        },
        "diamond",
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_path_that_changes_loses_nothing_and_repeats_nothing(seed: int) -> None:
    network = Network(diamond("1:1", "3:1", "3:2"), seed)
    network.settle()
    since = network.now
    via, edge = parse_node_id("2:1"), parse_node_id("3:1")
    ways = set()
    for delay_s in (0.06, 0.001, 0.07, 0.001):
        network.set_delay(via, edge, delay_s)
        network.run(15.0)
        relay = network.nodes[parse_node_id("1:1")].relay
        assert relay is not None
        choice = relay.nodes.data_choice(edge)
        assert choice is not None
        ways.add(choice.path.peer_id)
    assert len(ways) == 2
    assert check_delivery(network, since, network.now - 1.0) == []
    assert check_always(network) == []


@pytest.mark.parametrize("faults", ["stop:2:1@1,restart:2:1@8", "crash:2:1@1,restart:2:1@8"])
def test_the_other_via_takes_over_and_nothing_comes_twice(faults: str) -> None:
    report = run(diamond("1:1", "3:1", "3:2"), seed=1, faults=faults, seconds=20)
    assert report.violations == ()
    assert report.delivered > 0.6 * report.wanted
