"""Edges without sockets: what they say to control servers, and what they make of what these say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from laps.bench.light_edge import TICKS_PER_S, Layout, LightEdge, Tables
from laps.relay.servers import REPLICAS, responsible
from laps.types import NodeId, NodeInfo, NodeType, TrackName, announce_info, hash_track
from laps.wire.control import ControlDecoder
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.interest import SubscribeInterest, Wants
from laps.wire.peering import AnnounceInfoAdv, NodeInfoAdv, SubscribeInfoAdv, SubscribeInfoWd
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from laps.wire.peering import Message

A, B, C = NodeId(11), NodeId(12), NodeId(13)
LAYOUT = Layout(tracks=90, edges=3)


@dataclass
class Told:
    """A session that remembers what was written on it."""

    room: int = 1 << 20
    decoder: ControlDecoder = field(default_factory=lambda: ControlDecoder(codecs=EXTENDED_CODECS))
    said: list[Message] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.decoder.feed(data)
        self.said += self.decoder

    def tracks(self, kind: type[Any] = SubscribeInfoAdv) -> list[int]:
        """The tracks that were said to be wanted, or no longer."""
        return [
            int(decode_track_name(it.subscribe_info.subscribe_data).name)
            for it in self.said
            if isinstance(it, kind)
        ]


def serve(edge: LightEdge, *servers: NodeId, wants: Wants = Wants.SHARE) -> dict[NodeId, Told]:
    """Sessions with servers that have said what they want."""
    told = {it: Told() for it in servers}
    for server, wire in told.items():
        edge.begin(server, wire)
    for server in servers:
        edge.receive(server, SubscribeInterest(wants, serves=True), 0)
    return told


def flush(edge: LightEdge) -> None:
    while edge.waiting:
        for server in list(edge.waiting):
            if server not in edge.sessions or not edge.pump(server):
                edge.waiting.pop(server, None)


def one() -> tuple[LightEdge, Tables]:
    tables = Tables(LAYOUT)
    return LightEdge(0, tables), tables


# --- who wants what ---------------------------------------------------------------------------


@pytest.mark.parametrize(("tracks", "edges"), [(1, 2), (90, 3), (1000, 7), (20, 20), (5, 20)])
def test_each_track_is_wanted_by_one_edge_that_does_not_offer_it(tracks: int, edges: int) -> None:
    layout = Layout(tracks, edges)
    wanted = {it: edge for edge in range(edges) for it in layout.wanted(edge)}
    assert sorted(wanted) == list(range(tracks))
    assert sum(1 for edge in range(edges) for _ in layout.wanted(edge)) == tracks
    for track, edge in wanted.items():
        assert edge == layout.subscriber(track) != layout.publisher(track)


def test_what_one_edge_offers_all_others_want() -> None:
    layout = Layout(1000, 5)
    wanted = Counter(layout.subscriber(it) for it in range(0, 1000, 5))
    assert sorted(wanted.values()) == [50, 50, 50, 50]


# --- what is said -----------------------------------------------------------------------------


def test_who_it_is_and_what_it_wants_to_hear_is_said_before_anything_else() -> None:
    edge, _ = one()
    told = serve(edge, A, B)
    flush(edge)
    assert told[A].said == [
        SubscribeInterest(Wants.LATER),
        SubscribeInterest(Wants.OFFERED, servers=(A,)),
        AnnounceInfoAdv(announce_info(edge.id, (b"bench", b"0"))),
        SubscribeInterest(Wants.OFFERED, servers=(A, B)),
    ]


def test_a_subscribe_is_told_to_the_servers_that_share_it() -> None:
    edge, _ = one()
    told = serve(edge, A, B, C)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    assert Counter(it for wire in told.values() for it in wire.tracks()) == dict.fromkeys(
        LAYOUT.wanted(0), REPLICAS
    )
    for server, wire in told.items():
        assert all(server in responsible(edge.key(it), (A, B, C)) for it in wire.tracks())


def test_a_subscribe_carries_its_name_its_hashes_and_when_it_was_made() -> None:
    edge, tables = one()
    track = next(LAYOUT.wanted(0))
    edge.change(track, 123_456, wanted=True)
    publisher = LightEdge(LAYOUT.publisher(track), Tables(LAYOUT))
    info = edge.info(track)
    name = TrackName((b"bench", b"%d" % publisher.number), b"%d" % track)
    assert decode_track_name(info.subscribe_data) == name
    assert info.track_hash == hash_track(name)
    assert info.sequence == tables.sequences[track] == 1


def test_what_is_unsubscribed_from_is_withdrawn_with_a_higher_sequence() -> None:
    edge, tables = one()
    told = serve(edge, A)
    track = next(LAYOUT.wanted(0))
    edge.change(track, 0, wanted=True)
    flush(edge)
    edge.change(track, 1, wanted=False)
    flush(edge)
    assert told[A].tracks() == told[A].tracks(SubscribeInfoWd) == [track]
    assert tables.counters.wanted == 0
    assert tables.sequences[track] == 2


def test_a_server_that_wants_everything_is_told_everything() -> None:
    edge, _ = one()
    told = serve(edge, A, B, C, wants=Wants.ALL)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    assert all(wire.tracks() == list(LAYOUT.wanted(0)) for wire in told.values())


def test_a_server_that_does_not_know_yet_is_told_nothing() -> None:
    edge, _ = one()
    told = serve(edge, A, wants=Wants.LATER)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    assert told[A].tracks() == []
    edge.receive(A, SubscribeInterest(Wants.SHARE, serves=True), 0)
    flush(edge)
    assert told[A].tracks() == list(LAYOUT.wanted(0))


# --- servers come and go ----------------------------------------------------------------------


def test_what_moves_is_told_after_the_servers_are_named_anew() -> None:
    edge, _ = one()
    told = serve(edge, A, B, C)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    for wire in told.values():
        wire.said.clear()
    edge.left(C)
    flush(edge)
    for server in (A, B):
        moved = [
            it for it in LAYOUT.wanted(0) if server not in responsible(edge.key(it), (A, B, C))
        ]
        assert told[server].said[0] == SubscribeInterest(Wants.OFFERED, servers=(A, B))
        assert told[server].tracks() == moved
    assert edge.is_whole
    assert edge.is_quiet


def test_a_server_that_comes_is_told_its_share_and_the_others_nothing() -> None:
    edge, _ = one()
    told = serve(edge, A, B)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    before = len(told[A].tracks())
    told |= serve(edge, C)
    flush(edge)
    share = [it for it in LAYOUT.wanted(0) if C in responsible(edge.key(it), (A, B, C))]
    assert told[C].tracks() == share
    assert len(told[A].tracks()) == before
    assert edge.servers == (A, B, C)


def test_servers_that_change_before_all_is_told_are_told_all_of_their_share() -> None:
    edge, _ = one()
    told = serve(edge, A, B, C)
    for track in LAYOUT.wanted(0):
        edge.change(track, 0, wanted=True)
    flush(edge)
    told[A].said.clear()
    told[A].room = 0
    edge.left(C)
    flush(edge)
    assert not edge.is_whole
    serve(edge, C)
    told[A].room = 1 << 20
    edge.waiting[A] = None
    flush(edge)
    share = {it for it in LAYOUT.wanted(0) if A in responsible(edge.key(it), (A, B, C))}
    assert share <= set(told[A].tracks())
    assert edge.is_whole


def test_servers_that_others_name_are_known_and_where_they_are() -> None:
    edge, _ = one()
    serve(edge, A)
    edge.receive(A, SubscribeInterest(Wants.SHARE, serves=True, servers=(B,)), 0)
    edge.receive(A, NodeInfoAdv(NodeInfo(B, NodeType.VIA, "127.0.0.1:7")), 0)
    assert edge.named == {B}
    assert edge.contacts == {B: "127.0.0.1:7"}


# --- what comes -------------------------------------------------------------------------------


def test_the_latest_of_a_subscribe_counts_whoever_tells_it_first() -> None:
    subscriber, there = LightEdge(1, Tables(LAYOUT)), Tables(LAYOUT)
    publisher = LightEdge(0, there)
    track = next(it for it in LAYOUT.wanted(1) if LAYOUT.publisher(it) == 0)
    serve(publisher, A, B)
    subscriber.change(track, 5 * TICKS_PER_S, wanted=True)
    first = subscriber.info(track)
    publisher.receive(A, SubscribeInfoAdv(first), 5 * TICKS_PER_S + TICKS_PER_S // 2)
    publisher.receive(B, SubscribeInfoAdv(first), 9 * TICKS_PER_S)
    assert list(there.samples) == [5.0, 0.5]
    assert there.is_known[track] == there.counters.known == 1
    subscriber.change(track, 6 * TICKS_PER_S, wanted=False)
    publisher.receive(A, SubscribeInfoWd(subscriber.info(track)), 6 * TICKS_PER_S)
    publisher.receive(B, SubscribeInfoAdv(first), 9 * TICKS_PER_S)
    assert there.is_known[track] == there.counters.known == 0
    assert list(there.samples) == [5.0, 0.5, 6.0, 0.0]


def test_what_is_not_offered_here_is_counted_and_not_taken() -> None:
    subscriber, there = LightEdge(1, Tables(LAYOUT)), Tables(LAYOUT)
    publisher = LightEdge(0, there)
    track = next(it for it in LAYOUT.wanted(1) if LAYOUT.publisher(it) == 2)
    serve(publisher, A)
    subscriber.change(track, 0, wanted=True)
    publisher.receive(A, SubscribeInfoAdv(subscriber.info(track)), 1)
    assert (there.counters.strays, there.counters.known) == (1, 0)


def test_what_a_server_says_wrongly_of_us_is_put_right() -> None:
    edge, tables = one()
    told = serve(edge, A)
    track = next(LAYOUT.wanted(0))
    edge.change(track, 0, wanted=True)
    flush(edge)
    said = edge.info(track)
    edge.receive(A, SubscribeInfoAdv(said), 0)
    flush(edge)
    assert told[A].tracks() == [track]
    tables.sequences[track] = 7
    edge.receive(A, SubscribeInfoWd(edge.info(track)), 0)
    flush(edge)
    assert told[A].tracks() == [track, track]
    assert tables.sequences[track] == 8
    assert tables.counters.corrected == 1
