"""Control servers tell each relay the subscribes that concern it, and share them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laps.relay.interest import AGAIN_S, GRACE_S, REGAINED_S
from laps.relay.roles import Role
from laps.relay.servers import REPLICAS, are_all_joined, are_joined, responsible
from laps.relay.settings import PeerLimits
from laps.types import (
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    PeerMode,
    SubscribeInfo,
    TrackKey,
    announce_info,
    format_node_id,
    hash_track,
    parse_node_id,
)
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.interest import SubscribeInterest, Wants
from laps.wire.peering import (
    AnnounceInfoAdv,
    AnnounceInfoWd,
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
)
from laps.wire.subscribe import encode_subscribe
from support.relays import App, Net, subscribe_info, track_hash, track_name

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.peering import Message
    from support.relays import Puppet, Wire, WireEnd


def held(relay: Relay) -> set[tuple[str, str]]:
    """Which nodes want which tracks, as a relay knows it; tracks have names of one letter."""
    names = {track_hash(f"a/{it}").full_name_hash: it for it in "uvwxyz"}
    return {
        (format_node_id(it.source_node_id), names[it.track_hash.full_name_hash])
        for it in relay.subscribes
    }


def served(relay: Relay) -> bool:
    """Whether a relay hears only what concerns it."""
    return relay.interest.is_served


def told(wire: Wire, kind: type[SubscribeInfoAdv | SubscribeInfoWd] = SubscribeInfoAdv) -> int:
    """How many subscribes the side that was dialled has said on a link."""
    return len(wire.there.said(kind))


def say(puppet: Puppet, *messages: Message) -> None:
    """Extensions as well."""
    for message in messages:
        puppet.end.send_control(puppet.control, encode(message, codecs=EXTENDED_CODECS))
    puppet.net.run()


class Served:
    """Edges that carry data with one another, and control servers that each has a session with."""

    def __init__(self, edges: int = 3, servers: int = 1) -> None:
        self.net = Net()
        self.servers = [self.net.relay(f"9:{n}", Role.CONTROL) for n in range(1, servers + 1)]
        self.edges = [self.net.relay(f"1:{n}") for n in range(1, edges + 1)]
        self.wires: dict[tuple[Relay, Relay], Wire] = {}
        for number, server in enumerate(self.servers):
            for other in self.servers[:number]:
                self.wire(server, other)
        for edge in self.edges:
            for server in self.servers:
                self.wire(edge, server)
        for number, edge in enumerate(self.edges):
            for other in self.edges[:number]:
                self.net.wire(edge, other, mode=PeerMode.DATA, extended=True)
        self.net.settle()

    def wire(self, a: Relay, b: Relay) -> Wire:
        made = self.wires[a, b] = self.net.wire(a, b, mode=PeerMode.CONTROL, extended=True)
        return made

    def offer(self, relay: Relay, namespace: str = "a") -> App:
        app = App()
        self.net.announce(relay, app, namespace)
        return app

    def want(self, relay: Relay, *tracks: str) -> App:
        app = App()
        for track in tracks:
            self.net.subscribe(relay, app, f"a/{track}")
        return app


# --- what concerns whom -----------------------------------------------------------------------


def test_an_edge_hears_of_what_it_offers_and_of_nothing_else() -> None:
    it = Served()
    one, two, three = it.edges
    publisher = it.offer(one)
    it.want(two, "x")
    it.want(three, "x", "y")
    assert all(edge.interest.is_served for edge in it.edges)
    assert held(it.servers[0]) == {("1:2", "x"), ("1:3", "x"), ("1:3", "y")}
    assert held(one) == held(it.servers[0])
    assert held(two) == {("1:2", "x")}
    assert held(three) == {("1:3", "x"), ("1:3", "y")}
    assert len(publisher.asked) == 2
    assert told(it.wires[two, it.servers[0]]) == told(it.wires[three, it.servers[0]]) == 0


def test_data_takes_its_way_as_without_servers() -> None:
    it = Served()
    one, two, _ = it.edges
    publisher, subscriber = it.offer(one), it.want(two, "x")
    it.net.publish(one, publisher, "a/x", 1, b"data")
    assert subscriber.got == [b"data"]


def test_what_is_offered_later_brings_what_waits_for_it_at_once() -> None:
    it = Served()
    one, two, three = it.edges
    it.want(two, "x")
    it.want(three, "y")
    assert held(one) == set()
    publisher = it.offer(one)
    assert held(one) == {("1:2", "x"), ("1:3", "y")}
    assert set(publisher.asked) == {track_hash(f"a/{it}").full_name_hash for it in "xy"}


def test_what_is_offered_no_longer_takes_them_away() -> None:
    it = Served()
    one, two, _ = it.edges
    publisher, other = App(), App()
    info = it.net.announce(one, publisher, "a")
    it.net.announce(one, other, "a")
    it.want(two, "x")
    one.unannounce(publisher, info, it.net.now)
    it.net.run()
    assert held(one) == {("1:2", "x")}
    one.unannounce(other, info, it.net.now)
    it.net.run()
    assert held(one) == set()
    assert held(it.servers[0]) == {("1:2", "x")}
    assert publisher.asked == other.asked == []
    again = it.offer(one)
    assert len(again.asked) == 1


def test_the_end_of_a_subscribe_comes_to_whom_it_concerns() -> None:
    it = Served()
    one, two, three = it.edges
    publisher, subscriber = it.offer(one), it.want(two, "x")
    it.net.unsubscribe(two, subscriber, "a/x")
    it.net.run(10.0)
    assert held(one) == held(it.servers[0]) == set()
    assert publisher.asked == []
    assert told(it.wires[three, it.servers[0]], SubscribeInfoWd) == 0


def test_a_server_says_nothing_before_it_knows_what_is_wanted() -> None:
    it = Served(edges=2)
    it.want(it.edges[0], "x", "y", "z")
    late = it.net.relay("1:9")
    wire = it.wire(late, it.servers[0])
    it.net.run(3.0)
    assert served(late)
    assert told(wire) == 0
    assert [said.wants for said in wire.here.said(SubscribeInterest)] == [
        Wants.LATER,
        Wants.OFFERED,
    ]


def test_a_node_that_comes_after_its_publisher_is_matched_when_it_is_known() -> None:
    it = Served(edges=1)
    publisher = it.offer(it.edges[0])
    late = it.net.relay("1:9")
    subscriber = App()
    it.net.subscribe(late, subscriber, "a/x")
    it.wire(late, it.servers[0])
    it.net.run(5.0)
    assert held(it.edges[0]) == {("1:9", "x")}
    assert len(publisher.asked) == 1


def test_a_subscribe_whose_hashes_fit_no_name_concerns_nobody() -> None:
    it = Served(edges=2)
    it.offer(it.edges[0])
    puppet = it.net.puppet("1:8")
    it.net.wire(puppet, it.servers[0], mode=PeerMode.CONTROL, extended=True)
    it.net.run(3.0)
    other = hash_track(track_name("b/x"))
    name = track_name("a/x")
    # The name of one track, and the hashes of another.
    say(puppet, SubscribeInterest(Wants.ALL, servers=(it.servers[0].id,)))
    puppet.say(SubscribeInfoAdv(SubscribeInfo(1, puppet.id, other, encode_subscribe(name))))
    assert len(it.servers[0].subscribes) == 1
    assert held(it.edges[0]) == set()


# --- who has to pass on -----------------------------------------------------------------------


def test_a_plain_peer_sees_what_it_saw_and_has_its_neighbour_hear_everything() -> None:
    it = Served()
    one, two, three = it.edges
    it.want(two, "x")
    plain = it.net.relay("1:7")
    wire = it.net.wire(plain, one)
    it.net.settle()
    assert not served(one)
    assert served(two)
    assert held(plain) == held(one) == {("1:2", "x")}
    assert wire.there.said(SubscribeInterest) == []
    it.want(plain, "y")
    publisher = it.offer(three)
    assert len(publisher.asked) == 2
    wire.cut()
    it.net.run(AGAIN_S + GRACE_S)
    assert served(one)
    assert held(one) == set()


def test_without_a_server_everything_is_told_again() -> None:
    it = Served(edges=2)
    one, two = it.edges
    it.net.wire(one, two, extended=True)
    it.want(two, "x", "y")
    assert held(one) == set()
    for wire in (it.wires[one, it.servers[0]], it.wires[two, it.servers[0]]):
        wire.cut()
    it.net.run(GRACE_S + 5.0)
    assert not served(one)
    assert held(one) == {("1:2", "x"), ("1:2", "y")}


def test_a_server_that_is_back_soon_costs_nothing() -> None:
    it = Served(edges=2, servers=2)
    one, two = it.edges
    it.offer(one)
    it.want(two, "x")
    it.wires[one, it.servers[0]].cut()
    it.net.run(GRACE_S / 2)
    assert served(one)
    wire = it.wire(one, it.servers[0])
    it.net.run(GRACE_S)
    assert served(one)
    assert held(one) == {("1:2", "x")}
    assert told(wire) == 1


def test_what_servers_that_know_nothing_of_each_other_say_is_passed_on() -> None:
    net = Net()
    left, right = net.relay("9:1", Role.CONTROL), net.relay("9:2", Role.CONTROL)
    one, between, two = (net.relay(f"1:{n}") for n in (1, 2, 3))
    for edge, server in ((one, left), (between, left), (between, right), (two, right)):
        net.wire(edge, server, mode=PeerMode.CONTROL, extended=True)
    net.settle()
    publisher, subscriber = App(), App()
    net.announce(one, publisher, "a")
    net.subscribe(two, subscriber, "a/x")
    net.run(5.0)
    assert not served(between)
    assert held(one) == {("1:3", "x")}


# --- shares -----------------------------------------------------------------------------------


def keepers(it: Served) -> Counter[tuple[str, str]]:
    return Counter(one for server in it.servers for one in held(server))


def test_each_subscribe_is_held_by_two_servers() -> None:
    it = Served(edges=3, servers=4)
    it.want(it.edges[0], *"uvwxyz")
    assert all(server.interest.shares for server in it.servers)
    assert set(keepers(it).values()) == {REPLICAS}
    assert len(keepers(it)) == 6
    publisher = it.offer(it.edges[1])
    assert len(publisher.asked) == len(set(publisher.asked)) == 6


def test_a_server_that_dies_leaves_its_share_to_others_and_no_word_is_lost() -> None:
    it = Served(edges=3, servers=4)
    one, two, _ = it.edges
    publisher = it.offer(one)
    subscriber = it.want(two, *"uvwxyz")
    dead = it.servers.pop(1)
    it.net.crash(dead)
    it.net.run(GRACE_S + 3.0)
    assert all(edge.interest.is_served for edge in it.edges)
    assert set(keepers(it).values()) == {REPLICAS}
    assert len(publisher.asked) == 6
    for track in "uvwxyz":
        it.net.unsubscribe(two, subscriber, f"a/{track}")
    it.net.run(10.0)
    assert held(one) == set()
    assert not keepers(it)


def test_a_server_that_is_added_is_told_its_share_and_others_nothing() -> None:
    it = Served(edges=2, servers=3)
    one, two = it.edges
    publisher = it.offer(one)
    it.want(two, *"uvwxyz")
    before = {server: len(wire_said(it, two, server)) for server in it.servers}
    new = it.net.relay("9:8", Role.CONTROL)
    for other in (*it.servers, *it.edges):
        it.wire(other, new)
    it.net.run(GRACE_S + AGAIN_S)
    assert new.interest.shares
    assert {server: len(wire_said(it, two, server)) for server in it.servers} == before
    it.servers.append(new)
    assert set(keepers(it).values()) == {REPLICAS}
    assert len(publisher.asked) == 6


def wire_said(it: Served, edge: Relay, server: Relay) -> list[SubscribeInfoAdv]:
    return it.wires[edge, server].here.said(SubscribeInfoAdv)


def test_servers_tell_one_another_what_their_peers_lack() -> None:
    net = Net()
    servers = [net.relay(f"9:{n}", Role.CONTROL) for n in (1, 2, 3)]
    one, two = net.relay("1:1"), net.relay("1:2")
    for number, server in enumerate(servers):
        for other in servers[:number]:
            net.wire(server, other, mode=PeerMode.CONTROL, extended=True)
    net.wire(one, servers[0], mode=PeerMode.CONTROL, extended=True)
    wire = net.wire(two, servers[1], mode=PeerMode.CONTROL, extended=True)
    net.wire(two, servers[2], mode=PeerMode.CONTROL, extended=True)
    net.settle()
    publisher, subscriber = App(), App()
    net.announce(one, publisher, "a")
    for track in "uvwxyz":
        net.subscribe(two, subscriber, f"a/{track}")
    assert all(server.interest.shares for server in servers)
    assert len(publisher.asked) == 6
    assert len(held(servers[0])) == 6
    one.client_closed(publisher, net.now)
    net.run(1.0)
    assert held(servers[0]) == held(one) == set()
    publisher = App()
    net.announce(one, publisher, "a")
    wire.cut()
    net.run(1.0)
    net.unsubscribe(two, subscriber, "a/x")
    net.run(10.0)
    assert len(publisher.asked) == 5


def test_servers_of_which_two_do_not_speak_hear_everything() -> None:
    it = Served(edges=2, servers=3)
    it.want(it.edges[0], *"uvwxyz")
    it.wires[it.servers[1], it.servers[0]].cut()
    it.net.run(GRACE_S + 2.0)
    assert [server.interest.shares for server in it.servers] == [True, True, False]
    assert len(held(it.servers[2])) == 6
    it.wire(it.servers[1], it.servers[0])
    it.net.run(GRACE_S + AGAIN_S)
    assert all(server.interest.shares for server in it.servers)
    assert set(keepers(it).values()) == {REPLICAS}


def fill(it: Served, edge: Relay) -> list[WireEnd]:
    """An edge's links to its servers take nothing more until they are released."""
    ends = [it.wires[edge, server].here for server in it.servers]
    for end in ends:
        end.window = end.unread = 1
        end.holding = True
    return ends


