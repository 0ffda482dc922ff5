"""What a relay shows of itself, without sockets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from laps.admin.rows import flows, network, tracks
from laps.admin.rows.relay import Wall
from laps.admin.rows.table import RowT, Table, contains
from laps.admin.schema.network import Announce, KnownNode, Path, Subscribe
from laps.admin.schema.tracks import Flow, NodeSet, OneTrack, Origin
from laps.names import bytes_text, read_hash, read_track, track_texts
from laps.net.engine import Stats
from laps.relay.journal import PathWatch
from laps.relay.roles import Role
from laps.routing.plan import NO_PLAN, Plan
from laps.types import PeerMode, TrackName, hash_track, parse_node_id
from support.relays import App, Net, track_hash

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.admin.schema.fields import Row
    from laps.relay.relay import Relay

NEARER = "lowest sRTT: 20 ms against 30 ms via 2:2"
EDGE = parse_node_id("1:2")
KEY = track_hash("a/x").full_name_hash


def rows(table: Table[RowT]) -> list[RowT]:
    return [row for key in table.keys if (row := table.row(key)) is not None]


class Later(Wall):
    """A billion seconds later than the relay's clock."""

    def __call__(self, at: float) -> float:
        return at + 1e9


later = Later()


class Diamond:
    """o-relay, two vias side by side, s-relay; the first via is the nearer."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App(), App()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.vias = [self.net.relay(f"2:{low}", Role.VIA) for low in (1, 2)]
        self.up = [
            self.net.wire(self.origin, via, ms) for via, ms in zip(self.vias, (10, 20), strict=True)
        ]
        self.down = [self.net.wire(via, self.edge, 10) for via in self.vias]
        self.net.settle()
        self.net.announce(self.origin, self.pub, "a")
        self.net.subscribe(self.edge, self.sub, "a/x")

    def look(self, relay: Relay) -> OneTrack:
        row = tracks.one_track(relay, KEY, later)
        assert row is not None
        return row


def test_a_node_has_its_best_path_the_reason_and_the_others() -> None:
    diamond = Diamond()
    row = network.node(diamond.origin, EDGE, later)
    assert row is not None
    assert row.reason == NEARER
    assert row.best == Path(
        peer="2:1",
        hops=["2:1", "1:2"],
        srtt_us=20_000,
        carries_data=True,
        admitted=True,
        since=later(1000.0),
    )
    assert [path.hops for path in row.alternates] == [["2:2", "1:2"]]
    assert network.node(diamond.origin, parse_node_id("9:9"), later) is None
    known = [row.node for row in rows(network.nodes(diamond.origin, later))]
    assert known == ["1:2", "2:1", "2:2"]


def test_a_node_that_is_gone_when_its_row_is_made_has_none() -> None:
    diamond = Diamond()
    table = network.nodes(diamond.origin, later)
    for wire in diamond.up:
        wire.cut()
    assert rows(table) == []


class Links(dict[Any, Any]):
    """The connections of a relay's links, each with what its transport counts."""

    def __init__(self, relay: Relay, **figures: int) -> None:
        egress = SimpleNamespace(queued_bytes=5, counters=SimpleNamespace(dropped_groups=1))
        for peer in relay.peers.values():
            for number, link_id in enumerate(peer.links):
                stats = replace(Stats(9, 0, 0, 0, 0, 0, 0, 0, 0), **figures)
                stats = replace(stats, srtt_us=stats.srtt_us + number)
                connection = SimpleNamespace(stats=lambda it=stats: it, buffered_bytes=2)
                self[link_id] = SimpleNamespace(connection=connection, egress=egress)


def test_a_peer_has_what_the_transports_of_all_its_connections_count() -> None:
    net = Net()
    near, far = net.relay("1:1"), net.relay("1:2")
    for mode in (PeerMode.CONTROL, PeerMode.DATA):
        net.wire(near, far, mode=mode)
    net.settle()
    runner: Any = SimpleNamespace(relay=near, links=Links(near, lost_packets=3, probe_timeouts=4))
    (row,) = rows(network.peers(runner, later))
    assert (row.connections, row.srtt_us, row.lost_packets, row.probe_timeouts) == (2, 9, 6, 8)
    assert (row.queue_bytes, row.dropped_groups, row.mode) == (14, 2, "both")


def test_a_hop_says_why_it_is_the_one() -> None:
    diamond = Diamond()
    (hop,) = diamond.look(diamond.origin).hops
    assert (hop.node, hop.peer, hop.source) == ("1:2", "2:1", None)
    assert hop.reason == NEARER
    assert [path.peer for path in hop.alternates] == ["2:2"]


def test_a_hop_by_a_plan_says_so_and_one_that_cannot_be_met_too() -> None:
    diamond = Diamond()
    for via, peer, reason in (
        ("2:2", "2:2", "plan 7 says by 2:2"),
        (
            "3:3",
            "2:1",
            f"{NEARER}; plan 7 says by 3:3, which does not lead there",
        ),
    ):
        plan = Plan(7, 1e10, {EDGE: "eu"}, {KEY: {"eu": (parse_node_id(via),)}})
        diamond.origin.follow_plan(plan, diamond.net.now)
        (hop,) = diamond.look(diamond.origin).hops
        assert (hop.peer, hop.reason) == (peer, reason)
        diamond.origin.follow_plan(NO_PLAN, diamond.net.now)


