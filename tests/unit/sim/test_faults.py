"""Faults as a person writes them."""

from random import Random

import msgspec
import pytest

from laps.errors import ConfigError
from laps.sim.faults import ALL_KINDS, parse_faults, random_faults
from laps.sim.generators import ring, with_clients
from laps.sim.invariants import check_always, check_delivery, check_paths, check_subscribes
from laps.sim.network import Network
from laps.sim.topology import Publisher, Subscriber
from laps.types import parse_node_id

TOPOLOGY = ring(4)


def written(text: str) -> list[str]:
    return [str(fault) for fault in parse_faults(text, TOPOLOGY, Random(1))]


def test_faults_come_in_the_order_they_happen() -> None:
    text = "restart:1:3@20, crash:1:3@10,cut:1:1-1:2@5,heal:1:1-1:2@7.5,delay:1:2-1:1=80@1"
    assert written(text) == [
        "delay:1:2-1:1=80@1",
        "cut:1:1-1:2@5",
        "heal:1:1-1:2@7.5",
        "crash:1:3@10",
        "restart:1:3@20",
    ]
    assert written("") == []
    assert written("stop:1:1@0,flap:1:4-1:1@2") == ["stop:1:1@0", "flap:1:4-1:1@2"]
    more = (
        "renew:1:1@0,freeze:1:1@0,thaw:1:1@1,jump:1:2=2.5@2,loss:1:1-1:2=0.05@3,"
        "split:1:1+1:2@4,join:1:3@5"
    )
    assert ",".join(written(more)) == more


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("crash", '"crash" is no fault: write kind:what@seconds, like crash:1:3@10'),
        ("crsh:1:3@10", '"crsh:1:3@10" is of no kind that is known: crash, stop, restart'),
        ("crash:1:3", "needs a time: crash:1:3@10"),
        ("crash:1:3@", 'has "" for seconds: write a number from 0 to'),
        ("crash:1:3@-1", 'has "-1" for seconds'),
        ("crash:1:3@nan", 'has "nan" for seconds'),
        ("crash:1:3@1e3", 'has "1e3" for seconds'),
        ("crash:1@10", 'fault "crash:1@10": node id "1" needs a colon: high:low'),
        ("crash:9:9@10", "names 9:9, which is no node of this network"),
        ("crash:1:1-1:2@10", "needs one node: crash:1:3@10"),
        ("cut:1:1@10", "needs the two ends of a link: cut:1:1-1:2@10"),
        ("cut:1:1-1:3@10", "names two nodes that no link joins"),
        ("delay:1:1-1:2@10", "needs the milliseconds: delay:1:1-1:2=80@10"),
        ("delay:1:1-1:2=x@10", 'has "x" for milliseconds: write a number from 0 to 10000'),
        ("freeze:1:1-1:2@10", "needs one node: freeze:1:3@10"),
        ("freeze:1:1+1:2@10", "needs one node: freeze:1:3@10"),
        ("jump:1:1@10", "needs the seconds: jump:1:3=30@10"),
        ("jump:1:1=-5@10", 'has "-5" for seconds: write a number from 0 to 1e+06'),
        ("loss:1:1-1:2=1@10", 'has "1" for share: write a number from 0 to 0.9'),
        ("split:1:1-1:2@10", "needs nodes joined by +: split:1:1+1:2@10"),
        ("split:1:1+1:2+1:3+1:4@10", "names nodes that no link joins to the rest"),
        ("random:x", "needs a number up to 1000: random:5"),
        ("random:1001", "needs a number up to 1000: random:5"),
        ("crash:1:3@1,,", '"" is no fault'),
    ],
)
def test_what_is_wrong_is_refused_with_the_way_out(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(text)
    message = str(caught.value)
    assert problem in message
    assert len(message.splitlines()) == 1


def test_random_faults_are_mended_and_follow_the_seed() -> None:
    faults = random_faults(TOPOLOGY, 50, Random(3), start_s=10)
    assert faults == random_faults(TOPOLOGY, 50, Random(3), start_s=10)
    assert min(fault.at_s for fault in faults) >= 10
    kinds = [fault.kind for fault in faults]
    assert kinds.count("cut") == kinds.count("heal") > 0
    assert kinds.count("crash") + kinds.count("stop") == kinds.count("restart") > 0
    again = parse_faults(",".join(map(str, faults)), TOPOLOGY, Random(1))
    assert [fault.kind for fault in again] == kinds
    assert len(written("random:3@5")) >= 3


def test_every_kind_of_fault_happens_to_the_network() -> None:
    network = Network(with_clients(TOPOLOGY, 1, 1, seed=1), seed=1)
    network.run(1.0)
    text = "flap:1:1-1:2@0,delay:1:1-1:2=80@0,cut:1:1-1:2@0,crash:1:3@0,stop:1:4@0"
    for fault in parse_faults(text, TOPOLOGY, Random(1)):
        fault.strike(network)
    network.run(2.0)
    (cable,) = network.between(parse_node_id("1:2"), parse_node_id("1:1"))
    assert [cable.is_cut for cable in network.cables] == [True, False, False, False]
    assert cable.rtt_s == pytest.approx(0.16)
    up = [node.name for node in network.nodes.values() if node.is_up]
    assert up == ["1:1", "1:2"]
    for fault in parse_faults("heal:1:1-1:2@0,restart:1:3@0,restart:1:4@0", TOPOLOGY, Random(1)):
        fault.strike(network)
    network.settle()
    assert not any(cable.is_cut for cable in network.cables)
    assert all(node.is_up for node in network.nodes.values())
    assert [one.what for one in network.disturbances][:3] == [
        "start",
        "flap 1:1-1:2",
        "delay 1:1-1:2 80 ms",
    ]


def test_random_faults_of_all_kinds_spare_whom_they_are_told_to() -> None:
    spared = {parse_node_id("1:1"), parse_node_id("1:2")}
    faults = random_faults(TOPOLOGY, 200, Random(3), kinds=ALL_KINDS, spared=spared)
    assert {fault.kind for fault in faults} == {
        *(kind for kind in ALL_KINDS if "/" not in kind),
        *("restart", "renew", "thaw", "heal", "join"),
    }
    alone = ("crash", "stop", "restart", "renew", "freeze", "thaw", "jump", "split", "join")
    assert all(spared.isdisjoint(fault.nodes) for fault in faults if fault.kind in alone)
    only_links = random_faults(
        TOPOLOGY, 50, Random(3), kinds=ALL_KINDS, spared={node.id for node in TOPOLOGY.nodes}
    )
    assert {fault.kind for fault in only_links} == {"cut", "heal", "flap", "delay", "loss"}


def strike(network: Network, text: str) -> None:
    for fault in parse_faults(text, TOPOLOGY, Random(1)):
        fault.strike(network)


def at_rest() -> Network:
    """A publisher at 1:1, and subscribers at 1:1 and 1:3: the way leads by 1:2 or 1:4."""
    clients = {
        "publishers": (Publisher(node=parse_node_id("1:1"), namespace=["demo"]),),
        "subscribers": tuple(
            Subscriber(node=parse_node_id(node), namespace=["demo"]) for node in ("1:1", "1:3")
        ),
    }
    topology = msgspec.structs.replace(TOPOLOGY, **clients)
    network = Network(topology, seed=1, extended=1.0)
    network.settle()
    return network


def works(network: Network) -> bool:
    """Whether what is published from now on comes to everybody."""
    since = network.now
    network.run(3.0)
    return [*check_always(network), *check_delivery(network, since, since + 1.0)] == []


def test_a_node_that_stands_still_for_a_moment_goes_on_where_it_was() -> None:
    network = at_rest()
    node = network.nodes[parse_node_id("1:3")]
    closed = len(node.closes)
    (_, subscriber) = network.subscribers
    strike(network, "freeze:1:3@0")
    before = len(subscriber.got)
    network.run(0.4)
    assert len(subscriber.got) == before
    strike(network, "thaw:1:3@0")
    network.run(0.1)
    assert len(subscriber.got) > before
    assert len(node.closes) == closed
    assert works(network)


def test_a_node_that_stands_still_for_long_is_given_up_and_comes_back() -> None:
    network = at_rest()
    node = network.nodes[parse_node_id("1:3")]
    links = set(node.links)
    strike(network, "freeze:1:3@0")
    network.run(10.0)
    assert set(node.links) == links  # it knows nothing of it
    assert not network.nodes[parse_node_id("1:2")].links.keys() - {1}
    strike(network, "thaw:1:3@0")
    network.settle()
    assert not links & set(node.links)
    assert works(network)


def test_a_node_that_stands_still_is_killed_and_restarted() -> None:
    network = at_rest()
    strike(network, "freeze:1:3@0,crash:1:3@1,thaw:1:3@2")
    network.run(1.0)
    assert network.nodes[parse_node_id("1:3")].relay is None
    strike(network, "restart:1:3@0")
    network.settle()
    assert works(network)


@pytest.mark.parametrize("place", ["1:1", "1:2", "1:3"])
def test_a_node_that_comes_back_as_another_brings_its_clients(place: str) -> None:
    network = at_rest()
    strike(network, f"crash:{place}@0")
    network.run(0.5)  # the others have not noticed
    strike(network, f"renew:{place}@0")
    network.settle()
    node = network.nodes[parse_node_id(place)]
    assert node.node_id != parse_node_id(place)
    for other in network.nodes.values():
        assert other.relay is not None
        if other is not node:
            assert other.relay.nodes.best(node.node_id) is not None
            assert other.relay.nodes.best(parse_node_id(place)) is None
    assert works(network)
    strike(network, f"renew:{place}@0")
    network.settle()
    assert works(network)
    assert [*check_paths(network), *check_subscribes(network)] == []


def test_a_clock_that_jumps_is_the_nodes_own() -> None:
    network = at_rest()
    node = network.nodes[parse_node_id("1:3")]
    strike(network, "jump:1:3=20@0")
    assert node.now == pytest.approx(network.now + 20)
    network.settle()
    assert works(network)


def test_a_group_that_is_split_off_joins_the_rest_again() -> None:
    network = at_rest()
    strike(network, "split:1:3+1:4@0")
    assert [cable.is_cut for cable in network.cables] == [False, True, False, True]
    network.settle()
    strike(network, "join:1:3+1:4@0")
    network.settle()
    assert works(network)


def test_loss_counts_from_then_on() -> None:
    network = at_rest()
    strike(network, "loss:1:2-1:1=0.05@0")
    (cable,) = network.between(parse_node_id("1:1"), parse_node_id("1:2"))
    assert [lane.conditions.loss for lane in cable.lanes] == [0.05, 0.05]
    assert works(network)
