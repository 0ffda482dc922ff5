"""When everybody has left, nothing is left: no entry in any table, nothing about to happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import CloseCode
from laps.relay.roles import Role
from laps.types import PeerMode
from laps.wire.peering import SubscribeInfoWd
from support.relays import App, Net

if TYPE_CHECKING:
    from laps.relay.relay import Relay


def sizes_of(relay: Relay) -> dict[str, int]:
    """How full its tables are, when its shell has taken what it is told."""
    relay.events.clear()
    return relay.sizes()


class World:
    """Every role at once, with publishers, subscribers and streams under way."""

    def __init__(self) -> None:
        self.net = net = Net()
        self.edges = [net.relay(f"1:{low}") for low in (1, 2, 3)]
        self.vias = [net.relay("2:1", Role.VIA), net.relay("2:2", Role.VIA, reflect=True)]
        self.stub = net.relay("8:1", Role.STUB)
        self.server = net.relay("9:1", Role.CONTROL)
        one, two, three = self.edges
        for edge in self.edges:
            for via in self.vias:
                net.wire(edge, via)
            net.wire(edge, self.server, mode=PeerMode.CONTROL)
        net.wire(one, two)
        net.wire(one, two, mode=PeerMode.DATA)
        net.wire(self.vias[0], self.vias[1])
        net.wire(self.stub, three)
        net.wire(self.stub, two, 50)
        net.settle()
        self.clients: list[tuple[Relay, App]] = []
        for relay in (*self.edges, self.stub):
            pub, sub = App(), App()
            self.clients += [(relay, pub), (relay, sub)]
            net.announce(relay, pub, "a")
            for track in ("a/x", "a/y"):
                net.subscribe(relay, sub, track)
        for number, (relay, pub) in enumerate(self.clients[::2]):
            net.publish(relay, pub, "a/x", number, b"begins", fin=False)
            net.publish(relay, pub, "a/y", (number, 2), b"all of it")
            net.publish_datagram(relay, pub, "a/x", b"datagram")

    @property
    def relays(self) -> list[Relay]:
        return list(self.net.relays.values())

    def check_no_clients(self) -> None:
        for relay in self.relays:
            sizes = sizes_of(relay)
            left = {name: sizes[name] for name in sizes if name not in ("links", "peers", "nodes")}
            assert left == dict.fromkeys(left, 0), relay.self_info
        for wire in self.net.wires:
            assert wire.here.closed is not None or wire.here.sets == wire.there.sets == {}

    def check_empty(self) -> None:
        for relay in self.relays:
            sizes = sizes_of(relay)
            assert sizes == dict.fromkeys(sizes, 0), relay.self_info
            assert relay.is_idle()


@pytest.fixture
def world() -> World:
    return World()


def test_each_subscriber_hears_each_publisher_once(world: World) -> None:
    for _, sub in world.clients[1::2]:
        assert sorted(sub.got) == [b"all of it"] * 4 + [b"begins"] * 4
        assert sub.datagrams == [b"datagram"] * 4


def test_clients_leave_and_then_the_links(world: World) -> None:
    for relay, app in world.clients:
        world.net.leave(relay, app)
    world.net.run(10.0)
    world.check_no_clients()
    assert all(app.asked == [] for _, app in world.clients)
    for wire in world.net.wires:
        wire.cut()
    world.net.run(20.0)
    world.check_empty()


def test_subscribers_leave_first(world: World) -> None:
    for relay, sub in world.clients[1::2]:
        for track in ("a/x", "a/y"):
            world.net.unsubscribe(relay, sub, track)
    world.net.run(10.0)
    assert all(pub.asked == [] for _, pub in world.clients)
    for number, (relay, pub) in enumerate(world.clients[::2]):
        world.net.publish(relay, pub, "a/x", number, b"ends")
        world.net.leave(relay, pub)
    world.net.run(10.0)
    world.check_no_clients()


def test_the_links_go_first(world: World) -> None:
    for wire in world.net.wires:
        wire.cut()
    for relay, app in world.clients:
        world.net.leave(relay, app)
    world.net.run(20.0)
    world.check_empty()


@pytest.mark.parametrize("number", range(7))
def test_one_relay_stops_in_good_order(world: World, number: int) -> None:
    stopping = world.relays[number]
    links = [end for wire in world.net.wires for end in wire if end.relay is stopping]
    stopping.drain(world.net.now)
    world.net.run(stopping.settings.extensions.grace_s + 0.1)
    assert all(end.closed == (CloseCode.GOAWAY, "the relay stops") for end in links)
    assert all(end.other.closed is not None for end in links)
    assert stopping.sizes()["links"] == stopping.sizes()["peers"] == 0
    if stopping in world.edges:
        told = [len(end.said(SubscribeInfoWd)) for end in links if end.other.relay is world.server]
        assert told == [2]
    world.net.settle()
    for relay in world.relays:
        assert stopping.id not in relay.nodes
        assert all(info.source_node_id != stopping.id for info in relay.subscribes) or (
            relay is stopping
        )


def test_relays_crash_one_after_another(world: World) -> None:
    for relay in world.relays[:-1]:
        world.net.crash(relay)
        world.net.run(3.0)
    (last,) = world.relays
    world.net.run(20.0)
    sizes = sizes_of(last)
    assert sizes == dict.fromkeys(sizes, 0)


def test_it_goes_on_as_before_after_everything_was_cut(world: World) -> None:
    for wire in world.net.wires:
        wire.cut()
    world.net.run(3.0)
    one, two, three = world.edges
    for a, b in ((one, two), (two, three), (world.stub, three)):
        world.net.wire(a, b)
    world.net.settle()
    for _, sub in world.clients[1::2]:
        sub.streams.clear()
    for number, (relay, pub) in enumerate(world.clients[::2]):
        world.net.publish(relay, pub, "a/y", (number, 9), b"again")
    assert [sub.got for _, sub in world.clients[1::2]] == [[b"again"] * 4] * 4


def test_leaving_plain_peers_have_a_grace_and_hear_of_it_in_the_close() -> None:
    net = Net()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    near, far = net.relay("2:1"), net.relay("2:2")
    wires = [net.wire(relay, via) for via in (near, far) for relay in (origin, edge)]
    net.settle()
    pub, sub = App(), App()
    net.announce(origin, pub, "a")
    net.subscribe(edge, sub, "a/x")
    net.settle()
    used = near if any(wire.here.sets for wire in wires[:1]) else far
    used.drain(net.now)
    net.run()
    # Nothing is closed yet, and new data goes by the other.
    assert all(end.closed is None for wire in wires for end in wire)
    net.publish(origin, pub, "a/x", 0, b"during the grace")
    assert sub.got == [b"during the grace"]
    assert origin.nodes.best(edge.id).path.peer_id != used.id  # type: ignore[union-attr]
    net.run(used.settings.extensions.grace_s + 1)
    closed = [end.closed for wire in wires for end in wire if end.relay is used]
    assert closed == [(CloseCode.GOAWAY, "the relay stops")] * 2