def test_looking_counts_nothing_and_changes_nothing() -> None:
    diamond = Diamond()
    plan = Plan(7, 1e10, {EDGE: "eu"}, {KEY: {"eu": (parse_node_id("3:3"),)}})
    diamond.origin.follow_plan(plan, diamond.net.now)
    before = (diamond.origin.router.counters.unmet_plans, diamond.origin.fib.changes)
    diamond.look(diamond.origin)
    rows(network.nodes(diamond.origin, later))
    assert (diamond.origin.router.counters.unmet_plans, diamond.origin.fib.changes) == before


def test_a_way_that_would_turn_back_is_told_apart() -> None:
    diamond = Diamond()
    relay = diamond.vias[0]
    (flow,) = relay.fib
    # What this via reaches 1:1 by is where the flow comes from.
    route = relay.router.route(flow, diamond.origin.id)
    assert route.path is None
    assert route.reason == "every way would turn back to 1:1, where it comes from"
    assert relay.router.route(flow, parse_node_id("9:9")).reason == "no way leads there"
    assert relay.router.route(flow, EDGE).path is not None


def test_a_flow_is_shown_with_its_sets_on_both_sides() -> None:
    diamond = Diamond()
    diamond.net.publish(diamond.origin, diamond.pub, "a/x", 0, b"data", False)
    numbers: dict[Hashable, int] = {diamond.pub: 3}

    def look(relay: Relay) -> tuple[list[Flow], list[NodeSet]]:
        index = flows.FlowIndex()
        list(index.read(relay))
        return rows(flows.fib(relay, index, numbers)), rows(flows.sns(relay, index))

    (flow,), (sent,) = look(diamond.origin)
    assert flow.source == Origin(client=3)
    assert flow.track == f"{KEY:016x}"
    assert (flow.targets, flow.unreached) == (["1:2"], [])
    assert (sent.peer, sent.direction, sent.streams) == ("2:1", "out", 1)
    (through,), sets = look(diamond.vias[0])
    assert through.source == Origin(peer="1:1", sns=sent.sns)
    assert [(row.direction, row.peer, row.streams) for row in sets] == [
        ("in", "1:1", 1),
        ("out", "1:2", 1),
    ]
    for wire in diamond.down:
        wire.cut()
    (flow,), _ = look(diamond.vias[0])
    assert flow.unreached == ["1:2"]


def test_subscribes_are_shown_by_name_where_it_can_be_read() -> None:
    diamond = Diamond()
    table = network.subscribes(diamond.origin)
    assert table.size == 1
    assert rows(table) == [
        Subscribe(
            source="1:2",
            track=f"{KEY:016x}",
            namespace="a",
            name="x",
            sequence=rows(network.subscribes(diamond.origin))[0].sequence,
        )
    ]


def test_a_track_is_found_by_its_hash_and_by_its_name() -> None:
    diamond = Diamond()
    for text in (f"{KEY:016x}", f"{KEY:016X}", "a x"):
        assert tracks.find_track(diamond.origin, text) == KEY
    for text in ("", "a", "a y", "0" * 16, f"{KEY:016x}"[1:]):
        assert tracks.find_track(diamond.origin, text) is None


@pytest.mark.parametrize(
    "name",
    [
        TrackName((b"a", b"b"), b"c"),
        TrackName((b"a b",), b"c d"),
        TrackName((b"\xff\x00", b"x"), b"\xfe"),
        TrackName((), b"alone"),
        TrackName((b"back\\slash",), b"\\x41"),
    ],
)
def test_a_name_is_read_back_from_its_text(name: TrackName) -> None:
    texts = track_texts(name)
    hashes = [hash_track(found) for found in read_track(" ".join(texts))]
    if name.namespace:
        assert hash_track(name) in hashes
    else:
        assert texts == ("", "alone")


def test_words() -> None:
    assert bytes_text(b"caf\xc3\xa9 \xff") == "café \\xff"
    assert track_texts(None) == ("", "")
    assert read_hash("00000000000000ff") == 255
    assert read_hash("0x0000000000000f") is None


@pytest.mark.parametrize(
    ("row", "text", "found"),
    [
        (Announce(name="Clock"), "clo", True),
        (Announce(name="clock"), "name", False),
        (Path(hops=["1:2", "1:3"]), "1:3", True),
        (KnownNode(node="1:1", best=Path(peer="2:1")), "2:1", True),
        (Announce(client=12), "12", True),
        (Announce(client=12), "1", False),
        (Flow(source=Origin(), local=True), "true", False),
        (Flow(source=Origin(peer="1:9", sns=7)), "7", True),
    ],
)
def test_a_text_is_looked_for_in_what_rows_hold(row: Row, text: str, found: bool) -> None:
    assert contains(row, text) is found


def test_a_path_that_changes_is_noted_once() -> None:
    diamond = Diamond()
    watch = PathWatch(diamond.origin.nodes, diamond.origin.journal)
    watch.look(1.0)
    seen = diamond.origin.journal.recent()[-1].number
    watch.look(2.0)
    assert diamond.origin.journal.recent(seen) == []
    diamond.up[0].cut()
    watch.look(3.0)
    told = {
        (item.event.subject, item.event.detail)
        for item in diamond.origin.journal.recent(seen)
        if item.event.name == "path_changed"
    }
    assert ("1:2", "2:1 to 2:2") in told
    assert ("2:1", "2:1 to nobody") in told or ("2:1", "2:1 to 2:2") in told