def release(ends: list[WireEnd]) -> None:
    for end in ends:
        end.release()


def test_what_is_wanted_while_a_share_waits_to_be_told_is_told_as_well() -> None:
    it = Served(edges=1, servers=3)
    (one,) = it.edges
    it.want(one, "u")
    full = fill(it, one)[:2]
    it.net.crash(it.servers.pop())
    it.net.run(0.5)
    it.want(one, *"vwxyz")
    release(full)
    it.net.run(GRACE_S + AGAIN_S)
    assert len(keepers(it)) == 6
    assert set(keepers(it).values()) == {REPLICAS}


def test_a_server_that_comes_and_goes_before_it_was_told_of_takes_nothing_with_it() -> None:
    it = Served(edges=1, servers=3)
    (one,) = it.edges
    it.want(one, *"uvwxyz")
    full = fill(it, one)
    new = it.net.relay("9:8", Role.CONTROL)
    for other in (*it.servers, one):
        it.wire(other, new)
    it.net.run(1.0)
    assert min(keepers(it).values()) < REPLICAS  # it is to have some, and others let them go
    it.net.crash(new)
    it.net.run(1.0)
    release(full)
    it.net.run(GRACE_S + AGAIN_S)
    assert len(keepers(it)) == 6
    assert set(keepers(it).values()) == {REPLICAS}


