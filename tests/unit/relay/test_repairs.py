"""A relay on the way falls silent or dies: what was under way is asked for, and comes once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from laps.relay.relay import Relay
from laps.relay.repairs import NOBODY, SETTLED_S, WAIT_S
from laps.relay.roles import Role
from laps.relay.suspicion import DOUBT_S
from laps.tracks.streams import SOURCE_LOST
from laps.types import Location
from laps.wire.extensions import (
    Have,
    HaveKind,
    NodeSilent,
    RepairRequest,
    RepairResponse,
    SetSilent,
)
from support.moqt import MoqtNet
from support.moqt_streams import Obj, objects_of
from support.quicr import QuicrApp

if TYPE_CHECKING:
    from support.quicr import Media
    from support.relays import Wire


class Diamond:
    """A publisher and a subscriber at two Edges, with two Vias between them."""

    def __init__(self, hops: int = 1, *, extended: bool = True) -> None:
        self.net = MoqtNet()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        for relay in (self.origin, self.edge):
            self.net.edge(relay)
        self.ways: list[list[Wire]] = []
        for way in (1, 2):
            names = [f"{2 + way}:{hop}" for hop in range(hops)]
            vias = [self.net.relay(name, Role.VIA, reflect=True) for name in names]
            row = pairwise([self.origin, *vias, self.edge])
            wires = [self.net.wire(a, b, 10 * way, extended=extended) for a, b in row]
            self.ways.append(wires)
        self.net.settle()
        self.pub, self.sub = self.net.app(self.origin), self.net.app(self.edge)
        self.alias = self.pub.publish("demo/t")
        self.net.run(0.5)
        self.sub.subscribe("demo/t")
        self.net.run(0.5)

    def lose(self, wire: Wire) -> None:
        """Nothing goes by it any more, and nobody is told."""
        wire.cut(noticed_by=())

    def notice(self, wire: Wire, *, close: bool = False) -> None:
        """Both ends find it silent, or dead."""
        for end in wire:
            relay = end.relay
            if close:
                relay.link_closed(end, self.net.now)
            else:
                assert isinstance(relay, Relay)
                relay.suspicion.silent(end.id, self.net.now)
        self.net.run(0.0)


@pytest.fixture(params=[False, True], ids=["silent", "closed"])
def close(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("where", [0, 1], ids=["up", "down"])
def test_a_stream_under_way_goes_on_and_what_began_meanwhile_comes(where: int, close: bool) -> None:
    diamond = Diamond()
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0, 1))
    diamond.net.run(0.1)
    lost = diamond.ways[0][where]
    diamond.lose(lost)
    stream.write(*objects_of(2), fin=True)
    diamond.pub.stream(diamond.alias, 1, *objects_of(0))
    later = diamond.pub.open(diamond.alias, 2, *objects_of(0))
    diamond.net.run(0.3)
    assert diamond.sub.places == [(0, 0), (0, 1)]
    diamond.notice(lost)
    diamond.net.run(0.5)
    if close or where == 1:  # as the first Via has no other way, that is waited for
        diamond.notice(lost, close=True)
        diamond.net.run(0.5)
    later.write(*objects_of(1), fin=True)
    diamond.net.run(5.0)
    assert diamond.sub.places == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert [it.reset_code for it in diamond.sub.streams] == [None] * 3
    assert all(it.finished for it in diamond.sub.streams)
    assert diamond.edge.sizes()["repairs"] == 0


def test_an_object_of_which_half_had_come_is_whole_in_the_end() -> None:
    diamond = Diamond()
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    stream.write_bytes(b"\x00\x0ahalf ")
    diamond.net.run(0.1)
    lost = diamond.ways[0][0]
    diamond.lose(lost)
    stream.write_bytes(b"there")
    stream.finish()
    diamond.notice(lost)
    diamond.net.run(1.0)
    (got,) = diamond.sub.streams
    assert [item.payload for item in got.objects] == [b"0", b"half there"]


def test_far_from_who_died_the_relays_after_it_pass_the_word_on() -> None:
    """Three Vias in a row: the first dies, and the subscriber's relay hears of it from the last."""
    diamond = Diamond(hops=3)
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    up, second, third, down = diamond.ways[0]
    for wire in (up, second):
        diamond.lose(wire)
    stream.write(*objects_of(1))
    diamond.notice(up)
    diamond.notice(second)
    assert any(isinstance(it, SetSilent) for it in third.here.sent)
    assert any(isinstance(it, SetSilent) for it in down.here.sent)
    diamond.net.run(0.5)
    assert diamond.sub.places == [(0, 0), (0, 1)]


