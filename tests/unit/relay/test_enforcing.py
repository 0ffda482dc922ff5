"""Policy at relays: what peers are told of it, ways that it names, and streams that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.policy import policy_from_mapping
from laps.routing.terms import Onward
from laps.types import NodeMetrics, Reachability, parse_node_id
from support.moqt import MoqtNet
from support.moqt_streams import objects_of

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.relay.relay import Relay
    from support.moqt import App
    from support.relays import WireEnd


def policy(**tables: Any) -> Policy:
    return policy_from_mapping(tables, "a test")


CLOSED = policy(link=[{"between": ["1:1", "1:2"], "closed": True}])


def network(*links: str, **settings: Any) -> tuple[MoqtNet, dict[str, Relay]]:
    """Relays with clients, that know everything of one another: "1:1 > 1:2" is a link."""
    net = MoqtNet()
    pairs = [tuple(link.split(" > ")) for link in links]
    relays = {node: net.relay(node, **settings) for node in sorted({it for p in pairs for it in p})}
    for relay in relays.values():
        net.edge(relay)
    for a, b in pairs:
        net.wire(relays[a], relays[b], extended=True)
    net.settle()
    for relay in relays.values():
        near = tuple(Reachability(node_id, 10_000, 0.0) for node_id in relay.peers)
        relay.extensions.measured(
            NodeMetrics(1, relay.id, 0, 0, 0, relay.settings.region, reachability=near), net.now
        )
    net.run(12)
    return net, relays


def triangle() -> tuple[MoqtNet, dict[str, Relay]]:
    """From 1:1 to 1:2 straight, or by 1:3."""
    return network("1:1 > 1:2", "1:1 > 1:3", "1:3 > 1:2")


def follow(net: MoqtNet, relays: dict[str, Relay], found: Policy | None) -> None:
    for relay in relays.values():
        relay.follow_policy(found, net.now)
    net.run(0.5)


def end(net: MoqtNet, a: Relay, b: Relay) -> WireEnd:
    return next(it for wire in net.wires for it in wire if (it.relay, it.other.relay) == (a, b))


def sent(end: WireEnd) -> int:
    return sum(len(stream.data) for stream in end.streams.values())


def flowing(net: MoqtNet, relays: dict[str, Relay]) -> tuple[App, App, int]:
    """A publisher at 1:1, and a subscriber at 1:2."""
    pub, sub = net.app(relays["1:1"]), net.app(relays["1:2"])
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.5)
    return pub, sub, alias


# -- what peers are told ---------------------------------------------------------------------------


def test_a_set_whose_terms_cannot_be_told_is_not_sent_and_one_that_was_is_withdrawn() -> None:
    net, relays = triangle()
    flowing(net, relays)
    origin = relays["1:1"]
    (flow,) = origin.fib
    assert [it for *_, it in relays["1:2"].ingress.all()] == [False]
    origin.router.onward = lambda *_: Onward(service="x" * 65)  # type: ignore[method-assign]
    origin.fib.reconsider()
    net.run(0.1)
    assert [it for *_, it in relays["1:2"].ingress.all()] == [True]
    assert origin.counters.unsendable_messages == 1
    assert flow.targets


# -- ways that it names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "vias",
    [
        ["2:1", "2:2"],
        ["1:1", "2:1", "2:2"],
        ["9:9", "1:1", "2:1", "2:2"],
        ["2:1", "2:2", "1:2"],
        ["1:1", "2:1", "2:2", "1:2", "9:9"],
    ],
)
def test_a_named_way_begins_after_the_publishers_relay_and_ends_at_the_subscribers(
    vias: list[str],
) -> None:
    net, relays = network("1:1 > 1:2", "1:1 > 2:1", "2:1 > 2:2", "2:2 > 1:2", "2:1 > 1:2")
    follow(net, relays, policy(way=[{"vias": vias}]))
    pub, sub, alias = flowing(net, relays)
    pub.stream(alias, 0, *objects_of(0))
    net.run(0.3)
    assert sub.places == [(0, 0)]
    assert sent(end(net, relays["2:2"], relays["1:2"]))
    assert not sent(end(net, relays["1:1"], relays["1:2"]))
    (route,) = [it for flow in relays["1:1"].fib for it in flow.routes.values()]
    assert route.reason == "policy says by 2:1 > 2:2"
    assert relays["1:1"].router.counters.unmet_plans == 0


def test_a_named_way_that_ends_at_the_publishers_relay_says_nothing_there() -> None:
    net, relays = triangle()
    follow(net, relays, policy(way=[{"vias": ["1:3", "1:1"]}]))
    flowing(net, relays)
    (route,) = [it for flow in relays["1:1"].fib for it in flow.routes.values()]
    assert route.reason == "fewest hops: 0 against 1 via 1:3"
    assert parse_node_id("1:2") not in relays["1:1"].router.steered