def test_an_end_that_overtakes_its_subscribe_by_another_server_counts() -> None:
    net = Net()
    one = net.relay("1:1")
    servers = [net.puppet(f"9:{n}", NodeType.VIA) for n in (1, 2)]
    for server in servers:
        net.wire(one, server, mode=PeerMode.CONTROL, extended=True)
    for server, other in (servers, reversed(servers)):
        say(server, SubscribeInterest(Wants.SHARE, serves=True, servers=(other.id,)))
        way = (NodePathItem(server.id, 1000),)
        say(server, NodeInfoAdv(NodeInfo(parse_node_id("1:2"), NodeType.EDGE, path=way)))
    net.run(AGAIN_S)
    publisher = App()
    net.announce(one, publisher, "a")
    assert served(one)
    say(servers[0], SubscribeInfoWd(subscribe_info("1:2", "a/x", 2)))
    say(servers[1], SubscribeInfoAdv(subscribe_info("1:2", "a/x", 1)))
    assert held(one) == set()
    assert publisher.asked == []
    say(servers[1], SubscribeInfoAdv(subscribe_info("1:2", "a/x", 3)))
    assert held(one) == {("1:2", "x")}


@pytest.mark.parametrize("restarted", [False, True])
def test_what_ends_while_an_edge_has_no_server_for_a_moment_is_put_right(
    *, restarted: bool
) -> None:
    it = Served(edges=2, servers=2)
    one, two = it.edges
    publisher = it.offer(one)
    subscriber = it.want(two, "x", "y")
    it.net.unsubscribe(two, subscriber, "a/x")
    it.net.run(4.5)  # it is told after five seconds
    for number, server in enumerate(list(it.servers)):
        if restarted:
            it.net.crash(server)
            it.servers[number] = it.net.relay(f"9:{number + 1}", Role.CONTROL)
        else:
            it.wires[one, server].cut()
    it.net.run(GRACE_S / 2)
    if restarted:
        it.wire(it.servers[1], it.servers[0])
    for server in it.servers:
        for edge in it.edges if restarted else [one]:
            it.wire(edge, server)
    it.net.run(REGAINED_S + 1.0)
    assert served(one)
    assert held(one) == {("1:2", "y")}
    assert keepers(it) == {("1:2", "y"): REPLICAS}
    assert len(publisher.asked) == 1


