"""A plan laid over selection: followed where it can be, and never at the cost of an object."""

from __future__ import annotations

import pytest

from laps.relay.roles import Role
from laps.routing.plan import NO_PLAN, Plan
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType, parse_node_id
from laps.wire.extensions import GoAway
from laps.wire.peering import NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv
from support.relays import App, Net, subscribe_info, track_hash

EDGE = parse_node_id("1:2")


class Diamond:
    """o-relay, two vias side by side, s-relay; the first via is the nearer."""

    def __init__(self, *, direct: bool = False, extended: bool = False) -> None:
        self.net, self.pub, self.sub = Net(), App(), App()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.vias = [self.net.relay(f"2:{low}", Role.VIA) for low in (1, 2)]
        self.up = [
            self.net.wire(self.origin, via, srtt_ms, extended=extended)
            for via, srtt_ms in zip(self.vias, (10, 20), strict=True)
        ]
        self.down = [
            self.net.wire(via, self.edge, srtt_ms, extended=extended)
            for via, srtt_ms in zip(self.vias, (10, 20), strict=True)
        ]
        if direct:
            self.straight = self.net.wire(self.origin, self.edge, 500)
        self.net.settle()
        self.net.announce(self.origin, self.pub, "a")
        self.net.subscribe(self.edge, self.sub, "a/x")

    def follow(self, via: NodeId | None, sequence: int = 1) -> None:
        self.origin.follow_plan(plan(via, sequence), self.net.now)
        self.net.run()

    def publish(self, key: object, data: bytes, fin: bool = True) -> None:
        self.net.publish(self.origin, self.pub, "a/x", key, data, fin)

    def carried(self) -> list[int]:
        """How many streams went by each via."""
        return [len(wire.here.streams) for wire in self.down]


def plan(via: NodeId | None, sequence: int = 1) -> Plan:
    vias = {track_hash("a/x").full_name_hash: {"eu": () if via is None else (via,)}}
    return Plan(sequence, 1e10, {EDGE: "eu"}, vias)


def test_a_track_goes_by_the_via_that_the_plan_names() -> None:
    diamond = Diamond()
    diamond.follow(diamond.vias[1].id)
    diamond.publish(0, b"by the second")
    assert diamond.sub.got == [b"by the second"]
    assert diamond.carried() == [0, 1]


def test_other_tracks_go_by_selection() -> None:
    diamond = Diamond()
    diamond.net.subscribe(diamond.edge, diamond.sub, "a/y")
    diamond.follow(diamond.vias[1].id)
    diamond.net.publish(diamond.origin, diamond.pub, "a/y", "y", b"nearest", True)
    assert diamond.carried() == [1, 0]


def test_direct_goes_to_the_s_relay_and_a_via_instead_of_it_where_the_plan_says_so() -> None:
    diamond = Diamond(direct=True)
    diamond.publish(0, b"fewest hops")
    assert (diamond.carried(), len(diamond.straight.here.streams)) == ([0, 0], 1)
    diamond.follow(diamond.vias[0].id)
    diamond.publish(1, b"by the first")
    assert (diamond.carried(), len(diamond.straight.here.streams)) == ([1, 0], 1)
    diamond.follow(None, 2)
    diamond.publish(2, b"direct")
    assert (diamond.carried(), len(diamond.straight.here.streams)) == ([1, 0], 2)
    assert diamond.sub.got == [b"fewest hops", b"by the first", b"direct"]


def test_without_the_plan_selection_decides_again() -> None:
    diamond = Diamond()
    diamond.follow(diamond.vias[1].id)
    diamond.origin.follow_plan(NO_PLAN, diamond.net.now)
    diamond.net.run()
    diamond.publish(0, b"nearest")
    assert diamond.carried() == [1, 0]


def test_a_via_that_is_no_peer_or_does_not_lead_there_leaves_it_to_selection() -> None:
    diamond = Diamond()
    diamond.follow(parse_node_id("9:9"))
    diamond.publish(0, b"all the same")
    assert diamond.sub.got == [b"all the same"]
    assert diamond.carried() == [1, 0]
    assert diamond.origin.router.counters.unmet_plans > 0


