"""What a relay does with namespaces, metrics and GOAWAY: who is told, and who is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from laps.infobase.metrics import MetricsChange
from laps.infobase.namespaces import NamespaceChange
from laps.relay.extensions import PeerLeaving
from laps.relay.roles import Role
from laps.relay.telling import SPARED
from laps.types import NamespaceInfo, NodeId, NodeInfo, NodePathItem, NodeType, PeerMode, SnsId
from laps.wire.extensions import (
    MAX_NAMESPACE_PARTS,
    GoAway,
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
)
from laps.wire.peering import SubscribeNodeSetWd
from support.extensions import EPOCH, FAR, NORTH, ROOM, SELF, SOUTH, STUB, World, metrics, offer

if TYPE_CHECKING:
    from laps.relay.peers import Peer
    from laps.wire.peering import Message


@pytest.fixture
def world() -> World:
    return World()


# -- flooding --------------------------------------------------------------------------------------


def test_what_a_node_says_goes_on_to_peers_that_are_told_of_it(world: World) -> None:
    north, south, third = world.peer(NORTH), world.peer(SOUTH), world.peer(NodeId(6))
    world.reach(FAR, north)
    world.advertise(FAR, south)
    for message in (
        NodeMetricsAdv(metrics(1)),
        NamespaceInfoAdv(offer(1)),
        NamespaceInfoWd(offer(2)),
    ):
        assert world.extensions.receive(north, message, world.now)
        assert world.said() == [(SOUTH, message)]
    # The third was not told of the node, and hears what is held when it is.
    world.advertise(FAR, third)
    assert world.said() == [(third.node_id, NodeMetricsAdv(metrics(1)))]


def test_the_same_word_by_another_way_goes_no_further(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, north)
    world.reach(FAR, south)
    world.advertise(FAR, south)
    for message in (NodeMetricsAdv(metrics(1)), NamespaceInfoAdv(offer(1))):
        world.extensions.receive(north, message, world.now)
        world.said()
        assert world.extensions.receive(south, message, world.now)
        assert world.said() == []
    assert world.extensions.metrics.counters.duplicates == 1
    assert world.extensions.namespaces.counters.duplicates == 1


def test_a_peer_that_has_another_way_to_a_node_is_spared_most_of_its_metrics(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, north)
    world.advertise(FAR, south)
    heard(south)[FAR] = beyond(south, FAR)
    for sequence in range(1, 2 * SPARED + 1):
        world.extensions.receive(north, NodeMetricsAdv(metrics(sequence)), world.now)
    assert len(world.said()) == 2
    # It takes its own way back, so it goes by us now.
    heard(south).clear()
    world.extensions.telling.way_lost(south, FAR)
    held = NodeMetricsAdv(metrics(2 * SPARED))
    assert world.said() == [(SOUTH, held)]
    newer = NodeMetricsAdv(metrics(2 * SPARED + 1))
    world.extensions.receive(north, newer, world.now)
    assert world.said() == [(SOUTH, newer)]


def test_a_peer_with_a_way_of_its_own_is_spared_what_is_held_of_a_node_as_well(
    world: World,
) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    spared = 0
    for number in range(SPARED):
        node = NodeId(1000 + number)
        world.reach(node, north)
        heard(south)[node] = beyond(south, node)
        world.extensions.receive(north, NodeMetricsAdv(metrics(1, node)), world.now)
        world.advertise(node, south)
        spared += not world.said()
    assert spared == SPARED - 1


def heard(peer: Peer) -> dict[NodeId, NodeInfo]:
    """What a peer has told of nodes."""
    assert peer.control is not None
    return peer.control.heard


def beyond(peer: Peer, node: NodeId) -> NodeInfo:
    """A way of a peer to a node, with another on it."""
    path = NodePathItem(NodeId(90), 10), NodePathItem(peer.node_id, 10)
    return NodeInfo(node, NodeType.EDGE, path=path)


def test_a_peer_of_a_node_itself_may_hear_nothing_from_it_and_is_sent_its_metrics(
    world: World,
) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, north)
    world.advertise(FAR, south)
    path = (NodePathItem(SOUTH, 10),)
    heard(south)[FAR] = NodeInfo(FAR, NodeType.EDGE, path=path)
    for sequence in range(1, 9):
        world.extensions.receive(north, NodeMetricsAdv(metrics(sequence)), world.now)
    assert len(world.said()) == 8


def test_a_node_receives_what_others_say_of_it(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.advertise(NORTH, south)
    world.advertise(SOUTH, north)
    world.extensions.receive(north, NamespaceInfoAdv(offer(1, SOUTH)), world.now)
    assert world.said() == [(SOUTH, NamespaceInfoAdv(offer(1, SOUTH)))]
    world.extensions.receive(north, NodeMetricsAdv(metrics(1, NORTH)), world.now)
    assert world.said() == [(SOUTH, NodeMetricsAdv(metrics(1, NORTH)))]


def test_a_peer_without_extensions_is_passed_by(world: World) -> None:
    plain, north = world.peer(SOUTH, extended=False), world.peer(NORTH)
    world.advertise(NORTH, plain)
    world.extensions.receive(north, NamespaceInfoAdv(offer(1, NORTH)), world.now)
    world.extensions.announce("publisher", ROOM, None, world.now)
    world.measure()
    world.advertise(NORTH, plain)
    assert {node_id for node_id, _ in world.said()} == {NORTH}


def test_a_control_link_that_has_not_begun_hears_nothing_yet(world: World) -> None:
    world.link(NORTH)
    world.extensions.announce("publisher", ROOM, None, world.now)
    assert world.said() == []
    world.begin(world.peers[NORTH])
    own = offer(EPOCH, SELF)
    assert world.said() == [(NORTH, NamespaceInfoAdv(own))]


def test_control_that_moves_to_another_link_begins_anew(world: World) -> None:
    world.peer(NORTH)
    world.extensions.announce("publisher", ROOM, None, world.now)
    world.said()
    world.peer(NORTH)
    assert world.said() == [(NORTH, NamespaceInfoAdv(offer(EPOCH, SELF)))]
    world.link(NORTH, extended=False)
    world.extensions.unannounce("publisher", ROOM, None, world.now)
    assert world.said() == []


def test_a_node_s_words_stand_behind_its_advertisement(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, north)
    world.extensions.receive(north, NodeMetricsAdv(metrics(1)), world.now)
    world.extensions.receive(north, NamespaceInfoAdv(offer(1)), world.now)
    assert world.said() == []
    world.advertise(FAR, south)
    told = [NodeMetricsAdv(metrics(1)), NamespaceInfoAdv(offer(1))]
    assert world.said() == [(SOUTH, message) for message in told]


# -- what has no place -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        NodeMetricsAdv(metrics(1, NodeId(77))),
        NamespaceInfoAdv(offer(1, NodeId(77))),
        SubscribeNodeSetWd(SnsId(1)),
    ],
    ids=["unknown node", "unknown source", "no extension"],
)
def test_what_has_no_place_is_left(world: World, message: Message) -> None:
    north = world.peer(NORTH)
    assert not world.extensions.receive(north, message, world.now)
    assert (len(world.extensions.metrics), len(world.extensions.namespaces)) == (0, 0)
    assert world.events == []


@pytest.mark.parametrize(
    "message", [NodeMetricsAdv(metrics(1, SELF)), NamespaceInfoWd(offer(1, SELF))]
)
def test_what_others_say_of_us_is_not_kept(world: World, message: Message) -> None:
    north = world.peer(NORTH)
    world.said()
    assert world.extensions.receive(north, message, world.now)
    assert (len(world.extensions.metrics), len(world.extensions.namespaces)) == (0, 0)
    assert world.events == []
    assert world.said() == []


def test_a_node_that_is_gone_is_forgotten_with_all_it_said(world: World) -> None:
    north = world.peer(NORTH)
    world.extensions.receive(north, NodeMetricsAdv(metrics(9, NORTH)), world.now)
    world.extensions.receive(north, NamespaceInfoAdv(offer(9, NORTH)), world.now)
    world.forget_events()
    world.extensions.purge(NORTH, world.now)
    assert world.events == [
        MetricsChange(NORTH, metrics(9, NORTH), None),
        NamespaceChange(offer(9, NORTH), added=False, first=True),
    ]
    assert (len(world.extensions.metrics), len(world.extensions.namespaces)) == (0, 0)
    assert world.extensions.is_idle()
    # Whatever it says when it is back is taken.
    north = world.peer(NORTH)
    assert world.extensions.receive(north, NamespaceInfoAdv(offer(1, NORTH)), world.now)
    assert len(world.extensions.namespaces) == 1


# -- namespaces ------------------------------------------------------------------------------------


def test_the_first_publisher_is_told_and_the_last(world: World) -> None:
    world.peer(NORTH)
    world.extensions.announce("one", ROOM, None, world.now)
    first = offer(EPOCH, SELF)
    assert world.said() == [(NORTH, NamespaceInfoAdv(first))]
    world.extensions.announce("two", ROOM, None, world.now)
    world.extensions.announce("two", ROOM, None, world.now)
    world.extensions.unannounce("one", ROOM, None, world.now)
    world.extensions.unannounce("one", ROOM, None, world.now)
    assert world.said() == []
    world.extensions.unannounce("two", ROOM, None, world.now)
    last = offer(EPOCH + 1, SELF)
    assert world.said() == [(NORTH, NamespaceInfoWd(last))]
    assert world.events == [
        NamespaceChange(first, added=True, first=True),
        NamespaceChange(last, added=False, first=True),
    ]


def test_what_is_offered_again_is_newer_than_its_withdrawal(world: World) -> None:
    world.peer(NORTH)
    for publisher in ("one", "two"):
        world.extensions.announce(publisher, ROOM, b"video", world.now)
        world.extensions.unannounce(publisher, ROOM, b"video", world.now)
    numbers = [
        message.namespace_info.sequence
        for _, message in world.said()
        if isinstance(message, (NamespaceInfoAdv, NamespaceInfoWd))
    ]
    assert numbers == [EPOCH, EPOCH + 1, EPOCH + 2, EPOCH + 3]


def test_a_publisher_that_is_gone_takes_its_offers_along(world: World) -> None:
    world.peer(NORTH)
    world.extensions.announce("one", ROOM, None, world.now)
    world.extensions.announce("one", ROOM, b"video", world.now)
    world.extensions.announce("two", ROOM, None, world.now)
    world.said()
    world.extensions.client_closed("one", world.now)
    gone = NamespaceInfo(EPOCH + 1, SELF, ROOM, b"video")
    assert world.said() == [(NORTH, NamespaceInfoWd(gone))]
    assert list(world.extensions.namespaces) == [offer(EPOCH, SELF)]


def test_a_name_that_no_message_can_carry_stays_here(world: World) -> None:
    world.peer(NORTH)
    parts = (b"x",) * (MAX_NAMESPACE_PARTS + 1)
    world.extensions.announce("one", parts, None, world.now)
    world.extensions.client_closed("one", world.now)
    assert world.said() == []
    assert world.extensions.counters.names_too_long == 1


def test_what_a_node_no_longer_says_when_it_is_back_is_withdrawn_for_it(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.advertise(NORTH, south)
    gone = offer(7, NORTH, (b"gone",))
    for info in (offer(7, NORTH), gone):
        world.extensions.receive(north, NamespaceInfoAdv(info), world.now)
    world.pass_time(60)
    assert len(world.extensions.namespaces) == 2
    # Back by another link, before anybody saw it leave; the old one does not answer any more.
    (lost,) = north.links
    world.peer(NORTH)
    world.said()
    world.extensions.receive(north, NamespaceInfoAdv(offer(8, NORTH)), world.now)
    del north.links[lost]
    world.pass_time(4.9)
    assert len(world.extensions.namespaces) == 2
    world.said()
    world.pass_time(0.1)
    withdrawal = NamespaceInfoWd(replace(gone, sequence=8))
    assert sorted(world.said(), key=lambda item: item[0]) == [
        (node_id, withdrawal) for node_id in sorted([NORTH, SOUTH])
    ]
    assert list(world.extensions.namespaces) == [offer(8, NORTH)]


def test_what_a_node_has_said_on_another_link_that_is_open_need_not_be_said_again(
    world: World,
) -> None:
    """Of two links that both dialled, each side may have chosen the other for control."""
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.advertise(NORTH, south)
    world.extensions.receive(north, NamespaceInfoAdv(offer(7, NORTH)), world.now)
    world.pass_time(1)
    world.peer(NORTH)
    world.pass_time(10)
    assert list(world.extensions.namespaces) == [offer(7, NORTH)]


def test_a_node_whose_control_link_is_gone_again_is_left_as_it_is(world: World) -> None:
    north = world.peer(NORTH)
    world.reach(FAR, north)
    world.extensions.receive(north, NamespaceInfoAdv(offer(7, NORTH)), world.now)
    world.peer(NORTH)
    north.control = None
    world.pass_time(10)
    assert len(world.extensions.namespaces) == 1
    assert world.extensions.is_idle()


def test_sequences_of_what_was_withdrawn_are_dropped_in_time(world: World) -> None:
    world.extensions.announce("one", ROOM, None, world.now)
    world.extensions.unannounce("one", ROOM, None, world.now)
    assert world.extensions.deadline() == 60.0
    world.pass_time(60)
    assert world.extensions.deadline() is None


def test_word_of_a_namespace_goes_to_a_peer_that_knows_the_node_by_itself(world: World) -> None:
    """The way by which it does may be gone, and the word not come by it."""
    north, south = world.peer(NORTH), world.peer(SOUTH)
    for peer in (north, south):
        world.reach(FAR, peer)
    assert north.control is not None
    north.control.heard[FAR] = NodeInfo(FAR, NodeType.EDGE)
    world.said()
    world.extensions.receive(south, NamespaceInfoAdv(offer(7, FAR)), world.now)
    world.extensions.receive(south, NodeMetricsAdv(metrics(7, FAR)), world.now)
    world.extensions.receive(south, NamespaceInfoWd(offer(8, FAR)), world.now)
    assert world.said() == [
        (NORTH, NamespaceInfoAdv(offer(7, FAR))),
        (NORTH, NamespaceInfoWd(offer(8, FAR))),
    ]


# -- Stubs -----------------------------------------------------------------------------------------


def test_an_edge_offers_its_own_stub_s_namespaces_as_its_own(world: World) -> None:
    stub, _ = world.stub(), world.peer(NORTH)
    client = object()
    assert world.extensions.receive(stub, NamespaceInfoAdv(offer(3, STUB)), world.now, client)
    own = offer(EPOCH, SELF)
    assert world.said() == [(NORTH, NamespaceInfoAdv(own))]
    assert world.extensions.receive(stub, NamespaceInfoWd(offer(4, STUB)), world.now, client)
    assert world.said() == [(NORTH, NamespaceInfoWd(offer(EPOCH + 1, SELF)))]
    world.extensions.receive(stub, NamespaceInfoAdv(offer(5, STUB)), world.now, client)
    world.extensions.client_closed(client, world.now)
    assert len(world.extensions.namespaces) == 0


def test_a_stub_s_metrics_are_nobody_s_business(world: World) -> None:
    stub, client = world.stub(), object()
    assert not world.extensions.receive(stub, NodeMetricsAdv(metrics(1, STUB)), 0.0, client)
    assert len(world.extensions.metrics) == 0


def test_a_stub_hears_of_namespaces_as_its_edge_s_and_of_metrics_nothing(world: World) -> None:
    stub, north = world.stub(), world.peer(NORTH)
    world.extensions.announce("one", ROOM, None, world.now)
    assert (STUB, NamespaceInfoAdv(offer(EPOCH, SELF))) in world.said()
    world.extensions.begin_stub(stub, world.now)
    assert world.said() == [(STUB, NamespaceInfoAdv(offer(EPOCH + 1, SELF)))]
    world.measure()
    world.advertise(NORTH, stub)
    assert [node for node, _ in world.said()] == [NORTH]
    # It is told when the first node offers it, and when the last one no longer does.
    world.extensions.receive(north, NamespaceInfoAdv(offer(7, NORTH)), world.now)
    world.extensions.unannounce("one", ROOM, None, world.now)
    assert STUB not in {node for node, _ in world.said()}
    world.extensions.receive(north, NamespaceInfoWd(offer(8, NORTH)), world.now)
    assert world.said() == [(STUB, NamespaceInfoWd(offer(EPOCH + 2, SELF)))]


def test_a_stub_is_told_of_what_it_offers_itself_only_while_others_do(world: World) -> None:
    """It may have come here from another Edge, which still offers what it had there."""
    stub, north, client = world.stub(), world.peer(NORTH), object()
    world.extensions.receive(north, NamespaceInfoAdv(offer(7, NORTH)), world.now)
    world.extensions.receive(stub, NamespaceInfoAdv(offer(3, STUB)), world.now, client)
    told = [message for node, message in world.said() if node == STUB]
    assert told == [NamespaceInfoAdv(offer(EPOCH, SELF))]
    world.extensions.receive(north, NamespaceInfoWd(offer(8, NORTH)), world.now)
    assert [message for node, message in world.said() if node == STUB] == [
        NamespaceInfoWd(offer(EPOCH + 1, SELF))
    ]
    world.extensions.announce("one", ROOM, None, world.now)
    world.extensions.unannounce("one", ROOM, None, world.now)
    assert [message for node, message in world.said() if node == STUB] == [
        NamespaceInfoAdv(offer(EPOCH + 2, SELF)),
        NamespaceInfoWd(offer(EPOCH + 3, SELF)),
    ]
    assert len(world.extensions.namespaces) == 1


def test_a_stub_tells_one_edge_what_its_publishers_offer() -> None:
    world = World(Role.STUB)
    world.extensions.announce("one", ROOM, None, world.now)
    world.link(NORTH)
    world.peer(SOUTH)
    assert world.said() == [(SOUTH, NamespaceInfoAdv(offer(EPOCH, SELF)))]
    world.measure()
    world.extensions.unannounce("one", ROOM, None, world.now)
    assert world.said() == [(SOUTH, NamespaceInfoWd(offer(EPOCH + 1, SELF)))]
    message = NamespaceInfoAdv(offer(1, SOUTH))
    assert world.extensions.receive(world.peers[SOUTH], message, world.now)
    assert list(world.extensions.namespaces) == [offer(1, SOUTH)]
    assert not world.extensions.receive(
        world.peers[SOUTH], NamespaceInfoAdv(offer(1, NORTH)), world.now
    )
    assert world.extensions.is_idle()


# -- leaving ---------------------------------------------------------------------------------------


def test_who_drains_tells_every_extended_peer_once_and_stays_for_the_grace(world: World) -> None:
    world.peer(NORTH)
    world.link(NORTH, mode=PeerMode.DATA)
    world.peer(SOUTH, extended=False)
    world.stub()
    world.link(FAR, mode=PeerMode.DATA)
    assert world.extensions.drain(10.0, "relay.example:33434") == 15.0
    goaway = GoAway(5000, "relay.example:33434")
    assert world.said() == [(node_id, goaway) for node_id in (NORTH, STUB, FAR)]
    # Who comes now is told at once.
    world.peer(NodeId(6))
    assert world.said() == [(NodeId(6), goaway)]


def test_who_has_nobody_to_tell_leaves_at_once(world: World) -> None:
    world.peer(SOUTH, extended=False)
    assert world.extensions.drain(10.0) == 10.0
    assert world.said() == []


def test_what_is_beyond_a_peer_that_leaves_is_reached_another_way(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, north)
    world.reach(FAR, south, hops=3)
    world.reach(NodeId(8), north)
    world.now = 10.0
    touched = world.extensions.peer_leaves(north, GoAway(5000, "next:33434"), world.now)
    assert world.events == [PeerLeaving(NORTH, "next:33434", 15.0)]
    assert touched == {NORTH, FAR, NodeId(8)}
    best = {node_id: world.nodes.best(node_id) for node_id in (NORTH, FAR, NodeId(8))}
    ways = {node_id: choice and choice.path.peer_id for node_id, choice in best.items()}
    assert ways == {NORTH: NORTH, FAR: SOUTH, NodeId(8): NORTH}
    assert world.extensions.counters.goaways_received == 1


def test_a_link_that_comes_after_goaway_is_as_good_as_any(world: World) -> None:
    north, south = world.peer(NORTH), world.peer(SOUTH)
    world.reach(FAR, south, hops=3)
    world.extensions.peer_leaves(north, GoAway(0), world.now)
    for link_id in list(north.links):
        world.nodes.close_session(link_id)
        del north.links[link_id]
        world.extensions.link_closed(link_id)
    assert len(world.avoided) == 0
    world.reach(FAR, world.peer(NORTH))
    choice = world.nodes.best(FAR)
    assert choice is not None
    assert choice.path.peer_id == NORTH


def test_goaway_from_a_stub_is_reported(world: World) -> None:
    stub = world.stub()
    world.extensions.peer_leaves(stub, GoAway(1000), 1.0)
    assert world.events == [PeerLeaving(STUB, "", 2.0)]
