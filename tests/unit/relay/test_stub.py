"""A Stub and its Edges: nobody else knows of it, and nothing comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import CloseCode
from laps.relay.nearest_edge import HANDOVER_S, STEADY_S
from laps.relay.roles import Role
from laps.relay.sizes import contents
from laps.types import NodeType, SnsId, track_alias
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.objects import encode_datagram_header, encode_new_stream_header
from laps.wire.peering import (
    AnnounceInfoAdv,
    AnnounceInfoWd,
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)
from support.moqt_streams import body, objects_of
from support.relays import App, Net, track_hash

if TYPE_CHECKING:
    from laps.relay.relay import Relay


class Home:
    """A stub at an edge, and another edge beyond."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App("pub"), App("sub")
        self.edge, self.far = self.net.relay("1:1"), self.net.relay("1:2")
        self.stub = self.net.relay("8:1", Role.STUB)
        self.beyond = self.net.wire(self.edge, self.far)
        self.wire = self.net.wire(self.stub, self.edge)
        self.net.settle()


@pytest.fixture
def home() -> Home:
    return Home()


# -- towards the network ---------------------------------------------------------------------------


def test_a_stub_s_subscriber_is_the_edge_s(home: Home) -> None:
    home.net.announce(home.far, home.pub, "a")
    home.net.subscribe(home.stub, home.sub, "a/x")
    (message,) = home.beyond.here.said(SubscribeInfoAdv)
    assert message.subscribe_info.source_node_id == home.edge.id
    assert home.beyond.there.sets == {1: {"1:1"}}
    home.net.publish(home.far, home.pub, "a/x", 0, b"begins ", fin=False)
    assert home.sub.got == [b"begins "]
    home.net.publish(home.far, home.pub, "a/x", 0, b"and ends")
    home.net.publish_datagram(home.far, home.pub, "a/x", b"datagram")
    assert home.sub.got == [b"begins and ends"]
    assert home.sub.datagrams == [b"datagram"]
    assert home.wire.there.sets == {1: {"8:1"}}


def test_one_subscribe_for_the_stub_and_the_edge_s_own_clients(home: Home) -> None:
    home.net.announce(home.far, home.pub, "a")
    local = App()
    home.net.subscribe(home.stub, home.sub, "a/x")
    home.net.subscribe(home.edge, local, "a/x")
    assert len(home.beyond.here.said(SubscribeInfoAdv)) == 1
    home.net.publish(home.far, home.pub, "a/x", 0, b"data")
    assert home.sub.got == local.got == [b"data"]
    assert len(home.beyond.there.streams) == 1
    home.net.unsubscribe(home.edge, local, "a/x")
    home.net.run(20.0)
    assert home.beyond.here.said(SubscribeInfoWd) == []
    home.net.unsubscribe(home.stub, home.sub, "a/x")
    home.net.run(20.0)
    assert len(home.beyond.here.said(SubscribeInfoWd)) == 1
    assert home.pub.asked == []


def test_nobody_but_the_edge_knows_of_the_stub(home: Home) -> None:
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.stub, home.sub, "b/x")
    late = home.net.puppet("1:9")
    home.net.wire(late, home.edge)
    home.net.run(20.0)
    for message in (*home.beyond.here.sent, *late.heard):
        assert str(home.stub.id) not in repr(message)
    assert home.stub.id not in home.far.nodes
    assert home.stub.id not in home.edge.nodes
    assert late.heard_of(AnnounceInfoAdv) == []


def test_a_stub_is_told_only_what_it_can_publish(home: Home) -> None:
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.sub, "b/x")
    home.net.subscribe(home.far, home.sub, "a/x")
    told = home.wire.there.said(SubscribeInfoAdv)
    assert [message.subscribe_info.track_hash for message in told] == [track_hash("a/x")]
    assert told[0].subscribe_info.source_node_id == home.edge.id
    assert home.wire.there.said(NodeInfoAdv) == []


# -- from a stub's publisher -----------------------------------------------------------------------


