"""Who reads what relays publish about themselves, from where, and how far back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from laps.edge import telemetry as module
from laps.telemetry.records import KINDS
from laps.tracks.cache import CacheLimits
from laps.types import Location, hash_track
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    FetchOk,
    Publish,
    PublishNamespace,
    RequestError,
    RequestOk,
    Subscribe,
    SubscribeOk,
    TrackStatus,
)
from laps.wire.quicr.messages import Response, SubscribeReply
from support.moqt_streams import DRAFTS, LARGEST
from support.quicr import QuicrApp
from support.relays import track_name
from support.telemetry import (
    BEGAN_US,
    END,
    FIRST,
    Region,
    TelemetryNet,
    fetched,
    records,
    unknown,
)

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)


@pytest.fixture
def net() -> TelemetryNet:
    return TelemetryNet()


# -- who reads them --------------------------------------------------------------------------------


def test_nothing_goes_to_peers_as_long_as_nobody_subscribes(net: TelemetryNet) -> None:
    relay, _ = net.lone()
    there = net.relay("1:2")
    net.edge(there)
    wire = net.wire(relay, there, extended=True)
    net.run(65)
    assert wire.here.streams == {}
    assert relay.data.counters.copies == 0


@pytest.fixture
def region(net: TelemetryNet) -> Region:
    return Region(net)


@both
def test_every_relay_is_read_from_every_other(region: Region, dialect: Dialect) -> None:
    net = region.net
    readers = [net.app(relay, dialect) for relay in (region.near, region.far, region.stub)]
    for reader in readers:
        for said in region.said:
            for kind in KINDS:
                reader.subscribe(said.name(kind))
    net.run(5)
    for reader in readers:
        assert not reader.heard_of(RequestError)
        assert len(reader.heard_of(SubscribeOk)) == 16
        rows = records(reader.objects)
        for node, role in (("1:1", "edge"), ("1:2", "via"), ("1:3", "edge"), ("1:4", "stub")):
            own = [row for row in rows if row.get("role") == role and row["node"] == node]
            assert len(own) >= 4, (node, own)
            assert {row["peer"] for row in rows if "srtt_us" in row and row["node"] == node}
    # A Via holds the subscribes for its own tracks, and no others.
    assert set(region.via.subscribes.tracks()) == {
        hash_track(track_name(region.said[1].name(kind))).full_name_hash for kind in KINDS
    }


def test_readers_that_leave_end_the_streams_to_their_relay(region: Region) -> None:
    net = region.net
    reader = net.app(region.far)
    reader.subscribe(region.said[0].name("node"))
    net.run(3)
    assert region.first.here.running
    reader.leave()
    net.run(70)
    assert region.first.here.running == []
    assert not region.via.subscribes.sources(
        hash_track(track_name(region.said[0].name("node"))).full_name_hash
    )


def test_a_reader_that_crashed_with_its_relay_is_forgotten_by_a_via(region: Region) -> None:
    """The Via holds subscribes for its own tracks alone, and drops those like any relay."""
    net = region.net
    reader = net.app(region.near)
    reader.subscribe(region.said[1].name("node"))
    net.run(2)
    assert len(region.via.subscribes) == 1
    net.crash(region.near, noticed=False)
    back = net.relay("1:1", epoch=9)
    net.wire(back, region.via, extended=True)
    net.run(10)
    assert len(region.via.subscribes) == 0


@both
@pytest.mark.parametrize("reader", [0, 2, 3])
@pytest.mark.parametrize("node", range(4))
def test_history_is_fetched_from_anywhere(
    region: Region, dialect: Dialect, reader: int, node: int
) -> None:
    net, said = region.net, region.said[node]
    net.run(100)
    app = net.app(region.relays[reader], dialect)
    app.fetch(said.name("node"), (said.oldest, 0), END)
    net.run(5)
    assert app.heard_of(FetchOk)
    rows = fetched(app)
    assert [row["node"] for row in rows] == [said.node] * len(rows)
    assert len(rows) >= 109
    assert rows == sorted(rows, key=lambda row: row["at"])
    if dialect is DRAFT16:
        assert unknown(app) == []


@both
@pytest.mark.parametrize("reader", [0, 2, 3])
@pytest.mark.parametrize("node", range(4))
def test_who_subscribes_anywhere_is_told_how_far_it_is(
    region: Region, dialect: Dialect, reader: int, node: int
) -> None:
    net, said = region.net, region.said[node]
    app = net.app(region.relays[reader], dialect)
    largest = said.telemetry._outputs["node"].track.largest()
    app.request(TrackStatus(0, track_name(said.name("node"))))
    net.run(0.2)
    assert app.heard_of(RequestOk)[-1].largest == largest
    app.subscribe(said.name("node"), LARGEST)
    net.run(0.2)
    (answer,) = app.heard_of(SubscribeOk)
    assert answer.largest == largest
    net.run(3)
    assert largest is not None
    assert app.places[:2] == [(largest.group, largest.object + n) for n in (1, 2)]


def test_what_is_fetched_from_a_stub_goes_to_who_asks_and_not_to_who_subscribes(
    region: Region,
) -> None:
    net, said = region.net, region.said[3]
    subscriber = net.app(region.near)
    subscriber.subscribe(said.name("node"))
    net.run(3.5)
    before = region.near.data.counters.streams
    asking = net.app(region.far)
    asking.fetch(said.name("node"), (said.oldest, 0), END)
    net.run(0.2)
    assert len(fetched(asking)) >= 13
    assert region.near.data.counters.streams == before
    net.run(70)
    assert subscriber.places == sorted(set(subscriber.places))
    assert len(subscriber.places) >= 70


def test_a_reader_that_was_away_catches_up_and_misses_nothing(region: Region) -> None:
    net, said = region.net, region.said[0]
    app = net.app(region.far)
    request = app.subscribe(said.name("node"))
    net.run(5)
    app.leave()
    net.run(150)
    back = net.app(region.far)
    request = back.subscribe(said.name("node"))
    net.run(3)
    last = Location(*app.places[-1])
    (answer,) = back.heard_of(SubscribeOk)
    assert answer.largest is not None
    back.fetch(
        said.name("node"),
        (last.group, last.object + 1),
        (answer.largest.group, answer.largest.object + 1),
    )
    net.run(5)
    rows = records(app.objects) + fetched(back) + records(back.objects)
    times = [round(row["at"].timestamp()) for row in rows]
    assert times == list(range(times[0], times[0] + len(times)))
    assert request is not None


def test_a_watcher_of_laps_is_told_of_the_tracks_and_one_of_everything_is_not(
    region: Region,
) -> None:
    net = region.net
    everything, asking, late = (net.app(region.near) for _ in range(3))
    everything.watch("")
    asking.watch("laps/telemetry")
    net.run(1)
    offered = {str(message.track.name) for message in asking.heard_of(Publish)}
    assert offered == {str(kind.encode()) for kind in KINDS}
    assert len(asking.heard_of(Publish)) == 16
    assert everything.heard_of(Publish) == []
    newcomer = net.relay("1:9")
    net.wire(newcomer, region.far, extended=True)
    net.report(newcomer)
    net.run(5)
    assert len(asking.heard_of(Publish)) == 20
    assert everything.heard_of(Publish) == []
    late.watch("laps")
    net.run(1)
    assert len(late.heard_of(Publish)) == 20


def test_a_quicr_client_finds_them_below_laps_and_not_among_everything(
    region: Region,
) -> None:
    net = region.net
    asking, everything = QuicrApp(net, region.near), QuicrApp(net, region.near)
    for name in ("laps", "laps/telemetry", "laps/telemetry/1:2"):
        asking.subscribe(name, mask=1)
    everything.subscribe("l", mask=1)
    everything.subscribe("demo", mask=1)
    net.run(2)
    assert len(asking.offered) == 16
    assert everything.offered == []


# -- nobody else publishes them --------------------------------------------------------------------


@both
def test_a_client_cannot_publish_as_a_relay(net: TelemetryNet, dialect: Dialect) -> None:
    relay, said = net.lone()
    app = net.app(relay, dialect)
    for message in (
        Publish(0, track_name(said.name("node")), 7),
        Publish(0, track_name("laps/telemetry/6:6/node"), 8),
        PublishNamespace(0, (b"laps", b"telemetry")),
        PublishNamespace(0, (b"laps", b"telemetry", b"6:6")),
    ):
        app.request(message)
        assert app.error == RequestCode.UNAUTHORIZED
    assert app.closed is None


@both
def test_a_client_that_publishes_laps_is_not_asked_for_telemetry(
    net: TelemetryNet, dialect: Dialect
) -> None:
    relay, said = net.lone()
    there = net.relay("1:2")
    net.wire(relay, there, extended=True)
    net.edge(there)
    net.run(3)
    planner = net.app(there, dialect)
    planner.publish_namespace("laps")
    net.run(1)
    reader = net.app(there)
    reader.subscribe(said.name("node"))
    reader.subscribe("laps/plan")
    reader.fetch(said.name("node"), (FIRST, 0), END)
    net.run(3)
    assert [message.track for message in planner.heard_of(Subscribe)] == [track_name("laps/plan")]
    assert len(fetched(reader)) == 4
    assert records(reader.objects)


def test_a_quicr_client_cannot_publish_as_a_relay(net: TelemetryNet) -> None:
    relay, said = net.lone()
    post = QuicrApp(net, relay).publish(said.name("node").encode())
    (reply,) = [message for message in post.heard if isinstance(message, SubscribeReply)]
    assert reply.response is Response.FAIL
    assert "relays alone" in reply.reason


# -- what is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [CacheLimits(), CacheLimits(0, 0, 1.0)])
def test_history_is_kept_for_its_time_whatever_the_cache_keeps(
    net: TelemetryNet, cache: CacheLimits
) -> None:
    relay = net.relay("1:1", cache=cache)
    said = net.report(relay, history_s=300.0)
    net.run(600)
    app = net.app(relay)
    app.fetch(said.name("node"), (0, 0), END)
    rows = fetched(app)
    first = BEGAN_US / 1e6 + 600 - rows[0]["at"].timestamp()
    assert 300 <= first <= 420
    assert len(rows) == round(first) + 1
    # What is older was there, perhaps: nobody knows any more.
    assert unknown(app) == [(FIRST + round((600 - first) / 60) - 1, (1 << 62) - 1)]


def test_a_range_that_is_gone_says_so_in_either_draft(net: TelemetryNet) -> None:
    relay, said = net.lone(history_s=60.0)
    net.run(600)
    new, old = net.app(relay), net.app(relay, DRAFT14)
    for app in (new, old):
        app.fetch(said.name("node"), (FIRST, 0), (FIRST + 1, 0))
    assert new.fetched.objects == []
    assert unknown(new) == [(FIRST + 1, (1 << 62) - 1)]
    assert old.last(RequestError).reason.startswith("part of the range is not known")


def test_a_range_that_is_partly_gone_is_marked_at_another_relay_too(net: TelemetryNet) -> None:
    relay, said = net.lone(history_s=120.0)
    there = net.relay("1:2")
    net.edge(there)
    net.wire(there, relay, extended=True)
    net.run(600)
    app = net.app(there)
    oldest = said.oldest
    app.fetch(said.name("node"), (FIRST, 0), END)
    net.run(0.5)
    assert app.fetched.places[0] == (oldest, 0)
    assert unknown(app) == [(oldest - 1, (1 << 62) - 1)]


def test_history_is_bounded_in_bytes_and_each_kind_has_its_own_part(net: TelemetryNet) -> None:
    relay, said = net.lone(history_bytes=400_000)
    for number in range(20):
        net.wire(relay, net.relay(f"2:{number}"))
    net.run(300)
    outputs = said.telemetry._outputs
    for kind, share in module.SHARES.items():
        assert outputs[kind].history.size <= 400_000 * share
    assert min(outputs["links"].track.cached.groups) > FIRST  # something had to go
    assert min(outputs["events"].track.cached.groups) == FIRST
    app = net.app(relay)
    app.fetch(said.name("links"), (0, 0), END)
    rows = fetched(app)
    assert len(rows) >= 20 * 20
    assert {row["peer"] for row in rows[-20:]} == {f"2:{number}" for number in range(20)}


def test_other_bounds_count_at_once(net: TelemetryNet) -> None:
    _, said = net.lone()
    net.run(400)
    said.telemetry.configure(replace(said.telemetry.settings, history_s=60.0))
    net.run(2)
    assert said.oldest == FIRST + 5


def test_what_all_objects_begin_with_is_kept_once(net: TelemetryNet) -> None:
    _, said = net.lone()
    net.run(50)
    output = said.telemetry._outputs["node"]
    (group,) = output.track.cached.groups.values()
    heads = [chunk for chunk in group.streams[0].chunks if chunk == output.encoder.head]
    assert len(heads) == 50
    assert {id(chunk) for chunk in heads} == {id(output.encoder.head)}
