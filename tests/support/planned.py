"""What the planner would make of a simulated network, where any two relays may become peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laps.spark.planner.demand import demand_of
from laps.spark.planner.network import network as network_of
from laps.spark.planner.plan import make_plan
from laps.spark.planner.problem import pose
from laps.spark.planner.topology import topology_from_mapping
from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.sim.network import Network
    from laps.spark.planner.plan import Plan


def planned(network: Network, policy: Policy) -> Plan:
    """The exact plan for what is wanted now."""
    nodes = list(network.nodes.values())
    wanted: dict[tuple[tuple[str, ...], str], set[str]] = {}
    for subscriber in network.subscribers:
        if subscriber.is_subscribed:
            spec = subscriber.spec
            where = wanted.setdefault((tuple(spec.namespace), spec.name), set())
            where.add(format_node_id(spec.node))
    mapping: dict[str, Any] = {
        "nodes": [
            {"id": format_node_id(it.node_id), "type": it.spec.type, "region": it.spec.region}
            for it in nodes
        ],
        "links": [
            {
                "a": format_node_id(a.node_id),
                "b": format_node_id(b.node_id),
                "delay_ms": round(1000 * delay_s, 3),
            }
            for number, a in enumerate(nodes)
            for b in nodes[number + 1 :]
            if (delay_s := network.underlay.delay_s(a.node_id, b.node_id)) is not None
        ],
        "publishers": [
            {
                "node": format_node_id(it.spec.node),
                "namespace": [*it.spec.namespace],
                "name": "track",
                "rate_mbit": 1,
            }
            for it in network.publishers
        ],
        "subscribers": [
            {"nodes": sorted(where), "namespace": [*namespace], "name": name}
            for (namespace, name), where in wanted.items()
        ],
    }
    read = topology_from_mapping(mapping, "a test")
    tracks = demand_of(read, policy)
    return make_plan(pose(network_of(read.nodes, read.links), policy, tracks))
