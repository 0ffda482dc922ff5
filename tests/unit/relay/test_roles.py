"""What a Via, a Control server and an Edge each hold, pass on and refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import RULES, Role
from laps.types import NodeType, PeerMode, SnsId, TrackKey
from laps.wire.objects import encode_datagram_header, encode_new_stream_header
from laps.wire.peering import (
    AnnounceInfoAdv,
    Connect,
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)
from support.relays import App, Net, subscribe_info

if TYPE_CHECKING:
    from laps.relay.relay import Relay


def test_the_table() -> None:
    assert {role: rules.node_type for role, rules in RULES.items()} == {
        Role.EDGE: NodeType.EDGE,
        Role.VIA: NodeType.VIA,
        Role.STUB: NodeType.STUB,
        Role.CONTROL: NodeType.VIA,
    }
    assert [role for role, rules in RULES.items() if rules.accepts_clients] == [
        Role.EDGE,
        Role.STUB,
    ]
    assert [role for role, rules in RULES.items() if not rules.accepts_peers] == [Role.STUB]
    assert [role for role, rules in RULES.items() if not rules.carries_data] == [Role.CONTROL]


# -- via -------------------------------------------------------------------------------------------


def test_a_via_passes_subscribes_through_and_keeps_none() -> None:
    net, app = Net(), App()
    one, via, two = net.relay("1:1"), net.relay("2:1", Role.VIA), net.relay("1:2")
    net.wire(one, via)
    net.wire(via, two)
    net.settle()
    net.subscribe(one, app, "a/x")
    assert via.sizes()["subscribes"] == 0
    assert two.sizes()["subscribes"] == 1
    late = net.puppet("1:3")
    net.wire(late, via)
    net.run(3.0)
    assert late.heard_of(SubscribeInfoAdv) == []
    net.unsubscribe(one, app, "a/x")
    net.run(6.0)
    assert two.sizes()["subscribes"] == 0
    assert len(late.heard_of(SubscribeInfoWd)) == 1


def test_a_subscribe_does_not_go_round_among_vias() -> None:
    net = Net()
    vias = [net.relay(f"2:{low}", Role.VIA) for low in range(1, 4)]
    edge = net.relay("1:1")
    net.wire(edge, vias[0])
    wires = [net.wire(a, b) for a, b in zip(vias, [*vias[1:], vias[0]], strict=True)]
    net.settle()
    net.subscribe(edge, App(), "a/x")
    sent = sum(len(end.said(SubscribeInfoAdv)) for wire in wires for end in wire)
    assert 2 <= sent <= 4


def test_a_via_that_reflects_keeps_and_tells_who_comes_later() -> None:
    net, app = Net(), App()
    one, via = net.relay("1:1"), net.relay("2:1", Role.VIA, reflect=True)
    net.wire(one, via)
    net.subscribe(one, app, "a/x")
    assert via.sizes()["subscribes"] == 1
    late = net.relay("1:2")
    net.wire(late, via)
    net.settle()
    assert late.sizes()["subscribes"] == 1
    net.unsubscribe(one, app, "a/x")
    net.run(6.0)
    assert via.sizes()["subscribes"] == late.sizes()["subscribes"] == 0


def test_announces_go_no_further_than_the_relay_they_are_made_at() -> None:
    net = Net()
    relay = net.relay("1:1")
    wires = [net.wire(relay, net.relay("2:1", Role.VIA)), net.wire(relay, net.relay("1:2"))]
    net.announce(relay, App(), "a")
    net.settle()
    assert all(not end.said(AnnounceInfoAdv) for wire in wires for end in wire)


# -- control servers -------------------------------------------------------------------------------


def test_a_control_server_dials_for_control_alone() -> None:
    net = Net()
    server, edge = net.relay("9:1", Role.CONTROL), net.relay("1:1")
    wire = net.wire(server, edge)
    (connect,) = wire.here.said(Connect)
    assert (connect.peer_mode, connect.node_info.type) == (PeerMode.CONTROL, NodeType.VIA)
    assert server.id in edge.nodes


def test_a_control_server_carries_no_data_whoever_sends_it() -> None:
    net = Net()
    server, puppet, edge = net.relay("9:1", Role.CONTROL), net.puppet("1:1"), net.relay("1:2")
    net.wire(edge, server, mode=PeerMode.CONTROL)
    wire = net.wire(puppet, server, mode=PeerMode.CONTROL)
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (edge.id,)))
    stream = puppet.send(encode_new_stream_header(SnsId(1), TrackKey(2), 0, 0, 0))
    puppet.end.send_datagram(encode_datagram_header(SnsId(1), TrackKey(2), 0), 0)
    net.run()
    assert [stream_id for stream_id, _ in wire.there.ended] == [stream.stream_id]
    assert server.sizes()["flows"] == server.sizes()["streams"] == 0
    assert server.counters.unwanted_messages == 1
    assert not server.data.holding


class Cluster:
    """Two control servers, three edges that know both, and data links among the edges."""

    def __init__(self) -> None:
        self.net = Net()
        self.servers = [self.net.relay(f"9:{low}", Role.CONTROL) for low in (1, 2)]
        self.edges = [self.net.relay(f"1:{low}") for low in (1, 2, 3)]
        self.net.wire(self.servers[0], self.servers[1])
        for edge in self.edges:
            for server in self.servers:
                self.net.wire(edge, server, mode=PeerMode.CONTROL)
        one, two, three = self.edges
        self.data = [
            self.net.wire(a, b, mode=PeerMode.DATA)
            for a, b in ((one, two), (one, three), (two, three))
        ]
        self.net.settle()


def check(cluster: Cluster, pub: App, sub: App, key: object, servers: list[Relay]) -> None:
    """Whatever one edge publishes reaches another, and all tables agree."""
    one, _, three = cluster.edges
    cluster.net.publish(one, pub, "a/x", key, b"data")
    assert sub.got[-1] == b"data"
    assert len(sub.got) == len(sub.streams)
    for relay in (*cluster.edges, *servers):
        assert {info.source_node_id for info in relay.subscribes} == {three.id}


@pytest.mark.parametrize("lost", [0, 1])
def test_either_of_two_control_servers_may_go(lost: int) -> None:
    cluster, pub, sub = Cluster(), App(), App()
    net, (one, two, three) = cluster.net, cluster.edges
    net.announce(one, pub, "a")
    net.subscribe(three, sub, "a/x")
    check(cluster, pub, sub, 0, cluster.servers)
    net.publish(one, pub, "a/x", "long", b"begins ", fin=False)
    net.crash(cluster.servers[lost])
    left = cluster.servers[1 - lost]
    assert pub.asked
    check(cluster, pub, sub, 1, [left])
    net.settle()
    check(cluster, pub, sub, 2, [left])
    net.publish(one, pub, "a/x", "long", b"and ends")
    assert [data for data in sub.got if data != b"data"] == [b"begins and ends"]
    # A change still reaches everybody.
    net.subscribe(two, App(), "a/y")
    assert all(len(relay.subscribes) == 2 for relay in (*cluster.edges, left))


def test_a_control_server_that_is_back_is_told_everything() -> None:
    cluster, sub = Cluster(), App()
    net, three = cluster.net, cluster.edges[2]
    net.subscribe(three, sub, "a/x")
    net.crash(cluster.servers[0])
    net.run(10.0)
    net.unsubscribe(three, sub, "a/x")
    net.subscribe(three, sub, "a/y")
    net.run(10.0)
    again = net.relay("9:1", Role.CONTROL)
    net.wire(again, cluster.servers[1])
    for edge in cluster.edges:
        net.wire(edge, again, mode=PeerMode.CONTROL)
    net.settle()
    expected = subscribe_info("1:3", "a/y", 0).track_hash
    assert [info.track_hash for info in again.subscribes] == [expected]
    assert set(again.nodes) == {edge.id for edge in cluster.edges} | {cluster.servers[1].id}


def test_data_does_not_go_by_a_control_server() -> None:
    cluster, pub, sub = Cluster(), App(), App()
    net, (one, _, three) = cluster.net, cluster.edges
    net.announce(one, pub, "a")
    net.subscribe(three, sub, "a/x")
    net.publish(one, pub, "a/x", 0, b"data")
    control = [wire for wire in net.wires if wire not in cluster.data]
    assert all(not end.streams and not end.sets for wire in control for end in wire)
    assert cluster.data[1].here.sets == {1: {"1:3"}}


def test_two_control_servers_with_an_edge_each() -> None:
    # As in the document's picture: edges need not know both servers.
    net, pub, sub = Net(), App(), App()
    servers = [net.relay(f"9:{low}", Role.CONTROL) for low in (1, 2)]
    one, three = net.relay("1:1"), net.relay("1:3")
    net.wire(servers[0], servers[1])
    net.wire(one, servers[0], mode=PeerMode.CONTROL)
    net.wire(three, servers[1], mode=PeerMode.CONTROL)
    data = net.wire(one, three, mode=PeerMode.DATA)
    net.settle()
    net.announce(one, pub, "a")
    net.subscribe(three, sub, "a/x")
    net.publish(one, pub, "a/x", 0, b"data")
    assert sub.got == [b"data"]
    assert not data.here.said(NodeInfoAdv)
    assert not data.there.said(SubscribeInfoAdv)


def test_a_data_link_that_flaps_keeps_the_subscribes_that_came_by_a_server() -> None:
    # Whoever loses every way to a node forgets its subscribes, and a data link brings none back.
    net, pub, sub = Net(), App(), App()
    server = net.relay("9:1", Role.CONTROL)
    one, three = net.relay("1:1"), net.relay("1:3")
    for edge in (one, three):
        net.wire(edge, server, mode=PeerMode.CONTROL)
    data = net.wire(one, three, mode=PeerMode.DATA)
    net.settle()
    net.announce(one, pub, "a")
    net.subscribe(three, sub, "a/x")
    for key, pause in enumerate((0.0, 0.5, 1.9, 2.0, 2.1, 30.0)):
        data.cut()
        net.run(pause)
        data = net.wire(one, three, mode=PeerMode.DATA)
        net.run(5.0)
        net.publish(one, pub, "a/x", key, str(pause).encode())
    assert sub.got == [b"0.0", b"0.5", b"1.9", b"2.0", b"2.1", b"30.0"]
