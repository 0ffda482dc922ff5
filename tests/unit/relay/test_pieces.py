"""What concerns very many nodes, flows or streams is done some at a time, and that is counted."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.infobase import nodes as nodes_module
from laps.infobase.nodes import Nodes
from laps.packed import FULL
from laps.packed_sets import MOST_IN_ARRAY
from laps.relay import data as data_module
from laps.relay.exchange import Exchange
from laps.relay.journal import PathWatch
from laps.relay.pieces import LOOKS, MOST_IN_A_TURN, MOST_TOLD, in_pieces
from laps.relay.repairs import MOST_SENT_AGAIN
from laps.relay.subscribes import SubscribeExchange
from laps.relay.timers import MOST_CALLS, Timers
from laps.routing import forwarding
from laps.tables import PART, Table
from laps.tracks import tracks as tracks_module
from laps.tracks.tracks import Tracks
from laps.types import NodeInfo, NodePathItem, NodeType, announce_info, parse_node_id
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS, GoAway
from laps.wire.peering import NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv
from support.relays import App, Net, subscribe_info, track_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from laps.relay.relay import Relay
    from laps.types import AnnounceInfo, TrackName
    from support.relays import Puppet

MANY = 300


class Calls:
    """Counts the calls of a method, of every object."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type, name: str) -> None:
        self.count = 0
        real: Callable[..., object] = getattr(of, name)

        def counted(*args: object, **more: object) -> object:
            self.count += 1
            return real(*args, **more)

        patch.setattr(of, name, counted)

    def most(self, relay: Relay, now: float, call: Callable[[], object]) -> int:
        """The most of them in one call, of those that follow until the relay is done."""
        self.count = 0
        call()
        most = self.count
        for _ in range(10_000):
            due = relay.deadline()
            if due is None or due > now:
                return most
            self.count = 0
            relay.tick(now)
            most = max(most, self.count)
        raise AssertionError("the relay never comes to an end")


def nodes(count: int) -> list[str]:
    return [f"3:{number}" for number in range(1, count + 1)]


def info(peer: Puppet, node: str) -> NodeInfo:
    return NodeInfo(parse_node_id(node), NodeType.EDGE, path=(NodePathItem(peer.id, 1000),))


def beyond(peer: Puppet, *names: str) -> None:
    peer.say(*(NodeInfoAdv(info(peer, node)) for node in names))


def wants(peer: Puppet, node: str, *tracks: str) -> None:
    peer.say(*(SubscribeInfoAdv(subscribe_info(node, track, 1)) for track in tracks))


# -- nodes -----------------------------------------------------------------------------------------


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    """As with a hundred times as many nodes."""
    most = 20
    for module in ("laps.relay.paths", "laps.relay.extensions"):
        monkeypatch.setattr(f"{module}.MOST_CHOSEN", most)
    assert most < nodes_module.MOST_CHOSEN
    return most


def test_nodes_of_a_lost_link_are_chosen_again_some_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch, few_at_once: int
) -> None:
    other = net.puppet("2:2")
    net.wire(other, relay, srtt_ms=50)
    beyond(peer, *nodes(MANY))
    beyond(other, *nodes(MANY - 10))
    net.run(5.0)
    calls = Calls(monkeypatch, Nodes, "_reselect")
    link = net.wires[0].there
    assert 0 < calls.most(relay, net.now, lambda: relay.link_closed(link, net.now)) <= few_at_once
    assert len(relay.nodes) == MANY - 10 + 1
    assert {relay.nodes.best(it).path.peer_id for it in relay.nodes} == {other.id}  # type: ignore[union-attr]


