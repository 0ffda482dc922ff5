"""When ways change: the next one is taken at once, and what runs on the old one finishes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import Role
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType, SnsId, parse_node_id
from laps.wire.peering import (
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)
from support.relays import App, Net, Puppet, Wire, subscribe_info

if TYPE_CHECKING:
    from laps.relay.relay import Relay


class Diamond:
    """o-relay, two vias side by side, s-relay; the first via is the nearer."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App(), App()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.vias = [self.net.relay(f"2:{low}", Role.VIA) for low in (1, 2)]
        near, far = self.vias
        self.up = [self.net.wire(self.origin, near, 10), self.net.wire(self.origin, far, 20)]
        self.down = [self.net.wire(near, self.edge, 10), self.net.wire(far, self.edge, 20)]
        self.net.settle()
        self.net.announce(self.origin, self.pub, "a")
        self.net.subscribe(self.edge, self.sub, "a/x")

    def publish(self, key: object, data: bytes, fin: bool = True) -> None:
        self.net.publish(self.origin, self.pub, "a/x", key, data, fin)

    def carried(self) -> list[int]:
        """How many streams went by each via."""
        return [len(wire.here.streams) for wire in self.down]


# -- a way that is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["up", "down"])
def test_an_alternate_takes_over_at_once(where: str) -> None:
    diamond = Diamond()
    diamond.publish(0, b"before")
    assert diamond.carried() == [1, 0]
    before = diamond.net.now
    (diamond.up if where == "up" else diamond.down)[0].cut()
    diamond.publish(1, b"after")
    assert diamond.net.now == before
    assert diamond.sub.got == [b"before", b"after"]
    assert diamond.carried() == [1, 1]


def test_a_via_that_crashes_loses_no_new_stream() -> None:
    diamond = Diamond()
    for key in range(10):
        if key == 5:
            diamond.net.crash(diamond.vias[0])
        diamond.publish(key, bytes([key]))
    assert diamond.sub.got == [bytes([key]) for key in range(10)]


def test_a_stream_under_way_on_a_link_that_dies_is_given_up_and_the_next_is_whole() -> None:
    diamond = Diamond()
    diamond.publish(0, b"begins ", fin=False)
    diamond.down[0].cut()
    diamond.publish(0, b"and ends")
    diamond.publish(1, b"next")
    assert diamond.sub.got == [b"begins ", b"next"]
    assert diamond.sub.streams[0].reset_code is not None


def test_both_ways_lost_and_one_back() -> None:
    diamond = Diamond()
    for wire in diamond.up:
        wire.cut()
    diamond.publish(0, b"to nobody")
    diamond.net.wire(diamond.origin, diamond.vias[1])
    diamond.net.settle()
    # A Via keeps no subscribes, so the o-relay hears of it when somebody subscribes again.
    diamond.net.unsubscribe(diamond.edge, diamond.sub, "a/x")
    diamond.net.run(6.0)
    diamond.net.subscribe(diamond.edge, diamond.sub, "a/x")
    diamond.publish(1, b"back")
    assert diamond.sub.got == [b"back"]


# -- make before break -----------------------------------------------------------------------------


def moved(diamond: Diamond) -> None:
    """The first way gets slow, and stays so: the second is now the better."""
    diamond.up[0].set_srtt(90)
    diamond.net.run(5.0)


def test_a_running_stream_finishes_on_the_old_way_and_a_new_one_takes_the_new() -> None:
    diamond = Diamond()
    diamond.publish(0, b"begins ", fin=False)
    moved(diamond)
    diamond.publish(1, b"new ", fin=False)
    diamond.publish(0, b"goes on ", fin=False)
    diamond.net.run(10.0)
    diamond.publish(0, b"and ends")
    diamond.publish(1, b"too")
    assert diamond.sub.got == [b"begins goes on and ends", b"new too"]
    assert all(stream.finished for stream in diamond.sub.streams)
    assert diamond.carried() == [1, 1]


