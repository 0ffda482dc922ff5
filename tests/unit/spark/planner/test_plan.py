"""Whole plans of small networks: what is decided, what is named infeasible, what it is worth."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from laps.policy import load_policy, policy_from_mapping
from laps.spark.planner.demand import demand_of
from laps.spark.planner.network import network
from laps.spark.planner.plan import Plan, describe, make_plan
from laps.spark.planner.problem import pose
from laps.spark.planner.topology import load_topology, topology_from_mapping

EXAMPLES = Path(__file__).parents[4] / "examples" / "plan"


def node(name: str, region: str, role: str = "edge", **more: Any) -> dict[str, Any]:
    return {"id": name, "region": region, "type": role} | more


def link(a: str, b: str, delay_ms: float, **more: Any) -> dict[str, Any]:
    return {"a": a, "b": b, "delay_ms": delay_ms} | more


def two_regions(**changes: Any) -> dict[str, Any]:
    """An o-relay in us, three s-relays in eu, and a Via there: 40 ms directly, 45 by the Via."""
    return {
        "nodes": [
            node("1:1", "us"),
            node("2:1", "eu", "via", **changes.pop("via", {})),
            node("2:2", "eu"),
            node("2:3", "eu"),
            node("2:4", "eu"),
        ],
        "links": [
            link("1:1", "2:1", 40, **changes.pop("haul", {})),
            *(link("2:1", edge, changes.pop(edge, 5)) for edge in ("2:2", "2:3", "2:4")),
            *(link("1:1", edge, 40) for edge in ("2:2", "2:3", "2:4")),
        ],
        "publishers": [{"node": "1:1", "namespace": ["a"], "rate_mbit": 10}],
        "subscribers": [
            {"nodes": changes.pop("at", ["2:2", "2:3", "2:4"]), "namespace": ["a"], "name": name}
            for name in changes.pop("tracks", ["x"])
        ],
    }


def planned(topology: dict[str, Any], policy: str = "", today: Any = None) -> Plan:
    read = topology_from_mapping(topology, "net.toml")
    wanted = policy_from_mapping(tomllib.loads(policy), "policy.toml")
    tracks = demand_of(read, wanted)
    return make_plan(pose(network(read.nodes, read.links), wanted, tracks, today=today))


def vias(plan: Plan) -> dict[tuple[str, str], str]:
    tracks = plan.problem.tracks
    return {(tracks[one.track].label, one.region): one.via for one in plan.assignments}


def test_three_s_relays_in_a_region_get_one_copy_by_its_via() -> None:
    plan = planned(two_regions())
    (one,) = plan.assignments
    assert (one.via, one.relays, one.long_haul_copies, one.origin_egress) == ("2:1", 3, 1, 1)
    assert one.delay_us == 45_000
    assert one.stretch == pytest.approx(1.125)
    assert one.cost == pytest.approx(11.0)
    assert (plan.today.long_haul_copies, plan.planned.long_haul_copies) == (3, 1)
    assert (plan.today.origin_egress_bps, plan.planned.origin_egress_bps) == (
        30_000_000,
        10_000_000,
    )
    assert (plan.today.p95_delay_us, plan.planned.p95_delay_us) == (40_000, 45_000)
    assert (plan.cost, plan.bound, plan.solution.gap) == (11.0, 11.0, 0.0)


def test_one_s_relay_in_a_region_is_sent_to_directly() -> None:
    plan = planned(two_regions(at=["2:3"]))
    assert vias(plan) == {("a/x", "eu"): ""}


def test_too_many_copies_and_a_detour_too_long_are_named_with_what_would_help() -> None:
    plan = planned(two_regions(**{"2:3": 70}), '[plan]\ndefault_class = "gold"')
    assert plan.assignments == ()
    (one,) = plan.infeasible
    assert describe(plan, one) == (
        "a/x in eu (3 s-relays): delay, fan-out: via 2:1: 110 ms to 2:3, 53 ms allowed; direct: 3 "
        "copies from the o-relay, 2 allowed. Would help: raise slack_ms of class gold to 62; or "
        "raise fan_out_per_region to 3"
    )
    # And it does help, each by itself.
    gold = '[plan]\ndefault_class = "gold"\n'
    assert vias(planned(two_regions(**{"2:3": 70}), gold + "fan_out_per_region = 3")) == {
        ("a/x", "eu"): ""
    }
    slack = "[class.gold]\nstretch = 1.2\nslack_ms = "
    assert not planned(two_regions(**{"2:3": 70}), gold + slack + "62").infeasible
    assert planned(two_regions(**{"2:3": 70}), gold + slack + "61.999").infeasible


def test_a_region_without_any_via_is_told_to_get_one() -> None:
    topology = two_regions()
    topology["nodes"][1]["type"] = "edge"
    plan = planned(topology)
    (one,) = plan.infeasible
    assert one.constraint == "fan-out"
    assert "there is no Via" in one.reason
    assert one.way_out == "raise fan_out_per_region to 3; or add a Via in eu"


def test_what_a_rule_forbids_is_named_by_the_node_or_the_transit() -> None:
    rule = '[[rule]]\ntracks = "a/*"\n'
    topology = two_regions(haul={"transits": ["ca"]})
    (one,) = planned(topology, rule + 'avoid = ["ca"]').infeasible
    assert one.constraint == "region rules, fan-out"
    assert "via 2:1: the link 1:1 to 2:1 transits ca, which is to be avoided" in one.reason
    (other,) = planned(topology, rule + 'inside = ["us", "ca"]').infeasible
    assert other.constraint == "region rules"
    assert "via 2:1: 2:1 is in eu, outside of ca, us" in other.reason
    assert "direct: 2:2 is in eu, outside of ca, us" in other.reason
    # No Via, however good, would help.
    assert other.way_out == "let the track go to eu"


def test_vias_that_were_not_looked_at_are_mentioned() -> None:
    topology = two_regions(**{"2:2": 500})
    topology["nodes"].append(node("3:1", "asia", "via"))
    topology["links"] += [link("3:1", edge, 1) for edge in ("1:1", "2:2", "2:3", "2:4")]
    (one,) = planned(topology, "[plan]\ncandidates = 1").infeasible
    assert one.way_out.endswith("; or raise candidates: 1 of 2 Vias were looked at")
    assert vias(planned(topology, "[plan]\ncandidates = 2")) == {("a/x", "eu"): "3:1"}


def test_what_does_not_fit_a_via_is_left_out_by_name_and_the_most_is_served() -> None:
    topology = two_regions(via={"capacity_mbit": 75}, tracks=["x", "y"])
    topology["publishers"].append({"node": "1:1", "namespace": ["a"], "name": "y", "rate_mbit": 20})
    plan = planned(topology)
    assert vias(plan) == {("a/y", "eu"): "2:1"}
    (one,) = plan.infeasible
    assert describe(plan, one) == (
        "a/x in eu (3 s-relays): capacity, fan-out: via 2:1: via 2:1 would have 90 of 75 Mbit/s; "
        "direct: 3 copies from the o-relay, 2 allowed. Would help: raise the capacity of via 2:1 "
        "to 90 Mbit/s, or add a Via in eu; or raise fan_out_per_region to 3"
    )
    # A limit that is met exactly is kept.
    topology["nodes"][1]["capacity_mbit"] = 90
    assert len(vias(planned(topology))) == 2


def test_a_link_that_is_full_in_one_direction_turns_tracks_away_and_is_named() -> None:
    topology = two_regions(haul={"bandwidth_mbit": 10}, tracks=["x", "y"])
    plan = planned(topology, "[plan]\nfan_out_per_region = 3")
    # One goes by the Via, the other as three copies on links that are free: dearer, and possible.
    assert sorted(vias(plan).values()) == ["", "2:1"]
    direct = next(one for one in plan.assignments if not one.via)
    assert direct.reason == ("via 2:1 comes first, but link 1:1 to 2:1 would have 20 of 10 Mbit/s")
    assert plan.planned.overloaded == ()
    # What goes the other way is no load for this one.
    topology["publishers"].append({"node": "2:2", "namespace": ["b"], "rate_mbit": 10})
    topology["subscribers"].append({"node": "1:1", "namespace": ["b"]})
    assert len(planned(topology, "[plan]\nfan_out_per_region = 3").assignments) == 3


def test_today_is_hub_and_spoke_and_its_overloads_are_named() -> None:
    topology = two_regions()
    topology["links"][4]["bandwidth_mbit"] = 8
    plan = planned(topology)
    (over,) = plan.today.overloaded
    assert (over.name, over.load_bps, over.capacity_bps) == ("link 1:1 to 2:2", 10**7, 8 * 10**6)
    assert plan.planned.overloaded == ()
    assert plan.today.busiest[0].load_bps == 10_000_000
    assert plan.to_mapping()["today_is"] == "hub and spoke"


def test_today_is_what_relays_say_they_send_where_they_do() -> None:
    # From the o-relay to 2:2, from there to the Via, and on to 2:3; 2:4 is not told of.
    today = [(0, 0, 2), (0, 2, 1), (0, 1, 3)]
    plan = planned(two_regions(via={"capacity_mbit": 8}), today=today)
    assert plan.today.long_haul_copies == 1
    assert plan.today.origin_egress_copies == 1
    assert plan.today.deliveries == 3
    # 2:3 after 40 + 5 + 5 ms.
    assert plan.today.p95_delay_us == 50_000
    assert [over.name for over in plan.today.overloaded] == ["via 2:1"]
    assert plan.to_mapping()["today_is"] == "as relays report it"


def test_the_delay_of_one_delivery_in_twenty_is_not_counted() -> None:
    nodes = [node("1:1", "us"), *(node(f"2:{n}", f"r{n}") for n in range(20))]
    links = [link("1:1", f"2:{n}", 10 if n else 900) for n in range(20)]
    topology = {
        "nodes": nodes,
        "links": links,
        "publishers": [{"node": "1:1", "namespace": ["a"]}],
        "subscribers": [{"nodes": [f"2:{n}" for n in range(20)], "namespace": ["a"]}],
    }
    assert planned(topology).planned.p95_delay_us == 10_000
    topology["subscribers"] = [{"nodes": [f"2:{n}" for n in range(19)], "namespace": ["a"]}]
    assert planned(topology).planned.p95_delay_us == 900_000


def test_the_same_input_gives_the_same_plan() -> None:
    def of_example() -> Plan:
        topology = load_topology(EXAMPLES / "topology.toml")
        policy = load_policy(EXAMPLES / "policy.toml")
        tracks = demand_of(topology, policy)
        return make_plan(pose(network(topology.nodes, topology.links), policy, tracks))

    one, other = of_example(), of_example()
    assert one.assignments == other.assignments
    assert one.to_mapping() == other.to_mapping()


def test_the_example_keeps_its_rules_and_saves_half_of_the_long_hauls() -> None:
    topology = load_topology(EXAMPLES / "topology.toml")
    policy = load_policy(EXAMPLES / "policy.toml")
    tracks = demand_of(topology, policy)
    plan = make_plan(pose(network(topology.nodes, topology.links), policy, tracks))
    assert plan.infeasible == ()
    assert (plan.today.long_haul_copies, plan.planned.long_haul_copies) == (19, 9)
    assert [over.name for over in plan.today.overloaded] == ["link 2:1 to 3:1"]
    assert plan.planned.overloaded == ()
    # The Via in London has no room for both tracks of the final.
    final = {label: via for (label, region), via in vias(plan).items() if region == "eu"}
    assert (final["sports/final/video"], final["sports/final/audio"]) == ("3:1", "3:2")


def test_a_plan_for_subscribers_at_the_o_relay_alone_has_nothing_to_send() -> None:
    topology = two_regions(at=["1:1"])
    plan = planned(topology)
    assert plan.assignments == () == plan.infeasible
    assert plan.planned.p95_delay_us == 0
