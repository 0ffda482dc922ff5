"""Whole networks whose relays probe each other, and tell how they are at a pace for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import msgspec
import pytest

from laps.coordinates import distance_ms
from laps.relay.settings import ExtensionSettings, ProbeSettings, RelaySettings
from laps.sim import generators
from laps.sim.network import CACHE, Network
from laps.types import NodeType
from laps.wire.extension_fields import ExtensionType

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.sim.topology import Topology

PROBING = RelaySettings(cache=CACHE, probing=ProbeSettings(enabled=True, rate=2.0))
ROUNDS_S = 120.0


def network(topology: Topology, seed: int, settings: RelaySettings = PROBING) -> Network:
    return Network(topology, seed, extended=1.0, settings=settings, load=lambda: 0.2)


def relays(of: Network) -> list[Relay]:
    """Those that are up and measure."""
    found = [node.relay for node in of.nodes.values() if node.role.value in ("edge", "via")]
    return [relay for relay in found if relay is not None]


# -- coordinates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))]
)
def test_coordinates_of_a_network_come_to_tell_its_round_trips(seed: int) -> None:
    net = network(generators.random(20, seed), seed)
    net.run(ROUNDS_S)
    found = relays(net)
    errors = []
    for number, one in enumerate(found):
        for other in found[:number]:
            there, back = (
                net.underlay.delay_s(one.id, other.id),
                net.underlay.delay_s(other.id, one.id),
            )
            assert there is not None
            assert back is not None
            real = 1000 * (there + back)
            said = distance_ms(one.places.own.place, other.places.own.place)
            errors.append(abs(said - real) / real)
    assert median(errors) < 0.2


def test_probes_find_round_trips_to_nodes_that_are_no_peers() -> None:
    net = network(generators.random(24, 3), 3)
    net.run(60)
    seen = 0
    for relay in relays(net):
        for it in relay.probing:
            assert it.node_id not in relay.peers
            info = relay.nodes.info(it.node_id)
            assert info is not None
            assert info.type is not NodeType.STUB
            if it.rtt_ms is None:
                continue
            seen += 1
            one_way = net.underlay.delay_s(relay.id, it.node_id)
            assert one_way is not None
            assert it.rtt_ms == pytest.approx(2000 * one_way, rel=0.03)
            # Others that hear of it know it without having measured.
            assert relay.places.round_trip(relay.id, it.node_id) == it.rtt_ms / 1000
    assert seen > 50


def test_probes_see_a_node_that_is_down_and_forget_it() -> None:
    net = network(generators.star(6), 1)
    net.run(30)
    left, right = [*net.nodes.values()][1:3]
    assert left.relay is not None
    assert left.relay.probing.of(right.node_id) is not None
    net.crash(right.spec.id, noticed=True)
    net.run(30)
    assert left.relay.probing.of(right.node_id) is None
    net.restart(right.spec.id)
    net.run(60)
    assert left.relay.probing.of(right.node_id) is not None


def test_a_node_that_lies_about_its_place_is_named_by_others() -> None:
    topology = generators.random(16, 5)
    nodes = [*topology.nodes]
    liar = next(it for it in nodes[1:] if it.type == "edge")
    honest = liar.latitude, liar.longitude
    moved = msgspec.structs.replace(
        liar, latitude=-honest[0] or 1.0, longitude=(honest[1] + 360) % 360 - 180
    )
    net = network(topology, 5)
    # It says another place than the one that packets know.
    net.nodes[liar.id].said = moved.latitude, moved.longitude
    net.run(ROUNDS_S)
    named = {
        it.event.subject
        for relay in relays(net)
        for it in relay.journal.recent()
        if it.event.name == "place_false"
    }
    assert named == {net.nodes[liar.id].name}


# -- what metrics cost -----------------------------------------------------------------------------


@dataclass
class Flood:
    """What links carried of NODE_METRICS in some time, each way."""

    most_bps: float
    mean_bps: float
    crossings_a_node_s: float
    "How often a message of a node crosses some link."


def flood(topology: Topology, seed: int, settings: RelaySettings, seconds: float) -> Flood:
    """Every node has news every two seconds, some of it urgent; what links carry of it."""
    rng = Random(seed)
    net = Network(
        topology, seed, extended=1.0, settings=settings, load=lambda: rng.uniform(0.0, 1.0)
    )
    net.run(15)
    kind = ExtensionType.NODE_METRICS
    before = [traffic.bytes_by_type[kind] for _, _, traffic in net.traffic()]
    told = sum(traffic.control_messages[kind] for _, _, traffic in net.traffic())
    net.run(seconds)
    after = [traffic.bytes_by_type[kind] for _, _, traffic in net.traffic()]
    rates = [8 * (b - a) / seconds for a, b in zip(before, after, strict=True)]
    messages = sum(traffic.control_messages[kind] for _, _, traffic in net.traffic()) - told
    size = len(topology.nodes)
    return Flood(max(rates), sum(rates) / len(rates), messages / size / seconds)


def test_metrics_stay_within_their_part_of_the_links() -> None:
    """A budget that 20 nodes feel, as a thousand do that of half a megabit."""
    topology = generators.regions(4, 4, 4, control=0)
    free = flood(topology, 1, RelaySettings(cache=CACHE), 20)
    tight = ExtensionSettings(metrics_bps=4_000)
    kept = flood(topology, 1, RelaySettings(cache=CACHE, extensions=tight), 60)
    assert free.most_bps > 8_000
    assert kept.most_bps < 4_000 * 1.25, "also while half of the news is urgent"
    assert kept.crossings_a_node_s > 0


@pytest.mark.nightly
def test_metrics_of_a_thousand_nodes_take_less_than_a_megabit_of_a_link() -> None:
    # What crosses every link once crosses it once whatever the links are: few of them are enough.
    topology = generators.regions(10, 99, 10, control=0)
    assert len(topology.nodes) == 1000
    found = flood(topology, 1, RelaySettings(cache=CACHE), 20)
    print(found)  # noqa: T201 - the figure
    assert found.most_bps < 1_000_000