@pytest.mark.parametrize("announce_first", [True, False])
def test_a_stub_s_publisher_is_the_edge_s(home: Home, announce_first: bool) -> None:
    local = App()
    if announce_first:
        home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.sub, "a/x")
    home.net.subscribe(home.edge, local, "a/x")
    if not announce_first:
        home.net.announce(home.stub, home.pub, "a")
    assert home.pub.asked == [track_hash("a/x").full_name_hash]
    home.net.publish(home.stub, home.pub, "a/x", 0, b"begins ", fin=False)
    assert home.sub.got == local.got == [b"begins "]
    home.net.publish(home.stub, home.pub, "a/x", 0, b"and ends")
    home.net.publish_datagram(home.stub, home.pub, "a/x", b"datagram")
    assert home.sub.got == local.got == [b"begins and ends"]
    assert home.sub.datagrams == local.datagrams == [b"datagram"]
    assert home.sub.streams[0].finished
    assert len(home.wire.here.streams) == 1


def test_a_stub_s_publisher_is_told_when_nobody_is_left(home: Home) -> None:
    home.net.announce(home.stub, home.pub, "a")
    for _ in range(3):
        home.net.subscribe(home.far, home.sub, "a/x")
        assert len(home.pub.asked) == 1
        home.net.unsubscribe(home.far, home.sub, "a/x")
        home.net.run(6.0)
        assert home.pub.asked == []
    assert home.wire.here.sets == {}


def test_a_stub_s_publisher_that_leaves_is_withdrawn(home: Home) -> None:
    info = home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.sub, "a/x")
    home.stub.unannounce(home.pub, info, home.net.now)
    home.net.run()
    assert len(home.wire.here.said(AnnounceInfoWd)) == 1
    assert home.edge.sizes()["announces"] == 0
    home.net.run(1.0)
    assert home.edge.sizes()["flows"] == 0
    home.net.announce(home.stub, home.pub, "a")
    home.net.leave(home.stub, home.pub)
    assert home.edge.sizes()["announces"] == 0


def test_what_nobody_asked_a_stub_for_goes_no_further(home: Home) -> None:
    puppet = home.net.puppet("8:9", NodeType.STUB)
    wire = home.net.wire(puppet, home.edge)
    home.net.subscribe(home.far, home.sub, "a/x")
    track = track_hash("a/x").full_name_hash
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (home.edge.id,)))
    stream = puppet.send(encode_new_stream_header(SnsId(1), track, 0, 0, 3) + b"abc")
    puppet.end.send_datagram(encode_datagram_header(SnsId(1), track, 3) + b"abc", 0)
    home.net.run()
    assert [stream_id for stream_id, _ in wire.there.ended] == [stream.stream_id]
    assert home.edge.data.counters.unwanted == 2
    assert not home.edge.data.holding
    assert (home.sub.got, home.sub.datagrams) == ([], [])
    assert puppet.closed is None


def test_a_reset_goes_through_a_stub(home: Home) -> None:
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.far, home.sub, "a/x")
    home.net.publish(home.stub, home.pub, "a/x", 0, b"begins", fin=False)
    home.stub.publish_reset(home.pub, 0, 42, home.net.now)
    home.net.run()
    assert home.sub.streams[0].reset_code == 42


def test_publisher_and_subscriber_at_one_stub_meet_once(home: Home) -> None:
    far = App()
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.stub, home.sub, "a/x")
    home.net.subscribe(home.far, far, "a/x")
    home.net.publish(home.stub, home.pub, "a/x", 0, b"data")
    home.net.publish_datagram(home.stub, home.pub, "a/x", b"datagram")
    assert far.got == home.sub.got == [b"data"]
    assert far.datagrams == home.sub.datagrams == [b"datagram"]


def test_two_stubs_of_one_edge_meet(home: Home) -> None:
    second = home.net.relay("8:2", Role.STUB)
    home.net.wire(second, home.edge)
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(second, home.sub, "a/x")
    home.net.publish(home.stub, home.pub, "a/x", 0, b"data")
    assert home.sub.got == [b"data"]
    assert home.beyond.here.streams == {}


def test_two_publishers_of_one_track_at_a_stub_are_kept_apart(home: Home) -> None:
    second = App()
    for pub in (home.pub, second):
        home.net.announce(home.stub, pub, "a")
    home.net.subscribe(home.far, home.sub, "a/x")
    for data in (b"one ", b"two"):
        for pub in (home.pub, second):
            home.net.publish(home.stub, pub, "a/x", 0, data, fin=data == b"two")
    assert home.sub.got == [b"one two"] * 2