def test_the_new_way_is_there_before_the_old_one_goes() -> None:
    diamond = Diamond()
    diamond.publish(0, b"begins ", fin=False)
    moved(diamond)
    assert diamond.up[1].here.sets == {1: {"1:2"}}
    assert diamond.up[0].here.sets == {1: {"1:2"}}
    assert diamond.down[0].here.sets == {1: {"1:2"}}
    diamond.publish(0, b"and ends")
    assert diamond.up[0].here.sets == {}
    diamond.net.run(1.0)
    assert diamond.down[0].here.sets == {}
    assert diamond.vias[0].sizes()["flows"] == 0


def test_without_a_stream_under_way_the_old_set_goes_at_once() -> None:
    diamond = Diamond()
    moved(diamond)
    assert diamond.up[0].here.sets == {}
    assert diamond.up[1].here.sets == {1: {"1:2"}}


def test_ways_that_change_again_and_again_lose_and_double_nothing() -> None:
    diamond = Diamond()
    for key in range(40):
        diamond.publish(key, b"first ", fin=False)
        diamond.up[0].set_srtt(90 if key % 2 else 10)
        diamond.publish(key, b"second ", fin=False)
        diamond.down[1].set_srtt(90 if key % 3 else 10)
        if key >= 3:
            diamond.publish(key - 3, b"last")
        diamond.net.run(8.0)
    for key in range(37, 40):
        diamond.publish(key, b"last")
    assert diamond.sub.got == [b"first second last"] * 40
    assert all(stream.finished for stream in diamond.sub.streams)
    assert min(diamond.carried()) > 0
    diamond.net.run(5.0)
    assert all(relay.sizes()["streams"] == 0 for relay in diamond.net.relays.values())
    assert sum(len(wire.here.sets) for wire in diamond.up) == 1
    assert sum(len(wire.here.sets) for wire in diamond.down) == 1


def test_a_direct_link_takes_over_from_a_via_and_gives_back() -> None:
    diamond = Diamond()
    diamond.publish(0, b"begins ", fin=False)
    direct = diamond.net.wire(diamond.origin, diamond.edge, 500)  # fewest hops first
    diamond.publish(1, b"new")
    diamond.publish(0, b"and ends")
    assert diamond.sub.got == [b"begins and ends", b"new"]
    assert len(direct.here.streams) == 1
    direct.cut()
    diamond.publish(2, b"newer")
    assert diamond.sub.got[2:] == [b"newer"]
    assert diamond.carried() == [2, 0]


# -- at a via --------------------------------------------------------------------------------------


@pytest.fixture
def between() -> tuple[Net, Relay, Puppet, list[Puppet], list[Wire]]:
    """A Via with an upstream, and two ways to 9:9."""
    net = Net()
    via, source = net.relay("1:1", Role.VIA), net.puppet("2:9")
    net.wire(source, via)
    ways = [net.puppet(f"2:{low}", NodeType.VIA) for low in (1, 2)]
    wires = [net.wire(way, via) for way in ways]
    for way in ways:
        way.say(NodeInfoAdv(to_target(way)))
    return net, via, source, ways, wires


def to_target(way: Puppet) -> NodeInfo:
    path = (NodePathItem(way.id, 5_000),)
    return NodeInfo(parse_node_id("9:9"), NodeType.EDGE, "", path=path)


def test_a_via_is_told_another_way_and_takes_it(
    between: tuple[Net, Relay, Puppet, list[Puppet], list[Wire]],
) -> None:
    _, _, source, (near, far), _ = between
    target = parse_node_id("9:9")
    source.say(SubscribeNodeSetAdv(SnsId(7), (target,)))
    assert near.heard_of(SubscribeNodeSetAdv) == [SubscribeNodeSetAdv(SnsId(1), (target,))]
    near.say(NodeInfoWd(to_target(near)))
    assert far.heard_of(SubscribeNodeSetAdv) == [SubscribeNodeSetAdv(SnsId(1), (target,))]
    assert near.heard_of(SubscribeNodeSetWd) == [SubscribeNodeSetWd(SnsId(1))]
    far.say(NodeInfoWd(to_target(far)))
    assert far.heard_of(SubscribeNodeSetWd) == [SubscribeNodeSetWd(SnsId(1))]
    near.say(NodeInfoAdv(to_target(near)))
    assert near.heard_of(SubscribeNodeSetAdv)[-1].nodes == (target,)


