"""The document's own pictures: what it prints is what the relays come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import Role
from laps.types import parse_node_id
from support.relays import App, Net

if TYPE_CHECKING:
    from laps.relay.relay import Relay


def paths(relay: Relay, node: str) -> list[tuple[int, float]]:
    """Hops and sum of sRTT in ms of every path to a node, the best first."""
    found = relay.nodes.candidates(parse_node_id(node))
    return [(path.hops, path.srtt_us / 1000) for path in found]


# -- "Example Node Path for Node ID 1:1" -----------------------------------------------------------


@pytest.fixture
def six() -> Net:
    net = Net()
    for low in range(1, 7):
        net.relay(f"1:{low}")
    relay = net.relays
    net.wire(relay["1:1"], relay["1:2"], 25)
    net.wire(relay["1:2"], relay["1:3"], 50)
    net.wire(relay["1:3"], relay["1:4"], 60)
    net.wire(relay["1:3"], relay["1:6"], 90)
    net.wire(relay["1:1"], relay["1:5"], 20)
    net.wire(relay["1:5"], relay["1:6"], 40)
    net.settle()
    return net


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("1:2", [(0, 25)]),
        ("1:3", [(1, 75), (2, 150)]),
        ("1:4", [(2, 135)]),
        ("1:5", [(0, 20)]),
        ("1:6", [(1, 60), (2, 165)]),
    ],
)
def test_node_path(six: Net, node: str, expected: list[tuple[int, float]]) -> None:
    assert paths(six.relays[node], "1:1") == expected


def test_node_path_items_are_the_sessions_the_word_came_by(six: Net) -> None:
    (path,) = six.relays["1:4"].nodes.candidates(parse_node_id("1:1"))
    assert [(item.node_id, item.srtt_us) for item in path.info.path] == [
        (parse_node_id("1:2"), 25_000),
        (parse_node_id("1:3"), 50_000),
    ]


@pytest.mark.parametrize(
    ("srtt_ms", "expected"),
    [(74, [(2, 134), (2, 135)]), (76, [(2, 135), (2, 136)])],
)
def test_a_new_connection_is_chosen_if_it_is_faster(
    six: Net, srtt_ms: float, expected: list[tuple[int, float]]
) -> None:
    six.wire(six.relays["1:4"], six.relays["1:6"], srtt_ms)
    six.settle()
    assert paths(six.relays["1:4"], "1:1") == expected


@pytest.mark.parametrize("low", range(1, 7))
def test_the_picture_read_from_every_node_agrees_with_the_links(six: Net, low: int) -> None:
    relay = six.relays[f"1:{low}"]
    assert len(relay.nodes) == 5
    for node_id in relay.nodes:
        choice = relay.nodes.best(node_id)
        assert choice is not None
        hops = [item.node_id for item in choice.path.info.path]
        assert len({*hops, node_id, relay.id}) == len(hops) + 2


# -- "Computed best path Topology with s-relays" ---------------------------------------------------


def test_computed_best_path() -> None:
    net, pub, sub = Net(), App(), App()
    origin = net.relay("1:1")
    first, second = net.relay("2:1", Role.VIA), net.relay("2:2", Role.VIA)
    near, far = net.relay("3:1"), net.relay("3:2")
    to_first = net.wire(origin, first).here
    to_second = net.wire(origin, second)
    across = net.wire(first, second)
    to_near = net.wire(origin, near).here
    to_far = net.wire(second, far).here
    net.settle()
    net.announce(origin, pub, "live")
    for relay in (near, far):
        net.subscribe(relay, sub, "live/x")

    assert to_near.sets == {1: {"3:1"}}
    assert to_second.here.sets == {1: {"3:2"}}
    assert to_far.sets == {1: {"3:2"}}
    assert to_first.sets == across.here.sets == across.there.sets == {}
    net.publish(origin, pub, "live/x", 0, b"group")
    assert sub.got == [b"group", b"group"]

    # "If peering were to be removed between o-relay and v-relay-2, the selection would use
    # v-relay 1."
    to_second.cut()
    assert to_first.sets == {1: {"3:2"}}
    assert across.here.sets == {1: {"3:2"}}
    assert [set(nodes) for nodes in to_far.sets.values()] == [{"3:2"}]
    net.publish(origin, pub, "live/x", 1, b"next")
    assert sub.got[2:] == [b"next", b"next"]


# -- "Source Routing Data Forwarding" --------------------------------------------------------------


def test_source_routing() -> None:
    net, pub = Net(), App()
    origin, via = net.relay("101.2:10"), net.relay("100.1:1", Role.VIA)
    edges = [net.relay(node) for node in ("100.2:1", "100.2:2", "103.2:1")]
    up = net.wire(origin, via).here
    down = [net.wire(via, edge).here for edge in edges]
    net.settle()
    net.announce(origin, pub, "live")
    subs = [(edge, App()) for edge in edges for _ in range(2)]
    for edge, sub in subs:
        net.subscribe(edge, sub, "live/x")

    assert up.sets == {1: {"100.2:1", "100.2:2", "103.2:1"}}
    assert [end.sets for end in down] == [{1: {"100.2:1"}}, {1: {"100.2:2"}}, {1: {"103.2:1"}}]

    net.publish(origin, pub, "live/x", "group 0", b"a MoQT data object")
    assert [sub.got for _, sub in subs] == [[b"a MoQT data object"]] * 6
    assert len(up.streams) == 1
    assert [len(end.streams) for end in down] == [1, 1, 1]


def test_source_routing_ids_are_each_session_s_own() -> None:
    # As in the picture, where what is 1 on one session is 18 and 27 on others.
    net, pub, sub = Net(), App(), App()
    origin, via, edge, other = (
        net.relay("1:1"),
        net.relay("2:1", Role.VIA),
        net.relay("3:1"),
        net.relay("3:2"),
    )
    net.wire(origin, via)
    to_edge, to_other = net.wire(via, edge).here, net.wire(via, other).here
    net.settle()
    net.announce(origin, pub, "live")
    for number in range(17):
        net.subscribe(edge, sub, f"live/{number}")
    for relay in (edge, other):
        net.subscribe(relay, sub, "live/x")
    assert to_edge.sets[18] == {"3:1"}
    assert to_other.sets == {1: {"3:2"}}


# -- "Pipeline Forwarding" -------------------------------------------------------------------------


def test_slices_go_on_as_they_come() -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    net.wire(origin, edge)
    net.settle()
    net.announce(origin, pub, "live")
    net.subscribe(edge, sub, "live/x")
    for number in range(4):
        net.publish(origin, pub, "live/x", 0, bytes([number]) * 1000, fin=number == 3)
        assert len(sub.got[0]) == 1000 * (number + 1)
    assert sub.got == [b"".join(bytes([number]) * 1000 for number in range(4))]
    assert sub.streams[0].finished
