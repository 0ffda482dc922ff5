"""What a lab consists of, made or read, and the ways that relays take in it."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laps.errors import ConfigError
from laps.lab.cities import CITIES, delay_ms, distance_km
from laps.lab.network import load_network, network_from_mapping, standard
from laps.lab.processes import SETTINGS
from laps.lab.running import Lab
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.lab.network import Network

EXAMPLE = Path(__file__).parents[3] / "examples" / "lab" / "lab.toml"


def best_way(network: Network, near: str, far: str, without: str = "") -> list[str]:
    """As relays select: the fewest hops, then the lowest round trip; empty: there is none."""
    neighbours: dict[str, list[tuple[str, float]]] = {}
    for link in network.links:
        a, b = format_node_id(link.a), format_node_id(link.b)
        if link.mode is PeerMode.CONTROL or without in (a, b):
            continue
        neighbours.setdefault(a, []).append((b, link.delay_ms))
        neighbours.setdefault(b, []).append((a, link.delay_ms))
    ways = [(0.0, [near])]
    while ways:
        if arrived := [way for way in ways if way[1][-1] == far]:
            return min(arrived)[1]
        ways = [
            (delay + more, [*way, following])
            for delay, way in ways
            for following, more in neighbours.get(way[-1], ())
            if following not in way
        ]
    return []


def test_the_standard_lab_is_what_the_readme_says() -> None:
    network = standard()
    roles = [node.type for node in network.nodes]
    assert {role: roles.count(role) for role in roles} == {
        "control": 2,
        "via": 3,
        "edge": 6,
        "stub": 1,
    }
    assert {node.region for node in network.nodes} == {"Frankfurt", "Virginia", "Singapore"}
    assert {publisher.kind for publisher in network.publishers} == {"clock", "video", "sensor"}
    assert {"moqt", "quicr"} == {subscriber.protocol for subscriber in network.subscribers}
    homes = {publisher.track: publisher.node for publisher in network.publishers}
    for subscriber in network.subscribers:
        assert subscriber.node.partition(":")[0] != homes[subscriber.track].partition(":")[0]


def test_data_goes_by_the_vias_with_one_copy_between_regions() -> None:
    network = standard()
    assert best_way(network, "1:1", "2:1") == ["1:1", "1:100", "2:100", "2:1"]
    assert best_way(network, "1:1", "2:2") == ["1:1", "1:100", "2:100", "2:2"]
    assert best_way(network, "1:1", "3:1") == ["1:1", "1:100", "3:100", "3:1"]


@pytest.mark.parametrize(("regions", "edges"), [(2, 1), (3, 2), (5, 3)])
def test_without_any_one_via_every_edge_still_reaches_every_other(regions: int, edges: int) -> None:
    network = standard(regions, edges)
    relays = dict(zip(network.names, network.nodes, strict=True))
    places = [name for name, node in relays.items() if node.type == "edge"]
    for via in (name for name, node in relays.items() if node.type == "via"):
        for far in places:
            assert best_way(network, "1:1", far, without=via), f"1:1 to {far} without {via}"


def test_delays_are_those_of_light_in_cables() -> None:
    frankfurt, virginia = CITIES[:2]
    assert 6_400 < distance_km(frankfurt, virginia) < 6_700
    assert 45 < delay_ms(frankfurt, virginia) < 55
    assert delay_ms(frankfurt, frankfurt) == 0
    assert max(delay_ms(a, b) for a, b in pairwise(CITIES)) < 150


def test_a_size_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="--regions 13: must be from 1 to 12"):
        standard(13, 2)
    with pytest.raises(ConfigError, match="--edges 0: must be from 1 to 20"):
        standard(3, 0)


def test_the_example_reads() -> None:
    network = load_network(EXAMPLE)
    assert network.publishers
    assert {subscriber.track for subscriber in network.subscribers} <= {
        publisher.track for publisher in network.publishers
    }


NODES = """
    [[nodes]]
    id = "1:1"
    [[nodes]]
    id = "1:2"
    type = "via"
"""


def refusals() -> Iterable[tuple[str, str]]:
    yield "", "lab.toml: has no [[nodes]]"
    yield '[[nodes]]\nid = "1"', 'lab.toml: nodes[1]: id = "1": needs a colon'
    yield NODES + "[[wires]]\na = 1", "lab.toml: wires = "
    yield (
        NODES + '[[links]]\na = "1:1"\nb = "1:2"\nbandwidth_mbit = 0',
        "links[1]: bandwidth_mbit",
    )
    yield NODES + '[[publishers]]\nnode = "1:1"', "publishers[1]: missing required field `track`"
    yield (
        NODES + '[[publishers]]\nnode = "1:1"\ntrack = "a"\nkind = "film"',
        "publishers[1]: kind: Invalid enum value 'film'",
    )
    yield (
        NODES + '[[publishers]]\nnode = "1:1"\ntrack = "a"\nrate = 3',
        "publishers[1]: contains unknown field `rate`",
    )
    yield NODES + '[[publishers]]\nnode = "9:9"\ntrack = "a"', 'node = "9:9": is no node'
    yield NODES + '[[publishers]]\nnode = "1:2"\ntrack = "a"', "is a via: clients go to an edge"
    yield NODES + '[[publishers]]\nnode = "one"\ntrack = "a"', 'node = "one": needs a colon'
    yield (
        NODES + 2 * '[[publishers]]\nnode = "1:1"\ntrack = "a"\n',
        'publishers[2]: track = "a": is published already',
    )
    yield (
        NODES + '[[subscribers]]\nnode = "1:1"\ntrack = "a"',
        'subscribers[1]: track = "a": has no publisher',
    )

    yield "settings = 3" + NODES, "settings: must have sections"
    yield NODES + "[settings.moving]\nper_minute = -1", "settings: moving.per_minute = -1: must be"
    yield NODES + "[settings.mowing]\nper_minute = 1", "settings: [mowing]: unknown"
    yield NODES + '[settings.node]\nid = "1:3"', "settings: [node] is what a lab decides itself"


@pytest.mark.parametrize(("text", "words"), list(refusals()))
def test_a_bad_file_is_refused_with_the_key(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        network_from_mapping(tomllib.loads(text), "lab.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("lab.toml: ")
    assert len(str(caught.value).splitlines()) == 1


def test_settings_of_a_file_are_laid_over_those_of_labs(tmp_path: Path) -> None:
    text = NODES + "[settings.moving]\nper_minute = 30\n[settings.relay]\nunsubscribe_s = 1"
    lab = Lab(network_from_mapping(tomllib.loads(text), "lab.toml"), tmp_path)
    settings = lab.relays["1:1"].settings
    assert settings["moving"] == {"per_minute": 30}
    assert settings["relay"] == {**SETTINGS["relay"], "unsubscribe_s": 1}
    assert settings["demand"] == SETTINGS["demand"]
    assert SETTINGS["moving"] == {"per_minute": 0}, "in other labs subscribers stay where they are"


def test_the_lab_that_moves_subscribers_reads() -> None:
    network = load_network(EXAMPLE.with_name("moving.toml"))
    assert network.settings["moving"]["per_minute"] == 30
    assert len({subscriber.node for subscriber in network.subscribers}) == 3
