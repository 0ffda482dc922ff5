"""Peers on demand: dialled when they help, used, and let go, with nothing lost at either change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from laps.policy import policy_from_mapping
from laps.relay.on_demand import State
from laps.relay.settings import DemandSettings
from laps.types import parse_node_id
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
    sessions,
)

if TYPE_CHECKING:
    from laps.sim.node import SimNode


def test_a_via_is_dialled_where_too_many_copies_go_into_a_region_and_let_go_again() -> None:
    net = network(*far_region(), ["2:1", "2:2", "2:3", "2:4"])
    net.run(3.0)
    began = net.now
    net.run(12.0)
    assert "2:9" in peers(net, "1:1")
    assert sessions(net, "1:1") == {"2:9": State.UP}
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 1.0
    relay = net.nodes[parse_node_id("1:1")].relay
    assert relay is not None
    reasons = {route.reason for flow in relay.fib for route in flow.routes.values()}
    assert all("4 copies into east where 2 may go" in reason for reason in reasons), reasons
    # Two subscribers are left: hub and spoke again, and the Via is let go.
    for subscriber in net.subscribers[2:]:
        subscriber.unsubscribe_now()
    net.run(40.0)
    assert "2:9" not in peers(net, "1:1")
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 2.0
    check_all_came(net, began + 2.0, net.now - 2.0)


def test_an_s_relay_behind_a_long_way_is_dialled_and_let_go_again() -> None:
    nodes = [
        node("1:1", "west", (0, -20)),
        node("1:2", "east", (0, 20)),
        node("1:3", "west", (-60, 0)),
    ]
    net = network(nodes, [link("1:1", "1:3", 60), link("1:3", "1:2", 60)], ["1:2"])
    net.run(3.0)
    began = net.now
    net.run(40.0)
    assert sessions(net, "1:1") == {}, "without a class everything is acceptable"
    net.follow_policy(POLICY)
    net.run(5.0)
    assert sessions(net, "1:1") == {}, "round trips have to last"
    net.run(7.0)
    assert sessions(net, "1:1") == {"1:2": State.UP}
    net.run(3.0)
    assert net.trace.trails[max(net.trace.trails, key=lambda it: it.group)].hops == [
        (parse_node_id("1:1"), parse_node_id("1:2"))
    ]
    net.run(60.0)
    assert sessions(net, "1:1") == {"1:2": State.UP}, "it goes on being needed"
    net.follow_policy(None)
    net.run(30.0)
    assert "1:2" not in peers(net, "1:1")
    check_all_came(net, began, net.now - 2.0)


def test_an_s_relay_that_probes_do_not_reach_well_is_not_dialled() -> None:
    nodes = [
        node("1:1", "west", (0, -20)),
        node("1:2", "east", (0, 20)),
        node("1:3", "west", (-60, 0)),
    ]
    net = network(nodes, [link("1:1", "1:3", 60), link("1:3", "1:2", 60)], ["1:2"])
    pair = frozenset(map(parse_node_id, ("1:1", "1:2")))
    net.underlay.losses[pair] = 0.3
    net.run(100.0)
    net.follow_policy(POLICY)
    net.run(60.0)
    assert sessions(net, "1:1") == {}
    relay = net.nodes[parse_node_id("1:1")].relay
    assert relay is not None
    assert relay.probing.wanted == {parse_node_id("1:2")}, "it is probed all the more"
    del net.underlay.losses[pair]
    net.run(200.0)
    assert sessions(net, "1:1") == {"1:2": State.UP}


@pytest.mark.parametrize("shared", [False, True])
def test_an_s_relay_behind_another_region_is_dialled_if_that_spares_a_copy(shared: bool) -> None:
    """Without any policy: two copies between regions are one too many."""
    nodes = [
        node("1:1", "west", (0, -20)),
        node("1:2", "east", (0, 20)),
        node("1:3", "south", (-60, 0)),
    ]
    targets = ["1:2", "1:3"] if shared else ["1:2"]
    net = network(nodes, [link("1:1", "1:3", 60), link("1:3", "1:2", 60)], targets)
    net.run(3.0)
    began = net.now
    net.run(30.0)
    if shared:
        assert sessions(net, "1:1") == {}, "south has a copy in any case"
    else:
        assert sessions(net, "1:1") == {"1:2": State.UP}
        since = net.now
        net.run(5.0)
        assert copies_into(net, since, "east") == 1.0
        assert copies_into(net, since, "south") == 0.0
    check_all_came(net, began, net.now - 2.0)


def test_a_via_that_probes_do_not_reach_well_takes_no_copies() -> None:
    net = network(*far_region(), ["2:1", "2:2", "2:3", "2:4"])
    net.underlay.losses[frozenset(map(parse_node_id, ("1:1", "2:9")))] = 0.5
    net.run(1.0)
    relay = net.nodes[parse_node_id("1:1")].relay
    assert relay is not None
    relay.demand.configure(DemandSettings(sessions=0), net.now)
    net.run(100.0)
    relay.demand.configure(SETTINGS.demand, net.now)
    net.run(30.0)
    assert sessions(net, "1:1") == {}
    net.underlay.losses.clear()
    net.run(200.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}


def test_hub_and_spoke_where_a_via_could_not_be_in_time_or_is_forbidden() -> None:
    nodes, links = far_region()
    net = network(nodes, links, ["2:1", "2:2", "2:3", "2:4"])
    net.follow_policy(policy_from_mapping({"vias": {"nodes": ["west"]}}, "a test"))
    net.run(25.0)
    assert sessions(net, "1:1") == {}
    # A Via that is far from everybody makes each way twice as long: more than silver bears.
    away = [
        msgspec.structs.replace(it, longitude=150.0) if it.type == "via" else it for it in nodes
    ]
    slow = [
        msgspec.structs.replace(it, delay_ms=60) if it.a == parse_node_id("2:9") else it
        for it in links
    ]
    net = network(away, slow, ["2:1", "2:2", "2:3", "2:4"])
    net.follow_policy(POLICY)
    net.run(25.0)
    assert sessions(net, "1:1") == {}
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 4.0


def test_a_via_that_dies_is_left_and_dialled_again_later() -> None:
    net = network(*far_region(), ["2:1", "2:2", "2:3", "2:4"])
    net.run(3.0)
    began = net.now
    net.run(12.0)
    via: SimNode = net.nodes[parse_node_id("2:9")]
    for _ in range(3):
        net.crash(via.node_id)
        net.run(8.0)
        assert sessions(net, "1:1") == {"2:9": State.WAITING}
        net.restart(via.node_id)
        net.run(130.0)
        assert sessions(net, "1:1") == {"2:9": State.UP}
    check_all_came(net, began + 2.0, net.now - 2.0)


def test_no_more_sessions_than_are_allowed_and_the_most_useful_first() -> None:
    nodes = [node("1:1", "west", (0, -20)), node("1:3", "west", (-60, 0))]
    links = [link("1:1", "1:3", 60)]
    targets = []
    for number in range(10, 20):
        nodes.append(node(f"2:{number}", f"east{number}", (0, 20)))
        links.append(link("1:3", f"2:{number}", 60))
        targets.append(f"2:{number}")
    net = network(nodes, links, targets)
    net.follow_policy(POLICY)
    net.run(60.0)
    assert len(sessions(net, "1:1")) == SETTINGS.demand.sessions
    assert len(peers(net, "1:1")) == 1 + SETTINGS.demand.sessions


def test_a_via_that_stops_names_another_and_its_peers_dial_that_until_it_is_back() -> None:
    nodes = [
        node("1:1", "west", (0, -2)),
        node("1:2", "west", (0, 2)),
        node("1:8", "west", (0, 0), "via"),
        node("1:9", "west", (1, 0), "via"),
    ]
    links = [link("1:1", "1:8", 2), link("1:2", "1:8", 2), link("1:8", "1:9", 1)]
    net = network(nodes, links, ["1:2"])
    net.run(5.0)
    began = net.now
    via = parse_node_id("1:8")
    for _ in range(2):
        net.run(10.0)
        net.stop(via)
        net.run(20.0)
        assert peers(net, "1:1") == peers(net, "1:2") == {"1:9"}
        assert sessions(net, "1:1") == {"1:9": State.UP}
        # It is all that these have, so it stays, however long that lasts.
        net.run(200.0)
        assert peers(net, "1:1") == peers(net, "1:2") == {"1:9"}
        net.restart(via)
        net.run(60.0)
        assert peers(net, "1:1") == peers(net, "1:2") == {"1:8"}
        net.run(100.0)
    check_all_came(net, began + 2.0, net.now - 2.0)


def test_what_goaway_names_is_a_word_that_counts_once() -> None:
    net = network(*far_region(), ["2:1"])
    net.run(5.0)
    relay = net.nodes[parse_node_id("1:1")].relay
    assert relay is not None
    peer = parse_node_id("2:1")
    relay.demand.peer_leaves(peer, "2:2", net.now)  # a peer already
    net.run(3.0)
    assert sessions(net, "1:1") == {}
    relay.demand.peer_leaves(peer, "", net.now)
    net.run(3.0)
    assert sessions(net, "1:1") == {}
    # It names one, and stays: it is no peer that is away.
    relay.demand.peer_leaves(peer, "2:9", net.now)
    net.run(3.0)
    assert sessions(net, "1:1") == {}


def test_a_via_takes_one_copy_of_two_while_the_hub_is_full() -> None:
    net = network(*far_region(), ["2:1", "2:2"])
    net.run(3.0)
    began = net.now
    net.run(12.0)
    assert sessions(net, "1:1") == {}, "two copies may go"
    hub = net.nodes[parse_node_id("1:1")]
    hub.load = lambda: 1.0
    net.run(15.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 1.0
    # A little less is no reason to go back.
    hub.load = lambda: 0.85
    net.run(30.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    hub.load = lambda: 0.1
    net.run(100.0)
    assert "2:9" not in peers(net, "1:1")
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 2.0
    check_all_came(net, began + 2.0, net.now - 2.0)


def test_a_via_takes_one_copy_of_two_where_the_spokes_lose_much() -> None:
    nodes, links = far_region()
    lossy = [
        msgspec.structs.replace(it, loss=0.15) if it.a == parse_node_id("1:1") else it
        for it in links
    ]
    net = network(nodes, lossy, ["2:1", "2:2"])
    net.run(25.0)
    assert sessions(net, "1:1") == {"2:9": State.UP}
    since = net.now
    net.run(5.0)
    assert copies_into(net, since, "east") == 1.0
    check_all_came(net, since, net.now - 2.0)
