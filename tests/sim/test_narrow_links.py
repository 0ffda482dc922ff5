"""Links that are narrow: flows spread over parallel ways until each carries what it can.

    1:1 --- 1:8 --- 2:1        the links from 1:1 to the Vias are narrow, the others are not
       `--- 1:9 ---'

The document's order has all flows take the Via with the lower id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laps.relay.settings import DemandSettings, ProbeSettings, RelaySettings
from laps.sim.invariants import check_always
from laps.sim.network import CACHE, Network
from laps.sim.topology import topology_from_mapping
from laps.types import format_node_id, parse_node_id

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from laps.sim.lanes import Lane

HERE, THERE = parse_node_id("1:1"), parse_node_id("2:1")
SETTINGS = RelaySettings(
    cache=CACHE, demand=DemandSettings(sessions=0), probing=ProbeSettings(enabled=False)
)
# Ten tracks of 80 kbit/s, and two links of which each carries six.
TRACKS, LINK_MBIT = 10, 0.55


def parallel(tracks: int, mbit: float, seed: int) -> Network:
    nodes = [
        {"id": "1:1"},
        {"id": "2:1"},
        *({"id": via, "type": "via", "reflect": True} for via in ("1:8", "1:9")),
    ]
    links = [
        {"a": "1:1", "b": "1:8", "bandwidth_mbit": mbit},
        {"a": "1:1", "b": "1:9", "bandwidth_mbit": mbit, "delay_ms": 12},
        *({"a": "2:1", "b": via} for via in ("1:8", "1:9")),
    ]
    names = [["sim", str(number)] for number in range(tracks)]
    rates = {"objects_per_s": 10, "objects_per_group": 5, "object_bytes": 1000}
    publishers = [{"node": "1:1", "namespace": it, "name": "track", **rates} for it in names]
    subscribers = [{"node": "2:1", "namespace": it} for it in names]
    clients = {"publishers": publishers, "subscribers": subscribers}
    made = topology_from_mapping({"nodes": nodes, "links": links, **clients}, "a test")
    return Network(made, seed, extended=1.0, settings=SETTINGS, load=lambda: 0.1)


def ways(network: Network) -> dict[object, tuple[str, str]]:
    """By track: the peer that its data goes to first, and why."""
    relay = network.nodes[HERE].relay
    assert relay is not None
    return {
        flow.key: (format_node_id(route.path.peer_id), route.reason)
        for flow in relay.fib
        for route in flow.routes.values()
        if route.path is not None
    }


def lanes(network: Network) -> list[Lane]:
    return [cable.lanes[0] for cable in network.cables[:2]]


def dropped(network: Network) -> int:
    return sum(it.traffic.dropped_streams + it.traffic.lost_datagrams for it in lanes(network))


def run(network: Network, seconds: float) -> int:
    """Let time pass; how often a track took another way."""
    changes, before, end = 0, ways(network), network.now + seconds
    while network.now < end:
        network.run(1.0)
        now = ways(network)
        changes += sum(now[it][0] != before[it][0] for it in now.keys() & before.keys())
        before = now
    return changes


def nightly(seed: int) -> ParameterSet:
    """A seed that is left for the night."""
    return pytest.param(seed, marks=pytest.mark.nightly)


@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_narrow_links_share_what_one_of_them_cannot_carry(seed: int) -> None:
    network = parallel(TRACKS, LINK_MBIT, seed)
    network.run(5.0)
    assert Counter(via for via, _ in ways(network).values()) == {"1:8": TRACKS}
    network.run(5.0)
    assert dropped(network) > 0, "one link carries not all of it"
    assert run(network, 110.0) <= 2 * TRACKS
    lost = dropped(network)
    assert run(network, 120.0) == 0
    assert dropped(network) == lost
    assert not check_always(network)
    assert sorted(Counter(via for via, _ in ways(network).values()).values())[0] >= 4
    assert all(lane.waiting_s < 0.2 for lane in lanes(network))
    moved = [why for via, why in ways(network).values() if via == "1:9"]
    assert all("the path via 1:8 passes 1:1-1:8, which is" in why for why in moved)


@pytest.mark.parametrize("seed", [0, nightly(1)])
def test_narrow_links_of_which_none_carries_a_track_do_not_have_it_swing(seed: int) -> None:
    network = parallel(1, 0.07, seed)
    network.run(5.0)
    early, late = run(network, 600.0), run(network, 1200.0)
    assert early <= 10
    assert late <= 5


def test_narrow_links_that_are_wide_enough_change_nothing() -> None:
    network = parallel(TRACKS, 10.0, 1)
    network.nodes[HERE].capacity_bps = 5_000_000
    network.run(5.0)
    assert run(network, 60.0) == 0
    assert {via for via, _ in ways(network).values()} == {"1:8"}
    metrics = network.nodes[THERE].relay
    assert metrics is not None
    said = metrics.weighing.metrics.get(HERE)
    assert said is not None
    assert said.full_links == ()
    assert said.egress_bps > 800_000
