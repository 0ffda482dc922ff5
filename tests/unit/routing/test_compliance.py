"""What a policy would refuse, found before it is rolled out."""

from __future__ import annotations

from typing import Any

from laps.policy import policy_from_mapping
from laps.routing.compliance import Demand, Findings, Network, Relay, review
from laps.types import NodeId, parse_node_id


def pair(a: str, b: str) -> tuple[NodeId, NodeId]:
    return parse_node_id(a), parse_node_id(b)


def tried(tables: dict[str, Any], *wanted: tuple[str, str, str]) -> Findings:
    """Two edges in the US, one in Europe, and a server between that carries control alone."""
    kinds = {"1:1": "edge", "1:2": "edge", "2:1": "edge", "9:9": "control", "7:7": "stub"}
    relays = [
        Relay(parse_node_id(it), kind, "eu" if it in ("2:1", "9:9") else "us")
        for it, kind in kinds.items()
    ]
    stub = pair("7:7", "1:2")
    data = [pair("1:1", "1:2"), pair("1:2", "2:1"), stub]
    control = [*(pair(it, "9:9") for it in ("1:1", "1:2", "2:1")), stub]
    network = Network(relays, data, control)
    demand = [
        Demand(track, edge, target)
        for track, publisher, subscriber in wanted
        for edge in network.edges_of(parse_node_id(publisher))
        for target in network.edges_of(parse_node_id(subscriber))
    ]
    return review(policy_from_mapping(tables, "a test"), network, demand)


def whys(found: Findings) -> list[str]:
    return [it.why for it in found.wanted]


def test_compliance_tries_what_clients_of_stubs_want_at_their_edge() -> None:
    rule = {"tracks": "clinic/*", "inside": ["eu"]}
    found = tried({"rule": [rule]}, ("clinic/t", "2:1", "7:7"))
    assert whys(found) == ["1:2 is in us, and the track stays inside eu"]
    assert not found.is_clean


def test_compliance_names_publishers_that_never_hear_who_subscribes() -> None:
    found = tried({"rule": [{"tracks": "*", "told": ["eu"]}]}, ("a/b", "1:1", "2:1"))
    assert whys(found) == ["1:1 is in us, which is not told who subscribes"]
    # The server that all of them speak with is elsewhere.
    found = tried({"rule": [{"tracks": "*", "inside": ["us"]}]}, ("a/b", "1:1", "1:2"))
    assert whys(found) == ["no relay that is told who subscribes leads to 1:1"]
    found = tried({"rule": [{"tracks": "*", "told": ["us", "eu"]}]}, ("a/b", "1:1", "2:1"))
    assert found.is_clean


def test_compliance_names_a_rule_that_tells_only_those_who_may_not_have_the_tracks() -> None:
    found = tried({"rule": [{"tracks": "a/*", "inside": ["us"], "told": ["eu"]}]})
    assert found.advice == ["rule[1] tells only relays in eu, where the tracks may not be"]
    assert not found.is_clean
