"""What relays decide on demand lasts: figures vary, subscribers come and go, and policy changes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.policy import policy_from_mapping
from laps.relay.extensions import Extensions
from laps.relay.on_demand import HOLD_S, State
from laps.relay.settings import DemandSettings
from laps.routing.flows import FromClient
from laps.sim import underlay
from laps.sim.network import Network
from laps.sim.topology import Publisher, Subscriber, Topology
from laps.types import NodeId, parse_node_id
from support import demanding
from support.demanding import (
    POLICY,
    SETTINGS,
    check_all_came,
    copies_into,
    far_region,
    link,
    network,
    node,
    peers,
    reasons,
    relay_of,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.types import NodeMetrics, Reachability

FOUR = ["2:1", "2:2", "2:3", "2:4"]
VIA = parse_node_id("2:9")


def ways(net: Network) -> dict[NodeId, object]:
    """By target of the only track: the way that it takes."""
    (flow,) = (it for it in relay_of(net, "1:1").fib if isinstance(it.key, FromClient))
    return {it: route.path and route.path.peer_id for it, route in flow.routes.items()}


def changes(net: Network, seconds: float) -> int:
    """How often targets that stay take another way within some time."""
    found, before = 0, ways(net)
    for _ in range(round(2 * seconds)):
        net.run(0.5)
        now = ways(net)
        found += sum(now[it] != before.get(it, now[it]) for it in now)
        before = now
    return found


def vary(
    monkeypatch: pytest.MonkeyPatch, node_id: NodeId, figure: Callable[[Reachability], Reachability]
) -> None:
    """Have what a node tells of its links vary."""
    measured = Extensions.measured

    def varied(self: Extensions, metrics: NodeMetrics, now: float) -> object:
        if metrics.source_node_id == node_id:
            links = tuple(figure(it) for it in metrics.reachability)
            metrics = replace(metrics, reachability=links)
        return measured(self, metrics, now)

    monkeypatch.setattr(Extensions, "measured", varied)


@pytest.mark.parametrize("away_s", [8.0, 14.0, 25.0])
def test_a_via_that_is_let_go_and_needed_again_takes_the_copies_at_once(
    monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    lasting = replace(SETTINGS, demand=DemandSettings(sessions=4, idle_s=30.0))
    monkeypatch.setattr(demanding, "SETTINGS", lasting)
    net = network(*far_region(), FOUR)
    net.run(15.0)
    began = net.now
    for subscriber in net.subscribers[2:]:
        subscriber.unsubscribe_now()
    net.run(HOLD_S + away_s)
    for subscriber in net.subscribers[2:]:
        subscriber.attach()
    net.run(10.0)
    since = net.now
    net.run(5.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    assert copies_into(net, since, "east") == 1.0
    assert relay_of(net, "1:1").demand.spared_copies == 3
    check_all_came(net, began + away_s + 15.0, net.now - 2.0)


@pytest.mark.parametrize("service", ["", "gold"])
def test_copies_are_not_spared_by_a_link_that_loses_more_than_the_class_bears(service: str) -> None:
    nodes, links = far_region()
    lossy = structs.replace(link("1:1", "2:9", 56), loss=0.3)
    net = network(nodes, [*links, lossy], FOUR)
    if service:
        net.follow_policy(policy_from_mapping({"rule": [{"tracks": "*", "class": service}]}, "t"))
    net.run(40.0)
    since = net.now
    net.run(6.0)
    assert copies_into(net, since, "east") == 4.0
    assert relay_of(net, "1:1").demand.spared_copies == 0


def test_ways_stay_while_what_links_lose_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    vary(monkeypatch, VIA, lambda it: replace(it, loss=0.15 if rng.random() < 0.2 else 0.0))
    nodes, links = far_region()
    net = network(nodes, [*links, link("1:1", "2:9", 56)], FOUR)
    net.run(40.0)
    assert changes(net, 60.0) <= 4


def test_ways_stay_while_round_trips_vary_about_the_bound_of_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = Random(2)
    vary(
        monkeypatch, VIA, lambda it: replace(it, srtt_us=round(it.srtt_us * rng.uniform(0.9, 1.1)))
    )
    nodes, links = far_region()
    # Silver bears 1.5 times 112 ms and 20 ms more; by the Via it takes 112 and 76.
    links = [structs.replace(it, delay_ms=38) if it.a == VIA else it for it in links]
    net = network(nodes, [*links, link("1:1", "2:9", 56)], FOUR)
    net.follow_policy(POLICY)
    net.run(40.0)
    assert changes(net, 60.0) <= 4


def test_a_subscriber_that_comes_and_goes_does_not_move_the_others() -> None:
    nodes, links = far_region()
    net = network(nodes, [*links, link("1:1", "2:9", 56)], FOUR[:3])
    net.run(20.0)
    began, moved = net.now, 0
    for _ in range(6):
        net.subscribers[2].unsubscribe_now()
        moved += changes(net, 8.0)
        net.subscribers[2].attach()
        moved += changes(net, 8.0)
    # One that is back begins by the way that nobody names, for a moment.
    assert moved <= 6
    check_all_came(net, began + 92.0, net.now - 2.0)
    net.subscribers[2].unsubscribe_now()
    net.run(HOLD_S + 8.0)
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 2.0, "two may go, and that has lasted"


@pytest.mark.parametrize(("loss", "delay_ms"), [(0.2, 28.0), (0.0, 300.0)])
def test_a_via_is_dialled_where_the_only_spoke_loses_much_or_takes_long(
    loss: float, delay_ms: float
) -> None:
    nodes = [
        node("1:1", "west", (0, -20)),
        node("2:1", "east", (0, 20)),
        node("1:9", "west", (1, -20), "via"),
    ]
    straight = structs.replace(link("1:1", "2:1", delay_ms), loss=loss)
    net = network(nodes, [straight, link("1:9", "2:1", 28)], ["2:1"])
    net.follow_policy(POLICY)
    net.run(60.0)
    assert sessions(net, "1:1") == {"1:9": State.UP}
    (why,) = reasons(net, "1:1", "2:1")
    assert why.startswith("by 1:9 > 2:1: the path via 2:1 ")
    since = net.now
    net.run(60.0)
    assert changes(net, 30.0) == 0
    check_all_came(net, since, net.now - 2.0)


@pytest.mark.parametrize("region", ["east", ""])
def test_a_full_hub_sends_one_copy_within_its_region_too(region: str) -> None:
    targets = [f"2:{number}" for number in range(1, 7)]
    nodes = [node("1:1", region, (0, 48)), node("2:9", region, (2, 50), "via")]
    nodes += [node(text, region, (number, 50)) for number, text in enumerate(targets)]
    links = [link("1:1", "2:9", 2)]
    links += [it for text in targets for it in (link("1:1", text, 3), link("2:9", text, 2))]
    net = network(nodes, links, targets)
    net.run(20.0)
    (flow,) = relay_of(net, "1:1").fib
    assert len(flow.outs) == 6, "within a region as many may go as there are"
    net.nodes[parse_node_id("1:1")].load = lambda: 1.0
    net.run(40.0)
    assert len(flow.outs) == 1
    check_all_came(net, 22.0, net.now - 2.0)


@pytest.mark.parametrize("tracks", [1, 3])
def test_a_hub_that_is_fuller_the_more_copies_it_sends_comes_to_rest(tracks: int) -> None:
    nodes, links = [node("1:1", "west", (0, -50))], []
    targets = [f"{region}:{number}" for region in range(2, 7) for number in (1, 2)]
    for region in range(2, 7):
        name, via = f"east {region}", f"{region}:9"
        nodes.append(node(via, name, (3 * region, 50), "via"))
        links.append(link("1:1", via, 56))
        for number in (1, 2):
            nodes.append(node(f"{region}:{number}", name, (3 * region + number, 50)))
            links += [link("1:1", f"{region}:{number}", 56), link(via, f"{region}:{number}", 2)]
    spaces = [["sim", str(number)] for number in range(tracks)]
    wanted = [
        Subscriber(node=parse_node_id(it), namespace=space, name="track")
        for space in spaces
        for it in targets
    ]
    topology = Topology(
        nodes=tuple(nodes),
        links=tuple(links),
        publishers=tuple(
            Publisher(node=parse_node_id("1:1"), namespace=space, name="track") for space in spaces
        ),
        subscribers=tuple(wanted),
    )
    net = Network(topology, 1, extended=1.0, settings=SETTINGS, load=lambda: 0.1)
    hub = net.nodes[parse_node_id("1:1")]

    def copies() -> int:
        return sum(len(flow.outs) for flow in relay_of(net, "1:1").fib)

    hub.load = lambda: min(1.0, 0.95 * copies() / len(wanted))
    net.run(60.0)
    before, since = relay_of(net, "1:1").fib.changes, net.now
    assert copies() < len(wanted)
    net.run(120.0)
    assert relay_of(net, "1:1").fib.changes - before <= len(targets)
    check_all_came(net, since, net.now - 2.0)


def test_a_hub_whose_line_is_full_sends_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, is_full = Extensions.measured, [False]

    def at_the_limit(self: Extensions, metrics: NodeMetrics, now: float) -> object:
        if metrics.source_node_id == parse_node_id("1:1"):
            egress_bps = 970_000_000 if is_full[0] else 100_000_000
            metrics = replace(metrics, capacity_bps=10**9, egress_bps=egress_bps)
        return measured(self, metrics, now)

    monkeypatch.setattr(Extensions, "measured", at_the_limit)
    net = network(*far_region(), ["2:1", "2:2"])
    net.run(15.0)
    assert sessions(net, "1:1") == {}
    is_full[0] = True
    net.run(40.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    (flow,) = (it for it in relay_of(net, "1:1").fib if isinstance(it.key, FromClient))
    assert len(flow.outs) == 1
    check_all_came(net, 17.0, net.now - 2.0)


@pytest.mark.parametrize("object_bytes", [50, 4000])
def test_a_relay_is_not_dialled_by_a_path_that_is_too_narrow_for_the_track(
    monkeypatch: pytest.MonkeyPatch, object_bytes: int
) -> None:
    monkeypatch.setattr(underlay, "SPACING_S", 0.15)  # 9,600 bits in 150 ms: 64 kbit/s
    nodes = [
        node("1:1", "west", (0, -20)),
        node("1:2", "east", (0, 20)),
        node("1:3", "west", (-60, 0)),
    ]
    net = network(nodes, [link("1:1", "1:3", 60), link("1:3", "1:2", 60)], ["1:2"])
    for publisher in net.publishers:
        publisher.spec = structs.replace(publisher.spec, object_bytes=object_bytes)
    net.run(60.0)
    net.follow_policy(POLICY)
    net.run(30.0)
    dialled = {"1:2": State.UP} if object_bytes == 50 else {}
    assert sessions(net, "1:1") == dialled


@pytest.mark.parametrize(
    ("policy", "copies"),
    [
        ({"peering": [{"between": ["1:1", "2:9"], "allow": False}]}, 1.0),
        ({"link": [{"between": ["1:1", "2:9"], "closed": True}]}, 1.0),
        ({"vias": {"nodes": ["west"]}}, 4.0),
    ],
)
def test_a_session_that_policy_makes_useless_is_let_go(
    policy: Mapping[str, object], copies: float
) -> None:
    net = network(*far_region(), FOUR)
    net.run(20.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    since = net.now
    net.follow_policy(policy_from_mapping(policy, "a test"))
    net.run(60.0)
    assert "2:9" not in peers(net, "1:1")
    assert relay_of(net, "1:1").demand.sessions.counters.sessions_dialled == 1
    counted = net.now
    net.run(5.0)
    # Where another Edge leads to the Via, it takes one copy all the same.
    assert copies_into(net, counted, "east") == copies
    check_all_came(net, since, net.now - 2.0)


def test_what_helps_more_takes_the_place_of_what_helps_least() -> None:
    nodes = [node("1:1", "west", (0, -20)), node("1:3", "west", (-60, 0))]
    links, targets = [link("1:1", "1:3", 60)], []
    for number in range(10, 14):
        nodes.append(node(f"2:{number}", f"east {number}", (0, 20)))
        links.append(link("1:3", f"2:{number}", 60))
        targets.append(f"2:{number}")
    for number in range(1, 6):
        nodes.append(node(f"3:{number}", "south", (number, 50)))
        links += [link("1:1", f"3:{number}", 56), link("3:9", f"3:{number}", 2)]
        targets.append(f"3:{number}")
    nodes.append(node("3:9", "south", (2, 50), "via"))
    net = network(nodes, links, targets)
    net.follow_policy(POLICY)
    net.run(1.0)
    for subscriber in net.subscribers[4:]:
        subscriber.unsubscribe_now()
    net.run(60.0)
    up = {it for it, state in sessions(net, "1:1").items() if state is State.UP}
    assert up == set(targets[:4]), "all places are taken"
    began = net.now
    for subscriber in net.subscribers[4:]:
        subscriber.attach()
    net.run(60.0)
    found = sessions(net, "1:1")
    assert found["3:9"] is State.UP
    assert list(found.values()).count(State.UP) == SETTINGS.demand.sessions
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "south") == 1.0
    check_all_came(net, began + 5.0, net.now - 2.0)


def test_goaway_names_none_that_policy_forbids_nor_ourselves_nor_any_number() -> None:
    nodes = [
        node("1:1", "west", (0, -2)),
        node("1:2", "west", (0, 2)),
        node("1:8", "west", (0, 0), "via"),
        node("1:9", "far", (1, 0), "via"),
    ]
    links = [link("1:1", "1:8", 2), link("1:2", "1:8", 2), link("1:8", "1:9", 1)]
    net = network(nodes, links, ["1:2"])
    forbids = {"peering": [{"between": ["1:1", "1:9"], "allow": False}]}
    net.follow_policy(policy_from_mapping(forbids, "a test"))
    net.run(10.0)
    relay = relay_of(net, "1:1")
    net.stop(parse_node_id("1:8"))
    net.run(60.0)
    assert relay.demand.sessions.counters.sessions_dialled == 0
    relay.demand.peer_leaves(parse_node_id("1:8"), "1:1", net.now)
    net.run(3.0)
    assert sessions(net, "1:1") == {}
    for number in range(1000):
        relay.demand.peer_leaves(NodeId(10**6 + number), f"away.example:{number + 1}", net.now)
    net.run(5.0)
    assert relay.demand.sessions.counters.sessions_dialled <= SETTINGS.demand.sessions