# -- two edges -------------------------------------------------------------------------------------


class TwoEdges:
    """A stub with two edges that know each other, the first the nearer, and an edge beyond."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App("pub"), App("sub")
        self.first, self.second = self.net.relay("1:1"), self.net.relay("1:2")
        self.far = self.net.relay("1:3")
        self.stub = self.net.relay("8:1", Role.STUB)
        self.net.wire(self.first, self.second)
        self.net.wire(self.first, self.far)
        self.net.wire(self.second, self.far)
        self.parent = self.net.wire(self.stub, self.first, 5)
        self.other = self.net.wire(self.stub, self.second, 50)
        self.net.settle()

    def sources(self, relay: Relay, track: str) -> frozenset[int]:
        return relay.subscribes.sources(track_hash(track).full_name_hash)


@pytest.fixture
def two() -> TwoEdges:
    return TwoEdges()


def test_with_two_edges_a_stub_s_subscriber_gets_everything_once(two: TwoEdges) -> None:
    for relay in (two.first, two.second, two.far):
        pub = App()
        two.net.announce(relay, pub, f"from{relay.id}")
        two.net.subscribe(two.stub, two.sub, f"from{relay.id}/x")
        two.net.publish(relay, pub, f"from{relay.id}/x", 0, str(relay.id).encode())
    assert two.sub.got == [str(relay.id).encode() for relay in (two.first, two.second, two.far)]
    assert two.sources(two.far, f"from{two.far.id}/x") == {two.first.id}


def test_with_two_edges_a_stub_s_publisher_reaches_everybody_once(two: TwoEdges) -> None:
    subs = [(relay, App()) for relay in (two.first, two.second, two.far)]
    two.net.announce(two.stub, two.pub, "a")
    for relay, sub in subs:
        two.net.subscribe(relay, sub, "a/x")
    two.net.publish(two.stub, two.pub, "a/x", 0, b"data")
    assert [sub.got for _, sub in subs] == [[b"data"]] * 3
    assert len(two.pub.asked) == 1


def test_when_the_parent_goes_the_other_edge_takes_over(two: TwoEdges) -> None:
    remote = App()
    two.net.announce(two.far, remote, "b")
    two.net.announce(two.stub, two.pub, "a")
    far = App()
    two.net.subscribe(two.far, far, "a/x")
    two.net.subscribe(two.stub, two.sub, "b/x")
    two.parent.cut()
    two.net.publish(two.stub, two.pub, "a/x", 1, b"up")
    two.net.publish(two.far, remote, "b/x", 1, b"down")
    assert far.got == [b"up"]
    assert two.sub.got == [b"down"]
    two.net.run(10.0)
    assert two.sources(two.far, "b/x") == {two.second.id}
    assert two.first.sizes()["announces"] == 0
    two.net.publish(two.far, remote, "b/x", 2, b"still")
    assert two.sub.got == [b"down", b"still"]


def test_a_parent_that_crashes_is_followed_by_the_other(two: TwoEdges) -> None:
    far = App()
    two.net.announce(two.stub, two.pub, "a")
    two.net.subscribe(two.far, far, "a/x")
    two.net.crash(two.first)
    two.net.publish(two.stub, two.pub, "a/x", 0, b"up")
    assert far.got == [b"up"]


def test_an_edge_that_is_back_does_not_take_over_from_the_parent_of_now(two: TwoEdges) -> None:
    two.net.announce(two.stub, two.pub, "a")
    two.parent.cut()
    back = two.net.wire(two.stub, two.first, 5)
    two.net.settle()
    assert back.here.said(AnnounceInfoAdv) == []
    far = App()
    two.net.subscribe(two.far, far, "a/x")
    two.net.publish(two.stub, two.pub, "a/x", 0, b"once")
    assert far.got == [b"once"]


def test_losing_the_edge_that_is_not_the_parent_changes_nothing(two: TwoEdges) -> None:
    far = App()
    two.net.announce(two.stub, two.pub, "a")
    two.net.subscribe(two.far, far, "a/x")
    two.net.publish(two.stub, two.pub, "a/x", 0, b"begins ", fin=False)
    two.other.cut()
    two.net.publish(two.stub, two.pub, "a/x", 0, b"and ends")
    assert far.got == [b"begins and ends"]


def test_a_stub_alone_comes_back_with_everything() -> None:
    home = Home()
    far = App()
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.stub, home.sub, "b/x")
    home.net.subscribe(home.far, far, "a/x")
    home.wire.cut()
    assert home.pub.asked == []
    local = App()
    home.net.announce(home.stub, local, "c")
    home.net.run(30.0)
    home.net.wire(home.stub, home.edge)
    home.net.settle()
    assert home.edge.sizes()["announces"] == 2
    assert len(home.pub.asked) == 1
    remote = App()
    home.net.announce(home.far, remote, "b")
    home.net.publish(home.far, remote, "b/x", 0, b"down")
    home.net.publish(home.stub, home.pub, "a/x", 0, b"up")
    assert (home.sub.got, far.got) == ([b"down"], [b"up"])


def test_an_edge_lets_go_of_everything_a_stub_had(home: Home) -> None:
    home.net.announce(home.stub, home.pub, "a")
    home.net.subscribe(home.stub, home.sub, "b/x")
    far = App()
    home.net.subscribe(home.far, far, "a/x")
    home.net.publish(home.stub, home.pub, "a/x", 0, b"begins", fin=False)
    home.wire.cut()
    home.net.run(10.0)
    assert far.streams[0].reset_code is not None
    sizes = home.edge.sizes()
    assert (sizes["announces"], sizes["flows"], sizes["streams"], sizes["peers"]) == (0, 0, 0, 1)
    assert [info.source_node_id for info in home.edge.subscribes] == [home.far.id]


def test_a_stub_that_joined_a_stream_late_and_leaves_leaves_nothing(home: Home) -> None:
    home.net.announce(home.edge, home.pub, "a")
    home.net.subscribe(home.edge, App(), "a/x")
    head = SubgroupHeader(track_alias(track_hash("a/x").full_name_hash), 0)
    whole = encode_subgroup_header(head, BETWEEN_RELAYS) + body(objects_of(0))
    home.net.publish(home.edge, home.pub, "a/x", 0, whole, fin=False)
    home.net.subscribe(home.stub, home.sub, "a/x")
    assert home.sub.got == [whole]
    assert contents(home.edge, with_peers=True)["Reach._joined"]
    home.net.unsubscribe(home.stub, home.sub, "a/x")
    home.net.run(20.0)
    assert "Reach._joined" not in contents(home.edge, with_peers=True)


def test_what_a_stub_may_not_say_is_counted_and_ignored(home: Home) -> None:
    puppet = home.net.puppet("8:9", NodeType.STUB)
    home.net.wire(puppet, home.edge)
    puppet.say(NodeInfoAdv(home.far.self_info))
    assert home.edge.counters.unwanted_messages == 1
    assert puppet.closed is None
    assert puppet.heard_of(SubscribeNodeSetAdv) == []


def test_a_client_alone_with_its_own_track_is_not_asked_for_it() -> None:
    net, both, other = Net(), App(), App()
    edge, stub = net.relay("1:1"), net.relay("1:2", Role.STUB)
    net.wire(stub, edge)
    net.settle()
    net.announce(stub, both, "a")
    net.subscribe(stub, both, "a/x")
    net.run(3.0)
    assert both.asked == []
    net.subscribe(edge, other, "a/x")
    assert len(both.asked) == 1
    net.publish(stub, both, "a/x", 0, b"once")
    assert other.got == [b"once"]


# -- the nearest edge ------------------------------------------------------------------------------


def test_a_stub_moves_to_an_edge_that_has_become_nearer(two: TwoEdges) -> None:
    two.net.subscribe(two.stub, two.sub, "a/x")
    two.net.announce(two.stub, App(), "b")
    two.net.settle()
    assert two.sources(two.far, "a/x") == {two.first.id}
    two.parent.set_srtt(200)
    two.net.run(STEADY_S / 2)
    assert two.sources(two.far, "a/x") == {two.first.id}
    two.net.run(STEADY_S)
    # It is the new edge's, and nothing is left at the old one.
    two.net.run(HANDOVER_S + two.first.settings.unsubscribe_s + 1)
    assert two.parent.here.closed == (CloseCode.GRACEFUL, "another Edge is nearer")
    assert two.sources(two.far, "a/x") == {two.second.id}
    assert (len(two.first.tracks.announces), len(two.second.tracks.announces)) == (0, 1)


def stream_of(group: int) -> bytes:
    """A stream of MoQT, which relays know again when it comes by two ways."""
    alias = track_alias(track_hash("a/x").full_name_hash)
    header = SubgroupHeader(alias, group, 0, priority=0)
    return encode_subgroup_header(header, BETWEEN_RELAYS) + body(objects_of(0, 1))


def test_a_stub_that_moves_loses_and_doubles_nothing(two: TwoEdges) -> None:
    pub = App()
    two.net.announce(two.far, pub, "a")
    two.net.subscribe(two.stub, two.sub, "a/x")
    two.net.settle()
    two.parent.set_srtt(200)
    for key in range(50):
        two.net.publish(two.far, pub, "a/x", key, stream_of(key))
        two.net.run(1.0)
    assert two.parent.here.closed is not None
    assert two.sub.got == [stream_of(key) for key in range(50)]


def test_a_stub_that_moves_is_not_sent_what_its_own_publishers_send(
    two: TwoEdges, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, remote = App(), App()
    two.net.announce(two.stub, two.pub, "a")
    two.net.announce(two.far, remote, "b")
    two.net.subscribe(two.far, far, "a/x")
    for track in ("a/x", "b/x"):
        two.net.subscribe(two.stub, two.sub, track)
    two.net.settle()
    two.parent.set_srtt(200)
    two.net.run(STEADY_S + HANDOVER_S / 2)
    assert two.parent.here.closed is None
    assert len(two.second.tracks.announces) == 1
    # What is lost on the way to the Edge before comes to it from the other.
    monkeypatch.setattr(two.parent.here, "send_datagram", lambda *_: None)
    two.net.publish_datagram(two.stub, two.pub, "a/x", b"datagram")
    two.net.publish(two.far, remote, "b/x", 0, b"stream")
    assert far.datagrams == [b"datagram"]
    assert two.parent.there.datagrams == []
    # What others publish comes from both, until the link is closed.
    assert len(two.parent.there.streams) == len(two.other.there.streams) == 1
    two.net.run(HANDOVER_S)
    assert two.parent.here.closed is not None


def test_a_stub_stays_while_another_edge_is_hardly_nearer_or_not_for_long(two: TwoEdges) -> None:
    two.net.subscribe(two.stub, two.sub, "a/x")
    two.parent.set_srtt(55)
    two.net.run(3 * STEADY_S)
    two.parent.set_srtt(500)
    two.net.run(STEADY_S / 2)
    two.parent.set_srtt(5)
    two.net.run(3 * STEADY_S)
    assert two.parent.here.closed is None
    assert two.sources(two.far, "a/x") == {two.first.id}


def test_a_stub_that_dialled_a_far_edge_first_moves_to_the_near_one() -> None:
    net = Net()
    far, near = net.relay("1:1"), net.relay("1:2")
    net.wire(far, near)
    stub = net.relay("8:1", Role.STUB)
    net.wire(stub, far, 200)
    other = net.wire(stub, near, 5)
    net.subscribe(stub, App(), "a/x")
    other.set_srtt(4)
    net.run(STEADY_S + HANDOVER_S + 10)
    assert far.subscribes.sources(track_hash("a/x").full_name_hash) == {near.id}


def test_what_one_edge_asks_a_stub_for_is_not_told_to_the_other(two: TwoEdges) -> None:
    """It would take it for the Stub's own subscribe, and keep it."""
    two.net.announce(two.stub, two.pub, "a")
    two.net.subscribe(two.first, two.sub, "a/x")
    for round_trip in (20, 5, 20):
        two.parent.set_srtt(round_trip)
        two.other.set_srtt(4 * round_trip)
        two.net.run(5.0)
    assert two.sources(two.far, "a/x") == {two.first.id}
