"""What a topology file may say, what is made of it, and how it is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from laps.errors import ConfigError
from laps.policy import policy_from_mapping
from laps.spark.planner.demand import Track, demand_of, track_hash
from laps.spark.planner.network import Link, Node, network
from laps.spark.planner.problem import pose
from laps.spark.planner.topology import Topology, load_topology, topology_from_mapping
from laps.types import TrackName, hash_track

EXAMPLES = Path(__file__).parents[4] / "examples"
POLICY = policy_from_mapping({}, "policy.toml")

NODES = """
    [[nodes]]
    id = "1:1"
    [[nodes]]
    id = "1:2"
    type = "via"
    [[nodes]]
    id = "1:3"
    type = "stub"
    [[nodes]]
    id = "1:4"
    type = "control"
    [[nodes]]
    id = "1:5"
"""
LINKS = """
    [[links]]
    a = "1:1"
    b = "1:2"
    [[links]]
    a = "1:2"
    b = "1:5"
    [[links]]
    a = "1:3"
    b = "1:5"
    delay_ms = 4
    [[links]]
    a = "1:1"
    b = "1:3"
    delay_ms = 3
"""


def read(text: str) -> Topology:
    return topology_from_mapping(tomllib.loads(text), "net.toml")


def demand(text: str) -> tuple[Track, ...]:
    return demand_of(read(text), POLICY)


def posed(text: str) -> None:
    topology = read(text)
    tracks = demand_of(topology, POLICY)
    pose(network(topology.nodes, topology.links), POLICY, tracks, sources=("net.toml", ""))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        posed(text)
    message = str(caught.value)
    assert message.startswith("net.toml: ")
    assert len(message.splitlines()) == 1
    return message.removeprefix("net.toml: ")


def test_every_key_can_be_written() -> None:
    topology = read("""
        [[nodes]]
        id = "1:1"
        type = "edge"
        region = "west"
        latitude = 47
        longitude = -122.3
        capacity_mbit = 2000
        [[nodes]]
        id = "0.1:2"
        type = "via"
        [[links]]
        a = "1:1"
        b = "1:2"
        srtt_ms = 12.5
        bandwidth_mbit = 0.5
        transits = ["ca", "bc", "ca"]
        [[publishers]]
        node = "1:1"
        namespace = "demo/a"
        name = "clock"
        rate_mbit = 4.0005
        class = "gold"
        [[subscribers]]
        node = "1:1"
        namespace = ["demo", "a"]
        name = "clock"
    """)
    assert topology.nodes == (
        Node("1:1", "edge", "west", 47.0, -122.3, 2_000_000_000),
        Node("1:2", "via"),
    )
    assert topology.links == (Link(0, 1, 12_500, 500_000, ("bc", "ca")),)
    assert topology.publishers[0].namespace == ("demo", "a")
    # Whole kilobits, rounded up.
    assert topology.publishers[0].rate_bps == 4_001_000
    assert topology.regions == {"west", "", "ca", "bc"}


@pytest.mark.parametrize("path", sorted((EXAMPLES / "sim").glob("*.toml")), ids=lambda p: p.name)
def test_a_network_that_is_simulated_can_be_planned_for(path: Path) -> None:
    topology = load_topology(path)
    tracks = demand_of(topology, POLICY)
    problem = pose(network(topology.nodes, topology.links), POLICY, tracks)
    assert len(tracks) > 0
    assert all(problem.network.is_edge[track.origin] for track in problem.tracks)


def test_json_with_the_same_tables_reads_as_well(tmp_path: Path) -> None:
    source = EXAMPLES / "plan" / "topology.toml"
    as_json = tmp_path / "topology.json"
    as_json.write_text(json.dumps(tomllib.loads(source.read_text())))
    assert load_topology(as_json).links == load_topology(source).links
    assert load_topology(as_json).publishers == load_topology(source).publishers


def test_a_publisher_of_a_namespace_publishes_what_is_asked_for_below_it() -> None:
    (one, other) = demand(
        NODES
        + LINKS
        + """
        [[publishers]]
        node = "1:1"
        namespace = ["demo"]
        objects_per_s = 50
        object_bytes = 1000
        [[publishers]]
        node = "1:5"
        namespace = ["demo", "a"]
        name = "clock"
        [[subscribers]]
        nodes = ["1:1", "1:5", "1:1"]
        namespace = ["demo", "a"]
        name = "clock"
        [[subscribers]]
        node = "1:5"
        namespace = ["demo", "a"]
        """
    )
    assert (one.label, one.origin, one.relays, one.rate_bps) == ("demo/a/clock", 4, (0,), 16_000)
    assert (other.label, other.origin, other.relays) == ("demo/a/track", 0, (4,))
    assert other.rate_bps == 400_000
    name = TrackName((b"demo", b"a"), b"clock")
    assert one.hash == hash_track(name).full_name_hash == track_hash(("demo", "a"), "clock")


def test_clients_of_a_stub_count_for_the_edge_that_is_nearest_to_it() -> None:
    (track,) = demand(
        NODES
        + LINKS
        + """
        [[publishers]]
        node = "1:5"
        namespace = ["demo"]
        [[subscribers]]
        nodes = ["1:3", "1:1"]
        namespace = ["demo"]
        """
    )
    assert track.relays == (0,)


def test_links_for_control_alone_carry_nothing() -> None:
    topology = read(NODES + '[[links]]\na = "1:1"\nb = "1:4"\nmode = "control"')
    assert topology.links == ()


CLIENTS = """
    [[publishers]]
    node = "1:1"
    namespace = ["demo"]
    [[subscribers]]
    node = "1:5"
    namespace = ["demo"]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nodes: there are none: describe each relay in [[nodes]]"),
        (
            '[[node]]\nid = "1:1"',
            (
                'node = [{"id": "1:1"}]: unknown table, did you mean nodes? '
                "known: nodes, links, publishers, subscribers"
            ),
        ),
        ('[nodes]\nid = "1:1"', 'nodes = {"id": "1:1"}: must be tables: [[nodes]]'),
        ("[[nodes]]", 'nodes[1]: id is missing: give a node id in quotes, like "1.2:1234"'),
        (
            '[[nodes]]\nid = "11"',
            'nodes[1]: id = "11": needs a colon: high:low, like 1.2:1234',
        ),
        (
            '[[nodes]]\nid = "1:1"\n[[nodes]]\nid = "0.1:1"',
            'nodes[2]: id = "1:1": is taken: every node has its own',
        ),
        (
            '[[nodes]]\nid = "1:1"\ncapacity = 1',
            (
                "nodes[1]: capacity = 1: unknown key, did you mean capacity_mbit? known: id, type, "
                "region, latitude, longitude, capacity_mbit, reflect"
            ),
        ),
        (
            '[[nodes]]\nid = "1:1"\ncapacity_mbit = -5',
            "nodes[1]: capacity_mbit = -5: must be a number greater than 0, at most 1000000000",
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "9:9"',
            'links[1]: b = "9:9": is no node: add it to [[nodes]]',
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:1"',
            'links[1]: b = "1:1": is a itself: a link has two ends',
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"\ndelay_ms = -1',
            "links[1]: delay_ms = -1: must be a number from 0 to 10000",
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"\ndelay_ms = 1\nsrtt_ms = 2',
            (
                "links[1]: srtt_ms = 2.0: delay_ms says it too: give the delay one way, "
                "or the round trip"
            ),
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"\ntransits = "ca"',
            'links[1]: transits = "ca": must be a list of regions, like ["ca", "us"]',
        ),
        (
            NODES + '[[publishers]]\nnode = "1:2"\nnamespace = ["a"]',
            'publishers[1]: node = "1:2": is a via: clients go to an edge or a stub',
        ),
        (
            NODES + '[[subscribers]]\nnodes = ["1:1", "1:9"]\nnamespace = ["a"]',
            'subscribers[1]: nodes = "1:9": is no node: add it to [[nodes]]',
        ),
        (
            NODES + '[[subscribers]]\nnamespace = ["a"]',
            'subscribers[1]: give node = "2:1", or nodes = ["2:1", "2:2"]: one of them',
        ),
        (
            NODES + '[[subscribers]]\nnode = "1:1"\nnamespace = ["a", ""]',
            (
                'subscribers[1]: namespace = ["a", ""]: must be a list of 1 to 32 parts, '
                'like ["demo", "x"]'
            ),
        ),
        (
            NODES,
            (
                "subscribers: there are none, and so there is nothing to plan: describe who wants "
                "which track in [[subscribers]], or give --tables"
            ),
        ),
        (
            NODES + '[[subscribers]]\nnode = "1:1"\nnamespace = ["a"]\nname = "b"',
            "subscribers[1]: nobody publishes a/b: describe who does in [[publishers]]",
        ),
        (
            NODES + LINKS + CLIENTS + '[[publishers]]\nnode = "1:5"\nnamespace = ["demo"]',
            (
                "subscribers[1]: demo/track is published twice, at 1:1 and 1:5: a plan is for one "
                "o-relay, so leave one of them"
            ),
        ),
        (
            NODES + LINKS + CLIENTS.replace('["demo"]\n', '["demo"]\nclass = "golden"\n', 1),
            (
                'publishers[1]: class = "golden": is no class of the policy, did you mean '
                "gold? known: gold, silver, bronze"
            ),
        ),
        (
            NODES + CLIENTS,
            (
                "node 1:5 cannot be reached from 1:1, where demo/track is published: add "
                "a link that joins 1:1 to the rest of the network"
            ),
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"' + CLIENTS,
            (
                "node 1:5 cannot be reached from 1:1, where demo/track is published: add "
                "a link that joins 1:5 to the rest of the network"
            ),
        ),
        (
            NODES + CLIENTS.replace("1:5", "1:3"),
            (
                "node 1:3 has clients and is a stub that peers with no edge: add a link "
                "that joins it to one"
            ),
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_the_way_out(text: str, words: str) -> None:
    assert refusal(text) == words


def test_a_node_that_nobody_uses_may_be_out_of_reach() -> None:
    assert len(demand(NODES + LINKS + CLIENTS + '[[nodes]]\nid = "7:7"')) == 1