# -- what others have found ------------------------------------------------------------------------


class Bypass:
    """Two Edges, and a Via between them that dies; and a long way round it, over two more.

        origin  --- via ---  edge
           |         |         |
        beside -----'---- farther

    `beside` is an Edge as the origin is: its best way leads by the same Via.
    """

    def __init__(self, *, extended: bool = True) -> None:
        self.net = MoqtNet()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.via, self.farther = (
            self.net.relay(it, Role.VIA, reflect=True) for it in ("2:1", "2:2")
        )
        self.beside = self.net.relay("2:3", Role.VIA, reflect=True)
        for relay in (self.origin, self.edge):
            self.net.edge(relay)
        pairs = [
            (self.origin, self.via),
            (self.via, self.edge),
            (self.origin, self.beside),
            (self.beside, self.via),
            (self.beside, self.farther),
            (self.farther, self.edge),
        ]
        self.wires = [self.net.wire(a, b, 10, extended=extended) for a, b in pairs]
        self.net.settle()
        self.pub, self.sub = self.net.app(self.origin), self.net.app(self.edge)
        self.alias = self.pub.publish("demo/t")
        self.net.run(0.5)
        self.sub.subscribe("demo/t")
        self.net.run(0.5)

    def die(self) -> None:
        """The Via is dead, and nobody is told."""
        for wire in self.wires:
            if self.via in (wire.here.relay, wire.there.relay):
                wire.cut(noticed_by=())

    def finds_silent(self, relay: Relay) -> None:
        """As it does that uses its link to the Via."""
        (peer_link,) = relay.links.peers[self.via.id].links
        relay.suspicion.silent(peer_link, self.net.now)
        self.net.run(0.0)


def test_who_finds_a_peer_silent_tells_those_that_it_sends_by_instead() -> None:
    """Nothing depended on their link to it, so that they would have sent it all to the dead one."""
    bypass = Bypass()
    bypass.die()
    bypass.finds_silent(bypass.origin)
    stream = bypass.pub.open(bypass.alias, 0, *objects_of(0))
    bypass.net.run(0.05)
    assert bypass.sub.places == [(0, 0)]
    stream.write(*objects_of(1), fin=True)
    bypass.net.run(0.05)
    assert bypass.sub.places == [(0, 0), (0, 1)]


def test_a_node_that_others_found_silent_is_used_again_once_it_has_answered() -> None:
    bypass = Bypass()
    avoided = bypass.beside.links.is_suspect
    (peer_link,) = bypass.beside.links.peers[bypass.via.id].links.values()
    bypass.beside.suspicion.peer_said(bypass.via.id, bypass.net.now)
    assert avoided(peer_link)
    bypass.net.post(lambda: None)
    bypass.net.run(0.0)
    assert not avoided(peer_link)
    assert not bypass.beside.suspicion.doubted
    # Whoever says so again and again does not keep it from being used.
    bypass.beside.suspicion.peer_said(bypass.via.id, bypass.net.now + DOUBT_S / 2)
    assert not avoided(peer_link)
    bypass.beside.suspicion.peer_said(bypass.via.id, bypass.net.now + DOUBT_S)
    assert avoided(peer_link)


def test_a_link_that_data_goes_by_is_watched_and_not_doubted() -> None:
    bypass = Bypass()
    bypass.origin.suspicion.peer_said(bypass.via.id, bypass.net.now)
    assert not bypass.origin.suspicion.doubted
    bypass.origin.suspicion.peer_said(bypass.edge.id, bypass.net.now)  # no peer of ours
    assert not bypass.origin.suspicion.doubted


