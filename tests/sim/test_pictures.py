"""The pictures of the peering document, as networks that compute what is printed there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from laps.sim.invariants import (
    check_always,
    check_delivery,
    check_empty,
    check_no_clients,
    check_paths,
    check_subscribes,
)
from laps.sim.network import Network
from laps.sim.topology import Link, Topology, load_topology
from laps.types import NodeId, format_node_id, parse_node_id

EXAMPLES = Path(__file__).parents[2] / "examples" / "sim"


def network_of(topology: Topology) -> Network:
    """Without chance in its round trips, so that they are those of the picture."""
    network = Network(topology, seed=1, noise=0.0)
    network.settle()
    return network


def load(name: str) -> Topology:
    return load_topology(EXAMPLES / f"{name}.toml")


def paths(network: Network, node: str, target: str) -> list[tuple[int, float, str]]:
    """Hops, milliseconds and peer of every way from a node to a target, the best first."""
    relay = network.nodes[parse_node_id(node)].relay
    assert relay is not None
    return [
        (path.hops, path.srtt_us / 1000, format_node_id(path.peer_id))
        for path in relay.nodes.candidates(parse_node_id(target))
    ]


def sets(network: Network, node: str) -> dict[str, list[list[str]]]:
    """The subscriber node sets that a node has told each of its peers of."""
    at = network.nodes[parse_node_id(node)]
    assert at.relay is not None
    told: dict[str, list[list[str]]] = {}
    for flow in at.relay.fib:
        for link_id, out in flow.outs.items():
            peer = format_node_id(at.links[link_id].other.host.node_id)
            told.setdefault(peer, []).append([format_node_id(one) for one in sorted(out.nodes)])
    return told


def copies(network: Network) -> dict[tuple[str, str], int]:
    """How often the objects of one group passed each link."""
    (publisher,) = network.publishers
    group = max(one.group for one in publisher.published) - 1
    made = [one for one in publisher.published if one.group == group]
    found: dict[tuple[str, str], int] = {}
    for one in made:
        trail = network.trace.trails[one]
        for sender, to in trail.hops:
            pair = format_node_id(sender), format_node_id(to)
            found[pair] = found.get(pair, 0) + 1
    assert {count % len(made) for count in found.values()} <= {0}
    return {pair: count // len(made) for pair, count in found.items()}


# --- "Example Node Path for Node ID 1:1" -----------------------------------------------------


def test_the_six_nodes_compute_the_best_paths_that_are_printed() -> None:
    network = network_of(load("six-nodes"))
    best = {f"1:{n}": paths(network, f"1:{n}", "1:1")[0][:2] for n in range(2, 7)}
    assert best == {
        "1:2": (0, 25.0),
        "1:3": (1, 75.0),
        "1:4": (2, 135.0),
        "1:5": (0, 20.0),
        "1:6": (1, 60.0),
    }
    assert paths(network, "1:3", "1:1") == [(1, 75.0, "1:2"), (2, 150.0, "1:6")]


@pytest.mark.parametrize(("srtt_ms", "peer"), [(74.0, "1:6"), (76.0, "1:3")])
def test_a_new_connection_to_1_6_is_taken_if_it_is_faster(srtt_ms: float, peer: str) -> None:
    topology = load("six-nodes")
    new = Link(a=parse_node_id("1:4"), b=parse_node_id("1:6"), delay_ms=srtt_ms / 2)
    network = network_of(msgspec.structs.replace(topology, links=(*topology.links, new)))
    assert paths(network, "1:4", "1:1")[0] == (2, min(135.0, 60.0 + srtt_ms), peer)


# --- "Computed best path Topology with s-relays" ---------------------------------------------


def test_the_best_path_leaves_v_relay_1_out() -> None:
    network = network_of(load("best-path"))
    assert sets(network, "1:1") == {"2:2": [["3:2"]], "3:1": [["3:1"]]}
    assert sets(network, "2:2") == {"3:2": [["3:2"]]}
    assert sets(network, "2:1") == {}
    network.run(5.0)
    assert copies(network) == {("1:1", "2:2"): 1, ("2:2", "3:2"): 1, ("1:1", "3:1"): 1}


def test_without_the_peering_with_v_relay_2_the_way_is_v_relay_1() -> None:
    network = network_of(load("best-path"))
    network.cut(parse_node_id("1:1"), parse_node_id("2:2"))
    network.settle()
    assert sets(network, "1:1") == {"2:1": [["3:2"]], "3:1": [["3:1"]]}
    assert sets(network, "2:1") == {"2:2": [["3:2"]]}
    network.run(5.0)
    assert copies(network)["2:1", "2:2"] == 1


# --- "Source Routing Data Forwarding" --------------------------------------------------------


def test_source_routing_sends_one_copy_to_the_via_and_one_to_each_edge() -> None:
    network = network_of(load("source-routing"))
    edges = ["100.2:1", "100.2:2", "103.2:1"]
    assert sets(network, "101.2:10") == {"100.1:1": [edges]}
    assert sets(network, "100.1:1") == {edge: [[edge]] for edge in edges}
    network.run(5.0)
    expected = {("101.2:10", "100.1:1"): 1} | {("100.1:1", edge): 1 for edge in edges}
    assert copies(network) == expected
    assert {len(subscriber.got) for subscriber in network.subscribers} != {0}


# --- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_delivers_and_leaves_nothing_behind(path: Path) -> None:
    network = Network(load_topology(path), seed=7)
    network.settle()
    since = network.now
    network.run(4.0)
    found = [*check_always(network), *check_paths(network), *check_subscribes(network)]
    assert found + check_delivery(network, since, since + 2.0) == []
    network.dismiss_clients()
    network.settle()
    assert check_no_clients(network) == []
    network.part()
    network.settle()
    assert check_empty(network) == []


@pytest.mark.parametrize("server", ["9:1", "9:2"])
def test_either_control_server_can_be_lost(server: str) -> None:
    network = Network(load("control-servers"), seed=7)
    network.settle()
    network.crash(NodeId(parse_node_id(server)))
    network.settle()
    since = network.now
    network.run(4.0)
    assert check_subscribes(network) == []
    assert check_delivery(network, since, since + 2.0) == []
