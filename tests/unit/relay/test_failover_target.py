"""Where the clients of a relay that stops are sent, and why."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from laps.relay.failover import Candidate, Target, candidates, choose, has_room, target
from laps.relay.roles import Role
from laps.relay.settings import ExtensionSettings
from laps.types import Address, NodeId, NodeMetrics, PeerMode, parse_node_id
from support.relays import Net, Wire

if TYPE_CHECKING:
    from laps.relay.relay import Relay

FIRST = Candidate(NodeId(1), Address("192.0.2.1", 1), True, "eu", 10_000, 0.5)
SECOND = replace(FIRST, node_id=NodeId(2), address=Address("192.0.2.2", 1))


def chosen(*nodes: Candidate, region: str = "") -> tuple[NodeId, str]:
    """The node that is chosen, in whatever order they come, and why."""
    found = {choose(order, region) for order in permutations(nodes)}
    (best,) = found
    assert best is not None
    assert best.address == next(n.address for n in nodes if n.node_id == best.node_id)
    return best.node_id, best.reason


# -- the order -------------------------------------------------------------------------------------


def test_without_a_node_there_is_nowhere_to_go() -> None:
    assert choose([], "eu") is None


def test_the_only_node_is_the_one() -> None:
    assert chosen(FIRST) == (1, "the only node known that takes clients")


def test_room_counts_first() -> None:
    full = replace(FIRST, has_room=False, srtt_us=1, load=0.0)
    other = replace(SECOND, region="us")
    assert chosen(full, other, region="eu") == (2, "has room, 0:1 has none")


def test_our_region_counts_before_the_round_trip() -> None:
    near = replace(FIRST, region="us", srtt_us=1)
    assert chosen(near, SECOND, region="eu") == (2, 'in our region "eu", 0:1 is not')


def test_without_a_region_of_ours_no_region_counts() -> None:
    said = replace(FIRST, srtt_us=10_001)
    unsaid = replace(SECOND, region="")
    assert chosen(said, unsaid)[0] == 2
    assert chosen(said, unsaid, region="eu")[0] == 1
    assert chosen(said, unsaid, region="us")[0] == 2
    assert chosen(replace(said, srtt_us=9_999), unsaid)[0] == 1


def test_the_nearer_is_better_and_then_the_idler_and_then_the_lower_id() -> None:
    near = replace(SECOND, srtt_us=9_999, load=0.7)
    words = "lowest sRTT: 9.999 ms against 10 ms at 0:1"
    assert chosen(FIRST, near, region="eu") == (2, words)
    idle = replace(SECOND, load=0.25)
    assert chosen(FIRST, idle) == (2, "lowest load: 0.25 against 0.5 at 0:1")
    assert chosen(FIRST, SECOND) == (1, "lowest node id: 0:1 against 0:2")


def test_the_reason_is_what_told_it_from_the_second_best() -> None:
    third = replace(FIRST, node_id=NodeId(3), has_room=False)
    far = replace(SECOND, srtt_us=20_000)
    assert chosen(FIRST, far, third) == (1, "lowest sRTT: 10 ms against 20 ms at 0:2")


def test_the_nearest_of_full_nodes_is_better_than_none() -> None:
    full = replace(FIRST, has_room=False)
    near = replace(SECOND, has_room=False, srtt_us=5_000, load=1.0)
    assert chosen(full) == (1, "the only node known that takes clients; no node has room")
    words = "lowest sRTT: 5 ms against 10 ms at 0:1; no node has room"
    assert chosen(full, near) == (2, words)


def test_a_target_reads_as_a_line_of_the_log() -> None:
    made = Target(parse_node_id("1:2"), Address("::1", 3), "the only one")
    assert str(made) == "[::1]:3, node 1:2: the only one"


@pytest.mark.parametrize(
    ("load", "capacity_bps", "egress_bps", "room"),
    [
        (0.0, 0, 0, True),
        (0.79, 0, 10**12, True),
        (0.8, 0, 0, False),
        (1.0, 10**9, 0, False),
        (0.0, 1000, 899, True),
        (0.0, 1000, 900, False),
        (0.0, 1000, 5000, False),
    ],
)
def test_room_is_load_and_egress_below_their_bounds(
    load: float, capacity_bps: int, egress_bps: int, room: bool
) -> None:
    assert has_room(NodeMetrics(1, NodeId(1), load, capacity_bps, egress_bps)) is room


# -- who counts ------------------------------------------------------------------------------------


class World:
    """A relay that is about to stop, with peers that say how they are doing."""

    def __init__(self) -> None:
        self.net = Net()
        self.us = self.net.relay("1:1")
        self.wires: dict[Relay, Wire] = {}
        self.say(self.us, "192.0.2.1:1")

    def peer(self, node: str, address: str = "", srtt_ms: float = 10, **fields: object) -> Relay:
        made = self.net.relay(node, extensions=ExtensionSettings(grace_s=60))
        self.wires[made] = self.net.wire(self.us, made, srtt_ms, extended=True)
        self.net.settle()
        self.say(made, address, **fields)
        return made

    def say(self, relay: Relay, address: str, **fields: object) -> None:
        values = {"load": 0.1, "capacity_bps": 0, "egress_bps": 0} | fields
        said = NodeMetrics(0, relay.id, client_address=address, **values)  # type: ignore[arg-type]
        relay.extensions.measured(said, self.net.now)
        self.net.run(3)

    def target(self, *, local: bool = False) -> str | None:
        found = target(self.us, "", local=local)
        return None if found is None else str(found.address)


@pytest.fixture
def world() -> World:
    return World()


def test_a_relay_alone_has_nowhere_to_send_its_clients(world: World) -> None:
    assert world.us.id in [metrics.source_node_id for metrics in world.us.extensions.metrics]
    assert world.target() is None


def test_what_nodes_say_of_themselves_and_the_way_to_them_decides(world: World) -> None:
    world.peer("1:2", "192.0.2.2:1", srtt_ms=5, region="eu", load=0.25)
    world.peer("1:3", "192.0.2.3:1", srtt_ms=20, capacity_bps=10, egress_bps=10)
    assert candidates(world.us, local=False) == [
        Candidate(parse_node_id("1:2"), Address("192.0.2.2", 1), True, "eu", 5_000, 0.25),
        Candidate(parse_node_id("1:3"), Address("192.0.2.3", 1), False, "", 20_000, 0.1),
    ]
    assert world.target() == "192.0.2.2:1"


def test_our_own_region_is_asked_for(world: World) -> None:
    world.peer("1:2", "192.0.2.2:1", srtt_ms=5, region="us")
    world.peer("1:3", "192.0.2.3:1", srtt_ms=20, region="eu")
    found = target(world.us, "eu", local=False)
    assert found is not None
    assert str(found) == '192.0.2.3:1, node 1:3: in our region "eu", 1:2 is not'


def test_a_node_behind_another_is_as_far_as_the_whole_way(world: World) -> None:
    middle = world.net.relay("2:1", Role.VIA)
    world.net.wire(world.us, middle, 10, extended=True)
    beyond = world.net.relay("1:5")
    world.net.wire(middle, beyond, 5, extended=True)
    world.net.settle()
    world.say(beyond, "192.0.2.5:1")
    assert world.target() == "192.0.2.5:1"
    world.peer("1:2", "192.0.2.2:1", srtt_ms=16)
    assert world.target() == "192.0.2.5:1"
    world.peer("1:3", "192.0.2.3:1", srtt_ms=14)
    assert world.target() == "192.0.2.3:1"


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "relay.example",
        "relay.example:0",
        "relay.example:99999",
        ":33435",
        "0.0.0.0:33435",
        "[::]:33435",
        "::1:33435",
        "[fe80::1%eth0]:33435",
        "moqt://relay.example:33435",
        "a b:1",
        "relay.example:1\r\nx: y",
        "💥:1",
        "x" * 255 + ":1",
    ],
)
def test_an_address_that_cannot_be_dialled_is_passed_over(world: World, garbage: str) -> None:
    world.peer("1:2", garbage, srtt_ms=1)
    assert world.us.extensions.metrics.get(parse_node_id("1:2")) is not None
    assert world.target() is None
    world.peer("1:3", "[2001:db8::1]:1", srtt_ms=50, load=1.0)
    assert world.target() == "[2001:db8::1]:1"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_loopback_is_for_clients_of_the_same_machine(world: World, address: str) -> None:
    world.peer("1:2", address)
    assert world.target() is None
    assert world.target(local=True) == address


def test_a_peer_that_leaves_is_not_chosen(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1", srtt_ms=1)
    world.peer("1:3", "192.0.2.3:1", srtt_ms=50, load=1.0)
    near.drain(world.net.now)
    world.net.run(1)
    assert near.id in world.us.peers
    assert world.target() == "192.0.2.3:1"


def test_all_links_of_a_peer_that_leaves_count(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1")
    world.net.wire(world.us, near, mode=PeerMode.DATA, extended=True)
    near.drain(world.net.now)
    world.net.run(1)
    world.wires[near].cut()
    assert near.id in world.us.peers
    assert world.target() is None


def test_a_link_that_is_opened_while_a_peer_leaves_does_not_make_it_stay(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1")
    near.drain(world.net.now)
    world.net.run(1)
    world.net.wire(world.us, near, mode=PeerMode.DATA, extended=True)
    assert len(world.us.peers[near.id].links) == 2
    assert world.target() is None


def test_a_peer_that_left_is_not_chosen_while_others_still_lead_to_it(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1", srtt_ms=1)
    world.peer("1:3", srtt_ms=5)
    world.net.wire(near, world.net.relays["1:3"], extended=True)
    world.net.settle()
    world.wires[near].cut()
    assert near.id not in world.us.peers
    assert world.us.nodes.best(near.id) is not None
    assert world.us.extensions.metrics.get(near.id) is not None
    assert world.target() is None
    world.net.wire(near, world.us, extended=True)
    world.net.settle()
    assert world.target() == "192.0.2.2:1"


def test_a_node_that_is_gone_is_forgotten_with_its_address(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1")
    world.wires[near].cut()
    world.net.run(3)
    assert world.us.extensions.metrics.get(near.id) is None
    assert not world.us.extensions.is_lost(near.id)
    assert world.target() is None


def test_one_of_two_links_that_is_lost_says_nothing(world: World) -> None:
    near = world.peer("1:2", "192.0.2.2:1")
    other = world.net.wire(world.us, near, mode=PeerMode.DATA, extended=True)
    other.cut()
    assert world.target() == "192.0.2.2:1"


def test_a_node_that_begins_to_leave_takes_its_address_back_for_all_to_know(world: World) -> None:
    middle = world.peer("1:2")
    beyond = world.net.relay("1:5")
    world.net.wire(middle, beyond, extended=True)
    world.net.settle()
    world.say(beyond, "192.0.2.5:1")
    assert world.target() == "192.0.2.5:1"
    before = world.net.now
    left = NodeMetrics(0, beyond.id, 0.1, 0, 0)
    beyond.extensions.measured(left, before)
    world.net.run()
    assert world.net.now == before
    assert world.target() is None


def test_a_stub_knows_of_nobody() -> None:
    net = Net()
    edge, stub = net.relay("1:1"), net.relay("8:1", Role.STUB)
    net.wire(stub, edge, extended=True)
    net.settle()
    edge.extensions.measured(NodeMetrics(0, edge.id, 0, 0, 0, client_address="a:1"), net.now)
    net.run(3)
    assert target(stub, "", local=False) is None
    net.wires[0].cut()
    assert not edge.extensions.is_lost(stub.id)


def test_relays_that_stop_one_after_another_send_nobody_in_a_circle(world: World) -> None:
    """A rolling restart: each sends its clients to one that stays."""
    second = world.peer("1:2", "192.0.2.2:1")
    third = world.peer("1:3", "192.0.2.3:1")
    world.net.wire(second, third, extended=True)
    world.net.settle()
    assert world.target() == "192.0.2.2:1"
    world.us.drain(world.net.now)
    world.net.run(1)
    found = target(second, "", local=False)
    assert found is not None
    assert str(found.address) == "192.0.2.3:1"
    second.drain(world.net.now)
    world.net.run(1)
    assert target(third, "", local=False) is None
