"""What it takes until all nodes of a network know each other, and what they tell after that."""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from operator import ne
from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.relay.settings import RelaySettings
from laps.sim import generators
from laps.sim.invariants import check_always, check_delivery, check_subscribes
from laps.sim.network import CACHE, Network
from laps.wire.extension_fields import ExtensionType
from laps.wire.peering import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.sim.topology import Topology

OF_NODES = (
    MessageType.NODE_INFO_ADV,
    MessageType.NODE_INFO_WD,
    ExtensionType.NODE_LIST_ADV,
    ExtensionType.NODE_LIST_WD,
)


def started(
    topology: Topology, extended: float = 1.0, load: Callable[[], float] | None = None
) -> Network:
    settings = RelaySettings(cache=CACHE)
    wire = {"split": 0.0, "noise": 0.0, "extended": extended}
    return Network(topology, 1, **wire, settings=settings, load=load)


def sent(network: Network) -> Counter[int]:
    """Control messages by their type."""
    messages: Counter[int] = Counter()
    for _, _, traffic in network.traffic():
        messages += traffic.control_messages
    return messages


def node_messages(network: Network) -> int:
    messages = sent(network)
    return sum(messages[kind] for kind in OF_NODES)


def unknown(network: Network) -> list[str]:
    """Nodes that others do not know, but for Control servers: no data reaches these."""
    servers = {spec.id for spec in network.topology.nodes if spec.type == "control"}
    ids = [node.node_id for node in network.nodes.values() if node.node_id not in servers]
    found = []
    for node in network.nodes.values():
        assert node.relay is not None
        missing = [it for it in ids if it != node.node_id and node.relay.nodes.best(it) is None]
        found += [f"{node.name} does not know {it}" for it in missing]
    return found


# -- coming up -------------------------------------------------------------------------------------


def test_nodes_are_told_in_lists() -> None:
    topology = generators.regions(4, 12, 12)
    network = started(topology)
    network.settle()
    assert unknown(network) == []
    # Each link has the nodes told both ways, and what was better learned, a few times.
    ends = 2 * len(network.cables)
    assert node_messages(network) / ends < 5
    assert sent(network)[MessageType.NODE_INFO_ADV] / ends < 1


def test_relays_without_the_extensions_are_told_of_one_node_at_a_time() -> None:
    topology = generators.regions(3, 4, 4)
    network = started(topology, extended=0.0)
    network.settle()
    assert unknown(network) == []
    messages = sent(network)
    assert messages[MessageType.NODE_INFO_ADV] > len(network.nodes) * len(network.cables)
    assert max(messages) < min(ExtensionType)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Millions of objects live to the end: to look through them again and again takes minutes."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.nightly
@pytest.mark.usefixtures("no_collector")
def test_a_thousand_nodes_know_each_other_and_carry_tracks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topology = generators.with_clients(generators.regions(30, 30, 100), 5, 20, seed=1)
    began = time.process_time()
    network = started(topology)
    network.settle(limit_s=300.0)
    came_up = sent(network)
    took_s = time.process_time() - began
    with capsys.disabled():
        gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(  # noqa: T201 - the figures are what it is run for
            f"\n{len(network.nodes)} nodes, {len(network.cables)} links: {came_up.total()} messages"
            f" ({node_messages(network)} of nodes), {network.changed_at:.1f} s of virtual time,"
            f" {took_s:.0f} s of processor time, {gigabytes:.2f} GB"
        )
    assert unknown(network) == []
    assert node_messages(network) / (2 * len(network.cables)) < 40
    assert came_up.total() < 400_000
    since = network.now
    network.run(4.0)
    assert check_always(network) == []
    assert check_subscribes(network) == []
    assert check_delivery(network, since, since + 2.0) == []


# -- metrics ---------------------------------------------------------------------------------------


def test_metrics_cross_few_links_more_than_there_are_nodes() -> None:
    """Every node has news all the time; each hears it by its own way to the node."""
    rng = Random(1)
    network = started(generators.regions(3, 8, 9, control=0), load=rng.random)
    network.run(12.0)
    kind = ExtensionType.NODE_METRICS
    before = sent(network)[kind]
    bytes_before = [traffic.bytes_by_type[kind] for _, _, traffic in network.traffic()]
    messages = 0
    for _ in range(20):  # a node tells nothing twice in half a second
        told = sequences(network)
        network.run(0.5)
        messages += sum(map(ne, told, sequences(network)))
    most_bytes = max(
        traffic.bytes_by_type[kind] - was
        for (_, _, traffic), was in zip(network.traffic(), bytes_before, strict=True)
    )
    assert messages > 3 * len(network.nodes)
    # Each is heard by all other nodes; over each link both ways it would be three times as often.
    others = len(network.nodes) - 1
    assert 0.9 * others < (sent(network)[kind] - before) / messages < 1.5 * others
    assert 8 * most_bytes / 10.0 < 1_000_000
    # All but what is under way is known everywhere.
    assert stale(network) < others


def sequences(network: Network) -> list[int]:
    found = []
    for node in network.nodes.values():
        assert node.relay is not None
        own = node.relay.extensions.metrics.get(node.node_id)
        assert own is not None
        found.append(own.sequence)
    return found


def stale(network: Network) -> int:
    """How often a node has older metrics of another than that has told."""
    count = 0
    for node in network.nodes.values():
        for other, sequence in zip(network.nodes.values(), sequences(network), strict=True):
            assert node.relay is not None
            held = node.relay.extensions.metrics.get(other.node_id)
            count += held is None or held.sequence != sequence
    return count