def test_a_link_that_was_doubted_and_is_closed_leaves_nothing() -> None:
    bypass = Bypass()
    bypass.die()
    bypass.beside.suspicion.peer_said(bypass.via.id, bypass.net.now)
    (link_id,) = bypass.beside.suspicion.doubted
    assert bypass.beside.suspicion.depends_on(link_id)  # so it is asked
    bypass.beside.link_closed(bypass.beside.links.links[link_id], bypass.net.now)
    assert not bypass.beside.suspicion.doubted


def test_peers_that_speak_the_document_alone_are_told_nothing() -> None:
    bypass = Bypass(extended=False)
    bypass.finds_silent(bypass.origin)
    assert not bypass.beside.suspicion.doubted
    assert not any(isinstance(it, NodeSilent) for wire in bypass.wires for it in wire.here.sent)


def asked(diamond: Diamond) -> list[RepairRequest]:
    return [
        message
        for way in diamond.ways
        for message in way[-1].there.sent
        if isinstance(message, RepairRequest)
    ]


def answers(diamond: Diamond) -> list[int]:
    return [
        message.sent
        for way in diamond.ways
        for message in way[0].here.sent
        if isinstance(message, RepairResponse)
    ]


def test_a_stream_that_breaks_off_is_asked_for_at_once() -> None:
    diamond = Diamond()
    diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    last = diamond.ways[0][-1]
    (stream_id,) = last.here.streams
    was_due = diamond.edge.is_due
    diamond.edge.link_reset(last.there, stream_id, SOURCE_LOST, diamond.net.now)
    # A shell that has nothing else to do calls `tick`.
    assert (was_due, diamond.edge.is_due) == (False, True)
    assert diamond.edge.deadline() == 0.0


def test_what_is_there_is_not_sent_again() -> None:
    diamond = Diamond()
    diamond.pub.stream(diamond.alias, 0, *objects_of(0, 1))
    diamond.pub.open(diamond.alias, 1, *objects_of(0))
    diamond.net.run(0.5)
    lost = diamond.ways[0][0]
    diamond.lose(lost)
    diamond.notice(lost)
    diamond.net.run(SETTLED_S + 1.0)
    first, *rest = asked(diamond)
    kinds = {(item.kind, item.group) for item in first.have}
    assert (HaveKind.ALL, 0) in kinds
    assert rest  # for a while, since the others may not have noticed
    assert set(answers(diamond)[1:]) == {0}
    assert diamond.sub.places == [(0, 0), (0, 1), (1, 0)]


def test_what_came_before_a_group_is_not_sent_though_the_asking_clock_has_jumped() -> None:
    diamond = Diamond()
    for group in range(3):
        diamond.pub.datagram(diamond.alias, group, 0, payload=b"x")
        diamond.net.run(1.0)
    origin, edge = diamond.origin.id, diamond.edge.id
    key = next(iter(diamond.origin.tracks.keys()))
    have = (Have(HaveKind.BEFORE, 1, 0, 0), Have(HaveKind.DATAGRAM, 1, 0, 0))
    for first, sent in (((), 3), (have[:1], 2), (have, 1)):
        request = RepairRequest(8, edge, origin, 1, key, 60_000, first)
        diamond.origin.repairs.receive(request, diamond.net.now)
        assert answers(diamond)[-1] == sent


def test_what_left_before_the_last_came_is_sent_though_the_question_took_a_while() -> None:
    diamond = Diamond()
    for group in range(3):
        diamond.pub.datagram(diamond.alias, group, 0, payload=b"x")
        diamond.net.run(0.1)
    diamond.net.run(1.0)
    (key,) = diamond.origin.tracks.keys()
    track = diamond.origin.tracks.get(key)
    assert track is not None
    age_s = diamond.net.now - track.cached.groups[2].at - 0.02
    have = (Have(HaveKind.BEFORE, 1, 0, 0), Have(HaveKind.DATAGRAM, 1, 0, 0))
    asks = RepairRequest(8, diamond.edge.id, diamond.origin.id, 1, key, round(age_s * 1000), have)
    diamond.origin.repairs.receive(asks, diamond.net.now)
    assert answers(diamond)[-1] == 1


