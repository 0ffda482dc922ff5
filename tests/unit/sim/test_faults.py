"""Faults as a person writes them."""

from random import Random

import pytest

from laps.errors import ConfigError
from laps.sim.faults import parse_faults, random_faults
from laps.sim.generators import ring, with_clients
from laps.sim.network import Network
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
