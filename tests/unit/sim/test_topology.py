"""What a topology may say, how it is refused, and what the generators make."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from laps.errors import ConfigError
from laps.sim import generators
from laps.sim.topology import Topology, check, load_topology, topology_from_mapping
from laps.types import PeerMode, format_node_id, parse_node_id

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sim").glob("*.toml"))

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
"""


def read(text: str) -> Topology:
    return topology_from_mapping(tomllib.loads(text), "net.toml")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("net.toml: ")
    assert len(message.splitlines()) == 1
    return message.removeprefix("net.toml: ")


def test_every_key_can_be_written() -> None:
    topology = read("""
        [[nodes]]
        id = "1:1"
        type = "via"
        region = "west"
        latitude = 47
        longitude = -122.3
        reflect = true
        [[nodes]]
        id = "1:2"
        [[links]]
        a = "1:1"
        b = "1:2"
        delay_ms = 12.5
        jitter_ms = 1
        loss = 0.01
        bandwidth_mbit = 100
        mode = "data"
        dial = "both"
        [[publishers]]
        node = "1:2"
        namespace = ["demo", "x"]
        name = "t"
        objects_per_s = 25
        objects_per_group = 50
        object_bytes = 1000
        datagrams = 0.5
        [[subscribers]]
        node = "1:2"
        namespace = ["demo", "x"]
        name = "t"
    """)
    (link,) = topology.links
    assert link.a == parse_node_id("1:1")
    assert (link.mode, link.dial, link.bandwidth_mbit) == (PeerMode.DATA, "both", 100.0)
    assert topology.nodes[0].reflect
    assert topology.publishers[0].namespace == ["demo", "x"]
    assert topology.subscribers[0].name == "t"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[nodes]]", 'nodes[1]: id is missing: give a node id in quotes, like "1.2:1234"'),
        ("[[nodes]]\nid = 1", "nodes[1]: id = 1: must be a node id in quotes"),
        ('[[nodes]]\nid = "1"', 'nodes[1]: id = "1": needs a colon: high:low, like 1.2:1234'),
        ('[[nodes]]\nid = "1:1"\n[[nodes]]\nid = "1:1"', 'nodes[2]: id = "1:1": is taken'),
        ('[[nodes]]\nid = "1:1"\ntype = "Edge"', '= "Edge": must be one of "edge", "via", "stub"'),
        (
            '[[nodes]]\nid = "1:1"\nlatitud = 1',
            "unknown key, did you mean latitude? known:",
        ),
        ('[[nodes]]\nid = "1:1"\nlatitude = 91', "latitude = 91: must be a number from -90 to 90"),
        ('[[nodes]]\nid = "1:1"\nreflect = true', "reflect = true: is for a via, and the node is"),
        ("[nodes]\nid = 1", "must be tables: [[nodes]]"),
        ("[[node]]\nid = 1", "unknown table, did you mean nodes? known: nodes, links"),
        (NODES + '[[links]]\na = "1:1"', "links[1]: b is missing: give a node id in quotes"),
        (NODES + '[[links]]\na = "1:1"\nb = "9:9"', 'b = "9:9": is no node: add it to [[nodes]]'),
        (NODES + '[[links]]\na = "1:1"\nb = "1:1"', 'b = "1:1": is a itself: a link has two ends'),
        (NODES + '[[links]]\na = "1:1"\nb = "1:2"\nloss = 1', "loss = 1: must be a number from 0"),
        (NODES + '[[links]]\na = "1:1"\nb = "1:2"\nbandwidth_mbit = 0', "greater than 0, at most"),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"\nmode = "all"',
            'one of "control", "data", "both"',
        ),
        (NODES + '[[links]]\na = "1:1"\nb = "1:2"\ndelay_ms = -1', "must be a number from 0 to"),
        (NODES + '[[links]]\na = "1:1"\nb = "1:4"', 'mode = "both": must be "control": b is a'),
        (
            NODES + '[[links]]\na = "1:3"\nb = "1:2"',
            'a = "1:3": is a stub: it peers with edges only',
        ),
        (NODES + '[[links]]\na = "1:1"\nb = "1:3"', 'dial = "a": must be "b": a stub dials and is'),
        (
            NODES + '[[links]]\na = "1:3"\nb = "1:1"\nmode = "data"',
            'mode = "data": must be "both": a is a stub',
        ),
        (
            NODES + '[[links]]\na = "1:1"\nb = "1:2"\n[[links]]\na = "1:2"\nb = "1:1"',
            'links[2]: mode = "both": must be "data": another link between the two has the control',
        ),
        (
            NODES + '[[publishers]]\nnode = "1:2"\nnamespace = ["x"]',
            'publishers[1]: node = "1:2": is a via: clients go to an edge or a stub',
        ),
        (NODES + '[[subscribers]]\nnode = "1:1"\nnamespace = []', "a list of 1 to 32 parts"),
        (NODES + '[[subscribers]]\nnode = "8:8"\nnamespace = ["x"]', 'node = "8:8": is no node'),
    ],
)
def test_what_is_wrong_is_refused_with_the_way_out(text: str, problem: str) -> None:
    assert problem in refusal(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    with pytest.raises(ConfigError, match=r"net\.toml: cannot be read: No such file"):
        load_topology(path)
    path.write_text("[[nodes]\n")
    with pytest.raises(ConfigError, match=r"net\.toml:1: not TOML: "):
        load_topology(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"not UTF-8 at byte 0"):
        load_topology(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_reads(path: Path) -> None:
    topology = load_topology(path)
    assert topology.publishers
    assert topology.subscribers


# --- generators ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topology",
    [
        generators.ring(5),
        generators.ring(2),
        generators.star(5),
        generators.random(30, seed=1),
        generators.regions(5, 4, 7),
        generators.regions(1, 3, 1, control=0),
        generators.with_clients(generators.random(30, seed=2), 4, 12, seed=2),
    ],
    ids=["ring", "pair", "star", "random", "regions", "region", "clients"],
)
def test_what_is_generated_is_a_network_in_one_piece(topology: Topology) -> None:
    check(topology, "generated")
    near: dict[int, set[int]] = {node.id: set() for node in topology.nodes}
    for link in topology.links:
        near[link.a].add(link.b)
        near[link.b].add(link.a)
    seen, queue = {topology.nodes[0].id}, [topology.nodes[0].id]
    while queue:
        for other in near[queue.pop()] - seen:
            seen.add(parse_node_id(format_node_id(other)))  # type: ignore[arg-type]
            queue.append(other)  # type: ignore[arg-type]
    assert seen == set(near)


def test_a_seed_decides_what_is_generated() -> None:
    assert generators.random(20, seed=1) == generators.random(20, seed=1)
    assert generators.random(20, seed=1) != generators.random(20, seed=2)


def test_regions_have_as_many_nodes_as_asked_for() -> None:
    topology = generators.regions(30, 30, 100)
    kinds = [node.type for node in topology.nodes]
    assert [kinds.count(kind) for kind in ("edge", "via", "control")] == [900, 100, 2]