def test_the_last_group_before_the_time_asked_for_is_named() -> None:
    diamond = Diamond()
    for group in range(5):
        diamond.pub.stream(diamond.alias, group, *objects_of(0))
        diamond.net.run(1.0)
    diamond.lose(diamond.ways[0][0])
    diamond.notice(diamond.ways[0][0])
    diamond.net.run(0.1)
    named = [item.group for item in asked(diamond)[0].have if item.kind is HaveKind.BEFORE]
    assert named == [1]  # what is missing came in the 2.5 s before the last at most


def test_a_datagram_comes_once_and_one_that_was_lost_comes() -> None:
    diamond = Diamond()
    diamond.pub.datagram(diamond.alias, 0, 0, payload=b"a")
    diamond.net.run(0.5)
    lost = diamond.ways[0][0]
    diamond.lose(lost)
    diamond.pub.datagram(diamond.alias, 0, 1, payload=b"b")
    diamond.net.run(0.3)
    diamond.notice(lost)
    diamond.net.run(1.0)
    diamond.pub.datagram(diamond.alias, 0, 2, payload=b"c")
    diamond.net.run(3.0)
    assert [item.payload for item in diamond.sub.datagrams] == [b"a", b"b", b"c"]


def test_a_link_that_is_heard_again_costs_nothing() -> None:
    diamond = Diamond()
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    diamond.notice(diamond.ways[0][1])
    stream.write(*objects_of(1))
    diamond.net.run(0.1)
    for end in diamond.ways[0][1]:
        assert isinstance(end.relay, Relay)
        end.relay.suspicion.heard(end.id, diamond.net.now)
    stream.write(*objects_of(2), fin=True)
    diamond.net.run(5.0)
    (got,) = diamond.sub.streams
    assert got.places == [(0, 0), (0, 1), (0, 2)]
    assert got.finished


def test_what_nobody_has_is_given_up_and_counted() -> None:
    diamond = Diamond()
    diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    for way in diamond.ways:
        diamond.lose(way[0])
    for way in diamond.ways:
        diamond.notice(way[0], close=True)
    diamond.net.run(SETTLED_S + WAIT_S + 2.0)
    (got,) = diamond.sub.streams
    assert got.reset_code is not None
    assert diamond.edge.repairs.counters.lost_streams == 1


def test_who_cannot_be_asked_is_waited_for() -> None:
    """Peers that speak the document's protocol alone: a silent link may be heard again."""
    diamond = Diamond(extended=False)
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    diamond.notice(diamond.ways[0][1])
    stream.write(*objects_of(1), fin=True)
    diamond.net.run(1.0)
    assert diamond.sub.places == [(0, 0), (0, 1)]


def test_what_came_while_no_way_led_there_comes_when_one_does() -> None:
    diamond = Diamond()
    diamond.pub.stream(diamond.alias, 0, Obj(0, b"0"))
    diamond.net.run(0.5)
    ends = []
    for way in diamond.ways:
        ends.append((way[0].here.relay, way[0].there.relay))
        way[0].cut()
    diamond.pub.stream(diamond.alias, 1, Obj(0, b"1"))
    diamond.net.run(5.0)
    assert diamond.sub.places == [(0, 0)]
    diamond.net.wire(*ends[1], extended=True)
    diamond.net.run(10.0)
    diamond.pub.stream(diamond.alias, 2, Obj(0, b"2"))
    diamond.net.run(3.0)
    assert sorted(diamond.sub.places) == [(0, 0), (1, 0), (2, 0)]


def test_a_way_is_taken_back_after_something_was_sent_that_way() -> None:
    """A Via stood still; it is heard again before it knows that its other link is closed."""
    diamond = Diamond()
    near, far = diamond.ways[0]
    diamond.origin.suspicion.silent(near.here.id, diamond.net.now)
    diamond.net.run(0.5)
    far.cut(noticed_by=(diamond.edge,))
    diamond.net.run(10.0)
    assert len(diamond.edge.repairs) == 0
    diamond.origin.suspicion.heard(near.here.id, diamond.net.now)
    diamond.net.run(0.0)
    stream = diamond.pub.open(diamond.alias, 1, *objects_of(0))
    diamond.net.run(0.1)
    assert diamond.sub.places == []
    far.here.relay.link_closed(far.here, diamond.net.now)
    stream.write(*objects_of(1), fin=True)
    diamond.net.run(1.0)
    assert diamond.sub.places == [(1, 0), (1, 1)]


