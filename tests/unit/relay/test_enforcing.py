"""Policy at relays: what peers are told of it, ways that it names, and streams that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.policy import policy_from_mapping
from laps.relay.roles import Role
from laps.routing.terms import Onward
from laps.types import NodeMetrics, Reachability, hash_track, parse_node_id, track_alias
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import RequestError
from support.moqt import MoqtNet
from support.moqt_streams import Obj, body, objects_of
from support.relays import App as Plain
from support.relays import track_name

if TYPE_CHECKING:
    from collections.abc import Callable

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


# -- streams that are open -------------------------------------------------------------------------


def stays_away(net: MoqtNet, relays: dict[str, Relay], write: Callable[[int], object]) -> None:
    """Objects go on while the straight link is closed, and none of them takes it."""
    straight = end(net, relays["1:1"], relays["1:2"])
    before = sent(straight)
    for number in range(2, 6):
        write(number)
        net.run(1)
    assert sent(straight) == before
    assert not straight.running


def test_a_late_joiner_is_given_the_rest_of_a_stream_by_an_allowed_way() -> None:
    net, relays = triangle()
    pub, sub = net.app(relays["1:1"]), net.app(relays["1:2"])
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(1.5)
    stream.write(*objects_of(1))
    net.run(0.1)
    assert len(end(net, relays["1:1"], relays["1:2"]).running) == 1
    follow(net, relays, CLOSED)
    net.run(3)
    stays_away(net, relays, lambda number: stream.write(*objects_of(number)))
    assert sub.places == [(0, number) for number in range(1, 6)]


def test_a_late_joiner_keeps_its_stream_where_another_way_is_better_by_now() -> None:
    net, relays = network("1:1 > 1:3", "1:3 > 1:2", "1:1 > 1:4", "1:4 > 1:2")
    pub, sub = net.app(relays["1:1"]), net.app(relays["1:2"])
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(1.5)
    (used,) = [node for node in ("1:3", "1:4") if end(net, relays["1:1"], relays[node]).running]
    other = "1:4" if used == "1:3" else "1:3"
    follow(net, relays, policy(way=[{"vias": [other]}]))
    # Longer than a relay keeps a set that was withdrawn.
    net.run(5)
    for number in range(1, 4):
        stream.write(*objects_of(number))
        net.run(1)
    assert sub.places == [(0, number) for number in range(1, 4)]
    assert len(end(net, relays["1:1"], relays[used]).running) == 1
    stream.finish()
    net.run(1)
    assert len(list(relays["1:1"].fib)) == 1
    assert [len(flow.old) for flow in relays["1:1"].fib] == [0]


def test_a_stream_that_stayed_on_a_way_of_before_leaves_it_where_that_is_forbidden() -> None:
    net, relays = triangle()
    pub, sub, alias = flowing(net, relays)
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.2)
    by_three = {"way": [{"vias": ["1:3"]}]}
    follow(net, relays, policy(**by_three))
    stream.write(*objects_of(1))
    net.run(0.2)
    assert len(end(net, relays["1:1"], relays["1:2"]).running) == 1
    closed = {"link": [{"between": ["1:1", "1:2"], "closed": True}]}
    follow(net, relays, policy(**by_three, **closed))
    net.run(3)
    stays_away(net, relays, lambda number: stream.write(*objects_of(number)))
    assert sub.places == [(0, number) for number in range(6)]


def test_a_set_of_before_is_told_of_other_terms_for_its_streams() -> None:
    net, relays = network("1:1 > 1:3", "1:3 > 1:2", "1:1 > 1:4", "1:4 > 1:2")
    pub, sub, alias = flowing(net, relays)
    (route,) = [it for flow in relays["1:1"].fib for it in flow.routes.values()]
    assert route.path is not None
    used = next(node for node, relay in relays.items() if relay.id == route.path.peer_id)
    other = "1:4" if used == "1:3" else "1:3"
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.2)
    by_other = {"way": [{"vias": [other]}]}
    follow(net, relays, policy(**by_other))
    follow(net, {"1:1": relays["1:1"]}, policy(**by_other, plan={"default_class": "gold"}))
    assert [it.order for it in end(net, relays[used], relays["1:2"]).running] == [0]
    stream.write(*objects_of(1))
    net.run(0.2)
    assert sub.places == [(0, 0), (0, 1)]


def test_a_stream_by_a_peer_that_cannot_be_told_of_regions_ends() -> None:
    net = MoqtNet()
    relays = {node: net.relay(node, region="us") for node in ("1:1", "1:2", "1:3")}
    for relay in relays.values():
        net.edge(relay)
    net.wire(relays["1:1"], relays["1:3"])
    net.wire(relays["1:3"], relays["1:2"])
    net.settle()
    pub, sub, alias = flowing(net, relays)
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.2)
    nodes = [{"nodes": ["*"], "region": "us"}]
    found = policy(rule=[{"tracks": "demo/*", "inside": ["us"]}], node=nodes)
    relays["1:1"].follow_policy(found, net.now)
    net.run(0.2)
    stream.write(*objects_of(1))
    net.run(1)
    assert sub.places == [(0, 0)]
    assert not end(net, relays["1:1"], relays["1:3"]).running


def test_an_answer_to_a_fetch_of_another_relay_goes_on_by_an_allowed_way() -> None:
    net, relays = triangle()
    pub, sub = net.app(relays["1:1"]), net.app(relays["1:2"])
    pub.publish_namespace("demo")
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *[Obj(number, b"y" * 200_000) for number in range(8)])
    net.run(0.3)
    straight = end(net, relays["1:1"], relays["1:2"])
    reach, room = relays["1:1"].reach, iter((True, True))
    reach.has_room_for = lambda *_: next(room, False)  # type: ignore[method-assign]
    sub.fetch("demo/t", (0, 0), (0, 8))
    net.run(0.2)
    before = sent(straight)
    assert before > 200_000
    assert len(straight.running) == 1
    follow(net, relays, CLOSED)
    del reach.has_room_for
    for edge in net.edges.values():
        edge.requests.writable(net.now)
    net.run(5)
    assert sent(straight) == before
    assert len(sub.fetched.data) > 1_600_000


def test_a_stream_to_one_node_takes_the_place_of_another_class() -> None:
    net, relays = triangle()
    pub, sub = net.app(relays["1:1"]), net.app(relays["1:2"])
    alias = pub.publish("demo/t")
    pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(1.5)
    follow(net, relays, policy(plan={"default_class": "gold"}))
    assert [it.order for it in end(net, relays["1:1"], relays["1:2"]).running] == [0]


# -- ranges that another relay will not send -------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_a_fetch_that_another_relay_refuses_has_its_reason(both: bool, cached: bool) -> None:
    net, relays = network("1:1 > 1:2")
    pub = net.app(relays["1:1"])
    alias = pub.publish("demo/t")
    if cached:  # what is here is before what is asked for
        early = net.app(relays["1:2"])
        early.subscribe("demo/t")
        net.run(0.5)
        pub.stream(alias, 0, *objects_of(0, 1))
        net.run(0.5)
        early.leave()
        net.run(10)
    pub.stream(alias, 1, *objects_of(0, 1))
    net.run(0.5)
    follow(net, relays if both else {"1:1": relays["1:1"]}, CLOSED)
    app = net.app(relays["1:2"])
    app.fetch("demo/t", (1, 0), (1, 2))
    net.run(0.5)
    error = app.last(RequestError)
    assert (error.code, error.reason) == (
        RequestCode.UNAUTHORIZED,
        "policy: policy closes 1:1-1:2",
    )


@pytest.mark.parametrize("refusing", ["1:1", "1:3"])
def test_a_fetch_that_one_relay_refuses_is_asked_of_the_next_with_the_track(refusing: str) -> None:
    net, relays = network("1:1 > 1:2", "1:3 > 1:2")
    for node in ("1:1", "1:3"):
        pub = net.app(relays[node])
        pub.stream(pub.publish("demo/t"), 0, *objects_of(0, 1))
    net.run(0.5)
    closed = policy(link=[{"between": [refusing, "1:2"], "closed": True}])
    follow(net, {refusing: relays[refusing]}, closed)
    app = net.app(relays["1:2"])
    app.fetch("demo/t", (0, 0), (0, 2))
    net.run(1)
    assert app.fetched.places == [(0, 0), (0, 1)]


# -- what comes when a way is allowed again --------------------------------------------------------


def test_a_stream_that_begins_while_no_way_is_allowed_comes_if_one_is_a_moment_later() -> None:
    net, relays = network("1:1 > 1:2")
    sub, pub = net.app(relays["1:2"]), Plain()
    origin, track = relays["1:1"], hash_track(track_name("demo/t"))
    net.announce(origin, pub, "demo")
    sub.subscribe("demo/t")
    net.run(0.5)
    head = encode_subgroup_header(
        SubgroupHeader(track_alias(track.full_name_hash), 0, priority=5), BETWEEN_RELAYS
    )
    # No turn of the loop comes between.
    origin.follow_policy(CLOSED, net.now)
    origin.publish(pub, track, 0, head + body(objects_of(0)), False, 5, 0, net.now)
    origin.follow_policy(None, net.now)
    net.run(3)
    origin.publish(pub, track, 0, body(objects_of(1), last=0), False, 5, 0, net.now)
    net.run(1)
    assert sub.places == [(0, 0), (0, 1)]


def test_what_a_stub_has_sent_before_its_way_is_forbidden_is_not_sent_again() -> None:
    net, relays = network("1:3 > 1:2")
    stub = net.relay("7:7", Role.STUB)
    net.edge(stub)
    net.wire(stub, relays["1:3"], extended=True)
    net.run(1)
    pub, sub = net.app(stub), net.app(relays["1:2"])
    alias = pub.publish("demo/t")
    net.run(0.5)
    sub.subscribe("demo/t")
    net.run(0.5)
    pub.stream(alias, 0, *objects_of(0, 1))
    net.run(0.2)
    assert sub.places == [(0, 0), (0, 1)]
    follow(net, {"7:7": stub}, policy(link=[{"between": ["7:7", "1:3"], "closed": True}]))
    pub.stream(alias, 1, *objects_of(0, 1))
    net.run(1)
    follow(net, {"7:7": stub}, None)
    net.run(3)
    assert sub.places == [(0, 0), (0, 1), (1, 0), (1, 1)]
