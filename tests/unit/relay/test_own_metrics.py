"""When a relay tells how it is doing: not too often, and only what matters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laps.infobase.metrics import metrics_changed
from laps.types import NodeId, NodeMetrics, Reachability
from laps.wire.extensions import MAX_REACHABILITY, NodeMetricsAdv
from support.extensions import EPOCH, NORTH, SELF, SOUTH, World


@pytest.fixture
def world() -> World:
    return World()


def loads(world: World) -> list[float]:
    said = [message for _, message in world.said()]
    return [message.node_metrics.load for message in said if isinstance(message, NodeMetricsAdv)]


def test_our_own_metrics_are_told_at_most_every_two_seconds(world: World) -> None:
    world.peer(NORTH)
    world.pass_time(10)
    world.measure(load=0.1)
    assert loads(world) == [0.1]
    world.pass_time(0.5)
    for load in (0.2, 0.3, 0.4):
        world.measure(load=load)
    assert loads(world) == []
    assert world.extensions.deadline() == 12.0
    assert not world.extensions.is_idle()
    world.pass_time(1.5)
    assert loads(world) == [0.4]
    world.pass_time(5)
    world.measure(load=0.5)
    assert loads(world) == [0.5]


def test_where_clients_connect_is_told_at_once(world: World) -> None:
    world.peer(NORTH)
    for load, address in ((0.1, "relay.example:1"), (0.2, "relay.example:1"), (0.3, "")):
        world.measure(load=load, client_address=address)
    assert loads(world) == [0.1, 0.3]
    world.measure(load=0.4)
    assert loads(world) == []
    world.pass_time(2)
    assert loads(world) == [0.4]


def test_what_has_come_back_by_then_is_not_told(world: World) -> None:
    world.peer(NORTH)
    for load in (0.1, 0.9, 0.1):
        world.measure(load=load)
    world.pass_time(10)
    assert loads(world) == [0.1]


def test_each_word_of_our_own_is_newer_than_the_last(world: World) -> None:
    world.peer(NORTH)
    for load in (0.1, 0.2, 0.3):
        world.measure(load=load)
        world.pass_time(2)
    held = world.extensions.metrics.get(SELF)
    assert held is not None
    assert (held.sequence, held.load) == (EPOCH + 4, 0.3)


def test_a_peer_that_comes_later_is_told_our_metrics(world: World) -> None:
    world.measure()
    world.peer(NORTH)
    assert loads(world) == [0.5]


def test_of_too_many_nodes_the_nearest_are_told(world: World) -> None:
    reached = [Reachability(NodeId(n), 1_000_000 - n, 0.0) for n in range(MAX_REACHABILITY + 9)]
    world.measure(reachability=tuple(reached))
    held = world.extensions.metrics.get(SELF)
    assert held is not None
    assert held.reachability == tuple(reached[9:])


BEFORE = NodeMetrics(
    1,
    SELF,
    0.5,
    10**9,
    10**8,
    "eu",
    ("a",),
    (Reachability(NORTH, 100_000, 0.1),),
    (SOUTH,),
    "relay.example:1",
)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"sequence": 9}, False),
        ({"load": 0.52}, False),
        ({"load": 0.526}, True),
        ({"load": 0.474}, True),
        ({"capacity_bps": 1_050_000_000}, False),
        ({"capacity_bps": 1_050_000_001}, True),
        ({"egress_bps": 150_000_001}, True),
        ({"egress_bps": 150_000_000}, False),
        ({"egress_bps": 49_999_999}, True),
        ({"egress_bps": 50_000_000}, False),
        ({"capacity_bps": 10**9, "egress_bps": 200_000_001}, True),
        ({"region": "us"}, True),
        ({"tags": ()}, True),
        ({"best_vias": ()}, True),
        ({"client_address": "relay.example:2"}, True),
        ({"client_address": ""}, True),
        ({"reachability": ()}, True),
        ({"reachability": (Reachability(SOUTH, 100_000, 0.1),)}, True),
        ({"reachability": (Reachability(NORTH, 105_000, 0.104),)}, False),
        ({"reachability": (Reachability(NORTH, 105_001, 0.1),)}, True),
        ({"reachability": (Reachability(NORTH, 100_000, 0.094),)}, True),
    ],
)
def test_less_than_a_twentieth_is_no_news(fields: dict[str, object], changed: bool) -> None:
    assert metrics_changed(BEFORE, replace(BEFORE, **fields)) is changed  # type: ignore[arg-type]


def test_what_is_sent_is_no_news_where_nobody_says_what_could_be() -> None:
    before = replace(BEFORE, capacity_bps=0)
    assert not metrics_changed(before, replace(before, egress_bps=10**9))


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"load": 0.01}, False),
        ({"load": 0.011}, True),
        ({"egress_bps": 10**9}, False),
        ({"reachability": (Reachability(NORTH, 1000, 0.001),)}, False),
        ({"reachability": (Reachability(NORTH, 1001, 0.0),)}, True),
        ({"reachability": (Reachability(NORTH, 0, 0.0011),)}, True),
    ],
)
def test_near_nothing_a_figure_has_to_pass_its_floor(
    fields: dict[str, object], changed: bool
) -> None:
    idle = NodeMetrics(1, SELF, 0.0, 0, 0, reachability=(Reachability(NORTH, 0, 0.0),))
    assert metrics_changed(idle, replace(idle, **fields)) is changed  # type: ignore[arg-type]
