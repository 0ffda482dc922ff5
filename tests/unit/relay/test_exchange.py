"""What relays tell each other of nodes: when, to whom, and what they never say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.relay.roles import Role
from laps.types import NodeInfo, NodePathItem, NodeType, PeerMode, format_node_id, parse_node_id
from laps.wire.node_lists import NodeListAdv, NodeListWd
from laps.wire.peering import NodeInfoAdv, NodeInfoWd
from support.relays import Net, Puppet, Wire

if TYPE_CHECKING:
    from laps.relay.relay import Relay


def told(messages: list[NodeInfoAdv] | list[NodeInfoWd]) -> list[str]:
    return [format_node_id(message.node_info.id) for message in messages]


def known(relay: Relay) -> set[str]:
    return {format_node_id(node_id) for node_id in relay.nodes}


def via(node: str, *path: tuple[str, int]) -> NodeInfo:
    items = tuple(NodePathItem(parse_node_id(hop), srtt_ms * 1000) for hop, srtt_ms in path)
    return NodeInfo(parse_node_id(node), NodeType.EDGE, f"at {node}", path=items)


@pytest.fixture
def line() -> tuple[Net, list[Relay], list[Wire]]:
    """1:1 - 1:2 - 1:3, before anything has been advertised."""
    net = Net()
    relays = [net.relay(f"1:{low}") for low in (1, 2, 3)]
    return net, relays, [net.wire(relays[0], relays[1], 50), net.wire(relays[1], relays[2], 20)]


def listened() -> tuple[Net, Relay, Puppet, Puppet]:
    """A relay between two puppets that have been told of each other."""
    net = Net()
    relay = net.relay("1:1")
    left, right = net.puppet("2:1"), net.puppet("2:2")
    for puppet in (left, right):
        net.wire(puppet, relay)
    net.run(2.0)
    left.heard.clear()
    right.heard.clear()
    return net, relay, left, right


def listened_lists() -> tuple[Net, Relay, Puppet, Puppet]:
    """As `listened`, of puppets that take lists."""
    net = Net()
    relay = net.relay("1:1")
    left, right = net.puppet("2:1"), net.puppet("2:2")
    for puppet in (left, right):
        net.wire(puppet, relay, extended=True)
    net.run(8.0)
    left.heard.clear()
    right.heard.clear()
    return net, relay, left, right


def many(count: int, srtt_ms: int = 30) -> tuple[NodeInfo, ...]:
    return tuple(via(f"3:{low}", ("2:1", srtt_ms)) for low in range(1, count + 1))


def listed(puppet: Puppet, kind: type[NodeListAdv | NodeListWd]) -> list[int]:
    """How many nodes were in each list, in the order that they came."""
    return [len(it.node_infos) for it in puppet.heard if isinstance(it, kind)]


# -- in lists --------------------------------------------------------------------------------------


def test_many_nodes_are_told_in_lists_and_withdrawn_in_lists() -> None:
    net, relay, left, right = listened_lists()
    left.say(NodeListAdv(many(250)))
    assert len(relay.nodes) == 252
    net.run(3.0)
    assert listed(right, NodeListAdv) == [100, 100, 50]
    assert told([it for it in right.heard if isinstance(it, NodeInfoAdv)]) == []
    left.say(NodeListWd(many(250)[:20]))
    net.run(0.0)
    assert sum(listed(right, NodeListWd)) == 20
    assert len(relay.nodes) == 232


def test_a_list_says_what_one_message_for_each_node_says() -> None:
    net, relay, left, _ = listened_lists()
    left.say(NodeListAdv(many(3)))
    left.say(NodeInfoWd(many(3)[0]), NodeListAdv((via("3:2", ("2:1", 50)),)))
    net.run(0.0)
    assert known(relay) == {"2:1", "2:2", "3:2", "3:3"}
    choice = relay.nodes.best(parse_node_id("3:2"))
    assert choice is not None
    assert choice.path.info == via("3:2", ("2:1", 50))


def test_one_node_is_told_as_the_document_has_it() -> None:
    net, _, left, right = listened_lists()
    left.say(NodeListAdv(many(1)))
    net.run(3.0)
    said = via("3:1", ("2:1", 30), ("1:1", 10))
    left.say(NodeListWd(many(1)))
    assert right.heard == [NodeInfoAdv(said), NodeInfoWd(said)]


def test_a_list_that_says_nothing_is_taken() -> None:
    net, relay, left, right = listened_lists()
    left.say(NodeListAdv(()), NodeListWd(()))
    net.run(3.0)
    assert right.heard == []
    assert known(relay) == {"2:1", "2:2"}


# -- when ------------------------------------------------------------------------------------------


def test_a_direct_peer_is_known_at_once(line: tuple[Net, list[Relay], list[Wire]]) -> None:
    _, (one, two, three), _ = line
    assert (known(one), known(two), known(three)) == ({"1:2"}, {"1:1", "1:3"}, {"1:2", "1:1"})


def test_a_new_peer_is_told_everything_at_once_and_the_others_two_seconds_later(
    line: tuple[Net, list[Relay], list[Wire]],
) -> None:
    net, (one, _, three), _ = line
    assert known(three) == {"1:2", "1:1"}
    net.run(1.9)
    assert known(one) == {"1:2"}
    net.run(0.1)
    assert known(one) == {"1:2", "1:3"}


def test_the_path_is_the_document_s(line: tuple[Net, list[Relay], list[Wire]]) -> None:
    # NODE_INFO_ADV(R1) NP=[{R2, 50}]; R1 distance is 1 with SRTT of 70ms
    net, (one, two, three), wires = line
    net.run(2.0)
    assert wires[1].here.said(NodeInfoAdv) == [NodeInfoAdv(via("1:1", ("1:2", 50)))]
    choice = three.nodes.best(one.id)
    assert choice is not None
    assert (choice.path.hops, choice.path.srtt_us) == (1, 70_000)
    direct = two.nodes.best(one.id)
    assert direct is not None
    assert (direct.path.hops, direct.path.srtt_us) == (0, 50_000)


def test_changes_gather_and_the_last_counts() -> None:
    net, _, left, right = listened()
    for srtt_ms in (30, 40, 50):
        left.say(NodeInfoAdv(via("3:1", ("2:1", srtt_ms))))
        net.run(0.5)
    assert right.heard == []
    net.run(0.5)
    assert right.heard == [NodeInfoAdv(via("3:1", ("2:1", 50), ("1:1", 10)))]


def test_a_withdraw_goes_at_once_and_carries_what_was_said() -> None:
    net, relay, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(2.0)
    left.say(NodeInfoWd(via("3:1", ("2:1", 30))))
    said = via("3:1", ("2:1", 30), ("1:1", 10))
    assert right.heard == [NodeInfoAdv(said), NodeInfoWd(said)]
    assert known(relay) == {"2:1", "2:2"}


def test_what_came_and_went_meanwhile_is_not_spoken_of() -> None:
    net, _, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))), NodeInfoWd(via("3:1", ("2:1", 30))))
    net.run(10.0)
    assert right.heard == []


def test_the_time_to_gather_is_the_operator_s() -> None:
    net = Net()
    relay = net.relay("1:1", node_advertise_s=0.25)
    left, right = net.puppet("2:1"), net.puppet("2:2")
    net.wire(left, relay)
    net.wire(right, relay)
    net.run(0.3)
    right.heard.clear()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(0.2)
    assert right.heard == []
    net.run(0.05)
    assert told(right.heard_of(NodeInfoAdv)) == ["3:1"]


# -- only changes ----------------------------------------------------------------------------------


def test_nothing_is_said_twice() -> None:
    net, relay, left, right = listened()
    for _ in range(3):
        left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
        net.run(3.0)
    assert told(right.heard_of(NodeInfoAdv)) == ["3:1"]
    assert relay.nodes.counters.duplicates == 2


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "is_news"),
    [(100, 109, False), (100, 110, True), (5, 6, False), (5, 7, True), (100, 89, True)],
)
def test_a_round_trip_is_news_past_a_tenth_and_two_milliseconds_that_last(
    before_ms: int, after_ms: int, is_news: bool
) -> None:
    net = Net()
    relay, left, right = net.relay("1:1"), net.puppet("2:1"), net.puppet("2:2")
    wire = net.wire(relay, left, srtt_ms=before_ms)
    net.wire(relay, right)
    net.run(3.0)
    right.heard.clear()
    wire.here.srtt_us = after_ms * 1000
    relay.link_srtt(wire.here, net.now)
    net.run(4.9)
    assert right.heard == []  # it may not last
    net.run(3.0)
    assert len(right.heard) == is_news


def test_what_a_peer_says_of_round_trips_is_passed_on_as_it_is() -> None:
    net, _, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 100))))
    net.run(3.0)
    left.say(NodeInfoAdv(via("3:1", ("2:1", 101))))
    net.run(3.0)
    told = right.heard_of(NodeInfoAdv)[-1].node_info
    assert told.path[0].srtt_us == 101_000


@pytest.mark.parametrize(("after_ms", "is_news"), [(54, False), (60, True)])
def test_a_link_s_own_round_trip_likewise(
    line: tuple[Net, list[Relay], list[Wire]], after_ms: float, is_news: bool
) -> None:
    net, (one, _, three), wires = line
    net.run(3.0)
    before = len(wires[1].here.sent)
    wires[0].set_srtt(after_ms)
    net.run(8.0)
    assert len(wires[1].here.sent) - before == is_news
    choice = three.nodes.best(one.id)
    assert choice is not None
    assert choice.path.srtt_us == (after_ms if is_news else 50) * 1000 + 20_000


def test_a_round_trip_that_creeps_is_told_in_the_end(
    line: tuple[Net, list[Relay], list[Wire]],
) -> None:
    net, (one, _, three), wires = line
    net.run(3.0)
    for srtt_ms in range(51, 81):
        wires[0].set_srtt(srtt_ms)
        net.run(3.0)
    net.run(5.0)
    choice = three.nodes.best(one.id)
    assert choice is not None
    assert abs(choice.path.srtt_us - 100_000) <= 8_000


def test_only_the_best_is_advertised() -> None:
    net, _, left, right = listened()
    third = net.puppet("2:3")
    net.wire(third, net.relays["1:1"])
    net.run(3.0)
    right.heard.clear()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(3.0)
    third.say(NodeInfoAdv(via("3:1", ("2:9", 1), ("2:3", 1))))
    net.run(3.0)
    assert right.heard == [NodeInfoAdv(via("3:1", ("2:1", 30), ("1:1", 10)))]
    left.say(NodeInfoWd(via("3:1", ("2:1", 30))))
    net.run(3.0)
    assert right.heard[-1] == NodeInfoAdv(via("3:1", ("2:9", 1), ("2:3", 1), ("1:1", 10)))


# -- never -----------------------------------------------------------------------------------------


def test_a_node_is_not_told_of_itself_nor_back_where_it_came_from() -> None:
    net, _, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    right.say(NodeInfoAdv(via("2:1", ("2:2", 5))))
    net.run(10.0)
    assert left.heard == []
    assert told(right.heard_of(NodeInfoAdv)) == ["3:1"]


def test_a_node_is_not_told_to_who_is_in_its_path() -> None:
    net, _, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:2", 30), ("2:1", 30))))
    net.run(10.0)
    assert right.heard == []


def test_a_way_that_turns_into_the_peer_is_withdrawn_from_it_at_once() -> None:
    # Otherwise both would send to each other until the next advertisement.
    net, _, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(3.0)
    right.heard.clear()
    left.say(NodeInfoAdv(via("3:1", ("2:2", 30), ("2:1", 30))))
    assert told(right.heard_of(NodeInfoWd)) == ["3:1"]


def test_a_path_that_contains_us_is_no_path() -> None:
    net, relay, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("1:1", 1), ("2:1", 30))))
    left.say(NodeInfoAdv(via("1:1", ("2:1", 30))))
    net.run(3.0)
    assert known(relay) == {"2:1", "2:2"}
    assert relay.nodes.counters.looped == 2
    assert right.heard == []
    assert left.closed is None


def test_a_path_that_now_contains_us_ends_the_one_before() -> None:
    net, relay, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(3.0)
    left.say(NodeInfoAdv(via("3:1", ("1:1", 1), ("2:1", 30))))
    assert known(relay) == {"2:1", "2:2"}
    assert told(right.heard_of(NodeInfoWd)) == ["3:1"]


def test_a_withdraw_of_something_unknown_is_counted_and_goes_nowhere() -> None:
    net, relay, left, right = listened()
    left.say(NodeInfoWd(via("3:1", ("2:1", 30))))
    net.run(3.0)
    assert relay.nodes.counters.unknown_withdraws == 1
    assert right.heard == []
    assert left.closed is None


def test_a_withdraw_that_names_another_path_counts_all_the_same() -> None:
    _, relay, left, _ = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    left.say(NodeInfoWd(via("3:1", ("2:1", 99))))
    assert known(relay) == {"2:1", "2:2"}


# -- coming and going ------------------------------------------------------------------------------


def test_what_a_session_said_goes_with_it() -> None:
    net, relay, left, right = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    net.run(3.0)
    left.end.close(1, "")
    net.run()
    assert known(relay) == {"2:2"}
    assert set(told(right.heard_of(NodeInfoWd))) == {"3:1", "2:1"}
    net.run(10.0)
    assert told(right.heard_of(NodeInfoAdv)) == ["3:1"]


def test_what_changed_while_nobody_listened_is_told_to_who_comes_later() -> None:
    net, relay, left, _ = listened()
    left.say(NodeInfoAdv(via("3:1", ("2:1", 30))))
    late = net.puppet("2:3")
    net.wire(late, relay)
    assert set(told(late.heard_of(NodeInfoAdv))) == {"2:1", "2:2", "3:1"}


def test_a_node_that_says_something_else_of_itself_is_told_anew() -> None:
    net, _, left, right = listened()
    before = via("3:1", ("2:1", 30))
    left.say(NodeInfoAdv(before))
    net.run(3.0)
    left.say(NodeInfoAdv(structs.replace(before, contact="elsewhere")))
    net.run(3.0)
    assert [message.node_info.contact for message in right.heard_of(NodeInfoAdv)] == [
        "at 3:1",
        "elsewhere",
    ]


def test_a_ring_comes_to_rest_and_survives_a_cut() -> None:
    net = Net()
    relays = [net.relay(f"1:{low}", Role.VIA) for low in range(1, 6)]
    wires = [net.wire(a, b) for a, b in zip(relays, relays[1:] + relays[:1], strict=True)]
    net.settle()
    assert all(len(relay.nodes) == 4 for relay in relays)
    sent = sum(relay.counters.control_sent for relay in relays)
    net.run(60.0)
    assert sum(relay.counters.control_sent for relay in relays) == sent
    wires[0].cut()
    net.settle()
    far = relays[0].nodes.best(relays[1].id)
    assert far is not None
    assert far.path.hops == 3
    for relay in relays:
        relay.drain(net.now)
    net.settle()
    assert all(len(relay.nodes) == 0 for relay in relays)
    assert all(relay.is_idle() for relay in relays)


def test_a_round_trip_is_told_within_a_tenth_also_with_two_links() -> None:
    net = Net()
    near, far, puppet = net.relay("1:1"), net.relay("1:2"), net.puppet("2:1")
    first = net.wire(near, far, srtt_ms=100)
    second = net.wire(near, far, srtt_ms=109, mode=PeerMode.DATA)
    net.wire(puppet, near)
    net.run(5.0)
    first.set_srtt(111)
    second.set_srtt(119.8)
    net.run(8.0)
    told = puppet.heard_of(NodeInfoAdv)[-1].node_info
    assert told.id == far.id
    assert told.path[-1].srtt_us == 111_000


def test_the_nodes_beyond_a_peer_are_as_far_as_the_peer_whichever_link_told_of_them() -> None:
    net = Net()
    near, far, puppet = net.relay("1:1"), net.relay("1:2"), net.puppet("2:1")
    net.wire(near, far, srtt_ms=50)
    net.wire(far, net.relay("1:3"), srtt_ms=7)
    data = net.wire(near, far, srtt_ms=20, mode=PeerMode.DATA)
    net.wire(puppet, near)
    net.run(10.0)
    last = {message.node_info.id: message.node_info for message in puppet.heard_of(NodeInfoAdv)}
    assert {info.path[-1].srtt_us for info in last.values()} == {20_000}
    data.cut()
    net.run(10.0)
    last = {message.node_info.id: message.node_info for message in puppet.heard_of(NodeInfoAdv)}
    assert {info.path[-1].srtt_us for info in last.values()} == {50_000}