def test_direct_without_a_link_to_the_s_relay_leaves_it_to_selection() -> None:
    diamond = Diamond()
    diamond.follow(None)
    diamond.publish(0, b"all the same")
    assert diamond.sub.got == [b"all the same"]


@pytest.mark.parametrize("where", ["up", "down"])
def test_a_planned_via_that_is_lost_gives_way_to_the_other(where: str) -> None:
    diamond = Diamond()
    diamond.follow(diamond.vias[1].id)
    diamond.publish(0, b"planned")
    (diamond.up if where == "up" else diamond.down)[1].cut()
    diamond.net.run(5.0)  # `down`: the via tells the o-relay with its next advertisements
    diamond.publish(1, b"selected")
    assert diamond.sub.got == [b"planned", b"selected"]
    assert diamond.carried() == [1, 1]


def test_a_planned_via_that_comes_back_is_used_again() -> None:
    diamond = Diamond()
    diamond.follow(diamond.vias[1].id)
    diamond.up[1].cut()
    diamond.publish(0, b"selected")
    diamond.net.wire(diamond.origin, diamond.vias[1], 20)
    diamond.net.settle()
    diamond.publish(1, b"planned")
    assert diamond.sub.got == [b"selected", b"planned"]
    assert diamond.carried() == [1, 1]


def test_a_via_that_takes_back_an_s_relay_is_left_though_the_best_way_is_another() -> None:
    net, pub = Net(), App()
    origin = net.relay("1:1")
    ways = [net.puppet(f"2:{low}", NodeType.VIA) for low in (1, 2)]
    wires = [net.wire(way, origin) for way in ways]
    infos = [
        NodeInfo(EDGE, NodeType.EDGE, "", path=(NodePathItem(way.id, srtt_us),))
        for way, srtt_us in zip(ways, (5_000, 9_000), strict=True)
    ]
    for way, info in zip(ways, infos, strict=True):
        way.say(NodeInfoAdv(info))
    net.announce(origin, pub, "a")
    ways[0].say(SubscribeInfoAdv(subscribe_info("1:2", "a/x", 1)))
    origin.follow_plan(plan(ways[1].id), net.now)
    net.run()
    assert [wire.there.sets for wire in wires] == [{}, {1: {"1:2"}}]
    ways[1].say(NodeInfoWd(infos[1]))
    assert [list(wire.there.sets.values()) for wire in wires] == [[{"1:2"}], []]
    ways[1].say(NodeInfoAdv(infos[1]))
    assert [list(wire.there.sets.values()) for wire in wires] == [[], [{"1:2"}]]


def test_a_planned_via_that_leaves_is_left_before_it_goes() -> None:
    diamond = Diamond(extended=True)
    diamond.follow(diamond.vias[1].id)
    diamond.publish(0, b"planned")
    diamond.vias[1].drain(diamond.net.now)
    diamond.net.run()
    assert diamond.up[1].there.said(GoAway)
    diamond.publish(1, b"selected")
    assert diamond.sub.got == [b"planned", b"selected"]
    assert diamond.carried() == [1, 1]


def test_plans_that_change_again_and_again_lose_and_double_nothing() -> None:
    diamond = Diamond(direct=True)
    ways = [diamond.vias[0].id, diamond.vias[1].id, None]
    for key in range(60):
        diamond.publish(key, b"first ", fin=False)
        diamond.follow(ways[key * 7 % 3], key)
        diamond.publish(key, b"second ", fin=False)
        if key % 4 == 0:
            diamond.origin.follow_plan(NO_PLAN, diamond.net.now)
        if key >= 3:
            diamond.publish(key - 3, b"last")
        diamond.net.run(0.3)
    for key in range(57, 60):
        diamond.publish(key, b"last")
    assert diamond.sub.got == [b"first second last"] * 60
    assert all(stream.finished for stream in diamond.sub.streams)
    assert min(*diamond.carried(), len(diamond.straight.here.streams)) > 0
    diamond.net.run(5.0)
    assert all(relay.sizes()["streams"] == 0 for relay in diamond.net.relays.values())
