"""Sequence numbers: the newest word counts, also after a restart and in another's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import Role
from laps.types import NodeId, NodeMetrics, format_node_id
from laps.wire.extensions import NamespaceInfoAdv, NamespaceInfoWd
from laps.wire.peering import SubscribeInfoAdv, SubscribeInfoWd
from support.relays import App, Net, subscribe_info, track_hash

if TYPE_CHECKING:
    from laps.relay.relay import Relay

HOUR = 3600.0


def wanted(relay: Relay, track: str) -> set[str]:
    sources = relay.subscribes.sources(track_hash(track).full_name_hash)
    return {format_node_id(source) for source in sources}


def offered(relay: Relay) -> set[str]:
    sources = relay.extensions.namespaces.sources(((b"a",), None))
    return {format_node_id(source) for source in sources}


def metrics(load: float) -> NodeMetrics:
    return NodeMetrics(0, NodeId(0), load, 0, 0)


class Mesh:
    """Three relays, each a peer of both others, the first of which is started again."""

    def __init__(self) -> None:
        self.net, self.sub, self.pub = Net(), App(), App()
        self.near, self.far = self.net.relay("1:2"), self.net.relay("1:3")
        self.net.wire(self.near, self.far, extended=True)
        self.first = self.start()

    @property
    def others(self) -> tuple[Relay, Relay]:
        return self.near, self.far

    def start(self) -> Relay:
        self.first = self.net.relay("1:1")
        for other in self.others:
            self.net.wire(self.first, other, extended=True)
        return self.first

    def offer(self) -> None:
        self.net.announce(self.first, self.pub, "a")
        self.first.extensions.announce(self.pub, (b"a",), None, self.net.now)
        self.net.run()

    def restart_after(self, hours: float) -> None:
        self.net.run(hours * HOUR)
        self.net.crash(self.first, noticed=False)
        self.start()


# Sequence numbers are seconds, and 9.1 hours are half the circle.
UPTIMES = (0.1, 9.0, 9.5, 13.0, 18.0, 18.5)


@pytest.mark.parametrize("hours", UPTIMES)
def test_a_subscriber_that_is_back_late_after_a_restart_is_heard(hours: float) -> None:
    mesh = Mesh()
    mesh.net.subscribe(mesh.first, mesh.sub, "a/x")
    mesh.restart_after(hours)
    mesh.net.run(7.0)
    assert [wanted(other, "a/x") for other in mesh.others] == [set(), set()]
    mesh.net.subscribe(mesh.first, App(), "a/x")
    assert [wanted(other, "a/x") for other in mesh.others] == [{"1:1"}, {"1:1"}]


@pytest.mark.parametrize("hours", UPTIMES)
def test_a_subscriber_that_is_back_soon_after_a_restart_can_leave(hours: float) -> None:
    mesh, sub = Mesh(), App()
    mesh.net.subscribe(mesh.first, mesh.sub, "a/x")
    mesh.restart_after(hours)
    mesh.net.run(1.0)
    mesh.net.subscribe(mesh.first, sub, "a/x")
    mesh.net.run(20.0)
    assert [wanted(other, "a/x") for other in mesh.others] == [{"1:1"}, {"1:1"}]
    mesh.net.unsubscribe(mesh.first, sub, "a/x")
    mesh.net.run(20.0)
    assert [wanted(other, "a/x") for other in mesh.others] == [set(), set()]


@pytest.mark.parametrize("late_s", [1.0, 7.0])
@pytest.mark.parametrize("hours", UPTIMES)
def test_a_publisher_that_is_back_after_a_restart_is_known_and_can_leave(
    hours: float, late_s: float
) -> None:
    mesh = Mesh()
    mesh.offer()
    mesh.restart_after(hours)
    mesh.net.run(late_s)
    mesh.offer()
    mesh.net.run(20.0)
    assert [offered(other) for other in mesh.others] == [{"1:1"}, {"1:1"}]
    mesh.first.extensions.unannounce(mesh.pub, (b"a",), None, mesh.net.now)
    mesh.net.run()
    assert [offered(other) for other in mesh.others] == [set(), set()]


@pytest.mark.parametrize("hours", UPTIMES)
def test_metrics_are_news_after_a_restart(hours: float) -> None:
    mesh = Mesh()
    mesh.net.run(5.0)
    mesh.first.extensions.measured(metrics(0.25), mesh.net.now)
    mesh.restart_after(hours)
    mesh.net.run(5.0)
    mesh.first.extensions.measured(metrics(0.75), mesh.net.now)
    mesh.net.run(5.0)
    for other in mesh.others:
        held = other.extensions.metrics.get(mesh.first.id)
        assert held is not None
        assert held.load == 0.75


def test_a_subscribe_that_is_withdrawn_on_our_behalf_is_said_again() -> None:
    net = Net()
    source, middle, end = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    net.wire(source, middle)
    net.wire(middle, end)
    net.subscribe(source, App(), "a/x")
    net.settle()
    puppet = net.puppet("2:1")
    net.wire(puppet, end)
    held = end.subscribes.sequence(source.id, track_hash("a/x").full_name_hash)
    assert held is not None
    puppet.say(SubscribeInfoWd(subscribe_info("1:1", "a/x", held + 1)))
    assert [wanted(relay, "a/x") for relay in (source, middle, end)] == [{"1:1"}] * 3


def test_a_namespace_that_is_withdrawn_on_our_behalf_is_said_again() -> None:
    mesh = Mesh()
    mesh.offer()
    mesh.net.settle()
    info = mesh.near.extensions.namespaces.get(mesh.first.id, ((b"a",), None))
    assert info is not None
    lie = NamespaceInfoWd(type(info)(info.sequence + 1, info.source_node_id, (b"a",), None))
    peer = mesh.far.peers[mesh.near.id]
    mesh.far.extensions.receive(peer, lie, mesh.net.now)
    mesh.net.run()
    assert [offered(relay) for relay in mesh.others] == [{"1:1"}, {"1:1"}]


def test_a_word_that_is_old_is_answered_with_the_newer_one() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("2:1")
    net.wire(puppet, relay)
    puppet.say(SubscribeInfoAdv(subscribe_info("2:1", "a/x", 7)))
    puppet.say(SubscribeInfoAdv(subscribe_info("2:1", "a/x", 7)))
    assert puppet.heard_of(SubscribeInfoAdv) == []
    puppet.say(SubscribeInfoAdv(subscribe_info("2:1", "a/x", 5)))
    (answer,) = puppet.heard_of(SubscribeInfoAdv)
    assert answer.subscribe_info == subscribe_info("2:1", "a/x", 7)
    puppet.say(SubscribeInfoWd(subscribe_info("2:1", "a/x", 9)))
    puppet.say(SubscribeInfoAdv(subscribe_info("2:1", "a/x", 8)))
    (withdrawn,) = puppet.heard_of(SubscribeInfoWd)
    assert withdrawn.subscribe_info.sequence == 9


def test_a_namespace_that_is_old_is_answered_with_the_newer_one() -> None:
    mesh = Mesh()
    mesh.offer()
    mesh.net.settle()
    (wire,) = (wire for wire in mesh.net.wires if {end.relay for end in wire} == set(mesh.others))
    info = mesh.near.extensions.namespaces.get(mesh.first.id, ((b"a",), None))
    assert info is not None
    old = type(info)(info.sequence - 3, info.source_node_id, (b"a",), None)
    before = len(wire.there.said(NamespaceInfoAdv))
    mesh.far.extensions.receive(mesh.far.peers[mesh.near.id], NamespaceInfoAdv(old), mesh.net.now)
    mesh.net.run()
    assert len(wire.there.said(NamespaceInfoAdv)) == before + 1


# -- at a Stub -------------------------------------------------------------------------------------


class Home:
    """A Stub with a publisher, at an Edge that has viewers of its own and elsewhere."""

    def __init__(self) -> None:
        self.net, self.pub, self.local, self.remote = Net(), App(), App(), App()
        self.edge, self.far = self.net.relay("1:1"), self.net.relay("1:2")
        self.stub = self.net.relay("8:1", Role.STUB)
        self.net.wire(self.edge, self.far)
        self.net.wire(self.stub, self.edge)
        self.net.settle()


def test_a_stub_hears_that_the_last_viewer_left_also_if_the_edge_s_own_came_first() -> None:
    home = Home()
    home.net.run(8000.0)
    home.net.subscribe(home.edge, home.local, "a/x")
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.remote, "a/x")
    home.net.unsubscribe(home.edge, home.local, "a/x")
    home.net.run(120.0)
    assert len(home.pub.asked) == 1
    home.net.unsubscribe(home.far, home.remote, "a/x")
    home.net.run(20.0)
    assert home.pub.asked == []


def test_a_stub_hears_of_a_track_after_half_the_circle_of_words_on_others() -> None:
    home = Home()
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.remote, "a/x")
    (asked,) = home.edge.stubs
    for number in range(20_000):
        other = track_hash(f"a/{number}")
        asked.subscribe(other, b"")
        asked.unsubscribe(other)
    home.net.run()
    home.net.unsubscribe(home.far, home.remote, "a/x")
    home.net.run(20.0)
    assert home.pub.asked == []
    home.net.subscribe(home.far, home.remote, "a/x")
    assert len(home.pub.asked) == 1
    assert len(home.stub.subscribes) == 1