# --- near -------------------------------------------------------------------------------------


def test_nodes_that_are_near_hear_of_what_both_want() -> None:
    it = Served()
    one, two, three = it.edges
    it.want(two, "x", "y")
    subscriber = it.want(one, "x")
    one.interest.name_near([two.id], it.net.now)
    it.net.run()
    assert held(one) == {("1:1", "x"), ("1:2", "x")}
    it.want(one, "y")
    it.want(two, "z")
    it.want(three, "x")
    assert held(one) == {("1:1", "x"), ("1:1", "y"), ("1:2", "x"), ("1:2", "y")}
    it.net.unsubscribe(one, subscriber, "a/x")
    it.net.run(10.0)
    assert held(one) == {("1:1", "y"), ("1:2", "y")}
    one.interest.name_near([], it.net.now)
    it.net.run()
    assert held(one) == {("1:1", "y")}


# --- what a peer may say ----------------------------------------------------------------------


def test_announces_have_no_place_of_whoever_hears_everything() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("1:2")
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.ALL))
    info = net.announce(relay, App(), "b")
    before = relay.counters.unwanted_messages
    say(puppet, AnnounceInfoAdv(info), AnnounceInfoWd(info))
    assert relay.counters.unwanted_messages == before + 2
    assert len(relay.interest.concern.offers) == 0


