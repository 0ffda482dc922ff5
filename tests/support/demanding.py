"""Small networks in which relays dial each other on demand, and what is asked of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.policy import policy_from_mapping
from laps.relay.settings import DemandSettings, ProbeSettings, RelaySettings
from laps.sim.invariants import check_always
from laps.sim.network import CACHE, Network
from laps.sim.topology import Link, Node, Publisher, Subscriber, Topology
from laps.types import format_node_id, parse_node_id
from support.policies import missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.relay.on_demand import State
    from laps.relay.relay import Relay

SETTINGS = RelaySettings(
    cache=CACHE,
    demand=DemandSettings(sessions=4, idle_s=5.0),
    probing=ProbeSettings(enabled=True),
)
POLICY = policy_from_mapping({}, "a test")


def node(text: str, region: str, place: tuple[float, float], kind: str = "edge") -> Node:
    """A node of a topology, at a latitude and a longitude."""
    fields = {"id": text, "type": kind, "region": region, "reflect": kind == "via"}
    where = {"latitude": place[0], "longitude": place[1]}
    return Node(**{**fields, **where, "id": parse_node_id(text)})  # type: ignore[arg-type]


def link(a: str, b: str, delay_ms: float) -> Link:
    """A link that takes so long each way."""
    return Link(a=parse_node_id(a), b=parse_node_id(b), delay_ms=delay_ms)


def network(nodes: list[Node], links: list[Link], targets: Iterable[str]) -> Network:
    """A network whose 1:1 publishes a track for some others."""
    topology = Topology(
        nodes=tuple(nodes),
        links=tuple(links),
        publishers=(Publisher(node=parse_node_id("1:1"), namespace=["sim"], name="track"),),
        subscribers=tuple(
            Subscriber(node=parse_node_id(it), namespace=["sim"], name="track") for it in targets
        ),
    )
    return Network(topology, 1, extended=1.0, settings=SETTINGS, load=lambda: 0.1)


def relay_of(net: Network, text: str) -> Relay:
    """A relay that is up."""
    relay = net.nodes[parse_node_id(text)].relay
    assert relay is not None
    return relay


def sessions(net: Network, text: str) -> dict[str, State]:
    """What a relay dials on demand, by contact."""
    return {it.need.contact: it.state for it in relay_of(net, text).demand.sessions}


def peers(net: Network, text: str) -> set[str]:
    """The peers of a relay."""
    return {format_node_id(node_id) for node_id in relay_of(net, text).peers}


def reasons(net: Network, text: str, target: str) -> set[str]:
    """Why flows from a relay to another go the way that they go."""
    routes = (flow.routes.get(parse_node_id(target)) for flow in relay_of(net, text).fib)
    return {route.reason for route in routes if route is not None}


def copies_into(net: Network, since: float, region: str) -> float:
    """How many copies of each object went into a region, on average."""
    where = {it.node_id: it.spec.region for it in net.nodes.values()}
    trails = [it for it in net.trace.trails.values() if it.began > since]
    hops = sum(where[a] != region == where[b] for it in trails for a, b in it.hops)
    return hops / len(trails)


def far_region() -> tuple[list[Node], list[Link]]:
    """An o-relay with four s-relays far away, each of them its peer, and a Via near those."""
    nodes = [node("1:1", "west", (0, -50))]
    nodes += [node(f"2:{number}", "east", (number, 50)) for number in range(1, 5)]
    nodes.append(node("2:9", "east", (2, 50), "via"))
    links = [link("1:1", f"2:{number}", 56) for number in range(1, 5)]
    links += [link("2:9", f"2:{number}", 2) for number in range(1, 5)]
    return nodes, links


def check_all_came(net: Network, since: float, until: float) -> None:
    """Whoever subscribes has every object that was published within some time."""
    for publisher in net.publishers:
        for subscriber in net.subscribers:
            is_its = subscriber.spec.namespace == publisher.spec.namespace
            if subscriber.is_subscribed and is_its:
                made, lost = missing(publisher, subscriber, since, until)
                assert made
                assert not lost, subscriber.number
    assert not check_always(net)
