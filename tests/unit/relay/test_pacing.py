"""How often a node tells of itself: a part of what links may carry, and sooner what others need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laps.infobase.metrics import metrics_changed
from laps.infobase.nodes import Nodes, SessionId
from laps.relay.pacing import Pace, Urgency, bytes_of, urgency_of
from laps.relay.settings import ExtensionSettings
from laps.routing.avoided import Avoided
from laps.types import (
    Candidate,
    Coordinates,
    FullLink,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodeType,
    Reachability,
)
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS, NodeMetricsAdv

SELF, PEER = NodeId(1), NodeId(2)
HERE = Coordinates(1.0, 2.0, 3.0, 4.0, 0.1)
FOUND = Candidate(NodeId(9), 20_000, 0.0, 50_000_000)
TOLD = NodeMetrics(
    1,
    SELF,
    0.1,
    10**9,
    10**8,
    "eu-west",
    ("ssd",),
    tuple(Reachability(NodeId(10 + number), 10_000, 0.0) for number in range(6)),
    (NodeId(9),),
    "relay.example:33435",
    HERE,
    (FOUND,) * 8,
    (FullLink(PEER, 0.7), FullLink(NodeId(11), 0.3)),
)


def pace(nodes: int) -> Pace:
    known = Nodes(SELF, Avoided().select)
    known.open_session(SessionId(1), PEER, 10, 0.0, True)
    for number in range(2, nodes + 1):
        known.add(SessionId(1), NodeInfo(NodeId(number), NodeType.EDGE))
    return Pace(known, ExtensionSettings())


def test_a_pace_counts_about_the_bytes_of_the_message() -> None:
    for metrics in (
        TOLD,
        replace(TOLD, candidates=(), full_links=(), reachability=(), tags=(), region=""),
    ):
        size = len(encode(NodeMetricsAdv(metrics), codecs=EXTENDED_CODECS))
        assert size <= bytes_of(metrics) <= size + 24


@pytest.mark.parametrize("nodes", [2, 10, 100, 300, 1000, 3000])
def test_a_pace_keeps_all_nodes_together_below_half_a_megabit_a_link(nodes: int) -> None:
    own, now, told = pace(nodes), 0.0, 0
    while now < 600:
        own.told(TOLD, now)
        told += bytes_of(TOLD)
        now = own.due_at(Urgency.IN_TURN, now)
        if nodes <= 50:
            assert now - told / bytes_of(TOLD) * 2 == pytest.approx(0), "no less than 2 s apart"
    assert 8 * told * nodes / now <= 500_000 * 1.01


def test_a_pace_lets_urgent_news_go_before_its_turn_and_not_for_ever() -> None:
    own = pace(1000)
    own.told(TOLD, 0.0)
    turn_s = own.due_at(Urgency.IN_TURN, 0.0)
    assert turn_s > 5
    assert own.due_at(Urgency.SOON, 0.0) == 2.0
    times, now = [], 0.0
    while now < 600:
        now = own.due_at(Urgency.SOON, now)
        own.told(TOLD, now)
        times.append(now)
    assert times[:3] == [2.0, 4.0, 6.0]
    # Who always has urgent news has no more of the links than others.
    assert len(times) == pytest.approx(600 / turn_s, abs=5)
    assert own.due_at(Urgency.IN_TURN, now) >= now + turn_s
    assert own.due_at(Urgency.AT_ONCE, now) == now


@pytest.mark.parametrize(
    ("fields", "urgency"),
    [
        ({}, Urgency.IN_TURN),
        ({"load": 0.25}, Urgency.IN_TURN),
        ({"load": 0.35}, Urgency.SOON),
        ({"load": 0.0}, Urgency.IN_TURN),
        ({"egress_bps": 8 * 10**8}, Urgency.SOON),
        ({"client_address": ""}, Urgency.AT_ONCE),
        ({"reachability": TOLD.reachability[1:]}, Urgency.SOON),
        ({"reachability": (*TOLD.reachability, Reachability(PEER, 1, 0.5))}, Urgency.IN_TURN),
        ({"candidates": ()}, Urgency.IN_TURN),
        ({"full_links": ()}, Urgency.IN_TURN),
        ({"full_links": (FullLink(PEER, 0.79), FullLink(NodeId(11), 0.49))}, Urgency.IN_TURN),
        ({"full_links": (FullLink(PEER, 0.81),)}, Urgency.SOON),
        ({"full_links": (FullLink(NodeId(12), 0.5),)}, Urgency.SOON),
    ],
)
def test_a_pace_knows_what_is_urgent(fields: dict[str, object], urgency: Urgency) -> None:
    assert urgency_of(TOLD, replace(TOLD, **fields)) is urgency  # type: ignore[arg-type]


def test_a_pace_lets_a_link_that_loses_be_known_soon() -> None:
    lossy = (replace(TOLD.reachability[0], loss=0.06), *TOLD.reachability[1:])
    assert urgency_of(TOLD, replace(TOLD, reachability=lossy)) is Urgency.SOON
    full = replace(TOLD, load=0.79)
    assert urgency_of(full, replace(full, load=0.81)) is Urgency.SOON
    assert urgency_of(None, TOLD) is Urgency.AT_ONCE


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"coordinates": replace(HERE, x_ms=2.9)}, False),
        ({"coordinates": replace(HERE, x_ms=3.1)}, True),
        ({"coordinates": replace(HERE, height_ms=6.1)}, True),
        ({"coordinates": replace(HERE, error=0.19)}, False),
        ({"coordinates": replace(HERE, error=0.21)}, True),
        ({"coordinates": None}, True),
        ({"candidates": ()}, True),
        ({"full_links": (FullLink(PEER, 0.74),)}, False),
        ({"full_links": (FullLink(PEER, 0.76),)}, True),
        ({"full_links": (FullLink(PEER, 0.7), FullLink(NodeId(11), 0.4))}, True),
        ({"full_links": ()}, True),
        ({"candidates": (replace(FOUND, rtt_us=23_000),) * 8}, False),
        ({"candidates": (replace(FOUND, rtt_us=25_000),) * 8}, True),
        ({"candidates": (replace(FOUND, loss=1 / 16),) * 8}, False),
        ({"candidates": (replace(FOUND, loss=1 / 8),) * 8}, True),
        ({"candidates": (replace(FOUND, bandwidth_bps=30_000_000),) * 8}, False),
        ({"candidates": (replace(FOUND, bandwidth_bps=20_000_000),) * 8}, True),
    ],
)
def test_what_probes_and_coordinates_vary_by_themselves_is_no_news(
    fields: dict[str, object], changed: bool
) -> None:
    assert metrics_changed(TOLD, replace(TOLD, **fields)) is changed  # type: ignore[arg-type]
