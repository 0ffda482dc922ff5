"""Subscribes on their way through the network: flooded once, in order, and never left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.relay.roles import Role
from laps.tracks.tracks import TrackChange, Tracks
from laps.types import (
    NodeInfo,
    NodePathItem,
    NodeType,
    TrackKey,
    announce_info,
    format_node_id,
    hash_track,
    parse_node_id,
)
from laps.wire.peering import (
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)
from laps.wire.subscribe import decode_track_name, encode_subscribe
from support.relays import App, Net, Puppet, subscribe_info, track_hash, track_name

if TYPE_CHECKING:
    from laps.relay.relay import Relay


def wanted(relay: Relay, track: str) -> set[str]:
    """The nodes that a relay believes to want a track."""
    sources = relay.subscribes.sources(track_hash(track).full_name_hash)
    return {format_node_id(node_id) for node_id in sources}


def sequences(puppet: Puppet) -> list[tuple[bool, int]]:
    """What it was told of subscribes: (advertised, sequence)."""
    return [
        (isinstance(message, SubscribeInfoAdv), message.subscribe_info.sequence)
        for message in puppet.heard
        if isinstance(message, SubscribeInfoAdv | SubscribeInfoWd)
    ]


@pytest.fixture
def watched() -> tuple[Net, Relay, Puppet]:
    """A relay, and a peer that hears what it says."""
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("2:1")
    net.wire(puppet, relay)
    return net, relay, puppet


# -- the s-relay -----------------------------------------------------------------------------------


def test_one_advertisement_whatever_the_number_of_clients(
    watched: tuple[Net, Relay, Puppet],
) -> None:
    net, relay, puppet = watched
    apps = [App() for _ in range(5)]
    for app in apps:
        net.subscribe(relay, app, "a/x")
    (message,) = puppet.heard_of(SubscribeInfoAdv)
    assert message.subscribe_info.source_node_id == relay.id
    assert message.subscribe_info.track_hash == track_hash("a/x")
    for app in apps[1:]:
        net.unsubscribe(relay, app, "a/x")
    net.run(20.0)
    assert puppet.heard_of(SubscribeInfoWd) == []
    net.unsubscribe(relay, apps[0], "a/x")
    net.run(20.0)
    assert len(puppet.heard_of(SubscribeInfoWd)) == 1


def test_the_original_subscribe_travels_whole() -> None:
    net, pub, sub = Net(), App(), App()
    origin, via, edge = net.relay("1:1"), net.relay("2:1", Role.VIA), net.relay("1:2")
    net.wire(origin, via)
    net.wire(via, edge)
    net.settle()
    net.announce(origin, pub, "a")
    data = encode_subscribe(track_name("a/b/x"), request_id=12345)
    edge.subscribe(sub, track_name("a/b/x"), data, net.now)
    net.run()
    assert pub.asked_with == [data]
    assert decode_track_name(pub.asked_with[0]) == track_name("a/b/x")


def test_the_last_to_leave_is_told_after_five_seconds(watched: tuple[Net, Relay, Puppet]) -> None:
    net, relay, puppet = watched
    app = App()
    net.subscribe(relay, app, "a/x")
    net.unsubscribe(relay, app, "a/x")
    net.run(4.9)
    assert puppet.heard_of(SubscribeInfoWd) == []
    net.run(0.1)
    (adv,), (wd,) = puppet.heard_of(SubscribeInfoAdv), puppet.heard_of(SubscribeInfoWd)
    assert wd.subscribe_info.sequence > adv.subscribe_info.sequence
    assert replace(wd.subscribe_info, sequence=0) == replace(adv.subscribe_info, sequence=0)


def test_a_track_is_forgotten_as_soon_as_its_last_subscriber_has_left() -> None:
    net = Net()
    relay, app = net.relay("1:1"), App()
    for _ in range(10):  # whenever the relay looks at all tracks
        net.subscribe(relay, app, "a/x")
        net.unsubscribe(relay, app, "a/x")
        net.run(4.95)
        assert len(relay.tracks) == 1
        net.run(0.1)
        assert len(relay.tracks) == 0
        net.run(0.07)


def test_who_comes_back_in_time_was_never_away(watched: tuple[Net, Relay, Puppet]) -> None:
    net, relay, puppet = watched
    app = App()
    net.subscribe(relay, app, "a/x")
    for _ in range(10):
        net.unsubscribe(relay, app, "a/x")
        net.run(3.0)
        net.subscribe(relay, app, "a/x")
        net.run(1.0)
    net.run(20.0)
    assert len(sequences(puppet)) == 1
    assert wanted(relay, "a/x") == {"1:1"}


def test_data_goes_on_while_the_last_is_away_and_back() -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    net.wire(origin, edge)
    net.settle()
    net.announce(origin, pub, "a")
    net.subscribe(edge, sub, "a/x")
    net.unsubscribe(edge, sub, "a/x")
    net.publish(origin, pub, "a/x", 0, b"unheard")
    net.run(3.0)
    net.subscribe(edge, sub, "a/x")
    net.publish(origin, pub, "a/x", 1, b"heard")
    assert sub.got == [b"heard"]
    assert len(pub.asked) == 1


def test_a_client_may_ask_twice_and_leave_what_it_never_had(
    watched: tuple[Net, Relay, Puppet],
) -> None:
    net, relay, puppet = watched
    app = App()
    net.unsubscribe(relay, app, "a/x")
    net.subscribe(relay, app, "a/x")
    net.subscribe(relay, app, "a/x")
    net.unsubscribe(relay, App(), "a/x")
    net.run(20.0)
    assert len(sequences(puppet)) == 1
    net.unsubscribe(relay, app, "a/x")
    net.run(20.0)
    assert [advertised for advertised, _ in sequences(puppet)] == [True, False]


def test_the_sequence_wraps() -> None:
    net, app = Net(), App()
    relay = net.relay("1:1", epoch=0xFFFF - 1000)  # the clock of these tests begins at 1000
    other, puppet = net.relay("1:2"), net.puppet("2:1")
    net.wire(relay, other)
    net.wire(puppet, relay)
    net.subscribe(relay, app, "a/x")
    net.unsubscribe(relay, app, "a/x")
    net.run(5.0)
    assert wanted(other, "a/x") == set()
    net.subscribe(relay, app, "a/x")
    assert wanted(other, "a/x") == {"1:1"}
    told = sequences(puppet)
    assert [advertised for advertised, _ in told] == [True, False, True]
    assert told[0][1] == 0xFFFF
    assert told[1][1] < told[2][1] < 100


def test_a_relay_that_forgot_its_sequence_goes_on_after_it() -> None:
    net, app = Net(), App()
    relay, puppet = net.relay("1:1"), net.puppet("2:1")
    net.wire(puppet, relay)
    told = []
    for _ in range(4):
        net.subscribe(relay, app, "a/x")
        net.unsubscribe(relay, app, "a/x")
        net.run(200.0)
    told = [sequence for _, sequence in sequences(puppet)]
    assert len(told) == 8
    assert told == sorted(set(told))


# -- on the way ------------------------------------------------------------------------------------


def ring() -> tuple[Net, list[Relay]]:
    net = Net()
    relays = [net.relay(f"1:{low}") for low in range(1, 6)]
    for a, b in zip(relays, relays[1:] + relays[:1], strict=True):
        net.wire(a, b)
    net.settle()
    return net, relays


def test_a_flood_ends_and_reaches_all() -> None:
    net, relays = ring()
    for wire in net.wires:
        wire.here.sent.clear()
        wire.there.sent.clear()
    net.subscribe(relays[0], App(), "a/x")
    assert all(wanted(relay, "a/x") == {"1:1"} for relay in relays)
    sent = [end for wire in net.wires for end in wire for _ in end.said(SubscribeInfoAdv)]
    assert 4 <= len(sent) <= 6  # twice over the link where both ways round meet
    for _relay in relays[1:]:
        assert all(end.other.relay is not relays[0] for end in sent)


def test_a_peer_is_told_what_there_is_when_it_comes() -> None:
    net, relays = ring()
    net.subscribe(relays[0], App(), "a/x")
    late = net.puppet("2:1")
    net.wire(late, relays[2])
    assert [m.subscribe_info.source_node_id for m in late.heard_of(SubscribeInfoAdv)] == [
        relays[0].id
    ]


def test_a_node_is_told_of_before_its_subscribes() -> None:
    net, relays = ring()
    net.subscribe(relays[0], App(), "a/x")
    late = net.puppet("2:1")
    net.wire(late, relays[2])
    of_first = [
        type(message)
        for message in late.heard
        if (isinstance(message, NodeInfoAdv) and message.node_info.id == relays[0].id)
        or isinstance(message, SubscribeInfoAdv)
    ]
    assert of_first == [NodeInfoAdv, SubscribeInfoAdv]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ([(True, 5), (False, 6)], False),
        ([(True, 5), (False, 4)], True),  # a withdraw that was overtaken
        ([(True, 5), (False, 5)], True),
        ([(False, 5), (True, 4)], False),  # an advertisement that was overtaken
        ([(True, 5), (False, 6), (True, 7)], True),
        ([(True, 5), (True, 7), (False, 6)], True),
        ([(True, 0xFFFE), (False, 0xFFFF), (True, 0)], True),
        ([(True, 0), (False, 0xFFFF)], True),
        ([(True, 0xFFFF), (False, 0)], False),
    ],
)
def test_the_last_word_counts_whatever_the_order(words: list[tuple[bool, int]], left: bool) -> None:
    net = Net()
    relay, puppet, listener = net.relay("1:1"), net.puppet("2:1"), net.puppet("2:2")
    net.wire(puppet, relay)
    net.wire(listener, relay)
    net.run(3.0)
    for advertised, sequence in words:
        info = subscribe_info("2:1", "a/x", sequence)
        puppet.say(SubscribeInfoAdv(info) if advertised else SubscribeInfoWd(info))
    assert wanted(relay, "a/x") == ({"2:1"} if left else set())
    assert sequences(listener)[-1][0] == left


def test_a_withdraw_of_something_unknown_leaves_the_session_alone(
    watched: tuple[Net, Relay, Puppet],
) -> None:
    _, relay, puppet = watched
    puppet.say(SubscribeInfoWd(subscribe_info("2:1", "a/x", 3)))
    assert puppet.closed is None
    assert len(relay.subscribes) == 0


def test_a_word_in_our_own_name_is_put_right(watched: tuple[Net, Relay, Puppet]) -> None:
    net, relay, puppet = watched
    puppet.say(SubscribeInfoAdv(subscribe_info("1:1", "a/stale", 40_000)))
    (correction,) = puppet.heard_of(SubscribeInfoWd)
    assert correction.subscribe_info == subscribe_info("1:1", "a/stale", 40_001)
    net.subscribe(relay, App(), "a/x")
    puppet.say(SubscribeInfoWd(subscribe_info("1:1", "a/x", 20_000)))
    assert puppet.heard_of(SubscribeInfoAdv)[-1].subscribe_info.sequence == 20_001
    assert wanted(relay, "a/x") == {"1:1"}
    assert wanted(relay, "a/stale") == set()


def test_a_subscribe_ahead_of_its_node_waits_for_it(watched: tuple[Net, Relay, Puppet]) -> None:
    net, relay, puppet = watched
    pub = App()
    net.announce(relay, pub, "a")
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    assert puppet.heard_of(SubscribeNodeSetAdv) == []
    info = NodeInfo(parse_node_id("3:1"), NodeType.EDGE, "", path=(NodePathItem(puppet.id, 5),))
    puppet.say(NodeInfoAdv(info))
    assert [message.nodes for message in puppet.heard_of(SubscribeNodeSetAdv)] == [(info.id,)]
    net.run(60.0)
    assert wanted(relay, "a/x") == {"3:1"}


def test_a_subscribe_of_a_node_that_never_comes_is_forgotten(
    watched: tuple[Net, Relay, Puppet],
) -> None:
    net, relay, puppet = watched
    pub = App()
    net.announce(relay, pub, "a")
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    net.run(9.9)
    assert wanted(relay, "a/x") == {"3:1"}
    net.run(0.2)
    assert wanted(relay, "a/x") == set()
    assert pub.asked == []


def test_subscribe_data_that_is_no_subscribe_is_passed_on_and_matched_by_nobody(
    watched: tuple[Net, Relay, Puppet],
) -> None:
    net, relay, puppet = watched
    pub, other = App(), net.puppet("2:2")
    net.wire(other, relay)
    net.run(3.0)
    net.announce(relay, pub, "a")
    puppet.say(SubscribeInfoAdv(replace(subscribe_info("2:1", "a/x", 1), subscribe_data=b"\xff")))
    assert len(other.heard_of(SubscribeInfoAdv)) == 1
    assert pub.asked == []
    assert puppet.closed is None


# -- the o-relay -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "track", "asked"),
    [
        ("a", "a/x", True),
        ("a", "a/b/c/x", True),
        ("a/b", "a/b/x", True),
        ("a/b", "a/x", False),
        ("b", "a/b/x", False),
        ("a/c", "a/b/x", False),
    ],
)
@pytest.mark.parametrize("announce_first", [True, False])
def test_a_shorter_announce_matches_as_a_prefix(
    announced: str, track: str, asked: bool, announce_first: bool
) -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    net.wire(origin, edge)
    if announce_first:
        net.announce(origin, pub, announced)
    net.subscribe(edge, sub, track)
    if not announce_first:
        net.announce(origin, pub, announced)
    assert pub.asked == ([track_hash(track).full_name_hash] if asked else [])


def test_a_publisher_is_asked_once_and_told_when_it_is_over() -> None:
    net, pub = Net(), App()
    origin, one, two = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    net.wire(origin, one)
    net.wire(origin, two)
    net.announce(origin, pub, "a")
    apps = [(relay, App()) for relay in (origin, one, two)]
    for relay, app in apps:
        net.subscribe(relay, app, "a/x")
    assert pub.asked == [track_hash("a/x").full_name_hash]
    for relay, app in apps:
        assert pub.asked
        net.unsubscribe(relay, app, "a/x")
        net.run(6.0)
    assert pub.asked == []


def test_a_publisher_that_takes_its_announce_back_is_not_asked() -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    wire = net.wire(origin, edge)
    info = net.announce(origin, pub, "a")
    net.subscribe(edge, sub, "a/x")
    assert wire.here.sets == {1: {"1:2"}}
    origin.unannounce(pub, info, net.now)
    net.run()
    assert pub.asked == []
    assert wire.here.sets == {}
    net.announce(origin, pub, "a")
    assert len(pub.asked) == 1


def test_a_track_that_comes_or_goes_costs_no_look_at_all_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:2")
    net.wire(origin, edge)
    names = [track_name(f"a/t{number}") for number in range(100)]
    infos = [announce_info(origin.id, name.namespace, name.name) for name in names]
    for number in range(100):
        net.subscribe(edge, sub, f"a/t{number}")
    looked: list[int] = []
    review = Tracks.review

    def look(self: Tracks, key: TrackKey, now: float) -> TrackChange:
        looked.append(key)
        return review(self, key, now)

    monkeypatch.setattr(Tracks, "review", look)
    for name, info in zip(names, infos, strict=True):
        origin.announce(pub, info, net.now, (name.namespace, name.name))
    keys = [hash_track(name).full_name_hash for name in names]
    assert pub.asked == looked == keys
    looked.clear()
    for name, info in zip(names[:50], infos[:50], strict=True):
        origin.unannounce(pub, info, net.now, (name.namespace, name.name))
    assert looked == keys[:50]
    assert pub.asked == keys[50:]
    looked.clear()
    origin.unannounce(pub, infos[50], net.now)  # as a Stub says it, by hashes
    assert looked == keys[50:51]
    origin.client_closed(pub, net.now)
    net.run()
    assert pub.asked == []


def test_hashes_that_are_not_those_of_the_name_hide_no_other_track() -> None:
    net, pub, sub = Net(), App(), App()
    origin, edge, liar = net.relay("1:1"), net.relay("1:2"), net.puppet("1:3")
    net.wire(origin, edge)
    net.wire(liar, origin)
    true = track_hash("a/b/x")
    for number in range(20):
        lie = subscribe_info("1:3", "other/y", number + 1)
        hashes = structs.replace(true, full_name_hash=TrackKey(number))
        lie = replace(lie, track_hash=hashes)
        liar.say(SubscribeInfoAdv(lie))
    net.subscribe(edge, sub, "a/b/x")
    net.announce(origin, pub, "a")
    assert pub.asked == [true.full_name_hash]


# -- partitions and restarts -----------------------------------------------------------------------


def test_a_subscribe_goes_when_its_node_is_out_of_reach_and_comes_back_with_it() -> None:
    net, pub, sub = Net(), App(), App()
    origin, middle, edge = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    net.wire(origin, middle)
    wire = net.wire(middle, edge)
    net.settle()
    net.announce(origin, pub, "a")
    net.subscribe(edge, sub, "a/x")
    wire.cut()
    assert pub.asked == []
    assert wanted(origin, "a/x") == wanted(middle, "a/x") == set()
    net.run(100.0)
    net.wire(edge, middle)
    net.settle()
    assert wanted(origin, "a/x") == wanted(middle, "a/x") == {"1:3"}
    net.publish(origin, pub, "a/x", 0, b"again")
    assert sub.got == [b"again"]


@pytest.mark.parametrize("reflect", [Role.EDGE, Role.VIA])
def test_what_changed_during_a_partition_is_right_after_it(reflect: Role) -> None:
    net, pub, sub, other = Net(), App(), App(), App()
    origin, edge = net.relay("1:1"), net.relay("1:3")
    middle = net.relay("1:2", reflect, reflect=True)
    net.wire(origin, middle)
    wire = net.wire(middle, edge)
    net.settle()
    net.announce(origin, pub, "a")
    net.subscribe(edge, sub, "a/old")
    net.subscribe(edge, other, "a/kept")
    wire.cut()
    net.subscribe(edge, sub, "a/new")
    net.unsubscribe(edge, sub, "a/old")
    net.run(10.0)
    net.wire(middle, edge)
    net.settle()
    for relay in (origin, middle):
        assert wanted(relay, "a/old") == set()
        assert wanted(relay, "a/kept") == wanted(relay, "a/new") == {"1:3"}


def test_a_relay_that_is_back_with_fewer_subscribes_leaves_none_behind() -> None:
    net = Net()
    one, two, far = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    edge = net.relay("1:9")
    net.wire(edge, one)
    net.wire(edge, two)
    net.wire(one, far)
    net.wire(two, far)
    net.settle()
    net.subscribe(edge, App(), "a/kept")
    net.subscribe(edge, App(), "a/stale")
    net.run(3.0)
    # Nobody notices the crash: two goes on believing that its link is fine.
    net.crash(edge, noticed=False)
    again = net.relay("1:9")
    net.wire(again, one)
    net.subscribe(again, App(), "a/kept")
    net.run(6.0)
    for relay in (one, two, far):
        assert wanted(relay, "a/stale") == set()
        assert wanted(relay, "a/kept") == {"1:9"}
    net.run(60.0)
    assert all(wanted(relay, "a/kept") == {"1:9"} for relay in (one, two, far))


def test_a_relay_that_is_back_may_subscribe_to_what_was_withdrawn_in_its_name() -> None:
    net = Net()
    one, two, edge = net.relay("1:1"), net.relay("1:2"), net.relay("1:9")
    net.wire(edge, one)
    net.wire(edge, two)
    net.wire(one, two)
    net.settle()
    net.subscribe(edge, App(), "a/x")
    net.run(3.0)
    net.crash(edge, noticed=False)
    again = net.relay("1:9")
    net.wire(again, one)
    net.run(6.0)
    assert wanted(one, "a/x") == set()
    net.subscribe(again, App(), "a/x")
    net.run(3.0)
    assert wanted(one, "a/x") == wanted(two, "a/x") == {"1:9"}


def test_a_relay_that_is_back_by_its_own_link_outlives_the_one_it_was_dialled_by() -> None:
    net = Net()
    one, edge = net.relay("1:1"), net.relay("1:9")
    net.wire(one, edge)
    net.settle()
    net.subscribe(edge, App(), "a/stale")
    net.subscribe(edge, App(), "a/kept")
    net.run(3.0)
    net.crash(edge, noticed=False)
    again = net.relay("1:9")
    net.wire(again, one)
    net.subscribe(again, App(), "a/kept")
    net.run(6.0)  # the link that is lost is found out by a probe, and not by its idle timeout
    assert wanted(one, "a/stale") == set()
    assert wanted(one, "a/kept") == {"1:9"}
    net.subscribe(one, App(), "a/new")
    assert wanted(again, "a/new") == {"1:1"}


def test_a_crash_that_is_noticed_leaves_nothing() -> None:
    net, relays = ring()
    net.subscribe(relays[0], App(), "a/x")
    net.crash(relays[0])
    net.settle()
    for relay in relays[1:]:
        assert wanted(relay, "a/x") == set()
        assert relays[0].id not in relay.nodes
