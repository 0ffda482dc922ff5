"""What concerns very much is done in pieces: no message holds a relay for longer than a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.infobase.nodes import Nodes
from laps.relay.pieces import MOST_IN_A_TURN
from laps.relay.sets import GATHER_FROM, GATHER_S
from laps.tracks.tracks import Tracks
from laps.types import NodeInfo, NodePathItem, NodeType, announce_info, parse_node_id
from laps.wire.peering import (
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)
from support.relays import App, Net, subscribe_info, track_hash, track_name

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.relays import Puppet

MANY = 2 * MOST_IN_A_TURN + 50


def beyond(peer: Puppet, *nodes: str) -> None:
    by = (NodePathItem(peer.id, 1000),)
    peer.say(*(NodeInfoAdv(NodeInfo(parse_node_id(n), NodeType.EDGE, path=by)) for n in nodes))


def wants(peer: Puppet, node: str, *tracks: str) -> None:
    peer.say(*(SubscribeInfoAdv(subscribe_info(node, track, 1)) for track in tracks))


def turns(relay: Relay, now: float) -> int:
    """Call the relay as long as it wants to be called at once; how often that was."""
    for count in range(1000):
        due = relay.deadline()
        if due is None or due > now:
            return count
        relay.tick(now)
    raise AssertionError("the relay never comes to an end")


# -- announces -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "found"),
    [
        ("a", ["a/x", "a/y", "a/b/x", "a/b/c/x"]),
        ("a/b", ["a/b/x", "a/b/c/x"]),
        ("a/b/c", ["a/b/c/x"]),
        ("b", ["b/x"]),
        ("c", []),
        ("", ["a/x", "a/y", "a/b/x", "a/b/c/x", "b/x"]),
    ],
)
def test_announce_finds_what_is_wanted_below_it(
    net: Net, relay: Relay, peer: Puppet, announced: str, found: list[str]
) -> None:
    wants(peer, "2:1", "a/x", "a/y", "a/b/x", "a/b/c/x", "b/x")
    app = App()
    info = announce_info(relay.id, tuple(p.encode() for p in announced.split("/") if p), None)
    relay.announce(app, info, net.now)
    assert sorted(app.asked) == sorted(track_hash(track).full_name_hash for track in found)


def test_announce_by_the_hashes_of_a_track_finds_that_track(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    wants(peer, "2:1", "a/x", "a/y", "a/b/x", "b/x")
    app, name = App(), track_name("a/x")
    relay.announce(app, announce_info(relay.id, name.namespace, name.name), net.now)
    assert app.asked == [track_hash("a/x").full_name_hash]


def test_announce_looks_at_no_track_of_another_namespace(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants(peer, "2:1", *(f"room{n}/x" for n in range(50)), "here/x")
    read: list[int] = []
    name_of = Tracks._name_of

    def counted(tracks: Tracks, key: object) -> object:
        read.append(1)
        return name_of(tracks, key)  # type: ignore[arg-type]

    monkeypatch.setattr(Tracks, "_name_of", counted)
    app = App()
    net.announce(relay, app, "here")
    assert app.asked == [track_hash("here/x").full_name_hash]
    assert len(read) <= 2


def test_announce_finds_nothing_of_what_is_wanted_no_more(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    wants(peer, "2:1", "a/x", "a/y")
    assert len(relay.tracks.names) == 1
    for track in ("a/x", "a/y"):
        peer.say(SubscribeInfoWd(subscribe_info("2:1", track, 2)))
    assert len(relay.tracks.names) == 0
    app = App()
    net.announce(relay, app, "a")
    assert app.asked == []


def test_announce_is_found_though_another_lied_about_the_namespace(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    lie = subscribe_info("2:1", "other/x", 1)
    honest = track_hash("a/y")
    wrong = type(honest)(honest.namespace_hash, 7, 99)  # type: ignore[arg-type]
    peer.say(SubscribeInfoAdv(type(lie)(1, lie.source_node_id, wrong, lie.subscribe_data)))
    wants(peer, "2:1", "a/x")
    app = App()
    net.announce(relay, app, "a")
    assert app.asked == [track_hash("a/x").full_name_hash]


def test_announce_of_very_many_tracks_is_cut_into_pieces(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    wants(peer, "2:1", *(f"a/{number}" for number in range(MANY)))
    app = App()
    relay.announce(app, announce_info(relay.id, (b"a",)), net.now)
    assert 0 < len(app.asked) <= MOST_IN_A_TURN
    assert not relay.is_idle()
    assert turns(relay, net.now) >= 2
    assert len(app.asked) == MANY
    relay.client_closed(app, net.now)
    assert turns(relay, net.now) >= 2
    assert app.asked == []


# -- subscribes that are lost ----------------------------------------------------------------------


def test_subscribes_that_are_lost_together_are_forgotten_in_pieces(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    beyond(peer, "3:1")
    wants(peer, "3:1", *(f"a/{number}" for number in range(MANY)))
    app = App()
    net.announce(relay, app, "a")
    net.run()
    turns(relay, net.now)
    assert len(app.asked) == MANY
    end = net.wires[0].there
    relay.link_closed(end, net.now)
    assert len(relay.subscribes) == 0
    assert len(app.asked) >= MANY - 2 * MOST_IN_A_TURN
    turns(relay, net.now)
    assert (app.asked, len(relay.fib), relay.subscribes.is_purging) == ([], 0, False)


def test_subscribes_of_a_node_that_is_back_before_they_are_forgotten_stay(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    beyond(peer, "3:1")
    tracks = [f"a/{number}" for number in range(MANY)]
    wants(peer, "3:1", *tracks)
    app = App()
    net.announce(relay, app, "a")
    by = (NodePathItem(peer.id, 1000),)
    info = NodeInfo(parse_node_id("3:1"), NodeType.EDGE, path=by)
    peer.say(NodeInfoWd(info), NodeInfoAdv(info))
    wants(peer, "3:1", *tracks[:10], *tracks[-10:])
    turns(relay, net.now)
    wanted = {track_hash(track).full_name_hash for track in (*tracks[:10], *tracks[-10:])}
    assert set(app.asked) == wanted
    assert len(relay.subscribes) == 20
    for key in wanted:
        assert relay.subscribes.sources(key) == {parse_node_id("3:1")}


# -- sets ------------------------------------------------------------------------------------------


def test_joins_of_many_relays_are_gathered_into_few_sets(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    nodes = [f"3:{number}" for number in range(1, 6 * GATHER_FROM)]
    beyond(peer, *nodes)
    net.announce(relay, App(), "a")
    for node in nodes:
        wants(peer, node, "a/x")
        net.run()
    assert len(peer.heard_of(SubscribeNodeSetAdv)) <= GATHER_FROM + 2
    net.run(2 * GATHER_S)
    assert [len(nodes) for nodes in net.wires[0].there.sets.values()] == [len(nodes)]


def test_data_goes_to_a_relay_that_is_still_being_gathered(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    nodes = [f"3:{number}" for number in range(1, 3 * GATHER_FROM)]
    beyond(peer, *nodes)
    app = App()
    net.announce(relay, app, "a")
    for node in nodes:
        wants(peer, node, "a/x")
    assert [len(told) for told in net.wires[0].there.sets.values()] != [len(nodes)]
    relay.publish(app, track_hash("a/x"), 0, b"data", False, 0, 0, net.now)
    assert [len(told) for told in net.wires[0].there.sets.values()] == [len(nodes)]


def test_a_lost_neighbour_is_left_for_several_turns(net: Net, relay: Relay, peer: Puppet) -> None:
    other = net.puppet("2:2")
    net.wire(other, relay, srtt_ms=50)
    for via in (peer, other):
        beyond(via, "3:1")
    app = App()
    net.announce(relay, app, "a")
    wants(peer, "3:1", *(f"a/{number}" for number in range(MANY)))
    assert len(net.wires[0].there.sets) == MANY
    relay.link_closed(net.wires[0].there, net.now)
    assert len(net.wires[1].there.sets) <= MOST_IN_A_TURN
    # Whoever sends does not wait for its turn.
    last = track_hash(f"a/{MANY - 1}")
    relay.publish(app, last, 0, b"data", False, 0, 0, net.now)
    assert any(stream.data for stream in net.wires[1].there.streams.values())
    turns(relay, net.now)
    assert len(net.wires[1].there.sets) == MANY


def test_a_flow_that_must_not_turn_back_hears_of_a_way_that_is_not_the_best(net: Net) -> None:
    via, origin, *others = net.relay("1:1"), *(net.puppet(f"2:{n}") for n in (1, 2, 3))
    for puppet, srtt_ms in ((origin, 5), (others[0], 10), (others[1], 20)):
        net.wire(puppet, via, srtt_ms=srtt_ms)
        beyond(puppet, "3:1")
    node = parse_node_id("3:1")
    origin.say(SubscribeNodeSetAdv(1, (node,)))  # type: ignore[arg-type]
    first, second = net.wires[1].there, net.wires[2].there
    assert (first.sets, second.sets) == ({1: {"3:1"}}, {})
    by = (NodePathItem(others[0].id, 1000),)
    others[0].say(NodeInfoWd(NodeInfo(node, NodeType.EDGE, path=by)))
    assert (first.sets, second.sets) == ({}, {1: {"3:1"}})


def test_a_way_is_decided_without_a_look_at_the_others(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond(peer, "3:1")
    wants(peer, "3:1", "a/x")

    def looked(*_: object) -> None:
        raise AssertionError("every path was looked at")

    monkeypatch.setattr(Nodes, "paths", looked)
    monkeypatch.setattr(Nodes, "ranked", looked)
    net.announce(relay, App(), "a")
    assert list(net.wires[0].there.sets.values()) == [{"3:1"}]
