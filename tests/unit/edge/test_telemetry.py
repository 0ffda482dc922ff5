"""What a relay publishes about itself: objects and groups, what is in them, off and on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from laps.telemetry.records import KINDS
from laps.types import NodeMetrics, parse_node_id
from laps.wire.extensions import NodeMetricsAdv
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.messages import (
    PublishDone,
    RequestError,
    SubscribeOk,
)
from support.moqt_streams import DRAFTS, NEXT_GROUP, start_at
from support.telemetry import (
    BEGAN_US,
    END,
    FIRST,
    Region,
    TelemetryNet,
    fetched,
    records,
)

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)


@pytest.fixture
def net() -> TelemetryNet:
    return TelemetryNet()


# -- objects and groups ----------------------------------------------------------------------------


@both
def test_each_kind_is_a_track_with_an_object_a_second(net: TelemetryNet, dialect: Dialect) -> None:
    relay, said = net.lone()
    app = net.app(relay, dialect)
    for kind in KINDS:
        app.subscribe(said.name(kind))
    assert len(app.heard_of(SubscribeOk)) == 4
    net.run(5)
    rows = [row for row in records(app.objects) if "load" in row]
    assert [row["at"].timestamp() for row in rows] == [BEGAN_US / 1e6 + s for s in range(1, 6)]
    assert [row["interval_us"] for row in rows] == [1_000_000] * 5
    # Where there is nothing to say but that there is nothing, it is said once.
    assert sorted(app.places) == sorted([(FIRST, n) for n in range(5)] + [(FIRST, 0)] * 3)


def test_a_group_is_a_minute_and_begins_with_an_object_whatever_there_is_to_say(
    net: TelemetryNet,
) -> None:
    relay, said = net.lone()
    app = net.app(relay)
    app.subscribe(said.name("node"))
    app.subscribe(said.name("links"))
    net.run(130)
    node, links = (
        [stream for stream in app.subgroups if stream.header.alias == alias]  # type: ignore[union-attr]
        for alias in (answer.alias for answer in app.heard_of(SubscribeOk))
    )
    assert [[place[1] for place in stream.places] for stream in node] == [
        list(range(60)),
        list(range(60)),
        list(range(10)),
    ]
    assert [stream.places for stream in links] == [[(FIRST + n, 0)] for n in range(3)]
    assert [stream.finished for stream in node] == [True, True, False]
    assert {stream.header.priority for stream in (*node, *links)} == {255}  # type: ignore[union-attr]


def test_a_relay_that_is_started_again_goes_on_behind(net: TelemetryNet) -> None:
    edge = net.relay("1:1")
    reader = net.app(edge)
    crashed = net.relay("1:2")
    net.edge(edge)
    said = net.report(crashed)
    net.wire(edge, crashed, extended=True)
    net.run(10)
    reader.subscribe(said.name("node"))
    net.run(3)
    net.reporting.remove(said)
    del net.edges[crashed]
    net.crash(crashed)
    net.run(2)
    before = list(reader.places)
    back = net.relay("1:2", epoch=2)
    net.report(back)
    net.wire(edge, back, extended=True)
    net.run(70)
    after = reader.places[len(before) :]
    assert before
    assert after
    assert max(before) < min(after)
    assert len(set(reader.places)) == len(reader.places)
    rows = records(reader.objects)
    assert rows == sorted(rows, key=lambda row: row["at"])


def test_a_group_that_grows_large_ends_before_its_minute(net: TelemetryNet) -> None:
    relay, said = net.lone(history_bytes=256 * 1024)
    app = net.app(relay)
    app.subscribe(said.name("node"))
    net.run(30)
    sizes = [len(stream.data) for stream in app.subgroups]
    assert len(sizes) > 2
    assert max(sizes) < 256 * 1024 * 0.125 / 4 + 4000
    assert app.places == sorted(app.places)
    assert len(app.places) == 30


# -- what is in them -------------------------------------------------------------------------------


def test_node_says_what_the_relay_is_and_does(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    relay.self_info = structs.replace(relay.self_info, latitude=47.5, longitude=-122.25)
    said = net.report(relay, region="us-west", capacity_bps=10**9, version="9.9")
    other = net.relay("1:2")
    net.wire(relay, other)
    app = net.app(relay)
    app.subscribe(said.name("node"))
    net.run(2)
    row = records(app.objects)[-1]
    assert row["cache_bytes"] > 0
    assert {**row, "at": None, "cache_bytes": 0} == {
        "at": None,
        "node": "1:1",
        "role": "edge",
        "region": "us-west",
        "latitude": 47.5,
        "longitude": -122.25,
        "interval_us": 1_000_000,
        "load": 0.25,
        "memory_bytes": 64_000_000,
        "capacity_bps": 10**9,
        "sent_bytes": 1000,
        "received_bytes": 2000,
        "clients": 1,
        "peers": 1,
        "tracks": 4,
        "cache_bytes": 0,
        "dropped": 0,
        "version": "9.9",
    }


def test_links_has_a_row_for_each_peer_and_what_the_slower_end_can_send(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = net.report(relay, capacity_bps=500)
    for node, capacity_bps in (("1:3", 400), ("1:2", 900), ("1:4", 0)):
        there = net.relay(node)
        wire = net.wire(relay, there, extended=True)
        metrics = NodeMetrics(0, parse_node_id(node), 0.5, capacity_bps, 0)
        there.extensions.measured(metrics, net.now)
        assert wire.there.said(NodeMetricsAdv)
    app = net.app(relay)
    app.subscribe(said.name("links"))
    net.run(1)
    rows = records(app.objects)
    assert [(row["peer"], row["capacity_bps"]) for row in rows] == [
        ("1:2", 500),
        ("1:3", 400),
        ("1:4", 500),
    ]
    assert {(row["srtt_us"], row["sent_bytes"], row["received_bytes"]) for row in rows} == {
        (1500, 100, 200)
    }


def events(rows: list[dict[str, Any]], *names: str) -> list[tuple[str, str, str, str]]:
    return [
        (row["event"], row["subject"], row["detail"], row["reason"])
        for row in rows
        if row["event"] in names
    ]


def test_peers_and_paths_that_come_and_go_are_events(net: TelemetryNet) -> None:
    relay, said = net.lone()
    near, far = net.relay("1:2"), net.relay("1:3")
    app = net.app(relay)
    app.subscribe(said.name("events"))
    direct = net.wire(relay, far)
    net.wire(near, far)
    net.wire(relay, near)
    net.run(5)
    direct.cut()
    net.run(5)
    rows = records(app.objects)
    assert events(rows, "peer_up", "peer_down") == [
        ("peer_up", "1:3", "edge for both", ""),
        ("peer_up", "1:2", "edge for both", ""),
        ("peer_down", "1:3", "", ""),
    ]
    paths = [row for row in rows if row["event"] == "path_changed" and row["subject"] == "1:3"]
    assert [(row["detail"], row["reason"]) for row in paths] == [
        ("nobody to 1:3", "fewest hops: 0 against 1 via 1:2"),
        ("1:3 to 1:2", "only path"),
    ]
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


def test_a_way_that_is_lost_is_an_event_and_one_that_flaps_between_rounds_is_none(
    net: TelemetryNet,
) -> None:
    relay, said = net.lone()
    app = net.app(relay)
    app.subscribe(said.name("events"))
    there = net.relay("1:2")
    wire = net.wire(relay, there)
    net.run(2)
    wire.cut()
    wire = net.wire(relay, there)
    net.run(2)
    wire.cut()
    net.run(2)
    assert events(records(app.objects), "path_changed") == [
        ("path_changed", "1:2", "nobody to 1:2", "only path"),
        ("path_changed", "1:2", "1:2 to nobody", "no way leads there any more"),
    ]


def test_groups_that_slow_readers_lose_are_counted_and_an_event(net: TelemetryNet) -> None:
    relay, said = net.lone()
    net.wire(relay, net.relay("1:2"))
    app = net.app(relay)
    app.subscribe(said.name("events"))
    app.subscribe(said.name("node"))
    net.run(1.5)
    said.senses.dropped = 3
    said.senses.node = replace(said.senses.node, dropped=4)
    net.run(1)
    said.senses.dropped = 0
    said.senses.node = replace(said.senses.node, dropped=0)
    net.run(2)
    rows = records(app.objects)
    assert [row["dropped"] for row in rows if "dropped" in row] == [0, 7, 0, 0]
    assert [
        event[1:3] for event in events([r for r in rows if "event" in r], "groups_dropped")
    ] == [
        ("1:2", "3 groups"),
        ("clients", "4 groups"),
    ]


@pytest.fixture
def region(net: TelemetryNet) -> Region:
    return Region(net)


# -- off and on ------------------------------------------------------------------------------------


def test_when_it_is_turned_off_readers_everywhere_hear_that_it_has_ended(region: Region) -> None:
    net, said = region.net, region.said[0]
    readers = [net.app(relay) for relay in (region.near, region.far, region.stub)]
    for reader in readers:
        reader.subscribe(said.name("node"))
    net.run(3)
    said.stop("no more of it")
    net.run(5)
    for reader in readers:
        (done,) = reader.heard_of(PublishDone)
        assert (done.code, done.reason) == (DoneCode.TRACK_ENDED, "no more of it")
    assert not said.telemetry.running
    again = net.app(region.far)
    again.subscribe(said.name("node"))
    net.run(5)
    assert again.heard_of(RequestError)


def test_turned_off_it_leaves_nothing_and_turned_on_it_begins_anew(net: TelemetryNet) -> None:
    relay, said = net.lone()
    net.run(100)
    said.stop()
    assert relay.tracks.shared.moved is None
    assert relay.sizes()["announces"] == relay.sizes()["namespaces"] == 0
    net.run(100)
    assert not len(relay.tracks)
    assert relay.data.open_streams() == []
    said.start()
    net.run(10)
    app = net.app(relay)
    app.fetch(said.name("node"), (0, 0), END)
    rows = fetched(app)
    assert len(rows) == 10
    assert app.fetched.places[0] == (FIRST + 200_000, 0)


def test_a_subscriber_that_was_there_first_is_served_when_it_is_turned_on(
    net: TelemetryNet,
) -> None:
    relay = net.relay("1:1")
    app = net.app(relay)
    app.subscribe("laps/telemetry/1:1/node", NEXT_GROUP)
    net.report(relay)
    net.run(3)
    assert len(records(app.objects)) == 3
    assert app.heard_of(SubscribeOk)


def test_a_relay_that_leaves_ends_its_groups_and_not_its_tracks(region: Region) -> None:
    net, said = region.net, region.said[0]
    reader = net.app(region.far)
    reader.subscribe(said.name("node"), start_at(0))
    net.run(3)
    said._next = None
    said.telemetry.leave(net.now)
    net.run(3)
    assert [stream.finished for stream in reader.subgroups] == [True]
    assert reader.heard_of(PublishDone) == []