def test_data_never_goes_back_where_it_came_from(
    between: tuple[Net, Relay, Puppet, list[Puppet], list[Wire]],
) -> None:
    _, _, _, (near, far), _ = between
    target = parse_node_id("9:9")
    near.say(SubscribeNodeSetAdv(SnsId(7), (target,)))
    assert near.heard_of(SubscribeNodeSetAdv) == []
    assert [message.nodes for message in far.heard_of(SubscribeNodeSetAdv)] == [(target,)]


def test_sets_are_updated_in_place_as_subscribers_come_and_go() -> None:
    net, pub = Net(), App()
    origin, via = net.relay("1:1"), net.relay("2:1", Role.VIA)
    edges = [net.relay(f"3:{low}") for low in range(1, 5)]
    up = net.wire(origin, via)
    for edge in edges:
        net.wire(via, edge)
    net.settle()
    net.announce(origin, pub, "a")
    apps = [App() for _ in edges]
    net.subscribe(edges[0], apps[0], "a/x")
    net.publish(origin, pub, "a/x", "long", b"begins ", fin=False)
    for edge, app in zip(edges[1:], apps[1:], strict=True):
        net.subscribe(edge, app, "a/x")
    assert up.here.sets == {1: {"3:1", "3:2", "3:3", "3:4"}}
    net.publish(origin, pub, "a/x", "next", b"to all")
    for edge, app in zip(edges[1:], apps[1:], strict=True):
        net.unsubscribe(edge, app, "a/x")
    net.run(6.0)
    assert up.here.sets == {1: {"3:1"}}
    net.publish(origin, pub, "a/x", "long", b"and ends")
    assert apps[0].got == [b"begins and ends", b"to all"]
    assert [app.got for app in apps[1:]] == [[b"to all"]] * 3
    net.unsubscribe(edges[0], apps[0], "a/x")
    net.run(6.0)
    assert up.here.sets == {}
    assert [message.sns_id for message in up.here.said(SubscribeNodeSetWd)] == [1]


def test_a_stream_ahead_of_the_word_about_a_move_goes_neither_twice_nor_astray() -> None:
    # Between two relays data may overtake control. So what is sent after a move carries an id that
    # the other side does not take for the set of before.
    net, pub = Net(), App()
    origin = net.relay("1:1")
    vias = [net.puppet(f"2:{low}", NodeType.VIA) for low in (1, 2)]
    targets = [parse_node_id(node) for node in ("9:1", "9:2")]
    for via in vias:
        net.wire(via, origin)
    for via, srtt_us in zip(vias, (5_000, 50_000), strict=True):
        for target in targets:
            path = (NodePathItem(via.id, srtt_us),)
            via.say(NodeInfoAdv(NodeInfo(target, NodeType.EDGE, "", path=path)))
    net.announce(origin, pub, "a")
    for node in ("9:1", "9:2"):
        vias[0].say(SubscribeInfoAdv(subscribe_info(node, "a/x", 1)))
    net.publish(origin, pub, "a/x", 0, b"before")
    vias[0].say(NodeInfoWd(NodeInfo(targets[0], NodeType.EDGE, "")))
    net.publish(origin, pub, "a/x", 1, b"after")

    for via in vias:
        sets: dict[int, list[tuple[NodeId, ...]]] = {}
        for message in via.heard_of(SubscribeNodeSetAdv):
            sets.setdefault(message.sns_id, []).append(message.nodes)
        used = [int.from_bytes(bytes(stream.data[2:10])) for stream in via.streams.values()]
        assert len(used) == len(set(used))
        if via is vias[1]:
            assert [sets[sns_id] for sns_id in used] == [[(targets[0],)]]
        else:
            assert sets[used[1]] == [(targets[1],)]