@pytest.mark.parametrize("another", [False, True], ids=["same-link", "another-link"])
def test_a_way_becomes_longer_after_something_was_sent_that_way(another: bool) -> None:
    """A Via leads by a dead link, of which it has noticed nothing; then it leads by another Via.

    The publisher's relay then has a shorter way by a link of its own, or no other than before.
    """
    diamond = Diamond()
    via, spare = (way[0].there.relay for way in diamond.ways)
    assert isinstance(via, Relay)
    diamond.net.wire(via, spare, extended=True)
    if not another:
        diamond.ways[1][0].cut()
    diamond.net.run(10.0)
    dead = diamond.ways[0][1]
    via.suspicion.silent(dead.here.id, diamond.net.now)
    diamond.net.run(0.5)
    dead.cut(noticed_by=(diamond.edge,))
    diamond.net.run(10.0)
    assert len(diamond.edge.repairs) == 0
    via.suspicion.heard(dead.here.id, diamond.net.now)
    diamond.net.run(3.0)
    diamond.pub.stream(diamond.alias, 1, *objects_of(0, 1))
    diamond.net.run(1.5)  # as long as it takes to find the link dead, and to tell
    assert diamond.sub.places == []
    via.link_closed(dead.here, diamond.net.now)
    diamond.net.run(0.0)
    diamond.pub.stream(diamond.alias, 2, *objects_of(0))
    diamond.net.run(1.0)
    assert diamond.sub.places == [(1, 0), (1, 1), (2, 0)]


def test_who_has_no_other_way_gets_nothing_twice_when_the_link_is_heard_again() -> None:
    diamond = Diamond()
    diamond.ways[1][0].cut()
    diamond.net.run(10.0)
    near = diamond.ways[0][0]
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.net.run(0.1)
    diamond.origin.suspicion.silent(near.here.id, diamond.net.now)
    diamond.net.run(1.5)
    assert diamond.origin.repairs.counters.sent == 0
    diamond.origin.suspicion.heard(near.here.id, diamond.net.now)
    stream.write(*objects_of(1), fin=True)
    diamond.net.run(1.0)
    assert diamond.sub.places == [(0, 0), (0, 1)]


def test_nothing_is_left_over() -> None:
    diamond = Diamond()
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0))
    diamond.lose(diamond.ways[0][0])
    stream.write(*objects_of(1))
    diamond.notice(diamond.ways[0][0], close=True)
    diamond.net.run(1.0)
    diamond.net.check_empty()
    assert diamond.edge.tracks.shared.broken == {}
    assert len(diamond.edge.tracks.shared.fed) == 0


def events(relay: Relay) -> list[tuple[str, str, str, str]]:
    noted = (item.event for item in relay.journal.recent())
    names = ("repaired", "objects_lost")
    return [(it.name, it.subject, it.detail, it.reason) for it in noted if it.name in names]


def test_objects_that_nobody_has_are_counted_by_track_and_told() -> None:
    diamond = Diamond()
    diamond.pub.stream(diamond.alias, 0, *objects_of(0, 1))
    diamond.pub.stream(diamond.alias, 1, *objects_of(0, 1))
    diamond.net.run(0.1)
    for way in diamond.ways:
        diamond.lose(way[1])
    diamond.pub.stream(diamond.alias, 2, *objects_of(0, 1))
    diamond.pub.stream(diamond.alias, 3, *objects_of(0, 1))
    # The publisher's relay has no room for what the others missed.
    for track in diamond.origin.tracks:
        track.cached.clear()
    for way in diamond.ways:
        diamond.notice(way[1], close=True)
    via = diamond.ways[0][0].there.relay
    diamond.net.wire(via, diamond.edge, 10, extended=True)
    diamond.net.run(1.0)
    diamond.pub.stream(diamond.alias, 4, *objects_of(0, 1))
    diamond.net.run(SETTLED_S + WAIT_S + 2.0)
    assert diamond.edge.repairs.counters.lost_objects == 2  # of two groups, one each at least
    (track,) = [it for it in diamond.edge.tracks if it.subscribers]
    assert track.meter.lost == 2
    lost, repaired = events(diamond.edge)
    assert lost[:3] == ("objects_lost", "demo t", "2 or more")
    assert repaired[:2] == ("repaired", "1 track")
    assert repaired[3] == "2 objects are lost"


