"""Links between relays: who is let in, which link has control, which ones carry data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import CloseCode
from laps.relay.roles import Role
from laps.types import (
    DataDirection,
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    PeerMode,
    SnsId,
    TrackKey,
    parse_node_id,
)
from laps.wire.control import encode
from laps.wire.objects import encode_datagram_header, encode_new_stream_header
from laps.wire.peering import (
    Connect,
    ConnectResponse,
    NodeInfoAdv,
    NodeInfoWd,
    ResponseCode,
    SubscribeInfoAdv,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)
from support.relays import App, Net, subscribe_info, track_hash

if TYPE_CHECKING:
    from laps.relay.ports import Link
    from laps.relay.relay import Relay

DATA_ONLY, ONE_WAY = PeerMode.DATA, DataDirection.UNIDIRECTIONAL


# -- the first words -------------------------------------------------------------------------------


def test_two_relays_introduce_themselves() -> None:
    net = Net()
    one, two = net.relay("1:1"), net.relay("1:2")
    wire = net.wire(one, two)
    assert wire.here.sent[0] == Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, one.self_info)
    assert wire.there.sent[0] == ConnectResponse(ResponseCode.OK, two.self_info)
    assert list(one.peers) == [two.id]
    assert list(two.peers) == [one.id]


def test_each_wrong_beginning_closes_with_its_code_and_leaves_the_others_alone() -> None:
    net = Net()
    relay, other = net.relay("1:1"), net.relay("1:2")
    fine = net.wire(relay, other)
    advertisement = encode(NodeInfoAdv(other.self_info))
    stream = encode_new_stream_header(SnsId(1), TrackKey(2), 3, 4, 0)
    for words, code in ((advertisement, 32), (b"\x09" * 7, 35), (b"\x01\x00\x63\0\0\0\0", 34)):
        puppet = net.puppet("3:1")
        puppet.silent = True
        net.wire(puppet, relay)
        puppet.say_bytes(words)
        assert puppet.closed is not None
        assert puppet.closed[0] == code
    for as_datagram in (False, True):
        puppet = net.puppet("3:1")
        puppet.silent = True
        net.wire(puppet, relay)
        if as_datagram:
            puppet.end.send_datagram(stream, 0)
            net.run()
        else:
            puppet.send(stream)
        assert puppet.closed is not None
        assert puppet.closed[0] == CloseCode.CONNECT_NOT_RECEIVED
    assert fine.here.closed is None
    assert relay.sizes()["links"] == 1


def test_the_dialled_side_s_wrong_beginning_closes_with_33() -> None:
    net = Net()
    relay = net.relay("1:1")
    for as_data in (False, True):
        puppet = net.puppet("3:1")
        puppet.silent = True
        net.wire(relay, puppet)
        if as_data:
            puppet.send(encode_new_stream_header(SnsId(1), TrackKey(2), 3, 4, 0))
            net.run(1.1)  # it may only have overtaken the response
        else:
            puppet.say(NodeInfoAdv(puppet.info))
        assert puppet.closed is not None
        assert puppet.closed[0] == CloseCode.CONNECT_RESPONSE_NOT_RECEIVED
    assert relay.sizes()["links"] == 0


def test_data_may_overtake_the_response() -> None:
    net, app = Net(), App()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    net.subscribe(relay, app, "a/x")
    puppet.silent = True
    net.wire(relay, puppet)
    key = track_hash("a/x").full_name_hash
    puppet.send(encode_new_stream_header(SnsId(1), key, 3, 0, 4) + b"da")
    puppet.say(ConnectResponse(ResponseCode.OK, puppet.info))
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    net.run(2.0)
    assert puppet.closed is None
    assert app.got == [b"da"]


def test_data_that_overtakes_the_response_is_to_be_looked_at_again() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    puppet.silent = True
    wire = net.wire(relay, puppet)
    assert relay.deadline() is None
    relay.link_data(wire.here, 3, b"data", False, net.now)
    assert relay.is_due
    assert relay.deadline() == net.now + relay.settings.hold_s


def test_data_that_overtakes_the_response_and_is_reset_leaves_no_stream() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    puppet.silent = True
    net.wire(relay, puppet)
    header = encode_new_stream_header(SnsId(1), track_hash("a/x").full_name_hash, 3, 0, 4)
    puppet.send(header + b"da").reset(0)
    net.run()
    puppet.say(ConnectResponse(ResponseCode.OK, puppet.info))
    net.run(2.0)
    assert relay.sizes()["streams"] == 0


def test_too_much_data_ahead_of_the_response_closes_at_once() -> None:
    net = Net()
    relay, puppet = net.relay("1:1", hold_bytes=1000), net.puppet("3:1")
    puppet.silent = True
    net.wire(relay, puppet)
    puppet.send(bytes(1001))
    assert puppet.closed is not None
    assert puppet.closed[0] == CloseCode.CONNECT_RESPONSE_NOT_RECEIVED


def test_a_control_stream_may_be_moved() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(puppet, relay)
    old, puppet.control = puppet.control, puppet.end.open_control()
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    assert wire.there.ended == [(old, CloseCode.CONTROL_STREAM_SWITCHED)]
    assert len(relay.subscribes) == 1
    assert wire.there.closed is None


# -- who is let in ---------------------------------------------------------------------------------


def test_the_same_node_id_twice_the_oldest_lives() -> None:
    net = Net()
    relay, first = net.relay("1:1"), net.relay("1:2", contact="the first")
    net.wire(first, relay)
    second = net.relay("1:2", contact="the second")
    wire = net.wire(second, relay)
    net.run(3.0)
    assert wire.there.said(ConnectResponse) == [
        ConnectResponse(ResponseCode.CONNECTION_ERROR, None)
    ]
    assert wire.here.closed is not None
    assert wire.here.closed[0] == CloseCode.GRACEFUL
    assert relay.peers[first.id].info.contact == "the first"
    assert relay.counters.refused_peers == 1
    assert second.sizes()["peers"] == 0
    assert relay.sizes()["links"] == 1


def test_the_same_node_id_twice_when_we_dial() -> None:
    net = Net()
    relay, first = net.relay("1:1"), net.relay("1:2", contact="the first")
    net.wire(relay, first)
    wire = net.wire(relay, net.relay("1:2", contact="the second"))
    assert wire.here.closed is not None
    assert wire.here.closed[0] == CloseCode.GRACEFUL
    assert relay.peers[first.id].info.contact == "the first"


def test_our_own_node_id_is_refused_whoever_dials() -> None:
    net = Net()
    relay, double = net.relay("1:1"), net.relay("1:1")
    net.relays["another name"] = relay
    for wire in (net.wire(relay, double), net.wire(relay, relay)):
        assert wire.there.said(ConnectResponse) == [
            ConnectResponse(ResponseCode.CONNECTION_ERROR, None)
        ]
        assert wire.here.closed is not None
    assert relay.sizes() == double.sizes() == dict.fromkeys(relay.sizes(), 0)


@pytest.mark.parametrize(
    ("role", "node_type", "mode", "direction", "code"),
    [
        (Role.EDGE, NodeType.STUB, PeerMode.BOTH, DataDirection.BIDIRECTIONAL, 0),
        (Role.EDGE, NodeType.STUB, PeerMode.BOTH, DataDirection.UNIDIRECTIONAL, 3),
        (Role.EDGE, NodeType.STUB, PeerMode.CONTROL, DataDirection.BIDIRECTIONAL, 3),
        (Role.EDGE, NodeType.STUB, PeerMode.DATA, DataDirection.BIDIRECTIONAL, 3),
        (Role.VIA, NodeType.STUB, PeerMode.BOTH, DataDirection.BIDIRECTIONAL, 1),
        (Role.CONTROL, NodeType.STUB, PeerMode.CONTROL, DataDirection.BIDIRECTIONAL, 1),
        (Role.CONTROL, NodeType.EDGE, PeerMode.CONTROL, DataDirection.BIDIRECTIONAL, 0),
        (Role.CONTROL, NodeType.EDGE, PeerMode.BOTH, DataDirection.BIDIRECTIONAL, 3),
        (Role.CONTROL, NodeType.VIA, PeerMode.DATA, DataDirection.UNIDIRECTIONAL, 3),
        (Role.STUB, NodeType.EDGE, PeerMode.BOTH, DataDirection.BIDIRECTIONAL, 1),
        (Role.STUB, NodeType.STUB, PeerMode.BOTH, DataDirection.BIDIRECTIONAL, 1),
    ],
)
def test_each_role_lets_in_whom_it_may(
    role: Role, node_type: NodeType, mode: PeerMode, direction: DataDirection, code: int
) -> None:
    net = Net()
    relay, puppet = net.relay("1:1", role), net.puppet("3:1", node_type)
    net.wire(puppet, relay, mode=mode, direction=direction)
    assert [answer.response_code for answer in puppet.heard_of(ConnectResponse)] == [code]
    assert (puppet.closed is None) == (code == 0)
    assert relay.sizes()["peers"] == (code == 0)


def test_a_stub_that_dials_a_via_hangs_up() -> None:
    net = Net()
    stub, via = net.relay("9:1", Role.STUB), net.puppet("2:1", NodeType.VIA)
    net.wire(stub, via)
    assert via.closed is not None
    assert stub.sizes()["peers"] == 0


# -- which link has control ------------------------------------------------------------------------


def control_link(relay: Relay, peer: Relay) -> Link | None:
    control = relay.peers[peer.id].control
    return None if control is None else control.link


@pytest.mark.parametrize("first_is_lower", [True, False])
def test_of_two_dialled_at_the_same_time_the_lower_id_s_has_control(first_is_lower: bool) -> None:
    net = Net()
    low, high = net.relay("1:1"), net.relay("1:2")
    order = (low, high) if first_is_lower else (high, low)
    wires = [net.wire(order[0], order[1], run=False), net.wire(order[1], order[0], run=False)]
    net.run()
    chosen = wires[0] if first_is_lower else wires[1]
    assert control_link(low, high) is chosen.here
    assert control_link(high, low) is chosen.there
    net.subscribe(low, App(), "a/x")
    net.subscribe(high, App(), "a/y")
    left = next(wire for wire in wires if wire is not chosen)
    assert len(chosen.here.said(SubscribeInfoAdv)) == len(chosen.there.said(SubscribeInfoAdv)) == 1
    assert not left.here.said(SubscribeInfoAdv)
    assert not left.there.said(SubscribeInfoAdv)


@pytest.mark.parametrize("first_is_lower", [True, False])
@pytest.mark.parametrize("latency", [0, 1, 5])
def test_dialling_at_the_same_time_leaves_nothing_behind_that_is_not_so(
    first_is_lower: bool, latency: int
) -> None:
    net, pub, sub = Net(), App(), App()
    low, high = net.relay("1:1"), net.relay("1:2")
    behind = [(net.relay(f"2:{n}"), relay) for n, relay in ((1, low), (2, high))]
    cuts = [net.wire(far, relay) for far, relay in behind]
    net.settle()
    net.subscribe(behind[1][0], sub, "a/x")
    order = (low, high) if first_is_lower else (high, low)
    net.latency = latency
    net.wire(order[0], order[1], run=False)
    net.wire(order[1], order[0], run=False)
    net.run()
    net.latency = 0
    net.settle()
    assert all(len(relay.nodes) == 3 for relay in net.relays.values())
    net.announce(behind[0][0], pub, "a")
    net.publish(behind[0][0], pub, "a/x", 0, b"once")
    assert sub.got == [b"once"]
    for cut in cuts:
        cut.cut()
    net.settle()
    assert list(low.nodes) == [high.id]
    assert list(high.nodes) == [low.id]
    assert low.sizes()["subscribes"] == high.sizes()["subscribes"] == 0


def test_the_first_established_has_control_if_the_other_is_much_later() -> None:
    net = Net()
    low, high = net.relay("1:1"), net.relay("1:2")
    first = net.wire(high, low)
    net.run(5.0)
    second = net.wire(low, high)
    net.subscribe(low, App(), "a/x")
    assert len(first.there.said(SubscribeInfoAdv)) == 1
    assert not second.here.said(SubscribeInfoAdv)


def test_when_the_control_link_goes_the_other_takes_over() -> None:
    net, pub, sub = Net(), App(), App()
    low, high = net.relay("1:1"), net.relay("1:2")
    far = net.relay("1:3")
    net.wire(high, far)
    wires = [net.wire(low, high, run=False), net.wire(high, low, run=False)]
    net.settle()
    net.announce(low, pub, "a")
    net.subscribe(far, sub, "a/x")
    wires[0].cut()
    net.settle()
    assert far.id in low.nodes
    net.publish(low, pub, "a/x", 0, b"after")
    assert sub.got == [b"after"]
    net.subscribe(high, sub, "a/y")
    assert len(low.subscribes) == 2


def test_what_was_said_on_a_link_that_lost_control_is_not_believed_for_ever() -> None:
    net = Net()
    low, high, far = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    behind = net.wire(high, far)
    net.wire(high, low)
    net.run(1.0)
    assert far.id in low.nodes
    net.wire(low, high)  # within the time that counts as the same: control moves here
    net.settle()
    behind.cut()
    net.settle()
    assert far.id not in low.nodes


def test_a_dialler_that_comes_again_has_lost_its_first_link() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    lost = net.wire(one, two)
    net.announce(two, pub, "a")
    net.subscribe(one, sub, "a/x")
    lost.cut(noticed_by=(one,))
    again = net.wire(one, two)
    assert two.sizes()["links"] == 1
    net.settle()
    net.publish(two, pub, "a/x", 0, b"back")
    assert sub.got == [b"back"]
    assert again.there.sets == {1: {"1:1"}}


# -- which links carry data ------------------------------------------------------------------------


def test_parallel_links_share_the_tracks_and_losing_one_moves_its_own() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    wires = [net.wire(one, two)]
    wires += [net.wire(one, two, mode=DATA_ONLY) for _ in range(2)]
    net.settle()
    net.announce(one, pub, "a")
    tracks = [f"a/{number}" for number in range(30)]
    for track in tracks:
        net.subscribe(two, sub, track)
    carried = [len(wire.here.sets) for wire in wires]
    assert sum(carried) == 30
    assert min(carried) >= 5
    before = [dict(wire.here.sets) for wire in wires]

    wires[1].cut()
    assert sum(len(wires[i].here.sets) for i in (0, 2)) == 30
    assert all(before[i].items() <= wires[i].here.sets.items() for i in (0, 2))
    for track in tracks:
        net.publish(one, pub, track, track, track.encode())
    assert sorted(sub.got) == sorted(track.encode() for track in tracks)
    assert len(wires[1].here.streams) == 0


def test_one_more_link_takes_some_tracks_and_streams_go_on() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    first = net.wire(one, two)
    net.settle()
    net.announce(one, pub, "a")
    tracks = [f"a/{number}" for number in range(20)]
    for track in tracks:
        net.subscribe(two, sub, track)
        net.publish(one, pub, track, track, b"begins ", fin=False)
    second = net.wire(one, two, mode=DATA_ONLY)
    net.settle()
    for track in tracks:
        net.publish(one, pub, track, track, b"and ends")
        net.publish(one, pub, track, (track, 2), b"anew")
    assert sub.got == [b"begins and ends"] * 20 + [b"anew"] * 20
    assert 0 < len(second.here.sets) < 20
    assert len(first.here.sets) + len(second.here.sets) == 20


def test_a_track_goes_by_one_of_two_links_also_after_one_was_silent() -> None:
    net, pub = Net(), App()
    one, two = net.relay("1:1"), net.relay("1:2", Role.VIA, reflect=True)
    edges = [net.relay(f"2:{number}") for number in (1, 2)]
    wires = [net.wire(one, two), net.wire(one, two, mode=DATA_ONLY)]
    for edge in edges:
        net.wire(two, edge)
    net.settle()
    net.announce(one, pub, "a")
    tracks = [f"a/{number}" for number in range(12)]
    for track in tracks:
        net.subscribe(edges[0], App(), track)
    for wire in wires:
        one.suspicion.silent(wire.here.id, net.now)
        net.run(1.0)
        one.suspicion.heard(wire.here.id, net.now)
        net.run(1.0)
    for track in tracks:
        net.subscribe(edges[1], App(), track)
    net.run(3.0)
    sets = [nodes for wire in wires for nodes in wire.here.sets.values()]
    assert sets == [{"2:1", "2:2"}] * len(tracks)


def test_a_data_link_says_nothing_of_nodes_and_subscribes() -> None:
    net, sub = Net(), App()
    one, two, far = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    net.wire(one, far)
    wire = net.wire(one, two, mode=DATA_ONLY)
    net.subscribe(one, sub, "a/x")
    net.settle()
    assert len(wire.here.sent) == len(wire.there.sent) == 1
    assert two.sizes()["subscribes"] == 0
    assert far.id not in two.nodes


def test_what_has_no_place_on_a_data_link_is_counted_and_left() -> None:
    net = Net()
    one, peer = net.relay("1:1"), net.puppet("1:2")
    net.wire(peer, one, mode=DATA_ONLY)
    far = NodeInfo(parse_node_id("1:3"), NodeType.EDGE, path=(NodePathItem(peer.id, 1000),))
    peer.say(NodeInfoAdv(far), SubscribeInfoAdv(subscribe_info("1:3", "a/x", 1)), NodeInfoWd(far))
    assert far.id not in one.nodes
    assert one.sizes()["subscribes"] == 0
    assert one.counters.unwanted_messages == 3


def test_the_sets_of_a_data_link_go_on_its_own_control_stream() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    control = net.wire(one, two, mode=PeerMode.CONTROL)
    data = net.wire(one, two, mode=DATA_ONLY)
    net.settle()
    net.announce(one, pub, "a")
    net.subscribe(two, sub, "a/x")
    assert data.here.sets == {1: {"1:2"}}
    assert control.here.sets == {}
    net.publish(one, pub, "a/x", 0, b"data")
    net.publish_datagram(one, pub, "a/x", b"datagram")
    assert (sub.got, sub.datagrams) == ([b"data"], [b"datagram"])
    assert not control.here.streams
    assert not control.here.datagrams


def test_a_control_link_alone_leads_to_nobody() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    wire = net.wire(one, two, mode=PeerMode.CONTROL)
    net.settle()
    net.announce(one, pub, "a")
    net.subscribe(two, sub, "a/x")
    net.publish(one, pub, "a/x", 0, b"data")
    net.publish_datagram(one, pub, "a/x", b"datagram")
    assert (sub.got, sub.datagrams) == ([], [])
    assert wire.here.sets == {}
    assert pub.asked  # the subscribe came all the same
    net.wire(one, two, mode=DATA_ONLY)
    net.publish(one, pub, "a/x", 1, b"now")
    assert sub.got == [b"now"]


def test_data_on_a_control_link_is_refused() -> None:
    net, sub = Net(), App()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(puppet, relay, mode=PeerMode.CONTROL)
    net.subscribe(relay, sub, "a/x")
    track = subscribe_info("1:1", "a/x", 0).track_hash.full_name_hash
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    stream = puppet.send(encode_new_stream_header(SnsId(1), track, 0, 0, 3) + b"abc", fin=False)
    puppet.end.send_datagram(encode_datagram_header(SnsId(1), track, 3) + b"abc", 0)
    net.run()
    assert (sub.got, sub.datagrams) == ([], [])
    assert [stream_id for stream_id, _ in wire.there.ended] == [stream.stream_id]
    assert relay.sizes()["flows"] == relay.sizes()["streams"] == 0


def test_in_one_direction_only_the_dialler_sends() -> None:
    net, pub, sub = Net(), App(), App()
    one, two = net.relay("1:1"), net.relay("1:2")
    wire = net.wire(one, two, direction=ONE_WAY)
    net.settle()
    for relay in (one, two):
        net.announce(relay, pub, "a")
    net.subscribe(two, sub, "a/x")
    net.publish(one, pub, "a/x", 0, b"with the link")
    net.subscribe(one, sub, "a/y")
    net.publish(two, pub, "a/y", 0, b"against it")
    assert sub.got == [b"with the link"]
    assert wire.here.sets == {1: {"1:2"}}
    assert wire.there.sets == {}
    back = net.wire(two, one, mode=DATA_ONLY, direction=ONE_WAY)
    net.publish(two, pub, "a/y", 1, b"on its own")
    assert sub.got == [b"with the link", b"on its own"]
    assert back.here.sets == {1: {"1:1"}}


def test_a_node_that_no_data_reaches_is_not_passed_on_where_data_would_follow() -> None:
    net = Net()
    one, two, three = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    net.wire(one, two, direction=ONE_WAY)
    wire = net.wire(two, three)
    net.settle()
    assert one.id not in three.nodes  # two cannot send to it
    assert three.id in one.nodes
    net.wire(two, one, mode=DATA_ONLY, direction=ONE_WAY)
    net.settle()
    assert one.id in three.nodes
    assert wire.here.said(NodeInfoWd) == []


# -- sets nobody can serve -------------------------------------------------------------------------


def test_a_set_of_nodes_out_of_reach_is_taken_and_counted() -> None:
    net, sub = Net(), App()
    relay, near, puppet = net.relay("1:1"), net.relay("1:2"), net.puppet("3:1")
    wire = net.wire(relay, near)
    net.wire(puppet, relay)
    net.settle()
    net.subscribe(near, sub, "a/x")
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (NodeId(99), near.id)))
    assert relay.router.counters.unreachable_targets >= 1
    assert wire.here.sets == {1: {"1:2"}}
    track = subscribe_info("1:2", "a/x", 0).track_hash.full_name_hash
    puppet.send(encode_new_stream_header(SnsId(1), track, 0, 0, 3) + b"abc", fin=True)
    assert sub.got == [b"abc"]
    assert puppet.closed is None


def test_a_set_never_leads_back_to_who_sent_it() -> None:
    net = Net()
    relay, puppet, other = net.relay("1:1"), net.puppet("3:1"), net.puppet("3:2")
    net.wire(puppet, relay)
    net.wire(other, relay)
    puppet.say(SubscribeNodeSetAdv(SnsId(7), (puppet.id, other.id)))
    assert puppet.heard_of(SubscribeNodeSetAdv) == []
    assert other.heard_of(SubscribeNodeSetAdv) == [SubscribeNodeSetAdv(SnsId(1), (other.id,))]


def test_a_set_that_is_unknown_may_be_withdrawn() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    net.wire(puppet, relay)
    puppet.say(SubscribeNodeSetWd(SnsId(5)))
    assert relay.counters.unknown_sns_withdraws == 1
    assert puppet.closed is None


def test_a_set_goes_with_its_session() -> None:
    net = Net()
    relay, puppet, other = net.relay("1:1"), net.puppet("3:1"), net.puppet("3:2")
    net.wire(puppet, relay)
    net.wire(other, relay)
    puppet.say(SubscribeNodeSetAdv(SnsId(7), (other.id,)))
    puppet.end.close(1, "")
    net.run()
    assert other.heard_of(SubscribeNodeSetWd) == [SubscribeNodeSetWd(SnsId(1))]
    assert relay.sizes()["flows"] == 0