def test_a_peer_that_announces_too_much_is_closed() -> None:
    net = Net()
    relay, puppet = net.relay("1:1", limits=PeerLimits(namespaces=2)), net.puppet("1:2")
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.OFFERED))
    for part in (b"a", b"b"):
        say(puppet, AnnounceInfoAdv(announce_info(puppet.id, (part,), None)))
    assert relay.counters.peers_over_limit == 0
    say(puppet, AnnounceInfoAdv(announce_info(puppet.id, (b"c",), None)))
    assert relay.counters.peers_over_limit == 1


def test_what_is_said_on_a_link_that_control_does_not_use_counts_until_it_does() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("1:2")
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.OFFERED))
    peer = relay.peers[puppet.id]
    assert peer.interest == SubscribeInterest(Wants.OFFERED)
    net.wire(relay, puppet, extended=True)
    assert peer.interest is not None
    say(puppet, SubscribeInterest(Wants.ALL))
    assert peer.interest.wants in (Wants.ALL, Wants.OFFERED)


# --- which servers ----------------------------------------------------------------------------

FOUR = tuple(parse_node_id(f"9:{n}") for n in (1, 2, 3, 4))


def test_shares_are_about_even_and_move_only_where_they_have_to() -> None:
    keys = [TrackKey(number * 0x9E3779B97F4A7C15 & 2**64 - 1) for number in range(4000)]
    of = {key: set(responsible(key, FOUR)) for key in keys}
    counts = Counter(server for servers in of.values() for server in servers)
    assert all(1800 < counts[server] < 2200 for server in FOUR)
    for key in keys:
        fewer = set(responsible(key, FOUR[:3]))
        assert of[key] - {FOUR[3]} <= fewer


def test_one_or_two_servers_hold_everything() -> None:
    assert responsible(TrackKey(1), ()) == ()
    assert responsible(TrackKey(1), FOUR[:1]) == FOUR[:1]
    assert responsible(TrackKey(1), FOUR[:2]) == FOUR[:2]


@pytest.mark.parametrize(
    ("peers", "joined", "all_joined"),
    [
        ({}, False, False),
        ({1: [2], 2: [3]}, True, False),
        ({1: [2, 3], 2: [3]}, True, True),
        ({1: [2, 3], 2: [1, 3], 3: [1, 2]}, True, True),
        ({1: [2, 9], 3: [9]}, False, False),
    ],
)
def test_servers_are_joined(peers: dict[int, list[int]], joined: bool, all_joined: bool) -> None:
    servers = [NodeId(n) for n in (1, 2, 3)]
    said = {NodeId(one): [NodeId(it) for it in others] for one, others in peers.items()}
    assert are_joined(servers, said) is joined
    assert are_all_joined(servers, said) is all_joined


def test_no_server_is_joined_to_none() -> None:
    assert not are_joined((), {})
    assert are_all_joined(FOUR[:1], {})