def test_a_repair_that_brings_everything_says_so_once() -> None:
    diamond = Diamond()
    stream = diamond.pub.open(diamond.alias, 0, *objects_of(0, 1))
    diamond.net.run(0.1)
    diamond.lose(diamond.ways[0][1])
    stream.write(*objects_of(2), fin=True)
    diamond.notice(diamond.ways[0][1], close=True)
    diamond.net.run(SETTLED_S + WAIT_S + 2.0)
    assert [it[:2] + it[3:] for it in events(diamond.edge)] == [
        ("repaired", "1 track", "no object is lost")
    ]
    assert diamond.edge.repairs.counters.lost_objects == 0


def test_a_repair_ends_where_the_publisher_has_come_and_nobody_else_has_the_track() -> None:
    """Nobody is left to ask: the publisher itself sends again what may not have arrived."""
    diamond, media = _publisher_moves_to_its_reader()
    (track,) = [it for it in diamond.edge.tracks if it.subscribers]
    assert diamond.edge.sizes()["repairs"] == 1
    diamond.net.run(SETTLED_S)
    assert not track.is_mending
    assert diamond.edge.sizes()["repairs"] == 0
    assert sorted(media.places) == [(0, 0), (0, 1), (1, 0)]


def test_what_waits_for_a_repair_goes_on_when_that_is_over_though_nothing_else_comes() -> None:
    diamond, media = _publisher_moves_to_its_reader()
    assert media.places == [(0, 0), (0, 1)]  # nobody has said that this is all of the group
    diamond.net.run(SETTLED_S)
    assert media.places == [(0, 0), (0, 1), (1, 0)]


def _publisher_moves_to_its_reader() -> tuple[Diamond, Media]:
    diamond = Diamond()
    media = QuicrApp(diamond.net, diamond.edge).subscribe("demo/t")
    diamond.pub.stream(diamond.alias, 0, *objects_of(0, 1))
    diamond.net.run(0.5)
    for way in diamond.ways:
        diamond.lose(way[0])
        diamond.notice(way[0], close=True)
    pub = diamond.net.app(diamond.edge)
    alias = pub.publish("demo/t", largest=Location(0, 1))
    diamond.net.run(0.5)
    pub.stream(alias, 1, *objects_of(0))
    diamond.net.run(0.5)
    return diamond, media


@pytest.mark.parametrize("has_publisher", [True, False])
def test_who_asks_before_its_subscribe_has_come_is_told_that_nothing_is_sent(
    has_publisher: bool,
) -> None:
    diamond = Diamond()
    diamond.pub.stream(diamond.alias, 0, *objects_of(0, 1))
    diamond.net.run(0.1)
    if not has_publisher:
        diamond.pub.leave()
        diamond.net.run(0.1)
    via = diamond.ways[0][0].there.relay
    assert isinstance(via, Relay)
    (key,) = [track.key for track in diamond.origin.tracks if track.cached.groups]
    for asker in (via, diamond.edge):
        request = RepairRequest(9, asker.id, diamond.origin.id, 1, key, 100, ())
        diamond.origin.repairs.receive(request, diamond.net.now)
    hops = [
        message.last_hop
        for way in diamond.ways
        for message in way[0].here.sent
        if isinstance(message, RepairResponse)
    ]
    assert [hop == NOBODY for hop in hops] == [True, False]


@pytest.mark.parametrize("again", [True, False])
def test_what_a_publisher_sent_before_it_was_asked_goes_to_who_asks_a_moment_later(
    again: bool,
) -> None:
    """It has come from a relay that died, and its track was here before, from another."""
    net = MoqtNet()
    here, there = net.chain(2)
    if again:
        before = net.app(here)
        before.stream(before.publish("demo/t"), 0, *objects_of(0))
        before.leave()
    net.run(30.0)
    pub = net.app(here)
    pub.stream(pub.publish("demo/t"), 5, *objects_of(0, 1))
    net.run(0.2)
    net.app(there).subscribe("demo/t")
    net.run(0.5)
    (track,) = there.tracks
    assert list(track.cached.groups) == [5]
