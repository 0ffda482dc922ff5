"""What a relay remembers of others is bounded by what there is, and it is told of every change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.infobase.namespaces import NamespaceChange
from laps.relay import stub_namespaces
from laps.relay.pieces import MOST_IN_A_TURN
from laps.wire.extensions import NamespaceInfoAdv, NamespaceInfoWd
from laps.wire.peering import SubscribeInfoAdv, SubscribeInfoWd
from support.extensions import NORTH, World, offer
from support.relays import Net, subscribe_info

if TYPE_CHECKING:
    import pytest

    from laps.types import NodeId


def names(world: World, node_id: NodeId, count: int) -> None:
    """A peer offers so many namespaces."""
    peer = world.peer(node_id)
    for number in range(count):
        info = offer(1, node_id, (b"room", b"%d" % number))
        world.extensions.receive(peer, NamespaceInfoAdv(info), world.now)


def test_remembering_what_a_peer_confirmed_ends_with_its_withdraw() -> None:
    net = Net()
    relay, peer = net.relay("1:1"), net.puppet("2:1")
    net.wire(peer, relay)
    for number in range(50):
        peer.say(SubscribeInfoAdv(subscribe_info("2:1", f"a/{number}", 1)))
    assert relay.sizes()["confirmed"] == 50
    for number in range(50):
        peer.say(SubscribeInfoWd(subscribe_info("2:1", f"a/{number}", 2)))
    assert (relay.sizes()["confirmed"], relay.sizes()["subscribes"]) == (0, 0)


def test_remembering_what_a_peer_offered_ends_with_its_withdraw() -> None:
    world = World()
    peer = world.peer(NORTH)
    for sequence in (1, 2):
        kind = NamespaceInfoAdv if sequence == 1 else NamespaceInfoWd
        for number in range(50):
            info = offer(sequence, NORTH, (b"room", b"%d" % number))
            world.extensions.receive(peer, kind(info), world.now)
    assert [len(link.offered) for link in peer.links.values()] == [0]
    assert len(world.extensions.namespaces) == 0


def test_remembering_what_stubs_were_told_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stub_namespaces, "MAX_WITHDRAWN", 10)
    world = World()
    stub, client = world.stub(), object()
    world.extensions.begin_stub(stub, world.now)
    kept = world.extensions._stubs
    for number in range(100):
        namespace = (b"room", b"%d" % number)
        world.extensions.announce(client, namespace, None, world.now)
        assert world.extensions.told_to_stubs == 1
        world.extensions.unannounce(client, namespace, None, world.now)
    assert world.extensions.told_to_stubs == 0
    assert len(kept._sequences) <= 11
    kept.left(stub.node_id)
    assert len(kept._sequences) == 0


def test_events_of_a_node_with_very_many_namespaces_are_all_told() -> None:
    net = Net()
    relay = net.relay("1:1")
    assert relay.events.maxlen is None
    world = World()
    names(world, NORTH, 12_000)
    world.forget_events()
    world.extensions.purge(NORTH, world.now)
    assert len(world.events) <= MOST_IN_A_TURN
    while not world.extensions.is_idle():
        world.extensions.tick(world.now)
    gone = [event for event in world.events if isinstance(event, NamespaceChange)]
    assert len(gone) == 12_000


def test_stubs_are_told_in_pieces_of_what_a_lost_node_offered() -> None:
    world = World()
    stub = world.stub()
    world.extensions.begin_stub(stub, world.now)
    names(world, NORTH, 350)
    assert world.extensions.told_to_stubs == 350
    world.extensions.purge(NORTH, world.now)
    assert 0 < world.extensions.told_to_stubs < 350
    assert world.extensions.deadline() == 0.0
    for _ in range(350 // MOST_IN_A_TURN):
        world.extensions.tick(world.now)
    assert (world.extensions.told_to_stubs, world.extensions.is_idle()) == (0, True)