def test_nodes_of_a_lost_link_lead_there_no_more_before_their_turn(
    net: Net, relay: Relay, peer: Puppet, few_at_once: int
) -> None:
    other = net.puppet("2:2")
    net.wire(other, relay, srtt_ms=50)
    beyond(peer, *nodes(MANY))
    beyond(other, *nodes(MANY // 2))
    app = App()
    net.announce(relay, app, "a")
    wants(peer, "3:1", "a/x")
    link = net.wires[0].there
    relay.link_closed(link, net.now)
    assert relay.nodes.is_settling
    for node in nodes(MANY):
        best = relay.nodes.best(parse_node_id(node))
        assert best is None or best.path.session != link.id
        assert all(path.session != link.id for path in relay.nodes.paths(parse_node_id(node)))
    relay.publish(app, track_hash("a/x"), 0, b"data", False, 0, 0, net.now)
    assert any(stream.data for stream in net.wires[1].there.streams.values())
    net.run()
    assert (relay.nodes.is_settling, len(relay.nodes)) == (False, MANY // 2 + 1)


def test_subscribes_of_nodes_that_are_lost_with_a_link_go_though_they_were_asked_for_before(
    net: Net, relay: Relay, peer: Puppet, few_at_once: int
) -> None:
    beyond(peer, *nodes(MANY))
    wants(peer, "3:7", "a/x")
    relay.link_closed(net.wires[0].there, net.now)
    assert [relay.nodes.best(parse_node_id(node)) for node in nodes(MANY)] == [None] * MANY
    net.run()
    assert (len(relay.subscribes), len(relay.nodes)) == (0, 0)


def test_peers_are_told_of_lost_nodes_some_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [net.puppet(f"2:{number}") for number in range(2, 12)]
    for other in others:
        net.wire(other, relay)
    beyond(peer, *nodes(MANY))
    net.run(5.0)
    assert all(len(it.told) >= MANY for it in relay.peers.values() if it.node_id != peer.id)
    calls = Calls(monkeypatch, Exchange, "_withdraw")
    link = net.wires[0].there
    most = calls.most(relay, net.now, lambda: relay.link_closed(link, net.now))
    assert 0 < most <= MOST_TOLD
    net.run()
    for other in others:
        assert len(other.heard_of(NodeInfoWd)) == MANY + 1


def test_a_round_trip_is_laid_down_for_some_nodes_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch, few_at_once: int
) -> None:
    beyond(peer, *nodes(MANY))
    net.run(5.0)
    calls = Calls(monkeypatch, Nodes, "_reselect")
    end = net.wires[0].there
    end.srtt_us = 90_000
    relay.link_srtt(end, net.now)
    net.now += relay.settings.steadiness.hold_s
    most = calls.most(relay, net.now, partial(relay.link_srtt, end, net.now))
    assert 0 < most <= few_at_once
    assert {relay.nodes.best(it).path.srtt_us // 1000 for it in relay.nodes} == {90, 91}  # type: ignore[union-attr]


def test_nodes_of_a_peer_that_leaves_are_chosen_again_some_at_a_time(
    net: Net, monkeypatch: pytest.MonkeyPatch, few_at_once: int
) -> None:
    relay, leaving, staying = net.relay("1:1"), net.puppet("2:1"), net.puppet("2:2")
    net.wire(leaving, relay, extended=True)
    net.wire(staying, relay, srtt_ms=50)
    beyond(leaving, *nodes(MANY))
    beyond(staying, *nodes(MANY))
    net.run(5.0)
    calls = Calls(monkeypatch, Nodes, "_reselect")
    end, goaway = net.wires[0].there, encode(GoAway(5000), codecs=EXTENDED_CODECS)
    most = calls.most(relay, net.now, lambda: relay.link_data(end, 0, goaway, False, net.now))
    assert 0 < most <= few_at_once
    far = [parse_node_id(node) for node in nodes(MANY)]
    assert {relay.nodes.best(it).path.peer_id for it in far} == {staying.id}  # type: ignore[union-attr]


def test_what_has_gathered_is_told_to_one_peer_after_another(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [net.puppet(f"2:{number}") for number in range(2, 12)]
    for other in others:
        net.wire(other, relay)
    net.run(5.0)
    beyond(peer, *nodes(MANY))
    calls = Calls(monkeypatch, Exchange, "_advertisement")
    at = relay.deadline()
    assert at is not None
    net.now = at
    most = calls.most(relay, net.now, lambda: relay.tick(net.now))
    assert 0 < most <= 2 * MANY
    net.run()
    for other in others:
        assert len({it.node_info.id for it in other.heard_of(NodeInfoAdv)}) >= MANY


def test_paths_are_watched_without_a_look_at_all_nodes(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond(peer, *nodes(MANY))
    relay.path_watch.look(net.now)
    beyond(peer, "4:1")
    calls = Calls(monkeypatch, Nodes, "best")
    relay.path_watch.look(net.now)
    assert calls.count == 1
    monkeypatch.setattr("laps.relay.journal.MOST_LOOKED_AT", 20)
    relay.link_closed(net.wires[0].there, net.now)
    noted = Calls(monkeypatch, PathWatch, "_note")
    for number in (1, 2, 3):
        relay.path_watch.look(net.now)
        assert noted.count == 20 * number


# -- flows -----------------------------------------------------------------------------------------


def test_flows_of_a_lost_link_are_written_down_some_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = net.puppet("2:2")
    net.wire(other, relay, srtt_ms=50)
    for via in (peer, other):
        beyond(via, "3:1")
    app = App()
    net.announce(relay, app, "a")
    wants(peer, "3:1", *(f"a/{number}" for number in range(2 * MANY)))
    assert len(net.wires[0].there.sets) == 2 * MANY > forwarding.MOST_AT_ONCE
    calls = Calls(monkeypatch, forwarding.Fib, "_unsettle")
    link = net.wires[0].there
    most = calls.most(relay, net.now, lambda: relay.link_closed(link, net.now))
    # Those whose last second is sent again, by another way, are settled ahead of their turn.
    assert 0 < most <= 3 * (MOST_IN_A_TURN + MOST_SENT_AGAIN)
    assert len(net.wires[1].there.sets) == 2 * MANY


def test_tables_of_flows_and_tracks_have_no_large_part(
    net: Net, relay: Relay, peer: Puppet
) -> None:
    count = 3 * PART
    app = App()
    relay.announce(app, announce_info(relay.id, (b"a",)), net.now)
    wants(peer, "2:1", *(f"a/{number}" for number in range(count)))
    net.run()
    fib, tracks, subscribes = relay.fib, relay.tracks, relay.subscribes
    large: list[Sized] = [
        fib._flows,
        *fib._by_target.values(),
        *fib._by_link.values(),
        *(ids._used for ids in fib._ids.values()),
        tracks._tracks,
        *tracks.shared.asked._keys.values(),
        tracks.shared.asked._clients,
    ]
    assert [len(table) for table in large] == [count] * len(large)
    for table in large:
        assert isinstance(table, Table)
        assert max(map(len, table._parts)) < count
    confirmed = [link.confirmed for link in relay.links.peer_links.values()]
    packed = [subscribes._sources._rows, *subscribes._records.values(), *confirmed]
    assert [len(table) for table in packed] == [count] * len(packed)
    for table in packed:
        assert max(page[0] for block in table._blocks for page in block.values()) < 4 * FULL
    (of_namespace,) = subscribes._namespaces._large.values()
    assert len(of_namespace) == count
    assert max(map(len, of_namespace._arrays)) <= MOST_IN_ARRAY


# -- tracks ----------------------------------------------------------------------------------------


def test_a_namespace_that_others_offer_is_no_look_at_every_track(
    net: Net, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = relay.tracks
    kept = [tracks.track(track_hash(f"a/{number}"), net.now) for number in range(MANY)]
    for track in kept:
        track.cached.history.published_here(all_of_it=True)
    assert not any(track.cached.history.partial for track in kept)

    def looked(*_: object) -> None:
        raise AssertionError("every track was looked at")

    monkeypatch.setattr(type(tracks._tracks), "__iter__", looked)
    monkeypatch.setattr(type(tracks._tracks), "values", looked)
    tracks.others_offer(None)
    assert all(track.cached.history.partial for track in kept)
    late = tracks.track(track_hash("a/late"), net.now)
    late.cached.history.published_here(all_of_it=True)
    assert not late.cached.history.partial


def test_tracks_of_a_client_that_leaves_are_reviewed_some_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    for number in range(MANY):
        net.subscribe(relay, app, f"a/{number}")
    calls = Calls(monkeypatch, Tracks, "review")
    most = calls.most(relay, net.now, lambda: relay.client_closed(app, net.now))
    assert 0 < most <= 2 * MOST_IN_A_TURN
    assert list(relay.tracks.subscribed(app)) == []
    calls = Calls(monkeypatch, SubscribeExchange, "_withdraw")
    net.run(relay.settings.unsubscribe_s)
    assert calls.count == MANY
    assert len(relay.subscribes) == 0


def test_an_offer_that_ends_looks_at_some_tracks_of_its_publisher_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants(peer, "2:1", *(f"a/{number}" for number in range(3 * LOOKS * MOST_IN_A_TURN)), "b/x")
    app = App()
    for name in ("a", "b"):
        relay.announce(app, announce_info(relay.id, (name.encode(),)), net.now)
    net.run()
    asked = len(app.asked)
    looked: list[int] = []
    offers = tracks_module._offers

    def look(info: AnnounceInfo, name: TrackName) -> bool:
        looked.append(1)
        return offers(info, name)

    monkeypatch.setattr(tracks_module, "_offers", look)
    relay.unannounce(app, announce_info(relay.id, (b"b",)), net.now)
    assert 0 < len(looked) <= LOOKS * MOST_IN_A_TURN
    net.run()
    assert (len(looked), len(app.asked)) == (asked, asked - 1)


def test_subscribes_that_are_not_said_again_are_withdrawn_some_at_a_time(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, peer, other = net.relay("1:1"), net.puppet("2:1"), net.puppet("2:2")
    net.wire(peer, relay)
    net.wire(other, relay)
    tracks = [f"a/{number}" for number in range(MANY)]
    wants(peer, "2:1", *tracks)
    other.say(NodeInfoAdv(structs.replace(peer.info, path=(NodePathItem(other.id, 1000),))))
    net.wires[0].cut()
    net.run(1.0)
    assert len(relay.subscribes) == MANY
    net.wire(peer, relay)
    wants(peer, "2:1", *tracks[:10])
    calls = Calls(monkeypatch, SubscribeExchange, "_take")
    most = 0
    end = net.now + 3 * relay.settings.confirm_s
    while (at := relay.deadline()) is not None and at <= end:
        net.now = max(net.now, at)
        most = max(most, calls.most(relay, net.now, lambda: relay.tick(net.now)))
    assert 0 < most <= MOST_IN_A_TURN
    assert len(relay.subscribes) == 10


# -- streams ---------------------------------------------------------------------------------------


def test_streams_of_a_publisher_that_leaves_are_reset_some_at_a_time(
    net: Net, relay: Relay, peer: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    net.announce(relay, app, "a")
    wants(peer, "2:1", "a/x")
    count = 3 * data_module.MOST_RESET
    for number in range(count):
        relay.publish(app, track_hash("a/x"), number, b"data", False, 0, 0, net.now)
    assert len(relay.data) == count
    calls = Calls(monkeypatch, data_module.DataPlane, "reset")
    most = calls.most(relay, net.now, lambda: relay.client_closed(app, net.now))
    assert 0 < most <= 2 * data_module.MOST_RESET
    assert (len(relay.data), calls.count > 0) == (0, True)


# -- how it is cut ---------------------------------------------------------------------------------


def test_timers_of_one_moment_are_called_some_at_a_time() -> None:
    timers, called = Timers(), []
    for number in range(2 * MOST_CALLS + 1):
        timers.at(1.0, lambda now, number=number: called.append(number))  # type: ignore[misc]
    for expected in (MOST_CALLS, 2 * MOST_CALLS, 2 * MOST_CALLS + 1):
        assert timers.next == 1.0
        timers.run(1.0)
        assert called == list(range(expected))
    assert timers.next is None


def test_pieces_count_what_is_looked_at() -> None:
    def work(*items: int | None) -> Iterator[int | None]:
        yield from items

    queue = deque([work(1, None, 2), work(), work(3, 4)])
    assert list(in_pieces(queue, 2)) == [1, 2]
    assert list(in_pieces(queue, 2)) == [3, 4]
    assert list(in_pieces(queue, 2)) == []
    assert not queue
    queue.append(work(*[None] * (LOOKS + 1), 5))
    assert list(in_pieces(queue, 1)) == []
    assert list(in_pieces(queue, 1)) == [5]
